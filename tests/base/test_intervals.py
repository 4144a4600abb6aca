"""Intervals: Student's t against integrals and closed forms, and the bootstrap."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from rove.base.intervals import (
    FREEDOM_EXACT_MAX,
    mean_interval,
    median_interval,
    t_mass,
    t_quantile,
)


def integral(t: float, freedom: int, steps: int = 20_000) -> float:
    """The mass from -t to t, by Simpson's rule over the density."""
    log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    scale = math.exp(log_scale) / math.sqrt(freedom * math.pi)
    x = np.linspace(0.0, t, steps + 1)
    density = scale * np.exp(-(freedom + 1) / 2 * np.log1p(x * x / freedom))
    weights = np.ones(steps + 1)
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    return 2 * float((weights * density).sum()) * t / steps / 3


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 8, 29, 30, 101, 1_000, 10_000])
def test_the_mass_is_the_integral_of_the_density(freedom: int) -> None:
    for t in (0.01, 0.5, 1.0, 1.96, 4.0, 12.0):
        assert t_mass(t, freedom) == pytest.approx(integral(t, freedom), abs=1e-10)
    assert t_mass(0.0, freedom) == 0.0


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99, 0.999])
def test_quantiles_are_those_of_closed_forms(confidence: float) -> None:
    assert t_quantile(confidence, 1) == pytest.approx(math.tan(math.pi * confidence / 2))
    by_hand = confidence * math.sqrt(2 / (1 - confidence**2))
    assert t_quantile(confidence, 2) == pytest.approx(by_hand)
    normal = statistics.NormalDist().inv_cdf((1 + confidence) / 2)
    assert t_quantile(confidence, 10**9) == pytest.approx(normal, abs=1e-7)


def test_quantiles_are_those_of_the_printed_table() -> None:
    printed = {3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 10: 2.228, 20: 2.086, 30: 2.042, 120: 1.980}
    found = {freedom: round(t_quantile(0.95, freedom), 3) for freedom in printed}
    assert found == printed


def test_the_quantile_has_no_step_where_the_series_takes_over() -> None:
    around = [t_quantile(0.95, FREEDOM_EXACT_MAX + step) for step in (-1, 0, 1, 2)]
    steps = np.diff(around)
    assert steps == pytest.approx([steps[0]] * 3, rel=1e-3)


def test_the_intervals_of_means_hold_as_often_as_they_say() -> None:
    drawn = np.random.default_rng(3)
    intervals = [mean_interval(drawn.normal(7.0, 2.0, 6)) for _ in range(2_000)]
    hits = sum(1 for each in intervals if each is not None and each[0] <= 7.0 <= each[1])
    assert 0.935 < hits / 2_000 < 0.965


def test_the_intervals_of_medians_hold_nearly_as_often() -> None:
    drawn = np.random.default_rng(4)
    intervals = [
        median_interval(drawn.exponential(1.0, 25), resamples=500, seed=each) for each in range(400)
    ]
    hits = sum(1 for each in intervals if each is not None and each[0] <= math.log(2) <= each[1])
    assert 0.89 < hits / 400 < 0.99


def test_the_bootstrap_is_the_same_every_time_and_in_any_order() -> None:
    values = np.array([3.0, 9.0, 4.0, 4.5, 8.0, 1.0])
    first = median_interval(values)
    assert first == median_interval(values[::-1]) == median_interval(values)
    assert first != median_interval(values, seed=1, resamples=7)
    assert first is not None
    assert 1.0 <= first[0] < 4.25 < first[1] <= 9.0


def test_one_value_has_no_interval() -> None:
    assert mean_interval(np.ones(1)) is median_interval(np.ones(1)) is None
