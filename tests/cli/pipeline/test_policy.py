"""`rove pipeline policy`: a real run, its table, and what is refused before Spark starts."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rove.cli import main
from rove.cli.pipeline import policy as pipeline_policy
from rove.lake.log import open_for_writing
from rove.pipeline.policies.decisions import HypotheticalPolicy
from tests.effort import PATIENCE_S
from tests.pipeline.policies.test_replay import TRIED, Written


def refused(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["pipeline", "policy", *words]) == 2
    said = capfd.readouterr()
    assert said.out == ""
    return said.err


def expected(written: Written) -> dict[str, int]:
    decided = [
        one
        for one in HypotheticalPolicy(TRIED).take(written.rows)
        if one.row.client_id in ("c1", "c2")
    ]
    return {
        "messages": len(decided),
        "sent": sum(len(one.outputs) for one in decided),
        "bytes_in": sum(one.size_bytes for one in decided),
        "steps": sum(one.steps for one in decided),
    }


@pytest.mark.soak
def test_a_policy_is_tried_on_some_clients_and_days(tmp_path: Path, spark: Any) -> None:
    written = Written(tmp_path / "lake", seed=9)
    lake = written.live(40)
    parser = argparse.ArgumentParser()
    pipeline_policy.configure(parser)
    words = [str(lake.uri), "-", "--client", "c1", "--client", "c2", "--channel", "air"]
    found = pipeline_policy.counted(spark, lake, TRIED, parser.parse_args(words), None)
    assert {one["client_id"] for one in found} == {"c1", "c2"}
    assert found[0]["messages"] >= found[1]["messages"]
    total = pipeline_policy._total(found)
    assert {name: total[name] for name in expected(written)} == expected(written)


@pytest.mark.soak
def test_a_whole_run(tmp_path: Path) -> None:
    """In a process of its own, as a user starts it; the other tests' Spark stays as it is."""
    written = Written(tmp_path / "lake", seed=9)
    lake = written.live(40)
    file = tmp_path / "tried.policy"
    file.write_text(TRIED)
    words = [
        *(sys.executable, "-W", "ignore", "-m", "rove", "pipeline", "policy"),
        *(str(lake.uri), str(file), "--client", "c1", "--client", "c2", "--json"),
        *("--since", "2023-11-14", "--until", "2023-11-14T23:00"),
        *("--master", "local[1]", "--memory", "512m"),
    ]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ran.returncode == 0, (ran.returncode, ran.stderr, ran.stdout)
    said: dict[str, Any] = json.loads(ran.stdout)
    total = said["total"]
    assert {name: total[name] for name in expected(written)} == expected(written)


def row(client_id: str, messages: int, **facts: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(pipeline_policy._SUMMED, 0)
    found = {"client_id": client_id, "subscription": 0, "kinds": {}, "messages": messages}
    return {**nothing, **found, **facts}


def test_the_table_says_what_was_saved_and_what_was_stopped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = [
        row("ann", 1_200, sent=300, bytes_in=2_000_000, bytes_out=500_000, changed=300),
        row("bob", 10, subscription=7, stopped=4, kinds={"steps": 3, "time": 1}, different=2),
    ]
    total = pipeline_policy._total(found)
    pipeline_policy._show(found, total, 5)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == " ".join(pipeline_policy.HEADINGS).split()
    assert lines[1].split()[:9] == [
        "ann",
        "session",
        "1,200",
        "300",
        "2.0",
        "MB",
        "500",
        "KB",
        "75%",
    ]
    assert lines[2].split()[:4] == ["bob", "subscription", "7", "10"]
    assert lines[3].split()[:4] == ["all", "5", "policies", "1,210"]
    assert lines[4:] == [
        "3 more with fewer messages; see --all",
        "stopped: 3 by steps, 1 by time",
        "2 decisions are not those of the log",
    ]


def test_what_is_wrong_is_told_before_spark_starts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.policy"
    file.write_text("import os")
    lake = tmp_path / "lake"
    assert "there is no lake" in refused(capfd, str(lake), str(file))
    open_for_writing(lake)
    assert "line 1" in refused(capfd, str(lake), str(file))
    since = ("--since", "2026-11-02", "--until", "2026-11-01")
    assert "--since must lie before --until" in refused(capfd, str(lake), *since)
    assert "--since takes" in refused(capfd, str(lake), "--since", "yesterday")
