"""Worker processes for policies: started when there are jobs, sent to, watched and reaped.

Each is a child with one end of a socket pair (`rove.serve.workers.children`). It runs
`rove.serve.workers.policy_process` and has given up all rights that it does not need
(`rove.serve.workers.confinement`). It does one job at a time. Other jobs wait here, in order, for
the first worker that is free. Sending jobs ahead was left out: a quick job would wait behind a slow
one while another worker is idle, and a worker gets its next job in the callback that reads its
answer.

A job has its time limit and `GRACE_S` more, from when a running worker gets it. Then the worker is
killed and the job is lost. A policy that runs too long stops by itself before that, so what is
killed hangs in a library or was stopped from outside. A worker that crashes loses only the job that
it was doing. Both are replaced when there are jobs. A worker that ends before it has started is
replaced too; if `STARTS_MAX` do so in a row, workers cannot be started here: jobs are refused for
`RETRY_S`, then the next job tries again.

Nothing here waits: sockets do not block, and processes are reaped in passing. Only starting a
process blocks the broker, for as long as the system takes for it, so that is done between two turns
and one at a time. A thread for it was left out: it would hold the interpreter's lock meanwhile, and
where the system ends a process with its parent, the parent is the *thread* that started it.

Measured on two cores that other programs kept busy: starting a worker blocks the broker for 0.6 to
4 ms; a small call is answered 120 µs after it was submitted (the median; 5 ms for one in a hundred,
which had to wait for a core), and takes the broker 70 µs; one worker does 3,500 of them in a
second.

Answers are not trusted. A worker whose answer is longer than its job allows, has another number, is
of the wrong kind or sets what it may not is taken for compromised and killed.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import time
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from rove.base.processes import Reaper, exit_reason
from rove.lang.values import are_finite
from rove.policy.jobs import (
    CallJob,
    CallResult,
    CompileJob,
    CompileResult,
    CompressionJob,
    CompressionResult,
    Job,
    JobListener,
    JobResult,
    LostKind,
    Stopped,
)
from rove.policy.limits import MIB, REASON_CHARS_MAX, PolicyLimits
from rove.policy.messages import Completed
from rove.serve.logs import events
from rove.serve.workers import policy_process
from rove.serve.workers.children import HEADER, Child, Unreadable, read_frame, spawned
from rove.serve.workers.policy_process import Hello, Order

log = events("policies")

GRACE_S: Final = 0.5
"""How much longer than its limit a job may take: for the round trip on a busy machine."""
HELLO_S: Final = 60.0
"""How long a worker may take to start."""
STARTS_MAX: Final = 3
"""After this many failed starts in a row, workers are taken to be impossible here."""
RETRY_S: Final = 5.0
"""How long none is started then."""
MEMORY_BYTES: Final = 512 * MIB
"""What a worker may allocate beyond what it starts with and what calls may make: the largest
picture that is read has 25 million pixels, and is in memory twice while it is made smaller."""
_KEPT_VARIABLES: Final = ("PYTHONHOME", "PYTHONPATH", "LD_LIBRARY_PATH", "SYSTEMROOT")
"""Variables of the environment that Python may need to start."""
_DYING_S: Final = 0.5
"""How long a process may take to end after its socket was closed."""
_ANSWER_BYTES: Final = MIB
"""The size of an answer, beyond what its job allows."""

_PLAIN: Final = frozenset({int, bool, str, type(None)})
"""Types whose every value a policy may have."""

_answers: Final = msgspec.msgpack.Decoder(JobResult)
_hellos: Final = msgspec.msgpack.Decoder(Hello)
_encoder: Final = msgspec.msgpack.Encoder()

_TRIAL: Final = CallJob(
    1, "def arrived(m, me):\n    return m", "t", b"{}", (), {}, (), {}, 0.0, PolicyLimits()
)


class _Task:
    """A job that waits or runs."""

    __slots__ = ("answer_bytes_max", "job", "message", "time_s")

    def __init__(self, job: Job, time_s: float, message: bytes) -> None:
        self.job = job
        self.time_s = time_s
        self.message = message
        if isinstance(job, CompressionJob):
            most = len(job.request.image)
        elif isinstance(job, CompileJob):
            most = 0
        else:
            limits = job.limits
            most = len(job.payload) + limits.output_bytes_max + 2 * limits.variables_bytes_max
        self.answer_bytes_max = 2 * most + _ANSWER_BYTES


class _Worker(Child):
    """A worker process and its job."""

    is_there = False
    """Whether its first frame has arrived."""
    task: _Task | None = None
    given_at = 0.0
    timer: asyncio.TimerHandle | None = None
    """The deadline of its start or its job."""


class PolicyWorkers:
    """All workers of a broker; implements `rove.policy.jobs.Workers`."""

    def __init__(
        self,
        count: int,
        loop: asyncio.AbstractEventLoop,
        on_news: Callable[[], None],
        *,
        memory_bytes: int = MEMORY_BYTES,
        grace_s: float = GRACE_S,
        hello_s: float = HELLO_S,
    ) -> None:
        """Run at most this many; `on_news` is called when the listener was called."""
        self.listener: JobListener
        """To be set before the first job."""
        self.memory_bytes = memory_bytes
        """What a worker may allocate beyond what it starts with; a change is for later workers."""
        self._count = count
        self._loop = loop
        self._on_news = on_news
        self._grace_s = grace_s
        self._hello_s = hello_s
        self._workers: list[_Worker] = []
        self._waiting: deque[_Task] = deque()
        self._reaper = Reaper(loop)
        self._starting: asyncio.Handle | None = None
        self._failed_starts = 0
        """Since the last successful one."""
        self._refused_until = 0.0
        self._why = ""
        """Why the last start failed."""
        self._missing: tuple[str, ...] = ()
        self._is_closed = False

    @property
    def pids(self) -> list[int]:
        """Running processes, the oldest first."""
        return [worker.process.pid for worker in self._workers]

    # -- for the pool ----------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many jobs can run at a time."""
        return self._count

    def submit(self, job: Job, time_ms: int) -> None:
        """Run a job; never waits."""
        if self._is_closed:
            return
        time_s = time_ms / 1000
        try:
            message = _encoder.encode(Order(job, time_s + self._grace_s))
        except (OverflowError, TypeError, ValueError) as error:
            self._loop.call_soon(
                self._lose, job.number, "error", f"cannot be sent to a worker: {error}"
            )
            return
        self._waiting.append(_Task(job, time_s, message))
        self._dispatch()

    def clock(self) -> float:
        """A monotonic clock, in seconds."""
        return time.perf_counter()

    def close(self) -> None:
        """Kill all of them; no job is reported any more."""
        self._is_closed = True
        self._waiting.clear()
        for worker in list(self._workers):
            self._let_go(worker)
            self._reaper.add(worker.process, 0.0)
        if self._starting is not None:
            self._starting.cancel()
        self._reaper.close()

    # -- giving out jobs -------------------------------------------------------------------------

    def _dispatch(self) -> None:
        """Give waiting jobs to free workers, and start more workers if needed."""
        for worker in self._workers:
            if not self._waiting:
                break
            if worker.is_there and worker.task is None:
                self._give(worker, self._waiting.popleft())
        if self._starting is None and self._wants_more:
            # Between turns and one at a time, because it blocks the broker.
            self._starting = self._loop.call_soon(self._start)

    @property
    def _wants_more(self) -> bool:
        """Whether there are fewer workers than jobs and one more: starting takes a while on a busy
        machine, and a light job must not wait for that behind a long one."""
        todo = len(self._waiting) + sum(worker.task is not None for worker in self._workers)
        return todo > 0 and len(self._workers) < min(self._count, todo + 1)

    def _start(self) -> None:
        """Start another, and then perhaps the next."""
        self._starting = None
        if not self._wants_more:
            return
        if time.monotonic() < self._refused_until:
            self._refuse()
            return
        environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        arguments = (policy_process.__name__, str(self.memory_bytes))
        try:
            worker = _Worker(*spawned(*arguments, environment=environment))
        except OSError as error:
            self._cannot_start(f"cannot be started: {error.strerror}")
            self._dispatch()
            return
        self._workers.append(worker)
        self._loop.add_reader(worker.socket, self._arrived, worker)
        worker.timer = self._loop.call_later(self._hello_s, self._not_started, worker)
        self._dispatch()

    def _give(self, worker: _Worker, task: _Task) -> None:
        worker.task = task
        worker.given_at = time.perf_counter()
        worker.put(task.job.number, task.message)
        worker.flush()
        if worker.outgoing:
            self._loop.add_writer(worker.socket, self._writable, worker)
        self._set_timer(worker)

    def _set_timer(self, worker: _Worker) -> None:
        assert worker.task is not None
        wait_s = worker.task.time_s + self._grace_s
        worker.timer = self._loop.call_later(wait_s, self._overdue, worker, worker.task)

    def _writable(self, worker: _Worker) -> None:
        worker.flush()
        if not worker.outgoing:
            self._loop.remove_writer(worker.socket)

    # -- reading ---------------------------------------------------------------------------------

    def _arrived(self, worker: _Worker) -> None:
        self._read(worker)
        if not self._is_closed:
            self._dispatch()

    def _read(self, worker: _Worker) -> None:
        """Read a socket, and pass on what it has."""
        if worker not in self._workers:
            return
        is_open = worker.receive()
        try:
            self._take_frames(worker)
        except (Unreadable, msgspec.MsgspecError, RecursionError) as error:
            self._kill(worker, "error", f"sent an invalid message: {error}")
            return
        if not is_open and worker in self._workers:
            self._let_go(worker)
            self._reaper.add(worker.process, _DYING_S, lambda status: self._died(worker, status))

    def _take_frames(self, worker: _Worker) -> None:
        if not worker.is_there:
            frame = worker.next_frame(_ANSWER_BYTES)
            if frame is None:
                return
            self._greet(worker, _hellos.decode(frame[1]))
        task = worker.task
        frame = worker.next_frame(task.answer_bytes_max if task is not None else 0)
        if frame is None:
            return
        answer = _answers.decode(frame[1])
        if task is None or not fits(answer, task.job):
            raise Unreadable("an answer without a job")
        answer.is_lost = False
        answer.took_s = min(max(0.0, answer.took_s), time.perf_counter() - worker.given_at)
        worker.task = None
        _cancel(worker)
        self.listener.answered(answer)
        self._on_news()

    def _greet(self, worker: _Worker, hello: Hello) -> None:
        worker.is_there = True
        self._failed_starts = 0
        _cancel(worker)
        if hello.missing != self._missing:
            self._missing = hello.missing
            log.warning(
                "a worker is less confined than it should be", missing="; ".join(hello.missing)
            )

    # -- the end of a worker ---------------------------------------------------------------------

    def _overdue(self, worker: _Worker, task: _Task) -> None:
        """The time of a job is over."""
        # Perhaps it was the broker that was busy for so long, and the answer is there.
        if worker.outgoing and worker.flush():
            self._set_timer(worker)
            return
        self._read(worker)
        if worker in self._workers and worker.task is task:
            self._kill(worker, "time", f"took longer than {task.time_s * 1000:.0f} ms")
        self._dispatch()

    def _not_started(self, worker: _Worker) -> None:
        self._read(worker)
        if worker in self._workers and not worker.is_there:
            self._kill(worker, "error", f"did not start within {self._hello_s:g} s")

    def _kill(self, worker: _Worker, kind: LostKind, why: str) -> None:
        """Kill a worker for this reason; its job is lost."""
        self._let_go(worker)
        self._reaper.add(worker.process, 0.0)
        log.warning("a worker was killed", pid=worker.process.pid, why=why)
        self._gone(worker, kind, f"{why}, and was killed")

    def _died(self, worker: _Worker, status: int) -> None:
        """A worker has ended by itself, or was killed from outside."""
        why = exit_reason(status)
        log.warning("a worker has died", pid=worker.process.pid, why=why)
        if status in (-signal.SIGPROF, -signal.SIGXCPU):
            self._gone(worker, "time", "used too much processor time, and was killed")
        elif status == policy_process.OUT_OF_MEMORY:
            self._gone(worker, "memory", "needs more memory than a worker may have")
        else:
            self._gone(worker, "error", f"the worker was lost: {why}")

    def _gone(self, worker: _Worker, kind: LostKind, why: str) -> None:
        if worker.task is not None:
            self._lose(worker.task.job.number, kind, why)
        elif not worker.is_there:
            self._cannot_start(why)
        self._dispatch()

    def _lose(self, number: int, kind: LostKind, why: str) -> None:
        if not self._is_closed:
            self.listener.lost(number, kind, why)
            self._on_news()

    def _cannot_start(self, why: str) -> None:
        self._failed_starts += 1
        if self._failed_starts < STARTS_MAX:
            return
        self._failed_starts = 0
        log.error("workers for policies cannot be started", why=why)
        self._why = why
        self._refused_until = time.monotonic() + RETRY_S
        self._refuse()

    def _refuse(self) -> None:
        """Refuse the waiting jobs, unless there is a worker that can do them."""
        if not self._workers:
            waiting, self._waiting = self._waiting, deque()
            for task in waiting:
                # Not "error": the policy is not to blame.
                self._lose(task.job.number, "crowded", f"no worker can be started: {self._why}")

    def _let_go(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        _cancel(worker)
        self._loop.remove_reader(worker.socket)
        self._loop.remove_writer(worker.socket)
        worker.socket.close()


def tried() -> tuple[tuple[str, ...], float]:
    """Start a worker and run a job: which rights it could not give up, and how many seconds it
    took; OSError if that fails. It waits, so it is not for a running broker."""
    began = time.perf_counter()
    process, end = spawned(policy_process.__name__, str(MEMORY_BYTES))
    try:
        with end, end.makefile("rb") as stream:
            end.settimeout(HELLO_S)
            hello = read_frame(stream)
            if hello is None:
                raise OSError(f"a worker {exit_reason(process.wait())}")
            message = _encoder.encode(Order(_TRIAL, HELLO_S))
            end.sendall(HEADER.pack(len(message), _TRIAL.number) + message)
            answer = read_frame(stream)
            if answer is None:
                raise OSError(f"a worker {exit_reason(process.wait())}")
    finally:
        process.kill()
        process.wait()
    ran = _answers.decode(answer[1])
    if not isinstance(ran, CallResult) or not isinstance(ran.result, Completed):
        raise OSError(f"a worker answered {ran}")
    return _hellos.decode(hello[1]).missing, time.perf_counter() - began


def memory_bytes_of(limits: PolicyLimits) -> int:
    """What a worker may allocate so that a call reaches its own limit first. The limit of a call
    counts values as they are written; in Python they are several times as large."""
    return MEMORY_BYTES + 4 * limits.memory_bytes_max


def fits(answer: JobResult, job: Job) -> bool:
    """Whether this can be an honest worker's answer to a job."""
    if answer.number != job.number:
        return False
    if isinstance(job, CompressionJob):
        return isinstance(answer, CompressionResult) and isinstance(
            answer.image, type(job.request.image) if answer.image else bytes
        )
    if isinstance(job, CompileJob):
        return isinstance(answer, CompileResult)
    if not isinstance(answer, CallResult):
        return False
    result = answer.result
    if isinstance(result, Stopped):
        return result.steps >= 0 and len(result.text) <= REASON_CHARS_MAX
    return (
        result.steps >= 0
        and _are_sent(result, job)
        and result.changes.keys().isdisjoint(job.automatic)
        and _is_plain(result.changes, bytes_too=False)
        and _is_plain(result.memory, bytes_too=True)
    )


def _are_sent(result: Completed, job: CallJob) -> bool:
    """Whether a call can have these outputs."""
    outputs = result.outputs
    if result.passes:
        return len(outputs) == 1
    limits, came, size_bytes = job.limits, frozenset(job.user), 0
    for one in outputs:
        size_bytes += one.size_bytes
        # A policy cannot make new properties: they might be ones that no client may receive.
        if not came.issuperset(one.user):
            return False
    return len(outputs) <= limits.outputs_max and size_bytes <= limits.output_bytes_max


def _is_plain(value: object, *, bytes_too: bool) -> bool:
    """Whether it consists of values that policies can have."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            # Nearly all lists are of one kind; one at a time would take milliseconds.
            if not (_PLAIN.issuperset(map(type, each)) or are_finite(each)):
                waiting.extend(each)
        elif isinstance(each, dict):
            if not all(isinstance(name, str) for name in each):
                return False
            waiting.extend(each.values())
        elif isinstance(each, float):
            if not math.isfinite(each):
                return False
        elif type(each) not in _PLAIN and not (bytes_too and isinstance(each, bytes)):
            return False
    return True


def _cancel(worker: _Worker) -> None:
    if worker.timer is not None:
        worker.timer.cancel()
        worker.timer = None
