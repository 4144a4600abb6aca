"""What PES, LEES and CLEES cost on areas that travel, and how often the first and last are wrong.

The areas are those of W2 (see `rove.testing.boxes`): 200 by 200, in a world of 10,000 by 10,000,
at up to 10 a second. Speed is measured with nothing due, then what one evolution or one new
version costs beside it: how many of those come with a publication depends on rates, and is a
multiplication. Errors are counted against the exact answer, in both directions, on publications
in and around the areas: one that aimed at nothing would be right for nothing.

The static index below PES and CLEES is handed in. The default scans arrays, so that the figures
say what the designs cost and not what an index saves; LEES needs none here, since areas have no
part that never changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Final

import msgspec
import numpy as np

from rove.bench.measure import Measure, seconds_for
from rove.lang import normalise, parse
from rove.lang.normal_form import Conjunction
from rove.lang.oracle import Publication
from rove.lang.tree import Attribute
from rove.match.designs.design import (
    Design,
    NewIndex,
)
from rove.match.designs.lees import Lees, LinearBound, LinearComparison, LinearRows
from rove.match.designs.versioned import Clees, Pes
from rove.match.results import Pairs
from rove.testing.boxes import Boxes, workload

_AGES_S: Final = (0.1, 1.0, 5.0)
"""Intervals and thresholds whose errors are counted."""
_ACCEPTED_WITHIN_S: Final = 5.0
"""Subscriptions come during so many seconds, publications afterwards."""
_AROUND: Final = 150.0
"""How far from the middle of an area a publication may be: less than half of them miss it."""


class ArrayIndex:
    """A static index of boxes in x and y: a scan over arrays, where a change costs little."""

    def __init__(self) -> None:
        columns = [LinearComparison((name,), end, False) for name in "xy" for end in (">=", "<")]
        self._rows = LinearRows(tuple(columns))

    def add(self, id: int, conjunctions: Sequence[Conjunction]) -> None:
        """Add a box, or a strip where only one of the two is asked for."""
        (box,) = conjunctions
        sets = [box.sets.get(Attribute((name,))) for name in "xy"]
        spans = [(-math.inf, math.inf) if known is None else known.numbers[0] for known in sets]
        ends = [LinearBound(slope=0.0, offset=float(end)) for span in spans for end in span]
        self._rows.add(id, 0.0, ends)

    def remove(self, id: int) -> None:
        """Remove a box."""
        self._rows.remove(id)

    def match(self, publications: Sequence[Publication]) -> Pairs:
        """The boxes that each publication lies in."""
        found = []
        for publication in publications:
            values = self._rows.values(publication)
            assert values is not None, "publications of this world have a place"
            found.append(self._rows.holding(values, 0.0))
        counts = np.array([len(ids) for ids in found], np.int32)
        return Pairs.counted(counts, np.concatenate(found))


class Stream(msgspec.Struct, frozen=True):
    """Publications and their times."""

    publications: list[dict[str, Any]]
    at: list[float]


class World:
    """Areas that travel, and publications around them."""

    def __init__(self, areas: int, seed: int = 1) -> None:
        self._random = Random(seed)
        self._boxes, self._events = workload("W2", areas, 200, seed)
        self.conjunctions = [
            normalise(parse(self._boxes.text(row))).conjunctions for row in range(areas)
        ]
        self.accepted_at = [self._random.uniform(0, _ACCEPTED_WITHIN_S) for _ in range(areas)]

    def inhabited(self, design: Design, option: float | None) -> Design:
        """`design` with every area added to it."""
        for id, conjunctions in enumerate(self.conjunctions):
            design.add(id, conjunctions, self.accepted_at[id], {}, option)
        return design

    def anywhere(self, at: float) -> Stream:
        """Publications of W2, all at one time."""
        count = len(self._events)
        return Stream([self._events.publication(i) for i in range(count)], [at] * count)

    def around_areas(self, seconds: float, per_second: int) -> Stream:
        """Publications in and beside areas, evenly over time."""
        at = [_ACCEPTED_WITHIN_S + i / per_second for i in range(int(seconds * per_second))]
        return Stream([self._near_some_area(time) for time in at], at)

    def _near_some_area(self, at: float) -> dict[str, Any]:
        row = self._random.randrange(len(self.accepted_at))
        t = at - self.accepted_at[row]
        return {
            name: round(
                _middle(self._boxes, axis, row, t) + self._random.uniform(-_AROUND, _AROUND)
            )
            for axis, name in enumerate("xy")
        }


def _middle(boxes: Boxes, axis: int, row: int, t: float) -> float:
    assert boxes.speeds is not None, "the areas of W2 move"
    ends = boxes.lows[axis, row] + boxes.highs[axis, row]
    return float(ends / 2 + boxes.speeds[axis, row] * t)


def run(
    subscriptions: int = 10_000, areas: int = 200, new_index: NewIndex = ArrayIndex
) -> Iterator[Measure]:
    """Speed with so many subscriptions, then errors with so many areas."""
    yield from _speed(World(subscriptions), subscriptions, new_index)
    world = World(areas)
    stream = world.around_areas(seconds=20.0, per_second=200)
    exact = _delivered(world.inhabited(Lees(new_index), None), stream)
    assert exact, "some publication must meet some area"
    for name, make in (("pes", Pes), ("clees", Clees)):
        for age_s in _AGES_S:
            found = _delivered(world.inhabited(make(new_index), age_s), stream)
            wrong = 100 * len(found ^ exact) / len(exact)
            yield Measure(f"designs.{name}.wrong.{age_s:g}s", wrong, "% of deliveries")


def _speed(world: World, count: int, new_index: NewIndex) -> Iterator[Measure]:
    stream = world.anywhere(_ACCEPTED_WITHIN_S)
    lees = world.inhabited(Lees(new_index), None)
    lees_us = _per_publication_us(lees, stream)
    yield Measure(f"designs.lees.{count}", lees_us, "µs/publication")
    designs: tuple[tuple[str, Callable[[NewIndex], Design]], ...] = (("pes", Pes), ("clees", Clees))
    for name, make in designs:
        design = world.inhabited(make(new_index), 1.0)
        version_us = _per_version_us(design, stream)
        between_us = _per_publication_us(design, stream)
        yield Measure(
            f"designs.{name}.{count}.nothing-due",
            between_us,
            "µs/publication",
            between_us / lees_us,
            f"designs.lees.{count}",
        )
        yield Measure(f"designs.{name}.{count}.version", version_us, "µs")


def _per_publication_us(design: Design, stream: Stream) -> float:
    seconds = seconds_for(lambda: design.match(stream.publications, stream.at))
    return 1e6 * seconds / len(stream.at)


def _per_version_us(design: Design, stream: Stream) -> float:
    """What one evaluation costs, with its way into the index: of those that are due by now."""
    before = design.counters.evaluations
    first, now = stream.publications[:1], stream.at[:1]
    seconds = seconds_for(lambda: design.match(first, now), rounds=1)
    made = design.counters.evaluations - before
    assert made, "versions must be due"
    return 1e6 * seconds / made


def _delivered(design: Design, stream: Stream) -> set[tuple[int, int]]:
    found: Pairs = design.match(stream.publications, stream.at)
    return set(zip(found.publications.tolist(), found.subscriptions.tolist(), strict=True))
