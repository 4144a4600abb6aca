"""How long publications are in the broker, measured at next to no cost.

A publication is timed with the turn that it came in: from the moment when the first bytes of the
turn were read until everything that was decided was handed to the sockets (`sent`), and, where the
turn had something to keep, until its commit had let out the acknowledgements and notifications
that waited for it (`kept`). All publications of a turn count with the turn's time, which is that of
the slowest. How long bytes lay in the system's buffers before they were read nobody here can know.

Times are those that the turn takes anyway, so a turn costs some additions more: 0.2 µs, where it
takes 30 at least without its system calls. They are by the broker's clock: one that is set back in
the middle of a turn makes a delay of nothing. Means and maxima are of the last one to two windows,
so that whoever asks at an interval of that length misses none, however many ask.
"""

from __future__ import annotations

from typing import Final

WINDOW_S: Final = 10.0


class Delay:
    """From one point to another."""

    __slots__ = ("_before", "_longest", "_until", "_was", "_window_s", "count", "seconds")

    def __init__(self, now: float, window_s: float) -> None:
        self.count = 0
        """Publications, ever."""
        self.seconds = 0.0
        """Of all of them together."""
        self._window_s = window_s
        self._until = now + window_s
        self._longest = 0.0
        self._was = 0.0
        """The longest of the window before."""
        self._before = ((0, 0.0), (0, 0.0))
        """`count` and `seconds` when this window began, and the one before."""

    def add(self, seconds: float, count: int, now: float) -> None:
        """So many publications took that long."""
        if now >= self._until:
            self._turn_over(now)
        self.count += count
        if seconds > 0.0:
            self.seconds += seconds * count
            if seconds > self._longest:
                self._longest = seconds

    def longest_s(self, now: float) -> float:
        """Of the last one or two windows."""
        if now >= self._until:
            self._turn_over(now)
        return max(self._longest, self._was)

    def mean_s(self, now: float) -> float:
        """Of the same; 0 if there was nothing."""
        if now >= self._until:
            self._turn_over(now)
        count, seconds = self._before[1]
        return (self.seconds - seconds) / (self.count - count) if self.count > count else 0.0

    def _turn_over(self, now: float) -> None:
        here = (self.count, self.seconds)
        if now >= self._until + self._window_s:
            # Nothing has come for a whole window.
            self._was, self._before = 0.0, (here, here)
        else:
            self._was, self._before = self._longest, (here, self._before[0])
        self._longest = 0.0
        self._until = now + self._window_s


class Delays:
    """Of publications in the broker."""

    def __init__(self, now: float, window_s: float = WINDOW_S) -> None:
        self.sent = Delay(now, window_s)
        self.kept = Delay(now, window_s)
