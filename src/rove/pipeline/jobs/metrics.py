"""Rolls up the broker's raw metrics by 10 seconds, minutes and hours into the metrics database.

Raw metrics arrive in two ways: as readings that are already in the database
(`rove.metrics.rollup_job`), and through the lake, which this module reads; series from the lake
have the label `channel`.

The broker logs its counters and gauges to the lake, a row every few seconds
(`rove.serve.metrics.recording`). Here the rows are split into readings, one for each series, and
rolled up (`rove.metrics.rollups`). Spark is not used: an hour of a broker is 360 rows, a single
process writes all roll-ups, and passing rows of 80 series through the JVM, which compared each as a
map with the one before, took ten times as long as all the rest.

**Increases of counters.** A counter starts at zero with every life of the broker. The increase
between two rows of a life is their difference; before the first row of a life it is the row's
value. The increase before the oldest row that is still in the lake is unknown, and left out. A
series that is missing in a row was zero. A rate is the increase divided by the time between the
rows, so neither a restart nor a pause makes a false peak. An increase belongs to the interval in
which its row was written.

**Incremental runs.** Each run reads the new rows, and the other rows of the intervals that they
fall into: from the *anchor* on, the last row before the newest hour. Roll-ups are computed whole
and replace the old ones in one transaction with the position in the log, so a run that is killed or
repeated changes nothing. If the clock was set back, a run only reads more.

2,000 rows of 80 series, 160,000 readings, become 187,000 roll-ups in 3 s of CPU, half of it in
the database (`rove bench pipeline --part metrics`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from rove.errors import UsageError
from rove.metrics import rollup_job
from rove.metrics.database import Database, JobProgress, Rollup
from rove.metrics.records import RESOLUTIONS_S, kind_of, labels_text, split_series
from rove.metrics.rollups import ReadingColumns, roll_up_columns
from rove.pipeline.jobs import status
from rove.pipeline.jobs.job import repeat
from rove.pipeline.lake.log import NOTHING, Lake

if TYPE_CHECKING:
    from rove.pipeline.jobs.job import JobContext

JOB: Final = "metrics"
KIND: Final = "metrics"
KEPT_DAYS: Final = {10: 7, 60: 90}
"""Retention of roll-ups in days, by resolution in seconds; others are kept for ever."""
RUN_EVERY_S: Final = 10.0
FILES_MAX: Final = 2_000
"""Files that one step reads; their readings have to fit into memory."""
_HOUR_US: Final = RESOLUTIONS_S[-1] * 1_000_000
_NAN: Final = float("nan")
_UPTIME: Final = "rove_uptime_seconds"


class RollupReport(msgspec.Struct, frozen=True):
    """The result of a run."""

    rows: int = 0
    """New rows of the log."""
    unreadable: int = 0
    """Rows that are no metrics of a broker, and were skipped."""
    rollups: int = 0
    position: int = -1
    """The log is read up to here."""


# --- rows -----------------------------------------------------------------------------------------


class MetricsRow(NamedTuple):
    """A row of metrics, as the broker has logged it."""

    channel: str
    position: int
    at_us: int
    life: str
    facts: MetricsPayload | None
    """None if the row is no metrics of a broker."""


class MetricsPayload(msgspec.Struct):
    """The payload of a row."""

    values: dict[str, float | None]
    row: int | None = None


_DECODE: Final = msgspec.json.Decoder(MetricsPayload).decode


def payload_of(payload: bytes) -> MetricsPayload | None:
    """The decoded payload of a row; None if it is no metrics of a broker."""
    try:
        return _DECODE(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def readings(rows: Iterable[MetricsRow]) -> tuple[ReadingColumns, list[tuple[str, str]]]:
    """A reading for each series of each row, and the names of the series.

    The increase is known between two rows of a life, and for the first row of a life.
    """
    numbers: dict[tuple[str, str], int] = {}
    found: list[tuple[int, int, float, float, float]] = []
    before: dict[str, tuple[MetricsRow, MetricsPayload]] = {}
    for row in sorted(rows):
        facts = row.facts
        if facts is None:
            continue
        last, last_payload = before.get(row.channel, (None, None))
        goes_on = last is not None and last.life == row.life
        step_s = (row.at_us - last.at_us) / 1e6 if last is not None and goes_on else _NAN
        if not goes_on and facts.row == 1:
            uptime_s = facts.values.get(_UPTIME)
            step_s = _NAN if uptime_s is None else uptime_s
        earlier = last_payload.values if last_payload is not None and goes_on else {}
        is_known = goes_on or facts.row == 1
        for series, value in facts.values.items():
            if value is None:
                continue
            number = numbers.setdefault((row.channel, series), len(numbers))
            increase = _NAN
            if is_known and _is_counter(series):
                total = earlier.get(series) or 0.0
                increase = value - total if total <= value else value
            found.append((number, row.at_us, value, increase, step_s))
        before[row.channel] = (row, facts)
    of_series, at_us, *floats = zip(*found, strict=True) if found else ((),) * 5
    columns = ReadingColumns(
        np.array(of_series, np.int64),
        np.array(at_us, np.int64),
        *(np.array(each, np.float64) for each in floats),
    )
    return columns, [_named(channel, series) for channel, series in numbers]


@functools.lru_cache(maxsize=4_096)
def _is_counter(series: str) -> bool:
    return kind_of(split_series(series)[0]) == "counter"


def _named(channel: str, series: str) -> tuple[str, str]:
    """The metric, and `channel="broker",design="lees"`, as Prometheus would write it."""
    metric, own = split_series(series)
    return metric, ",".join([labels_text({"channel": channel}), *([own] if own else [])])


def roll_up(rows: Iterable[MetricsRow], since_us: int | None = None) -> Iterator[Rollup]:
    """Roll-ups of raw rows; with `since_us`, only of intervals that end after it."""
    return roll_up_columns(*readings(rows), RESOLUTIONS_S, since_us)


# --- the job --------------------------------------------------------------------------------------


def run_once(lake: Lake | None, database: Database, files_max: int = FILES_MAX) -> RollupReport:
    """Roll up what the lake has now; without a lake there is nothing to do."""
    total = RollupReport()
    while lake is not None:
        position = lake.position()
        step = _step(lake, database, position, files_max)
        if step is None:
            return msgspec.structs.replace(total, position=position)
        total = RollupReport(
            total.rows + step.rows,
            total.unreadable + step.unreadable,
            total.rollups + step.rollups,
        )
    return total


def run_job(context: JobContext) -> None:
    """Keep the roll-ups in the metrics database up to date with the lake and the raw readings.

    The database is the one of the settings, or `metrics.db` in the job's folder. Options:
    `keep_raw_hours`, after which readings are removed (24; 0 keeps them for ever).
    """
    place = context.settings.database or str(context.folder / "metrics.db")
    keep_raw_hours = _keep_raw_hours(context.settings.options)
    lake = context.lake
    with Database(place) as database:

        def step() -> status.StepReport:
            found = run_once(lake, database)
            read = rollup_job.run_once(database, keep_raw_hours)
            if read.newest is not None:
                _forget(database, read.newest)
            notes = (f"{found.unreadable} rows are not metrics",) if found.unreadable else ()
            return status.StepReport(
                position=found.position,
                rows_in=found.rows + read.readings,
                rows_out=found.rollups + read.rollups,
                notes=notes,
            )

        repeat(context, RUN_EVERY_S, step)


def _keep_raw_hours(options: Mapping[str, str]) -> float:
    written = options.get("keep_raw_hours", str(rollup_job.KEEP_RAW_HOURS))
    try:
        hours = float(written)
    except ValueError:
        hours = -1.0
    if not 0 <= hours < 1e6:
        raise UsageError(f"keep_raw_hours={written} is no number of hours, 0 or more")
    return hours


def _forget(database: Database, newest: int) -> None:
    for resolution_s, days in KEPT_DAYS.items():
        database.forget(resolution_s, newest - days * 86_400)


def _step(lake: Lake, database: Database, up_to: int, files_max: int) -> RollupReport | None:
    """Process up to `files_max` new files; None if there are none."""
    done = database.progress(JOB)
    new = lake.files(KIND, done.position, up_to)
    if not new or up_to <= done.position:
        return None
    if len(new) > files_max:
        up_to = max(file.last for file in new[:files_max])
    rows = _rows(lake, done.anchor - 1, up_to)
    fresh = [row for row in rows if row.position > done.position]
    since_us = min((row.at_us for row in fresh), default=None)
    if since_us is not None and since_us // 1_000_000 < done.since:
        # The clock was set back: the other rows of those hours lie before the anchor.
        day = datetime.fromtimestamp(since_us / 1e6, UTC).date() - timedelta(days=1)
        rows = _rows(lake, NOTHING, up_to, (day.isoformat(), "9999-12-31"))
    progress = _progress(rows, up_to)
    found = [] if since_us is None else list(roll_up(rows, since_us))
    rollups = database.put(found, JOB, progress)
    _forget(database, progress.since)
    return RollupReport(len(fresh), sum(row.facts is None for row in fresh), rollups)


def _rows(
    lake: Lake, after: int, up_to: int, days: tuple[str, str] | None = None
) -> list[MetricsRow]:
    """The rows of all channels above and up to a position."""
    found: list[MetricsRow] = []
    names = ("position", "at", "id", "payload")
    for file in lake.files(KIND, after, up_to, days=days):
        table = lake.read(file, names, after, up_to)
        moments = table["at"].cast(pa.int64())
        columns = (table["position"], moments, table["id"], table["payload"])
        found += [
            MetricsRow(file.channel, position, at_us, life, payload_of(payload))
            for position, at_us, life, payload in zip(
                *(column.to_pylist() for column in columns), strict=True
            )
        ]
    return found


def _progress(rows: Sequence[MetricsRow], up_to: int) -> JobProgress:
    """Where the next run starts: at the last row of each channel before the newest hour."""
    newest_us = max(row.at_us for row in rows)
    newest_us -= newest_us % _HOUR_US
    anchors = []
    for channel in {row.channel for row in rows if row.at_us >= newest_us}:
        own = [row for row in rows if row.channel == channel]
        before = [row.position for row in own if row.at_us < newest_us]
        anchors.append(max(before) if before else min(row.position for row in own))
    return JobProgress(up_to, min(anchors), newest_us // 1_000_000)
