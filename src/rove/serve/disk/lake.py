"""Writes the log of channels to the lake, as rows of one Delta table.

The broker writes rows into the table `log` of the store, in the same commit as everything else. A
thread appends them to the lake and then deletes them from `log`. The Delta commit carries the
position of its last row, so that after a crash in between, rows that are appended again are
recognised by their positions and skipped (`rove.lake.delta`). Rows come from the thread that has
committed them; at a start, or if more wait than fits into memory, they are read from the store.

Payloads are stored as bytes, so that nothing depends on their contents. User properties are a list
of pairs and not a map: a name may occur twice, and tools disagree about such maps.

**Few files.** Small files of one kind, channel and day become larger ones (`rove.lake.compaction`).
Files that were replaced, or removed by retention, stay for `replaced_hours`, so that a running
query can finish.

A row of 256 bytes takes 5 µs, a commit 30 to 40 ms and two flushes for each file, in this thread.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from rove.base.files import FILE_MODES, FOLDER_MODES, Readers, make_folder, set_mode
from rove.broker.storage.log import KIND as SUBSCRIPTIONS
from rove.broker.storage.records import LogRow
from rove.lake.compaction import compact_where_many
from rove.lake.log import (
    NOTHING,
    REPLACED_HOURS,
    SCHEMA,
    WRITER,
    LogFile,
    files_of,
    open_for_writing,
)
from rove.lake.migration import is_old
from rove.lake.storage import LakeError, Location, folder_of, lake_errors, resolved
from rove.serve.disk.store import Batch, LogRows, Store, Writer

RETRY_DELAY_S: Final = 1.0
VACUUM_S: Final = 600.0
MAINTAIN_S: Final = 10.0

_DAY_US: Final = 86_400 * 1_000_000
_BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
_WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""The most that waits in memory; more is read from the store again."""

_log = logging.getLogger(__name__)
_decoder = msgspec.msgpack.Decoder(LogRow)


class LakeAppender:
    """The broker's log as a Delta table. One thread at a time."""

    def __init__(
        self,
        location: Location,
        *,
        rows_per_file: int = 65_536,
        seconds_per_file: float = 1.0,
        keep_days: float | None = None,
        keep_bytes: int | None = None,
        readers: Readers = "owner",
        replaced_hours: int = REPLACED_HOURS,
    ) -> None:
        """Open the table, or make it; LakeError names the fault of the location."""
        self.uri = resolved(location)
        self.readers = readers
        self.rows_per_file = rows_per_file
        self.seconds_per_file = seconds_per_file
        self.keep_days = keep_days
        self.keep_bytes = keep_bytes
        self.files_removed = 0
        """Files, and below bytes, that retention has removed since the start."""
        self.bytes_removed = 0
        self._vacuumed_s = -VACUUM_S
        self._prepare()
        modes = None if readers == "owner" else (FILE_MODES[readers], FOLDER_MODES[readers])
        self._table = open_for_writing(self.uri, replaced_hours, modes)
        self._listed: list[LogFile] | None = None
        """The files; None if they must be listed again."""

    @property
    def last_position(self) -> int:
        """The last position in the lake. A broker that has lost its store must begin above it."""
        found = self._table.number(WRITER)
        return NOTHING if found is None else found

    @property
    def knows_subscriptions(self) -> bool:
        """Whether it has events of subscriptions."""
        return any(file.kind == SUBSCRIPTIONS for file in self._files())

    @property
    def files(self) -> int:
        """The number of files that retention may remove; `size_bytes` is their size."""
        return len(self._removable())

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self._removable())

    def take(self, rows: Sequence[tuple[int, LogRow]]) -> None:
        """Append rows, each once even if some are there already; LakeError if that fails.

        Positions must increase. After an error the rows may or may not be in the lake; appending
        them again, in any batches, is safe.
        """
        before = NOTHING
        for position, _ in rows:
            if position <= before:
                raise ValueError(f"position {position} came after {before}; they must grow")
            before = position
        self._table.refresh_after_failure()
        there = self.last_position
        missing = [row for row in rows if row[0] > there]
        self._listed = None
        for begin in range(0, len(missing), self.rows_per_file):
            some = missing[begin : begin + self.rows_per_file]
            self._table.append(_table_of(some), WRITER, some[-1][0])

    def maintain(self, now_s: float) -> None:
        """Compact files, remove rows by retention, and delete removed files. Events of
        subscriptions stay, because present subscriptions may be years old."""
        if compact_where_many(self._table):
            self._listed = None
        self._retain(now_s)
        if now_s - self._vacuumed_s >= VACUUM_S:
            self._vacuumed_s = now_s
            self._table.vacuum()

    # -- folder and files --------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Make the folder, if it is one, and set permissions."""
        folder = folder_of(self.uri)
        if folder is None:
            return
        with lake_errors(f"cannot use the lake {self.uri}"):
            make_folder(folder, FOLDER_MODES[self.readers])
            _refuse_old_layout(folder)
            if set_mode(folder, FOLDER_MODES[self.readers]):
                _log.warning(
                    "others had different rights to the lake %s; now it can be read by: %s"
                    " (see `readers` of [lake])",
                    folder,
                    self.readers,
                )
            if self.readers != "owner":
                for path in folder.rglob("*"):
                    modes = FOLDER_MODES if path.is_dir() else FILE_MODES
                    set_mode(path, modes[self.readers])

    def _files(self) -> list[LogFile]:
        if self._listed is None:
            self._listed = sorted(files_of(self._table.files()))
        return self._listed

    def _removable(self) -> list[LogFile]:
        return [file for file in self._files() if file.kind != SUBSCRIPTIONS]

    # -- compaction and retention ------------------------------------------------------------------

    def _retain(self, now_s: float) -> None:
        if self.keep_days is not None:
            moment = datetime.fromtimestamp(now_s, UTC) - timedelta(days=self.keep_days)
            first = moment.date().isoformat()  # days that ended before it are too old
            self._remove(
                [file for file in self._removable() if file.day < first], f"day < '{first}'"
            )
        excess_bytes = self.size_bytes - self.keep_bytes if self.keep_bytes is not None else 0
        if excess_bytes > 0:
            # A sixteenth more than necessary, so that it is not done for every file.
            self._remove_oldest(excess_bytes + (self.keep_bytes or 0) // 16)

    def _remove_oldest(self, at_least_bytes: int) -> None:
        oldest: list[LogFile] = []
        for file in sorted(self._removable(), key=lambda file: file.last):
            if sum(each.size_bytes for each in oldest) >= at_least_bytes:
                break
            oldest.append(file)
        self._remove(oldest, f"position <= {oldest[-1].last}")

    def _remove(self, files: Sequence[LogFile], predicate: str) -> None:
        if not files:
            return
        before = self.size_bytes
        self._table.delete(f"kind <> '{SUBSCRIPTIONS}' AND {predicate}")
        self._listed = None
        self.files_removed += len(files)
        self.bytes_removed += before - self.size_bytes


def _refuse_old_layout(folder: Path) -> None:
    if is_old(folder):
        raise LakeError(
            f"the lake {folder} is in the layout of an earlier Rove; "
            f"`rove lake migrate {folder}` makes a Delta table of it, and nothing is lost"
        )


def _table_of(lines: Sequence[tuple[int, LogRow]]) -> Any:
    """The rows as columns. The day is that of `at`, which is rounded to a microsecond."""
    by_field = zip(*[msgspec.structs.astuple(row) for _, row in lines], strict=True)
    field = dict(zip(LogRow.__struct_fields__, by_field, strict=True))
    moments_us = np.rint(np.array(field["at"]) * 1e6).astype(np.int64)
    channels = [channel or None for channel in field["channel"]]
    subscriptions = [
        numbers if kind == "notifications" else None
        for kind, numbers in zip(field["kind"], field["subscriptions"], strict=True)
    ]
    columns: list[Any] = [
        pa.array(field["kind"], pa.string()),
        pa.array(channels, pa.string()),
        pa.array((moments_us // _DAY_US).astype(np.int32), pa.int32()).cast(pa.date32()),
        pa.array([position for position, _ in lines], pa.int64()),
        pa.array(moments_us, pa.timestamp("us", tz="UTC")),
        pa.array(field["topic"], pa.string()),
        pa.array(field["id"], pa.string()),
        pa.array(field["client_id"], pa.string()),
        pa.array(field["payload"], pa.binary()),
        _pairs(field["user"]),
        pa.array(field["qos"], pa.int8()),
        pa.array(field["earlier"], pa.list_(pa.string())),
        pa.array(subscriptions, pa.list_(pa.int64())),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _pairs(users: Sequence[tuple[tuple[str, str], ...]]) -> Any:
    """User properties in flat arrays: a dictionary per pair would cost more than all the rest."""
    ends = [0]
    for user in users:
        ends.append(ends[-1] + len(user))
    names = pa.array([name for user in users for name, _ in user], pa.string())
    values = pa.array([value for user in users for _, value in user], pa.string())
    pairs = pa.StructArray.from_arrays([names, values], ["name", "value"])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pairs)


# --- the thread -------------------------------------------------------------------------------


class LakeWriter:
    """Moves committed rows from the store's `log` into the lake, in a thread.

    It commits every `seconds_per_file`, or sooner if `rows_per_file` wait. Rows that cannot be
    written stay in the store and are tried again; `health` has the reason. Close it before the
    writer.
    """

    def __init__(
        self,
        lake: LakeAppender,
        store: Store,
        writer: Writer,
        *,
        clock: Callable[[], float] = time.time,
        retry_delay_s: float = RETRY_DELAY_S,
    ) -> None:
        self._lake = lake
        self._store = store
        self._writer = writer
        self._clock = clock
        self._retry_delay_s = retry_delay_s
        self._position = NOTHING
        self._waiting: deque[LogRows] = deque()
        """Rows that were committed since `_is_reported` became true."""
        self._waiting_bytes = 0
        self._is_reported = False
        self._lock = threading.Lock()
        self._more = False
        self._maintained_s = -math.inf
        self._trouble: str | None = None
        self._is_closing = threading.Event()
        writer.on_log = self._committed
        self._thread = threading.Thread(target=self._run, name="rove-lake", daemon=True)
        self._thread.start()

    @property
    def position(self) -> int:
        """Rows up to this one are in the lake; -1 before there are any."""
        return self._position

    @property
    def health(self) -> str | None:
        """The present fault; None if there is none."""
        return self._trouble

    def close(self, timeout_s: float) -> bool:
        """Move committed rows and stop; whether all were moved in time."""
        self._is_closing.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive() and self._trouble is None

    def _run(self) -> None:
        is_last = False
        while not is_last or self._more:
            is_last = self._is_closing.is_set()
            begin_s = time.monotonic()
            pause_s = self._lake.seconds_per_file
            try:
                self._more = self._step()
                self._trouble = None
            except Exception as error:  # whatever the error is, the rows stay in the store
                if self._trouble is None:
                    _log.error("%s; its rows stay in the store until then", error)
                self._trouble = str(error)
                self._more, pause_s = False, self._retry_delay_s
                with self._lock:
                    self._forget()
            if not self._more:
                self._is_closing.wait(max(0.0, begin_s + pause_s - time.monotonic()))

    def _step(self) -> bool:
        """Move one batch; whether more waits."""
        batch = self._next()
        if batch.rows:
            self._lake.take([(position, _decoder.decode(row)) for position, row in batch.rows])
            self._position = batch.rows[-1][0]
            self._store.drop_log(self._position)
        now_s = self._clock()
        if now_s - self._maintained_s >= MAINTAIN_S:
            self._maintained_s = now_s
            self._lake.maintain(now_s)
        return batch.more

    def _committed(self, rows: LogRows, is_taken_back: bool) -> None:
        """Rows were committed; called by the store's thread."""
        with self._lock:
            if is_taken_back:
                self._forget()  # they may be in memory
            if not self._is_reported:
                return
            self._waiting.append(rows)
            self._waiting_bytes += _size_bytes(rows)
            if self._waiting_bytes > _WAITING_BYTES_MAX:
                self._forget()

    def _forget(self) -> None:
        """Drop rows in memory; from now on they are read from the store."""
        self._is_reported = False
        self._waiting.clear()
        self._waiting_bytes = 0

    def _next(self) -> Batch:
        """The next rows, as many as go into one commit."""
        with self._lock:
            if self._is_reported:
                return self._reported()
            # Later commits are reported; earlier rows are in the store, and some are both.
            self._is_reported = True
        batch = self._store.log_above(
            self._position, rows_max=self._lake.rows_per_file, bytes_max=_BATCH_BYTES_MAX
        )
        if batch.more:
            with self._lock:
                self._forget()
        return batch

    def _reported(self) -> Batch:
        rows: LogRows = []
        while self._waiting and len(rows) < self._lake.rows_per_file:
            some = self._waiting.popleft()
            self._waiting_bytes -= _size_bytes(some)
            rows += [row for row in some if row[0] > self._position]
        return Batch(rows, more=bool(self._waiting))


def _size_bytes(rows: LogRows) -> int:
    return sum(len(row) for _, row in rows)
