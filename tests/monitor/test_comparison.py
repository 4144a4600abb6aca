"""Differences and how sure they are."""

import random
from collections.abc import Callable

import pytest

from rove.metrics.database import Database, Reading, RunRecord
from rove.monitor.comparison import MetricLine, batch_means, differences, unit_of
from tests.monitor.conftest import Running

BEGAN = 1_700_000_000.0


def line(values: list[float], begin: float = 0.0) -> MetricLine:
    return MetricLine([begin + n for n in range(len(values))], values)


def test_batches_cover_the_time_that_both_have() -> None:
    left, right = line([float(n) for n in range(60)]), line([1.0] * 40, begin=30.0)
    pairs = batch_means(left, right)
    assert len(pairs) == 10
    assert pairs[0] == (31.0, 1.0)
    assert batch_means(line([]), right) == []
    assert batch_means(line([1.0]), line([1.0], begin=9.0)) == []
    assert batch_means(line([1.0]), line([2.0])) == [(1.0, 2.0)]


def test_a_constant_difference_is_sure() -> None:
    found = differences(line([5.0] * 30), line([3.0] * 30))
    assert found["difference"] == {"mean": 2.0, "low": 2.0, "high": 2.0, "batches": 10}
    assert found["ratio"]["mean"] == pytest.approx(5 / 3)
    assert found["ratio"]["low"] == pytest.approx(5 / 3)


def test_few_readings_have_no_interval_and_nothing_has_nothing() -> None:
    few = differences(line([5.0, 6.0]), line([3.0, 3.0]))
    assert (few["difference"]["mean"], few["difference"]["low"]) == (2.5, None)
    assert differences(line([]), line([1.0])) == {"difference": None, "ratio": None}
    assert differences(line([1.0] * 9), line([0.0] * 9))["ratio"] is None


def test_an_interval_of_95_percent_holds_the_truth_about_so_often() -> None:
    rng = random.Random(4)
    held = {"difference": 0, "ratio": 0}
    truths = {"difference": 2.0, "ratio": 1.2}
    rounds = 600
    for _ in range(rounds):
        # Both met the same weather, which pairing takes out.
        weather = [rng.gauss(0, 5) for _ in range(60)]
        left = line([12.0 + w + rng.gauss(0, 1) for w in weather])
        right = line([10.0 + w + rng.gauss(0, 1) for w in weather])
        found = differences(left, right)
        for name, truth in truths.items():
            held[name] += found[name]["low"] <= truth <= found[name]["high"]
    assert 0.92 < held["difference"] / rounds < 0.98
    assert 0.90 < held["ratio"] / rounds < 0.99


@pytest.mark.parametrize(
    ("metric", "unit"),
    [
        ("rove_world_delivered_bytes_total", "B/s"),
        ("rove_world_matching_s_total", "s/s"),
        ("rove_world_subscribes_total", "1/s"),
        ("rove_world_subscriptions", ""),
        ("rove_uptime_seconds", "s"),
    ],
)
def test_units(metric: str, unit: str) -> None:
    assert unit_of(metric) == unit


def test_two_runs_are_compared_from_their_beginnings(
    place: str, start_monitor: Callable[..., Running]
) -> None:
    with Database(place) as database:
        for run, began, step in (("one", BEGAN, 10.0), ("two", BEGAN + 1_000, 4.0)):
            labels = f'engine="area",run="{run}",scenario="yard"'
            names = ("rove_world_subscribes_total", "rove_world_requests_total")
            database.put_readings(
                [Reading(name, labels, began + n, step * n) for name in names for n in range(40)]
            )
            database.put_run(RunRecord(run, "yard", "Yard", 1, began))
    monitor = start_monitor(database=place)
    found = monitor.get("/api/compare?left=one/area&right=two/area").json
    assert (found["left"]["id"], found["right"]["engine"]) == ("one", "area")
    assert [one["metric"] for one in found["metrics"]] == [
        "rove_world_requests_total",
        "rove_world_subscribes_total",
    ]
    first = found["metrics"][0]
    assert first["left"]["at"][0] == first["right"]["at"][0] == 1.0
    assert first["difference"]["mean"] == pytest.approx(6.0)
    assert first["ratio"]["mean"] == pytest.approx(2.5)
    few = monitor.get(
        "/api/compare?left=one/area&right=two/area&since=10&until=20"
        "&metrics=rove_world_requests_total"
    ).json
    assert 10 <= few["metrics"][0]["left"]["at"][0] <= 11
    assert few["metrics"][0]["left"]["at"][-1] < 20
    nothing = monitor.get("/api/compare?left=one/area&right=two/tile").json
    assert nothing["metrics"] == []
    assert monitor.get("/api/compare?left=one/area&right=two/area&since=-5").status == 400
