"""What a device says of itself: a report every so often, and one whenever it has connected.

A report is a mapping of automatic variables, which a source gives (any callable, with or without
waiting; `rove.client.devices` has some), and `received`: how many notifications have come since the
last report that the broker has acknowledged. Of that the broker works out `network`. How often is
for the program to say, or else for the broker, which says 30 s unless it is configured otherwise.

A report tells the state of a moment, so an old one is worth nothing: while there is no connection
none is made, and never is more than one on its way. A source that fails is logged; what has been
received is reported all the same. Only Rove is sent reports. With another broker the source is read
as often, for the policies that run here.
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
"""How often, until a broker has said how often it wants them."""
RECEIVED: Final = "received"
EVERY: Final = "every"
"""User property of the broker's answer: how often, in seconds."""
_log = logging.getLogger("rove.client")

Source = Callable[[], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]
"""Gives the automatic variables of this moment."""
Send = Callable[[bytes], "asyncio.Future[Any]"]
"""Publishes a payload to `TOPIC`; the answer has user properties."""


class Reports:
    """The reports of one client."""

    def __init__(self, send: Send, can_send: Callable[[], bool]) -> None:
        """`can_send`: whether there is a connection, to a broker that knows what a report is."""
        self.newest: Mapping[str, Any] = {}
        """What the source gave last."""
        self.received = 0
        """Notifications since the last report that was acknowledged."""
        self._send = send
        self._can_send = can_send
        self._source: Source | None = None
        self._shown: Callable[[int], bool] | None = None
        self._every_s = EVERY_S
        self._is_asked = False
        """Whether it is for the broker to say how often."""
        self._is_due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self, source: Source | None, every_s: float | None = None) -> None:
        """Report now, and from now on. ClientError if the broker does not take the first one."""
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
        """What a broker that knows nothing is told before subscriptions are made again."""
        return msgspec.json.encode(self.newest) if self.newest else None

    def came(self, size_bytes: int) -> bool:
        """A notification has come. False if the device is simulated and did not get it."""
        if self._shown is not None:
            try:
                if not self._shown(size_bytes):
                    return False
            except Exception:  # of whatever kind: it is the program's own
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
        """One report; returns when it was acknowledged, perhaps over a later connection."""
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
        except Exception:  # of whatever kind: it is the program's own
            _log.warning("the source of reports failed", exc_info=True)
            return {}
        self.newest = values
        return values


def _seconds(text: str) -> float | None:
    """A number of seconds above 0; None if it is none."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 < seconds < math.inf else None
