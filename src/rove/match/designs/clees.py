"""CLEES, cached lazy-evaluation evolving subscriptions: evaluated when published, then reused.

    add ──▶ storage ◀── publications: whose evolving attributes are there, and who has no version?
               └──evaluated──▶ cache ◀── publications: who matches?
                                 └──▶ ordered list: which version expires next

The storage is asked about every publication, whatever the fixed parts of subscriptions say: one
whose evolving predicates speak of nothing but what the publication has gets a version, unless it
has one. Versions stand, together with the fixed part, in a cache, which is a static index and
decides about this publication and later ones, until a version is older than the subscription's
threshold. The list of versions is ordered by expiry, so that expiring looks at nothing else.

Cheaper than PES where little is published, since nothing is evaluated that nobody asks for;
cheaper than LEES where several publications meet a version, or where the bounds are costly. A
version costs its evaluation for each publication that meets it and, if these are many, an insertion
into the cache's index and a removal from it (`rove.match.designs.version_index`).

**Declared staleness.** A version made at a moment M answers up to and including M + threshold,
and its answers are exact for M. One that is not in the cache is made for the publication's own
time. A change of `me.` discards the version.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import NamedTuple, Self, TypeAlias

import msgspec

from rove.lang.normal import Conjunction
from rove.lang.oracle import Publication, State
from rove.lang.values import Path
from rove.match.designs.design import (
    Answers,
    Counters,
    DesignState,
    Evolving,
    NewIndex,
    Versions,
    by_publication,
    checked_seconds,
    covers,
    in_order_of_time,
    refuse_second,
)
from rove.match.designs.version_index import VersionIndex
from rove.match.pairs import Pairs

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


class Clees:
    """Lazily evaluated subscriptions with a cache, over two static indexes."""

    def __init__(self, new_index: NewIndex) -> None:
        self.counters = Counters()
        self._fixed = new_index()
        """Subscriptions without an evolving part."""
        self._cache = VersionIndex(new_index)
        self._storage: dict[int, _Cached] = {}
        self._expiries: list[tuple[float, int]] = []
        """(when it expires, id) of every version that ever does, in this order."""
        self._families: dict[_Family, _FamilyMembers] = {}

    def __len__(self) -> int:
        return len(self._storage)

    def add(
        self,
        id: int,
        conjunctions: Sequence[Conjunction],
        accepted_at: float,
        me: State,
        option: float | None = None,
    ) -> None:
        """Add a subscription whose versions are used for `option` seconds."""
        refuse_second(id, self._storage)
        threshold_s = checked_seconds("clees", option)
        evolving = Evolving.of(id, conjunctions, accepted_at, me, option)
        needs = frozenset(split.attributes for split in evolving.splits)
        family = _Family(needs, evolving.uses_time)
        self._storage[id] = _Cached(evolving, threshold_s, family)
        if not evolving.is_fixed:
            stored = self._families.setdefault(family, _FamilyMembers(set(), Versions()))
            stored.waiting.add(id)
        elif evolving.splits:
            self._fixed.add(id, [split.fixed for split in evolving.splits])

    def remove(self, id: int) -> None:
        """Remove a subscription; KeyError if there is none of that id."""
        one = self._storage[id]
        self._discard_early(one)
        del self._storage[id]
        if not one.evolving.is_fixed:
            stored = self._families[one.family]
            stored.waiting.remove(id)
            if not stored.waiting and not stored.versions.count:
                del self._families[one.family]
        elif one.evolving.splits:
            self._fixed.remove(id)

    def set_state(self, id: int, me: State) -> None:
        """The subscriber's variables are now these; the next publication makes a new version."""
        one = self._storage[id]
        one.evolving.me = dict(me)
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
            self._discard(self._storage[id])

    def next_change_at(self) -> float:
        """Never: versions expire by themselves when somebody asks."""
        return math.inf

    def evaluated_at(self, id: int) -> float | None:
        """The moment of the version in the cache; None if there is none."""
        return self._storage[id].moment

    def state(self) -> DesignState:
        """Everything that `from_state` needs to go on."""
        kept = tuple(one.evolving.kept(one.moment) for one in self._storage.values())
        return DesignState(kept, msgspec.structs.replace(self.counters))

    @classmethod
    def from_state(cls, state: DesignState, new_index: NewIndex) -> Self:
        """The design that `state` was taken from, with the same versions in its cache."""
        found = cls(new_index)
        for kept in state.subscriptions:
            found.add(kept.id, kept.conjunctions, kept.accepted_at, kept.me, kept.option)
            if kept.evaluated_at is not None:
                found._make_version(found._storage[kept.id], kept.evaluated_at)
        found.counters = msgspec.structs.replace(state.counters)
        return found

    # -- the storage ---------------------------------------------------------------------

    def _accepted_among(self, ids: list[int], now: float) -> list[int]:
        return [id for id in ids if self._storage[id].evolving.accepted_at <= now]

    def _missing(self, publication: Publication, now: float) -> list[_Cached]:
        """Those asked about a publication without a version; the others are counted as hits."""
        missing: list[_Cached] = []
        for family, stored in self._families.items():
            if not _may_meet(publication, family.needs):
                continue
            # By id, for then most of them come at the end of the ordered list.
            missing += [self._storage[id] for id in sorted(stored.waiting)]
            self.counters.cache_hits += stored.versions.count
            if family.uses_time:
                self.counters.stale_answers_possible += stored.versions.made_before(now)
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
        stored = self._families[one.family]
        stored.waiting.remove(id)
        stored.versions.made(moment)
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
        stored = self._families[one.family]
        stored.waiting.add(id)
        stored.versions.dropped(one.moment)
        one.moment = None


def _may_meet(publication: Publication, needs: Needs) -> bool:
    """True if a publication has all attributes of one alternative."""
    return any(covers(publication, paths) for paths in needs)
