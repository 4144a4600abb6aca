"""Faults: who is told of one, and that nobody else waits because of it."""

from __future__ import annotations

from typing import Any

import pytest

from rove.broker.state import Settings
from rove.elastic.cells import Cell
from rove.elastic.elasticity import Elasticity
from rove.mqtt.packets import (
    V311,
    Connack,
    Disconnect,
    Puback,
    Publish,
    Reason,
)
from rove.testing.matchers import SimulatedMatchers
from rove.testing.mqtt import World
from rove.testing.policies import SimulatedWorkers
from tests.broker.test_faults import POLICY, Injected, check_restart, decode


class TestTelling:
    def test_a_client_of_version_5_is_told_and_may_come_back(self) -> None:
        world = World()
        other, client = world.connect("other"), world.connect("client", expiry_s=100)
        fail_once(world.broker.state.keeper, "retain")
        client.publish("a", b"x", 1, retain=True)
        goodbye = client.only(Disconnect)
        assert goodbye.reason == Reason.UNSPECIFIED_ERROR
        assert "while it handled this PUBLISH" in (goodbye.properties.reason_string or "")
        assert (client.is_closed(), other.is_closed()) == (True, False)
        client.come_back()
        client.publish("a", b"x", 1, retain=True)
        assert client.only(Puback).reason < Reason.UNSPECIFIED_ERROR

    def test_a_client_of_version_3_is_closed(self) -> None:
        world = World()
        client = world.connect("client", version=V311)
        fail_once(world.broker.state.keeper, "retain")
        client.publish("a", b"x", 1, retain=True)
        assert (client.is_closed(), client.inbox) == (True, [])

    def test_the_log_says_whom_it_hit_and_where_it_was_raised(self) -> None:
        world = World(settings=Settings(version="1.2.3"))
        client = world.connect("client")
        fail_once(world.broker.state.keeper, "retain")
        client.publish("a", b"x", 1, retain=True)
        (note,) = [note for note in world.notes if note.event == "fault"]
        facts = note.facts
        assert (note.level, type(note.error)) == ("error", Injected)
        assert (facts["what"], facts["client"]) == ("PUBLISH", "client")
        assert facts["version"] == "1.2.3"
        assert "report it" in str(facts["report"])
        assert world.broker.counters.faults == 1

    def test_a_connect_that_fails_is_refused(self) -> None:
        world = World()
        client = world.client("client")
        fail_once(world.broker.state.delivery, "resume")
        client.connect(expiry_s=100)
        client.drop()
        client.send_connect(clean_start=False, expiry_s=100)
        assert client.only(Connack).reason == Reason.UNSPECIFIED_ERROR
        assert client.is_closed()
        assert client.come_back().session_present


def fail_once(owner: object, name: str) -> None:
    """Let a method fail the next time that it is called."""

    def fail(*_: object, **__: object) -> None:
        delattr(owner, name)
        raise Injected(name)

    setattr(owner, name, fail)


def test_a_publication_that_no_matcher_can_match_is_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    matchers = SimulatedMatchers(1)
    world = World(matchers=matchers, elasticity=Elasticity(matchers_max=2, pause_s=1e9))
    near = world.connect("near")
    near.subscribe("a/#", filter="x > 1")
    clients = [world.connect(name, expiry_s=100) for name in ("one", "bad", "two")]
    assert world.broker.force_split(world.now) == ""
    coordinator = world.broker.coordinator
    assert coordinator is not None
    while not coordinator.is_out:
        matchers.work()
        world.advance(0.02)
    match = Cell.match

    def fail(cell: Cell, shown: Any) -> Any:
        if any(one.attributes().get("topic") == "a/bad" for one in shown):
            raise Injected("match")
        return match(cell, shown)

    monkeypatch.setattr(Cell, "match", fail)
    for client in clients:
        client.say(Publish(f"a/{client.client_id}", b'{"x": 2}', 1, packet_id=9))
    world.turn()
    while not matchers.is_quiet:
        matchers.work()
    world.turn()
    one, bad, two = clients
    assert one.only(Puback).packet_id == two.only(Puback).packet_id == 9
    assert (bad.only(Disconnect).reason, bad.take(Puback)) == (Reason.UNSPECIFIED_ERROR, [])
    assert [packet.topic for packet in near.take_all()] == ["a/one", "a/two"]
    assert (world.broker.counters.faults, coordinator.is_out) == (1, True)


def test_windows_that_may_have_lost_publications_are_told_of() -> None:
    world = World()
    near, other = world.connect("near"), world.connect("other")
    near.subscribe("a", filter="ORDER BY x DESC LIMIT 1 WITHIN 3 PUBLICATIONS")
    near.subscribe("b", filter="ORDER BY x DESC LIMIT 1 WITHIN 1 HOURS")
    for topic in "ab":
        other.publish(topic, b'{"x": 1}', 1)
    (cell,) = world.broker.state.interests._cells
    for topic in "ab":
        original = cell.match

        def fail(shown: Any, match: Any = original) -> Any:
            match(shown)
            cell.match = match  # type: ignore[method-assign]
            raise Injected("match")

        cell.match = fail  # type: ignore[method-assign]
        other.publish(topic, b'{"x": 2}', 1)
    notes = [note.facts["what"] for note in world.notes if note.event == "windows made anew"]
    assert notes == ["windows on a may count too few"]


@pytest.mark.parametrize("method", ["_answered", "_go_on", "_had_first", "_next_turn"])
def test_policies_go_on_when_an_answer_fails(method: str) -> None:
    """Nothing waits for ever behind a message whose turn has failed."""
    workers = SimulatedWorkers()
    workers.holds_jobs = True
    world = World(workers=workers, isolation="process")
    near, other = world.connect("near", expiry_s=100), world.connect("other")
    near.subscribe("a", qos=1, policy=POLICY)
    near.subscribe("b", qos=1, identifier=2, policy=POLICY)
    for number in range(1, 4):
        for topic in "ab":
            other.publish(topic, b'{"x": %d}' % number, 1)
    agents = world.broker.state.agents
    fail_once(agents, method)
    workers.holds_jobs = False
    world.work()
    world.advance(1.0)
    heard = {topic: [] for topic in "ab"}  # type: dict[str, list[bytes]]
    for packet in near.take_all():
        heard[packet.topic].append(decode(packet.payload).encode())
    assert all(list(dict.fromkeys(each))[-1] == b'{"x":3}' for each in heard.values()), heard
    check_nothing_waits(world)


def test_policies_go_on_when_a_later_turn_fails() -> None:
    world = World()
    near, other = world.connect("near", expiry_s=100), world.connect("other")
    near.subscribe("a", qos=1, policy=POLICY)
    agents = world.broker.state.agents
    # Policies have used up what they may of this turn.
    agents._spent_s = 1.0
    for number in range(1, 4):
        other.say(Publish("a", b'{"x": %d}' % number, 1, packet_id=number))
    fail_once(agents, "_try")
    world.turn()
    world.advance(1.0)
    heard = [decode(packet.payload) for packet in near.take_all()]
    assert list(dict.fromkeys(heard)) == ['{"x":1}', '{"x":2}', '{"x":3}']
    check_nothing_waits(world)


def check_nothing_waits(world: World) -> None:
    """No policy has anything to decide, and that one fault was told of."""
    for seat in world.broker.state.agents.seats:
        assert (len(seat.waiting), seat.account.waiting_bytes) == (0, 0)
    assert world.broker.counters.faults == 1


@pytest.mark.parametrize("method", ["_matched", "route"])
def test_a_batch_in_which_one_fails_is_matched_without_it(method: str) -> None:
    world = World()
    clients = [world.connect(name, expiry_s=100) for name in ("one", "bad", "two")]
    near = world.connect("near")
    near.subscribe("a/#", qos=1)
    near.subscribe("a/#", qos=1, identifier=2, filter="x > 1")
    interests = world.broker.state.interests
    original = getattr(interests, method)

    def fail(asked: Any) -> Any:
        topics = [asked] if isinstance(asked, str) else [one.topic for one in asked]
        if "a/bad" in topics:
            raise Injected(method)
        return original(asked)

    setattr(interests, method, fail)
    for client in clients:
        client.say(Publish(f"a/{client.client_id}", b'{"x": 2}', 1, True, packet_id=9))
    world.turn()
    one, bad, two = clients
    assert one.only(Puback).packet_id == two.only(Puback).packet_id == 9
    assert (bad.only(Disconnect).reason, bad.take(Puback)) == (Reason.UNSPECIFIED_ERROR, [])
    assert [packet.topic for packet in near.take_all()] == ["a/one", "a/two"]
    kept = [each.topic for each in world.broker.state.keeper.retained("#", world.now)]
    assert sorted(kept) == ["a/one", "a/two"]
    check_restart(world)
    setattr(interests, method, original)
    bad.come_back()
    bad.publish("a/bad", b'{"x": 2}', 1)
    assert bad.only(Puback).reason == Reason.SUCCESS
