"""How many publications may wait: a count and bytes, and a queue of those who want to add one.

Everything that was accepted and not answered for yet counts, whether it was sent or not: that is
what stays in memory. One publication is always let in when nothing else waits, however large it
is; the broker says whether it is too large.
"""

from __future__ import annotations

import asyncio
from collections import deque

from rove.client.errors import ClientError, OutboxFull


class OutboxQuota:
    """Room in the outbox. Whoever waits for it gets it in the order of asking."""

    def __init__(self, count_max: int, bytes_max: int, *, waits: bool) -> None:
        self.count = 0
        self.size_bytes = 0
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._waits = waits
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._empty: asyncio.Future[None] | None = None

    def take_now(self, size_bytes: int) -> bool:
        """Take room if there is some and nobody waits for it; False if not."""
        if self._waiting or not self._has(size_bytes):
            return False
        self.add(size_bytes)
        return True

    async def take(self, size_bytes: int) -> None:
        """Take room, when there is some; OutboxFull if that is not to be waited for."""
        if self.take_now(size_bytes):
            return
        if not self._waits:
            raise OutboxFull(
                f"{self.count} publications of {self.size_bytes} bytes wait for the broker; "
                f"allowed are {self._count_max} of {self._bytes_max} bytes "
                "(outbox_max, outbox_bytes_max)"
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, size_bytes))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give(size_bytes)
            raise

    def add(self, size_bytes: int) -> None:
        """Take room whether there is some or not: for the client's own few messages."""
        self.count += 1
        self.size_bytes += size_bytes

    def give(self, size_bytes: int) -> None:
        """A publication was answered for."""
        self.count -= 1
        self.size_bytes -= size_bytes
        while self._waiting and (self._waiting[0][0].done() or self._has(self._waiting[0][1])):
            turn, waiting_bytes = self._waiting.popleft()
            if not turn.done():
                self.add(waiting_bytes)
                turn.set_result(None)
        if self.count == 0 and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    async def emptied(self, timeout_s: float) -> bool:
        """Wait until everything was answered for; False if the time was up before."""
        if self.count:
            self._empty = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._empty], timeout=timeout_s)
        return self.count == 0

    def fail(self, error: ClientError) -> None:
        """Nothing will be sent any more: tell those who wait."""
        for turn, _ in self._waiting:
            if not turn.done():
                turn.set_exception(error)
        self._waiting.clear()

    def _has(self, size_bytes: int) -> bool:
        return self.count == 0 or (
            self.count < self._count_max and self.size_bytes + size_bytes <= self._bytes_max
        )
