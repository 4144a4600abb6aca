"""What the lake is told of publications and notifications."""

from __future__ import annotations

import json

from rove.broker.context import LakeStream, Settings
from rove.broker.publications.publication import Publication
from rove.broker.sessions.session import Notification, Session
from rove.broker.storage.publication_log import why_decided
from rove.broker.storage.records import LogRow, PublicationRow
from rove.mqtt.packets import Publish
from rove.policy.agents import Decision
from rove.testing.mqtt import SimulatedBroker

BOTH = frozenset(("publications", "notifications"))


def rows(world: SimulatedBroker) -> list[LogRow]:
    return [row for _, row in sorted(world.disk.read("log", LogRow).items())]


def test_each_channel_is_told_once_and_knows_of_those_before_it() -> None:
    channels = (LakeStream("one", ("t/#", "t/a"), BOTH), LakeStream("two", ("t/a",), BOTH))
    world = SimulatedBroker(settings=Settings(channels=channels))
    ann, bob = world.connect("ann"), world.connect("bob")
    ann.subscribe("t/+", identifier=3)
    bob.publish("t/a", b"1", place="x")
    told = rows(world)
    assert [(row.kind, row.client_id) for row in told] == [
        ("publications", "bob"),
        ("publications", "bob"),
        ("notifications", "ann"),
        ("notifications", "ann"),
    ]
    for first, second in (told[:2], told[2:]):
        assert {first.channel, second.channel} == {"one", "two"}
        assert (first.earlier, second.earlier) == ((), (first.channel,))
    assert {(row.id, row.user) for row in told} == {(told[0].id, (("place", "x"),))}
    assert [len(row.subscriptions) for row in told] == [0, 0, 1, 1]
    assert [row.payload for row in told] == [b"1", b"1", b"", b""]


def test_what_is_retained_is_kept_with_its_position() -> None:
    world = SimulatedBroker(settings=Settings(channels=(LakeStream("one", ("#",)),)))
    bob = world.connect("bob")
    bob.publish("other/a", b"1")
    bob.publish("t/a", b"2", retain=True)
    (kept,) = world.disk.read("publications", PublicationRow).values()
    assert kept.position == 2


def test_what_a_policy_decided() -> None:
    publication = Publication(7, Publish("t", b"1"), "bob", "id", 1.0)
    session = Session("ann", 1, 5, 0)
    one = Notification(session, publication, 1, False, (), why=b'{"promoted":true}')
    stopped = Decision("stopped", kind="time")
    assert json.loads(why_decided(one, 4, stopped, is_lost=True)) == {
        "promoted": True,
        "policy": "stopped",
        "outputs": 0,
        "subscription": 4,
        "kind": "time",
        "lost": True,
    }
    publication.position = 9
    plain = Notification(session, publication, 1, False, ())
    assert json.loads(
        why_decided(plain, 0, Decision("passed", is_unchanged=True), is_lost=False)
    ) == {
        "policy": "passed",
        "outputs": 1,
        "subscription": 0,
        "position": 9,
    }
