"""What a worker for policies runs.

`rove.serve.workers.policy_workers` starts it as
`python -m rove.serve.workers.policy_process FD PARENT MEMORY`.
It loads everything and does everything once, gives up what it will not need
(`rove.serve.workers.confinement`), says what it could not give up (`Hello`), and from then on reads
jobs from its socket and answers them, one at a time, until the other end is closed. Frames
(`rove.serve.workers.children`) have the number of their job both ways.

It knows nothing between two jobs but what it may forget: compiled policies, and pictures that were
made smaller (`Pictures`). Nothing that a job does ends it, except too much processor time (a timer
that begins anew with each job, and ends the process: the last resort if nobody is left to kill it)
and memory that is short even for an answer. Both take the job with them, and no other.

Everything is imported and tried before it is confined: afterwards nothing can be imported, for no
file can be opened. Neither NumPy nor Numba nor PyArrow is among it.

Measured on two cores that others kept busy: it is there after 0.14 s at best and 0.6 at worst, and
then has 30 MB. A small call takes it 35 µs, a picture of 100 KB 6 ms with a given quality and 23 ms
to be no larger than 20 KB; one that it remembers takes 60 µs.
"""

from __future__ import annotations

import base64
import gc
import io
import os
import signal
import socket
import sys
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from rove.base.processes import end_with
from rove.policy.images import Deadline, no_deadline
from rove.policy.jobs import (
    CompileJob,
    CompileResult,
    CompressionJob,
    CompressionRequest,
    CompressionResult,
    Job,
    JobResult,
    RunJob,
    RunResult,
    Stopped,
)
from rove.policy.limits import PolicyLimits
from rove.policy.worker import deadline, picture, result_of
from rove.serve.workers.children import HEADER, read_frame
from rove.serve.workers.confinement import SOCKET_FD, confine
from rove.serve.workers.matcher_start import NICE, stand_back

OUT_OF_MEMORY: Final = 3
"""What a worker ends with that has no memory left to say so."""
PICTURES_BYTES_MAX: Final = 16 * 1024 * 1024
_BUFFER_BYTES: Final = 256 * 1024


class Order(msgspec.Struct, array_like=True):
    """What a frame to a worker has in it."""

    job: Job
    cpu_s: float
    """Processor time after which the worker ends."""


class Hello(msgspec.Struct, array_like=True):
    """What the first frame from a worker has in it: it is there."""

    missing: tuple[str, ...]
    """What it could not give up, for people."""


class Pictures(Mapping[CompressionRequest, CompressionResult]):
    """Pictures that were made smaller: makes what it does not remember, and forgets what it was
    longest not asked for.

    With `isolation = "process"`, two hundred doctors with the same policy ask for the same picture
    two hundred times.
    """

    def __init__(self, bytes_max: int = PICTURES_BYTES_MAX) -> None:
        """Remember no more than so many bytes, of what came and of what was made of it."""
        self._bytes_max = bytes_max
        self.is_late: Deadline = no_deadline
        """When the job is to end that asks."""
        self._bytes = 0
        self._known: OrderedDict[CompressionRequest, CompressionResult] = OrderedDict()

    def __getitem__(self, request: CompressionRequest) -> CompressionResult:
        found = self._known.get(request)
        if found is not None:
            self._known.move_to_end(request)
            return found
        found = picture(request, self.is_late)
        if found.image or found.kind == "error":
            self._remember(request, found)
        return found

    def __iter__(self) -> Iterator[CompressionRequest]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def _remember(self, request: CompressionRequest, made: CompressionResult) -> None:
        self._known[request] = made
        self._bytes += _size_bytes(request, made)
        while self._bytes > self._bytes_max:
            self._bytes -= _size_bytes(*self._known.popitem(last=False))


def _size_bytes(request: CompressionRequest, made: CompressionResult) -> int:
    return len(request.image) + len(made.image) + len(made.text)


class Worker:
    """Does jobs."""

    def __init__(self) -> None:
        self._orders = msgspec.msgpack.Decoder(Order)
        self._encoder = msgspec.msgpack.Encoder()
        self._pictures = Pictures()

    def serve(self, connection: socket.socket, missing: Sequence[str]) -> None:
        """Say that it is there, then do as it is told until the other end is closed."""
        try:
            _send(connection, 0, self._encoder.encode(Hello(tuple(missing))))
            with connection.makefile("rb", _BUFFER_BYTES) as stream:
                while (frame := read_frame(stream)) is not None:
                    _send(connection, frame[0], self.answered(frame[1]))
        except OSError:  # the other end was closed while it was written to
            return

    def answered(self, message: bytes) -> bytes:
        """Do a job; the answer, ready to be sent."""
        order = self._orders.decode(message)
        # The last resort: the signal ends the process.
        signal.setitimer(signal.ITIMER_PROF, order.cpu_s)
        # Of this thread, for the only one: the clock of the whole process is coarse under a timer.
        began = time.thread_time()
        answer = self._answer(order.job)
        answer.took_s = time.thread_time() - began
        try:
            encoded = self._encoder.encode(answer)
        except (OverflowError, TypeError, ValueError) as error:
            encoded = self._encoder.encode(_failure(order.job, f"cannot be handed on: {error}"))
        signal.setitimer(signal.ITIMER_PROF, 0)
        return encoded

    def _answer(self, job: Job) -> JobResult:
        if not isinstance(job, CompileJob):
            time_ms = job.time_ms if isinstance(job, CompressionJob) else job.limits.time_ms
            self._pictures.is_late = deadline(time.perf_counter, time_ms)
        is_brief = isinstance(job, RunJob) and job.cpu_ms
        # Of what is to take no longer than others can wait, what counts is not how busy the machine
        # is.
        clock = time.thread_time if is_brief else time.perf_counter
        try:
            return result_of(job, clock, self._pictures)
        except MemoryError:
            return _failure(job, "needs more memory than a worker may have", is_memory=True)
        except Exception as error:
            # A fault of ours; it costs one answer.
            return _failure(job, f"the worker failed: {error!r}")


def _send(connection: socket.socket, number: int, message: bytes) -> None:
    connection.sendall(HEADER.pack(len(message), number) + message)


def _failure(job: Job, text: str, *, is_memory: bool = False) -> JobResult:
    if isinstance(job, CompileJob):
        return CompileResult(job.number, None, text)
    if isinstance(job, CompressionJob):
        return CompressionResult(job.number, b"", text, kind="memory" if is_memory else "error")
    return RunResult(job.number, Stopped("memory" if is_memory else "error", text))


_REHEARSED: Final = """
LOW = 0.25
def arrived(m, me):
    if every(10, per=m.kind) and changed("x", by=1):
        me.seen = get("seen", 0) + 1
        n = 0
        for word in split(lower(f"a {m.kind} b"), " "):
            n += len(word)
        summary(60, "x")
        small = compress(m.image, quality=20, pixels_max=16)
        return [drop(message(n=n, at=hour(now()), image=small), "at"), keep(m, "x"), m]
    return m.x / m.nothing
"""


def rehearse(worker: Worker) -> None:
    """Do once, on a small scale, all that a worker does: what is imported late, or read when it is
    first needed, is there before no file can be opened."""
    for image in (*_drawn(), b"no picture"):
        for wish in (CompressionRequest(image, bytes_max=600), CompressionRequest(image[:-40], 10)):
            worker.answered(_order(CompressionJob(0, wish)))
        payload = {"x": 6, "kind": "car", "image": base64.b64encode(image).decode()}
        job = RunJob(
            0, _REHEARSED, "a", msgspec.json.encode(payload), (("k", "v"),), {"y": 1},
            ("battery",), {}, 1e9, PolicyLimits(),
        )  # fmt: skip
        worker.answered(_order(job))
    for text in (_REHEARSED, "def arrived(", "def arrived(m, me): return mm"):
        worker.answered(_order(CompileJob(0, text, PolicyLimits().text_bytes_max)))


def _drawn() -> Iterator[bytes]:
    """A picture of each kind; none without Pillow, and then none can be made smaller either."""
    try:
        from PIL import Image
    except ImportError:
        return
    for format_, mode in (("JPEG", "RGB"), ("JPEG", "L"), ("PNG", "RGB"), ("PNG", "RGBA")):
        drawn = io.BytesIO()
        Image.new(mode, (32, 32)).save(drawn, format_)
        yield drawn.getvalue()


def _order(job: Job) -> bytes:
    return msgspec.msgpack.encode(Order(job, 60.0))


def main(fd: int, parent: int, memory_bytes: int) -> int:
    """Serve the socket with this number; what the process ends with."""
    stand_back(NICE)
    end_with(parent)
    try:
        worker = Worker()
        rehearse(worker)
        # What was imported stays: looking for cycles in it would take its time, over and over.
        gc.collect()
        gc.freeze()
        missing = confine(fd, parent, memory_bytes)
        # All is said, so that Python need not ask what it is.
        worker.serve(
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=SOCKET_FD), missing
        )
    except MemoryError:
        return OUT_OF_MEMORY
    return 0


if __name__ == "__main__":
    # At once: nothing here is to be kept, and what is left of it could not be tidied up anyway.
    os._exit(main(*map(int, sys.argv[1:])))
