"""Reports of a device about itself, at regular intervals and after every connect.

A report has automatic variables from a source (any callable, sync or async; `rove.client.devices`
has some) and `received`, the number of notifications since the last report that the broker has
acknowledged, from which the broker computes `network`. The program chooses the interval, or else
the broker, by default 30 s.

A report describes one moment, so an old one is worthless: without a connection none is made, and
there is never more than one in flight. A source that fails is logged; `received` is reported all
the same. Only Rove gets reports. With another broker the source is read as often, for the policies
that run here.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from rove.client.errors import ClientError

TOPIC: Final = "$rove/report"
EVERY_S: Final = 30.0
"""The interval until a broker has chosen one."""
RECEIVED: Final = "received"
EVERY: Final = "every"
"""User property of the broker's answer: the interval in seconds."""
_log = logging.getLogger("rove.client")

Source = Callable[[], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]
"""Returns the automatic variables of this moment."""
Send = Callable[[bytes], "asyncio.Future[Any]"]
"""Publishes a payload to `TOPIC`; the answer has user properties."""


class Reports:
    """The reports of one client."""

    def __init__(self, send: Send, can_send: Callable[[], bool]) -> None:
        """`can_send`: whether there is a connection to a broker that accepts reports."""
        self.newest: Mapping[str, Any] = {}
        """The last result of the source."""
        self.received = 0
        """Notifications since the last report that was acknowledged."""
        self._send = send
        self._can_send = can_send
        self._source: Source | None = None
        self._shown: Callable[[int], bool] | None = None
        self._every_s = EVERY_S
        self._is_asked = False
        """Whether the broker chooses the interval."""
        self._is_due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self, source: Source | None, every_s: float | None = None) -> None:
        """Report now and at intervals. ClientError if the broker refuses the first report."""
        if every_s is not None and not every_s > 0:
            raise ValueError(f"every_s is {every_s}; it may be any time above 0 s")
        self.stop()
        self._is_asked = every_s is None
        self._every_s = every_s or EVERY_S
        self._source = source
        self._shown = getattr(source, "received", None)
        self.newest = {}
        self._is_due.clear()
        await self._report()
        self._task = asyncio.create_task(self._keep(), name="rove reports")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def connected(self) -> None:
        """There is a new connection: report now."""
        self._is_due.set()

    def restored(self) -> bytes | None:
        """The variables for a broker that has lost the session, to send before subscriptions."""
        return msgspec.json.encode(self.newest) if self.newest else None

    def came(self, size_bytes: int) -> bool:
        """A notification has arrived. False if the device is simulated and did not get it."""
        if self._shown is not None:
            try:
                if not self._shown(size_bytes):
                    return False
            except Exception:  # it may raise anything: it belongs to the program
                _log.warning("the source of reports failed", exc_info=True)
        self.received += 1
        return True

    async def _keep(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_due.wait(), self._every_s)
            self._is_due.clear()
            try:
                await self._report()
            except ClientError as error:
                _log.warning("the broker did not take a report: %s", error)

    async def _report(self) -> None:
        """Send a report; returns when it was acknowledged, perhaps over a later connection."""
        values = await self._read()
        if not self._can_send():
            return
        received = self.received
        answer = await self._send(msgspec.json.encode({**values, RECEIVED: received}))
        self.received -= received
        if self._is_asked:
            self._every_s = _seconds(answer.user.get(EVERY, "")) or EVERY_S

    async def _read(self) -> Mapping[str, Any]:
        if self._source is None:
            return {}
        try:
            given = self._source()
            values = dict(await given if inspect.isawaitable(given) else given)
            msgspec.json.encode(values)
        except Exception:  # it may raise anything: it belongs to the program
            _log.warning("the source of reports failed", exc_info=True)
            return {}
        self.newest = values
        return values


def _seconds(text: str) -> float | None:
    """A positive number of seconds; None if it is none."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 < seconds < math.inf else None
