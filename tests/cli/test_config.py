"""`rove config`: what is in force, whence, and what it means."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from rove.cli import config
from rove.serve.config import example, keys


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in keys().values():
        monkeypatch.delenv(key.variable, raising=False)


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    config.configure(parser)
    return config.run(parser.parse_args(words))


def test_every_value_with_its_origin_and_meaning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rove.toml"
    path.write_text("[limits]\nreceive_max = 9\n")
    monkeypatch.setenv("ROVE_LOG__LEVEL", "debug")
    assert run("--config", str(path), "--mqtt-port", "0", "--data", "here") == 0
    lines = {" ".join(line.split()) for line in capsys.readouterr().out.splitlines()}
    assert f"receive_max = 9 {path}" in lines
    assert 'level = "debug" ROVE_LOG__LEVEL' in lines
    assert "mqtt_port = 0 command line" in lines
    assert 'folder = "here" command line' in lines
    assert "http_port = 8080 default" in lines
    assert any(
        line.startswith("Subscriptions of one session. One more is refused") for line in lines
    )


def test_in_brief_there_are_no_explanations(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--brief") == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) == len(keys()) + len({key.section for key in keys().values()})
    assert "refused" not in out


def test_passwords_of_urls_are_not_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROVE_METRICS__DATABASE", "mysql+pymysql://rove:geheim@there/x")
    for words in ((), ("--json",)):
        assert run(*words) == 0
        out = capsys.readouterr().out
        assert "mysql+pymysql://rove:***@there/x" in out
        assert "geheim" not in out


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json", "--http-port", "off") == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert answer["settings"].keys() == keys().keys()
    assert answer["settings"]["listen.http_port"] == {
        "value": "off",
        "default": 8080,
        "origin": "command line",
        "allowed": 'an integer from 0 up to 65_535 or "off"',
        "environment": "ROVE_LISTEN__HTTP_PORT",
        "reloadable": False,
        "explanation": "One port for the interface, server-sent events and WebSockets.",
    }
    assert answer["problems"] == answer["warnings"] == []


def test_what_a_broker_would_refuse_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rove.toml"
    path.write_text('[listen]\nmqtt_host = "0.0.0.0"\n')
    assert run("--config", str(path)) == 1
    assert "rove: problem: [listen] mqtt_host = '0.0.0.0' can be" in capsys.readouterr().err
    assert run("--config", str(path), "--json") == 1
    assert len(json.loads(capsys.readouterr().out)["problems"]) == 2
    path.write_text('[data]\ndurability = "none"\n')
    assert run("--config", str(path)) == 0
    assert "rove: warning: [data] durability" in capsys.readouterr().err


def test_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--example") == 0
    assert capsys.readouterr().out == example()
