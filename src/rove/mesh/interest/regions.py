"""What a subscription wants, as far as a summary has to look into it.

A region is a disjunction of conjunctions (`rove.lang.normal_form`), with a box around it: for each
attribute that every conjunction restricts to numbers, the least and the greatest of them. The box
is in floats, rounded outwards, so that NumPy compares what the language compares exactly.

One region covers another only if that can be read off part by part, conjunction by conjunction,
which takes microseconds; `rove.lang.algebra` could prove more, in milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from rove.lang import Subscription, parse, to_text
from rove.lang.canonical_form import as_condition
from rove.lang.errors import LanguageError
from rove.lang.limits import NORMALISING_STEPS_MAX, TEXT_BYTES_MAX
from rove.lang.normal_form import Conjunction, NormalForm, includes
from rove.lang.patterns import StepBudget
from rove.lang.sets import LOWEST, ValueSet
from rove.lang.tree import Attribute, Me, Node, Time, walk
from rove.lang.values import Number, Path

Bounds: TypeAlias = dict[Path, tuple[float, float]]
"""For an attribute that must be a number: the least, and the end, which is not included."""

ALL = Conjunction()
"""Holds for every publication."""


class Region(msgspec.Struct, frozen=True, eq=False):
    """Conjunctions, with their box."""

    conjunctions: tuple[Conjunction, ...]
    bounds: Bounds
    is_box: bool
    """Whether the box is all that there is: what lies in it matches."""
    uses_time: bool


def region_of(conjunctions: tuple[Conjunction, ...]) -> Region:
    """The region of a normal form without `me.`."""
    boxes = [conjunction_bounds(conjunction) for conjunction in conjunctions]
    bounds = hull_of_bounds(boxes) if boxes else {}
    is_box = len(conjunctions) == 1 and _is_box(conjunctions[0], bounds)
    return Region(conjunctions, bounds, is_box, not is_box and mentions(conjunctions, Time))


def conjunction_bounds(conjunction: Conjunction) -> Bounds:
    """The box around a conjunction."""
    found: Bounds = {}
    for subject, allowed in conjunction.sets.items():
        if type(subject) is Attribute and allowed.numbers:
            if allowed.strings or allowed.facts:
                continue
            spans = allowed.numbers
            found[subject.path] = round_down(spans[0][0]), round_up(spans[-1][1])
    return found


def hull_of_bounds(boxes: Iterable[Bounds]) -> Bounds:
    """The box around all of `boxes`, of which there is at least one."""
    first, *others = boxes
    found = dict(first)
    for box in others:
        for path in list(found):
            inner = box.get(path)
            if inner is None:
                del found[path]
            else:
                low, high = found[path]
                found[path] = min(low, inner[0]), max(high, inner[1])
    return found


def _is_box(conjunction: Conjunction, bounds: Bounds) -> bool:
    """Whether the conjunction is its box exactly: one span each, with bounds that are floats."""
    if conjunction.atoms or len(conjunction.sets) != len(bounds):
        return False
    return all(
        len(allowed.numbers) == 1 and allowed.numbers[0] == bounds[subject.path]  # type: ignore[union-attr]
        for subject, allowed in conjunction.sets.items()
    )


def region_covers(a: Region, b: Region, *, same_time: bool) -> bool:
    """Whether everything that `b` matches, `a` certainly matches.

    `same_time` says that `t` is the same for both.
    """
    if a.is_box and b.is_box:
        return bounds_cover(a.bounds, b.bounds)
    if a.uses_time and b.uses_time and not same_time:
        return False
    effort = StepBudget(NORMALISING_STEPS_MAX)
    return all(
        any(includes(outer, inner, effort) for outer in a.conjunctions) for inner in b.conjunctions
    )


def bounds_cover(a: Bounds, b: Bounds) -> bool:
    """Whether the box `b` lies in the box `a`."""
    for path, (low, high) in a.items():
        inner = b.get(path)
        if inner is None or inner[0] < low or high < inner[1]:
            return False
    return True


def box_conjunction(bounds: Bounds) -> Conjunction:
    """The conjunction that is a box."""
    sets = {Attribute(path): ValueSet((bound,)) for path, bound in bounds.items()}
    return Conjunction(sets) if sets else ALL  # type: ignore[arg-type]


def mentions(conjunctions: Iterable[Conjunction], kind: type[Time] | type[Me]) -> bool:
    """Whether `t` (Time) or a variable of the subscriber (Me) occurs."""
    return any(
        type(part) is kind
        for conjunction in conjunctions
        for node in _nodes(conjunction)
        for part in walk(node)
    )


def _nodes(conjunction: Conjunction) -> Iterable[Node]:
    yield from conjunction.sets
    yield from conjunction.atoms


def round_down(value: Number) -> float:
    """The greatest float that is no greater."""
    rounded = float(value)
    return math.nextafter(rounded, -math.inf) if rounded > value else rounded


def round_up(value: Number) -> float:
    """The least float that is no less."""
    rounded = float(value)
    return math.nextafter(rounded, math.inf) if rounded < value else rounded


# -- expressions -----------------------------------------------------------------------


def expression_of(conjunctions: tuple[Conjunction, ...]) -> str | None:
    """A filter expression that matches at least what the conjunctions match; None for everything.

    It is exact unless the result would be larger than the language allows: what is put in for
    `me.` may be longer than it was.
    """
    if any(conjunction == ALL for conjunction in conjunctions):
        return None
    text = to_text(as_condition(NormalForm(conjunctions)))
    if len(text) < _SURE_BYTES and all(map(_is_plain, conjunctions)):
        return text
    if len(text.encode()) <= TEXT_BYTES_MAX:
        try:
            parse(text)
        except LanguageError:
            pass
        else:
            return text
    bounds = hull_of_bounds(conjunction_bounds(one) for one in conjunctions)
    return expression_of((box_conjunction(dict(list(bounds.items())[:8])),))


_SURE_BYTES = 1_000
"""A text that is shorter is within all limits if nothing in it is computed."""


def _is_plain(conjunction: Conjunction) -> bool:
    return not conjunction.atoms and all(type(s) is Attribute for s in conjunction.sets)


def condition_text(subscription: Subscription) -> str:
    """The condition of a subscription alone: what is selected and ranked is decided elsewhere."""
    return to_text(Subscription(subscription.condition))


# -- many boxes ------------------------------------------------------------------------


_Floats: TypeAlias = npt.NDArray[np.float64]
_CAPACITY = 64


class BoxTable:
    """Boxes by slot; finds those around a box, or within it, in one pass of NumPy over all.

    Two rows for each attribute: the negated low and the high, so that the larger value is the wider
    bound in both; an attribute without bounds has infinity in both. A pass over 1,000 boxes of six
    attributes takes some 10 µs.
    """

    def __init__(self) -> None:
        self._columns: dict[Path, int] = {}
        self._rows: _Floats = np.full((0, _CAPACITY), math.inf)
        self._used = np.zeros(_CAPACITY, np.bool_)
        self._free: list[int] = []
        self._end = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, bounds: Bounds) -> int:
        """The slot of a new box."""
        slot = self._free.pop() if self._free else self._new_slot()
        for path in bounds:
            if path not in self._columns:
                self._new_column(path)
        self._rows[:, slot] = self._query(bounds)
        self._used[slot] = True
        self._count += 1
        return slot

    def remove(self, slot: int) -> None:
        """Free a slot."""
        self._used[slot] = False
        self._rows[:, slot] = -math.inf
        self._free.append(slot)
        self._count -= 1

    def around(self, bounds: Bounds) -> list[int]:
        """The slots of the boxes that contain a box."""
        if not self._count:
            return []
        end = self._end
        query = self._query(bounds)[:, None]
        found = (self._rows[:, :end] >= query).all(axis=0) & self._used[:end]
        return found.nonzero()[0].tolist()

    def within(self, bounds: Bounds) -> list[int]:
        """The slots of the boxes that lie in a box."""
        if not self._count or not bounds.keys() <= self._columns.keys():
            return []
        end = self._end
        query = self._query(bounds)[:, None]
        found = (self._rows[:, :end] <= query).all(axis=0) & self._used[:end]
        return found.nonzero()[0].tolist()

    def _query(self, bounds: Bounds) -> _Floats:
        values = [math.inf] * (2 * len(self._columns))
        for path, (low, high) in bounds.items():
            column = self._columns.get(path)
            if column is not None:
                values[column] = -low
                values[column + 1] = high
        return np.array(values)

    def _new_slot(self) -> int:
        if self._end == len(self._used):
            more = np.full((len(self._rows), self._end), -math.inf)
            self._rows = np.concatenate((self._rows, more), axis=1)
            self._used = np.concatenate((self._used, np.zeros(self._end, np.bool_)))
        self._end += 1
        return self._end - 1

    def _new_column(self, path: Path) -> None:
        self._columns[path] = len(self._rows)
        more = np.full((2, len(self._used)), math.inf)
        self._rows = np.concatenate((self._rows, more))


def bounds_of_hull(bounds: Mapping[Path, tuple[float, float]]) -> Bounds:
    """The bounds without those that leave everything open but the type."""
    return {path: bound for path, bound in bounds.items() if bound != (LOWEST, math.inf)}
