"""Writes readings to the metrics database without making the caller wait: a buffer and a thread.

`put` adds readings to the buffer and returns. It takes a lock that is never held for longer than a
copy takes, and raises nothing. The thread writes the buffer in one transaction, and again when
there is more. While the database cannot be written, the buffer fills; later its readings are
written in order. A full buffer drops the oldest readings and counts them.

**Nothing is written twice, and nothing that fits into the buffer is lost.** Readings leave the
buffer after they were committed. If the database's answer is lost, they are written again, and
replace themselves.

Considered: a file instead of memory. The buffer lasts half an hour for a broker that records
everything every second (100,000 readings, 12 MB). After that there is a gap in a chart, which costs
less than a file that has to be read again, limited and cleaned up.

SQLAlchemy is imported in the thread with the first reading, so that no caller waits 0.3 s for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from rove.errors import RoveError
from rove.metrics.records import Reading, fault_of

if TYPE_CHECKING:
    from rove.metrics.database import Database

BUFFER_MAX: Final = 100_000
BATCH_MAX: Final = 5_000
PAUSE_S: Final = 0.2
"""Between two writes, so that several small `put` share a transaction."""
BACKOFF_S_MIN: Final = 0.1
BACKOFF_S_MAX: Final = 5.0
"""Pauses after failures double up to this."""
FORGET_EVERY_S: Final = 600.0
CLOSE_S: Final = 10.0

log: Final = logging.getLogger("rove.metrics")


class RecorderState(msgspec.Struct, frozen=True):
    """The state of a recorder."""

    written: int
    """Readings in the database."""
    waiting: int
    """Readings in the buffer."""
    dropped: int
    """Readings that did not fit into the buffer, or that no database can store."""
    last_error: str | None
    """Why it cannot write at present; None if it can."""


class Recorder:
    """Writes readings to a database that may be slow or unavailable."""

    def __init__(
        self, place: str, buffer_max: int = BUFFER_MAX, *, keep_raw_s: float | None = None
    ) -> None:
        """Readings older than `keep_raw_s` are removed from the database every ten minutes."""
        self._place = place
        self._buffer_max = buffer_max
        self._keep_raw_s = keep_raw_s
        self._buffer: deque[Reading] = deque()
        self._left = 0
        """How many readings have left the buffer, written or dropped."""
        self._written = 0
        self._dropped = 0
        self._last_error: str | None = None
        self._closing_at: float | None = None
        self._changed = threading.Condition()
        """Also the lock of all attributes above."""
        self._database: Database | None = None
        self._forgot_at = 0.0
        self._thread = threading.Thread(target=self._run, name="rove-metrics", daemon=True)
        self._thread.start()

    def put(self, readings: Sequence[Reading]) -> None:
        """Add readings to be written; the oldest ones are dropped if the buffer is full."""
        with self._changed:
            if self._closing_at is not None:
                self._dropped += len(readings)
                return
            self._buffer.extend(readings)
            surplus = len(self._buffer) - self._buffer_max
            if surplus > 0:
                self._drop_oldest(surplus)
                self._dropped += surplus
            self._changed.notify()

    def state(self) -> RecorderState:
        """The current state."""
        with self._changed:
            return RecorderState(self._written, len(self._buffer), self._dropped, self._last_error)

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Write the rest of the buffer, or what can be written in this time, and end."""
        with self._changed:
            if self._closing_at is None:
                self._closing_at = time.monotonic() + timeout_s
            self._changed.notify()
        self._thread.join(timeout_s + PAUSE_S)
        state = self.state()
        if state.waiting:
            log.warning(
                "metrics were not written",
                extra={"fields": {"readings": state.waiting, "reason": state.last_error}},
            )

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        backoff_s = BACKOFF_S_MIN
        try:
            while self._wait():
                try:
                    self._write()
                except Exception as error:
                    # The thread continues after any error: the database may be repaired.
                    self._note_failure(error)
                    self._pause(backoff_s)
                    backoff_s = min(2 * backoff_s, BACKOFF_S_MAX)
                else:
                    backoff_s = BACKOFF_S_MIN
                    self._pause(PAUSE_S)
        finally:
            if self._database is not None:
                self._database.close()

    def _wait(self) -> bool:
        """Wait for something to write; False if the recorder is to end."""
        with self._changed:
            while not self._buffer and self._closing_at is None:
                self._changed.wait()
            return bool(self._buffer) and not self._is_over()

    def _is_over(self) -> bool:
        return self._closing_at is not None and time.monotonic() >= self._closing_at

    def _pause(self, seconds: float) -> None:
        """Pause, unless a whole batch is waiting or the recorder is being closed."""
        until = time.monotonic() + seconds
        with self._changed:
            while (left_s := until - time.monotonic()) > 0:
                if self._last_error is None and len(self._buffer) >= BATCH_MAX:
                    return
                if self._closing_at is not None:
                    if self._last_error is None or self._is_over():
                        return
                    left_s = min(left_s, self._closing_at - time.monotonic())
                self._changed.wait(left_s)

    def _write(self) -> None:
        """Write the oldest batch; its readings leave the buffer when they are committed."""
        with self._changed:
            batch = list(islice(self._buffer, BATCH_MAX))
            left = self._left
        good = [one for one in batch if fault_of(one) is None]
        self._open().put_readings(good)
        with self._changed:
            # Those that were dropped meanwhile are written now, so they do not count as dropped.
            gone = min(self._left - left, len(batch))
            self._drop_oldest(len(batch) - gone)
            self._dropped += len(batch) - len(good) - gone
            self._written += len(good)
        self._note_success()
        self._forget()

    def _drop_oldest(self, count: int) -> None:
        for _ in range(count):
            self._buffer.popleft()
        self._left += count

    def _open(self) -> Database:
        if self._database is None:
            from rove.metrics.database import Database

            self._database = Database(self._place)
        return self._database

    def _forget(self) -> None:
        now = time.time()
        if self._keep_raw_s is None or now - self._forgot_at < FORGET_EVERY_S:
            return
        self._forgot_at = now
        self._open().forget_readings(now - self._keep_raw_s)

    def _note_failure(self, error: Exception) -> None:
        reason = str(error) if isinstance(error, RoveError) else f"{type(error).__name__}: {error}"
        with self._changed:
            is_news, self._last_error = self._last_error is None, reason
        if is_news:
            fields = {"reason": reason}
            log.warning("metrics cannot be written and are buffered", extra={"fields": fields})

    def _note_success(self) -> None:
        with self._changed:
            is_news, self._last_error = self._last_error is not None, None
            dropped = self._dropped
        if is_news:
            fields = {"dropped": dropped}
            log.info("metrics are written again", extra={"fields": fields})
