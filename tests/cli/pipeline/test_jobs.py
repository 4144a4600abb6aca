"""`rove pipeline run`, `status` and `stop`, as far as they are the command line's."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from rove.cli.pipeline import jobs as pipeline_jobs
from rove.errors import UsageError
from rove.pipeline.jobs import registry as jobs
from rove.pipeline.jobs.job import JobSettings
from rove.pipeline.jobs.status import Reporter, Status, StepReport, held
from rove.pipeline.spark.session import SparkSettings


def parsed(name: str, words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    getattr(pipeline_jobs, f"configure_{name}")(parser)
    return parser.parse_args(words)


def report(out: Path, job: str, *, error: str | None = None) -> None:
    (out / job).mkdir(parents=True)
    reporter = Reporter(out / job, job)
    reporter.look(lake_position=1239)
    step = StepReport(position=5, rows_in=1000, at=time.time() - 125, batch=7, notes=("look here",))
    reporter.progress(step)
    reporter.end("failed" if error else "done", error)


def test_run_hands_on_what_it_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def record(names: list[str], settings: JobSettings, spark: object) -> list[Status]:
        seen.extend([names, settings, spark])
        return []

    monkeypatch.setattr(jobs, "run_jobs", record)
    words = ["match", "ingest", "--lake", str(tmp_path / "l"), "--out", str(tmp_path / "o")]
    words += ["--once", "--engine", "spark", "--trigger", "0.5", "--max-rows", "10"]
    words += ["--buckets", "3", "--start", "9", "--set", "url=http://x?a=b", "--json"]
    words += ["--database", "m.db"]
    spark = SparkSettings(master="local[1]")
    assert pipeline_jobs.run(parsed("run", words), spark) == 0
    expected = JobSettings(
        lake=str(tmp_path / "l"), out=str(tmp_path / "o"), once=True, trigger_s=0.5, max_rows=10,
        engine="spark", buckets=3, start=9, options={"url": "http://x?a=b"},
        database="m.db",
    )  # fmt: skip
    assert seen == [["match", "ingest"], expected, spark]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--trigger", "0"], "--trigger must be more than 0, not 0"),
        (["--max-rows", "-1"], "--max-rows must be more than 0, not -1"),
        (["--set", "url"], "--set takes NAME=VALUE, not 'url'"),
    ],
)
def test_wrong_arguments_are_told(words: list[str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        pipeline_jobs.run(parsed("run", ["--lake", "l", "--out", "o", *words]))


def test_status_is_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report(tmp_path, "match")
    report(tmp_path, "ingest", error="the disk is full")
    assert pipeline_jobs.status(parsed("status", ["--out", str(tmp_path)])) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == list(pipeline_jobs.HEADINGS)
    assert lines[1].split()[:5] == ["ingest", "failed", "7", "1,234", "2m"]
    assert lines[2].split()[:2] == ["match", "done"]
    assert lines[1].index("1,234") + 5 == lines[0].index("lag") + 3, "numbers stand at the right"
    assert lines[3:] == ["ingest: the disk is full", "ingest: look here", "match: look here"]
    assert pipeline_jobs.status(parsed("status", ["match", "--out", str(tmp_path)])) == 0


def test_status_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report(tmp_path, "match")
    pipeline_jobs.status(parsed("status", ["--out", str(tmp_path), "--json"]))
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["job"], found["lag_rows"], found["last_error"]) == ("match", 1234, None)


def test_stop_waits_for_the_end(tmp_path: Path) -> None:
    from rove.pipeline.jobs.status import StatusError

    with held(tmp_path / "match", "match"):
        Reporter(tmp_path / "match", "match")
        arguments = parsed("stop", ["--out", str(tmp_path), "--wait", "0.1"])
        with pytest.raises(StatusError, match=r"match .* has not ended"):
            pipeline_jobs.stop(arguments)
        assert (tmp_path / "match" / "_stop").exists()
