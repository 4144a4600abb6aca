"""Bounds: no value ever escapes its enclosure, and no order is claimed that does not hold.

Ranges and points come from the places where numbers change their nature: 2^53, the ends of
the 64-bit integers, the largest and the smallest float. The oracle computes the values.
"""

import random
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang.bounds import Enclosure, enclose, line_in_time, surely_at_most, surely_less
from rove.lang.limits import INTEGER_MAX, INTEGER_MIN
from rove.lang.oracle import value_of
from rove.lang.parser import parse
from rove.lang.tree import (
    Arithmetic,
    Attribute,
    Call,
    Comparison,
    Literal,
    Me,
    Negation,
    Operator,
    Time,
    ValueNode,
)
from rove.lang.values import Number, next_number, previous_number
from rove.testing.strategies import numbers
from tests.effort import examples

MAX = sys.float_info.max
A, B, MINE, T = Attribute(("a",)), Attribute(("b",)), Me(("x",)), Time()
Ranges = dict[ValueNode, tuple[Number, Number]]


def value_in(text: str) -> ValueNode:
    """The value that a text spells."""
    condition = parse(f"{text} > 0").condition
    assert isinstance(condition, Comparison)
    return condition.left


def points(ranges: Ranges, seed: int, count: int) -> Iterator[dict[ValueNode, Number]]:
    """Values for the variables, within their ranges: ends, neighbours, integers, floats."""
    chance = random.Random(seed)

    def inside(low: Number, high: Number) -> Number:
        middle = low / 2 + high / 2
        candidates = [low, high, next_number(low), previous_number(high), middle]
        candidates += [float(low), float(high), int(low), int(high), int(middle), 0, 1, 0.5]
        return chance.choice([low, *filter(lambda n: low <= n <= high and admitted(n), candidates)])

    for _ in range(count):
        yield {variable: inside(*ends) for variable, ends in ranges.items()}


def admitted(number: Number) -> bool:
    return isinstance(number, float) or INTEGER_MIN <= number <= INTEGER_MAX


def computed(node: ValueNode, at: dict[ValueNode, Number]) -> Any:
    publication = {"a": at.get(A), "b": at.get(B)}
    return value_of(node, publication, float(at.get(T, 0.0)), {"x": at.get(MINE)})


# --- what Hypothesis draws --------------------------------------------------------------------

variables: st.SearchStrategy[ValueNode] = st.sampled_from([A, B, MINE, T])
leaves: st.SearchStrategy[ValueNode] = variables | numbers.map(Literal)
operators = cast("st.SearchStrategy[Operator]", st.sampled_from("+-*/"))


def composed(inner: st.SearchStrategy[ValueNode]) -> st.SearchStrategy[ValueNode]:
    one, two = st.tuples(inner), st.tuples(inner, inner)
    return (
        st.builds(Arithmetic, operators, inner, inner)
        | st.builds(Negation, inner)
        | st.builds(Call, st.sampled_from(["abs", "sqrt", "sin", "cos", "floor", "ceil"]), one)
        | st.builds(Call, st.sampled_from(["least", "greatest", "pow"]), two)
        | st.builds(Call, st.just("distance"), st.tuples(inner, inner, inner, inner))
    )


values = st.recursive(leaves, composed, max_leaves=4)


def neighbourhood(start: Number, steps: int) -> tuple[Number, Number]:
    end = start
    for _ in range(steps):
        end = next_number(end) if next_number(end) <= MAX else end
    return start, end


wide = st.tuples(numbers, numbers).map(lambda ends: (min(ends), max(ends)))
narrow = st.builds(neighbourhood, numbers, st.integers(0, 8))
seconds = wide.map(lambda ends: cast(Any, tuple(sorted(abs(float(end)) for end in ends))))
ranges_of_all: st.SearchStrategy[Ranges] = st.fixed_dictionaries(
    {A: wide | narrow, B: wide | narrow, MINE: wide | narrow, T: seconds}
)
seeds = st.integers(0, 2**32)

# Two sums of the same variable: close enough that rounding may decide their order.
shifted = st.builds(
    lambda operator, factor, constant: Arithmetic(operator, factor, Literal(constant)),
    cast("st.SearchStrategy[Operator]", st.sampled_from("+-")),
    st.sampled_from([A, T, Arithmetic("*", Literal(0.5), A), Arithmetic("*", Literal(3), A)]),
    st.sampled_from([0, 1, 1.0, 2, 3.5, 2**53, 2.0**53, 2**53 + 1, 2.0**53 + 2]),
)


# --- enclosures -------------------------------------------------------------------------------


@examples(650)
@given(values, ranges_of_all, seeds)
def test_no_value_escapes_its_enclosure(node: ValueNode, ranges: Ranges, seed: int) -> None:
    around = enclose(node, ranges)
    assert -MAX <= min(around.low, around.high) <= max(around.low, around.high) <= MAX
    for at in points(ranges, seed, count=8):
        value = computed(node, at)
        if value is None:
            assert not around.sure
        else:
            assert around.low <= value <= around.high


@examples(150)
@given(values, seeds)
def test_without_ranges_nothing_is_sure(node: ValueNode, seed: int) -> None:
    """A variable without a range may be missing, or a string; still no value escapes."""
    around = enclose(node, {})
    everywhere: Ranges = dict.fromkeys((A, B, MINE), (-MAX, MAX))
    for at in points({**everywhere, T: (0.0, MAX)}, seed, count=8):
        value = computed(node, at)
        assert value is None or around.low <= value <= around.high
    assert not (around.sure and computed(node, {}) is None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a + 1", Enclosure(1, 11)),
        ("3 - a", Enclosure(-7, 3)),
        ("-a", Enclosure(-10, 0)),
        ("2 * a", Enclosure(0, 20)),
        ("a / 4", Enclosure(0, 2.5)),
        ("abs(a - 5)", Enclosure(0, 5)),
        ("least(a, 3)", Enclosure(0, 3)),
        ("greatest(a, 3)", Enclosure(3, 10)),
        ("sqrt(a + 15)", Enclosure(15**0.5, 5)),
        ("floor(a / 4)", Enclosure(0, 2)),
        ("ceil(a / 4)", Enclosure(0, 3)),
        ("sin(a)", Enclosure(-1, 1)),
        ("cos(0)", Enclosure(1, 1)),
        ("sqrt(a - 5)", Enclosure(0, 5**0.5, sure=False)),
        ("b", Enclosure(-MAX, MAX, sure=False)),
        ("1 / a", Enclosure(-MAX, MAX, sure=False)),
        ("pow(-1, a)", Enclosure(-MAX, MAX, sure=False)),
    ],
)
def test_enclosures_are_tight(text: str, expected: Enclosure) -> None:
    assert enclose(value_in(text), {A: (0, 10)}) == expected


@pytest.mark.parametrize(
    ("text", "is_sure"),
    [
        ("a + 1", False),  # the largest integer has no successor
        ("a + 1.0", True),  # floats have no end that one could step over with 1
        ("a - 0.5", True),
        ("2 * a", False),
        ("2.5 * a", False),
        ("a / 2", True),
        ("-a", False),
        ("sin(a)", True),
    ],
)
def test_an_overflow_is_never_overlooked(text: str, is_sure: bool) -> None:
    assert enclose(value_in(text), {A: (-MAX, MAX)}).sure == is_sure


@pytest.mark.parametrize(
    "text",
    ["1 / (a - a)", "sqrt(-a - 1)", "-(1 / (a - a))", "1 + sqrt(-1 - a)", "least(3, sqrt(-1 - a))"],
)
def test_what_never_has_a_value_is_seen(text: str) -> None:
    assert enclose(value_in(text), {A: (0, 0)}).never
    assert computed(value_in(text), {A: 0}) is None


# --- order ------------------------------------------------------------------------------------


def check_order(a: ValueNode, b: ValueNode, ranges: Ranges, seed: int) -> None:
    is_less, is_at_most = surely_less(a, b, ranges), surely_at_most(a, b, ranges)
    for at in points(ranges, seed, count=12):
        left, right = computed(a, at), computed(b, at)
        if left is not None and right is not None:
            assert left < right or not is_less
            assert left <= right or not is_at_most


@examples(500)
@given(values, values, ranges_of_all, seeds)
def test_no_order_is_claimed_that_does_not_hold(
    a: ValueNode, b: ValueNode, ranges: Ranges, seed: int
) -> None:
    check_order(a, b, ranges, seed)


@examples(650)
@given(shifted, shifted, ranges_of_all, seeds)
def test_no_order_is_claimed_that_rounding_destroys(
    a: ValueNode, b: ValueNode, ranges: Ranges, seed: int
) -> None:
    check_order(a, b, ranges, seed)


class Order(NamedTuple):
    """Two values over `a` from 0 to 10 and `t` from 0 to 8; `b` may be anything."""

    low: str
    high: str
    less: bool
    at_most: bool


@pytest.mark.parametrize(
    "order",
    [
        Order("a", "a", False, True),
        Order("a", "a + 1", True, True),
        Order("a + 1", "a", False, False),
        Order("a", "10", False, True),
        Order("a", "10.5", True, True),
        Order("t - 3", "t + 3", True, True),
        Order("b + 0.5", "b + 1.5", False, True),
        Order("b + 1", "b + 2", False, False),  # far out, the first is exact and larger
        Order("least(t, 5)", "least(t, 8)", False, True),
        Order("least(t, 8)", "least(t, 9)", False, True),
        Order("least(t, 9)", "t", False, True),
        Order("t", "least(t, 9)", False, True),
        Order("t", "greatest(t, 5)", False, True),
        Order("greatest(t, a)", "10", False, True),
        Order("sin(t)", "1", False, True),
        Order("s", "'a'", False, False),
    ],
    ids=lambda order: f"{order.low} and {order.high}",
)
def test_an_order_that_holds_is_found(order: Order) -> None:
    condition = parse(f"{order.low} < {order.high}").condition
    assert isinstance(condition, Comparison)
    ranges: Ranges = {A: (0, 10), T: (0.0, 8.0)}
    found = (
        surely_less(condition.left, condition.right, ranges),
        surely_at_most(condition.left, condition.right, ranges),
    )
    assert found == (order.less, order.at_most)


@pytest.mark.parametrize(
    ("low", "high", "ranges", "equal_or_reversed_at"),
    [
        pytest.param(
            "a - 9007199254740993",
            "a - 9007199254740992.0",
            {A: (2**53, 2**53 + 10)},
            {A: 2**53 + 1},
            id="an integer is rounded before it meets a float",
        ),
        pytest.param(
            "0.1 * a", "0.4 * a", {A: (5e-324, 5e-324)}, {A: 5e-324}, id="a product vanishes"
        ),
        pytest.param(
            "a + 1", "a + 1.0", {A: (2**53, 2**54)}, {A: 2**53}, id="a sum is exact or rounded"
        ),
    ],
)
def test_rounding_that_destroys_an_order_is_seen(
    low: str, high: str, ranges: Ranges, equal_or_reversed_at: dict[ValueNode, Number]
) -> None:
    a, b = value_in(low), value_in(high)
    assert not computed(a, equal_or_reversed_at) < computed(b, equal_or_reversed_at)
    assert not surely_less(a, b, ranges)


def test_constants_are_compared_as_they_are_computed() -> None:
    """2^53 + 1 is exact for integers and 2^53 for floats, so the greater is not at most."""
    exact = Arithmetic("+", Literal(2**53), Literal(1))
    rounded = Arithmetic("+", Literal(2.0**53), Literal(1))
    assert computed(exact, {}) > computed(rounded, {})
    assert not surely_at_most(exact, rounded, {})


# --- lines in time ----------------------------------------------------------------------------

T_MAX = 1e10
moments = st.sampled_from([0.0, 5e-324, 0.1, 1.0, 3.0, 1e6, 2.0**33, T_MAX]) | st.floats(0, T_MAX)


def sums(inner: st.SearchStrategy[ValueNode]) -> st.SearchStrategy[ValueNode]:
    return (
        st.builds(
            Arithmetic, cast("st.SearchStrategy[Operator]", st.sampled_from("+-")), inner, inner
        )
        | st.builds(Arithmetic, cast("st.SearchStrategy[Operator]", st.just("*")), constants, inner)
        | st.builds(Negation, inner)
    )


constants = (numbers | st.integers(-(2**63), 2**63 - 1) | st.floats(-1e6, 1e6)).map(Literal)
functions_of_time = st.recursive(constants | st.just(T), sums, max_leaves=6)


@examples(350)
@given(functions_of_time, st.lists(moments, min_size=1, max_size=6))
def test_no_value_leaves_its_line_by_more_than_the_error(
    node: ValueNode, times: list[float]
) -> None:
    """Also after the line was computed in floats, by whoever uses it."""
    line = line_in_time(node, T_MAX)
    if line is None:
        return
    base, slope, error = line
    for t in times:
        value = computed(node, {T: t})
        if value is not None:
            assert base - error + slope * t <= value <= base + error + slope * t


@pytest.mark.parametrize(
    ("text", "base", "slope"),
    [
        ("t", 0, 1),
        ("1 + t + t", 1, 2),
        ("3 - 2 * (t - 1)", 5, -2),
        ("-(t - 4) - 0.5 * t", 4, -1.5),
        ("t - t", 0, 0),
        ("7 + 0 * t", 7, 0),
    ],
)
def test_lines_are_found_and_close(text: str, base: float, slope: float) -> None:
    line = line_in_time(value_in(text), 1000.0)
    assert line is not None
    assert line[:2] == (base, slope)
    assert 0 <= line[2] < 1e-9


@pytest.mark.parametrize(
    "text",
    [
        "t * t",
        "sin(t)",
        "t / 2",
        "least(t, 3)",
        "a + t",
        "me.x + t",
        "1e308 * t",
        "1e300 + 1e300 * t",
    ],
)
def test_what_is_no_line_or_leaves_the_floats_is_not_called_one(text: str) -> None:
    assert line_in_time(value_in(text), T_MAX) is None
