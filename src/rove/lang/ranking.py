"""Top-k over a sliding window, said plainly: the judge of every faster implementation.

A window holds the publications that matched, have a score and are young enough (or are among
the last n). A publication is delivered once, at the moment it first belongs to the k best:
when it arrives, or later, when better ones have left. The score is computed once, with the
`t` and the `me.` of the moment of arrival; so what happens next depends on time alone, and a
timer can be set for it. Everything is sorted anew at every step: n log n, and obvious.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from rove.lang.oracle import NO_STATE, Publication, State, matches, score_of
from rove.lang.tree import Subscription


class Delivery(msgspec.Struct, frozen=True):
    """One publication delivered to a ranked subscription."""

    at: float
    publication: Mapping[str, object]
    score: int | float
    promoted: bool
    """False on arrival, True when it moved up because others left."""
    key: object = None
    """What the caller named the publication."""


class Member(msgspec.Struct):
    """A publication in a window."""

    at: float
    leaves_at: float
    arrival: int
    score: int | float
    publication: Mapping[str, object]
    key: object
    delivered: bool = False


class RankedWindow:
    """The window of one ranked subscription, accepted at `accepted_at` seconds."""

    def __init__(
        self, subscription: Subscription, accepted_at: float = 0.0, members: Iterable[Member] = ()
    ) -> None:
        """A window that is empty, or that has members, in the order of their arrival."""
        assert subscription.rank is not None, "only a ranked subscription has a window"
        self.subscription = subscription
        self._rank = subscription.rank
        self.accepted_at = accepted_at
        self._members = list(members)
        self._arrivals = self._members[-1].arrival if self._members else 0

    def publish(
        self, publication: Publication, at: float, me: State = NO_STATE, key: object = None
    ) -> list[Delivery]:
        """Let time pass until `at`, then let `publication` in, if it matches and has a score."""
        delivered = self.advance(at)
        t = at - self.accepted_at
        if at < self.accepted_at or not matches(self.subscription, publication, t, me):
            return delivered
        score = score_of(self.subscription, publication, t, me)
        if score is None:
            return delivered
        self._arrivals += 1
        leaves_at = at + self._rank.window.seconds
        self._members.append(Member(at, leaves_at, self._arrivals, score, publication, key))
        if self._rank.window.publications is not None:
            del self._members[: -self._rank.window.publications]
        return delivered + self._deliver(at, self._arrivals)

    def advance(self, now: float) -> list[Delivery]:
        """Let time pass: members leave when they are as old as the window, others move up."""
        delivered: list[Delivery] = []
        while (moment := self.next_change_at()) <= now:
            self._members = [member for member in self._members if member.leaves_at > moment]
            delivered += self._deliver(moment, None)
        return delivered

    def next_change_at(self) -> float:
        """When the next member leaves by age; infinity if none will."""
        return min((member.leaves_at for member in self._members), default=math.inf)

    def members(self) -> Sequence[Member]:
        """What it holds, in the order of arrival."""
        return self._members

    def _deliver(self, at: float, arrival: int | None) -> list[Delivery]:
        """Deliver those of the k best that were not delivered before, the best first."""
        delivered: list[Delivery] = []
        for member in sorted(self._members, key=self._place)[: self._rank.k]:
            if not member.delivered:
                member.delivered = True
                promoted = member.arrival != arrival
                delivered.append(
                    Delivery(at, member.publication, member.score, promoted, member.key)
                )
        return delivered

    def _place(self, member: Member) -> tuple[int | float, int]:
        """Lower is better unless DESC; of equal scores the newer is better."""
        return (-member.score if self._rank.descending else member.score, -member.arrival)
