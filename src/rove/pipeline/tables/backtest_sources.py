"""Where backtests read publications from: typed tables, or the lake.

A source counts the publications of a period, gives Spark as few rows as the expressions need, and
looks up single publications. Tables are pruned by the expressions
(`rove.pipeline.matching.pruning`): files, columns and row groups. The lake can be pruned by days
only, and its payloads have to be decoded; it is used where there are no tables yet.

The number of publications in a period comes from the statistics of a table's files and, for the few
files that are only partly in the period, from their column `at`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from rove.errors import RoveError
from rove.lake.files import read_columns
from rove.lake.storage import Location, filesystem, resolved, shown
from rove.lang.attributes import attributes_of
from rove.lang.tree import Time, parts
from rove.pipeline.lake.log import Lake, LogFile
from rove.pipeline.lake.version_index import AT_TYPE
from rove.pipeline.matching.pruning import PrunedExpression, ReadPlan, plan, spark_filter
from rove.pipeline.spark.dialect import quoted
from rove.pipeline.spark.file_frames import frame_of_files
from rove.pipeline.tables import table as tables
from rove.pipeline.tables.backtest_tasks import BacktestExpression, CountTask, Example
from rove.pipeline.tables.table import Table, TableFile, TableSchema, TableSnapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_READ: Final = ("position", "at", "topic", "client_id")
_LAKE_READ: Final = (*_READ, "id", "payload", "user")
_AT: Final = pa.schema([tables.BASE.field("at")])
_CELL: Final = pa.schema([("cell", pa.string())])


class FoundPublication(NamedTuple):
    """A publication that was looked up."""

    id: str
    attributes: dict[str, object]
    bytes_read: int
    """An upper bound."""


Fits: TypeAlias = Callable[[dict[str, object]], bool]


class BacktestSourceError(RoveError):
    """There is no such source, channel or publication."""


class TimeRange(msgspec.Struct, frozen=True):
    """A range of moments in µs; its end is not in it."""

    since_us: int
    until_us: int

    @property
    def days(self) -> tuple[str, str]:
        return day_of(self.since_us), day_of(max(self.since_us, self.until_us - 1))

    def has(self, at_us: int) -> bool:
        return self.since_us <= at_us < self.until_us


class ChannelInput(msgspec.Struct, frozen=True):
    """The rows to be matched, of one channel or of the lake."""

    work: CountTask
    rows: Any
    """A DataFrame; None if nothing can match."""
    publications: int | None
    """Publications in the period; None if they have to be counted while they are matched."""
    files: int
    files_all: int
    bytes_all: int
    """The size of the channel, over all time."""


def day_of(at_us: int) -> str:
    """The day of a moment, as in the names of folders."""
    return datetime.fromtimestamp(at_us // 1_000_000, UTC).date().isoformat()


def open_source(
    *,
    tables_folder: Location | None = None,
    lake: Location | None = None,
    data_folder: Path | None = None,
    channels: Sequence[str] = (),
) -> BacktestSource:
    """Tables if there are any, else the lake; an error says what is missing."""
    if tables_folder is not None:
        return TableSource(tables_folder, channels)
    if lake is not None:
        return LakeSource(Lake(lake), channels)
    folder = data_folder or Path("rove-data")
    if (folder / "tables").is_dir() and tables.channels(folder / "tables"):
        return TableSource(folder / "tables", channels)
    return LakeSource(Lake(folder / "lake"), channels)


def _chosen(there: Sequence[str], wanted: Sequence[str], where: str) -> list[str]:
    for channel in wanted:
        if channel not in there:
            listed = ", ".join(map(repr, there))
            raise BacktestSourceError(f"{where} has no channel {channel!r}; it has {listed}")
    return list(wanted or there)


# -- typed tables --------------------------------------------------------------------------------


class TableSource:
    """Typed tables, a channel each."""

    def __init__(self, location: Location, channels: Sequence[str] = ()) -> None:
        uri = resolved(location)
        folder = shown(uri)
        there = tables.channels(uri)
        if not there:
            raise BacktestSourceError(
                f"there are no tables in {folder}; `rove pipeline ingest` makes them"
            )
        self.name = f"tables {folder}"
        self.channels = _chosen(there, channels, f"the folder {folder}")
        self._tables = [Table(uri, name).snapshot() for name in self.channels]
        """Snapshots, so that all steps of a backtest read the same files."""

    def span(self) -> tuple[str, str]:
        """The first and the last day with rows."""
        days = [entry.day for table in self._tables for entry in table.files]
        return (min(days), max(days)) if days else ("", "")

    def inputs(
        self,
        spark: SparkSession,
        period: TimeRange,
        expressions: Sequence[tuple[BacktestExpression, PrunedExpression]],
        topic_filter: str,
    ) -> list[ChannelInput]:
        """The rows to be matched with these expressions, by channel."""
        return [
            self._input(spark, table, period, expressions, topic_filter) for table in self._tables
        ]

    def _input(
        self,
        spark: SparkSession,
        table: TableSnapshot,
        period: TimeRange,
        expressions: Sequence[tuple[BacktestExpression, PrunedExpression]],
        topic_filter: str,
    ) -> ChannelInput:
        schema = table.schema
        entries = [entry for entry in table.files if _overlaps(entry, period)]
        found = plan(schema, [wanted for _, wanted in expressions], topic_filter)
        chosen = [
            entry for entry in _by_moment(table, entries, expressions) if found.may_hold(entry)
        ]
        named = {f"a{number}": column for number, column in enumerate(found.columns)}
        is_ranked = any(wanted.subscription.rank is not None for _, wanted in expressions)
        own = (*_READ, "id") if is_ranked else _READ
        return ChannelInput(
            CountTask(tuple(one for one, _ in expressions), schema, named, topic_filter),
            _table_rows(spark, table, own, chosen, found, period) if chosen else None,
            sum(_publications(table.uri, entry, period) for entry in entries),
            len(chosen),
            len(table.files),
            sum(entry.size_bytes for entry in table.files),
        )

    def find(self, example: Example, fits: Fits) -> FoundPublication:
        """Look up a publication; of several at one moment, one that fits."""
        for table in self._tables:
            for entry in table.files:
                is_here = entry.at_min_us <= example.at_us <= entry.at_max_us
                if not is_here or entry.cell != example.cell:
                    continue
                for row in _rows_like(table.uri, entry.path, table.schema, example):
                    attributes = tables.attributes(table.schema, row)
                    if fits(attributes):
                        return FoundPublication(row["id"] or "", attributes, entry.size_bytes)
        raise _gone(example)


def _by_moment(
    table: TableSnapshot,
    entries: Sequence[TableFile],
    expressions: Sequence[tuple[BacktestExpression, PrunedExpression]],
) -> list[TableFile]:
    """Files that may match during their own day, since areas may move with `t`."""
    evolves = any(
        type(node) is Time for _, wanted in expressions for node in parts(wanted.subscription)
    )
    if not evolves:
        return list(entries)
    kept: list[TableFile] = []
    for _, group in groupby(entries, lambda entry: entry.day):
        of_day = list(group)
        first_us = min(entry.at_min_us for entry in of_day)
        last_us = max(entry.at_max_us for entry in of_day)
        wanted = [_during(one, whole, first_us, last_us) for one, whole in expressions]
        found = plan(table.schema, wanted)
        kept += [entry for entry in of_day if found.may_hold(entry)]
    return kept


def _during(
    expression: BacktestExpression, wanted: PrunedExpression, first_us: int, last_us: int
) -> PrunedExpression:
    t = (first_us / 1e6 - expression.accepted_at, last_us / 1e6 - expression.accepted_at)
    return msgspec.structs.replace(wanted, t=(max(0.0, t[0]), max(0.0, t[1])))


def _rows_like(
    uri: str, path: str, schema: TableSchema, example: Example
) -> Iterator[dict[str, Any]]:
    """Rows of a file that may be the example; imported rows have no position."""
    moment = pa.scalar(example.at_us, pa.int64()).cast(AT_TYPE)
    wanted = (example.position, example.client_id, example.topic)
    file = ds.dataset(path, schema=schema.arrow(), filesystem=filesystem(uri))
    for row in file.to_table(filter=pc.field("at") == moment).to_pylist():
        if (row["position"], row["client_id"] or "", row["topic"] or "") == wanted:
            yield row


def _gone(example: Example) -> BacktestSourceError:
    at = datetime.fromtimestamp(example.at_us / 1e6, UTC).isoformat()
    return BacktestSourceError(
        f"a publication of {at} is no longer there; its file was removed meanwhile"
    )


def _table_rows(
    spark: SparkSession,
    table: TableSnapshot,
    own: Sequence[str],
    entries: Iterable[TableFile],
    found: ReadPlan,
    period: TimeRange,
) -> DataFrame:
    """Rows of files that may match, with the columns of attributes as a0, a1, …"""
    from pyspark.sql import functions as f

    schema = table.schema.arrow()
    read = pa.schema([schema.field(name) for name in (*own, *found.columns)])
    rows = frame_of_files(spark, table.uri, [entry.path for entry in entries], read, _CELL)
    renamed = [f.col(quoted(column)).alias(f"a{i}") for i, column in enumerate(found.columns)]
    wanted = rows.where(spark_filter(found.filter)).where(_within(period))
    return wanted.select(*own, "cell", *renamed)


def _within(period: TimeRange) -> Any:
    from pyspark.sql import functions as f

    since, until = (
        f.timestamp_micros(f.lit(at_us).cast("long"))
        for at_us in (period.since_us, period.until_us)
    )
    return (f.col("at") >= since) & (f.col("at") < until)


def _overlaps(entry: TableFile, period: TimeRange) -> bool:
    return entry.at_min_us < period.until_us and entry.at_max_us >= period.since_us


def _publications(uri: str, entry: TableFile, period: TimeRange) -> int:
    if period.has(entry.at_min_us) and period.has(entry.at_max_us):
        return entry.rows
    at = read_columns(uri, entry.path, _AT)["at"].cast(pa.int64())
    inside = pc.and_(pc.greater_equal(at, period.since_us), pc.less(at, period.until_us))
    return int(pc.sum(inside).as_py() or 0)


# -- the lake ------------------------------------------------------------------------------------


class LakeSource:
    """The lake of a broker, as it wrote it."""

    def __init__(self, lake: Lake, channels: Sequence[str] = ()) -> None:
        there = lake.channels()
        if not there:
            raise BacktestSourceError(f"the lake {lake.name} has no publications yet")
        self.name = f"lake {lake.name}"
        self.channels = _chosen(there, channels, f"the lake {lake.name}")
        self._lake = lake

    def span(self) -> tuple[str, str]:
        days = [file.day for file in self._files()]
        return (min(days), max(days)) if days else ("", "")

    def _files(self, days: tuple[str, str] | None = None) -> list[LogFile]:
        return self._lake.files("publications", channels=self.channels, days=days)

    def inputs(
        self,
        spark: SparkSession,
        period: TimeRange,
        expressions: Sequence[tuple[BacktestExpression, PrunedExpression]],
        topic_filter: str,
    ) -> list[ChannelInput]:
        work = CountTask(tuple(one for one, _ in expressions), topic_filter=topic_filter)
        files = self._files(period.days)
        every = self._files()
        rows = None
        if files:
            found = self._lake.publications(
                spark, channels=self.channels, days=period.days, columns=_LAKE_READ
            )
            rows = found.where(_within(period))
        size_bytes = sum(file.size_bytes for file in every)
        return [ChannelInput(work, rows, None, len(files), len(every), size_bytes)]

    def find(self, example: Example, fits: Fits) -> FoundPublication:
        position = example.position
        assert position is not None, "all rows of the lake have one"
        for file in self._lake.files("publications", position - 1, position, self.channels):
            for row in self._lake.read(file, after=position - 1, up_to=position).to_pylist():
                user = [(one["name"], one["value"]) for one in row["user"] or ()]
                attributes = attributes_of(row["topic"], row["payload"] or b"", user)
                return FoundPublication(row["id"], attributes, file.size_bytes)
        raise _gone(example)


BacktestSource: TypeAlias = TableSource | LakeSource
"""Where a backtest reads publications."""
