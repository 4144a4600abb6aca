"""Folding computes constants and orders operands, and never changes a bit of any result."""

from typing import Any

import pytest
from hypothesis import given

from rove.lang.constant_folding import Unknown, folded
from rove.lang.oracle import value_of
from rove.lang.parser import parse
from rove.lang.printer import to_text
from rove.lang.tree import Comparison, Rank, Subscription, ValueNode, Window
from rove.testing import strategies
from tests.effort import examples


def value(text: str) -> ValueNode:
    condition = parse(f"{text} = c").condition
    assert isinstance(condition, Comparison)
    return condition.left


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2", "3"),
        ("1 + 2.0", "3.0"),
        ("7 / 2", "3.5"),
        ("-(5)", "-5"),
        ("- -5", "5"),
        ("-(0.0)", "-0.0"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("abs(-3) + sqrt(4)", "5.0"),
        ("least(1, 1.0)", "1"),
        ("pow(2, 3) * a", "8.0 * a"),
        ("3 + t", "t + 3"),
        ("-3 + t", "t - 3"),
        ("t + -3", "t - 3"),
        ("t - -3", "t + 3"),
        ("t + -2.5", "t - 2.5"),
        ("t - -0.0", "t - -0.0"),
        ("t + 0", "t + 0"),
        ("t + -9223372036854775808", "t + -9223372036854775808"),
        ("3 - t", "3 - t"),
        ("b + a", "a + b"),
        ("b * a", "a * b"),
        ("a * 3", "3 * a"),
        ("3 * a", "3 * a"),
        ("-a * 3", "3 * -a"),
        ("a * -3", "-3 * a"),
        ("b - a", "b - a"),
        ("b / a", "b / a"),
        ("a / 2", "a / 2"),
        ("b * 2 + a", "2 * b + a"),
        ("(t + 1) + 2", "t + 1 + 2"),
        ("1 + (2 + t)", "t + 2 + 1"),
        ("least(b, a, 1 + 1)", "least(b, a, 2)"),
        ("lower(b)", "lower(b)"),
        ("me.x + a", "a + me.x"),
        ("-(a + 2 * 3)", "-(a + 6)"),
        ("-(-a)", "- -a"),
    ],
)
def test_the_canonical_shape_of_a_value(text: str, expected: str) -> None:
    assert to_text(folded(value(text))) == expected


@pytest.mark.parametrize(
    "text",
    [
        "1 / 0",
        "a + 1 / 0",
        "1 / (2 - 2)",
        "least(a, sqrt(-1))",
        "9223372036854775807 + 1",
        "-(-9223372036854775808)",
        "a * (1e308 * 10)",
        "-(a + pow(0, -1))",
        "abs(-9223372036854775808)",
        "t * (0 / 0)",
    ],
)
def test_a_constant_part_that_cannot_be_computed_makes_all_unknown(text: str) -> None:
    with pytest.raises(Unknown):
        folded(value(text))


ranked = strategies.ranks.map(lambda rank: Subscription(parse("TRUE").condition, None, rank))


def same_bits(one: object, other: object) -> bool:
    return type(one) is type(other) and repr(one) == repr(other)


@examples(350)
@given(strategies.encounters(ranked))
def test_folding_keeps_every_bit(encounter: tuple[Subscription, Any, float, Any]) -> None:
    subscription, publication, t, me = encounter
    assert subscription.rank is not None
    score = subscription.rank.score
    before = value_of(score, publication, t, me)
    try:
        shape = folded(score)
    except Unknown:
        assert before is None
        return
    assert same_bits(value_of(shape, publication, t, me), before)
    assert folded(shape) == shape


@examples(150)
@given(strategies.number_values)
def test_what_was_folded_is_written_and_read_again_the_same(node: ValueNode) -> None:
    try:
        shape = folded(node)
    except Unknown:
        return
    rank = Rank(shape, False, 1, Window(1, "DAYS"))
    assert parse(to_text(Subscription(parse("TRUE").condition, None, rank))).rank == rank
