"""The graph of brokers, and the shortest ways through it.

Every broker announces its own links in a numbered record that all others keep. So all of them have
the same graph and, for each origin, compute the same tree of shortest ways: a frame needs to carry
only its origin and its targets, and each broker on the way can tell where it goes next.

An edge counts when both of its ends announce it under the same number. A link that was cut and
opened again has another number, so the half of it that is old news never counts.

A node is a number of 64 bits that a broker draws at each start: a restarted broker is another node
with the same name. Records of nodes that cannot be reached are kept for some time, because a cut
network usually heals and then needs few records.

A tree costs about 1.5 µs per edge and is computed when it is first needed after a change.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Final

import msgspec

HOP_US: Final = 200
"""What a broker on the way adds to the delay of a link, so that detours must pay."""
NUMBER_STEP_MAX: Final = 1 << 20
"""By how much a record may be newer than the one before: its broker could not outdo larger lies."""

HURRY: Final = 0.1
"""Of the time for which unreachable brokers are kept, if there is no room for others."""


class Edge(msgspec.Struct, frozen=True, gc=False):
    """One end of a link, as its broker announces it."""

    peer: int
    """The node at the other end."""
    number: int
    """Which link this is, of all that these two ever had."""
    delay_us: int
    """One way."""
    offset_us: int
    """By how much the clock of the other end is ahead."""
    error_us: int
    """How wrong that may be."""


class Record(msgspec.Struct, frozen=True):
    """What a broker announces of itself; the highest number counts."""

    node: int
    name: str
    epoch: int
    """Grows with every start of the broker."""
    number: int
    edges: tuple[Edge, ...] = ()


class Way(msgspec.Struct, frozen=True):
    """The shortest way from this broker to another."""

    nodes: tuple[int, ...]
    """All on the way, this broker and the target included."""
    numbers: tuple[int, ...]
    """Of the links between them."""
    delay_us: int
    offset_us: int
    """By how much the target's clock is ahead of ours."""
    error_us: int

    @property
    def neighbour(self) -> int:
        """The first step."""
        return self.nodes[1]


class Route(msgspec.Struct, frozen=True):
    """What a broker does with the frames of one origin."""

    parent: int | None
    """The neighbour from which they come; None if there is no way, or it is the origin itself."""
    onward: dict[int, int]
    """By target: the neighbour to which they go."""


class Graph:
    """The records, and what follows from them."""

    def __init__(self, own: Record, *, brokers_max: int, keep_s: float) -> None:
        self.own = own
        self.records: dict[int, Record] = {}
        self._brokers_max, self._keep_s = brokers_max, keep_s
        self._heard_at: dict[int, float] = {}
        """By node: when it could last be reached, or has last sent a record."""
        self.adjacent: dict[int, dict[int, Edge]] = {}
        """By node and peer: the edges that both ends announce under the same number."""
        self._claims: dict[int, dict[int, Edge]] = {}
        """By node and peer: all edges."""
        self._ranks: dict[int, int] = {}
        """Of the names; empty if there are other nodes than when they were ranked."""
        self._trees: dict[int, dict[int, int]] = {}
        self._routes: dict[int, Route] = {}
        self._keep(own)

    # -- records -------------------------------------------------------------------------------

    def publish(self, edges: Iterable[Edge], above: int = 0) -> Record:
        """A new record of this broker, numbered above its last one and above `above`."""
        number = max(self.own.number, above) + 1
        self.own = msgspec.structs.replace(self.own, number=number, edges=tuple(edges))
        self._keep(self.own)
        return self.own

    def add(self, record: Record, now_s: float) -> bool:
        """Take a record of another broker; whether it was news."""
        known = self.records.get(record.node)
        if known is None:
            if len(self.records) >= self._brokers_max and not self._make_room(now_s):
                return False
        elif not _may_replace(record, known):
            return False
        self._keep(record)
        self._heard_at[record.node] = now_s
        return True

    def _keep(self, record: Record) -> None:
        """Replace the record of a node, and what counts of its edges."""
        node = record.node
        claims = {edge.peer: edge for edge in record.edges if edge.peer != node}
        old = self._claims.get(node)
        self.records[node] = record
        if claims == old:
            return
        if node not in self.adjacent:
            self.adjacent[node] = {}
            self._ranks = {}
        self._claims[node] = claims
        for peer in {**(old or {}), **claims}:
            self._match(node, peer)
        self._changed()

    def _match(self, node: int, peer: int) -> None:
        """Whether an edge counts."""
        edge, other = self._claims[node].get(peer), self._claims.get(peer, {}).get(node)
        if edge is not None and other is not None and edge.number == other.number:
            self.adjacent[node][peer] = edge
            self.adjacent[peer][node] = other
        elif self.adjacent[node].pop(peer, None) is not None:
            del self.adjacent[peer][node]

    def _make_room(self, now_s: float) -> bool:
        """Forget the broker that is unreachable for longest; whether there was one to forget."""
        oldest = min(self._heard_at, key=self._heard_at.__getitem__, default=None)
        if oldest is None or now_s - self._heard_at[oldest] <= self._keep_s * HURRY:
            return False
        self._forget(oldest)
        return True

    def expire(self, now_s: float) -> bool:
        """Forget brokers that have been unreachable for long; whether there were any.

        Has to be called every few seconds, because it also notes which can be reached.
        """
        count = len(self.records)
        reachable = self.tree(self.own.node)
        for node in list(self._heard_at):
            if node in reachable:
                self._heard_at[node] = now_s
            elif now_s - self._heard_at[node] > self._keep_s:
                self._forget(node)
        return len(self.records) < count

    def shift(self, seconds: float) -> None:
        """The clock was set."""
        self._heard_at = {node: at_s + seconds for node, at_s in self._heard_at.items()}

    def _forget(self, node: int) -> None:
        claims = self._claims[node]
        self._claims[node] = {}
        for peer in claims:
            self._match(node, peer)
        del self.records[node], self._heard_at[node], self._claims[node], self.adjacent[node]
        self._ranks = {}
        self._changed()

    def _changed(self) -> None:
        self._trees.clear()
        self._routes.clear()

    # -- ways ----------------------------------------------------------------------------------

    def _ranked(self) -> dict[int, int]:
        """The order of the names."""
        if not self._ranks:
            records = self.records
            in_order = sorted(records, key=lambda node: (records[node].name, node))
            self._ranks = {node: rank for rank, node in enumerate(in_order)}
        return self._ranks

    def tree(self, origin: int) -> dict[int, int]:
        """By node: the one before it on the shortest way from the origin, nearest nodes first.

        Ties go to the node, then to the predecessor, whose name comes first.
        """
        if (known := self._trees.get(origin)) is not None:
            return known
        adjacent, ranks = self.adjacent, self._ranked()
        found: dict[int, int] = {}
        heap = [(0, ranks[origin], 0, origin, origin)] if origin in ranks else []
        while heap:
            cost, rank, _, node, before = heapq.heappop(heap)
            if node in found:
                continue
            found[node] = before
            for peer, edge in adjacent[node].items():
                if peer not in found:
                    # Both ends have measured; the sum is the same whichever way is looked at.
                    delay = edge.delay_us + adjacent[peer][node].delay_us + 2 * HOP_US
                    heapq.heappush(heap, (cost + delay, ranks[peer], rank, peer, node))
        self._trees[origin] = found
        return found

    def route(self, origin: int) -> Route:
        """What this broker does with the frames of an origin."""
        route = self._routes.get(origin)
        if route is None:
            own = self.own.node
            onward: dict[int, int] = {}
            tree = self.tree(origin)
            for node, before in tree.items():
                if node != origin and before == own:
                    onward[node] = node
                elif before in onward:
                    onward[node] = onward[before]
            parent = tree.get(own) if origin != own else None
            route = self._routes[origin] = Route(parent, onward)
        return route

    def ways(self) -> dict[int, Way]:
        """By node: the way from this broker to every other that can be reached."""
        own, adjacent = self.own.node, self.adjacent
        ways: dict[int, Way] = {own: Way((own,), (), 0, 0, 0)}
        for node, before in self.tree(own).items():
            if node == own:
                continue
            way, edge = ways[before], adjacent[before][node]
            ways[node] = Way(
                (*way.nodes, node),
                (*way.numbers, edge.number),
                way.delay_us + edge.delay_us,
                way.offset_us + edge.offset_us,
                way.error_us + edge.error_us,
            )
        del ways[own]
        return ways

    def is_whole(self, way: Way) -> bool:
        """Whether every link of a way is still there."""
        adjacent = self.adjacent
        steps = zip(way.nodes, way.nodes[1:], way.numbers, strict=False)
        return all(
            (edge := adjacent.get(node, {}).get(peer)) is not None and edge.number == number
            for node, peer, number in steps
        )


def _may_replace(record: Record, known: Record) -> bool:
    """Whether it is newer, by a number that can be true, and of the same start of the broker."""
    return (
        0 < record.number - known.number <= NUMBER_STEP_MAX
        and record.name == known.name
        and record.epoch == known.epoch
    )
