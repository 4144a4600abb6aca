"""The process that plays, from its beginning to an end that nobody wanted."""

import asyncio
import os
import signal

import pytest

from rove.monitor.motion_frames import header_of
from rove.monitor.world_process import WAITING_MAX, WorldProcess
from rove.monitor.world_worker import RunCommand
from tests.effort import PATIENCE_S
from tests.monitor.conftest import yard


def pid_of(process: WorldProcess) -> int:
    assert process.pid is not None
    return process.pid


def test_it_sends_frames_answers_commands_and_its_crash_is_detected() -> None:
    async def check() -> None:
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        ended = asyncio.Event()
        process = WorldProcess(yard())
        process.start(heard.put_nowait, ended.set)
        try:
            first = await asyncio.wait_for(heard.get(), PATIENCE_S)
            assert first.startswith(b'{"type":"world"')
            assert header_of(await heard.get()).tick == 0
            assert process.ask(RunCommand(7, "help pause"))
            async with asyncio.timeout(PATIENCE_S):
                while b'"number":7' not in await heard.get():
                    continue
            assert not ended.is_set()
            os.kill(pid_of(process), signal.SIGKILL)
            await asyncio.wait_for(ended.wait(), PATIENCE_S)
        finally:
            process.stop()

    asyncio.run(check())


@pytest.mark.soak
def test_an_early_ctrl_c_is_not_for_it() -> None:
    async def check() -> None:
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        process = WorldProcess(yard())
        process.start(heard.put_nowait, lambda: heard.put_nowait(b"it has ended"))
        try:
            os.kill(pid_of(process), signal.SIGINT)
            first = await asyncio.wait_for(heard.get(), PATIENCE_S)
            assert first.startswith(b'{"type":"world"')
        finally:
            process.stop()

    asyncio.run(check())


def test_more_than_it_can_take_is_refused() -> None:
    process = WorldProcess(yard())
    taken = [process.ask(RunCommand(1, "help")) for _ in range(WAITING_MAX + 1)]
    assert taken == [True] * WAITING_MAX + [False]
    process.stop()
