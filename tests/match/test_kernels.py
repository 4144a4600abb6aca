"""The smallest parts of a search, each against a loop: comparisons of 64, keys, codes."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from rove.match import kernels
from rove.match.keys import FIRST_NUMBER, FIRST_STRING, LAST, NULL, float_keys, number_key
from rove.match.layout import CODE_MAX, WIDTH
from rove.testing import strategies


@njit
def at_most(address: Any, value: Any) -> Any:
    return kernels._at_most(address, value)


@njit
def equal(address: Any, value: Any) -> Any:
    return kernels._equal(address, value)


@njit
def lowest_bit(mask: Any) -> Any:
    return kernels._lowest_bit(mask)


codes = st.sampled_from([0, 1, 2, 254, 255, 256, 32_767, 32_768, CODE_MAX - 1, CODE_MAX])


@settings(max_examples=200)
@given(st.lists(codes, min_size=WIDTH + 8, max_size=WIDTH + 8), codes, st.integers(0, 7))
def test_64_comparisons_at_once(drawn: list[int], value: int, shift: int) -> None:
    """At any address: a column need not begin at a whole word."""
    table = np.array(drawn, np.uint16)
    address = np.int64(table.__array_interface__["data"][0] + 2 * shift)
    column = drawn[shift : shift + WIDTH]
    wide = np.uint16(value)
    assert int(at_most(address, wide)) == sum((c <= value) << i for i, c in enumerate(column))
    assert int(equal(address, wide)) == sum((c == value) << i for i, c in enumerate(column))


@given(st.integers(1, 2**64 - 1))
def test_the_lowest_bit(mask: int) -> None:
    assert lowest_bit(np.uint64(mask)) == (mask & -mask).bit_length() - 1


def bits(value: float) -> np.uint64:
    found: np.uint64 = np.array([value]).view(np.uint64)[0]
    return found


@settings(max_examples=300)
@given(strategies.numbers.map(float) | st.floats(allow_nan=False, allow_infinity=False))
def test_the_key_of_a_slot_is_that_of_its_number(value: float) -> None:
    key = int(kernels._key(bits(value)))
    assert key == number_key(value) == int(float_keys(np.array([value]))[0])
    assert kernels._number(np.uint64(key)) == value


@pytest.mark.parametrize("missing", [math.nan, -math.nan])
def test_nan_is_missing(missing: float) -> None:
    assert kernels._key(bits(missing)) == NULL


@pytest.mark.parametrize("key", [0, 1, 2, 3, FIRST_NUMBER, FIRST_STRING, FIRST_STRING + 1, LAST])
def test_what_is_no_number_has_none(key: int) -> None:
    assert math.isnan(kernels._number(np.uint64(key)))


@settings(max_examples=200)
@given(st.lists(st.integers(0, 2**64 - 1), max_size=40), st.integers(0, 2**64 - 1), st.data())
def test_a_code_counts_the_cuts_that_are_not_above(
    drawn: list[int], key: int, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(drawn)))
    cuts = drawn[:first] + sorted(drawn[first:])
    key = data.draw(st.sampled_from([key, *drawn]))
    table = np.array([*cuts, 0], np.uint64)
    address = np.int64(table.__array_interface__["data"][0])
    found = kernels._code(address, first, len(cuts), np.uint64(key))
    assert found == sum(cut <= key for cut in cuts[first:])
