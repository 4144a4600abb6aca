"""The designs that keep versions: PES evaluates them periodically, CLEES when they are needed.

A *version* is what an evolving subscription is at one moment: a conjunction without `t` and `me.`,
which answers for a while. Both designs keep at most one version of each subscription, in a
`VersionStore`, and differ in when they make it and for how long they use it.

**PES**, periodic evolving subscriptions:

    add ──▶ version at t = 0 ──────────────▶ static index ◀── publications
      └───▶ evolution queue ──when due──▶ new version ─┘ (replaces the old one)

The queue is ordered by the time of the next evolution; each subscription has its own interval. A
publication costs what the static index costs, however complex the bounds are; in exchange every
subscription gets a new version once per interval, even if nothing is published.

Staleness: the version in use at a time T is that of the latest moment `accepted_at + k * interval`
that is not after T. Answers are exact for that moment, so they are less than one interval old, and
they depend on T only: not on when `advance` was called, nor how often. If several evolutions of one
subscription are due, only the last is made. A change of `me.` makes a new version for the moment of
the old one.

**CLEES**, cached lazy-evaluation evolving subscriptions:

    add ──▶ storage ◀── publications: whose evolving attributes are there, and who has no version?
               └──evaluated──▶ cache ◀── publications: who matches?
                                 └──▶ ordered list: which version expires next

Each publication makes a version of every subscription that has none and whose evolving attributes
it has, whatever the fixed part of the subscription demands. Versions are used until they are older
than the threshold of the subscription. They are ordered by expiry, so that expiring touches no
others. It is cheaper than PES where little is published, and cheaper than LEES where several
publications use a version, or where bounds are costly.

Staleness: a version made at a moment M answers up to and including M + threshold, and its answers
are exact for M. A subscription without a version gets one for the time of the publication. A change
of `me.` discards the version.

Cost: to put a version into an index and to take it out again costs as much as computing it for
some sixty publications. So a new version is a compiled program, computed for each publication in 1
to 2 µs. After `TRIED_MAX` publications it is put into the index, a few versions for each
publication. This is at most twice the work of the better way, whatever is published: with an
interval of a millisecond a version costs 10 µs instead of 100.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec
import numpy as np

from rove.lang.oracle import Publication
from rove.lang.values import Path
from rove.match.designs.design import (
    Answers,
    Evolving,
    EvolvingDesign,
    NewIndex,
    Versions,
    by_publication,
    checked_seconds,
    covers,
    in_order_of_time,
)
from rove.match.results import Pairs

TRIED_MAX: Final = 64
"""Publications that a version is tried on before it is put into the index."""
INDEXED_AT_ONCE_MAX: Final = 8
"""Versions that are put there for one publication: half a millisecond of work."""


class _Tried(msgspec.Struct):
    """A version that is not in the index."""

    evolving: Evolving
    moment: float
    asked: int = 0
    """By how many publications."""

    def holds(self, publication: Publication) -> bool:
        t, me = self.moment - self.evolving.accepted_at, self.evolving.me
        return any(one.whole_holds(publication, t, me) for one in self.evolving.splits)


class VersionStore:
    """At most one version of each subscription, over a static index."""

    def __init__(self, new_index: NewIndex) -> None:
        self.tried: dict[int, _Tried] = {}
        """Versions that are not in the index, oldest first."""
        self._index = new_index()
        self._indexed: set[int] = set()

    def __contains__(self, id: int) -> bool:
        return id in self.tried or id in self._indexed

    def put(self, evolving: Evolving, moment: float) -> None:
        """The version of a subscription is now that of `moment`."""
        self.drop(evolving.id)
        self.tried[evolving.id] = _Tried(evolving, moment)

    def drop(self, id: int) -> None:
        """A subscription has no version any more, if it had one."""
        if self.tried.pop(id, None) is None and id in self._indexed:
            self._indexed.remove(id)
            self._index.remove(id)

    def match(self, publications: Sequence[Publication]) -> Pairs:
        """Positions of publications and the ids whose versions match them."""
        found = self._index.match(publications)
        if not self.tried:
            return found
        pairs = [
            (position, id)
            for id, one in self.tried.items()
            for position, publication in enumerate(publications)
            if one.holds(publication)
        ]
        self._count(len(publications))
        positions = np.array([position for position, _ in pairs], np.int32)
        ids = np.array([id for _, id in pairs], np.int64)
        return Pairs(
            np.concatenate([found.publications, positions]),
            np.concatenate([found.subscriptions, ids]),
        )

    def _count(self, publications: int) -> None:
        """Publications were tried on all that are not indexed; index some that last."""
        lasting: list[_Tried] = []
        for one in self.tried.values():
            one.asked += publications
            if one.asked >= TRIED_MAX and len(lasting) < INDEXED_AT_ONCE_MAX * publications:
                lasting.append(one)
        for one in lasting:
            id, version = one.evolving.id, one.evolving.at(one.moment)
            if version:  # what cannot hold costs next to nothing to try
                del self.tried[id]
                self._indexed.add(id)
                self._index.add(id, version)


# -- PES ----------------------------------------------------------------------------------


class EvolutionQueue:
    """Ids ordered by the time that each is due: a binary heap with the place of each id.

    The places are a dictionary; with them an id can be removed in logarithmic time.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._places: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._heap)

    def __contains__(self, id: int) -> bool:
        return id in self._places

    def head_at(self) -> float:
        """When the first is due; infinity if there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def put(self, id: int, due_at: float) -> None:
        """Let an id be due at a time; one that waits already waits for the new time."""
        place = self._places.setdefault(id, len(self._heap))
        if place == len(self._heap):
            self._heap.append((due_at, id))
        self._settle((due_at, id), place)

    def take(self) -> int:
        """Remove and return the id that is due first."""
        _, id = self._heap[0]
        self.drop(id)
        return id

    def drop(self, id: int) -> None:
        """Remove an id."""
        place = self._places.pop(id)
        last = self._heap.pop()
        if place < len(self._heap):
            self._settle(last, place)

    def _settle(self, entry: tuple[float, int], place: int) -> None:
        """Put `entry` where it belongs, with a hole at `place` to begin from."""
        heap = self._heap
        while place > 0 and entry < heap[above := (place - 1) // 2]:
            self._set(heap[above], place)
            place = above
        while (below := 2 * place + 1) < len(heap):
            if below + 1 < len(heap) and heap[below + 1] < heap[below]:
                below += 1
            if entry < heap[below]:
                break
            self._set(heap[below], place)
            place = below
        self._set(entry, place)

    def _set(self, entry: tuple[float, int], place: int) -> None:
        self._heap[place] = entry
        self._places[entry[1]] = place


class _Periodic(msgspec.Struct):
    """One subscription and its version in the index."""

    evolving: Evolving
    interval_s: float
    turn: int = 0
    """How many intervals after its acceptance the version was made for."""
    moment: float = 0.0


class Pes(EvolvingDesign[_Periodic]):
    """Periodic evolving subscriptions over a static index."""

    def __init__(self, new_index: NewIndex) -> None:
        super().__init__(new_index)
        self._index = VersionStore(new_index)
        self._queue = EvolutionQueue()
        self._versions = Versions()
        self._accepted_at_max = -math.inf

    def _insert(self, evolving: Evolving) -> _Periodic:
        one = _Periodic(evolving, checked_seconds("pes", evolving.option))
        accepted_at = evolving.accepted_at
        self._accepted_at_max = max(self._accepted_at_max, accepted_at)
        self._make_version(one, accepted_at)
        if evolving.uses_time:
            self._versions.made(accepted_at)
            self._queue.put(evolving.id, accepted_at + one.interval_s)
        return one

    def _delete(self, one: _Periodic) -> None:
        id = one.evolving.id
        self._index.drop(id)
        if one.evolving.uses_time:
            self._queue.drop(id)
            self._versions.dropped(one.moment)

    def _refresh(self, one: _Periodic) -> None:
        """A new version, for the moment of the old one."""
        self._make_version(one, one.moment)

    def match(self, publications: Sequence[Publication], at: Sequence[float]) -> Pairs:
        """Who is interested in each of `publications`, after the evolutions due by its time."""
        answers = Answers(publications)
        run: list[int] = []  # publications between two evolutions, which the index meets together
        for position in in_order_of_time(at):
            if self.next_change_at() <= at[position]:
                answers.ask(self._index, run)
                self.advance(at[position])
            self.counters.stale_answers_possible += self._versions.made_before(at[position])
            run.append(position)
        answers.ask(self._index, run)
        return self._accepted(answers.pairs(), at)

    def advance(self, now: float) -> None:
        """Let everything evolve that is due by now, in the order that it was due in."""
        while self._queue.head_at() <= now:
            self._evolve(self._held[self._queue.take()], now)

    def next_change_at(self) -> float:
        """When the next subscription is due to evolve; infinity if none is."""
        return self._queue.head_at()

    def evaluated_at(self, id: int) -> float | None:
        """The moment of the version in use."""
        return self._held[id].moment

    def _restore_version(self, one: _Periodic, moment: float) -> None:
        """The queue follows from the moments."""
        if one.evolving.uses_time:
            self._evolve(one, moment)

    def _evolve(self, one: _Periodic, now: float) -> None:
        """Replace the version by the latest that is due, and queue for the one after it."""
        accepted_at = one.evolving.accepted_at
        turn = _turn(accepted_at, one.interval_s, now)
        self.counters.evolutions += 1
        self.counters.evolutions_skipped += max(turn - one.turn - 1, 0)
        # Counted from the acceptance, never from the last evolution: rounding must not add up.
        moment = min(accepted_at + turn * one.interval_s, now)
        next_at = max(accepted_at + (turn + 1) * one.interval_s, math.nextafter(now, math.inf))
        self._versions.dropped(one.moment)
        self._versions.made(moment)
        one.turn = turn
        self._make_version(one, moment)
        self._queue.put(one.evolving.id, next_at)

    def _make_version(self, one: _Periodic, moment: float) -> None:
        self._index.put(one.evolving, moment)
        one.moment = moment
        self.counters.evaluations += 1

    def _accepted(self, found: Pairs, at: Sequence[float]) -> Pairs:
        """Without the pairs whose publication appeared before the subscription was accepted."""
        if not len(at) or min(at) >= self._accepted_at_max:
            return found
        pairs = zip(found.publications.tolist(), found.subscriptions.tolist(), strict=True)
        accepted = [at[position] >= self._held[id].evolving.accepted_at for position, id in pairs]
        kept = np.array(accepted, np.bool_)
        return Pairs(found.publications[kept], found.subscriptions[kept])


def _turn(accepted_at: float, interval_s: float, now: float) -> int:
    """The last turn that is due by now, by the very sum that says when it is due."""
    turn = math.floor((now - accepted_at) / interval_s)
    if accepted_at + (turn + 1) * interval_s <= now:
        return turn + 1
    return turn - 1 if accepted_at + turn * interval_s > now else turn


# -- CLEES --------------------------------------------------------------------------------

Needs: TypeAlias = frozenset[frozenset[Path]]
"""The attributes of each alternative; a publication that lacks some of each cannot match."""


class _Family(NamedTuple):
    """What subscriptions have in common that are looked at together."""

    needs: Needs
    uses_time: bool


class _Cached(msgspec.Struct):
    """One subscription in the storage, and its version, if it has one."""

    evolving: Evolving
    threshold_s: float
    family: _Family
    moment: float | None = None
    expires_at: float = math.inf


class _FamilyMembers(msgspec.Struct):
    """The subscriptions of one family."""

    waiting: set[int]
    """Those without a version."""
    versions: Versions


class Clees(EvolvingDesign[_Cached]):
    """Lazily evaluated subscriptions with a cache, over two static indexes."""

    def __init__(self, new_index: NewIndex) -> None:
        super().__init__(new_index)
        self._fixed = new_index()
        """Subscriptions without an evolving part."""
        self._cache = VersionStore(new_index)
        self._expiries: list[tuple[float, int]] = []
        """(when it expires, id) of every version that ever does, in this order."""
        self._families: dict[_Family, _FamilyMembers] = {}

    def _insert(self, evolving: Evolving) -> _Cached:
        threshold_s = checked_seconds("clees", evolving.option)
        needs = frozenset(split.attributes for split in evolving.splits)
        one = _Cached(evolving, threshold_s, _Family(needs, evolving.uses_time))
        if not evolving.is_fixed:
            members = self._families.setdefault(one.family, _FamilyMembers(set(), Versions()))
            members.waiting.add(evolving.id)
        elif evolving.splits:
            self._fixed.add(evolving.id, [split.fixed for split in evolving.splits])
        return one

    def _delete(self, one: _Cached) -> None:
        self._discard_early(one)
        id = one.evolving.id
        if not one.evolving.is_fixed:
            members = self._families[one.family]
            members.waiting.remove(id)
            if not members.waiting and not members.versions.count:
                del self._families[one.family]
        elif one.evolving.splits:
            self._fixed.remove(id)

    def _refresh(self, one: _Cached) -> None:
        """The next publication makes a new version."""
        self._discard_early(one)

    def match(self, publications: Sequence[Publication], at: Sequence[float]) -> Pairs:
        """Who is interested in each of `publications`, after making the versions it lacks."""
        answers = Answers(publications)
        fixed = by_publication(self._fixed.match(publications), len(publications))
        run: list[int] = []  # publications that the cache meets together, as it does not change
        for position in in_order_of_time(at):
            publication, now = publications[position], at[position]
            if self._has_expired(now):
                answers.ask(self._cache, run)
                self.advance(now)
            answers.give(position, self._accepted_among(fixed[position], now))
            missing = self._missing(publication, now)
            if missing:
                answers.ask(self._cache, run)
            for one in missing:
                self._make_version(one, now)
            run.append(position)
        answers.ask(self._cache, run)
        return answers.pairs()

    def advance(self, now: float) -> None:
        """Discard the versions that have expired."""
        count = bisect_left(self._expiries, (now,))
        expired, self._expiries = self._expiries[:count], self._expiries[count:]
        for _, id in expired:
            self._discard(self._held[id])

    def evaluated_at(self, id: int) -> float | None:
        """The moment of the version in the cache; None if there is none."""
        return self._held[id].moment

    def _restore_version(self, one: _Cached, moment: float) -> None:
        self._make_version(one, moment)

    # -- the storage ---------------------------------------------------------------------

    def _accepted_among(self, ids: list[int], now: float) -> list[int]:
        return [id for id in ids if self._held[id].evolving.accepted_at <= now]

    def _missing(self, publication: Publication, now: float) -> list[_Cached]:
        """Those asked about a publication without a version; the others are counted as hits."""
        missing: list[_Cached] = []
        for family, members in self._families.items():
            if not _may_meet(publication, family.needs):
                continue
            # By id, for then most of them come at the end of the ordered list.
            missing += [self._held[id] for id in sorted(members.waiting)]
            self.counters.cache_hits += members.versions.count
            if family.uses_time:
                self.counters.stale_answers_possible += members.versions.made_before(now)
        return [one for one in missing if one.evolving.accepted_at <= now]

    # -- versions ------------------------------------------------------------------------

    def _has_expired(self, now: float) -> bool:
        return bool(self._expiries) and self._expiries[0][0] < now

    def _make_version(self, one: _Cached, moment: float) -> None:
        id = one.evolving.id
        one.moment = moment
        self._cache.put(one.evolving, moment)
        if one.evolving.uses_time:
            one.expires_at = moment + one.threshold_s
            insort(self._expiries, (one.expires_at, id))
        members = self._families[one.family]
        members.waiting.remove(id)
        members.versions.made(moment)
        self.counters.evaluations += 1
        self.counters.cache_misses += 1

    def _discard_early(self, one: _Cached) -> None:
        """Forget the version, if there is one, and that it would expire."""
        if one.moment is None:
            return
        if one.evolving.uses_time:
            del self._expiries[bisect_left(self._expiries, (one.expires_at, one.evolving.id))]
        self._discard(one)

    def _discard(self, one: _Cached) -> None:
        assert one.moment is not None, "only a version can be discarded"
        id = one.evolving.id
        self._cache.drop(id)
        members = self._families[one.family]
        members.waiting.add(id)
        members.versions.dropped(one.moment)
        one.moment = None


def _may_meet(publication: Publication, needs: Needs) -> bool:
    """True if a publication has all attributes of one alternative."""
    return any(covers(publication, paths) for paths in needs)
