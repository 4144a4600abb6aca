"""The options of Spark, the doctor, and the parts for clusters."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rove.cli import main
from rove.cli.pipeline import command as pipeline
from rove.errors import UsageError
from rove.pipeline.spark import executors
from rove.pipeline.spark.session import SparkSettings
from tests.effort import PATIENCE_S

NOWHERE = ("--master", "spark://127.0.0.1:1")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("ROVE_SPARK_")]:
        monkeypatch.delenv(name)


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    pipeline.configure(parser)
    return parser.parse_args(words)


def test_the_options_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pipeline.spark_settings(parse("doctor")) == SparkSettings()
    monkeypatch.setenv("ROVE_SPARK_MASTER", "local[1]")
    words = ("--memory", "3g", "--ui", "--conf", "spark.a=1", "--conf", "spark.b=2", "--debug")
    assert pipeline.spark_settings(parse("doctor", "--brief", *words)) == SparkSettings(
        master="local[1]",
        memory="3g",
        ui=True,
        brief=True,
        conf={"spark.a": "1", "spark.b": "2"},
        debug=True,
    )
    with pytest.raises(UsageError, match="'a=1' is no setting of Spark"):
        pipeline.spark_settings(parse("doctor", "--conf", "a=1"))


def test_every_part_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for name, part in pipeline.PARTS.items():
        with pytest.raises(SystemExit) as done:
            parse(name, "--help")
        assert done.value.code == 0
        out = capsys.readouterr().out
        assert part.summary[1:20] in out
        assert "--master" in out


def test_help_imports_nothing_of_spark() -> None:
    script = """
import argparse, sys
from rove.cli.pipeline import command as pipeline
pipeline.configure(argparse.ArgumentParser())
assert not {"pyspark", "pyarrow", "numpy", "numba"} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=PATIENCE_S)


def test_a_problem_is_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert pipeline.run(parse("doctor", *NOWHERE)) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["ok", "packages"]
    at = next(n for n, line in enumerate(lines) if "no Spark master answers" in line)
    assert lines[at].startswith("problem  master         spark://127.0.0.1:1: ")
    assert "→" in lines[at + 1]
    assert lines[-1].startswith("1 problems, ")
    assert pipeline.run(parse("doctor", *NOWHERE, "--json")) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is False
    assert "packages" in {finding["subject"] for finding in answer["findings"]}


@pytest.mark.soak
def test_it_says_where_it_is_and_ends_when_told() -> None:
    command = [sys.executable, "-m", "rove", "pipeline", "cluster", "--workers", "1"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        # Where the tests themselves run in the background, their children ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("spark://127.0.0.1:")
            daemons = children(process.pid)
            assert daemons
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
    deadline = time.monotonic() + PATIENCE_S
    while any(Path(f"/proc/{pid}").exists() for pid in daemons):
        assert time.monotonic() < deadline, "a daemon is left"
        time.sleep(0.1)


def children(pid: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if int(parent) == pid:
            found.append(int(folder.name))
    return found


def test_it_says_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(executors, "kernel_files", dict)  # compiling takes long
    assert main(["pipeline", "package", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    (wheel,) = tmp_path.glob("rove-*.whl")
    assert f"pip install '{wheel}[spark]'" in told
    assert f"spark-submit --master URL --archives {tmp_path / 'rove.zip'}#rove JOB.py" in told
    assert (tmp_path / "rove.zip").exists()
