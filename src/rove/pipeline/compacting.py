"""Few large files instead of many small ones, while others read and write.

An ingestion every minute leaves a small file for each cell and minute. Here the small files of a
day and a cell become one, sorted by time, and the manifest replaces them in one commit
(`rove.pipeline.commits`). A reader sees the old files or the new ones, never a row twice or not at
all. The old files stay for a while, for those who have begun to read them; then `clean` removes
them, and what killed tasks have left behind.

A day is put together whole when a later one has begun; of the newest day only what has come to
many files, so that a row is written a few times and not once for every ingestion.

The lake is left alone. Its folders are the broker's, which counts on its own names there, and
retention keeps them short; the tables are what its small files are compacted into.

Costs some 0.5 µs a row on one core.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rove.errors import RoveError
from rove.lake.storage import sync
from rove.pipeline.commits import SNAPSHOT_EVERY, Change, FileEntry, FileKind, Log, State
from rove.pipeline.tables import Table, TableSchema
from rove.pipeline.workers import run_each
from rove.pipeline.writing import new_name, write_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_BYTES: Final = 32 * 1024 * 1024
"""Files from this size on are left as they are."""
ROWS_MAX: Final = 1_000_000
"""Of one file that is put together."""
NEWEST_DAY_FILES_MIN: Final = 8
"""So many small files of one cell of the newest day are worth the work."""
RETIRED_S: Final = 3_600.0
"""How long files stay that were put together, for readers that have begun."""
ORPHAN_S: Final = 86_400.0
"""How old a file must be that nobody ever named; longer than any round of an ingestion takes."""

Group: TypeAlias = list[FileEntry]


class CompactError(RoveError):
    """Files of a table cannot be put together."""


class CompactReport(msgspec.Struct):
    """What a compaction has done."""

    files_before: int = 0
    """That were put together …"""
    files_after: int = 0
    """… and what they have become."""
    rows: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    files_removed: int = 0
    """From the disk: of earlier compactions, and left by the killed."""
    seconds: float = 0.0


class Merge(msgspec.Struct):
    """Files that are to become one."""

    table: Path
    schema: TableSchema
    group: list[FileEntry]


class Merged(msgspec.Struct):
    """The one that they have become."""

    entry: FileEntry


def compact(
    spark: SparkSession | None, tables: Path, channel: str, *, retired_s: float = RETIRED_S
) -> CompactReport:
    """Put small files of a table together, and remove what nobody names any more."""
    begin_s = time.monotonic()
    table = Table(tables, channel)
    state = table.state()
    schema = table.schema(state)
    groups = list(small_groups(state))
    merges = [Merge(table.folder, schema, group) for group in groups]
    merged = [each.entry for each in run_each(spark, merge, merges, Merged)]
    replaced = {entry.path for group in groups for entry in group}
    if groups:
        table.log.commit(
            state,
            Change(add=tuple(merged), remove=tuple(sorted(replaced))),
            lambda now: replaced <= now.files.keys(),
        )
    return CompactReport(
        files_before=len(replaced),
        files_after=len(merged),
        rows=sum(entry.rows for entry in merged),
        bytes_before=sum(entry.size_bytes for group in groups for entry in group),
        bytes_after=sum(entry.size_bytes for entry in merged),
        files_removed=clean(table, retired_s=retired_s),
        seconds=time.monotonic() - begin_s,
    )


def small_groups(state: State) -> Iterator[Group]:
    """Small files that are worth to be one, by kind, day and cell."""
    small = [entry for entry in state.files.values() if entry.size_bytes < SMALL_BYTES]
    newest_day = max((entry.day for entry in state.files.values()), default="")
    for (_, day, _), found in itertools.groupby(sorted(small, key=_place), key=_place):
        entries = sorted(found, key=lambda entry: (entry.at_min_us, entry.path))
        # What is rejected and counted has no day: there is no end to it, as on the newest day.
        is_open = day in ("", newest_day)
        for group in _bounded(entries):
            if len(group) >= (NEWEST_DAY_FILES_MIN if is_open else 2):
                yield group


def _place(entry: FileEntry) -> tuple[FileKind, str, str]:
    return entry.kind, entry.day, entry.cell


def _bounded(entries: Sequence[FileEntry]) -> Iterator[Group]:
    group: Group = []
    rows = 0
    for entry in entries:
        if group and rows + entry.rows > ROWS_MAX:
            yield group
            group, rows = [], 0
        group.append(entry)
        rows += entry.rows
    if group:
        yield group


def merge(work: Merge) -> Merged:
    """Write the rows of some files as one; the task of a worker."""
    found = [_read(work.table / entry.path) for entry in work.group]
    table = pa.concat_tables(found, promote_options="default").combine_chunks()
    first = work.group[0]
    if first.kind == "data":
        wanted = [name for name in work.schema.arrow().names if name in table.column_names]
        table = table.select(wanted)
    if "at" in table.column_names:
        at_us = table.column("at").cast(pa.int64()).to_numpy()
        table = table.take(pa.array(np.argsort(at_us, kind="stable")))
    path = Path(first.path).with_name(new_name(table))
    entry = write_file(work.table, path, table, first.kind)
    sync((work.table / path).parent)
    boxes = [each.box for each in work.group if each.box is not None]
    return Merged(
        msgspec.structs.replace(entry, day=first.day, cell=first.cell, box=_around(boxes))
    )


def _read(path: Path) -> Any:
    try:
        return pq.ParquetFile(path).read()
    except (OSError, pa.ArrowException) as error:
        raise CompactError(f"cannot read {path}: {error}") from error


def _around(
    boxes: Sequence[tuple[float, float, float, float]],
) -> tuple[float, float, float, float] | None:
    if not boxes:
        return None
    lat_min, lat_max, long_min, long_max = zip(*boxes, strict=True)
    return min(lat_min), max(lat_max), min(long_min), max(long_max)


# --- what nobody names any more ---------------------------------------------------------------


def clean(table: Table, *, retired_s: float = RETIRED_S, orphan_s: float = ORPHAN_S) -> int:
    """Remove files that no commit names, if nobody can be reading or writing them; how many."""
    now_s = time.time()
    on_disk = [
        path
        for kind in ("data", "rejected", "quality")
        for path in (table.folder / kind).rglob("*part-*")
        if path.is_file()
    ]  # before the state is read, so that what is committed meanwhile is not taken for an orphan
    state = table.state()
    retired = _retired_at(table.log)
    removed = 0
    for path in on_disk:
        name = path.relative_to(table.folder).as_posix()
        if name in state.files:
            continue
        patience_s = retired_s if name in retired else orphan_s
        since_s = retired.get(name) or path.stat().st_mtime
        if now_s - since_s > patience_s:
            path.unlink()
            removed += 1
    _forget_commits(table.log, state.version, now_s - orphan_s)
    return removed


def _retired_at(log: Log) -> dict[str, float]:
    """When files were replaced, as far as the commits are still there."""
    found: dict[str, float] = {}
    for version in log.versions():
        change = log.read(version).change
        found.update(dict.fromkeys(change.remove, change.at))
    return found


def _forget_commits(log: Log, version: int, before_s: float) -> None:
    """Remove commits that are told by a later one, if they are old."""
    snapshot = version - version % SNAPSHOT_EVERY
    for old in log.versions():
        if old < snapshot - SNAPSHOT_EVERY and log.read(old).change.at < before_s:
            log.path_of(old).unlink()
