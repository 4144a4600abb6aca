"""What has to survive: tables of rows by key, and the changes that wait to be committed.

The broker writes into a `Changes` as it decides; the shell takes it, commits it as one
transaction and says so. Several changes of one row between two commits become one, and what is
put and deleted between two commits never reaches the disk: a message that is delivered and
acknowledged in time costs no I/O.

A row is bytes (msgpack of a struct, see `rove.broker.storage.records`), a key is an integer or a
text, the same kind for a whole table. Putting a row costs a dictionary entry.

Given a list, each change leaves there what would undo it (see `rove.broker.steps`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

Key = int | str

INTEGER_TABLES: Final = ("publications", "queue", "subscriptions", "received", "log", "cases")
TEXT_TABLES: Final = ("sessions", "retained", "valid", "feeds", "agents")
TABLES: Final = INTEGER_TABLES + TEXT_TABLES

KEY_BYTES: Final = 128
"""Of a key and its place in a dictionary, roughly."""


class TableChanges:
    """The waiting changes of one table: of each key, only what came last."""

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
        """Let the row of that key be this one."""
        # A deletion that waits stays: it is done first, and `drop_new` may take the row back.
        self._before(table, key).puts[key] = row

    def delete(self, table: str, key: Key) -> None:
        """Let there be no row of that key."""
        found = self._before(table, key)
        found.puts.pop(key, None)
        found.deletes.add(key)

    def drop_new(self, table: str, key: Key) -> None:
        """The same for a row that was put once only: if that still waits, both are forgotten."""
        found = self._before(table, key)
        if found.puts.pop(key, None) is None:
            found.deletes.add(key)

    def merge(self, later: Changes) -> None:
        """Let these be the changes of both, one after the other; `later` stays as it is.

        Committing the merged changes leaves what committing one after the other would leave. A
        row that is put here and deleted there is deleted, not forgotten: what looks new here may
        replace a row on disk, and a commit that failed may still have reached it.
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
        """About what these take in memory: the rows, and a little for each key."""
        return sum(
            sum(map(len, table.puts.values())) + KEY_BYTES * (len(table.puts) + len(table.deletes))
            for table in self.tables.values()
        )

    def _before(self, name: str, key: Key) -> TableChanges:
        """The table, before what it says of a key is changed."""
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
    """Let a table say of a key again what it said before."""
    if row is None:
        table.puts.pop(key, None)
    else:
        table.puts[key] = row
    if is_deleted:
        table.deletes.add(key)
    else:
        table.deletes.discard(key)
