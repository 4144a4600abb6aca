"""`rove backtest`: a real run, and everything that is refused before Spark starts."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rove.cli import main
from rove.cli.common.input import moment_of
from rove.cli.pipeline import backtest as command
from rove.errors import UsageError
from rove.lake.log import open_for_writing
from tests.pipeline.tables.test_backtest_sources import BEGIN, DAY, Past

NOW = BEGIN + 3 * DAY
SINCE, UNTIL = "2026-11-01", "2026-11-04T00:00"


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Past:
    return Past(tmp_path_factory.mktemp("past"), rows=200)


def refused(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    """What is said about a command line that is refused."""
    assert main(["backtest", *words]) == 2
    said = capfd.readouterr()
    assert said.out == ""
    return said.err


@pytest.mark.soak
def test_a_whole_run_as_a_user_starts_it(past: Past, tmp_path: Path) -> None:
    """In a process of its own, with a Spark of its own."""
    words = words_of_whole_run(past, tmp_path / "plot.png")
    words += ["--master", "local[1]", "--memory", "512m"]
    command = [sys.executable, "-W", "ignore", "-m", "rove", *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    check_whole_run(past, json.loads(ran.stdout), tmp_path / "plot.png")


@pytest.mark.soak
def test_a_whole_run(
    past: Past,
    tmp_path: Path,
    spark: Any,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On the Spark of the other tests, which stays as it is."""
    monkeypatch.setattr(type(spark), "stop", lambda session: None)
    words = words_of_whole_run(past, tmp_path / "plot.png")
    assert main([*words, "--master", "local[2]", "--memory", "1g"]) == 0
    check_whole_run(past, json.loads(capfd.readouterr().out), tmp_path / "plot.png")


def words_of_whole_run(past: Past, plot: Path) -> list[str]:
    return [
        *("backtest", "NO2 > 40"),
        *("--against", "NO2 > 20 AND kind = 'car'", "--since", SINCE, "--until", UNTIL),
        *("--data", str(past.lake.parent), "--channel", "air", "--plot", str(plot)),
        *("--examples", "2", "--json"),
    ]


def check_whole_run(past: Past, report: dict[str, Any], plot: Path) -> None:
    first, second = (
        {one.publication for one in past.notified(text, BEGIN, NOW, channel="air", me={})}
        for text in ("NO2 > 40", "NO2 > 20 AND kind = 'car'")
    )
    assert report["notifications"] == len(first)
    assert report["both"] == len(first & second)
    assert report["only_second"] == len(second - first)
    assert sum(day["first"] for day in report["days"]) == len(first - second)
    assert len(report["examples"]["first"]) == 2
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_a_bad_text_is_shown_with_a_caret(capfd: pytest.CaptureFixture[str]) -> None:
    said = refused(capfd, "NO2 > > 3")
    assert "NO2 > > 3" in said
    assert "^" in said
    assert "^" in refused(capfd, "NO2 > 3", "--against", "NO2 LIKE 3")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--topic", "a/#/b"), "--topic: # is the last level"),
        (("--topic", "$share/g/a"), "name the filter alone"),
        (("--examples", "-1"), "--examples takes a number from 0 to 1,000"),
        (("--plot", "a.svg"), "--plot draws PNG files"),
        (("--since", "yesterday"), "--since takes how long ago"),
        (("--until", "30x"), "--until takes how long ago"),
        (("--me", "[]"), "--me must be a JSON object"),
        (("--tables", "a", "--lake", "b"), "not allowed with argument"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    capfd: pytest.CaptureFixture[str], words: tuple[str, ...], complaint: str
) -> None:
    assert complaint in refused(capfd, "NO2 > 3", *words)


def test_missing_histories_and_channels_are_named(
    past: Past, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert "there is no lake at" in refused(capfd, "a > 3", "--data", str(tmp_path))
    assert "there are no tables" in refused(capfd, "a > 3", "--tables", str(tmp_path))
    open_for_writing(tmp_path)
    assert "no publications yet" in refused(capfd, "a > 3", "--lake", str(tmp_path))
    said = refused(capfd, "a > 3", "--lake", str(past.lake), "--channel", "sea")
    assert "no channel 'sea'; it has 'air', 'road'" in said
    assert said.count("\n") == 1


def test_moments_as_people_write_them() -> None:
    def moment(written: str) -> float:
        return moment_of(written, "--since", NOW)

    assert moment("now") == NOW
    assert moment("3d") == moment("72h") == BEGIN
    assert moment("0.5w") == NOW - 3.5 * DAY
    assert moment("90m") == moment("5400s") == NOW - 5400
    assert moment("2026-11-01") == moment("2026-11-01T01:00+01:00") == BEGIN
    with pytest.raises(UsageError, match="'soon'"):
        moment("soon")


def test_the_question_is_what_was_written() -> None:
    parser = argparse.ArgumentParser()
    command.configure(parser)
    words = ["x > me.x", "--since", "1d", "--me", '{"x": 5}', "--accepted-at", "2d"]
    asked = command._question(parser.parse_args([*words, "--topic", "air/#"]), NOW)
    assert (asked.since, asked.until, asked.accepted_at) == (NOW - DAY, NOW, NOW - 2 * DAY)
    assert asked.me == {"x": 5}
    assert asked.topic_filter == "air/#"


def test_help_is_quick_because_nothing_heavy_is_imported() -> None:
    heavy = ("pyspark", "pyarrow", "numpy", "matplotlib")
    code = (
        f"import rove.cli.pipeline.backtest, sys; print([m for m in {heavy} if m in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=dict(os.environ),
    )
    assert ran.stdout == "[]\n"
