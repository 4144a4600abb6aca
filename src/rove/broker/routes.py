"""What is known of a topic, and what comes out of matching: the words that `interests` speaks.

A *route* is remembered per topic, so that nearly every publication finds its subscribers without
looking for them. A *group* shares a subscription: each publication is for one of its members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from rove.broker.publications import Publication
from rove.broker.subscriptions import Subscription
from rove.broker.targets import Target


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


class Route(msgspec.Struct):
    """What is known of a topic."""

    targets: list[Target]
    """Those who are notified by nothing but delivering."""
    with_desks: list[Target]
    """Those for whom more is done, such as asking a policy."""
    groups: list[Group]
    filters: list[int]
    """Numbers of the topic filters with texts that fit it."""


class Given(NamedTuple):
    """A publication that a ranked subscription is given."""

    subscription: Subscription
    publication: Publication
    at: float
    promoted: bool


class Met(NamedTuple):
    """Whom the publications of a batch meet."""

    found: dict[int, list[Subscription]]
    """Subscriptions with a text, by the number of the publication."""
    given: list[Given]
    undecided: Sequence[Subscription] = ()
    """Those that were passed over: trying their patterns took too many steps."""
    failed: Mapping[int, str] = MappingProxyType({})
    """Publications, by number, of which no matcher could tell whom they meet, and why."""
