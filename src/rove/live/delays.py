"""How long updates were on their way over a real broker: a histogram for each client.

Steps of 2 % make percentiles of five minutes of hundreds of clients a few kilobytes, and never too
good. Nothing in here has a clock: whoever has one says how long it was.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rove.world.runs.state import Floats, Ints, Longs

SHORTEST_S: Final = 0.0001
_GROWTH: Final = 1.02
_BINS: Final = 700
"""Up to 104 seconds; what takes longer counts as that."""


class DelayHistograms:
    """How long updates were on their way to each client: a histogram with steps of 2 %."""

    def __init__(self, clients: int) -> None:
        self.counts: Longs = np.zeros((clients, _BINS), np.int64)

    def add(self, clients: Ints, delays_s: Floats) -> None:
        """Take note of some arrivals; what came before its time counts as on time."""
        relative = np.maximum(delays_s, SHORTEST_S) / SHORTEST_S
        steps = np.ceil(np.log(relative) / np.log(_GROWTH) - 1e-9).astype(np.int64)
        np.add.at(self.counts, (clients, np.minimum(steps, _BINS - 1)), 1)

    def of_all(self) -> Longs:
        """One histogram for all clients."""
        total: Longs = self.counts.sum(axis=0)
        return total


def percentile_s(counts: Longs, share: float) -> float:
    """At most how long that share of all arrivals took, to 2 % above; NaN if there are none."""
    total = int(counts.sum())
    if not total:
        return float("nan")
    step = int(np.searchsorted(np.cumsum(counts), share * total))
    return SHORTEST_S * _GROWTH**step
