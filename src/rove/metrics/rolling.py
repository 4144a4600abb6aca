"""Roll-ups in plain Python: of a run that is at hand, and as what those of columns are judged by.

The pipeline adds up what many have written (`rove.metrics.readings`); a run of a world has all its
samples in one list when it ends. Both have to come to the same, so that it does not matter who was
there first.

2 µs a reading and resolution.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from rove.metrics.naming import kind_of
from rove.metrics.points import RESOLUTIONS_S, increase_of
from rove.metrics.records import Reading, Rollup


def roll_up(
    readings: Iterable[Reading], resolutions_s: Sequence[int] = RESOLUTIONS_S
) -> Iterator[Rollup]:
    """By series, resolution and time."""
    ordered = sorted(readings, key=lambda one: (one.metric, one.labels, one.at))
    for _, group in groupby(ordered, key=lambda one: (one.metric, one.labels)):
        of_series = list(group)
        increases = _increases(of_series)
        for resolution_s in resolutions_s:
            yield from _by_interval(of_series, increases, resolution_s)


Increase = tuple[float, float] | None
"""How much a counter has counted, and in how many seconds; None if unknown."""


def _increases(readings: Sequence[Reading]) -> list[Increase]:
    """Of each reading, since the one before it."""
    if kind_of(readings[0].metric) != "counter":
        return [None] * len(readings)
    return [None] + [
        (increase_of(one.value, before.value), one.at - before.at)
        for before, one in pairwise(readings)
    ]


def _by_interval(
    readings: Sequence[Reading], increases: Sequence[Increase], resolution_s: int
) -> Iterator[Rollup]:
    both = zip(readings, increases, strict=True)
    for start, group in groupby(both, key=lambda pair: math.floor(pair[0].at / resolution_s)):
        inside = list(group)
        values = [reading.value for reading, _ in inside]
        known = [increase for _, increase in inside if increase is not None]
        increase = math.fsum(counted for counted, _ in known) if known else None
        watched_s = math.fsum(seconds for _, seconds in known) if known else None
        first = inside[0][0]
        yield Rollup(
            first.metric,
            first.labels,
            resolution_s,
            start * resolution_s,
            count=len(values),
            sum=math.fsum(values),
            last=values[-1],
            min=min(values),
            max=max(values),
            mean=math.fsum(values) / len(values),
            increase=increase,
            rate=increase / watched_s if increase is not None and watched_s else None,
            watched_s=watched_s,
        )
