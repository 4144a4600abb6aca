"""How long publications are in the broker, measured at next to no cost.

A publication is timed with the turn that it came in: from the moment when the first bytes of the
turn were read until everything that was decided was handed to the sockets (`sent`), and, where the
turn had something to keep, until its commit had let out the acknowledgements and notifications
that waited for it (`kept`). All publications of a turn count with the turn's time, which is that of
the slowest. How long bytes lay in the system's buffers before they were read nobody here can know.

Two readings of a clock and some additions a turn: 0.4 µs, where a turn takes 30 at least. Means and
maxima are of the last one to two windows, so that whoever asks at an interval of that length
misses none, however many ask.
"""

from __future__ import annotations

import time
from typing import Final

WINDOW_S: Final = 10.0


class Delay:
    """From one point to another."""

    __slots__ = ("_before", "_longest", "_since", "_was", "_window_s", "count", "seconds")

    def __init__(self, window_s: float) -> None:
        self.count = 0
        """Publications, ever."""
        self.seconds = 0.0
        """Of all of them together."""
        self._window_s = window_s
        self._since = time.perf_counter()
        self._longest = 0.0
        self._was = 0.0
        """The longest of the window before."""
        self._before = ((0, 0.0), (0, 0.0))
        """`count` and `seconds` when this window began, and the one before."""

    def add(self, seconds: float, count: int, now: float) -> None:
        """So many publications took that long; `now` is of the performance counter."""
        if now - self._since >= self._window_s:
            self._turn_over(now)
        self.count += count
        self.seconds += seconds * count
        if seconds > self._longest:
            self._longest = seconds

    def longest_s(self, now: float) -> float:
        """Of the last one or two windows."""
        if now - self._since >= self._window_s:
            self._turn_over(now)
        return max(self._longest, self._was)

    def mean_s(self, now: float) -> float:
        """Of the same; 0 if there was nothing."""
        if now - self._since >= self._window_s:
            self._turn_over(now)
        count, seconds = self._before[1]
        return (self.seconds - seconds) / (self.count - count) if self.count > count else 0.0

    def _turn_over(self, now: float) -> None:
        here = (self.count, self.seconds)
        if now - self._since >= 2 * self._window_s:
            # Nothing has come for a whole window.
            self._was, self._before = 0.0, (here, here)
        else:
            self._was, self._before = self._longest, (here, self._before[0])
        self._longest = 0.0
        self._since = now


class Delays:
    """Of publications in the broker."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self.sent = Delay(window_s)
        self.kept = Delay(window_s)
