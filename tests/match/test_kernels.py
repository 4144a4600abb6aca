"""The kernels alone: 64 comparisons at once, and rows in blocks of neighbours."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from rove.match import kernels
from rove.match.kernels import CODE_MAX, WIDTH, pack, put_in_order

codes = st.integers(0, CODE_MAX)


@njit
def compared(columns: Any, offset: int, value: int) -> Any:
    return (
        kernels._at_most(columns, offset, np.uint16(value)),
        kernels._at_least(columns, offset, np.uint16(value)),
        kernels._equal(columns, offset, np.uint16(value)),
    )


def mask_of(truths: list[bool]) -> int:
    return sum(1 << i for i, truth in enumerate(truths) if truth)


@given(st.lists(codes, min_size=70, max_size=70), st.integers(0, 6), codes)
def test_a_wide_comparison_is_64_comparisons(column: list[int], offset: int, value: int) -> None:
    window = column[offset : offset + WIDTH]
    wanted = (
        mask_of([bound <= value for bound in window]),
        mask_of([bound >= value for bound in window]),
        mask_of([bound == value for bound in window]),
    )
    assert compared(np.array(column, np.uint16), offset, value) == wanted


@pytest.mark.parametrize("count", [1, 63, 64, 65, 128, 129, 1_000, 5_000])
def test_every_row_keeps_its_place_in_the_order(count: int) -> None:
    keys = np.random.default_rng(1).integers(0, CODE_MAX, (4, count)).astype(np.uint16)
    order = np.arange(count, dtype=np.int32)
    put_in_order(keys, order)
    assert sorted(order.tolist()) == list(range(count))


def test_neighbours_are_alike() -> None:
    keys = np.random.default_rng(1).permutation(64 * 64).astype(np.uint16)[np.newaxis]
    order = np.arange(keys.shape[1], dtype=np.int32)
    put_in_order(np.ascontiguousarray(keys), order)
    blocks = keys[0][order].reshape(-1, WIDTH)
    assert all(block.max() - block.min() == WIDTH - 1 for block in blocks)


def test_equal_rows_do_not_slow_the_order_down() -> None:
    keys = np.full((3, 100_000), 7, np.uint16)
    order = np.arange(keys.shape[1], dtype=np.int32)
    put_in_order(keys, order)
    assert order.size == np.unique(order).size


def test_columns_that_exclude_nothing_are_left_out() -> None:
    lows, highs = np.zeros((2, WIDTH), np.uint16), np.full((2, WIDTH), CODE_MAX, np.uint16)
    lows[1, 5] = 3
    starts, nothing = np.empty(2, np.int64), np.empty(0, np.uint16)
    assert pack(lows, highs, starts, nothing, nothing) == 1
    keys, columns = np.empty(1, np.uint16), np.empty(WIDTH, np.uint16)
    pack(lows, highs, starts, keys, columns)
    assert (keys.tolist(), columns[5], starts.tolist()) == ([2], 3, [0, 1])
