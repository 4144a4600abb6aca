"""Who has a policy, in memory and on disk."""

from __future__ import annotations

import pytest

from rove.mqtt.packets import Puback, Reason
from rove.policy.limits import PolicyLimits
from rove.testing.mqtt import EXPIRES_NEVER_S, SimulatedClient, World

HIGH = "def arrived(m, me): return m if m.pulse > 100 else None"


def ask_policy(client: SimulatedClient, text: str) -> int:
    client.publish("$rove/policy", text.encode(), 1)
    return client.only(Puback).reason


def test_a_row_for_each_policy_of_a_session_that_stays() -> None:
    world = World()
    ann, bob = world.connect("ann", expiry_s=EXPIRES_NEVER_S), world.connect("bob")
    for client in (ann, bob):
        client.subscribe("t", policy=HIGH)
        assert ask_policy(client, HIGH) == Reason.SUCCESS
    seating = world.broker.state.agents.seating
    assert sorted(seat.session.client_id for seat in seating.seats) == ["ann", "ann", "bob", "bob"]
    assert world.disk.tables["agents"].keys() == {
        seat.key for seat in seating.seats if seat.session is world.broker.state.sessions["ann"]
    }
    ann.unsubscribe("t")
    assert ask_policy(ann, "") == Reason.SUCCESS
    bob.disconnect()
    assert not seating.seats
    assert "agents" not in world.disk.sizes()


def test_a_row_of_a_session_that_is_not_there_goes() -> None:
    world = World()
    ann = world.connect("ann", expiry_s=100)
    assert ask_policy(ann, HIGH) == Reason.SUCCESS
    ann.drop()
    world.crash(down_s=1_000)
    assert world.disk.sizes() == {}


@pytest.mark.parametrize("ends", ["removed", "session", "subscription"])
def test_one_that_is_not_run_here_goes_with_what_it_belongs_to(ends: str) -> None:
    world = World()
    ann = world.connect("ann", expiry_s=EXPIRES_NEVER_S)
    ann.subscribe("t", identifier=1, policy=HIGH)
    if ends != "subscription":
        ann.unsubscribe("t")
        assert ask_policy(ann, HIGH) == Reason.SUCCESS
    assert world.disk.sizes()["agents"] == 1
    limits, world._policies = world._policies, PolicyLimits(text_bytes_max=10)
    world.crash()
    assert world.broker.policies_view().count == 0
    assert world.disk.sizes()["agents"] == 1
    if ends == "session":
        ann.connect(clean_start=True, expiry_s=EXPIRES_NEVER_S)
    else:
        ann.come_back()
    if ends == "removed":
        assert ask_policy(ann, "") == Reason.SUCCESS
    elif ends == "subscription":
        ann.unsubscribe("t")
    world._policies = limits
    world.crash()
    assert world.broker.policies_view().count == 0
    assert "agents" not in world.disk.sizes()
