"""The rows that windows still hold: whatever is to be told of a publication when it moves up.

Windows know publications by a number that grows. Here is what belongs to such a number, as a table
in that order: columns of Arrow instead of objects, so that it is written and read in one go.
What no window holds any more is forgotten when there is as much of it as of the rest.
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
    """Rows by their numbers, which stand in the column `key` and grow."""

    def __init__(self, key: str, schema: pa.Schema) -> None:
        self._key = key
        self._table: pa.Table = schema.empty_table()
        self._size_max = _SIZE_MIN

    def __len__(self) -> int:
        return len(self._table)

    def add(self, rows: pa.Table) -> None:
        """Remember more rows, with at least the columns that are asked for."""
        schema = self._table.schema
        self._table = pa.concat_tables([self._table, rows.select(schema.names).cast(schema)])

    def find(self, numbers: Integers) -> pa.Table:
        """The rows of some numbers, in their order."""
        self._table = self._table.combine_chunks()
        places = np.searchsorted(np.asarray(self._table[self._key]), numbers)
        return self._table.take(pa.array(places)).combine_chunks()

    def keep(self, live: Callable[[], Integers], *, at_once: bool = False) -> None:
        """Forget all but those that are `live`, when that is worth its while."""
        if at_once or len(self._table) > self._size_max:
            held = pc.is_in(self._table[self._key], pa.array(live()))
            self._table = self._table.filter(held).combine_chunks()
            self._size_max = 2 * len(self._table) + _SIZE_MIN

    def save(self) -> bytes:
        """Everything, as bytes."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._table.schema) as writer:
            writer.write_table(self._table)
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

    @classmethod
    def load(cls, key: str, saved: bytes) -> Self:
        """What was saved."""
        with pa.ipc.open_stream(saved) as reader:
            table = reader.read_all()
        remembered = cls(key, table.schema)
        remembered._table = table
        return remembered
