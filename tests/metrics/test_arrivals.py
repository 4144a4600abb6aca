"""What has to be read again, and no more: whole minutes, with what was before them."""

from __future__ import annotations

from collections.abc import Iterable

from rove.metrics.arrivals import Stretch, names, pending, pieces, rows_of
from rove.metrics.database import Database, Reading

HOUR = 1_790_000_000 - 1_790_000_000 % 3_600


def put(database: Database, ats: Iterable[float], labels: str = "") -> None:
    database.put_readings([Reading("c_total", labels, HOUR + at, at) for at in ats])


def seconds(stretches: Iterable[Stretch]) -> list[tuple[float, float]]:
    return [(one.since_us / 1e6 - HOUR, one.until_us / 1e6 - HOUR) for one in stretches]


def test_whole_minutes_are_touched_and_joined(place: str) -> None:
    with Database(place) as database:
        assert pending(database) == ([], [])
        put(database, [61, 62])
        put(database, [119.999999])
        put(database, [120])
        put(database, [600.5, 700])
        found = pending(database)
        assert seconds(found.stretches) == [(60, 180), (600, 720)]
        assert len(found.arrivals) == 4
        database.put([], done=found.arrivals[:3])
        assert seconds(pending(database).stretches) == [(600, 720)]


def test_what_comes_late_changes_the_next_reading_too(place: str) -> None:
    with Database(place) as database:
        put(database, [0, 300, 310], "x")
        put(database, [200], "y")
        database.put([], done=pending(database).arrivals)
        put(database, [100], "x")
        assert seconds(pending(database).stretches) == [(60, 120), (300, 360)]


def test_pieces_are_of_an_hour_and_leave_out_what_is_empty(place: str) -> None:
    with Database(place) as database:
        put(database, [10, 3_500, 4_000, 1_000_000])
        found = list(pieces(database, pending(database).stretches))
        assert seconds(found) == [(0, 3_600), (3_960, 7_200), (1_000_000 // 60 * 60, 1_000_020)]


def test_rows_come_with_the_last_ones_before(place: str) -> None:
    with Database(place) as database:
        put(database, [1, 30, 70], "x")
        put(database, [5, 130], "y")
        named = {labels: number for number, (_, labels) in names(database).items()}
        piece = Stretch((HOUR + 60) * 1_000_000, (HOUR + 120) * 1_000_000)
        rows = sorted((series, at_us / 1e6 - HOUR) for series, at_us, _ in rows_of(database, piece))
        assert rows == [(named["x"], 30), (named["x"], 70)]  # y has nothing in there
