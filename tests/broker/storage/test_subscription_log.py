"""The log of who wanted what, and when."""

import json
from typing import Any

import msgspec

from rove.broker.access import Rules
from rove.broker.context import LakeStream, Settings
from rove.broker.limits import Limits
from rove.broker.storage.records import LogRow
from rove.policy.limits import PolicyLimits
from rove.testing.mqtt import SimulatedBroker

KEPT = Settings(
    channels=(LakeStream("all", ("#",), frozenset(("publications", "notifications"))),),
    keeps_subscriptions=True,
)


def log_of(world: SimulatedBroker) -> list[LogRow]:
    return list(world.disk.read("log", LogRow).values())


def events_of(world: SimulatedBroker) -> list[dict[str, Any]]:
    rows = [row for row in log_of(world) if row.kind == "subscriptions"]
    return [{"client": row.client_id, **json.loads(row.payload)} for row in rows]


def test_a_life_of_subscriptions() -> None:
    world = SimulatedBroker(settings=KEPT)
    alice = world.connect("alice")
    alice.publish("$rove/me", b'{"x": 5}')
    alice.subscribe("air/#", filter="x > me.x", identifier=7)
    alice.subscribe("air/#", filter="x > me.x + 1", identifier=7)
    alice.publish("$rove/me", b'{"x": null, "y": 2}')
    alice.unsubscribe("air/#")
    first, made, other, ended, state, last = events_of(world)
    assert first == {"client": "alice", "event": "state", "changes": {"x": 5}}
    assert made == {
        "client": "alice",
        "event": "made",
        "number": 1,
        "filter": "air/#",
        "text": "x > me.x",
        "accepted_at": world.now,
        "me": {"x": 5},
        "evolve": "exact",
        "qos": 0,
        "no_local": False,
        "share": None,
        "durable": False,
        "engine": "broker",
    }
    assert (other["number"], other["text"]) == (2, "x > me.x + 1")
    assert ended == {"client": "alice", "event": "ended", "number": 1}
    assert state["changes"] == {"x": None, "y": 2}
    assert last == {"client": "alice", "event": "ended", "number": 2}


def test_who_serves_a_subscription_is_told() -> None:
    world = SimulatedBroker(settings=KEPT)
    alice = world.connect("alice")
    alice.subscribe("air/#")
    alice.subscribe("air/#", filter="x > 1", engine="spark")
    assert [one["engine"] for one in events_of(world)] == ["broker", "spark"]


def test_the_end_of_a_session_ends_its_subscriptions() -> None:
    world = SimulatedBroker(settings=KEPT)
    alice = world.connect("alice")
    alice.subscribe("$share/team/a")
    alice.drop()
    made, ended = events_of(world)
    assert (made["filter"], made["share"], made["durable"]) == ("a", "team", False)
    assert ended == {"client": "alice", "event": "ended", "number": made["number"]}


def test_nothing_is_written_unless_asked() -> None:
    world = SimulatedBroker(settings=Settings(channels=KEPT.channels))
    world.connect("alice").subscribe("a")
    assert events_of(world) == []


def test_limits_that_are_changed_are_told() -> None:
    world = SimulatedBroker(settings=KEPT)
    limits = PolicyLimits(steps_max=7)
    world.broker.reconfigure(Limits(), Rules.without_file(), False, PolicyLimits())
    world.broker.reconfigure(Limits(), Rules.without_file(), False, limits)
    world.turn()
    (changed,) = events_of(world)
    policies = msgspec.to_builtins(limits)
    assert changed == {"client": "", "event": "policy", "policies": policies}


def test_a_new_log_is_told_of_what_is_there() -> None:
    world = SimulatedBroker(settings=KEPT)
    world.connect("alice", expiry_s=100).subscribe("a", filter="x > 1")
    world.disk.tables["log"].clear()
    world.crash()
    world.broker.begin_log(50, is_new=True, now=world.now)
    world.turn()
    started, made = events_of(world)
    limits = msgspec.to_builtins(PolicyLimits())
    assert started == {"client": "", "event": "started", "policies": limits}
    assert (made["client"], made["text"], made["durable"]) == ("alice", "x > 1", True)
    assert sorted(world.disk.tables["log"]) == [51, 52]


def test_a_log_that_knows_them_is_told_of_the_start_only() -> None:
    world = SimulatedBroker(settings=KEPT)
    world.connect("alice", expiry_s=100).subscribe("a")
    world.crash()
    world.broker.begin_log(0, is_new=False, now=world.now)
    world.turn()
    assert [one["event"] for one in events_of(world)] == ["made", "started"]


def test_numbers_are_never_given_twice() -> None:
    world = SimulatedBroker(settings=KEPT)
    for _ in range(3):
        alice = world.connect("alice")
        alice.subscribe("a", filter="x > 1")
        alice.subscribe("b", filter="no text")
        alice.subscribe("c")
        world.crash()
        world.broker.begin_log(0, is_new=False, now=world.now)
        world.turn()
    made = [one["number"] for one in events_of(world) if one["event"] == "made"]
    assert len(made) == 6
    assert sorted(set(made)) == made


def test_windows_slide_before_what_changes_them() -> None:
    world = SimulatedBroker(settings=KEPT)
    alice = world.connect("alice")
    alice.subscribe("a", filter="ORDER BY x LIMIT 1 WITHIN 10 SECONDS")
    alice.publish("a", b'{"x": 1}')
    world.advance(1)
    alice.publish("a", b'{"x": 2}')
    # The first has left its window, but no tick came since.
    world.now += 9.5
    alice.unsubscribe("a")
    assert alice.payloads() == [b'{"x": 1}', b'{"x": 2}']


def test_notifications_say_why_they_came_later() -> None:
    world = SimulatedBroker(settings=KEPT)
    alice = world.connect("alice")
    alice.publish("a", b'{"x": 1}', valid_for="100")
    alice.subscribe("a", filter="x = 1")
    alice.subscribe("a", filter="x > 0 ORDER BY x LIMIT 1 WITHIN 10 SECONDS", identifier=2)
    alice.publish("a", b'{"x": 2}')
    world.advance(5)
    alice.publish("a", b'{"x": 3}')
    world.advance(6)
    rows = [row for row in log_of(world) if row.kind == "notifications"]
    assert [(row.subscriptions, row.payload) for row in rows] == [
        ((1,), b'{"initial":true}'),
        ((2,), b""),
        ((2,), b'{"promoted":true}'),
    ]
