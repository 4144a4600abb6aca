"""Confidence intervals of means and medians of few measurements: Student's t and the bootstrap.

**The mean**: Student's interval, exact for normally distributed measurements. The quantile is found
by bisection of the closed form of the distribution for whole degrees of freedom (a finite sum), so
that no statistics package is needed for one number. **The median** needs no assumption: the
percentile bootstrap, with a fixed seed, so that the same values always give the same interval. It
cannot be wider than the values are.

10,000 resamples of 30 values take 0.1 s.
"""

from __future__ import annotations

import functools
import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

CONFIDENCE: Final = 0.95
RESAMPLES: Final = 10_000
SEED: Final = 20_130_113
FREEDOM_EXACT_MAX: Final = 10_000
"""Beyond it two terms of a series around the normal distribution have eleven correct digits."""
_DRAWN_MAX: Final = 1_000_000
"""Random numbers at a time."""

Interval = tuple[float, float]


def mean_interval(values: NDArray[np.float64], confidence: float = CONFIDENCE) -> Interval | None:
    """The confidence interval of the mean; None for fewer than two values."""
    if len(values) < 2:
        return None
    mean, half = float(values.mean()), half_width(values, confidence)
    return mean - half, mean + half


def half_width(values: NDArray[np.float64], confidence: float = CONFIDENCE) -> float:
    """Half the width of that interval, for two values or more."""
    n = len(values)
    return t_quantile(confidence, n - 1) * float(values.std(ddof=1)) / math.sqrt(n)


def median_interval(
    values: NDArray[np.float64],
    confidence: float = CONFIDENCE,
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Interval | None:
    """The confidence interval of the median, by resampling."""
    n = len(values)
    if n < 2:
        return None
    ordered = np.sort(values)  # the order of the runs must not matter
    drawn = np.random.default_rng(seed)
    at_a_time = max(1, _DRAWN_MAX // n)
    medians = np.concatenate(
        [
            np.median(ordered[drawn.integers(0, n, (min(at_a_time, resamples - begin), n))], axis=1)
            for begin in range(0, resamples, at_a_time)
        ]
    )
    rest = (1 - confidence) / 2
    low, high = np.quantile(medians, [rest, 1 - rest])
    return float(low), float(high)


@functools.cache
def t_quantile(confidence: float, freedom: int) -> float:
    """The t for which Student's distribution has this share of its mass between -t and t."""
    if freedom > FREEDOM_EXACT_MAX:
        z = NormalDist().inv_cdf((1 + confidence) / 2)
        return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    low, high = 0.0, 1.0
    while t_mass(high, freedom) < confidence:
        low, high = high, 2 * high
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if t_mass(middle, freedom) < confidence:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def t_mass(t: float, freedom: int) -> float:
    """The share of Student's distribution between -t and t.

    A finite sum for whole degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4): each term
    is the one before it by cos² and a ratio of neighbouring numbers.
    """
    angle = math.atan2(t, math.sqrt(freedom))
    square = math.cos(angle) ** 2
    is_odd = freedom % 2 == 1
    steps = np.arange(2 if is_odd else 1, freedom - 1, 2, dtype=np.float64)
    terms = np.cumprod(np.concatenate(([1.0], steps / (steps + 1) * square)))
    if not is_odd:
        return math.sin(angle) * float(terms.sum())
    series = 0.0 if freedom == 1 else math.sin(angle) * math.cos(angle) * float(terms.sum())
    return 2 / math.pi * (angle + series)
