"""Samples of a world are called alike, whoever takes them."""

from __future__ import annotations

from typing import NamedTuple

from rove.metrics.database import Reading
from rove.metrics.world_readings import initial_readings, world_readings
from rove.world.runs.scenario_run import RunSample


class Own(NamedTuple):
    """Anything with these three will do."""

    at: float
    source: str
    figures: dict[str, int]


def test_a_reading_for_each_figure() -> None:
    labels = 'engine="area",run="r",scenario="dense"'
    wanted = [
        Reading("rove_world_subscriptions", labels, 102.5, 3.0),
        Reading("rove_world_subscribes_total", labels, 102.5, 9.0),
    ]
    figures = {"subscriptions": 3, "subscribes": 9}
    assert world_readings(Own(2.5, "area", figures), "r", "dense", 100.0) == wanted
    assert world_readings(RunSample(102.5, "area", dict(figures)), "r", "dense") == wanted


def test_audiences_are_told_from_engines() -> None:
    (one,) = world_readings(Own(1.0, "smog", {"notifications": 2}), "r", "d", who="audience")
    assert one == Reading(
        "rove_world_notifications_total", 'audience="smog",run="r",scenario="d"', 1, 2
    )


def test_only_counters_begin_at_nothing() -> None:
    sample = Own(1.0, "area", {"subscriptions": 3, "subscribes": 9})
    (one,) = initial_readings(sample, "r", "d", 100.0)
    assert (one.metric, one.at, one.value) == ("rove_world_subscribes_total", 100.0, 0.0)
