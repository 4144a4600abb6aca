"""Executors that do not see what the driver sees are found out, and named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rove.bench.pipeline.feed import Feed, publish_some
from rove.pipeline.spark import storage_probe
from rove.pipeline.spark.storage_probe import Probe, ProbeError, ProbeResult, probe, probe_with

ELSEWHERE = """
import sys, msgspec
from rove.pipeline.spark.storage_probe import Probe, run_probe
probe = msgspec.json.decode(sys.stdin.buffer.read(), type=Probe)
sys.stdout.buffer.write(msgspec.json.encode(run_probe(probe)))
"""
HERE = "/proc/self/cwd"
"""A folder that has this name in every process, and is another one in each."""


def in_another_folder(folder: Path) -> Any:
    """For `run_each`: a process that has another folder under the same name."""

    def run(
        _spark: object, _look: object, probes: list[Probe], _result: object
    ) -> list[ProbeResult]:
        answers = [
            subprocess.run(
                [sys.executable, "-c", ELSEWHERE],
                input=msgspec.json.encode(one),
                cwd=folder,
                capture_output=True,
                check=True,
            ).stdout
            for one in probes
        ]
        return [msgspec.json.decode(each, type=ProbeResult) for each in answers]

    return run


@pytest.fixture
def lake(tmp_path: Path) -> str:
    feed = Feed(tmp_path / "lake")
    publish_some(feed, 3, 1.0)
    feed.write()
    return str(tmp_path / "lake")


def test_who_sees_everything_leaves_nothing_behind(lake: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    probe_with(None, 3, [lake], [str(out)])
    assert list(out.iterdir()) == []


def test_spark_runs_it(spark: Any, lake: str, tmp_path: Path) -> None:
    probe(spark, reads=["/nowhere"], writes=["/nowhere"])  # one machine: nothing to ask
    out = tmp_path / "out"
    probe_with(spark, 2, [lake], [str(out)])
    assert list(out.iterdir()) == []


def test_a_table_that_an_executor_does_not_see_is_named(
    lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(lake)
    monkeypatch.setattr(storage_probe, "run_each", in_another_folder(tmp_path / "other"))
    with pytest.raises(
        ProbeError, match=rf"on the executor \S+: {HERE}/_delta_log/0+1.json was not"
    ):
        probe_with(None, 1, [HERE], [])


def test_an_output_that_is_another_folder_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    monkeypatch.setattr(storage_probe, "run_each", in_another_folder(tmp_path / "other"))
    with pytest.raises(ProbeError, match=rf"{HERE}/_probe-\w+ was not found; a folder must"):
        probe_with(None, 1, [], [HERE])
    assert list((tmp_path / "mine").iterdir()) == []


def test_what_is_written_where_nobody_looks_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def writes_elsewhere(_spark: object, _look: object, probes: list[Probe], _: object) -> Any:
        return [ProbeResult("far") for _ in probes]

    monkeypatch.setattr(storage_probe, "run_each", writes_elsewhere)
    problem = f"does not find what the executor far writes to {tmp_path}"
    with pytest.raises(ProbeError, match=problem):
        probe_with(None, 1, [], [str(tmp_path)])


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Exception, match=f"cannot write {tmp_path}/file/_probe-"):
        probe_with(None, 1, [], [str(tmp_path / "file")])
