"""The table of merged entries: few enough to fit a budget of bytes, and wide enough to be sound.

An entry stands for a *node*: a box around the pieces (conjunctions) of subscriptions. A piece that
a node covers joins it, and nothing is sent. Any other piece becomes a node of its own, exactly as
it was written. While all entries together exceed the budget, the two nodes of one topic filter
whose common box adds the least volume become one: numeric bounds are joined to one span, sets of
strings united, everything else left out. Where no two nodes of one topic filter are left, topic
filters are widened.

A node that has lost pieces at its edge, or the piece that gave it its form, is dissolved: its
pieces are placed anew, some in each call of `advance`, while its entry stays until all that
replaces it has been sent.

Costs of a piece: some 20 µs if a node covers it, among 500 nodes of six attributes; some 200 µs
for one that leads to a merge. Removing one takes 2 µs.
"""

from __future__ import annotations

from collections import Counter, deque
from heapq import heappop, heappush

import msgspec

from rove.mesh.interest.boxes import MergeTable
from rove.mesh.interest.covering import Interest, breadth
from rove.mesh.interest.entries import entry_size_bytes
from rove.mesh.interest.outbox import Outbox
from rove.mesh.interest.regions import (
    Region,
    expression_of,
    hull,
    region_covers,
    region_of,
)
from rove.mesh.interest.topic_filters import FilterIndex, widened_filter

PIECES_MAX = 8
"""Conjunctions of one subscription that are kept apart; further ones share a box."""
_EDGE_SHARE = 8
"""A merged node is dissolved when one in so many of its pieces has gone from its edge."""
_WIDENED_TO = 0.8
"""When topic filters have to be widened, how much of the budget is used afterwards."""


class Piece(msgspec.Struct, eq=False):
    """One conjunction of a subscription."""

    topic_filter: str
    region: Region
    accepted_at_s: float | None
    whole: Interest | None = None
    """The interest that it is all of, if it is."""
    members: Members | None = None
    """Those of its node, itself among them."""

    @property
    def wants_all(self) -> bool:
        """Whether it wants everything on the topic filter."""
        return self.whole is not None and self.whole.wants_all

    def expression(self) -> str | None:
        """What is sent for it alone."""
        if self.whole is not None:
            return self.whole.expression()
        return expression_of(self.region.conjunctions)


class Members(msgspec.Struct, eq=False):
    """The pieces of a node, by identity. When nodes merge, the fewer pieces move to the more."""

    node: MergedNode | None
    """None once the node is dissolved."""
    pieces: dict[int, Piece]


class MergedNode(msgspec.Struct, eq=False):
    """What one entry stands for."""

    topic_filter: str
    region: Region
    expression: str | None
    accepted_at_s: float | None = None
    members: Members | None = None
    entry: int | None = None
    slot: int = -1
    is_merged: bool = False
    """Whether it is the box around its pieces, and not the region of one of them."""
    lost: int = 0
    """Members gone that lay at the edge."""
    is_urgent: bool = False
    """Whether something relies on the entry as soon as it is there."""
    replaced: list[int] = msgspec.field(default_factory=list)
    """The entries that this one replaces, until it is put."""
    held: set[int] = msgspec.field(default_factory=set)
    """The entries of dissolved nodes that stay until this one is sent."""

    @property
    def wants_all(self) -> bool:
        """Whether it wants everything on the topic filter."""
        return self.expression is None

    @property
    def size_bytes(self) -> int:
        """Of its entry."""
        return entry_size_bytes(self.topic_filter, self.expression)


class _Group(msgspec.Struct, eq=False):
    """The nodes of one topic filter."""

    topic_filter: str
    table: MergeTable = msgspec.field(default_factory=MergeTable)
    by_slot: dict[int, MergedNode] = msgspec.field(default_factory=dict)
    is_widened: bool = False
    """Whether it also holds what was on narrower topic filters."""


class MergedTable:
    """Nodes over all pieces, within a budget of bytes."""

    def __init__(self, outbox: Outbox, budget_bytes: int) -> None:
        self._outbox = outbox
        self._budget_bytes = budget_bytes
        self._size_bytes = 0
        self._groups: dict[str, _Group] = {}
        self._filters = FilterIndex()
        self._changed: set[str] = set()
        """The groups whose cheapest merge is to be looked for again."""
        self._costs: dict[str, float] = {}
        """What the cheapest merge of each group adds, where there is one."""
        self._merges: list[tuple[float, str]] = []
        """The same as a heap, with outdated items."""
        self._pieces: dict[int, list[Piece]] = {}
        """Of each interest, by identity."""
        self._dissolved: deque[tuple[int, dict[int, Piece]]] = deque()
        """The entries of dissolved nodes, and their pieces that are still to be placed."""
        self._unsent: list[MergedNode] = []
        """Nodes without an entry; only while a piece is being placed."""

    # -- changing ----------------------------------------------------------------------

    def add(self, one: Interest, now_s: float) -> None:
        """Add what a subscription wants."""
        pieces = self._pieces[id(one)] = _pieces_of(one)
        for piece in pieces:
            self._place(piece, now_s, held_by=None)

    def remove(self, one: Interest, now_s: float) -> None:
        """Remove it again."""
        for piece in self._pieces.pop(id(one)):
            members = piece.members
            assert members is not None
            del members.pieces[id(piece)]
            if members.node is not None:
                self._lose(members.node, piece, len(members.pieces), now_s)

    def _lose(self, node: MergedNode, piece: Piece, left: int, now_s: float) -> None:
        """A node has lost a piece, and has so many left."""
        assert node.entry is not None
        if not left:
            self._take_out(node)
            self._outbox.drop(node.entry, now_s)
        elif node.region is piece.region:
            self._dissolve(node)
        elif node.is_merged and _is_at_edge(piece.region, node.region):
            node.lost += 1
            if node.lost > 1 + left // _EDGE_SHARE:
                self._dissolve(node)

    @property
    def is_behind(self) -> bool:
        """Whether `advance` has something to do."""
        return bool(self._dissolved)

    def advance(self, now_s: float, work: int) -> None:
        """Place up to `work` pieces of dissolved nodes."""
        while self._dissolved and work > 0:
            entry, waiting = self._dissolved[0]
            pieces = [waiting.popitem()[1] for _ in range(min(work, len(waiting)))]
            work -= len(pieces)
            # The widest first: what these cover needs no other node.
            for piece in sorted(pieces, key=lambda piece: breadth(piece.region), reverse=True):
                self._place(piece, now_s, held_by=entry)
            if not waiting:
                self._dissolved.popleft()
                self._outbox.drop(entry, now_s)

    def _dissolve(self, node: MergedNode) -> None:
        assert node.entry is not None
        assert node.members is not None
        self._take_out(node)
        node.members.node = None
        self._dissolved.append((node.entry, node.members.pieces))

    # -- placing -----------------------------------------------------------------------

    def _place(self, piece: Piece, now_s: float, held_by: int | None) -> None:
        """Let a piece join a node, or make it one.

        `held_by` is the entry that covers the piece until what it joins has been sent.
        """
        home = None
        for topic_filter in self._filters.covering(piece.topic_filter):
            group = self._groups[topic_filter]
            home = group if group.is_widened else home
            for slot in group.table.around(piece.region):
                if _covers(group.by_slot[slot], piece):
                    self._join(group.by_slot[slot], piece, held_by)
                    return
        topic_filter = piece.topic_filter if home is None else home.topic_filter
        node = MergedNode(topic_filter, piece.region, piece.expression(), piece.accepted_at_s)
        piece.members = node.members = Members(node, {id(piece): piece})
        node.is_urgent = held_by is None
        node.held = set() if held_by is None else {held_by}
        group = self._groups.get(topic_filter) or self._new_group(topic_filter)
        for slot in group.table.within(node.region):
            if _covers(node, group.by_slot[slot]):
                self._absorb(node, group.by_slot[slot])
        self._put_in(group, node)
        self._fit()
        self._put_entries(now_s)

    def _join(self, node: MergedNode, piece: Piece, held_by: int | None) -> None:
        assert node.entry is not None
        assert node.members is not None
        node.members.pieces[id(piece)] = piece
        piece.members = node.members
        if held_by is None:
            self._outbox.promote(node.entry)
        else:
            self._outbox.hold(held_by, node.entry)

    def _put_in(self, group: _Group, node: MergedNode) -> None:
        if group.topic_filter not in self._groups:
            self._groups[group.topic_filter] = group
            self._filters.add(group.topic_filter)
        node.slot = group.table.add(node.region)
        group.by_slot[node.slot] = node
        self._size_bytes += node.size_bytes
        self._changed.add(group.topic_filter)
        self._unsent.append(node)

    def _take_out(self, node: MergedNode) -> None:
        group = self._groups[node.topic_filter]
        group.table.remove(node.slot)
        del group.by_slot[node.slot]
        node.slot = -1
        self._size_bytes -= node.size_bytes
        self._changed.add(node.topic_filter)
        if not group.by_slot:
            del self._groups[node.topic_filter]
            self._filters.remove(node.topic_filter)

    def _new_group(self, topic_filter: str) -> _Group:
        group = self._groups[topic_filter] = _Group(topic_filter)
        self._filters.add(topic_filter)
        return group

    def _absorb(self, node: MergedNode, other: MergedNode) -> None:
        """Let one node stand for another one too, which goes."""
        if other.slot >= 0:
            self._take_out(other)
        assert other.members is not None
        node.members = _together(node.members, other.members)
        node.members.node = node
        node.lost += other.lost
        node.held |= other.held
        node.replaced += other.replaced
        urgent = other.is_urgent if other.entry is None else self._outbox.is_urgent(other.entry)
        node.is_urgent = node.is_urgent or urgent
        if other.entry is not None:
            node.replaced.append(other.entry)

    def _put_entries(self, now_s: float) -> None:
        """Give entries to the nodes that are there now, in place of those that they replace."""
        for node in self._unsent:
            if node.slot < 0 or node.entry is not None:
                continue
            node.entry = self._outbox.put(
                node.topic_filter, node.expression, node.accepted_at_s, urgent=node.is_urgent
            )
            for entry in node.held:
                self._outbox.hold(entry, node.entry)
            for entry in node.replaced:
                self._outbox.hold(entry, node.entry)
                self._outbox.drop(entry, now_s)
            node.held.clear()
            node.replaced.clear()
        self._unsent.clear()

    # -- merging -----------------------------------------------------------------------

    def _fit(self) -> None:
        """Merge until all entries fit the budget, or nothing is left to merge."""
        while self._size_bytes > self._budget_bytes:
            group = self._cheapest_group()
            if group is not None:
                best = group.table.cheapest()
                assert best is not None
                self._merge(group, group.by_slot[best[1]], group.by_slot[best[2]])
            elif not self._widen_filters():
                return

    def _cheapest_group(self) -> _Group | None:
        for topic_filter in self._changed:
            group = self._groups.get(topic_filter)
            best = None if group is None else group.table.cheapest()
            if best is None:
                self._costs.pop(topic_filter, None)
            elif self._costs.get(topic_filter) != best[0]:
                self._costs[topic_filter] = best[0]
                heappush(self._merges, (best[0], topic_filter))
        self._changed.clear()
        while self._merges:
            cost, topic_filter = self._merges[0]
            if self._costs.get(topic_filter) == cost:
                return self._groups[topic_filter]
            heappop(self._merges)
        return None

    def _merge(self, group: _Group, a: MergedNode, b: MergedNode) -> None:
        region = hull(a.region, b.region)
        node = MergedNode(group.topic_filter, region, expression_of(region.conjunctions))
        node.is_merged = True
        self._absorb(node, a)
        self._absorb(node, b)
        self._put_in(group, node)

    def _widen_filters(self) -> bool:
        """Bring nodes of several topic filters together; whether there were any to bring."""
        count = Counter(wide for topic_filter in self._groups for wide in _wider(topic_filter))
        several = [wide for wide, number in count.items() if number > 1]
        several.sort(key=lambda wide: (wide.count("/"), count[wide]), reverse=True)
        depth = several[0].count("/") if several else 0
        for wide in several:
            if wide.count("/") < depth or self._size_bytes <= _WIDENED_TO * self._budget_bytes:
                break
            self._widen_to(wide)
        return bool(several)

    def _widen_to(self, wide: str) -> None:
        group = self._groups.get(wide) or self._new_group(wide)
        group.is_widened = True
        narrow = [f for f in self._filters.covered(wide) if f != wide]
        for node in [n for f in narrow for n in self._groups[f].by_slot.values()]:
            wider = MergedNode(wide, node.region, node.expression, node.accepted_at_s)
            wider.is_merged = node.is_merged
            self._absorb(wider, node)
            self._join_or_put(group, wider)

    def _join_or_put(self, group: _Group, node: MergedNode) -> None:
        for slot in group.table.around(node.region):
            other = group.by_slot[slot]
            if _covers(other, node):
                region, expression, at = other.region, other.expression, other.accepted_at_s
                both = MergedNode(group.topic_filter, region, expression, at)
                both.is_merged = other.is_merged
                self._absorb(both, other)
                self._absorb(both, node)
                node = both
                break
        self._put_in(group, node)


def _together(a: Members | None, b: Members) -> Members:
    if a is None:
        return b
    few, many = (a, b) if len(a.pieces) < len(b.pieces) else (b, a)
    many.pieces.update(few.pieces)
    for piece in few.pieces.values():
        piece.members = many
    return many


def _pieces_of(one: Interest) -> list[Piece]:
    """The conjunctions of a subscription; of many, the last ones share their box."""
    at, found = one.accepted_at_s, one.region.conjunctions
    if len(found) == 1:
        return [Piece(one.topic_filter, one.region, at, one)]
    regions = [region_of((conjunction,)) for conjunction in found[:PIECES_MAX]]
    for conjunction in found[PIECES_MAX:]:
        regions[-1] = hull(regions[-1], region_of((conjunction,)))
    return [Piece(one.topic_filter, r, at if r.uses_time else None) for r in regions]


def _covers(node: MergedNode, piece: Piece | MergedNode) -> bool:
    """Whether a node whose arrays cover those of a piece, or of another node, covers it."""
    if node.expression is None or piece.wants_all:
        return node.expression is None
    if node.region.is_box:
        return True
    same_time = node.accepted_at_s == piece.accepted_at_s
    return region_covers(node.region, piece.region, same_time=same_time)


def _is_at_edge(region: Region, of: Region) -> bool:
    """Whether a box might be smaller without a region in it."""
    if region is of or not of.bounds:
        return True
    return any(
        low == region.bounds[path][0] or high == region.bounds[path][1]
        for path, (low, high) in of.bounds.items()
        if path in region.bounds
    )


def _wider(topic_filter: str) -> list[str]:
    """All wider filters, the narrowest of them first."""
    found: list[str] = []
    wide = widened_filter(topic_filter)
    while wide is not None:
        found.append(wide)
        wide = widened_filter(wide)
    return found
