"""CONNECT and every way out: a test per rule of the specification."""

import gc

from rove.broker.access import AccessRules, Identity
from rove.broker.broker import PENDING_MAX
from rove.broker.limits import Limits
from rove.broker.sessions.session import Link, Session
from rove.mqtt.packets import (
    V311,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Publish,
    Reason,
    Will,
)
from rove.testing.mqtt import EXPIRES_NEVER_S, SimulatedBroker, SimulatedClient

WILL = Will("wills/w", b"gone")


def refused(client: SimulatedClient) -> Connack:
    """The answer to a client that was not let in, and whose connection is closed."""
    answer = client.only(Connack)
    assert client.is_closed()
    assert client.inbox == []
    return answer


def goodbye(client: SimulatedClient) -> Disconnect:
    """What the broker said last, before it closed the connection."""
    assert client.is_closed()
    last = client.inbox[-1]
    assert isinstance(last, Disconnect)
    return last


class TestSessions:
    def test_the_first_connection_finds_no_session(self) -> None:
        world = SimulatedBroker()
        assert not world.client().connect(clean_start=False, expiry_s=60).session_present

    def test_a_session_outlives_its_connection_for_as_long_as_was_asked(self) -> None:
        world = SimulatedBroker()
        client = world.connect(expiry_s=60)
        client.subscribe("a", qos=1)
        client.drop()
        world.advance(59)
        assert client.come_back(60).session_present
        world.connect("other").publish("a", b"1", 1)
        assert client.payloads() == [b"1"]

    def test_a_session_ends_when_nobody_came_back(self) -> None:
        world = SimulatedBroker()
        client = world.connect(expiry_s=60)
        client.subscribe("a", qos=1)
        client.drop()
        world.advance(60)
        assert world.broker.counters.sessions_expired == 1
        assert not client.come_back(60).session_present
        world.connect("other").publish("a", b"1", 1)
        assert client.payloads() == []

    def test_a_session_that_is_over_is_not_resumed_even_before_a_tick(self) -> None:
        world = SimulatedBroker()
        client = world.connect(expiry_s=60)
        client.drop()
        world.now += 61
        assert not client.come_back(60).session_present

    def test_without_an_expiry_the_session_ends_with_its_connection(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.drop()
        assert not world.broker.context.sessions
        assert not client.connect(clean_start=False).session_present

    def test_a_clean_start_ends_the_session_that_was_there(self) -> None:
        world = SimulatedBroker()
        client = world.connect(expiry_s=60)
        client.subscribe("a", qos=1)
        client.drop()
        assert not client.connect(clean_start=True, expiry_s=60).session_present
        world.connect("other").publish("a", b"1", 1)
        assert client.payloads() == []

    def test_expiry_counts_from_the_end_of_the_last_connection(self) -> None:
        world = SimulatedBroker()
        client = world.connect(expiry_s=60)
        client.drop()
        world.advance(50)
        client.come_back(60)
        client.drop()
        world.advance(50)
        assert client.come_back(60).session_present

    def test_a_reconnection_can_shorten_the_expiry(self) -> None:
        world = SimulatedBroker()
        client = world.connect(expiry_s=600)
        client.drop()
        client.come_back(10)
        client.drop()
        world.advance(11)
        assert not client.come_back().session_present
        assert world.disk.sizes() == {"sessions": 1}

    def test_a_reconnection_without_an_expiry_ends_the_session_with_its_connection(self) -> None:
        world = SimulatedBroker()
        client = world.connect(expiry_s=600)
        client.drop()
        assert client.come_back(0).session_present
        client.drop()
        assert world.broker.context.sessions == {}
        assert world.disk.sizes() == {}

    def test_the_largest_expiry_means_never(self) -> None:
        world = SimulatedBroker(limits=Limits(session_expiry_s_max=EXPIRES_NEVER_S))
        client = world.connect(expiry_s=EXPIRES_NEVER_S)
        client.drop()
        world.advance(100 * 365 * 86_400)
        assert client.come_back().session_present

    def test_an_expiry_beyond_the_limit_is_shortened_and_the_client_is_told(self) -> None:
        world = SimulatedBroker(limits=Limits(session_expiry_s_max=100))
        client = world.client()
        assert client.connect(expiry_s=1_000).properties.session_expiry_s == 100
        client.drop()
        world.advance(101)
        assert not client.come_back().session_present

    def test_an_expiry_that_is_granted_is_not_repeated(self) -> None:
        assert SimulatedBroker().client().connect(expiry_s=60).properties.session_expiry_s is None

    def test_one_more_session_than_allowed_is_refused_but_a_known_client_comes_back(self) -> None:
        world = SimulatedBroker(limits=Limits(sessions_max=1))
        known = world.connect("known", expiry_s=60)
        known.drop()
        other = world.client("other")
        other.send_connect()
        assert refused(other).reason == Reason.QUOTA_EXCEEDED
        assert world.broker.counters.quota_hits == 1
        assert known.come_back().session_present

    def test_a_session_belongs_to_its_user(self) -> None:
        world = SimulatedBroker()
        world.connect("client", user="alice", expiry_s=60).drop()
        thief = world.client("client")
        thief.send_connect(clean_start=False, user="bob")
        assert refused(thief).reason == Reason.CLIENT_ID_NOT_VALID
        owner = world.client("client")
        assert owner.connect(clean_start=False, user="alice").session_present


class TestDisconnect:
    def test_the_expiry_can_be_changed_with_the_last_word(self) -> None:
        world = SimulatedBroker()
        client = world.connect(expiry_s=600)
        client.disconnect(properties=Properties(session_expiry_s=10))
        world.advance(11)
        assert not client.come_back().session_present

    def test_the_expiry_can_be_set_to_zero_with_the_last_word(self) -> None:
        world = SimulatedBroker()
        client = world.connect(expiry_s=600)
        client.disconnect(properties=Properties(session_expiry_s=0))
        assert world.broker.context.sessions == {}
        assert world.disk.sizes() == {}

    def test_an_expiry_of_zero_cannot_become_more(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.disconnect(properties=Properties(session_expiry_s=10))
        assert goodbye(client).reason == Reason.PROTOCOL_ERROR
        assert world.broker.context.sessions == {}

    def test_the_limit_holds_for_the_last_word_too(self) -> None:
        world = SimulatedBroker(limits=Limits(session_expiry_s_max=20))
        client = world.connect(expiry_s=10)
        client.disconnect(properties=Properties(session_expiry_s=1_000))
        world.advance(21)
        assert not client.come_back().session_present

    def test_nothing_is_sent_after_the_clients_disconnect(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.send(Disconnect(), Pingreq())
        assert client.is_closed()
        assert client.inbox == []


class TestTakeover:
    def test_the_older_connection_is_told_and_closed(self) -> None:
        world = SimulatedBroker()
        old = world.connect("client")
        new = world.connect("client")
        assert goodbye(old).reason == Reason.SESSION_TAKEN_OVER
        assert not new.is_closed()
        assert world.broker.counters.sessions_taken_over == 1

    def test_the_newer_connection_has_the_session(self) -> None:
        world = SimulatedBroker()
        old = world.connect("client", expiry_s=60)
        old.subscribe("a")
        new = world.client("client")
        assert new.connect(clean_start=False, expiry_s=60).session_present
        world.connect("other").publish("a", b"1")
        assert new.payloads() == [b"1"]
        assert old.payloads() == []

    def test_a_session_that_ends_with_its_connection_is_not_taken_over(self) -> None:
        world = SimulatedBroker()
        world.connect("client")
        assert not world.client("client").connect(clean_start=False).session_present

    def test_a_3_1_1_client_that_is_taken_over_is_just_closed(self) -> None:
        world = SimulatedBroker()
        old = world.connect("client", version=V311)
        world.connect("client", version=V311)
        assert old.is_closed()
        assert old.inbox == []

    def test_the_closing_of_the_old_connection_leaves_the_new_one_alone(self) -> None:
        world = SimulatedBroker()
        old = world.connect("client", expiry_s=60)
        new = world.connect("client", clean_start=False, expiry_s=60)
        assert old.link is not None
        world.broker.closed(old.link, world.now)
        new.send(Pingreq())
        assert new.take(Pingresp) == [Pingresp()]

    def test_the_will_of_the_old_connection_is_published(self) -> None:
        world = SimulatedBroker()
        watcher = world.connect("watcher")
        watcher.subscribe("wills/#")
        world.connect("client", expiry_s=60, will=WILL)
        world.connect("client", clean_start=False, expiry_s=60)
        assert watcher.payloads() == [b"gone"]

    def test_a_delayed_will_is_not_published_when_the_session_goes_on(self) -> None:
        world = SimulatedBroker()
        watcher = world.connect("watcher")
        watcher.subscribe("wills/#")
        will = Will("wills/w", b"gone", properties=Properties(will_delay_s=5))
        world.connect("client", expiry_s=60, will=will)
        world.connect("client", clean_start=False, expiry_s=60)
        world.advance(10)
        assert watcher.payloads() == []

    def test_a_delayed_will_is_published_when_the_session_ends_by_a_clean_start(self) -> None:
        world = SimulatedBroker()
        watcher = world.connect("watcher")
        watcher.subscribe("wills/#")
        will = Will("wills/w", b"gone", properties=Properties(will_delay_s=5))
        world.connect("client", expiry_s=60, will=will)
        world.connect("client", clean_start=True)
        assert watcher.payloads() == [b"gone"]


class TestWills:
    @staticmethod
    def watched(world: SimulatedBroker) -> SimulatedClient:
        watcher = world.connect("watcher")
        watcher.subscribe("wills/#", qos=2)
        return watcher

    def test_a_lost_connection_publishes_the_will(self) -> None:
        world = SimulatedBroker()
        watcher = self.watched(world)
        world.connect(will=WILL).drop()
        assert watcher.payloads() == [b"gone"]
        assert world.broker.counters.wills_published == 1

    def test_a_disconnect_cancels_the_will(self) -> None:
        world = SimulatedBroker()
        watcher = self.watched(world)
        world.connect(will=WILL).disconnect()
        world.connect("other", will=WILL, version=V311).disconnect()
        world.advance(100)
        assert watcher.payloads() == []

    def test_a_disconnect_can_request_the_will(self) -> None:
        world = SimulatedBroker()
        watcher = self.watched(world)
        world.connect(will=WILL).disconnect(Reason.DISCONNECT_WITH_WILL)
        assert watcher.payloads() == [b"gone"]

    def test_a_disconnect_with_an_error_publishes_the_will(self) -> None:
        world = SimulatedBroker()
        watcher = self.watched(world)
        world.connect(will=WILL).disconnect(Reason.UNSPECIFIED_ERROR)
        assert watcher.payloads() == [b"gone"]

    def test_a_broken_rule_publishes_the_will(self) -> None:
        world = SimulatedBroker()
        watcher = self.watched(world)
        world.connect(will=WILL).send_bytes(b"\xf0\x00\x00")
        assert watcher.payloads() == [b"gone"]

    def test_silence_publishes_the_will(self) -> None:
        world = SimulatedBroker()
        watcher = self.watched(world)
        world.connect(will=WILL, keep_alive_s=10)
        world.advance(16)
        assert watcher.payloads() == [b"gone"]

    def test_a_will_waits_for_its_delay(self) -> None:
        world = SimulatedBroker()
        watcher = self.watched(world)
        will = Will("wills/w", b"gone", properties=Properties(will_delay_s=5))
        world.connect(will=will, expiry_s=60).drop()
        world.advance(4.9)
        assert watcher.payloads() == []
        world.advance(0.2)
        assert watcher.payloads() == [b"gone"]

    def test_a_return_within_the_delay_takes_the_will_back(self) -> None:
        world = SimulatedBroker()
        watcher = self.watched(world)
        will = Will("wills/w", b"gone", properties=Properties(will_delay_s=5))
        client = world.connect(will=will, expiry_s=60)
        client.drop()
        world.advance(4)
        client.come_back()
        world.advance(10)
        assert watcher.payloads() == []

    def test_a_will_is_published_with_the_end_of_the_session_at_the_latest(self) -> None:
        world = SimulatedBroker()
        watcher = self.watched(world)
        will = Will("wills/w", b"gone", properties=Properties(will_delay_s=500))
        world.connect(will=will, expiry_s=10).drop()
        world.advance(9.9)
        assert watcher.payloads() == []
        world.advance(0.2)
        assert watcher.payloads() == [b"gone"]

    def test_without_a_session_a_delayed_will_is_published_at_once(self) -> None:
        world = SimulatedBroker()
        watcher = self.watched(world)
        will = Will("wills/w", b"gone", properties=Properties(will_delay_s=500))
        world.connect(will=will).drop()
        assert watcher.payloads() == [b"gone"]

    def test_a_delay_beyond_the_limit_is_shortened(self) -> None:
        world = SimulatedBroker(limits=Limits(will_delay_s_max=5))
        watcher = self.watched(world)
        will = Will("wills/w", b"gone", properties=Properties(will_delay_s=500))
        world.connect(will=will, expiry_s=1_000).drop()
        world.advance(5.1)
        assert watcher.payloads() == [b"gone"]

    def test_a_will_is_published_once(self) -> None:
        world = SimulatedBroker()
        watcher = self.watched(world)
        client = world.connect(will=WILL, expiry_s=10)
        client.drop()
        world.advance(20)
        assert watcher.payloads() == [b"gone"]

    def test_a_will_has_the_quality_and_the_properties_that_were_asked_for(self) -> None:
        world = SimulatedBroker()
        watcher = self.watched(world)
        said = Properties(
            user=(("a", "1"), ("a", "2")),
            content_type="text/plain",
            payload_format=1,
            response_topic="answers",
            correlation_data=b"7",
            message_expiry_s=30,
            will_delay_s=0,
        )
        world.connect(will=Will("wills/w", b"gone", 2, properties=said)).drop()
        heard = watcher.only(Publish)
        assert heard.qos == 2
        assert heard.properties == Properties(
            user=(("a", "1"), ("a", "2")),
            content_type="text/plain",
            payload_format=1,
            response_topic="answers",
            correlation_data=b"7",
            message_expiry_s=30,
        )

    def test_a_will_can_be_retained(self) -> None:
        world = SimulatedBroker()
        world.connect(will=Will("wills/w", b"gone", retain=True)).drop()
        heard = self.watched(world).only(Publish)
        assert heard.retain
        assert heard.payload == b"gone"

    def test_the_will_meets_texts_as_any_publication(self) -> None:
        world = SimulatedBroker()
        watcher = world.connect("watcher")
        watcher.subscribe("wills/#", filter="level > 3")
        world.connect("a", will=Will("wills/a", b'{"level": 3}')).drop()
        world.connect("b", will=Will("wills/b", b'{"level": 4}')).drop()
        assert watcher.payloads() == [b'{"level": 4}']

    def test_a_will_on_a_topic_of_the_broker_is_refused(self) -> None:
        world = SimulatedBroker()
        client = world.client()
        client.send_connect(will=Will("$rove/me", b"{}"))
        assert refused(client).reason == Reason.TOPIC_NAME_INVALID

    def test_a_will_that_may_not_be_published_is_refused(self) -> None:
        rules = AccessRules.parse("allow user * publish,subscribe air/#", "rules")
        client = SimulatedBroker(rules=rules).client()
        client.send_connect(will=WILL)
        assert refused(client).reason == Reason.NOT_AUTHORIZED

    def test_a_will_with_too_many_levels_is_refused(self) -> None:
        client = SimulatedBroker(limits=Limits(topic_levels_max=2)).client()
        client.send_connect(will=Will("a/b/c", b""))
        assert refused(client).reason == Reason.TOPIC_NAME_INVALID

    def test_wills_stay_unsaid_when_the_broker_stops(self) -> None:
        world = SimulatedBroker()
        watcher = self.watched(world)
        client = world.connect(will=WILL, expiry_s=60)
        world.broker.shut_down(world.now)
        world.turn()
        assert goodbye(client).reason == Reason.SERVER_SHUTTING_DOWN
        assert watcher.payloads() == []
        world.crash()
        assert client.come_back().session_present

    def test_a_will_survives_a_crash_and_is_then_due(self) -> None:
        world = SimulatedBroker()
        world.connect("watcher", expiry_s=60).subscribe("wills/#", qos=1)
        will = Will("wills/w", b"gone", 1, properties=Properties(will_delay_s=5))
        world.connect(will=will, expiry_s=60)
        world.crash()
        watcher = world.client("watcher")
        watcher.come_back()
        world.advance(4.9)
        assert watcher.payloads() == []
        world.advance(0.2)
        assert watcher.payloads() == [b"gone"]

    def test_a_crash_does_not_make_a_will_wait_longer_than_the_limit(self) -> None:
        world = SimulatedBroker(limits=Limits(will_delay_s_max=5))
        world.connect("watcher", expiry_s=60).subscribe("wills/#", qos=1)
        will = Will("wills/w", b"gone", 1, properties=Properties(will_delay_s=500))
        world.connect(will=will, expiry_s=60)
        world.crash()
        world.advance(5.1)
        watcher = world.client("watcher")
        watcher.come_back()
        assert watcher.payloads() == [b"gone"]


class TestConnect:
    def test_a_connection_without_connect_is_closed_without_a_word(self) -> None:
        world = SimulatedBroker(limits=Limits(connect_timeout_s=10))
        client = world.client()
        client.open()
        world.advance(9.9)
        assert not client.is_closed()
        world.advance(0.2)
        assert client.is_closed()
        assert client.inbox == []

    def test_a_second_connect_is_a_protocol_error(self) -> None:
        client = SimulatedBroker().connect()
        client.send(Connect("client"))
        assert goodbye(client).reason == Reason.PROTOCOL_ERROR

    def test_another_packet_before_connect_closes_the_connection(self) -> None:
        client = SimulatedBroker().client()
        client.open()
        client.send(Pingreq())
        assert client.is_closed()
        assert client.inbox == []

    def test_no_client_id_is_given_one_and_told(self) -> None:
        world = SimulatedBroker()
        first, second = world.client(""), world.client("")
        names = [one.connect().properties.assigned_client_id for one in (first, second)]
        assert None not in names
        assert len(set(names)) == 2
        assert set(world.broker.context.sessions) == set(names)

    def test_a_session_of_an_assigned_client_id_can_be_resumed(self) -> None:
        world = SimulatedBroker()
        client = world.client("")
        client.client_id = client.connect(expiry_s=60).properties.assigned_client_id or ""
        client.drop()
        assert client.come_back().session_present

    def test_a_named_client_is_assigned_nothing(self) -> None:
        assert SimulatedBroker().client("me").connect().properties.assigned_client_id is None

    def test_3_1_1_without_a_client_id_must_start_clean(self) -> None:
        world = SimulatedBroker()
        client = world.client("", V311)
        client.send_connect(clean_start=False)
        assert refused(client).reason == Reason.CLIENT_ID_NOT_VALID
        assert client.connect(clean_start=True).reason == Reason.SUCCESS

    def test_a_client_id_longer_than_allowed_is_refused(self) -> None:
        world = SimulatedBroker(limits=Limits(client_id_bytes_max=23))
        client = world.client("č" * 12)
        client.send_connect()
        assert refused(client).reason == Reason.CLIENT_ID_NOT_VALID
        assert world.client("c" * 23).connect().reason == Reason.SUCCESS

    def test_the_answer_names_the_limits_of_the_broker(self) -> None:
        limits = Limits(receive_max=7, topic_alias_max=8, packet_bytes_max=9_000)
        told = SimulatedBroker(limits=limits).client().connect().properties
        assert (told.receive_max, told.topic_alias_max, told.packet_size_max) == (7, 8, 9_000)

    def test_what_is_available_is_not_denied(self) -> None:
        told = SimulatedBroker().client().connect().properties
        assert told.qos_max is None
        assert told.retain_available in (None, 1)
        assert told.wildcards_available in (None, 1)
        assert told.shared_available in (None, 1)
        assert told.subscription_ids_available in (None, 1)

    def test_one_connection_more_than_allowed_is_closed(self) -> None:
        world = SimulatedBroker(limits=Limits(connections_max=1))
        first = world.connect("first")
        second = world.client("second")
        second.open()
        assert second.is_closed()
        assert world.broker.counters.quota_hits == 1
        first.drop()
        assert second.connect().reason == Reason.SUCCESS

    def test_a_wrong_password_is_refused(self) -> None:
        world = SimulatedBroker()
        client = world.client()
        client.open()
        client.say(Connect("client"))
        assert client.link is not None
        world.broker.end_turn(world.now)
        world.broker.identified(client.link, None, world.now)
        world.turn()
        assert refused(client).reason == Reason.BAD_USER_NAME_OR_PASSWORD

    def test_what_is_sent_while_it_is_found_out_who_it_is_waits(self) -> None:
        world = SimulatedBroker()
        client = world.client()
        client.open()
        client.say(Connect("client"))
        client.say(Publish("a", b"", 1, packet_id=5))
        assert client.link is not None
        world.broker.end_turn(world.now)
        client.say(Pingreq())
        assert client.inbox == []
        world.broker.identified(client.link, Identity(), world.now)
        world.turn()
        first, *others = client.inbox
        assert isinstance(first, Connack)
        assert {type(packet) for packet in others} == {Puback, Pingresp}

    def test_who_says_too_much_meanwhile_is_closed(self) -> None:
        world = SimulatedBroker()
        client = world.client()
        client.open()
        client.say(Connect("client"))
        world.broker.end_turn(world.now)
        for _ in range(PENDING_MAX + 1):
            client.say(Pingreq())
        world.turn()
        assert client.is_closed()

    def test_a_client_that_took_too_long_is_not_let_in_when_it_is_known_at_last(self) -> None:
        world = SimulatedBroker(limits=Limits(connect_timeout_s=10))
        client = world.client()
        client.open()
        client.say(Connect("client"))
        link = client.link
        assert link is not None
        world.broker.end_turn(world.now)
        world.now += 11
        world.broker.tick(world.now)
        world.broker.identified(link, Identity(), world.now)
        world.turn()
        assert client.is_closed()
        assert client.inbox == []
        assert world.broker.context.sessions == {}

    def test_who_is_known_before_is_not_asked(self) -> None:
        world = SimulatedBroker()
        client = world.client()
        client.open()
        assert client.link is not None
        client.link.identity = Identity("alice", source="certificate")
        client.say(Connect("client", user_name="bob"))
        assert world.broker.end_turn(world.now).authentications == []
        assert world.broker.context.sessions["client"].identity.user == "alice"

    def test_a_broken_connect_is_answered_if_its_version_is_known(self) -> None:
        client = SimulatedBroker().client()
        client.open()
        client.send_bytes(b"\x10\x0d\0\x04MQTT\x05\x01\0\0\0\0\0")
        assert refused(client).reason == Reason.MALFORMED_PACKET

    def test_somebody_who_left_is_not_let_in(self) -> None:
        world = SimulatedBroker()
        client = world.client()
        client.open()
        client.say(Connect("client"))
        assert client.link is not None
        world.broker.end_turn(world.now)
        client.drop()
        world.broker.identified(client.link, Identity(), world.now)
        assert world.broker.context.sessions == {}


class TestEnhancedAuthentication:
    def test_a_method_is_refused(self) -> None:
        client = SimulatedBroker().client()
        client.send_connect(properties=Properties(authentication_method="SCRAM-SHA-1"))
        assert refused(client).reason == Reason.BAD_AUTHENTICATION_METHOD

    def test_auth_without_a_method_is_a_protocol_error(self) -> None:
        world = SimulatedBroker()
        client = world.connect(expiry_s=60)
        method = Properties(authentication_method="SCRAM-SHA-1")
        client.send(Auth(Reason.REAUTHENTICATE, method))
        assert goodbye(client).reason == Reason.PROTOCOL_ERROR
        assert world.broker.context.sessions["client"].link is None


class TestVersion311:
    def test_no_properties_are_sent(self) -> None:
        client = SimulatedBroker().client(version=V311)
        assert client.connect() == Connack()

    def test_a_session_that_is_not_clean_is_kept(self) -> None:
        world = SimulatedBroker()
        client = world.connect(version=V311, clean_start=False)
        client.subscribe("a", qos=1)
        client.disconnect()
        world.connect("other").publish("a", b"1", 1)
        assert client.connect(clean_start=False).session_present
        assert client.payloads() == [b"1"]

    def test_a_clean_session_is_not_kept(self) -> None:
        world = SimulatedBroker()
        world.connect(version=V311, clean_start=True).disconnect()
        assert world.broker.context.sessions == {}

    def test_a_persistent_session_lives_as_long_as_the_limit_says(self) -> None:
        world = SimulatedBroker(limits=Limits(session_expiry_s_max=100))
        client = world.connect(version=V311, clean_start=False)
        client.drop()
        world.advance(101)
        assert not client.connect(clean_start=False).session_present

    def test_a_refusal_has_a_return_code(self) -> None:
        world = SimulatedBroker(limits=Limits(client_id_bytes_max=23))
        client = world.client("c" * 24, V311)
        client.send_connect()
        assert refused(client).reason == Reason.CLIENT_ID_NOT_VALID

    def test_an_unknown_version_is_told_so_in_the_language_of_3_1_1(self) -> None:
        client = SimulatedBroker().client(version=V311)
        client.open()
        client.send_bytes(b"\x10\x0f\0\x04MQTT\x03\x02\0\0\0\x03abc")
        assert refused(client).reason == Reason.UNSUPPORTED_PROTOCOL_VERSION


class TestMemory:
    @staticmethod
    def count(kind: type) -> int:
        gc.collect()
        return sum(type(one) is kind for one in gc.get_objects())

    def test_clients_that_come_and_go_leave_nothing(self) -> None:
        world = SimulatedBroker()
        client = world.client()
        links, sessions = self.count(Link), self.count(Session)
        for _ in range(1_000):
            client.connect(clean_start=True, keep_alive_s=60_000, expiry_s=100_000)
            client.drop()
        assert self.count(Link) - links < 500
        assert self.count(Session) - sessions < 150

    def test_a_client_that_comes_back_again_and_again_is_thought_of_once(self) -> None:
        world = SimulatedBroker()
        client = world.connect(expiry_s=100_000)
        for _ in range(500):
            client.come_back(100_000)
            client.drop()
            world.advance(1)
        assert len(world.broker._lifecycle._due) < 150
        world.advance(100_000)
        assert world.broker.context.sessions == {}
