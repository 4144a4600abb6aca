"""`rove monitor`: what its words mean, before anything is served."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from rove.cli import main
from rove.cli.monitor import command as monitor
from rove.errors import UsageError


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
