"""The writer of a task: rows of the lake in, files of a table out.

A writer converts rows of the lake to typed columns, checks them, and writes a file for each day and
cell of the rows that it holds, sorted by time, in row groups with statistics, so that readers can
skip most of it. A file is part of the table only after a commit names it (`rove.lake.files`); so a
task may be killed, run twice or run too late.

If a value has no column yet, the writer deletes its files and from then on only counts missing
columns: the driver extends the schema and gives the rows to another writer.

Holds up to ROWS_HELD_MAX rows of some 100 bytes. Costs about 3 µs a row of five numbers on one
core (half for typing them, a sixth for the cells, the rest for sorting and writing), and 3 ms a
file for flushing it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rove.lake.files import NewFile, remove_files, write_file
from rove.lake.storage import child
from rove.pipeline.tables.column_builder import ColumnBuilder
from rove.pipeline.tables.commits import HOUR_US, REJECTED, WriteResult
from rove.pipeline.tables.grid import cells
from rove.pipeline.tables.quality import QualityRules, RuleChecker, positions
from rove.pipeline.tables.table import BASE, NamePath, Sort, TableSchema

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS_HELD_MAX: Final = 1_000_000
DAY_US: Final = 86_400 * 1_000_000

LAKE: Final = REJECTED
"""The input of a writer. `reason` is for rows that an import has rejected; null otherwise."""
_LAT, _LONG = "::lat", "::long"
"""Temporary columns beside those of the table."""


def merge_results(outcomes: Sequence[WriteResult]) -> WriteResult:
    """The merged results of several writers."""
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        counts.update(outcome.counts)
    moments = [each.newest_at_us for each in outcomes if each.newest_at_us is not None]
    return WriteResult(
        [file for each in outcomes for file in each.data],
        [file for each in outcomes for file in each.rejected],
        sorted({hour for each in outcomes for hour in each.hours}),
        dict(counts),
        newest_at_us=max(moments, default=None),
    )


class TableWriter:
    """Writes rows of one channel into files of its table."""

    def __init__(
        self,
        uri: str,
        schema: TableSchema,
        rules: QualityRules,
        *,
        watermark_us: int | None = None,
        duplicates: NDArray[np.int64] | None = None,
    ) -> None:
        """`uri` is that of the channel's tables; `duplicates` are positions of duplicate rows."""
        self._data, self._rejects = child(uri, "data"), child(uri, "rejected")
        self._builder = ColumnBuilder(schema)
        self._checker = RuleChecker(rules, self._builder, watermark_us)
        self._duplicates = np.empty(0, np.int64) if duplicates is None else duplicates
        self._held: list[Any] = []
        self._rows_held = 0
        self._rejected: list[Any] = []
        self._files: list[NewFile] = []
        self._hours: set[int] = set()
        self._counts: Counter[str] = Counter()
        self._unmet: Counter[tuple[NamePath, Sort]] = Counter()
        self._needs_rest = False
        self._newest_at_us: int | None = None

    def take(self, rows: Any, duplicates: NDArray[np.bool_] | None = None) -> None:
        """Add rows of the lake, an Arrow table."""
        rows, duplicates = self._without_rejected(rows.combine_chunks(), duplicates)
        if not rows.num_rows:
            return
        typed = self._builder.typed(_whole(rows, "payload"), _whole(rows, "user"))
        if not typed.is_complete:
            self._unmet += typed.unmet
            self._needs_rest |= typed.needs_rest
            self._discard()
        if self._is_incomplete:
            return
        if duplicates is None:
            duplicates = np.isin(_whole(rows, "position").to_numpy(), self._duplicates)
        reasons = self._checker.check(rows, typed, duplicates)
        lat, long = positions(self._builder, typed)
        columns = [_whole(rows, name).cast(BASE.field(name).type) for name in BASE.names]
        columns += [*typed.columns.values(), pa.array(lat), pa.array(long)]
        table = pa.Table.from_arrays(columns, [*BASE.names, *typed.columns, _LAT, _LONG])
        self._count(reasons)
        good = reasons < 0
        if not good.all():
            self._reject(rows, reasons)
            table = table.filter(pa.array(good))
        self._hold(table)

    def finish(self) -> WriteResult:
        """Write the remaining rows; returns the result."""
        if self._is_incomplete:
            unmet = [(path, sort, rows) for (path, sort), rows in self._unmet.items()]
            return WriteResult(unmet=unmet, needs_rest=self._needs_rest)
        self._flush()
        rejected = []
        if self._rejected:
            rejected.append(write_file(self._rejects, pa.concat_tables(self._rejected)))
        return WriteResult(
            self._files,
            rejected,
            sorted(self._hours),
            dict(self._counts),
            newest_at_us=self._newest_at_us,
        )

    @property
    def _is_incomplete(self) -> bool:
        return bool(self._unmet) or self._needs_rest

    def _discard(self) -> None:
        remove_files(self._data, self._files)
        self._files, self._held, self._rejected = [], [], []
        self._rows_held = 0

    def _count(self, reasons: NDArray[np.int16]) -> None:
        self._counts["in"] += len(reasons)
        self._counts["out"] += int((reasons < 0).sum())
        for number, rows in enumerate(np.bincount(reasons[reasons >= 0])):
            if rows:
                self._counts[self._checker.reasons[number]] += int(rows)

    def _reject(self, rows: Any, reasons: NDArray[np.int16]) -> None:
        bad = np.flatnonzero(reasons >= 0)
        names = pa.array(self._checker.reasons).take(pa.array(reasons[bad]))
        kept = rows.take(pa.array(bad)).select(REJECTED.names[:-1])
        self._rejected.append(kept.append_column("reason", names).cast(REJECTED))

    def _without_rejected(
        self, rows: Any, duplicates: NDArray[np.bool_] | None
    ) -> tuple[Any, NDArray[np.bool_] | None]:
        """Reject rows that have a reason already."""
        if "reason" not in rows.column_names:
            return rows, duplicates
        good = pc.is_null(rows.column("reason"))
        rejected = rows.filter(pc.invert(good))
        if rejected.num_rows and not self._is_incomplete:
            self._rejected.append(rejected.select(REJECTED.names).cast(REJECTED))
            self._counts.update(rejected.column("reason").to_pylist())
            self._counts["in"] += rejected.num_rows
            self._counts["out"] += 0
        if duplicates is not None:
            duplicates = duplicates[good.to_numpy()]
        return rows.filter(good), duplicates

    def _hold(self, table: Any) -> None:
        if not table.num_rows:
            return
        at_us = _at_us(table)
        newest_at_us = int(at_us.max())
        self._hours.update(np.unique(at_us // HOUR_US).tolist())
        self._newest_at_us = max(self._newest_at_us or newest_at_us, newest_at_us)
        self._held.append(table)
        self._rows_held += table.num_rows
        if self._rows_held >= ROWS_HELD_MAX:
            self._flush()

    def _flush(self) -> None:
        """Write the held rows, a file for each day and cell."""
        if not self._held:
            return
        table = pa.concat_tables(self._held, promote_options="default").combine_chunks()
        self._held, self._rows_held = [], 0
        lat, long = (_whole(table, name).to_numpy() for name in (_LAT, _LONG))
        coded = cells(lat, long, self._builder.schema.cell_km).dictionary_encode()
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
        table = table.drop_columns([_LAT, _LONG])
        there = [name for name in table.column_names if _is_needed(table, name)]
        day = datetime.fromtimestamp(day_number * DAY_US // 1_000_000, UTC).date().isoformat()
        written = write_file(self._data, table.select(there), {"day": day, "cell": cell})
        self._files.append(written)


def _is_needed(table: Any, name: str) -> bool:
    """Attribute columns without values are omitted; readers know the schema."""
    return name in BASE.names or table.column(name).null_count < table.num_rows


def _at_us(table: Any) -> NDArray[np.int64]:
    found: NDArray[np.int64] = _whole(table, "at").cast(pa.int64()).to_numpy()
    return found


def _whole(table: Any, name: str) -> Any:
    """A column as a single array."""
    column = table.column(name)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
