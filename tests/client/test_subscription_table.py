"""Which subscription gets a notification: by identifier, by topic, and by coming too late."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rove.client.errors import FilterError, SubscribeRefused
from rove.client.notifications import reader_into
from rove.client.protocol import DeliveryToken
from rove.client.session import SubscriptionRequest
from rove.client.subscription import Slow, Subscription
from rove.client.subscription_table import CLAIM_S, Identity, SubscriptionGroup, SubscriptionTable
from rove.client.subscription_table import identity_of as said
from rove.mqtt.packets import Filter, Properties, Publish


class Desk:
    """A table, its subscriptions, and what was acknowledged."""

    def __init__(self) -> None:
        self.acknowledged: list[int] = []
        self.table = SubscriptionTable(
            lambda delivery: self.acknowledged.append(delivery.publish.packet_id)
        )

    def taken(self, delivery: DeliveryToken) -> None:
        delivery.untaken -= 1
        if not delivery.untaken:
            self.acknowledged.append(delivery.publish.packet_id)

    def leave(self, subscription: Subscription[Any]) -> asyncio.Future[None]:
        for group in self.table:
            group.leave(subscription)
        return asyncio.get_running_loop().create_future()

    def subscribe(self, topic: str, text: str = "", slow: Slow = "wait") -> Subscription[Any]:
        subscription = Subscription[Any](
            self, topic, text, reader_into(bytes), slow=slow, inbox_max=9, seen_max=9
        )
        identity = identity_of(topic, text)
        group = self.table.find(identity)
        if group is None:
            request = SubscriptionRequest(
                self.table.identifier(identity), Filter(topic), identity[1], print
            )
            group = SubscriptionGroup(identity, request)
            self.table.add(group)
        group.join(subscription)
        return subscription

    def number(self, subscription: Subscription[Any]) -> int:
        return self.table.identifier(identity_of(subscription.topic, subscription.filter or ""))

    def arrive(
        self, packet_id: int, *subscriptions: Subscription[Any], topic: str = "t", now: float = 0
    ) -> None:
        ids = tuple(map(self.number, subscriptions))
        publish = Publish(topic, b"", 1, packet_id=packet_id)
        publish.properties = Properties(subscription_ids=ids)
        self.table.arrive(publish, DeliveryToken(publish, 1), now)


def identity_of(topic: str, text: str) -> Identity:
    return topic, ((("filter", text),) if text else ())


async def test_identifiers_go_where_they_belong() -> None:
    desk = Desk()
    a, b, c = (desk.subscribe("t", text) for text in ("x > 1", "x > 2", "x > 3"))
    desk.arrive(1, a)
    desk.arrive(2, a, c)
    assert [one.waiting for one in (a, b, c)] == [2, 0, 1]


async def test_what_several_want_is_acknowledged_when_the_last_has_taken_it() -> None:
    desk = Desk()
    a, b = desk.subscribe("t", "x > 1"), desk.subscribe("t", "x > 2")
    desk.arrive(1, a, b)
    await a.batch()
    assert desk.acknowledged == []
    await b.batch()
    assert desk.acknowledged == [1]


async def test_who_does_not_wait_does_not_hold_back() -> None:
    desk = Desk()
    a, b = desk.subscribe("t", "x > 1", slow="drop-oldest"), desk.subscribe("t", "x > 2")
    desk.arrive(1, a)
    assert desk.acknowledged == [1]
    desk.arrive(2, a, b)
    await b.batch()
    assert desk.acknowledged == [1, 2]


async def test_one_that_leaves_meanwhile_takes_nothing_from_the_next() -> None:
    desk = Desk()
    first = desk.subscribe("t", slow="error")
    first.inbox_max = 1
    second = desk.subscribe("t")
    desk.arrive(1, first)
    desk.arrive(2, first)
    assert (first.is_ended, second.waiting) == (True, 2)


async def test_without_identifiers_the_topic_decides() -> None:
    desk = Desk()
    a, b, c = desk.subscribe("t/#"), desk.subscribe("+/u"), desk.subscribe("$share/g/t/u")
    desk.arrive(1, topic="t/u")
    desk.arrive(2, topic="t/v")
    assert [one.waiting for one in (a, b, c)] == [2, 1, 1]


async def test_the_same_said_twice_is_one_at_the_broker() -> None:
    desk = Desk()
    a, b = desk.subscribe("t", "x > 1"), desk.subscribe("t", "x > 1")
    assert len(list(desk.table)) == 1
    desk.arrive(1, a)
    assert (a.waiting, b.waiting) == (1, 1)


def test_identifiers_do_not_depend_on_the_order() -> None:
    one, other = Desk(), Desk()
    texts = [f"x > {number}" for number in range(50)]
    for text in texts:
        one.subscribe("t", text)
    for text in reversed(texts):
        other.subscribe("t", text)
    numbers = {text: one.table.identifier(identity_of("t", text)) for text in texts}
    assert numbers == {text: other.table.identifier(identity_of("t", text)) for text in texts}
    assert len(set(numbers.values())) == 50


def test_two_that_would_share_an_identifier_do_not() -> None:
    desk = Desk()
    taken = desk.table.identifier(identity_of("t", "x > 1"))
    other = identity_of("t", "x > 2")
    desk.table.add(SubscriptionGroup(other, SubscriptionRequest(taken, Filter("t"), (), print)))
    desk.subscribe("t", "x > 1")
    assert desk.table.identifier(identity_of("t", "x > 1")) == taken + 1


# -- what nobody has asked for yet -----------------------------------------------------------------


async def test_what_nobody_wants_is_acknowledged_and_counted() -> None:
    desk = Desk()
    desk.arrive(1)
    assert desk.acknowledged == [1]
    assert desk.table.unclaimed_dropped == 1


async def test_after_an_old_session_was_found_it_waits_for_its_subscription() -> None:
    desk = Desk()
    assert desk.table.expect_claims(now=100) == 100 + CLAIM_S
    desk.arrive(1, topic="t", now=101)
    desk.arrive(2, topic="u", now=101)
    assert desk.acknowledged == []
    subscription = desk.subscribe("t")
    desk.table.claim(102)
    assert subscription.waiting == 1
    desk.table.give_up_unclaimed()
    assert desk.acknowledged == [2]
    assert desk.table.unclaimed_dropped == 1
    desk.arrive(3, topic="u", now=103)
    assert desk.acknowledged == [2, 3]


async def test_a_group_that_was_removed_gets_nothing() -> None:
    desk = Desk()
    subscription = desk.subscribe("t")
    (group,) = desk.table
    desk.table.remove(group)
    desk.table.remove(group)
    desk.arrive(1, topic="t")
    assert subscription.waiting == 0


# -- what a subscription says ----------------------------------------------------------------------

PASS = "def arrived(m, me):\n    return m\n"
DROP = "def arrived(m, me):\n    return None\n"


def test_what_it_says_becomes_user_properties() -> None:
    assert said("t") == ("t", ())
    assert said("t", "x > me.x", "lees", "broker", PASS) == (
        "t",
        (("filter", "x > me.x"), ("evolve", "lees"), ("engine", "broker"), ("policy", PASS)),
    )


def test_what_cannot_be_is_refused_without_the_broker() -> None:
    with pytest.raises(FilterError):
        said("t", "x >")
    with pytest.raises(SubscribeRefused, match="evolve"):
        said("t", None, "lees")
    with pytest.raises(SubscribeRefused, match="no engine"):
        said("t", "x > 1", None, "flink")  # type: ignore[arg-type]
    with pytest.raises(SubscribeRefused, match="engine"):
        said("t", None, None, "spark")


def group_for(table: SubscriptionTable, identity: Identity) -> SubscriptionGroup:
    group = SubscriptionGroup(
        identity, SubscriptionRequest(table.identifier(identity), Filter("t"), identity[1], print)
    )
    table.add(group)
    return group


def test_a_better_policy_takes_the_place_of_the_old_one() -> None:
    numbers = [
        group_for(SubscriptionTable(print), said("t", "x > 1", policy=policy)).request.identifier
        for policy in (PASS, DROP, None)
    ]
    assert len(set(numbers)) == 1


def test_two_policies_on_the_same_are_two_and_a_changed_one_is_found_again() -> None:
    table = SubscriptionTable(print)
    passing = group_for(table, said("t", "x > 1", policy=PASS))
    dropping = group_for(table, said("t", "x > 1", policy=DROP))
    assert passing.request.identifier != dropping.request.identifier
    passing.policy = ""
    assert passing.request.user == (("filter", "x > 1"),)
    assert table.find(said("t", "x > 1")) is passing
    assert table.find(said("t", "x > 1", policy=DROP)) is dropping
    passing.policy = PASS
    assert (passing.policy, passing.request.user[-1]) == (PASS, ("policy", PASS))
