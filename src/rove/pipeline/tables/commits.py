"""Commits of ingestions: each row of the lake gets into the tables of its channel exactly once.

    <tables>/air/data       rows, by day and cell
    <tables>/air/rejected   rows that broke a rule, unchanged, with the reason
    <tables>/air/quality    a log of ingestions: rows by reason, and the position

All three are Delta tables, and Delta commits one table at a time. So ingestions are numbered, and
`quality` is committed first, like a write-ahead log: its commit has the new position of the log and
lists the files for the other two. These are committed with the same number, `data` last. If a
process is killed in between, the next one finds that `data` is behind `quality` and completes the
commit first; a table that has the number already is not committed twice. Of two concurrent
ingestions one is refused, because both have the same number.

Each ingestion leaves small files; they are compacted as the tables grow (`rove.lake.compaction`).

An ingestion costs three commits, of 4 ms and some flushes of the disk each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from rove.lake import compaction, delta
from rove.lake.files import NewFile, read_columns, write_file
from rove.lake.log import NOTHING
from rove.lake.storage import Location, shown
from rove.pipeline.tables.table import (
    PARTITIONS,
    WRITER,
    NamePath,
    Sort,
    Table,
    TablePart,
    TableSchema,
    TablesError,
    schema_of,
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
HOUR_US: Final = 3_600 * 1_000_000
_AT: Final = pa.timestamp("us", tz="UTC")
_LAKE_FILE: Final = pa.struct(
    [
        ("path", pa.string()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("after", pa.int64()),
        ("up_to", pa.int64()),
        ("why", pa.string()),
    ]
)
_SOURCE: Final = pa.struct([("name", pa.string()), ("mark", pa.string())])
QUALITY: Final = pa.schema(
    [
        ("number", pa.int64()),
        ("ingested_at", _AT),
        ("reason", pa.string()),
        ("rows", pa.int64()),
        ("position", pa.int64()),
        ("newest_at", _AT),
        ("hours", pa.list_(_AT)),
        ("skipped", pa.list_(_LAKE_FILE)),
        ("sources", pa.list_(_SOURCE)),
    ]
)
"""A row for each reason; the empty reason is for accepted rows, and has the other columns, too."""
_USER: Final = pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))
REJECTED: Final = pa.schema(
    [
        ("position", pa.int64()),
        ("at", _AT),
        ("topic", pa.string()),
        ("id", pa.string()),
        ("client_id", pa.string()),
        ("payload", pa.binary()),
        ("user", _USER),
        ("qos", pa.int8()),
        ("reason", pa.string()),
    ]
)
"""The columns of the lake, with the reason."""
_FILES: Final = "rove.files"


class SkippedFile(msgspec.Struct, frozen=True):
    """A file of the lake that could not be read; every ingestion tries it again."""

    path: str
    first: int
    last: int
    after: int
    """Its rows in `(after, up_to]` are not in the table."""
    up_to: int
    why: str


class IngestState(msgspec.Struct, frozen=True):
    """The state of a channel's tables after an ingestion."""

    number: int = NOTHING
    """The number of the last ingestion."""
    position: int = NOTHING
    """The log is in the table up to here, except for skipped files."""
    newest_at_us: int | None = None
    """The latest `at` of all accepted rows."""
    skipped: tuple[SkippedFile, ...] = ()


class WriteResult(msgspec.Struct):
    """The files and counts of a writer; not to be committed unless complete."""

    data: list[NewFile] = []
    rejected: list[NewFile] = []
    hours: list[int] = []
    """Hours with accepted rows, counted from 1970."""
    counts: dict[str, int] = {}
    """Numbers of rows: `in`, `out` and by reason."""
    unmet: list[tuple[NamePath, Sort, int]] = []
    needs_rest: bool = False
    newest_at_us: int | None = None

    @property
    def is_complete(self) -> bool:
        return not self.unmet and not self.needs_rest


class _PendingFiles(msgspec.Struct):
    """The files of a `WriteResult` that are to be committed to `data` and `rejected`."""

    data: list[NewFile]
    rejected: list[NewFile]


class ChannelTables:
    """The tables of a channel, opened for ingestion."""

    def __init__(self, tables: Location, begin: TableSchema) -> None:
        """`begin` is the schema of a new table; tables are created with the first commit."""
        self.table = Table(tables, begin.channel)
        self.schema = begin
        self.state = IngestState()
        self._opened: dict[TablePart, delta.DeltaTable] = {}
        self._begun_at: dict[TablePart, int] = {}
        """The version of each table when it was opened."""
        if delta.exists(self.table.uri_of("quality")):
            self._open(begin)
            self.schema = schema_of(self._opened["data"])
            self.state = self._recovered()

    def sources(self) -> dict[str, str]:
        """The imported sources by name, each with its mark."""
        found: dict[str, str] = {}
        if self._opened:
            rows = self.table.read("quality", columns=["number", "sources"]).sort_by("number")
            for own in rows["sources"].to_pylist():
                found.update((each["name"], each["mark"]) for each in own or ())
        return found

    def files_since(self, at_us: int) -> dict[TablePart, list[str]]:
        """The files of `data` and `rejected` with rows at or after a moment."""
        found: dict[TablePart, list[str]] = {}
        for part in ("data", "rejected"):
            listed = self._opened[part].files() if self._opened else None
            if listed is not None and listed.num_rows:
                newest = listed["max.at"].cast(pa.int64()).to_pylist()
                paths = zip(listed["path"].to_pylist(), newest, strict=True)
                found[part] = [
                    path for path, last in paths if last is None or last + 1_000 >= at_us
                ]
        return found

    def commit(
        self,
        schema: TableSchema,
        done: WriteResult,
        *,
        position: int | None = None,
        skipped: tuple[SkippedFile, ...] | None = None,
        sources: Mapping[str, str] = {},
    ) -> None:
        """Commit files; TablesError if another process has ingested meanwhile.

        Parts of the state that are not given stay as they were. `sources` are imports by name, each
        with a mark that changes with the source.
        """
        if not self._opened:
            self._open(schema)
        self._extend(schema)
        moments = [at for at in (self.state.newest_at_us, done.newest_at_us) if at is not None]
        state = IngestState(
            self.state.number + 1,
            self.state.position if position is None else position,
            max(moments, default=None),
            self.state.skipped if skipped is None else skipped,
        )
        rows = write_file(self.table.uri_of("quality"), _quality(state, done, sources))
        pending = _PendingFiles(done.data, done.rejected)
        info = {_FILES: msgspec.json.encode(pending).decode(), "position": str(state.position)}
        if not self._opened["quality"].commit(WRITER, state.number, [rows], info=info):
            raise TablesError(
                f"another process has ingested into {shown(self.table.uri)} meanwhile; run it again"
            )
        self._finish(state.number, pending)
        self.schema, self.state = schema, state

    def maintain(self) -> None:
        """Compact small files, and delete old ones."""
        for part, opened in self._opened.items():
            by = PARTITIONS.names if part == "data" else ()
            compaction.maintain(opened, by, self._begun_at[part])
            self._begun_at[part] = opened.version

    def _open(self, begin: TableSchema) -> None:
        parts: dict[TablePart, tuple[Any, Sequence[str]]] = {
            "quality": (QUALITY, ()),
            "rejected": (REJECTED, ()),
            "data": (begin.delta(), PARTITIONS.names),
        }
        for part, (schema, by) in parts.items():
            opened = delta.DeltaTable.for_writing(
                self.table.uri_of(part), schema, by, compaction.CONFIGURATION
            )
            self._opened[part], self._begun_at[part] = opened, opened.version

    def _extend(self, schema: TableSchema) -> None:
        data = self._opened["data"]
        there = {field.name for field in data.fields}
        if lacking := [field for field in schema.delta() if field.name not in there]:
            data.add_columns(lacking)

    def _recovered(self) -> IngestState:
        """Complete the last ingestion if it was killed."""
        quality = self._opened["quality"]
        number = quality.number(WRITER)
        if number is None:
            return IngestState()
        done = self._opened["data"].number(WRITER)
        if done is None or done < number:
            # An ingestion starts with this recovery, so only the last one can be incomplete.
            named = quality.last_info(_FILES)
            if named is None:
                raise TablesError(
                    f"{shown(self.table.uri)}/quality no longer lists the files of its last "
                    "ingestion, and data does not have them; move the table away and ingest again"
                )
            self._finish(number, msgspec.json.decode(named, type=_PendingFiles))
        return state_at(quality, number)

    def _finish(self, number: int, pending: _PendingFiles) -> None:
        if pending.rejected:
            self._opened["rejected"].commit(WRITER, number, pending.rejected)
        self._opened["data"].commit(WRITER, number, pending.data)


def _quality(state: IngestState, done: WriteResult, sources: Mapping[str, str]) -> Any:
    counts = {"" if name == "out" else name: n for name, n in done.counts.items() if name != "in"}
    now = datetime.now(UTC)
    plain = {"number": state.number, "ingested_at": now, "position": state.position}
    kept = {
        "newest_at": state.newest_at_us,
        "hours": [hour * HOUR_US for hour in done.hours],
        "skipped": [msgspec.structs.asdict(each) for each in state.skipped],
        "sources": [{"name": name, "mark": mark} for name, mark in sources.items()],
    }
    rows = [{**plain, **kept, "reason": "", "rows": counts.pop("", 0)}]
    rows += [{**plain, "reason": reason, "rows": count} for reason, count in counts.items()]
    return pa.Table.from_pylist(rows, QUALITY)


def state_at(quality: delta.DeltaTable, number: int) -> IngestState:
    """The state after the ingestion of this number."""
    rows = ingestions(quality, number - 1, ("position", "newest_at", "skipped"))
    row = next(each for each in rows.to_pylist() if each["number"] == number)
    newest_at: datetime | None = row["newest_at"]
    return IngestState(
        number,
        row["position"],
        None if newest_at is None else (newest_at - _EPOCH) // timedelta(microseconds=1),
        msgspec.convert(row["skipped"], tuple[SkippedFile, ...]),
    )


def ingestions(quality: delta.DeltaTable, after: int, columns: Sequence[str]) -> Any:
    """The numbers and some columns of `quality` of all ingestions after a number."""
    listed = quality.files()
    wanted = pa.schema([QUALITY.field(name) for name in ("number", "reason", *columns)])
    found = [wanted.empty_table()]
    for path, last in zip(
        *(listed[name].to_pylist() for name in ("path", "max.number")), strict=True
    ):
        if last is None or last > after:
            found.append(read_columns(quality.uri, path, wanted))
    rows = pa.concat_tables(found)
    return rows.filter((pc.field("number") > after) & (pc.field("reason") == ""))
