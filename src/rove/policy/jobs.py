"""What is done for policies beside the broker, in words that fit through a pipe.

A call that would delay others, and a heavy function such as the compression of a picture, become a
*job*: everything that it needs goes with it, and its answer is all that there is. A worker knows
nothing between two jobs but what it may forget: of one that dies, one job has to be done again.
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
    """A picture that is wanted smaller; the same wish has the same answer."""

    image: Picture
    """A text is base64, just as it stands in the message: then the same wish of many subscribers is
    known again without reading the picture."""
    quality: int | None = None
    """1 to 95."""
    bytes_max: int | None = None
    pixels_max: int | None = None
    """Of the longer side."""


class Stopped(msgspec.Struct, array_like=True, tag=True):
    """A call that came to nothing, and left no trace in the state."""

    kind: StopKind
    text: str
    """For people."""
    line: int = 0
    steps: int = 0


class Deferred(msgspec.Struct, array_like=True, tag=True):
    """A call that cannot go on until these are there; then it is begun again."""

    requests: tuple[CompressionRequest, ...]


class Code(msgspec.Struct, array_like=True, frozen=True):
    """What compiling a text gives, such that it fits through a pipe."""

    program: bytes
    """Python's own code and the lists that it finds, marshalled: read only where it is to run."""
    uses: tuple[str, ...]
    changes_state: bool
    writes: bool
    needs_call: bool


class CompressionJob(msgspec.Struct, array_like=True, tag=True):
    """A job: make a picture smaller."""

    number: int
    request: CompressionRequest
    time_ms: int = 0
    """How long that may take; 0 is as long as it takes."""


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
    """What the text was compiled to."""
    steps_max: int = 0
    """Fewer than the limits allow, if the call is to be begun again where it delays nobody."""
    cpu_ms: int = 0
    """Processor time after which it is begun again there too, however few its steps are; 0 is that
    nobody looks at it."""


class CompileJob(msgspec.Struct, array_like=True, tag=True):
    """A job: make a program of the text of a policy."""

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
    """Of the same kind as it came; empty if it cannot be."""
    text: str = ""
    """Why it cannot be."""
    took_s: float = 0.0
    kind: LostKind = "error"
    """What a call is stopped by whose picture this was, if it cannot be."""
    is_lost: bool = False
    """No worker has said this: it was too late, or died."""


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
    """Hears of jobs."""

    def answered(self, answer: JobResult) -> None:
        """A job is done."""

    def lost(self, number: int, kind: LostKind, why: str) -> None:
        """A job took too long and was killed (`time`), its worker died, or nobody could be asked
        (`crowded`)."""


class Workers(Protocol):
    """Processes that do jobs; the shell has real ones, tests have simulated ones."""

    @property
    def count(self) -> int:
        """How many jobs can be done at a time."""
        ...

    def submit(self, job: Job, time_ms: int) -> None:
        """Have a job done; never waits. At most `count` are under way at any time.

        `answered` or `lost` of the listener follows for each, later, never from within this call.
        """

    def clock(self) -> float:
        """Seconds that only ever go on, to measure by."""
        ...
