"""The clock of a neighbour: the truth is always within the bound."""

from __future__ import annotations

import random

import pytest

from rove.mesh.clocks import DRIFT, SAMPLES_MAX, LinkClock
from tests.effort import share


def test_half_of_the_delay_bounds_the_error() -> None:
    clock = LinkClock()
    assert clock.estimate(0.0) is None
    clock.add(100.0, 105.03, 100.04)  # the clock is 5 s ahead, and the way back took no time
    estimate = clock.estimate(100.04)
    assert estimate is not None
    assert estimate.delay_s == pytest.approx(0.04)
    assert estimate.offset_s == pytest.approx(5.01)
    assert estimate.error_s == pytest.approx(0.02)


def test_the_best_sample_counts_until_it_is_too_old() -> None:
    clock = LinkClock()
    clock.add(0.0, 0.005, 0.01)
    for number in range(1, SAMPLES_MAX):
        clock.add(number, number + 0.1, number + 0.2)
    best = clock.estimate(10.0)
    assert best is not None
    assert best.error_s == pytest.approx(0.005 + DRIFT * 9.99)
    clock.add(10.0, 10.1, 10.2)
    later = clock.estimate(10.2)
    assert later is not None
    assert later.delay_s == pytest.approx(0.2)


def test_a_clock_that_was_set_makes_older_samples_void() -> None:
    clock = LinkClock()
    clock.add(0.0, 0.0005, 0.001)
    clock.add(1.0, 31.1, 1.2)
    estimate = clock.estimate(1.2)
    assert estimate is not None
    assert estimate.offset_s == pytest.approx(30.0)


def test_a_sample_across_a_jump_of_our_own_clock_is_ignored() -> None:
    clock = LinkClock()
    clock.add(10.0, 5.0, 9.0)
    clock.add(10.0, 5.0, 100.0)
    assert clock.estimate(100.0) is None


def test_the_truth_is_within_the_bound() -> None:
    for seed in range(share(600)):
        draw = random.Random(seed)
        offset_s, drift = draw.uniform(-100, 100), draw.uniform(-1, 1) * DRIFT
        clock, now_s = LinkClock(), 0.0
        for _ in range(50):
            now_s += draw.uniform(0.5, 3)
            sent_s = now_s
            now_s += draw.expovariate(20)
            remote_s = now_s + offset_s + drift * now_s
            now_s += draw.expovariate(20)
            clock.add(sent_s, remote_s, now_s)
            at_s = now_s + draw.uniform(0, 5)
            estimate = clock.estimate(at_s)
            assert estimate is not None
            truth_s = offset_s + drift * at_s
            assert abs(estimate.offset_s - truth_s) <= estimate.error_s + 1e-4, f"seed {seed}"
