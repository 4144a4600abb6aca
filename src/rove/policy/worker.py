"""Does the jobs of policies: in a worker process, on Spark, and in simulated workers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from rove.policy.compiler import compile_text, compiled
from rove.policy.errors import PolicyError
from rove.policy.images import Deadline, ImageError, compress, no_deadline
from rove.policy.jobs import (
    CallJob,
    CallResult,
    CompileJob,
    CompileResult,
    CompressionJob,
    CompressionRequest,
    CompressionResult,
    Deferred,
    Job,
    JobResult,
    Stopped,
)
from rove.policy.messages import Completed, IncomingMessage
from rove.policy.runner import run


def result_of(
    job: Job,
    clock: Callable[[], float],
    results: Mapping[CompressionRequest, CompressionResult] | None = None,
) -> JobResult:
    """Do a job, without measuring its time. `results`, if given, returns the result of any
    compression, computing it if necessary."""
    if isinstance(job, CompileJob):
        return _compiled(job)
    if isinstance(job, CompressionJob):
        if results is None:
            made = picture(job.request, deadline(clock, job.time_ms))
        else:
            made = results[job.request]
        return CompressionResult(job.number, made.image, made.text, kind=made.kind)
    return CallResult(job.number, _ran(job, clock, results))


def _compiled(job: CompileJob) -> CompileResult:
    """Compile a policy without caching it, because it may never run in this worker."""
    try:
        return CompileResult(job.number, compile_text(job.text, job.bytes_max))
    except PolicyError as error:
        return CompileResult(job.number, None, error.what, error.hint, error.line, error.column)


def deadline(clock: Callable[[], float], time_ms: int) -> Deadline:
    """Returns whether this time has passed; 0 is never."""
    ends_at = clock() + time_ms / 1000 if time_ms else math.inf
    return lambda: clock() > ends_at


def picture(request: CompressionRequest, is_late: Deadline = no_deadline) -> CompressionResult:
    """Compress a picture; a result without a number, with the reason if it failed."""
    try:
        return CompressionResult(0, compress(request, is_late))
    except ImageError as error:
        return CompressionResult(0, b"", str(error), kind=error.kind)
    except MemoryError:
        return CompressionResult(0, b"", "the picture needs too much memory", kind="memory")


def _ran(
    job: CallJob,
    clock: Callable[[], float],
    results: Mapping[CompressionRequest, CompressionResult] | None,
) -> Completed | Stopped:
    limits = job.limits
    try:
        # Whoever sends a job has compiled it already, under a limit that may have changed since.
        bytes_max = max(limits.text_bytes_max, len(job.text) * 4)
        policy = compiled(job.text, bytes_max=bytes_max, code=job.code)
    except PolicyError as error:
        return Stopped("error", error.what, error.line)
    arrived = IncomingMessage(job.topic, job.payload, job.user)
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
    assert not isinstance(result, Deferred), "nothing is put off here"
    return result
