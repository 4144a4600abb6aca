"""From the layout of lakes up to Rove 0.1 to a Delta table, row by row.

    <lake>/publications/channel=air/day=2026-11-16/0000000000000001-0000000000000900.parquet
    <lake>/_position

Each folder's files were finished by themselves, so after a crash one kind may have rows that the
others lack; `_position` says up to where everything was there. Rows above it are left where they
are: the broker still has them, and writes them again.

The table comes into the same folder, beside the old files, in stretches of positions. Each commit
carries the position that it ends with, so a migration that was killed goes on there. At the end the
old files are moved aside; a broker refuses to start as long as they are not.

A million rows take some 5 s.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from rove.lake.delta import Table
from rove.lake.log import KINDS, NOTHING, SCHEMA, WRITER, open_for_writing, within
from rove.lake.storage import NAME_BYTES_MAX, LakeError, told

STRETCH_BYTES: Final = 64 * 1024 * 1024
_POSITION: Final = "_position"
_EMPTY_CHANNEL: Final = "__HIVE_DEFAULT_PARTITION__"
_FILE_NAME: Final = re.compile(r"(\d+)-(\d+)\.parquet")
_DIGEST_CHARACTERS: Final = 16

Tell = Callable[[int, int], None]
"""Told how many bytes are done, of how many."""


class OldFile(NamedTuple):
    """A file of the old layout."""

    first: int
    last: int
    path: Path
    kind: str
    channel: str
    day: str
    size_bytes: int


def is_old(folder: Path) -> bool:
    """Whether there is something to migrate."""
    return any((folder / kind).is_dir() for kind in KINDS)


def migrate(folder: Path, tell: Tell = lambda done, total: None) -> int:
    """Make a table of what is there, and move the old files to `<folder>.old`; how many rows."""
    if not is_old(folder):
        raise LakeError(f"there is no lake of an earlier Rove in {folder}")
    with told(f"cannot migrate the lake {folder}"):
        table = open_for_writing(folder)
        done = table.number(WRITER)
        files = sorted(_files(folder))
        end = _end(folder, files)
        rows = 0
        total = sum(file.size_bytes for file in files)
        for boundary, done_bytes in _stretches(files, end):
            rows += _append(table, files, NOTHING if done is None else done, boundary)
            done = max(boundary, NOTHING if done is None else done)
            tell(done_bytes, total)
        _move_aside(folder)
    return rows


def _files(folder: Path) -> Iterator[OldFile]:
    for kind in KINDS:
        for path in (folder / kind).glob("channel=*/day=*/*.parquet"):
            if named := _FILE_NAME.fullmatch(path.name):
                channel = path.parent.parent.name.removeprefix("channel=")
                yield OldFile(
                    int(named[1]),
                    int(named[2]),
                    path,
                    kind,
                    "" if channel == _EMPTY_CHANNEL else _fitting(unquote(channel)),
                    path.parent.name.removeprefix("day="),
                    path.stat().st_size,
                )


def _fitting(channel: str) -> str:
    """A name that is too long is cut, and a digest keeps it apart from others."""
    if len(channel.encode()) <= NAME_BYTES_MAX:
        return channel
    digest = hashlib.sha256(channel.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    kept = channel.encode()[: NAME_BYTES_MAX - len(digest) - 1].decode(errors="ignore")
    return f"{kept}~{digest}"


def _end(folder: Path, files: Sequence[OldFile]) -> int:
    """Up to where everything was there."""
    try:
        return int((folder / _POSITION).read_text(encoding="ascii"))
    except FileNotFoundError:
        return max((file.last for file in files), default=NOTHING)
    except ValueError as error:
        raise LakeError(f"{folder / _POSITION} does not hold a position: {error}") from error


def _stretches(files: Sequence[OldFile], end: int) -> Iterator[tuple[int, int]]:
    """The positions at which commits end, and how many bytes come before."""
    waiting = done = 0
    for file in sorted(files, key=lambda file: file.last):
        waiting += file.size_bytes
        if waiting >= STRETCH_BYTES and file.last < end:
            done += waiting
            waiting = 0
            yield file.last, done
    if files and end > NOTHING:
        yield end, done + waiting


def _append(table: Table, files: Sequence[OldFile], after: int, up_to: int) -> int:
    found = [
        _rows(file, after, up_to) for file in files if file.first <= up_to and file.last > after
    ]
    if up_to <= after:
        return 0
    rows = pa.concat_tables([SCHEMA.empty_table(), *found])
    table.append(rows, WRITER, up_to)
    return int(rows.num_rows)


def _rows(file: OldFile, after: int, up_to: int) -> pa.Table:
    with pq.ParquetFile(file.path) as opened:
        rows = within(opened.read(), after, up_to)
    columns = {name: rows[name] for name in rows.column_names if name in SCHEMA.names}
    for name, value in (("kind", file.kind), ("channel", file.channel or None), ("day", file.day)):
        columns[name] = pa.array([value] * rows.num_rows, pa.string())
    return pa.Table.from_arrays(
        [
            columns[field.name].cast(field.type)
            if field.name in columns
            else pa.nulls(rows.num_rows, field.type)
            for field in SCHEMA
        ],
        schema=SCHEMA,
    )


def _move_aside(folder: Path) -> None:
    aside = folder.with_name(f"{folder.name}.old")
    aside.mkdir(exist_ok=True)
    for name in (*KINDS, _POSITION):
        if (folder / name).exists():
            (folder / name).rename(aside / name)
