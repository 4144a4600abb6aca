"""The gate: nothing is promised before it is kept, and nobody overtakes."""

import pytest

from rove.broker.access import Identity
from rove.broker.gate import Gate
from rove.broker.sessions.session import Link
from rove.mqtt.encoder import encode
from rove.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Publish,
    Pubrec,
    Reason,
    Suback,
)
from rove.testing.mqtt import SimulatedBroker


def new_link(name: str = "link") -> Link:
    return Link(name, 0.0, 1_000)


class TestGate:
    def test_what_needs_no_disk_goes_out_with_the_turn(self) -> None:
        gate, link = Gate(), new_link()
        gate.send(link, b"1")
        gate.send(link, b"2")
        assert gate.end_turn() is None
        assert gate.take_ready() == [link]
        assert link.out == [b"1", b"2"]

    def test_what_waits_goes_out_with_the_turn_if_nothing_is_to_be_kept(self) -> None:
        gate, link = Gate(), new_link()
        gate.send_after_commit(link, b"1")
        assert gate.end_turn() is None
        assert link.out == [b"1"]

    def test_what_waits_goes_out_when_it_is_kept(self) -> None:
        gate, link = Gate(), new_link()
        gate.changes.put("sessions", "a", b"")
        gate.send_after_commit(link, b"1")
        changes = gate.end_turn()
        assert changes is not None
        assert list(changes.rows()) == [("sessions", "a", b"")]
        assert (gate.take_ready(), gate.held_bytes) == ([], 1)
        gate.commit_done(gate.submitted)
        assert (gate.take_ready(), gate.held_bytes) == ([link], 0)
        assert link.out == [b"1"]

    def test_a_later_turn_without_changes_waits_for_an_earlier_one_with(self) -> None:
        gate, link = Gate(), new_link()
        gate.changes.put("sessions", "a", b"")
        gate.send_after_commit(link, b"1")
        gate.end_turn()
        gate.send_after_commit(link, b"2")
        assert gate.end_turn() is None
        assert link.out == []
        gate.commit_done(1)
        assert link.out == [b"1", b"2"]

    def test_each_commit_releases_its_own(self) -> None:
        gate, link = Gate(), new_link()
        for number in (b"1", b"2", b"3"):
            gate.changes.put("sessions", "a", number)
            gate.send_after_commit(link, number)
            gate.end_turn()
        gate.commit_done(1)
        assert link.out == [b"1"]
        gate.commit_done(3)
        assert link.out == [b"1", b"2", b"3"]

    def test_a_link_that_is_closing_is_sent_nothing_more(self) -> None:
        gate, link, other = Gate(), new_link(), new_link("other")
        gate.changes.put("sessions", "a", b"")
        gate.send_after_commit(link, b"1")
        gate.send_after_commit(other, b"1")
        gate.end_turn()
        link.closing = True
        gate.commit_done(1)
        assert link.out == []
        assert gate.take_ready() == [other]

    def test_what_is_sent_in_order_makes_the_rest_wait_for_one_commit_and_no_other(self) -> None:
        gate, link = Gate(), new_link()
        gate.changes.put("sessions", "a", b"")
        gate.send_in_order(link, b"1")
        gate.send(link, b"2")
        gate.end_turn()
        for turn in (b"3", b"4"):
            gate.changes.put("sessions", "a", b"")
            gate.send(link, turn)
            gate.end_turn()
        assert link.out == []
        gate.commit_done(1)
        assert link.out == [b"1", b"2", b"3", b"4"]
        gate.send(link, b"5")
        assert link.out[-1] == b"5"
        assert gate.held_bytes == 0

    def test_also_if_its_turn_had_nothing_to_keep(self) -> None:
        gate, link = Gate(), new_link()
        gate.changes.put("sessions", "a", b"")
        gate.end_turn()
        gate.send_in_order(link, b"1")
        gate.end_turn()
        gate.send(link, b"2")
        gate.changes.put("sessions", "a", b"")
        gate.end_turn()
        gate.send(link, b"3")
        gate.end_turn()
        assert link.out == []
        gate.commit_done(2)
        gate.send(link, b"4")
        assert link.out == [b"1", b"2", b"3", b"4"]

    def test_where_nothing_is_kept_nothing_waits_after_the_turn(self) -> None:
        gate, link = Gate(), new_link()
        gate.send_in_order(link, b"1")
        gate.end_turn()
        gate.send(link, b"2")
        assert link.out == [b"1", b"2"]

    def test_a_disconnect_does_not_wait_for_the_commit(self) -> None:
        gate, link = Gate(), new_link()
        gate.changes.put("sessions", "a", b"")
        gate.send_in_order(link, b"1")
        gate.send_at_once(link, b"bye")
        assert link.out == [b"bye"]


class TestPromises:
    def test_nothing_is_acknowledged_before_the_commit(self) -> None:
        world = SimulatedBroker()
        away = world.connect("away", expiry_s=60)
        away.subscribe("a", qos=2)
        away.drop()
        client = world.connect(expiry_s=60)
        world.holds_commits = True
        client.publish("a", b"1", 1, packet_id=1)
        client.publish("a", b"2", 2, packet_id=2)
        client.send_subscribe("b")
        assert client.inbox == []
        world.commit()
        assert [type(packet) for packet in client.inbox] == [Puback, Pubrec, Suback]

    def test_an_acknowledgement_that_needs_no_disk_does_not_overtake_one_that_does(self) -> None:
        world = SimulatedBroker()
        away = world.connect("away", expiry_s=60)
        away.subscribe("a", qos=1)
        away.drop()
        client = world.connect()
        world.holds_commits = True
        client.publish("a", b"1", 1, packet_id=1)
        client.publish("nobody/wants/this", b"2", 1, packet_id=2)
        assert client.inbox == []
        world.commit()
        assert [packet.packet_id for packet in client.take(Puback)] == [1, 2]

    def test_a_session_is_not_promised_before_it_is_kept(self) -> None:
        world = SimulatedBroker(holds_commits=True)
        client = world.client()
        client.send_connect(expiry_s=60)
        client.send(Pingreq())
        assert client.inbox == []
        world.commit()
        assert [type(packet) for packet in client.inbox] == [Connack, Pingresp]

    def test_nor_is_the_end_of_one(self) -> None:
        world = SimulatedBroker()
        world.connect(expiry_s=60).drop()
        world.holds_commits = True
        client = world.client()
        client.send_connect(clean_start=True)
        assert client.inbox == []
        world.commit()
        assert not client.only(Connack).session_present

    def test_who_leaves_nothing_behind_is_let_in_at_once(self) -> None:
        world = SimulatedBroker(holds_commits=True)
        assert not world.client().connect().session_present

    def test_commits_release_one_after_the_other(self) -> None:
        world = SimulatedBroker()
        away = world.connect("away", expiry_s=60)
        away.subscribe("a", qos=1)
        away.drop()
        client = world.connect()
        world.holds_commits = True
        for packet_id in (1, 2, 3):
            client.publish("a", b"", 1, packet_id=packet_id)
        for packet_id in (1, 2, 3):
            world.commit(1)
            assert client.only(Puback).packet_id == packet_id

    def test_where_nothing_is_kept_nobody_waits(self) -> None:
        world = SimulatedBroker(holds_commits=True)
        client = world.connect()
        world.commit()
        client.subscribe("a", qos=1)
        world.commit()
        client.publish("a", b"1", 1)
        assert client.payloads() == [b"1"]
        assert len(client.take(Puback)) == 1

    def test_qos_0_and_pings_wait_for_no_disk(self) -> None:
        world = SimulatedBroker()
        client = world.connect(expiry_s=60)
        client.subscribe("a", qos=1)
        world.holds_commits = True
        client.publish("a", b"1", 1)
        client.publish("a", b"0", 0)
        client.send(Pingreq())
        assert [type(packet) for packet in client.inbox] == [Publish, Pingresp]
        assert client.payloads() == [b"0"]


@pytest.mark.parametrize("in_one_turn", [False, True])
def test_who_is_taken_over_before_it_was_welcomed_is_just_closed(in_one_turn: bool) -> None:
    world = SimulatedBroker(holds_commits=True)
    old, new = world.client("client"), world.client("client")
    old.send_connect(expiry_s=60)
    if in_one_turn:
        world.commit()
        old = world.client("client")
        old.open()
        assert old.link is not None
        packet = Connect("client", properties=Properties(session_expiry_s=60))
        old.link.identity = Identity(None, "client")
        world.broker.received(old.link, encode(packet), world.now)
    new.send_connect(expiry_s=60)
    world.commit()
    assert old.is_closed()
    assert old.inbox == []
    assert new.only(Connack).reason == Reason.SUCCESS
    third = world.client("client")
    third.send_connect(expiry_s=60)
    assert new.only(Disconnect).reason == Reason.SESSION_TAKEN_OVER
