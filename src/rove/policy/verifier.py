"""A second look at compiled policies, which trusts neither the whitelist nor the rewriting.

Whatever these let through by mistake would have to show in the bytecode: an attribute, a global
name or an import that is not ours. So each policy is looked at once more before it is first run.
It is a fault of ours if this ever finds anything.

The bytes are read here and not by `dis`, which takes ten times as long to describe all that nobody
asks about: a broker has its subscribers wait meanwhile. It takes 0.1 ms for the case study's
policy. A test compares what is read with what `dis` says, for the Python that runs it.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from types import CodeType
from typing import Final

from rove.policy.rewriter import ATTRIBUTES

_OF_ATTRIBUTES: Final = frozenset({"LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR"})
_OF_NAMES: Final = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_REFUSED: Final = frozenset({"MAKE_FUNCTION"})
_NAMED: Final = frozenset(dis.hasname)
_HALVED: Final = {"LOAD_GLOBAL"} | ({"LOAD_ATTR"} if sys.version_info >= (3, 12) else set())
"""Instructions that say something else beside the number of a name, in its lowest bit."""


def verify(code: CodeType, names: frozenset[str]) -> None:
    """See that compiled code has no attribute and no name but ours; AssertionError if it has."""
    for instruction, name in named_instructions(code):
        if instruction in _OF_ATTRIBUTES:
            is_fine = name in ATTRIBUTES
        else:
            is_fine = instruction in _OF_NAMES and name in names
        if not is_fine:
            raise AssertionError(f"{instruction} {name}")


def named_instructions(code: CodeType) -> Iterator[tuple[str, str]]:
    """Every instruction that names something or makes a function, and what it names; each once."""
    for number, argument in set(_instructions(code.co_code)):
        instruction = dis.opname[number]
        if number in _NAMED:
            place = argument >> 1 if instruction in _HALVED else argument
            yield instruction, code.co_names[place]
        elif instruction in _REFUSED:
            yield instruction, ""


def _instructions(code: bytes) -> Iterator[tuple[int, int]]:
    """The number and the argument of each."""
    more = 0
    for place in range(0, len(code), 2):
        number, argument = code[place], code[place + 1] | more
        more = argument << 8 if number == dis.EXTENDED_ARG else 0
        yield number, argument
