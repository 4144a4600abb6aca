"""The cost of recording is measured, tiny and with real brokers; figures are not judged."""

from __future__ import annotations

import pytest

from rove.bench.monitor.metrics import QUICK, compared, run


@pytest.mark.soak
def test_everything_is_measured() -> None:
    told: list[str] = []
    measures = {one.name: one for one in run(QUICK, told.append)}
    assert measures.keys() == {
        f"monitor.recording.{name}"
        for name in ("off", "on", "overhead", "readings", "idle.off", "idle.more")
    }
    assert measures["monitor.recording.readings"].value > 0
    assert measures["monitor.recording.overhead"].goal == "<= 2 %"
    assert len(told) == 3


def test_the_overhead_is_the_mean_of_pairs_with_its_interval() -> None:
    found = {one.name: one for one in compared([1_000.0, 2_000.0], [900.0, 1_600.0])}
    overhead = found["monitor.recording.overhead"]
    assert overhead.value == pytest.approx(15)
    assert overhead.reached is False
    assert found["monitor.recording.on"].ratio == pytest.approx(0.85)
    low, high = (found[f"monitor.recording.overhead.{end}"].value for end in ("low", "high"))
    assert low < 10 < 20 < high
    assert low + high == pytest.approx(30)
    (better,) = (one for one in compared([1_000.0], [1_010.0]) if one.goal)
    assert better.reached is True
