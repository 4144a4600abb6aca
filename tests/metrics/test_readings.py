"""Roll-ups of readings are those of plain Python, however the readings came."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from rove.metrics.arrivals import pending
from rove.metrics.database import Database, Reading, Rollup
from rove.metrics.points import RESOLUTIONS_S
from rove.metrics.readings import Report, run_once
from rove.metrics.rolling import roll_up
from tests.metrics.conftest import MariaDb, serving

NOON = 1_790_000_000 - 1_790_000_000 % 86_400 + 43_200


def drawn_readings(seed: int, seconds: int = 3_000, series: int = 3) -> list[Reading]:
    """Counters that begin anew now and then, gauges, and pauses."""
    drawn = random.Random(seed)
    found = []
    for number in range(series):
        at, total = NOON - 1_500 + drawn.random(), 0.0
        while at < NOON - 1_500 + seconds:
            at = round(at + drawn.choice((1.0, 3.0, 9.99, 40.0, 200.0)), 6)
            total = 0.0 if drawn.random() < 0.05 else total + drawn.randrange(50)
            labels = f'n="{number}"'
            found.append(Reading("a_total", labels, at, total))
            found.append(Reading("g", labels, at, drawn.uniform(-1, 1)))
    return found


def everything(database: Database) -> list[Rollup]:
    names = dict.fromkeys(one.metric for one in database.series())
    return [one for name in names for size in RESOLUTIONS_S for one in database.rollups(name, size)]


def assert_equal(found: Iterable[Rollup], wanted: Iterable[Rollup]) -> None:
    def by_key(rows: Iterable[Rollup]) -> dict[tuple[object, ...], Rollup]:
        return {(one.metric, one.labels, one.resolution_s, one.start): one for one in rows}

    ours, theirs = by_key(found), by_key(wanted)
    assert ours.keys() == theirs.keys()
    for key, one in ours.items():
        for name in Rollup.__struct_fields__[4:]:
            ought = getattr(theirs[key], name)
            is_so = getattr(one, name)
            assert is_so == (None if ought is None else pytest.approx(ought)), (key, name)


def test_however_they_come_it_is_the_same_as_all_at_once(tmp_path: Path) -> None:
    """In parts, late, twice, and some while others are added up."""
    readings = drawn_readings(seed=1)
    drawn = random.Random(2)
    by_time = sorted(readings, key=lambda one: one.at)
    late = by_time[100:180]
    rest = by_time[:100] + by_time[180:]
    parts = [rest[:200], late, rest[150:]]
    with Database(str(tmp_path / "metrics.db")) as database:
        put: list[Reading] = []
        for part in parts:
            for begin in range(0, len(part), 90):
                database.put_readings(
                    drawn.sample(part[begin : begin + 90], len(part[begin : begin + 90]))
                )
            put += part
            run_once(database, rows_max=600)
            assert_equal(everything(database), roll_up(set(put)))
        assert run_once(database) == Report()
        assert pending(database).arrivals == []


def test_little_is_read_when_little_is_new(tmp_path: Path) -> None:
    readings = sorted(drawn_readings(seed=3), key=lambda one: one.at)
    with Database(str(tmp_path / "metrics.db")) as database:
        database.put_readings(readings[:-1])
        all_of_it = run_once(database)
        assert all_of_it.readings >= len(readings) - 1
        database.put_readings(readings[-1:])
        report = run_once(database)
        assert report.readings < 40
        assert_equal(everything(database), roll_up(readings))


def test_a_run_that_was_killed_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two groups of readings: some roll-ups are there, all arrivals still."""
    readings = drawn_readings(seed=4)
    put = Database.put
    written: list[int] = []

    def dies(database: Database, rows: Iterable[Rollup], **rest: Any) -> int:
        if written:
            raise KeyboardInterrupt
        written.append(put(database, rows, **rest))
        return written[-1]

    with Database(str(tmp_path / "metrics.db")) as database:
        database.put_readings(readings)
        before = pending(database)
        with monkeypatch.context() as patch:
            patch.setattr(Database, "put", dies)
            with pytest.raises(KeyboardInterrupt):
                run_once(database, rows_max=100)
        assert 0 < len(everything(database)) < len([*roll_up(readings)])
        assert pending(database) == before
        run_once(database)
        assert_equal(everything(database), roll_up(readings))


def test_what_was_forgotten_leaves_its_roll_ups_as_they_are(tmp_path: Path) -> None:
    readings = sorted(drawn_readings(seed=5, seconds=8_000), key=lambda one: one.at)
    with Database(str(tmp_path / "metrics.db")) as database:
        database.put_readings(readings)
        report = run_once(database, keep_raw_hours=1)
        assert report.newest is not None
        kept = database.readings("g")
        assert 0 < len(kept) < len(readings) / 2
        assert min(one.at for one in kept) >= report.newest - 3_600
        assert_equal(everything(database), roll_up(readings))
        # One that comes even later finds nothing to be added to.
        database.put_readings([readings[0]])
        run_once(database, keep_raw_hours=1)
        assert_equal(everything(database), roll_up(readings))


def test_a_clock_that_is_ahead_costs_nobody_their_readings(tmp_path: Path) -> None:
    now = time.time()
    with Database(str(tmp_path / "metrics.db")) as database:
        database.put_readings([Reading("g", "", now, 1.0), Reading("g", "", now + 1e7, 1.0)])
        run_once(database, keep_raw_hours=24)
        assert len(database.readings("g")) == 2


@pytest.mark.soak
def test_a_server_gives_the_same() -> None:
    """One of them: what is asked of the database is tested with each where it is written."""
    readings = drawn_readings(seed=6, seconds=1_000)
    with serving(MariaDb) as server, Database(server.new_database()) as database:
        database.put_readings(readings[::2])
        run_once(database)
        database.put_readings(readings[1::2])
        run_once(database)
        assert_equal(everything(database), roll_up(readings))
