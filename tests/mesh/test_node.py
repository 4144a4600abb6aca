"""A node of the network: what it does with links, and whole networks in random lives."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from rove.mesh.events import MeshEvent, Opened, Received
from rove.mesh.limits import MeshLimits
from rove.testing.mesh_links import SimulatedMesh, SimulatedNode
from tests.effort import share


def three(delay_s: float = 0.01) -> SimulatedMesh:
    """b1, b2 and b3 in a triangle."""
    mesh = SimulatedMesh(seed=1)
    for number, name in enumerate(("b1", "b2", "b3")):
        mesh.start(name, clock_s=number * 0.5)
    for one, other in (("b1", "b2"), ("b2", "b3"), ("b3", "b1")):
        mesh.wire(one, other, delay_s)
    mesh.run(1.0)
    return mesh


def test_every_two_brokers_have_a_tunnel() -> None:
    mesh = three()
    for name, node in mesh.nodes.items():
        assert node.tunnels.keys() == mesh.nodes.keys() - {name}
    mesh.send("b1", ["b2", "b3"], b"body", b"prefix ")
    mesh.run(0.1)
    assert mesh.nodes["b2"].streams["b1"] == b"prefix body"
    assert mesh.nodes["b3"].streams["b1"] == b"prefix body"


def test_a_way_around_a_cut_link_is_taken_without_a_reset_if_nothing_is_under_way() -> None:
    mesh = three()
    before = dict(mesh.nodes["b1"].tunnels)
    mesh.wires[0].cut()
    mesh.run(0.1)
    mesh.send("b1", ["b2"], b"around")
    mesh.run(0.1)
    assert mesh.nodes["b2"].streams["b1"] == b"around"
    assert mesh.nodes["b1"].tunnels == before


# -- random lives --------------------------------------------------------------------------------


class CheckedMesh(SimulatedMesh):
    """A network that is compared with an obvious model of it.

    Whoever sends first writes a header of its own into each new stream. So the model knows which
    stream the receiver reads, and that it may read each only once, from the beginning, in order.
    """

    def __init__(self, seed: int, limits: MeshLimits | None = None) -> None:
        super().__init__(seed, limits)
        self.sent: dict[bytes, bytearray] = {}
        """By header: all that was written into a stream."""
        self.written: dict[tuple[str, int, int], bytes] = {}
        """By sender, its start and its tunnel: the header."""
        self.read: dict[tuple[str, int, int], bytearray] = {}
        """By receiver, its start and its tunnel: what came."""
        self.readers: dict[bytes, tuple[str, int, int]] = {}
        self.opened = 0

    def happened(self, name: str, node: SimulatedNode, event: MeshEvent) -> None:
        super().happened(name, node, event)
        if isinstance(event, Opened):
            self.opened += 1
            key = (name, node.core.epoch, event.tunnel)
            header = self.written[key] = f"<{name} {node.core.epoch} {event.tunnel:06}>".encode()
            self.sent[header] = bytearray()
            self.read[key] = bytearray()
            self.say(name, [event.name], header)
        elif isinstance(event, Received):
            self._check(name, node, event)

    def _check(self, name: str, node: SimulatedNode, event: Received) -> None:
        assert node.tunnels[event.name] == event.tunnel, "data of a tunnel that is not open"
        key = (name, node.core.epoch, event.tunnel)
        got = self.read[key]
        got += event.data
        header = bytes(got[: got.find(b">") + 1])
        if header:
            assert header[1:].split(b" ")[0] == event.name.encode(), "a stream of somebody else"
            assert self.readers.setdefault(header, key) == key, "a stream that was read before"
            begin = len(got) - len(event.data)
            assert self.sent[header][begin : len(got)] == event.data, "not what was sent there"

    def say(self, name: str, targets: Iterable[str], body: bytes, prefix: bytes = b"") -> None:
        """Send, and write down where it ought to arrive."""
        node = self.nodes[name]
        open_to = [to for to in targets if to in node.tunnels]
        for to in open_to:
            header = self.written[name, node.core.epoch, node.tunnels[to]]
            self.sent[header] += prefix + body
        self.send(name, open_to, body, prefix)

    def components(self) -> dict[str, set[str]]:
        """By name: the live brokers that it is connected with, itself included."""
        found: dict[str, set[str]] = {
            name: {name} for name, node in self.nodes.items() if node.is_alive
        }
        for wire in self.wires:
            one, other = wire.ends
            if wire.is_intact and not wire.silent and one in found and other in found:
                merged = found[one] | found[other]
                for name in merged:
                    found[name] = merged
        return found

    def check_all_connected(self) -> None:
        """Every connected pair has one open tunnel, through which everything has arrived."""
        for name, others in self.components().items():
            node = self.nodes[name]
            assert node.tunnels.keys() == others - {name}
            for other in others - {name}:
                header = self.written[name, node.core.epoch, node.tunnels[other]]
                peer = self.nodes[other]
                got = self.read[other, peer.core.epoch, peer.tunnels[name]]
                assert got == self.sent[header], f"{name} to {other}"


class Life(CheckedMesh):
    """A network in which everything happens that may happen."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        draw = self.random
        if draw.random() < 0.5:
            self.limits = MeshLimits(
                window_bytes=draw.choice((1_000, 30_000, 1_000_000)),
                link_window_bytes=draw.choice((50_000, 500_000)),
                link_queue_bytes_max=draw.choice((20_000, 10_000_000)),
                queue_bytes_max=draw.choice((300_000, 10_000_000)),
            )
        self.shifts = {}
        size = min(20, 2 + int(draw.expovariate(0.3)))
        self.names = [f"b{number}" for number in range(size)]
        for name in self.names:
            self.shifts[name] = (
                draw.choice((0.0, draw.uniform(-50, 50))),
                draw.uniform(-1, 1) * 4e-5,
            )
            self.begin(name)
        for number, name in enumerate(self.names[1:], 1):
            self.join(name, draw.choice(self.names[:number]))
        for _ in range(draw.randrange(size)):
            self.join(*draw.sample(self.names, 2))
        self.changes = 0

    def begin(self, name: str) -> None:
        clock_s, drift = self.shifts[name]
        self.start(name, clock_s=clock_s, drift=drift)

    def join(self, one: str, other: str) -> None:
        self.wire(one, other, self.random.choice((0.0001, 0.005, 0.02, 0.1)))

    def live(self, steps: int) -> None:
        draw = self.random
        for _ in range(steps):
            self.run(draw.choice((0.002, 0.02, 0.2, 1.0)) * draw.random())
            for _ in range(draw.randrange(4)):
                self.talk()
            if draw.random() < 0.25:
                self.change()
                for _ in range(draw.randrange(6)):
                    self.run(draw.choice((0.001, 0.03)))
                    self.talk()

    def talk(self) -> None:
        draw = self.random
        name = draw.choice(self.names)
        if self.nodes[name].is_alive:
            targets = draw.sample(self.names, draw.randint(1, len(self.names)))
            size = draw.choice((10, 10, 100, 100, 1_000, 100_000))
            body = draw.randbytes(size // 10) * 10
            self.say(name, targets, body, draw.choice((b"", b"to you: ")))

    def change(self) -> None:
        """Cut, mend, silence a wire in one direction, kill or restart."""
        draw = self.random
        self.changes += 1
        wire, name = draw.choice(self.wires), draw.choice(self.names)
        match draw.randrange(5):
            case 0:
                wire.cut()
            case 1 | 2:
                wire.mend()
            case 3:
                wire.silent.add(draw.choice(wire.ends))
            case _ if self.nodes[name].is_alive:
                self.kill(name)
            case _:
                self.begin(name)

    def settle(self) -> None:
        """Leave the network alone, until all that was going to be noticed is."""
        for wire in self.wires:
            if wire.silent or (not wire.is_intact and self.random.random() < 0.5):
                wire.silent.clear()
                wire.mend()
        self.run(15.0)

    def check(self) -> None:
        """What must hold in the end."""
        self.settle()
        # At most a handful of tunnels for each pair of ends and change: no storms.
        pairs = len(self.names) * (len(self.names) - 1)
        assert self.opened <= pairs * (2 + self.changes)
        for name in self.names:
            if self.nodes[name].is_alive:
                self.say(name, self.names, f"the end of {name}".encode(), b"!")
        self.run(1.0)
        self.check_all_connected()


def run_life(seed: int) -> Life:
    life = Life(seed)
    life.live(50)
    life.check()
    return life


@pytest.mark.parametrize("part", range(4))
def test_random_lives(part: int) -> None:
    for seed in range(part, share(1_500), 4):
        try:
            run_life(seed)
        except BaseException as error:
            error.add_note(f"in life {seed}")
            raise
