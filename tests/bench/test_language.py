"""The language's benchmark runs through and says what it must; its figures are not judged here."""

import pytest

from rove.bench import language as language_bench
from rove.bench.language import HOSTILE, SUITE
from rove.lang import LanguageError, normalise, parse


@pytest.mark.parametrize("name", HOSTILE)
def test_every_hostile_text_is_refused(name: str) -> None:
    with pytest.raises(LanguageError):
        normalise(parse(HOSTILE[name]))


def test_the_suite_measures_what_it_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language_bench, "_TEXTS", 20)
    monkeypatch.setattr(language_bench, "seconds_for", lambda work, rounds=1: work() is None or 1.0)
    measures = {measure.name: measure for measure in SUITE.run()}
    assert measures["language.parse+normalise.W1"].goal == ">= 20,000"
    assert measures["language.parse.W1.sqlglot"].against == "language.parse.W1"
    assert measures["language.parse.W1.lark"].ratio is not None
    assert {f"language.hostile.{name}" for name in HOSTILE} < measures.keys()
    assert "language.help" in measures


def test_an_accepted_hostile_text_stops_the_benchmark() -> None:
    with pytest.raises(AssertionError, match="accepted"):
        language_bench._refuse("x > 1")
