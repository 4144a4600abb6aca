"""Keys sort as values do, and spans of keys hold what the sets hold."""

import math
from bisect import bisect_right
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import LimitError, Subscription, normalise
from rove.lang.limits import INTEGER_MAX, INTEGER_MIN
from rove.lang.sets import (
    ALL_NUMBERS,
    ALL_STRINGS,
    EVERYTHING,
    IS_NULL,
    IS_OPAQUE,
    TOP,
    ValueSet,
    spans_of,
)
from rove.lang.values import OPAQUE, comparable
from rove.match.index import keys
from rove.match.index.keys import (
    FIRST_NUMBER,
    FIRST_STRING,
    LAST,
    LAST_NUMBER,
    are_exact,
    float_keys,
    floor_float,
    is_exact,
    number_key,
    spans,
    string_bounds,
)
from rove.testing import strategies
from tests.effort import examples

any_integer = st.integers(INTEGER_MIN, INTEGER_MAX)
any_float = st.floats(allow_nan=False, allow_infinity=False)
any_number = strategies.numbers | any_integer | any_float


def key_of(value: object, bounds: list[str]) -> int:
    """The key of a value among the bounds of a set, said plainly."""
    seen = comparable(value)
    if seen is None:
        return keys.NULL
    if isinstance(seen, bool):
        return keys.TRUE if seen else keys.FALSE
    if isinstance(seen, int | float):
        return number_key(seen)
    if isinstance(seen, str):
        return FIRST_STRING + bisect_right(bounds, seen)
    assert seen is OPAQUE
    return keys.OPAQUE


# -- numbers ---------------------------------------------------------------------------------


@examples(150)
@given(any_number, any_number)
def test_keys_are_in_the_order_of_the_numbers(a: int | float, b: int | float) -> None:
    if a <= b:
        assert number_key(a) <= number_key(b)
    if is_exact(a) and is_exact(b):
        assert (number_key(a) < number_key(b)) == (a < b)


@examples(150)
@given(any_number, any_float | strategies.numbers.map(float))
def test_no_float_lies_between_a_number_and_its_key(value: int | float, bound: float) -> None:
    assert (number_key(value) >= number_key(bound)) == (value >= bound)


@examples(150)
@given(any_number)
def test_the_float_below_is_the_nearest_one(value: int | float) -> None:
    below = floor_float(value)
    assert below <= value < math.nextafter(below, math.inf)
    assert is_exact(value) == (below == value)


def test_every_number_lies_between_facts_and_strings() -> None:
    found = [number_key(value) for value in strategies.NUMBERS]
    assert keys.OPAQUE < FIRST_NUMBER <= min(found)
    assert max(found) <= LAST_NUMBER == FIRST_STRING - 1
    assert number_key(-0.0) == number_key(0) == number_key(0.0)


@examples(100)
@given(st.lists(any_float | st.just(math.nan) | st.sampled_from([0.0, -0.0]), max_size=20))
def test_many_floats_have_the_keys_that_each_has(values: list[float]) -> None:
    expected = [keys.NULL if math.isnan(value) else number_key(value) for value in values]
    assert float_keys(np.array(values, np.float64)).tolist() == expected


# -- sets ------------------------------------------------------------------------------------


def plain_sets(subscription: Subscription) -> list[ValueSet]:
    """The sets of a subscription, without patterns."""
    try:
        conjunctions = normalise(subscription).conjunctions
    except LimitError:
        return []
    sets = [allowed for conjunction in conjunctions for allowed in conjunction.sets.values()]
    return [ValueSet(each.numbers, each.strings, facts=each.facts) for each in sets]


@examples(150)
@given(strategies.encounters(strategies.static_subscriptions), st.lists(strategies.values))
def test_spans_hold_what_the_set_holds(
    encounter: tuple[Subscription, dict[str, object], float, dict[str, object]],
    more: list[object],
) -> None:
    subscription, publication, _, _ = encounter
    for allowed in plain_sets(subscription):
        bounds = sorted(set(string_bounds(allowed)))
        found = spans(allowed, {text: i for i, text in enumerate(bounds, 1)})
        assert all(first <= last for first, last in found)
        assert all(end + 1 < start for (_, end), (start, _) in pairwise(found))
        for value in (*publication.values(), *more):
            key = key_of(value, bounds)
            inside = any(first <= key <= last for first, last in found)
            is_member = comparable(value) in allowed
            assert inside == is_member or (inside and not are_exact(allowed))


def test_bounds_that_no_float_holds_are_not_exact() -> None:
    assert not are_exact(ValueSet(spans_of([2**53 + 1])))
    assert are_exact(ValueSet(spans_of([2**53 - 1, 2.5, -0.0])))
    assert are_exact(ValueSet(((2**53 + 2, math.inf),)))
    assert are_exact(ValueSet(ALL_NUMBERS))


def test_neighbouring_integers_beyond_2_53_share_a_span() -> None:
    apart = ValueSet(((2**53 + 2, 2**53 + 3), (2**53 + 4, 2**53 + 5)))
    key = number_key(2**53 + 2)
    assert spans(apart, {}) == [(key, key + 1)]


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        (ValueSet(), []),
        (EVERYTHING, [(0, LAST)]),
        (ValueSet(ALL_NUMBERS), [(FIRST_NUMBER, LAST_NUMBER)]),
        (ValueSet(strings=ALL_STRINGS), [(FIRST_STRING, LAST)]),
        (ValueSet(ALL_NUMBERS, facts=IS_OPAQUE), [(keys.OPAQUE, LAST_NUMBER)]),
        (ValueSet(ALL_NUMBERS, ALL_STRINGS), [(FIRST_NUMBER, LAST)]),
        (ValueSet(strings=(("a", "b"),), facts=IS_NULL), [(0, 0), (FIRST_STRING + 1,) * 2]),
        (
            ValueSet(strings=(("", "a"), ("b", TOP))),
            [(FIRST_STRING,) * 2, (FIRST_STRING + 2, LAST)],
        ),
    ],
)
def test_spans_that_touch_are_one(allowed: ValueSet, expected: list[tuple[int, int]]) -> None:
    assert spans(allowed, {"a": 1, "b": 2}) == expected
