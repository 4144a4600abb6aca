"""A subscriber's variables: who changes them, who is told, and what is left of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rove.broker.context import BrokerSettings, LakeStream
from rove.broker.limits import Limits
from rove.broker.storage.records import SessionRow
from rove.elastic.elasticity import ElasticitySettings
from rove.mqtt.packets import Puback, Publish, Reason, Suback
from rove.policy.automatic_variables import ON_ITS_WAY_S
from rove.testing.matchers import SimulatedMatchers
from rove.testing.mqtt import EXPIRES_NEVER_S, SimulatedBroker, SimulatedClient
from rove.testing.policies import SimulatedWorkers

PASSING = "def arrived(m, me): return m"
COUNTING = """
def arrived(m, me):
    me.seen = get("seen", 0) + 1
    return m
"""


def ask(client: SimulatedClient, topic: str, payload: str) -> Puback:
    client.publish(topic, payload.encode(), 1)
    return client.only(Puback)


def values(client: SimulatedClient) -> list[Any]:
    return [json.loads(payload) for payload in client.payloads()]


def automatic(world: SimulatedBroker, client_id: str) -> dict[str, Any]:
    view = world.broker.view.variables(client_id)
    assert view is not None
    return view["automatic"]


class TestRestarts:
    def test_a_session_that_ended_while_the_broker_was_down_is_not_written_again(self) -> None:
        world = SimulatedBroker()
        ann = world.connect("ann", expiry_s=100)
        assert ask(ann, "$rove/report", '{"battery": 0.5}').reason == Reason.SUCCESS
        ann.drop()
        world.crash(down_s=1_000)
        assert world.broker.view.variables("ann") is None
        assert world.disk.sizes() == {}

    def test_a_restart_sets_connected_to_false(self) -> None:
        world = SimulatedBroker()
        ann = world.connect("ann", expiry_s=EXPIRES_NEVER_S)
        ask(ann, "$rove/report", '{"battery": 0.5}')
        assert automatic(world, "ann")["connected"] is True
        world.crash()
        assert automatic(world, "ann")["connected"] is False
        assert world.disk.read("sessions", SessionRow)["ann"].me["connected"] is False
        ann.come_back()
        assert automatic(world, "ann")["connected"] is True

    def test_who_was_away_already_costs_nothing(self) -> None:
        channel = LakeStream("all", ("#", "$rove/me"), frozenset(("states",)))
        world = SimulatedBroker(
            settings=BrokerSettings(channels=(channel,), keeps_subscriptions=True)
        )
        ann = world.connect("ann", expiry_s=EXPIRES_NEVER_S)
        ask(ann, "$rove/report", '{"battery": 0.5}')
        ann.drop()
        rows = world.disk.sizes()["log"]
        world.crash()
        assert world.disk.sizes()["log"] == rows
        assert automatic(world, "ann")["connected"] is False


class TestChanges:
    def test_a_policy_sets_what_its_subscriber_sees(self) -> None:
        world = SimulatedBroker()
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t", "$rove/me")
        ask(ann, "$rove/policy", COUNTING)
        ann.take(Publish)
        bob.publish("t", b"{}")
        bob.publish("t", b"{}")
        found: dict[str, list[Any]] = {}
        for one in ann.take(Publish):
            found.setdefault(one.topic, []).append(json.loads(one.payload))
        assert len(found["t"]) == 2
        assert [one["seen"] for one in found["$rove/me"]] == [1, 2]

    def test_following_subscriptions_move_with_what_a_policy_sets(self) -> None:
        world = SimulatedBroker()
        ann, bob = world.connect("ann"), world.connect("bob")
        ask(ann, "$rove/me", '{"least": 0}')
        ann.subscribe("t", filter="a > me.least")
        ask(ann, "$rove/policy", "def arrived(m, me):\n    me.least = m.a\n    return m")
        for a in (1, 3, 2, 4, 4, 5):
            bob.publish("t", b'{"a": %d}' % a)
        assert [one["a"] for one in values(ann)] == [1, 3, 4, 5]

    def test_reports_make_automatic_ones(self) -> None:
        world = SimulatedBroker()
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t")
        ask(
            ann,
            "$rove/policy",
            "def arrived(m, me): return message(b=me.battery, n=me.network, c=me.connected)",
        )
        assert ask(ann, "$rove/report", '{"battery": 0.5, "received": 0}').reason == 0
        for _ in range(4):
            bob.publish("t", b"{}")
        assert values(ann)[0] == {"b": 0.5, "n": 1.0, "c": True}
        world.advance(ON_ITS_WAY_S)
        ask(ann, "$rove/report", '{"battery": 0.4, "received": 3}')
        bob.publish("t", b"{}")
        assert values(ann) == [{"b": 0.4, "n": 0.75, "c": True}]
        seen = world.broker.view.variables("ann")
        assert seen is not None
        assert seen["automatic"]["battery"] == 0.4
        assert seen["manual"] == {}

    @pytest.mark.parametrize(
        "report", ['{"network": 1}', '{"received": -1}', '{"received": "x"}', "[]", "nonsense"]
    )
    def test_reports_that_cannot_be(self, report: str) -> None:
        world = SimulatedBroker()
        ann = world.connect("ann")
        assert ask(ann, "$rove/report", report).reason == Reason.PAYLOAD_FORMAT_INVALID

    def test_automatic_ones_can_only_be_read(self) -> None:
        world = SimulatedBroker()
        ann = world.connect("ann")
        ask(ann, "$rove/report", '{"battery": 0.5, "place": "x"}')
        for name in ("battery", "place", "network", "connected"):
            answer = ask(ann, "$rove/me", json.dumps({name: 1}))
            assert answer.reason == Reason.PAYLOAD_FORMAT_INVALID
            assert "can only be read" in (answer.properties.reason_string or "")
        ask(ann, "$rove/report", '{"place": null}')
        assert ask(ann, "$rove/me", '{"place": "mine"}').reason == Reason.SUCCESS

    def test_who_subscribes_to_its_variables_is_shown_them_at_once(self) -> None:
        world = SimulatedBroker()
        ann = world.connect("ann")
        ask(ann, "$rove/me", '{"x": 1}')
        ann.send_subscribe("$rove/me")
        first, second = ann.inbox
        assert isinstance(first, Suback)
        assert isinstance(second, Publish)
        assert json.loads(second.payload) == {"x": 1}


class TestNetwork:
    def test_what_comes_for_a_client_that_is_away_was_not_sent(self) -> None:
        world = SimulatedBroker()
        ann, bob = world.connect("ann", expiry_s=EXPIRES_NEVER_S), world.connect("bob")
        ann.subscribe("t", qos=1)
        ask(ann, "$rove/report", '{"received": 0}')
        for policy in ("", PASSING, COUNTING):
            ask(ann, "$rove/policy", policy)
            ann.drop()
            for _ in range(8):
                bob.publish("t", b"{}")
            ann.come_back()
            for _ in range(4):
                bob.publish("t", b"{}")
            world.advance(ON_ITS_WAY_S)
            ask(ann, "$rove/report", '{"received": 3}')
            assert automatic(world, "ann")["network"] == 0.75

    def test_every_output_counts_and_nothing_else_does(self) -> None:
        world = SimulatedBroker()
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t", "$rove/me")
        ask(ann, "$rove/policy", "def arrived(m, me): return [m] * m.n")
        ask(ann, "$rove/report", '{"received": 0}')
        for number in (0, 3, 1):
            bob.publish("t", b'{"n": %d}' % number)
        ask(ann, "$rove/report", '{"received": 1}')
        assert automatic(world, "ann")["network"] == 1.0, "the others may be on their way"
        world.advance(ON_ITS_WAY_S)
        ask(ann, "$rove/report", '{"received": 1}')
        assert automatic(world, "ann")["network"] == pytest.approx(1 / 3)
        ask(ann, "$rove/report", '{"received": 0}')
        assert automatic(world, "ann")["network"] == 1.0


class TestRoom:
    def test_what_a_policy_has_set_keeps_nobody_from_reporting_or_removing(self) -> None:
        world = SimulatedBroker(limits=Limits(state_variables_max=20, state_bytes_max=500))
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t")
        ask(ann, "$rove/report", '{"battery": 0.9}')
        setting = "for i in range(50):\n        set(f'name{i}', 'a text of some length')"
        ask(ann, "$rove/policy", f"def arrived(m, me):\n    {setting}")
        bob.publish("t", b"{}")
        assert ask(ann, "$rove/report", '{"battery": 0.8}').reason == Reason.SUCCESS
        assert ask(ann, "$rove/me", '{"name7": null}').reason == Reason.SUCCESS
        assert ask(ann, "$rove/me", '{"a": 1, "b": 2}').reason == Reason.QUOTA_EXCEEDED
        assert ask(ann, "$rove/me", '{"name8": "a text of greater length"}').reason != 0
        assert automatic(world, "ann")["battery"] == 0.8


class TestShowing:
    def test_who_was_away_is_shown_once_what_they_are_now(self) -> None:
        world = SimulatedBroker(limits=Limits(queue_messages_max=10))
        ann, bob = world.connect("ann", expiry_s=EXPIRES_NEVER_S), world.connect("bob")
        ann.subscribe("t", "$rove/me", qos=1)
        ask(ann, "$rove/policy", COUNTING)
        ann.take_all()
        ann.drop()
        for number in range(9):
            bob.publish("t", b'{"n": %d}' % number, 1)
        ann.come_back()
        came: dict[str, list[Any]] = {}
        for one in ann.take_all():
            came.setdefault(one.topic, []).append(json.loads(one.payload))
        assert [one["n"] for one in came["t"]] == list(range(9))
        (shown,) = came["$rove/me"]
        assert (shown["seen"], shown["connected"]) == (9, True)

    def test_it_does_not_have_the_queue_sent_twice_nor_all_at_once(self) -> None:
        world = SimulatedBroker(limits=Limits(replay_messages_per_s=50))
        ann, bob = world.connect("ann", expiry_s=EXPIRES_NEVER_S), world.connect("bob")
        ann.subscribe("t", "$rove/me", qos=1)
        ask(ann, "$rove/report", '{"battery": 1}')
        ann.take_all()
        ann.drop()
        for number in range(20):
            bob.publish("t", b'{"n": %d}' % number, 1)
        ann.come_back()
        first = ann.take(Publish)
        assert len(first) == 5
        world.advance(1)
        came = first + ann.take(Publish)
        assert [one.topic for one in came] == ["t"] * 20 + ["$rove/me"]
        assert [json.loads(one.payload)["n"] for one in came[:-1]] == list(range(20))

    @pytest.mark.parametrize("topic_filter", ["$rove/+", "$rove/#", "#", "$share/g/$rove/me"])
    def test_nobody_else_is_shown_them(self, topic_filter: str) -> None:
        world = SimulatedBroker()
        ann, eve = world.connect("ann"), world.connect("eve")
        ann.subscribe("$rove/me")
        eve.subscribe(topic_filter)
        ann.take_all()
        ask(ann, "$rove/me", '{"x": 1}')
        assert [one.topic for one in ann.take_all()] == ["$rove/me"]
        assert eve.take_all() == []

    def test_what_is_said_to_the_broker_is_not_retained(self) -> None:
        world = SimulatedBroker()
        ann = world.connect("ann", version=4)
        ann.publish("$rove/me", b'{"x": 1}', 2, retain=True)
        ann.subscribe("$rove/me", qos=2)
        (shown,) = ann.take_all()
        assert (shown.payload, shown.retain, shown.qos) == (b'{"x":1}', False, 2)
        assert "retained" not in world.disk.sizes()


def test_a_policy_may_set_what_bounds_follow_while_matchers_are_busy() -> None:
    """What was published before is matched by what the variables were before, and is not lost."""
    matchers, workers = SimulatedMatchers(1), SimulatedWorkers()
    workers.holds_jobs = True
    elasticity = ElasticitySettings(matchers_min=0, matchers_max=2, pause_s=1e9)
    world = SimulatedBroker(
        matchers=matchers, elasticity=elasticity, workers=workers, isolation="process"
    )
    ann, bob = world.connect("ann"), world.connect("bob")
    ask(ann, "$rove/me", '{"least": 0}')
    setting = "def arrived(m, me):\n    me.least = m.a\n    return m"
    ann.subscribe("t", qos=1, filter="a > me.least", policy=setting)
    assert world.broker.force_split(world.now) == ""
    while not world.broker.router.expressions.is_offloaded:
        matchers.work()
        world.turn()
    bob.publish("t", b'{"a": 5}', 1)
    while not workers.waiting:
        matchers.work()
        world.turn()
    bob.publish("t", b'{"a": 3}', 1)
    assert world.broker.router.expressions.asked
    world.work()
    assert world.broker.view.variables("ann")["manual"] == {"least": 5}  # type: ignore[index]
    # Its publisher is not kept waiting until something else happens.
    assert len(bob.take(Puback)) == 2
    world.work()
    assert [json.loads(one.payload)["a"] for one in ann.take_all()] == [5, 3]


def test_what_a_client_does_costs_the_routes_of_others_nothing() -> None:
    """Thousands come back at once, and each sets a policy and reports."""
    world = SimulatedBroker()
    ann, eve, bob = (world.connect(name) for name in ("ann", "eve", "bob"))
    ann.subscribe("t")
    eve.subscribe("u")
    bob.publish("u", b"{}")
    route = world.broker.router.route("u")
    ask(ann, "$rove/report", '{"battery": 1}')
    ask(ann, "$rove/policy", COUNTING)
    ann.subscribe("t", policy=COUNTING)
    ask(ann, "$rove/policy", "")
    ann.disconnect()
    assert world.broker.router.route("u") is route
