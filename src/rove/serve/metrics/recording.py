"""The broker's metrics into the metrics database, at every interval, without the broker noticing.

The event loop takes a snapshot, gives each figure its name and puts it into a recorder
(`rove.metrics.recorder`), whose thread does the rest: 0.1 ms of the loop's time in each interval
with a hundred sessions, 0.7 ms with ten thousand. That is next to nothing, so names are given here
and not in the thread, where they would only wait for the same lock of the interpreter.

Which metrics are recorded is asked once for each name. Snapshots are taken in the middle of
intervals, as those for the lake (`rove.serve.metrics.log`), so that every interval of ten seconds
has as many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from rove.errors import RoveError
from rove.metrics.recorder import Recorder, RecorderState
from rove.metrics.records import Reading, labels_of, labels_text, split_series
from rove.serve.config import Metrics
from rove.serve.metrics.log import wait_s
from rove.serve.metrics.readings import Metric, metric_values

DRAIN_S = 2.0
"""How long stopping waits for the database."""


class RecordingError(RoveError):
    """Metrics cannot be recorded as the configuration has it."""


def check_place(place: str) -> None:
    """Refuse what will never work; a database that is away may come back, and is no error."""
    if not place:
        return
    try:
        from rove.metrics.database import url_of
    except ImportError as error:
        raise RecordingError(
            f"[metrics] database needs SQLAlchemy ({error}); `pip install 'rove[databases]'` "
            "brings it"
        ) from None
    url_of(place)


class MetricsRecording:
    """Records metrics at every interval, and at the end."""

    def __init__(self, settings: Metrics, metrics_now: Callable[[], Iterable[Metric]]) -> None:
        self._settings = settings
        self._metrics_now = metrics_now
        keep_raw_s = settings.keep_raw_hours * 3_600 or None
        self._recorder = Recorder(settings.database, settings.buffer, keep_raw_s=keep_raw_s)
        self._names: dict[str, tuple[str, str] | None] = {}
        """Metric and labels of a series; None if it is not recorded."""
        self._now: Callable[[], float]
        self._task: asyncio.Task[None] | None = None

    def start(self, now: Callable[[], float]) -> None:
        """Record from now on, by this clock."""
        self._now = now
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Record a last time, and no more."""
        if self._task is not None:
            self._task.cancel()
            self._record()
        await asyncio.to_thread(self._recorder.close, DRAIN_S)

    def state(self) -> RecorderState:
        """How it goes."""
        return self._recorder.state()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(wait_s(self._now(), self._settings.every_s))
            self._record()

    def _record(self) -> None:
        at, names = self._now(), self._names
        readings = []
        for series, value in metric_values(self._metrics_now()).items():
            if series not in names:
                names[series] = self._name(series)
            name = names[series]
            if name is not None:
                readings.append(Reading(*name, at, value))
        self._recorder.put(readings)

    def _name(self, series: str) -> tuple[str, str] | None:
        metric, labels = split_series(series)
        if not _fits(metric, self._settings.record) or _fits(metric, self._settings.leave_out):
            return None
        if self._settings.broker:
            labels = labels_text({**labels_of(labels), "broker": self._settings.broker})
        return metric, labels


def _fits(metric: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(metric, pattern) for pattern in patterns)
