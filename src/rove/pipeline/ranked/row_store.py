"""The rows in windows, which are needed when a publication moves up.

Windows identify publications by increasing numbers. This table has the columns of each number, in
that order: Arrow columns instead of objects, so that they can be saved and loaded as a whole. Rows
that have left all windows are dropped when there are as many of them as of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rove.match.ranked.scores import Integers

_SIZE_MIN: Final = 10_000


class RowStore:
    """Rows by their numbers, which are in the column `key` and increase."""

    def __init__(self, key: str, schema: pa.Schema) -> None:
        self._key = key
        self._table: pa.Table = schema.empty_table()
        self._size_max = _SIZE_MIN

    def __len__(self) -> int:
        return len(self._table)

    def add(self, rows: pa.Table) -> None:
        """Add rows, which have at least the columns of the store."""
        schema = self._table.schema
        self._table = pa.concat_tables([self._table, rows.select(schema.names).cast(schema)])

    def find(self, numbers: Integers) -> pa.Table:
        """The rows with some numbers, in that order."""
        self._table = self._table.combine_chunks()
        places = np.searchsorted(np.asarray(self._table[self._key]), numbers)
        return self._table.take(pa.array(places)).combine_chunks()

    def keep(self, live: Callable[[], Integers], *, at_once: bool = False) -> None:
        """Drop all rows but the `live` ones, if there are enough to drop."""
        if at_once or len(self._table) > self._size_max:
            held = pc.is_in(self._table[self._key], pa.array(live()))
            self._table = self._table.filter(held).combine_chunks()
            self._size_max = 2 * len(self._table) + _SIZE_MIN

    def save(self) -> bytes:
        """The rows as bytes."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._table.schema) as writer:
            writer.write_table(self._table)
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

    @classmethod
    def load(cls, key: str, saved: bytes) -> Self:
        """Load saved rows."""
        with pa.ipc.open_stream(saved) as reader:
            table = reader.read_all()
        store = cls(key, table.schema)
        store._table = table
        return store
