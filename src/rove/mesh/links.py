"""One link to a neighbour: bytes that wait for it, how alive it is, and what it measures.

A link is one stream of bytes, such as a TCP connection. It is used in this order: both sides send
HELLO; the side whose node has the smaller number sends WELCOME, so that exactly one of them decides
which of two links stays; each side pings, and announces the link when the first answer has come.

Both sides count the bytes that they receive over a link, and say so in pings and after every part
of the window. So each knows how much is under way, without asking the sockets, and keeps what
exceeds the window here, where control messages can overtake it. It also notices a link that is
broken in one direction: bytes come, but none are taken.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final, Literal

from rove.mesh.clocks import LinkClock
from rove.mesh.graph import Edge
from rove.mesh.limits import MeshLimits
from rove.mesh.messages import Hello, MeshError, MessageReader, Ping, Pong, Taken, encode

TELL_BYTES: Final = 16 * 1024
"""After so many the receiver says how many bytes it has; after a quarter of a smaller window."""
WINDOW_BYTES_FIRST: Final = 256 * 1024
WINDOW_BYTES_MIN: Final = 64 * 1024
TRANSIT_S: Final = 0.2
"""How much longer than a ping bytes may be on their way before the window is made smaller."""
HEARD_LATELY: Final = 1.5
"""Times the interval of pings: a link over which something came within this is alive."""
ERROR_US_MIN: Final = 1_000
DELAY_US_CHANGE: Final = 2_000
"""A delay is announced again when it turns out to be half of it, and smaller by so much."""
_U32_MAX: Final = 0xFFFF_FFFF

LinkState = Literal["hello", "welcome", "measuring", "joined"]


class Allowance:
    """So many per second in the long run, and so many at once."""

    def __init__(self, per_s: float, burst: float, now_s: float) -> None:
        self._per_s, self._burst, self._left = per_s, burst, burst
        self.at_s = now_s

    def spend(self, now_s: float) -> bool:
        """One more; whether that is allowed."""
        gained = max(0.0, now_s - self.at_s) * self._per_s
        self._left = min(self._left + gained, self._burst)
        self.at_s = now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Link:
    """What a broker knows of one link."""

    def __init__(
        self,
        number: int,
        now_s: float,
        limits: MeshLimits,
        *,
        outgoing: bool,
        expected: str | None = None,
    ) -> None:
        self.number = number
        self.outgoing = outgoing
        self._expected = expected
        """The only name that the other side may have, if that is known."""
        self.opened_at_s = self.heard_at_s = now_s
        self.limits = limits
        self.reader = MessageReader()
        self.clock = LinkClock()
        self.state: LinkState = "hello"
        self.peer: Hello | None = None
        self.node = -1
        """Of the other side, after its HELLO."""
        self.edge_number = 0
        self.published: Edge | None = None
        self.out: list[bytes] = []
        """What has to be sent now."""
        self.frames_sent = self.frames_received = self.frames_dropped = 0
        self.frames_refused = 0
        """Frames that came although the tree of their origin does not lead here."""
        self.sent_bytes = self.received_bytes = 0
        self.queued_bytes = 0
        self._queue: deque[bytes] = deque()
        self._taken_bytes = self._told_bytes = 0
        self._taken_at_s = now_s
        self._window_bytes = min(WINDOW_BYTES_FIRST, limits.link_window_bytes)
        self._mark_bytes, self._marked_at_s = 0, now_s
        """When so many bytes had been sent."""
        self._is_marked = False
        """Whether some of them were still under way then."""
        self._ping_at_s = math.inf
        self._control = Allowance(limits.control_per_s, limits.control_burst, now_s)
        self._records = Allowance(limits.records_per_s, limits.records_burst, now_s)
        self._ignored_records = False

    @property
    def is_up(self) -> bool:
        """Whether both sides have agreed to use it."""
        return self.state in ("measuring", "joined")

    @property
    def name(self) -> str:
        """Of the neighbour; empty before its HELLO."""
        return "" if self.peer is None else self.peer.name

    def refusal(self, own: Hello) -> str | None:
        """Why the other side may not join, by what it has said of itself; None if it may."""
        peer = self.peer
        assert peer is not None
        if peer.node == own.node:
            return f"{own.name} cannot join itself"
        if self._expected is not None and peer.name != self._expected:
            return f"{peer.name} has authenticated as {self._expected}, and may have no other name"
        if peer.protocol != own.protocol:
            return f"{peer.name} uses protocol {peer.protocol}, and {own.name} {own.protocol}"
        if peer.version.split(".")[0] != own.version.split(".")[0]:
            versions = f"{peer.name} is Rove {peer.version[:20]!r}, and {own.name} {own.version!r}"
            return f"{versions}: brokers of one network need the same major version"
        return None

    def was_heard_lately(self, now_s: float) -> bool:
        return now_s - self.heard_at_s <= HEARD_LATELY * self.limits.ping_s

    # -- sending -------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send a message that keeps the network together, before frames that wait."""
        self.out.append(data)
        self.sent_bytes += len(data)

    def write_frame(self, data: bytes) -> None:
        """Send a frame, or keep it until the neighbour has taken more."""
        if self._queue or self.sent_bytes - self._taken_bytes >= self._window_bytes:
            if self.queued_bytes >= self.limits.link_queue_bytes_max:
                self.frames_dropped += 1
                return
            self._queue.append(data)
            self.queued_bytes += len(data)
        else:
            self.out.append(data)
            self.sent_bytes += len(data)
        self.frames_sent += 1

    @property
    def is_congested(self) -> bool:
        """Whether this broker's own frames should rather wait at their tunnels."""
        return self.queued_bytes >= self.limits.link_queue_bytes_max // 4

    def taken(self, count: int, now_s: float) -> None:
        """The neighbour has received so many bytes."""
        if count > self.sent_bytes:
            raise MeshError(f"it took {count} bytes, and only {self.sent_bytes} were sent")
        if count > self._taken_bytes:
            self._taken_bytes, self._taken_at_s = count, now_s
            if count >= self._mark_bytes:
                self._adapt_window(now_s)
        while self._queue and self.sent_bytes - count < self._window_bytes:
            data = self._queue.popleft()
            self.queued_bytes -= len(data)
            self.write(data)

    def _adapt_window(self, now_s: float) -> None:
        """Keep little under way over a slow link: whatever keeps it alive waits behind that."""
        most = self.limits.link_window_bytes
        over_s = now_s - self._marked_at_s - min(self.clock.delay_s_min, 1.0)
        if self._is_marked and over_s > TRANSIT_S:
            self._window_bytes = max(self._window_bytes // 2, min(WINDOW_BYTES_MIN, most))
        elif self._queue and over_s < TRANSIT_S / 2:
            self._window_bytes = min(self._window_bytes * 2, most)
        self._is_marked = self.sent_bytes > self._taken_bytes
        self._mark_bytes, self._marked_at_s = self.sent_bytes, now_s

    # -- receiving -----------------------------------------------------------------------------

    def received(self, data: bytes, now_s: float) -> None:
        """Bytes came; say so if they are many."""
        self.heard_at_s = now_s
        self.received_bytes += len(data)
        untold_bytes = self.received_bytes - self._told_bytes
        if untold_bytes >= min(TELL_BYTES, self.limits.link_window_bytes // 4) and self.is_up:
            self.write(encode(Taken(self._tell())))

    def _tell(self) -> int:
        self._told_bytes = self.received_bytes
        return self.received_bytes

    def spend(self, now_s: float) -> None:
        """One more message came that is neither a frame nor a record."""
        if not self._control.spend(now_s):
            limits = self.limits
            what = f"more than {limits.control_per_s:,} messages/s besides frames and records"
            raise MeshError(f"{what}, after the first {limits.control_burst:,}")

    def may_take_record(self, now_s: float) -> bool:
        """Whether one more record is to be looked at; if not, it is asked for again later."""
        may_take = self._records.spend(now_s)
        self._ignored_records |= not may_take
        return may_take

    def must_ask(self, now_s: float) -> bool:
        """Whether records were ignored that there is time for now."""
        if self._ignored_records and self._records.spend(now_s):
            self._ignored_records = False
            return True
        return False

    def ping(self, ping: Ping, now_s: float) -> None:
        self.taken(ping.taken, now_s)
        self.write(encode(Pong(ping.sent_s, now_s, self._tell())))

    def pong(self, pong: Pong, now_s: float) -> None:
        self.taken(pong.taken, now_s)
        self.clock.add(pong.sent_s, pong.now_s, now_s)

    # -- time ----------------------------------------------------------------------------------

    def start(self, edge_number: int, now_s: float) -> None:
        """Both sides have agreed to use it."""
        self.state = "measuring"
        self.edge_number = edge_number
        self._taken_at_s = now_s
        self._ping_at_s = now_s
        self.tick(now_s)

    def tick(self, now_s: float) -> str | None:
        """Ping when it is time; why it has to be closed, if it has to be."""
        limits = self.limits
        if not self.is_up:
            is_late = now_s - self.opened_at_s >= limits.hello_s
            missing = "HELLO" if self.peer is None else "WELCOME"
            return f"no {missing} came within {limits.hello_s:g} s" if is_late else None
        if now_s - self.heard_at_s >= limits.silence_s:
            return f"nothing came for {limits.silence_s:g} s"
        if now_s - self._taken_at_s >= limits.silence_s:
            return f"the other side received nothing for {limits.silence_s:g} s"
        if now_s >= self._ping_at_s:
            self._ping_at_s = now_s + limits.ping_s
            self.write(encode(Ping(now_s, self._tell())))
        return None

    def next_tick_s(self) -> float:
        """When `tick` has something to do."""
        limits = self.limits
        if not self.is_up:
            return self.opened_at_s + limits.hello_s
        silent_at_s = min(self.heard_at_s, self._taken_at_s) + limits.silence_s
        return min(self._ping_at_s, silent_at_s)

    def shift(self, seconds: float) -> None:
        """The clock was set, or this process stood still: that says nothing of the neighbour."""
        self.opened_at_s += seconds
        self.heard_at_s += seconds
        self._taken_at_s += seconds
        self._marked_at_s += seconds
        self._ping_at_s += seconds
        self._control.at_s += seconds
        self._records.at_s += seconds
        self.clock.forget()

    def measure(self, now_s: float) -> bool:
        """Whether `published` had to change, because it is not right any more."""
        estimate = self.clock.estimate(now_s)
        if estimate is None:
            return False
        # The smallest delay: a link that is busy must not lead to other ways, and these back again.
        delay_us = round(self.clock.delay_s_min * 500_000)
        offset_us, error_us = round(estimate.offset_s * 1e6), round(estimate.error_s * 1e6)
        old = self.published
        if old is not None and old.number == self.edge_number:
            is_steady = delay_us >= min(old.delay_us / 2, old.delay_us - DELAY_US_CHANGE)
            if is_steady and abs(offset_us - old.offset_us) + error_us <= old.error_us:
                return False
            if is_steady:
                delay_us = old.delay_us  # so that no way changes
        announced_us = min(2 * error_us + ERROR_US_MIN, _U32_MAX)
        self.published = Edge(self.node, self.edge_number, delay_us, offset_us, announced_us)
        return True
