"""The streaming match: publications a second at an end-to-end delay of a second, and its source.

**Delay.** A process of its own appends publications (W1, W2 with its areas at rest) to a lake at a
given rate, a file every 0.2 s, as a broker with `seconds_per_file = 0.2` would. The stream runs
beside it. Delay is from a publication's `at` to the commit that has it, for every
publication, and includes waiting for the file. The rate is raised until the 95th percentile is
above a second. The first seconds of each rate are not counted, and the first batch of all (it
builds the index) neither. Each publication is a notification for 165 (W1) or 60 (W2) of 100,000
subscriptions, all of which are written.

**Source.** The same lake, all of it at once: as rows through the JVM, as slices that tasks read
themselves, and by Spark's own Parquet source (which is not exact over a lake that grows).

Before anything is measured, what the stream finds must equal what one process finds that matches
the lake as a whole. Takes some four minutes, of which building indexes of 100,000 is half.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rove.bench.measure import Measure
from rove.bench.pipeline.feed import Feed
from rove.errors import RoveError
from rove.lake.delta import DeltaTable
from rove.lake.log import SCHEMA, WRITER, open_for_writing
from rove.lake.storage import Location
from rove.pipeline.jobs.job import JobSettings
from rove.pipeline.jobs.notifications import found_position
from rove.pipeline.jobs.stream import MatchStream
from rove.pipeline.lake import data_source
from rove.pipeline.lake.data_source import READ_ROWS, Slice, read_slice, whole
from rove.pipeline.lake.live_index import LiveIndex
from rove.pipeline.lake.log import Lake
from rove.pipeline.lake.version_index import opened
from rove.pipeline.ranked.ranking import NOTIFICATIONS, run_bucket
from rove.testing.boxes import Name, workload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELAY_S_MAX: Final = 1.0
FILE_EVERY_S: Final = 0.2
READINGS: Final = 20_000
CHECKED: Final = 10_000
"""Enough for two tasks: a worker that is new has to load kernels and the index first."""
CATCH_UP_S: Final = 60.0
RATES: Final = (2_000, 5_000, 10_000, 20_000, 30_000, 40_000, 60_000, 80_000)
_WARM_UP: Final = 0.3
"""Share of a run that is not counted."""


class StreamBenchError(RoveError):
    """What was to be measured is wrong, or does not keep up at all."""


def run(
    spark: SparkSession,
    subscriptions: int = 100_000,
    rates: Sequence[int] = RATES,
    seconds: float = 10.0,
    workloads: Sequence[Name] = ("W1", "W2"),
    source_rows: int = 500_000,
) -> Iterator[Measure]:
    """Both measurements, in folders that are removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="rove-stream-") as folder:
        for name in workloads:
            load = Load(name, subscriptions)
            yield from delays(spark, Path(folder) / name, load, rates, seconds)
        yield from sources(spark, Path(folder) / "source", source_rows)


class Load(NamedTuple):
    """What is matched with what."""

    name: Name
    subscriptions: int


# --- delay ----------------------------------------------------------------------------------------


def delays(
    spark: SparkSession, folder: Path, load: Load, rates: Sequence[int], seconds: float
) -> Iterator[Measure]:
    """The delay at each rate, until one is too much."""
    settings = JobSettings(lake=folder / "lake", out=folder / "out", trigger_s=0.05)
    subscribe(settings.lake, load)
    append(settings.lake, load.name, CHECKED, 1.0)
    done: list[Done] = []
    stream = MatchStream(
        spark, settings, settings.out, lambda step: done.append(Done(step.position, time.time()))
    )
    query = stream.start()
    try:
        query.processAllAvailable()
        check(settings.lake, settings.out, folder / "work")
        best = 0.0
        for rate in rates:
            begun = Lake(settings.lake).position()
            append(settings.lake, load.name, rate, seconds)
            _wait(query, settings)
            p50, p95 = np.percentile(measured_delays(settings.lake, done, begun), (50, 95))
            is_fast = bool(p95 <= DELAY_S_MAX)
            goal = f"p95 ≤ {DELAY_S_MAX:g} s"
            yield Measure(f"{load.name}: delay p50 at {rate:,}/s", round(float(p50), 3), "s")
            name = f"{load.name}: delay p95 at {rate:,}/s"
            yield Measure(name, round(float(p95), 3), "s", goal=goal, reached=is_fast)
            if not is_fast:
                break
            best = rate
        name = f"{load.name}: sustained, {load.subscriptions:,} subscriptions"
        yield Measure(name, best, "publications/s")
    finally:
        stream.stop(query)


class Done(NamedTuple):
    """A batch: its last position, and when it was committed."""

    last: int
    at: float


def measured_delays(location: Location, done: Sequence[Done], after: int) -> Any:
    """Of each publication above a position, from `at` to its commit, without the first."""
    lake = Lake(location)
    table = pa.concat_tables(
        lake.read(file, ["position", "at"], after) for file in lake.files("publications", after)
    ).sort_by("position")
    positions = table["position"].to_numpy()
    at_s = table["at"].cast(pa.int64()).to_numpy() / 1e6
    ends = np.array([each.last for each in done])
    committed_s = np.array([each.at for each in done])
    found = committed_s[np.searchsorted(ends, positions)] - at_s
    counted = at_s > at_s[0] + _WARM_UP * (at_s[-1] - at_s[0])
    return found[counted]


def _wait(query: Any, settings: JobSettings) -> None:
    deadline = time.monotonic() + CATCH_UP_S
    lake = Lake(settings.lake)
    while time.monotonic() < deadline:
        if found_position(settings.out) >= lake.position():
            return
        if not query.isActive:
            raise StreamBenchError(f"the query has ended: {query.exception()}")
        time.sleep(0.1)
    raise StreamBenchError(f"the stream did not catch up within {CATCH_UP_S:g} s")


def subscribe(lake: Location, load: Load) -> None:
    """Let all subscriptions of a workload be made."""
    boxes = workload(load.name, load.subscriptions, 1)[0].at_rest()
    feed = Feed(lake)
    for number in range(load.subscriptions):
        feed.subscribe(number, boxes.text(number), 0.0)
    feed.write()


# --- the source -----------------------------------------------------------------------------------


def sources(spark: SparkSession, folder: Path, rows: int) -> Iterator[Measure]:
    """How fast a stream reads a lake: rows, slices, and Spark's own way."""
    lake = folder / "lake"
    append(lake, "W1", rows, 1.0, file_every_s=0.25)
    data_source.register(spark)
    seconds = {}
    for content in ("rows", "slices"):
        frame = (
            spark.readStream.format(data_source.NAME)
            .options(lake=str(lake), content=content, max_rows=str(10 * rows))
            .load()
            .mapInArrow(count_rows if content == "rows" else count_slices, "rows long")
        )
        seconds[content] = _timed_query(frame, folder / content, rows)
    native = spark.readStream.schema(_native_schema(lake, spark)).parquet(str(lake))
    frame = native.drop("kind", "channel", "day").mapInArrow(count_rows, "rows long")
    seconds["native"] = _timed_query(frame, folder / "native", rows)
    names = {"rows": "rove, rows", "slices": "rove, slices", "native": "Spark's Parquet"}
    for content, name in names.items():
        ratio = None if content == "rows" else seconds["rows"] / seconds[content]
        against = None if content == "rows" else "rows"
        rate = round(rows / seconds[content])
        yield Measure(f"source: {name}", rate, "rows/s", ratio=ratio, against=against)


def count_rows(given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A task that only counts what it is given."""
    yield _one(sum(batch.num_rows for batch in given))


def count_slices(given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A task that reads what it is told to, and counts."""
    encoded = [one for batch in given for one in batch["slice"].to_pylist()]
    decoded = [msgspec.msgpack.decode(one, type=Slice) for one in encoded]
    yield _one(sum(read_slice(one).num_rows for one in decoded))


def _one(rows: int) -> pa.RecordBatch:
    return pa.record_batch({"rows": pa.array([rows], pa.int64())})


def _timed_query(frame: Any, checkpoint: Path, rows: int) -> float:
    """Seconds of the one batch of a query, which must have all rows."""
    found: list[tuple[int, float]] = []

    def take(batch: Any, _number: int) -> None:
        begun = time.perf_counter()
        counted = sum(row["rows"] for row in batch.collect())
        found.append((counted, time.perf_counter() - begun))

    for attempt in range(2):  # the first pays for starting the workers
        found.clear()
        writer = frame.writeStream.foreachBatch(take).trigger(availableNow=True)
        writer.option("checkpointLocation", f"{checkpoint}-{attempt}").start().awaitTermination()
    if sum(counted for counted, _ in found) != rows:
        raise StreamBenchError(f"{sum(counted for counted, _ in found)} rows of {rows} were read")
    return sum(took for _, took in found)


def _native_schema(lake: Path, spark: SparkSession) -> Any:
    return spark.read.parquet(str(lake)).schema


# --- what it has to equal -------------------------------------------------------------------------


def plain(lake_folder: Location, work: Path) -> pa.Table:
    """What one process finds that matches the whole lake at once, ranked subscriptions included."""
    lake = Lake(lake_folder)
    up_to = lake.position()
    index = LiveIndex(work)
    index.take(lake.events(up_to=up_to))
    versions = opened(index.spec())
    rows = whole(lake, up_to=up_to)
    pieces = rows.combine_chunks().to_batches(READ_ROWS)
    found = pa.Table.from_batches([versions.match_lake(piece) for piece in pieces])
    found = found.append_column("score", pa.nulls(len(found), pa.float64()))
    found = found.append_column("promoted", pa.repeat(pa.scalar(False), len(found)))
    ranked = pa.Table.from_batches([versions.ranked_rows(piece, 1) for piece in pieces])
    until = rows["at"].cast(pa.int64())[-1].as_py() / 1e6
    told, _ = run_bucket(0, 1, None, list(lake.events(up_to=up_to)), ranked, until)
    return in_order(pa.concat_tables([found.cast(NOTIFICATIONS), told.cast(NOTIFICATIONS)]))


def in_order(notifications: pa.Table) -> pa.Table:
    """Sorted, to be compared."""
    columns = ("position", "subscription", "promoted", "at")
    return notifications.sort_by([(name, "ascending") for name in columns]).combine_chunks()


def check(lake: Location, out: Location, work: Path) -> int:
    """StreamBenchError unless the table has what plain matching gives; how many."""
    rows = DeltaTable(out).rows(NOTIFICATIONS.names).cast(NOTIFICATIONS)
    found, expected = in_order(rows), plain(lake, work)
    if not found.equals(expected):
        raise StreamBenchError(
            f"the stream found {len(found)} notifications, plain matching {len(expected)}, "
            "and they are not the same"
        )
    return len(found)


# --- the writer -----------------------------------------------------------------------------------


def append(
    lake: Location, name: Name, rate: int, seconds: float, file_every_s: float = FILE_EVERY_S
) -> None:
    """Let another process publish at a rate for a while; returns when it has."""
    words = [str(lake), name, str(rate), str(seconds), str(file_every_s)]
    subprocess.run([sys.executable, "-m", __name__, *words], check=True)


def write(lake: Location, name: Name, rate: int, seconds: float, file_every_s: float) -> None:
    """Publish: at each file's time all that would have come since the last one."""
    table = open_for_writing(lake)
    events = workload(name, 1, READINGS)[1]
    encoded = [msgspec.json.encode(events.publication(number)) for number in range(READINGS)]
    payloads = pa.array(encoded, pa.binary())
    last = table.number(WRITER)
    position, begun = 0 if last is None else last + 1, time.time()
    done, count = 0, round(rate * seconds)
    while done < count:
        time.sleep(max(0.0, begun + done / rate + file_every_s - time.time()))
        due = min(count, int((time.time() - begun) * rate))
        at_us = ((begun + np.arange(done, due) / rate) * 1e6).astype(np.int64)
        position += due - done
        table.append(_rows(position - (due - done), at_us, payloads), WRITER, position - 1)
        done = due


def _rows(position: int, at_us: Any, payloads: pa.Array) -> pa.Table:
    count = len(at_us)
    positions = np.arange(position, position + count)
    moments = pa.array(at_us).cast(pa.timestamp("us", tz="UTC"))
    columns = {
        "kind": pa.repeat(pa.scalar("publications"), count),
        "channel": pa.repeat(pa.scalar("bench"), count),
        "day": moments.cast(pa.date32()),
        "position": pa.array(positions),
        "at": moments,
        "topic": pa.repeat(pa.scalar("bench/reading"), count),
        "id": pc.binary_join_element_wise("p", pa.array(positions).cast(pa.string()), ""),
        "client_id": pa.repeat(pa.scalar("bench"), count),
        "payload": payloads.take(pa.array(positions % len(payloads))),
        "user": pa.array([[]] * count, SCHEMA.field("user").type),
        "qos": pa.repeat(pa.scalar(0, pa.int8()), count),
        "earlier": pa.array([[]] * count, SCHEMA.field("earlier").type),
        "subscriptions": pa.nulls(count, SCHEMA.field("subscriptions").type),
    }
    return pa.Table.from_pydict(columns, schema=SCHEMA)


def main(words: Sequence[str]) -> None:
    """What `append` starts."""
    lake, name, rate, seconds, file_every_s = words
    write(Path(lake), msgspec.convert(name, Name), int(rate), float(seconds), float(file_every_s))


if __name__ == "__main__":
    main(sys.argv[1:])
