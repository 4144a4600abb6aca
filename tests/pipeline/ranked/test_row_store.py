"""The rows in windows are kept, and others are dropped."""

import numpy as np
import pyarrow as pa
import pytest

from rove.pipeline.ranked.row_store import RowStore

SCHEMA = pa.schema([("n", pa.int64()), ("id", pa.string())])


def rows(first: int, end: int) -> pa.Table:
    numbers = list(range(first, end))
    names = [f"p{number}" for number in numbers]
    return pa.table({"other": numbers, "id": names, "n": pa.array(numbers, pa.int32())})


def test_rows_are_found_by_their_numbers() -> None:
    store = RowStore("n", SCHEMA)
    store.add(rows(0, 5))
    store.add(rows(7, 9))
    found = store.find(np.array([8, 0, 0, 4]))
    assert found.to_pydict() == {"n": [8, 0, 0, 4], "id": ["p8", "p0", "p0", "p4"]}
    assert store.find(np.empty(0, np.int64)).schema == SCHEMA


def test_what_is_not_live_is_forgotten_when_there_is_much_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rove.pipeline.ranked.row_store._SIZE_MIN", 4)
    store = RowStore("n", SCHEMA)
    store.add(rows(0, 4))
    store.keep(lambda: np.array([2]))
    assert len(store) == 4
    store.add(rows(4, 6))
    store.keep(lambda: np.array([2, 5]))
    assert len(store) == 2
    store.add(rows(6, 8))
    store.keep(lambda: np.array([7]), at_once=True)
    assert store.find(np.array([7])).to_pydict() == {"n": [7], "id": ["p7"]}
    assert len(store) == 1


def test_it_goes_on_from_bytes() -> None:
    store = RowStore("n", SCHEMA)
    store.add(rows(3, 6))
    again = RowStore.load("n", store.save())
    again.add(rows(6, 7))
    assert again.find(np.array([3, 6])).to_pydict() == {"n": [3, 6], "id": ["p3", "p6"]}
