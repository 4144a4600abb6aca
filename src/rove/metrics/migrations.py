"""The migrations of the metrics database's schema.

A migration brings the schema to the next version. It is run once, and never changes after its
release: so it has the tables as they were then, not the current ones of `rove.metrics.schema`. A
database with a newer schema than this program is refused. Considered: a tool that derives
migrations from the tables. Its output has to be read anyway, and there are few.

Several processes may open a new database at the same time; they migrate one after the other.
SQLite and PostgreSQL undo a migration that fails. MySQL ends the transaction at every change of a
table, so there each part of a migration first checks whether it was done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import sqlalchemy as sa

from rove.metrics.schema import COLLATION, DatabaseError, long_text, number, text

_LOCK: Final = "rove.metrics"
_LOCK_NUMBER: Final = 0x726F7665
_LOCK_S_MAX: Final = 60

_VERSION: Final = sa.Table("schema_version", sa.MetaData(), sa.Column("version", sa.Integer))


def _roll_ups(connection: sa.Connection) -> None:
    """Version 1: roll-ups, and the progress of the job that makes them."""
    metadata = sa.MetaData()
    sa.Table(
        "rollups",
        metadata,
        sa.Column("metric", sa.String(200), primary_key=True),
        sa.Column("labels", sa.String(500), primary_key=True),
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
    sa.Table(
        "progress",
        metadata,
        sa.Column("job", sa.String(200), primary_key=True),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("anchor", sa.BigInteger, nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False),
    )
    metadata.create_all(connection)


def _readings(connection: sa.Connection) -> None:
    """Version 2: raw readings, series, runs; and how long a counter was watched, in roll-ups."""
    metadata = sa.MetaData()
    series = sa.Table(
        "series",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("metric", text(200), nullable=False),
        sa.Column("labels", text(500), nullable=False),
        sa.UniqueConstraint("metric", "labels", name="series_by_name"),
    )
    sa.Table(
        "readings",
        metadata,
        sa.Column("series", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("at_us", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("value", sa.Double, nullable=False),
        sa.Index("readings_by_time", "at_us"),
        sqlite_with_rowid=False,
    )
    sa.Table(
        "arrivals",
        metadata,
        sa.Column("id", number(), primary_key=True),
        sa.Column("first_us", sa.BigInteger, nullable=False),
        sa.Column("last_us", sa.BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )
    sa.Table(
        "runs",
        metadata,
        sa.Column("id", text(200), primary_key=True),
        sa.Column("scenario", text(200), nullable=False),
        sa.Column("title", text(500), nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("began", sa.Double, nullable=False),
        sa.Column("ended", sa.Double),
        sa.Column("facts", long_text(), nullable=False),
    )
    metadata.create_all(connection)
    _widen_roll_ups(connection)
    rollups = sa.table("rollups", sa.column("metric"), sa.column("labels"))
    named = sa.select(rollups.c.metric, rollups.c.labels).distinct().subquery()
    known = (series.c.metric == named.c.metric) & (series.c.labels == named.c.labels)
    new = sa.select(named).where(~sa.exists().where(known))
    connection.execute(sa.insert(series).from_select(["metric", "labels"], new))


def _widen_roll_ups(connection: sa.Connection) -> None:
    columns = {column["name"] for column in sa.inspect(connection).get_columns("rollups")}
    if "watched_s" not in columns:
        kind = sa.Double().compile(dialect=connection.dialect)
        connection.execute(sa.text(f"ALTER TABLE rollups ADD COLUMN watched_s {kind}"))
    if connection.dialect.name in ("mysql", "mariadb"):
        exact = f"CHARACTER SET utf8mb4 COLLATE {COLLATION} NOT NULL"
        connection.execute(
            sa.text(
                f"ALTER TABLE rollups MODIFY metric VARCHAR(200) {exact}, "
                f"MODIFY labels VARCHAR(500) {exact}"
            )
        )


Migration = Callable[[sa.Connection], None]
MIGRATIONS: Final[Sequence[Migration]] = (_roll_ups, _readings)
"""In the order of versions. Those that were released never change."""


def migrate(connection: sa.Connection, migrations: Sequence[Migration], name: str) -> None:
    """Run the missing migrations; DatabaseError if the schema is newer than all of them."""
    with _alone(connection):
        _VERSION.create(connection, checkfirst=True)
        version = connection.execute(sa.select(sa.func.max(_VERSION.c.version))).scalar() or 0
        if version > len(migrations):
            raise DatabaseError(
                f"the metrics database {name} has schema version {version}, and this program "
                f"supports up to version {len(migrations)}; use a newer Rove"
            )
        for new_version, run in enumerate(migrations[version:], version + 1):
            run(connection)
            connection.execute(sa.insert(_VERSION).values(version=new_version))


@contextmanager
def _alone(connection: sa.Connection) -> Iterator[None]:
    """Wait until no other process migrates. SQLite's transactions ensure it by themselves."""
    dialect = connection.dialect.name
    if dialect == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK_NUMBER)))
        yield
    elif dialect in ("mysql", "mariadb"):
        # The lock is one of the server, so its name contains the database.
        lock: Any = sa.func.concat(_LOCK, ".", sa.func.database())
        if connection.execute(sa.select(sa.func.get_lock(lock, _LOCK_S_MAX))).scalar() != 1:
            raise DatabaseError(
                f"another process has been migrating the schema for more than {_LOCK_S_MAX} s"
            )
        try:
            yield
            # Committed before the lock is released: the next process must find the changes.
            connection.exec_driver_sql("COMMIT")
        finally:
            connection.execute(sa.select(sa.func.release_lock(lock)))
    else:
        yield
