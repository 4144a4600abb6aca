"""The metrics database: written twice is written once, versions, and each engine's own SQL."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from rove.pipeline.database import (
    MIGRATIONS,
    PROGRESS,
    ROLLUPS,
    ROWS_PER_STATEMENT,
    Database,
    DatabaseError,
    Progress,
    Rollup,
    upsert,
)


def rollup(start: int, metric: str = "m", labels: str = "", value: float = 1.0) -> Rollup:
    return Rollup(metric, labels, 10, start, 1, value, value, value, value, value)


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "metrics.db")


def test_what_is_put_is_read_back(place: str) -> None:
    full = Rollup("m_total", 'channel="ü"', 60, 120, 3, 6.5, 3.0, -1.0, 4.5, 6.5 / 3, 2.25, 0.1)
    with Database(place) as database:
        assert database.put([full, rollup(0), rollup(10)]) == 3
        assert database.rollups("m_total", 60) == [full]
        assert database.rollups("m", 10) == [rollup(0), rollup(10)]
        assert database.rollups("m", 10, since=10, until=20) == [rollup(10)]
        assert database.rollups("m", 10, until=10) == [rollup(0)]
        assert database.rollups("m", 10, labels="other") == []
        assert database.series() == [("m", ""), ("m_total", 'channel="ü"')]
    with Database(place) as again:
        assert again.rollups("m_total", 60) == [full]


def test_writing_twice_is_writing_once_and_the_later_counts(place: str) -> None:
    drawn = random.Random(5)
    expected: dict[tuple[str, str, int, int], Rollup] = {}
    with Database(place) as database:
        for _ in range(5):
            batch = [
                rollup(10 * drawn.randrange(300), drawn.choice("ab"), drawn.choice("xy"), value)
                for value in range(2 * ROWS_PER_STATEMENT + 7)
            ]
            expected |= {(r.metric, r.labels, r.resolution_s, r.start): r for r in batch}
            assert database.put(iter(batch)) == len(batch)
            database.put(batch)
        found = database.rollups("a", 10) + database.rollups("b", 10)
    assert found == [expected[key] for key in sorted(expected)]


def test_progress_and_rows_are_written_together_or_not_at_all(place: str) -> None:
    def rows() -> list[Rollup]:
        return [rollup(0, value=7.0), msgspec.structs.replace(rollup(10), count=None)]

    with Database(place) as database:
        assert database.progress("metrics") == Progress()
        database.put([rollup(0)], "metrics", Progress(5, 3, 3_600))
        with pytest.raises(DatabaseError, match=r"metrics\.db: NOT NULL constraint failed"):
            database.put(rows(), "metrics", Progress(9, 8, 7_200))
        assert database.progress("metrics") == Progress(5, 3, 3_600)
        assert database.rollups("m", 10) == [rollup(0)]
        assert database.progress("other") == Progress()


def test_what_is_old_is_forgotten_by_resolution(place: str) -> None:
    with Database(place) as database:
        database.put([rollup(start) for start in range(0, 100, 10)])
        assert database.forget(60, 1_000) == 0
        assert database.forget(10, 50) == 5
        assert [one.start for one in database.rollups("m", 10)] == [50, 60, 70, 80, 90]


def test_readers_go_on_while_one_writes(place: str) -> None:
    seen: list[Rollup] = []

    def rows() -> Iterator[Rollup]:
        yield from map(rollup, range(1, ROWS_PER_STATEMENT + 1))
        seen.extend(other.rollups("m", 10))  # a statement was executed and not committed
        yield rollup(-1)

    with Database(place) as database, Database(place) as other:
        database.put([rollup(0)])
        database.put(rows())
        assert seen == [rollup(0)]
        assert len(other.rollups("m", 10)) == ROWS_PER_STATEMENT + 2


def test_many_may_open_a_new_one_and_write_at_once(place: str) -> None:
    def work(number: int) -> int:
        with Database(place) as database:
            return database.put([rollup(start, metric=f"m{number}") for start in range(50)])

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(work, range(8))) == [50] * 8
    with Database(place) as database:
        assert len(database.series()) == 8


def test_migrations_run_once_each_and_keep_what_is_there(place: str) -> None:
    def add_note(connection: sa.Connection) -> None:
        connection.execute(sa.text("ALTER TABLE rollups ADD COLUMN note VARCHAR(20)"))

    with Database(place) as database:
        database.put([rollup(0)])
    for _ in range(2):
        Database(place, (*MIGRATIONS, add_note)).close()
    with sqlite3.connect(place) as raw:
        assert raw.execute("SELECT version FROM schema_version ORDER BY 1").fetchall() == [
            (1,),
            (2,),
        ]
        assert raw.execute("SELECT metric, note FROM rollups").fetchall() == [("m", None)]
    raw.close()
    with pytest.raises(DatabaseError, match="schema version 2, and this program knows 1 at most"):
        Database(place)


def test_a_migration_that_fails_leaves_nothing(place: str) -> None:
    def half(connection: sa.Connection) -> None:
        connection.execute(sa.text("CREATE TABLE half (x INTEGER)"))
        connection.execute(sa.text("CREATE nonsense"))

    with pytest.raises(DatabaseError, match="nonsense"):
        Database(place, (*MIGRATIONS, half))
    with sqlite3.connect(place) as raw:
        assert raw.execute("SELECT name FROM sqlite_master").fetchall() == []
    raw.close()
    Database(place).close()


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("nonsense://me:secret@there/x", "cannot use nonsense://there/x"),
        ("://", "is no database; give a file, or a URL"),
        ("/nowhere/at/all/metrics.db", "unable to open database file"),
    ],
)
def test_what_cannot_be_opened_is_told_in_a_line(place: str, said: str) -> None:
    with pytest.raises(DatabaseError) as told:
        Database(place)
    assert said in str(told.value)
    assert "\n" not in str(told.value)
    assert "secret" not in str(told.value)


def test_servers_get_their_own_upsert() -> None:
    def sql(table: sa.Table, dialect: str, module: object) -> str:
        return " ".join(str(upsert(table, dialect).compile(dialect=module)).split())

    on_postgresql = sql(ROLLUPS, "postgresql", postgresql.dialect())
    assert "ON CONFLICT (metric, labels, resolution_s, start) DO UPDATE SET" in on_postgresql
    assert "rate = excluded.rate" in on_postgresql
    on_mysql = sql(PROGRESS, "mysql", mysql.dialect())
    assert "ON DUPLICATE KEY UPDATE" in on_mysql
    assert "position = VALUES(position)" in on_mysql.replace("`", "")
    assert "job = VALUES" not in on_mysql.replace("`", "")
    with pytest.raises(DatabaseError, match="use SQLite, PostgreSQL or MySQL"):
        upsert(ROLLUPS, "oracle")


@pytest.mark.parametrize("dialect", [mysql.dialect(), postgresql.dialect()])
def test_the_tables_can_be_made_on_servers(dialect: object) -> None:
    text = str(sa.schema.CreateTable(ROLLUPS).compile(dialect=dialect))
    assert "PRIMARY KEY (metric, labels, resolution_s, start)" in text.replace("`", "")
    assert "SERIAL" not in text
    assert "AUTO_INCREMENT" not in text
