"""The manifest of a table: which of its files count, and what of the log is in them.

    <table>/_manifest/0000000041.json    what changed
    <table>/_manifest/0000000064.json    every 32nd tells everything, so that few have to be read

Tasks write files under names that nobody else uses. What of them is the table, one commit says:
files added and removed, the position that the log was read to, the schema, what could not be
read. A commit appears whole or not at all, and only one can have a number: it is written aside,
flushed and linked to its name, which fails if somebody was faster. Then the newest state is read
again, and the change is made upon that if it still fits (compaction beside ingestion) or refused
(two ingestions of the same stretch). So each stretch of the log is in the table once, whoever is
killed and when, and a reader of a state sees all of a change or nothing of it.

Files are never renamed or written again. Those that nothing names are removed by
`rove.pipeline.compacting`, after a time in which readers can finish.

Reading a state costs one small file for each of up to 32 commits and 2 µs for each file of the
table; a commit costs two flushes of the disk.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from rove.errors import RoveError
from rove.lake.storage import sync
from rove.pipeline.disk import told

NOTHING: Final = -1
"""Below every position, and the version of a table without commits."""
SNAPSHOT_EVERY: Final = 32
FOLDER: Final = "_manifest"
READ_ATTEMPTS: Final = 3
_NAME: Final = re.compile(r"(\d{10})\.json")

FileKind: TypeAlias = Literal["data", "rejected", "quality"]


class ManifestError(RoveError):
    """The manifest of a table cannot be read or written, or somebody else was faster."""


class FileEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of the table and what is known of its rows without opening it."""

    path: str
    """Relative to the folder of the table."""
    kind: FileKind
    rows: int
    size_bytes: int
    day: str = ""
    cell: str = ""
    first: int = NOTHING
    """Positions; -1 where rows have none."""
    last: int = NOTHING
    at_min_us: int = 0
    at_max_us: int = 0
    box: tuple[float, float, float, float] | None = None
    """Least and greatest latitude, least and greatest longitude of its rows."""


class Skipped(msgspec.Struct, frozen=True):
    """A file of the lake that could not be read; it is tried again by every ingestion."""

    path: str
    first: int
    last: int
    after: int
    """Its rows above this position …"""
    up_to: int
    """… and up to this one are not in the table."""
    why: str


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that the manifest says at one moment."""

    version: int = NOTHING
    position: int = NOTHING
    """The log is in the table up to here, but for what is skipped."""
    newest_at_us: int | None = None
    """The latest `at` of all rows that were kept."""
    files: dict[str, FileEntry] = {}
    skipped: tuple[Skipped, ...] = ()
    sources: dict[str, str] = {}
    """What came from outside, by name; the value tells whether it is still the same."""
    counts: dict[str, int] = {}
    """Rows since the beginning: `in`, `out` and, by reason, rejected."""
    schema: dict[str, Any] | None = None
    """Of the table, as plain values; here nobody looks into it."""


class Change(msgspec.Struct, omit_defaults=True):
    """What one commit does to a state."""

    position: int | None = None
    add: tuple[FileEntry, ...] = ()
    remove: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] | None = None
    sources: dict[str, str] = {}
    counts: dict[str, int] = {}
    schema: dict[str, Any] | None = None
    newest_at_us: int | None = None
    at: float = 0.0
    """When it was made."""


class Written(msgspec.Struct, omit_defaults=True):
    """The content of one file: the change, and every so often the state after it."""

    change: Change
    state: State | None = None


def changed(state: State, change: Change, version: int) -> State:
    """The state after a change."""
    files = dict(state.files)
    for path in change.remove:
        del files[path]
    files.update((entry.path, entry) for entry in change.add)
    counts = dict(state.counts)
    for name, rows in change.counts.items():
        counts[name] = counts.get(name, 0) + rows
    moments = [at for at in (state.newest_at_us, change.newest_at_us) if at is not None]
    return State(
        version=version,
        position=state.position if change.position is None else change.position,
        newest_at_us=max(moments, default=None),
        files=files,
        skipped=state.skipped if change.skipped is None else change.skipped,
        sources=state.sources | change.sources,
        counts=counts,
        schema=state.schema if change.schema is None else change.schema,
    )


class Log:
    """The commits of one table."""

    def __init__(self, table: Path) -> None:
        self.table = table
        self.folder = table / FOLDER

    def state(self) -> State:
        """What counts now."""
        for _ in range(READ_ATTEMPTS):
            with contextlib.suppress(FileNotFoundError):  # removed since it was listed
                return self._folded(self.versions())
        raise ManifestError(f"the manifest {self.folder} changes faster than it can be read")

    def versions(self) -> list[int]:
        """The numbers of the commits that are there, in order."""
        try:
            names = os.listdir(self.folder)  # noqa: PTH208 - names, and no objects, of many files
        except FileNotFoundError:
            return []
        return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))

    def commit(self, state: State, change: Change, still_fits: Callable[[State], bool]) -> State:
        """Make a change to the newest state; ManifestError if it does not fit to that any more.

        `state` is what the change was made for; `still_fits` is asked about newer ones.
        """
        change.at = time.time()
        self.folder.mkdir(parents=True, exist_ok=True)
        while True:
            after = changed(state, change, state.version + 1)
            if self._put(after, change):
                return after
            state = self.state()
            if not still_fits(state):
                raise ManifestError(
                    f"somebody else has changed {self.table} in the same place; run it again"
                )

    def path_of(self, version: int) -> Path:
        return self.folder / f"{version:010d}.json"

    def _folded(self, versions: list[int]) -> State:
        changes: list[tuple[int, Change]] = []
        state = State()
        for version in reversed(versions):
            written = self.read(version)
            if written.state is not None:
                state = written.state
                break
            changes.append((version, written.change))
        for version, change in reversed(changes):
            if version != state.version + 1:
                raise ManifestError(f"{self.path_of(state.version + 1)} is missing")
            state = changed(state, change, version)
        return state

    def read(self, version: int) -> Written:
        """One commit."""
        path = self.path_of(version)
        try:
            return msgspec.json.decode(path.read_bytes(), type=Written)
        except msgspec.DecodeError as error:
            raise ManifestError(f"cannot read the manifest {path}: {error}") from error

    def _put(self, after: State, change: Change) -> bool:
        """Whether this commit got its number."""
        path = self.path_of(after.version)
        whole = after if after.version % SNAPSHOT_EVERY == 0 else None
        unfinished = path.with_name(f".{uuid.uuid4().hex}.tmp")
        with told(f"cannot write the manifest {path}", ManifestError):
            try:
                unfinished.write_bytes(msgspec.json.encode(Written(change, whole)))
                sync(unfinished)
                path.hardlink_to(unfinished)
            except FileExistsError:
                return False
            finally:
                unfinished.unlink(missing_ok=True)
            sync(self.folder)
        return True
