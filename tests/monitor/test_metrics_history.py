"""What was recorded, as the page asks for it."""

import asyncio
import time
from collections.abc import Callable

import pytest

from rove.base.http import HttpError
from rove.metrics.database import Database, Reading, RunRecord
from rove.monitor.metrics_history import MetricsHistory, moment, points_in
from tests.monitor.conftest import Running

BEGAN = 1_700_000_000.0


@pytest.fixture
def filled(place: str) -> str:
    with Database(place) as database:
        for engine, step in (("area", 10.0), ("tile", 3.0)):
            labels = f'engine="{engine}",run="yard-1"'
            database.put_readings(
                [Reading("m_total", labels, BEGAN + n, step * n) for n in range(20)]
                + [Reading("gauge", labels, BEGAN + n, step) for n in range(20)]
            )
        database.put_run(RunRecord("yard-1", "yard", "Yard", 7, BEGAN, BEGAN + 19, {"players": 3}))
    return place


def test_series_points_and_runs(filled: str, start_monitor: Callable[..., Running]) -> None:
    monitor = start_monitor(database=filled)
    series = monitor.get("/api/series").json
    assert {(one["metric"], one["kind"]) for one in series} == {
        ("m_total", "counter"),
        ("gauge", "gauge"),
    }
    assert series[0]["labels"].keys() == {"engine", "run"}
    found = monitor.get(f"/api/points?metric=m_total&since={BEGAN}&until={BEGAN + 100}").json
    assert sorted(one["labels"]["engine"] for one in found) == ["area", "tile"]
    area = next(one for one in found if one["labels"]["engine"] == "area")
    assert set(area["value"]) == {10.0}, "a counter is drawn by its rate"
    [tile] = monitor.get("/api/points?metric=gauge&label.engine=tile").json
    assert set(tile["value"]) == {3.0}
    assert monitor.get("/api/points?metric=gauge&since=-60").json == []
    assert monitor.get("/api/points?metric=none").json == []
    [run] = monitor.get("/api/runs").json
    assert (run["id"], run["seed"], run["facts"]) == ("yard-1", 7, {"players": 3})


def test_the_same_question_is_answered_once(filled: str) -> None:
    async def check() -> None:
        history, asked = MetricsHistory(filled), []
        try:
            await asyncio.gather(*(history.ask("q", lambda _: asked.append(1)) for _ in range(20)))
            assert asked == [1]
            await history.ask("another", lambda _: asked.append(2))
            assert asked == [1, 2]
        finally:
            history.close()

    asyncio.run(check())


def test_a_database_that_cannot_be_opened_is_a_fault(tmp_path: str) -> None:
    async def check() -> None:
        history = MetricsHistory(f"{tmp_path}/no/such/folder/metrics")
        with pytest.raises(HttpError) as fault:
            await history.series()
        assert fault.value.status == 503

    asyncio.run(check())


def test_moments() -> None:
    assert moment({}, "since") is None
    assert moment({"since": ""}, "since") is None
    assert moment({"since": "1800000000.5"}, "since") == 1_800_000_000.5
    found = moment({"since": "-300"}, "since")
    assert found is not None
    assert abs(time.time() - 300 - found) < 60
    for written in ("soon", "nan", "inf", "-inf", "1e300"):
        with pytest.raises(HttpError, match="since is"):
            moment({"since": written}, "since")
    assert points_in({}) == 600
    for written in ("0", "-1", "1e3", "9999999"):
        with pytest.raises(HttpError, match="points is"):
            points_in({"points": written})
