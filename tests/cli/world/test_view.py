"""The tables of a run: each figure in its column, the live engine marked."""

from __future__ import annotations

import io
import json

import msgspec
import pytest
from rich.console import Console
from rich.table import Table

from rove.cli.world.view import (
    audience_table,
    closing_line,
    device_table,
    engine_table,
    heading,
    json_rows,
    show,
)
from rove.world.runs.scenario_run import EngineFacts, RunSample, ScenarioResult

FIGURES = {
    "subscriptions": 1200.0,
    "subscribes": 5000.0,
    "unsubscribes": 3800.0,
    "replica_messages": 77.0,
    "update_notifications": 123456.0,
    "published_bytes": 1_000_000.0,
    "delivered_bytes": 2_500_000.0,
    "matching_s": 0.25,
    "missing_s": 0.0,
    "stale_s": 12.34,
}
HEARD = {
    "subscriptions": 10.0,
    "operations": 12.0,
    "publications": 4000.0,
    "published_bytes": 1_000_000.0,
    "notifications": 40.0,
    "notified_bytes": 2_000.0,
    "matching_s": 0.12,
}


@pytest.fixture
def result() -> ScenarioResult:
    early = dict.fromkeys(FIGURES, 0.0)
    return ScenarioResult(
        scenario="dense",
        title="Many in one place",
        seed=3,
        players=1,
        entities=1500,
        servers=4,
        seconds=60.0,
        ticks=600,
        trace_hash="abcd",
        engines=(EngineFacts("object", 0.2, live=False), EngineFacts("area", 0.7, live=True)),
        samples=(
            RunSample(1.0, "object", early),
            RunSample(1.0, "area", early),
            RunSample(60.0, "object", FIGURES),
            RunSample(60.0, "area", {**FIGURES, "missing_s": 3.0}),
        ),
        heard=(
            RunSample(60.0, "smog", HEARD),
            RunSample(60.0, "tram", {**HEARD, "notifications": 0.0}),
        ),
        handed_over=1234,
        elapsed_s=3.0,
    )


def lines_of(table: Table) -> list[list[str]]:
    """The cells of a table as they are printed; two spaces or more are between columns."""
    out = io.StringIO()
    Console(file=out, width=200).print(table)
    return [line.split() for line in out.getvalue().splitlines()]


def test_engines(result: ScenarioResult) -> None:
    head, object_based, area_based = lines_of(engine_table(result))
    assert head[:4] == ["engine", "delay", "subscriptions", "operations"]
    assert " ".join(object_based) == "object 0.2 s 1,200 8,800 77 123,456 3.5 MB 250 ms 0 s 12.3 s"
    assert area_based[:2] == ["●", "area"]
    assert " ".join(area_based).endswith("250 ms 3.0 s 12.3 s")


def test_audiences(result: ScenarioResult) -> None:
    head, smog, tram = lines_of(audience_table(result))
    assert head[:3] == ["audience", "subscriptions", "operations"]
    assert " ".join(smog) == "smog 10 12 4,000 1.0 MB 40 2.0 KB 120 ms"
    assert " ".join(tram) == "tram 10 12 4,000 1.0 MB 0 2.0 KB 120 ms"


def test_devices(result: ScenarioResult) -> None:
    assert device_table(result) is None
    read = {"changed": 7.0, "received": 30.0, "received_bytes": 1500.0, "network": 0.75}
    reading = RunSample(60.0, "tram", {**HEARD, **read, "battery": 0.126})
    table = device_table(msgspec.structs.replace(result, heard=(result.heard[0], reading)))
    assert table is not None
    _, tram = lines_of(table)
    assert " ".join(tram) == "tram 40 2.0 KB 7 30 1.5 KB 75% 13%"


def test_first_and_last_line(result: ScenarioResult) -> None:
    assert heading(result) == (
        "dense: Many in one place; 1 player, 1,500 entities in all, 4 servers, seed 3"
    )
    assert closing_line(result) == (
        "60 s of the world, 600 ticks, 1,234 hand-overs in 3.0 s, 20.0x real time; trace abcd"
    )


def test_all_of_it(result: ScenarioResult, capsys: pytest.CaptureFixture[str]) -> None:
    show(result)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 3 + 3 + 1
    assert lines[-1] == closing_line(result)


def test_for_programs(result: ScenarioResult) -> None:
    run, object_based, area_based, smog, _ = (
        json.loads(json.dumps(row)) for row in json_rows(result)
    )
    assert (run["speed"], run["trace_hash"], run["players"]) == (20.0, "abcd", 1)
    assert (object_based["engine"], object_based["live"]) == ("object", False)
    assert (area_based["engine"], area_based["missing_s"]) == ("area", 3.0)
    assert smog == {"audience": "smog", **HEARD}
