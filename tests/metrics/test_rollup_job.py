"""Roll-ups of readings equal those of plain Python, in whatever order the readings arrive."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from rove.metrics.database import Database, Reading, Rollup
from rove.metrics.points import Period
from rove.metrics.records import RESOLUTIONS_S
from rove.metrics.rollup_job import (
    RollupJobReport,
    hourly,
    names_by_number,
    pending,
    rows_of,
    run_once,
)
from tests.metrics.conftest import MariaDb, assert_equal, plain_roll_up, serving

NOON = 1_790_000_000 - 1_790_000_000 % 86_400 + 43_200
BEGIN = 1_790_000_000 - 1_790_000_000 % 3_600


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
            assert_equal(everything(database), plain_roll_up(set(put)))
        assert run_once(database) == RollupJobReport()
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
        assert_equal(everything(database), plain_roll_up(readings))


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
        assert 0 < len(everything(database)) < len([*plain_roll_up(readings)])
        assert pending(database) == before
        run_once(database)
        assert_equal(everything(database), plain_roll_up(readings))


def test_what_was_forgotten_leaves_its_roll_ups_as_they_are(tmp_path: Path) -> None:
    readings = sorted(drawn_readings(seed=5, seconds=8_000), key=lambda one: one.at)
    with Database(str(tmp_path / "metrics.db")) as database:
        database.put_readings(readings)
        report = run_once(database, keep_raw_hours=1)
        assert report.newest is not None
        kept = database.readings("g")
        assert 0 < len(kept) < len(readings) / 2
        assert min(one.at for one in kept) >= report.newest - 3_600
        assert_equal(everything(database), plain_roll_up(readings))
        # One that comes even later finds nothing to be added to.
        database.put_readings([readings[0]])
        run_once(database, keep_raw_hours=1)
        assert_equal(everything(database), plain_roll_up(readings))


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
        assert_equal(everything(database), plain_roll_up(readings))


# --- what to read ---------------------------------------------------------------------------------


def put(database: Database, ats: Iterable[float], labels: str = "") -> None:
    database.put_readings([Reading("c_total", labels, BEGIN + at, at) for at in ats])


def seconds(periods: Iterable[Period]) -> list[tuple[float, float]]:
    return [(one.since_us / 1e6 - BEGIN, one.until_us / 1e6 - BEGIN) for one in periods]


def test_whole_minutes_are_touched_and_joined(place: str) -> None:
    with Database(place) as database:
        assert pending(database) == ([], [])
        put(database, [61, 62])
        put(database, [119.999999])
        put(database, [120])
        put(database, [600.5, 700])
        found = pending(database)
        assert seconds(found.periods) == [(60, 180), (600, 720)]
        assert len(found.arrivals) == 4
        database.put([], done=found.arrivals[:3])
        assert seconds(pending(database).periods) == [(600, 720)]


def test_what_comes_late_changes_the_next_reading_too(place: str) -> None:
    with Database(place) as database:
        put(database, [0, 300, 310], "x")
        put(database, [200], "y")
        database.put([], done=pending(database).arrivals)
        put(database, [100], "x")
        assert seconds(pending(database).periods) == [(60, 120), (300, 360)]


def test_periods_are_of_an_hour_and_leave_out_what_is_empty(place: str) -> None:
    with Database(place) as database:
        put(database, [10, 3_500, 4_000, 1_000_000])
        found = list(hourly(database, pending(database).periods))
        assert seconds(found) == [(0, 3_600), (3_960, 7_200), (1_000_000 // 60 * 60, 1_000_020)]


def test_rows_come_with_the_last_ones_before(place: str) -> None:
    with Database(place) as database:
        put(database, [1, 30, 70], "x")
        put(database, [5, 130], "y")
        named = {labels: number for number, (_, labels) in enumerate(names_by_number(database))}
        period = Period((BEGIN + 60) * 1_000_000, (BEGIN + 120) * 1_000_000)
        rows = sorted(
            (series, at_us / 1e6 - BEGIN) for series, at_us, _ in rows_of(database, period)
        )
        assert rows == [(named["x"], 30), (named["x"], 70)]  # y has nothing in there
