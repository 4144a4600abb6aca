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
from typing import NamedTuple, TypeAlias

import msgspec

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


class Clees(EvolvingDesign[_Cached]):
    """Lazily evaluated subscriptions with a cache, over two static indexes."""

    def __init__(self, new_index: NewIndex) -> None:
        super().__init__(new_index)
        self._fixed = new_index()
        """Subscriptions without an evolving part."""
        self._cache = VersionIndex(new_index)
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
