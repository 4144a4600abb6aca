"""The metrics database: what was counted, added up by intervals, for whoever draws or judges it.

A file of SQLite unless told otherwise, so that there is nothing to install; PostgreSQL or MySQL
when a URL says so. One set of statements for all, through SQLAlchemy; only the upsert has a form
for each.

**Writing twice is writing once.** A roll-up is named by metric, labels, resolution and start, and
is written over whatever was there. How far a job has read is in the same transaction, so it never
says more or less than what is there.

**The schema has a version.** `MIGRATIONS` are run in order, each once; a database that is newer
than this program is refused rather than guessed at. Considered: a tool that derives migrations.
There are two tables, and what it would write has to be read anyway.

A roll-up is about 200 bytes; SQLite takes some 100,000 a second in batches. Readers go on while
one writes (write-ahead log).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.dialects import mysql, postgresql, sqlite

from rove.errors import RoveError

ROWS_PER_STATEMENT: Final = 1_000
METRIC_CHARACTERS_MAX: Final = 200
LABELS_CHARACTERS_MAX: Final = 500
"""Together they are a key of MySQL, which may have 768 characters."""
_BUSY_MS: Final = 30_000

_metadata: Final = sa.MetaData()
_version: Final = sa.Table("schema_version", _metadata, sa.Column("version", sa.Integer))
ROLLUPS: Final = sa.Table(
    "rollups",
    _metadata,
    sa.Column("metric", sa.String(METRIC_CHARACTERS_MAX), primary_key=True),
    sa.Column("labels", sa.String(LABELS_CHARACTERS_MAX), primary_key=True),
    sa.Column("resolution_s", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("start", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Column("sum", sa.Double, nullable=False),
    sa.Column("last", sa.Double, nullable=False),
    sa.Column("min", sa.Double, nullable=False),
    sa.Column("max", sa.Double, nullable=False),
    sa.Column("mean", sa.Double, nullable=False),
    sa.Column("increase", sa.Double),
    sa.Column("rate", sa.Double),
    sa.Index("rollups_by_time", "resolution_s", "start"),
)
PROGRESS: Final = sa.Table(
    "progress",
    _metadata,
    sa.Column("job", sa.String(METRIC_CHARACTERS_MAX), primary_key=True),
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("anchor", sa.BigInteger, nullable=False),
    sa.Column("since", sa.BigInteger, nullable=False),
)


class DatabaseError(RoveError):
    """The metrics database cannot be opened, read or written."""


class Rollup(msgspec.Struct, frozen=True):
    """What a series was in an interval."""

    metric: str
    labels: str
    """As Prometheus writes them, without the braces: `channel="broker",design="lees"`."""
    resolution_s: int
    start: int
    """Of the interval, in seconds since 1970 UTC."""
    count: int
    """How many readings there were; the next five are of these."""
    sum: float
    last: float
    min: float
    max: float
    mean: float
    increase: float | None = None
    """Of a counter: how much was counted, restarts of the broker allowed for; None if unknown."""
    rate: float | None = None
    """Of a counter: increase per second of the time in which it was watched."""


class Progress(msgspec.Struct, frozen=True):
    """How far a job has read, and what it needs to go on."""

    position: int = -1
    """Rows of the log up to here are in the database."""
    anchor: int = -1
    """Rows from here on have to be read again to go on."""
    since: int = 0
    """The newest interval of the longest kind that has anything in it, in seconds."""


def _tables(connection: sa.Connection) -> None:
    ROLLUPS.create(connection)
    PROGRESS.create(connection)


Migration = Any
"""A function that is given a connection."""
MIGRATIONS: Final[Sequence[Migration]] = (_tables,)
"""Each brings the schema one version further. Those that were released never change."""


class Database:
    """Roll-ups, and how far they are."""

    def __init__(self, place: str, migrations: Sequence[Migration] = MIGRATIONS) -> None:
        """Open it at a path or a URL, and bring its schema up to date."""
        url = place if "://" in place else f"sqlite:///{place}"
        try:
            self._engine = sa.create_engine(url)
        except (exc.NoSuchModuleError, ModuleNotFoundError) as error:
            raise DatabaseError(f"cannot use {_without_password(place)}: {error}") from error
        except exc.ArgumentError as error:
            raise DatabaseError(
                f"{_without_password(place)} is no database; give a file, or a URL such as "
                "postgresql+psycopg://user@host/name"
            ) from error
        self.name = self._engine.url.render_as_string(hide_password=True)
        if self._engine.dialect.name == "sqlite":
            sa.event.listen(self._engine, "connect", _set_up_sqlite)
            sa.event.listen(self._engine, "begin", _begin_sqlite)
        try:
            self._upsert_rollups = upsert(ROLLUPS, self._engine.dialect.name)
            self._upsert_progress = upsert(PROGRESS, self._engine.dialect.name)
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

    # -- writing -------------------------------------------------------------------------------

    def put(
        self, rollups: Iterable[Rollup], job: str = "", progress: Progress | None = None
    ) -> int:
        """Write all or nothing, over what was there; how many they were."""
        rows = 0
        waiting = iter(rollups)
        with self._begun(writes=True) as connection:
            while batch := list(islice(waiting, ROWS_PER_STATEMENT)):
                rows += len(batch)
                connection.execute(self._upsert_rollups, [msgspec.structs.asdict(r) for r in batch])
            if progress is not None:
                values = {"job": job, **msgspec.structs.asdict(progress)}
                connection.execute(self._upsert_progress, [values])
        return rows

    def forget(self, resolution_s: int, before: int) -> int:
        """Remove roll-ups of intervals that began before this second; how many they were."""
        old = (ROLLUPS.c.resolution_s == resolution_s) & (ROLLUPS.c.start < before)
        with self._begun(writes=True) as connection:
            return int(connection.execute(sa.delete(ROLLUPS).where(old)).rowcount)

    # -- reading -------------------------------------------------------------------------------

    def progress(self, job: str) -> Progress:
        """How far a job is; at the very beginning if it was never there."""
        wanted = sa.select(PROGRESS).where(PROGRESS.c.job == job)
        with self._begun() as connection:
            row = connection.execute(wanted).mappings().first()
        if row is None:
            return Progress()
        return Progress(row["position"], row["anchor"], row["since"])

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
        query = sa.select(ROLLUPS).where(*wanted).order_by(table.labels, table.start)
        with self._begun() as connection:
            return [Rollup(**row) for row in connection.execute(query).mappings()]

    def series(self) -> list[tuple[str, str]]:
        """Every metric with its labels, sorted."""
        table = ROLLUPS.c
        query = sa.select(table.metric, table.labels).distinct().order_by(*table[:2])
        with self._begun() as connection:
            return [(metric, labels) for metric, labels in connection.execute(query)]

    @contextlib.contextmanager
    def _begun(self, *, writes: bool = False) -> Iterator[sa.Connection]:
        """A transaction; errors of the database as one line for people."""
        try:
            with self._engine.execution_options(writes=writes).begin() as connection:
                yield connection
        except exc.SQLAlchemyError as error:
            why = str(getattr(error, "orig", None) or error).splitlines()[0]
            raise DatabaseError(f"the metrics database {self.name}: {why}") from error


def upsert(table: sa.Table, dialect: str) -> Any:
    """A statement that inserts rows, or overwrites those with the same key."""
    key = [column.name for column in table.primary_key]
    others = [column.name for column in table.c if column.name not in key]
    if dialect in ("mysql", "mariadb"):
        statement = mysql.insert(table)
        return statement.on_duplicate_key_update(
            {name: statement.inserted[name] for name in others}
        )
    if dialect not in ("sqlite", "postgresql"):
        raise DatabaseError(
            f"there is no way to write to a database of {dialect}; use SQLite, PostgreSQL or MySQL"
        )
    statement = (sqlite if dialect == "sqlite" else postgresql).insert(table)
    return statement.on_conflict_do_update(
        index_elements=key, set_={name: statement.excluded[name] for name in others}
    )


def migrate(connection: sa.Connection, migrations: Sequence[Migration], name: str) -> None:
    """Run the migrations that are missing; DatabaseError if the schema is newer than they are."""
    _version.create(connection, checkfirst=True)
    version = connection.execute(sa.select(sa.func.max(_version.c.version))).scalar() or 0
    if version > len(migrations):
        raise DatabaseError(
            f"the metrics database {name} has schema version {version}, and this program knows "
            f"{len(migrations)} at most; use a newer one"
        )
    for number, run in enumerate(migrations[version:], version + 1):
        run(connection)
        connection.execute(sa.insert(_version).values(version=number))


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    for setting in ("journal_mode=WAL", "synchronous=NORMAL", f"busy_timeout={_BUSY_MS}"):
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
