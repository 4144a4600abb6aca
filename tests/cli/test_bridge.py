"""`rove bridge kafka`: what options and files make of a config, and errors in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from rove.bridge.routes import BridgeConfig
from rove.cli import bridge, main
from rove.cli.common.connection import URL_VARIABLE

ROUTE = ["--route", "mqtt:air/#", "kafka:air"]


@pytest.fixture
def configs(monkeypatch: pytest.MonkeyPatch) -> list[BridgeConfig]:
    """What would be run."""
    seen: list[BridgeConfig] = []

    async def note(config: BridgeConfig, arguments: object) -> None:
        seen.append(config)

    monkeypatch.setattr(bridge, "_bridge", note)
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    return seen


def test_options_make_a_configuration(configs: list[BridgeConfig]) -> None:
    words = ["bridge", "kafka", "--kafka", "h:9092", "--lake", "lake", *ROUTE, "--key", "place"]
    assert main([*words, "--filter", "NO2 > 40", "--start", "latest", "--name", "b"]) == 0
    [config] = configs
    assert (config.kafka, config.lake, config.name, config.broker) == ("h:9092", "lake", "b", "")
    [route] = config.routes
    assert (route.filter, route.key, route.start) == ("NO2 > 40", "place", "latest")


def test_options_come_over_a_file(
    configs: list[BridgeConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "routes.toml"
    file.write_text(
        'kafka = "h:1"\nlake = "lake"\n[[routes]]\nfrom = "kafka:a"\nto = "mqtt:a/{key}"\n'
    )
    monkeypatch.setenv(URL_VARIABLE, "mqtt://there")
    assert main(["bridge", "kafka", str(file), "--kafka", "h:2", *ROUTE]) == 0
    [config] = configs
    assert (config.kafka, config.broker) == ("h:2", "mqtt://there")
    assert [route.kafka_topic for route in config.routes] == ["a", "air"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "say where Kafka is"),
        (["--kafka", "h:1"], "has no routes"),
        (["--kafka", "h:1", "--key", "x"], "--key is for routes that --route gives"),
        (["--kafka", "h:1", *ROUTE], "say where that is: lake"),
        (["missing.toml"], "cannot read missing.toml: No such file or directory"),
    ],
)
def test_what_is_missing_is_told(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bridge", "kafka", *words]) == 2
    said = capsys.readouterr().err
    assert why in said
    assert said.count("\n") == 1
