"""Jobs and answers go through a pipe and come out as they were."""

import msgspec
import pytest

from rove.policy.jobs import (
    Answer,
    Compress,
    Compressed,
    Compression,
    Job,
    Outcome,
    Ran,
    Run,
    Sent,
    Stopped,
)
from rove.policy.limits import PolicyLimits

JOBS: list[Job] = [
    Compress(1, Compression(b"\xff\xd8", 50)),
    Compress(2, Compression("AAAA", None, 1000, 640)),
    Run(
        3, "text", "t", b"{}", (("a", "b"),), {"x": [1]}, ("y",), {"1:2": 5.0}, 7.5, PolicyLimits()
    ),
]
ANSWERS: list[Answer] = [
    Compressed(1, b"\xff"),
    Compressed(2, "AA", took_s=0.5),
    Compressed(3, b"", "no picture", kind="error"),
    Ran(4, Outcome((Sent(b"{}", (("a", "b"),)),), {"x": None}, {"1:2": 1}, 5), 0.1),
    Ran(5, Stopped("steps", "too many", 3, 9)),
]


@pytest.mark.parametrize("job", JOBS)
def test_jobs_come_through(job: Job) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(job), type=Job) == job


@pytest.mark.parametrize("answer", ANSWERS)
def test_answers_come_through(answer: Answer) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(answer), type=Answer) == answer


def test_the_same_wish_is_the_same_key() -> None:
    wishes = {Compression(b"a", 50): 1}
    assert wishes[Compression(b"a", 50)] == 1
    assert Compression(b"a", 51) not in wishes
