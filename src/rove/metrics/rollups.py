"""Roll-ups: readings by interval, with their number, their range and how much was counted.

Readings are columns, one row for each, in the order in which they were read. Groups are found by
sorting, and each figure is one pass over the columns. A reading costs 1 µs for each resolution,
most of it for making records of the results.

The lake's job (`rove.pipeline.jobs.metrics`) makes its own columns: it knows when a broker was
restarted. All other readings come from a list or the database, and `readings_of` finds what
counters have counted: the difference to the reading before, or the value itself if it is smaller,
since the counter has then begun anew. It belongs to the interval of the later reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from rove.metrics.records import RESOLUTIONS_S, Reading, Rollup, kind_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Longs: TypeAlias = NDArray[np.int64]

_HOUR_S = RESOLUTIONS_S[-1]


class ReadingColumns(NamedTuple):
    """Readings of any series; NaN where something is unknown."""

    series: Longs
    """The number of the series."""
    at_us: Longs
    value: Floats
    increase: Floats
    """How much a counter has counted since the reading before,"""
    step_s: Floats
    """and in how much time."""


Names: TypeAlias = Sequence[tuple[str, str]]
"""Metric and labels of each series, by number."""
Row: TypeAlias = tuple[int, int, float]
"""Series by number, microsecond, value."""


def roll_up(readings: Iterable[Reading]) -> Iterator[Rollup]:
    """The roll-ups of a list of readings. Of two at the same moment the later one counts, as in the
    database."""
    numbers: dict[tuple[str, str], int] = {}
    rows: dict[tuple[int, int], float] = {}
    for one in readings:
        series = numbers.setdefault((one.metric, one.labels), len(numbers))
        rows[series, round(one.at * 1_000_000)] = one.value
    if rows:
        names = list(numbers)
        columns = readings_of([(series, at, value) for (series, at), value in rows.items()], names)
        yield from roll_up_columns(columns, names, RESOLUTIONS_S)


def readings_of(rows: Sequence[Row], names: Names) -> ReadingColumns:
    """Rows in any order as columns, with the increases of counters."""
    series, at_us, value = (np.array(column) for column in zip(*rows, strict=True))
    order = np.lexsort((at_us, series))
    series, at_us, value = series[order], at_us[order], value[order].astype(np.float64)
    goes_on = np.zeros(len(series), bool)
    goes_on[1:] = series[1:] == series[:-1]
    distinct, places = np.unique(series, return_inverse=True)
    goes_on &= np.array([kind_of(names[one][0]) == "counter" for one in distinct])[places]
    last, last_us = np.roll(value, 1), np.roll(at_us, 1)
    counted = value - np.where(last <= value, last, 0.0)
    return ReadingColumns(
        series,
        at_us,
        value,
        np.where(goes_on, counted, np.nan),
        np.where(goes_on, (at_us - last_us) / 1e6, np.nan),
    )


def roll_up_columns(
    readings: ReadingColumns,
    names: Names,
    resolutions_s: Sequence[int],
    since_us: int | None = None,
) -> Iterator[Rollup]:
    """The roll-ups of all intervals, or of those that end after a moment."""
    for seconds in resolutions_s:
        yield from _of_length(readings, names, seconds, since_us)


def _of_length(
    readings: ReadingColumns, names: Names, seconds: int, since_us: int | None
) -> Iterator[Rollup]:
    length_us = seconds * 1_000_000
    begin_us = readings.at_us - readings.at_us % length_us
    order = np.lexsort((np.arange(len(begin_us)), begin_us, readings.series))
    if since_us is not None:
        order = order[begin_us[order] > since_us - length_us]
    if not len(order):
        return
    series, begin_us = readings.series[order], begin_us[order]
    value, increase, step_s = (
        column[order] for column in (readings.value, readings.increase, readings.step_s)
    )
    is_new = np.ones(len(order), bool)
    is_new[1:] = (series[1:] != series[:-1]) | (begin_us[1:] != begin_us[:-1])
    firsts = np.flatnonzero(is_new)
    counts = np.diff(np.append(firsts, len(order)))
    is_known = ~np.isnan(increase)
    is_watched = is_known & (step_s > 0)

    def total(column: Floats, of: NDArray[np.bool_]) -> Floats:
        return np.add.reduceat(np.where(of, column, 0.0), firsts)

    known, watched_s = total(increase, is_known), total(step_s, is_watched)
    columns = (
        series[firsts],
        begin_us[firsts] // 1_000_000,
        counts,
        np.add.reduceat(value, firsts),
        value[firsts + counts - 1],
        np.minimum.reduceat(value, firsts),
        np.maximum.reduceat(value, firsts),
        known,
        np.logical_or.reduceat(is_known, firsts),
        total(increase, is_watched),
        watched_s,
        np.logical_or.reduceat(is_watched, firsts),
    )
    for row in zip(*(column.tolist() for column in columns), strict=True):
        number, start, count, sum_, last, least, most = row[:7]
        counted, has_counted, in_time, time_s, has_time = row[7:]
        metric, labels = names[number]
        yield Rollup(
            metric=metric,
            labels=labels,
            resolution_s=seconds,
            start=start,
            count=count,
            sum=sum_,
            last=last,
            min=least,
            max=most,
            mean=sum_ / count,
            increase=counted if has_counted else None,
            rate=in_time / time_s if has_time else None,
            watched_s=time_s if has_time else None,
        )


def hours_of(minutes: Iterable[Rollup]) -> Iterator[Rollup]:
    """The hours of these minutes, by series."""
    groups: dict[tuple[str, str, int], list[Rollup]] = {}
    for one in minutes:
        hour = one.start - one.start % _HOUR_S
        groups.setdefault((one.metric, one.labels, hour), []).append(one)
    for (metric, labels, hour), group in groups.items():
        count, sum_ = sum(one.count for one in group), sum(one.sum for one in group)
        known = [one for one in group if one.increase is not None]
        increase = sum(one.increase or 0.0 for one in known) if known else None
        watched_s = sum(one.watched_s or 0.0 for one in known)
        yield Rollup(
            metric=metric,
            labels=labels,
            resolution_s=_HOUR_S,
            start=hour,
            count=count,
            sum=sum_,
            last=max(group, key=lambda one: one.start).last,
            min=min(one.min for one in group),
            max=max(one.max for one in group),
            mean=sum_ / count,
            increase=increase,
            rate=increase / watched_s if increase is not None and watched_s else None,
            watched_s=watched_s if increase is not None else None,
        )
