"""A ward over a real broker: subscribers are clients, and their policies run in the broker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rove.cli.world.view import audience_table, device_table
from rove.errors import RoveError
from rove.live.broker_audiences import Tell, play_audiences
from rove.serve.server import Server
from rove.serve.settings import Config, DataSettings, ListenSettings
from rove.world.runs.scenario_run import ScenarioResult
from rove.world.runs.scenarios import load_scenario

SCENARIO = """
title = "T"
about = "For tests."
seconds = 1.5
[map]
name = "ward"
[people]
players = 2
[engines]
use = []
[ward]
patients = 4
[[audiences]]
name = "all"
topic = "ward/+/vitals"
text = "pulse >= 0"
[[audiences]]
name = "near"
topic = "ward/+/vitals"
text = "x BETWEEN me.x - 1000 AND me.x + 1000"
count = 2
follow = true
[[audiences]]
name = "nearly empty"
topic = "ward/#"
text = "pulse >= 0"
count = 2
patients = 2
policy = "icu.policy"
device = { battery = [0.2, 0.2], bits_per_s = [1e8, 1e8], report_s = 1 }
"""


async def played(folder: Path, tell: Tell) -> ScenarioResult:
    """Over a broker in this process."""
    (folder / "s.toml").write_text(SCENARIO)
    listen = ListenSettings(mqtt_port=0, http_port="off")
    data = DataSettings(folder=str(folder / "data"), durability="none")
    server = Server(Config(listen=listen, data=data))
    await server.start()
    try:
        url = f"mqtt://127.0.0.1:{server.ports['mqtt']}"
        return await play_audiences(load_scenario(folder / "s.toml"), url, tell)
    finally:
        await server.stop()


def test_what_is_published_reaches_clients_and_policies_decide(tmp_path: Path) -> None:
    told: list[float] = []
    result = asyncio.run(played(tmp_path, lambda at, _: told.append(at)))
    of = result.audiences()
    assert told == pytest.approx([1.0])
    assert result.ticks == 15
    # Four patients, every second; pictures are not asked for.
    assert of["all"]["notifications"] == 6
    assert of["near"]["notifications"] == 12
    # Only the pulse, once for each of two patients of two doctors: all else waits five minutes.
    # (Unless somebody's heart is out of bounds, which it is not with this seed.)
    nearly_empty = of["nearly empty"]
    assert nearly_empty["notifications"] == nearly_empty["received"] == 4
    assert nearly_empty["notified_bytes"] < 400
    assert 0.19 < nearly_empty["battery"] < 0.2
    assert nearly_empty["network"] == 1.0
    devices = device_table(result)
    assert devices is not None
    assert (devices.row_count, audience_table(result).row_count) == (1, 3)


def test_a_connection_for_each_has_an_end(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(SCENARIO.replace("count = 2", "count = 1000"))
    scenario = load_scenario(tmp_path / "s.toml")
    with pytest.raises(RoveError, match="2,001 subscribers"):
        asyncio.run(play_audiences(scenario, "mqtt://127.0.0.1:1"))
