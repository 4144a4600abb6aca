"""Raw readings of the metrics database, added up by 10 seconds, minutes and hours.

Whoever records metrics writes readings, and says which moments they are of
(`rove.metrics.arrivals`). A run takes what has arrived, reads the minutes that it touches, whole,
and adds them up in Spark; hours are put together of minutes, new ones and those that were there.
Roll-ups are written over the old ones, the last of them in the transaction in which the arrivals
are struck off: a run that is killed or repeated changes nothing, and readings that come hours late
change what they should.

**The driver reads, and hands Spark an Arrow table.** Considered: workers that read ranges, each
with a connection of its own. Reading is a tenth of the work: of two hours of a broker, half a
million readings, 2.6 s of 33 went into it, and what is new every ten seconds is read in a hundredth
of one. Two workers read three times as fast, and would need the password, the driver and, for
SQLite, the file on every node.

**What counters say.** An increase is the difference to the reading before, or the value itself if
it is smaller: then the counter has begun anew. It belongs to the interval of the later reading.
Readings before the cut, up to which they are forgotten, are not added up again: the rest of their
intervals is gone.

A run that finds 700 new readings of 70 series takes 1.5 s on two cores that eight others want too;
all figures are from there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as sf

from rove.metrics import arrivals
from rove.metrics.arrivals import Row, Stretch
from rove.metrics.database import Database, Rollup
from rove.metrics.naming import kind_of
from rove.metrics.points import RESOLUTIONS_S

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

KEEP_RAW_HOURS: Final = 24.0
"""0 is for ever."""
ROWS_MAX: Final = 500_000
"""Readings in one job of Spark; a piece of an hour may go beyond."""
_HOUR_S: Final = RESOLUTIONS_S[-1]
_MINUTE_S: Final = RESOLUTIONS_S[-2]
_SCHEMA: Final = pa.schema(
    [
        ("piece", pa.int32()),
        ("series", pa.int32()),
        ("is_counter", pa.bool_()),
        ("is_inside", pa.bool_()),
        ("at_us", pa.int64()),
        ("value", pa.float64()),
    ]
)
_SUMS: Final = pa.schema(
    [
        ("series", pa.int32()),
        ("resolution_s", pa.int32()),
        ("start", pa.int64()),
        ("count", pa.int64()),
        *((name, pa.float64()) for name in ("sum", "last", "min", "max", "increase", "watched_s")),
    ]
)

Names = dict[int, tuple[str, str]]
"""Metric and labels of a series, by number."""


class Report(msgspec.Struct, frozen=True):
    """What a run has done."""

    readings: int = 0
    """That it has read; more than were new, as minutes are read whole."""
    rollups: int = 0
    newest: int | None = None
    """The hour of the newest, in seconds; never in the future."""


class Piece(NamedTuple):
    """A stretch of time, and its readings with those before it."""

    stretch: Stretch
    rows: list[Row]


# --- the job --------------------------------------------------------------------------------------


def run_once(
    spark: SparkSession,
    database: Database,
    keep_raw_hours: float = KEEP_RAW_HOURS,
    rows_max: int = ROWS_MAX,
) -> Report:
    """Add up what has arrived since the last time; forget readings that are older than that."""
    waiting = arrivals.pending(database)
    if not waiting.arrivals:
        return Report()
    readings = rollups = 0
    groups = _grouped(database, waiting.stretches, rows_max)
    pieces = next(groups, [])
    while pieces:
        following = next(groups, [])
        # Struck off with the last ones: if it ends before, all of it is added up again.
        done = () if following else waiting.arrivals
        rollups += database.put(roll_up(spark, database, pieces), done=done)
        readings += sum(len(piece.rows) for piece in pieces)
        pieces = following
    if not readings:
        database.put((), done=waiting.arrivals)
    if not waiting.stretches:
        return Report()
    # A clock that is ahead of ours must not cost anybody their readings.
    newest = min(waiting.stretches[-1].until_us // 1_000_000, int(time.time()))
    newest -= newest % _HOUR_S
    if keep_raw_hours:
        database.forget_readings(newest - keep_raw_hours * _HOUR_S)
    return Report(readings, rollups, newest)


def _grouped(
    database: Database, stretches: Iterable[Stretch], rows_max: int
) -> Iterator[list[Piece]]:
    """Pieces of time with their readings, so many readings at a time."""
    group: list[Piece] = []
    for stretch in arrivals.pieces(database, stretches):
        group.append(Piece(stretch, arrivals.rows_of(database, stretch)))
        if sum(len(piece.rows) for piece in group) >= rows_max:
            yield group
            group = []
    if group:
        yield group


# --- Spark ----------------------------------------------------------------------------------------


def roll_up(spark: SparkSession, database: Database, pieces: list[Piece]) -> list[Rollup]:
    """The roll-ups of all intervals that these pieces touch."""
    names = arrivals.names(database)
    added = _added_up(spark.createDataFrame(table_of(pieces, names))).persist()
    try:
        found = [*_collected(added, names)]
        minutes = [one for one in found if one.resolution_s == _MINUTE_S]
        earlier = _earlier_minutes(database, minutes)
        stored = spark.createDataFrame(_sums_of(earlier, names))
        hours = _hours(added.where(sf.col("resolution_s") == _MINUTE_S).unionByName(stored))
        found += _collected(hours, names)
    finally:
        added.unpersist()
    return found


def table_of(pieces: Iterable[Piece], names: Names) -> pa.Table:
    """Readings as Spark gets them; those before a piece are marked."""
    tables = []
    for number, piece in enumerate(pieces):
        series, at_us, value = (np.array(column) for column in zip(*piece.rows, strict=True))
        kinds = {each: kind_of(names[each][0]) == "counter" for each in np.unique(series).tolist()}
        columns = [
            np.full(len(series), number, np.int32),
            series.astype(np.int32),
            np.array([kinds[each] for each in series.tolist()]),
            at_us >= piece.stretch.since_us,
            at_us.astype(np.int64),
            value.astype(np.float64),
        ]
        tables.append(pa.table([pa.array(column) for column in columns], schema=_SCHEMA))
    return pa.concat_tables(tables)


def _added_up(rows: DataFrame) -> DataFrame:
    """By ten seconds and by minutes; the columns as of `_SUMS`."""
    before = Window.partitionBy("piece", "series").orderBy("at_us")
    last = sf.lag("value").over(before)
    counted = sf.col("value") - sf.when(last <= sf.col("value"), last).otherwise(0.0)
    told = (
        rows.withColumn("increase", sf.when(sf.col("is_counter") & last.isNotNull(), counted))
        .withColumn("step_s", (sf.col("at_us") - sf.lag("at_us").over(before)) / 1e6)
        .where("is_inside")
        .withColumn("resolution_s", sf.explode(sf.lit([*RESOLUTIONS_S[:-1]])))
    )
    length_us = sf.col("resolution_s") * sf.lit(1_000_000).cast("long")
    start_us = sf.col("at_us") - sf.pmod(sf.col("at_us"), length_us)
    return (
        told.withColumn("start", (start_us / 1_000_000).cast("long"))
        .groupBy("series", "resolution_s", "start")
        .agg(
            sf.count("value").alias("count"),
            sf.sum("value").alias("sum"),
            sf.max_by("value", "at_us").alias("last"),
            sf.min("value").alias("min"),
            sf.max("value").alias("max"),
            sf.sum("increase").alias("increase"),
            sf.sum(sf.when(sf.col("increase").isNotNull(), sf.col("step_s"))).alias("watched_s"),
        )
    )


def _hours(minutes: DataFrame) -> DataFrame:
    """Of minutes; the columns as of `_SUMS`."""

    def total(name: str) -> Column:
        return sf.sum(name).alias(name)

    hour = sf.col("start") - sf.pmod(sf.col("start"), sf.lit(_HOUR_S))
    return (
        minutes.groupBy("series", hour.alias("hour"))
        .agg(
            total("count"),
            total("sum"),
            sf.max_by("last", "start").alias("last"),
            sf.min("min").alias("min"),
            sf.max("max").alias("max"),
            total("increase"),
            total("watched_s"),
        )
        .withColumnRenamed("hour", "start")
        .withColumn("resolution_s", sf.lit(_HOUR_S))
    )


def _collected(sums: DataFrame, names: Names) -> Iterator[Rollup]:
    for batch in sums.toArrow().to_batches():
        for row in batch.to_pylist():
            metric, labels = names[row.pop("series")]
            increase, watched_s = row["increase"], row["watched_s"]
            yield Rollup(
                metric=metric,
                labels=labels,
                mean=row["sum"] / row["count"],
                rate=increase / watched_s if increase is not None and watched_s else None,
                **row,
            )


# --- minutes that were there ----------------------------------------------------------------------


def _earlier_minutes(database: Database, minutes: Iterable[Rollup]) -> list[Rollup]:
    """The other minutes of the same series and hours."""
    new = {(one.metric, one.labels, one.start) for one in minutes}
    series = {(metric, labels) for metric, labels, _ in new}
    hours = {start - start % _HOUR_S for _, _, start in new}
    return [
        one
        for hour in sorted(hours)
        for one in database.rollups_between(_MINUTE_S, hour, hour + _HOUR_S)
        if (one.metric, one.labels) in series and (one.metric, one.labels, one.start) not in new
    ]


def _sums_of(rollups: Iterable[Rollup], names: Names) -> pa.Table:
    numbers = {name: number for number, name in names.items()}
    rows: list[dict[str, Any]] = [
        {
            "series": numbers[one.metric, one.labels],
            **{name: getattr(one, name) for name in _SUMS.names[1:]},
        }
        for one in rollups
    ]
    return pa.Table.from_pylist(rows, _SUMS)
