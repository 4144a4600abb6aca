"""`rove pipeline summary`: several runs in, one table out."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from rove.bench.summaries import SummaryError
from rove.cli.pipeline.summary import add_summary, run_summary
from rove.errors import UsageError
from rove.metrics.database import Database, Reading, RunRecord


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    add_summary(parser)
    return run_summary(parser.parse_args(words))


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Three runs of two measures, one of them compared with something."""
    paths = []
    for number, (speed, ratio) in enumerate(((10_000, 2.0), (12_000, 2.5), (14_000, 3.0))):
        path = tmp_path / f"run{number}.json"
        lines: list[dict[str, object]] = [
            {"name": "speed", "value": speed, "unit": "1/s", "ratio": ratio, "against": "scan"},
            {"name": "memory", "value": 5, "unit": "MB", "goal": "less", "reached": True},
        ]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        paths.append(str(path))
    return paths


def test_a_table_for_people(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*files) == 0
    head, speed, memory = capsys.readouterr().out.splitlines()
    wanted = "measure n mean 95 % median 95 % deviation unit ratio 95 %"
    assert " ".join(head.split()) == wanted
    # 12,000 ± 4.3027 * 2,000 / √3
    assert "speed (against scan)  3  12,000  7,032 to 16,968  12,000  10,000 to 14,000" in speed
    assert speed.rstrip().endswith("2,000  1/s   2.50×  1.258 to 3.742")
    assert " ".join(memory.split()) == "memory 3 5 5 to 5 5 5 to 5 0 MB"


def test_lines_for_programs(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json", *files[:1]) == 0
    speed, memory = map(json.loads, capsys.readouterr().out.splitlines())
    assert speed["n"] == 1
    assert speed["mean"] == speed["median"] == 10_000
    assert speed["mean_low"] is None
    assert speed["deviation"] is None
    assert memory["name"] == "memory"


def test_runs_of_a_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(tmp_path / "metrics.db")
    with Database(place) as database:
        for number in (1, 2):
            database.put_run(RunRecord(f"r{number}", "dense", "", 1, 1e6 * number))
            reading = Reading(
                "rove_world_subscriptions", f'engine="a",run="r{number}"', 1e6, number
            )
            database.put_readings([reading])
    assert run("--database", place, "--json") == 0
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (line["name"], line["n"], line["mean"]) == ("dense.a.subscriptions", 2, 1.5)
    assert run("--database", place, "--json", "--scenario", "other") == 0
    assert capsys.readouterr().out == ""
    for words in ((), ("a.json", "--database", place)):
        with pytest.raises(UsageError, match="one of them"):
            run(*words)


def test_what_is_no_measure_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text('{"name": "a", "value": 1, "unit": "s"}\n{"name": "b"}\n')
    with pytest.raises(SummaryError, match=r"run\.json, line 2 is no measure: .*`value`"):
        run(str(path))
