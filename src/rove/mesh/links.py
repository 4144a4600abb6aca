"""One link to a neighbour: bytes that wait for it, how alive it is, and what it measures.

A link is one stream of bytes, such as a TCP connection. It is used in this order: both sides send
HELLO; the side whose node has the smaller number sends WELCOME, so that exactly one of them decides
which of two links stays; each side pings, and announces the link when the first answer has come.

Both sides count the bytes that they receive over a link, and say so in pings and after every
128 KB. So each knows how much is under way, without asking the sockets, and keeps what exceeds the
window here, where control messages can overtake it. It also notices a link that is broken in one
direction: bytes come, but none are taken.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final, Literal

from rove.mesh.clocks import LinkClock
from rove.mesh.graph import Edge
from rove.mesh.limits import MeshLimits
from rove.mesh.messages import Hello, MeshError, MessageReader, Ping, Pong, Taken, encode

TELL_BYTES: Final = 128 * 1024
"""After so many bytes the receiver says how many it has."""
HEARD_LATELY: Final = 1.5
"""Times the interval of pings: a link over which something came within this is alive."""
ERROR_US_MIN: Final = 1_000
DELAY_US_CHANGE: Final = 2_000
"""A delay is announced again when it has doubled or halved, and changed by so much."""
_U32_MAX: Final = 0xFFFF_FFFF

LinkState = Literal["hello", "welcome", "measuring", "joined"]


class Link:
    """What a broker knows of one link."""

    def __init__(self, number: int, now_s: float, limits: MeshLimits, *, outgoing: bool) -> None:
        self.number = number
        self.outgoing = outgoing
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
        self._ping_at_s = math.inf
        self._control_left = float(limits.control_burst)
        self._control_at_s = now_s

    @property
    def is_up(self) -> bool:
        """Whether both sides have agreed to use it."""
        return self.state in ("measuring", "joined")

    @property
    def name(self) -> str:
        """Of the neighbour; empty before its HELLO."""
        return "" if self.peer is None else self.peer.name

    def was_heard_lately(self, now_s: float) -> bool:
        return now_s - self.heard_at_s <= HEARD_LATELY * self.limits.ping_s

    # -- sending -------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send a message that keeps the network together, before frames that wait."""
        self.out.append(data)
        self.sent_bytes += len(data)

    def write_frame(self, data: bytes) -> None:
        """Send a frame, or keep it until the neighbour has taken more."""
        if self._queue or self.sent_bytes - self._taken_bytes >= self.limits.link_window_bytes:
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
        while self._queue and self.sent_bytes - count < self.limits.link_window_bytes:
            data = self._queue.popleft()
            self.queued_bytes -= len(data)
            self.write(data)

    # -- receiving -----------------------------------------------------------------------------

    def received(self, data: bytes, now_s: float) -> None:
        """Bytes came; say so if they are many."""
        self.heard_at_s = now_s
        self.received_bytes += len(data)
        if self.received_bytes - self._told_bytes >= TELL_BYTES and self.is_up:
            self.write(encode(Taken(self._tell())))

    def _tell(self) -> int:
        self._told_bytes = self.received_bytes
        return self.received_bytes

    def spend(self, now_s: float) -> None:
        """One more message other than a frame came; raises if there are too many."""
        limits = self.limits
        gained = max(0.0, now_s - self._control_at_s) * limits.control_per_s
        self._control_left = min(self._control_left + gained, limits.control_burst) - 1
        self._control_at_s = now_s
        if self._control_left < 0:
            what = f"more than {limits.control_per_s:,} messages/s that are no frames"
            raise MeshError(f"{what}, after the first {limits.control_burst:,}")

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
        self._ping_at_s += seconds
        self._control_at_s += seconds
        self.clock.forget()

    def measure(self, now_s: float) -> bool:
        """Whether `published` had to change, because it is not right any more."""
        estimate = self.clock.estimate(now_s)
        if estimate is None:
            return False
        delay_us = min(round(estimate.delay_s * 500_000), _U32_MAX)
        offset_us, error_us = round(estimate.offset_s * 1e6), round(estimate.error_s * 1e6)
        old = self.published
        if old is not None and old.number == self.edge_number:
            is_steady = (
                abs(delay_us - old.delay_us) <= DELAY_US_CHANGE
                or old.delay_us / 2 <= delay_us <= old.delay_us * 2
            )
            if is_steady and abs(offset_us - old.offset_us) + error_us <= old.error_us:
                return False
            if is_steady:
                delay_us = old.delay_us  # so that no way changes
        announced_us = min(2 * error_us + ERROR_US_MIN, _U32_MAX)
        self.published = Edge(self.node, self.edge_number, delay_us, offset_us, announced_us)
        return True
