"""The store: rows in SQLite that survive a crash, and a thread that commits them in groups.

A commit costs one flush of the disk, however large it is. So changes that arrive during a commit
are merged and committed together by the next one: a single change does not wait, and under load the
groups grow by themselves. With SQLite's write-ahead log a group is one sequential write. Its
contents are moved into the database outside the commit path, and its space is reused instead of
freed, which makes small commits 1.6 times as fast.

A statement takes a whole group of rows. One statement per row (`executemany`) is as fast while the
process is idle, but it releases the interpreter's lock at every statement, and a busy event loop
returns the lock only 5 ms later: groups of a hundred rows then reached 580 rows/s, and more than
ten times that with one statement per group.

Rows of the log, which wait here for the lake, are one row of SQLite per group: they arrive in the
order of their positions and leave together. A row of 256 bytes takes 2 µs to store and delete; as
separate rows they took 6.

Groups are numbered, and the number of the last one is also in a small file beside the database, so
that a database that lost some of them is noticed (see `rove.serve.disk.commit_record`).

Texts are keys of tables WITHOUT ROWID: as fast to insert into, twice as fast to delete from.
Other embedded stores were considered: in groups the flush is what costs, and it is the same.

On two cores with a virtual disk, rows of 1 KB, all flushed (`rove.bench.broker.store.run`):

    one row a commit                                     4,100 rows/s
    a hundred, a thousand rows a commit        143,000, 250,000 rows/s
    the same beside a thread that never rests     15,000, 61,000 rows/s
    fifty submitters, each waiting for its own          75,000 rows/s
    a queue of a million rows read at the start              0.57 s
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple, Self, get_args

import msgspec

from rove.base.files import FOLDER_MODES, remove_unfinished
from rove.broker.storage.journal import TABLES, Changes, Key
from rove.serve.disk.commit_record import Commits, Mark, new_history
from rove.serve.disk.data_folder import (
    FILE_NAME,
    FOREIGN_WAIT_S,
    PUT_MARK,
    StoreError,
    checked_mark,
    connect,
    locked,
    make_file,
    make_folder,
    make_private,
    make_tables,
    mark_in,
    rows_in,
    unreadable,
    unusable,
    unwritable,
)

Durability = Literal["full", "process", "none"]
"""What a commit survives: everything; a crash of the process; nothing (it is in memory)."""
Done = Callable[[BaseException | None], None]
"""Called from the writer's thread when changes are on disk, or with the error if they never
will."""

CHECKPOINT_BYTES: Final = 8 * 1024 * 1024
"""The estimated size of the write-ahead log at which it is moved into the database."""
RETRY_DELAY_S: Final = 0.5
RECORD_FLUSH_S: Final = 1.0
"""How often the record of commits is flushed."""

_SYNCHRONOUS: Final[dict[Durability, str]] = {"full": "FULL", "process": "NORMAL", "none": "OFF"}
_STATEMENT_ROWS_MAX: Final = 2_000
"""Two parameters each; SQLite allows 32,766 in one statement."""
LOG_GROUP_BYTES: Final = 1024 * 1024
"""The approximate size of a group of the log."""
_GROUP: Final = b"\0"
"""The first byte of a group of the log. A single row, as in schema 1, is an array."""
_CHANGE_BYTES: Final = 256
"""The overhead of a changed row in the write-ahead log, on average over all tables."""
_COMMIT_BYTES: Final = 16 * 1024
"""The overhead of a commit in the write-ahead log: a few pages of its own."""
_CACHE_KIB: Final = 64 * 1024

_log = logging.getLogger(__name__)


LogRows = list[tuple[int, bytes]]
"""Rows of the log by their positions, in order."""
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(LogRows)


class Batch(NamedTuple):
    """Some rows, and whether there are more."""

    rows: LogRows
    more: bool


class Store:
    """One data folder, held by one process. `commit`, `log_above` and `drop_log` may be called by
    threads."""

    def __init__(
        self,
        folder: Path,
        durability: Durability,
        lock: sqlite3.Connection,
        mark: Mark,
    ) -> None:
        """Use `Store.open`."""
        self.folder = folder
        self.mark = mark
        """The last group that was committed."""
        self.durability = durability
        self._open = [lock]
        """Connections to close, the lock last."""
        self._file = folder / FILE_NAME
        self._commit_lock = self._read_lock = threading.Lock()
        self._log_bytes = 0
        self._commits: Commits | None = None
        try:
            self._connection = self._reader = self._keeper = self._connected()
            make_tables(self._connection)
            if durability != "none":
                self._reader, self._keeper = self._connected(), self._connected()
                self._read_lock = threading.Lock()
                self._commits = self._begin_record()
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(
        cls,
        folder: Path,
        durability: Durability = "full",
        *,
        accept_loss: bool = False,
        mode: int = FOLDER_MODES["owner"],
    ) -> Self:
        """Lock the folder, and make it if missing; StoreError if it cannot be used.

        A second process, or a second store in this one, is refused. With `none` the rows are in
        memory, but the folder is locked all the same. A database that has lost acknowledged
        changes is refused and left as it is, unless `accept_loss`. The files are private; `mode`
        has the permissions of the folder.
        """
        if durability not in get_args(Durability):
            choices = ", ".join(get_args(Durability))
            raise StoreError(f"there is no durability {durability!r}; choose from {choices}")
        make_folder(folder)
        lock = locked(folder)
        file = folder / FILE_NAME
        try:
            remove_unfinished(folder)
            mark = new_history()
            if durability != "none":
                mark = checked_mark(file, accept_loss)
                make_file(file)
            make_private(folder, mode)
            return cls(folder, durability, lock, mark)
        except sqlite3.Error as error:
            lock.close()
            raise StoreError(unreadable(file, error)) from error
        except OSError as error:
            lock.close()
            raise StoreError(unusable(folder, error)) from error
        except BaseException:
            lock.close()
            raise

    def load(self, table: str) -> Iterator[tuple[Key, bytes]]:
        """All rows of a table in the order of their keys, for the start."""
        return rows_in(self._reader, self._file, _known(table))

    def log_above(self, position: int, *, rows_max: int, bytes_max: int) -> Batch:
        """The next rows of the log: whole groups, at least one, then within the limits."""
        found: LogRows = []
        size_bytes = 0
        wanted = "SELECT key, row FROM log WHERE key > ? ORDER BY key"
        try:
            with self._read_lock, contextlib.closing(self._reader.cursor()) as groups:
                for key, group in groups.execute(wanted, (position,)):
                    # A repeated commit may have left rows in two groups.
                    last = found[-1][0] if found else position
                    rows = [row for row in log_rows(key, group) if row[0] > last]
                    size_bytes += len(group)
                    if found and (len(found) + len(rows) > rows_max or size_bytes > bytes_max):
                        return Batch(found, more=True)
                    found += rows
        except sqlite3.Error as error:
            raise StoreError(unreadable(self._file, error)) from error
        return Batch(found, more=False)

    def drop_log(self, up_to: int) -> None:
        """Delete the groups of the log that end at a position or before it."""
        with self._commit_lock:
            try:
                self._connection.execute("DELETE FROM log WHERE key <= ?", (up_to,))
            except sqlite3.Error as error:
                raise StoreError(unwritable(self._file, error)) from error

    def commit(self, changes: Changes) -> None:
        """Commit all of these changes or, with a StoreError, none of them."""
        with self._commit_lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                mark = self.mark.next(time.time_ns() // 1_000)
                self._connection.execute(PUT_MARK, mark)
                for name, table in changes.tables.items():
                    deletes, puts = list(table.deletes - table.puts.keys()), table.puts.items()
                    if name == "log":
                        self._take_back(deletes)
                        self._put(name, list(_log_groups(sorted(puts))))
                    else:
                        self._delete(_known(name), deletes)
                        self._put(name, list(puts))
                self._connection.execute("COMMIT")
            except BaseException as error:
                self._roll_back()
                if isinstance(error, sqlite3.Error):
                    raise StoreError(unwritable(self._file, error)) from error
                raise
            self._record(mark)
            self._log_bytes += _logged_bytes(changes)

    def _begin_record(self) -> Commits:
        """Make the database and the record agree; a new history is written to the database
        first."""
        is_new = mark_in(self._connection) != self.mark
        if is_new:
            self._connection.execute(PUT_MARK, self.mark)
        return Commits(self.folder, self.mark, is_flushed=self.durability == "full")

    def _record(self, mark: Mark) -> None:
        """Record a commit; its changes may be acknowledged only after this."""
        self.mark = mark
        if self._commits is not None:
            try:
                self._commits.write(mark)
            except OSError as error:  # the next group commits it again, which does no harm
                raise StoreError(unusable(self.folder, error)) from error

    def flush_record(self) -> None:
        """Flush the record of commits, so that it survives a power failure too."""
        if self._commits is not None:
            try:
                self._commits.flush()
            except OSError as error:
                raise StoreError(unusable(self.folder, error)) from error

    def _delete(self, table: str, keys: list[Key]) -> None:
        for begin in range(0, len(keys), _STATEMENT_ROWS_MAX):
            some = keys[begin : begin + _STATEMENT_ROWS_MAX]
            marks = ",".join("?" * len(some))
            self._connection.execute(f"DELETE FROM {table} WHERE key IN ({marks})", some)

    def _put(self, table: str, rows: list[tuple[Key, bytes]]) -> None:
        for begin in range(0, len(rows), _STATEMENT_ROWS_MAX):
            some = rows[begin : begin + _STATEMENT_ROWS_MAX]
            marks = ",".join(["(?,?)"] * len(some))
            self._connection.execute(
                f"INSERT OR REPLACE INTO {table} VALUES {marks}",
                list(itertools.chain.from_iterable(some)),
            )

    def _take_back(self, positions: list[Key]) -> None:
        """Remove single rows from the log; this is rare."""
        for position in positions:
            found = self._connection.execute(
                "SELECT key, row FROM log WHERE key >= ? ORDER BY key LIMIT 1", (position,)
            ).fetchall()
            for key, group in found:
                rows = [row for row in log_rows(key, group) if row[0] != position]
                self._put("log", [(key, _log_group(rows))])

    def _roll_back(self) -> None:
        if self._connection.in_transaction:  # SQLite itself rolls back after some errors
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")

    @property
    def wants_checkpoint(self) -> bool:
        return self.durability != "none" and self._log_bytes >= CHECKPOINT_BYTES

    def checkpoint(self) -> None:
        """Move the write-ahead log into the database, so that its space is reused.

        Most of it is moved while commits continue. That alone would never end, because the log
        starts anew only when it is empty. So the little that was added meanwhile is moved while
        commits wait.
        """
        move = "PRAGMA wal_checkpoint(PASSIVE)"
        try:
            self._keeper.execute(move).fetchall()
            with self._commit_lock:
                self._keeper.execute(move).fetchall()
                self._log_bytes = 0
        except sqlite3.Error as error:
            raise StoreError(unwritable(self._file, error)) from error

    def close(self) -> None:
        """Release the folder. Committed changes are safe, closed or not."""
        with self._commit_lock:
            if self._commits is not None:
                with contextlib.suppress(OSError):
                    self._commits.close()
                self._commits = None
            for connection in reversed(self._open):
                with contextlib.suppress(sqlite3.Error):
                    connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connected(self) -> sqlite3.Connection:
        """A connection with the settings of this store."""
        in_memory = self.durability == "none"
        connection = connect(":memory:" if in_memory else self._file)
        self._open.append(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[self.durability]}")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        return connection


def _known(table: str) -> str:
    """A name that may go into a statement: one of ours."""
    assert table in TABLES, table
    return table


def _logged_bytes(changes: Changes) -> int:
    """About what a commit adds to the write-ahead log."""
    rows = sum(len(table.puts) + len(table.deletes) for table in changes.tables.values())
    sizes = sum(sum(map(len, table.puts.values())) for table in changes.tables.values())
    return _COMMIT_BYTES + _CHANGE_BYTES * rows + sizes


def log_rows(key: int, group: bytes) -> LogRows:
    """The rows of a group of the log."""
    if group.startswith(_GROUP):
        return _DECODER.decode(memoryview(group)[len(_GROUP) :])
    return [(key, group)]


def _log_group(rows: Sequence[tuple[Key, bytes]]) -> bytes:
    return _GROUP + _ENCODER.encode(rows)


def _log_groups(rows: Sequence[tuple[Key, bytes]]) -> Iterator[tuple[Key, bytes]]:
    """Groups of rows of the log, each with its last position."""
    begin = size_bytes = 0
    for number, (position, row) in enumerate(rows, 1):
        size_bytes += len(row)
        if size_bytes >= LOG_GROUP_BYTES or number == len(rows):
            yield position, _log_group(rows[begin:number])
            begin, size_bytes = number, 0


# --- the thread that commits ------------------------------------------------------------------


class _Group:
    """Changes that are committed together, and callbacks."""

    __slots__ = ("changes", "done", "size_bytes")

    def __init__(self, changes: Changes, done: Done) -> None:
        self.changes = changes
        self.done = [done]
        self.size_bytes = changes.size_bytes

    def merge(self, later: _Group) -> None:
        self.changes.merge(later.changes)
        self.done += later.done
        self.size_bytes += later.size_bytes

    def finish(self, error: BaseException | None) -> None:
        for done in self.done:
            try:
                done(error)
            except Exception:  # a fault of a callback must not stop the thread
                _log.exception("a callback of a commit failed")


class Writer:
    """Commits submitted changes in groups, in a thread. It never drops any while it runs.

    A commit that fails (the disk is full) is repeated until it succeeds, together with later
    changes; `health` has the fault, and no callback is called meanwhile.
    """

    def __init__(self, store: Store, *, retry_delay_s: float = RETRY_DELAY_S) -> None:
        self.on_log: Callable[[LogRows, bool], None] | None = None
        """Called from the writer's thread with committed rows of the log, and whether others were
        removed."""
        self._store = store
        self._retry_delay_s = retry_delay_s
        self._wake = threading.Condition()
        self._waiting: list[_Group] = []
        self._backlog_bytes = 0
        self._is_closing = False
        self._is_abandoned = False
        self._commit_trouble: str | None = None
        self._checkpoint_trouble: str | None = None
        self._checkpoint_due = threading.Event()
        self._committer = threading.Thread(target=self._run, name="rove-store", daemon=True)
        self._keeper = threading.Thread(target=self._keep_log_short, daemon=True)
        self._committer.start()
        self._keeper.start()

    def submit(self, changes: Changes, done: Done) -> None:
        """Commit changes after all earlier ones; the caller must not touch them any more.

        Never waits. `done` is called from the writer's thread, in the order of submission.
        """
        group = _Group(changes, done)
        with self._wake:
            if self._is_closing:
                raise StoreError(f"the store in {self._store.folder} is closed")
            self._waiting.append(group)
            self._backlog_bytes += group.size_bytes
            self._wake.notify_all()

    @property
    def backlog_bytes(self) -> int:
        """The size of submitted changes that are not on disk yet."""
        return self._backlog_bytes

    @property
    def health(self) -> str | None:
        """The present fault; None if there is none."""
        return self._commit_trouble or self._checkpoint_trouble

    def close(self, timeout_s: float) -> bool:
        """Commit the rest and stop; whether all of it was committed in time.

        Callbacks of changes that were not get an error. The store stays open.
        """
        with self._wake:
            self._is_closing = True
            self._wake.notify_all()
        self._committer.join(timeout_s)
        with self._wake:
            self._is_abandoned = True
            self._wake.notify_all()
        self._committer.join(FOREIGN_WAIT_S)
        self._checkpoint_due.set()
        self._keeper.join(FOREIGN_WAIT_S)
        return self._backlog_bytes == 0

    def _run(self) -> None:
        while (group := self._next_group()) is not None:
            self._commit(group)
        for group in self._waiting:
            group.finish(StoreError(f"stopped before it was kept: {self.health}"))

    def _next_group(self) -> _Group | None:
        """All waiting changes as one group; None at the end."""
        with self._wake:
            self._wake.wait_for(lambda: self._waiting or self._is_closing)
            if self._is_abandoned or not self._waiting:
                return None
            waiting, self._waiting = self._waiting, []
        group, *later = waiting
        for each in later:
            group.merge(each)
        return group

    def _commit(self, group: _Group) -> None:
        try:
            if group.changes:
                self._store.commit(group.changes)
        except Exception as error:  # whatever the error is, the changes must not be dropped
            self._hold(group, error)
            return
        if self._commit_trouble is not None:
            _log.warning("the disk can be written again")
        self._commit_trouble = None
        log = group.changes.tables.get("log")
        if self.on_log is not None and log is not None:
            rows = [(int(position), row) for position, row in sorted(log.puts.items())]
            self.on_log(rows, bool(log.deletes))
        with self._wake:
            self._backlog_bytes -= group.size_bytes
        group.finish(None)
        if self._store.wants_checkpoint:
            self._checkpoint_due.set()

    def _hold(self, group: _Group, error: Exception) -> None:
        """Put back a group that could not be committed, and wait before the next attempt."""
        if self._commit_trouble is None:
            _log.error("%s; nothing is acknowledged until then", error)
        self._commit_trouble = str(error)
        with self._wake:
            self._waiting.insert(0, group)
            self._wake.wait_for(lambda: self._is_abandoned, self._retry_delay_s)

    def _keep_log_short(self) -> None:
        while True:
            is_due = self._checkpoint_due.wait(RECORD_FLUSH_S)
            if self._is_abandoned:
                return
            self._checkpoint_due.clear()
            try:
                self._store.flush_record()
                if is_due:
                    self._store.checkpoint()
                self._checkpoint_trouble = None
            except StoreError as error:
                self._checkpoint_trouble = str(error)
