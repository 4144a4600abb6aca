"""Connects the broker, which makes decisions, to sockets, the disk and the clock.

Everything that happens within one turn of the event loop is passed to the broker, then the turn is
ended once: publications are matched as a batch, each connection gets one write, and the disk gets
one group of changes. An idle broker ends its turn at once, so a single publication does not wait.

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
from rove.broker.context import TurnOutput
from rove.broker.sessions.session import Link
from rove.broker.storage.journal import Changes
from rove.match.matcher import Work
from rove.mqtt.packets import Connect
from rove.serve.logs import events
from rove.serve.metrics.delays import Delays

log = events("broker")

TURN_RETRY_S = 1.0
"""The delay after a turn that failed, or whose changes could not be submitted to the disk."""
MERGE_RETRY_S = 60.0
"""The delay after a failed merge of the index; until then, matching is slower."""
TICK_S_MIN = 0.005
TICK_S_MAX = 60.0


class Peer(Protocol):
    """The other end of a link."""

    def send(self, data: bytes) -> None:
        """Write to the connection."""

    def buffered_bytes(self) -> int:
        """How many bytes are not sent yet."""
        ...

    def close(self) -> None:
        """Close when everything is sent."""

    def abort(self) -> None:
        """Close now."""

    def pause(self) -> None:
        """Stop reading."""

    def resume(self) -> None:
        """Read again."""


class Disk(Protocol):
    """Commits changes (see `rove.serve.disk.store.Writer`)."""

    @property
    def backlog_bytes(self) -> int:
        """How many bytes wait to be committed."""
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
        """Commits in progress: number, when its batch arrived, how many publications that had."""
        self._kept = 0
        """The last commit that is done."""
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._paused: set[Link] = set()
        self._was_paused = False
        self._merging = False
        self._changed_at_merge = -1
        self._merge_not_before = -math.inf
        self._to_commit: deque[tuple[Changes, int]] = deque()
        """Changes that were not submitted to the disk yet; nearly always none."""
        self.is_stopping = False
        self.broker_joined: Callable[[Identity, Peer], None] | None = None
        """Takes the connection of another broker that was admitted."""

    # -- events --------------------------------------------------------------------------------

    def opened(self, name: str, peer: Peer, identity: Identity | None = None) -> Link:
        """A client has connected."""
        link = self.broker.opened(name, self.now())
        link.peer = peer
        link.identity = identity
        self.wake()
        return link

    def received(self, link: Link, data: bytes) -> None:
        """Bytes have arrived."""
        now = self.now()
        self.broker.received(link, data, now)
        if not self._turn_is_due and self.broker.has_work:
            self._turn_is_due = True
            self._loop.call_soon(self._turn)

    def closed(self, link: Link) -> None:
        """A connection was closed."""
        self._paused.discard(link)
        self.broker.closed(link, self.now())
        link.peer = None
        self.wake()

    def stuck(self, link: Link) -> None:
        """A connection accepts no more bytes."""
        if link.peer is None:
            return
        link.buffered_bytes = link.peer.buffered_bytes()
        self.broker.stuck(link, self.now())
        self.wake()

    def unstuck(self, link: Link) -> None:
        """It accepts bytes again."""
        if link.peer is None:
            return
        link.buffered_bytes = link.peer.buffered_bytes()
        self.broker.unstuck(link, self.now())
        self.wake()

    def wake(self) -> None:
        """End the turn after the present callbacks."""
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
            # Not at once: a fault that repeats must leave time for everything else.
            self._loop.call_later(TURN_RETRY_S, self.wake)

    def failed(self, error: Exception, what: str, link: Link | None = None) -> None:
        """Something has failed outside the broker; at most one connection is closed."""
        self.broker.failed(error, what, link, self.now())
        self.wake()

    def _do_turn(self) -> None:
        broker = self.broker
        broker.backpressure.backlog_bytes = self._disk.backlog_bytes
        output = broker.end_turn(self.now())
        self._carry_out(output)
        for link in output.upgrades:
            self._upgrade(link)
        now = self.now()
        for began, count in output.routed:
            # Everything that follows from this batch was sent.
            self.delays.sent.add(now - began, count, now)
            if output.changes is not None:
                self._keeping.append((output.commit, began, count))
        if self._keeping:
            self._time_commits(now)
        self._set_timer(now)
        self._start_merge()

    def _time_commits(self, now: float) -> None:
        """Record the delays of batches whose commits are done and whose packets were sent."""
        while self._keeping and self._keeping[0][0] <= self._kept:
            _, began, count = self._keeping.popleft()
            self.delays.kept.add(now - began, count, now)

    def _carry_out(self, output: TurnOutput) -> None:
        if output.changes is not None:
            self._to_commit.append((output.changes, output.commit))
        if self._to_commit:
            self._commit_all()
        sent_bytes = 0
        for link in output.ready:
            peer, out = link.peer, link.out
            try:
                if len(out) == 1 and peer is not None and not link.closing:
                    # One packet for a connection that stays open: nearly always, in short turns.
                    data = out.pop()
                    sent_bytes += len(data)
                    peer.send(data)
                    # Unless the connection is stuck (see `stuck`), almost nothing is buffered.
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
        broker, pressure = self.broker, self.broker.backpressure
        if pressure.stuck_links:
            pressure.judge()
        if pressure.is_paused or broker.is_throttling or self._was_paused or self._paused:
            self._pause_or_resume()

    def _upgrade(self, link: Link) -> None:
        """Another broker was admitted: from here on its connection is a link of the network."""
        peer, identity = link.peer, link.identity
        if peer is None or link.closing or self.broker_joined is None or identity is None:
            return
        self.closed(link)
        self.broker_joined(identity, peer)

    def _send(self, link: Link) -> None:
        peer = link.peer
        if peer is None:
            # The packets are from before the connection was closed.
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
            if self.broker.backpressure.is_given_up(link):
                peer.abort()
            else:
                peer.close()

    def _cut_off(self, link: Link, error: Exception) -> None:
        """Close a connection that cannot be written to; the others are not affected."""
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
            # Acknowledgements wait for it, so later turns must not overtake it.
            self.broker.failed(error, "commit", None, self.now())
            self._loop.call_later(TURN_RETRY_S, self.wake)

    def _commit(self, changes: Changes, number: int) -> None:
        def done(error: BaseException | None) -> None:
            # Runs in the disk's thread. An error means that it has given up because it closes.
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
        """Stop or resume reading from publishers: all of them, or those above their rate."""
        everybody = self.broker.backpressure.is_paused
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
        # First, so that even after a fault there is a turn, which sets the next timer.
        self.wake()
        for link in self.broker.backpressure.stuck_links:
            link.buffered_bytes = link.peer.buffered_bytes()
        self.broker.tick(self.now())

    # -- the index -----------------------------------------------------------------------------

    def _start_merge(self) -> None:
        """Merge the index in another thread, one merge at a time, if subscriptions have changed."""
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
        """Look for a merge although no subscription was made, for example with new kernels."""
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
            # It would probably fail again; every subscription is found without it.
            work.abandon()
            self._merge_not_before = self.now() + MERGE_RETRY_S
        self.wake()

    # -- the end -------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Disconnect all clients, and send what is left."""
        self.is_stopping = True
        self.broker.shut_down(self.now())
        self._turn()
        if self._timer is not None:
            self._timer.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=10)
