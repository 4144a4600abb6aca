"""Pressure: who is slow is closed, who is quick waits."""

from __future__ import annotations

from rove.broker.access import Identity
from rove.broker.limits import Limits
from rove.mqtt.encoder import encode
from rove.mqtt.packets import Filter, Subscribe
from rove.testing.mqtt import SimulatedBroker


def test_a_connection_that_takes_nothing_for_long_is_closed() -> None:
    world = SimulatedBroker(limits=Limits(unsent_disconnect_s=5))
    slow = world.connect("slow")
    assert slow.link is not None
    slow.link.buffered_bytes = 1000
    world.broker.stuck(slow.link, world.now)
    world.advance(4.0)
    assert not slow.is_closed()
    world.advance(2.0)
    assert slow.is_closed()
    assert world.broker.counters.slow_disconnected == 1


def test_a_publisher_that_is_too_quick_waits_by_itself() -> None:
    world = SimulatedBroker(limits=Limits(publish_per_s_max=2))
    quick, calm = world.connect("quick"), world.connect("calm")
    assert quick.link is not None
    assert calm.link is not None
    for _ in range(4):
        quick.publish("a")
    calm.publish("a")
    assert (quick.link.is_paused, calm.link.is_paused) == (True, False)
    assert world.broker.is_throttling
    world.advance(3.0)
    assert not quick.link.is_paused


def test_publishers_wait_while_too_much_waits_for_another_broker() -> None:
    world = SimulatedBroker(limits=Limits(memory_bytes_high=5_000, memory_bytes_low=3_000))
    broker, identity = world.broker, Identity(None, "broker:b2")
    link = broker.broker_opened("b2", "b2", identity, 0.0, world.now)
    assert link is not None
    broker.received(link, encode(Subscribe(1, (Filter("a", 2),))), world.now)
    world.turn()
    broker.closed(link, world.now)
    publisher = world.connect("publisher")
    was_paused = []
    for _ in range(4):
        publisher.publish("a", bytes(1_500), 1)
        was_paused.append(broker.backpressure.is_paused)
    assert was_paused == [False, False, False, True]
    assert broker.broker_opened("b2", "b2", identity, 0.0, world.now) is not None
    world.turn()
    assert not broker.backpressure.is_paused
    assert broker.counters.notifications_dropped_overflow == 0
