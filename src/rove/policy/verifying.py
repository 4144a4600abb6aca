"""A second look at compiled policies, which trusts neither the whitelist nor the rewriting.

Whatever these let through by mistake would have to show in the bytecode: an attribute, a global
name or an import that is not ours. So each policy is looked at once more before it is first run,
for some 50 µs. It is a fault of ours if this ever finds anything.
"""

from __future__ import annotations

import dis
from types import CodeType

from rove.policy.rewriting import ATTRIBUTES


def verify(code: CodeType, names: frozenset[str]) -> None:
    """See that compiled code has no attribute and no name but ours; AssertionError if it has."""
    for instruction in dis.get_instructions(code):
        match instruction.opname:
            case "LOAD_ATTR" | "LOAD_METHOD" | "STORE_ATTR":
                is_fine = instruction.argval in ATTRIBUTES
            case "LOAD_GLOBAL" | "LOAD_NAME":
                is_fine = instruction.argval in names
            case "IMPORT_NAME" | "STORE_GLOBAL" | "DELETE_ATTR" | "MAKE_FUNCTION":
                is_fine = False
            case _:
                is_fine = True
        if not is_fine:
            raise AssertionError(instruction)
