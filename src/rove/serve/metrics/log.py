"""The broker's metrics as rows of its own log, so that the lake has their history.

`/metrics` says what is; who wants to know what was has to have asked then. A channel that keeps
metrics gets a row at every interval, through the same log as publications: it has a position, is
in the lake once, and waits in the store when the lake cannot be written.

Counters begin at zero with every start of the broker. So a row names the *life* that it belongs to
(`id`) and its number in there, and from the totals of two rows a reader can tell how much was
counted between them, whatever happened in between. What was counted after the last row before a
crash is not known to anybody; a broker that is stopped writes a last one.

Rows are written in the middle of intervals (0:05, 0:15, … for ten seconds): those who add up by
intervals find one in each, however late a turn of the loop may be. A row is 1.5 KB before it is
compressed and takes 0.05 ms, and more where there are many sessions
(`rove.serve.metrics.readings`).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Sequence

import msgspec

from rove.broker.storage.records import LogRow
from rove.serve.metrics.readings import Metric, metric_values
from rove.serve.shell import Shell

KIND = "metrics"


class MetricsLog:
    """Writes metrics into the log, at every interval and at the end."""

    def __init__(
        self,
        shell: Shell,
        metrics_now: Callable[[], Iterable[Metric]],
        channels: Sequence[str],
        every_s: float,
    ) -> None:
        self._shell = shell
        self._metrics_now = metrics_now
        self._channels = channels
        self._every_s = every_s
        self._life = secrets.token_hex(8)
        self._rows = 0
        self._now: Callable[[], float]
        self._task: asyncio.Task[None] | None = None

    def start(self, now: Callable[[], float]) -> None:
        """Write from now on, by this clock."""
        self._now = now
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Write a last row, and no more."""
        if self._task is not None:
            self._task.cancel()
            self._write()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(wait_s(self._now(), self._every_s))
            self._write()

    def _write(self) -> None:
        broker = self._shell.broker
        self._rows += 1
        facts = {"row": self._rows, "values": metric_values(self._metrics_now())}
        payload = msgspec.json.encode(facts)
        at = max(self._now(), broker.view.now)
        for channel in self._channels:
            broker.log(LogRow(KIND, channel, at, id=self._life, payload=payload))
        self._shell.wake()


def wait_s(now_s: float, every_s: float) -> float:
    """How long it is until the middle of an interval, and not of one that was just served.

    Timers and the clock disagree a little: a row may come just before the middle.
    """
    rest_s = every_s - (now_s - every_s / 2) % every_s
    return rest_s if rest_s >= every_s / 2 else rest_s + every_s
