"""The session without I/O: resending, windows, order of acknowledgements, subscriptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rove.client.protocol import DeliveryToken, Ended, Opened, ProtocolSettings, PublishReceived
from rove.client.session import ClientSession, Outgoing, SubscriptionRequest
from rove.mqtt.decoder import PacketDecoder
from rove.mqtt.encoder import encode
from rove.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Filter,
    Packet,
    Pingreq,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Reason,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)

Answers = list[tuple[int, str | None]]


class Pair:
    """A session, and a broker's view of what it says."""

    def __init__(self, **settings: Any) -> None:
        self.session = ClientSession(ProtocolSettings(**settings))
        self.now = 0.0
        self.reader = PacketDecoder()
        self.arrived: list[tuple[bytes, DeliveryToken | None]] = []
        self.ended: list[Ended] = []

    def open(self, *, present: bool = False, restored: Sequence[bytes] = (), **said: Any) -> None:
        """Connect and be accepted; what the session says of itself is in `connect`."""
        self.reader = PacketDecoder()
        self.session.open(self.now)
        (connect,) = self.said()
        assert isinstance(connect, Connect)
        self.connect = connect
        data = encode(Connack(present, properties=Properties(**said)))
        assert self.session.receive(data, self.now) == [Opened(present)]
        self.session.resume(
            [Outgoing(Publish("$rove", each, 1), lambda *_: None) for each in restored]
        )

    def said(self) -> list[Packet]:
        """What the session has sent since."""
        packets = self.reader.feed(self.session.output(self.now))
        assert all(isinstance(packet, Packet) for packet in packets)
        return packets  # type: ignore[return-value]

    def hear(self, *packets: Packet) -> None:
        for event in self.session.receive(b"".join(map(encode, packets)), self.now):
            if isinstance(event, PublishReceived):
                self.arrived.append((event.publish.payload, event.delivery))
            elif isinstance(event, Ended):
                self.ended.append(event)

    def publish(self, payload: bytes, qos: int = 1, **more: Any) -> Answers:
        """Publish; the answers will appear in what is returned."""
        answers: Answers = []
        publish = Publish("t", payload, qos, **more)
        self.session.publish(Outgoing(publish, lambda *answer: answers.append(answer)))
        return answers

    def subscribe(
        self, identifier: int, topic_filter: str = "t"
    ) -> tuple[SubscriptionRequest, Answers]:
        answers: Answers = []
        wanted = SubscriptionRequest(
            identifier, Filter(topic_filter, 1), (("filter", "x > 1"),), print
        )
        wanted.answered = lambda *answer: answers.append(answer)
        self.session.subscribe(wanted)
        return wanted, answers

    def lose(self) -> None:
        self.session.lose()

    def take(self, position: int) -> None:
        delivery = self.arrived[position][1]
        assert delivery is not None
        self.session.acknowledge(delivery)


def notice(packet_id: int, payload: bytes = b"n", qos: int = 1, dup: bool = False) -> Publish:
    return Publish("t", payload, qos, dup=dup, packet_id=packet_id)


def published(packets: list[Packet]) -> list[tuple[bytes, bool, int]]:
    return [(p.payload, p.dup, p.packet_id) for p in packets if isinstance(p, Publish)]


# -- connecting --------------------------------------------------------------------------------


def test_it_says_who_it_is() -> None:
    pair = Pair(client_id="me", user_name="u", password=b"p", session_expiry_s=9, receive_max=7)
    pair.open()
    assert (pair.connect.client_id, pair.connect.user_name) == ("me", "u")
    assert pair.connect.password == b"p"
    assert pair.connect.clean_start
    assert pair.connect.properties.session_expiry_s == 9
    assert pair.connect.properties.receive_max == 7


def test_later_connections_want_the_session_back_under_the_name_that_was_given() -> None:
    pair = Pair()
    pair.open(assigned_client_id="given")
    pair.lose()
    pair.open(present=True)
    assert pair.connect.client_id == "given"
    assert not pair.connect.clean_start


def test_a_first_connection_that_failed_is_still_the_first() -> None:
    pair = Pair(clean_start=True)
    pair.session.open(0)
    pair.lose()
    pair.open()
    assert pair.connect.clean_start


def test_a_refusal_is_told_with_the_brokers_words() -> None:
    pair = Pair()
    pair.session.open(0)
    words = Properties(reason_string="who are you?")
    pair.hear(Connack(False, Reason.BAD_USER_NAME_OR_PASSWORD, words))
    assert pair.ended == [Ended(Reason.BAD_USER_NAME_OR_PASSWORD, "who are you?", refused=True)]
    assert not pair.session.is_open


def test_a_broker_that_moved_says_where_to() -> None:
    pair = Pair()
    pair.open()
    properties = Properties(server_reference="other:1883")
    pair.hear(Disconnect(Reason.SERVER_MOVED, properties))
    assert pair.ended == [Ended(Reason.SERVER_MOVED, "moved: other:1883")]


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (Auth(Reason.REAUTHENTICATE), Reason.PROTOCOL_ERROR),
        (Pingreq(), Reason.PROTOCOL_ERROR),
    ],
)
def test_a_broker_that_breaks_the_rules_is_told_and_left(packet: Packet, reason: int) -> None:
    pair = Pair()
    pair.open()
    pair.hear(packet, notice(1))
    assert [ended.reason for ended in pair.ended] == [reason]
    assert "may not" in (pair.ended[0].text or "")
    assert pair.said() == [Disconnect(reason)]
    assert pair.arrived == []


# -- publishing --------------------------------------------------------------------------------


def test_qos_0_is_answered_for_when_it_is_sent() -> None:
    pair = Pair()
    answers = pair.publish(b"a", 0)
    assert answers == []
    pair.open()
    assert answers == [(0, None)]
    assert published(pair.said()) == [(b"a", False, 0)]


def test_qos_1_is_answered_for_by_the_broker() -> None:
    pair = Pair()
    pair.open()
    answers = pair.publish(b"a")
    assert answers == []
    pair.hear(Puback(1, Reason.NOT_AUTHORIZED, Properties(reason_string="no")))
    assert answers == [(Reason.NOT_AUTHORIZED, "no")]
    assert pair.session.unfinished() == []


def test_qos_2_takes_four_steps() -> None:
    pair = Pair()
    pair.open()
    answers = pair.publish(b"a", 2)
    assert published(pair.said()) == [(b"a", False, 1)]
    pair.hear(Pubrec(1))
    assert pair.said() == [Pubrel(1)]
    assert answers == []
    pair.hear(Pubcomp(1))
    assert answers == [(0, None)]


@pytest.mark.parametrize("present", [None, True, False])
def test_of_qos_2_the_broker_says_in_pubrec_what_became_of_it(present: bool | None) -> None:
    """PUBCOMP only says that the packet identifier is free; a loss in between changes nothing."""
    pair = Pair()
    pair.open()
    answers = pair.publish(b"a", 2)
    words = Properties(reason_string="nobody wants it")
    pair.hear(Pubrec(1, Reason.NO_MATCHING_SUBSCRIBERS, words))
    if present is not None:
        pair.lose()
        pair.open(present=present)
    pair.hear(Pubcomp(1))
    assert answers == [(Reason.NO_MATCHING_SUBSCRIBERS, "nobody wants it")]


def test_qos_2_counts_against_the_brokers_receive_maximum_until_pubcomp() -> None:
    pair = Pair()
    pair.open(receive_max=1)
    pair.publish(b"a", 2)
    pair.publish(b"b", 2)
    assert published(pair.said()) == [(b"a", False, 1)]
    pair.hear(Pubrec(1))
    assert pair.said() == [Pubrel(1)]
    pair.hear(Pubcomp(1))
    assert published(pair.said()) == [(b"b", False, 2)]


def test_qos_2_that_the_broker_has_finished_with_before_is_finished() -> None:
    pair = Pair()
    pair.open()
    answers = pair.publish(b"a", 2)
    pair.hear(Pubrec(1))
    pair.lose()
    pair.open(present=True)
    assert pair.said() == [Pubrel(1)]
    pair.hear(Pubcomp(1, Reason.PACKET_ID_NOT_FOUND))
    assert answers == [(0, None)]


def test_qos_2_can_be_refused() -> None:
    pair = Pair()
    pair.open()
    answers = pair.publish(b"a", 2)
    pair.said()
    pair.hear(Pubrec(1, Reason.QUOTA_EXCEEDED))
    assert answers == [(Reason.QUOTA_EXCEEDED, None)]
    assert pair.said() == []


def held(packet_id: int, told: Answers) -> Outgoing:
    """A publication whose packet identifier was chosen, and that is released when we say so."""
    packet = Publish("t", b"x", qos=2, packet_id=packet_id)
    return Outgoing(packet, lambda *answer: told.append(answer), holds=True)


def test_one_that_holds_is_released_when_it_is_said() -> None:
    pair, received, released = Pair(), Answers(), Answers()
    pair.open()
    outgoing = held(77, received)
    pair.session.publish(outgoing)
    assert published(pair.said()) == [(b"x", True, 77)]
    pair.hear(Pubrec(77), Pubrec(77))
    assert received == [(Reason.SUCCESS, None)]
    assert pair.said() == []
    pair.session.release(outgoing, lambda *answer: released.append(answer))
    assert pair.said() == [Pubrel(77)]
    pair.hear(Pubcomp(77))
    assert (received, released) == ([(Reason.SUCCESS, None)], [(Reason.SUCCESS, None)])


@pytest.mark.parametrize("present", [True, False])
def test_of_what_holds_only_what_the_broker_lacks_is_sent_again(present: bool) -> None:
    pair, told, released = Pair(), Answers(), Answers()
    pair.open()
    taken, lost = held(5, told), held(6, told)
    for each in (taken, lost):
        pair.session.publish(each)
    pair.hear(Pubrec(5))
    pair.session.lose()
    pair.open(present=present)
    assert published(pair.said()) == [(b"x", True, 6)]
    pair.session.release(taken, lambda *answer: released.append(answer))
    assert pair.said() == [Pubrel(5)] * present
    assert len(released) == (not present)


@pytest.mark.parametrize("present", [True, False])
def test_what_an_earlier_process_left_is_released(present: bool) -> None:
    pair, released = Pair(clean_start=False, client_id="a"), Answers()
    pair.session.release_earlier([5, 9], lambda *answer: released.append(answer))
    pair.open(present=present)
    assert pair.said() == [Pubrel(5), Pubrel(9)] * present
    pair.hear(Pubcomp(5), Pubcomp(9, Reason.PACKET_ID_NOT_FOUND))
    assert released == [(Reason.SUCCESS, None)] * 2


def test_answers_to_nothing_change_nothing() -> None:
    pair = Pair()
    pair.open()
    pair.hear(Puback(9), Pubcomp(9), Suback(9, (0,)), Unsuback(9, (0,)), Pubrec(9))
    assert pair.said() == [Pubrel(9, Reason.PACKET_ID_NOT_FOUND)]
    assert pair.ended == []


def test_no_more_is_under_way_than_the_broker_receives() -> None:
    pair = Pair()
    pair.open(receive_max=2)
    for number in range(5):
        pair.publish(b"%d" % number)
    pair.publish(b"last", 0)
    assert [payload for payload, _, _ in published(pair.said())] == [b"0", b"1"]
    pair.hear(Puback(1))
    assert [payload for payload, _, _ in published(pair.said())] == [b"2"]
    pair.hear(Puback(2), Puback(3), Puback(4))
    assert [payload for payload, _, _ in published(pair.said())] == [b"3", b"4", b"last"]


def test_nothing_is_sent_into_a_connection_that_takes_nothing() -> None:
    pair = Pair()
    pair.open()
    pair.session.is_congested = True
    answers = pair.publish(b"a", 0)
    assert pair.said() == []
    pair.session.continue_sending()
    assert answers == [(0, None)]
    assert pair.session.output_bytes > 0
    assert published(pair.said()) == [(b"a", False, 0)]
    assert pair.session.output_bytes == 0


@pytest.mark.parametrize(
    ("said", "publication", "reason"),
    [
        ({"packet_size_max": 20}, {"payload": b"x" * 20}, Reason.PACKET_TOO_LARGE),
        ({"qos_max": 0}, {"payload": b"x"}, Reason.QOS_NOT_SUPPORTED),
        ({"retain_available": 0}, {"payload": b"x", "retain": True}, Reason.RETAIN_NOT_SUPPORTED),
    ],
)
def test_what_the_broker_said_it_refuses_is_not_sent(
    said: dict[str, Any], publication: dict[str, Any], reason: int
) -> None:
    pair = Pair()
    pair.open(**said)
    answers = pair.publish(**publication)
    assert [code for code, _ in answers] == [reason]
    assert pair.said() == []
    assert pair.publish(b"", 0) == [(0, None)]


def test_packet_identifiers_in_use_are_left_out() -> None:
    pair = Pair()
    pair.open()
    pair.publish(b"first")
    pair.session._last_packet_id = 65_534
    pair.publish(b"a")
    pair.publish(b"b")
    assert [packet_id for _, _, packet_id in published(pair.said())] == [1, 65_535, 2]


# -- publishing over a lost connection -----------------------------------------------------------


def test_publications_made_while_away_are_sent_in_order() -> None:
    pair = Pair()
    pair.open()
    pair.lose()
    for payload in (b"a", b"b", b"c"):
        pair.publish(payload)
    pair.open(present=True)
    assert [payload for payload, _, _ in published(pair.said())] == [b"a", b"b", b"c"]


def test_a_known_session_is_sent_the_same_again() -> None:
    pair = Pair()
    pair.open()
    answers = [pair.publish(b"a"), pair.publish(b"b", 2), pair.publish(b"c", 2)]
    pair.hear(Pubrec(2))
    pair.lose()
    pair.publish(b"new")
    pair.open(present=True)
    said = pair.said()
    assert published(said) == [(b"a", True, 1), (b"c", True, 3), (b"new", False, 4)]
    assert said[1] == Pubrel(2)
    pair.hear(Puback(1), Pubcomp(2), Pubrec(3), Pubcomp(3))
    assert answers == [[(0, None)], [(0, None)], [(0, None)]]


def test_a_forgotten_session_is_sent_it_as_new_and_first() -> None:
    pair = Pair()
    pair.open()
    answers = [pair.publish(b"a"), pair.publish(b"b", 2), pair.publish(b"c", 2)]
    pair.hear(Pubrec(2))
    pair.lose()
    pair.publish(b"new")
    pair.open(present=False)
    assert [(payload, dup) for payload, dup, _ in published(pair.said())] == [
        (b"a", False),
        (b"c", False),
        (b"new", False),
    ]
    assert answers == [[], [(0, None)], []]  # the broker has had b, only its last word was lost


def test_resending_keeps_to_a_window_that_has_become_smaller() -> None:
    pair = Pair()
    pair.open()
    for number in range(4):
        pair.publish(b"%d" % number)
    pair.lose()
    pair.open(present=True, receive_max=1)
    assert published(pair.said()) == [(b"0", True, 1)]
    pair.hear(Puback(1))
    assert published(pair.said()) == [(b"1", True, 2)]


def test_a_second_loss_changes_nothing() -> None:
    pair = Pair()
    pair.open()
    pair.publish(b"a")
    for _ in range(3):
        pair.lose()
        pair.open(present=True)
        assert published(pair.said()) == [(b"a", True, 1)]
    assert len(pair.session.unfinished()) == 1


# -- subscriptions -------------------------------------------------------------------------------


def test_a_subscription_carries_its_identifier_and_its_text() -> None:
    pair = Pair()
    pair.open()
    _, answers = pair.subscribe(7)
    (asked,) = pair.said()
    assert isinstance(asked, Subscribe)
    assert asked.properties.subscription_ids == (7,)
    assert asked.properties.user == (("filter", "x > 1"),)
    pair.hear(Suback(asked.packet_id, (1,)))
    assert answers == [(1, None)]


def test_a_broker_without_identifiers_is_sent_none() -> None:
    pair = Pair()
    pair.open(subscription_ids_available=0)
    pair.subscribe(7)
    (asked,) = pair.said()
    assert isinstance(asked, Subscribe)
    assert asked.properties.subscription_ids == ()


def test_subscriptions_are_made_again_only_where_they_are_forgotten() -> None:
    pair = Pair()
    pair.open()
    pair.subscribe(1)
    pair.subscribe(2, "u")
    pair.hear(Suback(1, (1,)), Suback(2, (1,)))
    pair.said()
    pair.lose()
    pair.open(present=True)
    assert pair.said() == []
    pair.lose()
    pair.open(present=False)
    again = pair.said()
    assert [each.filters[0].topic_filter for each in again if isinstance(each, Subscribe)] == [
        "t",
        "u",
    ]


def test_one_that_was_never_answered_is_made_again_in_a_known_session_too() -> None:
    pair = Pair()
    pair.open()
    _, answers = pair.subscribe(1)
    pair.said()
    pair.lose()
    pair.open(present=True)
    (asked,) = pair.said()
    assert isinstance(asked, Subscribe)
    pair.hear(Suback(asked.packet_id, (1,)))
    assert answers == [(1, None)]


def test_a_refused_one_is_not_tried_again() -> None:
    pair = Pair()
    pair.open()
    _, answers = pair.subscribe(1)
    pair.hear(Suback(1, (Reason.NOT_AUTHORIZED,), Properties(reason_string="no")))
    assert answers == [(Reason.NOT_AUTHORIZED, "no")]
    pair.said()
    pair.lose()
    pair.open(present=False)
    assert pair.said() == []


def test_ending_one_names_it() -> None:
    pair = Pair()
    pair.open()
    wanted, _ = pair.subscribe(7)
    pair.said()
    answers: Answers = []
    pair.session.unsubscribe(wanted, lambda *answer: answers.append(answer))
    (asked,) = pair.said()
    assert isinstance(asked, Unsubscribe)
    assert asked.topic_filters == ("t",)
    assert asked.properties.user == (("subscription", "7"),)
    pair.hear(Unsuback(asked.packet_id, (0,)))
    assert answers == [(0, None)]


@pytest.mark.parametrize("present", [True, False])
def test_one_that_ended_while_away_is_ended_where_it_is_remembered(present: bool) -> None:
    pair = Pair()
    pair.open()
    wanted, _ = pair.subscribe(7)
    pair.hear(Suback(1, (1,)))
    pair.lose()
    answers: Answers = []
    pair.session.unsubscribe(wanted, lambda *answer: answers.append(answer))
    pair.said()
    pair.open(present=present)
    kinds = [type(packet) for packet in pair.said()]
    assert kinds == ([Unsubscribe] if present else [])
    assert answers == ([] if present else [(0, None)])


def test_what_has_to_be_restored_comes_before_subscriptions_and_what_waited() -> None:
    pair = Pair()
    pair.open()
    pair.subscribe(1)
    pair.lose()
    pair.publish(b"waited")
    pair.open(restored=[b"me", b"policy"])
    said = pair.said()
    assert [type(packet) for packet in said] == [Publish, Publish, Subscribe, Publish]
    assert [payload for payload, _, _ in published(said)] == [b"me", b"policy", b"waited"]


def test_subscriptions_wait_until_the_brokers_window_has_let_all_of_it_pass() -> None:
    pair = Pair()
    pair.open()
    pair.subscribe(1)
    pair.lose()
    pair.open(restored=[b"me", b"policy"], receive_max=1)
    pair.subscribe(2)
    wanted, _ = pair.subscribe(3)
    pair.session.unsubscribe(wanted, lambda *_: None)
    assert published(pair.said()) == [(b"me", False, 2)]
    pair.hear(Puback(2))
    said = pair.said()
    assert [type(packet) for packet in said] == [Publish, Unsubscribe, Subscribe, Subscribe]
    assert [each.properties.subscription_ids for each in said if type(each) is Subscribe] == [
        (1,),
        (2,),
    ]


# -- notifications -------------------------------------------------------------------------------


def test_acknowledgements_keep_the_order_of_arrival() -> None:
    pair = Pair()
    pair.open()
    pair.hear(notice(1), notice(2, qos=2), notice(3))
    pair.take(2)
    pair.take(1)
    assert pair.said() == []
    pair.take(0)
    assert pair.said() == [Puback(1), Pubrec(2), Puback(3)]
    pair.hear(Pubrel(2))
    assert pair.said() == [Pubcomp(2)]


def test_qos_0_needs_no_acknowledgement() -> None:
    pair = Pair()
    pair.open()
    pair.hear(notice(0, qos=0))
    assert pair.arrived == [(b"n", None)]


def test_what_comes_again_is_not_handed_over_again() -> None:
    pair = Pair()
    pair.open()
    pair.hear(notice(1, b"one"), notice(2, b"two"))
    pair.lose()
    pair.take(0)
    pair.open(present=True)
    pair.hear(notice(1, b"one", dup=True), notice(2, b"two", dup=True))
    assert len(pair.arrived) == 2
    assert pair.said() == [Puback(1)]
    pair.take(1)
    assert pair.said() == [Puback(2)]


def test_an_old_packet_identifier_may_carry_something_new() -> None:
    pair = Pair()
    pair.open()
    pair.hear(notice(1, b"withdrawn while away"))
    pair.lose()
    pair.open(present=True)
    pair.hear(notice(1, b"new"))
    assert [payload for payload, _ in pair.arrived] == [b"withdrawn while away", b"new"]
    pair.take(0)
    assert pair.said() == []
    pair.take(1)
    assert pair.said() == [Puback(1)]


def test_a_forgotten_session_forgets_what_was_not_acknowledged() -> None:
    pair = Pair()
    pair.open()
    pair.hear(notice(1, b"one"))
    pair.lose()
    pair.open(present=False)
    pair.take(0)
    pair.hear(notice(1, b"one", dup=True))
    assert len(pair.arrived) == 2
    assert pair.said() == []


def test_qos_2_that_was_taken_is_not_taken_twice() -> None:
    pair = Pair()
    pair.open()
    pair.hear(notice(1, qos=2))
    pair.take(0)
    pair.lose()
    pair.open(present=True)
    pair.hear(notice(1, qos=2, dup=True))
    assert len(pair.arrived) == 1
    assert pair.said() == [Pubrec(1)]
    pair.hear(Pubrel(1))
    assert pair.said() == [Pubcomp(1)]
    pair.hear(notice(1, b"another", qos=2))
    assert len(pair.arrived) == 2


def test_a_broker_that_sends_more_than_was_asked_for_is_left() -> None:
    pair = Pair(receive_max=2)
    pair.open()
    pair.hear(notice(1), notice(2))
    assert pair.ended == []
    pair.hear(notice(3))
    assert [ended.reason for ended in pair.ended] == [Reason.RECEIVE_MAX_EXCEEDED]
