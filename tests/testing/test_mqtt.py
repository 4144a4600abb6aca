"""The broker in memory: clients, time and disk do what they say."""

import pytest

from rove.broker.storage.journal import Changes
from rove.mqtt.packets import Connack, Puback, Publish
from rove.testing.mqtt import START, SimulatedBroker, SimulatedDisk


def test_the_example_of_the_module_holds() -> None:
    world = SimulatedBroker()
    alice = world.connect("alice")
    alice.subscribe("air/#", filter="NO2 > 40")
    bob = world.connect("bob")
    bob.publish("air/zagreb", b'{"NO2": 40}')
    bob.publish("air/zagreb", b'{"NO2": 41}')
    assert alice.payloads() == [b'{"NO2": 41}']


def test_a_disk_has_what_was_applied() -> None:
    disk = SimulatedDisk()
    changes = Changes()
    changes.put("queue", 2, b"b")
    changes.put("queue", 1, b"a")
    disk.apply(changes)
    assert disk.rows()["queue"] == [(1, b"a"), (2, b"b")]
    later = Changes()
    later.delete("queue", 1)
    disk.apply(later)
    assert disk.sizes() == {"queue": 1}


def test_held_commits_wait_until_they_are_told() -> None:
    world = SimulatedBroker(holds_commits=True)
    client = world.client("client")
    client.send_connect(expiry_s=60)
    assert client.inbox == []
    assert world.disk.sizes() == {}
    world.commit()
    assert not client.only(Connack).session_present
    assert world.disk.sizes() == {"sessions": 1}


def test_a_crash_forgets_what_was_not_committed() -> None:
    world = SimulatedBroker()
    world.connect("kept", expiry_s=60)
    world.holds_commits = True
    lost = world.client("lost")
    lost.send_connect(expiry_s=60)
    world.crash()
    assert lost.is_closed()
    assert set(world.broker.context.sessions) == {"kept"}


def test_time_passes_only_when_told() -> None:
    world = SimulatedBroker()
    world.advance(2.5)
    assert world.now == START + 2.5
    assert world.broker.context.now == START + 2.5


def test_a_dropped_connection_is_no_more() -> None:
    world = SimulatedBroker()
    client = world.connect("client")
    client.drop()
    assert client.is_closed()
    assert not world.broker.context.links


def test_only_says_what_came_instead() -> None:
    world = SimulatedBroker()
    client = world.connect("client")
    client.publish("a", b"", 1)
    with pytest.raises(AssertionError, match=r"0 of Connack; in the inbox: .*Puback"):
        client.only(Connack)
    assert client.only(Puback).packet_id == 1


def test_take_all_acknowledges_until_nothing_more_comes() -> None:
    world = SimulatedBroker()
    client = world.connect("client")
    client.subscribe("a", qos=2)
    for qos in (0, 1, 2):
        client.publish("a", bytes([qos]), qos)
    assert [packet.payload for packet in client.take_all()] == [b"\0", b"\1", b"\2"]
    assert not world.broker.context.sessions["client"].inflight
    assert client.take(Publish) == []
