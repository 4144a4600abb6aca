"""Ranked subscriptions on Spark: how many rows a second go through the windows.

Every subscription wants its ten best of the last hour. Two cases are told apart. With a condition
(*boxes*: a pollutant above a threshold, in an area) a row concerns some fifty of 10,000, which the
index finds. Without one (*everything*) each row could be among the best of all 10,000, and every
one of these has to be ruled out.

Rows are readings of the air-quality workload, `rows_per_s` to a second of their own time, in a
Parquet file. First a sample is ranked both by Spark and by the windows of the language, one by
one; when they differ, the benchmark stops. Then all rows are ranked, from reading the file to
throwing away what was found (`noop`), the best of several rounds. Each round pays for parsing the
texts again, as every job does. Beside rows a second there is the CPU that all processes took for a
row, which says more on a machine that others use, too.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from rove.bench.measure import Measure
from rove.lang import RankedWindow, parse
from rove.pipeline.ranked.ranking import rank
from rove.testing.workloads import AirQuality

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GOAL_PER_S: Final = 100_000
CASES: Final = ("boxes", "everything")
_LAT: Final = (45.74, 45.86)
_LONG: Final = (15.86, 16.12)
_SAMPLE_TEXTS: Final = 40
_SAMPLE_ROWS: Final = 1_500


def run(
    spark: SparkSession,
    subscriptions: int = 10_000,
    rows: int = 1_000_000,
    rows_per_s: int = 100,
    cases: Sequence[str] = CASES,
    buckets: int | None = None,
    rounds: int = 2,
) -> Iterator[Measure]:
    """Rows a second for each case; the goal is for `boxes` at full size."""
    air = AirQuality()
    with tempfile.TemporaryDirectory(prefix="rove-bench-") as folder:
        file = Path(folder) / "air.parquet"
        _write(air, file, rows, rows_per_s)
        readings = spark.read.parquet(str(file))
        for case in cases:
            asked = texts(case, subscriptions, air)
            _check(spark, air, texts(case, _SAMPLE_TEXTS, air), rows_per_s, buckets)
            taken = [_timed(readings, asked, buckets) for _ in range(rounds)]
            seconds, cpu_s = (min(each) for each in zip(*taken, strict=True))
            yield _measure(case, subscriptions, rows / seconds)
            name = f"pipeline.ranked.{case}.{subscriptions}.cpu"
            yield Measure(name, 1e6 * cpu_s / rows, "µs/row")


def texts(case: str, count: int, air: AirQuality) -> list[str]:
    """Ranked texts of a case."""
    random = Random(2)
    conditions = air.texts(count) if case == "boxes" else [""] * count
    return [f"{condition} {_order(random)}".strip() for condition in conditions]


def _order(random: Random) -> str:
    lat, long = random.uniform(*_LAT), random.uniform(*_LONG)
    return f"ORDER BY distance(lat, long, {lat:.5f}, {long:.5f}) LIMIT 10 WITHIN 1 HOURS"


def _measure(case: str, subscriptions: int, per_s: float) -> Measure:
    name = f"pipeline.ranked.{case}.{subscriptions}"
    if case != "boxes":
        return Measure(name, per_s, "rows/s")
    goal, reached = f">= {GOAL_PER_S:,}", per_s >= GOAL_PER_S
    return Measure(name, per_s, "rows/s", goal=goal, reached=reached)


def _write(air: AirQuality, file: Path, rows: int, rows_per_s: int) -> None:
    with pq.ParquetWriter(file, _table(air, 0, 1, rows_per_s).schema) as writer:
        for first in range(0, rows, 100_000):
            writer.write_table(_table(air, first, min(100_000, rows - first), rows_per_s))


def _table(air: AirQuality, first: int, count: int, rows_per_s: int) -> pa.Table:
    numbers = range(first, first + count)
    table = pa.Table.from_pylist(air.publications(count))
    table = table.append_column("at", pa.array([number / rows_per_s for number in numbers]))
    return table.append_column("n", pa.array(numbers, pa.int64()))


def _rank(readings: DataFrame, asked: Sequence[str], buckets: int | None) -> None:
    found = rank(readings, asked, at="at", order="n", keep=["n"], buckets=buckets)
    found.write.format("noop").mode("overwrite").save()


def _timed(readings: DataFrame, asked: Sequence[str], buckets: int | None) -> tuple[float, float]:
    """Seconds on the clock, and of CPU in all processes."""
    start, cpu_s = time.perf_counter(), family_cpu_s()
    _rank(readings, asked, buckets)
    return time.perf_counter() - start, family_cpu_s() - cpu_s


def family_cpu_s() -> float:
    """The CPU that this process, what it started and what those started have taken so far."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # The name in brackets may hold anything; what follows are numbers.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        parents[int(folder.name)] = int(fields[1])
        ticks[int(folder.name)] = sum(map(int, fields[11:15]))
    family = {os.getpid()}
    while more := {one for one, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(ticks[one] for one in family) / os.sysconf("SC_CLK_TCK")


def _check(
    spark: SparkSession,
    air: AirQuality,
    asked: Sequence[str],
    rows_per_s: int,
    buckets: int | None,
) -> None:
    """Spark and the plain windows must say the same of a sample."""
    table = _table(air, 0, _SAMPLE_ROWS, rows_per_s)
    until = _SAMPLE_ROWS / rows_per_s + 4_000.0
    found = rank(
        spark.createDataFrame(table),
        asked,
        at="at",
        order="n",
        keep=["n"],
        buckets=buckets,
        until=until,
    )
    ours = sorted(tuple(row) for row in found.collect())
    if ours != plainly(asked, table.to_pylist(), until):
        raise AssertionError("Spark has ranked a sample differently than the windows do")


def plainly(
    asked: Sequence[str], rows: Sequence[dict[str, Any]], until: float
) -> list[tuple[Any, ...]]:
    """What the windows of the language give, as `rank` tells it."""
    found: list[tuple[Any, ...]] = []
    for number, text in enumerate(asked):
        window = RankedWindow(parse(text))
        given = [one for row in rows for one in window.publish(row, row["at"], key=row["n"])]
        given += window.advance(until)
        found += [(one.key, number, one.at, float(one.score), one.promoted) for one in given]
    return sorted(found)
