"""What the lake costs, and what a team waits for: parts of `rove bench pipeline`.

- `lake`: so many seconds of a broker's lake, a commit each, compacted as it grows: the files that
  it ends with, what a commit takes, and how long Spark plans a query over it. An hour by default, a
  day with `full`; times are the broker's own but for the clock, which does not wait.
- `durable`: what a broker spends on a publication that a queue keeps, without and with the lake
  (`rove.bench.broker.suite`).
- `store`: `match` over the same Parquet files in a folder and in an object store on loopback, whose
  server takes its share of the same cores.
- `start`: from starting Python to the first answer of Spark, and a `match` of 1,000 rows with an
  index of 100,000 texts to its end, the first and a second one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import msgspec

from rove.bench.broker import suite as broker_bench
from rove.bench.match.engines import WrongAnswerError
from rove.bench.measure import Measure, seconds_for
from rove.bench.pipeline import processes
from rove.bench.pipeline.workload import Work, work_of
from rove.bench.servers import s3 as s3_server
from rove.broker.storage.records import LogRow
from rove.lake.storage import child, write_whole
from rove.pipeline.lake.log import Lake
from rove.pipeline.matching.dataframes import match
from rove.pipeline.matching.index import Index
from rove.pipeline.spark.parquet_files import ParquetFiles
from rove.serve.disk.lake import MAINTAIN_S
from rove.serve.disk.lake import LakeAppender as BrokersLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR_S: Final = 3_600
DAY_S: Final = 86_400
FILES_GOAL: Final = 300
PLAN_GOAL_S: Final = 2.0
DURABLE_GOAL: Final = 1.3
STORE_GOAL: Final = 1.5
SECOND_GOAL_S: Final = 0.3
FIRST_ANSWER_GOAL_S: Final = 8.0
_BEGIN_S: Final = 1_790_035_200.0
"""A midnight, so that a day is one of the calendar."""
_ROWS_PER_S: Final = 10
_ROUNDS: Final = 3
_FIRST_ANSWER: Final = """
from rove.pipeline import match, open_session
spark = open_session()
print(match(spark.range(10), ["id > 4"]).count())
spark.stop()
"""


# -- a lake that grows ----------------------------------------------------------------------------


def lake(spark: SparkSession, folder: Path, seconds: int = HOUR_S) -> Iterator[Measure]:
    """Files, seconds for a commit, and seconds to plan."""
    label = f"pipeline.lake.{seconds}"
    begin_s, longest_s = time.perf_counter(), 0.0
    writer = BrokersLake(folder)
    for second in range(seconds):
        start_s = time.perf_counter()
        first = second * _ROWS_PER_S
        writer.take([(n, _row(second, n)) for n in range(first, first + _ROWS_PER_S)])
        if second % MAINTAIN_S == 0:
            writer.maintain(_BEGIN_S + second)
        longest_s = max(longest_s, time.perf_counter() - start_s)
    took_s = time.perf_counter() - begin_s
    yield Measure(f"{label}.commit", 1e3 * took_s / seconds, "ms")
    yield Measure(f"{label}.commit.longest", 1e3 * longest_s, "ms")
    files = writer.files
    goal = f"<= {FILES_GOAL} files"
    yield Measure(f"{label}.files", files, "files", goal=goal, reached=files <= FILES_GOAL)
    rows = Lake(folder).publications(spark).count()
    if rows != seconds * _ROWS_PER_S:
        raise WrongAnswerError(f"{seconds * _ROWS_PER_S:,} rows were written, {rows:,} are there")
    plan_s = seconds_for(lambda: _planned(spark, folder), _ROUNDS)
    goal = f"<= {PLAN_GOAL_S:g} s"
    yield Measure(f"{label}.plan", plan_s, "s", goal=goal, reached=plan_s <= PLAN_GOAL_S)


def _row(second: int, number: int) -> LogRow:
    at_s = _BEGIN_S + second + number % _ROWS_PER_S / _ROWS_PER_S
    payload = msgspec.json.encode({"NO2": number % 97, "lat": 45.8, "long": 15.9})
    return LogRow("publications", "air", at_s, topic="air/1", id=str(number), payload=payload)


def _planned(spark: SparkSession, folder: Path) -> int:
    """Open the lake and let Spark make the tasks of a query over all of it."""
    return int(Lake(folder).publications(spark).rdd.getNumPartitions())


# -- a broker with and without it -----------------------------------------------------------------


def durable(seconds: float = 4.0, *, is_small: bool = False) -> Iterator[Measure]:
    """What a publication costs the broker in processor time."""
    base = broker_bench.QUICK if is_small else broker_bench.BrokerOptions()
    options = msgspec.structs.replace(base, parts=("durable",), seconds=seconds)
    for measure in broker_bench.SUITE.run(options):
        if measure.name.startswith(("broker.durable.queue", "broker.durable.both")):
            yield msgspec.structs.replace(measure, name=f"pipeline.{measure.name}")


# -- an object store ------------------------------------------------------------------------------


def store(folder: Path, rows: int, size: int, workers: int = 2) -> Iterator[Measure]:
    """Rows a second from a folder, and from an object store."""
    work, _ = work_of(folder, "W2", size, rows)
    label = f"pipeline.store.W2.{size}"
    with s3_server.s3_server() as server, patch.dict(os.environ, s3_server.environment(server)):
        bucket = s3_server.new_bucket(server)
        for path in work.files:
            write_whole(child(bucket, Path(path).name), [Path(path).read_bytes()])
        with processes.spark(workers) as spark:
            found = {
                where: spark.ask(_timed, work, location)
                for where, location in (("folder", work.folder), ("s3", bucket))
            }
    if found["folder"][1] != found["s3"][1]:
        raise WrongAnswerError(f"{label}: the folder and the object store differ")
    near, far = found["folder"][0], found["s3"][0]
    yield Measure(f"{label}.folder", rows / near, "rows/s")
    ratio = far / near
    goal = f"<= {STORE_GOAL:g}×"
    yield Measure(
        f"{label}.s3", rows / far, "rows/s", ratio, f"{label}.folder", goal, ratio <= STORE_GOAL
    )


def _timed(session: Any, work: Work, location: str) -> tuple[float, int]:
    """Seconds, and the bytes of all answers."""
    df = match(
        ParquetFiles(session, location),
        Index.open(work.index),
        keep=["id"],
        attributes=list(work.attributes),
        form="packed",
    )
    total = df.selectExpr("sum(length(subscriptions)) AS bytes").collect()[0].bytes
    noop = df.write.format("noop").mode("overwrite")
    return seconds_for(noop.save, _ROUNDS), int(total or 0)


# -- what one waits for ---------------------------------------------------------------------------


def start(spark: SparkSession, texts: int = 100_000) -> Iterator[Measure]:
    """Seconds to a first answer, and to that of a second `match`."""
    begin_s = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", _FIRST_ANSWER], capture_output=True, check=True)
    first_s = time.perf_counter() - begin_s
    if done.stdout.split()[-1:] != [b"5"]:
        raise WrongAnswerError(f"5 rows match, Spark says {done.stdout.decode()!r}")
    goal = f"<= {FIRST_ANSWER_GOAL_S:g} s"
    yield Measure(
        "pipeline.start.session", first_s, "s", goal=goal, reached=first_s <= FIRST_ANSWER_GOAL_S
    )
    df = spark.range(1_000)
    begin_s = time.perf_counter()
    with Index.build([f"id > {number}" for number in range(texts)]) as index:
        yield Measure(f"pipeline.start.{texts}.build", time.perf_counter() - begin_s, "s")
        once, again = (seconds_for(lambda: _answered(df, index), 1) for _ in range(2))
    yield Measure(f"pipeline.start.{texts}.match", once, "s")
    goal = f"<= {SECOND_GOAL_S:g} s"
    yield Measure(
        f"pipeline.start.{texts}.second",
        again,
        "s",
        again / once,
        f"pipeline.start.{texts}.match",
        goal,
        again <= SECOND_GOAL_S,
    )


def _answered(df: Any, index: Index) -> None:
    """All rows that come out; whoever takes only the first has Spark start a worker anew."""
    match(df, index, form="grouped").write.format("noop").mode("overwrite").save()
