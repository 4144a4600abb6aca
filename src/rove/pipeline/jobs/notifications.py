"""The output of the job `match`: a Delta table of notifications, and one of ranked windows' state.

    <out>/match            notifications, for any reader of Delta tables
    <out>/match/_states    one row for each bucket of ranked subscriptions

**Exactly once.** Every commit carries the position of the log up to which it is complete, as the
version of its writer (Delta's `txn`). Two tables mean two commits: notifications first, then
states. If the job crashes between them, the states are one batch behind. That batch is then run
again from the older states, up to exactly the position of the notifications. It finds the same
notifications, which the table already has, and produces the missing states (`MatchOutput.missing`).
So nothing depends on what Spark remembers of its batches.

Ranked notifications carry a *sequence* that grows: one may come long after its publication, so its
position does not give their order. Buckets take turns with the numbers, and the greatest is stored
with the table. Other notifications are ordered by position and have no sequence.

A commit costs 5 ms of CPU and three flushes in a folder, two requests in an object store; both
tables are committed with every batch.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import unquote

import pyarrow as pa

from rove.errors import RoveError
from rove.lake.compaction import compact_where_many
from rove.lake.delta import DeltaTable, MissingTableError
from rove.lake.files import NewFile
from rove.lake.log import NOTHING
from rove.lake.storage import Location, child, clear, folder_of, open_parquet, resolved, shown
from rove.pipeline.ranked.buckets import NOTIFICATIONS

SCHEMA: Final = NOTIFICATIONS.append(pa.field("sequence", pa.int64()))
STATES: Final = pa.schema(
    [("bucket", pa.int32()), ("position", pa.int64()), ("state", pa.binary())]
)
WRITER: Final = "rove-match"
RANKED: Final = "rove-match-ranked"
"""The writer under whose name the greatest sequence is stored."""
STATES_FOLDER: Final = "_states"
"""Delta readers ignore names that begin with _."""
SCRATCH_FOLDER: Final = "_scratch"
TIDY_EVERY_S: Final = 10.0
_KEPT: Final = {
    "delta.deletedFileRetentionDuration": "interval 10 minutes",
    "delta.logRetentionDuration": "interval 5 minutes",
}
"""How long a reader may use files that it listed before they were compacted."""
_STATES_KEPT: Final = {
    "delta.deletedFileRetentionDuration": "interval 1 minutes",
    "delta.logRetentionDuration": "interval 1 minutes",
}
"""Only the next batch reads the states."""


class OutputError(RoveError):
    """The output does not fit the checkpoint, or has an old layout."""


class MatchOutput:
    """The single writer of both tables. Another thread may call `tidy`."""

    def __init__(self, location: Location, start: int = NOTHING) -> None:
        """Open or create the tables; a new one starts after the position `start`."""
        self.uri = resolved(location)
        self._start = start
        _refuse_old_layout(self.uri)
        self._found = DeltaTable.for_writing(self.uri, SCHEMA, (), _KEPT)
        self._states = DeltaTable.for_writing(states_uri(self.uri), STATES, (), _STATES_KEPT)
        self.states: dict[int, str] = {
            bucket: path for path in _paths(self._states) for bucket in _buckets(self.uri, path)
        }
        """The file of each bucket."""
        self._tidied_s = -TIDY_EVERY_S
        self._tidying: tuple[DeltaTable, DeltaTable] | None = None
        clear(self.uri, SCRATCH_FOLDER)

    @property
    def position(self) -> int:
        """Notifications are in the table up to here."""
        return self._number(self._found)

    @property
    def done(self) -> int:
        """Both notifications and states are committed up to here."""
        return self._number(self._states)

    @property
    def sequence(self) -> int:
        """The sequence of the last ranked notification."""
        return self._found.number(RANKED) or 0

    def missing(self, after: int, last: int) -> list[tuple[int, int]]:
        """The ranges of `(after, last]` that are not committed yet, in order."""
        done, found = self.done, self.position
        if after > done:
            raise OutputError(
                f"{shown(self.uri)} does not match the checkpoint, which continues after position "
                f"{after}, but the output is complete only up to {done}; restore the output that "
                "belongs to the checkpoint, or delete the checkpoint to continue from the output"
            )
        borders = [done, *([found] if done < found < last else []), last]
        return list(itertools.pairwise(borders)) if last > done else []

    def commit(
        self,
        last: int,
        found: Sequence[NewFile],
        states: Sequence[tuple[NewFile, Iterable[int]]],
        sequence: int,
    ) -> None:
        """Commit the files of a batch that ends at the position `last`."""
        self._found.commit(WRITER, last, found, numbers={RANKED: sequence})
        replaced = sorted(set(self.states.values())) if states else []
        self._states.commit(WRITER, last, [file for file, _ in states], replaced)
        self.states |= {bucket: file.path for file, buckets in states for bucket in buckets}

    def tidy(self) -> None:
        """Compact small files and delete replaced ones, at most every `TIDY_EVERY_S`."""
        now_s = time.monotonic()
        if now_s - self._tidied_s < TIDY_EVERY_S:
            return
        self._tidied_s = now_s
        if self._tidying is None:
            self._tidying = (DeltaTable(self.uri), DeltaTable(states_uri(self.uri)))
            for table in self._tidying:
                table.vacuum(orphans=True)  # left by killed tasks
        found, states = self._tidying
        for table in self._tidying:
            table.refresh()
        if compact_where_many(found):
            found.vacuum()
        states.vacuum()

    def _number(self, table: DeltaTable) -> int:
        found = table.number(WRITER)
        return self._start if found is None else found


def _refuse_old_layout(uri: str) -> None:
    """Refuse it, since cleaning up would delete its files."""
    folder = folder_of(uri)
    if folder is not None and (folder / "_manifests").exists():
        raise OutputError(f"{folder} was written by an earlier Rove; choose another --out")


def states_uri(uri: str) -> str:
    """The URI of the states that belong to a table of notifications."""
    return child(uri, STATES_FOLDER)


def _paths(table: DeltaTable) -> list[str]:
    return [unquote(path) for path in table.files()["path"].to_pylist()]


def _buckets(uri: str, path: str) -> list[int]:
    with open_parquet(states_uri(uri), path) as file:
        found: list[int] = file.read(["bucket"])["bucket"].to_pylist()
    return found


def found_position(location: Location) -> int:
    """The position up to which notifications are committed; NOTHING if there is no table."""
    with contextlib.suppress(MissingTableError):
        number = DeltaTable(location).number(WRITER)
        return NOTHING if number is None else number
    return NOTHING
