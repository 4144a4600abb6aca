"""Records samples of the world that is played in the metrics database.

Readings go through a recorder, which never waits. The row of a run is written in a thread, and
again with the next sample if the database was unavailable. Times are of the wall clock, not of the
world: charts of a world are shown beside those of a broker, and a paused world leaves a gap.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from rove.metrics.database import DatabaseError, RunRecord
from rove.metrics.recorder import Recorder, RecorderState
from rove.metrics.world_readings import Who, initial_readings, world_readings
from rove.monitor.metrics_history import MetricsHistory

CLOSE_S: Final = 3.0


class RecordedSample(msgspec.Struct, frozen=True):
    """What an engine, or an audience, had come to at a moment."""

    at: float
    source: str
    figures: dict[str, float]


class RunRecorder:
    """Records the runs and samples of the world."""

    def __init__(self, place: str, history: MetricsHistory) -> None:
        self._recorder = Recorder(place)
        self._history = history
        self._run: RunRecord | None = None
        self._is_begun = False
        self._unwritten: dict[str, RunRecord] = {}
        self._writing: asyncio.Task[None] | None = None

    def begin(self, said: dict[str, Any]) -> None:
        """A new run has begun."""
        view = said["view"]
        engines = [one["name"] for one in view["engines"]]
        facts = {**said["facts"], "engines": engines, "seconds": view["seconds"]}
        self._run = RunRecord(
            id=view["run"],
            scenario=view["scenario"],
            title=view["title"],
            seed=view["seed"],
            began=said["began"],
            facts=facts,
        )
        self._is_begun = False
        self._write_run(self._run)

    def sample(self, said: dict[str, Any]) -> None:
        """Note the figures of all engines and audiences."""
        run = self._run
        if run is None or said["run"] != run.id:
            return
        whos: tuple[tuple[Who, str], ...] = (("engine", "engines"), ("audience", "audiences"))
        for who, key in whos:
            for source, figures in said[key].items():
                one = RecordedSample(said["now"], source, figures)
                if not self._is_begun:
                    self._recorder.put(initial_readings(one, run.id, run.scenario, run.began, who))
                self._recorder.put(world_readings(one, run.id, run.scenario, 0.0, who))
        self._is_begun = True
        self._write_runs()

    def end(self, name: str, now: float) -> None:
        """A run is over."""
        if self._run is not None and self._run.id == name:
            self._write_run(msgspec.structs.replace(self._run, ended=now))
            self._run = None

    def state(self) -> RecorderState:
        """The state of the recorder."""
        return self._recorder.state()

    async def close(self) -> None:
        """Write what is pending, for a few seconds at most."""
        self._write_runs()
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=CLOSE_S)
        await asyncio.to_thread(self._recorder.close, CLOSE_S)

    def _write_run(self, run: RunRecord) -> None:
        self._unwritten[run.id] = run
        self._write_runs()

    def _write_runs(self) -> None:
        if self._unwritten and (self._writing is None or self._writing.done()):
            self._writing = asyncio.create_task(self._put_runs())

    async def _put_runs(self) -> None:
        try:
            while self._unwritten:
                run = next(iter(self._unwritten.values()))
                await asyncio.to_thread(self._put_run, run)
                if self._unwritten.get(run.id) is run:
                    del self._unwritten[run.id]
        except DatabaseError:
            return  # with the next sample again

    def _put_run(self, run: RunRecord) -> None:
        self._history.database().put_run(run)
