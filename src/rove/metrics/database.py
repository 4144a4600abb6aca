"""The metrics database: readings, roll-ups and runs.

A SQLite file by default, so that nothing has to be installed; PostgreSQL, MySQL or MariaDB with a
URL. SQLAlchemy uses the same statements for all; only the upsert differs (`rove.metrics.schema`).

**Writes can be repeated.** The key of a reading is its series and microsecond, that of a roll-up
its series, resolution and start; a new row replaces the old one. The progress of a job is in the
same transaction as its results, so both always agree.

**Any thread** may use it: each call takes its own connection while it lasts. A call may raise
`DatabaseError`, and waits as long as the database does. Code that must not wait uses a
`rove.metrics.recorder`.

SQLite takes some 150,000 readings a second in batches, of 30 bytes each with their indexes; a
roll-up has about 200 bytes. Reads continue during a write (write-ahead log).
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

from rove.metrics import points as charts
from rove.metrics.migrations import MIGRATIONS, Migration, migrate
from rove.metrics.points import POINTS_MAX
from rove.metrics.records import (
    JobProgress,
    Points,
    Reading,
    Rollup,
    RunRecord,
    Series,
    Total,
    fault_of,
    fault_of_name,
    kind_of,
    labels_of,
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
    "Database", "DatabaseError", "JobProgress", "Points", "Reading", "Rollup", "RunRecord",
    "Series", "Total", "url_of",
]  # fmt: skip

ROWS_PER_STATEMENT: Final = 1_000
NAMES_PER_QUERY: Final = 200
CONNECT_S_MAX: Final = 10
ANSWER_S_MAX: Final = 60
"""How long a server may take to answer."""
CONFLICTS_MAX: Final = 5
"""How often a transaction that conflicts with another is tried."""
READINGS_JOB: Final = "readings"
"""The job whose progress has the moment before which readings were removed."""
_BUSY_MS: Final = 30_000
_US: Final = 1_000_000
_CONFLICTS: Final = ("deadlock", "could not serialize", "lock wait timeout")
_DRIVERS: Final = {
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
"""The drivers for URLs that name none: those that `rove[databases]` installs."""
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
        # Otherwise a transaction would not read the series that another one has just added.
        "isolation_level": "READ COMMITTED",
    },
}  # fmt: skip
"""Options for each kind of server besides its URL."""

Labels = str | Mapping[str, str] | None
"""A string: exactly these; a mapping: all series that have these; None: all series."""
T = TypeVar("T")


def url_of(place: str) -> sa.URL:
    """The URL of a database, given as a path or a URL; it is not connected to.

    DatabaseError if it is neither, or the driver is not installed.
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
            "installs drivers for PostgreSQL and MySQL"
        ) from error
    except exc.ArgumentError as error:
        raise DatabaseError(
            f"{_without_password(place)} is not a database; give a file, or a URL such as "
            "postgresql+psycopg://user@host/name"
        ) from error
    return url


class Database:
    """Readings, roll-ups, runs, and the progress of jobs."""

    def __init__(self, place: str, migrations: Sequence[Migration] = MIGRATIONS) -> None:
        """Open it at a path or a URL, and bring its schema up to date."""
        url = url_of(place)
        kind = "mysql" if url.get_backend_name() == "mariadb" else url.get_backend_name()
        is_server = kind in _SERVERS
        if is_server:
            # A lost connection raises an error that says the same as their log lines.
            for library in ("psycopg", "sqlalchemy.pool"):
                logging.getLogger(library).setLevel(logging.CRITICAL)
        self._engine = sa.create_engine(url, pool_pre_ping=is_server, **_SERVERS.get(kind, {}))
        self.name = url.render_as_string(hide_password=True)
        dialect = self._engine.dialect.name
        if dialect == "sqlite":
            sa.event.listen(self._engine, "connect", _set_up_sqlite)
            sa.event.listen(self._engine, "begin", _begin_sqlite)
        self._ids: dict[tuple[str, str], int] = {}
        """Known numbers of series; never changed in place."""
        self._ids_lock = threading.Lock()
        try:
            self._upsert_rollups = upsert(ROLLUPS, dialect).compile(dialect=self._engine.dialect)
            """Compiled once: binding 100,000 rows one by one takes as long as writing them."""
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
        """Write all readings or none, replacing older ones; returns their number."""
        if not readings:
            return 0
        if fault := next((fault for one in readings if (fault := fault_of(one))), None):
            raise DatabaseError(fault)
        ids = self._numbered({(one.metric, one.labels) for one in readings})
        rows = {(ids[one.metric, one.labels], round(one.at * _US)): one.value for one in readings}
        # In one order, so that two writers do not lock each other out.
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
            # Perhaps a backup was restored, and the numbers of series are no longer valid.
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
        """Raw readings from `since` to before `until`, by labels and time."""
        within = charts.period(since, until)
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
        """Remove the readings before this second; returns their number.

        Their roll-ups stay. Readings from before that arrive later are not rolled up any more.
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
        """Every series that has readings or roll-ups, sorted."""
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

        Counters are given as rates per second, gauges as means. The interval of `since` is given
        whole, so there may be one point more than `points_max`.
        """
        within = charts.period(since, until)
        found = []
        with self._begun() as connection:
            for one in self._found(connection, metric, labels, within, points_max):
                points = charts.points_of(connection, one, within, points_max)
                if points is not None:
                    found.append(points)
        return found

    def totals(
        self,
        metric: str,
        labels: Labels = None,
        since: float | None = None,
        until: float | None = None,
    ) -> list[Total]:
        """Each series over the period as one figure; of whole hours if only those are left."""
        within = charts.period(since, until)
        found = []
        with self._begun() as connection:
            for one in self._found(connection, metric, labels, within, POINTS_MAX):
                whole = charts.whole(connection, one, within)
                if whole is not None:
                    found.append(Total(metric, one.labels, *whole))
        return found

    def _found(
        self,
        connection: sa.Connection,
        metric: str,
        labels: Labels,
        within: charts.Period,
        points_max: int,
    ) -> list[charts.SeriesData]:
        ids = [row.id for row in _series(connection, metric, labels)]
        return charts.find(connection, ids, within, points_max)

    # -- roll-ups ------------------------------------------------------------------------------

    def put(
        self,
        rollups: Iterable[Rollup],
        job: str = "",
        progress: JobProgress | None = None,
        done: Sequence[int] = (),
    ) -> int:
        """Write all roll-ups or none, replacing older ones; returns their number.

        The same transaction writes the progress of a job, and removes the arrivals in `done`, whose
        readings are in these roll-ups.
        """
        every = list(rollups)

        def write(connection: sa.Connection) -> int:
            self._put_rollups(connection, every)
            for begin in range(0, len(done), ROWS_PER_STATEMENT):
                gone = ARRIVALS.c.id.in_(done[begin : begin + ROWS_PER_STATEMENT])
                connection.execute(sa.delete(ARRIVALS).where(gone))
            if progress is not None:
                values = {"job": job, **msgspec.structs.asdict(progress)}
                connection.execute(self._upsert_progress, [values])
            return len(every)

        return self._written(write)

    def _put_rollups(self, connection: sa.Connection, rollups: Sequence[Rollup]) -> None:
        self._add_series(connection, {(one.metric, one.labels) for one in rollups})
        for begin in range(0, len(rollups), ROWS_PER_STATEMENT):
            batch = rollups[begin : begin + ROWS_PER_STATEMENT]
            connection.exec_driver_sql(str(self._upsert_rollups), self._bound(batch))

    def _bound(self, batch: Sequence[Rollup]) -> Any:
        """Roll-ups as the parameters of the driver: by place, or by name."""
        if not self._upsert_rollups.positional:
            return [msgspec.structs.asdict(one) for one in batch]
        return list(map(attrgetter(*self._upsert_rollups.positiontup), batch))

    def forget(self, resolution_s: int, before: int) -> int:
        """Remove roll-ups of intervals that began before this second; returns their number."""
        old = (ROLLUPS.c.resolution_s == resolution_s) & (ROLLUPS.c.start < before)
        with self._begun(writes=True) as connection:
            return int(connection.execute(sa.delete(ROLLUPS).where(old)).rowcount)

    def progress(self, job: str) -> JobProgress:
        """The progress of a job; that of a new job if it has never run."""
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
        """The roll-ups that begin from `since` to before `until`, by labels and time."""
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
        # Each engine sorts strings in its own way.
        return sorted(found, key=lambda one: one.labels)

    def rollups_between(self, resolution_s: int, since: int, until: int) -> list[Rollup]:
        """The roll-ups of all series that begin from `since` to before `until`, in no order."""
        table = ROLLUPS.c
        query = sa.select(ROLLUPS).where(
            table.resolution_s == resolution_s, table.start >= since, table.start < until
        )
        with self._begun() as connection:
            return [Rollup(**row) for row in connection.execute(query).mappings()]

    # -- runs ----------------------------------------------------------------------------------

    def put_run(self, run: RunRecord) -> None:
        """Write or replace the record of a run."""
        if fault := fault_of_name(run.id, run.title) or fault_of_name(run.scenario or "-", ""):
            raise DatabaseError(f"run {run.id[:40]!r}: {fault}")
        values = {**msgspec.structs.asdict(run), "facts": msgspec.json.encode(run.facts).decode()}
        self._written(lambda connection: connection.execute(self._upsert_run, [values]) and None)

    def runs(self) -> list[RunRecord]:
        """All runs, the newest first."""
        query = sa.select(RUNS).order_by(RUNS.c.began.desc(), RUNS.c.id)
        with self._begun() as connection:
            return [
                RunRecord(**{**row, "facts": msgspec.json.decode(row["facts"])})
                for row in connection.execute(query).mappings()
            ]

    # -- transactions --------------------------------------------------------------------------

    @contextlib.contextmanager
    def begun(self) -> Iterator[sa.Connection]:
        """A transaction that only reads, for the statements of `rove.metrics.rollup_job`."""
        with self._begun() as connection:
            yield connection

    @contextlib.contextmanager
    def _begun(self, *, writes: bool = False) -> Iterator[sa.Connection]:
        """A transaction; errors of the database become a `DatabaseError` of one line."""
        try:
            with self._engine.execution_options(writes=writes).begin() as connection:
                yield connection
        except exc.SQLAlchemyError as error:
            why = str(getattr(error, "orig", None) or error).splitlines()[0]
            raise DatabaseError(f"the metrics database {self.name}: {why}") from error

    def _written(self, write: Callable[[sa.Connection], T]) -> T:
        """The result of a transaction, which is tried again if it conflicts with another."""
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
        """The numbers of series; new series are added."""
        known = self._ids
        if not names <= known.keys():
            new = {name for name in names if name not in known}
            self._written(lambda connection: self._add_series(connection, new))
            with self._begun() as connection:
                found = dict(_numbers(connection, new))
            with self._ids_lock:
                self._ids = known = {**self._ids, **found}
        return known

    def _add_series(self, connection: sa.Connection, names: set[tuple[str, str]]) -> None:
        """Add the series that are not in the database yet."""
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


def _progress(connection: sa.Connection, job: str) -> JobProgress:
    wanted = sa.select(PROGRESS).where(PROGRESS.c.job == job)
    row = connection.execute(wanted).mappings().first()
    if row is None:
        return JobProgress()
    return JobProgress(row["position"], row["anchor"], row["since"])


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    # The timeout comes first: to switch to a write-ahead log, the file must be free for a moment.
    for setting in (f"busy_timeout={_BUSY_MS}", "journal_mode=WAL", "synchronous=NORMAL"):
        cursor.execute(f"PRAGMA {setting}")
    cursor.close()
    # Python's own transactions do not include changes of the schema.
    connection.isolation_level = None


def _begin_sqlite(connection: sa.Connection) -> None:
    """Writers wait for each other at the beginning; if they did so later, they would fail."""
    writes = connection.get_execution_options()["writes"]
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _without_password(place: str) -> str:
    """A place for messages, if it could not be parsed as a URL."""
    scheme, found, rest = place.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if found else place
