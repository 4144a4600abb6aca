"""Programs say, to the last bit, what the evaluator says of the same tree."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import LimitError, Subscription, normalise, parse
from rove.lang.limits import INTEGER_MAX, INTEGER_MIN
from rove.lang.normal_form import Conjunction, NormalForm, holds
from rove.lang.oracle import value_of
from rove.lang.patterns import contains
from rove.lang.sets import ALL_STRINGS, EVERYTHING, IS_NULL, NULL, PRESENT, ValueSet
from rove.lang.tree import (
    Arithmetic,
    Attribute,
    Call,
    Comparison,
    Literal,
    Me,
    Negation,
    Rank,
    Time,
    ValueNode,
    Window,
)
from rove.match.conditions import programs
from rove.match.conditions.programs import compiled_conjunction, compiled_value
from rove.testing import strategies
from tests.effort import examples

A, B, X = Attribute(("a",)), Attribute(("b",)), Me(("x",))

nodes = (
    strategies.number_values
    | strategies.text_values
    | strategies.values.filter(
        lambda value: isinstance(value, int | float | str | bool) and value != 2**63
    ).map(Literal)
)


def same(ours: object, wanted: object) -> bool:
    """Equal to the last bit: 1 is not 1.0, and 0.0 is not -0.0."""
    return type(ours) is type(wanted) and repr(ours) == repr(wanted)


@examples(250)
@given(nodes, strategies.publications, strategies.times, strategies.states)
def test_a_value_is_what_the_evaluator_says(
    node: ValueNode, publication: dict[str, Any], t: float, me: dict[str, Any]
) -> None:
    assert same(compiled_value(node)(publication, t, me), value_of(node, publication, t, me))


def scored(node: ValueNode) -> Subscription:
    return Subscription(Literal(True), None, Rank(node, False, 1, Window(1, "HOURS")))


@examples(350)
@given(strategies.encounters(strategies.number_values.map(scored)))
def test_a_score_is_what_the_evaluator_says_where_bounds_meet(
    encounter: tuple[Subscription, dict[str, Any], float, dict[str, Any]],
) -> None:
    subscription, publication, t, me = encounter
    assert subscription.rank is not None
    node = subscription.rank.score
    assert same(compiled_value(node)(publication, t, me), value_of(node, publication, t, me))


@examples(200)
@given(strategies.encounters())
def test_a_conjunction_holds_when_the_normal_form_says_so(
    encounter: tuple[Subscription, dict[str, Any], float, dict[str, Any]],
) -> None:
    subscription, publication, t, me = encounter
    try:
        form = normalise(subscription)
    except LimitError:
        return
    for conjunction in form.conjunctions:
        wanted = holds(NormalForm((conjunction,)), publication, t, me)
        assert compiled_conjunction(conjunction)(publication, t, me) is wanted


sets = st.builds(
    lambda ends, strings, patterns, facts: ValueSet(
        tuple((low, high) for low, high in [sorted(ends)] if low < high),
        ALL_STRINGS if strings else (),
        frozenset(contains("a") for _ in range(patterns)),
        facts=facts,
    ),
    st.tuples(strategies.numbers, strategies.numbers),
    st.booleans(),
    st.integers(0, 1),
    st.integers(0, 15),
)


@examples(150)
@given(
    st.dictionaries(nodes | strategies.state_variables, sets, max_size=3),
    st.lists(st.builds(Comparison, strategies.comparators, nodes, nodes), max_size=2).map(
        frozenset
    ),
    strategies.publications,
    strategies.times,
    strategies.states,
)
def test_any_sets_and_atoms_are_judged_alike(
    sets: dict[ValueNode, ValueSet],
    atoms: frozenset[Comparison],
    publication: dict[str, Any],
    t: float,
    me: dict[str, Any],
) -> None:
    conjunction = Conjunction(sets, atoms)
    wanted = holds(NormalForm((conjunction,)), publication, t, me)
    assert compiled_conjunction(conjunction)(publication, t, me) is wanted


# -- edges --------------------------------------------------------------------------------

NUMBERS = (0, -0.0, 0.0, 1, -1, 2.5, INTEGER_MAX, INTEGER_MIN, INTEGER_MAX + 1, 2**53 + 1, 1e308)
OTHERS = (None, True, False, "", "5", [1], {"m": 1}, b"x", 10**40)


@pytest.mark.parametrize("operator", "+-*/")
@pytest.mark.parametrize("left", [*NUMBERS, *OTHERS])
def test_arithmetic_at_its_edges(operator: Any, left: object) -> None:
    node = Arithmetic(operator, A, B)
    for right in (*NUMBERS, *OTHERS):
        publication = {"a": left, "b": right}
        wanted = value_of(node, publication, 0.0, {})
        assert same(compiled_value(node)(publication, 0.0, {}), wanted)
        fixed = Arithmetic(operator, A, Literal(2.5)), Arithmetic(operator, Literal(3), A)
        for half in fixed:
            wanted = value_of(half, publication, 0.0, {})
            assert same(compiled_value(half)(publication, 0.0, {}), wanted)


@pytest.mark.parametrize("name", ["abs", "sqrt", "sin", "cos", "floor", "ceil", "lower"])
@pytest.mark.parametrize("value", [*NUMBERS, *OTHERS, "ÀB"])
def test_functions_at_their_edges(name: str, value: object) -> None:
    for node in (Call(name, (A,)), Negation(Call(name, (A,))), Negation(A)):
        wanted = value_of(node, {"a": value}, 0.0, {})
        assert same(compiled_value(node)({"a": value}, 0.0, {}), wanted)


@pytest.mark.parametrize("comparator", ["=", "!=", "<", "<=", ">", ">="])
def test_comparisons_of_every_kind_with_every_kind(comparator: Any) -> None:
    program = compiled_conjunction(
        conjunction := Conjunction({}, frozenset([Comparison(comparator, A, X)]))
    )
    for left in (*NUMBERS, *OTHERS):
        for right in (*NUMBERS, *OTHERS):
            wanted = holds(NormalForm((conjunction,)), {"a": left}, 0.0, {"x": right})
            assert program({"a": left}, 0.0, {"x": right}) is wanted


@pytest.mark.parametrize("allowed", [NULL, PRESENT, EVERYTHING, ValueSet(((0, 1),), facts=IS_NULL)])
@pytest.mark.parametrize("subject", [A, X, Arithmetic("+", A, B), Call("lower", (A,))])
@pytest.mark.parametrize("value", [*NUMBERS, *OTHERS])
def test_missing_and_opaque_values_belong_to_the_sets_that_include_them(
    allowed: ValueSet, subject: ValueNode, value: object
) -> None:
    conjunction = Conjunction({subject: allowed})
    given = {"a": value, "b": 0}, 0.0, {"x": value}
    wanted = holds(NormalForm((conjunction,)), *given)
    assert compiled_conjunction(conjunction)(*given) is wanted


def test_time_is_a_float_whatever_it_comes_as() -> None:
    assert same(compiled_value(Time())({}, 3, {}), 3.0)
    assert same(compiled_value(Arithmetic("*", Time(), Literal(0)))({}, -1.0, {}), -0.0)
    assert compiled_value(Negation(Time()))({}, math.inf, {}) is None


def test_an_empty_conjunction_always_holds() -> None:
    assert compiled_conjunction(Conjunction())({}, 0.0, {}) is True


def test_what_is_no_value_and_what_is_no_function_are_refused() -> None:
    with pytest.raises(KeyError):
        compiled_value(Call("system", (Literal(1),)))
    with pytest.raises(TypeError):
        compiled_value(Comparison("=", A, B))  # type: ignore[arg-type]


# -- shapes -------------------------------------------------------------------------------


def conjunction_of(text: str) -> Conjunction:
    (found,) = normalise(parse(text)).conjunctions
    return found


def test_names_and_constants_are_no_part_of_the_shape() -> None:
    programs._maker.cache_clear()
    texts = [
        "a + b > 3 AND distance(lat, long, 45.8, 15.9) < 500",
        "c + d > 4 AND distance(x, y, -1.5, 0.5) < 20",
        "`__import__('os')` + `p0); import os` > 9 AND distance(x, y, 2.5, 3.5) < 1",
    ]
    for text in texts:
        compiled_conjunction(conjunction_of(text))
    assert programs._maker.cache_info().currsize == 1


def test_no_more_shapes_are_kept_than_allowed() -> None:
    assert programs._maker.cache_info().maxsize == programs.SHAPES_MAX


def test_a_name_that_looks_like_code_is_a_name() -> None:
    name = "0); raise SystemExit; ("
    node = Arithmetic("+", Attribute((name,)), Attribute(("n", name)))
    assert compiled_value(node)({name: 1, "n": {name: 2}}, 0.0, {}) == 3
