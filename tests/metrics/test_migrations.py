"""Schemas come up to date from any version, on each kind of database, and never go back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from rove.metrics.database import Database, DatabaseError, Reading, Rollup, Series, url_of
from rove.metrics.migrations import MIGRATIONS


def execute(place: str, *statements: str) -> list[tuple[object, ...]]:
    """Past our own code; the rows of the last statement."""
    engine = sa.create_engine(url_of(place), poolclass=sa.pool.NullPool)
    rows: list[tuple[object, ...]] = []
    with engine.begin() as connection:
        for statement in statements:
            result = connection.execute(sa.text(statement))
            rows = [tuple(row) for row in result] if result.returns_rows else []
    engine.dispose()
    return rows


OLD_ROLLUP = "INSERT INTO rollups VALUES ('m_total', 'a=\"x\"', 60, 120, 3, 6, 4, 1, 4, 2, 3, 0.1)"


def test_what_version_1_had_is_still_there(new_place: str) -> None:
    Database(new_place, MIGRATIONS[:1]).close()
    execute(new_place, OLD_ROLLUP, "INSERT INTO progress VALUES ('metrics', 7, 5, 3600)")
    with Database(new_place) as database:
        old = Rollup("m_total", 'a="x"', 60, 120, 3, 6, 4, 1, 4, 2, 3, 0.1)
        assert database.rollups("m_total", 60) == [old]
        assert database.series() == [Series("m_total", 'a="x"', "counter")]
        assert database.progress("metrics").position == 7
        (points,) = database.points("m_total")
        assert points.value == [pytest.approx(0.1)]  # before it said how long it was watched
        database.put_readings([Reading("n", "", 5.0, 1.0)])
    assert execute(new_place, "SELECT version FROM schema_version ORDER BY 1") == [(1,), (2,)]


def test_migrations_run_once_each_and_keep_what_is_there(new_place: str) -> None:
    def add_note(connection: sa.Connection) -> None:
        connection.execute(sa.text("ALTER TABLE rollups ADD COLUMN note VARCHAR(20)"))

    with Database(new_place) as database:
        database.put([Rollup("m", "", 10, 0, 1, 1, 1, 1, 1, 1)])
    for _ in range(2):
        Database(new_place, (*MIGRATIONS, add_note)).close()
    versions = execute(new_place, "SELECT version FROM schema_version ORDER BY 1")
    assert versions == [(number,) for number in range(1, len(MIGRATIONS) + 2)]
    assert execute(new_place, "SELECT metric, note FROM rollups") == [("m", None)]
    newest = len(MIGRATIONS) + 1
    with pytest.raises(DatabaseError, match=f"schema version {newest}, and this program supports"):
        Database(new_place)


def test_a_migration_that_fails_is_done_again(new_place: str) -> None:
    """MySQL keeps what was changed before the fault; the others nothing. Both go on from there."""

    def half(connection: sa.Connection) -> None:
        MIGRATIONS[1](connection)
        connection.execute(sa.text("CREATE nonsense"))

    with pytest.raises(DatabaseError, match="nonsense"):
        Database(new_place, (MIGRATIONS[0], half))
    if "mysql" not in new_place:
        engine = sa.create_engine(url_of(new_place), poolclass=sa.pool.NullPool)
        assert sa.inspect(engine).get_table_names() == []
        engine.dispose()
    with Database(new_place) as database:
        assert database.put_readings([Reading("m", "", 1.0, 1.0)]) == 1


def test_many_open_a_new_one_at_once(new_place: str) -> None:
    def work(number: int) -> int:
        with Database(new_place) as database:
            return database.put_readings([Reading("m", "", float(number), 1.0)])

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(work, range(6))) == [1] * 6
    assert execute(new_place, "SELECT version FROM schema_version ORDER BY 1") == [(1,), (2,)]
