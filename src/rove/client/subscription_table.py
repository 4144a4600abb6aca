"""Which notification is for which subscription of the program.

Every subscription has a subscription identifier, and a notification carries those that it met. An
identifier is computed from what the subscription says and not counted up: a program that comes
back under its client id makes its subscriptions under the same identifiers, in whatever order, and
what the broker queued for them meanwhile finds its way. (It costs three bytes per notification.)
Two subscriptions that say the same share one at the broker. The policy does not count: a program
that comes back with a better one takes the place of its old subscription instead of having two.
(Two that differ in nothing else are two, and are known by the order in which they were made.)

What comes for a subscription that the program has not made waits for it, unacknowledged, but only
for a while after a session was found again: then it is given up, because it would hold back all
that comes after it.
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
"""Who finds what meets a filter: the broker as it comes, or Spark in what the lake has of it."""
Identity = tuple[str, tuple[tuple[str, str], ...]]
"""The topic filter and the user properties."""


def identity_of(
    topic: str,
    filter: str | None = None,
    evolve: str | None = None,
    engine: Engine | None = None,
    policy: str | None = None,
) -> Identity:
    """What a subscription says; a bad text is refused without the broker."""
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
    """The subscriptions of the program that are one at the broker."""

    def __init__(self, identity: Identity, request: SubscriptionRequest) -> None:
        self.identity = identity
        self.request = request
        self.subscriptions: tuple[Subscription[Any], ...] = ()
        """A tuple, because one may leave while a notification is being given to all."""
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
        """The group of this one, or of this identifier; None if it has left."""
        if isinstance(subscription, int):
            return self._by_identifier.get(subscription)
        return next((group for group in self if subscription in group.subscriptions), None)

    def find(self, identity: Identity) -> SubscriptionGroup | None:
        """The group of subscriptions that say just that."""
        return self._by_identifier.get(self.identifier(identity))

    def identifier(self, identity: Identity) -> int:
        """What such a subscription is called: its own if there is one, else a free one."""
        topic_filter, user = identity
        properties = (f"{name}\0{value}" for name, value in user if name != PROPERTY)
        said = "\0".join([topic_filter, *properties])
        number = zlib.crc32(said.encode()) % IDENTIFIER_MAX + 1
        while (found := self._by_identifier.get(number)) is not None and found.identity != identity:
            number = number % IDENTIFIER_MAX + 1
        return number

    def check(self, identity: Identity) -> None:
        """Refuse one that would take the place of another at the broker, unnoticed."""
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
        """Give it to whom it is for."""
        identifiers = publish.properties.subscription_ids
        by_identifier = self._by_identifier
        if len(identifiers) == 1:  # as good as always
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

    # -- what nobody has asked for yet -------------------------------------------------------------

    def expect_claims(self, now: float) -> float:
        """The broker has found an old session; until when subscriptions may be made for it."""
        self._claimed_until = now + CLAIM_S
        return self._claimed_until

    def claim(self, now: float) -> None:
        """There is a new subscription: perhaps something waits for it."""
        waiting, self._unclaimed = self._unclaimed, []
        for publish, delivery in waiting:
            self.arrive(publish, delivery, now)

    def give_up_unclaimed(self) -> None:
        """Nobody has asked for it in time."""
        self._claimed_until = -math.inf
        self.claim(math.inf)
