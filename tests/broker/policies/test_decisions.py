"""What a policy decided happens as one: what is sent, set, remembered and told."""

from rove.testing.mqtt import SimulatedBroker
from tests.broker.policies.test_agents import set_policy, values

TEXT = """
def arrived(m, me):
    me.seen = get("seen", 0) + 1
    if every(1000):
        return [message(n=1), message(n=2)]
    return 1 / 0
"""


def test_everything_that_was_decided_is_in_one_commit() -> None:
    world = SimulatedBroker()
    ann, bob = world.connect("ann", expiry_s=1_000), world.connect("bob")
    ann.subscribe("t", "$rove/policy", qos=1)
    set_policy(ann, TEXT)
    world.holds_commits = True
    bob.publish("t", b"{}", 1)
    ((_, changes),) = world.uncommitted
    assert {"sessions", "agents", "queue"} <= changes.tables.keys()
    world.commit()
    assert values(ann) == [{"n": 1}, {"n": 2}]


def test_a_call_that_is_stopped_is_told_and_sends_nothing() -> None:
    world = SimulatedBroker()
    ann, bob = world.connect("ann"), world.connect("bob")
    ann.subscribe("t", "$rove/policy")
    set_policy(ann, TEXT)
    bob.publish("t", b"{}")
    bob.publish("t", b"{}")
    told = values(ann)
    assert told[:2] == [{"n": 1}, {"n": 2}]
    assert (told[2]["event"], told[2]["kind"], told[2]["topic"]) == ("stopped", "error", "t")
    assert world.broker.context.sessions["ann"].me["seen"] == 1
