"""Samples of a run come out of Parquet and out of the metrics database as they went in."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rove.lab.world_report import open_database, rollups, write_metrics, write_parquet
from rove.world.results import EngineFacts, Result, Sample

BEGAN = 1_800_000_000


def result_of(samples: tuple[Sample, ...], heard: tuple[Sample, ...] = ()) -> Result:
    engines = tuple(
        EngineFacts(name, 0.2, live=name == "area")
        for name in dict.fromkeys(sample.source for sample in samples)
    )
    return Result(
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
def result() -> Result:
    """Twelve seconds of two engines and an audience; subscriptions come and go."""
    samples = tuple(
        Sample(float(at), engine, {"subscriptions": at % 4.0, "subscribes": at * step}, live)
        for at in range(1, 13)
        for engine, step, live in (("object", 3.0, False), ("area", 5.0, True))
    )
    return result_of(samples, (Sample(12.0, "smog", {"notifications": 8.0}),))


def test_parquet_has_a_row_for_each_sample(result: Result, tmp_path: Path) -> None:
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
    only = result_of((Sample(1.0, "tile", {"subscribes": 1.0}),))
    assert [path.name for path in write_parquet(only, tmp_path)] == ["engines.parquet"]


def test_counters_are_rolled_up_with_what_they_grew(result: Result) -> None:
    found = [
        each
        for each in rollups(result, "r1", BEGAN, (10,))
        if each.metric == "rove_world_subscribes_total" and 'engine="area"' in each.labels
    ]
    assert [each.labels for each in found] == ['engine="area",run="r1",scenario="dense"'] * 2
    first, second = found
    assert (first.start, first.count, first.last, first.increase) == (BEGAN, 9, 45.0, 45.0)
    assert (first.min, first.max, first.mean, first.sum) == (5.0, 45.0, 25.0, 225.0)
    assert first.rate == pytest.approx(5.0)
    assert (second.start, second.count, second.increase) == (BEGAN + 10, 3, 15.0)
    assert second.rate == pytest.approx(5.0)


def test_what_there_is_now_has_no_increase(result: Result) -> None:
    found = [
        each
        for each in rollups(result, "r1", BEGAN, (60,))
        if each.metric == "rove_world_subscriptions"
    ]
    assert [each.labels.split(",")[0] for each in found] == ['engine="area"', 'engine="object"']
    assert all(each.increase is None and each.rate is None for each in found)
    assert all((each.min, each.max, each.last) == (0.0, 3.0, 0.0) for each in found)


def test_the_metrics_database_gives_them_back(result: Result, tmp_path: Path) -> None:
    with open_database(str(tmp_path / "metrics.sqlite")) as database:
        written = write_metrics(result, database, "r1", BEGAN)
        assert written == sum(1 for _ in rollups(result, "r1", BEGAN))
        # Twice is once.
        assert write_metrics(result, database, "r1", BEGAN) == written
        back = database.rollups("rove_world_notifications_total", 1)
        assert [(each.labels, each.start, each.last) for each in back] == [
            ('audience="smog",run="r1",scenario="dense"', BEGAN + 12, 8.0)
        ]
        assert len(database.series()) == 5


def test_labels_are_escaped() -> None:
    strange = result_of((Sample(1.0, 'a"b\\c\nd', {"subscribes": 1.0}),))
    assert next(rollups(strange, "r", 0)).labels.startswith('engine="a\\"b\\\\c\\nd",')
