"""The journal: tables of rows by key, and the changes that wait to be committed.

The broker writes into a `Changes` as it decides; the shell takes it, commits it as one
transaction and reports that. Several changes of one row between two commits become one, and a row
that is put and deleted between two commits never reaches the disk: a message that is delivered and
acknowledged in time costs no I/O.

A row is bytes (msgpack of a struct, see `rove.broker.storage.records`), a key is an integer or a
string, the same kind for a whole table. Putting a row costs a dictionary entry.

With a list for undoing, each change appends the call that would undo it (see `rove.broker.steps`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

Key = int | str

INTEGER_TABLES: Final = ("publications", "queue", "subscriptions", "received", "log", "cases")
TEXT_TABLES: Final = ("sessions", "retained", "valid", "feeds", "agents")
TABLES: Final = INTEGER_TABLES + TEXT_TABLES

KEY_BYTES: Final = 128
"""The size of a key and its place in a dictionary, roughly."""


class TableChanges:
    """The pending changes of one table: only the last of each key."""

    __slots__ = ("deletes", "puts")

    def __init__(self) -> None:
        self.puts: dict[Key, bytes] = {}
        self.deletes: set[Key] = set()


class Changes:
    """Changes since the last commit; `tables` holds only those that were touched."""

    __slots__ = ("_undo", "tables")

    def __init__(self, undo: list[tuple[Any, ...]] | None = None) -> None:
        self._undo = undo
        self.tables: dict[str, TableChanges] = {}

    def __bool__(self) -> bool:
        if not self.tables:
            return False
        return any(table.puts or table.deletes for table in self.tables.values())

    def put(self, table: str, key: Key, row: bytes) -> None:
        """Put the row of a key."""
        # A pending deletion stays: it is done first, and `drop_new` may remove the row again.
        self._before(table, key).puts[key] = row

    def delete(self, table: str, key: Key) -> None:
        """Delete the row of a key."""
        found = self._before(table, key)
        found.puts.pop(key, None)
        found.deletes.add(key)

    def drop_new(self, table: str, key: Key) -> None:
        """Delete a row that was put only once: if the put is still pending, both are dropped."""
        found = self._before(table, key)
        if found.puts.pop(key, None) is None:
            found.deletes.add(key)

    def merge(self, later: Changes) -> None:
        """Merge later changes into these; `later` stays as it is.

        Committing the result has the same effect as committing one after the other. A row that is
        put here and deleted there is deleted, not dropped: what looks new here may replace a row on
        disk, and a commit that failed may still have reached the disk.
        """
        for name, table in later.tables.items():
            found = self._table(name)
            if found.puts:
                for key in table.deletes:
                    found.puts.pop(key, None)
            found.deletes |= table.deletes
            found.puts.update(table.puts)

    @property
    def size_bytes(self) -> int:
        """Their approximate size in memory: the rows, and a little for each key."""
        return sum(
            sum(map(len, table.puts.values())) + KEY_BYTES * (len(table.puts) + len(table.deletes))
            for table in self.tables.values()
        )

    def _before(self, name: str, key: Key) -> TableChanges:
        """The table, after saving its entry of a key for undoing."""
        table = self._table(name)
        if self._undo is not None:
            self._undo.append((_put_back, table, key, table.puts.get(key), key in table.deletes))
        return table

    def _table(self, name: str) -> TableChanges:
        table = self.tables.get(name)
        if table is None:
            table = self.tables[name] = TableChanges()
        return table

    def rows(self) -> Iterable[tuple[str, Key, bytes | None]]:
        """Every change, for tests and for stores without tables; None is a deletion."""
        for name, table in self.tables.items():
            for key in table.deletes - table.puts.keys():
                yield name, key, None
            for key, row in table.puts.items():
                yield name, key, row


def _put_back(table: TableChanges, key: Key, row: bytes | None, is_deleted: bool) -> None:
    """Restore the entry of a key in a table."""
    if row is None:
        table.puts.pop(key, None)
    else:
        table.puts[key] = row
    if is_deleted:
        table.deletes.add(key)
    else:
        table.deletes.discard(key)
