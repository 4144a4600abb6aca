"""Ordered streams of bytes between this broker and every other that it can reach.

A tunnel is like a TCP connection without retransmission: a frame that does not begin where the last
one ended resets it. What was under way is lost then, both ends get `Closed` and `Opened`, and what
runs on top sends it again, as MQTT's sessions do. So brokers on the way are simple and fast: they
keep nothing.

An *incarnation* is what lies between two resets. Each end gives its own half a number, and frames
carry both, so nothing of an older incarnation is ever taken for the present one. OPEN carries the
sender's number and the last one that it has heard from the other end; who hears its own number is
open. A reset takes a new number, which costs one round trip.

A better way is taken without a reset where that is possible: sending pauses until everything on the
old way is acknowledged. If a link of the old way is gone, or this takes longer than it should, the
tunnel is reset. An end resets at most once in a round trip, and waits twice as long after each
incarnation that carried nothing.

Small parts of one stream that are sent between two calls of `flush` share a frame. One part to many
targets is one frame for each neighbour. Sending costs 0.5 µs for a part and 3 µs for a frame.

Not protected: a broker on the way can drop, change and forge what passes it. One that is not on the
way would have to guess two numbers of 31 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from rove.mesh.events import Closed, MeshEvent, Opened, Received
from rove.mesh.graph import Way
from rove.mesh.limits import MeshLimits
from rove.mesh.messages import (
    HOPS_MAX,
    PAYLOAD_BYTES_MAX,
    TARGETS_MAX,
    Head,
    Open,
    encode_frame,
    encode_open,
)
from rove.mesh.tunnel import ENDED, FULL, GAP, PROBE, REASONS, STALL, WAY, Tunnel

PREFIX_BYTES_MAX: Final = 128
"""A part whose prefix is longer goes to its target alone."""
RETRY_S: Final = 0.05
"""How soon, beyond a round trip, an opening is tried again for the first time."""
PAUSE_S: Final = 0.02
PAUSE_S_MAX: Final = 5.0

IsWhole = Callable[[Way], bool]
Transmit = Callable[[int, bytes], None]
"""Sends a message to a neighbour, given by its node."""


class Tunnels:
    """All tunnels of a broker."""

    def __init__(
        self,
        own: int,
        seed: int,
        limits: MeshLimits,
        transmit: Transmit,
        transmit_open: Transmit,
        is_congested: Callable[[int], bool],
    ) -> None:
        """`seed` is secret: others must not guess the numbers of incarnations."""
        self._own, self._limits = own, limits
        self._transmit, self._transmit_open = transmit, transmit_open
        self._is_congested = is_congested
        self.events: list[MeshEvent] = []
        self.by_node: dict[int, Tunnel] = {}
        self._by_number: dict[int, Tunnel] = {}
        self._unflushed: dict[Tunnel, None] = {}
        self._blocked: dict[Tunnel, None] = {}
        """Those that have a queue."""
        self._unacked: dict[Tunnel, None] = {}
        """Those that owe the other end an acknowledgement."""
        self._ack_at_s = math.inf
        self._last_mine = seed % (1 << 30) + 1
        self._last_number = 0
        self._now_s = -math.inf
        self._next_tick_s = math.inf
        self.resets = 0

    # -- opening and closing -------------------------------------------------------------------

    def set_ways(
        self, ways: Mapping[int, tuple[str, Way]], is_whole: IsWhole, now_s: float
    ) -> None:
        """By node: the name of every broker that there has to be a tunnel to, and the way."""
        self._now_s = now_s
        for node in [node for node in self.by_node if node not in ways]:
            tunnel = self.by_node.pop(node)
            self._close(tunnel, f"there is no way to {tunnel.name}")
        for node, (name, way) in ways.items():
            known = self.by_node.get(node)
            if known is None:
                tunnel = Tunnel(node, name, way, self._new_mine(), now_s)
                self.by_node[node] = tunnel
                self._offer(tunnel)
            else:
                self._change_way(known, way, is_whole)

    def _new_mine(self) -> int:
        self._last_mine += 1
        return self._last_mine

    def _change_way(self, tunnel: Tunnel, way: Way, is_whole: IsWhole) -> None:
        old = tunnel.way
        if (way.nodes, way.numbers) == (old.nodes, old.numbers):
            tunnel.way = way
            if tunnel.next_way is not None:
                tunnel.next_way = None
                self._drain(tunnel)
        elif not tunnel.number:
            tunnel.way = way
            # Somebody on the old way may have made their number up. Without it, ours must be new.
            tunnel.mine, tunnel.theirs = self._new_mine(), 0
            tunnel.retry_s = 0.0
            if tunnel.is_told:
                self._offer(tunnel)
        elif tunnel.acked == tunnel.sent:
            tunnel.next_way = way
            self._take_next_way(tunnel)
            self._drain(tunnel)
        elif is_whole(old):
            if tunnel.next_way is None:
                patience_s = tunnel.round_trip_s + 2 * self._limits.ack_s + PAUSE_S
                tunnel.switch_by_s = self._now_s + patience_s
                self._wake(tunnel.switch_by_s)
            tunnel.next_way = way
        else:
            tunnel.way = way
            self.reset(tunnel, WAY)

    def _take_next_way(self, tunnel: Tunnel) -> None:
        """Everything has arrived over the old way, except perhaps our last acknowledgement."""
        assert tunnel.next_way is not None
        tunnel.way, tunnel.next_way = tunnel.next_way, None
        if tunnel.received:
            self._send_part(tunnel, b"")

    def reset(self, tunnel: Tunnel, reason: int) -> None:
        """Close this incarnation and open another."""
        self.resets += 1
        now_s = self._now_s
        has_failed = tunnel.acked == 0 and tunnel.received == 0
        tunnel.fails = tunnel.fails + 1 if has_failed else 0
        self._close(tunnel, REASONS[reason])
        tunnel.reason = reason
        tunnel.mine = self._new_mine()
        tunnel.is_told = False
        tunnel.retry_s = 0.0
        pause_s = min(PAUSE_S * (1 << min(tunnel.fails, 10)), PAUSE_S_MAX) if tunnel.fails else 0
        tunnel.retry_at_s = max(now_s, tunnel.reset_at_s + max(tunnel.round_trip_s, pause_s))
        if tunnel.retry_at_s <= now_s:
            self._offer(tunnel)
        else:
            self._wake(tunnel.retry_at_s)

    def _close(self, tunnel: Tunnel, reason: str) -> None:
        """End the streams."""
        if tunnel.number:
            del self._by_number[tunnel.number]
            self.events.append(Closed(tunnel.name, tunnel.number, reason))
            tunnel.number = 0
        if tunnel.next_way is not None:
            tunnel.way, tunnel.next_way = tunnel.next_way, None
        self._unflushed.pop(tunnel, None)
        self._blocked.pop(tunnel, None)
        self._unacked.pop(tunnel, None)
        tunnel.clear(self._now_s)

    def _offer(self, tunnel: Tunnel) -> None:
        """Send OPEN, now and again until it is answered."""
        if not tunnel.is_told:
            tunnel.is_told = True
            tunnel.reset_at_s = self._now_s
        self._say(tunnel)
        first_s = RETRY_S + 2 * tunnel.round_trip_s
        tunnel.retry_s = min(max(2 * tunnel.retry_s, first_s), self._limits.retry_s_max)
        tunnel.retry_at_s = self._now_s + tunnel.retry_s
        self._wake(tunnel.retry_at_s)

    def _say(self, tunnel: Tunnel, reason: int | None = None) -> None:
        why = tunnel.reason if reason is None else reason
        message = Open(HOPS_MAX, self._own, tunnel.node, tunnel.mine, tunnel.theirs, why)
        self._transmit_open(tunnel.way.neighbour, encode_open(message))

    def offered(self, message: Open, now_s: float) -> None:
        """The other end wants to open a tunnel, or says that it has our number."""
        self._now_s = now_s
        tunnel = self.by_node.get(message.origin)
        if tunnel is None or message.mine == 0 or message.mine < tunnel.theirs:
            return
        if message.mine > tunnel.theirs:
            if tunnel.number:
                why = REASONS[message.reason] if message.reason < len(REASONS) else "unknown"
                self._close(tunnel, f"{tunnel.name} has reset it: {why}")
                tunnel.reason = message.reason
                tunnel.is_told = True
                tunnel.retry_s, tunnel.retry_at_s = 0.0, now_s + RETRY_S + tunnel.round_trip_s
                self._wake(tunnel.retry_at_s)
            tunnel.theirs = message.mine
        if tunnel.number:
            if message.yours != tunnel.mine:
                self._say(tunnel)
            elif message.reason == PROBE:
                self._send_part(tunnel, b"")
        elif message.yours == tunnel.mine:
            self._open(tunnel)
            self._say(tunnel)
        elif tunnel.is_told:
            self._say(tunnel)

    def _open(self, tunnel: Tunnel) -> None:
        """Both ends have each other's number."""
        self._last_number += 1
        tunnel.number = self._last_number
        tunnel.opened_count += 1
        tunnel.retry_s = 0.0
        tunnel.progressed(self._now_s)
        self._by_number[tunnel.number] = tunnel
        way = tunnel.way
        event = Opened(tunnel.name, tunnel.number, way.offset_us / 1e6, way.error_us / 1e6)
        self.events.append(event)

    # -- sending -------------------------------------------------------------------------------

    def send(self, parts: Mapping[int, bytes], body: bytes) -> None:
        """Append a prefix of its own and the body to each stream; ended ones are passed over."""
        by_number = self._by_number
        if len(parts) == 1:
            for number, prefix in parts.items():
                if (tunnel := by_number.get(number)) is not None:
                    self._append(tunnel, prefix, body)
            return
        groups: dict[int, list[tuple[Tunnel, bytes]]] = {}
        for number, prefix in parts.items():
            if (tunnel := by_number.get(number)) is not None:
                if len(prefix) > PREFIX_BYTES_MAX or not self._is_ready(tunnel):
                    self._append(tunnel, prefix, body)
                else:
                    groups.setdefault(tunnel.way.neighbour, []).append((tunnel, prefix))
        for neighbour, group in groups.items():
            if len(group) == 1:
                self._append(*group[0], body)
            else:
                for first in range(0, len(group), TARGETS_MAX):
                    self._send_group(neighbour, group[first : first + TARGETS_MAX], body)

    def _append(self, tunnel: Tunnel, prefix: bytes, body: bytes) -> None:
        """Add to what the next frame to one target will carry."""
        if prefix:
            tunnel.pending.append(prefix)
        tunnel.pending.append(body)
        tunnel.pending_bytes += len(prefix) + len(body)
        self._unflushed[tunnel] = None
        if tunnel.pending_bytes >= PAYLOAD_BYTES_MAX:
            self._flush_one(tunnel)

    def flush(self) -> None:
        """Turn what was sent into frames."""
        if self._unflushed:
            for tunnel in list(self._unflushed):
                self._flush_one(tunnel)

    def _flush_one(self, tunnel: Tunnel) -> None:
        del self._unflushed[tunnel]
        pending = tunnel.pending
        data = pending[0] if len(pending) == 1 else b"".join(pending)
        tunnel.pending = []
        tunnel.pending_bytes = 0
        if data:
            tunnel.queue.append(data)
            tunnel.queued_bytes += len(data)
            self._drain(tunnel)

    def _is_ready(self, tunnel: Tunnel) -> bool:
        """Whether a part may be sent at once, after everything before it."""
        if tunnel.pending:
            self._flush_one(tunnel)
        return bool(tunnel.number) and not tunnel.queue and self._has_room(tunnel)

    def _has_room(self, tunnel: Tunnel) -> bool:
        return (
            tunnel.sent - tunnel.acked < self._limits.window_bytes
            and tunnel.next_way is None
            and not self._is_congested(tunnel.way.neighbour)
        )

    def _drain(self, tunnel: Tunnel) -> None:
        """Send as much of the queue as has room."""
        queue = tunnel.queue
        while queue and self._has_room(tunnel):
            data = queue.popleft()
            if len(data) > PAYLOAD_BYTES_MAX:
                queue.appendleft(data[PAYLOAD_BYTES_MAX:])
                data = data[:PAYLOAD_BYTES_MAX]
            tunnel.queued_bytes -= len(data)
            self._send_part(tunnel, data)
        if not queue:
            self._blocked.pop(tunnel, None)
        elif tunnel.queued_bytes > self._limits.queue_bytes_max:
            self.reset(tunnel, FULL)
        else:
            self._blocked[tunnel] = None

    def drain(self) -> None:
        """A link has room again."""
        for tunnel in list(self._blocked):
            self._drain(tunnel)

    def _send_part(self, tunnel: Tunnel, data: bytes) -> None:
        """One frame to one target; without data it is an acknowledgement."""
        frame = encode_frame(self._own, (self._head(tunnel, 0, len(data)),), data)
        self._transmit(tunnel.way.neighbour, frame)

    def _head(self, tunnel: Tunnel, prefix_size: int, size: int) -> Head:
        """The next head to a target, whose stream grows by `size`."""
        sent = tunnel.sent
        if sent == tunnel.acked:
            tunnel.progressed(self._now_s)
            self._wake(self._probe_at_s(tunnel))
        tunnel.sent = sent + size
        if tunnel.told != tunnel.received:
            tunnel.told = tunnel.received
            self._unacked.pop(tunnel, None)
        return (tunnel.node, tunnel.outgoing, sent, tunnel.received, prefix_size)

    def _send_group(self, neighbour: int, group: list[tuple[Tunnel, bytes]], body: bytes) -> None:
        """One part to several targets beyond the same neighbour."""
        prefixes = b"".join([prefix for _, prefix in group])
        end = PAYLOAD_BYTES_MAX - len(prefixes)
        piece = body[:end]
        heads = [
            self._head(tunnel, len(prefix), len(prefix) + len(piece)) for tunnel, prefix in group
        ]
        self._transmit(neighbour, encode_frame(self._own, heads, prefixes + piece))
        while end < len(body):
            piece = body[end : end + PAYLOAD_BYTES_MAX]
            end += PAYLOAD_BYTES_MAX
            heads = [self._head(tunnel, 0, len(piece)) for tunnel, _ in group]
            self._transmit(neighbour, encode_frame(self._own, heads, piece))

    def is_writable(self, number: int) -> bool:
        """Whether more may be sent without waiting here."""
        tunnel = self._by_number.get(number)
        if tunnel is None:
            return False
        waiting = tunnel.sent - tunnel.acked + tunnel.queued_bytes + tunnel.pending_bytes
        return waiting < self._limits.window_bytes and not self._is_congested(tunnel.way.neighbour)

    def queued_bytes(self, number: int) -> int:
        """How many bytes of a tunnel wait here."""
        tunnel = self._by_number.get(number)
        return 0 if tunnel is None else tunnel.queued_bytes + tunnel.pending_bytes

    def end(self, number: int, now_s: float) -> None:
        """Reset a tunnel, because what used it has ended."""
        self._now_s = now_s
        tunnel = self._by_number.get(number)
        if tunnel is not None:
            self.reset(tunnel, ENDED)

    # -- receiving -----------------------------------------------------------------------------

    def received(self, origin: int, head: Head, data: bytes, now_s: float) -> None:
        """A frame for this broker; `data` is its prefix and the body."""
        self._now_s = now_s
        tunnel = self.by_node.get(origin)
        if tunnel is None:
            return
        _, incarnation, position, acked, _ = head
        if incarnation != tunnel.incoming or not tunnel.theirs:
            return  # of an incarnation that is over
        if not tunnel.number:
            self._open(tunnel)  # the other end is open, so it has our number
        if position != tunnel.received:
            # What lies before it was delivered already; only a neighbour that lies sends it twice.
            if position > tunnel.received:
                self.reset(tunnel, GAP)
            return
        if data:
            self._deliver(tunnel, data)
        if tunnel.acked < acked <= tunnel.sent:
            self._acknowledged(tunnel, acked)

    def _deliver(self, tunnel: Tunnel, data: bytes) -> None:
        size = len(data)
        tunnel.received += size
        tunnel.received_total += size
        self.events.append(Received(tunnel.name, tunnel.number, data))
        if tunnel.received - tunnel.told >= self._limits.window_bytes // 4:
            self._send_part(tunnel, b"")
        else:
            if not self._unacked:
                self._ack_at_s = self._now_s + self._limits.ack_s
                self._wake(self._ack_at_s)
            self._unacked[tunnel] = None

    def _acknowledged(self, tunnel: Tunnel, acked: int) -> None:
        tunnel.sent_total += acked - tunnel.acked
        tunnel.acked = acked
        tunnel.progressed(self._now_s)
        tunnel.fails = 0
        if tunnel.next_way is not None and acked == tunnel.sent:
            self._take_next_way(tunnel)
        if tunnel.queue:
            self._drain(tunnel)

    # -- time ----------------------------------------------------------------------------------

    def _wake(self, at_s: float) -> None:
        if at_s < self._next_tick_s:
            self._next_tick_s = at_s

    def next_tick_s(self) -> float:
        """When `tick` has something to do; sometimes it turns out to be too early."""
        return self._next_tick_s

    def tick(self, now_s: float) -> None:
        """Acknowledge, try again, and give up what makes no progress."""
        self._now_s = now_s
        if now_s < self._next_tick_s:
            return
        self._next_tick_s = math.inf
        if self._unacked:
            if now_s >= self._ack_at_s:
                for tunnel in list(self._unacked):
                    self._send_part(tunnel, b"")
                self._unacked.clear()
            else:
                self._wake(self._ack_at_s)
        for tunnel in list(self.by_node.values()):
            self._tick_one(tunnel, now_s)

    def _tick_one(self, tunnel: Tunnel, now_s: float) -> None:
        if not tunnel.number:
            if now_s >= tunnel.retry_at_s:
                self._offer(tunnel)
            else:
                self._wake(tunnel.retry_at_s)
            return
        if tunnel.next_way is not None:
            if now_s >= tunnel.switch_by_s:
                self.reset(tunnel, WAY)
                return
            self._wake(tunnel.switch_by_s)
        if tunnel.sent > tunnel.acked:
            self._watch(tunnel, now_s)

    def _probe_at_s(self, tunnel: Tunnel) -> float:
        """When to ask next what has arrived."""
        first_s = self._limits.probe_s + tunnel.round_trip_s
        return tunnel.progress_at_s + first_s * ((2 << tunnel.probes) - 1)

    def _watch(self, tunnel: Tunnel, now_s: float) -> None:
        """Ask what has arrived, if nothing was acknowledged for some time.

        An empty frame comes after all data, so it shows the other end what was lost. If only
        the acknowledgement was lost, the question gets another.
        """
        stalled_at_s = tunnel.progress_at_s + self._limits.stall_s
        if now_s >= stalled_at_s:
            self.reset(tunnel, STALL)
            return
        if now_s >= self._probe_at_s(tunnel):
            tunnel.probes += 1
            self._send_part(tunnel, b"")
            self._say(tunnel, PROBE)
        self._wake(min(self._probe_at_s(tunnel), stalled_at_s))

    def shift(self, seconds: float) -> None:
        """The clock was set, or this process stood still."""
        self._ack_at_s += seconds
        self._next_tick_s += seconds
        for tunnel in self.by_node.values():
            tunnel.progress_at_s += seconds
            tunnel.retry_at_s += seconds
            tunnel.reset_at_s += seconds
            tunnel.switch_by_s += seconds
