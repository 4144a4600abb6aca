"""The options of a live world, what is shown of it, and the console as a script uses it."""

from __future__ import annotations

import argparse
import io
import json
import math
import sys

import pytest

from rove.cli.world.live import (
    add_live_arguments,
    configure_play,
    json_rows,
    lines,
    run_play,
    show_delays,
)
from rove.live.launcher import LiveResult, ProcessFacts
from rove.world.runs.scenario_run import ScenarioResult
from tests.live.test_launcher import Playing, crowd, url

__all__ = ["url"]


def result(updates: int = 120) -> LiveResult:
    nothing = math.nan
    return LiveResult(
        result=ScenarioResult(
            scenario="test",
            title="A test",
            seed=1,
            players=3,
            entities=3,
            servers=1,
            seconds=4.0,
            ticks=40,
            trace_hash="abc",
            engines=(),
            samples=(),
            heard=(),
            elapsed_s=4.0,
        ),
        updates=updates,
        delay_p50_ms=1.5 if updates else nothing,
        delay_p95_ms=2.5 if updates else nothing,
        delay_p99_ms=3.5 if updates else nothing,
        delay_max_ms=4.5 if updates else nothing,
        client_p99_ms={0: 3.0, 7: 4.0} if updates else {},
        processes=(ProcessFacts("broker", 2.0), ProcessFacts("host 1", 1.0, 0.25, 2)),
        was_stopped=not updates,
    )


def test_a_person_reads_lines() -> None:
    shown = list(lines(result()))
    assert shown[0] == (
        "120 updates reached 2 clients: half within 1.5 ms, 95 % within 2.5 ms, "
        "99 % within 3.5 ms, all within 4.5 ms"
    )
    assert shown[1] == "the worst off is client 7: 99 % within 4.0 ms"
    assert shown[2] == "broker: 2.0 s of CPU, 50% of a core"
    assert shown[3] == "host 1: 1.0 s of CPU, 25% of a core, late by 250 ms at most"


def test_where_nothing_was_heard_no_delay_is_told() -> None:
    assert list(lines(result(0)))[:2] == [
        "stopped after 4 s",
        "broker: 2.0 s of CPU, 50% of a core",
    ]
    assert next(json_rows(result(0))) == {"updates": 0, "clients": 0, "was_stopped": True}


def test_a_program_reads_json(capsys: pytest.CaptureFixture[str]) -> None:
    show_delays(result(), as_json=True)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0]["delay_p99_ms"] == 3.5
    assert rows[0]["client_p99_ms_max"] == 4.0
    assert rows[2] == {"process": "host 1", "cpu_s": 1.0, "late_s_max": 0.25, "late_ticks": 2}


def test_options_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_live_arguments(parser)
    given = parser.parse_args(["--live", "--servers", "3"])
    assert (given.live, given.servers, given.client_processes, given.broker) == (True, 3, 1, None)
    with pytest.raises(SystemExit):
        parser.parse_args(["--client-processes", "0"])
    assert "0 is not a whole number, 1 or more" in capsys.readouterr().err


@pytest.mark.soak
def test_a_script_talks_to_a_world(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    playing = Playing(url, crowd(5.0))
    playing.start()
    playing.await_beginning()
    parser = argparse.ArgumentParser()
    configure_play(parser)
    typed = "help go\n\nstop player1\nstop\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    assert run_play(parser.parse_args(["--broker", url])) == 1
    shown = capsys.readouterr()
    assert "walk there and stand" in shown.out
    assert shown.out.strip().endswith(": done")
    assert "is missing" in shown.err
    playing.join(60)
    assert playing.fault is None
