"""Where policies sit, and what waits for them."""

from __future__ import annotations

import pytest

from rove.broker.notifications.notification import Notification
from rove.broker.policies.slots import PendingDecision, PolicySlot, Shown
from rove.broker.publications.publication import Publication
from rove.broker.sessions.session import Session
from rove.broker.storage.records import PendingDecisionRow, decoded, encoded
from rove.broker.subscriptions.subscription import Subscription
from rove.lang.tree import Attribute
from rove.mqtt.packets import Filter, Publish
from rove.policy.accounts import Accounts
from rove.policy.agents import Agent
from rove.policy.compiling import compiled
from rove.policy.messages import Arrived
from rove.testing.mqtt import SimulatedBroker
from rove.testing.policies import SimulatedWorkers
from tests.broker.test_faults import POLICY, decode, fail_once

TEXT = "def arrived(m, me): return m"


def test_a_case_is_written_with_all_that_is_needed_to_go_on() -> None:
    publication = Publication(7, Publish("t", b"1", 2), "bob", "id", 1.0)
    select = (Attribute(("a",)),)
    one = Notification(
        Session("ann", 1, 5, 9), publication, 2, True, (3, 4), select, (5,), b"{}", waits=True
    )
    pending = PendingDecision(one, Shown(Arrived("t", b"1")), {})
    row = pending.row(5, 12.5)
    assert row == PendingDecisionRow(7, 5, 2, True, (3, 4), select, (5,), b"{}", True, 12.5)
    assert decoded(PendingDecisionRow, encoded(row)) == row


def test_what_is_shared_of_one_is_not_of_another() -> None:
    one, other = Shown(Arrived("t", b"1")), Shown(Arrived("t", b"1"))
    assert one.derived is not other.derived


def test_a_seat_is_a_sessions_or_a_subscriptions() -> None:
    session = Session("a/n", 1, 5, 9)
    subscription = Subscription(8, session, Filter("t/#", 1), 3, None, 0.0)
    agent = Agent(compiled(TEXT, bytes_max=100), 4.0)
    account = Accounts().of("user ann")
    whole, part = (PolicySlot(agent, session, place, account) for place in (None, subscription))
    assert (whole.number, whole.key) == (0, "0/a/n")
    assert (part.number, part.key) == (8, "8/a/n")
    view = part.view()
    assert (view.client_id, view.subscription, view.identifier) == ("a/n", 8, 3)
    assert (view.topic_filter, view.text, view.set_at, view.waiting) == ("t/#", TEXT, 4.0, 0)
    assert (whole.view().identifier, whole.view().topic_filter) == (0, "")


@pytest.mark.parametrize("method", ["_answered", "_go_on", "_had_first", "_next_turn"])
def test_policies_go_on_when_an_answer_fails(method: str) -> None:
    """Nothing waits for ever behind a message whose turn has failed."""
    workers = SimulatedWorkers()
    workers.holds_jobs = True
    world = SimulatedBroker(workers=workers, isolation="process")
    near, other = world.connect("near", expiry_s=100), world.connect("other")
    near.subscribe("a", qos=1, policy=POLICY)
    near.subscribe("b", qos=1, identifier=2, policy=POLICY)
    for number in range(1, 4):
        for topic in "ab":
            other.publish(topic, b'{"x": %d}' % number, 1)
    agents = world.broker.agents
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
    world = SimulatedBroker()
    near, other = world.connect("near", expiry_s=100), world.connect("other")
    near.subscribe("a", qos=1, policy=POLICY)
    agents = world.broker.agents
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


def check_nothing_waits(world: SimulatedBroker) -> None:
    """No policy has anything to decide, and that one fault was told of."""
    for slot in world.broker.agents.policies.slots:
        assert (len(slot.waiting), slot.account.waiting_bytes) == (0, 0)
    assert world.broker.counters.faults == 1
