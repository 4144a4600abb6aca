"""The jobs of policy workers and their results, as messages between processes.

A call that would delay other clients, a compilation, and a heavy function such as compressing a
picture become a *job*. A job contains everything that it needs, and its result is its only
effect. Between jobs a worker keeps only caches, so after a crash only one job has to be
repeated.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import msgspec

from rove.policy.limits import PolicyLimits
from rove.policy.messages import Completed, UserProperties

StopKind = Literal["steps", "time", "memory", "output", "state", "error", "share", "crowded"]
"""Which limit a call was stopped by; `error` is an error in the policy itself."""

LostKind = Literal["time", "memory", "error", "crowded"]
"""Of these, what a job can be lost by."""

Picture = Any
"""Bytes or a text; msgspec has no union of these."""


class CompressionRequest(msgspec.Struct, frozen=True, array_like=True):
    """A picture to compress; equal requests have equal results."""

    image: Picture
    """A string is base64, as in the message: so equal requests of many subscribers are
    recognised without decoding the picture."""
    quality: int | None = None
    """1 to 95."""
    bytes_max: int | None = None
    pixels_max: int | None = None
    """Of the longer side."""


class Stopped(msgspec.Struct, array_like=True, tag=True):
    """A call that was stopped, without any effect on the state."""

    kind: StopKind
    text: str
    """For people."""
    line: int = 0
    steps: int = 0


class Deferred(msgspec.Struct, array_like=True, tag=True):
    """A call that needs these results first; then it is restarted."""

    requests: tuple[CompressionRequest, ...]


class Code(msgspec.Struct, array_like=True, frozen=True):
    """The result of compiling a policy, as it is sent between processes."""

    program: bytes
    """Python bytecode and constant lists, marshalled; loaded only where the policy runs."""
    uses: tuple[str, ...]
    changes_state: bool
    writes: bool
    needs_call: bool


class CompressionJob(msgspec.Struct, array_like=True, tag=True):
    """A job: compress a picture."""

    number: int
    request: CompressionRequest
    time_ms: int = 0
    """How long that may take; 0 is no limit."""


class CallJob(msgspec.Struct, array_like=True, tag=True):
    """A job: one call of a policy, heavy functions included."""

    number: int
    text: str
    topic: str
    payload: bytes
    user: UserProperties
    me: dict[str, Any]
    automatic: tuple[str, ...]
    memory: dict[str, Any]
    now: float
    limits: PolicyLimits
    code: Code | None = None
    """The compiled policy."""
    steps_max: int = 0
    """Fewer than the limits allow, if a call that exceeds them is to be restarted as a long one."""
    cpu_ms: int = 0
    """Processor time after which it is restarted as well, however few its steps; 0 is no limit."""


class CompileJob(msgspec.Struct, array_like=True, tag=True):
    """A job: compile a policy."""

    number: int
    text: str
    bytes_max: int


class CompileResult(msgspec.Struct, array_like=True, tag=True):
    """The answer to `CompileJob`: a program, or what is wrong with the text."""

    number: int
    code: Code | None = None
    what: str = ""
    hint: str = ""
    line: int = 0
    column: int = 0
    took_s: float = 0.0
    is_lost: bool = False


class CompressionResult(msgspec.Struct, array_like=True, tag=True):
    """The answer to `CompressionJob`."""

    number: int
    image: Picture
    """Bytes or base64, as in the request; empty if it failed."""
    text: str = ""
    """Why it failed."""
    took_s: float = 0.0
    kind: LostKind = "error"
    """By which limit a call with this picture is stopped, if it failed."""
    is_lost: bool = False
    """No worker sent this: it was too late, or crashed."""


class CallResult(msgspec.Struct, array_like=True, tag=True):
    """The answer to `CallJob`."""

    number: int
    result: Completed | Stopped
    took_s: float = 0.0
    """Processor time."""
    is_lost: bool = False


Job = CompressionJob | CallJob | CompileJob
JobResult = CompressionResult | CallResult | CompileResult


class JobListener(Protocol):
    """Receives the results of jobs."""

    def answered(self, answer: JobResult) -> None:
        """A job is done."""

    def lost(self, number: int, kind: LostKind, why: str) -> None:
        """A job took too long and was killed (`time`), its worker crashed, or there is no worker
        (`crowded`)."""


class Workers(Protocol):
    """Processes that do jobs; the shell has real ones, tests use simulated ones."""

    @property
    def count(self) -> int:
        """How many jobs can be done at a time."""
        ...

    def submit(self, job: Job, time_ms: int) -> None:
        """Start a job without waiting. At most `count` run at any time.

        `answered` or `lost` of the listener follows for each, later, never from within this
        call.
        """

    def clock(self) -> float:
        """A monotonic clock, in seconds."""
        ...
