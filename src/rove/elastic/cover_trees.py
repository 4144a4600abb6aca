"""Trees of covering subscriptions: what parent and children hold in the hierarchical layout.

A *root* is held by the parent. Whatever a *covered* subscription matches, its root matches too,
at any time and in any state of either subscriber, so a child is asked only about publications
that one of its roots matched. A root and all that it covers are a *tree*, and a tree is in one
child.

`rove.match.forest` finds more covers: it puts every subscription as deep as possible, and uses the
algebra if need be, which takes milliseconds. This one runs in the broker's event loop, so

- only a box (one span of constants for each attribute) is ever a root of something. Anything that
  is one conjunction can be covered: by a box around the spans that it allows, whatever else it
  asks for;
- a cover is sought only where one is likely: among boxes of the same attributes or fewer, with
  equal texts, first the widest, then those that begin just below. Missing one is allowed and
  costs the parent a comparison; a wrong one would cost a notification, so each is checked;
- a new root that covers roots takes over a bounded number of them at once. The others follow: each
  change looks at some old roots once more.

Cost, with one third of subscriptions for windows of time, the others for one of four gases with
one of six operators: `add` takes 60 to 85 µs at 20,000 and at 100,000 subscriptions alike (p99 250
µs), of which 12 µs are the normal form, and 44 % are roots: windows do not overlap, and `!=` is
no span. `remove` takes 50 µs. A root that is removed leaves its tree to the widest in it, and what
that does not cover is placed anew: each that it covered is looked at, 8,000 in 16 ms. `resize`
takes 12 and 50 ms.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, TypeAlias

import msgspec

from rove.lang.normal_form import Conjunction, normalise
from rove.lang.sets import TOP, Bound, is_point
from rove.lang.tree import Attribute, Subscription
from rove.match.forest import Box, box_covers, box_of

PARENT: Final = 0
PROBES: Final = 8
"""How many of the widest roots of a kind are checked, and how many that begin just below."""
SHAPES_MAX: Final = 32
"""How many combinations of attributes are checked."""
TAKEN_MAX: Final = 8
"""How many roots a new one takes over at once."""
MOVED_MAX: Final = 256
"""A larger tree is not moved to another child only to have one root fewer."""
LOOKED_AT_AGAIN: Final = 2
SAMPLE: Final = 64
"""Among this many, new widest roots are sought when all known ones are gone."""
SUCCESSORS_MAX: Final = 8
"""How often, after a root was removed, the widest of its covered subscriptions is sought."""

Subject: TypeAlias = tuple[str, bool]
Shape: TypeAlias = tuple[tuple[Subject, bool], ...]
"""The attributes of a box in order, and whether each must equal one text."""
_Key: TypeAlias = tuple[int, Shape, tuple[Bound, ...]]


class Move(msgspec.Struct, frozen=True):
    """A subscription moves."""

    id: int
    to: int | None
    """0 is the parent, children are numbered from 1; None: it was removed."""


class _CoverNode(msgspec.Struct, eq=False):
    id: int
    filter: int
    bounds: Box | None
    """A box around all that it matches; None if none is known."""
    box: Box | None
    """The same if it matches everything in there."""
    breadth: float
    own: _CoverTree | None = None
    """Of a root: the tree of those that it covers, if it covers any."""
    tree: _CoverTree | None = None
    """Of one that is covered: the tree that it is in."""


class _CoverTree(msgspec.Struct, eq=False):
    """What one root covers; an object, so that another root can take it over at no cost."""

    root: _CoverNode
    child: int
    nodes: dict[int, _CoverNode] = {}


class _Kind:
    """Roots with the same attributes, and equal texts where they must equal one."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._first = next((subject for subject, is_text in shape if not is_text), None)
        self._nodes: dict[int, _CoverNode] = {}
        self._lows: list[tuple[Bound, int]] = []
        """Where each begins in its first attribute, in order."""
        self._widest: list[_CoverNode] = []

    def __len__(self) -> int:
        return len(self._nodes)

    def add(self, node: _CoverNode, box: Box) -> None:
        self._nodes[node.id] = node
        insort(self._lows, (self._low(box), node.id))
        insort(self._widest, node, key=lambda other: -other.breadth)
        del self._widest[PROBES:]

    def remove(self, node: _CoverNode, box: Box) -> None:
        del self._nodes[node.id]
        del self._lows[bisect_left(self._lows, (self._low(box), node.id))]
        self._widest = [other for other in self._widest if other is not node]
        if not self._widest:
            some = islice(self._nodes.values(), SAMPLE)
            self._widest = sorted(some, key=lambda other: -other.breadth)[:PROBES]

    def _low(self, box: Box) -> Bound:
        return 0 if self._first is None else box[self._first][0]

    def covers_of(self, node: _CoverNode, bounds: Box) -> Iterator[_CoverNode]:
        """Roots that cover `node`, as far as they are found; wide ones first."""
        end = bisect_right(self._lows, (self._low(bounds), math.inf))
        near = (self._nodes[id] for _, id in self._lows[max(end - PROBES, 0) : end][::-1])
        for roots in (self._widest, near):
            for other in roots:
                if other is not node and other.box is not None and box_covers(other.box, bounds):
                    yield other

    def covered_by(self, box: Box) -> Iterator[_CoverNode]:
        """Roots that a box covers, as far as they are found."""
        begin, end = 0, len(self._lows)
        if self._first in box:
            low, high = box[self._first]
            begin = bisect_left(self._lows, (low, -1))
            end = end if high is TOP else bisect_left(self._lows, (high, -1))
        for _, id in self._lows[begin : min(end, begin + TAKEN_MAX)]:
            node = self._nodes[id]
            if node.box is not None and box_covers(box, node.box):
                yield node


class CoverTrees:
    """Subscriptions by id, and their places.

    Every change returns the subscriptions that move because of it, the changed one included.
    """

    def __init__(self, children: int) -> None:
        self._nodes: dict[int, _CoverNode] = {}
        self._roots: OrderedDict[int, _CoverNode] = OrderedDict()
        """Those that were checked again longest ago come first."""
        self._kinds: dict[_Key, _Kind] = {}
        self._shapes: dict[int, dict[Shape, int]] = {}
        """How many kinds of each shape a filter has."""
        self._counts = [0] * (children + 1)
        """Covered subscriptions by child."""
        self._before: dict[int, int | None] = {}
        """The earlier places of subscriptions that the present change touches."""

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, id: int) -> bool:
        return id in self._nodes

    @property
    def children(self) -> int:
        """How many there are; without any, everything is in the parent."""
        return len(self._counts) - 1

    def roots(self) -> list[int]:
        """All subscriptions in the parent."""
        return list(self._roots)

    def place(self, id: int) -> int:
        """Where a subscription is: 0 for the parent, else the number of the child."""
        return _place(self._nodes[id])

    def root_of(self, id: int) -> int | None:
        """What covers it; None for a root."""
        tree = self._nodes[id].tree
        return None if tree is None else tree.root.id

    def child_of(self, root_id: int) -> int | None:
        """The child to ask when this root matched; None if there is none."""
        own = self._nodes[root_id].own
        return None if own is None else own.child or None

    # -- changing ----------------------------------------------------------------------

    def add(self, id: int, filter: int, subscription: Subscription) -> list[Move]:
        """Add a subscription; `filter` is the number of its topic filter."""
        if id in self._nodes:
            raise ValueError(f"there is already a subscription {id}")
        node = _node(id, filter, subscription)
        self._before[id] = None
        self._nodes[id] = node
        self._settle(node)
        if node.tree is None and node.box is not None:
            self._take_over(node, node.box)
        self._look_again()
        return self._moves()

    def remove(self, id: int) -> list[Move]:
        """Remove a subscription."""
        node = self._nodes[id]
        self._touch(node)
        del self._nodes[id]
        if node.tree is not None:
            self._unhang(node)
        else:
            self._dethrone(node)
            if node.own is not None:
                self._succeed(node.own)
        self._look_again()
        return self._moves()

    def resize(
        self, children: int, hits: Mapping[int, int] | None = None, base: float = 1.0
    ) -> list[Move]:
        """Change the number of children; trees are distributed by cost, `base` and hits of each.

        Trees stay in their child up to a fair share.
        """
        trees = [root.own for root in self._roots.values() if root.own is not None]
        hits = hits or {}
        costs = {t.root.id: sum(base + hits.get(id, 0) for id in t.nodes) for t in trees}
        trees.sort(key=lambda tree: (-costs[tree.root.id], tree.root.id))
        fair = sum(costs.values()) / max(children, 1)
        loads = [0.0] * (children + 1)
        waiting = []
        for tree in trees:
            at, cost = tree.child, costs[tree.root.id]
            if 0 < at <= children and (loads[at] == 0 or loads[at] + cost <= fair):
                loads[at] += cost
            else:
                waiting.append(tree)
        for tree in waiting:
            self._touch(*tree.nodes.values())
            tree.child = min(range(1, children + 1), key=loads.__getitem__, default=PARENT)
            loads[tree.child] += costs[tree.root.id]
        self._counts = [0] * (children + 1)
        for tree in trees:
            self._counts[tree.child] += len(tree.nodes)
        return self._moves()

    # -- finding a place ---------------------------------------------------------------

    def _settle(self, node: _CoverNode, child: int = PARENT) -> None:
        """Put a subscription without a place below a root, or make it one."""
        cover = next(self._covers_of(node), None)
        if cover is None:
            self._make_root(node)
        else:
            self._hang(node, cover, child)

    def _covers_of(self, node: _CoverNode) -> Iterator[_CoverNode]:
        bounds = node.bounds
        if bounds is None:
            return
        for shape in islice(self._shapes.get(node.filter, ()), SHAPES_MAX):
            texts = _texts(shape, bounds)
            kind = None if texts is None else self._kinds.get((node.filter, shape, texts))
            if kind is not None:
                yield from kind.covers_of(node, bounds)

    def _take_over(self, root: _CoverNode, box: Box) -> None:
        """Put roots that a new root covers below it, as far as they are found."""
        shape, texts = _shape(box)
        own = {subject for subject, _ in shape}
        found: list[_CoverNode] = []
        for other in islice(self._shapes[root.filter], SHAPES_MAX):
            # Where more texts were asked for, there could be any number of kinds.
            asked = {subject for subject, is_text in other if is_text}
            if own <= {subject for subject, _ in other} and asked == _asked(shape):
                kind = self._kinds.get((root.filter, other, texts))
                found += kind.covered_by(box) if kind is not None else ()
        found = [node for node in found if node is not root][:TAKEN_MAX]
        for node in sorted(found, key=lambda node: (-_size(node), node.id)):
            self._submit(node, root)

    def _look_again(self) -> None:
        """Check some old roots for a root that covers them by now."""
        for _ in range(min(LOOKED_AT_AGAIN, len(self._roots))):
            id, node = next(iter(self._roots.items()))
            self._roots.move_to_end(id)
            cover = next(self._covers_of(node), None)
            if cover is not None:
                self._submit(node, cover)

    def _submit(self, node: _CoverNode, cover: _CoverNode) -> None:
        """Put a root with its tree below another root, unless too many would move."""
        if node.own is not None and not self._can_join(node.own, cover):
            return
        self._touch(node)
        self._dethrone(node)
        if node.own is not None:
            self._join(node.own, cover)
            node.own = None
        self._hang(node, cover)

    def _can_join(self, tree: _CoverTree, cover: _CoverNode) -> bool:
        if cover.own is None or cover.own.child == tree.child:
            return True
        return min(len(tree.nodes), len(cover.own.nodes)) <= MOVED_MAX

    def _join(self, tree: _CoverTree, cover: _CoverNode) -> None:
        """Give a tree another root; if that has one already, the smaller joins the larger."""
        other, large = cover.own, tree
        if other is not None:
            small, large = sorted((tree, other), key=lambda tree: len(tree.nodes))
            if small.child != large.child:
                self._touch(*small.nodes.values())
            for node in small.nodes.values():
                node.tree = large
            large.nodes.update(small.nodes)
            self._counts[small.child] -= len(small.nodes)
            self._counts[large.child] += len(small.nodes)
        large.root, cover.own = cover, large

    def _succeed(self, tree: _CoverTree) -> None:
        """The root of a tree was removed: the widest in it, or what covers that, replaces it."""
        candidates = [node for node in tree.nodes.values() if node.box is not None]
        child = tree.child
        if not candidates:
            self._resettle(self._taken_out(tree.nodes.values()), child)
            return
        heir = max(candidates, key=lambda node: (node.breadth, -node.id))
        covers = (root for root in self._covers_of(heir) if self._can_join(tree, root))
        root = next(covers, heir)
        box = root.box or {}
        lost = [n for n in tree.nodes.values() if n.bounds is None or not box_covers(box, n.bounds)]
        if root is heir:
            self._touch(heir)
            self._unhang(heir)
            self._make_root(heir)
        loose = self._taken_out(lost)
        if tree.nodes:
            self._join(tree, root)
        self._resettle(loose, child)

    def _taken_out(self, nodes: Iterable[_CoverNode]) -> list[_CoverNode]:
        """Take subscriptions out of their tree, to be placed again."""
        loose = list(nodes)
        for node in loose:
            self._touch(node)
            self._unhang(node)
        return loose

    def _resettle(self, loose: list[_CoverNode], child: int) -> None:
        """Place subscriptions whose root was removed; in the same child, if possible."""
        for _ in range(SUCCESSORS_MAX):
            candidates = [node for node in loose if node.box is not None]
            if len(loose) <= SUCCESSORS_MAX or not candidates:
                break
            heir = max(candidates, key=lambda node: (node.breadth, -node.id))
            self._settle(heir, child)
            root = heir if heir.tree is None else heir.tree.root
            rest = []
            for node in loose:
                if node is heir:
                    continue
                if _is_covered(node, root):
                    self._hang(node, root, child)
                else:
                    rest.append(node)
            loose = rest
        for node in sorted(loose, key=lambda node: (-node.breadth, node.id)):
            self._settle(node, child)

    # -- links -------------------------------------------------------------------------

    def _make_root(self, node: _CoverNode) -> None:
        self._roots[node.id] = node
        if node.box is None:
            return
        shape, texts = _shape(node.box)
        kind = self._kinds.get((node.filter, shape, texts))
        if kind is None:
            kind = self._kinds[node.filter, shape, texts] = _Kind(shape)
            shapes = self._shapes.setdefault(node.filter, {})
            shapes[shape] = shapes.get(shape, 0) + 1
            if shapes[shape] == 1 and len(shapes) <= SHAPES_MAX:
                # Who asks for fewer attributes is wider.
                self._shapes[node.filter] = dict(sorted(shapes.items(), key=lambda i: len(i[0])))
        kind.add(node, node.box)

    def _dethrone(self, node: _CoverNode) -> None:
        del self._roots[node.id]
        if node.box is None:
            return
        shape, texts = _shape(node.box)
        kind = self._kinds[node.filter, shape, texts]
        kind.remove(node, node.box)
        if len(kind) > 0:
            return
        del self._kinds[node.filter, shape, texts]
        shapes = self._shapes[node.filter]
        shapes[shape] -= 1
        if shapes[shape] == 0:
            del shapes[shape]
        if not shapes:
            del self._shapes[node.filter]

    def _hang(self, node: _CoverNode, root: _CoverNode, child: int = PARENT) -> None:
        """Put a subscription below a root: in its child, otherwise the given one, otherwise any."""
        if root.own is None:
            emptiest = min(range(1, len(self._counts)), key=self._counts.__getitem__, default=0)
            root.own = _CoverTree(root, child or emptiest)
        node.tree = root.own
        node.tree.nodes[node.id] = node
        self._counts[node.tree.child] += 1

    def _unhang(self, node: _CoverNode) -> None:
        tree, node.tree = node.tree, None
        if tree is None:
            return
        del tree.nodes[node.id]
        self._counts[tree.child] -= 1
        if not tree.nodes:
            tree.root.own = None

    def _touch(self, *nodes: _CoverNode) -> None:
        for node in nodes:
            self._before.setdefault(node.id, _place(node))

    def _moves(self) -> list[Move]:
        before, self._before = self._before, {}
        moves = []
        for id, place in before.items():
            node = self._nodes.get(id)
            now = None if node is None else _place(node)
            if now != place:
                moves.append(Move(id, now))
        return moves


def _place(node: _CoverNode) -> int:
    return PARENT if node.tree is None else node.tree.child


def _size(node: _CoverNode) -> int:
    return 0 if node.own is None else len(node.own.nodes)


def _is_covered(node: _CoverNode, root: _CoverNode) -> bool:
    return root.box is not None and node.bounds is not None and box_covers(root.box, node.bounds)


def _node(id: int, filter: int, subscription: Subscription) -> _CoverNode:
    conjunctions = normalise(subscription).conjunctions
    if len(conjunctions) != 1:
        return _CoverNode(id, filter, None, None, 0.0)
    box = box_of(conjunctions[0])
    bounds = _bounds(conjunctions[0]) if box is None else box
    return _CoverNode(id, filter, bounds, box, _breadth(bounds))


def _bounds(conjunction: Conjunction) -> Box:
    """A box around everything that a conjunction matches, from conditions that certainly narrow
    it."""
    found: Box = {}
    for subject, allowed in conjunction.sets.items():
        if not isinstance(subject, Attribute) or len(subject.path) > 1 or allowed.facts:
            continue
        if bool(allowed.numbers) != bool(allowed.strings):
            spans = allowed.numbers or allowed.strings
            found[subject.path[0], bool(allowed.strings)] = spans[0][0], spans[-1][1]
    return found


def _shape(box: Box) -> tuple[Shape, tuple[Bound, ...]]:
    """The attributes of a box, and the single texts that it requires."""
    shape = tuple((subject, subject[1] and is_point(*box[subject])) for subject in sorted(box))
    return shape, tuple(box[subject][0] for subject, is_text in shape if is_text)


def _asked(shape: Shape) -> set[Subject]:
    return {subject for subject, is_text in shape if is_text}


def _texts(shape: Shape, bounds: Box) -> tuple[Bound, ...] | None:
    """The texts that a box of this shape around `bounds` requires."""
    texts = []
    for subject, is_text in shape:
        span = bounds.get(subject)
        if span is None:
            return None
        if is_text:
            if not is_point(*span):
                return None
            texts.append(span[0])
    return tuple(texts)


def _breadth(box: Box) -> float:
    """A measure that is no smaller for a cover than for what it covers; at most 0."""
    return -sum(2.0 - _squeezed(high) + _squeezed(low) for low, high in box.values())


def _squeezed(bound: Bound) -> float:
    """A bound between -1 and 1, in the order of bounds."""
    if bound is TOP or bound == math.inf:
        return 1.0
    if isinstance(bound, str):
        letters: Iterable[str] = reversed(bound[:4])
        value = 0.0
        for letter in letters:
            value = (ord(letter) + 1 + value) / 0x110002
        return 2.0 * value - 1.0
    return float(bound) / (1.0 + abs(float(bound)))
