"""Samples of a run come out of Parquet and out of the metrics database as they went in."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rove.live.report import open_database, readings, write_metrics, write_parquet
from rove.world.runs.scenario_run import EngineFacts, RunSample, ScenarioResult

BEGAN = 1_800_000_000


def result_of(samples: tuple[RunSample, ...], heard: tuple[RunSample, ...] = ()) -> ScenarioResult:
    engines = tuple(
        EngineFacts(name, 0.2, live=name == "area")
        for name in dict.fromkeys(sample.source for sample in samples)
    )
    return ScenarioResult(
        scenario="dense",
        title="Many",
        seed=3,
        players=7,
        entities=9,
        servers=1,
        seconds=12.0,
        ticks=120,
        trace_hash="abcd",
        engines=engines,
        samples=samples,
        heard=heard,
        elapsed_s=2.0,
    )


@pytest.fixture
def result() -> ScenarioResult:
    """Twelve seconds of two engines and an audience; subscriptions come and go."""
    samples = tuple(
        RunSample(float(at), engine, {"subscriptions": at % 4.0, "subscribes": at * step}, live)
        for at in range(1, 13)
        for engine, step, live in (("object", 3.0, False), ("area", 5.0, True))
    )
    return result_of(samples, (RunSample(12.0, "smog", {"notifications": 8.0}),))


def test_parquet_has_a_row_for_each_sample(result: ScenarioResult, tmp_path: Path) -> None:
    engines, audiences = write_parquet(result, tmp_path / "new" / "folder")
    table = pq.read_table(engines)
    assert table.schema.metadata[b"trace_hash"] == b"abcd"
    rows = table.to_pylist()
    assert len(rows) == 24
    assert rows[3] == {
        "scenario": "dense",
        "seed": 3,
        "players": 7,
        "engine": "area",
        "live": True,
        "at_s": 2.0,
        "subscriptions": 2.0,
        "subscribes": 10.0,
    }
    (heard,) = pq.read_table(audiences).to_pylist()
    assert heard["audience"] == "smog"
    assert heard["notifications"] == 8.0
    assert "live" not in heard


def test_no_audience_no_file(tmp_path: Path) -> None:
    only = result_of((RunSample(1.0, "tile", {"subscribes": 1.0}),))
    assert [path.name for path in write_parquet(only, tmp_path)] == ["engines.parquet"]


def test_counters_begin_at_nothing_and_gauges_do_not(result: ScenarioResult) -> None:
    labels = 'engine="area",run="r1",scenario="dense"'
    own = [one for one in readings(result, "r1", BEGAN) if one.labels == labels]
    subscribes = [one for one in own if one.metric == "rove_world_subscribes_total"]
    assert [one.at - BEGAN for one in subscribes] == list(range(13))
    assert [one.value for one in subscribes] == [5.0 * at for at in range(13)]
    subscriptions = [one for one in own if one.metric == "rove_world_subscriptions"]
    assert [one.at - BEGAN for one in subscriptions] == list(range(1, 13))
    assert len(own) == 25


def test_the_metrics_database_gives_them_back(result: ScenarioResult, tmp_path: Path) -> None:
    with open_database(str(tmp_path / "metrics.sqlite")) as database:
        written = write_metrics(result, database, "r1", BEGAN)
        assert written == 2 * 25 + 2
        # Twice is once.
        assert write_metrics(result, database, "r1", BEGAN) == written
        back = database.readings("rove_world_notifications_total")
        assert [(one.labels, one.at, one.value) for one in back] == [
            ('audience="smog",run="r1",scenario="dense"', BEGAN, 0.0),
            ('audience="smog",run="r1",scenario="dense"', BEGAN + 12, 8.0),
        ]
        assert len(database.series()) == 5
        (run,) = database.runs()
        assert (run.id, run.scenario, run.seed) == ("r1", "dense", 3)
        assert (run.began, run.ended) == (BEGAN, BEGAN + 12)
        assert run.facts["players"] == 7
        assert run.facts["engines"] == ["object", "area"]
        assert run.facts["live"] == "area"


def test_roll_ups_outlive_the_readings(result: ScenarioResult, tmp_path: Path) -> None:
    with open_database(str(tmp_path / "metrics.sqlite")) as database:
        write_metrics(result, database, "r1", BEGAN)
        (before,) = database.points("rove_world_subscribes_total", {"engine": "area"})
        assert (before.resolution_s, set(before.value)) == (0, {5.0})
        database.forget_readings(BEGAN + 3_600)
        (after,) = database.points("rove_world_subscribes_total", {"engine": "area"})
        assert after.resolution_s == 10
        assert after.value == pytest.approx([5.0, 5.0])


def test_labels_are_escaped() -> None:
    strange = result_of((RunSample(1.0, 'a"b\\c\nd', {"subscribes": 1.0}),))
    assert readings(strange, "r", 0)[0].labels.startswith('engine="a\\"b\\\\c\\nd",')
