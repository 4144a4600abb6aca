"""Policies in the broker's delivery: what is sent, what is remembered, what survives."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

from PIL import Image

from rove.broker.context import LakeStream, Settings
from rove.broker.storage.records import LogRow
from rove.mqtt.packets import Filter, Properties, Puback, Publish, Reason
from rove.policy.limits import PolicyLimits
from rove.testing.mqtt import EXPIRES_NEVER_S, SimulatedBroker, SimulatedClient
from rove.testing.policies import SimulatedWorkers

HIGH = """
def arrived(m, me):
    if m.pulse > get("threshold", 100):
        return m
"""
COUNTING = """
def arrived(m, me):
    me.seen = get("seen", 0) + 1
    m.seen = me.seen
    return m
"""
SMALLER = """
def arrived(m, me):
    m.ecg = compress(m.ecg, pixels_max=40)
    return m
"""
ENDLESS = """
def arrived(m, me):
    while True:
        pass
"""
LONG = """
def arrived(m, me):
    n = 0
    for i in range(20000):
        n = n + i
    me.last = n + m.x
    m.n = n
    return m
"""


def picture(side: int = 80, shade: int = 0) -> str:
    out = io.BytesIO()
    Image.linear_gradient("L").resize((side, side)).rotate(shade).save(out, "PNG")
    return base64.b64encode(out.getvalue()).decode()


def values(client: SimulatedClient) -> list[Any]:
    return [json.loads(payload) for payload in client.payloads()]


def acknowledge(client: SimulatedClient) -> list[Any]:
    return [json.loads(one.payload) for one in client.take_all()]


def ask(client: SimulatedClient, topic: str, payload: str | bytes, **user: str) -> Puback:
    data = payload if isinstance(payload, bytes) else payload.encode()
    properties = Properties(user=tuple(user.items()))
    client.publish(topic, data, 1, properties=properties)
    return client.only(Puback)


def set_policy(client: SimulatedClient, text: str, **user: str) -> None:
    assert ask(client, "$rove/policy", text, **user).reason == Reason.SUCCESS


class TestDeciding:
    def test_a_session_policy_filters(self) -> None:
        world = SimulatedBroker()
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("ward/#")
        set_policy(ann, HIGH)
        for pulse in (90, 120, 101, 100):
            bob.publish("ward/1", b'{"pulse": %d}' % pulse)
        assert values(ann) == [{"pulse": 120}, {"pulse": 101}]

    def test_what_passes_is_byte_for_byte_what_came(self) -> None:
        world = SimulatedBroker()
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t", identifier=3)
        set_policy(ann, "def arrived(m, me): return m")
        bob.publish("t", b' {"a" : 1.50 }', place="x")
        (came,) = ann.take(Publish)
        assert came.payload == b' {"a" : 1.50 }'
        assert came.properties.user == (("place", "x"),)
        assert came.properties.subscription_ids == (3,)

    def test_others_get_it_as_it_came(self) -> None:
        world = SimulatedBroker()
        ann, eve, bob = (world.connect(name) for name in ("ann", "eve", "bob"))
        ann.subscribe("t")
        eve.subscribe("t")
        set_policy(ann, "def arrived(m, me):\n    m.a = 2\n    return m")
        bob.publish("t", b'{"a": 1}')
        assert values(ann) == [{"a": 2}]
        assert values(eve) == [{"a": 1}]

    def test_several_outputs_in_order(self) -> None:
        world = SimulatedBroker()
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t", qos=1)
        set_policy(ann, "def arrived(m, me): return [message(n=1), m, message(n=2)]")
        bob.publish("t", b'{"a": 1}', 1)
        assert values(ann) == [{"n": 1}, {"a": 1}, {"n": 2}]

    def test_whatever_is_made_of_it_has_its_id(self) -> None:
        world = SimulatedBroker()
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t")
        set_policy(ann, 'def arrived(m, me): return [message(a=m.id), keep(m, "x")]')
        bob.publish("t", b'{"x": 1}', id="b-7", place="here")
        got = ann.take(Publish)
        assert [one.payload for one in got] == [b'{"a":"b-7"}', b'{"x":1}']
        assert [one.properties.user for one in got] == 2 * [(("id", "b-7"),)]

    def test_a_subscription_has_its_own_instead_of_the_sessions(self) -> None:
        world = SimulatedBroker()
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t", identifier=1)
        ann.subscribe(
            "t", identifier=2, filter="a > 0", policy="def arrived(m, me): return message(own=1)"
        )
        set_policy(ann, "def arrived(m, me): return message(session=1)")
        bob.publish("t", b'{"a": 1}')
        came = {one.properties.subscription_ids: one.payload for one in ann.take(Publish)}
        assert came == {(1,): b'{"session":1}', (2,): b'{"own":1}'}

    def test_subscriptions_without_their_own_stay_one_notification(self) -> None:
        world = SimulatedBroker()
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t", identifier=1)
        ann.subscribe("t", identifier=2, filter="a > 0")
        set_policy(ann, "def arrived(m, me): return m")
        bob.publish("t", b'{"a": 1}')
        (came,) = ann.take(Publish)
        assert sorted(came.properties.subscription_ids) == [1, 2]

    def test_a_policy_sees_what_is_selected(self) -> None:
        world = SimulatedBroker()
        ann, bob = world.connect("ann"), world.connect("bob")
        text = "SELECT a WHERE a > 0"
        ann.subscribe("t", filter=text)
        set_policy(
            ann,
            'def arrived(m, me):\n    m.b = get("b", "gone") if m.b is None else 1\n    return m',
        )
        bob.publish("t", b'{"a": 1, "b": 5}')
        assert values(ann) == [{"a": 1, "b": "gone"}]

    def test_retained_and_ranked_pass_through_it(self) -> None:
        world = SimulatedBroker()
        ann, bob = world.connect("ann"), world.connect("bob")
        bob.publish("kept", b'{"a": 1}', retain=True)
        set_policy(ann, "def arrived(m, me):\n    m.seen = True\n    return m")
        ann.subscribe("kept")
        (first,) = ann.take(Publish)
        assert json.loads(first.payload) == {"a": 1, "seen": True}
        assert first.retain
        ann.subscribe("r", filter="ORDER BY a DESC LIMIT 1 WITHIN 10 SECONDS")
        bob.publish("r", b'{"a": 1}')
        assert values(ann) == [{"a": 1, "seen": True}]

    def test_the_publisher_is_told_that_somebody_wanted_it_even_if_it_is_dropped(self) -> None:
        world = SimulatedBroker()
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t")
        set_policy(ann, "def arrived(m, me): return None")
        bob.publish("t", b'{"a": 1}', 1)
        assert bob.only(Puback).reason == Reason.SUCCESS
        assert ann.payloads() == []


class TestSetting:
    def test_a_refusal_has_line_and_caret(self) -> None:
        world = SimulatedBroker()
        ann = world.connect("ann")
        answer = ask(ann, "$rove/policy", "def arrived(m, me):\n    import os\n")
        assert answer.reason == Reason.PAYLOAD_FORMAT_INVALID
        assert "line 2" in (answer.properties.reason_string or "")

    def test_a_refused_policy_leaves_the_old_one(self) -> None:
        world = SimulatedBroker()
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t")
        set_policy(ann, "def arrived(m, me): return message(old=1)")
        assert ask(ann, "$rove/policy", "nonsense(").reason == Reason.PAYLOAD_FORMAT_INVALID
        bob.publish("t", b"{}")
        assert values(ann) == [{"old": 1}]

    def test_a_refused_subscription(self) -> None:
        world = SimulatedBroker()
        ann = world.connect("ann")
        suback = ann.subscribe("t", policy="def other(): pass")
        assert suback.reasons == (Reason.IMPLEMENTATION_SPECIFIC_ERROR,)

    def test_removing(self) -> None:
        world = SimulatedBroker()
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t")
        set_policy(ann, "def arrived(m, me): return None")
        set_policy(ann, "")
        bob.publish("t", b"{}")
        assert values(ann) == [{}]

    def test_of_one_subscription_by_its_identifier(self) -> None:
        world = SimulatedBroker()
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t", identifier=7)
        ann.subscribe("u")
        set_policy(ann, "def arrived(m, me): return message(own=1)", subscription="7")
        bob.publish("t", b"{}")
        bob.publish("u", b"{}")
        assert values(ann) == [{"own": 1}, {}]
        set_policy(ann, "", subscription="7")
        bob.publish("t", b"{}")
        assert values(ann) == [{}]
        answer = ask(ann, "$rove/policy", "", subscription="8")
        assert answer.reason == Reason.IMPLEMENTATION_SPECIFIC_ERROR

    def test_of_all_subscriptions_with_an_identifier_and_of_none_without(self) -> None:
        world = SimulatedBroker()
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("s")
        ann.subscribe("t", "u", identifier=7)
        set_policy(ann, "def arrived(m, me): return message(own=1)", subscription="7")
        for topic in ("s", "t", "u"):
            bob.publish(topic, b"{}")
        assert values(ann) == [{}, {"own": 1}, {"own": 1}]
        answer = ask(ann, "$rove/policy", HIGH, subscription="0")
        assert answer.reason == Reason.IMPLEMENTATION_SPECIFIC_ERROR
        set_policy(ann, "", subscription="7")
        assert world.broker.view.policies().count == 0

    def test_subscribing_again_with_the_same_text_goes_on(self) -> None:
        world = SimulatedBroker()
        ann, bob = world.connect("ann"), world.connect("bob")
        text = "def arrived(m, me):\n    if every(60):\n        return m"
        ann.subscribe("t", policy=text)
        bob.publish("t", b"{}")
        ann.subscribe("t", policy=text)
        bob.publish("t", b"{}")
        assert len(values(ann)) == 1
        ann.subscribe("t", policy=text + "\n")
        bob.publish("t", b"{}")
        assert len(values(ann)) == 1

    def test_a_broker_without_policies_says_so(self) -> None:
        world = SimulatedBroker()
        world.broker.agents.policies.limits = None
        ann = world.connect("ann")
        answer = ask(ann, "$rove/policy", HIGH)
        assert answer.reason == Reason.PAYLOAD_FORMAT_INVALID
        assert "runs no policies" in (answer.properties.reason_string or "")


class TestStopping:
    def test_endless_ones_are_stopped_told_of_and_suspended(self) -> None:
        world = SimulatedBroker(policies=PolicyLimits(offences_max=3, suspension_s=100))
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t", "$rove/policy")
        set_policy(ann, ENDLESS)
        for _ in range(4):
            bob.publish("t", b"{}")
            world.advance(1.5)
        notices = values(ann)
        assert [one["event"] for one in notices] == ["stopped", "stopped", "stopped", "suspended"]
        assert {one["kind"] for one in notices} == {"steps"}
        tally = world.broker.view.policies().total
        assert (tally.stopped, tally.suspended) == ({"steps": 3}, 1)
        assert world.broker.view.policies().policies[0].suspended_until is not None

    def test_a_suspended_one_may_be_told_to_deliver(self) -> None:
        world = SimulatedBroker(
            policies=PolicyLimits(offences_max=1, suspended="deliver", suspension_s=10)
        )
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t")
        set_policy(ann, "def arrived(m, me): return 1 / 0")
        bob.publish("t", b'{"n": 1}')
        bob.publish("t", b'{"n": 2}')
        world.advance(11)
        bob.publish("t", b'{"n": 3}')
        bob.publish("t", b'{"n": 4}')
        assert values(ann) == [{"n": 2}, {"n": 4}]

    def test_a_stopped_call_changes_nothing(self) -> None:
        world = SimulatedBroker()
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t")
        set_policy(ann, "def arrived(m, me):\n    me.x = 1\n    return 1 / 0")
        bob.publish("t", b"{}")
        assert world.broker.view.variables("ann")["manual"] == {}  # type: ignore[index]

    def test_who_uses_more_than_its_share_gets_nothing_for_a_while(self) -> None:
        workers = SimulatedWorkers()
        workers.job_s = 0.4
        limits = PolicyLimits(share=0.1, share_s=10, inline_steps_max=10, offences_max=100)
        world = SimulatedBroker(policies=limits, workers=workers)
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t")
        set_policy(ann, LONG)
        for number in range(6):
            bob.publish("t", b'{"x": %d}' % number)
        # The first is done twice: it is not as light as was hoped.
        assert len(values(ann)) == 2
        assert world.broker.view.policies().total.stopped == {"share": 4}
        world.advance(10)
        bob.publish("t", b'{"x": 9}')
        assert len(values(ann)) == 1

    def test_who_sets_policy_after_policy_is_told_to_wait(self) -> None:
        workers = SimulatedWorkers()
        world = SimulatedBroker(policies=PolicyLimits(share=0.1, share_s=10), workers=workers)
        ann = world.connect("ann")
        set_policy(ann, HIGH)
        broker, context = world.broker, world.broker.context
        broker.agents.policies.account(context.sessions["ann"]).allowance.use(1.1)
        answer = ask(ann, "$rove/policy", COUNTING)
        assert answer.reason == Reason.PAYLOAD_FORMAT_INVALID
        assert "used up" in (answer.properties.reason_string or "")
        world.advance(2)
        set_policy(ann, COUNTING)


class TestWorkers:
    def test_pictures_are_made_smaller_once_for_all_and_nobody_waits(self) -> None:
        workers = SimulatedWorkers()
        workers.holds_jobs = True
        world = SimulatedBroker(workers=workers)
        doctors = [world.connect(f"doctor{number}") for number in range(5)]
        plain, bob = world.connect("plain"), world.connect("bob")
        for doctor in doctors:
            doctor.subscribe("ecg")
            set_policy(doctor, SMALLER)
        plain.subscribe("ecg")
        payload = json.dumps({"ecg": picture()}).encode()
        bob.publish("ecg", payload)
        assert plain.payloads() == [payload]
        assert [doctor.payloads() for doctor in doctors] == [[]] * 5
        assert workers.waiting == 1
        world.work()
        got = [values(doctor)[0]["ecg"] for doctor in doctors]
        assert len(set(got)) == 1
        assert Image.open(io.BytesIO(base64.b64decode(got[0]))).size == (40, 40)
        bob.publish("ecg", payload)
        assert [len(doctor.payloads()) for doctor in doctors] == [1] * 5
        assert workers.done == 1

    def test_long_calls_move_to_workers_and_keep_their_order(self) -> None:
        workers = SimulatedWorkers()
        workers.holds_jobs = True
        world = SimulatedBroker(workers=workers)
        ann, eve, bob = (world.connect(name) for name in ("ann", "eve", "bob"))
        ann.subscribe("t")
        eve.subscribe("t")
        set_policy(ann, LONG)
        for number in range(5):
            bob.publish("t", b'{"x": %d}' % number)
        assert [one["x"] for one in values(eve)] == list(range(5))
        assert ann.payloads() == []
        assert workers.waiting == 1
        while workers.waiting:
            world.work(1)
        assert [one["x"] for one in values(ann)] == list(range(5))
        assert world.broker.view.policies().total.in_workers == 5

    def test_so_do_those_that_take_few_steps_and_long(self) -> None:
        class Slow(SimulatedWorkers):
            def clock(self) -> float:
                self._clock_s += 0.002
                return self._clock_s

        world = SimulatedBroker(workers=Slow())
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t")
        set_policy(ann, COUNTING)
        for number in range(20):
            bob.publish("t", b'{"x": %d}' % number)
        assert values(ann) == [{"x": n, "seen": n + 1} for n in range(20)]
        assert 5 < world.broker.view.policies().total.in_workers < 20

    def test_variables_that_change_meanwhile_are_the_ones_that_count(self) -> None:
        workers = SimulatedWorkers()
        workers.holds_jobs = True
        world = SimulatedBroker(workers=workers, isolation="process")
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t")
        ask(ann, "$rove/me", '{"x": 1}')
        set_policy(ann, "def arrived(m, me): return message(x=me.x)")
        bob.publish("t", b"{}")
        ask(ann, "$rove/me", '{"x": 2}')
        while workers.waiting:
            world.work(1)
        assert values(ann) == [{"x": 2}]
        assert workers.done == 2

    def test_a_policy_that_is_replaced_meanwhile_decides(self) -> None:
        workers = SimulatedWorkers()
        workers.holds_jobs = True
        world = SimulatedBroker(workers=workers, isolation="process")
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t")
        set_policy(ann, "def arrived(m, me): return message(old=m.n)")
        for number in range(3):
            bob.publish("t", b'{"n": %d}' % number)
        world.work(1)
        set_policy(ann, "def arrived(m, me): return message(new=m.n)")
        while workers.waiting:
            world.work(1)
        assert values(ann) == [{"old": 0}, {"new": 1}, {"new": 2}]

    def test_one_that_is_removed_meanwhile_lets_everything_through(self) -> None:
        workers = SimulatedWorkers()
        workers.holds_jobs = True
        world = SimulatedBroker(workers=workers, isolation="process")
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t", qos=1)
        set_policy(ann, "def arrived(m, me): return None")
        for number in range(3):
            bob.publish("t", b'{"n": %d}' % number, 1)
        set_policy(ann, "")
        while workers.waiting:
            world.work(1)
        assert [one["n"] for one in acknowledge(ann)] == [0, 1, 2]

    def test_a_worker_that_dies_costs_nothing(self) -> None:
        workers = SimulatedWorkers()
        workers.holds_jobs = True
        world = SimulatedBroker(workers=workers, isolation="process")
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t")
        set_policy(ann, COUNTING)
        for number in range(3):
            bob.publish("t", b'{"n": %d}' % number)
        workers.kill_share = 1.0
        world.work(1)
        workers.kill_share = 0.0
        while workers.waiting:
            world.work()
        assert values(ann) == [{"n": n, "seen": n + 1} for n in range(3)]
        assert workers.kills == 1
        assert world.broker.view.policies().total.stopped == {}

    def test_a_message_that_workers_die_of_costs_itself_and_no_more(self) -> None:
        workers = SimulatedWorkers()
        world = SimulatedBroker(workers=workers, isolation="process")
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t")
        set_policy(ann, "def arrived(m, me): return m")
        workers.kill_share = 1.0
        bob.publish("t", b'{"n": 1}')
        workers.kill_share = 0.0
        bob.publish("t", b'{"n": 2}')
        assert values(ann) == [{"n": 2}]
        assert world.broker.view.policies().total.stopped == {"error": 1}

    def test_a_crowd_is_turned_away(self) -> None:
        workers = SimulatedWorkers()
        workers.holds_jobs = True
        limits = PolicyLimits(waiting_max=3, offences_max=100)
        world = SimulatedBroker(policies=limits, workers=workers, isolation="process")
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t")
        set_policy(ann, "def arrived(m, me): return m")
        for number in range(5):
            bob.publish("t", b'{"n": %d}' % number)
        while workers.waiting:
            world.work(1)
        assert [one["n"] for one in values(ann)] == [0, 1, 2]
        assert world.broker.view.policies().total.stopped == {"crowded": 2}

    def test_who_unsubscribes_or_leaves_is_sent_nothing_more(self) -> None:
        workers = SimulatedWorkers()
        workers.holds_jobs = True
        world = SimulatedBroker(workers=workers, isolation="process")
        ann, eve, bob = (world.connect(name) for name in ("ann", "eve", "bob"))
        ann.subscribe("t", policy="def arrived(m, me): return m")
        eve.subscribe("t", policy="def arrived(m, me): return m")
        bob.publish("t", b"{}")
        ann.unsubscribe("t")
        eve.disconnect()
        world.work()
        assert ann.payloads() == []
        assert world.broker.view.policies().count == 0

    def test_what_is_withdrawn_while_it_waits_is_not_sent(self) -> None:
        workers = SimulatedWorkers()
        workers.holds_jobs = True
        world = SimulatedBroker(workers=workers, isolation="process")
        ann, bob = world.connect("ann", expiry_s=EXPIRES_NEVER_S), world.connect("bob")
        ann.subscribe("t", qos=1)
        set_policy(ann, "def arrived(m, me):\n    m.x = 1\n    return m")
        bob.publish("t", b'{"n": 1}', 1, id="first")
        bob.publish("t", b'{"n": 2}', 1, id="second")
        bob.take(Puback)
        assert ask(bob, "$rove/unpublish", "second").reason == Reason.SUCCESS
        world.work()
        world.work()
        assert [one["n"] for one in acknowledge(ann)] == [1]

    def test_what_a_policy_made_is_withdrawn_with_its_origin(self) -> None:
        world = SimulatedBroker()
        ann, bob = world.connect("ann", expiry_s=EXPIRES_NEVER_S), world.connect("bob")
        ann.subscribe("t", qos=1)
        set_policy(ann, "def arrived(m, me):\n    m.x = 1\n    return m")
        ann.drop()
        bob.publish("t", b'{"n": 1}', 1, id="first")
        bob.publish("t", b'{"n": 2}', 1, id="second")
        bob.take(Puback)
        assert ask(bob, "$rove/unpublish", "first").reason == Reason.SUCCESS
        world.crash()
        bob.connect()
        assert ask(bob, "$rove/unpublish", "second").reason == Reason.SUCCESS
        ann.come_back()
        assert acknowledge(ann) == []


class TestSurviving:
    def test_policies_variables_and_memory_survive_a_crash(self) -> None:
        world = SimulatedBroker()
        ann, bob = world.connect("ann", expiry_s=EXPIRES_NEVER_S), world.connect("bob")
        ann.subscribe("t", qos=1, identifier=4)
        ann.subscribe("u", qos=1, policy="def arrived(m, me):\n    if every(60): return m")
        set_policy(ann, COUNTING)
        ask(ann, "$rove/report", '{"battery": 0.3}')
        bob.publish("t", b"{}", 1)
        bob.publish("u", b"{}", 1)
        assert len(acknowledge(ann)) == 2
        world.crash()
        view = world.broker.view.variables("ann")
        assert view is not None
        assert view["manual"] == {"seen": 1}
        assert view["automatic"]["battery"] == 0.3
        assert view["automatic"]["connected"] is False
        bob.connect()
        bob.publish("t", b"{}", 1)
        bob.publish("u", b"{}", 1)
        ann.come_back()
        assert acknowledge(ann) == [{"seen": 2}]
        assert world.broker.view.variables("ann")["automatic"]["connected"] is True  # type: ignore[index]

    def test_what_waits_for_a_decision_survives_and_is_decided_once(self) -> None:
        workers = SimulatedWorkers()
        workers.holds_jobs = True
        world = SimulatedBroker(workers=workers, isolation="process")
        ann, bob = world.connect("ann", expiry_s=EXPIRES_NEVER_S), world.connect("bob")
        ann.subscribe("t", qos=1)
        set_policy(ann, COUNTING)
        for number in range(3):
            bob.publish("t", b'{"n": %d}' % number, 1)
        assert len(bob.take(Puback)) == 3
        world.work(1)
        world.crash()
        while workers.waiting:
            world.work(1)
        ann.come_back()
        came = acknowledge(ann)
        assert sorted({(one["n"], one["seen"]) for one in came}) == [(0, 1), (1, 2), (2, 3)]
        assert "cases" not in world.disk.sizes()

    def test_nothing_is_left_when_a_session_ends(self) -> None:
        workers = SimulatedWorkers()
        workers.holds_jobs = True
        world = SimulatedBroker(workers=workers, isolation="process")
        ann, bob = world.connect("ann", expiry_s=EXPIRES_NEVER_S), world.connect("bob")
        ann.subscribe("t", Filter("u", 1), qos=1, policy="def arrived(m, me): return m")
        set_policy(ann, COUNTING)
        for number in range(3):
            bob.publish("t", b'{"n": %d}' % number, 1)
        ann.disconnect(properties=Properties(session_expiry_s=0))
        world.work()
        assert world.disk.sizes() == {}

    def test_what_waited_for_a_session_that_ended_meanwhile_is_gone(self) -> None:
        workers = SimulatedWorkers()
        workers.holds_jobs = True
        world = SimulatedBroker(workers=workers, isolation="process")
        ann, bob = world.connect("ann", expiry_s=100), world.connect("bob")
        ann.subscribe("t", qos=1)
        set_policy(ann, COUNTING)
        bob.publish("t", b"{}", 1)
        ann.drop()
        # Without its row, nobody is there to decide what waits.
        world.disk.tables["agents"].clear()
        world.crash(down_s=1_000)
        assert world.disk.sizes() == {}
        world.crash()

    def test_what_waited_for_a_policy_that_is_not_there_any_more_goes_on(self) -> None:
        workers = SimulatedWorkers()
        workers.holds_jobs = True
        world = SimulatedBroker(workers=workers, isolation="process")
        ann, bob = world.connect("ann", expiry_s=EXPIRES_NEVER_S), world.connect("bob")
        ann.subscribe("t", qos=1, policy=COUNTING)
        bob.publish("t", b'{"n": 1}', 1)
        world.disk.tables["agents"].clear()
        world.crash()
        ann.come_back()
        assert acknowledge(ann) == [{"n": 1}]
        assert world.disk.sizes() == {"sessions": 1, "subscriptions": 1}


class TestLogging:
    def test_the_lake_has_every_decision(self) -> None:
        channel = LakeStream("all", ("t",), frozenset(("publications", "notifications")))
        settings = Settings(channels=(channel,), keeps_subscriptions=True)
        world = SimulatedBroker(settings=settings)
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t")
        text = "def arrived(m, me):\n    me.n = m.n\n    return m if m.n > 1 else None"
        set_policy(ann, text)
        bob.publish("t", b'{"n": 1}')
        bob.publish("t", b'{"n": 2}')
        rows = [row for _, row in sorted(world.disk.read("log", LogRow).items())]
        decisions = [json.loads(row.payload) for row in rows if row.kind == "notifications"]
        assert [(one["policy"], one["outputs"]) for one in decisions] == [
            ("dropped", 0),
            ("passed", 1),
        ]
        events = [json.loads(row.payload) for row in rows if row.kind == "subscriptions"]
        assert [one["policy"] for one in events if one["event"] == "policy"] == [text]
        assert [one["changes"] for one in events if one.get("by") == "policy"] == [
            {"n": 1},
            {"n": 2},
        ]
