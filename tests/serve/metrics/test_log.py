"""Metrics in the lake: the figures of `/metrics`, each row once, over restarts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from rove.broker.counters import BrokerCounters
from rove.serve.config import Channel, Lake
from rove.serve.metrics.log import wait_s
from tests.effort import PATIENCE_S
from tests.serve.conftest import Running

Start = Callable[..., Running]
EVERY_S = 0.05


def lake_with(*keepers: Channel, every_s: float = EVERY_S) -> Lake:
    return Lake(channels=keepers, seconds_per_file=0.05, metrics_every_s=every_s)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    table = DeltaTable(folder / "data" / "lake").to_pyarrow_table(
        filters=[("kind", "=", "metrics")]
    )
    rows: list[dict[str, Any]] = table.sort_by("position").to_pylist()
    return rows


def wait_for(rows: int, folder: Path) -> list[dict[str, Any]]:
    end = time.monotonic() + PATIENCE_S
    while len(found := rows_of(folder)) < rows:
        assert time.monotonic() < end, "metrics did not reach the lake"
        time.sleep(0.02)
    return found


def test_a_channel_gets_what_metrics_says(start_server: Start, tmp_path: Path) -> None:
    retained = Channel("broker", (), ("metrics",))
    server = start_server(lake=lake_with(retained))
    server.post("/publish?topic=a", b"x")
    rows = wait_for(len(rows_of(tmp_path)) + 3, tmp_path)
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
    rows = wait_for(4, tmp_path)  # what the lake did not take before the end, it takes now
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
