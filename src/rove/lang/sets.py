"""Sets of values: what one attribute may be, with all its predicates merged.

A set has a lane for each kind of value, since no value is ever coerced: spans of numbers,
spans of strings (narrowed by patterns), and four single facts (TRUE, FALSE, missing or null,
carried but not comparable). A span is half-open, (low, high): low belongs to it, high does
not. Numbers have direct neighbours and strings direct successors, so every comparison of the
language is such a span exactly, and union, intersection and complement are one short merge.

Cost: a set of one span is one struct and two tuples; operations are linear in the spans.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, TypeAlias

import msgspec

from rove.lang.patterns import (
    Ends,
    Pattern,
    StepBudget,
    StepBudgetSpent,
    find_string,
    fits,
    like_text,
)
from rove.lang.values import OPAQUE, next_number, previous_number


class _Top:
    """Greater than every string: the open end of a span of strings."""

    __slots__ = ()

    def __lt__(self, other: object) -> bool:
        return False

    def __le__(self, other: object) -> bool:
        return other is self

    def __gt__(self, other: object) -> bool:
        return other is not self

    def __ge__(self, other: object) -> bool:
        return True

    def __repr__(self) -> str:
        return "TOP"

    def __reduce__(self) -> str:
        return "TOP"  # there is only one, also after pickling


TOP: Final = _Top()
Bound: TypeAlias = Any
"""A number (or an infinity), a string, or TOP; within one lane they all compare."""
Spans: TypeAlias = tuple[tuple[Bound, Bound], ...]
"""Disjoint, sorted, none touching the next, none empty."""

IS_TRUE: Final = 1
IS_FALSE: Final = 2
IS_NULL: Final = 4
IS_OPAQUE: Final = 8
_ALL_FACTS: Final = IS_TRUE | IS_FALSE | IS_NULL | IS_OPAQUE

LOWEST: Final = -sys.float_info.max
"""The smallest number there is; after the largest comes infinity, which belongs to no span."""
ALL_NUMBERS: Final[Spans] = ((LOWEST, math.inf),)
ALL_STRINGS: Final[Spans] = (("", TOP),)

_FEW_SPANS: Final = 8
"""Up to so many are looked through; in more, the place is sought."""
_LIKELY_MAX: Final = 4
"""Patterns of one set whose own strings are tried."""
_COMPARING_STEPS: Final = 40
"""What it takes to compare two sets with patterns, beside a step for each character of these."""
_UNLIKELY: Final = "\x01"
"""A character that patterns hardly ever name."""


class ValueSet(msgspec.Struct, frozen=True):
    """The values that one attribute may have."""

    numbers: Spans = ()
    strings: Spans = ()
    fitting: frozenset[Pattern] = frozenset()
    missing: frozenset[Pattern] = frozenset()
    """A string of the set lies in `strings`, fits every pattern of `fitting`, none of `missing`."""
    facts: int = 0

    def __contains__(self, value: object) -> bool:
        """Membership of what `look_up` found: a value, None, or OPAQUE."""
        if isinstance(value, bool):
            return self.facts & (IS_TRUE if value else IS_FALSE) != 0
        if isinstance(value, int | float):
            return _within(self.numbers, value)
        if isinstance(value, str):
            return _within(self.strings, value) and self.fits_patterns(value)
        return self.facts & (IS_OPAQUE if value is OPAQUE else IS_NULL) != 0

    def fits_patterns(self, text: str) -> bool:
        """Whether a string fits every pattern of `fitting` and none of `missing`."""
        return all(fits(pattern, text) for pattern in self.fitting) and not any(
            fits(pattern, text) for pattern in self.missing
        )

    @property
    def patterned(self) -> bool:
        return bool(self.fitting or self.missing)


EMPTY: Final = ValueSet()
EVERYTHING: Final = ValueSet(ALL_NUMBERS, ALL_STRINGS, facts=_ALL_FACTS)
NUMBERS: Final = ValueSet(ALL_NUMBERS)
STRINGS: Final = ValueSet(strings=ALL_STRINGS)
BOOLEANS: Final = ValueSet(facts=IS_TRUE | IS_FALSE)
NULL: Final = ValueSet(facts=IS_NULL)
PRESENT: Final = ValueSet(ALL_NUMBERS, ALL_STRINGS, facts=_ALL_FACTS & ~IS_NULL)
OBJECT: Final = ValueSet(facts=IS_OPAQUE)


def intersection(a: ValueSet, b: ValueSet) -> ValueSet:
    """The values in both."""
    strings = _cut(a.strings, b.strings)
    numbers = _cut(a.numbers, b.numbers)
    if not strings:
        return ValueSet(numbers, facts=a.facts & b.facts)
    if not (a.patterned or b.patterned):
        return ValueSet(numbers, strings, facts=a.facts & b.facts)
    merged = ValueSet(
        numbers, strings, a.fitting | b.fitting, a.missing | b.missing, a.facts & b.facts
    )
    return settled(merged)


def union(a: ValueSet, b: ValueSet) -> ValueSet | None:
    """The values in either; None where their patterns differ.

    Where only one of them has strings, one set could hold both. But numbers that may join this
    set of strings or that, whichever comes first, would make a normal form depend on the order
    in which it was written.
    """
    if (a.fitting, a.missing) != (b.fitting, b.missing):
        return None
    numbers, strings = _join(a.numbers, b.numbers), _join(a.strings, b.strings)
    return ValueSet(numbers, strings, a.fitting, a.missing, a.facts | b.facts)


def complement(a: ValueSet) -> list[ValueSet]:
    """Sets that together hold every value that `a` does not."""
    outside = ValueSet(
        _gaps(a.numbers, LOWEST, math.inf),
        _gaps(a.strings, "", TOP),
        facts=_ALL_FACTS & ~a.facts,
    )
    found = [outside] if outside != EMPTY else []
    if a.strings:
        fits, misses = _in_order(a.fitting), _in_order(a.missing)
        found += [settled(ValueSet(strings=a.strings, missing=frozenset([p]))) for p in fits]
        found += [settled(ValueSet(strings=a.strings, fitting=frozenset([p]))) for p in misses]
    return found


def _in_order(patterns: frozenset[Pattern]) -> list[Pattern]:
    """By spelling: a set has another order in every process, and witnesses must not differ."""
    return sorted(patterns, key=lambda pattern: like_text(pattern)[0])


def settled(a: ValueSet) -> ValueSet:
    """`a` with its patterns applied where its strings are few: a handful of points."""
    if a.patterned and a.strings and all(is_point(low, high) for low, high in a.strings):
        kept = tuple(span for span in a.strings if a.fits_patterns(span[0]))
        return ValueSet(a.numbers, kept, facts=a.facts)
    return a


def example(a: ValueSet, effort: StepBudget | None = None) -> object:
    """Some readable value of `a`; LookupError if it is empty, StepBudgetSpent if it took too long.

    None stands for a missing attribute, OPAQUE for an object or array.
    """
    for low, high in a.numbers:
        return _readable_number(low, high)
    for low, high in a.strings:
        ends = Ends(low, None if high is TOP else high)
        text = find_string(ends, [*a.fitting], [*a.missing], effort)
        if text is not None:
            return text
    for fact, value in ((IS_TRUE, True), (IS_FALSE, False), (IS_NULL, None), (IS_OPAQUE, OPAQUE)):
        if a.facts & fact:
            return value
    raise LookupError("the set is empty")


def is_empty(a: ValueSet, effort: StepBudget | None = None) -> bool:
    """True only if certainly no value belongs to `a`, and that took no more than `effort`."""
    if a.numbers or a.facts:
        return False
    if not a.patterned:
        return not a.strings
    if effort is not None and not _compares(a, EMPTY, effort):
        return False
    if a.strings and any(text in a for text in _likely(a.fitting)):
        return False
    try:
        example(a, effort)
    except LookupError:
        return True
    except StepBudgetSpent:
        return False
    return False


def is_subset(a: ValueSet, b: ValueSet, effort: StepBudget | None = None) -> bool:
    """True only if certainly every value of `a` belongs to `b`."""
    if a.facts & ~b.facts or _sticks_out(a.numbers, b.numbers):
        # Most pairs are told apart by this, and there may be thousands of them.
        return False
    if a == b:
        return True
    if not (a.patterned or b.patterned):
        return intersection(a, b) == a
    if effort is not None and not _compares(a, b, effort):
        return False
    if a.strings and any(text not in b and text in a for text in _likely(a.fitting)):
        return False
    return all(is_empty(intersection(a, rest), effort) for rest in complement(b))


@lru_cache(maxsize=256)
def _likely(fitting: frozenset[Pattern]) -> tuple[str, ...]:
    """Strings that probably fit all patterns. Trying them is far cheaper than searching.

    Each pattern's own, with every gap filled and the shortest; and of several, all in a row.
    """
    found = [""]
    patterns = _in_order(fitting) if len(fitting) > 1 else list(fitting)
    for pattern in patterns[:_LIKELY_MAX]:
        found += (pattern.example(_UNLIKELY), pattern.example(""))
    if len(patterns) > 1:
        found.append(_UNLIKELY.join(pattern.example("") for pattern in patterns))
    return tuple(found)


def _compares(a: ValueSet, b: ValueSet, effort: StepBudget) -> bool:
    """Whether enough effort is left to compare the patterns of two sets; it is spent."""
    if effort.is_spent:
        return False
    patterns = (*a.fitting, *a.missing, *b.fitting, *b.missing)
    try:
        effort.spend(_COMPARING_STEPS + sum(len(pattern.items) for pattern in patterns))
    except StepBudgetSpent:
        return False
    return True


def is_point(low: Bound, high: Bound) -> bool:
    """True if exactly one value lies in the span."""
    return bool(high == after(low))


def after(value: Bound) -> Bound:
    """The direct successor of a number or a string."""
    return value + "\0" if isinstance(value, str) else next_number(value)


def prefix_span(prefix: str) -> tuple[Bound, Bound]:
    """The span of the strings that start with `prefix`."""
    for i in range(len(prefix) - 1, -1, -1):
        point = ord(prefix[i])
        if point < 0x10FFFF:
            return prefix, prefix[:i] + chr(0xE000 if point == 0xD7FF else point + 1)
    return prefix, TOP


def spans_of(values: Iterable[Bound]) -> Spans:
    """One span for each of `values`, neighbours joined."""
    return normal_spans((value, after(value)) for value in values)


def normal_spans(spans: Iterable[tuple[Bound, Bound]]) -> Spans:
    """Any spans, in any order, sorted and joined where they touch."""
    found: list[tuple[Bound, Bound]] = []
    for low, high in sorted((s for s in spans if s[0] < s[1]), key=itemgetter(0)):
        if found and low <= found[-1][1]:
            if found[-1][1] < high:
                found[-1] = (found[-1][0], high)
        else:
            found.append((low, high))
    return tuple(found)


def _within(spans: Spans, value: Bound) -> bool:
    if len(spans) <= _FEW_SPANS:
        return any(low <= value < high for low, high in spans)
    place = bisect_right(spans, value, key=itemgetter(0))
    return place > 0 and bool(value < spans[place - 1][1])


def _join(a: Spans, b: Spans) -> Spans:
    """The spans in either. A single one apart from the others is put in its place unsorted."""
    if not (a and b):
        return a or b
    if len(a) == 1:
        a, b = b, a
    if len(b) > 1:
        return normal_spans((*a, *b))
    ((low, high),) = b
    place = bisect_right(a, low, key=itemgetter(0))
    if (place and low <= a[place - 1][1]) or (place < len(a) and a[place][0] <= high):
        return normal_spans((*a, *b))
    return (*a[:place], (low, high), *a[place:])


def _cut(a: Spans, b: Spans) -> Spans:
    """The spans in both. One span cuts only the first and the last that it meets of many."""
    if a == b:
        return a
    if len(a) == 1 and len(b) > 2:
        b = _met(b, a[0])
        return (*_both(a, b[:1]), *b[1:-1], *_both(a, b[-1:])) if len(b) > 2 else _both(a, b)
    if len(b) == 1 and len(a) > 2:
        a = _met(a, b[0])
        return (*_both(a[:1], b), *a[1:-1], *_both(a[-1:], b)) if len(a) > 2 else _both(a, b)
    return _both(a, b)


def _sticks_out(a: Spans, b: Spans) -> bool:
    """Whether `a` begins before `b` or ends after it."""
    return bool(a) and (not b or a[0][0] < b[0][0] or b[-1][1] < a[-1][1])


def _met(spans: Spans, by: tuple[Bound, Bound]) -> Spans:
    """Those of many spans that have something in common with one."""
    low, high = by
    first = bisect_right(spans, low, key=itemgetter(1))
    return spans[first : bisect_left(spans, high, key=itemgetter(0))]


def _both(a: Spans, b: Spans) -> Spans:
    """A merge, since both are sorted."""
    found: list[tuple[Bound, Bound]] = []
    i = j = 0
    while i < len(a) and j < len(b):
        low = a[i][0] if b[j][0] < a[i][0] else b[j][0]
        a_ends_first = a[i][1] < b[j][1]
        high = a[i][1] if a_ends_first else b[j][1]
        if low < high:
            found.append((low, high))
        i, j = (i + 1, j) if a_ends_first else (i, j + 1)
    return tuple(found)


def _gaps(spans: Spans, lowest: Bound, highest: Bound) -> Spans:
    """What lies between and around the spans."""
    edges = [lowest, *(edge for span in spans for edge in span), highest]
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return tuple((low, high) for low, high in pairs if low < high)


def _readable_number(low: Bound, high: Bound) -> int | float:
    """A number of the span that a person would choose: 0, an end of it, or a whole number."""
    if low <= 0 < high:
        return 0
    candidates = [low, previous_number(high)]
    nearest: float = min((c for c in candidates if math.isfinite(c)), key=abs)
    whole = math.ceil(nearest) if nearest > 0 else math.floor(nearest)
    return whole if low <= whole < high and abs(whole) < 2**53 else nearest
