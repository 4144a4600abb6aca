"""Compiles the source of a policy to a function, once for all subscribers with the same source.

`whitelist` checks the source, `rewriter` transforms it, and Python compiles the result. A broker
with a thousand doctors may have the same policy a thousand times, so compiled policies are cached
by their source. Compiling takes some milliseconds, linear in the length of the source; a lookup
takes nothing. A worker can compile so that the broker need not wait, and returns the result as
`Code`, which takes 0.1 ms to load. With process isolation the broker never loads it, because it
does not trust what a worker returns.

Before a policy first runs, `verify` checks the bytecode once more, without relying on the whitelist
or the rewriter: a mistake of either would show as an attribute, a global name or a function that is
not ours. Finding anything is a defect of Rove. The bytecode is read here and not with `dis`, which
takes ten times as long because it describes every instruction; this takes 0.1 ms for the case
study's policy. A test compares the result with `dis` for the Python that runs it.
"""

from __future__ import annotations

import dis
import marshal
import math
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, Final

from rove.policy.errors import PolicyError
from rove.policy.guards import FILE
from rove.policy.jobs import Code
from rove.policy.library import PolicyCall, clamp, distance
from rove.policy.limits import PolicyLimits
from rove.policy.messages import Message
from rove.policy.rewriter import ATTRIBUTES, Rewriter
from rove.policy.syntax import FLOAT, INT, LEN, LIST, STR
from rove.policy.whitelist import FUNCTION, parsed

KEPT_MAX: Final = 256
"""Compiled policies that are kept; those longest unused go."""

Function = Callable[[Message, dict[str, Any], PolicyCall | None], Any]

_GIVEN: Final[dict[str, object]] = {
    FLOAT: float,
    INT: int,
    "_abs": abs,
    "_bool": bool,
    "_ceil": math.ceil,
    "_clamp": clamp,
    "_distance": distance,
    "_floor": math.floor,
    LEN: len,
    LIST: list,
    STR: str,
    "_max": max,
    "_min": min,
    "_range": range,
    "_round": round,
    "_sqrt": math.sqrt,
}
"""What the code finds besides its own names; no policy can write these."""

_OF_ATTRIBUTES: Final = frozenset({"LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR"})
_OF_NAMES: Final = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_REFUSED: Final = frozenset({"MAKE_FUNCTION"})
_NAMED: Final = frozenset(dis.hasname)
_HALVED: Final = {"LOAD_GLOBAL"} | ({"LOAD_ATTR"} if sys.version_info >= (3, 12) else set())
"""Instructions that say something else beside the number of a name, in its lowest bit."""


class Policy:
    """A policy, ready to run; its program is read when it is first run."""

    __slots__ = (
        "changes_state",
        "code",
        "function",
        "is_heavy",
        "needs_call",
        "text",
        "uses",
        "writes",
    )
    function: Function

    def __init__(self, text: str, code: Code) -> None:
        self.text = text
        self.code = code
        self.uses: frozenset[str] = frozenset(code.uses)
        """Names of the library's functions that it calls."""
        self.is_heavy: bool = "compress" in self.uses
        self.changes_state: bool = code.changes_state
        """It sets or removes variables of `me`."""
        self.writes: bool = code.writes
        """It changes messages."""
        self.needs_call: bool = code.needs_call

    def __getattr__(self, name: str) -> Any:
        if name != "function":
            raise AttributeError(name)
        self.read()
        return self.function

    def read(self) -> None:
        """Make the function of the program."""
        program, lists = marshal.loads(self.code.program)
        place: dict[str, Any] = {"__builtins__": {}, **_GIVEN, **lists}
        exec(program, place)
        self.function = place[FUNCTION]
        verify(self.function.__code__, frozenset(place))

    def __repr__(self) -> str:
        return f"Policy({self.text!r:.40})"


def compile_text(text: str, bytes_max: int) -> Code:
    """Compile a text; PolicyError if it is no policy. Takes some milliseconds."""
    tree = parsed(text, bytes_max)
    rewriter = Rewriter(tree)
    module = rewriter.module()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = compile(module, FILE, "exec", dont_inherit=True)
    except SyntaxError as error:
        what = f"this is no Python: {error.msg}"
        raise PolicyError(what, text=text, line=error.lineno or 0) from None
    except (RecursionError, MemoryError):
        raise PolicyError("the text is nested too deep", "write simpler expressions") from None
    lists = {
        name: value for name, value in tree.constants.items() if isinstance(value, list | tuple)
    }
    return Code(
        marshal.dumps((program, lists)),
        tuple(sorted(tree.uses)),
        rewriter.changes_state,
        rewriter.writes,
        rewriter.needs_call,
    )


_known: Final[OrderedDict[tuple[str, int], Policy]] = OrderedDict()


def known(text: str, *, bytes_max: int = PolicyLimits().text_bytes_max) -> Policy | None:
    """The policy that a text is, if it has been compiled and is still known."""
    found = _known.get((text, bytes_max))
    if found is not None:
        _known.move_to_end((text, bytes_max))
    return found


def remember(policy: Policy, *, bytes_max: int = PolicyLimits().text_bytes_max) -> None:
    """Keep a policy that was compiled, by its text."""
    _known[policy.text, bytes_max] = policy
    if len(_known) > KEPT_MAX:
        _known.popitem(last=False)


def compiled(
    text: str, *, bytes_max: int = PolicyLimits().text_bytes_max, code: Code | None = None
) -> Policy:
    """The policy that a text is; PolicyError if it is none. `code` is what it was compiled to."""
    found = known(text, bytes_max=bytes_max)
    if found is None:
        found = Policy(text, compile_text(text, bytes_max) if code is None else code)
        if code is None:
            # A fault of ours should show here, not with the first message.
            found.read()
        remember(found, bytes_max=bytes_max)
    return found


# -- verification ------------------------------------------------------------------------------


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
