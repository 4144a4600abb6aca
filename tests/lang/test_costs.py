"""The cost of a text: it grows with what must be done, and is there before anything is done."""

import pytest

from rove.lang.costs import NO_COST, PATTERN_STEPS, PUBLICATION_CHARACTERS, Cost, cost_of
from rove.lang.limits import COMPILED_NODES_MAX
from rove.lang.parser import parse


def cost(text: str) -> Cost:
    return cost_of(parse(text))


def steps(text: str) -> int:
    return cost(text).matching_steps


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ("x > 1", "x > 1 AND y > 1"),
        ("x > 1 AND y > 1", "x > 1 OR y > 1"),
        ("x > 1 AND y > 1", "x > y"),
        ("x > t", "x > t * t"),
        ("x > t", "x != t"),
        ("a + b > 1", "a + b + c > 1"),
        ("sqrt(a) > 1", "pow(a, b) > 1"),
        ("pow(a, b) > 1", "distance(a, b, 1, 2) > 1"),
        ("contains(s, 'a')", "s LIKE '%a%b%'"),
        ("s LIKE '%a%b%'", "s LIKE '%a%b%' AND s LIKE '%a%c%'"),
        ("s LIKE '%ab%c%'", "s LIKE '%a_b%c%'"),
        ("x > 1", "x > 1 ORDER BY x LIMIT 1 WITHIN 1 DAY"),
        ("ORDER BY x LIMIT 1 WITHIN 1 DAY", "ORDER BY abs(x) LIMIT 1 WITHIN 1 DAY"),
    ],
)
def test_more_work_costs_more(less: str, more: str) -> None:
    assert 0 < steps(less) < steps(more)


def test_what_an_or_multiplies_counts_as_often_as_it_is_computed() -> None:
    ors = " AND ".join(f"(a{i} = 1 OR b{i} = 1)" for i in range(5))
    assert steps(f"{ors} AND distance(x, y, 1, 2) < 5") > steps(ors) + 32 * 1_500


def test_what_is_computed_costs_more_until_it_is_compiled() -> None:
    assert cost("x > 1 AND y < 2 OR z = 3").first_steps == 0
    computed = cost("a + b > 1")
    assert computed.peak_steps == computed.first_steps > computed.matching_steps
    sums = cost(" OR ".join(f"a + b + c + d + e + f + g + h > {n} * i" for n in range(60)))
    assert sums.matching_steps < 600_000 < 1_000_000 < sums.first_steps


def test_a_predicate_that_is_too_large_to_be_compiled_costs_as_much_for_ever() -> None:
    def first_share(names: int) -> float:
        found = cost(f"least({', '.join(f'a{i}' for i in range(names))}) > 1")
        return found.first_steps / found.matching_steps

    assert first_share(COMPILED_NODES_MAX // 2) > 3
    assert first_share(COMPILED_NODES_MAX) == pytest.approx(1, abs=0.05)


def test_a_pattern_that_several_ask_for_is_tried_once() -> None:
    same = " OR ".join(f"(k = {i} AND s LIKE '%a%b%' AND u = {2 * i})" for i in range(9))
    other = " OR ".join(f"(k = {i} AND s LIKE '%a%b{i}%' AND u = {2 * i})" for i in range(9))
    assert steps(other) - steps(same) == 8 * (PATTERN_STEPS + 4 * PUBLICATION_CHARACTERS)


def test_only_what_follows_costs_moving() -> None:
    assert cost("x > 1").moving_steps == 0
    assert 0 < cost("x > me.x").moving_steps < cost("x > me.x AND y < me.y").moving_steps


def test_versions_cost_more() -> None:
    text = parse("x > t")
    assert cost_of(text, versions=True).matching_steps > cost_of(text).matching_steps


def test_windows_are_as_long_as_they_say() -> None:
    found = cost("ORDER BY x LIMIT 1 WITHIN 2 HOURS")
    assert (found.window_s, found.window_publications, found.has_window) == (7_200.0, None, True)
    found = cost("ORDER BY x LIMIT 1 WITHIN 9 PUBLICATIONS")
    assert (found.window_s, found.window_publications, found.has_window) == (None, 9, True)
    assert not NO_COST.has_window
    assert cost("ORDER BY x LIMIT 1 WITHIN 1e300 DAYS").window_s == 86_400e300
