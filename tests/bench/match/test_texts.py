"""The benchmark of texts runs through and says what it must; its figures are not judged here."""

import pytest

from rove.bench.match import texts as texts_bench
from rove.bench.match.texts import run


def test_the_suite_measures_what_it_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts_bench, "_SIZES", (50, 300))
    monkeypatch.setattr(texts_bench, "_TEXTS", 30)
    measures = {measure.name: measure for measure in run()}
    for size in (50, 300):
        fitting = measures[f"texts.contains.{size}.fitting"]
        assert fitting.against in measures
        assert fitting.ratio is not None
        assert measures[f"texts.contains.{size}.add"].goal == "<= 30 µs"
        assert measures[f"texts.contains.{size}.bytes"].value > 0


def test_a_wrong_answer_stops_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts_bench, "_SIZES", (100,))
    monkeypatch.setattr(texts_bench, "_TEXTS", 30)
    monkeypatch.setattr(texts_bench, "_tried", lambda words, texts: [-1 for _ in texts])
    with pytest.raises(AssertionError, match="disagree"):
        list(run())
