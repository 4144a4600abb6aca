"""The loop around the broker: sockets and disk on one side, decisions on the other.

Everything that happens within one turn of the event loop is handed to the broker, then the turn
is ended once: publications are matched as a batch, each connection is written to once, the disk
gets one group of changes. An idle broker ends its turn at once, so nothing waits for company.

A connection is anything with the methods of `Peer`: a TCP or TLS stream, a WebSocket, or the HTTP
interface inside this process.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

from rove.broker.access import Identity
from rove.broker.broker import Broker
from rove.broker.context import Output
from rove.broker.sessions.session import Link
from rove.broker.storage.journal import Changes
from rove.match.matcher import Work
from rove.mqtt.packets import Connect
from rove.serve.logs import events
from rove.serve.metrics.delays import Delays

log = events("broker")

TURN_RETRY_S = 1.0
"""When there is another turn after one that failed, or whose changes the disk did not take."""
MERGE_RETRY_S = 60.0
"""When a merge of the index is tried again that failed; until then, matching is slower."""
TICK_S_MIN = 0.005
TICK_S_MAX = 60.0


class Peer(Protocol):
    """The other end of a link."""

    def send(self, data: bytes) -> None:
        """Give this to the system."""

    def buffered_bytes(self) -> int:
        """How much of it the system has not taken yet."""
        ...

    def close(self) -> None:
        """Close when everything has gone out."""

    def abort(self) -> None:
        """Close now."""

    def pause(self) -> None:
        """Read no more for the moment."""

    def resume(self) -> None:
        """Read on."""


class Disk(Protocol):
    """What commits changes (see `rove.serve.disk.store.Writer`)."""

    @property
    def backlog_bytes(self) -> int:
        """How much waits to be committed."""
        ...

    def submit(self, changes: Changes, done: Callable[[BaseException | None], None]) -> None:
        """Commit, then call `done` from any thread."""


def wall_clock() -> float:
    """The time in seconds, in whole microseconds: the lake has no finer, and must not round."""
    return time.time_ns() // 1_000 / 1e6


Authenticate = Callable[[Link, Connect], Awaitable[Identity | None]]


class Shell:
    """Runs a broker on an event loop."""

    def __init__(
        self,
        broker: Broker,
        disk: Disk,
        authenticate: Authenticate,
        loop: asyncio.AbstractEventLoop,
        now: Callable[[], float] = wall_clock,
        delays: Delays | None = None,
    ) -> None:
        self.broker = broker
        self.delays = delays or Delays(now())
        self._disk = disk
        self._authenticate = authenticate
        self._loop = loop
        self.now = now
        self._turn_is_due = False
        self._keeping: deque[tuple[int, float, int]] = deque()
        """Commits under way: number, when a batch in it came, how many publications it had."""
        self._kept = 0
        """The last commit that was done."""
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._paused: set[Link] = set()
        self._was_paused = False
        self._merging = False
        self._changed_at_merge = -1
        self._merge_not_before = -math.inf
        self._to_commit: deque[tuple[Changes, int]] = deque()
        """What the disk was not given yet; nearly always nothing."""
        self.is_stopping = False

    # -- what happens --------------------------------------------------------------------------

    def opened(self, name: str, peer: Peer, identity: Identity | None = None) -> Link:
        """Somebody has connected."""
        link = self.broker.opened(name, self.now())
        link.peer = peer
        link.identity = identity
        self.wake()
        return link

    def received(self, link: Link, data: bytes) -> None:
        """Bytes have come."""
        now = self.now()
        self.broker.received(link, data, now)
        if not self._turn_is_due and self.broker.has_work:
            self._turn_is_due = True
            self._loop.call_soon(self._turn)

    def closed(self, link: Link) -> None:
        """The connection is gone."""
        self._paused.discard(link)
        self.broker.closed(link, self.now())
        link.peer = None
        self.wake()

    def stuck(self, link: Link) -> None:
        """The connection takes nothing for the moment."""
        if link.peer is None:
            return
        link.buffered_bytes = link.peer.buffered_bytes()
        self.broker.stuck(link, self.now())
        self.wake()

    def unstuck(self, link: Link) -> None:
        """It takes again."""
        if link.peer is None:
            return
        link.buffered_bytes = link.peer.buffered_bytes()
        self.broker.unstuck(link, self.now())
        self.wake()

    def wake(self) -> None:
        """Have the turn ended after what is going on right now."""
        if not self._turn_is_due:
            self._turn_is_due = True
            self._loop.call_soon(self._turn)

    # -- turns ---------------------------------------------------------------------------------

    def _turn(self) -> None:
        self._turn_is_due = False
        try:
            self._do_turn()
        except Exception as error:
            self.broker.failed(error, "turn", None, self.now())
            # Not at once: what fails again and again must leave room for everything else.
            self._loop.call_later(TURN_RETRY_S, self.wake)

    def failed(self, error: Exception, what: str, link: Link | None = None) -> None:
        """Something failed that was no decision of the broker; it costs one connection at most."""
        self.broker.failed(error, what, link, self.now())
        self.wake()

    def _do_turn(self) -> None:
        broker = self.broker
        broker.backlog_bytes = self._disk.backlog_bytes
        output = broker.end_turn(self.now())
        self._carry_out(output)
        now = self.now()
        for began, count in output.routed:
            # Everything of this batch has gone out.
            self.delays.sent.add(now - began, count, now)
            if output.changes is not None:
                self._keeping.append((output.commit, began, count))
        if self._keeping:
            self._time_commits(now)
        self._set_timer(now)
        self._start_merge()

    def _time_commits(self, now: float) -> None:
        """What waited for commits that are done has gone out too."""
        while self._keeping and self._keeping[0][0] <= self._kept:
            _, began, count = self._keeping.popleft()
            self.delays.kept.add(now - began, count, now)

    def _carry_out(self, output: Output) -> None:
        if output.changes is not None:
            self._to_commit.append((output.changes, output.commit))
        if self._to_commit:
            self._commit_all()
        sent_bytes = 0
        for link in output.ready:
            peer, out = link.peer, link.out
            try:
                if len(out) == 1 and peer is not None and not link.closing:
                    # One packet for a connection that stays: nearly all, where turns are short.
                    data = out.pop()
                    sent_bytes += len(data)
                    peer.send(data)
                    # Unless it got stuck (`stuck` has said so), next to nothing is buffered.
                    if link.buffered_bytes:
                        link.buffered_bytes = peer.buffered_bytes()
                else:
                    self._send(link)
            except Exception as error:
                self._cut_off(link, error)
        self.broker.counters.bytes_sent += sent_bytes
        for link, packet in output.authentications:
            self._start(self._identify(link, packet))
        for note in output.notes:
            if note.error is not None:
                log.fault(note.event, note.error, **note.facts)
            else:
                getattr(log, note.level)(note.event, **note.facts)
        broker = self.broker
        if broker.stuck_links:
            broker.judge_pressure()
        if broker.is_paused or broker.is_throttling or self._was_paused or self._paused:
            self._pause_or_resume()

    def _send(self, link: Link) -> None:
        peer = link.peer
        if peer is None:
            # It was decided before the connection went.
            link.out.clear()
            return
        if link.out:
            data = b"".join(link.out) if len(link.out) > 1 else link.out[0]
            link.out.clear()
            self.broker.counters.bytes_sent += len(data)
            peer.send(data)
            if link.buffered_bytes:
                link.buffered_bytes = peer.buffered_bytes()
        if link.closing:
            if self.broker.is_given_up(link):
                peer.abort()
            else:
                peer.close()

    def _cut_off(self, link: Link, error: Exception) -> None:
        """A connection could not be sent to: it is over, and nobody else's affair."""
        link.out.clear()
        link.closing = True
        self.failed(error, "connection", link)
        try:
            link.peer.abort()
        except Exception as second:
            self.failed(second, "connection", link)
            self._loop.call_soon(self.closed, link)

    def _commit_all(self) -> None:
        try:
            while self._to_commit:
                self._commit(*self._to_commit[0])
                self._to_commit.popleft()
        except Exception as error:
            # What is promised waits for it: later turns must not overtake it.
            self.broker.failed(error, "commit", None, self.now())
            self._loop.call_later(TURN_RETRY_S, self.wake)

    def _commit(self, changes: Changes, number: int) -> None:
        def done(error: BaseException | None) -> None:
            # From the disk's thread. An error means that it gave up, as it does when it closes.
            if error is None:
                try:
                    self._loop.call_soon_threadsafe(self._committed, number)
                except RuntimeError:
                    log.debug("committed after the loop had ended")

        self._disk.submit(changes, done)

    def _committed(self, number: int) -> None:
        self.broker.commit_done(number, self.now())
        self._kept = number
        self.wake()

    async def _identify(self, link: Link, packet: Connect) -> None:
        try:
            identity = await self._authenticate(link, packet)
        except Exception as error:
            self.failed(error, "CONNECT", link)
            return
        self.broker.identified(link, identity, self.now())
        self.wake()

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        assert isinstance(task, asyncio.Task)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- pressure ------------------------------------------------------------------------------

    def _pause_or_resume(self) -> None:
        """Let publishers wait, or go on: all of them, or those that were too quick."""
        everybody = self.broker.is_paused
        self._was_paused = everybody
        for link in self.broker.view.links:
            wanted = link.is_paused or (everybody and link.is_publisher)
            if wanted and link not in self._paused:
                self._paused.add(link)
                link.peer.pause()
            elif not wanted and link in self._paused:
                self._paused.discard(link)
                link.peer.resume()

    # -- time ----------------------------------------------------------------------------------

    def _set_timer(self, now: float) -> None:
        due = self.broker.next_tick_at()
        wait_s = min(max(due - now, TICK_S_MIN), TICK_S_MAX)
        when = self._loop.time() + wait_s
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._tick)

    def _tick(self) -> None:
        self._timer = None
        # Whatever happens now, there is a turn, and a timer at its end.
        self.wake()
        for link in self.broker.stuck_links:
            link.buffered_bytes = link.peer.buffered_bytes()
        self.broker.tick(self.now())

    # -- the index -----------------------------------------------------------------------------

    def _start_merge(self) -> None:
        """Let a merge of the index run beside, one at a time, if subscriptions have changed."""
        changed = self.broker.counters.subscriptions_made
        if self._merging or changed == self._changed_at_merge or self.is_stopping:
            return
        if self.now() < self._merge_not_before:
            return
        work = self.broker.merge_due()
        if work is None:
            self._changed_at_merge = changed
            return
        self._merging = True
        self._start(self._merge(work))

    def look_for_merges(self) -> None:
        """Something else than a new subscription may have made work on the index worth it."""
        self._changed_at_merge = -1
        self.wake()

    async def _merge(self, work: Work) -> None:
        is_done = False
        try:
            finished = await asyncio.to_thread(work.run)
            is_done = self.broker.install(finished)
        except Exception as error:
            self.failed(error, "merge of the index", None)
        finally:
            self._merging = False
        if not is_done:
            # What failed once fails again at once; every subscription is found without it.
            work.abandon()
            self._merge_not_before = self.now() + MERGE_RETRY_S
        self.wake()

    # -- the end -------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Say goodbye to everybody, and see that it goes out."""
        self.is_stopping = True
        self.broker.shut_down(self.now())
        self._turn()
        if self._timer is not None:
            self._timer.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=10)
