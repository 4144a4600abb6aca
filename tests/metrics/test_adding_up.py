"""Readings added up in columns are those added up one by one."""

from __future__ import annotations

import math
import random
from collections import defaultdict

import numpy as np
import pytest

from rove.metrics.adding_up import Readings, added_up

NAMES = [("a_total", ""), ("g", 'n="1"')]
Row = tuple[int, int, float, float, float]


def columns(rows: list[Row]) -> Readings:
    series, at_us, value, increase, step_s = (np.array(each) for each in zip(*rows, strict=True))
    return Readings(series, at_us, value, increase, step_s)


def drawn_rows(seed: int) -> list[Row]:
    drawn = random.Random(seed)
    nan = math.nan
    return [
        (
            drawn.randrange(2),
            drawn.randrange(400_000_000),
            drawn.choice((0.0, -0.0, drawn.uniform(-9, 9), 1e300)),
            drawn.choice((nan, 0.0, drawn.uniform(0, 9))),
            drawn.choice((nan, 0.0, -1.0, drawn.uniform(0, 9))),
        )
        for _ in range(300)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_they_are_those_of_plain_python(seed: int) -> None:
    rows = drawn_rows(seed)
    groups: defaultdict[tuple[int, int, int], list[Row]] = defaultdict(list)
    for row in rows:
        for seconds in (10, 60):
            groups[row[0], seconds, row[1] // 1_000_000 // seconds * seconds].append(row)
    found = {
        (NAMES.index((one.metric, one.labels)), one.resolution_s, one.start): one
        for one in added_up(columns(rows), NAMES, (10, 60))
    }
    assert found.keys() == groups.keys()
    for key, group in groups.items():
        one = found[key]
        values = [row[2] for row in group]
        known = [row for row in group if not math.isnan(row[3])]
        watched = [row for row in known if row[4] > 0]
        assert (one.count, one.last, one.min, one.max) == (
            len(values), values[-1], min(values), max(values),
        )  # fmt: skip
        assert one.sum == pytest.approx(math.fsum(values))
        assert one.mean == pytest.approx(math.fsum(values) / len(values))
        increase = sum(row[3] for row in known) if known else None
        assert one.increase == (None if increase is None else pytest.approx(increase))
        time_s = sum(row[4] for row in watched)
        assert one.watched_s == (pytest.approx(time_s) if watched else None)
        rate = sum(row[3] for row in watched) / time_s if watched else None
        assert one.rate == (None if rate is None else pytest.approx(rate))


def test_intervals_that_are_over_are_left_out() -> None:
    rows = [(0, at * 1_000_000, 1.0, math.nan, math.nan) for at in (5, 15, 25)]
    starts = [one.start for one in added_up(columns(rows), NAMES, (10,), since_us=15_000_000)]
    assert starts == [10, 20]
    longs, floats = np.empty(0, np.int64), np.empty(0)
    nothing = Readings(longs, longs, floats, floats, floats)
    assert list(added_up(nothing, NAMES, (10,))) == []
