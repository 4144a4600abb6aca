"""`rove pipeline`: its parts, the options of Spark, and the doctor's table."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

import pytest

from rove.cli.pipeline import command as pipeline
from rove.errors import UsageError
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
