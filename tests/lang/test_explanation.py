"""Explanations: their truths are the oracle's, and they show the values that were compared."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given

from rove.lang import Explanation, explain, matches, parse, score_of, to_text, truth
from rove.lang.tree import And, Condition, Not, Or, Subscription
from rove.testing.strategies import publications, states, subscriptions, times
from tests.effort import examples


def beside(condition: Condition, one: Explanation) -> Iterator[tuple[Condition, Explanation]]:
    """Every part of a condition with its explanation."""
    yield condition, one
    inner: tuple[Condition, ...] = ()
    if isinstance(condition, And | Or):
        inner = condition.operands
    elif isinstance(condition, Not):
        inner = (condition.operand,)
    for part, explained in zip(inner, one.parts, strict=True):
        yield from beside(part, explained)


@examples(350)
@given(subscriptions, publications, times, states)
def test_every_truth_is_the_oracles(
    subscription: Subscription, publication: dict[str, Any], t: float, me: dict[str, Any]
) -> None:
    matched, found = explain(subscription, publication, t, me)
    for part, one in beside(subscription.condition, found[0]):
        assert one.truth is truth(part, publication, t, me)
        assert one.text == to_text(part)
    expected = matches(subscription, publication, t, me)
    if subscription.rank is not None:
        has_score = score_of(subscription, publication, t, me) is not None
        assert found[1].truth is (True if has_score else None)
        expected = expected and has_score
    assert matched is expected
    assert len(found) == (1 if subscription.rank is None else 2)


@pytest.mark.parametrize(
    ("text", "expected", "why"),
    [
        ("x > 3", True, "x is 5"),
        ("x > y", False, "x is 5, y is 7.5"),
        ("x > 'a'", None, "x is 5"),
        ("z > 3", None, "z is missing or null"),
        ("nothing = 3", None, "nothing is missing or null"),
        ("n = 3", None, "n is neither number, string nor boolean"),
        ("n.m = 3", True, "n.m is 3"),
        ("big > 3", None, "big is neither number, string nor boolean"),
        ("s = 'it''s'", True, "s is 'it''s'"),
        ("lower(s) = 'a'", False, "lower(s) is 'it''s', s is 'it''s'"),
        ("b", True, "b is TRUE"),
        ("NOT b", False, "not"),
        ("x", None, "x is 5"),
        ("TRUE", True, ""),
        ("z IS NULL", True, "z is missing or null"),
        ("x IN (1, 2)", False, "x is 5"),
        ("s LIKE 'i%'", True, "s is 'it''s'"),
        ("startswith(s, 'x')", False, "s is 'it''s'"),
        ("x < t + 1", True, "x is 5, t + 1 is 5.5, t is 4.5"),
        ("x BETWEEN me.x AND me.y", None, "x is 5, me.x is 2, me.y is missing or null"),
        ("1 / (x - 5) > 0", None, "1 / (x - 5) is unknown, x - 5 is 0, x is 5"),
        ("x = 5 AND z = 1", None, "all of"),
        ("x = 5 OR z = 1", True, "any of"),
    ],
)
def test_why(text: str, expected: bool | None, why: str) -> None:
    publication = {"x": 5, "y": 7.5, "s": "it's", "b": True, "n": {"m": 3}, "nothing": None}
    matched, (one,) = explain(parse(text), {**publication, "big": 2**64}, 4.5, {"x": 2})
    assert (one.truth, one.why) == (expected, why)
    assert matched is (expected is True)


def test_parts_are_explained_in_the_order_of_the_text() -> None:
    _, (one,) = explain(parse("x > 3 AND (y > 3 OR NOT z > 3)"), {"x": 5, "y": 1})
    assert [part.text for part in one.parts] == ["x > 3", "y > 3 OR NOT z > 3"]
    assert [part.text for part in one.parts[1].parts] == ["y > 3", "NOT z > 3"]
    (inner,) = one.parts[1].parts[1].parts
    assert (inner.text, inner.truth, inner.parts) == ("z > 3", None, ())


def test_a_score_is_shown_and_left_to_the_window() -> None:
    text = "x > 3 ORDER BY x + t LIMIT 2 WITHIN 1 HOUR"
    matched, (_, score) = explain(parse(text), {"x": 5}, 2.0)
    assert matched
    assert (score.text, score.truth) == ("ORDER BY x + t", True)
    assert score.why == "the score is 7.0; whether it is among the best, only the window tells"


def test_without_a_score_nothing_matches() -> None:
    text = "x > 3 ORDER BY y LIMIT 2 WITHIN 1 HOUR"
    matched, (condition, score) = explain(parse(text), {"x": 5})
    assert not matched
    assert (condition.truth, score.truth) == (True, None)
    assert score.why.startswith("the score is unknown, so it never enters the window")
    assert score.why.endswith("y is missing or null")
