"""The benchmark of ranked subscriptions runs through; its figures are not judged here."""

from typing import Any

import pytest

from rove.bench.match import ranked as ranked_bench
from rove.bench.match.ranked import SHAPES, run
from rove.match import RankedDelivery
from rove.match.ranked.windows import Windows


def test_every_shape_is_measured_beside_the_strict_one() -> None:
    measures = list(run(50, window=40, events=30, strict_events=20, shapes=tuple(SHAPES)))
    names = [f"ranked.{shape}.50.{way}" for shape in SHAPES for way in ("strict", "pruned")]
    assert [measure.name for measure in measures] == names
    for strict, pruned in zip(measures[::2], measures[1::2], strict=True):
        assert pruned.against == strict.name
        assert pruned.ratio == pytest.approx(pruned.value / strict.value)
        assert pruned.goal == ">= 200x"
        assert pruned.reached is (pruned.value >= 200 * strict.value)


def test_different_deliveries_stop_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(Windows):
        def publish(self, *given: Any) -> list[RankedDelivery]:
            return super().publish(*given)[len(given[-1]) == 0 :]

    monkeypatch.setattr(ranked_bench, "Windows", Forgetful)
    with pytest.raises(AssertionError, match="delivered differently"):
        list(run(20, window=40, events=60, strict_events=50))
