"""The bits of a slot give the key that was meant."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.match.index.batch import RAW_FALSE, RAW_OPAQUE, RAW_TRUE, SlotBatch, raw
from rove.match.index.keys import FALSE, FIRST_STRING, LAST, NULL, OPAQUE, TRUE, number_key
from rove.testing import strategies

SIGN = 1 << 63


def key_of_bits(bits: int) -> int:
    """What the kernels make of a slot."""
    bits = 0 if bits == SIGN else bits
    return bits ^ LAST if bits & SIGN else bits | SIGN


def bits_of(value: float) -> int:
    return int(np.array([value], np.float64).view(np.uint64)[0])


@given(st.integers(0, LAST).filter(lambda key: key != SIGN - 1))
def test_bits_give_back_their_key(key: int) -> None:
    """All but the key of -0.0, which no value has."""
    assert key_of_bits(raw(key)) == key


@pytest.mark.parametrize("key", [NULL, FALSE, TRUE, OPAQUE, FIRST_STRING, FIRST_STRING + 9, LAST])
def test_facts_and_strings_are_no_numbers(key: int) -> None:
    as_float = np.array([raw(key)], np.uint64).view(np.float64)
    assert not np.isfinite(as_float[0])


@given(strategies.numbers.map(float))
def test_a_number_goes_in_as_it_is(value: float) -> None:
    assert key_of_bits(bits_of(value)) == number_key(value)


def test_the_facts_survive_a_list_of_floats() -> None:
    bits = np.array([RAW_FALSE, 1.0, RAW_TRUE, RAW_OPAQUE], np.float64).view(np.uint64).tolist()
    assert [key_of_bits(each) for each in bits] == [FALSE, number_key(1), TRUE, OPAQUE]


def test_its_length_is_that_of_its_publications() -> None:
    subjects, raws, rounded = np.empty(0, np.int32), np.empty(0, np.uint64), np.zeros(2, np.uint8)
    nothing = SlotBatch((), np.zeros(2), np.zeros(3, np.int64), subjects, raws, rounded)
    assert len(nothing) == 2
