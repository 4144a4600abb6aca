"""Types of routing: the route of a topic, and the result of matching.

A *route* is cached per topic, so that nearly every publication finds its subscribers by one lookup.
It is never changed, only replaced: a publication keeps the route of the moment in which it was
matched. Several subscriptions of one session to a topic give one notification, with the best QoS of
them and all their identifiers; that is a *recipient*, computed once per route. In a *shared group*,
each publication goes to one of the members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from rove.broker.publications.publication import Publication
from rove.broker.sessions.session import Subscription
from rove.broker.subscriptions.shared_groups import SharedGroup


class Recipient:
    """One session that gets everything on a topic, by one subscription or several."""

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
        """The policy of these subscriptions; None for the session's."""
        self.qos = max(one.qos for one in subscriptions)
        self.ids = tuple(one.identifier for one in subscriptions if one.identifier)
        self.numbers = tuple(one.number for one in subscriptions)
        self.keeps_retain = any(one.retain_as_published for one in subscriptions)
        heard = [one for one in subscriptions if not one.no_local]
        self.hears_itself = len(heard) == len(subscriptions)
        """False if any of these subscriptions has the option *no local*."""
        self._of_its_own = Recipient(heard) if heard and not self.hears_itself else None

    def heard_from(self, publisher: str) -> Recipient | None:
        """The same for publications of that client; None if *no local* excludes them."""
        if self.hears_itself or publisher != self.session.client_id:
            return self
        return self._of_its_own


class TopicRoute(msgspec.Struct, frozen=True, eq=False):
    """The subscriptions to a topic."""

    targets: list[Recipient]
    """Other recipients, which are notified in one loop."""
    separate: list[Recipient]
    """Recipients with a `SubscriberContext`, for policies or reports; and other brokers."""
    groups: list[SharedGroup]
    filters: list[int]
    """Numbers of the matching topic filters that subscriptions with expressions have."""


NO_ROUTE = TopicRoute([], [], [], [])


class RankedHit(NamedTuple):
    """A publication that a ranked subscription gets."""

    subscription: Subscription
    publication: Publication
    at: float
    promoted: bool


class MatchResult(NamedTuple):
    """The subscriptions that the publications of a batch match."""

    found: Mapping[int, list[Subscription]]
    """Subscriptions with an expression, by the number of the publication."""
    ranked: Sequence[RankedHit]
    undecided: Sequence[Subscription] = ()
    """Subscriptions that were skipped because their patterns took too many steps."""
    failed: Mapping[int, str] = MappingProxyType({})
    """Publications, by number, that no matcher could match, and why."""


NOBODY = MatchResult({}, ())


class PublicationBatch(msgspec.Struct, eq=False):
    """Publications that are matched together."""

    publications: Sequence[Publication]
    routes: Sequence[TopicRoute]
    """Of each of them."""
    result: MatchResult | None = None
    """None until the matchers have answered."""
