"""Codes: every value of a subject as a rank among the bounds that subscriptions use.

An index has to know of a value only between which bounds it lies. So the bounds of a subject
are sorted once, and from then on a value is a whole number: its rank. One number line holds
all kinds of values, in this order:

    0 missing or null   1 FALSE   2 TRUE   3 carried   4… numbers   …strings

A half-open span [low, high) of numbers or strings, both ends being bounds, becomes exactly the
ranks from rank(low) to rank(high) - 1; so does IS NULL, a boolean, and each piece of a set with
several. After this step nobody needs to know that integers beyond 2^53 are hard to compare with
floats: here they were compared exactly, once.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from rove.lang.sets import IS_CARRIED, IS_FALSE, IS_NULL, IS_TRUE, LOWEST, TOP, Spans, ValueSet
from rove.lang.values import CARRIED

_NULL, _FALSE, _TRUE, _CARRIED, _FIRST_NUMBER = range(5)
_CODES_MAX: Final = 65_535

Ranks = npt.NDArray[np.uint32]


class SubjectCodes:
    """The bounds of one subject, sorted, and the ranks that they give to values."""

    __slots__ = ("_first_string", "_numbers", "_strings", "shift", "total")

    def __init__(self, numbers: Iterable[int | float], strings: Iterable[str]) -> None:
        self._numbers: list[int | float] = sorted(set(numbers))
        self._strings: list[str] = sorted(set(strings))
        self._first_string = _FIRST_NUMBER + len(self._numbers) + 1
        self.total = self._first_string + len(self._strings) + 1
        """How many ranks there are."""
        self.shift = max(0, (self.total - 1).bit_length() - 16)
        while (self.total - 1) >> self.shift >= _CODES_MAX:
            self.shift += 1
        """By how much a rank is shifted to become a code of 16 bits."""

    def rank(self, value: object) -> int:
        """The rank of what `look_up` found."""
        kind = type(value)
        if kind is float or kind is int:
            return _FIRST_NUMBER + bisect_right(self._numbers, cast(float, value))
        if kind is str:
            return self._first_string + bisect_right(self._strings, cast(str, value))
        if value is None:
            return _NULL
        return _CARRIED if value is CARRIED else _TRUE if value is True else _FALSE

    def spans(self, allowed: ValueSet) -> list[tuple[int, int]]:
        """The ranks of a set, as (first, last) pairs in order; patterns are not looked at."""
        found = [
            (rank, rank)
            for rank, fact in (
                (_NULL, IS_NULL),
                (_FALSE, IS_FALSE),
                (_TRUE, IS_TRUE),
                (_CARRIED, IS_CARRIED),
            )
            if allowed.facts & fact
        ]
        found += self._lane(allowed.numbers, self._numbers, _FIRST_NUMBER, LOWEST, math.inf)
        found += self._lane(allowed.strings, self._strings, self._first_string, "", TOP)
        return _joined(found)

    @staticmethod
    def _lane(
        spans: Spans, bounds: list[Any], first: int, lowest: object, highest: object
    ) -> list[tuple[int, int]]:
        """Spans whose ends are bounds, as ranks."""
        return [
            (
                first if low == lowest else first + bisect_right(bounds, low),
                first + len(bounds) if high == highest else first + bisect_right(bounds, high) - 1,
            )
            for low, high in spans
        ]


def bounds_of(allowed: ValueSet) -> tuple[list[int | float], list[str]]:
    """The bounds that a set brings: numbers and strings, without the open ends."""
    numbers = [end for span in allowed.numbers for end in span if LOWEST < end < math.inf]
    strings = [end for span in allowed.strings for end in span if end != "" and end is not TOP]
    return numbers, strings


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans in order, those that touch made one."""
    found: list[tuple[int, int]] = []
    for first, last in spans:
        if found and first == found[-1][1] + 1:
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return found
