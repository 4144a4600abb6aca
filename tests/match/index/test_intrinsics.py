"""What Numba has no word for, each against a loop or against NumPy."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from rove.match.index import intrinsics, layout
from rove.match.index.layout import CODE_MAX, WIDTH, packed, section
from tests.effort import examples


def compiled(intrinsic: Any, arguments: int) -> Any:
    """A function around an intrinsic, which only compiled code can call."""

    def one(a: Any) -> Any:
        return intrinsic(a)

    def two(a: Any, b: Any) -> Any:
        return intrinsic(a, b)

    return njit(one if arguments == 1 else two)


at_most, equal = compiled(intrinsics.at_most, 2), compiled(intrinsics.equal, 2)
lowest_bit, as_float = compiled(intrinsics.lowest_bit, 1), compiled(intrinsics.as_float, 1)


def address_of(array: npt.NDArray[Any]) -> np.int64:
    return np.int64(array.__array_interface__["data"][0])


codes = st.sampled_from([0, 1, 2, 254, 255, 256, 32_767, 32_768, CODE_MAX - 1, CODE_MAX])


@examples(150)
@given(st.lists(codes, min_size=WIDTH + 8, max_size=WIDTH + 8), codes, st.integers(0, 7))
def test_64_comparisons_at_once(drawn: list[int], value: int, shift: int) -> None:
    """At any address: a column need not begin at a whole word."""
    address = np.int64(address_of(table := np.array(drawn, np.uint16)) + 2 * shift)
    column = table[shift : shift + WIDTH].tolist()
    wide = np.uint16(value)
    assert int(at_most(address, wide)) == sum((c <= value) << i for i, c in enumerate(column))
    assert int(equal(address, wide)) == sum((c == value) << i for i, c in enumerate(column))


@given(st.integers(1, 2**64 - 1))
def test_the_lowest_bit(mask: int) -> None:
    assert lowest_bit(np.uint64(mask)) == (mask & -mask).bit_length() - 1


@given(st.floats(allow_nan=False))
def test_bits_are_a_float_again(value: float) -> None:
    assert as_float(np.array([value]).view(np.uint64)[0]) == value


@pytest.mark.parametrize(
    ("reading", "kind", "values"),
    [
        (intrinsics.int_at, np.int32, [0, -1, 2**31 - 1, -(2**31)]),
        (intrinsics.word_at, np.int64, [0, -1, 2**63 - 1, -(2**63)]),
        (intrinsics.key_at, np.uint64, [0, 1, 2**63, 2**64 - 1]),
        (intrinsics.real_at, np.float64, [0.0, -1.5, 1e300, 5e-324]),
        (intrinsics.byte_at, np.uint8, [0, 1, 128, 255]),
    ],
)
def test_memory_is_read_by_its_address(reading: Any, kind: Any, values: list[Any]) -> None:
    array = np.array(values, kind)
    read = compiled(reading, 2)
    assert [read(address_of(array), i) for i in range(len(values))] == values


def test_a_section_has_an_address() -> None:
    buffer = packed({layout.FLAGS: np.arange(5), layout.TIMES: np.array([2.5])})

    def of_times(buffer: Any) -> Any:
        return intrinsics.address(buffer, layout.TIMES)

    assert njit(of_times)(buffer) == address_of(section(buffer, layout.TIMES))
