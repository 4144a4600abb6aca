"""Scores computed together are the scores of the oracle, bit by bit and type by type."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import parse, score_of
from rove.lang.tree import TRUE, Rank, Subscription, ValueNode, Window
from rove.match.ranked import score_kernels as kernels
from rove.match.ranked import scores as scores_module
from rove.match.ranked.scores import ConstantColumns, Unscored, compiled, library_agrees, read
from rove.testing import strategies
from tests.effort import examples


def subscription_of(score: ValueNode, descending: bool = False) -> Subscription:
    return Subscription(TRUE, None, Rank(score, descending, 1, Window(1, "SECONDS")))


def score_in(text: str) -> ValueNode:
    rank = parse(f"ORDER BY {text} LIMIT 1 WITHIN 1 SECOND").rank
    assert rank is not None
    return rank.score


def computed(
    score: ValueNode, publication: dict[str, Any], at: float, me: dict[str, Any], descending: bool
) -> Any:
    """The score as the columns give it, or "asked" where they leave it to the oracle."""
    try:
        found = compiled(score, descending, 0.5, me)
    except Unscored:
        return None
    if found is None:
        return "asked"
    columns = ConstantColumns(found.program)
    place = columns.add(7, found.constants)
    reading = read(found.program, publication, at)
    if reading is None:
        return None
    scores, asked = columns.score(reading, np.array([place]))
    if asked.size:
        return "asked"
    if not scores.known[0]:
        return None
    value = float(scores.scores[0]) * found.program.sign
    return int(value) if scores.whole[0] else value


@examples(200)
@given(
    strategies.number_values,
    strategies.publications,
    st.sampled_from([0.5, 1.0, 3.25]),
    strategies.states,
    st.booleans(),
)
def test_a_score_is_the_oracles_or_left_to_it(
    score: ValueNode, publication: dict[str, Any], at: float, me: dict[str, Any], descending: bool
) -> None:
    found = computed(score, publication, at, me, descending)
    wanted = score_of(subscription_of(score, descending), publication, at - 0.5, me)
    assert found == "asked" or repr(found) == repr(wanted)


@given(
    strategies.number_values,
    st.lists(st.tuples(strategies.numbers, strategies.numbers), min_size=1, max_size=8),
    st.booleans(),
)
def test_a_score_lies_within_its_bounds(
    score: ValueNode, pairs: list[tuple[int | float, int | float]], descending: bool
) -> None:
    """Intervals around several publications hold the score of each, whatever the values."""
    found = compiled_or_none(score, descending)
    if found is None or len(found.program.attributes) > 2 or not found.program.attributes:
        return
    readings = []
    for pair in pairs:
        publication: dict[str, Any] = {}
        for path, value in zip(found.program.attributes, pair, strict=False):
            inside: Any = publication
            for name in path[:-1]:
                inside = inside.setdefault(name, {})
            if not isinstance(inside, dict) or isinstance(inside.get(path[-1]), dict):
                return
            inside[path[-1]] = value
        reading = read(found.program, publication, 1.0)
        if reading is None:
            return
        readings.append((publication, reading))
    low = np.min([reading.low for _, reading in readings], axis=0)
    high = np.max([reading.high for _, reading in readings], axis=0)
    mixed = any(reading.mixed for _, reading in readings)
    least, greatest = bounds(found, low, high, mixed)
    for publication, _ in readings:
        exact = score_of(subscription_of(score), publication, 0.5)
        assert exact is None or least <= exact <= greatest


def compiled_or_none(score: ValueNode, descending: bool) -> Any:
    try:
        return compiled(score, descending, 0.5, {"x": 1.5, "y": 2})
    except Unscored:
        return None


def bounds(found: Any, low: Any, high: Any, mixed: bool) -> tuple[float, float]:
    inputs = len(low) + len(found.constants)
    lows, highs = np.zeros((inputs, 64)), np.zeros((inputs, 64))
    constants = np.array(found.constants).reshape(-1, 1)
    lows[: len(low)], highs[: len(low)] = low.reshape(-1, 1), high.reshape(-1, 1)
    lows[len(low) :], highs[len(low) :] = constants, constants
    stacks = np.zeros((2, found.program.depth, 64))
    code = np.array(found.program.code, np.int64)
    kernels.bound(code, lows, highs, stacks[0], stacks[1], 64, mixed)
    return float(stacks[0, 0, 0]), float(stacks[1, 0, 0])


@given(st.lists(st.tuples(*[st.floats(-95, 95), st.floats(-370, 370)] * 2), min_size=1, max_size=4))
def test_no_place_is_nearer_than_the_bound_says(
    places: list[tuple[float, float, float, float]],
) -> None:
    found = compiled(score_in("distance(a, b, c, d)"), False, 0.0, {})
    assert found is not None
    rows = np.array(places)
    least, greatest = bounds(found, rows.min(axis=0), rows.max(axis=0), False)
    for a, b, c, d in places:
        exact = score_of(
            subscription_of(score_in("distance(a, b, c, d)")), {"a": a, "b": b, "c": c, "d": d}
        )
        assert exact is not None
        assert least <= exact <= greatest


def test_a_near_bound_of_a_distance_is_a_good_one() -> None:
    """Otherwise nobody would be passed over."""
    found = compiled(score_in("distance(a, b, c, d)"), False, 0.0, {})
    assert found is not None
    place = np.array([45.8, 15.9, 45.85, 16.0])
    least, _ = bounds(found, place, place, False)
    exact = score_of(
        subscription_of(score_in("distance(a, b, c, d)")),
        dict(zip("abcd", place.tolist(), strict=True)),
    )
    assert exact is not None
    assert 0.999 * exact < least <= exact


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("abs(x - 3.5)", "abs(x - 4.25)"),
        ("abs(x - 3.5)", "abs(x + 4.25)"),
        ("2.5 * x + 1.5 * y", "-2.5 * x + 0.5 * y"),
        ("distance(lat, long, 45.1, 16.2)", "distance(lat, long, -45.1, -16.2)"),
        ("x - me.x", "x - me.y"),
        ("x - t", "x - t"),
    ],
)
def test_other_constants_are_the_same_shape(one: str, other: str) -> None:
    first = compiled(score_in(one), False, 1.0, {"x": 1.5, "y": 2.5})
    second = compiled(score_in(other), False, 2.0, {"x": 2.5, "y": -1.0})
    assert first is not None
    assert second is not None
    assert first.program == second.program


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x - 1", "x - 1.0"),
        ("x - 1", "y - 1"),
        ("x - 1", "1 - x"),
        ("least(x, 1)", "greatest(x, 1)"),
    ],
)
def test_other_expressions_are_other_shapes(one: str, other: str) -> None:
    first, second = (compiled(score_in(text), False, 0.0, {}) for text in (one, other))
    assert first is not None
    assert second is not None
    assert first.program != second.program


def test_without_a_state_there_is_no_score() -> None:
    with pytest.raises(Unscored):
        compiled(score_in("x - me.x"), False, 0.0, {})
    with pytest.raises(Unscored):
        compiled(score_in("x - me.x"), False, 0.0, {"x": "far"})


def test_what_no_float_holds_is_left_to_the_oracle() -> None:
    assert compiled(score_in(f"x - {2**53 + 1}"), False, 0.0, {}) is None
    assert computed(score_in("x * x"), {"x": 2**40}, 1.0, {}, False) == "asked"
    assert computed(score_in("x * 0"), {"x": -3}, 1.0, {}, False) == "asked"
    assert computed(score_in("x"), {"x": 2**53}, 1.0, {}, False) == "asked"
    assert computed(score_in("x * x"), {"x": 2**20}, 1.0, {}, False) == 2**40


def test_bounds_of_the_largest_numbers_are_taken_in_silence() -> None:
    found = compiled(score_in("x + y"), False, 0.0, {})
    assert found is not None
    reading = read(found.program, {"x": 2**53 + 1, "y": 1.7976931348623157e308}, 0.0)
    assert reading is not None
    assert not reading.sure
    assert reading.low[0] < 2**53 + 1 < reading.high[0]
    assert reading.high[1] == math.inf


def test_a_library_that_differs_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert library_agrees()
    monkeypatch.setattr(scores_module, "library_agrees", lambda: False)
    assert compiled(score_in("pow(x, 2)"), False, 0.0, {}) is None
    assert compiled(score_in("x * x"), False, 0.0, {}) is not None


def test_places_are_taken_and_left() -> None:
    found = compiled(score_in("x - 1.5"), False, 0.0, {})
    assert found is not None
    columns = ConstantColumns(found.program)
    places = [columns.add(row, (float(row),)) for row in range(200)]
    assert places == list(range(200))
    columns.remove(3)
    columns.remove(150)
    assert len(columns) == 198
    assert 3 not in columns.places()
    assert columns.add(500, (9.0,)) == 150
    reading = read(found.program, {"x": 10.0}, 0.0)
    assert reading is not None
    scores, asked = columns.score(reading, np.array([150, 4]))
    assert scores.scores.tolist() == [1.0, 6.0]
    assert asked.size == 0
    assert not math.isnan(scores.scores.sum())


def test_the_least_integer_cannot_be_subtracted_instead() -> None:
    score = score_in("a + -9223372036854775808")
    assert computed(score, {"a": 5}, 1.0, {}, False) == "asked"
