"""What the console refuses by itself; talking to a world is in `test_world_live`."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec
import pytest

from rove.live.console import ConsoleError, console
from rove.live.role_process import RUN_TOPIC, Announcement
from rove.mqtt.encoder import encode
from rove.mqtt.packets import Publish
from tests.live.test_mqtt_bus import shore
from tests.live.test_role_process import small


def talk(folder: Path, announced: bytes) -> str:
    """What becomes of a command to a world that was announced like this."""

    def at(url: str) -> str:
        with console(url) as talking:
            assert talking.tick > 0
            return talking.say("stop player1")

    async def scene() -> str:
        async with shore(folder, [1]) as here:
            here.links[1].say(encode(Publish(RUN_TOPIC, announced, 0, True)))
            here.links[1].flush()
            url = f"mqtt://127.0.0.1:{here.server.ports['mqtt']}"
            return await asyncio.to_thread(at, url)

    return asyncio.run(scene())


def test_no_world_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConsoleError, match="start one with `rove world run SCENARIO --live"):
        talk(tmp_path, b"nonsense")


def test_a_world_that_is_over_is_told(tmp_path: Path) -> None:
    over = Announcement("x", time.time() - 60.0, small(seconds=1.0))
    with pytest.raises(ConsoleError, match="has come to its end"):
        talk(tmp_path, msgspec.json.encode(over))


def test_a_world_that_does_not_answer_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rove.live.console._PATIENCE_S", 0.1)
    silent = Announcement("x", time.time() - 1.0, small(seconds=1_000.0))
    with pytest.raises(ConsoleError, match="nobody says what became of 'stop player1'"):
        talk(tmp_path, msgspec.json.encode(silent))
