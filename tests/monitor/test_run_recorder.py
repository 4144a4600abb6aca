"""Runs and samples of the world are recorded in the database."""

import asyncio
import time
from pathlib import Path

from rove.metrics.database import Database
from rove.monitor.metrics_history import MetricsHistory
from rove.monitor.run_recorder import RunRecorder
from tests.effort import PATIENCE_S
from tests.monitor.conftest import Running


def begun(name: str) -> dict[str, object]:
    view = {
        "run": name,
        "scenario": "yard",
        "title": "Yard",
        "seed": 3,
        "seconds": 2.0,
        "engines": [{"name": "area"}],
    }
    return {"began": 1_700_000_000.0, "facts": {"players": 20}, "view": view}


def sample(name: str, second: int) -> dict[str, object]:
    return {
        "run": name,
        "now": 1_700_000_000.0 + second,
        "engines": {"area": {"subscriptions": 5.0, "subscribes": 10.0 * second}},
        "audiences": {"near": {"subscriptions": 1.0}},
    }


def test_a_run_its_figures_and_its_end(place: str) -> None:
    async def check() -> None:
        history = MetricsHistory(place)
        recording = RunRecorder(place, history)
        recording.begin(begun("yard-1"))
        for second in (1, 2, 3):
            recording.sample(sample("yard-1", second))
            recording.sample(sample("yard-0", second))  # of a run that is over
        recording.end("yard-0", 1_700_000_005.0)
        recording.end("yard-1", 1_700_000_009.0)
        await recording.close()
        assert recording.state().dropped == 0
        history.close()

    asyncio.run(check())
    with Database(place) as database:
        [run] = database.runs()
        assert (run.id, run.ended, run.facts["engines"]) == ("yard-1", 1_700_000_009.0, ["area"])
        labels = 'engine="area",run="yard-1",scenario="yard"'
        found = database.readings("rove_world_subscribes_total", labels)
        assert [(one.at - run.began, one.value) for one in found] == [
            (0.0, 0.0),
            (1.0, 10.0),
            (2.0, 20.0),
            (3.0, 30.0),
        ]
        names = {one.labels for one in database.series()}
        assert 'audience="near",run="yard-1",scenario="yard"' in names
        assert not any("yard-0" in name for name in names)


def test_a_database_that_comes_later_gets_the_run_all_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    place = str(folder / "metrics")

    async def check() -> None:
        history = MetricsHistory(place)
        recording = RunRecorder(place, history)
        recording.begin(begun("yard-1"))
        assert recording._writing is not None
        await recording._writing
        folder.mkdir()
        recording.sample(sample("yard-1", 1))
        await recording.close()
        history.close()

    asyncio.run(check())
    with Database(place) as database:
        assert [run.id for run in database.runs()] == ["yard-1"]


def test_a_monitor_records_what_it_plays(monitor: Running) -> None:
    name = monitor.get("/api/world").json["run"]
    question = f"/api/points?metric=rove_world_subscriptions&label.run={name}"
    end = time.monotonic() + PATIENCE_S
    while not (found := monitor.get(question).json):
        assert time.monotonic() < end
        time.sleep(0.1)
    assert {one["labels"]["engine"] for one in found} >= {"area", "evolving-pes"}
    with monitor.live() as page:
        assert page.say("end")["ok"]
        while {run["id"]: run["ended"] for run in monitor.get("/api/runs").json}[name] is None:
            assert time.monotonic() < end
            time.sleep(0.1)
        page.send(type="say", id=99, text="restart")
        assert page.message("world")["run"] != name
