"""Assigns notifications to the subscriptions of the program.

Every subscription has a subscription identifier, and a notification carries the identifiers of
those that it matches. Identifiers are computed from the contents of a subscription, not counted: a
program that returns with the same client id makes its subscriptions with the same identifiers, in
any order, and gets what the broker has queued for them meanwhile. (It costs three bytes per
notification.) Equal subscriptions share one at the broker. The policy does not count: a program
that returns with a better policy replaces its old subscription instead of having two. (Two that
differ only in their policies are two, distinguished by the order in which they were made.)

Notifications for a subscription that the program has not made wait for it, unacknowledged, but only
for a while after a session was resumed: then they are dropped, because they hold back all later
ones.
"""

from __future__ import annotations

import asyncio
import math
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, get_args

from rove.client.errors import FilterError, SubscribeRefused
from rove.client.policies import PROPERTY, check_carried, compiled
from rove.client.protocol import DeliveryToken
from rove.client.session import SubscriptionRequest
from rove.client.subscription import Subscription
from rove.lang.errors import TextError
from rove.lang.parser import parse
from rove.mqtt.packets import Publish
from rove.mqtt.topics import fits, split_shared

IDENTIFIER_MAX: Final = 268_435_455
CLAIM_S: Final = 30.0
"""How long notifications wait for a subscription that the program has not made."""

Engine = Literal["broker", "spark"]
"""Who matches a filter expression: the broker at once, or Spark in the lake."""
Identity = tuple[str, tuple[tuple[str, str], ...]]
"""The topic filter and the user properties."""


def identity_of(
    topic: str,
    filter: str | None = None,
    evolve: str | None = None,
    engine: Engine | None = None,
    policy: str | None = None,
) -> Identity:
    """The contents of a subscription; an invalid filter expression is refused here."""
    properties: list[tuple[str, str]] = []
    if filter is not None:
        try:
            parse(filter)
        except TextError as error:
            raise FilterError(*error.args) from None
        properties.append(("filter", filter))
    if evolve is not None:
        if filter is None:
            raise SubscribeRefused("evolve says how a filter evolves, and there is no filter")
        properties.append(("evolve", evolve))
    if engine is not None:
        if engine not in get_args(Engine):
            raise SubscribeRefused(f"there is no engine {engine!r}; there is broker and spark")
        if filter is None:
            raise SubscribeRefused("engine says who matches a filter, and there is no filter")
        properties.append(("engine", engine))
    if policy is not None:
        compiled(policy)
        check_carried(policy)
        properties.append((PROPERTY, policy))
    return topic, tuple(properties)


class SubscriptionGroup:
    """Subscriptions of the program that share one at the broker."""

    def __init__(self, identity: Identity, request: SubscriptionRequest) -> None:
        self.identity = identity
        self.request = request
        self.subscriptions: tuple[Subscription[Any], ...] = ()
        """A tuple, because one may leave while a notification is given to all."""
        self.pending: list[asyncio.Future[None]] = []
        """Resolved when the broker has answered."""

    def join(self, subscription: Subscription[Any]) -> None:
        self.subscriptions += (subscription,)

    def leave(self, subscription: Subscription[Any]) -> None:
        self.subscriptions = tuple(each for each in self.subscriptions if each is not subscription)

    @property
    def policy(self) -> str:
        """Its own policy; empty for none."""
        return dict(self.identity[1]).get(PROPERTY, "")

    @policy.setter
    def policy(self, text: str) -> None:
        others = tuple(each for each in self.request.user if each[0] != PROPERTY)
        self.request.user = (*others, (PROPERTY, text)) if text else others
        self.identity = self.identity[0], self.request.user

    def fits(self, topic: str) -> bool:
        topic_filter = self.identity[0]
        shared = split_shared(topic_filter)
        return fits(topic_filter if shared is None else shared[1], topic)


class SubscriptionTable:
    """All subscriptions of a client."""

    def __init__(self, acknowledge: Callable[[DeliveryToken], None]) -> None:
        self.unclaimed_dropped = 0
        self._acknowledge = acknowledge
        self._by_identifier: dict[int, SubscriptionGroup] = {}
        self._unclaimed: list[tuple[Publish, DeliveryToken]] = []
        self._claimed_until = -math.inf

    def __iter__(self) -> Iterator[SubscriptionGroup]:
        return iter(list(self._by_identifier.values()))

    # -- subscriptions ---------------------------------------------------------------------------

    def of(self, subscription: Subscription[Any] | int) -> SubscriptionGroup | None:
        """The group of a subscription or an identifier; None if it has left."""
        if isinstance(subscription, int):
            return self._by_identifier.get(subscription)
        return next((group for group in self if subscription in group.subscriptions), None)

    def find(self, identity: Identity) -> SubscriptionGroup | None:
        """The group with exactly this identity."""
        return self._by_identifier.get(self.identifier(identity))

    def identifier(self, identity: Identity) -> int:
        """The identifier of its group if there is one, otherwise a free one."""
        topic_filter, user = identity
        properties = (f"{name}\0{value}" for name, value in user if name != PROPERTY)
        said = "\0".join([topic_filter, *properties])
        number = zlib.crc32(said.encode()) % IDENTIFIER_MAX + 1
        while (found := self._by_identifier.get(number)) is not None and found.identity != identity:
            number = number % IDENTIFIER_MAX + 1
        return number

    def check(self, identity: Identity) -> None:
        """Refuse a subscription that would silently replace another at the broker."""
        topic_filter, user = identity
        if any(name == "filter" for name, _ in user):
            return
        for group in self:
            other = group.identity
            if other[0] == topic_filter and other != identity and "filter" not in dict(other[1]):
                raise SubscribeRefused(
                    f"there is a subscription to {topic_filter!r} with another policy, and without "
                    "a filter the broker keeps one per topic filter; give one of them a filter, "
                    "such as TRUE, or set_policy for the one that is there"
                )

    def add(self, group: SubscriptionGroup) -> None:
        self._by_identifier[group.request.identifier] = group

    def remove(self, group: SubscriptionGroup) -> None:
        if self._by_identifier.get(group.request.identifier) is group:
            del self._by_identifier[group.request.identifier]

    # -- notifications ---------------------------------------------------------------------------

    def arrive(self, publish: Publish, delivery: DeliveryToken | None, now: float) -> None:
        """Give a notification to its subscriptions."""
        identifiers = publish.properties.subscription_ids
        by_identifier = self._by_identifier
        if len(identifiers) == 1:  # nearly always
            found = by_identifier.get(identifiers[0])
            groups = [] if found is None else [found]
        elif identifiers:
            groups = [by_identifier[each] for each in identifiers if each in by_identifier]
        else:
            groups = [each for each in by_identifier.values() if each.fits(publish.topic)]
        held = 0
        for group in groups:
            for subscription in group.subscriptions:
                held += subscription.arrive(publish, delivery)
        if delivery is None:
            return
        if held:
            delivery.untaken = held
        elif not groups and now < self._claimed_until:
            self._unclaimed.append((publish, delivery))
        else:
            self.unclaimed_dropped += not groups
            self._acknowledge(delivery)

    # -- notifications without a subscription ------------------------------------------------------

    def expect_claims(self, now: float) -> float:
        """The broker has resumed a session; until when the program may make its subscriptions."""
        self._claimed_until = now + CLAIM_S
        return self._claimed_until

    def claim(self, now: float) -> None:
        """There is a new subscription: give it the notifications that wait for it."""
        waiting, self._unclaimed = self._unclaimed, []
        for publish, delivery in waiting:
            self.arrive(publish, delivery, now)

    def give_up_unclaimed(self) -> None:
        """Drop the notifications that still wait."""
        self._claimed_until = -math.inf
        self.claim(math.inf)
