"""Rows in order, keys as codes, columns packed: the compiled parts, each alone."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.match.index import construction_kernels
from rove.match.index.construction_kernels import _best_cut, _select, code_all, pack, put_in_order
from rove.match.index.layout import CODE_MAX, WIDTH
from tests.effort import examples

Codes = npt.NDArray[np.uint16]
STACK = 512
"""Parts that `put_in_order` has room to let wait."""
ROWS_MAX = 2**31 - 1


def even_shares(subjects: int, codes: int = 1_000) -> npt.NDArray[np.float32]:
    """As if values were spread evenly over the codes."""
    line = np.minimum(np.arange(codes + 3) / codes, 1.0)
    return np.tile(line.astype(np.float32), (subjects, 1))


def boxes(rows: int, subjects: int, seed: int, width: int = 20) -> tuple[Codes, Codes]:
    """Small boxes anywhere; each subject is not asked for by some of them."""
    random = np.random.default_rng(seed)
    lows = random.integers(1, 980, (subjects, rows))
    highs = lows + random.integers(0, width, lows.shape)
    free = random.random(lows.shape) < 0.2
    lows[free], highs[free] = 0, CODE_MAX
    return lows.astype(np.uint16), highs.astype(np.uint16)


def ordered(lows: Codes, highs: Codes) -> npt.NDArray[np.int32]:
    order = np.arange(lows.shape[1], dtype=np.int32)
    put_in_order(lows, highs, even_shares(lows.shape[0]), order)
    return order


# -- order -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, 1, 63, 64, 65, 4_096, 4_097, 10_000])
@pytest.mark.parametrize("subjects", [0, 1, 3])
def test_an_order_has_every_row_once(rows: int, subjects: int) -> None:
    order = ordered(*boxes(rows, subjects, seed=rows + subjects))
    assert np.sort(order).tolist() == list(range(rows))


@examples(100)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=200), st.data())
def test_the_smallest_come_first(values: list[int], data: st.DataObject) -> None:
    middle = data.draw(st.integers(0, len(values) - 1))
    order = np.arange(len(values), dtype=np.int32)
    table = np.array(values, np.uint16)
    _select(table, order, 0, len(values), middle)
    assert np.sort(order).tolist() == list(range(len(values)))
    assert table[order[:middle]].max(initial=0) <= table[order[middle:]].min()


def reached_in_the_mean(lows: Codes, highs: Codes, order: npt.NDArray[np.int32]) -> float:
    """Blocks that a random value reaches."""
    count = len(order) // WIDTH * WIDTH
    blocks = order[:count].reshape(-1, WIDTH)
    first, last = lows[0][blocks].min(axis=1), highs[0][blocks].max(axis=1)
    return float((np.minimum(last, 1_000) - np.minimum(first, 1_000).astype(np.float64)).sum())


def test_neighbours_are_alike() -> None:
    random = np.random.default_rng(1)
    lows = random.integers(1, 980, (1, 8_192)).astype(np.uint16)
    highs = (lows + 10).astype(np.uint16)
    shuffled = reached_in_the_mean(lows, highs, np.arange(8_192, dtype=np.int32))
    assert reached_in_the_mean(lows, highs, ordered(lows, highs)) < shuffled / 20


def test_those_who_ask_stand_apart_from_those_who_do_not() -> None:
    lows = np.zeros((2, 2 * WIDTH), np.uint16)
    highs = np.full((2, 2 * WIDTH), CODE_MAX, np.uint16)
    asking = np.arange(2 * WIDTH) % 2 == 0
    lows[1, asking], highs[1, asking] = 500, 510
    order = ordered(lows, highs)
    assert len({bool(each) for each in asking[order[:WIDTH]]}) == 1


def test_equal_rows_are_no_trouble() -> None:
    """Dividing equal values badly would take time that grows with their square."""
    lows, highs = np.full((3, 400_000), 7, np.uint16), np.full((3, 400_000), 9, np.uint16)
    assert np.sort(ordered(lows, highs))[-1] == 399_999


@examples(100)
@given(st.integers(65, 20_000), st.integers(1, 3), st.integers(0, 99), st.integers(1, 2_000))
def test_cuts_lie_inside_and_at_whole_units(
    rows: int, subjects: int, seed: int, width: int
) -> None:
    unit = WIDTH
    while unit * WIDTH < rows:
        unit *= WIDTH
    lows, highs = boxes(rows, subjects, seed, width)
    order = np.arange(rows, dtype=np.int32)
    side, middle = _best_cut(lows, highs, even_shares(subjects), order, 0, rows, unit)
    assert 0 <= side < 2 * subjects
    assert 0 < middle < rows
    assert middle % unit == 0


class Adversary:
    """Cuts off as little as a cut may: one unit, always on the same side."""

    def __init__(self, from_the_end: bool) -> None:
        self.from_the_end = from_the_end
        self.parts: list[tuple[int, int]] = []

    def __call__(
        self, lows: Any, highs: Any, shares: Any, order: Any, first: int, end: int, unit: int
    ) -> tuple[int, int]:
        assert unit < end - first <= unit * WIDTH, "a part has 2 to 64 units"
        self.parts.append((first, end))
        units = -(-(end - first) // unit)
        return 0, first + (units - 1 if self.from_the_end else 1) * unit


@pytest.mark.parametrize("from_the_end", [True, False])
def test_the_worst_cuts_do_not_let_too_many_parts_wait(
    from_the_end: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run as plain Python, where writing past the end of the stack is an IndexError."""
    adversary = Adversary(from_the_end)
    monkeypatch.setattr(construction_kernels, "_best_cut", adversary)
    monkeypatch.setattr(construction_kernels, "_select", lambda *_: None)
    rows = WIDTH**3
    lows = np.zeros((1, 1), np.uint16)
    put_in_order.py_func(lows, lows, even_shares(1), np.zeros(rows, np.int32))
    assert len(adversary.parts) == rows // WIDTH - 1, "every cut makes one part more"


def test_the_stack_is_deep_enough_for_as_many_rows_as_there_may_be() -> None:
    """A part has at most 64 units, and each cut takes one away; then units are 64 times smaller.

    So on the way down to a block there are at most 63 cuts for every size of unit, and each lets
    one part wait.
    """
    sizes_of_unit = math.ceil(math.log(ROWS_MAX, WIDTH)) - 1
    assert 1 + (WIDTH - 1) * sizes_of_unit + 1 <= STACK


# -- codes and columns -----------------------------------------------------------------------


@examples(100)
@given(
    st.lists(st.integers(0, 2**64 - 1), max_size=20),
    st.lists(st.integers(0, 2**64 - 1), max_size=20, unique=True),
)
def test_a_code_counts_the_cuts_that_are_not_above(drawn: list[int], cuts: list[int]) -> None:
    cuts.sort()
    drawn += cuts
    codes = np.empty(len(drawn), np.uint16)
    code_all(np.array(drawn, np.uint64), np.array(cuts, np.uint64), codes)
    assert codes.tolist() == [sum(cut <= key for cut in cuts) for key in drawn]


def packed(
    lows: Codes, highs: Codes, subjects: list[int]
) -> tuple[list[int], list[int], npt.NDArray[np.uint16]]:
    """Starts, keys and columns of a level, one line for each column."""
    starts = np.empty(lows.shape[1] // WIDTH + 1, np.int64)
    numbers, shares = np.array(subjects, np.int32), even_shares(len(subjects))
    nothing = np.empty(0, np.int32), np.empty(0, np.uint16)
    count = pack(lows, highs, numbers, shares, starts, *nothing)
    keys, columns = np.empty(count, np.int32), np.empty(count * WIDTH, np.uint16)
    assert pack(lows, highs, numbers, shares, starts, keys, columns) == count
    return starts.tolist(), keys.tolist(), columns.reshape(-1, WIDTH)


def test_what_excludes_nothing_is_left_out() -> None:
    lows = np.zeros((2, 2 * WIDTH), np.uint16)
    highs = np.full((2, 2 * WIDTH), CODE_MAX, np.uint16)
    lows[1, WIDTH + 3] = 500
    starts, keys, columns = packed(lows, highs, [4, 9])
    assert starts == [0, 0, 1]
    assert keys == [2 * 9]
    assert columns[0].tolist() == [500 if row == 3 else 0 for row in range(WIDTH)]


def test_what_excludes_most_comes_first() -> None:
    lows, highs = np.full((2, WIDTH), 100, np.uint16), np.full((2, WIDTH), 900, np.uint16)
    lows[1], highs[1] = 700, 950
    _, keys, _ = packed(lows, highs, [0, 1])
    assert keys[0] == 2
    assert sorted(keys) == [0, 1, 2, 3]


@examples(30)
@given(st.integers(0, 10_000), st.integers(1, 4))
def test_columns_hold_every_bound_that_excludes(seed: int, subjects: int) -> None:
    lows, highs = boxes(3 * WIDTH, subjects, seed)
    starts, keys, columns = packed(lows, highs, list(range(subjects)))
    for node in range(3):
        rows = slice(node * WIDTH, (node + 1) * WIDTH)
        seen_lows, seen_highs = np.zeros_like(lows[:, rows]), np.full_like(highs[:, rows], CODE_MAX)
        for column in range(starts[node], starts[node + 1]):
            subject, is_upper = divmod(keys[column], 2)
            if is_upper:  # turned over, so that one comparison does for both sides
                seen_highs[subject] = CODE_MAX - columns[column]
            else:
                seen_lows[subject] = columns[column]
        assert (seen_lows == lows[:, rows]).all()
        assert (seen_highs == highs[:, rows]).all()
