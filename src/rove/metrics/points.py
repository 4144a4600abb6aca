"""A series over a period as a limited number of points, from readings or from roll-ups.

**The finest resolution that fits.** Readings are used if there are few enough of them in the
period; else the finest roll-ups (10 s, a minute or an hour) with no more points than requested. For
years, several hours become one point. Finer data is kept for a shorter time; so a resolution that
does not reach back as far as a coarser one is passed over.

**Roll-ups may be missing**, since the job that makes them runs later or not at all. Before the
first and from the last of them on, intervals are added up here from the readings. The database does
that and returns only sums: a day of a series takes 0.1 s in SQLite.

**Counters restart.** If the value is smaller than before, it was counted since the restart. The
increase before the first reading of all is unknown. A rate is an increase divided by the time
between the two readings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa

from rove.metrics.records import RESOLUTIONS_S, Points, kind_of
from rove.metrics.schema import READINGS, ROLLUPS, SERIES

POINTS_MAX: Final = 600
_EVER_US: Final = 2**62
_US: Final = 1_000_000


class SeriesData(NamedTuple):
    """Which readings and roll-ups a series has in a period; None if it has none."""

    id: int
    metric: str
    labels: str
    raw_first_us: int | None
    raw_last_us: int | None
    raw_beyond_us: int | None
    """The moment of the reading that would be one too many."""
    stored: dict[int, tuple[int, int]]
    """The first and the last start of roll-ups, by resolution."""


class Bin(msgspec.Struct, frozen=True, gc=False):
    """The readings of a series in an interval."""

    start: int
    count: int
    sum: float
    low: float
    high: float
    increase: float | None
    watched_s: float | None


class Period(NamedTuple):
    """From `since_us` to before `until_us`, in microseconds."""

    since_us: int
    until_us: int


def period(since: float | None, until: float | None) -> Period:
    """A period between two moments in seconds; None is an open end."""
    return Period(
        -_EVER_US if since is None else round(since * _US),
        _EVER_US if until is None else round(until * _US),
    )


# --- which data there is --------------------------------------------------------------------------


def find(
    connection: sa.Connection, ids: Sequence[int], within: Period, points_max: int
) -> list[SeriesData]:
    """Which data these series have; reads only the ends of indexes."""
    ends = [
        _reading(within, READINGS.c.at_us.asc()),
        _reading(within, READINGS.c.at_us.desc()),
        _reading(within, READINGS.c.at_us.asc(), points_max),
    ]
    orders = (ROLLUPS.c.start.asc(), ROLLUPS.c.start.desc())
    ends += [_rollup(within, each_s, order) for each_s in RESOLUTIONS_S for order in orders]
    labelled = [end.label(f"end_{number}") for number, end in enumerate(ends)]
    query = sa.select(SERIES.c.id, SERIES.c.metric, SERIES.c.labels, *labelled)
    found = []
    for row in connection.execute(query.where(SERIES.c.id.in_(ids))):
        firsts, lasts = row[6::2], row[7::2]
        stored = {
            resolution_s: (first, last)
            for resolution_s, first, last in zip(RESOLUTIONS_S, firsts, lasts, strict=True)
            if first is not None
        }
        number, metric, labels, raw_first, raw_last, raw_beyond = row[:6]
        found.append(SeriesData(number, metric, labels, raw_first, raw_last, raw_beyond, stored))
    return sorted(found, key=lambda one: one.labels)


def _reading(within: Period, order: Any, skipped: int = 0) -> Any:
    at = READINGS.c.at_us
    wanted = (
        READINGS.c.series == SERIES.c.id,
        at >= within.since_us,
        at < within.until_us,
    )
    query = sa.select(at).where(*wanted).order_by(order).limit(1).offset(skipped)
    return query.scalar_subquery()


def _rollup(within: Period, resolution_s: int, order: Any) -> Any:
    wanted = (
        ROLLUPS.c.metric == SERIES.c.metric,
        ROLLUPS.c.labels == SERIES.c.labels,
        ROLLUPS.c.resolution_s == resolution_s,
        *_starts(within, resolution_s),
    )
    return sa.select(ROLLUPS.c.start).where(*wanted).order_by(order).limit(1).scalar_subquery()


def _starts(within: Period, resolution_s: int) -> tuple[Any, Any]:
    """Conditions for intervals that overlap the period."""
    return (
        ROLLUPS.c.start > within.since_us // _US - resolution_s,
        ROLLUPS.c.start < -(-within.until_us // _US),
    )


# --- points ---------------------------------------------------------------------------------------


def resolution_for(found: SeriesData, within: Period, points_max: int) -> int | None:
    """The finest resolution that fits and reaches back far enough: 0 for readings, None if there is
    no data, a multiple of an hour for long periods."""
    firsts_us = {resolution_s: first * _US for resolution_s, (first, _) in found.stored.items()}
    if found.raw_first_us is not None:
        for resolution_s in RESOLUTIONS_S:
            # Where there are no roll-ups, readings are added up.
            start_us = found.raw_first_us - found.raw_first_us % (resolution_s * _US)
            firsts_us[resolution_s] = min(start_us, firsts_us.get(resolution_s, start_us))
        firsts_us[0] = found.raw_first_us
    if not firsts_us:
        return None
    span_us = _last_us(found, within) - max(within.since_us, min(firsts_us.values()))
    fitting = [
        resolution_s
        for resolution_s in sorted(firsts_us)
        if (resolution_s and span_us <= points_max * resolution_s * _US)
        or (not resolution_s and found.raw_beyond_us is None)
    ]
    for resolution_s in fitting:
        if all(
            firsts_us[resolution_s] < other_us + max(resolution_s, other_s, 1e-6) * _US
            for other_s, other_us in firsts_us.items()
        ):
            return resolution_s
    if fitting:
        return min(fitting, key=lambda each: firsts_us[each])
    longest_s = RESOLUTIONS_S[-1]
    return longest_s * math.ceil(span_us / (points_max * longest_s * _US))


def _last_us(found: SeriesData, within: Period) -> int:
    ends_us = [(last + resolution_s) * _US for resolution_s, (_, last) in found.stored.items()]
    if found.raw_last_us is not None:
        ends_us.append(found.raw_last_us + 1)
    return min(within.until_us, max(ends_us))


def points_of(
    connection: sa.Connection, found: SeriesData, within: Period, points_max: int
) -> Points | None:
    """The points of a series; None if there are none."""
    resolution_s = resolution_for(found, within, points_max)
    if resolution_s is None:
        return None
    if resolution_s == 0:
        return _raw_points(connection, found, within)
    bins = bins_of(connection, found, within, resolution_s)
    is_counter = kind_of(found.metric) == "counter"
    points = Points(found.labels, resolution_s, [], [], [], [])
    for one in bins:
        value = value_of(one, is_counter=is_counter)
        if value is None:
            continue
        points.at.append(float(one.start))
        points.value.append(value)
        points.low.append(value if is_counter else one.low)
        points.high.append(value if is_counter else one.high)
    return points if points.at else None


def value_of(one: Bin, *, is_counter: bool) -> float | None:
    """The rate of a counter, or the mean of a gauge; None if unknown."""
    if not is_counter:
        return one.sum / one.count
    if one.increase is None or not one.watched_s:
        return None
    return one.increase / one.watched_s


def _raw_points(connection: sa.Connection, found: SeriesData, within: Period) -> Points | None:
    is_counter = kind_of(found.metric) == "counter"
    since_us = _before(connection, found.id, within.since_us) if is_counter else within.since_us
    query = (
        sa.select(READINGS.c.at_us, READINGS.c.value)
        .where(READINGS.c.series == found.id)
        .where(READINGS.c.at_us >= since_us, READINGS.c.at_us < within.until_us)
        .order_by(READINGS.c.at_us)
    )
    rows: Iterable[tuple[int, float]] = connection.execute(query)
    drawn = list(_rates(rows) if is_counter else ((at_us / _US, value) for at_us, value in rows))
    if not drawn:
        return None
    at, values = map(list, zip(*drawn, strict=True))
    return Points(found.labels, 0, at, values, list(values), list(values))


def _rates(rows: Iterable[tuple[int, float]]) -> Iterator[tuple[float, float]]:
    before: tuple[int, float] | None = None
    for at_us, value in rows:
        if before is not None:
            yield at_us / _US, increase_of(value, before[1]) / ((at_us - before[0]) / _US)
        before = (at_us, value)


def increase_of(value: float, before: float) -> float:
    """How much a counter has counted between two readings, after a restart perhaps."""
    return value - before if value >= before else value


def _before(connection: sa.Connection, series: int, at_us: int) -> int:
    """The moment of the last reading before a moment; the moment itself if there is none."""
    query = sa.select(sa.func.max(READINGS.c.at_us)).where(
        READINGS.c.series == series, READINGS.c.at_us < at_us
    )
    found = connection.execute(query).scalar()
    return at_us if found is None else int(found)


def whole(connection: sa.Connection, found: SeriesData, within: Period) -> tuple[float, int] | None:
    """The value of the series over the whole period, and the number of its readings."""
    resolution_s = resolution_for(found, within, POINTS_MAX)
    if resolution_s is None:
        return None
    one = one_of(bins_of(connection, found, within, resolution_s or RESOLUTIONS_S[0]), 0)
    value = value_of(one, is_counter=kind_of(found.metric) == "counter")
    return None if value is None else (value, one.count)


# --- intervals ------------------------------------------------------------------------------------


def bins_of(
    connection: sa.Connection, found: SeriesData, within: Period, resolution_s: int
) -> list[Bin]:
    """Intervals of this length, by time: roll-ups, or else readings that are added up."""
    stored_s = min(resolution_s, RESOLUTIONS_S[-1])
    bins = {one.start: one for one in _stored_bins(connection, found, within, stored_s)}
    first, last = found.stored.get(stored_s, (None, None))
    if first is None or last is None:
        parts = [within]
    else:
        # The last one may have been made before its interval was over.
        parts = [
            Period(within.since_us, min(first * _US, within.until_us)),
            Period(max(last * _US, within.since_us), within.until_us),
        ]
    for part in parts:
        if _has_readings(found, part):
            begun = part._replace(since_us=_begun(part.since_us, stored_s))
            for one in _raw_bins(connection, found, begun, stored_s):
                # A roll-up with more readings was made before some were removed.
                if one.start not in bins or one.count >= bins[one.start].count:
                    bins[one.start] = one
    ordered = [bins[start] for start in sorted(bins)]
    return ordered if stored_s == resolution_s else merged(ordered, resolution_s)


def _begun(at_us: int, resolution_s: int) -> int:
    """The begin of the interval of a moment, so that it is added up whole."""
    return at_us - at_us % (resolution_s * _US)


def _has_readings(found: SeriesData, part: Period) -> bool:
    if found.raw_first_us is None or found.raw_last_us is None:
        return False
    return found.raw_first_us < part.until_us and found.raw_last_us >= part.since_us


def _stored_bins(
    connection: sa.Connection, found: SeriesData, within: Period, resolution_s: int
) -> Iterator[Bin]:
    if resolution_s not in found.stored:
        return
    table = ROLLUPS.c
    query = sa.select(
        table["start"], table["count"], table["sum"], table["min"], table["max"],
        table["increase"], table["rate"], table["watched_s"],
    ).where(
        table.metric == found.metric,
        table.labels == found.labels,
        table.resolution_s == resolution_s,
        *_starts(within, resolution_s),
    )  # fmt: skip
    for start, count, total, low, high, increase, rate, stored_s in connection.execute(query):
        watched_s = stored_s
        if stored_s is None and increase is not None:
            # Roll-ups of the schema's first version do not have it.
            watched_s = increase / rate if rate else float(resolution_s)
        yield Bin(start, count, total, low, high, increase, watched_s)


def _raw_bins(
    connection: sa.Connection, found: SeriesData, part: Period, resolution_s: int
) -> Iterator[Bin]:
    """Readings by interval, added up by the database."""
    is_counter = kind_of(found.metric) == "counter"
    since_us = _before(connection, found.id, part.since_us) if is_counter else part.since_us
    at, value = READINGS.c.at_us, READINGS.c.value
    columns: list[Any] = [at, value]
    if is_counter:
        columns += [
            sa.func.lag(value).over(order_by=at).label("before"),
            sa.func.lag(at).over(order_by=at).label("before_us"),
        ]
    wanted = (READINGS.c.series == found.id, at >= since_us, at < part.until_us)
    of_series = sa.select(*columns).where(*wanted).subquery()
    start_us = (of_series.c.at_us - of_series.c.at_us % (resolution_s * _US)).label("start_us")
    increase, watched_us = sa.null(), sa.null()
    if is_counter:
        before = sa.case(
            (of_series.c.before <= of_series.c.value, of_series.c.before),
            (of_series.c.before.is_not(None), 0.0),
        )
        increase = sa.func.sum(of_series.c.value - before)
        watched_us = sa.func.sum(of_series.c.at_us - of_series.c.before_us)
    value = of_series.c.value
    sums = (sa.func.count(), sa.func.sum(value), sa.func.min(value), sa.func.max(value))
    query = sa.select(start_us, *sums, increase, watched_us).group_by(start_us)
    for row in connection.execute(query.where(of_series.c.at_us >= part.since_us)):
        begun_us, count, total, low, high, counted, us = row
        watched_s = None if us is None else float(us) / _US
        yield Bin(int(begun_us) // _US, count, total, low, high, counted, watched_s)


def merged(bins: Iterable[Bin], resolution_s: int) -> list[Bin]:
    """Shorter intervals merged into intervals of this length."""
    groups: dict[int, list[Bin]] = {}
    for one in bins:
        groups.setdefault(one.start - one.start % resolution_s, []).append(one)
    return [one_of(group, start) for start, group in groups.items()]


def one_of(bins: Sequence[Bin], start: int) -> Bin:
    """Several intervals merged into one."""
    known = [one for one in bins if one.increase is not None]
    return Bin(
        start,
        sum(one.count for one in bins),
        math.fsum(one.sum for one in bins),
        min(one.low for one in bins),
        max(one.high for one in bins),
        math.fsum(one.increase or 0.0 for one in known) if known else None,
        math.fsum(one.watched_s or 0.0 for one in known) if known else None,
    )
