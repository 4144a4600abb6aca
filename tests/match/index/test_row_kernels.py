"""One row at a time, in compiled code: keys, codes, comparisons and verdicts."""

import math
import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import normalise, parse
from rove.match.conditions.row_compiler import rows_of
from rove.match.index import row_kernels
from rove.match.index.construction import built
from rove.match.index.keys import FIRST_NUMBER, FIRST_STRING, LAST, NULL, float_keys, number_key
from rove.match.index.layout import ABOVE, AT_LEAST, AT_MOST, BELOW, EQUAL, ROUNDED, T_MAX
from rove.match.index.rows import from_rows
from rove.match.index.segment import Segment
from rove.match.index.subjects import Subjects
from rove.testing import strategies
from tests.effort import examples

SIGNS = {
    AT_LEAST: operator.ge,
    ABOVE: operator.gt,
    AT_MOST: operator.le,
    BELOW: operator.lt,
    EQUAL: operator.eq,
}


def bits(value: float) -> np.uint64:
    found: np.uint64 = np.array([value]).view(np.uint64)[0]
    return found


@examples(150)
@given(strategies.numbers.map(float) | st.floats(allow_nan=False, allow_infinity=False))
def test_the_key_of_a_slot_is_that_of_its_number(value: float) -> None:
    key = int(row_kernels.key_of(bits(value)))
    assert key == number_key(value) == int(float_keys(np.array([value]))[0])
    assert row_kernels.number_of(np.uint64(key)) == value


@pytest.mark.parametrize("missing", [math.nan, -math.nan])
def test_nan_is_missing(missing: float) -> None:
    assert row_kernels.key_of(bits(missing)) == NULL


@pytest.mark.parametrize("key", [0, 1, 2, 3, FIRST_NUMBER, FIRST_STRING, FIRST_STRING + 1, LAST])
def test_what_is_no_number_has_none(key: int) -> None:
    assert math.isnan(row_kernels.number_of(np.uint64(key)))


@examples(150)
@given(st.lists(st.integers(0, 2**64 - 1), max_size=40), st.integers(0, 2**64 - 1), st.data())
def test_a_code_counts_the_cuts_that_are_not_above(
    drawn: list[int], key: int, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(drawn)))
    cuts = drawn[:first] + sorted(drawn[first:])
    key = data.draw(st.sampled_from([key, *drawn]))
    table = np.array([*cuts, 0], np.uint64)
    address = np.int64(table.__array_interface__["data"][0])
    found = row_kernels.code_of(address, first, len(cuts), np.uint64(key))
    assert found == sum(cut <= key for cut in cuts[first:])


floats = strategies.numbers.map(float)


@given(floats, st.sampled_from(sorted(SIGNS)), floats)
def test_comparators_compare(value: float, comparator: int, bound: float) -> None:
    assert row_kernels.is_within(value, comparator, bound) == SIGNS[comparator](value, bound)


@pytest.mark.parametrize("comparator", sorted(SIGNS))
@pytest.mark.parametrize("bound", [math.inf, -math.inf, math.nan])
def test_a_bound_that_left_the_floats_holds_for_nobody(comparator: int, bound: float) -> None:
    assert not row_kernels.is_within(1.0, comparator, bound)
    assert not row_kernels.is_within(math.nan, comparator, 1.0)


@pytest.mark.parametrize(
    ("text", "x", "at", "modes", "verdict"),
    [
        ("x > 1", 2.0, 0.0, 0, row_kernels.MATCH),
        ("x > 1", 1.0, 0.0, 0, row_kernels.MISS),
        ("x > 1", 2.0, -1.0, 0, row_kernels.MISS),
        ("x > t", 2.0, 1.0, 0, row_kernels.MATCH),
        ("x > t", 2.0, 2.0, 0, row_kernels.MISS),
        ("x > t", 2.0, 1.0, ROUNDED, row_kernels.DOUBT),
        ("x > t + t", 2.0, 0.5, 0, row_kernels.DOUBT),
        ("x > t + t", 2.0, 5.0, 0, row_kernels.MISS),
        ("x > t + t", 2.0, 2 * T_MAX, 0, row_kernels.DOUBT),
        ("x + y > 1", 2.0, 0.0, 0, row_kernels.DOUBT),
        ("x IN (1, 2, 5)", 2.0, 0.0, 0, row_kernels.MATCH),
        ("x IN (1, 2, 5)", 3.0, 0.0, 0, row_kernels.MISS),
    ],
)
def test_verdicts(text: str, x: float, at: float, modes: int, verdict: int) -> None:
    subjects = Subjects()
    subjects.attribute("x")
    rows = from_rows(rows_of(7, normalise(parse(text)).conjunctions, 0.0, subjects))
    segment = Segment(built(rows, 0.0, indexed=True), rows.strings)
    (row,) = segment.live_rows_of(7)
    keys = np.array([number_key(x), 0], np.uint64)
    assert row_kernels.decide(segment.buffer, row, keys, at, modes) == verdict
    assert row_kernels.id_of(segment.buffer, row) == 7
