"""The streaming match: the lake's publications against its subscriptions, exactly once.

    offsets ─▶ [positions (after, last]] ─▶ tasks: read a slice, match it, write a file ─┐
                       │                                   └▶ rows for ranked windows    ├▶ commits
    subscription events up to `last` ─▶ index                 └▶ tasks by bucket ────────┘

A micro-batch is a range of positions in the log. The subscription events of that range are applied
to the index before the batch is matched, and every version in the index holds between two
positions. So the matches of a publication do not depend on where batches end, a repeated batch
gives the same result, and a subscription can change between any two publications.

The rows of a batch are slices; together they say which range it is. Which part of the range is
already processed is known from the output (`rove.pipeline.jobs.notifications`). Nothing here reads
Spark's checkpoint, and a query without its checkpoint resumes where the output ends.

Spark transports only names: a task gets a slice and returns the name of a file. There is no
shuffle. Ranked subscriptions need one order over all publications: rows that pass their conditions
are written to scratch files by bucket, and a second job runs each bucket's windows over them.
`transformWithState` would do the same with a value of bytes for each bucket, but every row and
every state would pass through the JVM; it was measured at 70,700 rows/s.

Windows advance to the last publication of a batch. So a notification about a publication that moves
up because another left the window is sent with the next publication in the lake, on any topic.

A micro-batch costs 0.2 to 0.4 s however small it is. A start reads the events of the lake since the
last snapshot (`rove.pipeline.lake.snapshots`) and builds the index, 0.1 to 0.2 ms a subscription.
"""

# ruff: noqa: N802 (Spark's names)

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.streaming.listener import StreamingQueryListener

from rove.errors import RoveError
from rove.lake.files import NewFile, write_file
from rove.lake.storage import (
    Location,
    child,
    filesystem,
    folder_of,
    lake_errors,
    open_parquet,
    remove,
    shown,
)
from rove.pipeline.jobs.notifications import SCHEMA, SCRATCH_FOLDER, STATES, MatchOutput, states_uri
from rove.pipeline.jobs.status import StepReport
from rove.pipeline.lake import data_source, snapshots
from rove.pipeline.lake.data_source import BEGINNING, READ_ROWS, ROWS_MAX, Slice, read_slice
from rove.pipeline.lake.live_index import LiveIndex
from rove.pipeline.lake.log import Event, Lake
from rove.pipeline.lake.snapshots import SubscriptionSnapshot
from rove.pipeline.lake.version_index import RANKED_ROWS, IndexSpec, opened
from rove.pipeline.ranked.buckets import is_ranked, run_bucket
from rove.pipeline.spark.dialect import check_streams
from rove.pipeline.spark.executors import folder_of_process
from rove.pipeline.spark.workers import run_each

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from rove.pipeline.jobs.job import JobContext, JobSettings

TRIGGER_S: Final = 0.1
"""How often to look for new rows, by default."""
BUCKETS: Final = 8
"""Number of groups of ranked subscriptions, by default."""
DRAIN_S: Final = 30.0
"""How long `stop` waits for the running batch."""
LOOK_EVERY_S: Final = 0.5


class StreamError(RoveError):
    """The streaming match cannot go on."""


# --- tasks ----------------------------------------------------------------------------------------


class MatchTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task of the first job."""

    slice: Slice
    index: IndexSpec
    out: str
    buckets: int = 0
    """0 if nothing is ranked."""


class SliceMatches(msgspec.Struct, frozen=True, kw_only=True):
    """Its result."""

    rows: int
    at_us: int | None
    """When the last row was published."""
    found: NewFile | None
    scratch: str | None = None
    """A file with the rows for ranked windows, a row group for each bucket."""
    groups: dict[int, int] = {}
    """The row group by bucket."""


def match_slice(work: MatchTask) -> SliceMatches:
    """Read, match and write a slice; notifications are in the order of positions."""
    publications = read_slice(work.slice)
    versions = opened(work.index)
    pieces = publications.combine_chunks().to_batches(READ_ROWS)
    found = pa.Table.from_batches(
        [_as_notifications(versions.match_lake(piece)) for piece in pieces], SCHEMA
    )
    scratch: str | None = None
    groups: dict[int, int] = {}
    if work.buckets and pieces:
        rows = [versions.ranked_rows(piece, work.buckets) for piece in pieces]
        scratch, groups = _write_scratch(work.out, pa.Table.from_batches(rows))
    moments = publications["at"].cast(pa.int64())
    return SliceMatches(
        rows=publications.num_rows,
        at_us=moments[-1].as_py() if len(moments) else None,
        found=write_file(work.out, found) if found.num_rows else None,
        scratch=scratch,
        groups=groups,
    )


def _as_notifications(pairs: pa.RecordBatch) -> pa.RecordBatch:
    count = pairs.num_rows
    rank = [pa.nulls(count, pa.float64()), pa.repeat(pa.scalar(False), count)]
    columns = [*pairs.columns, *rank, pa.nulls(count, pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _write_scratch(out: str, rows: pa.Table) -> tuple[str | None, dict[int, int]]:
    """Write rows by bucket to a file that is needed for this batch only, so it is not flushed."""
    buckets = sorted(rows["bucket"].unique().to_pylist())
    if not buckets:
        return None, {}
    path = f"{SCRATCH_FOLDER}/{uuid.uuid4().hex}.parquet"
    with lake_errors(f"cannot write {shown(child(out, path))}"):
        if (folder := folder_of(out)) is not None:
            (folder / path).parent.mkdir(exist_ok=True)
        with (
            filesystem(out).open_output_stream(path) as stream,
            pq.ParquetWriter(stream, RANKED_ROWS, compression="zstd") as writer,
        ):
            for bucket in buckets:
                some = rows.filter(pc.equal(rows["bucket"], bucket))
                writer.write_table(some, row_group_size=some.num_rows)
    return path, {bucket: group for group, bucket in enumerate(buckets)}


class RankTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task of the second job."""

    out: str
    own: tuple[int, ...]
    """The buckets that this task runs."""
    buckets: int
    """The number of all buckets."""
    last: int
    events: list[Event]
    """Events of the batch that concern its buckets."""
    until: float | None
    rows: dict[int, list[tuple[str, int]]]
    """Scratch files and row groups in order, by bucket."""
    states: dict[int, str]
    """The file with the state after the previous batch, by bucket."""
    sequence: int
    """The last ranked sequence before this batch."""


class RankedBuckets(msgspec.Struct, frozen=True, kw_only=True):
    """Its result."""

    own: tuple[int, ...]
    found: NewFile | None
    states: NewFile
    sequence: int
    """The greatest sequence that it has used."""


def rank_buckets(work: RankTask) -> RankedBuckets:
    """Run the windows of some buckets; returns their notifications and new states."""
    found = [SCHEMA.empty_table()]
    states: list[bytes] = []
    before = _states_before(work)
    for bucket in work.own:
        notifications, state = run_bucket(
            bucket,
            work.buckets,
            before.get(bucket),
            [event for event in work.events if _concerns(event, bucket, work.buckets)],
            _scratch_rows(work, bucket),
            work.until,
        )
        turns = np.arange(len(notifications), dtype=np.int64) * work.buckets
        numbers = pa.array(work.sequence + 1 + bucket + turns)
        found.append(notifications.append_column("sequence", numbers).cast(SCHEMA))
        states.append(state)
    rows = pa.concat_tables(found)
    saved = {
        "bucket": pa.array(work.own, pa.int32()),
        "position": pa.array([work.last] * len(work.own), pa.int64()),
        "state": pa.array(states, pa.binary()),
    }
    return RankedBuckets(
        own=work.own,
        found=write_file(work.out, rows) if rows.num_rows else None,
        states=write_file(states_uri(work.out), pa.table(saved, STATES)),
        sequence=pc.max(rows["sequence"]).as_py() or work.sequence,
    )


def _states_before(work: RankTask) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for path in sorted({work.states[each] for each in work.own if each in work.states}):
        with open_parquet(states_uri(work.out), path) as file:
            for row in file.read(["bucket", "state"]).to_pylist():
                if work.states.get(row["bucket"]) == path:
                    found[row["bucket"]] = row["state"]
    return found


def _scratch_rows(work: RankTask, bucket: int) -> pa.Table:
    found = [RANKED_ROWS.empty_table()]
    for path, group in work.rows.get(bucket, ()):
        with open_parquet(work.out, path) as file:
            found.append(file.read_row_group(group))
    return pa.concat_tables(found)


def _concerns(event: Event, bucket: int, buckets: int) -> bool:
    return event.event in ("state", "started") or event.number % buckets == bucket


# --- the driver -----------------------------------------------------------------------------------


class MatchStream:
    """The query over one lake into one output. After an error, make a new object."""

    def __init__(
        self,
        spark: SparkSession | None,
        settings: JobSettings,
        location: Location,
        report: Callable[[StepReport], None] = lambda _: None,
    ) -> None:
        """The output is at `location`; `report` is called after every batch, in its thread.

        Without Spark there is no query, and `take` runs all tasks in this process.
        """
        self.lake = Lake(settings.lake)
        self.output = MatchOutput(location, settings.start)
        self.error: BaseException | None = None
        """The exception of a failed batch; Spark only has its text."""
        self._settings = settings
        self._buckets = settings.buckets or BUCKETS
        self._spark = spark
        self._report = report
        self._tasks = 1 if spark is None else spark.sparkContext.defaultParallelism
        self._is_stopping = threading.Event()
        self._running = threading.Lock()
        self._engine = None if settings.engine == "all" else settings.engine
        self._index = LiveIndex.below(self.output.uri, self._engine)
        self._events_up_to = BEGINNING
        self._events_since_snapshot = 0
        self._ranked: set[int] = set()
        """Numbers of active ranked subscriptions."""

    def start(self) -> StreamingQuery:
        """Start the query: follow the lake, or process what it has now."""
        assert self._spark is not None, "there is no query without Spark"
        settings = self._settings
        check_streams()
        data_source.register(self._spark)
        options = {
            "lake": self.lake.uri,
            "content": "slices",
            "start": str(self.output.done),
            "max_rows": str(settings.max_rows or ROWS_MAX),
            "slices": str(self._tasks),
        }
        frame = self._spark.readStream.format(data_source.NAME).options(**options).load()
        writer = frame.writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", self._checkpoint())
        if settings.once:
            return writer.trigger(availableNow=True).start()
        pause_s = TRIGGER_S if settings.trigger_s is None else settings.trigger_s
        return writer.trigger(processingTime=f"{round(pause_s * 1000)} milliseconds").start()

    def _checkpoint(self) -> str:
        """Where Spark keeps its checkpoint. It may be temporary: the output has positions."""
        if self._settings.checkpoint is not None:
            return str(self._settings.checkpoint)
        if folder_of(self.output.uri) is not None:
            return child(self.output.uri, "_checkpoint")
        return str(folder_of_process("checkpoint") / uuid.uuid4().hex)

    def stop(self, query: StreamingQuery) -> None:
        """Stop after the running batch; one that takes longer than `DRAIN_S` is repeated later."""
        self._is_stopping.set()
        if self._running.acquire(timeout=DRAIN_S):
            self._running.release()
        query.stop()

    # -- one micro-batch -----------------------------------------------------------------------

    def _take(self, frame: DataFrame, batch: int) -> None:
        with self._running:
            if self._is_stopping.is_set():
                # Returning would tell Spark that the batch is done.
                raise StreamError("the query is being stopped")
            try:
                rows = [bytes(row["slice"]) for row in frame.collect()]
                slices = [msgspec.msgpack.decode(row, type=Slice) for row in rows]
                self.take(batch, sorted(slices, key=lambda one: one.after))
            except BaseException as error:
                self.error = error
                raise

    def take(self, batch: int, slices: Sequence[Slice]) -> None:
        """Process slices that cover a range, without what the output has already."""
        for after, last in self.output.missing(slices[0].after, slices[-1].up_to):
            within = [
                msgspec.structs.replace(
                    one, after=max(one.after, after), up_to=min(one.up_to, last)
                )
                for one in slices
                if one.files and one.up_to > after and one.after < last
            ]
            self._run(batch, after, last, within)

    def _run(self, batch: int, after: int, last: int, slices: Sequence[Slice]) -> None:
        begun = time.perf_counter()
        has_states = bool(self.output.states)
        if self._events_up_to == BEGINNING:
            self._load_snapshot(after, has_windows=has_states)
        events = self._follow(last, since=after if has_states else BEGINNING)
        buckets = self._buckets if self._ranked or has_states else 0
        index, out = self._index.spec(after), self.output.uri
        works = [MatchTask(slice=one, index=index, out=out, buckets=buckets) for one in slices]
        matched = run_each(self._spark, match_slice, works, SliceMatches)
        ranked = self._rank(last, matched, events) if buckets and (matched or events) else []
        written = [*(each.found for each in matched), *(each.found for each in ranked)]
        files = [file for file in written if file is not None]
        self.output.commit(
            last,
            files,
            [(each.states, each.own) for each in ranked],
            max((each.sequence for each in ranked), default=self.output.sequence),
        )
        self._save_snapshot()
        for each in matched:
            if each.scratch is not None:
                remove(out, each.scratch)
        self._report(
            StepReport(
                position=last,
                batch=batch,
                rows_in=sum(each.rows for each in matched),
                rows_out=sum(file.rows for file in files),
                at=_last_moment(matched),
                seconds=time.perf_counter() - begun,
            )
        )

    def _load_snapshot(self, after: int, *, has_windows: bool) -> None:
        """Start from the snapshot of subscriptions, unless new windows need earlier events."""
        found = snapshots.load(self.output.uri, self.lake.id, self._engine, after)
        ranked = {one.number for one in found.versions if is_ranked(one.text)} if found else set()
        if found is None or (ranked and not has_windows):
            return
        self._index.go_on(found.position, found.versions, found.durable)
        self._events_up_to, self._ranked = found.position, ranked

    def _save_snapshot(self) -> None:
        """Save the subscriptions, so that the next start reads only later events."""
        if self._events_since_snapshot < max(snapshots.EVENTS_MIN, len(self._index)):
            return
        snapshot = SubscriptionSnapshot(
            self.lake.id, self._engine, self._events_up_to, *self._index.open()
        )
        snapshots.save(self.output.uri, snapshot)
        self._events_since_snapshot = 0

    def _follow(self, last: int, since: int) -> list[Event]:
        """Update the index to a position; returns the events for windows since another position."""
        for_windows: list[Event] = []

        def noted() -> Iterator[Event]:
            for event in self.lake.events(self._events_up_to, last):
                self._events_since_snapshot += 1
                if self._concerns_windows(event) and event.position > since:
                    for_windows.append(event)
                yield event

        self._index.take(noted())
        self._events_up_to = last
        return for_windows

    def _concerns_windows(self, event: Event) -> bool:
        match event.event:
            case "made":
                if is_ranked(event.text) and self._engine in (None, event.engine):
                    self._ranked.add(event.number)
                return event.number in self._ranked
            case "ended":
                concerns = event.number in self._ranked
                self._ranked.discard(event.number)
                return concerns
            case _:
                return bool(self._ranked)

    def _rank(
        self, last: int, matched: Sequence[SliceMatches], events: Sequence[Event]
    ) -> list[RankedBuckets]:
        buckets, moment = self._buckets, _last_moment(matched)
        tasks = min(buckets, self._tasks)
        works = []
        for task in range(tasks):
            own = tuple(range(task, buckets, tasks))
            works.append(
                RankTask(
                    out=self.output.uri,
                    own=own,
                    buckets=buckets,
                    last=last,
                    events=[
                        event
                        for event in events
                        if any(_concerns(event, bucket, buckets) for bucket in own)
                    ],
                    until=max((event.at for event in events), default=None)
                    if moment is None
                    else moment,
                    rows={
                        bucket: [
                            (each.scratch, each.groups[bucket])
                            for each in matched
                            if each.scratch is not None and bucket in each.groups
                        ]
                        for bucket in own
                    },
                    states=self.output.states,
                    sequence=self.output.sequence,
                )
            )
        return run_each(self._spark, rank_buckets, works, RankedBuckets)


def _last_moment(matched: Sequence[SliceMatches]) -> float | None:
    moments = [each.at_us for each in matched if each.at_us is not None]
    return max(moments) / 1e6 if moments else None


# --- as a job -------------------------------------------------------------------------------------


def run_job(context: JobContext) -> None:
    """Match until the lake is processed (`once`) or the job is stopped."""
    stream = MatchStream(context.spark, context.settings, context.location, context.report)
    query = stream.start()
    listener = _ProgressListener(context, str(query.id))
    context.spark.streams.addListener(listener)
    try:
        while not query.awaitTermination(LOOK_EVERY_S):
            if context.stopping.is_set():
                stream.stop(query)
                return
            stream.output.tidy()
    except Exception as error:
        if stream.error is None:
            raise
        raise stream.error from error
    finally:
        query.stop()
        context.spark.streams.removeListener(listener)


class _ProgressListener(StreamingQueryListener):  # type: ignore[misc]
    """Reports the duration of each trigger and the position of the lake from Spark's events."""

    def __init__(self, context: JobContext, query: str) -> None:
        self._context = context
        self._query = query

    def onQueryStarted(self, event: Any) -> None:
        """Not needed."""

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        if str(progress.id) == self._query:
            latest = json.loads(progress.sources[0].latestOffset or "{}")
            trigger_s = progress.durationMs.get("triggerExecution", 0) / 1000
            self._context.look(trigger_s, latest.get("position"))

    def onQueryIdle(self, event: Any) -> None:
        """Not needed."""

    def onQueryTerminated(self, event: Any) -> None:
        """Not needed."""
