"""The metrics database, of each kind: written twice is written once, and all of it at once."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from rove.metrics.database import (
    ROWS_PER_STATEMENT,
    Database,
    DatabaseError,
    JobProgress,
    Reading,
    Rollup,
    RunRecord,
    Series,
    url_of,
)
from rove.metrics.rollup_job import pending
from tests.metrics.conftest import DatabaseServer

NOW = 1_790_000_000.0


def rollup(start: int, metric: str = "m", labels: str = "", value: float = 1.0) -> Rollup:
    return Rollup(metric, labels, 10, start, 1, value, value, value, value, value)


def reading(at: float, value: float = 1.0, labels: str = "", metric: str = "m") -> Reading:
    return Reading(metric, labels, NOW + at, value)


# --- readings -----------------------------------------------------------------------------------


def test_readings_come_back_as_they_went_in(place: str) -> None:
    drawn = random.Random(1)
    values = [drawn.uniform(-1, 1) * 10.0 ** drawn.randint(-300, 300) for _ in range(200)]
    values += [0.0, -0.0, 0.1 + 0.2, 1e-320, 2.0**53 + 1, 1.7976931348623157e308]
    put = [reading(number + 0.123457, value) for number, value in enumerate(values)]
    with Database(place) as database:
        assert database.put_readings(drawn.sample(put, len(put))) == len(put)
        assert database.readings("m") == put
        assert database.readings("m", since=NOW + 1, until=NOW + 2) == put[1:2]
        assert database.put_readings([]) == 0


def test_labels_that_differ_in_little_are_different_series(place: str) -> None:
    labels = ['a="x"', 'a="X"', 'a="x "', 'a="é"', 'a="e"', 'a="\U0001f6b2"', 'a="\\""', ""]
    put = [reading(1, number, text) for number, text in enumerate(labels)]
    with Database(place) as database:
        database.put_readings(put)
        database.put([rollup(10, labels=text, value=float(n)) for n, text in enumerate(labels)])
        assert database.readings("m") == sorted(put, key=lambda one: one.labels)
        assert [one.labels for one in database.rollups("m", 10)] == sorted(labels)
        assert database.series() == [Series("m", text, "gauge") for text in sorted(labels)]
        for one in put:
            assert database.readings("m", one.labels) == [one]
        assert database.readings("M") == []


def test_a_reading_that_comes_again_counts_once_and_the_later_one_is_kept(place: str) -> None:
    with Database(place) as database:
        for value in (1.0, 2.0):
            database.put_readings([reading(0.0000001, 9.0), reading(0, value), reading(1, value)])
        assert database.readings("m") == [reading(0, 2.0), reading(1, 2.0)]


def test_many_write_at_once_into_a_new_one(new_place: str) -> None:
    def work(number: int) -> int:
        with Database(new_place) as database:
            for begin in range(0, 100, 20):
                database.put_readings(
                    [
                        reading(at, at, f'w="{series}"')
                        for at in range(begin, begin + 20)
                        for series in ("all", number)
                    ]
                )
            return database.put([rollup(start, f"m{number}") for start in range(50)])

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(work, range(8))) == [50] * 8
    with Database(new_place) as database:
        assert len(database.series()) == 8 + 9
        assert len(database.readings("m")) == 100 * 9
        assert len(pending(database).arrivals) == 8 * 5


def test_threads_share_one(place: str) -> None:
    with Database(place) as database, ThreadPoolExecutor(4) as threads:

        def work(number: int) -> int:
            database.put_readings([reading(number, labels=f'n="{number % 7}"')])
            return len(database.points("m"))

        assert all(threads.map(work, range(40)))
        assert len(database.readings("m")) == 40


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (Reading("m", "", NOW, math.nan), "m has the value nan, which databases cannot store"),
        (Reading("m", "", NOW, math.inf), "m has the value inf, which databases cannot store"),
        (Reading("m", "", NOW * 1_000, 1.0), "which is not in seconds since 1970"),
        (Reading("m", "", math.nan, 1.0), "which is not in seconds since 1970"),
        (Reading("", "", NOW, 1.0), "needs a name"),
        (Reading("m" * 201, "", NOW, 1.0), "has 201 characters, and at most 200 fit"),
        (Reading("m", "l" * 501, NOW, 1.0), "has 501 characters, and at most 500 fit"),
        (Reading("m", "a\0b", NOW, 1.0), "has characters that databases cannot store"),
        (Reading("m", "\ud800", NOW, 1.0), "has characters that databases cannot store"),
    ],
)
def test_what_no_database_could_keep_is_refused_with_all_that_came_with_it(
    bad: Reading, said: str, tmp_path: Path
) -> None:
    with Database(str(tmp_path / "metrics.db")) as database:
        with pytest.raises(DatabaseError, match=said):
            database.put_readings([reading(0), bad])
        assert database.series() == []


def test_the_longest_names_fit(place: str) -> None:
    longest = Reading("ü" * 200, "\U0001f6b2" * 500, NOW, 1.0)
    with Database(place) as database:
        database.put_readings([longest])
        database.put([msgspec.structs.replace(rollup(0), metric="ü" * 200, labels="€" * 500)])
        assert database.readings(longest.metric) == [longest]
        assert len(database.rollups("ü" * 200, 10)) == 1


def test_readings_are_forgotten_and_what_arrives_for_then_is_not_added_up(place: str) -> None:
    with Database(place) as database:
        database.put_readings([reading(at) for at in range(0, 600, 60)])
        database.put_readings([reading(30)])
        assert len(pending(database).arrivals) == 2
        assert database.forget_readings(NOW + 300) == 6
        assert [one.at - NOW for one in database.readings("m")] == [300, 360, 420, 480, 540]
        assert len(pending(database).arrivals) == 1
        database.put_readings([reading(10)])  # late
        cut_us = int(NOW + 300) * 1_000_000
        assert pending(database).periods[0].since_us >= cut_us
        assert database.forget_readings(NOW) == 0  # the cut never goes back
        assert pending(database).periods[0].since_us >= cut_us


# --- roll-ups -----------------------------------------------------------------------------------


def test_what_is_put_is_read_back(place: str) -> None:
    full = Rollup(
        "m_total", 'channel="ü"', 60, 120, 3, 6.5, 3.0, -1.0, 4.5, 6.5 / 3, 2.25, 0.1, 22.5
    )
    with Database(place) as database:
        assert database.put([full, rollup(0), rollup(10)]) == 3
        assert database.rollups("m_total", 60) == [full]
        assert database.rollups("m", 10) == [rollup(0), rollup(10)]
        assert database.rollups("m", 10, since=10, until=20) == [rollup(10)]
        assert database.rollups("m", 10, until=10) == [rollup(0)]
        assert database.rollups("m", 10, labels="other") == []
        assert database.series() == [
            Series("m", "", "gauge"),
            Series("m_total", 'channel="ü"', "counter"),
        ]
    with Database(place) as again:
        assert again.rollups("m_total", 60) == [full]


def test_writing_twice_is_writing_once_and_the_later_counts(place: str) -> None:
    drawn = random.Random(5)
    expected: dict[tuple[str, str, int, int], Rollup] = {}
    with Database(place) as database:
        for _ in range(2):
            batch = [
                rollup(10 * drawn.randrange(300), drawn.choice("ab"), drawn.choice("xy"), value)
                for value in range(ROWS_PER_STATEMENT + 7)
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
        assert database.progress("metrics") == JobProgress()
        database.put_readings([reading(0)])
        (arrival,) = pending(database).arrivals
        database.put([rollup(0)], "metrics", JobProgress(5, 3, 3_600))
        with pytest.raises(DatabaseError, match=r"(?i)the metrics database .*null"):
            database.put(rows(), "metrics", JobProgress(9, 8, 7_200), done=[arrival])
        assert database.progress("metrics") == JobProgress(5, 3, 3_600)
        assert database.rollups("m", 10) == [rollup(0)]
        assert database.progress("other") == JobProgress()
        assert pending(database).arrivals == [arrival]
        database.put([], done=[arrival])
        assert pending(database).arrivals == []


def test_what_is_old_is_forgotten_by_resolution(place: str) -> None:
    with Database(place) as database:
        database.put([rollup(start) for start in range(0, 100, 10)])
        assert database.forget(60, 1_000) == 0
        assert database.forget(10, 50) == 5
        assert [one.start for one in database.rollups("m", 10)] == [50, 60, 70, 80, 90]


def test_readers_go_on_while_one_writes(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[Rollup]] = []

    with Database(place) as database, Database(place) as other:
        bound = database._bound

        def look_before_each_statement(batch: Sequence[Rollup]) -> Any:
            seen.append(other.rollups("m", 10))
            return bound(batch)

        database.put([rollup(0)])
        monkeypatch.setattr(database, "_bound", look_before_each_statement)
        database.put([*map(rollup, range(1, ROWS_PER_STATEMENT + 1)), rollup(-1)])
        # The second look was after a statement that was executed and not committed.
        assert seen == [[rollup(0)]] * 2
        assert len(other.rollups("m", 10)) == ROWS_PER_STATEMENT + 2


# --- runs ---------------------------------------------------------------------------------------


def test_runs_come_newest_first_and_may_be_ended_later(place: str) -> None:
    facts: dict[str, object] = {"players": 7, "engines": ["tile", "área"], "deep": {"a": [1.5]}}
    first = RunRecord("dense-1", "dense", "A dénse crowd", 2**62, NOW, None, facts)
    second = RunRecord("dense-2", "dense", "", -3, NOW + 0.25, NOW + 60)
    with Database(place) as database:
        assert database.runs() == []
        database.put_run(first)
        database.put_run(second)
        assert database.runs() == [second, first]
        ended = msgspec.structs.replace(first, ended=NOW + 9.5)
        database.put_run(ended)
        assert database.runs() == [second, ended]
        with pytest.raises(DatabaseError, match=r"run '': a metric needs a name"):
            database.put_run(msgspec.structs.replace(first, id=""))


# --- opening ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("nonsense://me:secret@there/x", "cannot use nonsense://there/x"),
        ("mysql+nonsense://me:secret@there/x", "installs drivers for PostgreSQL and MySQL"),
        ("://", "is not a database; give a file, or a URL"),
        ("/nowhere/at/all/metrics.db", "unable to open database file"),
        ("postgresql://me:secret@127.0.0.1:1/x", "connection failed"),
        ("mariadb://me:secret@127.0.0.1:1/x", "Can't connect to MySQL server"),
    ],
)
def test_what_cannot_be_opened_is_told_in_a_line(place: str, said: str) -> None:
    with pytest.raises(DatabaseError) as told:
        Database(place)
    assert said in str(told.value)
    assert "\n" not in str(told.value)
    assert "secret" not in str(told.value)


def test_urls_need_not_name_a_driver() -> None:
    assert url_of("mariadb://me@there/x").drivername == "mariadb+pymysql"
    assert url_of("postgres://me@there/x").drivername == "postgresql+psycopg"
    assert url_of("a file.db").database == "a file.db"


def test_a_server_that_was_started_again_is_used_again(server: DatabaseServer) -> None:
    with Database(server.new_database()) as database:
        database.put_readings([reading(0)])
        server.kill()
        with pytest.raises(DatabaseError):
            database.put_readings([reading(1)])
        with pytest.raises(DatabaseError):
            database.series()
        server.start()
        assert database.readings("m") == [reading(0)]
        database.put_readings([reading(2)])
        assert database.readings("m") == [reading(0), reading(2)]


def test_mariadb_by_its_own_name(mariadb: DatabaseServer) -> None:
    place = mariadb.new_database().replace("mysql+pymysql", "mariadb")
    with Database(place) as database:
        database.put_readings([reading(0), reading(0, 2.0)])
        database.put_readings([reading(0, 3.0)])
        assert database.readings("m") == [reading(0, 3.0)]
        with database.begun() as connection:
            isolation = connection.execute(sa.text("SELECT @@tx_isolation")).scalar()
        assert isolation == "READ-COMMITTED"
