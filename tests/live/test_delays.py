"""Histograms of delays never flatter."""

from __future__ import annotations

import numpy as np
import pytest

from rove.live.delays import DelayHistograms, percentile_s


def test_percentiles_are_at_most_two_percent_above() -> None:
    rng = np.random.default_rng(3)
    delays_s = rng.lognormal(-4, 1, 5_000)
    clients = rng.integers(0, 7, 5_000).astype(np.int32)
    histogram = DelayHistograms(7)
    histogram.add(clients[:2_000], delays_s[:2_000])
    histogram.add(clients[2_000:], delays_s[2_000:])
    for share in (0.5, 0.95, 0.99, 1.0):
        exact = np.quantile(delays_s, share, method="inverted_cdf")
        assert exact <= percentile_s(histogram.of_all(), share) * (1 + 1e-9)
        assert percentile_s(histogram.of_all(), share) <= exact * 1.0201
    of_one = delays_s[clients == 4]
    half = np.quantile(of_one, 0.5, method="inverted_cdf")
    assert half * 0.9999 <= percentile_s(histogram.counts[4], 0.5) <= half * 1.0201


def test_extreme_delays_are_counted() -> None:
    histogram = DelayHistograms(1)
    histogram.add(np.zeros(3, np.int32), np.array([-0.5, 0.0, 1e6]))
    assert histogram.of_all().sum() == 3
    assert percentile_s(histogram.of_all(), 0.5) == pytest.approx(0.0001)
    assert percentile_s(histogram.of_all(), 1.0) > 100
    assert np.isnan(percentile_s(DelayHistograms(2).of_all(), 0.5))
