"""The lake as a source of Spark: `spark.read.format("rove")` and `spark.readStream.format("rove")`.

Writing with this format publishes rows to a broker (`rove.pipeline.spark.broker_sink`).

Delta's own reader needs a jar, and its offsets are versions of the table. Here an offset is a
position of the log. A micro-batch is the rows in `(start, end]`, whatever files have them:
compaction changes nothing, and a repeated batch is the same. A batch ends at the position up to
which the lake is complete, at the latest. So subscriptions can change exactly between two
publications.

The range is cut into *slices* of positions, one per task; a file on a border is read by both tasks,
each taking its rows (row groups outside are not read). Slices are in order, and so are their rows.

There are two contents: `rows` are a table. `slices` have one row per slice, which says what to
read; the task calls `read_slice`. Slices cover the range, so a batch says where it ends. Rows
instead go to the JVM, which converts them, and are converted to Arrow again for the next Python
worker (`rove.bench.pipeline.stream` measures both).

Spark's filters on `position`, `channel` and `day` skip whole files. A missing file is an error:
files that retention or compaction has removed from the table stay for hours, so it means that the
executor does not see the lake.
"""

# ruff: noqa: N802 (Spark's names)

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rove.errors import RoveError
from rove.lake.log import (
    COLUMNS,
    KINDS,
    NOTHING,
    SCHEMA,
    LakeLog,
    LogFile,
    in_order,
    read_within,
)
from rove.lake.storage import open_parquet, resolved
from rove.pipeline.spark.dialect import check_spark, check_streams

try:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        EqualTo,
        Filter,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        InputPartition,
        LessThan,
        LessThanOrEqual,
    )
except ImportError:
    check_spark()
    raise
try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # where `check_streams` refuses what needs them
    ReadAllAvailable = ReadLimit = ReadMaxRows = SupportsTriggerAvailableNow = object

from rove.pipeline.spark.broker_sink import BrokerStreamWriter, BrokerWriter, SinkOptions
from rove.pipeline.spark.dialect import ddl
from rove.pipeline.spark.executors import check_executors

NAME: Final = "rove"
BEGINNING: Final = NOTHING
"""Before every position."""
ROWS_MAX: Final = 200_000
"""Rows of a micro-batch, by default."""
SLICE_POSITIONS_MIN: Final = 4096
"""Fewer positions are not worth a task of their own."""
READ_ROWS: Final = 65_536
"""Rows of a record batch."""
READ_BYTES: Final = 64 * 1024 * 1024
"""Bytes of a record batch, about."""

SLICE_COLUMNS: Final = "slice binary"
EARLIER: Final = "earlier"
_BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_OF_PATH: Final = ("kind", "channel", "day")
_COMPLETE: Final = 2**62
"""Above every position."""


class SourceError(RoveError):
    """A query over the lake is set up wrongly, or a file of it cannot be read."""


class SliceFile(msgspec.Struct, frozen=True, array_like=True):
    """A file, with the columns that are the same for all its rows."""

    path: str
    kind: str = ""
    channel: str = ""
    day: str = ""


class Slice(msgspec.Struct, frozen=True):
    """The rows of one task: those of these files at positions in `(after, up_to]`."""

    after: int
    up_to: int
    lake: str
    files: tuple[SliceFile, ...]
    among: tuple[str, ...] | None = None
    """The channels that are read together; None: all."""
    repeats: bool = False
    """Whether a row is repeated for each of these channels that keeps it."""


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a query, checked."""

    lake: str
    kind: str = "publications"
    columns: str = ",".join(COLUMNS)
    channels: str = ""
    """As JSON; empty: all."""
    days: str = ""
    """From and to, as JSON."""
    start: int = BEGINNING
    """A new query starts after this position."""
    end: int = _COMPLETE
    """A batch query ends at this position."""
    max_rows: int = ROWS_MAX
    slices: int = 2
    """Tasks, at most."""
    repeats: bool = False
    """Whether a row is repeated for each channel that keeps it."""
    content: str = "rows"

    @classmethod
    def read(cls, given: Mapping[str, str]) -> SourceOptions:
        """Options as Spark has them, in lower case or as they were written."""
        found = {name.lower(): value for name, value in given.items()}
        if "path" in found:  # the argument of `.load(path)`
            found["lake"] = found.pop("path")
        if "lake" not in found:
            raise SourceError(f'{NAME} needs the option "lake": where the lake is')
        try:
            options = msgspec.convert(found, type=cls, strict=False)
        except msgspec.ValidationError as error:
            raise SourceError(f"an option of {NAME} is wrong: {error}") from error
        if options.max_rows < 1 or options.slices < 1:
            raise SourceError(f'"max_rows" and "slices" of {NAME} must be at least 1')
        if options.kind not in KINDS:
            raise SourceError(f'"kind" of {NAME} is one of {", ".join(KINDS)}, not {options.kind}')
        try:
            options.among, options.between  # noqa: B018 (invalid JSON raises)
        except msgspec.MsgspecError as error:
            raise SourceError(
                f'"channels" of {NAME} is a JSON list of names, "days" of first and last: {error}'
            ) from error
        if options.content not in ("rows", "slices"):
            raise SourceError(f'"content" of {NAME} is rows or slices, not {options.content}')
        if unknown := set(options.names) - set(SCHEMA.names):
            raise SourceError(
                f"the lake has no column {min(unknown)!r}; it has {', '.join(SCHEMA.names)}"
            )
        return msgspec.structs.replace(options, lake=resolved(options.lake))

    @property
    def names(self) -> list[str]:
        names = [name.strip() for name in self.columns.split(",")]
        if self.kind == "notifications" and self.columns == ",".join(COLUMNS):
            names.append("subscriptions")
        return names

    @property
    def among(self) -> tuple[str, ...] | None:
        return msgspec.json.decode(self.channels, type=tuple[str, ...]) if self.channels else None

    @property
    def between(self) -> tuple[str, str] | None:
        """The first and the last day."""
        return msgspec.json.decode(self.days, type=tuple[str, str]) if self.days else None

    def files(self, lake: LakeLog, after: int, up_to: int) -> list[LogFile]:
        return lake.files(self.kind, after, up_to, self.among, self.between)

    def partitions(self, files: Iterable[LogFile], after: int, up_to: int) -> list[InputPartition]:
        found = slices(files, after, up_to, self.slices, self.lake, self.among)
        return [
            InputPartition(msgspec.structs.replace(one, repeats=self.repeats))
            for one in found
            if one.files or self.content == "slices"
        ]

    def read_partition(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        one: Slice = partition.value
        if self.content == "slices":
            yield pa.record_batch({"slice": pa.array([msgspec.msgpack.encode(one)], pa.binary())})
            return
        yield from batches_of(read_slice(one, schema_of(self.names)))


# --- Spark's side ---------------------------------------------------------------------------------


class LakeDataSource(DataSource):  # type: ignore[misc]
    """The data source `rove`; `register` adds it to a session."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        options = SourceOptions.read(self.options)
        if options.content == "slices":
            return SLICE_COLUMNS
        return ddl(schema_of(options.names))

    def reader(self, schema: Any) -> LakeReader:
        return LakeReader(SourceOptions.read(self.options))

    def streamReader(self, schema: Any) -> LakeStreamReader:
        check_streams()
        return LakeStreamReader(SourceOptions.read(self.options))

    def writer(self, schema: Any, overwrite: bool) -> BrokerWriter:
        if overwrite:
            raise SourceError('publications cannot be overwritten; write with .mode("append")')
        return BrokerWriter(SinkOptions.read(self.options, schema.names))

    def streamWriter(self, schema: Any, overwrite: bool) -> BrokerStreamWriter:
        return BrokerStreamWriter(SinkOptions.read(self.options, schema.names))


class LakeReader(DataSourceReader):  # type: ignore[misc]
    """Plans partitions in a process beside the driver, and reads them in tasks."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Use filters to skip files. All are returned, so Spark filters the rows itself."""
        self._filters = filters
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        lake = LakeLog(options.lake)
        up_to = min(lake.position(), options.end)
        files = [
            file
            for file in options.files(lake, options.start, up_to)
            if all(may_hold(file, each) for each in self._filters)
        ]
        return options.partitions(files, options.start, up_to) or [
            InputPartition(Slice(0, 0, options.lake, ()))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._options.read_partition(partition)


class LakeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """The same for a stream, micro-batch by micro-batch."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._lake = LakeLog(options.lake)
        self._target: int | None = None
        self._listed: tuple[int, int, list[LogFile]] = (BEGINNING, BEGINNING, [])

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get only the options: they read slices, and do not open the table."""
        return {"_options": self._options}

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
        if up_to <= after:
            return start
        files = self._files(after, up_to)
        if not isinstance(limit, ReadAllAvailable):
            up_to = end_of_batch(self._lake, files, after, up_to, limit.max_rows)
        return {"position": up_to}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        after, up_to = start["position"], end["position"]
        return self._options.partitions(self._files(after, up_to), after, up_to)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._options.read_partition(partition)

    def _files(self, after: int, up_to: int) -> list[LogFile]:
        """The files of a batch; the list that was read to find its end is used again."""
        listed_after, listed_up_to, files = self._listed
        if after != listed_after or up_to > listed_up_to:
            files = self._options.files(self._lake, after, up_to)
            self._listed = (after, up_to, files)
        return [each for each in files if each.first <= up_to]


def register(spark: Any) -> None:
    """Register the source in a session; SourceError says what must be set first."""
    if int(spark.conf.get(_BATCH_ROWS)) < 1:
        raise SourceError(
            f"Spark needs a limit to read Python data sources; set {_BATCH_ROWS} to 10000"
        )
    check_executors(spark)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(LakeDataSource)


# --- what needs no Spark --------------------------------------------------------------------------


def schema_of(names: Iterable[str]) -> pa.Schema:
    return pa.schema([SCHEMA.field(name) for name in names])


def may_hold(file: LogFile, condition: Filter) -> bool:
    """Whether a file may have rows that pass one of Spark's filters; True if unknown."""
    if len(condition.attribute) != 1:
        return True
    (name,) = condition.attribute
    low, high = _ends(file, name)
    if low is None or high is None:
        return True
    match condition:
        case EqualTo(value=value):
            return bool(low <= value <= high)
        case In(value=values):
            return any(low <= value <= high for value in values)
        case GreaterThan(value=value):
            return bool(high > value)
        case GreaterThanOrEqual(value=value):
            return bool(high >= value)
        case LessThan(value=value):
            return bool(low < value)
        case LessThanOrEqual(value=value):
            return bool(low <= value)
    return True


def _ends(file: LogFile, name: str) -> tuple[Any, Any]:
    """The least and the greatest value of a column; None if unknown."""
    if name == "position":
        return file.first, file.last
    if name == "channel" and file.channel:
        return file.channel, file.channel
    if name == "day":
        day = date.fromisoformat(file.day)
        return day, day
    return None, None


def end_of_batch(
    lake: LakeLog, files: Sequence[LogFile], after: int, up_to: int, rows_max: int
) -> int:
    """The position up to which there are at most `rows_max` rows; `up_to` at the latest.

    The row counts of files bound the number of rows; positions are read only if they exceed the
    limit.
    """
    if sum(min(file.rows, up_to - max(after, file.first - 1)) for file in files) <= rows_max:
        return up_to
    found = np.empty(0, dtype=np.int64)
    ordered = sorted(files, key=lambda file: file.first)
    for file, following in zip(ordered, [*ordered[1:], None], strict=True):
        positions = lake.read(file, ["position"], after, up_to)["position"].to_numpy()
        found = np.sort(np.concatenate([found, positions]))
        if following is not None and len(found) > rows_max and found[rows_max] < following.first:
            break
    return up_to if len(found) <= rows_max else int(found[rows_max - 1])


def slices(
    files: Iterable[LogFile],
    after: int,
    up_to: int,
    count: int,
    lake: str,
    among: tuple[str, ...] | None = None,
) -> list[Slice]:
    """Cut a range of positions into slices of equal length, in order; some may have no files."""
    files = list(files)
    if up_to <= after:
        return []
    count = max(1, min(count, (up_to - after) // SLICE_POSITIONS_MIN)) if files else 1
    borders = [after + (up_to - after) * index // count for index in range(count + 1)]
    found: list[Slice] = []
    for low, high in itertools.pairwise(borders):
        sources = tuple(
            _slice_file(file) for file in files if file.first <= high and file.last > low
        )
        found.append(Slice(low, high, lake, sources, among))
    return found


def read_slice(one: Slice, schema: pa.Schema | None = None) -> pa.Table:
    """The rows of a slice, in order."""
    wanted = schema_of(COLUMNS) if schema is None else schema
    tables = [_read_file(one, source, wanted) for source in one.files]
    if not tables:
        return wanted.empty_table()
    return in_order(pa.concat_tables(tables)).select(wanted.names)


def whole(lake: LakeLog, kind: str = "publications", up_to: int | None = None) -> pa.Table:
    """All rows of a kind, in order, each once."""
    names = [*COLUMNS, "subscriptions"] if kind == "notifications" else COLUMNS
    return read_slice(one_slice(lake, kind, up_to), schema_of(names))


def one_slice(lake: LakeLog, kind: str = "publications", up_to: int | None = None) -> Slice:
    """All rows of a kind as one slice."""
    sources = tuple(map(_slice_file, lake.files(kind, up_to=up_to)))
    return Slice(NOTHING, _COMPLETE if up_to is None else up_to, lake.uri, sources)


def _slice_file(file: LogFile) -> SliceFile:
    return SliceFile(file.path, file.kind, file.channel, file.day)


def rows_of(batches: Iterator[pa.RecordBatch], names: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a task's input, which has either rows or slices to be read."""
    schema = schema_of(names)
    for batch in batches:
        if batch.schema.names != ["slice"]:
            yield batch
            continue
        for encoded in batch["slice"].to_pylist():
            yield from batches_of(read_slice(msgspec.msgpack.decode(encoded, type=Slice), schema))


def batches_of(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Record batches with a limited number of rows and, about, of bytes."""
    count = max(1, min(READ_ROWS, READ_BYTES * rows.num_rows // max(1, rows.nbytes)))
    for begin in range(0, rows.num_rows, count):
        yield from rows.slice(begin, count).combine_chunks().to_batches()


def _read_file(one: Slice, source: SliceFile, schema: pa.Schema) -> pa.Table:
    stored = [name for name in schema.names if name not in _OF_PATH]
    with open_parquet(one.lake, source.path) as file:
        names = list(dict.fromkeys(["position", *stored, EARLIER]))
        if absent := set(names) - set(file.schema_arrow.names):
            raise SourceError(f"{source.path} has no column {', '.join(sorted(absent))}")
        table = read_within(file, names, one.after, one.up_to)
    if not one.repeats:
        table = table.filter(_is_first(table[EARLIER], one.among))
    for name in _OF_PATH:
        if name in schema.names:
            value = getattr(source, name) or None
            field = schema.field(name)
            table = table.append_column(
                field, pa.array([value] * table.num_rows, pa.string()).cast(field.type)
            )
    wanted = pa.schema([SCHEMA.field("position"), *(f for f in schema if f.name != "position")])
    return table.select(wanted.names).cast(wanted)


def _is_first(earlier: Any, among: tuple[str, ...] | None) -> Any:
    """Which rows are not copies of a row in another of the channels."""
    lengths = pc.fill_null(pc.list_value_length(earlier), 0)
    is_alone = pc.equal(lengths, 0)
    if among is None or pc.all(is_alone).as_py():
        return is_alone
    known = set(among)
    return pa.array([not known.intersection(names or ()) for names in earlier.to_pylist()])
