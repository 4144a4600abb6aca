"""What Spark found: delivered as if it had been found here, and once whatever comes again."""

import json
import random
from base64 import b64encode
from typing import Any

import msgspec
import pytest

from rove.broker.access import AccessRules
from rove.broker.context import BrokerSettings, LakeStream
from rove.broker.notifications import feeds
from rove.broker.storage.records import LogRow
from rove.mqtt.packets import (
    V311,
    Filter,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Reason,
    Suback,
    Subscribe,
)
from rove.testing.mqtt import SimulatedBroker, SimulatedClient

KEPT = BrokerSettings(
    channels=(LakeStream("all", ("#",), frozenset(("publications", "notifications"))),),
    keeps_subscriptions=True,
)
ADMIN = AccessRules.without_file(anonymous_is_admin=True)


def new_world(**options: Any) -> SimulatedBroker:
    return SimulatedBroker(settings=KEPT, rules=options.pop("rules", ADMIN), **options)


def served(client: SimulatedClient, text: str = "x > 1", **options: Any) -> int:
    """Make a subscription that Spark serves; its number."""
    options.setdefault("qos", 1)
    answer = client.subscribe("air/#", filter=text, engine="spark", **options)
    assert answer.reasons == (options["qos"],)
    return client.world.broker.context.next_subscription - 1


def found(sequence: int, *numbers: int, **facts: Any) -> dict[str, Any]:
    payload = facts.pop("payload", b'{"x": %d}' % sequence)
    return {
        "sequence": sequence,
        "subscriptions": numbers,
        "topic": "air/zagreb",
        "payload": b64encode(payload).decode(),
        "id": f"p{sequence}",
        "client_id": "sensor",
        "at": 999_990.0 + sequence,
        **facts,
    }


def deliver(pipeline: SimulatedClient, *notifications: dict[str, Any], **facts: Any) -> Puback:
    body = {"feed": "spark", "notifications": notifications, **facts}
    pipeline.publish("$rove/deliver", msgspec.json.encode(body), 1)
    return pipeline.only(Puback)


def sequence_of(answer: Puback) -> int:
    assert answer.reason == Reason.SUCCESS
    ((name, value),) = answer.properties.user
    assert name == "sequence"
    return int(value)


class TestDelivering:
    def test_the_session_is_notified_as_if_it_had_been_found_here(self) -> None:
        world = new_world()
        alice, pipeline = world.connect("alice"), world.connect("pipeline")
        number = served(alice, "SELECT x WHERE x > 1", identifier=7)
        one = found(3, number, payload=b'{"x": 5, "y": 6}', user=[["unit", "µg"]])
        assert sequence_of(deliver(pipeline, one)) == 3
        (packet,) = alice.take(Publish)
        assert (packet.topic, packet.payload, packet.qos) == ("air/zagreb", b'{"x":5}', 1)
        assert packet.properties.subscription_ids == (7,)
        assert packet.properties.user == (("unit", "µg"),)

    def test_nothing_comes_by_itself(self) -> None:
        world = new_world()
        alice = world.connect("alice")
        alice.publish("air/kept", b'{"x": 3}', retain=True)
        served(alice)
        alice.publish("air/zagreb", b'{"x": 5}')
        alice.publish("$rove/me", b'{"x": 5}')
        world.advance(100)
        assert alice.payloads() == []

    def test_a_session_is_notified_once_of_what_several_of_its_subscriptions_met(self) -> None:
        world = new_world()
        alice, bob, pipeline = (world.connect(name) for name in ("alice", "bob", "pipeline"))
        numbers = [served(alice, identifier=1, qos=0), served(alice, identifier=2)]
        numbers.append(served(bob, identifier=3))
        deliver(pipeline, found(1, *numbers))
        (packet,) = alice.take(Publish)
        assert (packet.qos, packet.properties.subscription_ids) == (1, (1, 2))
        assert bob.payloads() == [b'{"x": 1}']

    def test_quality_is_that_of_the_publication_at_most(self) -> None:
        world = new_world()
        alice, pipeline = world.connect("alice"), world.connect("pipeline")
        number = served(alice, qos=2)
        deliver(pipeline, *(found(qos + 1, number, qos=qos) for qos in (0, 1, 2)))
        assert [packet.qos for packet in alice.take(Publish)] == [0, 1, 2]

    def test_own_publications_are_left_out_where_asked(self) -> None:
        world = new_world()
        alice, pipeline = world.connect("alice"), world.connect("pipeline")
        user = (("filter", "x > 1"), ("engine", "spark"))
        asked = Filter("air/#", 1, no_local=True)
        alice.send(Subscribe(1, (asked,), Properties(user=user)))
        assert alice.only(Suback).reasons == (1,)
        number = world.broker.context.next_subscription - 1
        deliver(pipeline, found(1, number, client_id="alice"), found(2, number))
        assert alice.payloads() == [b'{"x": 2}']

    def test_what_rules_keep_from_a_subscriber_is_not_delivered(self) -> None:
        rules = "allow user * subscribe air/#\ndeny user alice subscribe air/zagreb\n"
        rules += "allow user pipeline admin"
        settings = msgspec.structs.replace(KEPT, is_guarded=True)
        world = SimulatedBroker(settings=settings, rules=AccessRules.parse(rules, "rules"))
        alice = world.connect("alice", user="alice")
        pipeline = world.connect("pipeline", user="pipeline")
        number = served(alice)
        deliver(pipeline, found(1, number), found(2, number, topic="air/split"))
        assert [packet.topic for packet in alice.take(Publish)] == ["air/split"]

    def test_a_subscription_that_is_gone_is_passed_over_and_counted(self) -> None:
        world = new_world()
        alice, pipeline = world.connect("alice"), world.connect("pipeline")
        number = served(alice)
        alice.unsubscribe("air/#")
        alice.subscribe("live", filter="x > 1")
        live = world.broker.context.next_subscription - 1
        assert sequence_of(deliver(pipeline, found(1, number, live, 999))) == 1
        assert alice.payloads() == []
        assert world.broker.counters.deliveries_gone == 3

    def test_an_old_publication_waits_as_long_as_a_new_one(self) -> None:
        world = new_world()
        alice, pipeline = world.connect("alice", expiry_s=10**6), world.connect("pipeline")
        number = served(alice)
        alice.drop()
        deliver(pipeline, found(1, number, at=1.0))
        world.advance(6 * 24 * 3600)
        alice.come_back()
        assert [packet.payload for packet in alice.take_all()] == [b'{"x": 1}']

    def test_the_log_says_who_found_it(self) -> None:
        world = new_world()
        alice, pipeline = world.connect("alice"), world.connect("pipeline")
        number = served(alice)
        deliver(pipeline, found(1, number), found(2, number, score=2.5, promoted=True))
        rows = world.disk.read("log", LogRow).values()
        told = [row for row in rows if row.kind == "notifications"]
        assert [(row.client_id, row.id, row.subscriptions) for row in told] == [
            ("alice", "p1", (number,)),
            ("alice", "p2", (number,)),
        ]
        assert [json.loads(row.payload) for row in told] == [
            {"engine": "spark"},
            {"engine": "spark", "score": 2.5, "promoted": True},
        ]


class TestPublicationsThatAreStillThere:
    def test_it_is_sent_as_it_came(self) -> None:
        world = new_world()
        alice, sensor, pipeline = (world.connect(name) for name in ("alice", "sensor", "pipeline"))
        number = served(alice)
        properties = Properties(
            user=(("id", "p1"), ("valid-for", "60")), content_type="json", message_expiry_s=30
        )
        sensor.publish("air/zagreb", b'{"x": 9}', 1, properties=properties)
        world.advance(10)
        deliver(pipeline, found(1, number, at=world.now - 10))
        (packet,) = alice.take(Publish)
        assert packet.payload == b'{"x": 9}'
        assert (packet.properties.content_type, packet.properties.message_expiry_s) == ("json", 20)

    def test_another_one_of_that_name_is_not_taken_for_it(self) -> None:
        world = new_world()
        alice, sensor, pipeline = (world.connect(name) for name in ("alice", "sensor", "pipeline"))
        number = served(alice)
        sensor.publish("air/zagreb", b"later", 1, id="p1", valid_for="60")
        deliver(pipeline, found(1, number))
        assert alice.payloads() == [b'{"x": 1}']
        sensor.inbox.clear()
        sensor.publish("$rove/unpublish", b"p1", 1)
        assert sensor.only(Puback).reason == Reason.SUCCESS

    def test_what_was_withdrawn_is_not_delivered(self) -> None:
        world = new_world()
        alice, sensor, pipeline = (world.connect(name) for name in ("alice", "sensor", "pipeline"))
        number = served(alice)
        at = world.now
        bob = world.connect("bob", expiry_s=100)
        bob.subscribe("air/#", qos=1)
        bob.drop()
        sensor.publish("air/zagreb", b'{"x": 9}', 1, id="p1")
        sensor.publish("$rove/unpublish", b"p1", 1)
        deliver(pipeline, found(1, number, at=at))
        assert alice.payloads() == []
        assert world.broker.counters.deliveries_gone == 1

    def test_it_can_be_withdrawn_while_it_waits(self) -> None:
        world = new_world()
        alice, sensor, pipeline = (world.connect(name) for name in ("alice", "sensor", "pipeline"))
        alice = world.connect("alice", expiry_s=100)
        number = served(alice)
        alice.drop()
        at = world.now + 1
        deliver(pipeline, found(1, number, user=[["id", "p1"]], at=at), found(2, number))
        sensor.publish("$rove/unpublish", b"p1", 1)
        alice.come_back()
        assert [packet.payload for packet in alice.take_all()] == [b'{"x": 2}']

    def test_a_later_owner_of_the_client_id_cannot_withdraw_it(self) -> None:
        world = new_world()
        alice, pipeline = world.connect("alice", expiry_s=100), world.connect("pipeline")
        number = served(alice)
        alice.drop()
        at = world.now
        world.advance(1)
        other = world.connect("sensor", user="other")
        deliver(pipeline, found(1, number, user=[["id", "p1"]], at=at))
        other.publish("$rove/unpublish", b"p1", 1)
        assert other.only(Puback).reason == Reason.IMPLEMENTATION_SPECIFIC_ERROR
        alice.come_back()
        assert [packet.payload for packet in alice.take_all()] == [b'{"x": 1}']


class TestOnce:
    def test_what_comes_again_adds_nothing(self) -> None:
        world = new_world()
        alice, pipeline = world.connect("alice"), world.connect("pipeline")
        number = served(alice)
        deliver(pipeline, found(1, number), found(2, number))
        again = deliver(pipeline, found(1, number), found(2, number), found(3, number))
        assert sequence_of(again) == 3
        assert sequence_of(deliver(pipeline, found(2, number))) == 3
        assert alice.payloads() == [b'{"x": 1}', b'{"x": 2}', b'{"x": 3}']
        counters = world.broker.counters
        assert (counters.deliveries_taken, counters.deliveries_repeated) == (3, 3)

    def test_feeds_do_not_know_of_each_other(self) -> None:
        world = new_world()
        alice, pipeline = world.connect("alice"), world.connect("pipeline")
        number = served(alice)
        deliver(pipeline, found(5, number))
        assert sequence_of(deliver(pipeline, found(2, number), feed="other")) == 2
        assert alice.payloads() == [b'{"x": 5}', b'{"x": 2}']

    def test_a_feed_can_be_asked_how_far_it_is(self) -> None:
        world = new_world()
        pipeline = world.connect("pipeline")
        assert sequence_of(deliver(pipeline)) == 0
        assert world.broker.feeds.last == {}
        deliver(pipeline, found(2**63 - 1))
        assert sequence_of(deliver(pipeline)) == 2**63 - 1

    def test_a_gap_is_refused_and_nothing_of_it_is_delivered(self) -> None:
        world = new_world()
        alice, pipeline = world.connect("alice"), world.connect("pipeline")
        number = served(alice)
        deliver(pipeline, found(4, number))
        answer = deliver(pipeline, found(9, number), after=7)
        assert answer.reason == Reason.PAYLOAD_FORMAT_INVALID
        assert answer.properties.reason_string == (
            "$rove/deliver: the feed 'spark' is at 4 and this begins after 7; "
            "send first what lies between"
        )
        assert sequence_of(deliver(pipeline, found(7, number), found(9, number), after=4)) == 9
        assert alice.payloads() == [b'{"x": 4}', b'{"x": 7}', b'{"x": 9}']

    def test_the_answer_waits_for_the_commit_and_a_crash_takes_back_both(self) -> None:
        world = new_world()
        alice, pipeline = world.connect("alice", expiry_s=100), world.connect("pipeline")
        number = served(alice)
        world.holds_commits = True
        body = msgspec.json.encode({"feed": "spark", "notifications": [found(1, number)]})
        pipeline.publish("$rove/deliver", body, 1)
        assert (alice.inbox, pipeline.inbox) == ([], [])
        world.crash()
        world.holds_commits = False
        alice.come_back()
        pipeline.connect()
        assert alice.take_all() == []
        assert sequence_of(deliver(pipeline, found(1, number))) == 1
        assert [packet.payload for packet in alice.take_all()] == [b'{"x": 1}']
        world.crash()
        alice.come_back()
        pipeline.connect()
        assert sequence_of(deliver(pipeline, found(1, number))) == 1
        assert alice.take_all() == []


class Sender:
    """Sends a feed as the deliverer does, in packets of some notifications."""

    def __init__(self, client: SimulatedClient, feed: list[dict[str, Any]]) -> None:
        self.client = client
        self.feed = feed
        self.acknowledged = 0

    def begin(self) -> None:
        self.client.send_connect()

    def send(self, first: int, count: int) -> None:
        some = self.feed[first : first + count]
        after = self.feed[first - 1]["sequence"] if first else 0
        body = {"feed": "spark", "after": after, "notifications": some}
        self.client.publish("$rove/deliver", msgspec.json.encode(body), 1)

    def hear(self) -> None:
        for answer in self.client.take(Puback):
            if answer.reason == Reason.SUCCESS:
                self.acknowledged = max(self.acknowledged, sequence_of(answer))


class Receiver:
    """A subscriber of QoS 2 who keeps its side of the bargain: what it takes, it takes once."""

    def __init__(self, client: SimulatedClient) -> None:
        self.client = client
        self.came: list[bytes] = []
        self._unreleased: set[int] = set()

    def come_back(self) -> None:
        self.client.send_connect(clean_start=False, expiry_s=10**6)

    def hear(self) -> None:
        for packet in self.client.take(Publish):
            if packet.packet_id not in self._unreleased:
                self.came.append(packet.payload)
                self._unreleased.add(packet.packet_id)
            self.client.send(Pubrec(packet.packet_id))
        for release in self.client.take(Pubrel):
            self._unreleased.discard(release.packet_id)
            self.client.send(Pubcomp(release.packet_id))


@pytest.mark.parametrize("seed", range(40))
def test_crashes_between_any_two_steps_lose_nothing_and_repeat_nothing(seed: int) -> None:
    draw = random.Random(seed)
    world = new_world()
    alice = world.connect("alice", expiry_s=10**6)
    number = served(alice, qos=2)
    feed = [found(10 * place + 1, number, qos=2) for place in range(40)]
    sender, receiver = Sender(world.client("pipeline"), feed), Receiver(alice)
    sender.begin()
    world.holds_commits = True
    for _ in range(5_000):
        match draw.randrange(40):
            case 0:
                world.crash()
                sender.begin()
                receiver.come_back()
            case 1:
                alice.drop()
                receiver.come_back()
            case 2 | 3 | 4 | 5 | 6 | 7:
                world.commit(draw.randrange(1, 4))
            case 8 | 9 | 10 | 11:
                receiver.hear()
            case 12:
                world.advance(0.1)
            case 13 | 14 | 15 | 16:
                # From where the broker was last said to be, or from anywhere: numbers decide.
                done = sum(one["sequence"] <= sender.acknowledged for one in feed)
                first = done if draw.random() < 0.7 else draw.randrange(len(feed))
                sender.send(first, draw.randrange(1, 6))
            case _:
                sender.hear()
        if sender.acknowledged == feed[-1]["sequence"]:
            break
    assert sender.acknowledged == feed[-1]["sequence"]
    world.holds_commits = False
    world.commit()
    for _ in range(20):
        world.advance(0.1)
        receiver.hear()
    assert receiver.came == [b'{"x": %d}' % one["sequence"] for one in feed]


class TestRefusals:
    def test_only_administrators_may(self) -> None:
        world = new_world(rules=AccessRules.without_file())
        alice, eve = world.connect("alice"), world.connect("eve", user="eve")
        answer = deliver(eve, found(1, served(alice)))
        assert answer.reason == Reason.NOT_AUTHORIZED
        assert answer.properties.reason_string == "$rove/deliver needs the right `admin`"
        assert sequence_of(deliver(world.connect("root", user="admin"), found(1))) == 1
        assert alice.payloads() == []

    @pytest.mark.parametrize(
        ("wrong", "why"),
        [
            ({"feed": ""}, "length >= 1"),
            ({"feed": 7}, "Expected `str`"),
            ({"after": -1}, ">= 0"),
            ({"notifications": [{"sequence": 1}]}, "missing required field"),
            ({"notifications": [found(2**63)]}, "<= 9223372036854775807"),
            ({"notifications": [found(1, payload=b"x") | {"payload": "?"}]}, "base64"),
            ({"notifications": [found(1, qos=3)]}, "<= 2"),
            ({"notifications": [found(1, topic="a/#")]}, "notification 1: "),
            ({"notifications": [found(1), found(2, user=[["a", "\0"]])]}, "notification 2: "),
        ],
    )
    def test_what_cannot_be_understood_is_refused_as_a_whole(
        self, wrong: dict[str, Any], why: str
    ) -> None:
        world = new_world()
        answer = deliver(world.connect("pipeline"), **wrong)
        assert answer.reason == Reason.PAYLOAD_FORMAT_INVALID
        assert why in (answer.properties.reason_string or "")
        assert world.broker.feeds.last == {}

    def test_there_may_be_so_many_feeds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(feeds, "FEEDS_MAX", 2)
        world = new_world()
        pipeline = world.connect("pipeline")
        for name in ("a", "b"):
            deliver(pipeline, found(1), feed=name)
        assert deliver(pipeline, found(1), feed="c").reason == Reason.QUOTA_EXCEEDED
        assert sequence_of(deliver(pipeline, found(2), feed="a")) == 2
        assert world.broker.counters.quota_hits == 1

    def test_3_1_1_may_deliver_too_but_is_told_nothing(self) -> None:
        world = new_world()
        alice, pipeline = world.connect("alice"), world.connect("pipeline", version=V311)
        assert deliver(pipeline, found(1, served(alice))) == Puback(1)
        assert alice.payloads() == [b'{"x": 1}']
