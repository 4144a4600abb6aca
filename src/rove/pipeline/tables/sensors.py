"""Virtual sensors: the readings of all publishers in a square of the map and an interval of time.

Publishers move, come and go; users want values for places. A virtual sensor is a cell of the MGRS
grid (100 km, 10 km, 1 km or 100 m). For each channel, numeric attribute, cell and interval there is
one row: the number of readings and of publishers, the mean, extremes, deviation and quantiles, the
first and the last reading, how *fresh* the last one was when the interval ended, and the
*coverage*: the share of twelfths of the interval that have readings. The row also has the centre
and the corners of the cell, so that maps can draw it without knowing the grid.

    <out>/1000m-1h/air      a Delta table, by day

All aggregates are computed by Spark, quantiles exactly. Only the names and corners of cells are
computed in Python, where `mgrs` knows the exceptions of Norway, Svalbard and the poles.

**Incremental runs.** Each ingestion stores the hours in which it has accepted rows. A run takes
those hours from the ingestions since the last run, computes their intervals whole, and replaces
their files in one commit, which has the number of the last ingestion. So a run that is killed or
repeated changes nothing, and a reader sees either all old rows or all new ones. The newest day has
a file for each hour (or interval, if that is longer), other days have one: a late row costs a day.
Intervals have to divide a day. Days are UTC, so they all have 24 hours.

Measured in a warm session on two shared cores: 1,000,000 rows of two attributes become 52,000
sensors of 1 km and an hour in 10 s, with 13.5 s of CPU, most of it for shuffling and sorting.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_type

from rove.errors import RoveError
from rove.lake import compaction, delta
from rove.lake.files import NewFile, write_file
from rove.lake.storage import Location, child, folders, resolved, shown
from rove.pipeline.jobs.job import repeat
from rove.pipeline.jobs.status import StepReport
from rove.pipeline.spark.dialect import check_spark, quoted
from rove.pipeline.spark.file_frames import frame_of_files
from rove.pipeline.spark.storage_probe import probe
from rove.pipeline.tables.commits import HOUR_US, ingestions, state_at
from rove.pipeline.tables.grid import cell_names, square_of
from rove.pipeline.tables.table import Table, TableSchema, TableSnapshot, channels, folder_name

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame

    from rove.pipeline.jobs.job import JobContext

JOB: Final = "sensors"
TABLES_JOB: Final = "ingest"
"""The job in whose folder the typed tables are."""
QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)
PARTS: Final = 12
"""Parts of an interval, for its coverage."""
DAY_S: Final = 86_400
RUN_EVERY_S: Final = 60.0
"""Each run computes the current hour again."""
WRITER: Final = "sensors"

_INTERVAL: Final = re.compile(r"(\d+) ?(s|m|min|h|d)")
_UNIT_S: Final = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": DAY_S}
_NUMBERS: Final = frozenset({"double", "float", "bigint", "int", "smallint", "tinyint"})
_OTHERS: Final = frozenset({"position", "at", "qos", "day", "cell", "channel", "client_id"})
"""Columns of tables that are not attributes."""
_POINT: Final = pa.struct([("lat", pa.float64()), ("long", pa.float64())])
_SQUARE: Final = pa.struct([*_POINT, ("corners", pa.list_(_POINT))])
_AT: Final = pa.timestamp("us", tz="UTC")
_DAY: Final = pa.schema([("day", pa.date32())])
_ATTRIBUTES: Final = b"rove.attributes"
_SECOND_US: Final = 1_000_000


class SensorsError(RoveError):
    """There are no such sensors, or an option is invalid."""


class NothingToReadError(SensorsError):
    """The rows have no place, or no numeric attribute."""


# --- cells ----------------------------------------------------------------------------------------


def cell_column(lat: Column, long: Column, cell_m: int) -> Column:
    """The cell of each row; null without a valid position."""

    @sf.arrow_udf("string")  # type: ignore[untyped-decorator]
    def cell_of(lat: pa.Array, long: pa.Array) -> pa.Array:
        return cell_names(_coordinates(lat), _coordinates(long), cell_m)

    return cell_of(lat.cast("double"), long.cast("double"))


def _coordinates(values: Any) -> NDArray[np.float64]:
    """Numbers with NaN for null."""
    found: NDArray[np.float64] = values.to_numpy(zero_copy_only=False)
    return found.astype(np.float64, copy=False)


def square_column(cell: Column) -> Column:
    """The centre and corners of each cell."""

    @sf.arrow_udf(from_arrow_type(_SQUARE))  # type: ignore[untyped-decorator]
    def square(cell: pa.Array) -> pa.Array:
        coded = cell.dictionary_encode()
        rows = [_as_row(name) for name in coded.dictionary.to_pylist()]
        return pa.array(rows, _SQUARE).take(coded.indices)

    return square(cell)


def _as_row(cell: str) -> dict[str, object]:
    found = square_of(cell)
    corners = found.corners and [{"lat": lat, "long": long} for lat, long in found.corners]
    return {"lat": found.lat, "long": found.long, "corners": corners}


# --- sensors --------------------------------------------------------------------------------------


def sensors(
    rows: DataFrame | Table,
    cell_m: int = 1_000,
    interval: str = "1h",
    attributes: Sequence[str] | None = None,
    *,
    lat: str = "lat",
    long: str = "long",
    now: datetime | None = None,
) -> DataFrame:
    """A row for each channel, attribute, cell and interval with readings.

    `rows` is a typed table, or a DataFrame with `at`, `client_id`, `lat`, `long` (or the given
    names), numeric columns, and perhaps `channel`. Without `attributes` all numeric columns are
    used. With `now`, later rows are ignored, and the freshness and coverage of an interval that has
    not ended are computed up to that moment.
    """
    check_spark()
    length_us = interval_s(interval) * 1_000_000
    until_us = sf.col("start_us") + sf.lit(length_us)
    if isinstance(rows, Table):
        channel = sf.lit(rows.channel)
        lat, long = _places(rows.schema())
        rows = rows.dataframe(SparkSession.active()).withColumn("channel", channel)
    each = _readings(_source(rows, (lat, long), attributes), cell_m)
    if now is not None:
        now_us = sf.lit(round(now.timestamp() * 1e6))
        each = each.where(sf.col("at_us") <= now_us)
        until_us = sf.least(until_us, now_us)
    each = each.withColumn("start_us", sf.col("at_us") - sf.pmod("at_us", sf.lit(length_us)))
    each = each.withColumn("part", _part(sf.col("at_us"), length_us))
    summed = each.groupBy("channel", "attribute", "cell", "start_us").agg(*_aggregates())
    begun = sf.least(_part(until_us, length_us) + 1, sf.lit(PARTS))
    return summed.withColumn("square", square_column(sf.col("cell"))).select(
        "channel",
        "attribute",
        "cell",
        sf.lit(cell_m).alias("cell_m"),
        sf.timestamp_micros("start_us").alias("start"),
        sf.timestamp_micros(sf.col("start_us") + length_us).alias("end"),
        "square.*",
        *_FIGURES,
        ((until_us - sf.unix_micros("last_at")) / 1e6).alias("freshness_s"),
        (sf.bit_count("parts") / begun).alias("coverage"),
    )


def current(sensed: DataFrame, now: datetime | None = None) -> DataFrame:
    """The latest interval of each channel, attribute and cell; freshness at its end or `now`."""
    keys = ("channel", "attribute", "cell")
    others = [name for name in sensed.columns if name not in keys]
    newest = sensed.groupBy(*keys).agg(sf.max_by(sf.struct(*others), "start").alias("newest"))
    found = newest.select(*keys, "newest.*").select(*sensed.columns)
    if now is None:
        return found
    age_us = sf.lit(round(now.timestamp() * 1e6)) - sf.unix_micros("last_at")
    return found.withColumn("freshness_s", age_us / 1e6)


def interval_s(text: str) -> int:
    """The seconds of `10s`, `5min`, `1h` or `1d`."""
    found = _INTERVAL.fullmatch(text.strip())
    seconds = int(found[1]) * _UNIT_S[found[2]] if found else 0
    if not seconds:
        raise SensorsError(f"{text!r} is no interval; write 10s, 5min, 1h or 1d")
    return seconds


_FIGURES: Final = (
    "count", "publishers", "mean", "min", "max", "deviation",
    *(f"q{round(100 * share):02d}" for share in QUANTILES),
    "first", "first_at", "last", "last_at",
)  # fmt: skip


SENSORS: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("channel", "attribute", "cell")),
        ("cell_m", pa.int32()),
        ("start", _AT),
        ("end", _AT),
        *_SQUARE,
        ("count", pa.int64()),
        ("publishers", pa.int32()),
        *((name, pa.float64()) for name in _FIGURES[2:-4]),
        ("first", pa.float64()),
        ("first_at", _AT),
        ("last", pa.float64()),
        ("last_at", _AT),
        ("freshness_s", pa.float64()),
        ("coverage", pa.float64()),
    ]
)
"""The columns of the table, except `day`."""


def _aggregates() -> Iterator[Column]:
    """The aggregates, except those that depend on the end of the interval."""
    yield sf.count("value").alias("count")
    # count_distinct together with quantiles would shuffle every row twice.
    yield sf.size(sf.collect_set("client_id")).alias("publishers")
    yield sf.avg("value").alias("mean")
    yield sf.min("value").alias("min")
    yield sf.max("value").alias("max")
    yield sf.stddev_samp("value").alias("deviation")
    found = sf.percentile("value", sf.array(*map(sf.lit, QUANTILES)))
    for place, share in enumerate(QUANTILES):
        yield found[place].alias(f"q{round(100 * share):02d}")
    yield sf.min_by("value", "place").alias("first")
    yield sf.timestamp_micros(sf.min("at_us")).alias("first_at")
    yield sf.max_by("value", "place").alias("last")
    yield sf.timestamp_micros(sf.max("at_us")).alias("last_at")
    yield sf.bit_or(sf.expr("shiftleft(1L, part)")).alias("parts")


def _part(at_us: Column, length_us: int) -> Column:
    """The number of the part of its interval that a moment is in."""
    return sf.floor((at_us - sf.col("start_us")) * PARTS / length_us).cast("int")


# --- readings -------------------------------------------------------------------------------------


class _SensorInput(NamedTuple):
    """Rows, with the columns of their place and their values."""

    rows: DataFrame
    lat: Column
    long: Column
    values: Mapping[str, Column]


def _source(
    rows: DataFrame, places: tuple[str, str], attributes: Sequence[str] | None
) -> _SensorInput:
    known = numeric_attributes(rows)
    wanted = [name for name in known if name not in places] if attributes is None else attributes
    for name in (*places, *wanted):
        if name not in known:
            there = ", ".join(known) or "none at all"
            raise NothingToReadError(f"no attribute {name!r} is a number; there are {there}")
    if not wanted:
        raise NothingToReadError("there is no numeric attribute except the position")
    lat, long = (known[place] for place in places)
    return _SensorInput(rows, lat, long, {name: known[name] for name in wanted})


def _places(schema: TableSchema) -> tuple[str, str]:
    """The attributes of latitude and longitude in a table."""
    known = schema.by_path()
    lat, long = (
        _attribute_of(next(iter(known[path].columns.values()))) if path in known else ".".join(path)
        for path in (schema.lat, schema.long)
    )
    return lat, long


def numeric_attributes(rows: DataFrame) -> dict[str, Column]:
    """Numeric columns by attribute; an attribute whose type has changed has several."""
    columns: dict[str, list[str]] = {}
    for column, kind in rows.dtypes:
        if column not in _OTHERS and (kind in _NUMBERS or kind.startswith("decimal")):
            columns.setdefault(_attribute_of(column), []).append(column)
    return {
        name: sf.coalesce(*[sf.col(quoted(each)).cast("double") for each in own])
        for name, own in columns.items()
    }


def _attribute_of(column: str) -> str:
    return column.rpartition("::")[0] or column


def _readings(source: _SensorInput, cell_m: int) -> DataFrame:
    """One row for each value: channel, attribute, cell, at_us, client_id, value, and its place."""
    named = [
        sf.struct(sf.lit(name).alias("attribute"), value.alias("value"))
        for name, value in source.values.items()
    ]
    columns = source.rows.columns
    position = sf.col("position") if "position" in columns else sf.lit(0)
    wide = source.rows.select(
        (sf.col("channel") if "channel" in columns else sf.lit("")).alias("channel"),
        "client_id",
        sf.unix_micros("at").alias("at_us"),
        sf.coalesce(position, sf.lit(0)).cast("long").alias("position"),
        cell_column(source.lat, source.long, cell_m).alias("cell"),
        sf.array(*named).alias("read"),
    ).where("cell is not null")
    each = wide.select("*", sf.inline("read")).where("value < double('NaN')")
    return each.withColumn("place", sf.struct("at_us", "position", "value"))


# --- the table ------------------------------------------------------------------------------------


class SensorReport(msgspec.Struct, frozen=True):
    """The result of a run."""

    hours: int = 0
    """Hours with new rows, over all channels."""
    rows_in: int = 0
    """Rows of typed tables that were read."""
    rows_out: int = 0
    """Rows of sensors that were written."""
    position: int = -1
    """The log is processed up to here."""
    notes: tuple[str, ...] = ()
    """Channels that have no sensors, and why."""


def run_once(
    spark: SparkSession,
    tables: Location,
    out: Location,
    *,
    cell_m: int = 1_000,
    interval: str = "1h",
    attributes: Sequence[str] | None = None,
    only: Iterable[str] | None = None,
) -> SensorReport:
    """Update the sensors in `out` from the typed tables, of all channels or `only` some."""
    if DAY_S % interval_s(interval):
        raise SensorsError(f"an interval of {interval} does not divide a day; choose one that does")
    tables, out = resolved(tables), resolved(out)
    names = channels(tables) if only is None else list(only)
    if not names:
        note = f"there are no tables in {shown(tables)} yet; the job ingest makes them"
        return SensorReport(notes=(note,))
    probe(spark, reads=[tables], writes=[out])
    found = [
        _SensorTable(
            spark, Table(tables, name), uri_of(out, cell_m, interval, name), attributes
        ).update(cell_m, interval)
        for name in names
    ]
    return SensorReport(
        sum(one.hours for one in found),
        sum(one.rows_in for one in found),
        sum(one.rows_out for one in found),
        min((one.position for one in found), default=-1),
        tuple(note for one in found for note in one.notes),
    )


def read(
    spark: SparkSession, out: Location, cell_m: int = 1_000, interval: str = "1h"
) -> DataFrame:
    """Read sensors, with the column `day`; SensorsError if there are none."""
    place = _place(resolved(out), cell_m, interval)
    opened = [delta.DeltaTable(child(place, name)) for name in folders(place)]
    if not opened:
        raise SensorsError(
            f"there are no sensors of {cell_m} m and {interval} in {shown(resolved(out))}"
        )
    frames = [
        frame_of_files(spark, one.uri, one.files()["path"].to_pylist(), SENSORS, _DAY)
        for one in opened
    ]
    return functools.reduce(lambda one, other: one.unionByName(other), frames)


def uri_of(out: str, cell_m: int, interval: str, channel: str) -> str:
    """The URI of the sensors of a channel."""
    return child(_place(out, cell_m, interval), folder_name(channel))


def _place(out: str, cell_m: int, interval: str) -> str:
    return child(out, f"{cell_m}m-{interval.replace(' ', '')}")


Span = tuple[int, int]
"""A range of moments in µs."""


class _SensorTable:
    """The Delta table of one channel's sensors."""

    def __init__(
        self, spark: SparkSession, table: Table, uri: str, attributes: Sequence[str] | None
    ) -> None:
        self._spark = spark
        self._table = table
        self._attributes = attributes
        self._uri = uri

    def update(self, cell_m: int, interval: str) -> SensorReport:
        """Compute the intervals that have changed since the last run."""
        now = self._table.snapshot()
        sensed = self._open() if delta.exists(self._uri) else None
        done = None if sensed is None else sensed.number(WRITER)
        quality = delta.DeltaTable(self._table.uri_of("quality"))
        position = state_at(quality, now.number).position if now.number >= 0 else -1
        hours = self._hours(quality, -1 if done is None else done, now.number)
        if done == now.number or not hours:
            return SensorReport(position=position)
        length_us = interval_s(interval) * _SECOND_US
        there = [] if sensed is None else _there(sensed, length_us)
        spans = touched(hours, length_us, [span for _, span in there])
        counted = Observation()
        rows = self._rows(now, spans).observe(counted, sf.count(sf.lit(1)).alias("rows"))
        lat, long = _places(now.schema)
        try:
            frame = sensors(rows, cell_m, interval, self._attributes, lat=lat, long=long)
        except NothingToReadError as error:
            return SensorReport(position=position, notes=(f"{self._table.channel}: {error}",))
        added = self._written(frame, max(hours), length_us)
        sensed = sensed or self._open()
        replaced = [path for path, span in there if any(_meet(span, other) for other in spans)]
        begun_at = sensed.version
        sensed.commit(WRITER, now.number, added, replaced)
        compaction.maintain(sensed, _DAY.names, begun_at, grows=False)
        return SensorReport(
            len(hours), counted.get["rows"], sum(file.rows for file in added), position
        )

    def _open(self) -> delta.DeltaTable:
        encoded = msgspec.json.encode(self._attributes)
        fields = [
            field.with_metadata({_ATTRIBUTES: encoded}) if field.name == "attribute" else field
            for field in (*_DAY, *SENSORS)
        ]
        opened = delta.DeltaTable.for_writing(
            self._uri, pa.schema(fields), _DAY.names, compaction.CONFIGURATION
        )
        begun = next(field.metadata for field in opened.fields if field.name == "attribute")
        if begun[_ATTRIBUTES] != encoded:
            raise SensorsError(
                f"the sensors in {shown(self._uri)} have other attributes "
                f"({begun[_ATTRIBUTES].decode()}); use these, or another --out"
            )
        return opened

    def _hours(self, quality: delta.DeltaTable, after: int, up_to: int) -> list[int]:
        """The hours in which these ingestions have accepted rows, in µs."""
        rows = ingestions(quality, after, ["hours"])
        own = rows.filter(pc.field("number") <= up_to)["hours"].combine_chunks()
        return sorted(pc.unique(pc.list_flatten(own).cast(pa.int64())).to_pylist())

    def _rows(self, now: TableSnapshot, spans: Sequence[Span]) -> DataFrame:
        """The rows of some spans, from the files that may have them."""
        paths = [
            file.path
            for file in now.files
            if any(_meet((file.at_min_us, file.at_max_us + 1), span) for span in spans)
        ]
        frame = frame_of_files(self._spark, now.uri, paths, _read_of(now.schema), pa.schema([]))
        at_us = sf.unix_micros("at")
        within = [(at_us >= begin) & (at_us < end) for begin, end in _merged(spans)]
        frame = frame.where(functools.reduce(lambda one, other: one | other, within))
        return frame.withColumn("channel", sf.lit(self._table.channel))

    def _written(self, frame: DataFrame, newest_us: int, length_us: int) -> list[NewFile]:
        """Write a file for each part of the newest day and for each other day."""
        start_us = sf.unix_micros("start")
        day = sf.lit(DAY_S * _SECOND_US).cast("long")
        part = sf.when(start_us >= newest_us - newest_us % (DAY_S * _SECOND_US), start_us)
        part_us = sf.lit(part_length_us(length_us)).cast("long")
        keys = {
            "day_number": sf.floor(start_us / day).cast("long"),
            "part": sf.coalesce(sf.floor(part / part_us).cast("long"), sf.lit(-1)),
        }
        tasks = int(self._spark.conf.get("spark.sql.shuffle.partitions") or 1)
        placed = frame.withColumns(keys).repartition(tasks, *keys)
        ordered = placed.sortWithinPartitions(*keys, "cell", "attribute", "start")
        write = functools.partial(_write, self._uri)
        found = ordered.mapInArrow(write, "file binary").collect()
        return [msgspec.msgpack.decode(bytes(row["file"]), type=NewFile) for row in found]


def _read_of(schema: TableSchema) -> pa.Schema:
    """The columns that sensors are computed from."""
    needed = ("at", "client_id", "position")
    return pa.schema(
        [
            field
            for field in schema.arrow()
            if field.name in needed or field.type in (pa.float64(), pa.int64())
        ]
    )


def _write(uri: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write a file for each day and part; the batches of a task are in that order."""
    for (day, _), parts in groupby(_by_key(batches), key=lambda each: each[0]):
        rows = pa.Table.from_batches([batch for _, batch in parts])
        plain = rows.select(SENSORS.names).cast(SENSORS)
        file = write_file(uri, plain, {"day": str(np.datetime64(day, "D"))})
        yield pa.RecordBatch.from_pydict({"file": [msgspec.msgpack.encode(file)]})


def _by_key(
    batches: Iterable[pa.RecordBatch],
) -> Iterator[tuple[tuple[int, int], pa.RecordBatch]]:
    for batch in batches:
        keys = np.column_stack([batch.column(name).to_numpy() for name in ("day_number", "part")])
        changes = np.flatnonzero((keys[1:] != keys[:-1]).any(axis=1)) + 1
        for begin, end in zip([0, *changes], [*changes, len(keys)], strict=True):
            if end > begin:
                yield tuple(keys[begin].tolist()), batch.slice(begin, end - begin)


# --- what has changed -----------------------------------------------------------------------------


def touched(hours: Iterable[int], length_us: int, files: Sequence[Span]) -> list[Span]:
    """The spans to compute: the intervals of these hours, and all other rows of their files."""
    spans = {
        (hour - hour % length_us, -(-(hour + HOUR_US) // length_us) * length_us) for hour in hours
    }
    waiting = list(spans)
    while waiting:
        span = waiting.pop()
        for file in files:
            if _meet(file, span) and file not in spans:
                spans.add(file)
                waiting.append(file)
    return _merged(spans)


def _merged(spans: Iterable[Span]) -> list[Span]:
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def _meet(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def part_length_us(length_us: int) -> int:
    """The length of a file on the newest day: an hour, or one interval if that is longer."""
    return length_us * max(1, HOUR_US // length_us)


def _there(sensed: delta.DeltaTable, length_us: int) -> list[tuple[str, Span]]:
    """The files of a table, each with its span."""
    listed = sensed.files()
    if not listed.num_rows:
        return []
    first, last = (listed[f"{end}.start"].cast(pa.int64()).to_pylist() for end in ("min", "max"))
    spans = ((begin, end + length_us) for begin, end in zip(first, last, strict=True))
    return list(zip(listed["path"].to_pylist(), spans, strict=True))


def run_job(context: JobContext) -> None:
    """Keep sensors up to date with the tables.

    Options: `tables` (where they are), `cell_m`, `interval`, `attributes` (names with commas).
    """
    options = context.settings.options
    tables = options.get("tables") or child(resolved(context.settings.out), TABLES_JOB)
    named = options.get("attributes")

    def step() -> StepReport:
        report = run_once(
            context.spark,
            tables,
            context.location,
            cell_m=_whole(options.get("cell_m", "1000")),
            interval=options.get("interval", "1h"),
            attributes=named.split(",") if named else None,
        )
        return StepReport(
            position=report.position,
            rows_in=report.rows_in,
            rows_out=report.rows_out,
            notes=report.notes,
        )

    repeat(context, RUN_EVERY_S, step, after=TABLES_JOB)


def _whole(written: str) -> int:
    try:
        return int(written)
    except ValueError:
        raise SensorsError(f"cell_m is a number of metres, not {written!r}") from None
