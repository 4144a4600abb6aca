"""Publications on their way out: how many may wait, and their ids.

Every publication that was accepted and not answered yet counts, whether it was sent or not, because
it stays in memory. If nothing else waits, one publication of any size is accepted; the broker
decides whether it is too large.

An id has twenty-eight hexadecimal digits: the milliseconds since 1970 (twelve), the maker (ten,
chosen at random when the client starts) and a count (six). So ids are unique without any
coordination, and sort in the order in which they were made, which keeps a database's index of them
compact. A random UUID does not sort, and takes a system call each; this takes half a microsecond.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from rove.client.errors import ClientError, OutboxFull


class OutboxQuota:
    """Room in the outbox, given in the order of requests."""

    def __init__(self, count_max: int, bytes_max: int, *, waits: bool) -> None:
        self.count = 0
        self.size_bytes = 0
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._waits = waits
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._empty: asyncio.Future[None] | None = None

    def take_now(self, size_bytes: int) -> bool:
        """Take room if there is some and nobody waits; False if not."""
        if self._waiting or not self._has(size_bytes):
            return False
        self.add(size_bytes)
        return True

    async def take(self, size_bytes: int) -> None:
        """Wait for room and take it; OutboxFull if the outbox does not wait."""
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
        """Take room even if there is none: for the client's own few messages."""
        self.count += 1
        self.size_bytes += size_bytes

    def give(self, size_bytes: int) -> None:
        """The broker has answered for a publication."""
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
        """Wait until the broker has answered for everything; False after the time limit."""
        if self.count:
            self._empty = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._empty], timeout=timeout_s)
        return self.count == 0

    def fail(self, error: ClientError) -> None:
        """Nothing will be sent any more: raise this error for everyone who waits."""
        for turn, _ in self._waiting:
            if not turn.done():
                turn.set_exception(error)
        self._waiting.clear()

    def _has(self, size_bytes: int) -> bool:
        return self.count == 0 or (
            self.count < self._count_max and self.size_bytes + size_bytes <= self._bytes_max
        )


MAKER_DIGITS: Final = 10
_COUNT_MAX: Final = (1 << 24) - 1


class IdGenerator:
    """Makes ids; `maker` are ten hexadecimal digits that no other maker has."""

    def __init__(self, maker: str) -> None:
        self._maker = maker
        self._now_ms = 0
        self._count = 0

    def make(self, now_ms: int) -> str:
        """The next id. A clock that goes back does not make ids go back."""
        if now_ms > self._now_ms:
            self._now_ms, self._count = now_ms, 0
        elif self._count < _COUNT_MAX:
            self._count += 1
        else:  # faster than the clock: borrow the next millisecond
            self._now_ms, self._count = self._now_ms + 1, 0
        return f"{self._now_ms:012x}{self._maker}{self._count:06x}"
