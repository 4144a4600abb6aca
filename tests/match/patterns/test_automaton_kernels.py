"""The kernels of text patterns alone: rows sorted, rows chosen, tables that hold what they got."""

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from rove.match.patterns.automaton_kernels import (
    NODES,
    ROWS,
    TABLE_END,
    TERMINALS,
    gather,
    packed,
    programs_of,
    sort_rows,
    unseen,
)

Ints = npt.NDArray[np.int32]
rows = st.lists(st.lists(st.sampled_from([0, 1, 2, 0x10FFFF, 0x110001]), max_size=6), max_size=40)


def flat(lists: list[list[int]]) -> tuple[Ints, Ints]:
    """Rows one behind the other, and where each starts; nothing can write to them."""
    values = np.array([value for each in lists for value in each], np.int32)
    starts = np.cumsum([0, *map(len, lists)]).astype(np.int32)
    values.flags.writeable = starts.flags.writeable = False
    return values, starts


def fixed(values: list[int]) -> Ints:
    array = np.array(values, np.int32)
    array.flags.writeable = False
    return array


@given(rows)
def test_rows_are_sorted_like_lists(lists: list[list[int]]) -> None:
    order = np.empty(len(lists), np.int32)
    sort_rows(*flat(lists), order)
    assert sorted(order.tolist()) == list(range(len(lists)))
    assert [lists[i] for i in order] == sorted(lists)


@given(rows.filter(bool), st.data())
def test_chosen_rows_are_copied_in_the_order_they_are_named(
    lists: list[list[int]], data: st.DataObject
) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(lists) - 1), max_size=10))
    wanted = flat([lists[i] for i in chosen])
    values, starts = np.empty_like(wanted[0]), np.empty_like(wanted[1])
    gather(*flat(lists), fixed(chosen), values, starts)
    assert (values.tolist(), starts.tolist()) == (wanted[0].tolist(), wanted[1].tolist())


def test_a_table_holds_a_node_for_each_prefix_and_a_terminal_for_each_key() -> None:
    keys = sorted([ord(letter) for letter in word] for word in ("he", "hers", "his", "she", "she"))
    programs = [[], [1, 2], [], [3], []]
    table = packed(*flat(keys), *flat(programs))
    assert table[TABLE_END] == len(table)
    prefixes = {tuple(key[:size]) for key in keys for size in range(len(key) + 1)}
    assert (table[TERMINALS] - table[NODES]) // 4 == len(prefixes) + 1
    assert table[NODES] - table[ROWS] == len(prefixes) * len("ehirs")
    assert len(unseen(table)) == 4
    found = programs_of(table)
    assert [part.tolist() for part in found] == [part.tolist() for part in flat(programs)]
