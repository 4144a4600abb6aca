"""How long the broker's own metrics take from the lake into the metrics database.

    rove bench pipeline --part metrics

Rows of 80 series, one every ten seconds, as a broker logs them, in a lake; the job's own step reads
them, adds them up and writes SQLite. No Spark takes part.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from rove.bench.measure import Measure
from rove.broker.storage.records import LogRow
from rove.metrics.database import Database
from rove.pipeline.jobs.metrics import run_once
from rove.pipeline.lake.log import Lake
from rove.serve.disk.lake import LakeAppender as BrokersLake

ROWS, SERIES = 2_000, 80
GOAL_S: Final = 5.0
_BEGIN_S: Final = 1_790_000_000.0
_EVERY_S: Final = 10.0
_AT_A_TIME: Final = 100


def measures(folder: Path, rows: int = ROWS, series: int = SERIES) -> Iterator[Measure]:
    """Write a lake, and bring a database up to it."""
    lake = folder / "metrics-lake"
    fill(lake, rows, series)
    with Database(str(folder / "metrics.db")) as database:
        begin_s, cpu_s = time.perf_counter(), time.process_time()
        found = run_once(Lake(lake), database)
        took_s, cpu_s = time.perf_counter() - begin_s, time.process_time() - cpu_s
    label = f"pipeline.metrics.{rows * series}"
    yield Measure(f"{label}.rollups", float(found.rollups), "rows")
    yield Measure(
        label, took_s, "s", goal=f"≤ {GOAL_S:.0f} s for 160,000", reached=took_s <= GOAL_S
    )
    yield Measure(f"{label}.cpu", cpu_s, "s")


def fill(lake: Path, rows: int, series: int) -> None:
    """Counters and gauges, half of each, of one life."""
    writer = BrokersLake(lake)
    for begin in range(0, rows, _AT_A_TIME):
        numbers = range(begin, min(begin + _AT_A_TIME, rows))
        writer.take([(number + 1, _row(number, series)) for number in numbers])


def _row(number: int, series: int) -> LogRow:
    values = {
        f'c_total{{n="{each}"}}' if each % 2 else f"g{each}": float(number * each % 977)
        for each in range(1, series)
    } | {"rove_uptime_seconds": number * _EVERY_S}
    payload = msgspec.json.encode({"row": number + 1, "values": values})
    at_s = _BEGIN_S + number * _EVERY_S
    return LogRow("metrics", "broker", at_s, id="life", payload=payload)
