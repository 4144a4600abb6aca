"""What a broker shows of its network: for `rove mesh`, `/metrics` and the monitor.

Made when somebody looks, in time that grows with the brokers and links of the network.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rove.mesh.graph import Graph, Way
from rove.mesh.links import Link
from rove.mesh.tunnel import Tunnel


class BrokerEntry(msgspec.Struct, frozen=True):
    """A broker of the network."""

    name: str
    epoch: int
    is_reachable: bool
    neighbours: list[str]
    hops: int
    """0 for this broker, and for one that cannot be reached."""
    delay_s: float
    """One way, along the shortest."""
    offset_s: float
    error_s: float


class LinkEntry(msgspec.Struct, frozen=True):
    """A link of this broker."""

    link: int
    name: str
    state: str
    outgoing: bool
    delay_s: float | None
    """There and back."""
    offset_s: float | None
    error_s: float | None
    sent_bytes: int
    received_bytes: int
    queued_bytes: int
    frames_sent: int
    frames_received: int
    frames_dropped: int
    """For want of room."""
    frames_refused: int
    """They came along a link that does not lead from their origin."""


class TunnelEntry(msgspec.Struct, frozen=True):
    """A tunnel of this broker."""

    name: str
    tunnel: int
    """0 while it is not open."""
    via: str
    """The neighbour beyond which it goes."""
    opened_count: int
    sent_bytes: int
    """What the other end has acknowledged, in all incarnations."""
    received_bytes: int
    unacknowledged_bytes: int
    queued_bytes: int


class MeshView(msgspec.Struct, frozen=True):
    """What `rove mesh` shows."""

    name: str
    epoch: int
    brokers: list[BrokerEntry]
    links: list[LinkEntry]
    tunnels: list[TunnelEntry]
    conflicts: list[str]
    """Names that two live brokers have."""


def mesh_view(
    graph: Graph,
    links: Mapping[int, Link],
    tunnels: Mapping[int, Tunnel],
    holders: Mapping[str, int],
    now_s: float,
) -> MeshView:
    """The present state of everything."""
    ways = graph.ways()
    conflicts = {
        record.name
        for record in graph.records.values()
        if record.node in ways and holders.get(record.name) != record.node
    }
    return MeshView(
        graph.own.name,
        graph.own.epoch,
        [_broker(graph, node, ways.get(node)) for node in graph.records],
        [_link(link, now_s) for link in links.values()],
        [_tunnel(graph, tunnel) for tunnel in tunnels.values()],
        sorted(conflicts),
    )


def _broker(graph: Graph, node: int, way: Way | None) -> BrokerEntry:
    record, records = graph.records[node], graph.records
    neighbours = sorted(records[peer].name for peer in graph.adjacent[node])
    is_own = record is graph.own
    if way is None:
        return BrokerEntry(record.name, record.epoch, is_own, neighbours, 0, 0.0, 0.0, 0.0)
    return BrokerEntry(
        record.name,
        record.epoch,
        True,
        neighbours,
        len(way.numbers),
        way.delay_us / 1e6,
        way.offset_us / 1e6,
        way.error_us / 1e6,
    )


def _link(link: Link, now_s: float) -> LinkEntry:
    estimate = link.clock.estimate(now_s)
    return LinkEntry(
        link.number,
        link.name,
        link.state,
        link.outgoing,
        None if estimate is None else estimate.delay_s,
        None if estimate is None else estimate.offset_s,
        None if estimate is None else estimate.error_s,
        link.sent_bytes,
        link.received_bytes,
        link.queued_bytes,
        link.frames_sent,
        link.frames_received,
        link.frames_dropped,
        link.frames_refused,
    )


def _tunnel(graph: Graph, tunnel: Tunnel) -> TunnelEntry:
    return TunnelEntry(
        tunnel.name,
        tunnel.number,
        graph.records[tunnel.way.neighbour].name,
        tunnel.opened_count,
        tunnel.sent_total,
        tunnel.received_total,
        tunnel.sent - tunnel.acked,
        tunnel.queued_bytes + tunnel.pending_bytes,
    )
