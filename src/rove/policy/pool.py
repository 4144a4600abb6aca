"""A fair queue of jobs for policy workers: a user with many jobs delays mainly itself.

Each user has a queue, and the next job is that of the user whose total processor time will be
smallest after it, estimated from its earlier jobs; an idle user starts with the minimum of the
others. So a user with short jobs comes before any number of users who are new or have longer jobs,
until it has used as much as they. The broker's own work for a user counts too (`charge`), and
results are processed in the same order. Each worker gets one job at a time, so that a new job need
not wait behind queued jobs of other users.

A job cannot be interrupted. So there are two lanes: *light* jobs, which take few milliseconds
(`Agents` bounds their steps and their time), may use every worker; *long* ones, which are whole
calls, pictures and compilations, all but one. A light job waits for light ones only, and that of a
user with short jobs only for the one that is running.

Equal compressions are done once, and their results are cached: two hundred doctors who need the
same picture cost one compression. If a worker crashes, another repeats its job once. Adding a job
and taking the next cost a few microseconds, however many wait.

The pool uses neither processes nor clocks: `Workers` does the jobs, and results wait until the
broker's turn takes them (`take`).
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from typing import Final, Generic, TypeVar

import msgspec

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
    LostKind,
    Stopped,
    Workers,
)

CACHE_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of compressed pictures and their originals."""
EXPECTED_S: Final = 0.01
"""The expected duration of a user's first job: the limit of a light one."""
_LATEST: Final = 8
"""The number of a user's last jobs from which the duration of the next is estimated."""
IDLE_MAX: Final = 1_000
"""Idle users whose processor time is remembered."""

Waiter = TypeVar("Waiter")


class _QueuedJob(msgspec.Struct):
    """A job that was asked for, and who waits for it."""

    owner: str
    job: Job
    time_ms: int
    waiters: list[tuple[str, object]]
    """Each with the user that it belongs to."""
    is_light: bool = False
    is_begun: bool = False
    """A worker has it; it may still be in queues of others who asked for it."""
    is_retry: bool = False
    """A worker that had it has died."""
    expected_s: float = 0.0
    """What it counts for while it is being done."""


class FinishedJob(msgspec.Struct, Generic[Waiter]):
    """A job is done: who asked for it, and how it went."""

    waiter: Waiter
    answer: JobResult
    is_first: bool
    """The first of those who asked; the job counts as its own."""


class _Lane:
    """Jobs that wait, by owner; next is who will have used least when its job is done."""

    def __init__(self, used_s: dict[str, float]) -> None:
        self._used_s = used_s
        self.queues: dict[str, deque[_QueuedJob]] = {}
        """Empty ones are not there."""
        self._order: list[tuple[float, int, str]] = []
        """A heap of owners who wait, each once, by what they would have used after their next job,
        as it was known when they were put there."""
        self._entered = 0
        self.mean_s: dict[str, float] = {}
        """What the latest jobs of an owner took."""

    def expected_s(self, owner: str) -> float:
        """What the next job of an owner will take, as far as one can know."""
        return self.mean_s.get(owner, EXPECTED_S)

    def took(self, owner: str, took_s: float) -> None:
        """A job of an owner has taken so long."""
        mean_s = self.mean_s.get(owner, took_s)
        self.mean_s[owner] = mean_s + (took_s - mean_s) / _LATEST

    def _after_s(self, owner: str) -> float:
        return self._used_s[owner] + self.expected_s(owner)

    def put(self, owner: str, queued: _QueuedJob, *, is_first: bool = False) -> None:
        """Let a job wait, behind the others of its owner or before them."""
        queue = self.queues.get(owner)
        if queue is None:
            self._push(owner)
            queue = self.queues[owner] = deque()
        if is_first:
            queue.appendleft(queued)
        else:
            queue.append(queued)

    def _push(self, owner: str) -> None:
        self._entered += 1
        heapq.heappush(self._order, (self._after_s(owner), self._entered, owner))

    def least_s(self) -> float | None:
        """What the next owner will have used after its job; None if nothing waits."""
        order = self._order
        while order:
            known_s, _, owner = order[0]
            queue = self.queues[owner]
            while queue and queue[0].is_begun:
                # It was done in the turn of another who wants it too.
                queue.popleft()
            if not queue:
                del self.queues[owner]
                heapq.heappop(order)
            elif self._after_s(owner) > known_s:
                heapq.heappop(order)
                self._push(owner)
            else:
                return known_s
        return None

    def take(self) -> tuple[str, _QueuedJob]:
        """The next job, and in whose turn it is done; `least_s` has said that there is one."""
        _, _, owner = heapq.heappop(self._order)
        queue = self.queues[owner]
        queued = queue.popleft()
        if queue:
            self._push(owner)
        else:
            del self.queues[owner]
        return owner, queued


class Pool(Generic[Waiter]):
    """The queue; also the listener of the workers."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._used_s: dict[str, float] = {}
        """Processor time that the jobs of each owner have taken, from a common zero."""
        self._least_s = 0.0
        """Nobody who begins to wait has used less: idleness saves nothing up."""
        self._light, self._long = _Lane(self._used_s), _Lane(self._used_s)
        self._long_count = 0
        """Long jobs under way."""
        self._under_way: dict[int, _QueuedJob] = {}
        self._compressions: dict[CompressionRequest, _QueuedJob] = {}
        self.compressed: OrderedDict[CompressionRequest, CompressionResult] = OrderedDict()
        """Results of compressions that are still known."""
        self._cache_bytes = 0
        self.ready: list[tuple[float, int, FinishedJob[Waiter]]] = []
        """Answers that nobody has taken: a heap, by what its owner had used when it came."""
        self._answered = 0
        self.texts: deque[tuple[Waiter, CompileResult]] = deque()
        """Texts that were compiled, and who asked; for whoever asked to take."""
        self._next = 1
        self.waiting = 0
        """Jobs that no worker was given."""
        self.done = 0
        self.lost_count = 0

    @property
    def workers_count(self) -> int:
        return self._workers.count

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    # -- asking --------------------------------------------------------------------------------

    def compress(
        self, owner: str, request: CompressionRequest, waiter: Waiter, time_ms: int
    ) -> None:
        """Have a picture made smaller."""
        queued = self._compressions.get(request)
        if queued is not None:
            queued.waiters.append((owner, waiter))
            if not queued.is_begun and owner != queued.owner:
                # Whoever asked first may have asked for much else before.
                self._begin_to_wait(owner)
                self._long.put(owner, queued)
            return
        job = CompressionJob(self._number(), request, time_ms)
        queued = self._compressions[request] = _QueuedJob(owner, job, time_ms, [(owner, waiter)])
        self._enter(queued)

    def run(
        self, owner: str, job: CallJob, waiter: Waiter, time_ms: int, *, is_light: bool = False
    ) -> None:
        """Have a call done; the job's number is given here."""
        job.number = self._number()
        self._enter(_QueuedJob(owner, job, time_ms, [(owner, waiter)], is_light))

    def compile(self, owner: str, text: str, bytes_max: int, waiter: Waiter, time_ms: int) -> None:
        """Have the text of a policy compiled."""
        self._enter(
            _QueuedJob(
                owner, CompileJob(self._number(), text, bytes_max), time_ms, [(owner, waiter)]
            )
        )

    def _number(self) -> int:
        number, self._next = self._next, self._next + 1
        return number

    def _enter(self, queued: _QueuedJob, *, is_first: bool = False) -> None:
        self._begin_to_wait(queued.owner)
        lane = self._light if queued.is_light else self._long
        lane.put(queued.owner, queued, is_first=is_first)
        self.waiting += 1
        self._feed()

    def _begin_to_wait(self, owner: str) -> None:
        if owner not in self._used_s and len(self._used_s) >= 2 * IDLE_MAX:
            self._forget_idle()
        self._used_s[owner] = max(self._used_s.get(owner, 0.0), self._least_s)

    def _forget_idle(self) -> None:
        """Let those who wait for nothing begin anew: there may be very many."""
        busy = {queued.owner for queued in self._under_way.values()}
        busy.update(self._light.queues, self._long.queues)
        for owner in self._used_s.keys() - busy:
            del self._used_s[owner]
            self._light.mean_s.pop(owner, None)
            self._long.mean_s.pop(owner, None)

    def charge(self, owner: str, took_s: float) -> None:
        """The broker itself has worked so long for an owner whose jobs wait, or were done."""
        if owner in self._used_s:
            self._used_s[owner] += took_s

    def _feed(self) -> None:
        """Give a job to each worker that has none."""
        count = self._workers.count
        while len(self._under_way) < count:
            light_s = self._light.least_s()
            # One worker is left to light jobs, if there are two.
            has_room = self._long_count < max(1, count - 1)
            long_s = self._long.least_s() if has_room else None
            if light_s is None and long_s is None:
                return
            is_light = long_s is None or (light_s is not None and light_s <= long_s)
            lane = self._light if is_light else self._long
            owner, queued = lane.take()
            self._least_s = max(self._least_s, self._used_s[owner])
            queued.expected_s = lane.expected_s(queued.owner)
            self._used_s[queued.owner] += queued.expected_s
            queued.is_begun = True
            self.waiting -= 1
            self._long_count += not is_light
            self._under_way[queued.job.number] = queued
            self._workers.submit(queued.job, queued.time_ms)

    def _ended(self, number: int, took_s: float | None = None) -> _QueuedJob | None:
        """A job is no longer under way; None if it was not."""
        queued = self._under_way.pop(number, None)
        if queued is not None:
            self._long_count -= not queued.is_light
            if took_s is None:
                took_s = queued.time_ms / 1000
            self._used_s[queued.owner] += took_s - queued.expected_s
            (self._light if queued.is_light else self._long).took(queued.owner, took_s)
        return queued

    # -- answers -------------------------------------------------------------------------------

    def answered(self, answer: JobResult) -> None:
        """A job is done."""
        queued = self._ended(answer.number, answer.took_s)
        if queued is None:
            return
        self.done += 1
        if isinstance(answer, CompressionResult) and isinstance(queued.job, CompressionJob):
            del self._compressions[queued.job.request]
            self._remember(queued.job.request, answer)
        self._deliver(queued, answer)

    def lost(self, number: int, kind: LostKind, why: str) -> None:
        """A job took too long, or its worker died of it."""
        queued = self._ended(number, None if kind == "time" else EXPECTED_S)
        if queued is None:
            return
        self.lost_count += 1
        if kind == "error" and not queued.is_retry:
            self._retry(queued)
            return
        took_s = 0.0 if kind == "crowded" else queued.time_ms / 1000
        if isinstance(queued.job, CompileJob):
            self._deliver(queued, CompileResult(number, None, why, took_s=took_s, is_lost=True))
        elif isinstance(queued.job, CompressionJob):
            del self._compressions[queued.job.request]
            self._deliver(queued, CompressionResult(number, b"", why, took_s, kind, is_lost=True))
        else:
            self._deliver(queued, CallResult(number, Stopped(kind, why), took_s, is_lost=True))

    def _retry(self, queued: _QueuedJob) -> None:
        """Have another worker do it, before whatever else its owner wants.

        Somebody may have ended the first, and a message must not be lost by that. If the second
        dies of it too, it is the job.
        """
        queued.is_retry, queued.is_begun = True, False
        queued.job.number = self._number()
        self._enter(queued, is_first=True)

    def _deliver(self, queued: _QueuedJob, answer: JobResult) -> None:
        if isinstance(answer, CompileResult):
            self.texts.append((queued.waiters[0][1], answer))  # type: ignore[arg-type]
            self._feed()
            return
        for place, (owner, waiter) in enumerate(queued.waiters):
            ready: FinishedJob[Waiter] = FinishedJob(waiter, answer, place == 0)  # type: ignore[arg-type]
            self._answered += 1
            used_s = self._used_s.get(owner, self._least_s)
            heapq.heappush(self.ready, (used_s, self._answered, ready))
        self._feed()

    def _remember(self, request: CompressionRequest, answer: CompressionResult) -> None:
        self.compressed[request] = answer
        self._cache_bytes += len(request.image) + len(answer.image)
        while self._cache_bytes > CACHE_BYTES_MAX and len(self.compressed) > 1:
            old, gone = self.compressed.popitem(last=False)
            self._cache_bytes -= len(old.image) + len(gone.image)

    def take(self) -> FinishedJob[Waiter]:
        """The next answer, of who has used least; there is one (`ready`)."""
        return heapq.heappop(self.ready)[2]
