"""Who holds which plain subscriptions, and who is asked about a publication: the three layouts.

*Partitioned*: each subscription is in one cell, every publication goes to all cells. *Replicated*:
every cell has all subscriptions, publications are dealt out; batches that are large enough are
cut, so that they too are done sooner. *Hierarchical*: the parent has the subscriptions that no
other covers, children have what those cover; a publication goes to a child only if one that covers
something there matched.

An arrangement decides and keeps account; the coordinator sends. None of them has any past: two
arrangements of the same subscriptions give the same answers, which is why one can be built beside
another and take its place between two publications.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Final, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from rove.elastic.commands import Add, Match, encoded_rows
from rove.elastic.cover_trees import CoverTrees, Move
from rove.elastic.records import CellRecord, Ticket
from rove.elastic.view import Layout
from rove.lang.tree import Subscription as Text


class SubscriptionSource(msgspec.Struct, gc=False):
    """A subscription, as the broker knows it."""

    id: int
    text: str
    parsed: Text
    filter: int
    accepted_at: float
    me: dict[str, object] | None
    evolve: str
    is_kept: bool

    def command(self, cell: int) -> Add:
        """Have a cell take it in."""
        return Add(cell, self.id, self.text, self.filter, self.accepted_at, self.me, self.evolve)


Find = Callable[[int], SubscriptionSource]
"""A subscription by its number."""


class Placed(NamedTuple):
    """A subscription is to be in a cell from now on, or not to be."""

    cell: CellRecord
    id: int
    is_there: bool


class CellLayout(Protocol):
    """Where plain subscriptions are."""

    layout: Layout
    cells: list[CellRecord]

    def __contains__(self, id: int) -> bool: ...

    @property
    def shares(self) -> int:
        """In how many parts a batch may be cut."""
        ...

    def add(self, one: SubscriptionSource) -> list[Placed]:
        """Find a place for a subscription."""
        ...

    def remove(self, id: int) -> list[Placed]:
        """Forget one."""
        ...

    def holders(self, id: int) -> Sequence[CellRecord]:
        """The cells that have it."""
        ...

    def ask(self, ticket: Ticket) -> list[Match]:
        """Have the first cells asked about a batch."""
        ...

    def follow(
        self, ticket: Ticket, cell: int, found: Iterable[tuple[int, list[int]]]
    ) -> list[Match]:
        """Have others asked because of what one has found."""
        ...


class Partitioned:
    """Each subscription is in one cell."""

    layout: Layout = "partitioned"
    shares = 1

    def __init__(
        self, cells: Sequence[CellRecord], shares: Mapping[int, int] | None = None
    ) -> None:
        """`shares` says which cell some subscriptions are meant for; others go where few are."""
        self.cells = list(cells)
        self._shares = shares or {}
        self._owner = {id: cell for cell in self.cells for id in cell.ids}

    def __contains__(self, id: int) -> bool:
        return id in self._owner

    def add(self, one: SubscriptionSource) -> list[Placed]:
        share = self._shares.get(one.id)
        if share is None:
            cell = min(self.cells, key=lambda each: len(each.ids))
        else:
            cell = self.cells[share]
        cell.ids.add(one.id)
        self._owner[one.id] = cell
        return [Placed(cell, one.id, True)]

    def remove(self, id: int) -> list[Placed]:
        cell = self._owner.pop(id)
        cell.ids.discard(id)
        return [Placed(cell, id, False)]

    def holders(self, id: int) -> Sequence[CellRecord]:
        return (self._owner[id],)

    def ask(self, ticket: Ticket) -> list[Match]:
        raw = encoded_rows(ticket.rows)
        everything = range(len(ticket.rows))
        return [
            ticket.part(cell.number, everything, raw, slides=False)
            for cell in self.cells
            if cell.ids
        ]

    def follow(
        self, ticket: Ticket, cell: int, found: Iterable[tuple[int, list[int]]]
    ) -> list[Match]:
        return []


class Replicated:
    """Every cell has every subscription."""

    layout: Layout = "replicated"

    def __init__(self, cells: Sequence[CellRecord]) -> None:
        self.cells = list(cells)
        self._turn = 0

    def __contains__(self, id: int) -> bool:
        return id in self.cells[0].ids

    @property
    def shares(self) -> int:
        return len(self.cells)

    def add(self, one: SubscriptionSource) -> list[Placed]:
        for cell in self.cells:
            cell.ids.add(one.id)
        return [Placed(cell, one.id, True) for cell in self.cells]

    def remove(self, id: int) -> list[Placed]:
        for cell in self.cells:
            cell.ids.discard(id)
        return [Placed(cell, id, False) for cell in self.cells]

    def holders(self, id: int) -> Sequence[CellRecord]:
        return self.cells

    def ask(self, ticket: Ticket) -> list[Match]:
        if not self.cells[0].ids:
            return []
        rows = len(ticket.rows)
        shares = max(1, min(len(self.cells), rows // ticket.part_rows_min))
        asked = []
        for share in range(shares):
            cell = self.next_cell()
            part = range(rows * share // shares, rows * (share + 1) // shares)
            asked.append(ticket.part(cell.number, part, slides=False))
        return asked

    def next_cell(self) -> CellRecord:
        """Whose turn it is."""
        self._turn += 1
        return self.cells[self._turn % len(self.cells)]

    def follow(
        self, ticket: Ticket, cell: int, found: Iterable[tuple[int, list[int]]]
    ) -> list[Match]:
        return []


class Hierarchical:
    """The first cell has the covering ones, the others what they cover."""

    layout: Layout = "hierarchical"
    shares = 1

    def __init__(self, cells: Sequence[CellRecord]) -> None:
        self.cells = list(cells)
        self._covering = CoverTrees(len(cells) - 1)
        self._place: dict[int, int] = {}

    def __contains__(self, id: int) -> bool:
        return id in self._place

    def add(self, one: SubscriptionSource) -> list[Placed]:
        return self._moved(self._covering.add(one.id, one.filter, one.parsed))

    def remove(self, id: int) -> list[Placed]:
        return self._moved(self._covering.remove(id))

    def _moved(self, moves: Iterable[Move]) -> list[Placed]:
        placed = []
        for move in moves:
            id, to = move.id, move.to
            old = self._place.get(id)
            if old == to:
                continue
            # Both within the same moment between two publications: nobody meets both or none.
            if old is not None:
                self.cells[old].ids.discard(id)
                placed.append(Placed(self.cells[old], id, False))
            if to is None:
                del self._place[id]
            else:
                self._place[id] = to
                self.cells[to].ids.add(id)
                placed.append(Placed(self.cells[to], id, True))
        return placed

    def holders(self, id: int) -> Sequence[CellRecord]:
        return (self.cells[self._place[id]],)

    def ask(self, ticket: Ticket) -> list[Match]:
        parent = self.cells[0]
        if not parent.ids:
            return []
        return [ticket.part(parent.number, range(len(ticket.rows)), slides=False)]

    def follow(
        self, ticket: Ticket, cell: int, found: Iterable[tuple[int, list[int]]]
    ) -> list[Match]:
        if cell != self.cells[0].number:
            return []
        rows_of: dict[int, list[int]] = {}
        for row, ids in found:
            children = {self._covering.child_of(id) for id in ids}
            for child in children:
                if child is not None:
                    rows_of.setdefault(child, []).append(row)
        return [
            ticket.part(self.cells[child].number, rows, slides=False)
            for child, rows in rows_of.items()
        ]


DEALT_SINGLY: Final = 2_048
"""How many of the dearest, and of the cheapest, are dealt out one by one."""
GOLDEN: Final = 0.6180339887498949


def divide(ids: Sequence[int], hits: Mapping[int, int], base: float) -> tuple[list[int], list[int]]:
    """Two parts of about equal cost; each keeps the order of `ids`."""
    one, other = divided(ids, hits, base, 2)
    return one, other


def divided(
    ids: Sequence[int], hits: Mapping[int, int], base: float, parts: int
) -> list[list[int]]:
    """So many parts of about equal cost, by `base + hits` of each; each keeps the order of `ids`.

    The same for the same arguments. `base` is what a subscription costs that matches nothing, in
    units of one hit; it must not be negative.
    """
    if parts < 1:
        raise ValueError(f"{parts} parts: there must be at least one")
    if base < 0:
        raise ValueError(f"a base of {base:g}: it must not be negative")
    numbers = np.fromiter(ids, np.int64, len(ids))
    costs = np.full(len(ids), base, np.float64)
    if hits:
        costs += np.fromiter(map(hits.get, ids, repeat(0)), np.float64, len(ids))
    part_of = _dealt(costs, parts)
    return [numbers[part_of == part].tolist() for part in range(parts)]


def _dealt(costs: NDArray[np.float64], parts: int) -> NDArray[np.intp]:
    """The part of each."""
    part_of = np.zeros(len(costs), np.intp)
    sums = [0.0] * parts
    if len(costs) <= 2 * DEALT_SINGLY:
        _deal(costs, np.arange(len(costs)), part_of, sums)
        return part_of
    ends = (DEALT_SINGLY, len(costs) - DEALT_SINGLY)
    order = np.argpartition(-costs, ends)
    middle = order[ends[0] : ends[1]]
    _deal(costs, order[: ends[0]], part_of, sums)
    shares = _lacking(sums, float(costs[order[ends[0] :]].sum()))
    strewn = np.arange(1, len(middle) + 1) * GOLDEN % 1.0
    part_of[middle] = np.minimum(np.searchsorted(np.cumsum(shares), strewn, "right"), parts - 1)
    filled = np.bincount(part_of[middle], costs[middle], minlength=parts)
    sums = [own + more for own, more in zip(sums, filled.tolist(), strict=True)]
    _deal(costs, order[ends[1] :], part_of, sums)
    return part_of


def _deal(
    costs: NDArray[np.float64],
    chosen: NDArray[np.intp],
    part_of: NDArray[np.intp],
    sums: list[float],
) -> None:
    """Give each of `chosen`, the dearest first, to the part that has least yet."""
    least = [(own, part) for part, own in enumerate(sums)]
    heapq.heapify(least)
    dearest_first = chosen[np.lexsort((chosen, -costs[chosen]))]
    parts: list[int] = []
    for cost in costs[dearest_first].tolist():
        own, part = least[0]
        parts.append(part)
        heapq.heapreplace(least, (own + cost, part))
    part_of[dearest_first] = parts
    for own, part in least:
        sums[part] = own


def _lacking(sums: list[float], more: float) -> NDArray[np.float64]:
    """The shares of `more` that bring all parts to one level, as far as it suffices."""
    level, count, given = 0.0, 0, more
    for own in sorted(sums):
        if count and own >= level:
            break
        count, given = count + 1, given + own
        level = given / count
    lacking = np.maximum(level - np.array(sums), 0.0)
    total = lacking.sum()
    return lacking / total if total > 0.0 else np.full(len(sums), 1.0 / len(sums))
