"""Who wants what: wildcards, overlapping, shared, evolving and ranked subscriptions."""

import random
from collections import defaultdict
from typing import Any

import pytest
from msgspec.json import encode

from rove.broker.context import BrokerSettings, LakeStream
from rove.broker.subscriptions.router import ROUTES_MAX
from rove.lang.oracle import matches
from rove.lang.parser import parse
from rove.lang.tree import Subscription as Text
from rove.mqtt.packets import (
    NO_PROPERTIES,
    Disconnect,
    Filter,
    Properties,
    Puback,
    Publish,
    Pubrel,
    Reason,
    Unsubscribe,
)
from rove.mqtt.topics import fits, split_shared
from rove.testing.mqtt import SimulatedBroker, SimulatedClient
from tests.effort import some


def goodbye(client: SimulatedClient) -> int:
    """Why the broker closed the connection."""
    assert client.is_closed()
    last = client.inbox[-1]
    assert isinstance(last, Disconnect)
    return last.reason


class TestOverlapping:
    def test_one_session_is_notified_once_with_the_highest_quality(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe("a/#", qos=2)
        client.subscribe("a/b", qos=1)
        client.subscribe("#", qos=0)
        client.publish("a/b", b"1", 2)
        assert client.only(Publish).qos == 2

    def test_all_identifiers_that_matched_are_named(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe("a/#", identifier=1)
        client.subscribe("a/b", identifier=22)
        client.subscribe("b/#", identifier=3)
        client.subscribe("+/b")
        client.publish("a/b", b"1")
        assert set(client.only(Publish).properties.subscription_ids) == {1, 22}

    def test_texts_and_plain_ones_are_merged(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe("a/#", identifier=1)
        client.subscribe("a/b", identifier=2, qos=1, filter="x > 1")
        client.subscribe("+/b", identifier=3, qos=2, filter="x > 100")
        client.publish("a/b", b'{"x": 5}', 2)
        came = client.only(Publish)
        assert set(came.properties.subscription_ids) == {1, 2}
        assert came.qos == 1

    def test_a_client_that_publishes_cannot_name_identifiers(self) -> None:
        client = SimulatedBroker().connect()
        client.publish("a", b"", properties=Properties(subscription_ids=(1,)))
        assert goodbye(client) == Reason.PROTOCOL_ERROR


class TestNoLocal:
    def test_what_one_published_oneself_is_not_heard(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe(Filter("a", no_local=True))
        client.publish("a", b"own", 1)
        assert client.only(Puback).reason == Reason.NO_MATCHING_SUBSCRIBERS
        world.connect("other").publish("a", b"others")
        assert client.payloads() == [b"others"]

    def test_another_subscription_of_the_same_session_hears_it(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe(Filter("a", qos=2, no_local=True), identifier=1)
        client.subscribe(Filter("a/#", qos=1), identifier=2)
        client.publish("a", b"own", 2)
        came = client.only(Publish)
        assert (came.qos, came.properties.subscription_ids) == (1, (2,))

    def test_it_holds_for_texts_too(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe(Filter("a", no_local=True), filter="x = 1")
        client.publish("a", b'{"x": 1}')
        assert client.payloads() == []
        world.connect("other").publish("a", b'{"x": 1}')
        assert client.payloads() == [b'{"x": 1}']

    def test_it_holds_beside_a_text_that_hears_it(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe(Filter("a", qos=2, no_local=True), identifier=1)
        client.subscribe("+", identifier=2, filter="x = 1")
        client.publish("a", b'{"x": 1}', 2)
        came = client.only(Publish)
        assert (came.qos, came.properties.subscription_ids) == (0, (2,))

    def test_it_holds_for_what_moves_up(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        text = "x > 0 ORDER BY x DESC LIMIT 1 WITHIN 10 SECONDS"
        client.subscribe(Filter("a", no_local=True), filter=text)
        other = world.connect("other")
        other.publish("a", b'{"x": 9}')
        world.advance(5)
        client.publish("a", b'{"x": 5}')
        world.advance(6)
        assert client.payloads() == [b'{"x": 9}']


class TestShared:
    @staticmethod
    def members(
        world: SimulatedBroker, count: int, properties: Properties = NO_PROPERTIES
    ) -> list[SimulatedClient]:
        members = [world.connect(f"member{n}", expiry_s=60) for n in range(count)]
        for member in members:
            member.subscribe("$share/group/a/#", qos=1, properties=properties)
        return members

    def test_each_publication_is_for_one_member_and_they_take_turns(self) -> None:
        world = SimulatedBroker()
        members = self.members(world, 3)
        client = world.connect()
        for n in range(30):
            client.publish("a/b", b"%d" % n)
        got = [member.payloads() for member in members]
        assert sorted(int(one) for some in got for one in some) == list(range(30))
        assert all(len(some) == 10 for some in got)

    def test_two_groups_each_get_everything(self) -> None:
        world = SimulatedBroker()
        one, two = world.connect("one"), world.connect("two")
        one.subscribe("$share/first/a")
        two.subscribe("$share/second/a")
        world.connect().publish("a", b"1")
        assert one.payloads() == two.payloads() == [b"1"]

    def test_one_group_with_two_filters_is_two_groups(self) -> None:
        world = SimulatedBroker()
        one, two = world.connect("one"), world.connect("two")
        one.subscribe("$share/group/a")
        two.subscribe("$share/group/+")
        world.connect().publish("a", b"1")
        assert one.payloads() == two.payloads() == [b"1"]

    def test_others_get_it_all_the_same(self) -> None:
        world = SimulatedBroker()
        members = self.members(world, 2)
        plain = world.connect("plain")
        plain.subscribe("a/b")
        client = world.connect()
        for _ in range(4):
            client.publish("a/b", b"1")
        assert len(plain.payloads()) == 4
        assert [len(member.payloads()) for member in members] == [2, 2]

    def test_a_member_that_is_away_is_passed_over(self) -> None:
        world = SimulatedBroker()
        here, away = self.members(world, 2)
        away.drop()
        client = world.connect()
        for _ in range(4):
            client.publish("a/b", b"1", 1)
        assert len(here.take_all()) == 4
        away.come_back()
        assert away.payloads() == []

    def test_with_all_members_away_it_waits_for_one(self) -> None:
        world = SimulatedBroker()
        members = self.members(world, 2)
        for member in members:
            member.drop()
        world.connect().publish("a/b", b"1", 1)
        for member in members:
            member.come_back()
        assert sorted(member.payloads() for member in members) == [[], [b"1"]]

    def test_a_member_that_leaves_gets_nothing_more(self) -> None:
        world = SimulatedBroker()
        stays, leaves = self.members(world, 2)
        assert leaves.unsubscribe("$share/group/a/#").reasons == (Reason.SUCCESS,)
        client = world.connect()
        for _ in range(4):
            client.publish("a/b", b"1")
        assert leaves.payloads() == []
        assert len(stays.payloads()) == 4
        stays.unsubscribe("$share/group/a/#")
        client.publish("a/b", b"1", 1)
        assert client.only(Puback).reason == Reason.NO_MATCHING_SUBSCRIBERS

    def test_members_with_a_text_get_what_they_want(self) -> None:
        world = SimulatedBroker()
        low, high = world.connect("low"), world.connect("high")
        low.subscribe("$share/group/a", filter="x < 10")
        high.subscribe("$share/group/a", filter="x >= 10")
        client = world.connect()
        for x in (1, 20, 3):
            client.publish("a", b'{"x": %d}' % x)
        assert low.payloads() == [b'{"x": 1}', b'{"x": 3}']
        assert high.payloads() == [b'{"x": 20}']

    def test_members_with_and_without_a_text_share_too(self) -> None:
        world = SimulatedBroker()
        plain, choosy = world.connect("plain"), world.connect("choosy")
        plain.subscribe("$share/group/a")
        choosy.subscribe("$share/group/a", filter="x > 10")
        client = world.connect()
        for _ in range(10):
            client.publish("a", b'{"x": 11}')
            client.publish("a", b'{"x": 1}')
        got = plain.payloads() + choosy.payloads()
        assert len(got) == 20

    def test_a_member_keeps_its_identifier_and_quality(self) -> None:
        world = SimulatedBroker()
        member = world.connect("member")
        member.subscribe("$share/group/a", qos=1, identifier=5)
        world.connect().publish("a", b"1", 2)
        came = member.only(Publish)
        assert (came.qos, came.properties.subscription_ids) == (1, (5,))

    def test_the_group_survives_a_crash(self) -> None:
        world = SimulatedBroker()
        members = self.members(world, 2, Properties(user=(("filter", "x > 0"),)))
        world.crash()
        for member in members:
            member.come_back()
        client = world.connect()
        for _ in range(4):
            client.publish("a/b", b'{"x": 1}')
        assert [len(member.payloads()) for member in members] == [2, 2]


class TestWildcards:
    def test_topics_of_the_broker_are_not_met_by_leading_wildcards(self) -> None:
        world = SimulatedBroker(settings=BrokerSettings())
        client = world.connect()
        client.subscribe("#", "+/me")
        client.publish("$rove/me", b"{}", 1)
        assert client.payloads() == []

    @pytest.mark.parametrize(
        ("topic_filter", "topic", "fits"),
        [
            ("a/#", "a", True),
            ("a/#", "a/b/c", True),
            ("a/+", "a", False),
            ("a/+", "a/", True),
            ("+/+", "/a", True),
            ("/+", "/a", True),
            ("+", "/a", False),
            ("a/+/c", "a/b/c", True),
            ("a/+/c", "a/b/d", False),
            ("#", "a/b", True),
        ],
    )
    def test_filters_fit_as_the_specification_says(
        self, topic_filter: str, topic: str, fits: bool
    ) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe(topic_filter)
        texts = world.connect("texts")
        texts.subscribe(topic_filter, filter="topic IS NOT NULL")
        client.publish(topic, b"1")
        assert client.payloads() == texts.payloads() == ([b"1"] if fits else [])


class TestEvolving:
    def test_bounds_move_with_the_time_since_the_subscription(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe("a", filter="x > 10 - 2 * t")
        client.publish("a", b'{"x": 7}')
        world.advance(2)
        client.publish("a", b'{"x": 7}')
        assert client.payloads() == [b'{"x": 7}']

    @pytest.mark.parametrize("evolve", ["exact", "lees", "clees 500ms", "pes 1s"])
    def test_every_design_can_be_asked_for(self, evolve: str) -> None:
        world = SimulatedBroker()
        client = world.connect()
        assert client.subscribe("a", filter="x > 10 - 2 * t", evolve=evolve).reasons == (0,)
        client.publish("a", b'{"x": 7}')
        world.advance(10)
        client.publish("a", b'{"x": 7}')
        assert client.payloads() == [b'{"x": 7}']

    def test_time_goes_on_across_a_crash(self) -> None:
        world = SimulatedBroker()
        client = world.connect(expiry_s=60)
        client.subscribe("a", qos=1, filter="x > 10 - 2 * t")
        world.advance(1)
        world.crash()
        world.advance(1)
        client.come_back()
        client.publish("a", b'{"x": 7}', 1)
        assert client.payloads() == [b'{"x": 7}']


class TestRanked:
    TEXT = "ORDER BY x DESC LIMIT 1 WITHIN 10 SECONDS"

    @staticmethod
    def publish(world: SimulatedBroker, *values: int) -> None:
        publisher = world.connect("publisher")
        for x in values:
            publisher.publish("a", b'{"x": %d}' % x, 1)

    def subscribed(self, world: SimulatedBroker, **user: str) -> SimulatedClient:
        client = world.connect(expiry_s=600)
        assert client.subscribe("a", qos=1, filter=self.TEXT).reasons == (1,)
        return client

    def test_the_best_are_delivered_as_they_come(self) -> None:
        world = SimulatedBroker()
        client = self.subscribed(world)
        self.publish(world, 5, 3, 7)
        assert [packet.payload for packet in client.take_all()] == [b'{"x": 5}', b'{"x": 7}']

    def test_the_next_best_moves_up_when_the_best_grows_old(self) -> None:
        world = SimulatedBroker()
        client = self.subscribed(world)
        self.publish(world, 7)
        world.advance(5)
        self.publish(world, 5)
        assert [packet.payload for packet in client.take_all()] == [b'{"x": 7}']
        world.advance(5.1)
        assert [packet.payload for packet in client.take_all()] == [b'{"x": 5}']

    def test_any_number_of_subscribers_may_ask_for_the_same_best(self) -> None:
        world = SimulatedBroker()
        clients = [world.connect(f"client-{number}") for number in range(70)]
        for client in clients:
            assert client.subscribe("a", filter=self.TEXT).reasons == (0,)
        self.publish(world, 5, 3, 7)
        for client in clients:
            assert client.payloads() == [b'{"x": 5}', b'{"x": 7}']

    def test_what_comes_in_the_moment_of_acceptance_counts_if_it_comes_later(self) -> None:
        world = SimulatedBroker()
        publisher = world.connect("publisher")
        publisher.publish("a", b'{"x": 9}', 1)
        client = self.subscribed(world)
        publisher.publish("a", b'{"x": 5}', 1)
        assert [packet.payload for packet in client.take_all()] == [b'{"x": 5}']

    def test_it_moves_up_while_the_subscriber_is_away_too(self) -> None:
        world = SimulatedBroker()
        client = self.subscribed(world)
        client.drop()
        self.publish(world, 7)
        world.advance(5)
        self.publish(world, 5)
        world.advance(20)
        client.come_back()
        assert [packet.payload for packet in client.take_all()] == [b'{"x": 7}', b'{"x": 5}']

    def test_what_was_withdrawn_does_not_move_up(self) -> None:
        world = SimulatedBroker()
        client = self.subscribed(world)
        self.publish(world, 7)
        world.advance(5)
        publisher = world.connect("publisher")
        publisher.publish("a", b'{"x": 5}', 0, id="five")
        publisher.publish("$rove/unpublish", b"five", 1)
        world.advance(6)
        assert [packet.payload for packet in client.take_all()] == [b'{"x": 7}']

    def test_what_has_expired_does_not_move_up(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe("a", filter=self.TEXT)
        self.publish(world, 7)
        world.advance(5)
        properties = Properties(message_expiry_s=2)
        world.connect("publisher").publish("a", b'{"x": 5}', properties=properties)
        world.advance(6)
        assert client.payloads() == [b'{"x": 7}']

    def test_ending_it_in_the_turn_of_a_publication_is_no_trouble(self) -> None:
        world = SimulatedBroker()
        client = self.subscribed(world)
        client.say(Publish("a", b'{"x": 1}'))
        client.say(Unsubscribe(9, ("a",)))
        world.turn()
        world.advance(20)
        assert client.payloads() == [b'{"x": 1}']

    def test_it_looks_only_forward(self) -> None:
        world = SimulatedBroker()
        world.connect("publisher").publish("a", b'{"x": 9}', 1, valid_for="60")
        client = self.subscribed(world)
        assert client.take(Publish) == []

    def test_it_shares_a_topic_with_all_other_kinds(self) -> None:
        world = SimulatedBroker()
        client = self.subscribed(world)
        client.subscribe("a", identifier=2, filter="x = 3")
        client.subscribe("+", identifier=3)
        self.publish(world, 5, 3)
        came = [packet.properties.subscription_ids for packet in client.take_all()]
        assert [set(ids) for ids in came] == [{3}, {2, 3}]


class TestServedByOthers:
    def test_one_and_the_same_can_change_sides(self) -> None:
        settings = BrokerSettings(channels=(LakeStream("all", ("#",)),), keeps_subscriptions=True)
        world = SimulatedBroker(settings=settings)
        client = world.connect()
        router = world.broker.router
        for engine in ("broker", "spark", "broker", "spark", "spark"):
            client.subscribe("a", filter="x > 1", engine=engine)
            client.publish("a", b'{"x": 2}')
            assert client.payloads() == ([b'{"x": 2}'] if engine == "broker" else [])
            assert len(router) == 1
            number = world.broker.context.next_subscription - 1
            assert (router.served(number) is not None) == (engine == "spark")
        client.drop()
        assert len(router) == 0


def test_no_more_topics_are_remembered_than_allowed() -> None:
    router = SimulatedBroker().broker.router
    for number in range(ROUTES_MAX + 10):
        router.route(f"a/{number}")
    assert len(router.routes) <= ROUTES_MAX


class Model:
    """Who gets what, said as plainly as possible: every subscription is asked about everything."""

    def __init__(self) -> None:
        self.subscriptions: dict[tuple[str, str, int], tuple[Filter, Text | None, float]] = {}
        """By client, topic filter and identifier (-1 without a text)."""
        self.me: dict[str, dict[str, object]] = defaultdict(dict)

    def wanted(
        self, publisher: str, topic: str, payload: dict[str, object], qos: int, now: float
    ) -> tuple[dict[str, tuple[int, list[int]]], dict[str, set[str]]]:
        """By client, the QoS and the identifiers; and by group, those who may be chosen."""
        found: dict[str, tuple[int, list[int]]] = {}
        groups: dict[str, set[str]] = {}
        for (client, whole, identifier), (asked, text, since) in self.subscriptions.items():
            shared = split_shared(whole)
            if not fits(whole if shared is None else shared[1], topic):
                continue
            attributes = {**payload, "topic": topic}
            if text is not None and not matches(text, attributes, now - since, self.me[client]):
                continue
            if shared is not None:
                groups.setdefault(whole, set()).add(client)
            elif not (asked.no_local and client == publisher):
                best, ids = found.setdefault(client, (0, []))
                found[client] = (max(best, asked.qos), [*ids, identifier])
        return {client: (min(qos, best), ids) for client, (best, ids) in found.items()}, groups


class Routing:
    """One run of subscriptions that come and go between publications, beside the model."""

    FILTERS = ("a", "a/b", "a/+", "a/#", "+/b", "#", "+", "/a", "$share/g/a/#", "$share/h/+/b")
    TOPICS = ("a", "a/b", "a/b/c", "b", "/a", "b/b")
    TEXTS = (
        "x > 3", "x = 1 OR y = 'u'", "NOT (x < 2)", "x BETWEEN me.low AND me.low + 3",
        "x < 2 * t", "topic LIKE 'a/%'", "y IN ('u', 'v') AND x IS NOT NULL", "z.w = 1",
    )  # fmt: skip

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = SimulatedBroker()
        self.model = Model()
        self.clients = {
            f"client{n}": self.world.connect(f"client{n}", expiry_s=1_000_000) for n in range(4)
        }
        self.index: bytes | None = None

    def step(self) -> None:
        rng = self.rng
        name = rng.choice(list(self.clients))
        what = rng.random()
        if what < 0.35:
            self.subscribe(name)
        elif what < 0.45:
            self.unsubscribe(name)
        elif what < 0.5:
            low = rng.randrange(6)
            self.clients[name].publish("$rove/me", b'{"low": %d}' % low)
            self.model.me[name]["low"] = low
        elif what < 0.55:
            self.world.advance(rng.choice((0.25, 1, 2)))
        elif what < 0.58:
            self.crash()
        else:
            self.publish(name)

    def crash(self) -> None:
        """Restart, with an index that is missing, up to date or old."""
        if self.rng.random() < 0.5:
            self.index = self.world.broker.saved_index()
        elif self.rng.random() < 0.2:
            self.index = None
        self.world.crash(self.index)
        for client in self.clients.values():
            client.come_back()

    def subscribe(self, name: str) -> None:
        rng = self.rng
        topic_filter = rng.choice(self.FILTERS)
        no_local = not topic_filter.startswith("$share") and rng.random() < 0.3
        asked = Filter(topic_filter, rng.randrange(3), no_local)
        # Groups are told apart by their identifiers.
        identifier = rng.randrange(1, 4) + 10 * self.FILTERS.index(topic_filter)
        text = rng.choice(self.TEXTS) if rng.random() < 0.6 else None
        user = () if text is None else (("filter", text),)
        properties = Properties(user=user, subscription_ids=(identifier,))
        answer = self.clients[name].subscribe(asked, properties=properties)
        assert answer.reasons == (asked.qos,)
        parsed = None if text is None else parse(text)
        if parsed is None:
            # A plain one takes the place of another plain one, whatever the identifier.
            self.model.subscriptions = {
                key: kept
                for key, kept in self.model.subscriptions.items()
                if key[:2] != (name, topic_filter) or kept[1] is not None
            }
        key = (name, topic_filter, identifier if parsed is not None else -identifier)
        self.model.subscriptions[key] = (asked, parsed, self.world.now)

    def unsubscribe(self, name: str) -> None:
        topic_filter = self.rng.choice(self.FILTERS)
        gone = [key for key in self.model.subscriptions if key[:2] == (name, topic_filter)]
        answer = self.clients[name].unsubscribe(topic_filter)
        existed = Reason.SUCCESS if gone else Reason.NO_SUBSCRIPTION_EXISTED
        assert answer.reasons == (existed,)
        for key in gone:
            del self.model.subscriptions[key]

    def publish(self, name: str) -> None:
        rng = self.rng
        said = []
        for _ in range(rng.choice((1, 1, 3))):
            payload: dict[str, object] = {}
            if rng.random() < 0.9:
                payload["x"] = rng.choice((0, 1, 2.5, 4, 7, "seven"))
            if rng.random() < 0.5:
                payload["y"] = rng.choice("uvw")
            if rng.random() < 0.2:
                payload["z"] = {"w": rng.randrange(2)}
            qos = rng.randrange(3)
            said.append((rng.choice(self.TOPICS), payload, qos))
        for number, (topic, payload, qos) in enumerate(said, 1):
            packet_id = number if qos else 0
            self.clients[name].say(Publish(topic, encode(payload), qos, packet_id=packet_id))
        self.world.turn()
        self.clients[name].send(*(Pubrel(number) for number in range(1, len(said) + 1)))
        for client in self.clients.values():
            client.inbox = [one for one in client.inbox if isinstance(one, Publish)]
        came = {client: one.take_all() for client, one in self.clients.items()}
        for topic, payload, qos in said:
            self.compare(name, topic, payload, qos, came)
        assert not any(came.values()), "somebody got what nobody wanted"

    def compare(
        self,
        publisher: str,
        topic: str,
        payload: dict[str, object],
        qos: int,
        came: dict[str, list[Publish]],
    ) -> None:
        wanted, groups = self.model.wanted(publisher, topic, payload, qos, self.world.now)
        for client, (best, ids) in wanted.items():
            alone = [
                packet
                for packet in came[client]
                if sorted(packet.properties.subscription_ids) == sorted(map(abs, ids))
                and (packet.topic, packet.payload, packet.qos) == (topic, encode(payload), best)
            ]
            assert alone, f"{client} should have got {topic} {payload} for {ids}: {came[client]}"
            came[client].remove(alone[0])
        for group, members in groups.items():
            got = [
                (member, packet)
                for member in sorted(members)
                for packet in came[member]
                if (packet.topic, packet.payload) == (topic, encode(payload))
                and packet.properties.subscription_ids[0] // 10 == self.FILTERS.index(group)
            ]
            assert got, f"nobody of {group} got {topic} {payload}"
            came[got[0][0]].remove(got[0][1])


@pytest.mark.parametrize("part", some(range(5), 2))
def test_routing_does_what_the_slow_model_says(part: int) -> None:
    for seed in range(part, 100, 5):
        routing = Routing(seed)
        try:
            for _ in range(80):
                routing.step()
        except AssertionError as error:
            raise AssertionError(f"with seed {seed}: {error}") from error


@pytest.mark.parametrize("seed", range(6))
def test_routes_that_are_remembered_are_those_found_anew(seed: int) -> None:
    chance = random.Random(seed)
    world = SimulatedBroker()
    clients = [world.connect(f"c{number}") for number in range(3)]
    filters = ("a", "a/b", "a/+", "#", "$share/g/a", "$share/g/a/#", "b")
    topics = ("a", "a/b", "a/b/c", "b")
    router = world.broker.router
    for _ in range(120):
        client, chosen = chance.choice(clients), chance.choice(filters)
        if chance.random() < 0.6:
            if chance.random() < 0.5:
                client.subscribe(chosen)
            else:
                client.subscribe(chosen, filter=chance.choice(("x > 1", "x > 2")))
        else:
            client.say(Unsubscribe(9, (chosen,)))
            world.turn()
        for topic in topics:
            known, anew = router.route(topic), router._new_route(topic)
            assert sorted(known.filters) == sorted(anew.filters)
            assert known.groups == anew.groups
            assert [one.numbers for one in known.targets] == [one.numbers for one in anew.targets]


def test_windows_that_may_have_lost_publications_are_told_of() -> None:
    world = SimulatedBroker()
    near, other = world.connect("near"), world.connect("other")
    near.subscribe("a", filter="ORDER BY x DESC LIMIT 1 WITHIN 3 PUBLICATIONS")
    near.subscribe("b", filter="ORDER BY x DESC LIMIT 1 WITHIN 1 HOURS")
    for topic in "ab":
        other.publish(topic, b'{"x": 1}', 1)
    (cell,) = world.broker.router.expressions._cells
    for topic in "ab":
        original = cell.match

        def fail(shown: Any, match: Any = original) -> Any:
            match(shown)
            cell.match = match  # type: ignore[method-assign]
            raise RuntimeError("match")

        cell.match = fail  # type: ignore[method-assign]
        other.publish(topic, b'{"x": 2}', 1)
    notes = [note.facts["what"] for note in world.notes if note.event == "windows made anew"]
    assert notes == ["windows on a may count too few"]
