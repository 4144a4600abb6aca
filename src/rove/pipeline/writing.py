"""What a task of an ingestion does: rows of the lake in, files of a table out.

A writer takes rows as the lake has them, types and judges them, and writes one file for each day
and cell of what has come together, sorted by time, in row groups with statistics, so that readers
can pass over most of it. Its files have names that nobody else uses and count only when a commit
names them (`rove.pipeline.commits`); so a task may be killed, run twice or run too late.

When a value has no column yet, the writer takes back its files and from there on only counts what
is missing: the driver extends the schema and gives the rows to another writer.

Holds up to ROWS_HELD_MAX rows of some 100 bytes. Costs about 3 µs a row of five numbers on one
core (half for typing them, a sixth for the cells, the rest for sorting and writing), and 3 ms a
file for flushing it.
"""

from __future__ import annotations

import itertools
import uuid
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rove.lake.storage import sync
from rove.pipeline.cells import cells
from rove.pipeline.commits import NOTHING, FileEntry, FileKind
from rove.pipeline.quality import Judge, Rules, positions
from rove.pipeline.tables import BASE, NamePath, Sort, TableSchema
from rove.pipeline.typed import Typer

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS_HELD_MAX: Final = 1_000_000
ROW_GROUP_ROWS: Final = 131_072
DAY_US: Final = 86_400 * 1_000_000

_USER: Final = pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))
LAKE: Final = pa.schema(
    [
        ("position", pa.int64()),
        ("at", BASE.field("at").type),
        ("topic", pa.string()),
        ("id", pa.string()),
        ("client_id", pa.string()),
        ("payload", pa.binary()),
        ("user", _USER),
        ("qos", pa.int8()),
        ("reason", pa.string()),
    ]
)
"""What a writer takes. The reason is for rows that are beyond judging; the lake has no such."""
REJECTED: Final = LAKE
"""Rejected rows are kept as they came."""
_LAT, _LONG = "::lat", "::long"
"""Beside the columns of the table until it is written."""


class Outcome(msgspec.Struct):
    """What a writer has done; nothing of it counts if something is unmet."""

    entries: list[FileEntry] = []
    counts: dict[str, int] = {}
    """Rows: `in`, `out` and by reason."""
    unmet: list[tuple[NamePath, Sort, int]] = []
    needs_rest: bool = False
    newest_at_us: int | None = None

    @property
    def is_complete(self) -> bool:
        return not self.unmet and not self.needs_rest


class TableWriter:
    """Writes rows of one channel into files of its table."""

    def __init__(
        self,
        folder: Path,
        schema: TableSchema,
        rules: Rules,
        *,
        watermark_us: int | None = None,
        duplicates: NDArray[np.int64] | None = None,
    ) -> None:
        """`duplicates` are positions of rows that came before, as found over all of them."""
        self._folder = folder
        self._typer = Typer(schema)
        self._judge = Judge(rules, self._typer, watermark_us)
        self._duplicates = np.empty(0, np.int64) if duplicates is None else duplicates
        self._held: list[Any] = []
        self._rows_held = 0
        self._rejected: list[Any] = []
        self._entries: list[FileEntry] = []
        self._counts: Counter[str] = Counter()
        self._unmet: Counter[tuple[NamePath, Sort]] = Counter()
        self._needs_rest = False
        self._newest_at_us: int | None = None

    def take(self, rows: Any, duplicates: NDArray[np.bool_] | None = None) -> None:
        """Take an Arrow table of rows as in the lake."""
        rows, duplicates = self._without_hopeless(rows.combine_chunks(), duplicates)
        if not rows.num_rows:
            return
        typed = self._typer.typed(_whole(rows, "payload"), _whole(rows, "user"))
        if not typed.is_complete:
            self._unmet += typed.unmet
            self._needs_rest |= typed.needs_rest
            self._take_back()
        if self._is_in_vain:
            return
        if duplicates is None:
            duplicates = np.isin(_whole(rows, "position").to_numpy(), self._duplicates)
        reasons = self._judge.judge(rows, typed, duplicates)
        lat, long = positions(self._typer, typed)
        columns = [_whole(rows, name).cast(BASE.field(name).type) for name in BASE.names]
        columns += [*typed.columns.values(), pa.array(lat), pa.array(long)]
        table = pa.Table.from_arrays(columns, [*BASE.names, *typed.columns, _LAT, _LONG])
        self._count(reasons)
        good = reasons < 0
        if not good.all():
            self._reject(rows, reasons)
            table = table.filter(pa.array(good))
        self._hold(table)

    def finish(self) -> Outcome:
        """Write what is left, and tell."""
        if self._is_in_vain:
            unmet = [(path, sort, rows) for (path, sort), rows in self._unmet.items()]
            return Outcome(unmet=unmet, needs_rest=self._needs_rest)
        self._flush()
        if self._rejected:
            table = pa.concat_tables(self._rejected)
            path = Path("rejected", new_name(table))
            self._entries.append(write_file(self._folder, path, table, "rejected"))
        for folder in {Path(entry.path).parent for entry in self._entries}:
            for level in (folder, *folder.parents):
                sync(self._folder / level)
        return Outcome(self._entries, dict(self._counts), newest_at_us=self._newest_at_us)

    @property
    def _is_in_vain(self) -> bool:
        return bool(self._unmet) or self._needs_rest

    def _take_back(self) -> None:
        for entry in self._entries:
            (self._folder / entry.path).unlink()
        self._entries, self._held, self._rejected = [], [], []
        self._rows_held = 0

    def _count(self, reasons: NDArray[np.int16]) -> None:
        self._counts["in"] += len(reasons)
        self._counts["out"] += int((reasons < 0).sum())
        for number, rows in enumerate(np.bincount(reasons[reasons >= 0])):
            if rows:
                self._counts[self._judge.reasons[number]] += int(rows)

    def _reject(self, rows: Any, reasons: NDArray[np.int16]) -> None:
        bad = np.flatnonzero(reasons >= 0)
        names = pa.array(self._judge.reasons).take(pa.array(reasons[bad]))
        kept = rows.take(pa.array(bad)).select(REJECTED.names[:-1])
        self._rejected.append(kept.append_column("reason", names).cast(REJECTED))

    def _without_hopeless(
        self, rows: Any, duplicates: NDArray[np.bool_] | None
    ) -> tuple[Any, NDArray[np.bool_] | None]:
        """Reject rows that come with a reason."""
        if "reason" not in rows.column_names:
            return rows, duplicates
        good = pc.is_null(rows.column("reason"))
        hopeless = rows.filter(pc.invert(good))
        if hopeless.num_rows and not self._is_in_vain:
            self._rejected.append(hopeless.select(REJECTED.names).cast(REJECTED))
            self._counts.update(hopeless.column("reason").to_pylist())
            self._counts["in"] += hopeless.num_rows
            self._counts["out"] += 0
        if duplicates is not None:
            duplicates = duplicates[good.to_numpy()]
        return rows.filter(good), duplicates

    def _hold(self, table: Any) -> None:
        if not table.num_rows:
            return
        newest_at_us = int(_at_us(table).max())
        self._newest_at_us = max(self._newest_at_us or newest_at_us, newest_at_us)
        self._held.append(table)
        self._rows_held += table.num_rows
        if self._rows_held >= ROWS_HELD_MAX:
            self._flush()

    def _flush(self) -> None:
        """Write what is held, a file for each day and cell."""
        if not self._held:
            return
        table = pa.concat_tables(self._held, promote_options="default").combine_chunks()
        self._held, self._rows_held = [], 0
        lat, long = (_whole(table, name).to_numpy() for name in (_LAT, _LONG))
        coded = cells(lat, long, self._typer.schema.cell_km).dictionary_encode()
        names: list[str] = coded.dictionary.to_pylist()
        at_us = _at_us(table)
        groups = (at_us // DAY_US) * len(names) + coded.indices.to_numpy()
        order = np.lexsort((at_us, groups))
        table = table.take(pa.array(order))
        groups = groups[order]
        begins = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(groups)]
        for begin, end in itertools.pairwise(begins):
            day, cell = divmod(int(groups[begin]), len(names))
            self._write(table.slice(begin, end - begin), day, names[cell])

    def _write(self, table: Any, day_number: int, cell: str) -> None:
        box = box_of(_whole(table, _LAT).to_numpy(), _whole(table, _LONG).to_numpy())
        table = table.drop_columns([_LAT, _LONG])
        day = datetime.fromtimestamp(day_number * DAY_US // 1_000_000, UTC).date().isoformat()
        path = Path("data", f"day={day}", f"cell={cell}", new_name(table))
        entry = write_file(self._folder, path, table, "data")
        self._entries.append(msgspec.structs.replace(entry, day=day, cell=cell, box=box))


def write_file(folder: Path, path: Path, table: Any, kind: FileKind) -> FileEntry:
    """Write a file of a table; it is in sight only when it is complete and on disk."""
    whole = folder / path
    whole.parent.mkdir(parents=True, exist_ok=True)
    unfinished = whole.with_name(f".{whole.name}.tmp")
    table = table.select([name for name in table.column_names if _is_needed(table, name)])
    texts = [field.name for field in table.schema if field.type == pa.string()]
    pq.write_table(
        table,
        unfinished,
        compression="zstd",
        row_group_size=ROW_GROUP_ROWS,
        use_dictionary=texts,  # readings hardly repeat, and looking for it costs a third
    )
    sync(unfinished)
    size_bytes = unfinished.stat().st_size
    unfinished.rename(whole)
    entry = FileEntry(path.as_posix(), kind, table.num_rows, size_bytes)
    if "position" not in table.column_names or not table.num_rows:
        return entry
    first, last = _ends(table.column("position"))
    at_min_us, at_max_us = _ends(table.column("at").cast(pa.int64()))
    return msgspec.structs.replace(
        entry,
        first=NOTHING if first is None else first,
        last=NOTHING if last is None else last,
        at_min_us=at_min_us or 0,
        at_max_us=at_max_us or 0,
    )


def box_of(
    lat: NDArray[np.float64], long: NDArray[np.float64]
) -> tuple[float, float, float, float] | None:
    """Where the points are that have both coordinates."""
    there = ~(np.isnan(lat) | np.isnan(long))
    if not there.any():
        return None
    lat, long = lat[there], long[there]
    return float(lat.min()), float(lat.max()), float(long.min()), float(long.max())


def new_name(table: Any) -> str:
    """A name that nobody else uses; the first position in front is for people."""
    first = _ends(table.column("position"))[0] if "position" in table.column_names else None
    return f"part-{NOTHING if first is None else first:016d}-{uuid.uuid4().hex}.parquet"


def _is_needed(table: Any, name: str) -> bool:
    """Columns of attributes without a value are left out; readers know the schema."""
    return name in REJECTED.names or table.column(name).null_count < table.num_rows


def _ends(column: Any) -> tuple[int | None, int | None]:
    found = pc.min_max(column).as_py()
    return found["min"], found["max"]


def _at_us(table: Any) -> NDArray[np.int64]:
    found: NDArray[np.int64] = _whole(table, "at").cast(pa.int64()).to_numpy()
    return found


def _whole(table: Any, name: str) -> Any:
    """A column as one array."""
    column = table.column(name)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
