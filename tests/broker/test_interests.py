"""Who wants what: wildcards, overlapping and shared subscriptions, one's own publications."""

import pytest

from rove.broker.state import Settings
from rove.mqtt.packets import (
    NO_PROPERTIES,
    Disconnect,
    Filter,
    Properties,
    Puback,
    Publish,
    Reason,
)
from rove.testing.mqtt import SimulatedClient, World


def goodbye(client: SimulatedClient) -> int:
    """Why the broker closed the connection."""
    assert client.is_closed()
    last = client.inbox[-1]
    assert isinstance(last, Disconnect)
    return last.reason


class TestOverlapping:
    def test_one_session_is_notified_once_with_the_highest_quality(self) -> None:
        world = World()
        client = world.connect()
        client.subscribe("a/#", qos=2)
        client.subscribe("a/b", qos=1)
        client.subscribe("#", qos=0)
        client.publish("a/b", b"1", 2)
        assert client.only(Publish).qos == 2

    def test_all_identifiers_that_matched_are_named(self) -> None:
        world = World()
        client = world.connect()
        client.subscribe("a/#", identifier=1)
        client.subscribe("a/b", identifier=22)
        client.subscribe("b/#", identifier=3)
        client.subscribe("+/b")
        client.publish("a/b", b"1")
        assert set(client.only(Publish).properties.subscription_ids) == {1, 22}

    def test_texts_and_plain_ones_are_merged(self) -> None:
        world = World()
        client = world.connect()
        client.subscribe("a/#", identifier=1)
        client.subscribe("a/b", identifier=2, qos=1, filter="x > 1")
        client.subscribe("+/b", identifier=3, qos=2, filter="x > 100")
        client.publish("a/b", b'{"x": 5}', 2)
        came = client.only(Publish)
        assert set(came.properties.subscription_ids) == {1, 2}
        assert came.qos == 1

    def test_a_client_that_publishes_cannot_name_identifiers(self) -> None:
        client = World().connect()
        client.publish("a", b"", properties=Properties(subscription_ids=(1,)))
        assert goodbye(client) == Reason.PROTOCOL_ERROR


class TestNoLocal:
    def test_what_one_published_oneself_is_not_heard(self) -> None:
        world = World()
        client = world.connect()
        client.subscribe(Filter("a", no_local=True))
        client.publish("a", b"own", 1)
        assert client.only(Puback).reason == Reason.NO_MATCHING_SUBSCRIBERS
        world.connect("other").publish("a", b"others")
        assert client.payloads() == [b"others"]

    def test_another_subscription_of_the_same_session_hears_it(self) -> None:
        world = World()
        client = world.connect()
        client.subscribe(Filter("a", qos=2, no_local=True), identifier=1)
        client.subscribe(Filter("a/#", qos=1), identifier=2)
        client.publish("a", b"own", 2)
        came = client.only(Publish)
        assert (came.qos, came.properties.subscription_ids) == (1, (2,))

    def test_it_holds_for_texts_too(self) -> None:
        world = World()
        client = world.connect()
        client.subscribe(Filter("a", no_local=True), filter="x = 1")
        client.publish("a", b'{"x": 1}')
        assert client.payloads() == []
        world.connect("other").publish("a", b'{"x": 1}')
        assert client.payloads() == [b'{"x": 1}']

    def test_it_holds_beside_a_text_that_hears_it(self) -> None:
        world = World()
        client = world.connect()
        client.subscribe(Filter("a", qos=2, no_local=True), identifier=1)
        client.subscribe("+", identifier=2, filter="x = 1")
        client.publish("a", b'{"x": 1}', 2)
        came = client.only(Publish)
        assert (came.qos, came.properties.subscription_ids) == (0, (2,))

    def test_it_holds_for_what_moves_up(self) -> None:
        world = World()
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
        world: World, count: int, properties: Properties = NO_PROPERTIES
    ) -> list[SimulatedClient]:
        members = [world.connect(f"member{n}", expiry_s=60) for n in range(count)]
        for member in members:
            member.subscribe("$share/group/a/#", qos=1, properties=properties)
        return members

    def test_each_publication_is_for_one_member_and_they_take_turns(self) -> None:
        world = World()
        members = self.members(world, 3)
        client = world.connect()
        for n in range(30):
            client.publish("a/b", b"%d" % n)
        got = [member.payloads() for member in members]
        assert sorted(int(one) for some in got for one in some) == list(range(30))
        assert all(len(some) == 10 for some in got)

    def test_two_groups_each_get_everything(self) -> None:
        world = World()
        one, two = world.connect("one"), world.connect("two")
        one.subscribe("$share/first/a")
        two.subscribe("$share/second/a")
        world.connect().publish("a", b"1")
        assert one.payloads() == two.payloads() == [b"1"]

    def test_one_group_with_two_filters_is_two_groups(self) -> None:
        world = World()
        one, two = world.connect("one"), world.connect("two")
        one.subscribe("$share/group/a")
        two.subscribe("$share/group/+")
        world.connect().publish("a", b"1")
        assert one.payloads() == two.payloads() == [b"1"]

    def test_others_get_it_all_the_same(self) -> None:
        world = World()
        members = self.members(world, 2)
        plain = world.connect("plain")
        plain.subscribe("a/b")
        client = world.connect()
        for _ in range(4):
            client.publish("a/b", b"1")
        assert len(plain.payloads()) == 4
        assert [len(member.payloads()) for member in members] == [2, 2]

    def test_a_member_that_is_away_is_passed_over(self) -> None:
        world = World()
        here, away = self.members(world, 2)
        away.drop()
        client = world.connect()
        for _ in range(4):
            client.publish("a/b", b"1", 1)
        assert len(here.take_all()) == 4
        away.come_back()
        assert away.payloads() == []

    def test_with_all_members_away_it_waits_for_one(self) -> None:
        world = World()
        members = self.members(world, 2)
        for member in members:
            member.drop()
        world.connect().publish("a/b", b"1", 1)
        for member in members:
            member.come_back()
        assert sorted(member.payloads() for member in members) == [[], [b"1"]]

    def test_a_member_that_leaves_gets_nothing_more(self) -> None:
        world = World()
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
        world = World()
        low, high = world.connect("low"), world.connect("high")
        low.subscribe("$share/group/a", filter="x < 10")
        high.subscribe("$share/group/a", filter="x >= 10")
        client = world.connect()
        for x in (1, 20, 3):
            client.publish("a", b'{"x": %d}' % x)
        assert low.payloads() == [b'{"x": 1}', b'{"x": 3}']
        assert high.payloads() == [b'{"x": 20}']

    def test_members_with_and_without_a_text_share_too(self) -> None:
        world = World()
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
        world = World()
        member = world.connect("member")
        member.subscribe("$share/group/a", qos=1, identifier=5)
        world.connect().publish("a", b"1", 2)
        came = member.only(Publish)
        assert (came.qos, came.properties.subscription_ids) == (1, (5,))

    def test_the_group_survives_a_crash(self) -> None:
        world = World()
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
        world = World(settings=Settings())
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
        world = World()
        client = world.connect()
        client.subscribe(topic_filter)
        texts = world.connect("texts")
        texts.subscribe(topic_filter, filter="topic IS NOT NULL")
        client.publish(topic, b"1")
        assert client.payloads() == texts.payloads() == ([b"1"] if fits else [])
