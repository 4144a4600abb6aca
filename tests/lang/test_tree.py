"""The tree: which nodes are equal, what lies below a node, how deep it is, what kind it has."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang.parser import parse
from rove.lang.tree import (
    TRUE,
    And,
    Attribute,
    Call,
    Comparison,
    Condition,
    Literal,
    Me,
    Negation,
    Node,
    Not,
    Or,
    Rank,
    Subscription,
    Time,
    Unit,
    ValueType,
    Window,
    children,
    depth,
    is_conditional,
    is_value,
    parts,
    rank_of,
    rebuilt,
    type_of,
    walk,
)
from rove.lang.values import Value
from rove.testing.strategies import subscriptions

A, B = Attribute(("a",)), Attribute(("b",))


def value(text: str) -> Node:
    """The tree of a value."""
    condition = parse(f"{text} = q").condition
    assert isinstance(condition, Comparison)
    return condition.left


# --- equality ---------------------------------------------------------------------------------

DIFFERENT: list[tuple[Value, Value]] = [(1, 1.0), (1, True), (0, False), (0.0, -0.0), ("1", 1)]


@pytest.mark.parametrize(("one", "other"), DIFFERENT, ids=repr)
def test_literals_of_two_types_are_two_literals(one: Value, other: Value) -> None:
    assert Literal(one) != Literal(other)
    assert Comparison("=", A, Literal(one)) != Comparison("=", A, Literal(other))


@given(st.integers() | st.floats(allow_nan=False) | st.text() | st.booleans())
def test_equal_literals_have_equal_hashes(drawn: Value) -> None:
    assert Literal(drawn) == Literal(drawn)
    assert hash(Literal(drawn)) == hash(Literal(drawn))
    assert Literal(drawn) != drawn


def test_an_attribute_is_no_variable() -> None:
    assert value("`me`.x") != value("me.x")
    assert value("`t`") != value("t")
    assert len({Attribute(("x",)), Me(("x",)), Time()}) == 3


def test_nodes_are_frozen_and_can_be_keys() -> None:
    with pytest.raises(AttributeError):
        A.path = ("b",)  # type: ignore[misc]
    assert {parse("a > 1 AND b IN (1, 2)"): 1}[parse("a>1 and b in (1,2)")] == 1


@given(subscriptions)
def test_equal_trees_have_equal_hashes(subscription: Subscription) -> None:
    copy = rebuilt(subscription, lambda node: node)
    assert copy == subscription
    assert hash(copy) == hash(subscription)


# --- what lies below --------------------------------------------------------------------------

BELOW = {
    "a > 5": ["a", "5"],
    "a BETWEEN 1 AND b": ["a", "1", "b"],
    "a IN (1, 2)": ["a"],
    "a LIKE 'x'": ["a"],
    "contains(lower(a), 'x')": ["lower(a)"],
    "me.x IS NULL": ["me.x"],
    "a AND b OR a": ["a AND b", "a"],
    "NOT a": ["a"],
    "a": [],
    "TRUE": [],
}


@pytest.mark.parametrize(("text", "below"), BELOW.items(), ids=BELOW)
def test_the_children_of_a_condition(text: str, below: list[str]) -> None:
    from rove.lang.printer import to_text

    assert [to_text(child) for child in children(parse(text).condition)] == below


def test_the_children_of_a_value() -> None:
    assert children(value("a + b")) == (A, B)
    assert children(value("-a")) == (A,)
    assert children(value("least(a, b, a)")) == (A, B, A)
    assert children(Time()) == ()


def test_a_walk_meets_parents_before_children_and_left_before_right() -> None:
    condition = parse("a AND NOT b > -a").condition
    kinds = [type(node).__name__ for node in walk(condition)]
    assert kinds == ["And", "Attribute", "Not", "Comparison", "Attribute", "Negation", "Attribute"]


def test_the_parts_are_those_of_the_condition_and_of_the_score() -> None:
    subscription = parse("SELECT c WHERE a ORDER BY -b LIMIT 1 WITHIN 1 DAY")
    assert list(parts(subscription)) == [A, Negation(B), B]
    assert list(parts(parse("a"))) == [A]


@given(subscriptions)
def test_a_walk_meets_everything_below(subscription: Subscription) -> None:
    met = list(walk(subscription.condition))
    assert len(met) == 1 + sum(len(list(walk(child))) for child in children(met[0]))


@pytest.mark.parametrize(
    ("text", "levels"),
    [("a", 1), ("a > 5", 2), ("NOT a > 5", 3), ("a AND b OR a", 3), ("a + 1 + 1 > 5", 4)],
)
def test_the_depth_is_the_longest_way_down(text: str, levels: int) -> None:
    assert depth(parse(text).condition) == levels


def test_depth_and_walk_do_not_recurse() -> None:
    deep: Condition = A
    for _ in range(100_000):
        deep = Not(deep)
    assert depth(deep) == 100_001
    assert sum(1 for _ in walk(deep)) == 100_001
    while isinstance(deep, Not):  # taken down by hand: the destructor would recurse
        deep = deep.operand


# --- kinds ------------------------------------------------------------------------------------

KINDS = {
    "5": ValueType.NUMBER,
    "-5.5": ValueType.NUMBER,
    "t": ValueType.NUMBER,
    "a + b": ValueType.NUMBER,
    "-a": ValueType.NUMBER,
    "abs(a)": ValueType.NUMBER,
    "'x'": ValueType.STRING,
    "lower(a)": ValueType.STRING,
    "TRUE": ValueType.BOOLEAN,
    "a": ValueType.ANY,
    "me.x": ValueType.ANY,
}


@pytest.mark.parametrize(("text", "kind"), KINDS.items(), ids=KINDS)
def test_the_kind_of_a_value(text: str, kind: ValueType) -> None:
    assert type_of(value(text)) is kind
    assert is_value(value(text))


@pytest.mark.parametrize("text", ["a > 5", "a IN (1)", "contains(a, 'x')", "NOT a", "a OR b"])
def test_a_condition_is_boolean_and_no_value(text: str) -> None:
    assert type_of(parse(text).condition) is ValueType.BOOLEAN
    assert not is_value(parse(text).condition)


# --- windows ----------------------------------------------------------------------------------

SPANS: dict[Unit, float] = {
    "MILLISECONDS": 0.003,
    "SECONDS": 3,
    "MINUTES": 180,
    "HOURS": 10_800,
    "DAYS": 259_200,
    "PUBLICATIONS": math.inf,
}


@pytest.mark.parametrize(("unit", "seconds"), SPANS.items(), ids=SPANS)
def test_a_window_in_seconds(unit: Unit, seconds: float) -> None:
    assert Window(3, unit).seconds == seconds
    assert Window(3, unit).publications == (3 if unit == "PUBLICATIONS" else None)


def test_milliseconds_round_once() -> None:
    assert all(Window(n, "MILLISECONDS").seconds == n / 1000 for n in range(1, 2000))


# --- rebuilding -------------------------------------------------------------------------------


def renamed(node: Node) -> Node:
    return B if node == A else node


def test_a_tree_is_rebuilt_with_something_changed() -> None:
    before = parse("SELECT a WHERE a IN (1) OR NOT -a > 5 ORDER BY abs(a) LIMIT 1 WITHIN 1 DAY")
    after = parse("SELECT b WHERE b IN (1) OR NOT -b > 5 ORDER BY abs(b) LIMIT 1 WITHIN 1 DAY")
    assert rebuilt(before, renamed) == after
    assert rebuilt(Or((A, B)), renamed) == Or((B, B))
    assert rebuilt(A, renamed) == B


def test_what_was_changed_is_not_changed_again() -> None:
    deeper = rebuilt(And((A, B)), lambda node: Not(A) if node == A else node)
    assert deeper == And((Not(A), B))


def test_a_tree_can_be_made_by_hand() -> None:
    score = Call("abs", (A,))
    rank = Rank(score, True, 3, Window(24, "HOURS"))
    made = Subscription(And((A, TRUE)), (B,), rank)
    assert made == parse("SELECT b WHERE a AND TRUE ORDER BY abs(a) DESC LIMIT 3 WITHIN 24 HOURS")
    assert Subscription(A) == Subscription(A, None, None)


def test_literals_that_are_equal_are_not_unequal() -> None:
    assert not (Literal(True) != Literal(True))  # noqa: SIM202
    assert Literal(1) != Literal(1.0)


def test_only_the_literal_true_is_no_condition() -> None:
    assert not is_conditional(parse("ORDER BY x LIMIT 1 WITHIN 1 SECOND"))
    assert not is_conditional(parse("TRUE ORDER BY x LIMIT 1 WITHIN 1 SECOND"))
    assert is_conditional(parse("x > 1 ORDER BY x LIMIT 1 WITHIN 1 SECOND"))
    assert is_conditional(parse("FALSE ORDER BY x LIMIT 1 WITHIN 1 SECOND"))


def test_a_rank_is_needed() -> None:
    with pytest.raises(ValueError, match="no ORDER BY"):
        rank_of(parse("x > 1"))
