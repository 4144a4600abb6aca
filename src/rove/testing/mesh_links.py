"""A network of brokers in memory: links with delays, cuts and silence, in virtual time.

`SimulatedMesh` holds nodes, the wires between them and the time. A wire is dialled again and again
while it is intact, as a shell would do it. Everything that happens follows from the calls and from
the seed, so a test that fails can be repeated.

    mesh = SimulatedMesh(seed=1)
    mesh.start("b1")
    mesh.start("b2", clock_s=0.5)
    wire = mesh.wire("b1", "b2", delay_s=0.01)
    mesh.run(1.0)
    mesh.send("b1", ["b2"], b"hello")
    mesh.run(1.0)
    assert mesh.nodes["b2"].streams["b1"] == b"hello"
    wire.cut()

A subclass that overrides `happened` runs whatever it likes on top of the streams.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable

from rove.mesh.events import (
    Closed,
    LinkClosed,
    MeshEvent,
    NeighbourJoined,
    NeighbourLeft,
    Opened,
    Received,
)
from rove.mesh.limits import MeshLimits
from rove.mesh.node import MeshNode

START = 1_000_000.0
"""The time at which a simulation starts, in seconds since 1970."""
DIAL_S = 0.5
"""How long after its end a connection is dialled again."""


class SimulatedNode:
    """A broker's node with its clock and what it has reported."""

    def __init__(self, core: MeshNode, clock_s: float, drift: float, now_s: float) -> None:
        self.core = core
        self.clock_s, self._drift, self._started_s = clock_s, drift, now_s
        self.is_alive = True
        self.wires: dict[int, SimulatedWire] = {}
        """Those that are connected, by the number of the link."""
        self.tunnels: dict[str, int] = {}
        """The open ones, by the name of the broker at the other end."""
        self.streams: dict[str, bytearray] = {}
        """What came through the present or the last tunnel."""
        self.neighbours: dict[str, int] = {}
        self.refusals: list[LinkClosed] = []
        """Links that were closed with a reason."""
        self.wakes_at_s = float("inf")

    def clock(self, now_s: float) -> float:
        """What its clock shows."""
        return now_s + self.clock_s + self._drift * (now_s - self._started_s)

    def true_time(self, clock_s: float) -> float:
        """When its clock will show this."""
        return self._started_s + (clock_s - self.clock_s - self._started_s) / (1 + self._drift)


class SimulatedWire:
    """What connects two nodes: one connection at a time."""

    def __init__(
        self, mesh: SimulatedMesh, ends: tuple[str, str], delay_s: float, bytes_per_s: float
    ) -> None:
        self.mesh, self.ends = mesh, ends
        self.delay_s, self.bytes_per_s = delay_s, bytes_per_s
        self.is_intact = True
        self.silent: set[str] = set()
        """Names whose bytes do not arrive for now."""
        self._held: list[tuple[int, str, bytes]] = []
        """What has not arrived: link, sender and bytes."""
        self.link = 0
        """The number of the present connection; 0 if there is none."""
        self.logs: dict[str, bytearray] | None = None
        """By sender: all that was sent, if a test wants to look at it."""
        self._sent_at_s: dict[str, float] = {}
        """By sender: when the last bytes have left."""
        self._arrives_at_s: dict[str, float] = {}

    def other(self, name: str) -> str:
        return self.ends[1] if name == self.ends[0] else self.ends[0]

    def cut(self) -> None:
        """Break the wire; both ends notice at once."""
        self.is_intact = False
        self.disconnect()

    def mend(self) -> None:
        """Make it whole, and dial. What was held back arrives if the connection still stands."""
        self.is_intact = True
        self.silent.clear()
        held, self._held = self._held, []
        for link, sender, data in held:
            if link == self.link:
                self.transmit(link, sender, data)
        self.mesh.dial(self)

    def transmit(self, link: int, sender: str, data: bytes) -> None:
        """Bytes leave a node."""
        if sender in self.silent:
            self._held.append((link, sender, data))
        else:
            self.mesh.arrive(self, link, sender, data)

    def disconnect(self) -> None:
        """End the present connection."""
        link, self.link = self.link, 0
        if link:
            for name in self.ends:
                self.mesh.hang_up(name, link)
            self.mesh.later(DIAL_S, self.mesh.dial, self)

    def arrival_s(self, sender: str, size: int, now_s: float) -> float:
        """When so many bytes arrive that are sent now: after all that were sent before."""
        sent_at_s = max(now_s, self._sent_at_s.get(sender, 0.0)) + size / self.bytes_per_s
        self._sent_at_s[sender] = sent_at_s
        arrives_at_s = sent_at_s + self.delay_s * (1 + 0.1 * self.mesh.random.random())
        arrives_at_s = max(arrives_at_s, self._arrives_at_s.get(sender, 0.0))
        self._arrives_at_s[sender] = arrives_at_s
        return arrives_at_s


class SimulatedMesh:
    """Nodes, wires and the time."""

    def __init__(self, seed: int = 0, limits: MeshLimits | None = None) -> None:
        self.random = random.Random(seed)
        self.limits = limits or MeshLimits()
        self.now_s = START
        self.nodes: dict[str, SimulatedNode] = {}
        self.wires: list[SimulatedWire] = []
        self._epochs: dict[str, int] = {}
        self._links = 0
        self._due: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._scheduled = 0

    # -- what a test does ----------------------------------------------------------------------

    def start(
        self, name: str, *, clock_s: float = 0.0, drift: float = 0.0, version: str = "1.0"
    ) -> SimulatedNode:
        """Start a broker, or start it again after `kill`."""
        epoch = self._epochs[name] = self._epochs.get(name, 0) + 1
        instance = self.random.randbytes(16)
        core = MeshNode(name, epoch, instance, version=version, limits=self.limits)
        node = self.nodes[name] = SimulatedNode(core, clock_s, drift, self.now_s)
        for wire in self.wires:
            if name in wire.ends:
                self.dial(wire)
        return node

    def kill(self, name: str) -> None:
        """End a broker at once; the others notice that its connections are closed."""
        self.nodes[name].is_alive = False
        for wire in self.wires:
            if name in wire.ends:
                wire.disconnect()

    def wire(
        self, one: str, other: str, delay_s: float = 0.001, bytes_per_s: float = float("inf")
    ) -> SimulatedWire:
        """Connect two brokers, the first of which dials."""
        wire = SimulatedWire(self, (one, other), delay_s, bytes_per_s)
        self.wires.append(wire)
        self.dial(wire)
        return wire

    def send(self, name: str, targets: Iterable[str], body: bytes, prefix: bytes = b"") -> None:
        """Let a broker send to all of these that have an open tunnel."""
        node = self.nodes[name]
        parts = {node.tunnels[to]: prefix for to in targets if to in node.tunnels}
        node.core.send(parts, body)
        self.carry_out(name, node)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end_s = self.now_s + seconds
        while self._due and self._due[0][0] <= end_s:
            at_s, _, call, arguments = heapq.heappop(self._due)
            self.now_s = max(self.now_s, at_s)
            call(*arguments)
        self.now_s = end_s

    def later(self, delay_s: float, call: Callable[..., None], *arguments: object) -> None:
        """Call this at a later time."""
        self._at(self.now_s + delay_s, call, *arguments)

    def _at(self, at_s: float, call: Callable[..., None], *arguments: object) -> None:
        self._scheduled += 1
        heapq.heappush(self._due, (at_s, self._scheduled, call, arguments))

    # -- connections ---------------------------------------------------------------------------

    def dial(self, wire: SimulatedWire) -> None:
        """Connect the ends of a wire, if that is possible and was not done."""
        nodes = [self.nodes.get(name) for name in wire.ends]
        if not wire.is_intact or wire.link or not all(node and node.is_alive for node in nodes):
            return
        self._links += 1
        wire.link = self._links
        for number, (name, node) in enumerate(zip(wire.ends, nodes, strict=True)):
            assert node is not None
            node.wires[wire.link] = wire
            node.core.link_opened(wire.link, node.clock(self.now_s), outgoing=number == 0)
            self.carry_out(name, node)

    def hang_up(self, name: str, link: int) -> None:
        """Tell a broker that a connection is gone."""
        node = self.nodes[name]
        if node.wires.pop(link, None) is not None and node.is_alive:
            node.core.link_closed(link, node.clock(self.now_s))
            self.carry_out(name, node)

    def arrive(self, wire: SimulatedWire, link: int, sender: str, data: bytes) -> None:
        """Bytes are on their way."""
        at_s = wire.arrival_s(sender, len(data), self.now_s)
        self._at(at_s, self._deliver, wire, link, wire.other(sender), data)

    def _deliver(self, wire: SimulatedWire, link: int, name: str, data: bytes) -> None:
        node = self.nodes[name]
        if node.is_alive and link in node.wires:
            node.core.received(link, data, node.clock(self.now_s))
            self.carry_out(name, node)

    def _closed_by_other(self, link: int, name: str, wire: SimulatedWire) -> None:
        """The end of a connection arrives."""
        self.hang_up(name, link)
        self._forget_if_unused(wire, link)

    def _forget_if_unused(self, wire: SimulatedWire, link: int) -> None:
        """Dial again once both ends have given a connection up."""
        if wire.link == link and not any(link in self.nodes[name].wires for name in wire.ends):
            wire.link = 0
            self.later(DIAL_S, self.dial, wire)

    # -- nodes ---------------------------------------------------------------------------------

    def carry_out(self, name: str, node: SimulatedNode) -> None:
        """Do what a node wants done."""
        output = node.core.take()
        for link, data in output.data.items():
            if (wire := node.wires.get(link)) is not None:
                if wire.logs is not None:
                    wire.logs.setdefault(name, bytearray()).extend(data)
                wire.transmit(link, name, data)
        for closed in output.closed:
            wire = node.wires.pop(closed.link, None)
            if not closed.is_quiet:
                node.refusals.append(closed)
            if wire is None:
                continue
            if name in wire.silent:
                self._forget_if_unused(wire, closed.link)
            else:
                at_s = wire.arrival_s(name, 0, self.now_s)
                self._at(at_s, self._closed_by_other, closed.link, wire.other(name), wire)
        for event in output.events:
            self.happened(name, node, event)
        wakes_at_s = node.true_time(node.core.next_tick_s())
        if wakes_at_s < node.wakes_at_s:
            node.wakes_at_s = max(wakes_at_s, self.now_s)
            self._at(node.wakes_at_s, self._tick, name, node, node.wakes_at_s)

    def _tick(self, name: str, node: SimulatedNode, at_s: float) -> None:
        if node.is_alive and node.wakes_at_s == at_s:
            node.wakes_at_s = float("inf")
            # Rounding must not make the clock show a moment before the one that was asked for.
            node.core.tick(max(node.clock(self.now_s), node.core.next_tick_s()))
            self.carry_out(name, node)

    def happened(self, name: str, node: SimulatedNode, event: MeshEvent) -> None:
        """A node reports an event."""
        match event:
            case Opened():
                node.tunnels[event.name] = event.tunnel
                node.streams[event.name] = bytearray()
            case Received():
                node.streams[event.name] += event.data
            case Closed():
                del node.tunnels[event.name]
            case NeighbourJoined():
                node.neighbours[event.name] = event.link
            case NeighbourLeft() if node.neighbours.get(event.name) == event.link:
                del node.neighbours[event.name]
