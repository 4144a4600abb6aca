"""Subscribers are told when nobody knows whether they wanted something."""

import msgspec
import pytest

from rove.match.patterns import automaton
from rove.mqtt.packets import Puback, Publish, Reason
from rove.testing.mqtt import SimulatedBroker


def test_patterns_that_take_too_many_steps_are_told_to_their_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The publication is taken, whoever is decided gets it, and a counter counts the rest."""
    monkeypatch.setattr(automaton, "PATTERN_STEPS_MAX", -64 * 1_000)
    world = SimulatedBroker()
    publisher, other = world.connect("publisher"), world.connect("other")
    owner = world.connect("owner")
    owner.subscribe("$rove/undecided")
    owner.subscribe("a", identifier=7, filter="s LIKE '%x%y%'")
    other.subscribe("$rove/undecided")
    other.subscribe("a", filter="contains(s, 'x')")
    other.subscribe("b", filter="s LIKE '%x%y%'")
    publisher.publish("a", b'{"s": "%s"}' % (b"xy" * 500), 1)
    assert publisher.only(Puback).reason == Reason.SUCCESS
    told = owner.only(Publish)
    assert told.topic == "$rove/undecided"
    assert msgspec.json.decode(told.payload)["subscription"] == 7
    assert other.only(Publish).topic == "a"
    assert world.broker.counters.matches_undecided == 1
    publisher.publish("a", b'{"s": "xy"}', 1)
    assert world.broker.counters.matches_undecided == 2, "shorter strings have fewer steps"
    monkeypatch.undo()
    owner.inbox.clear()
    publisher.publish("a", b'{"s": "xy"}', 1)
    assert owner.only(Publish).topic == "a"
