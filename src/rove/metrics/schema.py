"""The current tables of the metrics database, and how each engine replaces a row.

A series has a number, and a reading is that number, a moment and a value: 30 bytes in SQLite with
both of its orders (by series, which is the table itself, and by time). Roll-ups, of which there are
far fewer, have the names in full, so that a query by hand needs no join.

`arrivals` has the range of moments of each batch of readings. The roll-up job takes the arrivals
that it finds, computes their intervals again, and removes just these arrivals together with its
results, in one transaction. Considered: "everything above the last number". But numbers are given
in another order than transactions end, so one that ends late would be skipped; and readings that
had to wait for the database are late by design.

Strings are compared byte by byte everywhere; MySQL's default would take `a` for `A`.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from rove.errors import RoveError
from rove.metrics.records import LABELS_CHARACTERS_MAX, METRIC_CHARACTERS_MAX

COLLATION: Final = "utf8mb4_bin"
TITLE_CHARACTERS_MAX: Final = 500


class DatabaseError(RoveError):
    """The metrics database cannot be opened, read or written."""


def text(length: int) -> Any:
    """A string of limited length, compared byte by byte."""
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation=COLLATION)
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def long_text() -> Any:
    """A string of any length."""
    exact = mysql.LONGTEXT(charset="utf8mb4", collation=COLLATION)
    return sa.Text().with_variant(exact, "mysql", "mariadb")


def number() -> Any:
    """The type of an autoincrementing integer; SQLite has only one."""
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


_metadata: Final = sa.MetaData()
SERIES: Final = sa.Table(
    "series",
    _metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("metric", text(METRIC_CHARACTERS_MAX), nullable=False),
    sa.Column("labels", text(LABELS_CHARACTERS_MAX), nullable=False),
    sa.UniqueConstraint("metric", "labels", name="series_by_name"),
)
READINGS: Final = sa.Table(
    "readings",
    _metadata,
    sa.Column("series", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("at_us", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("value", sa.Double, nullable=False),
    sa.Index("readings_by_time", "at_us"),
    sqlite_with_rowid=False,
)
ARRIVALS: Final = sa.Table(
    "arrivals",
    _metadata,
    sa.Column("id", number(), primary_key=True),
    sa.Column("first_us", sa.BigInteger, nullable=False),
    sa.Column("last_us", sa.BigInteger, nullable=False),
    sqlite_autoincrement=True,
)
RUNS: Final = sa.Table(
    "runs",
    _metadata,
    sa.Column("id", text(METRIC_CHARACTERS_MAX), primary_key=True),
    sa.Column("scenario", text(METRIC_CHARACTERS_MAX), nullable=False),
    sa.Column("title", text(TITLE_CHARACTERS_MAX), nullable=False),
    sa.Column("seed", sa.BigInteger, nullable=False),
    sa.Column("began", sa.Double, nullable=False),
    sa.Column("ended", sa.Double),
    sa.Column("facts", long_text(), nullable=False),
)
ROLLUPS: Final = sa.Table(
    "rollups",
    _metadata,
    sa.Column("metric", text(METRIC_CHARACTERS_MAX), primary_key=True),
    sa.Column("labels", text(LABELS_CHARACTERS_MAX), primary_key=True),
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
    sa.Column("watched_s", sa.Double),
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


def upsert(table: sa.Table, dialect: str) -> Any:
    """A statement that inserts rows, and replaces those with the same key."""
    key = [column.name for column in table.primary_key]
    others = [column.name for column in table.c if column.name not in key]
    if _is_mysql(dialect):
        statement = mysql.insert(table)
        return statement.on_duplicate_key_update(
            {name: statement.inserted[name] for name in others}
        )
    statement = _insert(table, dialect)
    return statement.on_conflict_do_update(
        index_elements=key, set_={name: statement.excluded[name] for name in others}
    )


def insert_new(table: sa.Table, dialect: str) -> Any:
    """A statement that inserts rows whose keys are new."""
    if _is_mysql(dialect):
        return mysql.insert(table).prefix_with("IGNORE")
    return _insert(table, dialect).on_conflict_do_nothing()


def _is_mysql(dialect: str) -> bool:
    return dialect in ("mysql", "mariadb")


def _insert(table: sa.Table, dialect: str) -> Any:
    if dialect not in ("sqlite", "postgresql"):
        raise DatabaseError(
            f"databases of {dialect} are not supported; use SQLite, PostgreSQL or MySQL"
        )
    return (sqlite if dialect == "sqlite" else postgresql).insert(table)
