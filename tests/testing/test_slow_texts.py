"""The search for the slowest accepted text, judged by calls of functions: the same everywhere."""

from random import Random

from rove.broker.limits import Limits
from rove.lang.limits import TEXT_BYTES_MAX
from rove.testing.slow_texts import PREDICATES, Recipe, Trial, counted, hunt, publications, tried

ACCEPTING_CALLS_MAX = 130_000
"""Some 20 ms: six or seven calls of a function take about a microsecond."""
MATCHING_CALLS_MAX = 4_000
"""Less than a millisecond."""


def slowness(trial: Trial) -> float:
    return max(trial.accepting / ACCEPTING_CALLS_MAX, trial.matching / MATCHING_CALLS_MAX)


def test_no_accepted_text_takes_more_than_its_share() -> None:
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
