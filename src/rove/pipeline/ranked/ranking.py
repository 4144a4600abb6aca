"""Ranked subscriptions on Spark: candidates are found in any order, windows are run by bucket.

    rank(df, ["NO2 > 40 ORDER BY NO2 DESC LIMIT 3 WITHIN 1 HOURS"], at="at")  # any table
    rank_rows(rows, events, buckets=8)  # the broker's subscriptions over its own lake

A bucket is one partition, sorted by time and passed to Python in batches; so a worker holds windows
and one batch, never all rows of a bucket. (`applyInArrow` also gives groups in batches, but does
not sort within them.) Many buckets cost little; fewer buckets than cores leave cores idle.

Windows slide by the times of the rows. A table is sorted, so no row is late. For rows that arrive
over time, `rove.pipeline.ranked.ranked_tables` has a rule for late ones.

`rove.bench.pipeline.ranked` measures what a row costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from rove.base.processes import cores
from rove.match.ranked.score_kernels import order_by_row
from rove.pipeline.lake.log import Event
from rove.pipeline.matching.arrow import columns_of, path_of, times_of
from rove.pipeline.matching.dataframes import map_batches
from rove.pipeline.matching.index import Index, Subscriptions, open_index
from rove.pipeline.ranked.buckets import (
    NOTIFICATIONS,
    Bucket,
    RankingError,
    is_ranked,
    run_bucket,
)
from rove.pipeline.ranked.ranked_tables import (
    ADDED,
    MATCHED,
    RankedTable,
    RankedTexts,
    as_bytes,
    conditions,
    ranked_texts,
)
from rove.pipeline.spark.dialect import ddl, quoted
from rove.pipeline.spark.executors import TaskFile
from rove.pipeline.spark.parquet_files import ParquetFiles
from rove.pipeline.spark.workers import in_worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "NOTIFICATIONS",
    "RankingError",
    "is_ranked",
    "rank",
    "rank_rows",
    "run_bucket",
]

_BUCKET: Final = "__bucket"
_PIECE_ROWS: Final = 8_192
_EVENTS: Final = msgspec.msgpack.Decoder(list[Event])


# -- any table -------------------------------------------------------------------------------------


def rank(
    df: DataFrame | ParquetFiles,
    subscriptions: Subscriptions,
    *,
    at: str,
    order: str | None = None,
    keep: Sequence[str] | None = None,
    buckets: int | None = None,
    until: float | None = None,
    strict: bool = True,
) -> DataFrame:
    """The rows that ranked subscriptions get of a table, in the order of their times.

    `at` names the column with the time of a row (a timestamp, or seconds), `order` one that orders
    rows of one moment. The result has the columns `keep` (by default all), and `subscription`,
    `due` (when the subscription gets the row, in seconds), `score` and `promoted` (whether the row
    moved up because others left the window). With `until`, windows slide on to that moment after
    the last row. If `strict`, the columns are checked as by `match`.
    """
    if df.isStreaming:
        raise RankingError(
            "windows need rows in order, and those of a Spark stream have none; rank each batch "
            "(foreachBatch), or use rove.pipeline.ranked.ranked_tables.RankedStream"
        )
    texts = ranked_texts(subscriptions)
    kept = list(df.columns if keep is None else keep)
    _check(df, [*kept, at, *([order] if order else [])], kept)
    if strict:
        texts.uses().check_table(df)
    buckets = buckets or cores()
    others = {*kept, at, order}
    needed = [name for name in df.columns if name in others or _head(name) in texts.attributes]
    carried = [name for name in needed if name in others or _head(name) in texts.scored]
    shipped = None
    if texts.conditional:
        shipped = Index.of_trees(conditions(texts)).task_file(df.sparkSession)
    job = _RankJob(texts, shipped, at, kept, carried, buckets, until)
    candidates = map_batches(df, needed, partial(_candidates, job), _candidate_schema(df, carried))
    together = candidates.repartitionById(buckets, _BUCKET).sortWithinPartitions(
        *(quoted(name) for name in (_BUCKET, at, *([order] if order else [])))
    )
    return together.mapInArrow(partial(_ranked, job), _result_schema(df, kept, texts))


def _check(df: DataFrame | ParquetFiles, named: Sequence[str], kept: Sequence[str]) -> None:
    for name in named:
        if name not in df.columns:
            raise RankingError(f"there is no column {name}; there are {', '.join(df.columns)}")
    for name in kept:
        if name.lower() in ADDED:
            raise RankingError(f"there is a column {name} already; rename it, or keep others")


def _head(name: str) -> str:
    """The attribute of a column, without members."""
    return path_of(name)[0]


def _candidate_schema(df: DataFrame | ParquetFiles, carried: Sequence[str]) -> Any:
    from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

    added = [
        StructField(_BUCKET, IntegerType(), False),
        StructField(MATCHED, BinaryType(), False),
    ]
    return StructType([*(df.schema[name] for name in carried), *added])


def _result_schema(df: DataFrame | ParquetFiles, kept: Sequence[str], texts: RankedTexts) -> Any:
    from pyspark.sql import types

    id_type = types.StringType() if texts.has_names else types.LongType()
    added = (id_type, types.DoubleType(), types.DoubleType(), types.BooleanType())
    fields = [types.StructField(*pair, False) for pair in zip(ADDED, added, strict=True)]
    return types.StructType([*(df.schema[name] for name in kept), *fields])


class _RankJob(msgspec.Struct, frozen=True):
    """A ranking job, as it is sent to workers."""

    texts: RankedTexts
    conditions: TaskFile | None
    at: str
    kept: list[str]
    carried: list[str]
    """The columns that windows need."""
    buckets: int
    until: float | None


@in_worker
def _candidates(job: _RankJob, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The candidates, once for each bucket that has a subscription for them."""
    everywhere = np.zeros(job.buckets, bool)
    everywhere[[number % job.buckets for number in job.texts.unconditional]] = True
    for batch in batches:
        for first in range(0, batch.num_rows, _PIECE_ROWS):
            piece = batch.slice(first, _PIECE_ROWS)
            found = _by_bucket(job, piece, everywhere)
            if found.num_rows:
                yield found


def _by_bucket(job: _RankJob, piece: pa.RecordBatch, everywhere: Any) -> pa.RecordBatch:
    count, buckets = piece.num_rows, job.buckets
    rows = ids = np.empty(0, np.int64)
    if job.conditions is not None:
        matcher = open_index(job.conditions).matcher
        pairs = matcher.match_table(columns_of(piece), times_of(piece[job.at], job.at))
        numbers = np.array(job.texts.conditional, np.int64)
        rows, ids = pairs.publications.astype(np.int64), numbers[pairs.subscriptions]
    places = rows * buckets + ids % buckets
    counts = np.bincount(places, minlength=count * buckets)
    wanted = np.flatnonzero((counts > 0) | np.tile(everywhere, count))
    starts = np.concatenate([[0], np.cumsum(counts[wanted])])
    together = ids[order_by_row(places, count * buckets)]
    kept = piece.select(job.carried).take(pa.array(wanted // buckets))
    added = [pa.array((wanted % buckets).astype(np.int32)), as_bytes(starts, together)]
    names = [*job.carried, _BUCKET, MATCHED]
    return pa.RecordBatch.from_arrays([*kept.columns, *added], names)


@in_worker
def _ranked(job: _RankJob, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the bucket of a partition; its rows are in order."""
    windows: RankedTable | None = None
    for batch in batches:
        if windows is None:
            bucket = batch.column(_BUCKET)[0].as_py()
            kept = pa.schema([batch.schema.field(name) for name in job.kept])
            windows = RankedTable(job.texts, job.at, kept, bucket, job.buckets)
        rows = pa.Table.from_batches([batch.drop_columns([_BUCKET])])
        yield from windows.enter(rows).to_batches()
    if windows is not None and job.until is not None:
        yield from windows.advance(job.until).to_batches()


# -- the lake --------------------------------------------------------------------------------------


def rank_rows(
    rows: DataFrame,
    events: Sequence[Event],
    *,
    buckets: int,
    until: float | None = None,
) -> DataFrame:
    """The notifications of the broker's ranked subscriptions for a range of its log.

    `rows` are publications from `VersionIndex.ranked_rows` for this number of `buckets`, in any
    order; `events` are those of subscriptions from the beginning of the log on. With `until`,
    windows slide on to that moment. The columns are `NOTIFICATIONS`.
    """
    relevant = [one for one in events if one.event != "made" or is_ranked(one.text)]
    work = _LakeWork(msgspec.msgpack.encode(relevant), buckets, until)
    together = rows.repartitionById(buckets, "bucket").sortWithinPartitions("bucket", "position")
    return together.mapInArrow(partial(_rank_lake, work), ddl(NOTIFICATIONS))


class _LakeWork(msgspec.Struct, frozen=True):
    events: bytes
    buckets: int
    until: float | None


@in_worker
def _rank_lake(work: _LakeWork, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    run: Bucket | None = None
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        if run is None:
            run = Bucket(batch.column("bucket")[0].as_py(), work.buckets)
            run.expect(_EVENTS.decode(work.events))
        for found in run.run(rows):
            yield from found.to_batches()
    if run is not None:
        for found in run.finish():
            yield from found.to_batches()
        if work.until is not None:
            yield from run.advance(work.until).to_batches()
