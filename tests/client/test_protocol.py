"""One connection without I/O: who may say what when, packet identifiers, answers, keep-alive."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rove.client.errors import ClientError
from rove.client.protocol import (
    PACKET_ID_MAX,
    RECEIVE_MAX,
    WINDOW_MAX,
    Ended,
    Event,
    Opened,
    Protocol,
    ProtocolSettings,
    PublishReceived,
    Response,
    subscribe_packet,
    unsubscribe_packet,
)
from rove.mqtt.decoder import PACKET_BYTES_MAX, PacketDecoder
from rove.mqtt.encoder import encode
from rove.mqtt.packets import (
    V5,
    V311,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Filter,
    Malformed,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Publish,
    Pubrec,
    Pubrel,
    Reason,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)


class Line:
    """A protocol, and a broker's view of what it says."""

    def __init__(self, **settings: Any) -> None:
        self.protocol = Protocol(ProtocolSettings(**settings))
        self.now = 0.0
        self.reader = PacketDecoder()

    def connect(self) -> Connect:
        """Begin a connection; the CONNECT that was sent."""
        self.reader = PacketDecoder()
        self.protocol.open(self.now)
        (connect,) = self.said()
        assert isinstance(connect, Connect)
        return connect

    def open(self, *, present: bool = False, **said: Any) -> Connect:
        """Connect and be accepted."""
        connect = self.connect()
        assert self.hear(Connack(present, properties=Properties(**said))) == [Opened(present)]
        return connect

    def said(self) -> list[Packet | Malformed]:
        return self.reader.feed(self.protocol.output(self.now))

    def hear(self, *packets: Packet) -> list[Event]:
        version = self.protocol.settings.version
        return self.protocol.receive(b"".join(encode(one, version) for one in packets), self.now)

    def ask(self, request: Subscribe | Unsubscribe | Publish) -> list[Response]:
        """Ask; the answer will appear in what is returned."""
        answers: list[Response] = []
        self.protocol.ask(request, answers.append)
        return answers


def ended(events: list[Event]) -> list[int]:
    return [event.reason for event in events if isinstance(event, Ended)]


# -- the beginning -----------------------------------------------------------------------------


def test_connect_says_what_the_settings_say() -> None:
    line = Line(client_id="me", session_expiry_s=9, keep_alive_s=7, receive_max=5)
    connect = line.connect()
    assert (connect.client_id, connect.keep_alive_s, connect.version) == ("me", 7, V5)
    assert connect.properties.session_expiry_s == 9
    assert connect.properties.receive_max == 5


def test_what_the_specification_assumes_is_not_said() -> None:
    connect = Line(receive_max=RECEIVE_MAX, packet_bytes_max=PACKET_BYTES_MAX).connect()
    assert connect.properties == Properties()


def test_311_is_spoken_where_it_is_asked_for() -> None:
    line = Line(client_id="old", version=V311)
    assert line.open().version == V311
    answers = line.ask(subscribe_packet((Filter("a"),), 4, (("filter", "x > 1"),)))
    assert line.said() == [Subscribe(1, (Filter("a"),))]
    line.hear(Suback(1, (0,)))
    assert answers == [Suback(1, (0,))]


@pytest.mark.parametrize("clean_start", [True, False])
def test_an_old_session_is_only_for_who_asked_for_it(clean_start: bool) -> None:
    line = Line(client_id="me", clean_start=clean_start)
    line.connect()
    events = line.hear(Connack(session_present=True))
    if clean_start:
        assert ended(events) == [Reason.PROTOCOL_ERROR]
        assert line.said() == [Disconnect(Reason.PROTOCOL_ERROR)]
    else:
        assert events == [Opened(session_present=True)]
    assert line.protocol.is_open is not clean_start


@pytest.mark.parametrize("packet", [Publish("a", b""), Suback(1, (0,)), Pingresp(), Pubrel(1)])
def test_nothing_comes_before_connack(packet: Packet) -> None:
    line = Line()
    line.connect()
    events = line.hear(packet, Connack())
    assert ended(events) == [Reason.PROTOCOL_ERROR]
    assert len(events) == 1
    assert line.said() == [Disconnect(Reason.PROTOCOL_ERROR)]


def test_a_second_connack_ends_the_connection() -> None:
    line = Line()
    line.open()
    assert ended(line.hear(Connack())) == [Reason.PROTOCOL_ERROR]


def test_a_broker_may_send_us_away_before_it_lets_us_in() -> None:
    line = Line()
    line.connect()
    (event,) = line.hear(Disconnect(Reason.SERVER_BUSY))
    assert event == Ended(Reason.SERVER_BUSY, None)


def test_nothing_is_heard_of_a_connection_that_was_refused() -> None:
    line = Line()
    line.connect()
    events = line.hear(Connack(reason=Reason.NOT_AUTHORIZED), Publish("a", b""))
    assert events == [Ended(Reason.NOT_AUTHORIZED, None, refused=True)]


def test_what_the_broker_announced_is_known() -> None:
    line = Line(keep_alive_s=30)
    line.open(receive_max=9, packet_size_max=77, qos_max=1, server_keep_alive_s=5)
    server = line.protocol.server
    assert (server.window, server.packet_bytes_max, server.qos_max) == (9, 77, 1)
    assert server.keep_alive_s == 5
    line = Line()
    line.open()
    assert (line.protocol.server.window, line.protocol.server.packet_bytes_max) == (
        WINDOW_MAX,
        math.inf,
    )


# -- requests and packet identifiers -------------------------------------------------------------


def test_each_answer_goes_to_who_asked_whatever_their_order() -> None:
    line = Line()
    line.open()
    first = line.ask(subscribe_packet((Filter("a"),)))
    second = line.ask(Publish("b", b"", 1))
    third = line.ask(unsubscribe_packet(("a",), 5))
    said = line.said()
    assert [type(packet) for packet in said] == [Subscribe, Publish, Unsubscribe]
    assert [getattr(packet, "packet_id", 0) for packet in said] == [1, 2, 3]
    line.hear(Unsuback(3, (0,)), Suback(1, (0,)), Puback(2, Reason.QUOTA_EXCEEDED))
    assert (first, second) == ([Suback(1, (0,))], [Puback(2, Reason.QUOTA_EXCEEDED)])
    assert third == [Unsuback(3, (0,))]


def test_an_answer_to_nothing_answers_no_other_request() -> None:
    line = Line()
    line.open()
    answers = line.ask(subscribe_packet((Filter("a"),)))
    assert line.hear(Suback(9, (0,)), Puback(8)) == []
    assert answers == []


def test_a_packet_identifier_is_not_used_twice_at_a_time() -> None:
    line = Line()
    line.open()
    line.ask(subscribe_packet((Filter("a"),)))
    line.protocol._last_packet_id = 65_534
    for _ in range(2):
        line.ask(subscribe_packet((Filter("b"),)))
    assert [getattr(packet, "packet_id", 0) for packet in line.said()] == [1, 65_535, 2]


def test_who_asks_for_too_much_at_a_time_is_told() -> None:
    line = Line()
    line.open()
    request = subscribe_packet((Filter("a"),))
    for _ in range(PACKET_ID_MAX):
        line.protocol.ask(request, lambda _: None)
    with pytest.raises(ClientError, match="no more packet identifiers"):
        line.protocol.ask(request, lambda _: None)
    line.hear(Suback(7, (0,)))
    line.protocol.ask(request, lambda _: None)
    assert request.packet_id == 7


def test_identifiers_and_texts_are_written_as_the_broker_reads_them() -> None:
    subscribe = subscribe_packet((Filter("a"),), 7, (("filter", "x > 1"),))
    assert subscribe.properties.subscription_ids == (7,)
    assert subscribe.properties.user == (("filter", "x > 1"),)
    assert subscribe_packet((Filter("a"),)).properties == Properties()
    assert unsubscribe_packet(("a",), 7).properties.user == (("subscription", "7"),)
    assert unsubscribe_packet(("a",)).properties == Properties()


def test_a_lost_connection_answers_nobody() -> None:
    line = Line()
    line.open()
    answers = line.ask(subscribe_packet((Filter("a"),)))
    line.protocol.lose()
    line.open()
    line.hear(Suback(1, (0,)))
    assert answers == []


# -- what comes ----------------------------------------------------------------------------------


def test_notifications_are_events() -> None:
    line = Line()
    line.open()
    publish = Publish("a", b"x", properties=Properties(subscription_ids=(1, 2)))
    assert line.hear(publish) == [PublishReceived(publish, None)]


def test_a_topic_alias_that_was_not_offered_ends_the_connection() -> None:
    line = Line()
    line.open()
    events = line.hear(Publish("a", b"", properties=Properties(topic_alias=1)))
    assert ended(events) == [Reason.TOPIC_ALIAS_INVALID]
    assert line.said() == [Disconnect(Reason.TOPIC_ALIAS_INVALID)]


@pytest.mark.parametrize("packet", [Auth(Reason.REAUTHENTICATE), Pubrec(1), Pubrel(1)])
def test_what_was_not_asked_for_ends_the_connection(packet: Packet) -> None:
    line = Line()
    line.open()
    assert ended(line.hear(packet, Publish("a", b""))) == [Reason.PROTOCOL_ERROR]
    assert line.said() == [Disconnect(Reason.PROTOCOL_ERROR)]


def test_bytes_that_are_no_packet_end_the_connection() -> None:
    line = Line()
    line.open()
    (event,) = line.protocol.receive(b"\x30\xff\xff\xff\xff\x01", 0.0)
    assert isinstance(event, Ended)
    assert event.reason == Reason.MALFORMED_PACKET


def test_another_reader_may_take_what_comes() -> None:
    class Counter:
        count = 0

        def feed(self, data: bytes) -> list[Packet | Malformed]:
            self.count += len(data)
            return []

    line = Line()
    line.open()
    line.protocol.reader = counter = Counter()
    assert line.hear(Publish("a", b"x")) == []
    assert counter.count == len(encode(Publish("a", b"x")))
    line.protocol.lose()
    assert line.open().client_id == ""


# -- the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("forget", [True, False])
def test_nothing_follows_disconnect(forget: bool) -> None:
    line = Line(session_expiry_s=60)
    line.open()
    line.protocol.disconnect(forget=forget)
    (goodbye,) = line.said()
    assert isinstance(goodbye, Disconnect)
    assert goodbye.properties.session_expiry_s == (0 if forget else None)
    assert line.hear(Publish("a", b""), Auth(Reason.REAUTHENTICATE)) == []
    assert line.said() == []


# -- time ----------------------------------------------------------------------------------------


def test_silence_is_broken_by_a_ping() -> None:
    line = Line(keep_alive_s=40, answer_timeout_s=5)
    line.open()
    assert line.protocol.wake_at() == 30
    line.now = 29.9
    assert line.protocol.advance(line.now) == []
    assert line.said() == []
    line.now = 30
    assert line.protocol.advance(line.now) == []
    assert line.said() == [Pingreq()]
    assert line.protocol.wake_at() == 35
    assert line.hear(Pingresp()) == []
    assert line.protocol.wake_at() == 60


def test_who_only_talks_still_listens_for_a_sign_of_life() -> None:
    line = Line(keep_alive_s=40)
    line.open()
    line.now = 20
    line.protocol.write(Publish("t", b"a"))
    line.said()
    assert line.protocol.wake_at() == 30


def test_the_brokers_keep_alive_counts() -> None:
    line = Line(keep_alive_s=40)
    line.open(server_keep_alive_s=20)
    assert line.protocol.wake_at() == 15


def test_without_keep_alive_there_is_nothing_to_do() -> None:
    line = Line(keep_alive_s=0)
    line.open()
    assert line.protocol.wake_at() == math.inf


@pytest.mark.parametrize("accepted", [True, False])
def test_a_broker_that_does_not_answer_is_given_up(accepted: bool) -> None:
    line = Line(keep_alive_s=40, answer_timeout_s=5)
    if accepted:
        line.open()
        line.now = 30
        line.protocol.advance(line.now)
    else:
        line.protocol.open(0)
    line.now = line.protocol.wake_at()
    (ended,) = line.protocol.advance(line.now)
    assert isinstance(ended, Ended)
    assert ended.reason == Reason.KEEP_ALIVE_TIMEOUT
    assert ("PINGREQ" if accepted else "CONNECT") in (ended.text or "")
    assert line.protocol.wake_at() != line.now
