"""Routes: what subscriptions of one session come to; the members of a group have their turns."""

from __future__ import annotations

from rove.broker.sessions.session import Session, Subscription
from rove.broker.subscriptions.routes import Target
from rove.mqtt.packets import Filter
from rove.testing.mqtt import SimulatedBroker

SESSION = Session("client", 1, 5, 60)


def subscription(number: int, asked: Filter, identifier: int = 0) -> Subscription:
    return Subscription(number, SESSION, asked, identifier, None, 0.0)


def test_the_best_quality_and_all_identifiers() -> None:
    target = Target([subscription(1, Filter("a", 1), 7), subscription(2, Filter("#", 2), 8)])
    assert (target.qos, target.ids, target.numbers) == (2, (7, 8), (1, 2))
    assert not target.keeps_retain


def test_no_identifier_is_none() -> None:
    assert Target([subscription(1, Filter("a"))]).ids == ()


def test_one_that_keeps_the_retain_flag_is_enough() -> None:
    asked = (Filter("a"), Filter("#", retain_as_published=True))
    assert Target([subscription(n, one) for n, one in enumerate(asked)]).keeps_retain


def test_ones_own_publications_are_for_those_that_hear_them() -> None:
    quiet, loud = Filter("a", 2, no_local=True), Filter("#", 1)
    target = Target([subscription(1, quiet, 7), subscription(2, loud, 8)])
    assert not target.hears_itself
    assert target.heard_from("another") is target
    own = target.heard_from("client")
    assert own is not None
    assert (own.qos, own.ids) == (1, (8,))


def test_ones_own_publications_may_be_for_nobody() -> None:
    target = Target([subscription(1, Filter("a", no_local=True))])
    assert target.heard_from("client") is None
    assert target.heard_from("another") is target


def test_without_no_local_everybody_is_the_same() -> None:
    target = Target([subscription(1, Filter("a"))])
    assert target.hears_itself
    assert target.heard_from("client") is target


def test_members_of_a_group_have_their_turns_and_those_who_are_away_do_not() -> None:
    world = SimulatedBroker()
    one, two = (world.connect(name, expiry_s=100) for name in ("one", "two"))
    for client in (one, two):
        client.subscribe("$share/g/a", qos=1)
    other = world.connect("other")
    for number in range(4):
        other.publish("a", b"%d" % number, 1)
    assert (len(one.take_all()), len(two.take_all())) == (2, 2)
    two.drop()
    for number in range(4):
        other.publish("a", b"%d" % number, 1)
    assert len(one.take_all()) == 4
