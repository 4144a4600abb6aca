"""Routes: the members of a group have their turns."""

from __future__ import annotations

from rove.testing.mqtt import World


def test_members_of_a_group_have_their_turns_and_those_who_are_away_do_not() -> None:
    world = World()
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
