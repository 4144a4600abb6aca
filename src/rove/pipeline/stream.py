"""The streaming match: the lake's publications against its subscriptions, exactly once.

    offsets ─▶ [positions (after, last]] ─▶ tasks: read a slice, match it, write a part ─┐
                       │                                   └▶ rows for ranked windows    ├▶ manifest
    subscription events up to `last` ─▶ index                 └▶ tasks by bucket ────────┘

A micro-batch is a stretch of the log. The subscriptions' events in that stretch bring the index up
to date before it is matched, and every version in the index holds between two positions; so what a
publication meets does not depend on where batches end, a batch that is repeated gives the same, and
subscriptions are replaced while it runs, between two publications exactly.

Spark moves names here: tasks get the name of a slice and answer with the name of a part. There is
no shuffle. Ranked subscriptions need one order over all publications; what their conditions let
through goes by bucket into scratch files, and a second job runs each bucket's windows over it. What
windows remember is a file per bucket, named in the manifest like everything else.

Time passes for windows up to the last publication of a batch: what moves up when something leaves a
window is told with the next publication that the lake gets, whatever its topic.

A micro-batch costs 0.2 to 0.4 s however small it is. A start reads the events of the lake since the
last snapshot (`rove.pipeline.snapshots`) and builds the index, 0.1 to 0.2 ms a subscription.
"""

# ruff: noqa: N802 (Spark's names)

from __future__ import annotations

import functools
import itertools
import json
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.streaming.listener import StreamingQueryListener

from rove.errors import RoveError
from rove.lake.storage import Location, resolved
from rove.pipeline import sink as sinks
from rove.pipeline import snapshots, source
from rove.pipeline.buckets import NOTIFICATIONS, is_ranked, run_bucket
from rove.pipeline.judging import RANKED_ROWS, IndexSpec, opened
from rove.pipeline.lake import Event, Lake
from rove.pipeline.live_index import LiveIndex
from rove.pipeline.session import cores
from rove.pipeline.sink import Manifest, Part, Sink, write_bytes, write_part
from rove.pipeline.snapshots import Snapshot
from rove.pipeline.source import BEGINNING, READ_ROWS, ROWS_MAX, Slice, read_slice
from rove.pipeline.status import Progress
from rove.pipeline.workers import in_worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from rove.pipeline.jobs import Context

TRIGGER_S: Final = 0.1
BUCKETS: Final = 8
DRAIN_S: Final = 30.0
"""How long a stop waits for the batch that runs."""
LOOK_EVERY_S: Final = 0.5

_REPORT: Final = "report binary"
_INDEX: Final = "index"
_EVENTS: Final = list[Event]


class StreamError(RoveError):
    """The streaming match cannot go on."""


class StreamSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is matched, and where to."""

    lake: Location
    out: Path
    """The folder of the sink."""
    checkpoint: Path | None = None
    """Spark's own notes; in the folder of the sink unless told otherwise."""
    engine: Literal["all", "spark"] = "all"
    """Whether all subscriptions are matched, or those that only Spark serves."""
    trigger_s: float = TRIGGER_S
    """How often is looked whether there is something new."""
    max_rows: int = ROWS_MAX
    """Publications in a micro-batch, at most."""
    buckets: int = BUCKETS
    """Groups of ranked subscriptions; must stay the same for one sink."""
    start: int = BEGINNING
    """A new sink begins after this position."""
    slices: int = 0
    """Tasks of a micro-batch, at most; 0 is one per core."""

    @property
    def checkpoint_folder(self) -> Path:
        return self.checkpoint or self.out / "_checkpoint"


class BatchReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a micro-batch did."""

    batch: int
    after: int
    last: int
    rows_in: int
    rows_out: int
    at: float | None
    """Of the last publication in it."""
    subscriptions: int
    seconds: float
    notes: tuple[str, ...] = ()


# --- tasks ----------------------------------------------------------------------------------------


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a task says when it is done: names of what it wrote."""

    after: int
    rows: int = 0
    at_us: int | None = None
    part: Part | None = None
    ranked: dict[int, str] = {}
    """Scratch file by bucket."""
    state: str | None = None


@in_worker
def match_slices(
    index: IndexSpec,
    out: str,
    batch: int,
    buckets: int,
    given: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Match the slices that this task is given; `buckets` is 0 if nothing is ranked."""
    for encoded in itertools.chain.from_iterable(each["slice"].to_pylist() for each in given):
        one = msgspec.msgpack.decode(encoded, type=Slice)
        yield _answer(match_slice(one, index, Path(out), batch, buckets))


def match_slice(one: Slice, index: IndexSpec, out: Path, batch: int, buckets: int) -> TaskReport:
    """Read, match, write; what is found is in the order of positions."""
    publications = read_slice(one)
    versions = opened(index)
    pieces = publications.combine_chunks().to_batches(READ_ROWS)
    found = pa.Table.from_batches(
        [_as_notifications(versions.match_lake(piece)) for piece in pieces], NOTIFICATIONS
    )
    ranked: dict[int, str] = {}
    if buckets and pieces:
        rows = pa.Table.from_batches([versions.ranked_rows(piece, buckets) for piece in pieces])
        for bucket in rows["bucket"].unique().to_pylist():
            of_bucket = rows.filter(pc.equal(rows["bucket"], bucket))
            ranked[bucket] = write_part(out, batch, of_bucket, sinks.SCRATCH).name
    moments = publications["at"].cast(pa.int64())
    return TaskReport(
        after=one.after,
        rows=publications.num_rows,
        at_us=moments[-1].as_py() if len(moments) else None,
        part=write_part(out, batch, found) if found.num_rows else None,
        ranked=ranked,
    )


def _as_notifications(pairs: pa.RecordBatch) -> pa.RecordBatch:
    nothing = pa.nulls(pairs.num_rows, pa.float64())
    is_promoted = pa.repeat(pa.scalar(False), pairs.num_rows)
    return pa.RecordBatch.from_arrays([*pairs.columns, nothing, is_promoted], schema=NOTIFICATIONS)


class BucketWork(msgspec.Struct, frozen=True, kw_only=True):
    """What the second job needs to know; the same for all its tasks."""

    out: str
    batch: int
    buckets: int
    events: str
    """File of the subscriptions' events in the batch."""
    until: float | None
    rows: dict[int, tuple[str, ...]]
    """Scratch files by bucket, in order."""
    states: dict[str, str]
    """What the batch before left, by bucket."""


@in_worker
def rank_buckets(work: BucketWork, given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the windows of the buckets that this task is given."""
    for bucket in itertools.chain.from_iterable(each["id"].to_pylist() for each in given):
        yield _answer(rank_bucket(work, bucket))


def rank_bucket(work: BucketWork, bucket: int) -> TaskReport:
    """Bring a bucket's windows up to date, and say what came out and where they are now."""
    out = Path(work.out)
    name = work.states.get(str(bucket))
    before = None if name is None else (out / sinks.STATES / name).read_bytes()
    events = msgspec.msgpack.decode((out / sinks.SCRATCH / work.events).read_bytes(), type=_EVENTS)
    files = [out / sinks.SCRATCH / each for each in work.rows.get(bucket, ())]
    tables = [pq.ParquetFile(file).read() for file in files]
    rows = pa.concat_tables([RANKED_ROWS.empty_table(), *tables])
    own = [event for event in events if _concerns(event, bucket, work.buckets)]
    found, state = run_bucket(bucket, work.buckets, before, own, rows, work.until)
    kept = name if state == before else write_bytes(out, work.batch, state)
    part = write_part(out, work.batch, found.cast(NOTIFICATIONS)) if found.num_rows else None
    return TaskReport(after=bucket, part=part, state=kept)


def _concerns(event: Event, bucket: int, buckets: int) -> bool:
    return event.event in ("state", "started") or event.number % buckets == bucket


def _answer(report: TaskReport) -> pa.RecordBatch:
    return pa.record_batch({"report": pa.array([msgspec.msgpack.encode(report)], pa.binary())})


def _answers(frame: DataFrame) -> list[TaskReport]:
    rows = frame.collect()
    found = [msgspec.msgpack.decode(bytes(row["report"]), type=TaskReport) for row in rows]
    return sorted(found, key=lambda report: report.after)


# --- the driver -----------------------------------------------------------------------------------


class Stream:
    """The query over one lake into one sink, once; whoever goes on after an error makes another."""

    def __init__(
        self,
        spark: SparkSession,
        settings: StreamSettings,
        told: Callable[[BatchReport], None] = lambda _: None,
    ) -> None:
        """`told` is called after every batch, in the thread that runs them."""
        self.settings = settings
        self.lake = Lake(settings.lake)
        self.sink = Sink(settings.out)
        self.error: BaseException | None = None
        """Why a batch failed, as it was raised; Spark only has the text of it."""
        self._spark = spark
        self._told = told
        self._is_stopping = threading.Event()
        self._running = threading.Lock()
        self._index = LiveIndex(_fresh_folder(settings.out / _INDEX), _engine(settings))
        self._events_up_to = BEGINNING
        self._events_since_snapshot = 0
        self._ranked: set[int] = set()
        """Numbers of ranked subscriptions that have not ended."""

    def start(self, *, once: bool = False) -> StreamingQuery:
        """Follow the lake, or take what is there and end."""
        source.register(self._spark)
        options = {
            "lake": resolved(self.settings.lake),
            "content": "slices",
            "start": str(self.settings.start),
            "max_rows": str(self.settings.max_rows),
            "slices": str(self.settings.slices or cores()),
        }
        frame = self._spark.readStream.format(source.NAME).options(**options).load()
        checkpoint = str(self.settings.checkpoint_folder)
        writer = frame.writeStream.foreachBatch(self._take).option("checkpointLocation", checkpoint)
        if once:
            return writer.trigger(availableNow=True).start()
        interval = f"{round(self.settings.trigger_s * 1000)} milliseconds"
        return writer.trigger(processingTime=interval).start()

    def stop(self, query: StreamingQuery) -> None:
        """End after the batch that runs; one that takes too long is repeated later."""
        self._is_stopping.set()
        if self._running.acquire(timeout=DRAIN_S):
            self._running.release()
        query.stop()

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping.is_set()

    # -- one micro-batch -----------------------------------------------------------------------

    def _take(self, frame: DataFrame, batch: int) -> None:
        with self._running:
            if self.is_stopping:
                # Returning would tell Spark that the batch is done.
                raise StreamError("the query is being stopped")
            try:
                self._run(frame, batch)
            except BaseException as error:
                self.error = error
                raise

    def _run(self, frame: DataFrame, batch: int) -> None:
        begun = time.perf_counter()
        folder = self.settings.checkpoint_folder
        after, last = batch_bounds(folder, batch, self.settings.start)
        if self.sink.holds(batch, after, last):
            return
        newest = self.sink.last
        before = {} if newest is None else newest.states
        if self._events_up_to == BEGINNING:
            self._go_on(after, has_windows=bool(before))
        events = self._follow(last, since=after if before else BEGINNING)
        buckets = self.settings.buckets if self._ranked or before else 0
        out = str(self.settings.out)
        task = functools.partial(match_slices, self._index.spec(after), out, batch, buckets)
        matched = _answers(frame.mapInArrow(task, _REPORT))
        ranked = self._rank(batch, matched, events, before) if buckets else []
        manifest = Manifest(
            batch=batch,
            first_batch=batch,
            after=after,
            last=last,
            at=time.time(),
            parts=tuple(each.part for each in (*matched, *ranked) if each.part is not None),
            states={str(each.after): each.state for each in ranked if each.state is not None},
        )
        self.sink.commit(manifest)
        self._keep_snapshot()
        self._told(
            BatchReport(
                batch=batch,
                after=after,
                last=last,
                rows_in=sum(each.rows for each in matched),
                rows_out=manifest.rows,
                at=_last_moment(matched),
                subscriptions=len(self._index),
                seconds=time.perf_counter() - begun,
                notes=manifest.notes,
            )
        )

    def _go_on(self, after: int, *, has_windows: bool) -> None:
        """Begin with the subscriptions that were kept, if that is not too late for windows."""
        engine = _engine(self.settings)
        found = snapshots.load(self.settings.out, self.lake.id, engine, after)
        ranked = {one.number for one in found.versions if is_ranked(one.text)} if found else set()
        if found is None or (ranked and not has_windows):
            return
        self._index.go_on(found.position, found.versions, found.durable)
        self._events_up_to, self._ranked = found.position, ranked

    def _keep_snapshot(self) -> None:
        """So that the next start need not read what was read until now."""
        if self._events_since_snapshot < max(snapshots.EVENTS_MIN, len(self._index)):
            return
        snapshot = Snapshot(
            self.lake.id, _engine(self.settings), self._events_up_to, *self._index.open()
        )
        snapshots.save(self.settings.out, snapshot)
        self._events_since_snapshot = 0

    def _follow(self, last: int, since: int) -> list[Event]:
        """Bring the index up to a position; the events since another that windows must see."""
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
                if is_ranked(event.text) and self.settings.engine in ("all", event.engine):
                    self._ranked.add(event.number)
                return event.number in self._ranked
            case "ended":
                concerns = event.number in self._ranked
                self._ranked.discard(event.number)
                return concerns
            case _:
                return bool(self._ranked)

    def _rank(
        self,
        batch: int,
        matched: Sequence[TaskReport],
        events: Sequence[Event],
        before: dict[str, str],
    ) -> list[TaskReport]:
        out, buckets = self.settings.out, self.settings.buckets
        written = write_bytes(out, batch, msgspec.msgpack.encode(events), sinks.SCRATCH)
        moment = _last_moment(matched)
        work = BucketWork(
            out=str(out),
            batch=batch,
            buckets=buckets,
            events=written,
            until=max((event.at for event in events), default=None) if moment is None else moment,
            rows={
                bucket: tuple(each.ranked[bucket] for each in matched if bucket in each.ranked)
                for bucket in range(buckets)
            },
            states=before,
        )
        frame = self._spark.range(0, buckets, 1, min(buckets, cores()))
        return _answers(frame.mapInArrow(functools.partial(rank_buckets, work), _REPORT))


def batch_bounds(checkpoint: Path, batch: int, beginning: int) -> tuple[int, int]:
    """The positions of a micro-batch, as Spark has noted them before it began."""
    last = _noted_offset(checkpoint, batch)
    return (beginning if batch == 0 else _noted_offset(checkpoint, batch - 1)), last


def _noted_offset(checkpoint: Path, batch: int) -> int:
    path = checkpoint / "offsets" / str(batch)
    try:
        _version, _settings, offset = path.read_text().splitlines()
        return int(json.loads(offset)["position"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StreamError(f"cannot read the offset of batch {batch} in {path}: {error}") from error


def _last_moment(matched: Sequence[TaskReport]) -> float | None:
    moments = [each.at_us for each in matched if each.at_us is not None]
    return max(moments) / 1e6 if moments else None


def _gone(path: str) -> str:
    return f"gone before it was read: {path}"


def _engine(settings: StreamSettings) -> str | None:
    return None if settings.engine == "all" else settings.engine


def _fresh_folder(parent: Path) -> Path:
    """A new name each time: workers that live on keep files open by their names."""
    shutil.rmtree(parent, ignore_errors=True)
    return parent / uuid.uuid4().hex


# --- as a job -------------------------------------------------------------------------------------


def run_job(context: Context) -> None:
    """Match until the lake is done, or until it is asked to stop."""
    given = context.settings
    settings = StreamSettings(
        lake=given.lake,
        out=context.folder,
        engine=given.engine,
        trigger_s=TRIGGER_S if given.trigger_s is None else given.trigger_s,
        max_rows=given.max_rows or ROWS_MAX,
        buckets=given.buckets or BUCKETS,
        start=given.start,
    )
    stream = Stream(context.spark, settings, lambda report: context.report(_progress(report)))
    query = stream.start(once=context.once)
    listener = _Listener(context, str(query.id))
    context.spark.streams.addListener(listener)
    try:
        while not query.awaitTermination(LOOK_EVERY_S):
            if context.stopping.is_set():
                stream.stop(query)
                return
            stream.sink.tidy()
            context.look()
    except Exception as error:
        if stream.error is None:
            raise
        raise stream.error from error
    finally:
        query.stop()
        context.spark.streams.removeListener(listener)


def _progress(report: BatchReport) -> Progress:
    return Progress(
        position=report.last,
        rows_in=report.rows_in,
        rows_out=report.rows_out,
        at=report.at,
        batch=report.batch,
        seconds=report.seconds,
        notes=report.notes,
    )


class _Listener(StreamingQueryListener):  # type: ignore[misc]
    """Hears from Spark how long a trigger took as a whole."""

    def __init__(self, context: Context, query: str) -> None:
        self._context = context
        self._query = query

    def onQueryStarted(self, event: Any) -> None:
        """The job knows."""

    def onQueryProgress(self, event: Any) -> None:
        if str(event.progress.id) == self._query:
            self._context.look(event.progress.durationMs.get("triggerExecution", 0) / 1000)

    def onQueryIdle(self, event: Any) -> None:
        """Nothing new; the job looks by itself."""

    def onQueryTerminated(self, event: Any) -> None:
        """The job knows."""
