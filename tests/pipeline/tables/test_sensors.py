"""Virtual sensors against slow and obvious Python, cells on the map, and what is replaced."""

from __future__ import annotations

import json
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import mgrs
import pytest

from rove.broker.storage.records import LogRow
from rove.lake import delta
from rove.pipeline.jobs.job import JobContext, JobSettings
from rove.pipeline.jobs.status import Reporter
from rove.pipeline.tables.grid import square_of
from rove.pipeline.tables.ingest import ingest
from rove.pipeline.tables.sensors import (
    JOB,
    PARTS,
    QUANTILES,
    SensorReport,
    SensorsError,
    current,
    interval_s,
    part_length_us,
    read,
    run_job,
    run_once,
    sensors,
    touched,
)
from rove.pipeline.tables.table import Table
from rove.serve.disk.lake import LakeAppender as BrokersLake
from tests.effort import some

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
CLOCKS_CHANGE = datetime(2026, 3, 29, tzinfo=UTC)
"""In most of Europe, where this day has 23 hours; here it has 24."""
COLUMNS = (
    "position long, at timestamp, client_id string, lat double, long double, NO2 double, "
    "`NO2::long` long, `a.b` int, name string, channel string"
)


class Row(NamedTuple):
    """As in a typed table; `NO2` came as a whole number at times."""

    position: int
    at: datetime
    client_id: str
    lat: float | None
    long: float | None
    no2: float | None
    no2_whole: int | None
    a_b: int | None
    name: str = "x"
    channel: str = "air"


def drawn_rows(seed: int, count: int, begin: datetime, hours: float = 30) -> list[Row]:
    """Readings on both sides of the border between zones 32 and 33, some without a place."""
    drawn = random.Random(seed)
    rows = []
    for position in range(count):
        at = begin + timedelta(microseconds=drawn.randrange(round(hours * 3.6e9)))
        lat: float | None = 45.8 + drawn.choice((0.0, 0.0002, 0.01, 0.3))
        long: float | None = 12.0 + drawn.choice((-0.02, -0.0001, 0.0001, 0.003))
        if drawn.random() < 0.05:
            lat = drawn.choice((None, 91.0))
        no2 = drawn.choice((None, drawn.uniform(-5, 90), drawn.uniform(-5, 90)))
        whole = drawn.randrange(90) if no2 is None and drawn.random() < 0.7 else None
        a_b = drawn.choice((None, drawn.randrange(5)))
        who, channel = drawn.choice("pqr"), drawn.choice(("air", "noise"))
        rows.append(Row(position, at, who, lat, long, no2, whole, a_b, channel=channel))
    return rows


# --- the same, slow and obvious -----------------------------------------------------------------

Key = tuple[str, str, str, datetime]


def expected(
    rows: Iterable[Row], cell_m: int, length_s: int, now: datetime | None = None
) -> dict[Key, dict[str, Any]]:
    digits = {100_000: 0, 10_000: 1, 1_000: 2, 100: 3}[cell_m]
    groups: defaultdict[Key, list[tuple[datetime, int, float, str]]] = defaultdict(list)
    for row in rows:
        if row.lat is None or row.long is None or abs(row.lat) > 90:
            continue
        if now is not None and row.at > now:
            continue
        cell = mgrs.MGRS().toMGRS(row.lat, row.long, MGRSPrecision=digits)
        start = datetime.fromtimestamp(row.at.timestamp() // length_s * length_s, UTC)
        no2 = row.no2 if row.no2 is not None else row.no2_whole
        for name, value in (("NO2", no2), ("a.b", row.a_b)):
            if value is not None:
                reading = (row.at, row.position, float(value), row.client_id)
                groups[row.channel, name, cell, start].append(reading)
    return {key: sensor(key[3], sorted(group), length_s, now) for key, group in groups.items()}


def sensor(
    start: datetime,
    group: Sequence[tuple[datetime, int, float, str]],
    length_s: int,
    now: datetime | None,
) -> dict[str, Any]:
    values = [value for _, _, value, _ in group]
    end = start + timedelta(seconds=length_s)
    until = end if now is None else min(end, now)
    part = timedelta(seconds=length_s) / PARTS
    begun = sum(start + number * part <= until for number in range(PARTS))
    hit = {(at - start) // part for at, *_ in group}
    found = {
        "end": end,
        "count": len(values),
        "publishers": len({who for *_, who in group}),
        "mean": statistics.fmean(values),
        "min": min(values),
        "max": max(values),
        "deviation": statistics.stdev(values) if len(values) > 1 else None,
        "first": values[0],
        "first_at": group[0][0],
        "last": values[-1],
        "last_at": group[-1][0],
        "freshness_s": (until - group[-1][0]).total_seconds(),
        "coverage": len(hit) / begun,
    }
    return found | {f"q{round(100 * q):02d}": quantile(values, q) for q in QUANTILES}


def quantile(values: Sequence[float], share: float) -> float:
    """Between the two neighbours, as far as it is between their places."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def assert_equal(frame: Any, wanted: dict[Key, dict[str, Any]]) -> None:
    rows = [row.asDict(recursive=True) for row in frame.collect()]
    found = {
        (row["channel"], row["attribute"], row["cell"], row["start"].replace(tzinfo=UTC)): row
        for row in rows
    }
    assert len(found) == len(rows)
    assert found.keys() == wanted.keys()
    for key, row in found.items():
        for name, value in wanted[key].items():
            if isinstance(value, datetime):
                assert row[name].replace(tzinfo=UTC) == value, (key, name)
            else:
                close = value if value is None else pytest.approx(value, abs=1e-9)
                assert row[name] == close, (key, name)
        square = square_of(row["cell"])
        assert (row["lat"], row["long"]) == (square.lat, square.long)
        corners = [(corner["lat"], corner["long"]) for corner in row["corners"]]
        assert tuple(corners) == square.corners


def frame_of(spark: Any, rows: Sequence[Row]) -> Any:
    return spark.createDataFrame(rows, COLUMNS)


# --- sensors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell_m", "interval"), some([(1_000, "1h"), (100, "1d"), (100_000, "5 min")])
)
def test_sensors_are_those_of_plain_python(spark: Any, cell_m: int, interval: str) -> None:
    rows = drawn_rows(seed=cell_m, count=600, begin=CLOCKS_CHANGE - timedelta(hours=3))
    found = sensors(frame_of(spark, rows), cell_m, interval)
    wanted = expected(rows, cell_m, interval_s(interval))
    assert {key[2][:3] for key in wanted} == {"32T", "33T"}
    assert_equal(found, wanted)


@pytest.mark.soak
def test_an_interval_that_is_not_over_ends_now(spark: Any) -> None:
    rows = drawn_rows(seed=7, count=300, begin=NOON, hours=3)
    now = NOON + timedelta(hours=2, minutes=25)
    rows.append(rows[0]._replace(position=10**6, at=now, lat=45.8, long=12.0001, no2=1.0))
    found = sensors(frame_of(spark, rows), 10_000, "1h", now=now)
    assert_equal(found, expected(rows, 10_000, 3_600, now))


@pytest.mark.soak
def test_one_row_and_none(spark: Any) -> None:
    row = Row(1, NOON, "p", 45.8, 15.98, 41.5, None, None)
    (found,) = sensors(frame_of(spark, [row]), attributes=["NO2"]).collect()
    assert (found["count"], found["mean"], found["q05"], found["deviation"]) == (
        1,
        41.5,
        41.5,
        None,
    )
    assert (found["freshness_s"], found["coverage"]) == (3_600.0, 1 / PARTS)
    assert (found["cell"], found["cell_m"]) == ("33TWL7672", 1_000)
    assert sensors(frame_of(spark, [])).collect() == []
    assert sensors(frame_of(spark, [row._replace(no2=None)])).collect() == []


@pytest.mark.soak
def test_only_what_is_asked_for_is_read(spark: Any) -> None:
    rows = frame_of(spark, drawn_rows(seed=8, count=50, begin=NOON))
    names = {row["attribute"] for row in sensors(rows, attributes=["a.b", "lat"]).collect()}
    assert names == {"a.b", "lat"}
    bare = rows.select("at", "client_id", "lat", "long", "NO2")
    assert {row["channel"] for row in sensors(bare).collect()} == {""}
    with pytest.raises(
        SensorsError, match=r"no attribute 'name' is a number; there are lat, long, NO2"
    ):
        sensors(rows, attributes=["name"])
    with pytest.raises(SensorsError, match=r"no attribute 'lat' is a number"):
        sensors(rows.drop("lat"))
    with pytest.raises(SensorsError, match="nothing can be read"):
        sensors(rows.select("at", "client_id", "lat", "long", "name"))


@pytest.mark.soak
def test_current_is_the_latest_of_each_cell(spark: Any) -> None:
    rows = drawn_rows(seed=9, count=300, begin=NOON)
    latest: dict[tuple[str, str, str], Key] = {}
    history = expected(rows, 1_000, 3_600)
    for key in sorted(history, key=lambda key: key[3]):
        latest[key[:3]] = key
    now = NOON + timedelta(days=3)
    wanted = {key: dict(history[key]) for key in latest.values()}
    sensed = sensors(frame_of(spark, rows))
    assert_equal(current(sensed), wanted)
    for one in wanted.values():
        one["freshness_s"] = (now - one["last_at"]).total_seconds()
    assert_equal(current(sensed, now), wanted)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10s", 10), ("5min", 300), ("5 m", 300), (" 1h ", 3_600), ("2d", 172_800)],
)
def test_intervals_are_read(text: str, seconds: int) -> None:
    assert interval_s(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "0h", "1 week", "-1h", "1.5h", "1h30"])
def test_what_is_no_interval_is_refused(text: str) -> None:
    with pytest.raises(SensorsError, match=r"is no interval; write 10s, 5min, 1h or 1d"):
        interval_s(text)


# --- the table ----------------------------------------------------------------------------------


class World:
    """A lake that grows, and the tables of it."""

    def __init__(self, folder: Path) -> None:
        self.lake, self.tables, self.out = folder / "lake", folder / "tables", folder / "sensors"
        self._writer = BrokersLake(self.lake)
        self.out.mkdir()

    def publish(self, rows: Sequence[Row]) -> None:
        """Into the lake, as the broker would, and into the tables."""
        lines = []
        for row in rows:
            values = {"lat": row.lat, "long": row.long, "NO2": row.no2, "a": {"b": row.a_b}}
            payload = {name: value for name, value in values.items() if value is not None}
            if row.a_b is None:
                del payload["a"]
            if row.no2_whole is not None:
                payload["NO2"] = row.no2_whole
            content = json.dumps(payload).encode()
            at, id = row.at.timestamp(), f"{row.channel}{row.position}"
            line = LogRow("publications", row.channel, at, "t", id, row.client_id, content)
            lines.append((row.position, line))
        self._writer.take(lines)
        ingest(None, self.lake, self.tables)

    def run(self, spark: Any, **options: Any) -> SensorReport:
        return run_once(spark, self.tables, self.out, **options)

    def files(self, channel: str = "air") -> dict[str, str]:
        """Those that count, with the first hour that each has."""
        listed = delta.DeltaTable(self.out / "1000m-1h" / channel).files()
        starts = (f"{start:%d %H}" for start in listed["min.start"].to_pylist())
        return dict(zip(listed["path"].to_pylist(), starts, strict=True))


def in_order(rows: Sequence[Row], first: int) -> list[Row]:
    """With positions that grow with time, as the broker gives them."""
    ordered = sorted(rows, key=lambda row: row.at)
    return [row._replace(position=first + each) for each, row in enumerate(ordered)]


def test_only_what_has_changed_is_computed_again(spark: Any, tmp_path: Path) -> None:
    world = World(tmp_path)
    midnight = CLOCKS_CHANGE
    early = in_order(drawn_rows(1, 120, midnight - timedelta(hours=2), hours=7), 1)
    early = [row._replace(channel="air", lat=45.8) for row in early]
    late = in_order(drawn_rows(2, 30, midnight + timedelta(hours=4.5), hours=1), 1_000)
    late = [row._replace(channel="air", lat=45.8) for row in late]
    world.publish(early)
    first = world.run(spark)
    assert (first.hours, first.rows_in) == (7, len(early))
    assert_equal(read(spark, world.out), expected(early, 1_000, 3_600))
    before = world.files()
    # A file for the day that is over, and one for each hour of the newest.
    assert sorted(before.values()) == ["28 22", "29 00", "29 01", "29 02", "29 03", "29 04"]
    assert world.run(spark) == SensorReport(position=first.position)
    assert world.files() == before
    world.publish(late)
    second = world.run(spark)
    assert_equal(read(spark, world.out), expected([*early, *late], 1_000, 3_600))
    since = midnight + timedelta(hours=4)
    in_hours = [row for row in (*early, *late) if row.at >= since]
    assert (second.hours, second.rows_in) == (2, len(in_hours))
    assert len(in_hours) < len(early) / 2
    assert second.position == late[-1].position
    after = world.files()
    assert sorted(after[name] for name in after.keys() - before.keys()) == ["29 04", "29 05"]
    assert sorted(before[name] for name in before.keys() - after.keys()) == ["29 04"]


@pytest.mark.soak
def test_what_comes_late_costs_its_day_and_days_that_are_over_are_one_file(
    spark: Any, tmp_path: Path
) -> None:
    world = World(tmp_path)
    begin = CLOCKS_CHANGE + timedelta(hours=20)
    rows = in_order(drawn_rows(6, 200, begin, hours=3), 1)
    world.publish(rows)
    world.run(spark)
    assert len(world.files()) == 3
    for number in (1, 2):
        more = in_order(
            drawn_rows(number, 40, begin + timedelta(hours=12 * number), hours=2), 500 * number
        )
        rows += more
        world.publish(more)
        world.run(spark)
    assert sorted(world.files().values()) == ["29 20", "30 08", "30 09", "30 20", "30 21"]
    late = [row._replace(position=2_000 + row.position) for row in drawn_rows(9, 5, begin, hours=1)]
    world.publish(late)
    found = world.run(spark)
    assert found.rows_in == len([row for row in rows if row.at.day == 29]) + len(late)
    assert_equal(read(spark, world.out), expected([*rows, *late], 1_000, 3_600))


@pytest.mark.parametrize(
    ("hours", "length_h", "files", "spans"),
    [
        ([5], 1, [], [(5, 6)]),
        ([5, 6, 9], 1, [(4, 5), (6, 7)], [(5, 7), (9, 10)]),
        ([5], 6, [], [(0, 6)]),
        ([5], 1, [(3, 8), (7, 9), (9, 10)], [(3, 9)]),  # one leads to the other
    ],
)
def test_what_is_touched(
    hours: list[int], length_h: int, files: list[tuple[int, int]], spans: list[tuple[int, int]]
) -> None:
    hour_us = 3_600_000_000

    def in_us(some: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return [(begin * hour_us, end * hour_us) for begin, end in some]

    found = touched([each * hour_us for each in hours], length_h * hour_us, in_us(files))
    assert found == in_us(spans)


def test_intervals_that_do_not_divide_an_hour_are_whole() -> None:
    length_us = 2_880_000_000  # 48 minutes, thirty of them in a day
    ((begin, end),) = touched([3_600_000_000 * 7], length_us, [])
    assert begin % length_us == end % length_us == 0
    assert begin <= 7 * 3_600_000_000 < 8 * 3_600_000_000 <= end
    assert part_length_us(length_us) == length_us
    assert part_length_us(300_000_000) == 3_600_000_000


@pytest.mark.soak
def test_a_run_that_was_killed_leaves_nothing_that_counts(spark: Any, tmp_path: Path) -> None:
    world = World(tmp_path)
    rows = in_order(drawn_rows(3, 60, NOON, hours=2), 1)
    world.publish(rows)

    class Killed(BaseException):
        pass

    def killed(*_: Any, **__: Any) -> bool:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delta.DeltaTable, "commit", killed)  # its files are written by then
        with pytest.raises(Killed):
            world.run(spark)
    assert list(world.out.rglob("part-*"))
    assert world.run(spark).hours == 4  # two of each channel
    assert_equal(read(spark, world.out), expected(rows, 1_000, 3_600))


@pytest.mark.soak
def test_other_attributes_than_those_that_are_there_are_refused(spark: Any, tmp_path: Path) -> None:
    world = World(tmp_path)
    rows = in_order(drawn_rows(4, 30, NOON, hours=1), 1)
    world.publish(rows)
    world.run(spark, attributes=["NO2"])
    world.publish([rows[0]._replace(position=100)])
    with pytest.raises(SensorsError, match=r'have other attributes \(\["NO2"\]\); use these'):
        world.run(spark)


@pytest.mark.soak
def test_sizes_and_intervals_lie_side_by_side(spark: Any, tmp_path: Path) -> None:
    world = World(tmp_path)
    rows = in_order(drawn_rows(4, 60, NOON, hours=2), 1)
    world.publish(rows)
    world.run(spark)
    world.run(spark, cell_m=100, interval="10min", attributes=["NO2"], only=["noise"])
    fine = {
        key: value
        for key, value in expected(rows, 100, 600).items()
        if key[0] == "noise" and key[1] == "NO2"
    }
    assert_equal(read(spark, world.out, 100, "10min"), fine)
    assert_equal(read(spark, world.out), expected(rows, 1_000, 3_600))
    assert_equal(
        sensors(Table(world.tables, "noise"), 100, "10min", ["NO2"]),
        fine,
    )
    with pytest.raises(SensorsError, match="there are no sensors of 100 m and 1h in"):
        read(spark, world.out, 100)


@pytest.mark.soak
def test_channels_without_places_or_numbers_are_told(spark: Any, tmp_path: Path) -> None:
    world = World(tmp_path)
    assert "no tables in" in world.run(spark).notes[0]
    world.publish([Row(1, NOON, "p", None, None, 4.0, None, None)])
    assert world.run(spark).notes == ("air: no attribute 'lat' is a number; there are NO2",)
    world.publish([Row(2, NOON, "p", 45.8, 15.98, 4.0, None, None)])
    found = world.run(spark)
    assert (found.hours, found.rows_in, found.rows_out, found.notes) == (1, 2, 1, ())
    with pytest.raises(SensorsError, match="an interval of 7h does not divide a day"):
        world.run(spark, interval="7h")


@pytest.mark.soak
def test_as_a_job_it_says_what_it_did(spark: Any, tmp_path: Path) -> None:
    world = World(tmp_path)
    rows = in_order(drawn_rows(5, 60, NOON, hours=2), 1)
    world.publish(rows)
    options = {
        "tables": str(world.tables),
        "cell_m": "10000",
        "interval": "1d",
        "attributes": "NO2",
    }
    settings = JobSettings(lake=world.lake, out=tmp_path, once=True, options=options)
    reporter = Reporter(world.out, JOB)
    run_job(JobContext(JOB, spark, settings, reporter))
    wanted = {k: v for k, v in expected(rows, 10_000, 86_400).items() if k[1] == "NO2"}
    assert_equal(read(spark, world.out, 10_000, "1d"), wanted)
    status = reporter.status
    assert (status.rows_in, status.rows_out) == (60, len(wanted))
    assert status.position > 0
    wrong = JobSettings(lake=world.lake, out=tmp_path, once=True, options={"cell_m": "1 km"})
    with pytest.raises(SensorsError, match="cell_m is a number of metres, not '1 km'"):
        run_job(JobContext(JOB, spark, wrong, reporter))
