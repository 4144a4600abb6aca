"""The lake as a source of streaming queries: `spark.readStream.format("rove-lake")`.

Spark's own source for Parquet files remembers file names, knows no `_position` and dies when
retention removes a file under it. Here an offset is a position of the log. A micro-batch is what
lies in `(start, end]`, of all files, whatever their names and folders; it never reaches beyond what
the lake says is complete, and read again it is the same. That is what makes a repeated batch equal
and lets subscriptions be replaced exactly between two publications.

A batch is cut into *slices* of positions, one per task; a file on a border is read by both, each
taking its rows (row groups that lie outside are not read). Slices are in order, and rows in them
are. So are the files of the sink that are made of them.

Two contents: `rows` are the publications as a table. `slices` are only what is to be read, one row
per slice; whoever takes it calls `read_slice` in the task. Otherwise rows go to the JVM, are taken
apart there, and are Arrow again for the next Python worker (`rove.lab.pipeline_stream_bench`
measures both).

A file that retention has removed since it was listed is left out and told of.
"""

# ruff: noqa: N802 (Spark's names)

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from rove.errors import RoveError
from rove.pipeline.lake import Lake, LakeFile

NAME: Final = "rove-lake"
BEGINNING: Final = -1
"""Before every position."""
ROWS_MAX: Final = 200_000
"""Rows of a micro-batch, unless told otherwise."""
SLICE_POSITIONS_MIN: Final = 4096
"""Less is not worth a task of its own."""
READ_ROWS: Final = 65_536
"""Rows of a record batch."""

COLUMNS: Final = pa.schema(
    [
        ("position", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("topic", pa.string()),
        ("id", pa.string()),
        ("client_id", pa.string()),
        ("payload", pa.binary()),
        ("user", pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))),
        ("qos", pa.int8()),
    ]
)
SLICE_COLUMNS: Final = "slice binary"
EARLIER: Final = "earlier"
_ROW_COLUMNS: Final = (
    "position long, at timestamp, topic string, id string, client_id string, payload binary, "
    "user array<struct<name: string, value: string>>, qos byte"
)
_log = logging.getLogger(__name__)


class SourceError(RoveError):
    """A query over the lake is set up wrongly, or a file of it cannot be read."""


class Slice(msgspec.Struct, frozen=True):
    """What one task reads: rows at positions in `(after, up_to]` of these files."""

    after: int
    up_to: int
    paths: tuple[str, ...]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the query was told, checked."""

    lake: str
    kind: str = "publications"
    start: int = BEGINNING
    """A new query begins after this position."""
    max_rows: int = ROWS_MAX
    slices: int = 2
    """Tasks of a micro-batch, at most."""
    content: str = "rows"

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Options:
        """Options as Spark has them, in lower case or as they were written."""
        found = {name.lower(): value for name, value in given.items()}
        if "path" in found:  # what `.load(path)` says
            found["lake"] = found.pop("path")
        if "lake" not in found:
            raise SourceError(f'{NAME} needs the option "lake": the folder of the lake')
        try:
            options = msgspec.convert(found, type=cls, strict=False)
        except msgspec.ValidationError as error:
            raise SourceError(f"an option of {NAME} is wrong: {error}") from error
        if options.max_rows < 1 or options.slices < 1:
            raise SourceError(f'"max_rows" and "slices" of {NAME} must be at least 1')
        if options.content not in ("rows", "slices"):
            raise SourceError(f'"content" of {NAME} is rows or slices, not {options.content}')
        return options


# --- Spark's side ---------------------------------------------------------------------------------


class LakeSource(DataSource):  # type: ignore[misc]
    """`rove-lake`; `register` makes it known to a session."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        options = Options.read(self.options)
        if options.content == "slices":
            return SLICE_COLUMNS
        if options.kind == "notifications":
            return f"{_ROW_COLUMNS}, subscriptions array<long>"
        return _ROW_COLUMNS

    def streamReader(self, schema: Any) -> LakeStreamReader:
        return LakeStreamReader(Options.read(self.options))


class LakeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Plans in one process beside the driver, reads in the tasks."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lake = Lake(Path(options.lake))
        self._target: int | None = None
        self._listed: tuple[int, int, list[LakeFile]] = (BEGINNING, BEGINNING, [])

    def initialOffset(self) -> dict[str, int]:
        return {"position": self._options.start}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._lake.position()

    def reportLatestOffset(self) -> dict[str, int]:
        return {"position": self._lake.position()}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        after = start["position"]
        up_to = self._lake.position()
        if self._target is not None:
            up_to = min(up_to, self._target)
        if up_to <= after:  # nothing new; or a broker after a crash, which says too little at first
            return start
        files = self._files(after, up_to)
        if not isinstance(limit, ReadAllAvailable):
            up_to = end_of_batch(files, after, up_to, limit.max_rows)
        return {"position": up_to}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        after, up_to = start["position"], end["position"]
        found = slices(self._files(after, up_to), after, up_to, self._options.slices)
        return [InputPartition(one) for one in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        one: Slice = partition.value
        if self._options.content == "slices":
            yield pa.record_batch({"slice": pa.array([msgspec.msgpack.encode(one)], pa.binary())})
            return
        table, missing = read_slice(one, columns_of(self._options.kind))
        for path in missing:
            _log.warning("left out, since it was removed from the lake: %s", path)
        yield from table.to_batches(READ_ROWS)

    def _files(self, after: int, up_to: int) -> list[LakeFile]:
        """What was listed for finding the end of a batch serves for cutting it."""
        listed_after, listed_up_to, files = self._listed
        if after != listed_after or up_to > listed_up_to:
            files = self._lake.files(self._options.kind, after=after, up_to=up_to)
            self._listed = (after, up_to, files)
        return [each for each in files if each.first <= up_to]


def register(spark: Any) -> None:
    """Let this session know the source by its name."""
    spark.dataSource.register(LakeSource)


# --- what needs no Spark --------------------------------------------------------------------------


def columns_of(kind: str) -> pa.Schema:
    """What the files of a kind have."""
    if kind == "notifications":
        return COLUMNS.append(pa.field("subscriptions", pa.list_(pa.int64())))
    return COLUMNS


def end_of_batch(files: Sequence[LakeFile], after: int, up_to: int, rows_max: int) -> int:
    """The position up to which there are at most so many rows; `up_to` if there are not more.

    File names bound the number of rows; only where the bound is too large are positions read.
    """
    if sum(min(up_to, file.last) - max(after, file.first - 1) for file in files) <= rows_max:
        return up_to
    found = np.empty(0, dtype=np.int64)
    in_order = sorted(files, key=lambda file: file.first)
    for file, following in zip(in_order, [*in_order[1:], None], strict=True):
        positions = _positions_in(file.path, after, up_to)
        found = np.sort(np.concatenate([found, positions]))
        if following is not None and len(found) > rows_max and found[rows_max] < following.first:
            break
    return up_to if len(found) <= rows_max else int(found[rows_max - 1])


def slices(files: Iterable[LakeFile], after: int, up_to: int, count: int) -> list[Slice]:
    """Cut a range of positions into slices of like length, in order; none of nothing."""
    files = list(files)
    if not files or up_to <= after:
        return []
    count = max(1, min(count, (up_to - after) // SLICE_POSITIONS_MIN))
    borders = [after + (up_to - after) * index // count for index in range(count + 1)]
    found: list[Slice] = []
    for low, high in itertools.pairwise(borders):
        paths = tuple(str(file.path) for file in files if file.first <= high and file.last > low)
        if paths:
            found.append(Slice(low, high, paths))
    return found


def read_slice(one: Slice, schema: pa.Schema = COLUMNS) -> tuple[pa.Table, list[str]]:
    """Its rows in order, and the files that are gone."""
    tables: list[pa.Table] = []
    missing: list[str] = []
    for path in one.paths:
        try:
            tables.append(_read_file(path, one, schema))
        except FileNotFoundError:
            missing.append(path)
        except (OSError, pa.ArrowException, KeyError) as error:
            raise SourceError(f"cannot read {path} of the lake: {_first_line(error)}") from error
    table = pa.concat_tables(tables) if tables else schema.empty_table()
    if len(tables) > 1:
        table = table.sort_by("position")
    return table, missing


def _read_file(path: str, one: Slice, schema: pa.Schema) -> pa.Table:
    with pq.ParquetFile(path) as file:
        groups = list(_groups_within(file.metadata, one))
        absent = set(schema.names) - set(file.schema_arrow.names)
        if absent:
            raise KeyError(f"it has no column {', '.join(sorted(absent))}")
        table = file.read_row_groups(groups, columns=[*schema.names, EARLIER], use_threads=False)
    positions = table["position"]
    inside = pc.and_(pc.greater(positions, one.after), pc.less_equal(positions, one.up_to))
    if EARLIER in table.column_names:
        # All channels are read, so what several of them keep must be taken once.
        is_first = pc.fill_null(pc.equal(pc.list_value_length(table[EARLIER]), 0), True)
        inside = pc.and_(inside, is_first)
    return table.filter(inside).select(schema.names).cast(schema)


def _groups_within(metadata: Any, one: Slice) -> Iterator[int]:
    """The row groups that may have rows of the slice."""
    for group in range(metadata.num_row_groups):
        ends = metadata.row_group(group).column(0).statistics
        if ends is None or (ends.min <= one.up_to and ends.max > one.after):
            yield group


def _positions_in(path: Path, after: int, up_to: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    try:
        with pq.ParquetFile(path) as file:
            positions = file.read(columns=["position"])["position"].to_numpy()
    except FileNotFoundError:  # its rows will be missing when it is read, too
        return np.empty(0, dtype=np.int64)
    except (OSError, pa.ArrowException) as error:
        raise SourceError(f"cannot read {path} of the lake: {_first_line(error)}") from error
    found: np.ndarray[Any, np.dtype[np.int64]] = positions[
        (positions > after) & (positions <= up_to)
    ]
    return found


def _first_line(error: BaseException) -> str:
    return str(error).strip("'").splitlines()[0]
