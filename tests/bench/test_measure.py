"""Measures: timed as the best of several, shown as a table or as JSON lines."""

import pytest

from rove.bench.measure import Measure, machine, seconds_for, show


def test_the_least_disturbed_round_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 5.0, 10.0, 11.0, 20.0, 23.0])
    monkeypatch.setattr("rove.bench.measure.time.perf_counter", lambda: next(clock))
    assert seconds_for(lambda: None, rounds=3) == 1.0


def test_the_machine_is_named() -> None:
    assert "cores" in machine()


def test_a_missed_goal_shows(capsys: pytest.CaptureFixture[str]) -> None:
    show([Measure("slow", 99.0, "ms", goal="<= 10 ms", reached=False)], as_json=False)
    out = capsys.readouterr().out
    assert "✘ <= 10 ms" in out
    assert "99" in out


def test_a_ratio_is_judged_by_goals_in_times() -> None:
    other = Measure("b", 2.0, "s")
    fast = Measure("a", 1.22, "s").compared(other).at_least(0.6, "×")
    slow = Measure("a", 1.18, "s").compared(other).at_least(0.6, "×")
    assert (fast.against, fast.ratio) == ("b", 0.61)
    assert (fast.goal, fast.reached, slow.reached) == (">= 0.6×", True, False)
    large = Measure("a", 2.6, "MiB").compared(other).at_most(1.2, "×")
    assert (large.goal, large.reached) == ("<= 1.2×", False)


def test_the_value_is_judged_by_other_goals() -> None:
    rate = Measure("a", 15_000.0, "publications/s").at_least(15_000, "/s")
    assert (rate.goal, rate.reached) == (">= 15,000/s", True)


def test_without_another_measure_there_is_no_ratio() -> None:
    alone = Measure("a", 1.0, "s").compared(None).at_least(0.6, "×")
    assert (alone.ratio, alone.goal, alone.reached) == (None, ">= 0.6×", None)
    assert Measure("a", 1.0, "s").compared(Measure("b", 0.0, "s")).ratio is None
