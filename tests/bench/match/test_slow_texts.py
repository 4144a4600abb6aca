"""The search by time runs through; its figures are judged where nothing disturbs them."""

import pytest

from rove.bench.match import slow_texts as slow_texts_bench
from rove.bench.match.slow_texts import run


def test_it_says_what_was_slowest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_texts_bench, "_ROUNDS", 1)
    measures = {one.name: one for one in run(trials=3)}
    for name, goal in (("accepting", "<= 20 ms"), ("matching", "<= 1 ms")):
        found = measures[f"texts.slowest.{name}"]
        assert (found.goal, found.unit) == (goal, "ms")
        assert found.value > 0
        assert "characters: " in (found.note or "")
    assert measures["texts.slowest.foreseen"].against in measures
    assert 0 < measures["texts.slowest.accepted"].value <= 1


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 6))
def test_no_accepted_text_is_slow(seed: int) -> None:
    measures = {one.name: one for one in run(seed=seed)}
    assert measures["texts.slowest.matching"].reached, measures["texts.slowest.matching"]
    assert measures["texts.slowest.accepting"].reached, measures["texts.slowest.accepting"]
