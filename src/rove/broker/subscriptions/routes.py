"""The words of routing: what is known of a topic, and what comes out of matching.

A *route* is remembered per topic, so that nearly every publication finds its subscribers without
looking for them. It is never changed, only replaced: a publication keeps the one that held when it
was matched. What several subscriptions of one session say about a topic comes to one notification,
with the best QoS of them and all their identifiers; that is a *target*, and worked out once per
route. A *group* shares a subscription: each publication is for one of its members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from rove.broker.publications.publication import Publication
from rove.broker.sessions.session import Subscription


class Target:
    """One session that wants everything on a topic, by one subscription or several."""

    __slots__ = (
        "_of_its_own",
        "hears_itself",
        "ids",
        "keeps_retain",
        "numbers",
        "qos",
        "session",
        "slot",
    )

    def __init__(self, subscriptions: Sequence[Subscription]) -> None:
        self.session = subscriptions[0].session
        self.slot = subscriptions[0].slot
        """The policy that all these have of their own."""
        self.qos = max(one.qos for one in subscriptions)
        self.ids = tuple(one.identifier for one in subscriptions if one.identifier)
        self.numbers = tuple(one.number for one in subscriptions)
        self.keeps_retain = any(one.retain_as_published for one in subscriptions)
        heard = [one for one in subscriptions if not one.no_local]
        self.hears_itself = len(heard) == len(subscriptions)
        """False if what the session publishes itself is not for all of these subscriptions."""
        self._of_its_own = Target(heard) if heard and not self.hears_itself else None

    def heard_from(self, publisher: str) -> Target | None:
        """The same for what that client publishes; None if it is not to be heard."""
        if self.hears_itself or publisher != self.session.client_id:
            return self
        return self._of_its_own


class Group:
    """Those who share a subscription: each publication is for one of them."""

    __slots__ = ("_turn", "members", "name")

    def __init__(self, name: tuple[str, str]) -> None:
        self.name = name
        """What its members call it, and the topic filter that they share."""
        self.members: dict[Subscription, None] = {}
        self._turn = 0

    def pick(self, candidates: Sequence[Subscription]) -> Subscription:
        """The next in turn of some members, one that is connected if any is."""
        self._turn += 1
        connected = [one for one in candidates if one.session.link is not None]
        chosen = connected or candidates
        return chosen[self._turn % len(chosen)]


class Route(msgspec.Struct, frozen=True, eq=False):
    """What is known of a topic."""

    targets: list[Target]
    """Those who are notified by nothing but delivering."""
    with_policies: list[Target]
    """Those for whom more is done, such as asking a policy."""
    groups: list[Group]
    filters: list[int]
    """Numbers of the topic filters with texts that fit it."""


class RankedHit(NamedTuple):
    """A publication that a ranked subscription is given."""

    subscription: Subscription
    publication: Publication
    at: float
    promoted: bool


class MatchResult(NamedTuple):
    """Whom the publications of a batch meet."""

    found: Mapping[int, list[Subscription]]
    """Subscriptions with a text, by the number of the publication."""
    ranked: Sequence[RankedHit]
    undecided: Sequence[Subscription] = ()
    """Those that were passed over: trying their patterns took too many steps."""
    failed: Mapping[int, str] = MappingProxyType({})
    """Publications, by number, of which no matcher could tell whom they meet, and why."""


NOBODY = MatchResult({}, ())


class Batch(msgspec.Struct, eq=False):
    """Publications that are matched together."""

    publications: Sequence[Publication]
    routes: Sequence[Route] = ()
    """Of each of them."""
    result: MatchResult | None = None
    """None until matchers have answered."""
