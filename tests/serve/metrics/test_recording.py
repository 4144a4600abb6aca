"""The broker's metrics in a database: what `/metrics` says, and never in the broker's way."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from rove.broker.counters import BrokerCounters
from rove.errors import RoveError
from rove.metrics.database import Database
from rove.serve.metrics.recording import wait_s
from rove.serve.settings import Channel, LakeSettings, MetricsSettings
from tests.effort import PATIENCE_S
from tests.metrics.conftest import DatabaseServer, PostgreSql, serving
from tests.serve.conftest import Running

Start = Callable[..., Running]
EVERY_S = 0.05


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "metrics.db")


def wait_for(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.02)


def values(server: Running) -> dict[str, float]:
    lines = server.get("/metrics").text.splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def test_the_database_gets_what_metrics_says(start_server: Start, place: str) -> None:
    server = start_server(metrics=MetricsSettings(database=place, every_s=EVERY_S))
    server.post("/publish?topic=a", b"x")
    wait_for(lambda: values(server)["rove_metrics_written_total"] > 100)
    shown = values(server)
    server.stop()
    with Database(place) as database:
        recorded = {
            f"{one.metric}{{{one.labels}}}" if one.labels else one.metric
            for one in database.series()
        }
        assert recorded == shown.keys()
        readings = database.readings("rove_publications_received_total")
        assert readings[-1].value == 1
        assert all(after.at > before.at for before, after in pairwise(readings))
        delays = database.readings("rove_delay_max_seconds", 'until="sent"')
        assert max(one.value for one in delays) > 0
        assert shown["rove_metrics_dropped_total"] == 0


def test_only_what_is_asked_for_is_recorded_with_the_name_of_the_broker(
    start_server: Start, place: str
) -> None:
    settings = MetricsSettings(
        database=place,
        every_s=EVERY_S,
        record=("rove_publications_*", "rove_build_info"),
        leave_out=("*_withdrawn_total", "*_repeated_total"),
        broker='the "first"',
    )
    server = start_server(metrics=settings)
    wait_for(lambda: values(server)["rove_metrics_written_total"] > 0)
    server.stop()
    name = 'broker="the \\"first\\""'
    with Database(place) as database:
        found = {(one.metric, one.labels.partition(",")[0]) for one in database.series()}
    assert found == {
        ("rove_publications_received_total", name),
        ("rove_publications_refused_total", name),
        ("rove_publications_unmatched_total", name),
        ("rove_build_info", name),
    }


def test_a_stop_records_a_last_time(start_server: Start, place: str) -> None:
    server = start_server(metrics=MetricsSettings(database=place, every_s=3_600))
    server.post("/publish?topic=a", b"x")
    server.stop()
    with Database(place) as database:
        (last,) = database.readings("rove_publications_received_total")
    assert last.value == 1


def test_nothing_is_recorded_unless_it_is_asked_for(server: Running) -> None:
    assert not any(name.startswith("rove_metrics_") for name in values(server))


@pytest.mark.parametrize(
    ("bad", "said"),
    [("no://where", "cannot use no://where"), ("mysql+no://a:secret@b/c", "rove\\[databases\\]")],
)
def test_what_can_never_work_is_refused_at_the_start(
    bad: str, said: str, start_server: Start
) -> None:
    with pytest.raises(RoveError, match=said) as told:
        start_server(metrics=MetricsSettings(database=bad))
    assert "secret" not in str(told.value)


@pytest.fixture
def postgresql() -> Iterator[DatabaseServer]:
    with serving(PostgreSql) as server:
        yield server


@pytest.mark.soak
def test_an_outage_does_not_touch_the_broker_and_leaves_no_gap(
    start_server: Start, postgresql: DatabaseServer
) -> None:
    """Away when the broker starts, then there, then killed, then there again."""
    place = postgresql.new_database()
    postgresql.kill()
    server = start_server(metrics=MetricsSettings(database=place, every_s=EVERY_S))
    wait_for(lambda: values(server)["rove_metrics_waiting"] > 200)
    there_s = time.time()
    postgresql.start()
    wait_for(lambda: values(server)["rove_metrics_written_total"] > 200)
    postgresql.kill()
    killed_s = time.time()
    waiting = values(server)["rove_metrics_waiting"]
    slowest_s = 0.0
    for _ in range(50):
        begin = time.perf_counter()
        assert server.post("/publish?topic=a", b"x").status == 200
        slowest_s = max(slowest_s, time.perf_counter() - begin)
    wait_for(lambda: values(server)["rove_metrics_waiting"] > waiting + 200)
    assert server.get("/healthz").status == 200
    there_again_s = time.time()
    postgresql.start()
    wait_for(lambda: values(server)["rove_metrics_waiting"] < 200)
    server.stop()
    # A connection that is lost is given up after a minute.
    assert slowest_s < 30
    with Database(place) as database:
        readings = database.readings("rove_uptime_seconds")
        received = database.readings("rove_publications_received_total")
    assert received[-1].value == 50
    assert len([one for one in readings if one.at < there_s]) > 1
    assert len([one for one in readings if killed_s < one.at < there_again_s]) > 1


def lake_with(*keepers: Channel, every_s: float = EVERY_S) -> LakeSettings:
    return LakeSettings(channels=keepers, seconds_per_file=0.05, metrics_every_s=every_s)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    table = DeltaTable(folder / "data" / "lake").to_pyarrow_table(
        filters=[("kind", "=", "metrics")]
    )
    rows: list[dict[str, Any]] = table.sort_by("position").to_pylist()
    return rows


def wait_for_rows(rows: int, folder: Path) -> list[dict[str, Any]]:
    end = time.monotonic() + PATIENCE_S
    while len(found := rows_of(folder)) < rows:
        assert time.monotonic() < end, "metrics did not reach the lake"
        time.sleep(0.02)
    return found


def test_a_channel_gets_what_metrics_says(start_server: Start, tmp_path: Path) -> None:
    retained = Channel("broker", (), ("metrics",))
    server = start_server(lake=lake_with(retained))
    server.post("/publish?topic=a", b"x")
    rows = wait_for_rows(len(rows_of(tmp_path)) + 3, tmp_path)
    assert {row["channel"] for row in rows} == {"broker"}
    assert len({row["id"] for row in rows}) == 1
    payloads = [json.loads(row["payload"]) for row in rows]
    assert [each["row"] for each in payloads] == list(range(1, len(rows) + 1))
    shown = {
        line.rsplit(" ", 1)[0]
        for line in server.get("/metrics").text.splitlines()
        if not line.startswith("#")
    }
    assert set(payloads[-1]["values"]) == shown
    assert {f"rove_{name}_total" for name in BrokerCounters.HELP} <= shown
    assert payloads[-1]["values"]["rove_publications_received_total"] == 1


def test_rows_come_once_and_lives_are_told_apart(start_server: Start, tmp_path: Path) -> None:
    keepers = (
        Channel("one", ("a/#",), ("metrics", "publications")),
        Channel("two", (), ("metrics",)),
    )
    first = start_server(lake=lake_with(*keepers, every_s=3_600))
    first.post("/publish?topic=a/b", b"x")
    first.stop()  # writes a row of its own accord
    second = start_server(lake=lake_with(*keepers, every_s=3_600))
    second.stop()
    third = start_server(lake=lake_with(*keepers, every_s=3_600))
    rows = wait_for_rows(4, tmp_path)  # what the lake did not take before the end, it takes now
    third.stop()
    assert len({row["position"] for row in rows}) == len(rows) == 4
    lives = list(dict.fromkeys(row["id"] for row in rows))
    assert [(row["channel"], lives.index(row["id"])) for row in rows] == [
        ("one", 0), ("two", 0), ("one", 1), ("two", 1)
    ]  # fmt: skip
    values = [json.loads(row["payload"])["values"] for row in rows]
    received = [each["rove_publications_received_total"] for each in values]
    assert received == [1, 1, 0, 0]


def test_nothing_is_written_where_no_channel_keeps_it(start_server: Start, tmp_path: Path) -> None:
    server = start_server(lake=lake_with(Channel("air", ("air/#",))))
    server.post("/publish?topic=air/b", b"x")
    time.sleep(5 * EVERY_S)
    server.stop()
    assert rows_of(tmp_path) == []


@pytest.mark.parametrize(
    ("now_s", "waits_s"),
    [(0.0, 5.0), (4.0, 11.0), (4.9999, 10.0001), (5.0, 10.0), (5.1, 9.9), (9.0, 6.0), (10.0, 5.0)],
)
def test_rows_are_in_the_middle_of_intervals_one_in_each(now_s: float, waits_s: float) -> None:
    assert wait_s(now_s, 10.0) == pytest.approx(waits_s)
    assert wait_s(1_700_000_000 + now_s, 10.0) == pytest.approx(waits_s)
