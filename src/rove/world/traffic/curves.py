"""The course of a day, as smooth curves that are the same to the last bit on every machine.

Sines and exponentials differ between C libraries and between processors, in the last digit, and a
history must not depend on that. So these are made of sums, products and quotients alone.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rove.world.runs.state import Floats

DAY_H: Final = 24.0


def hours_apart(hour: float | Floats, other: float) -> Floats:
    """Between two hours of the day, the shorter way round: from 0 to 12."""
    apart = np.abs(np.asarray(hour, np.float64) - other) % DAY_H
    found: Floats = np.minimum(apart, DAY_H - apart)
    return found


def hill(hour: float | Floats, peak_h: float, wide_h: float) -> Floats:
    """1 at the peak, a quarter `wide_h` before and after it, next to 0 far away."""
    return bump(hours_apart(hour, peak_h) / wide_h)


def bump(distance: float | Floats) -> Floats:
    """1 at 0, a quarter at 1, falling with the fourth power; smooth."""
    distance = np.asarray(distance, np.float64)
    found: Floats = 1.0 / (1.0 + distance * distance) ** 2
    return found


def wave(hour: float | Floats, peak_h: float) -> Floats:
    """1 at the peak, -1 twelve hours later; smooth, like a cosine."""
    part = hours_apart(hour, peak_h) / (DAY_H / 2)
    found: Floats = 1.0 + part * part * (4.0 * part - 6.0)
    return found
