"""How far the clock of a neighbour is ahead, and how wrong that may be.

A ping says when it was sent, the answer when it was answered. If the answer came after `delay_s`,
the neighbour's clock was read somewhere within that time, so half of the delay bounds the error,
however uneven the two directions are (this is NTP's way). The sample with the smallest bound
counts. The bound of an older sample is wider, because clocks drift; and one that contradicts what
was known means that somebody has set a clock, and makes all older ones void.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

SAMPLES_MAX: Final = 8
DRIFT: Final = 1e-4
"""Seconds by which two clocks may part in a second; quartz has less than half of it."""
DELAY_S_MAX: Final = 60.0


class ClockEstimate(msgspec.Struct, frozen=True, gc=False):
    """What is known of a neighbour's clock."""

    delay_s: float
    """There and back."""
    offset_s: float
    """By how much it is ahead of ours."""
    error_s: float


class LinkClock:
    """The last samples of one link."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float, float]] = deque(maxlen=SAMPLES_MAX)
        """Delay, offset, and when it was taken."""
        self.delay_s_min = DELAY_S_MAX
        """The smallest of all, when nothing else waited for the link."""

    def add(self, sent_s: float, remote_s: float, received_s: float) -> None:
        """A ping was sent, answered when the neighbour's clock said `remote_s`, and came back."""
        delay_s = received_s - sent_s
        if not 0 <= delay_s <= DELAY_S_MAX:
            return  # our own clock was set meanwhile
        self.delay_s_min = min(self.delay_s_min, delay_s)
        offset_s = remote_s - (sent_s + received_s) / 2
        known = self.estimate(received_s)
        if known is not None and abs(offset_s - known.offset_s) > known.error_s + delay_s / 2:
            self._samples.clear()
        self._samples.append((delay_s, offset_s, received_s))

    def forget(self) -> None:
        """Our own clock was set."""
        self._samples.clear()

    def estimate(self, now_s: float) -> ClockEstimate | None:
        """The best that is known; None before the first answer."""
        best = None
        for delay_s, offset_s, at_s in self._samples:
            error_s = delay_s / 2 + DRIFT * (now_s - at_s)
            if best is None or error_s < best.error_s:
                best = ClockEstimate(delay_s, offset_s, error_s)
        return best
