"""Roll-ups in plain Python, with which those of `rove.metrics.rollups` are compared."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise

import pytest

from rove.metrics.points import increase_of
from rove.metrics.records import RESOLUTIONS_S, Reading, Rollup, kind_of


def plain_roll_up(
    readings: Iterable[Reading], resolutions_s: Sequence[int] = RESOLUTIONS_S
) -> Iterator[Rollup]:
    """Roll-ups by series, resolution and time."""
    ordered = sorted(readings, key=lambda one: (one.metric, one.labels, one.at))
    for _, group in groupby(ordered, key=lambda one: (one.metric, one.labels)):
        of_series = list(group)
        increases = _increases(of_series)
        for resolution_s in resolutions_s:
            yield from _by_interval(of_series, increases, resolution_s)


Increase = tuple[float, float] | None
"""How much a counter has counted, and in how many seconds; None if unknown."""


def _increases(readings: Sequence[Reading]) -> list[Increase]:
    """The increase of each reading since the one before it."""
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


def assert_equal(found: Iterable[Rollup], wanted: Iterable[Rollup]) -> None:
    """Both have the same roll-ups, with equal figures but for rounding."""

    def by_key(rows: Iterable[Rollup]) -> dict[tuple[object, ...], Rollup]:
        return {(one.metric, one.labels, one.resolution_s, one.start): one for one in rows}

    ours, theirs = by_key(found), by_key(wanted)
    assert ours.keys() == theirs.keys()
    for key, one in ours.items():
        for name in Rollup.__struct_fields__[4:]:
            ought = getattr(theirs[key], name)
            is_so = getattr(one, name)
            assert is_so == (None if ought is None else pytest.approx(ought)), (key, name)
