"""Readings of metrics, added up by intervals: how many there were, how large, how much was counted.

Readings are columns, a row for each, in the order in which they were read; groups are found by
sorting, and added up by one pass for each figure. A reading costs 1 µs for each resolution, most of
it for making the results records of the database.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from rove.metrics.records import Rollup

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Longs: TypeAlias = NDArray[np.int64]


class Readings(NamedTuple):
    """What was read, of whatever series; NaN where something is not known."""

    series: Longs
    at_us: Longs
    value: Floats
    increase: Floats
    """Of counters: how much was counted since the reading before,"""
    step_s: Floats
    """and how long that took."""


Names: TypeAlias = Sequence[tuple[str, str]]
"""Metric and labels of each series, by number."""


def added_up(
    readings: Readings, names: Names, resolutions_s: Sequence[int], since_us: int | None = None
) -> Iterator[Rollup]:
    """Of all intervals, or of those that a moment and later ones fall into."""
    for seconds in resolutions_s:
        yield from _of_length(readings, names, seconds, since_us)


def _of_length(
    readings: Readings, names: Names, seconds: int, since_us: int | None
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
