"""The parts of `rove bench pipeline` that are whole jobs: ranked windows, replays, the stream, the
way back to subscribers, and backtests. Each has a module of its own that says what it measures and
how; here they get a Spark session in this process, and sizes that suit the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rove.bench.measure import Measure
from rove.bench.pipeline import backtest as backtest_bench
from rove.bench.pipeline import deliver as pipeline_deliver_bench
from rove.bench.pipeline import lake as pipeline_lake_bench
from rove.bench.pipeline import ranked as pipeline_ranked_bench
from rove.bench.pipeline import replay as pipeline_replay_bench
from rove.bench.pipeline import stream as pipeline_stream_bench
from rove.pipeline.spark.session import SparkSettings, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_MAX: Final = 1_000
"""A run whose subscriptions are no more than this is one to see that everything works."""
_FULL_ROWS_MIN: Final = 1_000_000
Tell = Callable[[str], None]


@contextmanager
def _session() -> Iterator[SparkSession]:
    spark = open_session(SparkSettings(memory="4g"))
    try:
        yield spark
    finally:
        spark.stop()


def ranked(rows: int, size_max: int) -> Iterator[Measure]:
    """Rows a second through the windows of ranked subscriptions."""
    with _session() as spark:
        subscriptions = min(10_000, size_max)
        yield from pipeline_ranked_bench.run(spark, subscriptions, rows=min(rows, 1_000_000))


def replay(size_max: int) -> Iterator[Measure]:
    """Seconds for a history in which a thousand subscribers move five thousand times each."""
    with _session() as spark:
        if size_max <= SMALL_MAX:
            yield from pipeline_replay_bench.run(spark, 50, 40, 2_000)
        else:
            yield from pipeline_replay_bench.run(spark)


def stream(size_max: int) -> Iterator[Measure]:
    """Publications a second at a delay of a second, and the speed of the source."""
    with _session() as spark:
        if size_max <= SMALL_MAX:
            yield from pipeline_stream_bench.run(
                spark, size_max, rates=(200,), seconds=3.0, workloads=("W2",), source_rows=2_000
            )
        else:
            yield from pipeline_stream_bench.run(spark, min(100_000, size_max))


def deliver(size_max: int) -> Iterator[Measure]:
    """Notifications a second back to subscribers, and how long one takes from end to end."""
    if size_max <= SMALL_MAX:
        yield from pipeline_deliver_bench.run(sizes=((1, 200),), seconds=20.0)
    else:
        yield from pipeline_deliver_bench.run()


def lake(folder: Path, rows: int, size_max: int) -> Iterator[Measure]:
    """Files, commits and plans of a lake that grows for an hour, or a day in a full run."""
    seconds = pipeline_lake_bench.HOUR_S
    if size_max <= SMALL_MAX:
        seconds = 100
    elif rows > _FULL_ROWS_MIN:
        seconds = pipeline_lake_bench.DAY_S
    with _session() as spark:
        yield from pipeline_lake_bench.lake(spark, folder / "lake", seconds)


def start(size_max: int) -> Iterator[Measure]:
    """Seconds to a first answer, and to that of a second `match`."""
    with _session() as spark:
        yield from pipeline_lake_bench.start(spark, min(100_000, size_max))


def backtest(folder: Path, rows: int, size_max: int, tell: Tell) -> Iterator[Measure]:
    """Bytes that a backtest reads of a table; of a hundred million rows in a full run."""
    table_rows, days = backtest_bench.ROWS, backtest_bench.DAYS
    if size_max <= SMALL_MAX:
        table_rows, days = 100_000, 3
    elif rows >= backtest_bench.ROWS:
        table_rows, days = backtest_bench.ROWS_FULL, backtest_bench.DAYS_FULL
    yield from backtest_bench.measures(table_rows, days, folder / "backtest", tell)
