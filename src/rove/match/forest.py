"""The covering forest: each subscription is a child of one that covers it, as in CUPUS.

If a publication does not match a subscription, it matches none of its descendants, so matching
descends only where the parent matched. And another broker needs the roots only: a publication that
any subscription matches also matches a root.

That second use is the purpose of the forest. As an index it was 20 to 70 times slower than a full
scan in NumPy at 10,000 subscriptions (`rove.bench.match.forest`), although only a fiftieth of them
were roots: it evaluates one by one what the scan compares by the thousand.

`rove.lang.algebra` decides which subscription covers another; only a proven yes counts. Its answers
hold for every state of both subscribers, so `me.` is allowed. They hold for both at the same `t`,
from 0 to `FOREVER_S`; so two evolving subscriptions are compared only if they were accepted at the
same time, and publications outside of that span are matched with all. Ranks are ignored: everything
that satisfies the condition must arrive, whatever its rank will be.

Cost: two boxes (one interval for each attribute) are compared in less than a microsecond, without
the algebra. Moving boxes are first compared at t = 0, which decides nearly every no. Any other pair
costs what `covers` costs, 0.1 to 30 ms.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from rove.lang.algebra import FOREVER_S, ProofResult, covers
from rove.lang.errors import LanguageError
from rove.lang.normal_form import Conjunction, NormalForm, holds, normalise
from rove.lang.oracle import Publication
from rove.lang.partial_evaluation import at_moment
from rove.lang.sets import Bound
from rove.lang.tree import Attribute, Subscription, Time, walk
from rove.lang.values import change_state

Box: TypeAlias = dict[tuple[str, bool], tuple[Bound, Bound]]
"""For an attribute, and whether it is a text, the span of its values; the end is not in it."""


class ForestCounts(msgspec.Struct):
    """What a forest has done so far."""

    covers_asked: int = 0
    """Pairs put to the algebra."""
    boxes_compared: int = 0
    """Pairs that were boxes, and compared directly."""
    evaluations: int = 0
    """Subscriptions evaluated for publications."""


class _ForestNode(msgspec.Struct, eq=False):
    id: int
    condition: Subscription
    form: NormalForm
    start: Box | None
    """The box that it is at t = 0, if it is one then."""
    is_box: bool
    """Whether that is what it is at any other time too."""
    uses_time: bool
    accepted_at: float
    me: dict[str, object]
    parent: _ForestNode | None = None
    children: dict[int, _ForestNode] = {}


class Forest:
    """Subscriptions under their ids, ordered by what covers what."""

    def __init__(self) -> None:
        self.counts = ForestCounts()
        self._nodes: dict[int, _ForestNode] = {}
        self._roots: dict[int, _ForestNode] = {}
        self._clocks: list[float] = []
        """When the subscriptions that evolve were accepted, in order."""

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, id: int) -> bool:
        return id in self._nodes

    def roots(self) -> list[int]:
        """The subscriptions that no other covers for certain: together they cover all."""
        return list(self._roots)

    def parent(self, id: int) -> int | None:
        """The subscription that this one hangs below; None for a root."""
        parent = self._nodes[id].parent
        return None if parent is None else parent.id

    def children(self, id: int) -> list[int]:
        """The subscriptions directly below this one."""
        return list(self._nodes[id].children)

    # -- changing ----------------------------------------------------------------------

    def insert(
        self,
        id: int,
        subscription: Subscription,
        accepted_at: float = 0.0,
        me: Mapping[str, object] | None = None,
    ) -> None:
        """Add a subscription under an id that is not in use; below an equal one, if there is."""
        if id in self._nodes:
            raise LanguageError(f"there is already a subscription {id}")
        condition = Subscription(subscription.condition)
        form = normalise(condition)
        start, uses_time = _start(form), _uses_time(form)
        is_box = start is not None and not uses_time
        node = _ForestNode(
            id, condition, form, start, is_box, uses_time, accepted_at, dict(me or {})
        )
        self._nodes[id] = node
        if node.uses_time:
            insort(self._clocks, accepted_at)
        self._hang(node, None)

    def remove(self, id: int) -> None:
        """Remove a subscription; what hung below it finds another place, or becomes a root."""
        node = self._nodes.pop(id)
        if node.uses_time:
            del self._clocks[bisect_left(self._clocks, node.accepted_at)]
        del self._beside(node.parent)[id]
        for orphan in node.children.values():
            # Whatever covered the removed one covers the orphan: no need to start at the roots.
            self._hang(orphan, node.parent)

    def set_state(self, id: int, changes: Mapping[str, object]) -> None:
        """Change `me.` variables of a subscription; None removes one. Nothing moves by it."""
        change_state(self._nodes[id].me, changes)

    def _hang(self, node: _ForestNode, below: _ForestNode | None) -> None:
        """Hang `node`, with all that hangs below it, as deep under `below` as something covers it.

        Those beside its new place that it covers move below it.
        """
        beside = self._beside(below)
        while (cover := self._first_cover(beside.values(), node)) is not None:
            below, beside = cover, cover.children
        for other in [other for other in beside.values() if self._covers(node, other)]:
            del beside[other.id]
            node.children[other.id] = other
            other.parent = node
        beside[node.id] = node
        node.parent = below

    def _beside(self, parent: _ForestNode | None) -> dict[int, _ForestNode]:
        return self._roots if parent is None else parent.children

    def _first_cover(
        self, candidates: Iterable[_ForestNode], node: _ForestNode
    ) -> _ForestNode | None:
        return next((other for other in candidates if self._covers(other, node)), None)

    def _covers(self, a: _ForestNode, b: _ForestNode) -> bool:
        if a.uses_time and b.uses_time and a.accepted_at != b.accepted_at:
            return False
        if a.start is not None and b.start is not None:
            self.counts.boxes_compared += 1
            covers_at_start = box_covers(a.start, b.start)
            if not covers_at_start or (a.is_box and b.is_box):
                return covers_at_start
        self.counts.covers_asked += 1
        return covers(a.condition, b.condition).verdict is ProofResult.YES

    # -- matching ----------------------------------------------------------------------

    def match(self, publication: Publication, at: float = 0.0) -> set[int]:
        """The ids of the subscriptions that a publication matches which appears at `at`."""
        if self._is_beyond_proof(at):
            return {id for id, node in self._nodes.items() if self._fits(node, publication, at)}
        found: set[int] = set()
        waiting = list(self._roots.values())
        while waiting:
            node = waiting.pop()
            if self._fits(node, publication, at):
                found.add(node.id)
                waiting.extend(node.children.values())
        return found

    def _is_beyond_proof(self, at: float) -> bool:
        """True if some `t` is outside the span for which the answers about covering hold."""
        if not self._clocks:
            return False
        return at < self._clocks[-1] or at - self._clocks[0] > FOREVER_S

    def _fits(self, node: _ForestNode, publication: Publication, at: float) -> bool:
        self.counts.evaluations += 1
        return holds(node.form, publication, at - node.accepted_at, node.me)


def box_of(conjunction: Conjunction) -> Box | None:
    """A conjunction as a box, if it is one: one interval of values for each attribute."""
    if conjunction.atoms:
        return None
    found: Box = {}
    for subject, allowed in conjunction.sets.items():
        # An attribute inside another says something about the outer one too: not for boxes.
        if not isinstance(subject, Attribute) or len(subject.path) > 1:
            return None
        spans = allowed.numbers + allowed.strings
        if len(spans) != 1 or allowed.facts or allowed.patterned:
            return None
        found[subject.path[0], bool(allowed.strings)] = spans[0]
    return found


def box_covers(a: Box, b: Box) -> bool:
    """Does every publication in `b` lie in `a`? Exact, since no box is empty."""
    for subject, (low, high) in a.items():
        inner = b.get(subject)
        if inner is None or inner[0] < low or high < inner[1]:
            return False
    return True


def _start(form: NormalForm) -> Box | None:
    if len(form.conjunctions) != 1:
        return None
    at_start = at_moment(form.conjunctions[0], t=0.0)
    return None if at_start is None else box_of(at_start)


def _uses_time(form: NormalForm) -> bool:
    def nodes(conjunction: Conjunction) -> Iterable[object]:
        return (part for node in (*conjunction.sets, *conjunction.atoms) for part in walk(node))

    return any(type(part) is Time for c in form.conjunctions for part in nodes(c))
