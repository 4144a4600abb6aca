"""Workers for policies: real processes that are asked, that hang, die, lie, and never come.

Starting one takes a fifth of a second, so each test does as much with one as it can.
"""

from __future__ import annotations

import asyncio
import base64
import io
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest
from PIL import Image

from rove.policy.jobs import (
    CallJob,
    CallResult,
    CompressionJob,
    CompressionRequest,
    CompressionResult,
    Job,
    JobResult,
    Stopped,
)
from rove.policy.limits import MIB, PolicyLimits
from rove.policy.messages import Completed, OutputMessage
from rove.serve.workers import policy_process, policy_workers
from rove.serve.workers.children import HEADER, read_frame, spawned
from rove.serve.workers.policy_process import Order
from rove.serve.workers.policy_workers import PolicyWorkers, fits, memory_bytes_of
from tests.effort import PATIENCE_S

PASSES = "def arrived(m, me):\n    return m"
FOR_EVER = "def arrived(m, me):\n    while True:\n        pass"
ENDLESS = PolicyLimits(steps_max=1 << 50, time_ms=1 << 30)
only_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


class Heard:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.answers: dict[int, JobResult] = {}
        self.losses: dict[int, tuple[str, str]] = {}
        self.is_submitting = False

    def answered(self, answer: JobResult) -> None:
        assert not self.is_submitting
        assert answer.number not in self.answers
        self.answers[answer.number] = answer

    def lost(self, number: int, kind: str, why: str) -> None:
        assert not self.is_submitting
        assert number not in self.losses
        self.losses[number] = (kind, why)


class Bench:
    """Workers, what is heard of jobs, and how often the broker was woken."""

    def __init__(self, count: int = 1, **settings: Any) -> None:
        self.woken = 0
        self.workers = PolicyWorkers(count, asyncio.get_running_loop(), self._wake, **settings)
        self.heard = self.workers.listener = Heard()
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.workers.close()

    def _wake(self) -> None:
        self.woken += 1

    def submit(self, job: Job, time_ms: int = 60_000) -> int:
        self._number += 1
        job.number = self._number
        self.heard.is_submitting = True
        self.workers.submit(job, time_ms)
        self.heard.is_submitting = False
        return self._number

    async def until(self, condition: Callable[[], bool]) -> None:
        end_at = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end_at
            await asyncio.sleep(0.005)

    async def ran(self, job: CallJob) -> Completed | Stopped:
        number = self.submit(job)
        await self.until(lambda: number in self.heard.answers)
        answer = self.heard.answers[number]
        assert isinstance(answer, CallResult)
        return answer.result

    async def made(self, wish: CompressionRequest) -> CompressionResult:
        number = self.submit(CompressionJob(0, wish))
        await self.until(lambda: number in self.heard.answers)
        answer = self.heard.answers[number]
        assert isinstance(answer, CompressionResult)
        return answer

    async def loss(self, number: int) -> tuple[str, str]:
        await self.until(lambda: number in self.heard.losses)
        return self.heard.losses[number]

    async def busy(self) -> int:
        """Have a job begun that does not end; its number."""
        await self.ran(call(PASSES))
        (pid,) = self.workers.pids
        used_s = cpu_s(pid)
        number = self.submit(call(FOR_EVER, limits=ENDLESS), 1 << 30)
        await self.until(lambda: cpu_s(pid) > used_s + 0.02)
        return number


def cpu_s(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / os.sysconf("SC_CLK_TCK")


def call(text: str, payload: bytes = b'{"x": 1}', limits: PolicyLimits | None = None) -> CallJob:
    limits = limits or PolicyLimits(time_ms=60_000)
    return CallJob(0, text, "t", payload, (), {"n": 1}, ("battery",), {}, 5.0, limits)


def picture(size: tuple[int, int], format_: str, mode: str = "RGB") -> bytes:
    drawn = io.BytesIO()
    Image.linear_gradient("L").resize(size).convert(mode).save(drawn, format_)
    return drawn.getvalue()


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def run_uvloop(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """On the loop that `rove up` prefers, where it is installed."""
    try:
        import uvloop
    except ImportError:
        run(scenario)
    else:
        uvloop.run(scenario())


def is_there(pid: int) -> bool:
    """Whether a process runs or waits to be reaped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# --- what they are for --------------------------------------------------------------------------


@pytest.mark.parametrize("runner", [run, run_uvloop])
def test_they_are_started_when_needed_and_do_what_they_are_asked(
    runner: Callable[[Callable[[], Coroutine[Any, Any, None]]], None],
) -> None:
    async def use() -> None:
        with Bench() as bench:
            assert bench.workers.count == 1
            assert bench.workers.pids == []
            result = await bench.ran(
                call("def arrived(m, me):\n    me.n = me.n + m.x\n    return m")
            )
            assert isinstance(result, Completed)
            assert (result.changes, result.passes) == ({"n": 2}, True)
            assert bench.woken == 1
            (pid,) = bench.workers.pids
            await large_both_ways(bench)
            await pictures(bench)
            assert bench.workers.pids == [pid]
        assert not is_there(pid)
        assert bench.heard.losses == {}

    runner(use)


async def large_both_ways(bench: Bench) -> None:
    """More than the sockets take, several at once, answered in order and whole."""
    payloads = [b'{"x": "%s"}' % (b"-" * size) for size in (2_000_000, 10, 1_000_000)]
    limits = PolicyLimits(output_bytes_max=4 * MIB, time_ms=60_000)
    numbers = [bench.submit(call(PASSES, payload, limits)) for payload in payloads]
    await bench.until(lambda: numbers[-1] in bench.heard.answers)
    for number, payload in zip(numbers, payloads, strict=True):
        answer = bench.heard.answers[number]
        assert isinstance(answer, CallResult)
        assert isinstance(answer.result, Completed)
        assert answer.result.outputs[0].payload == payload
        assert 0 <= answer.took_s < PATIENCE_S


async def pictures(bench: Bench) -> None:
    """Confined as it is: everything that Pillow is wanted for."""
    kinds = (("JPEG", "RGB L CMYK"), ("PNG", "RGB RGBA P 1"))
    for image in (
        picture((300, 200), kind, mode) for kind, modes in kinds for mode in modes.split()
    ):
        for wish in ({"quality": 10}, {"bytes_max": 2_000}, {"pixels_max": 50}):
            made = await bench.made(CompressionRequest(image, **wish))
            assert made.text == ""
            assert 0 < len(made.image) <= len(image)
            Image.open(io.BytesIO(made.image)).load()
    text = base64.b64encode(picture((300, 200), "PNG")).decode()
    made = await bench.made(CompressionRequest(text, pixels_max=50))
    assert Image.open(io.BytesIO(base64.b64decode(made.image))).size == (50, 33)
    made = await bench.made(CompressionRequest(b"nonsense", 50))
    assert (made.image, made.kind) == (b"", "error")


@only_linux
def test_they_have_no_rights() -> None:
    async def look() -> None:
        with Bench() as bench:
            await bench.ran(call(PASSES))
            (pid,) = bench.workers.pids
            about = Path(f"/proc/{pid}")
            status = dict(
                line.split(":\t", 1)
                for line in (about / "status").read_text().splitlines()
                if ":\t" in line
            )
            assert status["NoNewPrivs"] == "1"
            assert status["Seccomp"] == "2"
            assert os.getsid(pid) == pid
            if os.geteuid() == 0:
                assert "0" not in status["Uid"].split() + status["Gid"].split()
                assert (about / "cwd").readlink() == Path("/")
                descriptors = {each.name: str(each.readlink()) for each in (about / "fd").iterdir()}
                end = descriptors.pop("3")
                assert end.startswith("socket:")
                assert descriptors == dict.fromkeys("012", os.devnull)
                assert all(
                    entry.partition(b"=")[0].decode() in policy_workers._KEPT_VARIABLES
                    for entry in (about / "environ").read_bytes().split(b"\0")
                    if entry
                )

    run(look)


def test_as_many_work_at_a_time_as_there_may_be() -> None:
    async def share() -> None:
        with Bench(2) as bench:
            # The first is started for the first job, the second because that is not done yet.
            slow = bench.submit(call(FOR_EVER, limits=ENDLESS), 1 << 30)
            quick = [bench.submit(call(PASSES)) for _ in range(3)]
            assert bench.workers.pids == []
            await bench.until(lambda: quick[-1] in bench.heard.answers)
            assert slow not in bench.heard.answers
            assert len(bench.workers.pids) == 2

    run(share)


# --- what goes wrong ----------------------------------------------------------------------------


def test_a_loop_without_end_stops_by_itself_when_its_time_is_over() -> None:
    async def loop() -> None:
        with Bench() as bench:
            limits = PolicyLimits(steps_max=1 << 50, time_ms=50)
            result = await bench.ran(call(FOR_EVER, limits=limits))
            assert isinstance(result, Stopped)
            assert result.kind == "time"
            (pid,) = bench.workers.pids
            assert isinstance(await bench.ran(call(PASSES)), Completed)
            assert bench.workers.pids == [pid]

    run(loop)


@only_linux
def test_one_that_hangs_is_killed_and_one_that_dies_is_replaced() -> None:
    async def lose() -> None:
        with Bench(grace_s=0.1) as bench:
            await bench.ran(call(PASSES))
            # Hangs where nothing of Python runs; what waits behind is done by another.
            (hanging,) = bench.workers.pids
            os.kill(hanging, signal.SIGSTOP)
            number = bench.submit(call(PASSES), 50)
            behind = bench.submit(call(PASSES))
            assert await bench.loss(number) == ("time", "took longer than 50 ms, and was killed")
            await bench.until(lambda: behind in bench.heard.answers)
            assert not is_there(hanging)
            # One that hangs before it has taken all of its job.
            (hanging,) = bench.workers.pids
            os.kill(hanging, signal.SIGSTOP)
            number = bench.submit(call(PASSES, b"-" * 3_000_000), 50)
            assert (await bench.loss(number))[0] == "time"
            # Killed by somebody, in the middle of a job.
            number = await bench.busy()
            (killed,) = bench.workers.pids
            woken = bench.woken
            os.kill(killed, signal.SIGKILL)
            assert await bench.loss(number) == ("error", "the worker was lost: killed by signal 9")
            assert bench.woken == woken + 1
            # Killed while it had nothing to do: nothing is lost.
            await bench.ran(call(PASSES))
            (killed,) = bench.workers.pids
            losses = len(bench.heard.losses)
            os.kill(killed, signal.SIGKILL)
            await bench.until(lambda: bench.workers.pids == [])
            assert isinstance(await bench.ran(call(PASSES)), Completed)
            assert len(bench.heard.losses) == losses

    run(lose)


@only_linux
def test_memory_is_limited_and_a_bomb_costs_one_answer() -> None:
    async def bomb() -> None:
        with Bench(memory_bytes=16 * MIB) as bench:
            image = picture((2500, 2500), "PNG", "RGB")
            made = await bench.made(CompressionRequest(image, 50))
            assert made.image == b""
            (pid,) = bench.workers.pids
            made = await bench.made(CompressionRequest(picture((490, 490), "PNG", "RGB"), 50))
            assert made.image
            # A call that may make more than there is.
            greedy = PolicyLimits(memory_bytes_max=1 << 40, steps_max=1 << 50, time_ms=60_000)
            text = "def arrived(m, me):\n    x = 'abcdefgh'\n    while True:\n        x = x + x"
            result = await bench.ran(call(text, limits=greedy))
            assert isinstance(result, Stopped)
            assert result.kind == "memory"
            assert isinstance(await bench.ran(call(PASSES)), Completed)
            assert bench.workers.pids == [pid]

    run(bomb)


def test_a_call_can_reach_its_own_limit_before_that_of_its_worker() -> None:
    assert memory_bytes_of(PolicyLimits()) > policy_workers.MEMORY_BYTES
    wide = PolicyLimits(memory_bytes_max=1 << 30)
    assert memory_bytes_of(wide) > 4 << 30


def test_a_job_that_cannot_be_told_is_lost() -> None:
    async def submit() -> None:
        with Bench() as bench:
            job = call(PASSES)
            job.me["n"] = 1 << 70
            kind, why = await bench.loss(bench.submit(job))
            assert kind == "error"
            assert why.startswith("cannot be sent")
            assert bench.workers.pids == []

    run(submit)


@only_linux
def test_processor_time_is_the_last_resort() -> None:
    """Nobody is there who would kill it."""
    process, end = spawned(policy_process.__name__, str(64 * MIB))
    with end:
        end.setblocking(True)
        end.settimeout(PATIENCE_S)
        with end.makefile("rb") as stream:
            assert read_frame(stream) is not None
            message = msgspec.msgpack.encode(Order(call(FOR_EVER, limits=ENDLESS), 0.05))
            end.sendall(HEADER.pack(len(message), 1) + message)
            assert read_frame(stream) is None
        assert process.wait(PATIENCE_S) == -signal.SIGPROF


# --- those that are not what they should be -----------------------------------------------------

FAKE = """
import os, socket, struct, sys, time
import msgspec
end = socket.socket(fileno=int(sys.argv[4]))
def say(*values):
    for value in values:
        data = msgspec.msgpack.encode(value)
        end.sendall(struct.pack("<IQ", len(data), 0) + data)
{}
"""
HELLO = "say([[]]); end.recv(1); "
SLEEP = "; time.sleep(99)"
LIARS = {
    "number": "say(['CallResult', 99, ['Completed', [], {}, None, 1], 0.0])",
    "kind": "say(['CompressionResult', 1, b'x'])",
    "many": "say(['CallResult', 1, ['Completed', [[b'', []]] * 17, {}, None, 1], 0.0])",
    "automatic": "say(['CallResult', 1, ['Completed', [], {'battery': 1}, None, 1], 0.0])",
    "strange": "odd = msgspec.msgpack.Ext(5, b''); "
    "say(['CallResult', 1, ['Completed', [], {'x': odd}, None, 1], 0.0])",
    "deep": "end.sendall(struct.pack('<IQ', 5000, 0) + b'\\x91' * 5000)",
    "noise": "end.sendall(struct.pack('<IQ', 1, 0) + b'\\xc1')",
    "long": "end.sendall(struct.pack('<IQ', 1 << 30, 0))",
}
NEVER = {
    "ends": ("sys.exit(7)", "ended with status 7"),
    "noise": (LIARS["noise"] + SLEEP, "sent an invalid message"),
    "closes": ("end.close()" + SLEEP, "killed by signal 9"),
    "silent": (SLEEP[2:], "did not start within 0.5 s, and was killed"),
}


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has another program run than a worker."""
    real = sys.executable

    def become(code: str) -> None:
        # By a shell, for the path of the interpreter may have a space in it.
        script, program = tmp_path / "fake.py", tmp_path / "fake"
        script.write_text(FAKE.format(code))
        program.write_text(f'#!/bin/sh\nexec "{real}" "{script}" "$@"\n')
        program.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(program))

    return become


@pytest.mark.parametrize("lie", LIARS)
def test_one_that_lies_is_killed(lie: str, fake: Callable[[str], None]) -> None:
    async def hear() -> None:
        with Bench() as bench:
            fake(HELLO + LIARS[lie] + SLEEP)
            number = bench.submit(call(PASSES))
            await bench.until(lambda: bool(bench.workers.pids))
            (pid,) = bench.workers.pids
            kind, why = await bench.loss(number)
            assert kind == "error"
            assert why.startswith("sent an invalid message")
            await bench.until(lambda: not is_there(pid))
            assert bench.heard.answers == {}

    run(hear)


IMPOSSIBLE: dict[str, Completed | Stopped] = {
    "passes without a message": Completed((), {}, None, 1, True),
    "passes with two": Completed(
        (OutputMessage(b"", ()), OutputMessage(b"", ())), {}, None, 1, True
    ),
    "a user property that never came": Completed((OutputMessage(b"", (("a", "b"),)),), {}, None, 1),
    "one that no client may be sent": Completed((OutputMessage(b"", (("a", "\0"),)),), {}, None, 1),
    "more than a call may send": Completed((OutputMessage(bytes(2 * MIB), ()),), {}, None, 1),
    "a variable that is no number": Completed((), {"x": [1.0, {"y": math.nan}]}, None, 1),
    "a variable of bytes": Completed((), {"x": b"1"}, None, 1),
    "memory that is no number": Completed((), {}, {"x": math.inf}, 1),
    "fewer steps than none": Completed((), {}, None, -1),
    "the same, stopped": Stopped("steps", "", 0, -1),
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_what_no_call_can_come_to_is_not_believed(what: str) -> None:
    """The broker would have to fall over it later."""
    assert not fits(CallResult(0, IMPOSSIBLE[what]), call(PASSES))


def test_what_a_call_can_come_to_is_believed() -> None:
    job = msgspec.structs.replace(call(PASSES), user=(("a", "b"), ("a", "c")))
    some = (OutputMessage(bytes(MIB // 2), (("a", "c"),)), OutputMessage(b"", ()))
    assert fits(
        CallResult(0, Completed(some, {"x": [1, 2.5, "y", None, True]}, {"m": b"1"}, 1)), job
    )
    assert fits(
        CallResult(0, Completed((OutputMessage(bytes(2 * MIB), job.user),), {}, None, 0, True)),
        job,
    )
    assert fits(CallResult(0, Stopped("steps", "too many", 3, 10)), job)


def test_another_is_started_before_it_is_needed() -> None:
    """A light job that comes behind a long one would wait until another has begun."""

    async def hear() -> None:
        with Bench(3) as bench:
            assert bench.workers.pids == []
            number = bench.submit(call(PASSES))
            await bench.until(lambda: number in bench.heard.answers)
            await bench.until(lambda: len(bench.workers.pids) == 2)

    run(hear)


@pytest.mark.parametrize("many", [["a"] * 15_000, [1.5] * 3_000, [None, 7, "x"] * 5_000])
def test_long_lists_are_not_looked_through_one_by_one(many: list[object]) -> None:
    """The broker does this between two turns, and everybody waits."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += 1

    answer, job = CallResult(0, Completed((), {"x": many}, {"y": [many]}, 1)), call(PASSES)
    sys.setprofile(count)
    try:
        is_fit = fits(answer, job)
    finally:
        sys.setprofile(None)
    assert is_fit
    assert calls < 200


def test_what_a_worker_says_of_itself_is_bounded(fake: Callable[[str], None]) -> None:
    async def hear() -> None:
        with Bench() as bench:
            fake(
                HELLO + "say(['CallResult', 1, ['Completed', [], {}, None, 1], 1e9, True])" + SLEEP
            )
            number = bench.submit(call(PASSES))
            await bench.until(lambda: number in bench.heard.answers)
            answer = bench.heard.answers[number]
            assert answer.took_s < PATIENCE_S
            assert not answer.is_lost

    run(hear)


@pytest.mark.parametrize("way", NEVER)
def test_where_none_can_be_started_jobs_are_lost_at_once(
    way: str, fake: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = sys.executable
    code, reason = NEVER[way]

    async def hear() -> None:
        with Bench(hello_s=0.5 if way == "silent" else PATIENCE_S) as bench:
            fake(code)
            numbers = [bench.submit(call(PASSES)) for _ in range(2)]
            for number in numbers:
                kind, why = await bench.loss(number)
                assert kind == "crowded"
                assert why.startswith("no worker can be started: ")
                assert reason in why
            # For a while nobody tries again; then somebody does.
            assert await bench.loss(bench.submit(call(PASSES))) == (kind, why)
            assert bench.workers.pids == []
            monkeypatch.setattr(sys, "executable", real)
            bench.workers._refused_until = 0.0
            if way == "ends":
                bench.workers._hello_s = PATIENCE_S
                assert isinstance(await bench.ran(call(PASSES)), Completed)

    run(hear)


def test_one_that_dies_before_it_has_begun_costs_nothing(fake: Callable[[str], None]) -> None:
    async def hear() -> None:
        with Bench() as bench:
            real = sys.executable
            fake(SLEEP[2:])
            numbers = [bench.submit(call(PASSES)) for _ in range(2)]
            await bench.until(lambda: bool(bench.workers.pids))
            sys.executable = real
            os.kill(bench.workers.pids[0], signal.SIGKILL)
            await bench.until(lambda: bench.heard.answers.keys() >= set(numbers))
            assert bench.heard.losses == {}

    run(hear)


def test_where_there_is_no_python_jobs_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hear() -> None:
        with Bench() as bench:
            monkeypatch.setattr(sys, "executable", "/nowhere/python")
            kind, why = await bench.loss(bench.submit(call(PASSES)))
            assert (kind, why.partition(":")[0]) == ("crowded", "no worker can be started")
            assert "No such file or directory" in why

    run(hear)


def test_what_could_not_be_given_up_is_logged(
    fake: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    logged: list[tuple[str, object]] = []

    async def hear(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            policy_workers.log, "warning", lambda text, **facts: logged.append((text, facts))
        )
        with Bench() as bench:
            fake("say([['it may do all']])" + SLEEP)
            bench.submit(call(PASSES))
            await bench.until(lambda: bool(logged))

    with pytest.MonkeyPatch.context() as monkeypatch:
        asyncio.run(hear(monkeypatch))
    assert logged == [("a worker is less confined than it should be", {"missing": "it may do all"})]


# --- the end ------------------------------------------------------------------------------------


@only_linux
def test_closing_ends_all_of_them_at_once() -> None:
    async def close() -> None:
        bench = Bench(2)
        bench.submit(call(FOR_EVER, limits=ENDLESS), 1 << 30)
        bench.submit(call(PASSES))
        await bench.until(lambda: len(bench.workers.pids) == 2)
        pids = bench.workers.pids
        os.kill(pids[1], signal.SIGSTOP)
        bench.workers.close()
        assert not any(map(is_there, pids))
        bench.submit(call(PASSES))
        await asyncio.sleep(0)
        assert bench.workers.pids == []
        assert (bench.heard.answers, bench.heard.losses) == ({}, {})

    run(close)


BROKER = """
import asyncio, sys
from tests.serve.workers.test_policy_workers import ENDLESS, FOR_EVER, PASSES, Bench, call

async def live():
    bench = Bench()
    await bench.ran(call(PASSES))
    bench.submit(call(FOR_EVER, limits=ENDLESS), 1 << 30)
    print(*bench.workers.pids, flush=True)
    await asyncio.sleep(99)

asyncio.run(live())
"""


@only_linux
def test_they_end_when_the_broker_does() -> None:
    """Also one that has changed its user and is in the middle of something."""
    root = Path(__file__).resolve().parents[3]
    command = [sys.executable, "-c", BROKER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root) as broker:
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
        return False
    return state != "Z"
