"""Keys: every value of the language as one unsigned integer of 64 bits, in one order.

An index only compares, so all kinds of values are put in one order:

    0 missing or null   1 FALSE   2 TRUE   3 carried   …numbers…   …strings…

The key of a number is the bits of its float, transformed so that they sort as numbers do. No value
is a NaN, so the bit patterns of NaNs are free: those below are the four facts, those above are
strings. The key of a string is its rank among the strings that occur in bounds of a segment, since
nothing else about it matters.

Integers beyond 2^53 that no float can hold have the key of the float below. This is exact for
bounds that are floats, since no float lies between. Bounds that are such integers themselves cannot
be distinguished; for them `are_exact` is False, and the row is computed.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from rove.lang.sets import IS_FALSE, IS_NULL, IS_OPAQUE, IS_TRUE, LOWEST, TOP, Bound, ValueSet

Keys = npt.NDArray[np.uint64]

NULL, FALSE, TRUE, OPAQUE = range(4)
FIRST_NUMBER: Final = 4
LAST_NUMBER: Final = 0xFFEF_FFFF_FFFF_FFFF
FIRST_STRING: Final = 0xFFF0_0000_0000_0000
LAST: Final = 0xFFFF_FFFF_FFFF_FFFF

_SIGN: Final = 1 << 63
_EXACT_MAX: Final = 1 << 53
_pack = struct.Struct("<d").pack
_FACTS: Final = ((NULL, IS_NULL), (FALSE, IS_FALSE), (TRUE, IS_TRUE), (OPAQUE, IS_OPAQUE))


def number_key(value: int | float) -> int:
    """The key of a number; an integer that is no float takes that of the float below."""
    below = value if type(value) is float else floor_float(value)
    bits = int.from_bytes(_pack(below + 0.0), "little")  # -0.0 + 0.0 is 0.0
    return bits ^ LAST if bits & _SIGN else bits | _SIGN


def floor_float(value: int | float) -> float:
    """The largest float that is not above `value`."""
    found = float(value)
    return found if found <= value else math.nextafter(found, -math.inf)


def is_exact(value: int | float) -> bool:
    """True if a float can hold `value`."""
    return type(value) is float or -_EXACT_MAX <= value <= _EXACT_MAX or float(value) == value


def float_keys(values: npt.NDArray[np.float64]) -> Keys:
    """The keys of many floats; a NaN, which stands for a missing value, gives NULL."""
    bits = (values + 0.0).view(np.uint64)
    keys = np.where(bits >> np.uint64(63), ~bits, bits | np.uint64(_SIGN))
    keys[np.isnan(values)] = NULL
    return keys


Span: TypeAlias = tuple[int, int]
"""First and last key, both included."""


def spans(allowed: ValueSet, ranks: Mapping[str, int]) -> list[Span]:
    """The keys of a set, in order; patterns are not looked at. `ranks` is that of the strings."""
    found: list[Span] = []
    if allowed.facts:
        found = [(key, key) for key, fact in _FACTS if allowed.facts & fact]
    for low, high in allowed.numbers:
        first = FIRST_NUMBER if low == LOWEST else number_key(low)
        found.append((first, LAST_NUMBER if high == math.inf else _last_below(high)))
    for low, high in allowed.strings:
        found.append(_string_span(low, high, ranks))
    return _joined(found) if len(found) > 1 else found


def are_exact(allowed: ValueSet) -> bool:
    """True if keys tell the numbers of the set from all others."""
    ends = (end for span in allowed.numbers for end in span)
    return all(type(end) is float or is_exact(end) for end in ends)


def _last_below(high: int | float) -> int:
    """The last key that a number below `high` can have."""
    return number_key(high) - 1 if is_exact(high) else number_key(cast(int, high) - 1)


def _joined(found: list[Span]) -> list[Span]:
    """Spans that touch or overlap (the keys of neighbouring integers may) made one."""
    joined = found[:1]
    for first, last in found[1:]:
        if first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined


def string_bounds(allowed: ValueSet) -> list[str]:
    """The bounds of a set's spans of strings, without the open ends."""
    return [end for span in allowed.strings for end in span if end != "" and end is not TOP]


def _string_span(low: Bound, high: Bound, ranks: Mapping[str, int]) -> Span:
    """A half-open span of strings; `ranks` numbers the sorted bounds from 1."""
    first = FIRST_STRING + (ranks[low] if low != "" else 0)
    return first, LAST if high is TOP else FIRST_STRING + ranks[high] - 1
