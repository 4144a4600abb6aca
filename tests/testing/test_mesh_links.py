"""The simulated network, with which random lives of brokers are compared with an obvious model."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from rove.mesh.events import MeshEvent, Opened, Received
from rove.mesh.limits import MeshLimits
from rove.mesh.messages import Head
from rove.mesh.tunnels import Tunnels
from rove.testing.mesh_links import SimulatedMesh, SimulatedNode
from tests.effort import share


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
        delay_s = self.random.choice((0.0001, 0.005, 0.02, 0.1))
        self.wire(one, other, delay_s, self.random.choice((1e6, 1e8)))

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


def run_lives(seeds: Iterable[int]) -> None:
    for seed in seeds:
        try:
            run_life(seed)
        except BaseException as error:
            error.add_note(f"in life {seed}")
            raise


@pytest.mark.parametrize("part", range(4))
def test_random_lives(part: int) -> None:
    run_lives(range(part, share(6_000), 4))


def test_lives_without_the_check_for_gaps_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model sees what the tunnels are there to prevent."""
    received = Tunnels.received

    def blind(tunnels: Tunnels, origin: int, head: Head, data: bytes, now_s: float) -> None:
        tunnel = tunnels.by_node.get(origin)
        if tunnel is not None and head[1] == tunnel.incoming:
            tunnel.received = max(tunnel.received, head[2])
        received(tunnels, origin, head, data, now_s)

    monkeypatch.setattr(Tunnels, "received", blind)
    with pytest.raises(AssertionError):
        run_lives(range(60))


def test_lives_that_mix_incarnations_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    received = Tunnels.received

    def blind(tunnels: Tunnels, origin: int, head: Head, data: bytes, now_s: float) -> None:
        tunnel = tunnels.by_node.get(origin)
        if tunnel is not None and tunnel.theirs:
            head = (head[0], tunnel.incoming, *head[2:])
        received(tunnels, origin, head, data, now_s)

    monkeypatch.setattr(Tunnels, "received", blind)
    with pytest.raises(AssertionError):
        run_lives(range(60))


def test_a_slow_link_delays_but_resets_nothing() -> None:
    """Four brokers send through it as fast as they may; it carries 500 KB/s."""
    mesh = CheckedMesh(seed=9)
    for name in ("hub", "far", "b1", "b2", "b3", "b4"):
        mesh.start(name)
        if name not in ("hub", "far"):
            mesh.wire(name, "hub", 0.001, 1e8)
    mesh.wire("hub", "far", 0.01, 500_000)
    mesh.run(1.0)
    opened = mesh.opened
    sent = 0
    for _ in range(3_000):
        for name in ("b1", "b2", "b3", "b4"):
            node = mesh.nodes[name]
            if node.core.writable(node.tunnels["far"]):
                mesh.say(name, ["far"], b"x" * 10_000)
                sent += 10_000
        mesh.run(0.01)
    assert sent > 14_000_000
    mesh.run(20.0)
    mesh.check_all_connected()
    assert mesh.opened == opened


def test_the_same_seed_gives_the_same_life() -> None:
    def trace(seed: int) -> list[tuple[str, str]]:
        seen: list[tuple[str, str]] = []

        class Traced(Life):
            def happened(self, name: str, node: SimulatedNode, event: MeshEvent) -> None:
                seen.append((name, repr(event)))
                super().happened(name, node, event)

        Traced(seed).live(20)
        return seen

    for seed in range(3):
        assert trace(seed) == trace(seed)
