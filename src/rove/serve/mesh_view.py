"""What a broker shows of its network: for `GET /mesh`, `rove mesh` and `/metrics`.

Made on request, in time that grows with the brokers and links of the network.
"""

from __future__ import annotations

import msgspec

from rove.broker.sessions.session import Session
from rove.mesh.view import BrokerEntry, LinkEntry
from rove.serve.mesh import Dial, DialState, Mesh


class BrokerStatus(msgspec.Struct):
    """Another broker of the network."""

    name: str
    is_reachable: bool
    """Whether there is a way to it."""
    is_connected: bool
    """Whether publications go both ways now; if not, they wait."""
    via: str
    """The neighbour beyond which it is."""
    hops: int
    delay_s: float
    """One way."""
    offset_s: float
    """By how much its clock is ahead of this broker's."""
    offset_error_s: float
    neighbours: list[str]
    asks_for: int
    """Entries that it wants from this broker."""
    sent: int
    """Publications sent to it since this broker was started."""
    received: int
    received_in_vain: int
    """Those that matched nothing here: false forwards."""
    queued: int
    """Publications that wait for it, or for its acknowledgement."""
    queued_bytes: int


class JoinStatus(msgspec.Struct):
    """A broker that this one joins."""

    url: str
    state: DialState
    name: str
    """Empty until it is known."""
    trouble: str
    """Why it is not joined; empty if all is well."""


class MeshStatus(msgspec.Struct):
    """The network, as one broker sees it."""

    name: str
    epoch: int
    subscriptions: int
    """Of the clients of this broker."""
    asks_for: int
    """The entries that stand for them at each other broker."""
    asks_for_bytes: int
    brokers: list[BrokerStatus]
    links: list[LinkEntry]
    joins: list[JoinStatus]
    conflicts: list[str]
    """Names that two live brokers have."""


def mesh_status(mesh: Mesh) -> MeshStatus:
    """The present state."""
    view, peers = mesh.node.view, mesh.peers
    via = {tunnel.name: tunnel.via for tunnel in view.tunnels}
    sessions = mesh.shell.broker.context.brokers
    found = {one.name: one for one in view.brokers if one.name != view.name}
    names = sorted(found.keys() | sessions.keys())
    return MeshStatus(
        view.name,
        view.epoch,
        peers.subscription_count,
        peers.entry_count,
        peers.entry_bytes,
        [_broker(mesh, name, found.get(name), sessions.get(name), via) for name in names],
        view.links,
        [_join(dial) for dial in mesh.dials.values()],
        view.conflicts,
    )


def _broker(
    mesh: Mesh,
    name: str,
    entry: BrokerEntry | None,
    session: Session | None,
    via: dict[str, str],
) -> BrokerStatus:
    received, unmatched = mesh.shell.broker.context.forwards.get(name, (0, 0))
    inflight = () if session is None else session.inflight.values()
    return BrokerStatus(
        name,
        entry is not None and entry.is_reachable,
        session is not None and session.link is not None,
        via.get(name, ""),
        0 if entry is None else entry.hops,
        0.0 if entry is None else entry.delay_s,
        0.0 if entry is None else entry.offset_s,
        0.0 if entry is None else entry.error_s,
        [] if entry is None else entry.neighbours,
        0 if session is None else len(session.subscriptions),
        mesh.sent.get(name, 0),
        received,
        unmatched,
        0 if session is None else len(session.queue) + len(inflight),
        0 if session is None else session.queue_bytes,
    )


def _join(dial: Dial) -> JoinStatus:
    # A link that the other side has opened counts as well: then there is no trouble.
    is_joined = dial.state == "waiting" and dial.name and not dial.trouble
    state: DialState = "joined" if is_joined else dial.state
    return JoinStatus(str(dial.address), state, dial.name, dial.trouble)
