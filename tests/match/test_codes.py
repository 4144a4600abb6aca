"""Ranks: exact for every value that can be near a bound, whatever its type."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang.sets import EVERYTHING, NULL, NUMBERS, PRESENT, STRINGS, ValueSet
from rove.lang.values import comparable
from rove.match.codes import SubjectCodes, bounds_of
from rove.testing import strategies

spans_of_numbers = st.tuples(strategies.numbers, strategies.numbers).filter(lambda s: s[0] < s[1])
spans_of_strings = st.tuples(strategies.strings, strategies.strings).filter(lambda s: s[0] < s[1])
one_span_sets = spans_of_numbers.map(lambda span: ValueSet((span,))) | spans_of_strings.map(
    lambda span: ValueSet(strings=(span,))
)
sets = one_span_sets | st.sampled_from([EVERYTHING, NULL, PRESENT, NUMBERS, STRINGS])


def codes_for(allowed: list[ValueSet]) -> SubjectCodes:
    bounds = [bounds_of(one) for one in allowed]
    return SubjectCodes(
        [number for numbers, _ in bounds for number in numbers],
        [string for _, strings in bounds for string in strings],
    )


@given(st.lists(sets, min_size=1, max_size=5), strategies.values)
def test_a_value_is_in_a_set_if_its_rank_is_in_the_sets_spans(
    allowed: list[ValueSet], value: object
) -> None:
    codes = codes_for(allowed)
    seen = comparable(value)
    for one in allowed:
        within = any(first <= codes.rank(seen) <= last for first, last in codes.spans(one))
        assert within == (seen in one)


def test_integers_beyond_two_to_the_53_keep_their_places() -> None:
    codes = SubjectCodes([2**53, 2**53 + 1], [])
    ranks = [codes.rank(value) for value in (2**53 - 1, 2**53, float(2**53), 2**53 + 1, 2**53 + 2)]
    assert ranks == [4, 5, 5, 6, 6]


def test_spans_that_touch_are_one() -> None:
    codes = SubjectCodes([1.0], ["a"])
    assert codes.spans(EVERYTHING) == [(0, codes.total - 1)]
    assert codes.spans(PRESENT) == [(1, codes.total - 1)]
    assert codes.spans(NULL) == [(0, 0)]
    assert len(codes.spans(ValueSet(((1.0, math.inf),), facts=4))) == 2


@pytest.mark.parametrize("bounds", [0, 10, 65_528, 65_529, 65_530, 65_531, 200_000])
def test_cut_ranks_leave_the_last_code_free(bounds: int) -> None:
    codes = SubjectCodes(map(float, range(bounds)), [])
    assert (codes.total - 1) >> codes.shift < 65_535
    assert codes.shift == 0 or (codes.total - 1) >> (codes.shift - 1) >= 65_535
