"""Delays over windows, by a clock of the test's own."""

from __future__ import annotations

import pytest

from rove.serve.metrics.delays import Delay


def test_means_and_maxima_are_of_the_last_windows() -> None:
    now = 1_790_000_000.0
    delay = Delay(now, 10.0)
    assert (delay.mean_s(now), delay.longest_s(now)) == (0.0, 0.0)
    delay.add(0.5, 1, now + 1)
    delay.add(0.1, 3, now + 2)
    assert delay.mean_s(now + 3) == pytest.approx(0.2)
    assert delay.longest_s(now + 3) == 0.5
    delay.add(0.3, 1, now + 12)  # the next window: the one before still counts
    assert delay.longest_s(now + 13) == 0.5
    assert delay.mean_s(now + 13) == pytest.approx(1.1 / 5)
    delay.add(0.2, 1, now + 23)  # and one more: the first does not
    assert delay.longest_s(now + 24) == 0.3
    assert delay.mean_s(now + 24) == pytest.approx(0.25)
    assert (delay.longest_s(now + 60), delay.mean_s(now + 60)) == (0.0, 0.0)
    assert delay.count == 6
    assert delay.seconds == pytest.approx(1.3)


def test_nobody_has_to_ask_for_windows_to_pass() -> None:
    now = 1_790_000_000.0
    delay = Delay(now, 10.0)
    for second in range(100):
        delay.add(9.0 if second == 5 else 0.1, 1, now + second)
    assert delay.longest_s(now + 100) == 0.1
    assert delay.mean_s(now + 100) == pytest.approx(0.1)


def test_a_clock_that_is_set_back_makes_no_delay_below_nothing() -> None:
    delay = Delay(100.0, 10.0)
    delay.add(-3_600.0, 2, 100.0)
    assert (delay.count, delay.seconds, delay.mean_s(101.0), delay.longest_s(101.0)) == (2, 0, 0, 0)
