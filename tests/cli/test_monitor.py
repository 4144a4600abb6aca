"""`rove monitor`: its arguments, and `rove monitor export`."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from rove.cli import main, monitor
from rove.errors import UsageError
from rove.metrics.database import Database, Reading, RunRecord
from rove.metrics.world_readings import world_labels


def settings(*words: str) -> Any:
    parser = argparse.ArgumentParser()
    monitor.configure(parser)
    return monitor._settings(parser.parse_args(words))


def test_a_scenario_is_played_as_it_is_wanted() -> None:
    found = settings("dense", "--players", "7", "--engines", "area,pes", "--seed", "5")
    assert found.scenario.name == "dense"
    assert found.scenario.people.players == 7
    assert found.scenario.engines.use == ("area", "evolving-pes")
    assert (found.host, found.port) == ("127.0.0.1", 8090)


def test_a_world_is_there_unless_there_is_something_else() -> None:
    assert settings().scenario.name == "crowd"
    assert settings("--broker", "http://127.0.0.1:8080").scenario is None
    assert settings("dense", "--database", "m").scenario.name == "dense"


def test_a_database_may_be_named_where_nobody_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROVE_DATABASE", "mysql://rove:secret@host/metrics")
    assert settings().database == "mysql://rove:secret@host/metrics"
    assert settings("--database", "other").database == "other"


def test_a_key_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sesame\n")
    assert settings("--password-file", str(tmp_path / "key")).key == "sesame"
    assert settings().key is None
    (tmp_path / "empty").write_text("")
    with pytest.raises(UsageError, match="empty"):
        settings("--password-file", str(tmp_path / "empty"))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["crowd", "dense"], "one scenario"),
        (["nothing"], "no scenario"),
        (["--database", "m", "--players", "4"], "name one"),
        (["--host", "0.0.0.0", "--port", "0"], "--password-file"),
        (["--broker", "mqtt://localhost", "--port", "0"], "HTTP interface"),
        (["--port", "70000"], "70000 is not a whole number from 0 to 65,535"),
        (["--port", "x"], "whole number"),
    ],
)
def test_what_cannot_be_is_told(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["monitor", *words]) == 2
    assert why in capsys.readouterr().err


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A database with one run."""
    path = str(tmp_path / "metrics.sqlite")
    labels = world_labels("object", "dense/1", "dense")
    with Database(path) as database:
        database.put_run(RunRecord("dense/1", "dense", "High density", 1, 1e9, 1e9 + 10))
        database.put_readings(
            [Reading("rove_world_subscriptions", labels, 1e9 + n, n) for n in range(10)]
        )
    return path


def test_a_report_is_written_where_it_is_wanted(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.html"
    code = main(["monitor", "export", "dense/1", "--database", place, "--out", str(out)])
    assert code == 0
    assert capsys.readouterr().out.startswith(f"{out}: ")
    assert "High density" in out.read_text(encoding="utf-8")


def test_without_a_name_the_file_is_called_like_the_run(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["monitor", "export", "dense/1", "--database", place]) == 0
    assert (tmp_path / "dense-1.html").is_file()


def test_it_says_what_is_missing(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["monitor", "export", "dense/1"]) == 2
    assert "--database" in capsys.readouterr().err
    assert main(["monitor", "export", "other", "--database", place]) != 0
    assert "there is no run other" in capsys.readouterr().err
    missing = str(tmp_path / "nowhere" / "report.html")
    assert main(["monitor", "export", "last", "--database", place, "--out", missing]) != 0
    assert "cannot write" in capsys.readouterr().err
