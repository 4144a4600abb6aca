"""The benchmark of ranked subscriptions on Spark runs through; its figures are not judged here."""

import subprocess
import sys
from typing import Any

import pytest

from rove.bench.pipeline import ranked as bench
from rove.testing.workloads import AirQuality


@pytest.mark.soak
def test_both_cases_are_measured(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_SAMPLE_TEXTS", 6)
    monkeypatch.setattr(bench, "_SAMPLE_ROWS", 200)
    measures = list(bench.run(spark, subscriptions=30, rows=500, rounds=1, buckets=2))
    names = [f"pipeline.ranked.{case}.30{what}" for case in bench.CASES for what in ("", ".cpu")]
    assert [measure.name for measure in measures] == names
    boxes, boxes_cpu, everything, _ = measures
    assert boxes.reached is (boxes.value >= bench.GOAL_PER_S)
    assert everything.goal is None
    assert boxes_cpu.value > 0


@pytest.mark.soak
def test_another_result_stops_it(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_SAMPLE_TEXTS", 3)
    monkeypatch.setattr(bench, "_SAMPLE_ROWS", 50)
    monkeypatch.setattr(bench, "plainly", lambda *_: [("something", "else")])
    with pytest.raises(AssertionError, match="ranked a sample differently"):
        list(bench.run(spark, subscriptions=3, rows=50, rounds=1, buckets=1))


def test_the_cpu_of_children_counts() -> None:
    before = bench.family_cpu_s()
    busy = "sum(range(5_000_000))"
    with subprocess.Popen([sys.executable, "-c", busy]) as child:
        child.wait()
    assert bench.family_cpu_s() > before


def test_texts_are_of_their_case() -> None:
    (boxes,) = bench.texts("boxes", 1, AirQuality())
    (everything,) = bench.texts("everything", 1, AirQuality())
    assert " ORDER BY distance(lat, long, " in boxes
    assert everything.startswith("ORDER BY distance(")
