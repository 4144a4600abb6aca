"""The program of a worker process for policies.

`rove.serve.workers.policy_workers` starts it as
`python -m rove.serve.workers.policy_process FD PARENT MEMORY`.
It loads everything, does everything once, gives up all rights that it will not need
(`rove.serve.workers.confinement`), reports which it could not give up (`Hello`), and then reads
jobs from its socket and answers them, one at a time, until the other end is closed. Frames
(`rove.serve.workers.children`) carry the number of their job both ways.

Between two jobs it keeps only caches: compiled policies, and pictures that were made smaller
(`Pictures`). No job can end it, except by too much processor time (a timer that starts anew with
each job and kills the process: the last resort if the broker no longer can) and by memory that is
too short even for an answer. Both lose that job and no other.

Everything is imported and tried before the process is confined: afterwards nothing can be imported,
because no file can be opened. It needs neither NumPy nor Numba nor PyArrow.

Measured on two cores that other programs kept busy: it is ready after 0.14 s at best and 0.6 at
worst, and then has 30 MB. A small call takes it 35 µs, a picture of 100 KB 6 ms with a given
quality and 23 ms if it must fit in 20 KB; one from the cache takes 60 µs.
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

from rove.base.processes import NICE, end_with, lower_priority
from rove.policy.images import Deadline, no_deadline
from rove.policy.jobs import (
    CallJob,
    CallResult,
    CompileJob,
    CompileResult,
    CompressionJob,
    CompressionRequest,
    CompressionResult,
    Job,
    JobResult,
    Stopped,
)
from rove.policy.limits import PolicyLimits
from rove.policy.worker import deadline, picture, result_of
from rove.serve.workers.children import HEADER, read_frame
from rove.serve.workers.confinement import SOCKET_FD, confine

OUT_OF_MEMORY: Final = 3
"""The exit status of a worker that has no memory left for an answer."""
PICTURES_BYTES_MAX: Final = 16 * 1024 * 1024
_BUFFER_BYTES: Final = 256 * 1024


class Order(msgspec.Struct, array_like=True):
    """The contents of a frame to a worker."""

    job: Job
    cpu_s: float
    """Processor time after which the worker is killed."""


class Hello(msgspec.Struct, array_like=True):
    """The contents of the first frame from a worker, which is ready now."""

    missing: tuple[str, ...]
    """Which rights it could not give up, for people."""


class Pictures(Mapping[CompressionRequest, CompressionResult]):
    """A cache of pictures that were made smaller; a picture that is not in it is made.

    With `isolation = "process"`, two hundred subscribers with the same policy ask for the same
    picture two hundred times.
    """

    def __init__(self, bytes_max: int = PICTURES_BYTES_MAX) -> None:
        """Keep at most this many bytes of original and smaller pictures."""
        self._bytes_max = bytes_max
        self.is_late: Deadline = no_deadline
        """Whether the present job has to end."""
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


class PolicyWorker:
    """Does jobs."""

    def __init__(self) -> None:
        self._orders = msgspec.msgpack.Decoder(Order)
        self._encoder = msgspec.msgpack.Encoder()
        self._pictures = Pictures()

    def serve(self, connection: socket.socket, missing: Sequence[str]) -> None:
        """Report that it is ready, then do jobs until the other end is closed."""
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
            encoded = self._encoder.encode(_failure(order.job, f"cannot be sent: {error}"))
        signal.setitimer(signal.ITIMER_PROF, 0)
        return encoded

    def _answer(self, job: Job) -> JobResult:
        if not isinstance(job, CompileJob):
            time_ms = job.time_ms if isinstance(job, CompressionJob) else job.limits.time_ms
            self._pictures.is_late = deadline(time.perf_counter, time_ms)
        is_brief = isinstance(job, CallJob) and job.cpu_ms
        # A job with a limit of processor time is not blamed for a busy machine.
        clock = time.thread_time if is_brief else time.perf_counter
        try:
            return result_of(job, clock, self._pictures)
        except MemoryError:
            return _failure(job, "needs more memory than a worker may have", is_memory=True)
        except Exception as error:
            # A bug of ours; it costs one answer.
            return _failure(job, f"the worker failed: {error!r}")


def _send(connection: socket.socket, number: int, message: bytes) -> None:
    connection.sendall(HEADER.pack(len(message), number) + message)


def _failure(job: Job, text: str, *, is_memory: bool = False) -> JobResult:
    if isinstance(job, CompileJob):
        return CompileResult(job.number, None, text)
    if isinstance(job, CompressionJob):
        return CompressionResult(job.number, b"", text, kind="memory" if is_memory else "error")
    return CallResult(job.number, Stopped("memory" if is_memory else "error", text))


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


def rehearse(worker: PolicyWorker) -> None:
    """Do everything that a worker does once, on a small scale: what is imported or read at first
    use must be loaded before files can no longer be opened."""
    for image in (*_drawn(), b"no picture"):
        for wish in (CompressionRequest(image, bytes_max=600), CompressionRequest(image[:-40], 10)):
            worker.answered(_order(CompressionJob(0, wish)))
        payload = {"x": 6, "kind": "car", "image": base64.b64encode(image).decode()}
        job = CallJob(
            0, _REHEARSED, "a", msgspec.json.encode(payload), (("k", "v"),), {"y": 1},
            ("battery",), {}, 1e9, PolicyLimits(),
        )  # fmt: skip
        worker.answered(_order(job))
    for text in (_REHEARSED, "def arrived(", "def arrived(m, me): return mm"):
        worker.answered(_order(CompileJob(0, text, PolicyLimits().text_bytes_max)))


def _drawn() -> Iterator[bytes]:
    """A picture of each kind; none without Pillow, which makes pictures smaller."""
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
    """Serve the socket with this number; returns the exit status."""
    lower_priority(NICE)
    end_with(parent)
    try:
        worker = PolicyWorker()
        rehearse(worker)
        # What was imported stays, so the garbage collector need not look through it each time.
        gc.collect()
        gc.freeze()
        missing = confine(fd, parent, memory_bytes)
        # Family and kind are given, because Python may no longer ask the system for them.
        worker.serve(
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=SOCKET_FD), missing
        )
    except MemoryError:
        return OUT_OF_MEMORY
    return 0


if __name__ == "__main__":
    # At once: there is nothing to save, and finalizing needs rights that are gone.
    os._exit(main(*map(int, sys.argv[1:])))
