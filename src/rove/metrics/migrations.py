"""How the metrics database came to have its schema, step by step.

Each step brings the schema one version further, is run once, and never changes after it was
released: so a step has the tables as they were then, not as `rove.metrics.schema` has them now. A
database that is newer than this program is refused rather than guessed at. Considered: a tool that
derives steps from the tables. What it writes has to be read anyway, and there are few.

Many may open a new database at once: each waits for its turn. SQLite and PostgreSQL take a step
back that fails; MySQL ends a transaction with every change of a table, so there each part of a
step looks first whether it was done.
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
    """Version 1: roll-ups, and how far the job is that makes them."""
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
    """Version 2: raw readings, series, runs; roll-ups know how long a counter was watched."""
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
"""Each brings the schema one version further. Those that were released never change."""


def migrate(connection: sa.Connection, migrations: Sequence[Migration], name: str) -> None:
    """Run the migrations that are missing; DatabaseError if the schema is newer than they are."""
    with _alone(connection):
        _VERSION.create(connection, checkfirst=True)
        version = connection.execute(sa.select(sa.func.max(_VERSION.c.version))).scalar() or 0
        if version > len(migrations):
            raise DatabaseError(
                f"the metrics database {name} has schema version {version}, and this program "
                f"knows {len(migrations)} at most; use a newer one"
            )
        for new_version, run in enumerate(migrations[version:], version + 1):
            run(connection)
            connection.execute(sa.insert(_VERSION).values(version=new_version))


@contextmanager
def _alone(connection: sa.Connection) -> Iterator[None]:
    """Wait until nobody else is at it. SQLite's transactions see to it themselves."""
    dialect = connection.dialect.name
    if dialect == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK_NUMBER)))
        yield
    elif dialect in ("mysql", "mariadb"):
        # Of the server, not of the database: the name says which.
        lock: Any = sa.func.concat(_LOCK, ".", sa.func.database())
        if connection.execute(sa.select(sa.func.get_lock(lock, _LOCK_S_MAX))).scalar() != 1:
            raise DatabaseError(f"somebody changes the schema for more than {_LOCK_S_MAX} s")
        try:
            yield
            # Whoever comes next must see what was done, and sees only what is committed.
            connection.exec_driver_sql("COMMIT")
        finally:
            connection.execute(sa.select(sa.func.release_lock(lock)))
    else:
        yield
