"""`rove doctor`: a table for people, JSON for programs, and an exit code for both."""

from __future__ import annotations

import argparse
import json
import socket
from pathlib import Path

import pytest

from rove.cli import doctor
from rove.serve.config import keys


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in keys().values():
        monkeypatch.delenv(key.variable, raising=False)


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    doctor.configure(parser)
    return doctor.run(parser.parse_args(words))


def test_all_is_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--mqtt-port", "0", "--http-port", "0", "--data", str(tmp_path))
    assert run(*options) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["ok", "python"]
    assert lines[-1].startswith("0 problems, ")
    assert run(*options, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is True
    assert {"subject": "configuration", "state": "ok", "text": "a broker would accept it",
            "advice": ""} in answer["findings"]  # fmt: skip


def test_a_problem_is_an_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = ("--mqtt-port", str(port), "--http-port", "off", "--data", str(tmp_path))
        assert run(*options) == 1
        lines = capsys.readouterr().out.splitlines()
        at = next(n for n, line in enumerate(lines) if f"port {port}" in line)
        assert lines[at].startswith("problem ")
        assert "→ stop what runs there" in lines[at + 1]
        assert lines[-1].startswith("1 problems")
        assert run(*options, "--json") == 1
        assert json.loads(capsys.readouterr().out)["ok"] is False


def test_a_configuration_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rove.toml"
    path.write_text("[limit]\n")
    assert run("--config", str(path)) == 1
    assert "there is no section `limit`; did you mean `limits`?" in capsys.readouterr().out


def test_other_folders_of_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = tmp_path / "tables"
    tables.mkdir()
    (tables / "part-1.parquet").write_bytes(b"PAR1")
    options = ("--mqtt-port", "0", "--http-port", "0", "--data", str(tmp_path / "data"))
    assert run(*options, "--files", str(tables), "--files", str(tmp_path / "no"), "--deep") == 1
    out = capsys.readouterr().out
    assert f"{tables}/part-1.parquet cannot be read: " in out
    assert f"{tmp_path}/no is no folder" in out
