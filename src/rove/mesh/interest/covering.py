"""Tables of exact entries: every subscription as it is, or only those that no other covers.

`PlainTable` is for `covering = off`: one entry for each subscription, identical ones once.

`CoveringTable` is for `lazy` and `active`: a subscription that a root covers is not sent. With
`active`, a new root also replaces the roots that it covers. When a root goes, what hung below it
finds another root or becomes one. That is done a few at a time in `advance`, and meanwhile the
entry of the old root stays, so that dropping the widest subscription makes no peak.

Adding costs one pass over the boxes of the roots whose topic filter covers the new one: 10 to
50 µs for some thousand roots, and in proportion for more.
"""

from __future__ import annotations

from collections import deque

import msgspec

from rove.lang import ProofResult, Subscription, covers, to_text
from rove.lang.limits import TEXT_BYTES_MAX
from rove.mesh.interest.boxes import BoxTable
from rove.mesh.interest.outbox import Outbox
from rove.mesh.interest.regions import Region, expression_of, region_covers
from rove.mesh.interest.topic_filters import FilterIndex

_PROOFS_MAX = 2
"""Pairs put to the algebra for one subscription; each takes 0.1 to 30 ms."""


class Interest(msgspec.Struct, eq=False):
    """What one subscription wants, to be added to a table and removed again."""

    topic_filter: str
    region: Region
    accepted_at_s: float | None = None
    """When `t` was 0, if the region uses `t`."""
    condition: Subscription | None = None
    """What the subscriber wrote; None where the region is made from it."""
    wants_all: bool = False
    """Whether it wants everything on the topic filter, payloads of any form included."""
    entry: int | None = None
    """Its own entry, if it has one."""
    root: Interest | None = None
    covered: dict[int, Interest] = msgspec.field(default_factory=dict)
    """Those that this root covers, by identity."""
    slot: int = -1
    is_removed: bool = False

    def expression(self) -> str | None:
        """What is sent for it alone. To write it takes longer than to find what covers it."""
        if self.wants_all:
            return None
        text = "" if self.condition is None else to_text(self.condition)
        # A tree may need more bytes than what it was read from: 1e15 is written in full.
        if text and len(text.encode()) <= TEXT_BYTES_MAX:
            return text
        return expression_of(self.region.conjunctions)


class PlainTable:
    """One entry for each subscription."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def add(self, one: Interest, now_s: float) -> None:
        """Send what a subscription wants, unless it never matches anything."""
        if one.region.conjunctions:
            one.entry = self._outbox.put(one.topic_filter, one.expression(), one.accepted_at_s)

    def remove(self, one: Interest, now_s: float) -> None:
        """Withdraw it."""
        if one.entry is not None:
            self._outbox.drop(one.entry, now_s)

    @property
    def is_behind(self) -> bool:
        """Nothing waits here."""
        return False

    def advance(self, now_s: float, work: int) -> None:
        """Nothing waits here."""


class _Roots:
    """The roots of one topic filter."""

    def __init__(self) -> None:
        self.boxes = BoxTable()
        self.by_slot: dict[int, Interest] = {}

    def add(self, root: Interest) -> None:
        root.slot = self.boxes.add(root.region)
        self.by_slot[root.slot] = root

    def remove(self, root: Interest) -> None:
        self.boxes.remove(root.slot)
        del self.by_slot[root.slot]


class CoveringTable:
    """Entries only for subscriptions that no other covers."""

    def __init__(self, outbox: Outbox, *, active: bool) -> None:
        self._outbox = outbox
        self._active = active
        self._groups: dict[str, _Roots] = {}
        self._filters = FilterIndex()
        self._orphans: deque[tuple[int, list[Interest]]] = deque()
        """For a root that is gone: its entry, and what hung below it."""

    # -- changing ----------------------------------------------------------------------

    def add(self, one: Interest, now_s: float) -> None:
        """Hang a subscription below a root, or make it one."""
        if one.region.conjunctions and not self._hang(one):
            self._make_root(one, now_s, urgent=True)

    def remove(self, one: Interest, now_s: float) -> None:
        """Forget a subscription; what a root covered is looked at by and by."""
        one.is_removed = True
        if one.root is not None:
            del one.root.covered[id(one)]
            one.root = None
        elif one.entry is not None:
            self._remove_root(one)
            self._orphan(one, now_s)

    @property
    def is_behind(self) -> bool:
        """Whether `advance` has something to do."""
        return bool(self._orphans)

    def advance(self, now_s: float, work: int) -> None:
        """Find other roots for up to `work` subscriptions."""
        while self._orphans and work > 0:
            entry, orphans = self._orphans[0]
            for _ in range(min(work, len(orphans))):
                work -= 1
                self._settle(orphans.pop(), entry, now_s)
            if not orphans:
                self._orphans.popleft()
                self._outbox.drop(entry, now_s)

    def _orphan(self, root: Interest, now_s: float) -> None:
        assert root.entry is not None
        orphans = list(root.covered.values())
        root.covered.clear()
        for orphan in orphans:
            orphan.root = None
        entry, root.entry = root.entry, None
        if orphans:
            # Taken from the end, the widest first: what these cover is not sent.
            orphans.sort(key=lambda orphan: breadth(orphan.region))
            self._orphans.append((entry, orphans))
        else:
            self._outbox.drop(entry, now_s)

    def _settle(self, orphan: Interest, entry: int, now_s: float) -> None:
        if orphan.is_removed:
            return
        if not self._hang(orphan):
            self._make_root(orphan, now_s, urgent=False)
        root = orphan if orphan.root is None else orphan.root
        assert root.entry is not None
        self._outbox.hold(entry, root.entry)

    # -- roots -------------------------------------------------------------------------

    def _hang(self, one: Interest) -> bool:
        """Hang a subscription below a root. The root may still wait to be sent: it replaces one
        that was sent, covers both, and stays until then.
        """
        root = self._root_around(one)
        if root is None:
            return False
        one.root = root
        root.covered[id(one)] = one
        return True

    def _root_around(self, one: Interest) -> Interest | None:
        proofs = _PROOFS_MAX
        for topic_filter in self._filters.covering(one.topic_filter):
            group = self._groups[topic_filter]
            for slot in group.boxes.around(one.region):
                root = group.by_slot[slot]
                if _covers(root, one):
                    return root
                if proofs and _may_be_proved(root, one):
                    proofs -= 1
                    if _is_proved(root, one):
                        return root
        return None

    def _make_root(self, one: Interest, now_s: float, *, urgent: bool) -> None:
        one.entry = self._outbox.put(
            one.topic_filter, one.expression(), one.accepted_at_s, urgent=urgent
        )
        if self._active:
            for root in self._roots_within(one):
                self._take_over(one, root, now_s)
        group = self._groups.get(one.topic_filter)
        if group is None:
            group = self._groups[one.topic_filter] = _Roots()
            self._filters.add(one.topic_filter)
        group.add(one)

    def _roots_within(self, one: Interest) -> list[Interest]:
        return [
            root
            for topic_filter in self._filters.covered(one.topic_filter)
            for slot in self._groups[topic_filter].boxes.within(one.region)
            if _covers(one, root := self._groups[topic_filter].by_slot[slot])
        ]

    def _take_over(self, one: Interest, root: Interest, now_s: float) -> None:
        """A new root covers an old one, and all that the old one covered."""
        assert root.entry is not None
        assert one.entry is not None
        self._remove_root(root)
        for other in (*root.covered.values(), root):
            other.root = one
            one.covered[id(other)] = other
        root.covered.clear()
        entry, root.entry = root.entry, None
        self._outbox.hold(entry, one.entry)
        self._outbox.drop(entry, now_s)

    def _remove_root(self, root: Interest) -> None:
        group = self._groups[root.topic_filter]
        group.remove(root)
        if not group.by_slot:
            del self._groups[root.topic_filter]
            self._filters.remove(root.topic_filter)


def _covers(a: Interest, b: Interest) -> bool:
    """Whether `a` certainly covers `b`, whose topic filter it covers."""
    if a.wants_all or b.wants_all:
        return a.wants_all
    same_time = a.accepted_at_s == b.accepted_at_s
    return region_covers(a.region, b.region, same_time=same_time)


def breadth(region: Region) -> tuple[int, float]:
    """Orders regions so that what covers comes after what it covers, if both are boxes."""
    return -len(region.bounds), sum(min(high - low, 1e300) for low, high in region.bounds.values())


def _may_be_proved(a: Interest, b: Interest) -> bool:
    if a.condition is None or b.condition is None or (a.region.is_box and b.region.is_box):
        return False
    return a.accepted_at_s is None or a.accepted_at_s == b.accepted_at_s


def _is_proved(a: Interest, b: Interest) -> bool:
    assert a.condition is not None
    assert b.condition is not None
    return covers(a.condition, b.condition).verdict is ProofResult.YES
