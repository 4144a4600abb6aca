"""What outlives its delivery: retained and valid publications, replacement, withdrawal, room."""

import gc

import msgspec
import pytest

from rove.broker.access import Rules
from rove.broker.limits import Limits
from rove.broker.publications.publication import Publication
from rove.broker.publications.retained_store import valid_key
from rove.broker.storage.records import encoded
from rove.mqtt.packets import Properties, Puback, Publish, Reason
from rove.testing.mqtt import SimulatedBroker, SimulatedClient


def given(world: SimulatedBroker, topic_filter: str = "#") -> list[bytes]:
    """What a new subscription is given at once."""
    client = world.connect("new")
    client.subscribe(topic_filter)
    payloads = client.payloads()
    client.disconnect()
    return payloads


def unpublish(client: SimulatedClient, id: str) -> int:
    client.inbox.clear()
    client.publish("$rove/unpublish", id.encode(), 1)
    return client.only(Puback).reason


class TestRetained:
    def test_it_survives_a_crash(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.publish("a", b"1", retain=True)
        client.publish("a", b"2", retain=True)
        client.publish("b", b"3", retain=True)
        world.crash()
        assert sorted(given(world)) == [b"2", b"3"]
        assert world.disk.sizes() == {"retained": 2, "publications": 2}

    def test_one_more_than_allowed_is_refused_but_one_can_be_replaced(self) -> None:
        world = SimulatedBroker(limits=Limits(retained_messages_max=1))
        client = world.connect()
        client.publish("a", b"1", 1, retain=True)
        client.publish("b", b"2", 1, retain=True)
        client.publish("a", b"3", 1, retain=True)
        reasons = [packet.reason for packet in client.take(Puback)]
        nobody = Reason.NO_MATCHING_SUBSCRIBERS
        assert reasons == [nobody, Reason.QUOTA_EXCEEDED, nobody]
        assert given(world) == [b"3"]
        assert world.broker.counters.quota_hits == 1

    def test_more_bytes_than_allowed_are_refused_and_the_last_word_stays(self) -> None:
        world = SimulatedBroker(limits=Limits(retained_bytes_max=10))
        client = world.connect()
        client.publish("a", bytes(9), 1, retain=True)
        client.publish("a", bytes(10), 1, retain=True)
        client.publish("b", b"", 1, retain=True)
        client.publish("b", b"1", 1, retain=True)
        reasons = [packet.reason for packet in client.take(Puback)]
        nobody, full = Reason.NO_MATCHING_SUBSCRIBERS, Reason.QUOTA_EXCEEDED
        assert reasons == [nobody, full, nobody, full]
        assert given(world) == [bytes(9)]

    def test_with_qos_0_it_is_then_delivered_and_not_retained(self) -> None:
        world = SimulatedBroker(limits=Limits(retained_messages_max=1))
        watcher = world.connect("watcher")
        watcher.subscribe("#")
        client = world.connect()
        client.publish("a", b"1", retain=True)
        client.publish("b", b"2", retain=True)
        assert watcher.payloads() == [b"1", b"2"]
        assert given(world) == [b"1"]
        assert world.broker.counters.quota_hits == 1

    def test_taking_one_away_makes_room(self) -> None:
        world = SimulatedBroker(limits=Limits(retained_messages_max=1, retained_bytes_max=2))
        client = world.connect()
        for topic in ("a", "b", "c"):
            client.publish(topic, b"1", retain=True)
            client.publish(topic, b"", retain=True)
        client.publish("d", b"4", retain=True)
        assert given(world) == [b"4"]
        assert world.broker.counters.quota_hits == 0

    def test_what_expires_makes_room(self) -> None:
        world = SimulatedBroker(limits=Limits(retained_messages_max=1))
        client = world.connect()
        client.publish("a", b"1", retain=True, properties=Properties(message_expiry_s=5))
        world.advance(6)
        client.publish("b", b"2", retain=True)
        assert given(world) == [b"2"]

    def test_an_older_expiry_does_not_end_a_newer_word(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.publish("a", b"1", retain=True, properties=Properties(message_expiry_s=5))
        client.publish("a", b"2", retain=True)
        world.advance(6)
        assert given(world) == [b"2"]


class TestValid:
    def test_another_with_the_same_id_takes_its_place(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.publish("a", b"1", 1, id="x", valid_for="60")
        client.publish("b", b"2", 1, id="x", valid_for="60")
        assert given(world) == [b"2"]
        assert world.disk.sizes() == {"valid": 1, "publications": 1}

    def test_another_publisher_with_the_same_id_does_not(self) -> None:
        world = SimulatedBroker()
        for name in ("one", "two"):
            world.connect(name).publish("a", name.encode(), 1, id="x", valid_for="60")
        assert sorted(given(world)) == [b"one", b"two"]

    def test_a_replacement_that_ends_earlier_ends_earlier(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.publish("a", b"1", 1, id="x", valid_for="60")
        client.publish("a", b"2", 1, id="x", valid_for="10")
        world.advance(11)
        assert given(world) == []

    def test_a_replacement_that_ends_later_ends_later(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.publish("a", b"1", 1, id="x", valid_for="10")
        client.publish("a", b"2", 1, id="x", valid_for="60")
        world.advance(11)
        assert given(world) == [b"2"]

    def test_it_outlives_its_publisher(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.publish("a", b"1", 1, valid_for="60")
        client.disconnect()
        assert given(world) == [b"1"]

    def test_it_survives_a_crash_until_its_time_is_over(self) -> None:
        world = SimulatedBroker()
        world.connect().publish("a", b"1", 1, id="x", valid_for="60")
        world.advance(30)
        world.crash()
        assert given(world) == [b"1"]
        world.advance(31)
        assert given(world) == []
        assert world.disk.sizes() == {}

    def test_what_ended_while_nobody_was_there_is_not_given(self) -> None:
        world = SimulatedBroker()
        world.connect().publish("a", b"1", 1, id="x", valid_for="60")
        world.now += 100
        world.crash()
        assert given(world) == []

    def test_one_more_than_allowed_is_refused_but_one_can_be_replaced(self) -> None:
        world = SimulatedBroker(limits=Limits(valid_publications_max=1))
        client = world.connect()
        for id, payload in (("x", b"1"), ("y", b"2"), ("x", b"3")):
            client.publish("a", payload, 1, id=id, valid_for="60")
        reasons = [packet.reason for packet in client.take(Puback)]
        nobody = Reason.NO_MATCHING_SUBSCRIBERS
        assert reasons == [nobody, Reason.QUOTA_EXCEEDED, nobody]
        assert given(world) == [b"3"]

    def test_more_bytes_than_allowed_are_refused(self) -> None:
        world = SimulatedBroker(limits=Limits(valid_bytes_max=10))
        client = world.connect()
        for id, size in (("x", 9), ("y", 1), ("x", 10)):
            client.publish("a", bytes(size), 1, id=id, valid_for="60")
        reasons = [packet.reason for packet in client.take(Puback)]
        full = Reason.QUOTA_EXCEEDED
        assert reasons == [Reason.NO_MATCHING_SUBSCRIBERS, full, full]
        assert given(world) == [bytes(9)]

    def test_with_qos_0_it_is_then_delivered_and_not_kept(self) -> None:
        world = SimulatedBroker(limits=Limits(valid_publications_max=1))
        watcher = world.connect("watcher")
        watcher.subscribe("#")
        client = world.connect()
        client.publish("a", b"1", valid_for="60")
        client.publish("a", b"2", valid_for="60")
        assert watcher.payloads() == [b"1", b"2"]
        assert given(world) == [b"1"]

    def test_room_comes_back(self) -> None:
        world = SimulatedBroker(limits=Limits(valid_publications_max=1, valid_bytes_max=3))
        client = world.connect()
        client.publish("a", b"1", 1, id="x", valid_for="60")
        assert unpublish(client, "x") == Reason.SUCCESS
        client.publish("a", b"2", 1, id="y", valid_for="10")
        world.advance(11)
        client.publish("a", b"3", 1, id="z", valid_for="10")
        assert given(world) == [b"3"]
        assert world.broker.counters.quota_hits == 0


class TestWithdrawal:
    def test_a_valid_one_is_given_to_nobody_any_more(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.publish("a", b"1", 1, id="x", valid_for="60")
        assert unpublish(client, "x") == Reason.SUCCESS
        assert given(world) == []
        assert world.disk.sizes() == {}
        assert world.broker.counters.publications_withdrawn == 1

    def test_a_retained_one_is_given_to_nobody_any_more(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.publish("a", b"1", 1, retain=True, id="x")
        assert unpublish(client, "x") == Reason.SUCCESS
        assert given(world) == []
        assert world.disk.sizes() == {}

    def test_copies_that_wait_are_not_delivered(self) -> None:
        world = SimulatedBroker()
        away = world.connect("away", expiry_s=60)
        away.subscribe("a", qos=1)
        away.drop()
        client = world.connect()
        client.publish("a", b"1", 1, id="x")
        assert unpublish(client, "x") == Reason.SUCCESS
        away.come_back()
        assert away.take(Publish) == []

    def test_only_the_publisher_may(self) -> None:
        world = SimulatedBroker()
        owner, other = world.connect("owner"), world.connect("other")
        owner.publish("a", b"1", 1, id="x", valid_for="60")
        assert unpublish(other, "x") == Reason.IMPLEMENTATION_SPECIFIC_ERROR
        assert given(world) == [b"1"]
        assert unpublish(owner, "x") == Reason.SUCCESS

    def test_it_can_be_done_once(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.publish("a", b"1", 1, id="x", valid_for="60")
        assert unpublish(client, "x") == Reason.SUCCESS
        assert unpublish(client, "x") == Reason.IMPLEMENTATION_SPECIFIC_ERROR

    def test_what_never_was_cannot_be_withdrawn(self) -> None:
        client = SimulatedBroker().connect()
        assert unpublish(client, "x") == Reason.IMPLEMENTATION_SPECIFIC_ERROR

    @pytest.mark.parametrize("in_one_commit", [False, True])
    def test_it_holds_across_a_crash(self, in_one_commit: bool) -> None:
        world = SimulatedBroker()
        away = world.connect("away", expiry_s=60)
        away.subscribe("a", qos=1)
        away.drop()
        client = world.connect(expiry_s=60)
        world.holds_commits = in_one_commit
        client.publish("a", b"1", 1, id="x", valid_for="60")
        client.publish("$rove/unpublish", b"x", 1)
        world.commit()
        world.holds_commits = False
        world.crash()
        away.come_back()
        assert away.payloads() == []
        assert given(world) == []
        assert world.disk.sizes() == {"sessions": 2, "subscriptions": 1}

    def test_a_publisher_can_withdraw_after_a_crash(self) -> None:
        world = SimulatedBroker()
        away = world.connect("away", expiry_s=60)
        away.subscribe("a", qos=1)
        away.drop()
        client = world.connect(expiry_s=60)
        client.publish("a", b"1", 1, id="x")
        client.publish("a", b"2", 1, id="y", valid_for="60")
        world.crash()
        client.come_back()
        assert unpublish(client, "x") == Reason.SUCCESS
        assert unpublish(client, "y") == Reason.SUCCESS
        away.come_back()
        assert away.payloads() == []
        assert given(world) == []

    def test_a_withdrawn_id_can_be_used_again(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.publish("a", b"1", 1, id="x", valid_for="60")
        unpublish(client, "x")
        client.publish("a", b"2", 1, id="x", valid_for="60")
        assert given(world) == [b"2"]


def test_no_two_names_have_one_key() -> None:
    pairs = [("a", "bc"), ("ab", "c"), ("", "abc"), ("1:a", "b"), ("1", ":ab"), ("1@a0:", "")]
    names = [(user, *pair) for user in (None, "a", "1", "1:", "a1:a") for pair in pairs]
    assert len({valid_key(name) for name in names}) == len(names)


class TestOwners:
    """Client ids are nobody's for long; what was published stays its user's."""

    def alices(self, world: SimulatedBroker, **options: object) -> SimulatedClient:
        """A client that has gone, session and all, and left something to an absent subscriber."""
        away = world.connect("away", expiry_s=1000)
        away.subscribe("a", qos=1)
        away.drop()
        alice = world.connect("sensor", user="alice")
        alice.publish("a", b"alice", 1, id="x", **options)  # type: ignore[arg-type]
        alice.disconnect()
        return away

    @pytest.mark.parametrize("user", ["bob", None])
    @pytest.mark.parametrize("crashes", [False, True])
    def test_another_user_with_the_client_id_cannot_withdraw(
        self, user: str | None, crashes: bool
    ) -> None:
        world = SimulatedBroker()
        away = self.alices(world, valid_for="forever", retain=True)
        if crashes:
            world.crash()
        other = world.connect("sensor", user=user)
        assert unpublish(other, "x") == Reason.IMPLEMENTATION_SPECIFIC_ERROR
        away.come_back()
        assert away.payloads() == [b"alice"]
        assert given(world) == [b"alice"]

    def test_another_user_with_the_client_id_cannot_replace(self) -> None:
        world = SimulatedBroker()
        away = self.alices(world, valid_for="forever")
        bob = world.connect("sensor", user="bob")
        bob.publish("b", b"bob", 1, id="x", valid_for="forever")
        world.crash()
        assert sorted(given(world)) == [b"alice", b"bob"]
        assert unpublish(world.connect("sensor", user="bob"), "x") == Reason.SUCCESS
        assert given(world) == [b"alice"]
        away.come_back()
        assert away.payloads() == [b"alice"]

    def test_the_user_can_withdraw_from_another_client(self) -> None:
        world = SimulatedBroker()
        away = self.alices(world, valid_for="forever")
        assert unpublish(world.connect("phone", user="alice"), "x") == Reason.SUCCESS
        away.come_back()
        assert away.payloads() == given(world) == []
        assert world.disk.tables["valid"] == {}

    def test_clients_of_one_user_have_ids_of_their_own(self) -> None:
        world = SimulatedBroker()
        one, two = world.connect("one", user="alice"), world.connect("two", user="alice")
        one.publish("a", b"1", 1, id="x", valid_for="60")
        two.publish("a", b"2", 1, id="x", valid_for="60")
        assert sorted(given(world)) == [b"1", b"2"]
        assert unpublish(one, "x") == Reason.SUCCESS
        assert given(world) == [b"2"]

    def test_the_rules_of_the_topic_hold_for_withdrawing(self) -> None:
        world = SimulatedBroker(rules=Rules.without_file())
        alice = world.connect("sensor", user="alice")
        alice.publish("a", b"1", 1, id="x", valid_for="60")
        rules = Rules.parse("allow user * publish,subscribe #\ndeny user alice publish a", "rules")
        world.broker.reconfigure(Limits(), rules, is_guarded=True)
        assert unpublish(alice, "x") == Reason.NOT_AUTHORIZED
        alice.inbox.clear()
        alice.publish("b", b"2", 1, id="x", valid_for="60")
        assert alice.only(Puback).reason == Reason.NOT_AUTHORIZED
        alice.publish("b", b"3", 0, id="x", valid_for="60")
        assert given(world) == [b"1"]


class TestStoredBeforeOwners:
    """Rows that do not say who published."""

    def old_world(self, *, session_stays: bool, user: str | None) -> SimulatedBroker:
        world = SimulatedBroker()
        expiry_s = 1000 if session_stays else 0
        client = world.connect("sensor", user=user, expiry_s=expiry_s)
        client.publish("a", b"1", 1, id="x", valid_for="forever")
        client.disconnect()
        tables = world.disk.tables
        for number, row in tables["publications"].items():
            tables["publications"][number] = encoded(msgspec.msgpack.decode(row)[:-1])
        ((_, numbered),) = tables["valid"].items()
        tables["valid"] = {valid_key((None, "sensor", "x")): numbered}
        world.crash()
        return world

    def test_nothing_is_lost(self) -> None:
        world = self.old_world(session_stays=True, user="alice")
        assert given(world) == [b"1"]
        world.crash()
        assert given(world) == [b"1"]
        assert list(world.disk.tables["valid"]) == [valid_key(("alice", "sensor", "x"))]

    def test_the_publishers_session_says_whose_it_is(self) -> None:
        world = self.old_world(session_stays=True, user="alice")
        world.advance(1001)
        world.crash()
        bob = world.connect("sensor", user="bob")
        assert unpublish(bob, "x") == Reason.IMPLEMENTATION_SPECIFIC_ERROR
        assert unpublish(world.connect("phone", user="alice"), "x") == Reason.SUCCESS
        assert world.disk.tables["valid"] == {}

    @pytest.mark.parametrize("user", ["alice", None])
    def test_without_a_session_it_is_whose_client_id_it_is(self, user: str | None) -> None:
        world = self.old_world(session_stays=False, user=user)
        client = world.connect("sensor", user=user)
        client.publish("a", b"2", 1, id="x", valid_for="forever")
        world.crash()
        assert given(world) == [b"2"]
        assert unpublish(world.connect("sensor", user=user), "x") == Reason.SUCCESS
        assert world.disk.tables["valid"] == world.disk.tables["publications"] == {}


def test_what_was_replaced_is_not_remembered_until_its_time_is_over() -> None:
    world = SimulatedBroker()
    client = world.connect()
    gc.collect()
    before = sum(type(one) is Publication for one in gc.get_objects())
    for n in range(1_000):
        said = Properties(user=(("id", "x"), ("valid-for", "90000")), message_expiry_s=80_000)
        client.publish("a", b"%d" % n, retain=True, properties=said)
    gc.collect()
    assert sum(type(one) is Publication for one in gc.get_objects()) - before < 300
    assert given(world) == [b"999"]
    world.advance(80_001)
    assert given(world) == []


def test_without_room_for_what_is_valid_nothing_is_retained_either() -> None:
    world = SimulatedBroker(limits=Limits(valid_publications_max=1))
    client = world.connect()
    client.publish("a", b"1", 1, id="x", valid_for="60")
    client.publish("b", b"2", 1, retain=True, id="y", valid_for="60")
    assert client.take(Puback)[1].reason == Reason.QUOTA_EXCEEDED
    assert given(world) == [b"1"]
