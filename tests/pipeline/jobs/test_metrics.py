"""Roll-ups of metrics, against the same in plain Python, and the job that keeps them up."""

from __future__ import annotations

import contextlib
import json
import math
import random
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from rove.broker.counters import BrokerCounters
from rove.broker.storage.records import LogRow
from rove.errors import UsageError
from rove.lake.log import open_for_writing
from rove.metrics.database import Database, JobProgress, Reading, Rollup
from rove.metrics.records import RESOLUTIONS_S
from rove.pipeline.jobs import metrics
from rove.pipeline.jobs.job import JobContext, JobSettings
from rove.pipeline.jobs.metrics import FILES_MAX, JOB, RollupReport, run_job, run_once
from rove.pipeline.jobs.registry import run_jobs
from rove.pipeline.jobs.status import Reporter
from rove.pipeline.lake.log import Lake
from rove.serve.disk.lake import LakeAppender as LakeFolder
from rove.serve.settings import Channel, Config, DataSettings, ListenSettings
from rove.serve.settings import LakeSettings as LakeSettings
from tests.effort import PATIENCE_S
from tests.serve.conftest import Running

NOON = 1_790_000_000 - 1_790_000_000 % 86_400 + 43_200


class Row(NamedTuple):
    """A row of metrics, as the broker logs it."""

    position: int
    at: float
    life: str
    payload: bytes
    channel: str = "broker"


def row(
    position: int, at: float, life: str, number: int, channel: str = "b", **values: float
) -> Row:
    return Row(position, at, life, json.dumps({"row": number, "values": values}).encode(), channel)


def drawn_rows(seed: int, count: int, begin: float = NOON - 600) -> list[Row]:
    """Several lives of brokers with two channels; a counter that comes late, gauges, rubbish."""
    drawn = random.Random(seed)
    rows: list[Row] = []
    at, life, number, started = begin, 0, 0, begin
    totals: dict[str, float] = {"a_total": 0.0}
    while len(rows) < count:
        at = round(at + drawn.choice((5.0, 10.0, 10.0, 9.99, 40.0)), 6)
        if drawn.random() < 0.05:
            life, number, started, totals = life + 1, 0, at - 3.0, {"a_total": 0.0}
        number += 1
        for name in totals:
            totals[name] += drawn.randrange(50)
        if drawn.random() < 0.1:
            totals['d_total{design="lees"}'] = totals.get('d_total{design="lees"}', 0.0) + 5
        values = totals | {
            "rove_uptime_seconds": at - started,
            "queue": drawn.uniform(-1, 1),
        }
        payload = json.dumps({"row": number, "values": values}).encode()
        if drawn.random() < 0.03:
            payload = b"rubbish"
        for channel in ("broker", 'o"ther'):
            rows.append(Row(len(rows) * 3 + 7, at, f"life-{life}", payload, channel))
    return rows


# --- the same, slow and obvious -----------------------------------------------------------------


class Told(NamedTuple):
    at: float
    value: float
    increase: float | None
    step_s: float | None


def labels_of(series: str, channel: str) -> tuple[str, str]:
    name, _, rest = series.partition("{")
    written = channel.replace("\\", "\\\\").replace('"', '\\"')
    own = f'channel="{written}"'
    return name, f"{own},{rest[:-1]}" if rest else own


def expected(rows: Iterable[Row]) -> dict[tuple[str, str, int, int], Rollup]:
    groups: defaultdict[tuple[str, str, int, int], list[Told]] = defaultdict(list)
    before: dict[str, tuple[Row, dict[str, float]]] = {}
    for one in sorted(rows):
        try:
            facts = json.loads(one.payload)
        except json.JSONDecodeError:
            continue
        values = facts["values"]
        known = before.get(one.channel)
        goes_on = known is not None and known[0].life == one.life
        for series, value in values.items():
            metric, labels = labels_of(series, one.channel)
            increase = step_s = None
            if metric.endswith("_total"):
                if goes_on:
                    assert known is not None
                    increase = value - known[1].get(series, 0.0)
                    step_s = one.at - known[0].at
                elif facts["row"] == 1:
                    increase, step_s = value, values["rove_uptime_seconds"]
            for length in RESOLUTIONS_S:
                start = math.floor(one.at / length) * length
                reading = Told(one.at, value, increase, step_s)
                groups[metric, labels, length, start].append(reading)
        before[one.channel] = (one, values)
    return {key: added_up(key, group) for key, group in groups.items()}


def added_up(key: tuple[str, str, int, int], group: Sequence[Told]) -> Rollup:
    values = [each.value for each in group]
    known = [(each.increase, each.step_s) for each in group if each.increase is not None]
    increase = sum(increase for increase, _ in known) if known else None
    watched_s = sum(step_s or 0.0 for _, step_s in known)
    return Rollup(
        *key,
        count=len(values),
        sum=sum(values),
        last=values[-1],
        min=min(values),
        max=max(values),
        mean=sum(values) / len(values),
        increase=increase,
        rate=None if increase is None else increase / watched_s,
        watched_s=None if increase is None else watched_s,
    )


def assert_equal(found: Iterable[Rollup], wanted: dict[tuple[str, str, int, int], Rollup]) -> None:
    by_key = {(one.metric, one.labels, one.resolution_s, one.start): one for one in found}
    assert by_key.keys() == wanted.keys()
    for key, one in by_key.items():
        for name in Rollup.__struct_fields__[4:]:
            ours, theirs = getattr(one, name), getattr(wanted[key], name)
            assert ours == (None if theirs is None else pytest.approx(theirs)), (key, name)


# --- roll-ups -----------------------------------------------------------------------------------


def rolled_up(rows: Sequence[Row], since_us: int | None = None) -> list[Rollup]:
    as_read = [
        metrics.MetricsRow(
            one.channel,
            one.position,
            round(one.at * 1e6),
            one.life,
            metrics.payload_of(one.payload),
        )
        for one in rows
    ]
    return list(metrics.roll_up(as_read, since_us))


def test_roll_ups_are_those_of_plain_python() -> None:
    rows = drawn_rows(seed=1, count=300)
    assert_equal(rolled_up(random.Random(2).sample(rows, len(rows))), expected(rows))


def test_nothing_gives_nothing() -> None:
    assert rolled_up([]) == []


def test_restarts_and_what_is_not_known_make_no_increase_that_never_was() -> None:
    rows = [
        row(1, NOON, "one", 7, a_total=1000),  # the rows before it are gone
        row(2, NOON + 1, "one", 8, a_total=1004),
        row(3, NOON + 9, "two", 1, a_total=2000, rove_uptime_seconds=4.0),  # more than ever
        row(4, NOON + 11, "two", 2, a_total=2001),
        row(5, NOON + 12, "two", 3, a_total=2001, late_total=6),
        row(6, NOON + 3600, "three", 4, a_total=1),
    ]
    found = {(r.metric, r.resolution_s, r.start - NOON): r for r in rolled_up(rows)}
    first, second = found["a_total", 10, 0], found["a_total", 10, 10]
    assert (first.increase, first.rate, first.last) == (2004.0, 2004.0 / 5.0, 2000.0)
    assert (second.increase, second.rate) == (1.0, 1.0 / 3.0)
    late = found["late_total", 60, 0]
    assert (late.increase, late.rate, late.count) == (6.0, 6.0, 1)
    unknown = found["a_total", 3_600, 3_600]
    assert (unknown.increase, unknown.rate, unknown.last) == (None, None, 1.0)


def test_since_leaves_out_intervals_that_are_over() -> None:
    rows = drawn_rows(seed=3, count=100)
    since = rows[60].at
    wanted = {key: one for key, one in expected(rows).items() if key[3] + key[2] > since}
    assert_equal(rolled_up(rows, int(since * 1e6)), wanted)


# --- the job ------------------------------------------------------------------------------------


def fill(lake: Path, rows: Sequence[Row], files: int = 1) -> Lake:
    """Write rows as the broker does, into so many files a channel."""
    folder = LakeFolder(lake)
    size = -(-len(rows) // files)
    for begin in range(0, len(rows), size):
        part = rows[begin : begin + size]
        folder.take(
            [
                (r.position, LogRow("metrics", r.channel, r.at, id=r.life, payload=r.payload))
                for r in part
            ]
        )
    return Lake(lake)


def everything(database: Database) -> list[Rollup]:
    names = dict.fromkeys(one.metric for one in database.series())
    return [one for name in names for size in RESOLUTIONS_S for one in database.rollups(name, size)]


def test_runs_one_after_another_come_to_the_same_as_one(tmp_path: Path) -> None:
    rows = drawn_rows(seed=4, count=400, begin=NOON - 1_500)
    unreadable = sum(one.payload == b"rubbish" for one in rows)
    reports = []
    with Database(str(tmp_path / "metrics.db")) as database:
        for begin, end in ((0, 90), (90, 91), (91, 330), (330, 400)):
            lake = fill(tmp_path / "lake", rows[begin:end], files=3)
            reports.append(run_once(lake, database))
        assert_equal(everything(database), expected(rows))
        assert sum(one.rows for one in reports) == 400
        assert sum(one.unreadable for one in reports) == unreadable > 0
        assert reports[-1].position == rows[-1].position
        assert run_once(lake, database) == RollupReport(position=rows[-1].position)
        assert database.progress(JOB).anchor > rows[0].position  # not all is read every time


def test_many_files_are_read_in_steps(tmp_path: Path) -> None:
    rows = drawn_rows(seed=5, count=40)
    lake = fill(tmp_path / "lake", rows, files=5)
    with Database(str(tmp_path / "metrics.db")) as database:
        report = run_once(lake, database, files_max=4)
        assert (report.rows, report.position) == (40, rows[-1].position)
        assert_equal(everything(database), expected(rows))
        assert run_once(lake, database).rows == 0


def test_a_clock_that_was_set_back_spoils_nothing(tmp_path: Path) -> None:
    early = drawn_rows(seed=6, count=60, begin=NOON)
    shift = 4_000.0
    late = [one._replace(at=one.at + shift) for one in drawn_rows(seed=7, count=40, begin=NOON)]
    again = drawn_rows(seed=8, count=40, begin=NOON + 200)
    rows: list[Row] = []
    with Database(str(tmp_path / "metrics.db")) as database:
        for number, part in enumerate((early, late, again)):
            named = [
                one._replace(position=number * 1_000 + one.position, life=f"{number}-{one.life}")
                for one in part
            ]
            rows += named
            run_once(fill(tmp_path / "lake", named), database)
        assert_equal(everything(database), expected(rows))


def test_a_run_that_failed_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = drawn_rows(seed=9, count=30)
    lake = fill(tmp_path / "lake", rows)
    with Database(str(tmp_path / "metrics.db")) as database:
        with monkeypatch.context() as patch:
            patch.setattr("rove.pipeline.jobs.metrics.roll_up", lambda *_: iter([None]))
            with pytest.raises(AttributeError):
                run_once(lake, database)
        assert database.progress(JOB) == JobProgress()
        assert run_once(lake, database, FILES_MAX).rows == 30
        assert_equal(everything(database), expected(rows))


def test_what_is_old_is_forgotten_but_for_hours(tmp_path: Path) -> None:
    old = row(1, NOON - 8 * 86_400, "one", 1, a_total=1, rove_uptime_seconds=1.0)
    new = row(2, NOON, "one", 2, a_total=2)
    with Database(str(tmp_path / "metrics.db")) as database:
        run_once(fill(tmp_path / "lake", [old, new]), database)
        kept = {size: len(database.rollups("a_total", size)) for size in RESOLUTIONS_S}
        assert kept == {10: 1, 60: 2, 3_600: 2}


def test_as_a_job_it_says_what_it_did(tmp_path: Path) -> None:
    rows = drawn_rows(seed=10, count=60)
    fill(tmp_path / "lake", rows)
    settings = JobSettings(lake=tmp_path / "lake", out=tmp_path / "out", once=True)
    (tmp_path / "out" / JOB).mkdir(parents=True)
    reporter = Reporter(tmp_path / "out" / JOB, JOB)
    run_job(JobContext(JOB, None, settings, reporter))
    status = reporter.status
    assert (status.rows_in, status.rows_out) == (60, len(expected(rows)))
    assert (status.position, status.lag_rows) == (rows[-1].position, 0)
    unreadable = sum(one.payload == b"rubbish" for one in rows)
    assert status.notes == [f"{unreadable} rows are not metrics"]
    with Database(str(tmp_path / "out" / JOB / "metrics.db")) as database:
        assert_equal(everything(database), expected(rows))


def test_readings_of_the_database_are_added_up_too(tmp_path: Path) -> None:
    """Without a lake, and the job's own figures among them."""
    place = str(tmp_path / "metrics.db")
    now = float(int(time.time()))
    with Database(place) as database:
        old, new = Reading("g", "", now - 3 * 3_600, 4.0), Reading("g", "", now, 2.0)
        database.put_readings([old, new])
        settings = JobSettings(
            lake=tmp_path / "lake",
            out=tmp_path / "out",
            once=True,
            database=place,
            options={"keep_raw_hours": "1"},
        )
        (status,) = run_jobs([JOB], settings)
        assert status.state == "done"
        assert status.rows_in >= 2
        assert status.rows_out >= 6
        assert [one.last for one in database.rollups("g", 3_600)] == [4.0, 2.0]
        assert database.readings("g") == [new]
        names = {one.metric for one in database.series()}
        assert "rove_pipeline_rows_in_total" in names


def test_hours_that_are_none_are_refused(tmp_path: Path) -> None:
    settings = JobSettings(
        lake=tmp_path, out=tmp_path, database="x.db", options={"keep_raw_hours": "a day"}
    )
    (tmp_path / JOB).mkdir()
    with pytest.raises(UsageError, match="keep_raw_hours=a day is no number of hours"):
        run_job(JobContext(JOB, None, settings, Reporter(tmp_path / JOB, JOB)))


class Broker(Running):
    """A real one, until it is closed."""

    close = Running.stop


@pytest.mark.soak
def test_what_brokers_counted_adds_up_over_restarts(tmp_path: Path) -> None:
    """Real ones: what they write is what is read here."""
    kept = LakeSettings(channels=(Channel("b", (), ("metrics",)),), seconds_per_file=0.05)
    config = Config(
        listen=ListenSettings(mqtt_port=0, http_port=0),
        data=DataSettings(folder=str(tmp_path)),
        lake=kept,
    )
    for publications in (5, 3):
        with contextlib.closing(Broker(config)) as broker:  # whose end writes a row
            for _ in range(publications):
                broker.post("/publish?topic=a", b"x")
    with Database(str(tmp_path / "metrics.db")) as database:
        # One more moves into the lake what was too late for it.
        with contextlib.closing(Broker(config)):
            end_s = time.monotonic() + PATIENCE_S
            rows = 0
            while rows < 2:
                assert time.monotonic() < end_s, "the rows did not reach the lake"
                rows += run_once(Lake(tmp_path / "lake"), database).rows
        hours = database.rollups("rove_publications_received_total", 3_600)
        assert sum(hour.increase or 0 for hour in hours) == 8
        assert {hour.labels for hour in hours} == {'channel="b"'}
        assert all(hour.rate is not None and hour.rate > 0 for hour in hours)
        names = {one.metric for one in database.series()}
        assert {f"rove_{name}_total" for name in BrokerCounters.HELP} < names
        assert database.rollups("rove_sessions", 3_600)[0].increase is None


def test_a_lake_without_metrics_is_no_error(tmp_path: Path) -> None:
    open_for_writing(tmp_path / "lake")
    with Database(str(tmp_path / "metrics.db")) as database:
        assert run_once(Lake(tmp_path / "lake"), database) == RollupReport()
