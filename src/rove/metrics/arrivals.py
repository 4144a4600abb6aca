"""Readings that were not added up yet: which moments they are of, and what has to be read for it.

For the job that makes roll-ups (`rove.metrics.readings`). It takes the arrivals that it sees,
reads every minute that they touch, whole, and hands them back with its results (`Database.put`).
What is written meanwhile has an arrival of its own and waits for the next time.

A reading of a counter says how much was counted since the one before it. So with a stretch of
readings comes, for each series in it, the last one before; and one that comes late changes also
what the next one says, so the minute of that is read again too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import sqlalchemy as sa

from rove.metrics.database import READINGS_JOB, Database
from rove.metrics.schema import ARRIVALS, READINGS, SERIES

STEP_S: Final = 60
"""Whole minutes are read; hours are added up of minutes."""
STRETCH_S_MAX: Final = 3_600
_STEP_US: Final = STEP_S * 1_000_000
_STRETCH_US: Final = STRETCH_S_MAX * 1_000_000


class Stretch(NamedTuple):
    """From `since_us` to before `until_us`, in whole minutes."""

    since_us: int
    until_us: int


class Pending(NamedTuple):
    """What is to be added up."""

    arrivals: list[int]
    """By number; `Database.put` takes them back."""
    stretches: list[Stretch]
    """By time, apart from each other."""


Row = tuple[int, int, float]
"""Series by number, microsecond, value."""


def pending(database: Database) -> Pending:
    """What has arrived, but for what is so old that the readings around it were forgotten."""
    forgotten_us = database.progress(READINGS_JOB).since * 1_000_000
    # The cut may have gone through a minute.
    since_us = -(-forgotten_us // _STEP_US) * _STEP_US
    with database.begun() as connection:
        rows = connection.execute(sa.select(ARRIVALS).order_by(ARRIVALS.c.first_us)).all()
        stretches = list(_joined(_clipped(((first, last) for _, first, last in rows), since_us)))
        after = [one for each in stretches for one in _after(connection, each)]
    return Pending([number for number, _, _ in rows], list(_joined(sorted([*stretches, *after]))))


def _clipped(moments: Iterable[tuple[int, int]], since_us: int) -> Iterator[Stretch]:
    for first_us, last_us in moments:
        if last_us >= since_us:
            begin_us = max(first_us, since_us)
            yield Stretch(begin_us - begin_us % _STEP_US, last_us - last_us % _STEP_US + _STEP_US)


def _joined(stretches: Iterable[Stretch]) -> Iterator[Stretch]:
    """Those that touch as one; they come by their beginnings."""
    current: Stretch | None = None
    for one in stretches:
        if current is not None and one.since_us <= current.until_us:
            current = Stretch(current.since_us, max(current.until_us, one.until_us))
        else:
            if current is not None:
                yield current
            current = one
    if current is not None:
        yield current


def _after(connection: sa.Connection, stretch: Stretch) -> Iterator[Stretch]:
    """The minutes of the next readings of the series of a stretch."""
    following = READINGS.alias("following")
    active = _active(stretch)
    next_one = (
        sa.select(following.c.at_us)
        .where(following.c.series == active.c.number, following.c.at_us >= stretch.until_us)
        .order_by(following.c.at_us)
        .limit(1)
        .scalar_subquery()
    )
    for (at_us,) in connection.execute(sa.select(next_one).select_from(active)):
        if at_us is not None:
            yield Stretch(at_us - at_us % _STEP_US, at_us - at_us % _STEP_US + _STEP_US)


def _active(stretch: Stretch) -> sa.Subquery:
    """The series that have readings there."""
    at = READINGS.c.at_us
    query = sa.select(READINGS.c.series.label("number"))
    return query.where(at >= stretch.since_us, at < stretch.until_us).distinct().subquery()


def pieces(database: Database, stretches: Iterable[Stretch]) -> Iterator[Stretch]:
    """The same in pieces of an hour at most, without those in which there is nothing."""
    for one in stretches:
        since_us = one.since_us
        while (first_us := _first(database, since_us, one.until_us)) is not None:
            begin_us = max(first_us - first_us % _STEP_US, one.since_us)
            end_us = begin_us - begin_us % _STRETCH_US + _STRETCH_US
            piece = Stretch(begin_us, min(end_us, one.until_us))
            yield piece
            since_us = piece.until_us


def _first(database: Database, since_us: int, until_us: int) -> int | None:
    at = READINGS.c.at_us
    query = sa.select(sa.func.min(at)).where(at >= since_us, at < until_us)
    with database.begun() as connection:
        found = connection.execute(query).scalar()
    return None if found is None else int(found)


def rows_of(database: Database, piece: Stretch) -> list[Row]:
    """The readings of a piece, and of each series in it the last one before."""
    at, series, value = READINGS.c.at_us, READINGS.c.series, READINGS.c.value
    inside = (at >= piece.since_us, at < piece.until_us)
    active = _active(piece)
    before = READINGS.alias("before")
    last = (
        sa.select(before.c.at_us)
        .where(before.c.series == active.c.number, before.c.at_us < piece.since_us)
        .order_by(before.c.at_us.desc())
        .limit(1)
        .scalar_subquery()
    )
    earlier = sa.select(series, at, value).join(active, (series == active.c.number) & (at == last))
    with database.begun() as connection:
        rows = [*connection.execute(earlier)]
        rows += connection.execute(sa.select(series, at, value).where(*inside))
    return rows


def names(database: Database) -> dict[int, tuple[str, str]]:
    """Metric and labels of every series, by number."""
    with database.begun() as connection:
        rows = connection.execute(sa.select(SERIES.c.id, SERIES.c.metric, SERIES.c.labels))
        return {number: (metric, labels) for number, metric, labels in rows}
