"""The search for the slowest accepted expression, judged by calls of functions (the same on every
machine) and, in `make soak`, by time."""

import gc
import sys
from collections.abc import Callable
from random import Random
from types import FrameType

import pytest

from rove.bench.match import slow_expressions
from rove.bench.match.slow_expressions import (
    PREDICATES,
    Candidate,
    Recipe,
    hunt,
    publications,
    run,
    tried,
)
from rove.broker.limits import Limits
from rove.lang.limits import TEXT_BYTES_MAX

ACCEPTING_CALLS_MAX = 130_000
"""Some 20 ms: six or seven calls of a function take about a microsecond."""
MATCHING_CALLS_MAX = 4_000
"""Less than a millisecond."""


def counted(work: Callable[[], object]) -> float:
    """How many functions are called while work is done: the same on every machine."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    gc.disable()  # or finalizers would be counted with whatever they interrupt
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
        gc.enable()
    return calls


def slowness(candidate: Candidate) -> float:
    return max(candidate.accepting / ACCEPTING_CALLS_MAX, candidate.matching / MATCHING_CALLS_MAX)


def test_no_accepted_expression_is_too_slow() -> None:
    found = hunt(1, 30, Limits().text_steps_max, counted, slowness)
    assert len(found) >= 20
    slowest = max(found, key=slowness)
    assert slowness(slowest) <= 1, (slowest.accepting, slowest.matching, slowest.text)
    assert all(one.cost.matching_steps <= Limits().text_steps_max for one in found)


def test_the_search_finds_what_costs_more() -> None:
    """One that finds nothing would pass whatever the engine does."""
    plain = tried(Recipe(1, ("number",), 2, "AND", 0), 10**9, counted)
    found = hunt(1, 6, 10**9, counted, slowness)
    assert plain is not None
    assert max(one.accepting for one in found) > 20 * plain.accepting
    assert max(one.cost.matching_steps for one in found) > 100 * plain.cost.matching_steps


def test_what_costs_too_much_is_no_candidate() -> None:
    assert tried(Recipe(1, ("computed",), 64, "OR", 0), 1_000, counted) is None
    assert tried(Recipe(1, ("number",), 256, "OR", 6), 10**9, counted) is None


def test_recipes_are_texts_within_the_limits() -> None:
    random = Random(2)
    for kind in PREDICATES:
        recipe = Recipe(1, (kind,), 300, "OR", 0)
        for _ in range(5):
            assert len(recipe.text()) <= TEXT_BYTES_MAX
            recipe = recipe.changed(random)
    assert Recipe(7, ("like",), 9, "AND", 2).text() == Recipe(7, ("like",), 9, "AND", 2).text()


def test_publications_have_about_a_kilobyte() -> None:
    sizes = [len(repr(publication)) for publication in publications()]
    assert all(600 <= size <= 2_000 for size in sizes)


def test_it_says_what_was_slowest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_expressions, "_ROUNDS", 1)
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
def test_no_accepted_expression_is_slow(seed: int) -> None:
    measures = {one.name: one for one in run(seed=seed)}
    assert measures["texts.slowest.matching"].reached, measures["texts.slowest.matching"]
    assert measures["texts.slowest.accepting"].reached, measures["texts.slowest.accepting"]
