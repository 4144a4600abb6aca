"""The cost of recording is measured, tiny and with real brokers; figures are not judged."""

from __future__ import annotations

import msgspec
import pytest

from rove.lab.broker_load import Outcome
from rove.lab.metrics_bench import QUICK, _compared, run


def test_everything_is_measured() -> None:
    told: list[str] = []
    measures = {one.name: one for one in run(QUICK, told.append)}
    assert measures.keys() == {
        f"monitor.recording.{name}"
        for name in ("off", "on", "noise", "overhead", "readings", "idle.off", "idle.more")
    }
    assert measures["monitor.recording.readings"].value > 0
    assert measures["monitor.recording.overhead"].goal == "<= 2 %"
    assert len(told) == 4


def test_the_overhead_is_of_the_best_rounds() -> None:
    outcome = Outcome(received=1_000, broker_cpu_s=1.0)
    slower = msgspec.structs.replace(outcome, broker_cpu_s=1.25)
    found = {
        one.name.rpartition(".")[2]: one
        for one in _compared({"off": [slower, outcome], "again": [slower], "on": [slower]})
    }
    assert found["off"].value == 1_000
    assert found["on"].ratio == pytest.approx(0.8)
    assert found["overhead"].value == found["noise"].value == pytest.approx(20)
    assert found["overhead"].reached is False
