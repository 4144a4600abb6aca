"""Jobs for workers, in a queue that is fair: whoever asks for much waits for itself.

Each subscriber has a queue of its own, and the queues have their turns one after the other. Workers
are given no more than keeps them busy, so that a subscriber who asks now need not wait for what
somebody else asked a second ago. What several want alike is done once, and its answer is kept for a
while: two hundred doctors who want the same picture smaller cost one compression. A job
whose worker dies is done once more by another.

Nothing here knows processes or time: `Workers` does the jobs, and what it says is kept until the
broker's turn asks for it (`take`).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Final, Generic, TypeVar

import msgspec

from rove.policy.jobs import (
    Answer,
    Compress,
    Compressed,
    Compression,
    Job,
    LostKind,
    Ran,
    Run,
    Stopped,
    Workers,
)

CACHE_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of pictures that were made smaller, and of what they were made from."""
AHEAD: Final = 2
"""Jobs under way for each worker: one that it does and one that it finds when that is done."""

Asker = TypeVar("Asker")


class _Wish(msgspec.Struct):
    """A job that was asked for, and who waits for it."""

    owner: str
    job: Job
    time_ms: int
    askers: list[object]
    is_begun: bool = False
    """A worker has it; it may still be in queues of others who asked for it."""
    is_again: bool = False
    """A worker that had it has died."""


class Ready(msgspec.Struct, Generic[Asker]):
    """A job is done: who asked for it, and how it went."""

    asker: Asker
    answer: Answer
    is_first: bool
    """The first of those who asked; the job counts as its own."""


class Pool(Generic[Asker]):
    """The queue; also the listener of the workers."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._queues: OrderedDict[str, deque[_Wish]] = OrderedDict()
        """By owner; the first has the next turn. Empty ones are not there."""
        self._under_way: dict[int, _Wish] = {}
        self._wanted: dict[Compression, _Wish] = {}
        self._cache: OrderedDict[Compression, Compressed] = OrderedDict()
        self._cache_bytes = 0
        self._ready: list[Ready[Asker]] = []
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

    @property
    def compressed(self) -> Mapping[Compression, Compressed]:
        """Answers that are still known."""
        return self._cache

    # -- asking --------------------------------------------------------------------------------

    def compress(self, owner: str, request: Compression, asker: Asker, time_ms: int) -> None:
        """Have a picture made smaller."""
        wish = self._wanted.get(request)
        if wish is not None:
            wish.askers.append(asker)
            if not wish.is_begun and owner != wish.owner:
                # Whoever asked first may have asked for much else before.
                self._queues.setdefault(owner, deque()).append(wish)
            return
        job = Compress(self._number(), request)
        wish = self._wanted[request] = _Wish(owner, job, time_ms, [asker])
        self._enter(wish)

    def run(self, owner: str, job: Run, asker: Asker, time_ms: int) -> None:
        """Have a call done; the job's number is given here."""
        job.number = self._number()
        self._enter(_Wish(owner, job, time_ms, [asker]))

    def _number(self) -> int:
        number, self._next = self._next, self._next + 1
        return number

    def _enter(self, wish: _Wish) -> None:
        self.waiting += 1
        self._queues.setdefault(wish.owner, deque()).append(wish)
        self._feed()

    def _feed(self) -> None:
        """Give workers what they have room for, a job of each owner in turn."""
        while self._queues and len(self._under_way) < AHEAD * self._workers.count:
            owner, queue = self._queues.popitem(last=False)
            wish = queue.popleft()
            if wish.is_begun:
                # Its turn is not over: that was done in another's.
                if queue:
                    self._queues[owner] = queue
                    self._queues.move_to_end(owner, last=False)
                continue
            if queue:
                self._queues[owner] = queue
            wish.is_begun = True
            self.waiting -= 1
            self._under_way[wish.job.number] = wish
            self._workers.submit(wish.job, wish.time_ms)

    # -- answers -------------------------------------------------------------------------------

    def answered(self, answer: Answer) -> None:
        """A job is done."""
        wish = self._under_way.pop(answer.number, None)
        if wish is None:
            return
        self.done += 1
        if isinstance(answer, Compressed) and isinstance(wish.job, Compress):
            del self._wanted[wish.job.request]
            self._remember(wish.job.request, answer)
        self._hand_out(wish, answer)

    def lost(self, number: int, kind: LostKind, why: str) -> None:
        """A job took too long, or its worker died of it."""
        wish = self._under_way.pop(number, None)
        if wish is None:
            return
        self.lost_count += 1
        if kind == "error" and not wish.is_again:
            self._begin_again(wish)
            return
        took_s = 0.0 if kind == "crowded" else wish.time_ms / 1000
        if isinstance(wish.job, Compress):
            del self._wanted[wish.job.request]
            self._hand_out(wish, Compressed(number, b"", why, took_s, kind, is_lost=True))
        else:
            self._hand_out(wish, Ran(number, Stopped(kind, why), took_s, is_lost=True))

    def _begin_again(self, wish: _Wish) -> None:
        """Have another worker do it, before whatever else its owner wants.

        Somebody may have ended the first, and a message must not be lost by that. If the second
        dies of it too, it is the job.
        """
        wish.is_again, wish.is_begun = True, False
        wish.job.number = self._number()
        self.waiting += 1
        self._queues.setdefault(wish.owner, deque()).appendleft(wish)
        self._queues.move_to_end(wish.owner, last=False)
        self._feed()

    def _hand_out(self, wish: _Wish, answer: Answer) -> None:
        for place, asker in enumerate(wish.askers):
            self._ready.append(Ready(asker, answer, place == 0))  # type: ignore[arg-type]
        self._feed()

    def _remember(self, request: Compression, answer: Compressed) -> None:
        self._cache[request] = answer
        self._cache_bytes += len(request.image) + len(answer.image)
        while self._cache_bytes > CACHE_BYTES_MAX and len(self._cache) > 1:
            old, gone = self._cache.popitem(last=False)
            self._cache_bytes -= len(old.image) + len(gone.image)

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    def take(self) -> list[Ready[Asker]]:
        """What was answered since the last time, in the order of the answers."""
        ready, self._ready = self._ready, []
        return ready
