"""Roll-ups of a list of readings, by hand."""

from __future__ import annotations

import pytest

from rove.metrics.database import Reading, Rollup
from rove.metrics.rolling import roll_up


def test_counters_and_gauges_by_hand() -> None:
    readings = [
        Reading("c_total", "", 9.0, 4.0),
        Reading("c_total", "", 8.0, 1.0),
        Reading("c_total", "", 12.0, 7.0),
        Reading("c_total", "", 13.0, 2.0),  # began anew
        Reading("g", "x", 12.0, 5.0),
    ]
    assert list(roll_up(readings, (10,))) == [
        Rollup("c_total", "", 10, 0, 2, 5.0, 4.0, 1.0, 4.0, 2.5, 3.0, 3.0, 1.0),
        Rollup("c_total", "", 10, 10, 2, 9.0, 2.0, 2.0, 7.0, 4.5, 5.0, 1.25, 4.0),
        Rollup("g", "x", 10, 10, 1, 5.0, 5.0, 5.0, 5.0, 5.0),
    ]


def test_what_was_counted_before_the_first_reading_is_not_known() -> None:
    (only,) = roll_up([Reading("c_total", "", 9.0, 4.0)], (60,))
    assert (only.increase, only.rate, only.watched_s) == (None, None, None)


def test_increases_add_up_at_every_resolution() -> None:
    readings = [Reading("c_total", "", n * 1.7, float(n * n)) for n in range(200)]
    rows = list(roll_up(readings))
    for resolution_s in (10, 60, 3_600):
        own = [one for one in rows if one.resolution_s == resolution_s]
        assert sum(one.increase or 0 for one in own) == 199 * 199
        assert sum(one.watched_s or 0 for one in own) == pytest.approx(199 * 1.7)
        assert sum(one.count for one in own) == 200
    assert list(roll_up([])) == []
