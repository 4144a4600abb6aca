"""Matcher processes: real ones that are asked, killed, stopped, and made to hang.

Starting one takes a second or more, so each test does as much with one as it can.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

from rove.elastic.commands import (
    Add,
    AnyReply,
    Failed,
    Match,
    MatchReply,
    MatchRow,
    Open,
    Replies,
    Save,
    Saved,
    encoded_rows,
)
from rove.serve.workers.matchers import MatcherPool
from tests.effort import PATIENCE_S


class Heard:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.pids: dict[int, int] = {}
        self.replies: list[AnyReply] = []
        self.deaths: list[tuple[int, str]] = []
        self.told = 0
        self.is_sending = False
        self.then: Callable[[int], None] = lambda matcher: None
        """What is done on hearing replies."""

    def started(self, matcher: int, pid: int) -> None:
        self._hear()
        assert matcher not in self.pids
        self.pids[matcher] = pid

    def arrived(self, matcher: int, replies: Replies) -> None:
        self._hear()
        assert matcher in self.pids
        self.replies += replies.replies
        self.then(matcher)

    def died(self, matcher: int, why: str) -> None:
        self._hear()
        self.deaths.append((matcher, why))

    def _hear(self) -> None:
        assert not self.is_sending
        self.told += 1


class Bench:
    """Processes, what is heard of them, and how often the broker was woken."""

    def __init__(self, folder: Path, **settings: float) -> None:
        self.woken = 0
        self.processes = MatcherPool(
            folder / "matchers", asyncio.get_running_loop(), self._wake, **settings
        )
        self.heard = self.processes.listener = Heard()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.processes.close()

    def _wake(self) -> None:
        self.woken += 1

    def quietly(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Something from within which nothing may be heard."""
        self.heard.is_sending = True
        try:
            return call(*arguments)
        finally:
            self.heard.is_sending = False

    def start(self) -> int:
        number: int = self.quietly(self.processes.start)
        return number

    def send(self, matcher: int, *commands: Any) -> None:
        self.quietly(self.processes.send, matcher, commands)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """As the broker does that cannot go on."""
        while not condition():
            told = self.heard.told
            self.processes.wait()
            assert self.heard.told > told

    async def until(self, condition: Callable[[], bool]) -> None:
        """As the broker does that has other things to do."""
        end_at = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end_at
            await asyncio.sleep(0.01)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def run_uvloop(scenario: Coroutine[Any, Any, None]) -> None:
    """On the loop that `rove up` prefers, where it is installed."""
    try:
        import uvloop
    except ImportError:
        run(scenario)
    else:
        uvloop.run(scenario)


def is_there(pid: int) -> bool:
    """Whether a process runs or waits to be reaped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def asked(ticket: int, *payloads: bytes, cell: int = 1) -> Match:
    rows = [MatchRow(number, "a", each, (), 1.0, (7,)) for number, each in enumerate(payloads)]
    return Match(cell, ticket, ticket, encoded_rows(rows))


def ids_of(reply: AnyReply) -> list[int]:
    assert isinstance(reply, MatchReply)
    return list(np.frombuffer(reply.ids, np.int64))


# --- what they are for --------------------------------------------------------------------------


async def talk(folder: Path) -> None:
    (folder / "matchers").mkdir()
    (folder / "matchers" / "left over").touch()
    with Bench(folder) as bench:
        await use(bench, folder)
    assert list(folder.iterdir()) == []


async def use(bench: Bench, folder: Path) -> None:
    processes, heard = bench.processes, bench.heard
    assert list(folder.iterdir()) == []
    number = bench.start()
    bench.send(number, Open(1), Add(1, 10, "x > 1", 7, 0.0))
    await bench.until(lambda: bool(heard.pids))
    assert number == 1
    assert processes.pids == heard.pids
    assert bench.woken >= 1
    assert os.getsid(heard.pids[1]) == heard.pids[1]
    # With the loop, and without.
    bench.send(number, asked(1, b'{"x": 2}'))
    await bench.until(lambda: len(heard.replies) == 1)
    woken = bench.woken
    bench.send(number, asked(2, b'{"x": 1}', b'{"x": 3}'))
    bench.wait_for(lambda: len(heard.replies) == 2)
    assert bench.woken == woken
    assert [ids_of(reply) for reply in heard.replies] == [[10], [10]]
    with pytest.raises(RuntimeError, match="no matcher owes an answer"):
        processes.wait()
    # What asks for nothing goes out too.
    bench.send(number, Open(3, "nowhere"))
    await bench.until(lambda: len(heard.replies) == 3)
    assert isinstance(heard.replies.pop(), Failed)
    # Files go both ways.
    path, other = processes.new_path(), processes.new_path()
    bench.send(number, Save(1, path))
    bench.wait_for(lambda: len(heard.replies) == 3)
    assert isinstance(heard.replies[2], Saved)
    assert heard.replies[2].path == path
    saved = processes.read(path)
    processes.write(other, [saved])
    bench.send(number, Open(2, other), asked(3, b'{"x": 2}', cell=2))
    bench.wait_for(lambda: len(heard.replies) == 4)
    assert ids_of(heard.replies[-1]) == [10]
    assert (folder / "matchers").stat().st_mode & 0o777 == 0o700
    for each in (path, path, other):
        processes.forget(each)
    assert list((folder / "matchers").iterdir()) == []
    assert len(saved) > 0
    large_both_ways(bench, number)
    # The one that has answered is told to end by whoever hears the answer.
    heard.then = lambda matcher: bench.quietly(processes.stop, matcher)
    count = len(heard.replies)
    bench.send(number, asked(8, b'{"x": 2}'))
    bench.send(number, asked(9, b'{"x": 2}'))
    bench.wait_for(lambda: len(heard.replies) > count)
    assert processes.pids == {}
    bench.send(number, asked(10, b'{"x": 2}'))
    await bench.until(lambda: not is_there(heard.pids[1]))
    assert len(heard.replies) == count + 1
    assert heard.deaths == []


def large_both_ways(bench: Bench, number: int) -> None:
    """Frames of megabytes, more of them than the sockets take, answered by as many."""
    count = len(bench.heard.replies)
    wide = [b'{"x": 2, "text": "%s"}' % (b"-" * 4000)] * 1000
    for each in range(300):
        bench.send(number, Add(1, 1000 + each, "x > 0", 7, 0.0))
    for ticket in (4, 5, 6):
        bench.send(number, asked(ticket, *wide))
    bench.wait_for(lambda: len(bench.heard.replies) == count + 3)
    for reply in bench.heard.replies[count:]:
        assert isinstance(reply, MatchReply)
        assert len(reply.ids) == 8 * 1000 * 301
    matched = [one for one in bench.heard.replies[count:] if isinstance(one, MatchReply)]
    assert [one.part for one in matched] == [4, 5, 6]


@pytest.mark.parametrize("runner", [run, run_uvloop])
def test_they_are_started_asked_and_stopped(
    runner: Callable[[Coroutine[Any, Any, None]], None], tmp_path: Path
) -> None:
    runner(talk(tmp_path))


# --- how they end -------------------------------------------------------------------------------


async def lose(bench: Bench, hasty: Bench) -> None:
    heard = bench.heard
    killed, hanging, silent = bench.start(), hasty.start(), hasty.start()
    hasty.wait_for(lambda: len(hasty.heard.pids) == 2)
    for pid in hasty.heard.pids.values():
        os.kill(pid, signal.SIGSTOP)
    # Killed: what it was asked is lost, and so is what it is asked later.
    bench.send(killed, Open(1), asked(1, b'{"x": 2}'))
    bench.wait_for(lambda: len(heard.replies) == 1)
    os.kill(heard.pids[killed], signal.SIGKILL)
    for ticket in (2, 3):
        bench.send(killed, asked(ticket, b'{"x": "%s"}' % (b"-" * 500_000)))
    bench.wait_for(lambda: bool(heard.deaths))
    bench.send(killed, asked(4, b'{"x": 2}'))
    with pytest.raises(RuntimeError):
        bench.processes.wait()
    assert heard.deaths == [(killed, "killed by signal 9")]
    assert len(heard.replies) == 1
    # Hanging: while the broker waits, and while it does other things; unless nothing was asked.
    why = "did not answer within 0.3 s and was killed"
    hasty.send(hanging, asked(5, b'{"x": 2}'))
    hasty.wait_for(lambda: bool(hasty.heard.deaths))
    assert hasty.heard.deaths == [(hanging, why)]
    assert list(hasty.processes.pids) == [silent]
    assert hasty.woken == 0
    hasty.send(silent, asked(6, b'{"x": 2}'))
    await hasty.until(lambda: len(hasty.heard.deaths) == 2)
    assert hasty.heard.deaths == [(hanging, why), (silent, why)]
    assert hasty.woken > 0
    pids = [*bench.heard.pids.values(), *hasty.heard.pids.values()]
    await hasty.until(lambda: not any(map(is_there, pids)))


def test_one_that_is_killed_or_hangs_is_told_once(tmp_path: Path) -> None:
    async def begin() -> None:
        folders = tmp_path / "patient", tmp_path / "hasty"
        with Bench(folders[0]) as bench, Bench(folders[1], answer_s=0.3) as hasty:
            await lose(bench, hasty)

    run(begin())


WRITE = "os.write(int(sys.argv[4]), bytes.fromhex({!r})); time.sleep(99)"
PROGRAMS = {
    "ends": ("sys.exit(3)", "ended with status 3"),
    "large": (WRITE.format("ff" * 12), "a message of 4294967295 bytes"),
    "noise": (WRITE.format("01" + "00" * 11 + "c1"), "sent an invalid message"),
    "closes": ("os.close(int(sys.argv[4])); time.sleep(99)", "closed its socket and was killed"),
    "silent": ("time.sleep(99)", "did not start within 0.3 s and was killed"),
}


def test_one_that_never_comes_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = sys.executable

    def start(bench: Bench, name: str) -> int:
        program = tmp_path / name
        if name in PROGRAMS:
            # By a shell, for the path of the interpreter may have a space in it.
            script = tmp_path / f"{name}.py"
            script.write_text(f"import os, sys, time\n{PROGRAMS[name][0]}\n")
            program.write_text(f'#!/bin/sh\nexec "{real}" "{script}" "$@"\n')
            program.chmod(0o700)
        with monkeypatch.context() as context:
            context.setattr(sys, "executable", str(program))
            return bench.start()

    async def begin() -> None:
        with Bench(tmp_path) as bench, Bench(tmp_path, hello_s=0.3) as hasty:
            await hear(bench, hasty)

    async def hear(bench: Bench, hasty: Bench) -> None:
        start(hasty, "silent")
        names = {start(bench, name): name for name in PROGRAMS if name != "silent"}
        pids = [*bench.processes.pids.values(), *hasty.processes.pids.values()]
        nowhere = start(bench, "nowhere")
        bench.processes.stop(start(bench, "nowhere"))
        assert bench.heard.deaths == []
        await bench.until(lambda: bool(bench.heard.deaths))
        bench.wait_for(lambda: len(bench.heard.deaths) > len(names))
        deaths = dict(bench.heard.deaths)
        assert len(deaths) == len(bench.heard.deaths)
        assert deaths.pop(nowhere) == "cannot be started: No such file or directory"
        told = {names[number]: why for number, why in deaths.items()}
        await hasty.until(lambda: bool(hasty.heard.deaths))
        told["silent"] = hasty.heard.deaths[0][1]
        assert [name for name, (_, why) in PROGRAMS.items() if why not in told[name]] == []
        await bench.until(lambda: not any(map(is_there, pids)))

    run(begin())


BROKER = """
import asyncio, sys
from pathlib import Path
from rove.serve.workers.matchers import MatcherPool

async def live():
    processes = MatcherPool(Path(sys.argv[1]), asyncio.get_running_loop(), lambda: None)
    processes.start()
    print(*processes.pids.values(), flush=True)
    await asyncio.sleep(99)

asyncio.run(live())
"""


def test_they_end_when_the_broker_does(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BROKER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        pid = int(broker.stdout.readline())
        assert is_there(pid)
        broker.kill()
    end_at = time.monotonic() + PATIENCE_S
    while is_running(pid):
        assert time.monotonic() < end_at
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Whoever adopts the process of a dead broker may take its time to reap it."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return is_there(pid) and not Path("/proc/self/stat").exists()
    return state != "Z"


def test_closing_ends_all_of_them_at_once(tmp_path: Path) -> None:
    async def close() -> None:
        bench = Bench(tmp_path)
        stopped, left = bench.start(), bench.start()
        pids = list(bench.processes.pids.values())
        os.kill(bench.processes.pids[stopped], signal.SIGSTOP)
        bench.processes.stop(stopped)
        bench.send(left, Open(1))
        Path(bench.processes.new_path()).touch()
        bench.processes.close()
        assert not any(map(is_there, pids))
        assert list(tmp_path.iterdir()) == []
        assert bench.heard.told == 0

    run(close())
