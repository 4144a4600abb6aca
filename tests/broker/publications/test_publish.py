"""From PUBLISH to notification: a test per rule of the specification, and per rule of ours."""

import pytest

from rove.broker.access import AccessRules
from rove.broker.context import BrokerSettings
from rove.broker.limits import Limits
from rove.broker.publications.publish import RECENT_MAX, moment_of
from rove.mqtt.packets import (
    V5,
    V311,
    Disconnect,
    Filter,
    Packet,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Reason,
)
from rove.testing.mqtt import SimulatedBroker, SimulatedClient


def goodbye(client: SimulatedClient) -> int:
    """Why the broker closed the connection."""
    assert client.is_closed()
    last = client.inbox[-1]
    assert isinstance(last, Disconnect)
    return last.reason


class TestQuality:
    @pytest.mark.parametrize("published", [0, 1, 2])
    @pytest.mark.parametrize("granted", [0, 1, 2])
    def test_the_lower_of_published_and_granted_is_delivered(
        self, published: int, granted: int
    ) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe("a", qos=granted)
        client.publish("a", b"1", published)
        assert client.only(Publish).qos == min(published, granted)

    def test_qos_0_is_not_acknowledged(self) -> None:
        client = SimulatedBroker().connect()
        client.publish("a", b"1", 0)
        assert client.inbox == []

    def test_qos_1_is_acknowledged_once(self) -> None:
        client = SimulatedBroker().connect()
        client.publish("a", b"1", 1, packet_id=7)
        assert client.only(Puback).packet_id == 7
        assert client.inbox == []

    def test_qos_2_is_received_then_released_then_complete(self) -> None:
        client = SimulatedBroker().connect()
        client.publish("a", b"1", 2, packet_id=7)
        assert client.only(Pubrec).packet_id == 7
        client.send(Pubrel(7))
        assert client.inbox == [Pubcomp(7)]

    def test_qos_2_that_comes_again_is_taken_once(self) -> None:
        world = SimulatedBroker()
        subscriber = world.connect("subscriber")
        subscriber.subscribe("a", qos=2)
        client = world.connect()
        for dup in (False, True, True):
            client.publish("a", b"1", 2, packet_id=7, dup=dup)
        assert [packet.reason for packet in client.take(Pubrec)] == [0, 0, 0]
        assert subscriber.payloads() == [b"1"]
        assert world.broker.counters.publications_repeated == 2

    def test_qos_2_that_comes_again_after_a_reconnection_is_taken_once(self) -> None:
        world = SimulatedBroker()
        subscriber = world.connect("subscriber")
        subscriber.subscribe("a", qos=2)
        client = world.connect(expiry_s=60)
        client.publish("a", b"1", 2, packet_id=7)
        client.drop()
        client.come_back()
        client.publish("a", b"1", 2, packet_id=7, dup=True)
        assert client.only(Pubrec).packet_id == 7
        client.send(Pubrel(7))
        assert client.only(Pubcomp).reason == Reason.SUCCESS
        assert subscriber.payloads() == [b"1"]

    def test_a_released_packet_identifier_is_free_again(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe("a")
        for _ in range(2):
            client.publish("a", b"1", 2, packet_id=7)
            client.send(Pubrel(7))
        assert client.payloads() == [b"1", b"1"]

    def test_a_release_of_nothing_is_answered_so(self) -> None:
        client = SimulatedBroker().connect()
        client.send(Pubrel(9))
        assert client.inbox == [Pubcomp(9, Reason.PACKET_ID_NOT_FOUND)]

    def test_a_release_that_comes_again_is_answered_again(self) -> None:
        client = SimulatedBroker().connect(version=V311)
        client.publish("a", b"1", 2, packet_id=7)
        client.inbox.clear()
        client.send(Pubrel(7))
        client.send(Pubrel(7))
        assert client.inbox == [Pubcomp(7), Pubcomp(7)]

    def test_nobody_subscribed_is_said_in_the_answer(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.publish("a", b"1", 1)
        client.publish("a", b"1", 2)
        assert client.only(Puback).reason == Reason.NO_MATCHING_SUBSCRIBERS
        assert client.only(Pubrec).reason == Reason.NO_MATCHING_SUBSCRIBERS
        assert world.broker.counters.publications_unmatched == 2

    def test_somebody_subscribed_is_said_in_the_answer(self) -> None:
        world = SimulatedBroker()
        world.connect("subscriber").subscribe("a")
        client = world.connect()
        client.publish("a", b"1", 1)
        client.publish("a", b"1", 2)
        assert client.only(Puback).reason == Reason.SUCCESS
        assert client.only(Pubrec).reason == Reason.SUCCESS

    def test_answers_keep_the_order_of_what_they_answer(self) -> None:
        client = SimulatedBroker().connect()
        client.send(*(Publish("a", b"", 1, packet_id=n) for n in (5, 3, 9)))
        assert [packet.packet_id for packet in client.take(Puback)] == [5, 3, 9]
        client.send(*(Publish("a", b"", 2, packet_id=n) for n in (5, 3, 9)))
        assert [packet.packet_id for packet in client.take(Pubrec)] == [5, 3, 9]
        client.send(*(Pubrel(n) for n in (9, 5, 3)))
        assert [packet.packet_id for packet in client.take(Pubcomp)] == [9, 5, 3]

    def test_the_publishers_dup_is_not_passed_on(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe("a", qos=1)
        client.publish("a", b"1", 1, dup=True)
        assert not client.only(Publish).dup


class TestOrder:
    @pytest.mark.parametrize("qos", [0, 1, 2])
    def test_publications_of_one_topic_keep_their_order(self, qos: int) -> None:
        world = SimulatedBroker()
        subscriber = world.connect("subscriber")
        subscriber.subscribe("a/#", qos=2)
        client = world.connect()
        wanted = []
        for turn in range(20):
            packets: list[Packet] = []
            for one in range(3):
                wanted.append(b"%d" % (turn * 3 + one))
                packets.append(Publish("a/b", wanted[-1], qos, packet_id=len(wanted) if qos else 0))
            client.send(*packets)
        assert [packet.payload for packet in subscriber.take_all()] == wanted

    def test_publications_of_one_turn_keep_their_order_with_texts_too(self) -> None:
        world = SimulatedBroker()
        subscriber = world.connect("subscriber")
        subscriber.subscribe("a", qos=1, filter="n >= 0")
        client = world.connect()
        wanted = [b'{"n": %d}' % n for n in range(50)]
        client.send(*(Publish("a", payload) for payload in wanted))
        assert subscriber.payloads() == wanted

    def test_a_client_that_subscribes_and_publishes_in_one_breath_meets_itself(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.say(Publish("a", b"before"))
        client.send_subscribe("a")
        client.say(Publish("a", b"after"))
        world.turn()
        assert client.payloads() == [b"after"]


class TestTopicAlias:
    @staticmethod
    def aliased(topic: str, payload: bytes, alias: int) -> Publish:
        return Publish(topic, payload, properties=Properties(topic_alias=alias))

    def test_an_alias_stands_for_its_topic(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe("a/b")
        client.send(self.aliased("a/b", b"1", 3), self.aliased("", b"2", 3))
        came = client.take(Publish)
        assert [(packet.topic, packet.payload) for packet in came] == [("a/b", b"1"), ("a/b", b"2")]
        assert all(packet.properties.topic_alias is None for packet in came)

    def test_an_alias_can_be_given_to_another_topic(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe("#")
        client.send(
            self.aliased("a", b"1", 3), self.aliased("b", b"2", 3), self.aliased("", b"3", 3)
        )
        assert [packet.topic for packet in client.take(Publish)] == ["a", "b", "b"]

    def test_an_alias_that_was_never_set_is_a_protocol_error(self) -> None:
        client = SimulatedBroker().connect()
        client.send(self.aliased("", b"", 3))
        assert goodbye(client) == Reason.PROTOCOL_ERROR

    def test_an_alias_beyond_the_limit_closes_the_connection(self) -> None:
        client = SimulatedBroker(limits=Limits(topic_alias_max=5)).connect()
        client.send(self.aliased("a", b"", 5))
        assert not client.is_closed()
        client.send(self.aliased("a", b"", 6))
        assert goodbye(client) == Reason.TOPIC_ALIAS_INVALID

    def test_aliases_end_with_the_connection(self) -> None:
        client = SimulatedBroker().connect(expiry_s=60)
        client.send(self.aliased("a", b"", 3))
        client.drop()
        client.come_back()
        client.send(self.aliased("", b"", 3))
        assert goodbye(client) == Reason.PROTOCOL_ERROR

    def test_nothing_follows_a_disconnect(self) -> None:
        world = SimulatedBroker()
        client = world.connect(expiry_s=60)
        client.subscribe("#", qos=1)
        other = world.connect("other")
        client.say(self.aliased("", b"", 3))
        other.publish("a", b"for one who is gone", 1)
        assert goodbye(client) == Reason.PROTOCOL_ERROR
        client.come_back()
        assert client.payloads() == [b"for one who is gone"]


class TestReceiveMaximum:
    def test_one_more_than_announced_closes_the_connection(self) -> None:
        client = SimulatedBroker(limits=Limits(receive_max=2)).connect()
        client.send(*(Publish("a", b"", 2, packet_id=n) for n in (1, 2)))
        assert len(client.take(Pubrec)) == 2
        client.publish("a", b"", 2, packet_id=3)
        assert goodbye(client) == Reason.RECEIVE_MAX_EXCEEDED

    def test_what_is_complete_makes_room(self) -> None:
        client = SimulatedBroker(limits=Limits(receive_max=2)).connect()
        for packet_id in range(1, 10):
            client.publish("a", b"", 2, packet_id=packet_id)
            client.send(Pubrel(packet_id))
        for packet_id in range(1, 10):
            client.publish("a", b"", 1, packet_id=packet_id)
        assert not client.is_closed()

    def test_a_refused_publication_makes_room(self) -> None:
        rules = AccessRules.parse("allow user * publish ok/#", "rules")
        client = SimulatedBroker(limits=Limits(receive_max=2), rules=rules).connect()
        for packet_id in range(1, 10):
            client.publish("a", b"", 2, packet_id=packet_id)
            assert client.only(Pubrec).reason == Reason.NOT_AUTHORIZED
        assert not client.is_closed()

    def test_what_is_open_across_a_reconnection_still_makes_room(self) -> None:
        world = SimulatedBroker(limits=Limits(receive_max=2))
        client = world.connect(expiry_s=60)
        client.send(*(Publish("a", b"", 2, packet_id=n) for n in (1, 2)))
        client.drop()
        client.come_back()
        client.send(*(Publish("a", b"", 2, dup=True, packet_id=n) for n in (1, 2)))
        client.send(Pubrel(1), Pubrel(2))
        client.send(*(Publish("a", b"", 2, packet_id=n) for n in (3, 4)))
        assert not client.is_closed()

    def test_a_3_1_1_client_knows_of_no_maximum(self) -> None:
        client = SimulatedBroker(limits=Limits(receive_max=2)).connect(version=V311)
        client.send(*(Publish("a", b"", 2, packet_id=n) for n in (1, 2, 3)))
        assert [packet.packet_id for packet in client.take(Pubrec)] == [1, 2, 3]


class TestRefusals:
    def test_a_topic_that_may_not_be_published_on(self) -> None:
        world = SimulatedBroker(
            rules=AccessRules.parse("allow user * publish,subscribe ok/#", "rules")
        )
        client = world.connect()
        client.publish("no", b"", 1)
        answer = client.only(Puback)
        assert answer.reason == Reason.NOT_AUTHORIZED
        assert answer.properties.reason_string == "publishing on no is not allowed"
        assert world.broker.counters.publications_refused == 1
        assert [note.event for note in world.notes][-1] == "publication refused"
        client.publish("no", b"", 0)
        assert not client.is_closed()

    def test_reason_strings_are_kept_from_who_does_not_want_them(self) -> None:
        world = SimulatedBroker(rules=AccessRules.parse("allow user * publish ok/#", "rules"))
        client = world.connect(properties=Properties(request_problem_information=0))
        client.publish("no", b"", 1)
        assert client.only(Puback) == Puback(1, Reason.NOT_AUTHORIZED)

    def test_more_levels_than_allowed(self) -> None:
        client = SimulatedBroker(limits=Limits(topic_levels_max=3)).connect()
        client.publish("a/b/c", b"", 1)
        assert client.only(Puback).reason == Reason.NO_MATCHING_SUBSCRIBERS
        client.publish("a/b/c/d", b"", 1)
        assert client.only(Puback).reason == Reason.TOPIC_NAME_INVALID

    def test_topics_of_the_broker(self) -> None:
        client = SimulatedBroker().connect()
        client.publish("$SYS/uptime", b"", 1)
        client.publish("$anything", b"", 1)
        reasons = [packet.reason for packet in client.take(Puback)]
        assert all(reason >= Reason.UNSPECIFIED_ERROR for reason in reasons)
        assert len(reasons) == 2

    def test_a_refused_qos_2_is_over_with_its_answer(self) -> None:
        world = SimulatedBroker(rules=AccessRules.parse("allow user * publish ok/#", "rules"))
        client = world.connect(expiry_s=60)
        client.publish("no", b"", 2, packet_id=4)
        assert client.only(Pubrec).reason == Reason.NOT_AUTHORIZED
        client.send(Pubrel(4))
        assert client.only(Pubcomp).reason == Reason.PACKET_ID_NOT_FOUND
        assert "received" not in world.disk.sizes()

    def test_3_1_1_cannot_be_told_and_is_acknowledged(self) -> None:
        world = SimulatedBroker(rules=AccessRules.parse("allow user * publish ok/#", "rules"))
        client = world.connect(version=V311)
        client.publish("no", b"", 1, packet_id=3)
        client.publish("no", b"", 2, packet_id=4)
        assert client.inbox == [Puback(3), Pubrec(4)]
        client.inbox.clear()
        client.send(Pubrel(4))
        assert client.inbox == [Pubcomp(4)]

    def test_a_packet_larger_than_allowed_closes_the_connection(self) -> None:
        client = SimulatedBroker(limits=Limits(packet_bytes_max=1_024)).connect()
        client.publish("a", bytes(2_000))
        assert goodbye(client) == Reason.PACKET_TOO_LARGE


class TestProperties:
    SAID = Properties(
        user=(("b", "1"), ("a", "2"), ("b", "3")),
        payload_format=1,
        content_type="application/json",
        response_topic="answers/7",
        correlation_data=b"\0\1\2",
    )

    def test_they_are_passed_on_in_order(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe("a", qos=1)
        client.publish("a", b"{}", 1, properties=self.SAID)
        assert client.only(Publish).properties == self.SAID

    def test_they_are_passed_on_from_retained_and_from_queues_and_across_a_crash(self) -> None:
        world = SimulatedBroker()
        client = world.connect(expiry_s=60)
        client.subscribe("a", qos=1)
        client.drop()
        world.connect("other").publish("a", b"{}", 1, retain=True, properties=self.SAID)
        world.crash()
        client.come_back()
        assert client.only(Publish).properties == self.SAID
        late = world.connect("late")
        late.subscribe("a")
        assert late.only(Publish).properties == self.SAID

    def test_3_1_1_gets_none(self) -> None:
        world = SimulatedBroker()
        old = world.connect("old", version=V311)
        old.subscribe("a")
        world.connect().publish("a", b"{}", properties=self.SAID)
        assert old.inbox == [Publish("a", b"{}")]

    def test_the_time_left_is_passed_on(self) -> None:
        world = SimulatedBroker()
        client = world.connect(expiry_s=1_000)
        client.subscribe("a", qos=1)
        client.drop()
        properties = Properties(message_expiry_s=60)
        world.connect("other").publish("a", b"1", 1, properties=properties)
        world.advance(20)
        client.come_back()
        assert client.only(Publish).properties.message_expiry_s == 40

    def test_what_has_expired_is_not_delivered(self) -> None:
        world = SimulatedBroker()
        client = world.connect(expiry_s=1_000)
        client.subscribe("a", qos=1)
        client.drop()
        other = world.connect("other")
        other.publish("a", b"1", 1, properties=Properties(message_expiry_s=60))
        other.publish("a", b"2", 1)
        world.advance(61)
        client.come_back()
        assert [packet.payload for packet in client.take_all()] == [b"2"]
        assert world.broker.counters.notifications_dropped_expired == 1
        assert "queue" not in world.disk.sizes()
        assert "publications" not in world.disk.sizes()


class TestRetainFlag:
    def test_it_is_cleared_for_established_subscriptions(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe("a")
        client.publish("a", b"1", retain=True)
        assert not client.only(Publish).retain

    def test_it_is_kept_where_asked(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe(Filter("a", retain_as_published=True))
        client.publish("a", b"1", retain=True)
        client.publish("a", b"2", retain=False)
        assert [packet.retain for packet in client.take(Publish)] == [True, False]

    def test_it_is_kept_in_a_queue_and_across_a_crash(self) -> None:
        world = SimulatedBroker()
        client = world.connect(expiry_s=60)
        client.subscribe(Filter("a", qos=1, retain_as_published=True))
        client.drop()
        world.connect("other").publish("a", b"1", 1, retain=True)
        world.crash()
        client.come_back()
        assert client.only(Publish).retain


class TestRepetition:
    def test_a_repeated_id_with_dup_is_taken_once(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe("a")
        client.publish("a", b"1", 1, id="x")
        client.publish("a", b"1", 1, dup=True, id="x")
        assert client.payloads() == [b"1"]
        assert [packet.reason for packet in client.take(Puback)] == [0, 0]
        assert world.broker.counters.publications_repeated == 1

    def test_the_same_id_without_dup_is_another_publication(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe("a")
        client.publish("a", b"1", 1, id="x")
        client.publish("a", b"2", 1, id="x")
        assert client.payloads() == [b"1", b"2"]

    def test_another_client_may_use_the_same_id(self) -> None:
        world = SimulatedBroker()
        client, other = world.connect(), world.connect("other")
        client.subscribe("a")
        client.publish("a", b"1", 1, id="x")
        other.publish("a", b"2", 1, dup=True, id="x")
        assert client.payloads() == [b"1", b"2"]

    def test_a_client_that_resends_after_a_reconnection_is_recognised(self) -> None:
        world = SimulatedBroker()
        watcher = world.connect("watcher")
        watcher.subscribe("a")
        client = world.connect(expiry_s=60)
        client.publish("a", b"1", 1, id="x")
        client.drop()
        client.come_back()
        client.publish("a", b"1", 1, dup=True, id="x")
        assert watcher.payloads() == [b"1"]

    def test_only_the_last_ids_are_remembered(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        for n in range(RECENT_MAX + 5):
            client.publish("a", b"", id=f"id{n}")
        assert len(world.broker.context.sessions["client"].recent_ids) == RECENT_MAX

    def test_a_refused_publication_that_comes_again_is_refused_again(self) -> None:
        world = SimulatedBroker(limits=Limits(valid_publications_max=1))
        client = world.connect()
        client.publish("a", b"", 1, valid_for="60", id="first")
        assert client.only(Puback).reason == Reason.NO_MATCHING_SUBSCRIBERS
        for dup in (False, True):
            client.publish("a", b"", 1, dup=dup, valid_for="60", id="second")
            assert client.only(Puback).reason == Reason.QUOTA_EXCEEDED


class TestOwnIds:
    def test_a_valid_publication_without_an_id_is_told_its_id(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.publish("a", b"", 1, valid_for="60")
        ((name, id),) = client.only(Puback).properties.user
        assert name == "id"
        client.publish("$rove/unpublish", id.encode(), 1)
        assert client.only(Puback).reason == Reason.SUCCESS

    def test_who_wants_no_problems_told_is_sent_no_user_properties_either(self) -> None:
        """Only PUBLISH, CONNACK and DISCONNECT may have them then (3.1.2.11.7)."""
        client = SimulatedBroker().connect(properties=Properties(request_problem_information=0))
        client.publish("a", b"", 1, valid_for="60")
        assert client.only(Puback).properties == Properties()

    @pytest.mark.parametrize("given", ["", "-1", "0", "nan", "inf", "soon", "1e999"])
    def test_a_time_that_cannot_be_meant_is_refused(self, given: str) -> None:
        client = SimulatedBroker().connect()
        client.publish("a", b"", 1, valid_for=given)
        answer = client.only(Puback)
        assert answer.reason == Reason.IMPLEMENTATION_SPECIFIC_ERROR
        assert answer.properties.reason_string == (
            f"valid-for is {given!r}; write seconds, or forever"
        )

    def test_times_that_can_be_meant(self) -> None:
        assert moment_of("1.5", 10.0) == 11.5
        assert moment_of("forever", 10.0) == float("inf")


class TestGuarded:
    RULES = "allow user * publish,subscribe #\ndeny user * subscribe secret/#"

    def world(self) -> SimulatedBroker:
        rules = AccessRules.parse(self.RULES, "rules")
        return SimulatedBroker(rules=rules, settings=BrokerSettings(is_guarded=True))

    def test_what_may_not_be_received_is_left_out_of_a_wider_subscription(self) -> None:
        world = self.world()
        client = world.connect()
        client.subscribe("#")
        client.publish("secret/a", b"1", 1)
        client.publish("open/a", b"2")
        assert client.payloads() == [b"2"]
        assert client.only(Puback).reason == Reason.NO_MATCHING_SUBSCRIBERS

    def test_also_with_texts_retained_and_valid_ones(self) -> None:
        world = self.world()
        client = world.connect()
        client.publish("secret/a", b'{"x": 1}', retain=True)
        client.publish("secret/a", b'{"x": 1}', valid_for="60")
        client.subscribe("#", filter="x = 1")
        client.subscribe("+/a")
        client.publish("secret/a", b'{"x": 1}')
        assert client.payloads() == []


def test_both_versions_hear_each_other() -> None:
    world = SimulatedBroker()
    new, old = world.connect("new", version=V5), world.connect("old", version=V311)
    for client in (new, old):
        client.subscribe("a", qos=1)
    new.publish("a", b"from new", 1)
    old.publish("a", b"from old", 1)
    assert new.payloads() == old.payloads() == [b"from new", b"from old"]
