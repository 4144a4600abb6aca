"""How long publications stay in the broker, measured at almost no cost.

A publication is timed with its turn: from the moment when the first bytes of the turn were read
until everything was written to the sockets (`sent`), and, if the turn had changes to commit, until
the acknowledgements and notifications that waited for the commit were sent (`kept`). All
publications of a turn count with the time of the turn, which is that of the slowest. How long bytes
waited in the system's buffers cannot be known here.

The turn needs these times anyway, so measuring costs some additions: 0.2 µs per turn of at least 30
without system calls. They use the broker's clock: if that is set back in the middle of a turn, the
delay is zero. Means and maxima are of the last one to two windows, so that a reader with an
interval of that length misses none, and readers do not affect each other.
"""

from __future__ import annotations

from typing import Final

WINDOW_S: Final = 10.0


class Delay:
    """The delays up to one point."""

    __slots__ = (
        "_longest",
        "_longest_before",
        "_starts",
        "_until",
        "_window_s",
        "count",
        "seconds",
    )

    def __init__(self, now: float, window_s: float) -> None:
        self.count = 0
        """All publications so far."""
        self.seconds = 0.0
        """The sum of their delays."""
        self._window_s = window_s
        self._until = now + window_s
        self._longest = 0.0
        self._longest_before = 0.0
        """The longest of the previous window."""
        self._starts = ((0, 0.0), (0, 0.0))
        """`count` and `seconds` at the start of this window and of the previous one."""

    def add(self, seconds: float, count: int, now: float) -> None:
        """Add publications with the same delay."""
        if now >= self._until:
            self._start_window(now)
        self.count += count
        if seconds > 0.0:
            self.seconds += seconds * count
            if seconds > self._longest:
                self._longest = seconds

    def longest_s(self, now: float) -> float:
        """The longest of the last one or two windows."""
        if now >= self._until:
            self._start_window(now)
        return max(self._longest, self._longest_before)

    def mean_s(self, now: float) -> float:
        """The mean of the same; 0 without publications."""
        if now >= self._until:
            self._start_window(now)
        count, seconds = self._starts[1]
        return (self.seconds - seconds) / (self.count - count) if self.count > count else 0.0

    def _start_window(self, now: float) -> None:
        here = (self.count, self.seconds)
        if now >= self._until + self._window_s:
            # There was nothing for a whole window.
            self._longest_before, self._starts = 0.0, (here, here)
        else:
            self._longest_before, self._starts = self._longest, (here, self._starts[0])
        self._longest = 0.0
        self._until = now + self._window_s


class Delays:
    """The delays of publications in the broker, up to both points."""

    def __init__(self, now: float, window_s: float = WINDOW_S) -> None:
        self.sent = Delay(now, window_s)
        self.kept = Delay(now, window_s)
