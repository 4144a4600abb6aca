"""Jobs and answers go through a pipe and come out as they were."""

import msgspec
import pytest

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

JOBS: list[Job] = [
    CompressionJob(1, CompressionRequest(b"\xff\xd8", 50)),
    CompressionJob(2, CompressionRequest("AAAA", None, 1000, 640)),
    CallJob(
        3, "text", "t", b"{}", (("a", "b"),), {"x": [1]}, ("y",), {"1:2": 5.0}, 7.5, PolicyLimits()
    ),
]
ANSWERS: list[JobResult] = [
    CompressionResult(1, b"\xff"),
    CompressionResult(2, "AA", took_s=0.5),
    CompressionResult(3, b"", "no picture", kind="error"),
    CallResult(
        4, Completed((OutputMessage(b"{}", (("a", "b"),)),), {"x": None}, {"1:2": 1}, 5), 0.1
    ),
    CallResult(5, Stopped("steps", "too many", 3, 9)),
]


@pytest.mark.parametrize("job", JOBS)
def test_jobs_come_through(job: Job) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(job), type=Job) == job


@pytest.mark.parametrize("answer", ANSWERS)
def test_answers_come_through(answer: JobResult) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(answer), type=JobResult) == answer


def test_the_same_wish_is_the_same_key() -> None:
    wishes = {CompressionRequest(b"a", 50): 1}
    assert wishes[CompressionRequest(b"a", 50)] == 1
    assert CompressionRequest(b"a", 51) not in wishes
