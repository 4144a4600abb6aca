"""How little a backtest reads: a year of a city in a typed table, and texts that ask about it.

    rove bench pipeline --part backtest [--full]

The table is made directly, without a broker: sensors that move about a city of some twenty-eight
cells, three readings a second. Rows are written by the pipeline's own writer, so files, row groups
and statistics are what ingestion leaves: a file for each day and cell. By default there are 10
million rows of 36 days; 100 million of a year (`--full`) need 5 GB of disk.

What was read is counted three times: by Spark's own metrics, from the Parquet metadata of the row
groups and columns that the plan leaves, and by the kernel (/proc/…/io), which also counts footers,
the table's log and whatever else a process reads. First it is checked that a pruned backtest finds
what the matcher finds in all rows of a day.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from rove.base.processes import cores
from rove.bench.match.engines import WrongAnswerError
from rove.bench.measure import Measure
from rove.errors import UsageError
from rove.lake.files import NewFile, write_file
from rove.lake.storage import filesystem
from rove.lang.parser import parse
from rove.pipeline.matching.pruning import PrunedExpression, ReadPlan, arrow_filter, plan
from rove.pipeline.spark.session import SparkSettings, open_session
from rove.pipeline.tables.backtest import BacktestQuery, BacktestReport, backtest
from rove.pipeline.tables.backtest_sources import TableSource, TimeRange
from rove.pipeline.tables.backtest_tasks import BacktestExpression, CountTask, match_bits
from rove.pipeline.tables.commits import ChannelTables, WriteResult
from rove.pipeline.tables.grid import cells
from rove.pipeline.tables.table import BASE, NamePath, Sort, Table, TableSchema

CHANNEL: Final = "air"
FIRST_DAY: Final = date(2025, 11, 16)
ROWS, DAYS = 10_000_000, 36
ROWS_FULL, DAYS_FULL = 100_000_000, 365
ROW_BYTES: Final = 100
"""Room for a row, more than twice of what it takes."""
SHARE_MAX: Final = 0.05
SENSORS: Final = 2_000
CENTRE: Final = (45.81, 15.98)
SPREAD: Final = (0.07, 0.10)
"""Of sensors around the centre, in degrees."""
_DAY_US: Final = 86_400 * 1_000_000

Tell: TypeAlias = Callable[[str], None]

TEXTS: Final = {
    "place": "NO2 > 60 AND distance(lat, long, 45.74, 16.10) < 1500",
    "moving": "NO2 > 60 AND distance(lat, long, 45.74, 16.10 + t * 1e-9) < 1500",
    "rare": "alarm",
    "broad": "PM10 > 20",
}
"""Selective by place, the same while the place moves, selective by value, and not selective."""
SELECTIVE: Final = ("place", "moving")

_SORTS: Final[dict[NamePath, Sort]] = {
    ("lat",): "float",
    ("long",): "float",
    ("NO2",): "float",
    ("PM10",): "float",
    ("temperature",): "float",
    ("humidity",): "float",
    ("battery",): "small",
    ("kind",): "text",
    ("alarm",): "truth",
}


# -- the table -----------------------------------------------------------------------------------


def make_table(tables: Path, rows: int, days: int, workers: int = 1) -> Table:
    """A table of so many rows, spread over days."""
    channel = ChannelTables(tables, TableSchema(CHANNEL))
    schema = TableSchema(CHANNEL).extended(dict.fromkeys(((p, s) for p, s in _SORTS.items()), 1))
    per_day = np.diff(np.linspace(0, rows, days + 1).astype(np.int64)).tolist()
    firsts = [0, *np.cumsum(per_day)[:-1].tolist()]
    write = partial(_write_day, channel.table.uri_of("data"))
    if workers > 1:
        with ProcessPoolExecutor(workers) as pool:
            written = list(pool.map(write, range(days), firsts, per_day))
    else:
        written = list(map(write, range(days), firsts, per_day))
    files = [file for of_day in written for file in of_day]
    counts = {"in": rows, "out": rows}
    channel.commit(schema, WriteResult(files, counts=counts), position=rows)
    return channel.table


def _write_day(uri: str, day: int, first: int, rows: int) -> list[NewFile]:
    """A file for each cell of a day."""
    name = (FIRST_DAY + timedelta(days=day)).isoformat()
    table, lat, long = _readings(day, first, rows)
    coded = cells(lat, long, 10).dictionary_encode()
    order = np.argsort(coded.indices.to_numpy(), kind="stable")
    counts = np.bincount(coded.indices.to_numpy(), minlength=len(coded.dictionary))
    found = []
    begin = 0
    for cell, count in zip(coded.dictionary.to_pylist(), counts.tolist(), strict=True):
        chosen = order[begin : begin + count]
        begin += count
        rows_of_cell = table.take(pa.array(chosen))
        found.append(write_file(uri, rows_of_cell, {"day": name, "cell": cell}))
    return found


def _readings(day: int, first: int, rows: int) -> tuple[pa.Table, Any, Any]:
    """A day in order of time, and where each reading was taken."""
    chance = np.random.default_rng((7, day))
    homes = np.random.default_rng(7).normal(CENTRE, SPREAD, (SENSORS, 2))
    begin = datetime.combine(FIRST_DAY, datetime.min.time(), UTC) + timedelta(days=day)
    at_us = int(begin.timestamp()) * 1_000_000 + np.sort(chance.integers(0, _DAY_US, rows))
    sensor = chance.integers(0, SENSORS, rows)
    lat, long = (homes[sensor] + chance.normal(0, 0.002, (rows, 2))).T
    no2 = chance.gamma(2.0, 12.0, rows)
    columns = {
        "position": pa.array(np.arange(first, first + rows)),
        "at": pa.array(at_us).cast(BASE.field("at").type),
        "topic": _names("air/", sensor // 100),
        "id": pc.cast(pa.array(chance.integers(0, 2**62, rows)), pa.string()),
        "client_id": _names("sensor-", sensor),
        "qos": pa.array(np.ones(rows, np.int8)),
        "lat": pa.array(lat),
        "long": pa.array(long),
        "NO2": pa.array(no2.round(1)),
        "PM10": pa.array(chance.gamma(3.0, 10.0, rows).round(1)),
        "temperature": pa.array(chance.normal(12.0, 8.0, rows).round(1)),
        "humidity": pa.array(chance.uniform(20, 100, rows).round(1)),
        "battery": pa.array(chance.integers(0, 101, rows)),
        "kind": pa.array(np.array(["bus", "tram", "post"])[sensor % 3]),
        "alarm": pa.array(no2 > 250.0),
    }
    return pa.table(columns), lat, long


def _names(prefix: str, numbers: Any) -> pa.Array:
    texts = pa.array([f"{prefix}{number}" for number in range(int(numbers.max()) + 1)])
    return texts.take(pa.array(numbers))


# -- measuring -----------------------------------------------------------------------------------


def question(text: str, days: int) -> BacktestQuery:
    """A text about the first days of the table."""
    since = datetime.combine(FIRST_DAY, datetime.min.time(), UTC).timestamp()
    return BacktestQuery(text=text, since=since, until=since + days * 86_400)


def run(spark: Any, table: Table, days: int, tell: Tell) -> Iterator[Measure]:
    """All texts over the table, checked on one day first."""
    files = table.files()
    size_bytes = sum(entry.size_bytes for entry in files)
    yield Measure("backtest.table", float(sum(entry.rows for entry in files)), "rows")
    yield Measure("backtest.table.bytes", float(size_bytes), "bytes")
    yield Measure("backtest.table.files", float(len(files)), "files")
    history = TableSource(table.uri.rpartition("/")[0])
    for name, text in TEXTS.items():
        tell(f"{name}: one day, checked")
        check(spark, history, table, text)
    for name, text in TEXTS.items():
        tell(name)
        asked = question(text, days)
        before = _read_bytes(spark)
        report = backtest(spark, history, asked)
        by_kernel = _read_bytes(spark) - before
        yield from _measures(name, report, size_bytes, planned_bytes(table, asked), by_kernel)


def _measures(
    name: str, report: BacktestReport, size_bytes: int, planned_bytes: int, by_kernel: int
) -> Iterator[Measure]:
    cost = report.cost
    share = cost.bytes_read / size_bytes
    is_selective = name in SELECTIVE
    yield Measure(f"backtest.{name}.notifications", float(report.notifications), "notifications")
    yield Measure(f"backtest.{name}", cost.seconds, "s")
    yield Measure(f"backtest.{name}.cpu", cost.cpu_s, "s")
    yield Measure(
        f"backtest.{name}.read",
        100 * share,
        "% of the bytes",
        goal=f"≤ {100 * SHARE_MAX:.0f} %" if is_selective else None,
        reached=share <= SHARE_MAX if is_selective else None,
    )
    yield Measure(f"backtest.{name}.planned", 100 * planned_bytes / size_bytes, "% of the bytes")
    yield Measure(f"backtest.{name}.kernel", 100 * by_kernel / size_bytes, "% of the bytes")


def check(spark: Any, history: TableSource, table: Table, text: str) -> None:
    """On one day the backtest finds what the matcher finds in all its rows."""
    asked = question(text, days=1)
    day = FIRST_DAY.isoformat()
    rows = table.read(days=(day, day))
    named = {name: name for name in rows.column_names if name not in BASE.names}
    work = CountTask((BacktestExpression(text, asked.since),), table.schema(), named)
    expected = sum(int(match_bits(work, batch).sum()) for batch in rows.to_batches())
    found = backtest(spark, history, asked).notifications
    if found != expected:
        raise WrongAnswerError(f"{text}: the backtest found {found}, the matcher {expected}")


def planned_bytes(table: Table, asked: BacktestQuery) -> int:
    """Of the row groups and columns that are left, by their metadata, footers included."""
    schema = table.schema()
    found: ReadPlan = plan(
        schema, [PrunedExpression(parse(asked.text), (0.0, asked.until - asked.since))]
    )
    columns = {"position", "at", "topic", "client_id", *found.columns}
    period = TimeRange(round(asked.since * 1e6), round(asked.until * 1e6))
    total = 0
    for entry in table.files(days=period.days):
        if not found.may_hold(entry):
            continue
        files = filesystem(table.uri_of("data"))
        dataset = ds.dataset(entry.path, schema=schema.arrow(), filesystem=files)
        (fragment,) = dataset.get_fragments()
        metadata = fragment.metadata
        total += metadata.serialized_size
        left = fragment.subset(arrow_filter(found.filter), schema=schema.arrow())
        for group in left.row_groups:
            chunks = metadata.row_group(group.id)
            every = (chunks.column(number) for number in range(chunks.num_columns))
            total += sum(
                chunk.total_compressed_size for chunk in every if chunk.path_in_schema in columns
            )
    return total


def _read_bytes(spark: Any) -> int:
    """What this process and Spark's Java have read so far, as the kernel counts it."""
    java = spark.sparkContext._gateway.proc.pid
    return sum(_field(Path(f"/proc/{process}/io"), "rchar") for process in ("self", java))


def _field(path: Path, name: str) -> int:
    lines = path.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


# -- all of it -----------------------------------------------------------------------------------


def measures(rows: int, days: int, folder: Path, tell: Tell) -> Iterator[Measure]:
    """Make the table, and measure with a Spark of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(folder).free < rows * ROW_BYTES:
        wanted = rows * ROW_BYTES / 1e9
        raise UsageError(f"{rows:,} rows need {wanted:.0f} GB of disk; {folder} has less")
    tell(f"making {rows:,} rows")
    table = make_table(folder.resolve(), rows, days, cores())
    spark = open_session(SparkSettings())
    try:
        yield from run(spark, table, days, tell)
    finally:
        spark.stop()
