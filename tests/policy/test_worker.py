"""What a worker does with a job."""

from __future__ import annotations

import base64
import io

import msgspec
from PIL import Image

from rove.policy.jobs import (
    CallJob,
    CallResult,
    CompressionJob,
    CompressionRequest,
    CompressionResult,
    Stopped,
)
from rove.policy.limits import PolicyLimits
from rove.policy.messages import Completed, OutputMessage
from rove.policy.worker import result_of


def picture(side: int = 64) -> bytes:
    out = io.BytesIO()
    Image.linear_gradient("L").resize((side, side)).save(out, "PNG")
    return out.getvalue()


def call(text: str, **more: object) -> CallJob:
    job = CallJob(3, text, "t", b'{"x": 1}', (), {"n": 1}, ("battery",), {}, 5.0, PolicyLimits())
    return msgspec.structs.replace(job, **more)


def ran(job: CallJob) -> Completed | Stopped:
    answer = result_of(job, lambda: 0.0)
    assert isinstance(answer, CallResult)
    assert answer.number == 3
    return answer.result


def test_a_picture_is_made_smaller() -> None:
    for image in (picture(), base64.b64encode(picture()).decode()):
        answer = result_of(CompressionJob(7, CompressionRequest(image, pixels_max=8)), lambda: 0.0)
        assert isinstance(answer, CompressionResult)
        assert answer.number == 7
        made = answer.image
        assert type(made) is type(image)
        data = base64.b64decode(made) if isinstance(made, str) else made
        assert Image.open(io.BytesIO(data)).size == (8, 8)


def test_what_is_no_picture_is_said() -> None:
    answer = result_of(CompressionJob(7, CompressionRequest(b"nonsense", 50)), lambda: 0.0)
    assert isinstance(answer, CompressionResult)
    assert (answer.image, answer.kind) == (b"", "error")
    assert "no JPEG" in answer.text


def test_a_call_is_done_as_a_whole() -> None:
    result = ran(call("def arrived(m, me):\n    me.n = me.n + m.x\n    return message(t=now())"))
    assert isinstance(result, Completed)
    assert (result.outputs, result.changes) == ((OutputMessage(b'{"t":5.0}', ()),), {"n": 2})


def test_what_is_automatic_stays_so() -> None:
    result = ran(call('def arrived(m, me):\n    name = "bat" + "tery"\n    set(name, 1)'))
    assert isinstance(result, Stopped)
    assert result.kind == "error"


def test_a_text_that_cannot_be_compiled_is_no_disaster() -> None:
    result = ran(call("nonsense("))
    assert isinstance(result, Stopped)
    assert result.kind == "error"


def test_time_is_up() -> None:
    ticks = iter(range(1_000_000))
    job = call("def arrived(m, me):\n    while True:\n        pass")
    answer = result_of(job, lambda: float(next(ticks)))
    assert isinstance(answer, CallResult)
    assert isinstance(answer.result, Stopped)
    assert answer.result.kind == "time"


def test_a_light_call_has_a_time_of_its_own() -> None:
    def took(cpu_ms: int) -> Completed | Stopped:
        ticks = iter(range(1_000_000))
        text = "def arrived(m, me):\n    n = 0\n    while n < 30000:\n        n += 1\n    return m"
        answer = result_of(call(text, cpu_ms=cpu_ms), lambda: next(ticks) / 1000)
        assert isinstance(answer, CallResult)
        return answer.result

    assert isinstance(took(0), Completed)
    stopped = took(10)
    assert isinstance(stopped, Stopped)
    assert stopped.kind == "time"
    assert 10_000 < stopped.steps < 30_000


def test_pictures_that_somebody_remembers_are_taken() -> None:
    wish = CompressionRequest(b"a picture", 50)
    remembered = {wish: CompressionResult(0, b"small", "")}
    answer = result_of(CompressionJob(7, wish), lambda: 0.0, remembered)
    assert answer == CompressionResult(7, b"small")
    text = "def arrived(m, me):\n    set_data(m, compress(m.payload, 50))\n    return m"
    job = call(text, payload=b"a picture")
    again = result_of(job, lambda: 0.0, remembered)
    assert isinstance(again, CallResult)
    assert isinstance(again.result, Completed)
    assert again.result.outputs[0].payload == b"small"
