"""What a worker for policies does with jobs; here within this process, which stays as it is."""

from __future__ import annotations

import base64
import io
import signal
import socket
import subprocess
import sys
import threading

import msgspec
import pytest
from PIL import Image

from rove.policy.images import Deadline
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
from rove.policy.limits import PolicyLimits
from rove.policy.messages import Completed, OutputMessage
from rove.policy.worker import picture as compressed
from rove.serve.workers import policy_process
from rove.serve.workers.children import HEADER, read_frame
from rove.serve.workers.policy_process import Hello, Order, Pictures, PolicyWorker, rehearse
from tests.effort import PATIENCE_S


def picture(side: int = 64) -> bytes:
    drawn = io.BytesIO()
    Image.linear_gradient("L").resize((side, side)).save(drawn, "PNG")
    return drawn.getvalue()


def call(text: str, payload: bytes = b'{"x": 1}') -> CallJob:
    return CallJob(3, text, "t", payload, (), {"n": 1}, ("battery",), {}, 5.0, PolicyLimits())


def answered(worker: PolicyWorker, job: Job) -> JobResult:
    message = worker.answered(msgspec.msgpack.encode(Order(job, 60.0)))
    return msgspec.msgpack.decode(message, type=CompressionResult | CallResult)


def test_a_call_is_done_and_what_it_took_is_told() -> None:
    answer = answered(
        PolicyWorker(), call("def arrived(m, me):\n    me.n = me.n + m.x\n    return m")
    )
    assert isinstance(answer, CallResult)
    assert answer.number == 3
    assert isinstance(answer.result, Completed)
    assert answer.result.outputs == (OutputMessage(b'{"x": 1}', ()),)
    assert answer.result.changes == {"n": 2}
    assert answer.result.passes
    assert 0 < answer.took_s < PATIENCE_S
    # Nothing is left that could end this process.
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_a_picture_is_made_smaller_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[CompressionRequest] = []

    def counted(request: CompressionRequest, is_late: Deadline) -> CompressionResult:
        made.append(request)
        return compressed(request, is_late)

    monkeypatch.setattr(policy_process, "picture", counted)
    worker = PolicyWorker()
    image = base64.b64encode(picture()).decode()
    policy = call(
        "def arrived(m, me):\n    return message(image=compress(m.image, pixels_max=8))",
        msgspec.json.encode({"image": image}),
    )
    first = answered(worker, policy)
    assert isinstance(first, CallResult)
    assert isinstance(first.result, Completed)
    assert answered(worker, policy).result == first.result  # type: ignore[union-attr]
    alone = answered(worker, CompressionJob(7, CompressionRequest(image, pixels_max=8)))
    assert isinstance(alone, CompressionResult)
    assert alone.number == 7
    assert msgspec.json.encode({"image": alone.image}) == first.result.outputs[0].payload
    assert len(made) == 1


def test_what_was_longest_not_asked_for_is_forgotten() -> None:
    images = [picture(side) for side in (20, 24, 28)]
    wishes = [CompressionRequest(image, pixels_max=8) for image in images]
    made = [Pictures()[wish] for wish in wishes]
    room = sum(len(image) for image in images[:2]) + sum(len(each.image) for each in made)
    pictures = Pictures(room)
    for wish in (wishes[0], wishes[1], wishes[0], wishes[2]):
        assert pictures[wish].image
    assert list(pictures) == [wishes[0], wishes[2]]
    assert pictures[wishes[1]] == made[1]
    # One that is larger than all the room is made, and not kept.
    small = Pictures(10)
    assert small[wishes[0]] == made[0]
    assert len(small) == 0
    assert small[wishes[0]] == made[0]


def test_why_there_is_no_picture_is_remembered_unless_memory_was_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pictures = Pictures()
    wish = CompressionRequest(b"nonsense", 50)
    assert "no JPEG" in pictures[wish].text
    assert list(pictures) == [wish]
    short = CompressionResult(0, b"", "too much", kind="memory")
    monkeypatch.setattr(policy_process, "picture", lambda request, is_late: short)
    assert pictures[CompressionRequest(b"other", 50)] is short
    assert list(pictures) == [wish]


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (MemoryError(), "memory", "needs more memory than a worker may have"),
        (KeyError("x"), "error", "the worker failed: KeyError('x')"),
    ],
)
def test_faults_of_ours_cost_one_answer(
    monkeypatch: pytest.MonkeyPatch, error: Exception, kind: str, text: str
) -> None:
    def fails(*_: object) -> JobResult:
        raise error

    worker = PolicyWorker()
    with monkeypatch.context() as context:
        context.setattr(policy_process, "result_of", fails)
        ran = answered(worker, call("def arrived(m, me):\n    return m"))
        made = answered(worker, CompressionJob(4, CompressionRequest(picture(), 50)))
    assert isinstance(ran, CallResult)
    assert ran.result == Stopped(kind, text)  # type: ignore[arg-type]
    assert isinstance(made, CompressionResult)
    assert (made.number, made.image, made.kind, made.text) == (4, b"", kind, text)
    assert isinstance(answered(worker, call("def arrived(m, me):\n    return m")), CallResult)


def test_an_answer_that_cannot_be_told_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    large = CallResult(3, Completed((), {"n": 1 << 70}, None, 0))
    monkeypatch.setattr(policy_process, "result_of", lambda *_: large)
    answer = answered(PolicyWorker(), call("def arrived(m, me):\n    return m"))
    assert isinstance(answer, CallResult)
    assert isinstance(answer.result, Stopped)
    assert answer.result.text.startswith("cannot be sent")


def test_a_socket_is_served_until_it_is_closed() -> None:
    ours, its = socket.socketpair()
    ours.settimeout(PATIENCE_S)
    worker = PolicyWorker()
    thread = threading.Thread(target=worker.serve, args=(its, ["all"]))
    # Timers are for the main thread to set.
    worker.answered = lambda message: message[::-1]  # type: ignore[method-assign]
    thread.start()
    with ours, ours.makefile("rb") as stream:
        hello = read_frame(stream)
        assert hello is not None
        assert hello[0] == 0
        assert msgspec.msgpack.decode(hello[1], type=Hello) == Hello(("all",))
        ours.sendall(HEADER.pack(3, 9) + b"abc")
        assert read_frame(stream) == (9, b"cba")
        ours.sendall(HEADER.pack(3, 10) + b"ab")
    ours.close()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    its.close()


def test_what_is_rehearsed_is_done() -> None:
    answers: list[JobResult] = []

    class Watched(PolicyWorker):
        def answered(self, message: bytes) -> bytes:
            answer = super().answered(message)
            answers.append(msgspec.msgpack.decode(answer, type=JobResult))
            return answer

    rehearse(Watched())
    assert any(isinstance(each, CompressionResult) and each.image for each in answers)
    results = [each.result for each in answers if isinstance(each, CallResult)]
    assert any(isinstance(each, Completed) and len(each.outputs) == 3 for each in results)
    assert not any(
        "the worker failed" in each.text for each in results if isinstance(each, Stopped)
    )


def test_nothing_heavy_is_loaded() -> None:
    code = (
        f"import sys; from {policy_process.__name__} import *; rehearse(PolicyWorker());"
        " print(*sys.modules)"
    )
    command = [sys.executable, "-c", code]
    loaded = set(subprocess.run(command, capture_output=True, check=True).stdout.decode().split())
    assert "PIL.Image" in loaded
    heavy = {"numpy", "numba", "pyarrow", "asyncio", "rove.match", "rove.broker", "rove.elastic"}
    assert loaded & heavy == set()
