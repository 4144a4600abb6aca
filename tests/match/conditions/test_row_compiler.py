"""Rows decide exactly what they claim to decide, and exclude nothing that holds."""

import math
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import normalise, parse
from rove.lang.normal import Conjunction, compared_conjunction
from rove.lang.oracle import compare, value_of
from rove.lang.sets import NULL, NUMBERS
from rove.lang.tree import (
    Arithmetic,
    Attribute,
    Call,
    Comparator,
    Comparison,
    Literal,
    Negation,
    Time,
    ValueNode,
)
from rove.lang.values import next_number, previous_number
from rove.match.conditions.row_compiler import rows_of
from rove.match.index.layout import (
    ABOVE,
    AT_LEAST,
    AT_MOST,
    BELOW,
    COMPUTE,
    EQUAL,
    MULTIPLE,
    T_MAX,
)
from rove.match.index.rows import Bound, IndexRow
from rove.match.index.subjects import Subjects
from rove.testing import strategies
from tests.effort import examples

X = Attribute(("x",))
COMPARATORS: dict[int, str] = {AT_LEAST: ">=", ABOVE: ">", AT_MOST: "<=", BELOW: "<", EQUAL: "="}


def bound_at(bound: Bound, t: float) -> float | None:
    """Where a bound is, in the operations of the kernels."""
    found = bound.base + bound.slope * min(max(t, bound.t_from), bound.t_to)
    return found if math.isfinite(found) else None


def allows(row: IndexRow, value: object, t: float) -> bool:
    """What a row over a single attribute says of its value."""
    return all(value in allowed for _, allowed in row.sets) and all(
        bool(compare(COMPARATORS[bound.comparator], value, bound_at(bound, t)))
        for bound in row.bounds
    )


def compiled(text: str) -> list[IndexRow]:
    return rows_of(1, normalise(parse(text)).conjunctions, 0.0, Subjects())


def row_for(node: ValueNode, comparator: Comparator) -> IndexRow | None:
    """The row of `x comparator node`, if that can hold at all."""
    conjunction = compared_conjunction(Comparison(comparator, X, node))
    if conjunction is None:
        return None
    rows = rows_of(1, [conjunction], 0.0, Subjects())
    assert len(rows) <= 1
    return rows[0] if rows else None


def around(value: object) -> list[object]:
    """A value, its neighbours, and what is no number."""
    found: list[object] = [None, "a", True, 0, 2**53 + 1, -(2**63)]
    if isinstance(value, int | float):
        found += [value, float(value), next_number(value), previous_number(value)]
    return [each for each in found if not (isinstance(each, float) and math.isinf(each))]


numbers = strategies.numbers | st.integers(-(2**63), 2**63 - 1)
literals = numbers.map(Literal)
held = st.recursive(
    st.just(cast(ValueNode, Time())),
    lambda inner: st.builds(
        lambda name, node, limit: Call(name, (node, limit) if limit.value else (limit, node)),
        st.sampled_from(["least", "greatest"]),
        inner,
        literals,
    ),
    max_leaves=2,
)
scaled = (
    held
    | held.map(Negation)
    | st.builds(Arithmetic, st.just("*"), literals, held)
    | st.builds(Arithmetic, st.just("*"), held, literals)
)
lines = (
    scaled
    | st.builds(Arithmetic, st.sampled_from(["+", "-"]), scaled, literals)
    | st.builds(Arithmetic, st.sampled_from(["+", "-"]), literals, scaled)
)
moments = strategies.times | st.floats(0, 1e6) | st.sampled_from([1e9, T_MAX, 1e300, 3.0, 2.0**53])


@examples(150)
@given(lines, strategies.comparators, st.lists(moments, min_size=1, max_size=4))
def test_a_line_that_is_claimed_is_right_to_the_last_bit(
    node: ValueNode, comparator: Comparator, times: list[float]
) -> None:
    row = row_for(node, comparator)
    for t in times:
        bound = value_of(node, {}, t, {})
        for value in around(bound):
            holds = bool(compare(comparator, value, bound))
            if row is None:
                assert not holds
            elif not row.flags & COMPUTE:
                assert allows(row, value, t) == holds
            elif t <= T_MAX:
                assert allows(row, value, t) or not holds


functions_of_time = st.recursive(
    literals.map(lambda literal: cast(ValueNode, literal)) | st.just(cast(ValueNode, Time())),
    lambda inner: (
        st.builds(Arithmetic, st.sampled_from(["+", "-", "*", "/"]), inner, inner)
        | st.builds(Negation, inner)
        | st.builds(Call, st.sampled_from(["abs", "sqrt", "sin", "floor"]), st.tuples(inner))
        | st.builds(Call, st.sampled_from(["least", "greatest", "pow"]), st.tuples(inner, inner))
    ),
    max_leaves=5,
)


@examples(150)
@given(functions_of_time, strategies.comparators, st.lists(moments, min_size=1, max_size=4))
def test_no_bound_excludes_what_holds(
    node: ValueNode, comparator: Comparator, times: list[float]
) -> None:
    row = row_for(node, comparator)
    for t in times:
        bound = value_of(node, {}, t, {})
        for value in around(bound):
            if compare(comparator, value, bound) and t <= T_MAX:
                assert row is not None
                assert allows(row, value, t)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("x >= 3 + 2 * t", Bound(0, AT_LEAST, 3.0, 2.0)),
        ("x > t - 3", Bound(0, ABOVE, -3.0, 1.0)),
        ("x <= 3 - t", Bound(0, AT_MOST, 3.0, -1.0)),
        ("x < -t", Bound(0, BELOW, 0.0, -1.0)),
        ("x = 0.5 * t", Bound(0, EQUAL, 0.0, 0.5)),
        ("3 + t < x", Bound(0, ABOVE, 3.0, 1.0)),
        ("x >= 3 + least(t, 8)", Bound(0, AT_LEAST, 3.0, 1.0, -math.inf, 8.0)),
        ("x >= 3 - 2 * greatest(t, 1)", Bound(0, AT_LEAST, 3.0, -2.0, 1.0, math.inf)),
        ("x >= least(greatest(t, 1), 8)", Bound(0, AT_LEAST, 0.0, 1.0, 1.0, 8.0)),
        ("x >= least(greatest(t, 8), 1)", Bound(0, AT_LEAST, 0.0, 1.0, 1.0, 1.0)),
    ],
)
def test_lines_are_decided_by_the_index(text: str, line: Bound) -> None:
    (row,) = compiled(text)
    assert row.bounds == (line,)
    assert row.sets == ()
    assert not row.flags & COMPUTE


def test_rows_that_move_alike_have_their_bounds_in_one_order() -> None:
    found, subjects = set(), Subjects()
    for number in range(20):
        text = f"x BETWEEN {number} + t AND {number + 5} + t AND y > {number} - t"
        (row,) = rows_of(1, normalise(parse(text)).conjunctions, 0.0, subjects)
        found.add(tuple((bound.subject, bound.comparator) for bound in row.bounds))
    (tests,) = found
    assert len(tests) == 3


@pytest.mark.parametrize(
    ("text", "t", "bound"),
    [
        ("x >= 9007199254740992 + least(t, 1)", 5.0, 2**53 + 1),
        ("x >= 4503599627370497 * least(t, 3)", 5.0, 3 * 4503599627370497),
        ("x <= 9223372036854774784 + least(t, 2048)", 5000.0, None),
        ("x < -least(t, -9223372036854775808)", 1.0, None),
    ],
)
def test_what_integers_compute_otherwise_is_left_to_the_evaluator(
    text: str, t: float, bound: int | None
) -> None:
    """At its limit t is an integer: exact beyond 2^53, or too large for its 64 bits."""
    condition = parse(text).condition
    assert isinstance(condition, Comparison)
    assert value_of(condition.right, {}, t, {}) == bound
    (row,) = compiled(text)
    assert row.flags & COMPUTE


@pytest.mark.parametrize("text", ["x > 1 + t + t", "x > (t + 1) * 3", "x > 9007199254740993 + t"])
def test_lines_that_round_twice_bound_roughly_and_are_computed(text: str) -> None:
    (row,) = compiled(text)
    assert row.flags & COMPUTE
    assert len(row.bounds) == 1 or row.sets


def test_the_hull_of_what_swings_excludes_the_rest() -> None:
    (row,) = compiled("x > 50 + 10 * sin(t)")
    assert row.flags & COMPUTE
    assert not row.bounds
    ((_, allowed),) = row.sets
    assert 40.5 in allowed
    assert 39.5 not in allowed
    assert 1e300 in allowed
    assert "a" not in allowed
    ((_, both),) = compiled("x = 50 + 10 * sin(t)")[0].sets
    assert 61 not in both
    assert 60 in both


@pytest.mark.parametrize(
    "text", ["x > sqrt(-1 - t)", "x > sin(t) AND x < -2", "s LIKE '%a%' AND NOT s LIKE '%a%'"]
)
def test_what_can_never_hold_has_no_row(text: str) -> None:
    assert compiled(text) == []


def test_of_several_conjunctions_the_possible_ones_are_left() -> None:
    (row,) = compiled("x > sqrt(-1 - t) OR y > 1")
    assert row.flags & MULTIPLE
    assert len(compiled("x > 1 OR y > 1")) == 2


@pytest.mark.parametrize(
    "text",
    [
        "a + b > 3",
        "a < b",
        "t > 5",
        "x != t",
        "distance(lat, long, 1, 2) < 5",
        "a = 9007199254740993",
        "abs(a) > 3",
    ],
)
def test_what_an_index_cannot_decide_is_computed(text: str) -> None:
    (row,) = compiled(text)
    assert row.flags & COMPUTE
    assert not row.bounds


@pytest.mark.parametrize(
    "text", ["a > 3 AND b = 'x'", "lower(a) = 'x'", "a IN (1, 2) AND c IS NULL"]
)
def test_sets_of_subjects_need_no_computing(text: str) -> None:
    (row,) = compiled(text)
    assert not row.flags & COMPUTE


def test_patterns_are_subjects_of_their_own() -> None:
    subjects = Subjects()
    (row,) = rows_of(
        1, normalise(parse("a LIKE '%x%' AND NOT a LIKE '%y%'")).conjunctions, 0.0, subjects
    )
    assert not row.flags & COMPUTE
    batch = subjects.batch([{"a": "axb"}, {"a": "yx"}, {"a": 5}], [0.0] * 3)
    assert np.diff(batch.starts).tolist() == [2, 3, 1]
    assert sum(allowed == NULL for _, allowed in row.sets) == 1


def test_a_pattern_beside_numbers_is_computed() -> None:
    fitting = next(iter(normalise(parse("a LIKE '%x%'")).conjunctions)).sets[Attribute(("a",))]
    either = type(fitting)(NUMBERS.numbers, fitting.strings, fitting.fitting)
    (row,) = rows_of(1, [Conjunction({Attribute(("a",)): either})], 0.0, Subjects())
    assert row.flags & COMPUTE
    assert all(5 in allowed and "y" in allowed for _, allowed in row.sets)
