"""LEES: lines to the last bit, rows that come and go, and what is counted."""

import math
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import matches, normalise, parse
from rove.lang.normal_form import Conjunction
from rove.lang.oracle import compare, value_of
from rove.lang.tree import Arithmetic, Call, Comparator, Literal, Me, Negation, Time, ValueNode
from rove.match.designs import lees as lees_module
from rove.match.designs.design import OneByOne, split
from rove.match.designs.lees import (
    Lees,
    LinearBound,
    LinearComparison,
    LinearRows,
    _bounds,
    _compared,
    _neighbours,
    line_of,
)
from rove.testing import strategies
from tests.effort import examples, is_soak

AREA = "x BETWEEN {x} + {v} * t AND {x} + 200 + {v} * t AND y BETWEEN {y} - {v} * t AND 5000 - t"


def conjunctions_of(text: str) -> tuple[Conjunction, ...]:
    return normalise(parse(text)).conjunctions


def ids(lees: Lees, publication: dict[str, Any], at: float) -> list[int]:
    found: list[int] = lees.match([publication], [at]).subscriptions.tolist()
    return found


def bound_of(text: str) -> ValueNode:
    (bound,) = split(conjunctions_of(text)[0]).bounds
    return bound.right


# -- lines --------------------------------------------------------------------------------------

constants = (
    strategies.numbers
    | st.floats(-1e6, 1e6)
    | st.integers(-(2**25), 2**25)
    | st.sampled_from([0.1, 1 / 3, 7, 2**24 - 1, 16_777_216])
).map(Literal)
still: st.SearchStrategy[ValueNode] = constants | st.sampled_from([Me(("x",)), Me(("y",))])


def longer(inner: st.SearchStrategy[ValueNode]) -> st.SearchStrategy[ValueNode]:
    operators = st.sampled_from("+-*")
    limits = st.sampled_from(["least", "greatest"])
    return (
        st.builds(Arithmetic, operators, inner, still)
        | st.builds(Arithmetic, operators, still, inner)
        | st.builds(Call, limits, st.tuples(inner, still))
        | st.builds(Call, limits, st.tuples(still, inner, still))
        | st.builds(Negation, inner)
    )


nearly_lines: st.SearchStrategy[ValueNode] = st.recursive(
    st.just(Time()), longer, max_leaves=4
) | st.just(Me(("x",)))
"""Sums, products and limits of `t` and constants: many are lines, some only look like one."""

ages = strategies.times | st.floats(0, 1e9) | st.sampled_from([1e15, 0.1, 1e99])


def line_at(line: LinearBound, t: float) -> float:
    numbers = np.array([[number] for number in line.numbers])
    return float(_bounds(numbers, np.array([t]))[0])


@examples(650)
@given(nearly_lines, ages, st.fixed_dictionaries({"x": strategies.numbers, "y": st.floats(-9, 9)}))
def test_a_line_is_its_tree_to_the_last_bit(node: ValueNode, t: float, me: dict[str, Any]) -> None:
    line = line_of(node, me)
    if line is not None:
        assert line_at(line, t) == value_of(node, {}, t, me)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("x > t", (1.0, 0.0)),
        ("x > t - 3", (1.0, -3.0)),
        ("x > 3 - t", (-1.0, 3.0)),
        ("x > 100.0 + 2.5 * t", (2.5, 100.0)),
        ("x > 100.0 - 2.5 * t", (-2.5, 100.0)),
        ("x > -(100.0 - 2.5 * t)", (2.5, -100.0)),
        ("x > me.x + 2 * t", (2.0, 7.0)),
        ("x > me.x - 3", (0.0, 4.0)),
        ("x > 3 + least(t, 8)", (1.0, 3.0, 0.0, -math.inf, 8.0, -math.inf, math.inf)),
        ("x > 2 * (t - 1) + 3", (2.0, 3.0, -1.0, -math.inf, math.inf, -math.inf, math.inf)),
        ("x > least(greatest(2 * t, 1), 9)", (2.0, 0.0, 0.0, -math.inf, math.inf, 1.0, 9.0)),
    ],
)
def test_the_usual_bounds_are_lines(text: str, numbers: tuple[float, ...]) -> None:
    line = line_of(bound_of(text), {"x": 7})
    assert line is not None
    assert line.numbers == numbers


@pytest.mark.parametrize(
    "text",
    [
        "x > t * t",
        "x > t / 3",
        "x > sin(t)",
        "x > (t + 1) + 2 + 3",
        "x > 2 * (3 * t)",
        "x > least(t, t + 1)",
        "x > least(greatest(t, 5), 3)",
        "x > me.name + t",
        "x > me.missing + t",
        "x > me.large + t",
        "x > 1e200 * t",
        "x > 3 * least(t, 9007199254740991)",
    ],
)
def test_what_a_line_cannot_follow_bit_by_bit_is_none(text: str) -> None:
    assert line_of(bound_of(text), {"name": "a", "large": 2**53 + 1}) is None


@given(strategies.comparators, strategies.numbers, st.lists(strategies.numbers, min_size=1))
def test_numbers_are_compared_with_floats_exactly(
    comparator: Comparator, number: int | float, others: list[int | float]
) -> None:
    bounds = [float(other) for other in others]
    found = _compared(comparator, _neighbours(number), np.array(bounds)).tolist()
    assert found == [compare(comparator, number, bound) for bound in bounds]


@given(strategies.numbers)
def test_neighbours_enclose(number: int | float) -> None:
    below, above = _neighbours(number)
    assert Fraction(below) <= Fraction(number) <= Fraction(above)
    assert above in (below, math.nextafter(below, math.inf))


# -- rows ---------------------------------------------------------------------------------------


def test_rows_come_and_go() -> None:
    rows = LinearRows((LinearComparison(("x",), ">", False),))
    random, live = Random(3), set[int]()
    for step in range(2_000):
        if live and random.random() < 0.45:
            gone = random.choice(sorted(live))
            rows.remove(gone)
            live.remove(gone)
        else:
            rows.add(step, 0.0, [LinearBound(slope=0.0, offset=float(step))])
            live.add(step)
        if step % 100 == 0:
            values = rows.values({"x": 1_000})
            assert values is not None
            wanted = {id for id in live if id < 1_000}
            assert set(rows.holding(values, 0.0).tolist()) == wanted
            some = sorted(live)[::3]
            assert set(rows.holding_among(some, values, 0.0).tolist()) == wanted & set(some)
    assert set(rows.ids()) == live
    assert len(rows) == len(live)


@pytest.mark.parametrize("value", [None, "5", True, [5], {}, 2**63])
def test_what_is_no_number_meets_no_row(value: object) -> None:
    rows = LinearRows((LinearComparison(("x",), "!=", False),))
    assert rows.values({"x": value}) is None
    assert rows.values({}) is None


def test_many_areas_are_answered_as_the_oracle_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lees_module, "_BLOCK", 100)
    random, lees = Random(5), Lees(OneByOne)
    live = {}
    for id in range(450):
        kind = random.choice(["", "kind = 'a' AND ", "kind = 'b' AND "])
        moving = AREA.format(x=random.randrange(1_000), y=random.random(), v=random.random())
        live[id] = (parse(kind + moving), random.uniform(0, 9))
        lees.add(id, normalise(live[id][0]).conjunctions, live[id][1], {})
    assert {len(rows) > 16 for rows in lees._rows.values()} == {True}
    told = 0
    for step in range(40 if is_soak() else 15):
        at = 5.0 + step / 7
        publication = {"x": random.randrange(1_200), "y": 10, "kind": random.choice("ab")}
        wanted = [
            id
            for id, (subscription, accepted_at) in live.items()
            if at >= accepted_at and matches(subscription, publication, at - accepted_at)
        ]
        told += len(wanted)
        assert ids(lees, publication, at) == wanted
    assert told > 300


# -- the design ---------------------------------------------------------------------------------


class TestLees:
    def test_a_fixed_part_rules_out_before_anything_is_evaluated(self) -> None:
        lees = Lees(OneByOne)
        lees.add(1, conjunctions_of("kind = 'a' AND x > t"), 0.0, {})
        assert ids(lees, {"kind": "b", "x": 9}, 1.0) == []
        assert lees.counters.evaluations == 0
        assert ids(lees, {"kind": "a", "x": 9}, 1.0) == [1]
        assert lees.counters.evaluations == 1

    def test_without_a_fixed_part_it_is_evaluated_every_time(self) -> None:
        lees = Lees(OneByOne)
        lees.add(1, conjunctions_of("x > sin(t)"), 0.0, {})
        lees.match([{"x": 9}] * 3, [1.0, 2.0, 3.0])
        assert lees.counters.evaluations == 3

    def test_rows_are_counted_one_by_one(self) -> None:
        lees = Lees(OneByOne)
        for id in range(20):
            lees.add(id, conjunctions_of(f"x > {id} + t"), 0.0, {})
        assert ids(lees, {"x": 7}, 1.0) == list(range(6))
        assert lees.counters.evaluations == 20
        assert ids(lees, {"y": 7}, 1.0) == []
        assert lees.counters.evaluations == 20

    def test_nothing_is_stale_nothing_is_due(self) -> None:
        lees = Lees(OneByOne)
        lees.add(1, conjunctions_of("x > t"), 0.0, {})
        lees.advance(100.0)
        assert ids(lees, {"x": 4}, 3.0) == [1]
        assert lees.next_change_at() == math.inf
        assert lees.counters.stale_answers_possible == 0
        assert lees.evaluated_at(1) is None

    def test_a_state_may_turn_a_line_into_none_and_back(self) -> None:
        lees = Lees(OneByOne)
        lees.add(1, conjunctions_of("x > me.x + t"), 0.0, {"x": 2})
        assert [ids(lees, {"x": x}, 1.0) for x in (3, 4)] == [[], [1]]
        assert len(lees._rows) == 1
        lees.set_state(1, {"x": "two"})
        assert ids(lees, {"x": 4}, 1.0) == []
        assert not lees._rows
        lees.set_state(1, {"x": -2})
        assert ids(lees, {"x": 0}, 1.0) == [1]
        assert len(lees._rows) == 1

    def test_times_that_no_row_could_bear_are_computed_one_by_one(self) -> None:
        lees = Lees(OneByOne)
        text = "x < 1e90 * t"
        for id in range(20):
            lees.add(id, conjunctions_of(text), 0.0, {})
        for at in (1e90, 1e150, 1e250):
            wanted = list(range(20)) if matches(parse(text), {"x": 5}, at) else []
            assert ids(lees, {"x": 5}, at) == wanted
        assert not matches(parse(text), {"x": 5}, 1e250), "the product leaves the floats"


def test_removal_leaves_nothing_behind() -> None:
    index = OneByOne()
    lees = Lees(lambda: index)
    texts = ["x > t", "kind = 1 AND x > t", "x > sin(t)", "kind = 1", "x > t OR y > t", "FALSE"]
    for id in range(60):
        lees.add(id, conjunctions_of(texts[id % len(texts)]), 0.0, {})
    assert lees._rows
    assert lees._always
    assert index.held
    for id in range(60):
        lees.remove(id)
    assert (len(lees), lees._rows, lees._always, index.held) == (0, {}, set(), {})


def test_the_order_of_columns_does_not_depend_on_the_text() -> None:
    lees = Lees(OneByOne)
    lees.add(1, conjunctions_of("x > t AND y < 2 * t"), 0.0, {})
    lees.add(2, conjunctions_of("2 * t > y AND t < x"), 0.0, {})
    (shape,) = lees._rows
    assert [column.path for column in shape.columns] == [("x",), ("y",)]
