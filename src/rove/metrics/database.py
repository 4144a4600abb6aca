"""The metrics database: readings, roll-ups and runs, for whoever draws or judges them.

A file of SQLite unless told otherwise, so that there is nothing to install; PostgreSQL or MySQL
and MariaDB when a URL says so. One set of statements for all, through SQLAlchemy; only the upsert
has a form for each (`rove.metrics.schema`).

**Writing twice is writing once.** A reading is named by series and microsecond, a roll-up by
series, resolution and start, and each is written over whatever was there. How far a job has read is
in the same transaction as its results, so it never says more or less than what is there.

**Any thread** may use it: each call takes a connection of its own for as long as it lasts. It may
raise `DatabaseError`, and wait as long as the database does; those who must not have a
`rove.metrics.recorder`.

SQLite takes some 150,000 readings a second in batches, of 30 bytes each with their indexes; a
roll-up is about 200. Readers go on while one writes (write-ahead log).
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, Final, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy import exc

from rove.metrics import points as drawing
from rove.metrics.migrations import MIGRATIONS, Migration, migrate
from rove.metrics.naming import kind_of, labels_of
from rove.metrics.points import POINTS_MAX
from rove.metrics.records import (
    Points,
    Progress,
    Reading,
    Rollup,
    Run,
    Series,
    Total,
    fault_of,
    fault_of_name,
)
from rove.metrics.schema import (
    ARRIVALS,
    PROGRESS,
    READINGS,
    ROLLUPS,
    RUNS,
    SERIES,
    DatabaseError,
    insert_new,
    upsert,
)

__all__ = [
    "Database", "DatabaseError", "Points", "Progress", "Reading", "Rollup", "Run", "Series",
    "Total", "url_of",
]  # fmt: skip

ROWS_PER_STATEMENT: Final = 1_000
NAMES_PER_QUERY: Final = 200
CONNECT_S_MAX: Final = 10
ANSWER_S_MAX: Final = 60
"""How long a server may be silent until it is given up."""
CONFLICTS_MAX: Final = 5
"""How often a transaction is tried again that lost against another."""
READINGS_JOB: Final = "readings"
"""Its progress says up to when readings were forgotten."""
_BUSY_MS: Final = 30_000
_US: Final = 1_000_000
_CONFLICTS: Final = ("deadlock", "could not serialize", "lock wait timeout")
_DRIVERS: Final = {
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
"""Which one is meant where a URL names none: those that `rove[databases]` brings."""
_SERVERS: Final[dict[str, dict[str, Any]]] = {
    "postgresql": {
        "connect_args": {
            "connect_timeout": CONNECT_S_MAX, "tcp_user_timeout": ANSWER_S_MAX * 1_000,
        },
    },
    "mysql": {
        "connect_args": {
            "connect_timeout": CONNECT_S_MAX, "read_timeout": ANSWER_S_MAX,
            "write_timeout": ANSWER_S_MAX,
        },
        # Otherwise a transaction would not see the series that another has just made.
        "isolation_level": "READ COMMITTED",
    },
}  # fmt: skip
"""What each kind of server is told besides its URL."""

Labels = str | Mapping[str, str] | None
"""Exactly these, as a text; all that have these, as a mapping; None is any."""
T = TypeVar("T")


def url_of(place: str) -> sa.URL:
    """Where a database is: a path, or a URL; DatabaseError if it is neither, or no driver is here.

    Connects to nothing.
    """
    if "://" not in place:
        return sa.URL.create("sqlite", database=place)
    try:
        url = sa.make_url(place)
        url = url.set(drivername=_DRIVERS.get(url.drivername, url.drivername))
        url.get_dialect()().import_dbapi()
    except (exc.NoSuchModuleError, ModuleNotFoundError) as error:
        raise DatabaseError(
            f"cannot use {_without_password(place)}: {error}; `pip install 'rove[databases]'` "
            "brings drivers for PostgreSQL and MySQL"
        ) from error
    except exc.ArgumentError as error:
        raise DatabaseError(
            f"{_without_password(place)} is no database; give a file, or a URL such as "
            "postgresql+psycopg://user@host/name"
        ) from error
    return url


class Database:
    """Readings, roll-ups, runs, and how far jobs are."""

    def __init__(self, place: str, migrations: Sequence[Migration] = MIGRATIONS) -> None:
        """Open it at a path or a URL, and bring its schema up to date."""
        url = url_of(place)
        kind = "mysql" if url.get_backend_name() == "mariadb" else url.get_backend_name()
        is_server = kind in _SERVERS
        if is_server:
            # What they say of a connection that is lost, the error says too.
            for library in ("psycopg", "sqlalchemy.pool"):
                logging.getLogger(library).setLevel(logging.CRITICAL)
        self._engine = sa.create_engine(url, pool_pre_ping=is_server, **_SERVERS.get(kind, {}))
        self.name = url.render_as_string(hide_password=True)
        dialect = self._engine.dialect.name
        if dialect == "sqlite":
            sa.event.listen(self._engine, "connect", _set_up_sqlite)
            sa.event.listen(self._engine, "begin", _begin_sqlite)
        self._ids: dict[tuple[str, str], int] = {}
        """Series that are known to be there; never changed in place."""
        self._ids_lock = threading.Lock()
        try:
            self._upsert_rollups = upsert(ROLLUPS, dialect).compile(dialect=self._engine.dialect)
            """Compiled: to bind 100,000 rows one by one takes as long as to write them."""
            self._upsert_readings = upsert(READINGS, dialect)
            self._upsert_progress = upsert(PROGRESS, dialect)
            self._upsert_run = upsert(RUNS, dialect)
            self._new_series = insert_new(SERIES, dialect)
            with self._begun(writes=True) as connection:
                migrate(connection, migrations, self.name)
        except BaseException:
            self._engine.dispose()
            raise

    def close(self) -> None:
        self._engine.dispose()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- readings ------------------------------------------------------------------------------

    def put_readings(self, readings: Sequence[Reading]) -> int:
        """Write all or nothing, over what was there; how many they were."""
        if not readings:
            return 0
        if fault := next((fault for one in readings if (fault := fault_of(one))), None):
            raise DatabaseError(fault)
        ids = self._numbered({(one.metric, one.labels) for one in readings})
        rows = {(ids[one.metric, one.labels], round(one.at * _US)): one.value for one in readings}
        # In one order, so that two who write do not wait for each other.
        values = [
            {"series": series, "at_us": at_us, "value": value}
            for (series, at_us), value in sorted(rows.items())
        ]
        moments = [at_us for _, at_us in rows]
        arrival = {"first_us": min(moments), "last_us": max(moments)}

        def write(connection: sa.Connection) -> int:
            for begin in range(0, len(values), ROWS_PER_STATEMENT):
                part = values[begin : begin + ROWS_PER_STATEMENT]
                connection.execute(self._upsert_readings, part)
            connection.execute(sa.insert(ARRIVALS), [arrival])
            return len(readings)

        try:
            return self._written(write)
        except DatabaseError:
            # Who knows what was put back there: a copy from before these series were known?
            with self._ids_lock:
                self._ids = {}
            raise

    def readings(
        self,
        metric: str,
        labels: Labels = None,
        since: float | None = None,
        until: float | None = None,
    ) -> list[Reading]:
        """Raw ones from `since` to before `until`, by labels and time."""
        within = drawing.period(since, until)
        with self._begun() as connection:
            names = {row.id: row.labels for row in _series(connection, metric, labels)}
            query = (
                sa.select(READINGS)
                .where(READINGS.c.series.in_(list(names)))
                .where(READINGS.c.at_us >= within.since_us, READINGS.c.at_us < within.until_us)
                .order_by(READINGS.c.series, READINGS.c.at_us)
            )
            found = [
                Reading(metric, names[series], at_us / _US, value)
                for series, at_us, value in connection.execute(query)
            ]
        return sorted(found, key=lambda one: one.labels)

    def forget_readings(self, before: float) -> int:
        """Remove what was read before this second; how many they were.

        What was added up of them stays as it is: readings that come even later are not.
        """
        before_us = round(before * _US)

        def write(connection: sa.Connection) -> int:
            old = READINGS.c.at_us < before_us
            count = int(connection.execute(sa.delete(READINGS).where(old)).rowcount)
            connection.execute(sa.delete(ARRIVALS).where(ARRIVALS.c.last_us < before_us))
            known = _progress(connection, READINGS_JOB)
            progress = {"job": READINGS_JOB, "position": -1, "anchor": -1}
            since = max(known.since, int(before))
            connection.execute(self._upsert_progress, [{**progress, "since": since}])
            return count

        return self._written(write)

    # -- series and points ---------------------------------------------------------------------

    def series(self) -> list[Series]:
        """Every metric with its labels, sorted; of readings and of roll-ups."""
        query = sa.select(SERIES.c.metric, SERIES.c.labels)
        with self._begun() as connection:
            names = sorted(connection.execute(query))
        return [Series(metric, labels, kind_of(metric)) for metric, labels in names]

    def points(
        self,
        metric: str,
        labels: Labels = None,
        since: float | None = None,
        until: float | None = None,
        points_max: int = POINTS_MAX,
    ) -> list[Points]:
        """From `since` to before `until`, by labels: readings, or the finest roll-ups that fit.

        Counters come as rates per second, gauges as means. The interval that `since` is in comes
        whole; so there may be a point more than `points_max`.
        """
        within = drawing.period(since, until)
        found = []
        with self._begun() as connection:
            for one in self._found(connection, metric, labels, within, points_max):
                drawn = drawing.points_of(connection, one, within, points_max)
                if drawn is not None:
                    found.append(drawn)
        return found

    def totals(
        self,
        metric: str,
        labels: Labels = None,
        since: float | None = None,
        until: float | None = None,
    ) -> list[Total]:
        """Each series over the whole period, in one figure; by whole hours where only those are."""
        within = drawing.period(since, until)
        found = []
        with self._begun() as connection:
            for one in self._found(connection, metric, labels, within, POINTS_MAX):
                whole = drawing.whole(connection, one, within)
                if whole is not None:
                    found.append(Total(metric, one.labels, *whole))
        return found

    def _found(
        self,
        connection: sa.Connection,
        metric: str,
        labels: Labels,
        within: drawing.Period,
        points_max: int,
    ) -> list[drawing.Found]:
        ids = [row.id for row in _series(connection, metric, labels)]
        return drawing.find(connection, ids, within, points_max)

    # -- roll-ups ------------------------------------------------------------------------------

    def put(
        self,
        rollups: Iterable[Rollup],
        job: str = "",
        progress: Progress | None = None,
        done: Sequence[int] = (),
    ) -> int:
        """Write all or nothing, over what was there; how many they were.

        `done` are the arrivals that these roll-ups take account of; they are gone afterwards.
        """

        def write(connection: sa.Connection) -> int:
            rows = self._put_rollups(connection, rollups)
            for begin in range(0, len(done), ROWS_PER_STATEMENT):
                gone = ARRIVALS.c.id.in_(done[begin : begin + ROWS_PER_STATEMENT])
                connection.execute(sa.delete(ARRIVALS).where(gone))
            if progress is not None:
                values = {"job": job, **msgspec.structs.asdict(progress)}
                connection.execute(self._upsert_progress, [values])
            return rows

        if isinstance(rollups, Sequence):
            return self._written(write)
        # What comes only once cannot be tried again.
        with self._begun(writes=True) as connection:
            return write(connection)

    def _put_rollups(self, connection: sa.Connection, rollups: Iterable[Rollup]) -> int:
        rows = 0
        waiting = iter(rollups)
        named: set[tuple[str, str]] = set()
        while batch := list(islice(waiting, ROWS_PER_STATEMENT)):
            rows += len(batch)
            new = {(one.metric, one.labels) for one in batch} - named
            self._name(connection, new)
            named |= new
            connection.exec_driver_sql(str(self._upsert_rollups), self._bound(batch))
        return rows

    def _bound(self, batch: Sequence[Rollup]) -> Any:
        """Roll-ups as the driver takes them: by place, or by name."""
        if not self._upsert_rollups.positional:
            return [msgspec.structs.asdict(one) for one in batch]
        return list(map(attrgetter(*self._upsert_rollups.positiontup), batch))

    def forget(self, resolution_s: int, before: int) -> int:
        """Remove roll-ups of intervals that began before this second; how many they were."""
        old = (ROLLUPS.c.resolution_s == resolution_s) & (ROLLUPS.c.start < before)
        with self._begun(writes=True) as connection:
            return int(connection.execute(sa.delete(ROLLUPS).where(old)).rowcount)

    def progress(self, job: str) -> Progress:
        """How far a job is; at the very beginning if it was never there."""
        with self._begun() as connection:
            return _progress(connection, job)

    def rollups(
        self,
        metric: str,
        resolution_s: int,
        *,
        labels: str | None = None,
        since: int | None = None,
        until: int | None = None,
    ) -> list[Rollup]:
        """Those that begin from `since` to before `until`, by labels and time."""
        table = ROLLUPS.c
        wanted = [table.metric == metric, table.resolution_s == resolution_s]
        if labels is not None:
            wanted.append(table.labels == labels)
        if since is not None:
            wanted.append(table.start >= since)
        if until is not None:
            wanted.append(table.start < until)
        query = sa.select(ROLLUPS).where(*wanted).order_by(table.start)
        with self._begun() as connection:
            found = [Rollup(**row) for row in connection.execute(query).mappings()]
        # Each engine has its own idea of how texts are sorted.
        return sorted(found, key=lambda one: one.labels)

    def rollups_between(self, resolution_s: int, since: int, until: int) -> list[Rollup]:
        """Of all series, those that begin from `since` to before `until`; in no order."""
        table = ROLLUPS.c
        query = sa.select(ROLLUPS).where(
            table.resolution_s == resolution_s, table.start >= since, table.start < until
        )
        with self._begun() as connection:
            return [Rollup(**row) for row in connection.execute(query).mappings()]

    # -- runs ----------------------------------------------------------------------------------

    def put_run(self, run: Run) -> None:
        """Write a run, or what is known of it by now."""
        if fault := fault_of_name(run.id, run.title) or fault_of_name(run.scenario or "-", ""):
            raise DatabaseError(f"run {run.id[:40]!r}: {fault}")
        values = {**msgspec.structs.asdict(run), "facts": msgspec.json.encode(run.facts).decode()}
        self._written(lambda connection: connection.execute(self._upsert_run, [values]) and None)

    def runs(self) -> list[Run]:
        """All there were, the newest first."""
        query = sa.select(RUNS).order_by(RUNS.c.began.desc(), RUNS.c.id)
        with self._begun() as connection:
            return [
                Run(**{**row, "facts": msgspec.json.decode(row["facts"])})
                for row in connection.execute(query).mappings()
            ]

    # -- transactions --------------------------------------------------------------------------

    @contextlib.contextmanager
    def begun(self) -> Iterator[sa.Connection]:
        """A transaction that only reads, for statements of `rove.metrics.arrivals`."""
        with self._begun() as connection:
            yield connection

    @contextlib.contextmanager
    def _begun(self, *, writes: bool = False) -> Iterator[sa.Connection]:
        """A transaction; errors of the database as one line for people."""
        try:
            with self._engine.execution_options(writes=writes).begin() as connection:
                yield connection
        except exc.SQLAlchemyError as error:
            why = str(getattr(error, "orig", None) or error).splitlines()[0]
            raise DatabaseError(f"the metrics database {self.name}: {why}") from error

    def _written(self, write: Callable[[sa.Connection], T]) -> T:
        """What a transaction gives, tried again if it had to give way to another."""
        for attempt in range(CONFLICTS_MAX):
            try:
                with self._begun(writes=True) as connection:
                    return write(connection)
            except DatabaseError as error:
                is_last = attempt == CONFLICTS_MAX - 1
                if is_last or not any(word in str(error).lower() for word in _CONFLICTS):
                    raise
                time.sleep(random.uniform(0.01, 0.05) * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    # -- names ---------------------------------------------------------------------------------

    def _numbered(self, names: set[tuple[str, str]]) -> dict[tuple[str, str], int]:
        """The numbers of series, which are made if they are new."""
        known = self._ids
        if not names <= known.keys():
            new = {name for name in names if name not in known}
            self._written(lambda connection: self._name(connection, new))
            with self._begun() as connection:
                found = dict(_numbers(connection, new))
            with self._ids_lock:
                self._ids = known = {**self._ids, **found}
        return known

    def _name(self, connection: sa.Connection, names: set[tuple[str, str]]) -> None:
        """See that these series are there."""
        missing = names - {name for name, _ in _numbers(connection, names)}
        if missing:
            values = [{"metric": metric, "labels": labels} for metric, labels in sorted(missing)]
            connection.execute(self._new_series, values)


def _numbers(
    connection: sa.Connection, names: Iterable[tuple[str, str]]
) -> Iterator[tuple[tuple[str, str], int]]:
    waiting = iter(sorted(names))
    key = sa.tuple_(SERIES.c.metric, SERIES.c.labels)
    while some := list(islice(waiting, NAMES_PER_QUERY)):
        for row in connection.execute(sa.select(SERIES).where(key.in_(some))):
            yield (row.metric, row.labels), row.id


def _series(connection: sa.Connection, metric: str, labels: Labels) -> list[Any]:
    query = sa.select(SERIES).where(SERIES.c.metric == metric)
    if isinstance(labels, str):
        query = query.where(SERIES.c.labels == labels)
    rows = connection.execute(query).all()
    if isinstance(labels, Mapping):
        return [row for row in rows if labels.items() <= labels_of(row.labels).items()]
    return list(rows)


def _progress(connection: sa.Connection, job: str) -> Progress:
    wanted = sa.select(PROGRESS).where(PROGRESS.c.job == job)
    row = connection.execute(wanted).mappings().first()
    if row is None:
        return Progress()
    return Progress(row["position"], row["anchor"], row["since"])


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    # First of all: to become a write-ahead log the file has to be free for a moment.
    for setting in (f"busy_timeout={_BUSY_MS}", "journal_mode=WAL", "synchronous=NORMAL"):
        cursor.execute(f"PRAGMA {setting}")
    cursor.close()
    # Python's own idea of when a transaction begins leaves out changes of the schema.
    connection.isolation_level = None


def _begin_sqlite(connection: sa.Connection) -> None:
    """Writers wait for each other at the beginning: later they would have to begin again."""
    writes = connection.get_execution_options()["writes"]
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _without_password(place: str) -> str:
    """For messages, of what could not be read as a URL."""
    scheme, found, rest = place.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if found else place
