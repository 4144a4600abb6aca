"""What a worker does with a job, wherever the worker is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from rove.policy.compiling import compiled, translated
from rove.policy.errors import PolicyError
from rove.policy.images import ImageError, Watch, compress, never
from rove.policy.jobs import (
    Answer,
    Compile,
    Compiled,
    Compress,
    Compressed,
    Compression,
    Job,
    Outcome,
    Ran,
    Run,
    Stopped,
    Wanted,
)
from rove.policy.messages import Arrived
from rove.policy.running import run


def answer_of(
    job: Job,
    clock: Callable[[], float],
    results: Mapping[Compression, Compressed] | None = None,
) -> Answer:
    """Do a job; how long it took is for whoever knows to say. `results`, if given, has every
    picture that could be asked for: it makes those that it does not remember."""
    if isinstance(job, Compile):
        return _compiled(job)
    if isinstance(job, Compress):
        if results is None:
            made = picture(job.request, watch(clock, job.time_ms))
        else:
            made = results[job.request]
        return Compressed(job.number, made.image, made.text, kind=made.kind)
    return Ran(job.number, _ran(job, clock, results))


def _compiled(job: Compile) -> Compiled:
    """A text compiled. It is not kept: a text that is set need not ever run."""
    try:
        return Compiled(job.number, translated(job.text, job.bytes_max))
    except PolicyError as error:
        return Compiled(job.number, None, error.what, error.hint, error.line, error.column)


def watch(clock: Callable[[], float], time_ms: int) -> Watch:
    """Says when so much time has passed; 0 is never."""
    ends_at = clock() + time_ms / 1000 if time_ms else math.inf
    return lambda: clock() > ends_at


def picture(request: Compression, is_late: Watch = never) -> Compressed:
    """A picture made smaller, or why it cannot be; an answer without a number."""
    try:
        return Compressed(0, compress(request, is_late))
    except ImageError as error:
        return Compressed(0, b"", str(error), kind=error.kind)
    except MemoryError:
        return Compressed(0, b"", "the picture needs too much memory", kind="memory")


def _ran(
    job: Run, clock: Callable[[], float], results: Mapping[Compression, Compressed] | None
) -> Outcome | Stopped:
    limits = job.limits
    try:
        # Whoever sends a job has compiled it already, under a limit that may have changed since.
        bytes_max = max(limits.text_bytes_max, len(job.text) * 4)
        policy = compiled(job.text, bytes_max=bytes_max, code=job.code)
    except PolicyError as error:
        return Stopped("error", error.what, error.line)
    arrived = Arrived(job.topic, job.payload, job.user)
    result = run(
        policy,
        arrived,
        job.me,
        job.memory,
        job.now,
        limits,
        automatic=job.automatic,
        results=results,
        steps_max=job.steps_max or None,
        time_ms=job.cpu_ms or None,
        clock=clock,
    )
    assert not isinstance(result, Wanted), "nothing is put off here"
    return result
