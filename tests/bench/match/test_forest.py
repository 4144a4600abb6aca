"""The forest's benchmark runs through and says what it must; its figures are not judged here."""

import pytest

from rove.bench.match import forest as forest_bench
from rove.bench.match.forest import run
from rove.match.forest import Forest

ENDINGS = ("build", "insert", "compared", "roots", "oracle", "match", "scan", "remove")


def test_the_suite_measures_what_it_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forest_bench, "_EVENTS", 5)
    monkeypatch.setattr(forest_bench, "_REMOVALS", 10)
    measures = {measure.name: measure for measure in run(("W1", "W4"), (60, 120))}
    names = [f"forest.{name}.{size}" for name in ("W1", "W4") for size in (60, 120)]
    assert list(measures) == [f"{name}.{ending}" for name in names for ending in ENDINGS]
    assert all(measure.value > 0 for measure in measures.values())
    for name in names:
        for engine in ("match", "scan"):
            assert measures[f"{name}.{engine}"].against == f"{name}.oracle"
    # One family of nested ones has one root, ordinary ones have more.
    assert measures["forest.W4.120.roots"].value == pytest.approx(100 / 120)
    assert measures["forest.W1.120.roots"].value > 5


def test_a_wrong_answer_stops_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Forest, "match", lambda self, publication: {-1})
    with pytest.raises(AssertionError, match="match differs from the oracle"):
        list(run(("W4",), (20,)))
