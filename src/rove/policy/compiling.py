"""From the text of a policy to a function, once for everybody who has the same one.

`whitelist` says whether, `rewriting` says into what, Python compiles it. A broker with a thousand
doctors has one policy a thousand times, so what was compiled is kept by its text. Compiling takes
some milliseconds; finding it again, nothing.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any, Final

from rove.policy.errors import PolicyError
from rove.policy.guards import FILE
from rove.policy.library import Call, clamp, distance
from rove.policy.limits import PolicyLimits
from rove.policy.messages import Message
from rove.policy.rewriting import Rewriter
from rove.policy.trees import FLOAT, INT, LEN, LIST, STR
from rove.policy.verifying import verify
from rove.policy.whitelist import FUNCTION, parsed

KEPT_MAX: Final = 256
"""Compiled policies that are kept; those longest unused go."""

Function = Callable[[Message, dict[str, Any], Call | None], Any]

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


class Policy:
    """A policy, ready to run."""

    __slots__ = ("changes_state", "function", "is_heavy", "needs_call", "text", "uses", "writes")

    def __init__(self, text: str, bytes_max: int) -> None:
        tree = parsed(text, bytes_max)
        self.text = text
        self.uses: frozenset[str] = tree.uses
        """Names of the library's functions that it calls."""
        self.is_heavy: bool = "compress" in tree.uses
        rewriter = Rewriter(tree)
        module = rewriter.module()
        self.changes_state: bool = rewriter.changes_state
        """It sets or removes variables of `me`."""
        self.writes: bool = rewriter.writes
        """It changes messages."""
        self.needs_call: bool = rewriter.needs_call
        lists = {
            name: value for name, value in tree.constants.items() if isinstance(value, list | tuple)
        }
        place: dict[str, Any] = {"__builtins__": {}, **_GIVEN, **lists}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                code = compile(module, FILE, "exec", dont_inherit=True)
        except SyntaxError as error:
            what = f"this is no Python: {error.msg}"
            raise PolicyError(what, text=text, line=error.lineno or 0) from None
        except (RecursionError, MemoryError):
            raise PolicyError("the text is nested too deep", "write simpler expressions") from None
        exec(code, place)
        self.function: Function = place[FUNCTION]
        verify(self.function.__code__, frozenset(place))

    def __repr__(self) -> str:
        return f"Policy({self.text!r:.40})"


def compiled(text: str, *, bytes_max: int = PolicyLimits().text_bytes_max) -> Policy:
    """The policy that a text is; PolicyError if it is none."""
    return _compiled(text, bytes_max)


@functools.lru_cache(KEPT_MAX)
def _compiled(text: str, bytes_max: int) -> Policy:
    return Policy(text, bytes_max)
