"""Which functions a policy can call, with which arguments, and what they give.

The list is what the compiler checks calls against and what its refusals quote; what the functions
do is in `rove.policy.library`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

Gives = Literal["float", "number", "text", "message", "any", "same"]
"""What is certain of a result; `same` is a float for a float, else a number."""
MANY: Final = 255
COMPARED_MAX: Final = 100
"""Names that one which does not exist is compared with: that takes long."""


class Function(NamedTuple):
    """One function of the library, as it is called."""

    least: int
    """Arguments that stand by position, at least."""
    most: int
    """Arguments in all, at most."""
    usage: str
    """Ends a refusal."""
    gives: Gives = "any"
    positions: tuple[str, ...] = ()
    """Names of arguments that can be given by name too, in order; "" for those that cannot."""
    keywords: frozenset[str] | None = frozenset()
    """Arguments that can be given by name; None for any."""


def _function(
    least: int, most: int, usage: str, gives: Gives = "any", *positions: str, only: str = ""
) -> Function:
    names = frozenset(filter(None, (*positions, only)))
    return Function(least, most, f"write {usage}", gives, positions, names)


FUNCTIONS: Final[dict[str, Function]] = {
    # state
    "get": _function(1, 2, 'get("name") or get("name", default)', "any", "", "default"),
    "set": _function(2, 2, 'set("name", value)'),
    "remove": _function(1, 1, 'remove("name")'),
    # messages
    "message": Function(
        0, 1, 'write message(pulse=80) or message({"pulse": 80})', "message", (), None
    ),
    "keep": _function(1, MANY, 'keep(m, "pulse", "patient")', "message"),
    "drop": _function(1, MANY, 'drop(m, "image")', "message"),
    "data": _function(1, 1, "data(m)"),
    "set_data": _function(2, 2, "set_data(m, value)"),
    # time, and what lasts
    "now": _function(0, 0, "now()", "float"),
    "hour": _function(0, 1, "hour() or hour(time)", "number"),
    "minute": _function(0, 1, "minute() or minute(time)", "number"),
    "weekday": _function(0, 1, "weekday() or weekday(time)", "number"),
    "every": _function(1, 2, "every(300) or every(300, per=m.patient)", "number", "", "per"),
    "changed": _function(
        1, 3, 'changed("pulse") or changed("pulse", by=5, per=m.patient)', "number", "", "by", "per"
    ),
    "summary": _function(2, MANY, 'summary(300, "pulse", per=m.patient)', "any", only="per"),
    # numbers
    "abs": _function(1, 1, "abs(x)", "same"),
    "round": _function(1, 2, "round(x) or round(x, digits)", "number"),
    "floor": _function(1, 1, "floor(x)", "number"),
    "ceil": _function(1, 1, "ceil(x)", "number"),
    "sqrt": _function(1, 1, "sqrt(x)", "float"),
    "clamp": _function(3, 3, "clamp(x, low, high)", "number"),
    "distance": _function(4, 4, "distance(x1, y1, x2, y2)", "float"),
    "int": _function(1, 1, "int(x)", "number"),
    "float": _function(1, 1, "float(x)", "float"),
    "bool": _function(1, 1, "bool(x)", "number"),
    # lists
    "len": _function(1, 1, "len(x)", "number"),
    "min": _function(1, MANY, "min(a, b) or min(xs)"),
    "max": _function(1, MANY, "max(a, b) or max(xs)"),
    "sum": _function(1, 1, "sum(xs)", "number"),
    "sorted": _function(1, 1, "sorted(xs)"),
    "range": _function(1, 3, "for i in range(stop): or range(start, stop, step)"),
    # texts
    "str": _function(1, 1, "str(x)", "text"),
    "lower": _function(1, 1, "lower(text)", "text"),
    "upper": _function(1, 1, "upper(text)", "text"),
    "strip": _function(1, 1, "strip(text)", "text"),
    "split": _function(1, 2, 'split(text) or split(text, ",")'),
    "join": _function(1, 2, 'join(texts) or join(texts, ", ")', "text"),
    "replace": _function(3, 3, "replace(text, old, new)", "text"),
    "starts_with": _function(2, 2, "starts_with(text, beginning)", "number"),
    "ends_with": _function(2, 2, "ends_with(text, end)", "number"),
    "contains": _function(2, 2, "contains(text, part)", "number"),
    "find": _function(2, 2, "find(text, part)", "number"),
    # pictures
    "compress": _function(
        1, 4, "compress(image, quality=50), or bytes_max=20000, or pixels_max=640",
        "any", "", "quality", "bytes_max", "pixels_max",
    ),
}  # fmt: skip


def closest(name: str, known: Iterable[str]) -> str:
    """What to write instead of a name that does not exist."""
    near = difflib.get_close_matches(name[:40], list(known)[:COMPARED_MAX], 1)
    return f"did you mean {near[0]}?" if near else "see docs/policies.md for what there is"
