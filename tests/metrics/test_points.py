"""Points of a period: the finest that fits, rates that know restarts, and no gap at either end."""

from __future__ import annotations

import random

import pytest

from rove.metrics.database import Database, Points, Reading, Rollup
from rove.metrics.points import Bin, merged
from rove.metrics.records import RESOLUTIONS_S
from tests.metrics.conftest import plain_roll_up

HOUR = 1_790_000_000 - 1_790_000_000 % 3_600


def readings(
    values: list[float], metric: str, labels: str = "", step: float = 1.0
) -> list[Reading]:
    return [Reading(metric, labels, HOUR + n * step, value) for n, value in enumerate(values)]


def counted(count: int, seed: int) -> list[float]:
    """A counter that begins anew now and then."""
    drawn = random.Random(seed)
    total, found = 0.0, []
    for _ in range(count):
        total = 0.0 if drawn.random() < 0.01 else total + drawn.randrange(10)
        found.append(total)
    return found


def expected(of: list[Reading], resolution_s: int) -> dict[float, float]:
    """Rates or means by start, of plain roll-ups."""
    rows = plain_roll_up(of, (resolution_s,))
    values = {
        float(one.start): one.rate if one.metric.endswith("_total") else one.mean for one in rows
    }
    return {start: value for start, value in values.items() if value is not None}


def as_dict(points: Points) -> dict[float, float]:
    return dict(zip(points.at, points.value, strict=True))


def test_few_readings_come_as_they_are(place: str) -> None:
    gauge = readings([3.0, -1.0, 2.5], "g", 'e="a"')
    with Database(place) as database:
        database.put_readings(gauge)
        (points,) = database.points("g")
        assert points == Points(
            'e="a"', 0, [one.at for one in gauge], [3.0, -1.0, 2.5], [3.0, -1.0, 2.5],
            [3.0, -1.0, 2.5],
        )  # fmt: skip
        (points,) = database.points("g", since=HOUR + 1, until=HOUR + 2)
        assert points.at == [HOUR + 1]
        assert database.points("g", since=HOUR + 3) == []
        assert database.points("h") == []


def test_counters_come_as_rates_and_know_restarts(place: str) -> None:
    with Database(place) as database:
        database.put_readings(readings([100, 104, 3, 3, 13], "c_total", step=2.0))
        (points,) = database.points("c_total")
        assert as_dict(points) == {HOUR + 2: 2.0, HOUR + 4: 1.5, HOUR + 6: 0.0, HOUR + 8: 5.0}
        assert points.low == points.high == points.value
        # The reading before a period says how much was counted in its first second.
        (points,) = database.points("c_total", since=HOUR + 4, until=HOUR + 8)
        assert as_dict(points) == {HOUR + 4: 1.5, HOUR + 6: 0.0}


@pytest.mark.parametrize("metric", ["c_total", "g"])
def test_many_readings_are_added_up_where_there_are_no_roll_ups(metric: str, place: str) -> None:
    of = readings(counted(2_500, seed=3), metric)
    with Database(place) as database:
        database.put_readings(of)
        for points_max, resolution_s in ((2_500, 0), (2_499, 10), (250, 10), (42, 60), (20, 3_600)):
            (points,) = database.points(metric, points_max=points_max)
            assert points.resolution_s == resolution_s
            assert len(points.at) <= points_max
            if resolution_s:
                assert as_dict(points) == pytest.approx(expected(of, resolution_s))
        # Of a part of it, the interval that it begins in comes whole.
        (points,) = database.points(metric, None, HOUR + 605, HOUR + 1_300, 100)
        wanted = {at: v for at, v in expected(of, 10).items() if HOUR + 600 <= at < HOUR + 1_300}
        assert as_dict(points) == pytest.approx(wanted)


@pytest.mark.parametrize("metric", ["c_total", "g"])
def test_before_and_after_the_roll_ups_readings_are_added_up(metric: str, place: str) -> None:
    """The pipeline began late and is behind; its last interval is not over."""
    of = readings(counted(900, seed=4), metric)
    rows = [one for one in plain_roll_up(of[:700]) if one.start >= HOUR + 300]
    with Database(place) as database:
        database.put_readings(of)
        database.put(rows)
        (points,) = database.points(metric, points_max=100)
        assert (points.resolution_s, points.at[0]) == (10, HOUR)
        assert as_dict(points) == pytest.approx(expected(of, 10))


def test_roll_ups_are_what_counts_while_they_are_there(place: str) -> None:
    """Not what could be computed of readings: these are the greater effort."""
    with Database(place) as database:
        database.put_readings(readings([1.0] * 100, "g"))
        ten = [Rollup("g", "", 10, HOUR + n * 10, 10, 70, 7, 5, 9, 7) for n in range(10)]
        database.put(ten)
        (points,) = database.points("g", points_max=50)
        assert points.resolution_s == 10
        assert (points.value[0], points.low[0], points.high[0]) == (7.0, 5.0, 9.0)
        assert points.value[-1] == 1.0  # the last one may not have been over


def test_what_reaches_back_farther_is_taken_for_what_is_finer(place: str) -> None:
    """Readings and tens of seconds of the first half hour are gone."""
    of = readings(counted(3_600, seed=5), "c_total")
    with Database(place) as database:
        database.put_readings(of[1_800:])
        database.put(
            one for one in plain_roll_up(of) if one.resolution_s > 10 or one.start >= HOUR + 1_800
        )
        (points,) = database.points("c_total", points_max=3_600)
        assert (points.resolution_s, len(points.at)) == (60, 60)
        assert as_dict(points) == pytest.approx(expected(of, 60))
        (points,) = database.points("c_total", since=HOUR + 2_000, points_max=3_600)
        assert points.resolution_s == 0
        (points,) = database.points("c_total", since=HOUR + 2_000, points_max=600)
        assert points.resolution_s == 10


def test_years_are_drawn_by_several_hours(place: str) -> None:
    hours = [Rollup("g", "", 3_600, HOUR + n * 3_600, 2, n * 2, n, n, n, n) for n in range(1_000)]
    with Database(place) as database:
        database.put(hours)
        (points,) = database.points("g", points_max=300)
        assert points.resolution_s == 4 * 3_600
        assert len(points.at) <= 301
        first = points.at[1]
        inside = [n for n in range(1_000) if first <= HOUR + n * 3_600 < first + 4 * 3_600]
        assert points.value[1] == pytest.approx(sum(inside) / 4)
        assert (points.low[1], points.high[1]) == (inside[0], inside[-1])


def test_series_are_chosen_by_their_labels(place: str) -> None:
    names = ['engine="area",run="1"', 'engine="area",run="2"', 'engine="tile",run="1"']
    with Database(place) as database:
        for labels in names:
            database.put_readings(readings([1.0, 2.0], "g", labels))
        assert [one.labels for one in database.points("g")] == names
        assert [one.labels for one in database.points("g", {"engine": "area"})] == names[:2]
        assert [one.labels for one in database.points("g", {"engine": "area", "run": "2"})] == [
            names[1]
        ]
        assert [one.labels for one in database.points("g", names[2])] == [names[2]]
        assert database.points("g", 'engine="area"') == []
        assert database.points("g", {"engine": "are"}) == []


def test_totals_are_one_figure_for_each_series(place: str) -> None:
    counter, gauge = readings([5, 9, 2, 6], "c_total"), readings([1, 2, 6], "g")
    with Database(place) as database:
        database.put_readings(counter + gauge)
        (total,) = database.totals("c_total")
        assert total.value == pytest.approx(10 / 3)
        assert total.count == 4
        (total,) = database.totals("g")
        assert (total.value, total.count) == (3.0, 3)
        assert database.totals("g", since=HOUR + 100) == []
        database.put(plain_roll_up(counter))
        database.forget_readings(HOUR + 100)
        (total,) = database.totals("c_total")
        assert total.value == pytest.approx(10 / 3)
        assert total.count == 4


def test_intervals_put_together_are_exact() -> None:
    bins = [Bin(0, 2, 3.0, 1.0, 2.0, None, None), Bin(10, 1, 5.0, 5.0, 5.0, 4.0, 8.0)]
    assert merged(bins, 20) == [Bin(0, 3, 8.0, 1.0, 5.0, 4.0, 8.0)]
    assert merged([], 20) == []
    assert RESOLUTIONS_S == (10, 60, 3_600)
