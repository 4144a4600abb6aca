"""The benchmark of programs runs through and says what it must; its figures are not judged here."""

import pytest

from rove.bench.match import programs as programs_bench
from rove.bench.match.programs import TEXTS, run


def test_the_suite_measures_what_it_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs_bench, "_CALLS", 10)
    measures = {measure.name: measure for measure in run()}
    for name in TEXTS:
        assert measures[f"programs.{name}.program"].against == f"programs.{name}.tree"
        assert measures[f"programs.{name}.program"].goal == ">= 5×"
        assert measures[f"programs.{name}.new-shape"].value > 0
        assert measures[f"programs.{name}.known-shape"].value > 0


def test_a_wrong_answer_stops_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs_bench, "holds", lambda *arguments: None)
    with pytest.raises(AssertionError, match="disagrees"):
        list(run())
