"""Layouts: which cell holds which stateless subscriptions, and which cells get a publication.

*Partitioned*: each subscription is in one cell, and every publication goes to all cells.
*Replicated*: every cell has all subscriptions, and each publication goes to one of them; large
batches are divided, so that they too are done sooner. *Hierarchical*: the parent has the
subscriptions that no other covers, and children have the covered ones; a publication goes to a
child only if a subscription matched that covers some in the child.

A layout decides and keeps the records; the coordinator sends. Layouts have no state of their own:
two layouts of the same subscriptions give the same answers, so one can be built beside another and
replace it between two publications.

A share is divided by cost, not by count (`divided`). A subscription has a fixed cost (`base`) and a
cost for every publication that it matched recently. The most expensive are assigned one by one,
each to the part with the least cost so far, so that one very hot subscription may outweigh all
others. Then every part is filled to the same level: the many in the middle are spread over the
parts in that proportion, evenly as multiples of the golden ratio are, and the cheapest, again one
by one, even out the rest. Considered: division by count, as in CUPUS, which leaves nearly all work
on one side if a few are hot; assigning all of them one by one, which took a second for a million;
an optimal partition, which is better by no more than the cheapest subscription.

Dividing into 2 or 4 parts takes 7 ms for 20,000 ids, 25 to 45 ms for 100,000, and 0.3 to 0.4 s for
1,000,000, half of it for reading `hits` and making lists.
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
    """A subscription, with what a cell needs of it."""

    id: int
    text: str
    parsed: Text
    filter: int
    accepted_at: float
    me: dict[str, object] | None
    evolve: str
    is_stateful: bool

    def command(self, cell: int) -> Add:
        """The command that adds it to a cell."""
        return Add(cell, self.id, self.text, self.filter, self.accepted_at, self.me, self.evolve)


Find = Callable[[int], SubscriptionSource]
"""A subscription by its number."""


class Placed(NamedTuple):
    """A subscription enters a cell, or leaves it."""

    cell: CellRecord
    id: int
    is_there: bool


class CellLayout(Protocol):
    """Where stateless subscriptions are."""

    layout: Layout
    cells: list[CellRecord]

    def __contains__(self, id: int) -> bool: ...

    @property
    def shares(self) -> int:
        """Into how many parts a batch may be divided."""
        ...

    def add(self, one: SubscriptionSource) -> list[Placed]:
        """Place a subscription."""
        ...

    def remove(self, id: int) -> list[Placed]:
        """Remove a subscription."""
        ...

    def holders(self, id: int) -> Sequence[CellRecord]:
        """The cells that have a subscription."""
        ...

    def ask(self, ticket: Ticket) -> list[Match]:
        """The first parts of a batch."""
        ...

    def follow(
        self, ticket: Ticket, cell: int, found: Iterable[tuple[int, list[int]]]
    ) -> list[Match]:
        """Further parts that follow from the matches of a cell."""
        ...


class Partitioned:
    """Each subscription is in one cell."""

    layout: Layout = "partitioned"
    shares = 1

    def __init__(
        self, cells: Sequence[CellRecord], shares: Mapping[int, int] | None = None
    ) -> None:
        """`shares` assigns cells to some subscriptions; others go to the cell with the fewest."""
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
        """The cell whose turn it is."""
        self._turn += 1
        return self.cells[self._turn % len(self.cells)]

    def follow(
        self, ticket: Ticket, cell: int, found: Iterable[tuple[int, list[int]]]
    ) -> list[Match]:
        return []


class Hierarchical:
    """The first cell has covering subscriptions, the others covered ones."""

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
            # Both changes between two publications, so that none finds it in both places or none.
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
"""How many of the most expensive, and of the cheapest, are assigned one by one."""
GOLDEN: Final = 0.6180339887498949


def divide(ids: Sequence[int], hits: Mapping[int, int], base: float) -> tuple[list[int], list[int]]:
    """Two parts of about equal cost; each keeps the order of `ids`."""
    one, other = divided(ids, hits, base, 2)
    return one, other


def divided(
    ids: Sequence[int], hits: Mapping[int, int], base: float, parts: int
) -> list[list[int]]:
    """Parts of about equal cost, by `base + hits` of each id; each keeps the order of `ids`.

    Deterministic. `base` is the cost of a subscription that matches nothing, in units of one hit;
    it must not be negative.
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
    """The part of each subscription."""
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
    """Assign each of `chosen`, the most expensive first, to the part with the least cost so far."""
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
    """The shares of `more` that bring all parts to one level, as far as possible."""
    level, count, given = 0.0, 0, more
    for own in sorted(sums):
        if count and own >= level:
            break
        count, given = count + 1, given + own
        level = given / count
    lacking = np.maximum(level - np.array(sums), 0.0)
    total = lacking.sum()
    return lacking / total if total > 0.0 else np.full(len(sums), 1.0 / len(sums))
