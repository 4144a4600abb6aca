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
