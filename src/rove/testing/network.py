"""A network of whole brokers in memory: their clients, disks, clocks and links, in virtual time.

`SimulatedNetwork` runs a `SimulatedBroker` on top of each node of a `SimulatedMesh`. Tunnels carry
MQTT between the brokers, bytes as they would be on a link. One seed decides everything.

    network = SimulatedNetwork(seed=1)
    b1, b2 = network.broker("b1"), network.broker("b2")
    network.wire("b1", "b2")
    network.run(2.0)
    alice = b1.connect("alice")
    alice.subscribe("air/#", filter="NO2 > 40")
    network.run(1.0)
    b2.connect("bob").publish("air/zagreb", b'{"NO2": 41}')
    network.run(1.0)
    assert alice.payloads() == [b'{"NO2": 41}']
"""

from __future__ import annotations

from rove.broker.sessions.session import Link
from rove.mesh.events import Closed, MeshEvent, Opened, Received
from rove.mesh.interest.outbox import Pace
from rove.mesh.interest.summary import Covering, Summary
from rove.mesh.peers import Peers
from rove.testing.mesh_links import SimulatedMesh, SimulatedNode
from rove.testing.mqtt import SimulatedBroker

TICK_S = 0.05
PACE = Pace(withdraw_after_s=0.5, entries_per_s=1_000.0)


class NetworkBroker(SimulatedBroker):
    """A broker of the network: what it sends to other brokers goes into tunnels."""

    def __init__(self, network: SimulatedNetwork, name: str) -> None:
        super().__init__(now=network.nodes[name].clock(network.now_s))
        self.network, self.name = network, name
        self.tunnels: dict[Link, int] = {}
        """By connection to another broker, the tunnel that carries it."""
        self.names: dict[int, str] = {}
        self.peers = self._new_peers()

    def _new_peers(self) -> Peers:
        return Peers(self.broker, Summary(self.network.covering, pace=PACE, offset_error_s=0.05))

    def sync_clock(self) -> None:
        """Take the time of the network, by this broker's own clock."""
        node = self.network.nodes[self.name]
        self.now = max(self.now, node.clock(self.network.now_s))

    def _send(self, link: Link) -> bool:
        tunnel = self.tunnels.get(link)
        if tunnel is None:
            return super()._send(link)
        data = b"".join(link.out)
        link.out.clear()
        node = self.network.nodes[self.name]
        if data and node.is_alive:
            node.core.send({tunnel: data}, b"")
            self.network.later(0.0, self.network.carry_out, self.name, node)
        if link.closing:
            self._drop(link)
        return link.closing

    def _drop(self, link: Link) -> None:
        tunnel = self.tunnels.pop(link)
        self.peers.closed(self.names.pop(tunnel), self.now)

    # -- what the node reports -----------------------------------------------------------------

    def happened(self, event: MeshEvent) -> None:
        """Carry the event of a tunnel to the broker."""
        self.sync_clock()
        if isinstance(event, Opened):
            link = self.peers.opened(event.name, event.offset_s, self.now)
            if link is not None:
                self.tunnels[link] = event.tunnel
                self.names[event.tunnel] = event.name
        elif isinstance(event, Closed):
            link = self._link_of(event.tunnel)
            if link is not None:
                self._drop(link)
        elif isinstance(event, Received):
            link = self._link_of(event.tunnel)
            if link is not None:
                self.broker.received(link, event.data, self.now)
        else:
            return
        self.turn()

    def _link_of(self, tunnel: int) -> Link | None:
        return next((link for link, number in self.tunnels.items() if number == tunnel), None)

    def pass_time(self) -> None:
        """Do what is due."""
        self.sync_clock()
        self.broker.tick(self.now)
        self.peers.advance(self.now)
        self.turn()

    def crash(self, index: bytes | None = None, *, down_s: float = 0.0) -> None:
        """Everything but the disk is gone; another broker takes up what is there."""
        self.tunnels.clear()
        self.names.clear()
        super().crash(index, down_s=down_s)
        self.peers = self._new_peers()


class SimulatedNetwork(SimulatedMesh):
    """Brokers with links between them."""

    def __init__(self, seed: int = 0, covering: Covering = "merged") -> None:
        super().__init__(seed)
        self.covering: Covering = covering
        self.brokers: dict[str, NetworkBroker] = {}

    def broker(self, name: str, *, clock_s: float = 0.0) -> NetworkBroker:
        """Start a broker."""
        self.start(name, clock_s=clock_s)
        made = self.brokers[name] = NetworkBroker(self, name)
        self._tick_broker(name)
        return made

    def crash(self, name: str) -> None:
        """Kill a broker: what was not committed is lost, and its clients are disconnected."""
        self.kill(name)

    def restart(self, name: str) -> None:
        """Start a broker again after `crash`."""
        node = self.nodes[name]
        self.brokers[name].crash()
        self.start(name, clock_s=node.clock_s)
        self.brokers[name].sync_clock()

    def _tick_broker(self, name: str) -> None:
        if self.nodes[name].is_alive:
            self.brokers[name].pass_time()
        self.later(TICK_S, self._tick_broker, name)

    def happened(self, name: str, node: SimulatedNode, event: MeshEvent) -> None:
        """A node reports an event: its broker takes it."""
        if isinstance(event, Received):
            node.streams.setdefault(event.name, bytearray())
        super().happened(name, node, event)
        if name in self.brokers and self.nodes.get(name) is node:
            self.brokers[name].happened(event)
