"""Roll-ups of columns equal those of plain Python."""

from __future__ import annotations

import math
import random
from collections import defaultdict

import numpy as np
import pytest

from rove.metrics.records import Reading, Rollup
from rove.metrics.rollups import ReadingColumns, roll_up, roll_up_columns
from tests.metrics.conftest import assert_equal, plain_roll_up

NAMES = [("a_total", ""), ("g", 'n="1"')]
Row = tuple[int, int, float, float, float]


def columns(rows: list[Row]) -> ReadingColumns:
    series, at_us, value, increase, step_s = (np.array(each) for each in zip(*rows, strict=True))
    return ReadingColumns(series, at_us, value, increase, step_s)


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
        for one in roll_up_columns(columns(rows), NAMES, (10, 60))
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
    starts = [
        one.start for one in roll_up_columns(columns(rows), NAMES, (10,), since_us=15_000_000)
    ]
    assert starts == [10, 20]
    longs, floats = np.empty(0, np.int64), np.empty(0)
    nothing = ReadingColumns(longs, longs, floats, floats, floats)
    assert list(roll_up_columns(nothing, NAMES, (10,))) == []


# --- lists of readings ----------------------------------------------------------------------------


def test_counters_and_gauges_by_hand() -> None:
    readings = [
        Reading("c_total", "", 9.0, 4.0),
        Reading("c_total", "", 8.0, 1.0),
        Reading("c_total", "", 12.0, 7.0),
        Reading("c_total", "", 13.0, 2.0),  # restarted
        Reading("g", "x", 12.0, 5.0),
    ]
    assert [one for one in roll_up(readings) if one.resolution_s == 10] == [
        Rollup("c_total", "", 10, 0, 2, 5.0, 4.0, 1.0, 4.0, 2.5, 3.0, 3.0, 1.0),
        Rollup("c_total", "", 10, 10, 2, 9.0, 2.0, 2.0, 7.0, 4.5, 5.0, 1.25, 4.0),
        Rollup("g", "x", 10, 10, 1, 5.0, 5.0, 5.0, 5.0, 5.0),
    ]


def test_what_was_counted_before_the_first_reading_is_not_known() -> None:
    for only in roll_up([Reading("c_total", "", 9.0, 4.0)]):
        assert (only.increase, only.rate, only.watched_s) == (None, None, None)


def test_of_two_readings_at_one_moment_the_later_one_counts() -> None:
    twice = [Reading("g", "", 9.0, 1.0), Reading("g", "", 9.0, 2.0)]
    assert list(roll_up(twice)) == list(roll_up(twice[1:]))


def test_lists_of_readings_are_rolled_up_as_in_plain_python() -> None:
    drawn = random.Random(9)
    readings = [
        Reading(metric, labels, at + drawn.random(), drawn.choice((0.0, drawn.uniform(0, 99))))
        for metric in ("a_total", "g")
        for labels in ("", "x")
        for at in range(0, 9_000, 7)
    ]
    drawn.shuffle(readings)
    assert_equal(roll_up(readings), plain_roll_up(readings))


def test_increases_add_up_at_every_resolution() -> None:
    readings = [Reading("c_total", "", n * 1.7, float(n * n)) for n in range(200)]
    rows = list(roll_up(readings))
    for resolution_s in (10, 60, 3_600):
        own = [one for one in rows if one.resolution_s == resolution_s]
        assert sum(one.increase or 0 for one in own) == 199 * 199
        assert sum(one.watched_s or 0 for one in own) == pytest.approx(199 * 1.7)
        assert sum(one.count for one in own) == 200
    assert list(roll_up([])) == []
