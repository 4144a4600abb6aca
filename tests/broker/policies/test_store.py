"""Who has a policy, and what waits for its decision while everything around it changes."""

from __future__ import annotations

import base64
import gc
import io
import json
import weakref
from typing import Any

import pytest
from PIL import Image

from rove.broker.publications.publication import Publication
from rove.broker.sessions.session import Notification
from rove.broker.storage.records import PendingDecisionRow
from rove.mqtt.packets import Properties, Puback, Publish, Reason
from rove.policy.compiling import compiled
from rove.policy.limits import PolicyLimits
from rove.testing.mqtt import EXPIRES_NEVER_S, SimulatedBroker, SimulatedClient
from rove.testing.policies import SimulatedWorkers

PASSING = "def arrived(m, me): return m"
NAMING = """
def arrived(m, me):
    m.by = "{name}"
    return m
"""
COUNTING = """
def arrived(m, me):
    me.seen = get("seen", 0) + 1
    return message(seen=me.seen)
"""
SMALLER = """
def arrived(m, me):
    m.ecg = compress(m.ecg, pixels_max=40)
    return m
"""


def busy_world(limits: PolicyLimits | None = None) -> SimulatedBroker:
    """One in which every call waits for a worker that has to be told."""
    workers = SimulatedWorkers()
    workers.holds_jobs = True
    return SimulatedBroker(workers=workers, isolation="process", policies=limits)


def work_all(world: SimulatedBroker) -> None:
    assert world.workers is not None
    while world.workers.waiting:
        world.work(1)


def set_policy(client: SimulatedClient, text: str) -> None:
    client.publish("$rove/policy", text.encode(), 1)
    assert client.only(Puback).reason == Reason.SUCCESS


def values(client: SimulatedClient) -> list[Any]:
    return [json.loads(one.payload) for one in client.take_all()]


def picture() -> str:
    out = io.BytesIO()
    Image.linear_gradient("L").resize((80, 80)).save(out, "PNG")
    return base64.b64encode(out.getvalue()).decode()


@pytest.mark.parametrize(
    ("expiry_s", "granted", "published", "is_kept"),
    [
        (EXPIRES_NEVER_S, 1, 1, True),
        (EXPIRES_NEVER_S, 2, 1, True),
        (EXPIRES_NEVER_S, 0, 1, False),
        (EXPIRES_NEVER_S, 1, 0, False),
        (0, 1, 1, False),
    ],
)
def test_what_a_queue_would_keep_is_kept_while_it_waits(
    expiry_s: int, granted: int, published: int, is_kept: bool
) -> None:
    world = busy_world()
    ann, bob = world.connect("ann", expiry_s=expiry_s), world.connect("bob")
    ann.subscribe("t", qos=granted, policy="def arrived(m, me): return m")
    bob.publish("t", b"{}", published)
    rows = world.disk.read("cases", PendingDecisionRow)
    assert [(row.qos, row.subscription) for row in rows.values()] == [(granted, 1)] * is_kept
    assert world.disk.sizes().get("publications", 0) == is_kept
    work_all(world)
    assert len(ann.take_all()) == 1
    assert "cases" not in world.disk.sizes()
    assert "publications" not in world.disk.sizes()


class TestSubscribingAgain:
    """A subscription that takes the place of another must not cost a message (MQTT-3.8.4-4)."""

    def test_with_another_policy(self) -> None:
        world = busy_world()
        ann, bob = world.connect("ann", expiry_s=EXPIRES_NEVER_S), world.connect("bob")
        ann.subscribe("t", qos=1, policy=NAMING.format(name="old"))
        for number in range(3):
            bob.publish("t", b'{"n": %d}' % number, 1)
        ann.subscribe("t", qos=1, policy=NAMING.format(name="new"))
        bob.publish("t", b'{"n": 3}', 1)
        work_all(world)
        assert values(ann) == [{"n": number, "by": "new"} for number in range(4)]
        assert world.disk.sizes() == {"sessions": 1, "subscriptions": 1, "agents": 1}

    def test_with_another_policy_and_a_crash(self) -> None:
        world = busy_world()
        ann, bob = world.connect("ann", expiry_s=EXPIRES_NEVER_S), world.connect("bob")
        ann.subscribe("t", qos=1, policy=NAMING.format(name="old"))
        bob.publish("t", b'{"n": 0}', 1)
        ann.subscribe("t", qos=1, policy=NAMING.format(name="new"))
        world.crash()
        work_all(world)
        ann.come_back()
        assert values(ann) == [{"n": 0, "by": "new"}]

    @pytest.mark.parametrize("sessions_own", ["", NAMING.format(name="session")])
    def test_with_none(self, sessions_own: str) -> None:
        world = busy_world()
        ann, bob = world.connect("ann", expiry_s=EXPIRES_NEVER_S), world.connect("bob")
        set_policy(ann, sessions_own)
        ann.subscribe("t", qos=1, policy=NAMING.format(name="old"))
        for number in range(3):
            bob.publish("t", b'{"n": %d}' % number, 1)
        ann.subscribe("t", qos=1)
        work_all(world)
        by = {"by": "session"} if sessions_own else {}
        assert values(ann) == [{"n": number} | by for number in range(3)]
        sizes = world.disk.sizes()
        assert "cases" not in sizes
        assert "publications" not in sizes


class TestReplacing:
    def test_a_worker_that_dies_of_the_old_one_says_nothing_of_the_new(self) -> None:
        world = busy_world()
        assert world.workers is not None
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t", qos=1)
        set_policy(ann, NAMING.format(name="old"))
        bob.publish("t", b'{"n": 0}', 1)
        set_policy(ann, NAMING.format(name="new"))
        world.workers.kill_share = 1.0
        world.work()
        world.workers.kill_share = 0.0
        work_all(world)
        assert values(ann) == [{"n": 0, "by": "new"}]
        assert world.broker.view.policies().total.stopped == {}

    def test_nor_does_one_that_dies_of_a_picture_which_only_the_old_one_wanted(self) -> None:
        workers = SimulatedWorkers()
        workers.holds_jobs = True
        world = SimulatedBroker(workers=workers)
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t", qos=1)
        set_policy(ann, SMALLER)
        bob.publish("t", json.dumps({"ecg": picture()}).encode(), 1)
        dropping = 'def arrived(m, me): return drop(m, "ecg")'
        compiled(dropping)  # the workers are busy
        set_policy(ann, dropping)
        workers.kill_share = 1.0
        world.work()
        assert values(ann) == [{}]
        assert world.broker.view.policies().total.stopped == {}


class TestSeveral:
    """Policies of one session, in workers."""

    def test_they_do_not_undo_each_others_work(self) -> None:
        world = busy_world()
        assert world.workers is not None
        ann, bob = world.connect("ann"), world.connect("bob")
        for number in range(1, 31):
            ann.subscribe("t", identifier=number, filter="n > 0", policy=COUNTING)
        bob.publish("t", b'{"n": 1}')
        work_all(world)
        assert sorted(one["seen"] for one in values(ann)) == list(range(1, 31))
        assert world.broker.view.policies().total.stopped == {}
        assert world.workers.done == 30

    def test_each_has_its_turn(self) -> None:
        world = busy_world()
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t", policy=NAMING.format(name="one"))
        ann.subscribe("u", policy=NAMING.format(name="two"))
        for number in range(3):
            bob.publish("t", b'{"n": %d}' % number)
            bob.publish("u", b'{"n": %d}' % number)
        ann.unsubscribe("t")
        work_all(world)
        assert values(ann) == [{"n": number, "by": "two"} for number in range(3)]
        ann.subscribe("t", policy=NAMING.format(name="one"))
        for number in range(3):
            bob.publish("t", b'{"n": %d}' % number)
            bob.publish("u", b'{"n": %d}' % number)
        work_all(world)
        assert [one["by"] for one in values(ann)] == ["one", "two"] * 3


def test_a_burst_that_is_too_much_at_once_does_not_suspend_a_policy() -> None:
    world = busy_world(PolicyLimits(waiting_max=10))
    ann, bob = world.connect("ann"), world.connect("bob")
    for number in range(20):
        bob.publish(f"t/{number}", b'{"n": %d}' % number, retain=True)
    ann.subscribe("t/+", policy=PASSING)
    work_all(world)
    assert len(values(ann)) == 10
    bob.publish("t/0", b"{}")
    work_all(world)
    assert values(ann) == [{}]


def test_nor_do_workers_that_cannot_be_started() -> None:
    world = busy_world(PolicyLimits(offences_max=2))
    assert world.workers is not None
    ann, bob = world.connect("ann"), world.connect("bob")
    compiled(PASSING)  # so that no worker is asked to
    ann.subscribe("t", policy=PASSING)
    for number in range(5):
        bob.publish("t", b'{"n": %d}' % number)
        world.workers.end_all()
        world.workers.listener.lost(number + 1, "crowded", "no worker can be started")
        world.turn()
    bob.publish("t", b'{"n": 5}')
    work_all(world)
    assert values(ann) == [{"n": 5}]
    assert world.broker.view.policies().total.stopped == {"crowded": 5}


class TestOver:
    """What is withdrawn or has expired is never sent, though QoS 0 is looked at only here."""

    def test_while_a_worker_is_busy_with_it(self) -> None:
        world = busy_world()
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t")
        set_policy(ann, "def arrived(m, me):\n    me.n = m.n\n    return m")
        bob.publish("t", b'{"n": 1}', id="first")
        bob.publish("t", b'{"n": 2}', properties=Properties(message_expiry_s=5))
        bob.publish("$rove/unpublish", b"first", 1)
        world.work()
        world.now += 10
        work_all(world)
        assert ann.take(Publish) == []
        assert world.broker.view.variables("ann")["manual"] == {}  # type: ignore[index]
        assert world.broker.counters.notifications_dropped_expired == 2

    def test_when_the_policy_is_removed(self) -> None:
        world = busy_world()
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t")
        set_policy(ann, PASSING)
        bob.publish("t", b'{"n": 1}', id="first")
        bob.publish("t", b'{"n": 2}', id="second")
        bob.publish("$rove/unpublish", b"second", 1)
        set_policy(ann, "")
        assert values(ann) == [{"n": 1}]


class TestMemory:
    """What is sent to thousands must not stay when it is sent."""

    def _outputs(self, world: SimulatedBroker, doctors: int, publications: int) -> int:
        """Let everybody be sent something of their own; how much of it is still there."""
        made: list[weakref.ref[Publication]] = []
        keep = world.broker.delivery.deliver

        def deliver(one: Notification, now: float) -> None:
            made.append(weakref.ref(one.publication))
            keep(one, now)

        world.broker.delivery.deliver = deliver  # type: ignore[method-assign]
        bob = world.connect("bob")
        for number in range(doctors):
            doctor = world.connect(f"doctor{number}")
            doctor.subscribe("t")
            doctor.publish("$rove/me", b'{"id": %d}' % number)
            set_policy(doctor, "def arrived(m, me):\n    m.id = me.id\n    return m")
        for number in range(publications):
            bob.publish("t", b'{"n": %d}' % number)
            if world.workers is not None:
                work_all(world)
        assert len(made) == doctors * publications
        gc.collect()
        return sum(one() is not None for one in made)

    def test_of_what_policies_made_in_the_broker(self) -> None:
        assert self._outputs(SimulatedBroker(), 5, 10) == 0

    def test_of_what_workers_made(self) -> None:
        assert self._outputs(busy_world(), 5, 10) == 0

    def test_what_workers_made_alike_is_kept_once(self) -> None:
        world = busy_world()
        doctors = [world.connect(f"d{number}", expiry_s=EXPIRES_NEVER_S) for number in range(4)]
        for doctor in doctors:
            doctor.subscribe("t", qos=1)
            set_policy(doctor, NAMING.format(name="all"))
        world.connect("bob").publish("t", b'{"n": 1}', 1)
        work_all(world)
        assert world.disk.sizes()["queue"] == 4
        assert world.disk.sizes()["publications"] == 1
        assert [values(doctor) for doctor in doctors] == [[{"n": 1, "by": "all"}]] * 4
        assert "publications" not in world.disk.sizes()

    def test_cases_of_before_a_restart_are_not_read_before_their_turn(self) -> None:
        world = busy_world()
        ann, bob = world.connect("ann", expiry_s=EXPIRES_NEVER_S), world.connect("bob")
        ann.subscribe("t", qos=1)
        set_policy(ann, PASSING)
        for number in range(5):
            bob.publish("t", b'{"n": %d}' % number, 1)
        world.crash()
        (slot,) = world.broker.agents.policies.slots
        assert [pending.shown is None for pending in slot.waiting] == [
            False,
            True,
            True,
            True,
            True,
        ]
        work_all(world)
        ann.come_back()
        assert [one["n"] for one in values(ann)] == [0, 1, 2, 3, 4]


# -- who has a policy ----------------------------------------------------------------------------

HIGH = "def arrived(m, me): return m if m.pulse > 100 else None"


def ask_policy(client: SimulatedClient, text: str) -> int:
    client.publish("$rove/policy", text.encode(), 1)
    return client.only(Puback).reason


def test_a_row_for_each_policy_of_a_session_that_stays() -> None:
    world = SimulatedBroker()
    ann, bob = world.connect("ann", expiry_s=EXPIRES_NEVER_S), world.connect("bob")
    for client in (ann, bob):
        client.subscribe("t", policy=HIGH)
        assert ask_policy(client, HIGH) == Reason.SUCCESS
    policies = world.broker.agents.policies
    assert sorted(slot.session.client_id for slot in policies.slots) == ["ann", "ann", "bob", "bob"]
    assert world.disk.tables["agents"].keys() == {
        slot.key for slot in policies.slots if slot.session is world.broker.context.sessions["ann"]
    }
    ann.unsubscribe("t")
    assert ask_policy(ann, "") == Reason.SUCCESS
    bob.disconnect()
    assert not policies.slots
    assert "agents" not in world.disk.sizes()


def test_a_row_of_a_session_that_is_not_there_goes() -> None:
    world = SimulatedBroker()
    ann = world.connect("ann", expiry_s=100)
    assert ask_policy(ann, HIGH) == Reason.SUCCESS
    ann.drop()
    world.crash(down_s=1_000)
    assert world.disk.sizes() == {}


@pytest.mark.parametrize("ends", ["removed", "session", "subscription"])
def test_one_that_is_not_run_here_goes_with_what_it_belongs_to(ends: str) -> None:
    world = SimulatedBroker()
    ann = world.connect("ann", expiry_s=EXPIRES_NEVER_S)
    ann.subscribe("t", identifier=1, policy=HIGH)
    if ends != "subscription":
        ann.unsubscribe("t")
        assert ask_policy(ann, HIGH) == Reason.SUCCESS
    assert world.disk.sizes()["agents"] == 1
    limits, world._policies = world._policies, PolicyLimits(text_bytes_max=10)
    world.crash()
    assert world.broker.view.policies().count == 0
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
    assert world.broker.view.policies().count == 0
    assert "agents" not in world.disk.sizes()
