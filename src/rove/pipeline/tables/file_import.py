"""Imports files into typed tables: CSV, JSON lines and Parquet.

An imported row is treated as a publication: it becomes a payload of attributes with a moment, an id
and a topic, and is then ingested like a row of the lake: the schema is extended, rules are applied,
and a commit adds it to the tables. Options say which columns have the moment (`at`), the id, the
client, the latitude and the longitude; the first three do not become attributes.

- JSON lines are read as they are. Spark converts Parquet to JSON. CSV has only strings, so each
  value is examined: what JSON would read as a number or a boolean becomes one, an empty value is
  missing, all others are strings (`007` too).
- A moment is a number of seconds since 1970, or a date and time (in UTC if it has no offset). A row
  without one is rejected (`at`), as is a line that is no object (`line`).
- Positions belong to the broker's log; imported rows have none.

Each file is imported once: the table `quality` has its size and time of change, and a file that has
changed since is refused.

Costs about twice as much as the lake: rows go through the JVM and are decoded twice.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from rove.errors import RoveError
from rove.lake.files import remove_files
from rove.lake.storage import Location, child, resolved
from rove.pipeline.spark.dialect import ddl, quoted
from rove.pipeline.spark.storage_probe import probe
from rove.pipeline.tables.commits import WriteResult
from rove.pipeline.tables.ingest import IngestReport, TargetTable
from rove.pipeline.tables.quality import QualityRules, RuleBook, with_duplicates
from rove.pipeline.tables.table import NamePath, TableSchema
from rove.pipeline.tables.writer import LAKE, TableWriter, merge_results

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Format: TypeAlias = Literal["csv", "jsonl", "parquet"]
FORMATS: Final[Mapping[str, Format]] = {
    ".csv": "csv",
    ".json": "jsonl",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
AT: Final = "at"
LINE: Final = "line"
_JSON_NUMBER: Final = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_TRUTHS: Final = {"true": True, "false": False}
_MICROSECONDS: Final = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])
_SAMPLE_ROWS: Final = 1_000


class FileImportError(RoveError):
    """A file is missing, unreadable, or has changed since it was imported."""


class ImportColumns(msgspec.Struct, frozen=True):
    """The meaning of columns in imported rows; None if there is no such column."""

    at: str = "at"
    id: str | None = "id"
    client_id: str | None = None
    lat: str | None = None
    """Renamed to the attribute that the table uses for it."""
    long: str | None = None
    topic: str = ""
    """The topic of all rows."""


# --- files ------------------------------------------------------------------------------------


def ingest_files(
    spark: SparkSession,
    paths: Sequence[Path],
    tables: Location,
    channel: str,
    *,
    columns: ImportColumns | None = None,
    format: Format | None = None,
    rules: RuleBook | None = None,
) -> IngestReport:
    """Import files into the table of a channel, unless they were imported before."""
    target = TargetTable(resolved(tables), channel, rules or RuleBook())
    fresh = _fresh(paths, target.channel.sources())
    if not fresh:
        return IngestReport()
    found = {path: format or format_of(path) for path in fresh}
    parts = [
        lines(spark, [path for path, its_format in found.items() if its_format == each], each)
        for each in dict.fromkeys(found.values())
    ]
    rows = reduce(lambda left, right: left.unionByName(right), parts)
    reader = LineReader(columns or ImportColumns(), target.schema.lat, target.schema.long, channel)
    sources = {str(path): _token(path) for path in fresh}
    published = rows.mapInArrow(reader.read, ddl(LAKE))
    report = ingest_rows(spark, published, target, sources)
    report.files_read = len(fresh)
    return report


def format_of(path: Path) -> Format:
    """The format by the suffix of a file's name."""
    try:
        return FORMATS[path.suffix.lower()]
    except KeyError:
        raise FileImportError(
            f"{path} has no known suffix; give its format: csv, jsonl or parquet"
        ) from None


def _fresh(paths: Sequence[Path], sources: Mapping[str, str]) -> list[Path]:
    """Files that were not imported yet; FileImportError for missing or changed ones."""
    found = []
    for path in dict.fromkeys(each.resolve() for each in paths):
        if not path.is_file():
            raise FileImportError(f"there is no file {path}")
        before = sources.get(str(path))
        if before is None:
            found.append(path)
        elif before != _token(path):
            raise FileImportError(
                f"{path} was ingested before and has changed since; "
                "put the new rows into another file"
            )
    return found


def _token(path: Path) -> str:
    stat = path.stat()
    return f"{stat.st_size}:{stat.st_mtime_ns}"


def lines(spark: SparkSession, paths: Sequence[Path], format: Format) -> DataFrame:
    """Rows as JSON in the column `line`; `is_text` if all values are strings, as in CSV."""
    from pyspark.sql import functions as f

    names = [str(path) for path in paths]
    if format == "jsonl":
        found = spark.read.text(names).where("trim(value) != ''")
        return found.select(f.col("value").alias("line"), f.lit(False).alias("is_text"))
    if format == "csv":
        found = spark.read.csv(names, header=True, multiLine=True, escape='"')
    else:
        for path in paths:
            _check_parquet(path)
        found = spark.read.option("mergeSchema", "true").parquet(*names)
    whole = f.struct(*(f.col(quoted(name)) for name in found.columns))
    as_json = f.to_json(whole, _MICROSECONDS)
    return found.select(as_json.alias("line"), f.lit(format == "csv").alias("is_text"))


def _check_parquet(path: Path) -> None:
    """Check a file here, since Spark's error is a page long and does not name the file."""
    try:
        pq.read_metadata(path)
    except (OSError, pa.ArrowException) as error:
        raise FileImportError(f"cannot read {path}: {first_line(error)}") from error


class LineReader:
    """Converts lines of JSON to rows of the lake, in a worker."""

    def __init__(self, columns: ImportColumns, lat: NamePath, long: NamePath, channel: str) -> None:
        self._columns = columns
        self._moves = [
            (name, path)
            for name, path in ((columns.lat, lat), (columns.long, long))
            if name is not None and (name,) != path
        ]
        self._topic = columns.topic or channel

    def read(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Process the batches of a task."""
        for batch in batches:
            texts = batch.column("line").to_pylist()
            flags = batch.column("is_text").to_pylist()
            rows = [self.row(text, is_text=flag) for text, flag in zip(texts, flags, strict=True)]
            yield pa.RecordBatch.from_pylist(rows, schema=LAKE)

    def row(self, text: str, *, is_text: bool) -> dict[str, Any]:
        """One row of the lake."""
        found = {"topic": self._topic, "id": "", "client_id": "", "user": [], "qos": 0}
        found["payload"] = text.encode()
        try:
            members = _OBJECT.decode(text)
        except (ValueError, RecursionError):
            return {**found, "reason": LINE}
        if is_text:
            members = {name: _value(written) for name, written in members.items() if written != ""}
        at = moment_of(members.pop(self._columns.at, None))
        if at is None:
            return {**found, "reason": AT}
        found["at"] = at
        for field, name in (("id", self._columns.id), ("client_id", self._columns.client_id)):
            if name is not None and members.get(name) is not None:
                found[field] = _as_text(members.pop(name))
        for name, path in self._moves:
            if name in members:
                _put(members, path, members.pop(name))
        found["payload"] = msgspec.json.encode(members)
        return found


def moment_of(value: object) -> datetime | None:
    """Seconds since 1970, or a date and time; None if it is neither."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(round(value * 1e6) / 1e6, UTC)
        if isinstance(value, str):
            found = datetime.fromisoformat(value.strip())
            return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return None


def _value(written: object) -> object:
    if not isinstance(written, str):
        return written
    if _JSON_NUMBER.fullmatch(written):
        try:
            return msgspec.json.decode(written)
        except ValueError:  # too large for a float
            return written
    return _TRUTHS.get(written.lower(), written)


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _put(members: dict[str, Any], path: NamePath, value: object) -> None:
    for name in path[:-1]:
        inner = members.get(name)
        members[name] = members = inner if isinstance(inner, dict) else {}
    members[path[-1]] = value


# --- into a table -----------------------------------------------------------------------------


class _WriteTask(msgspec.Struct, frozen=True):
    """A task that writes rows to a table."""

    table: str
    schema: TableSchema
    rules: QualityRules
    watermark_us: int | None

    def write(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Process the batches of a task."""
        writer = TableWriter(self.table, self.schema, self.rules, watermark_us=self.watermark_us)
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            flags = rows.column("is_duplicate").to_numpy()
            writer.take(rows.drop_columns(["is_duplicate"]), flags)
        outcome = msgspec.msgpack.encode(writer.finish())
        yield pa.RecordBatch.from_pydict({"outcome": [outcome]})


def ingest_rows(
    spark: SparkSession, rows: DataFrame, target: TargetTable, sources: dict[str, str]
) -> IngestReport:
    """Write rows, extending the schema until all values have columns, and commit."""
    begin_s = time.monotonic()
    probe(spark, writes=[target.uri.rpartition("/")[0]])
    flagged = _flagged(spark, rows, target)
    target.guess(rows.limit(_SAMPLE_ROWS).toArrow())
    while True:
        writing = _WriteTask(target.uri, target.schema, target.rules, target.state.newest_at_us)
        found = flagged.mapInArrow(writing.write, "outcome binary").collect()
        outcomes = [
            msgspec.msgpack.decode(bytes(row["outcome"]), type=WriteResult) for row in found
        ]
        if all(outcome.is_complete for outcome in outcomes):
            break
        for outcome in outcomes:
            target.add_missing(outcome)
            # Complete results of other tasks are written again, with the new schema.
            remove_files(child(target.uri, "data"), outcome.data)
            remove_files(child(target.uri, "rejected"), outcome.rejected)
        target.extend_schema()
    whole = merge_results(outcomes)
    target.channel.commit(target.schema, whole, sources=sources)
    target.channel.maintain()
    report = IngestReport(position=target.state.position, seconds=time.monotonic() - begin_s)
    report.add(target.name, whole)
    return report


def _flagged(spark: SparkSession, rows: DataFrame, target: TargetTable) -> DataFrame:
    """Rows with the column `is_duplicate`."""
    from pyspark.sql import functions as f

    horizon_s = target.rules.duplicates_s
    if horizon_s is None:
        return rows.withColumn("is_duplicate", f.lit(False))
    fresh = rows.withColumn("is_new", f.lit(True))
    before = target.keys(spark, since_us=0)
    if before is not None:
        keys = before.withColumn("is_new", f.lit(False))
        fresh = fresh.unionByName(keys, allowMissingColumns=True)
    return with_duplicates(fresh, horizon_s).where("is_new").drop("is_new")


def first_line(error: BaseException) -> str:
    """The first line of an error; Spark adds a page to it."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__
