"""Setting a policy waits for a worker to compile it, and nobody else waits with it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from rove.broker.policies import compiler
from rove.mqtt.packets import Filter, Properties, Puback, Publish, Reason, Suback, Subscribe
from rove.policy.compiling import Policy, known
from rove.policy.limits import PolicyLimits
from rove.testing.mqtt import SimulatedBroker, SimulatedClient
from rove.testing.policies import SimulatedWorkers

_numbers: Iterator[int] = itertools.count()


def text(body: str = "return m") -> str:
    """A policy that nobody has compiled before."""
    return f"def arrived(m, me):  # {next(_numbers)}\n    {body}"


def world(limits: PolicyLimits | None = None) -> tuple[SimulatedBroker, SimulatedWorkers]:
    workers = SimulatedWorkers()
    workers.holds_texts = True
    return SimulatedBroker(workers=workers, policies=limits), workers


def is_held(here: SimulatedBroker) -> bool:
    return here.broker.is_throttling


def put(client: SimulatedClient, policy: str) -> None:
    client.publish("$rove/policy", policy.encode(), 1)


@pytest.fixture(autouse=True)
def never_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """No text may be compiled within the turn."""

    def refused(text: str, *, bytes_max: int) -> Policy:
        found = known(text, bytes_max=bytes_max)
        assert found is not None, "compiled within the turn"
        return found

    monkeypatch.setattr(compiler, "compiled", refused)


def test_only_the_one_who_sets_it_waits() -> None:
    here, workers = world()
    ann, bob = here.connect("ann"), here.connect("bob")
    ann.subscribe("t")
    bob.subscribe("t")
    put(ann, text("return message(a=1)"))
    assert ann.take(Puback) == []
    assert is_held(here)
    bob.publish("t", b"{}")
    assert bob.payloads() == [b"{}"]
    # Until it is compiled there is no policy.
    assert ann.payloads() == [b"{}"]
    assert workers.compile() == 1
    here.turn()
    assert ann.only(Puback).reason == Reason.SUCCESS
    assert not is_held(here)
    bob.publish("t", b"{}")
    assert ann.payloads() == [b'{"a":1}']


def test_what_comes_behind_it_stays_behind_it() -> None:
    here, workers = world()
    ann = here.connect("ann")
    ann.subscribe("t")
    put(ann, text("return message(a=1)"))
    ann.publish("t", b'{"n": 1}')
    put(ann, text("return message(a=2)"))
    ann.publish("t", b'{"n": 2}')
    assert ann.payloads() == []
    while workers.compile():
        here.turn()
    assert ann.payloads() == [b'{"a":1}', b'{"a":2}']


def test_a_subscription_with_a_policy_waits_too() -> None:
    here, workers = world()
    ann = here.connect("ann")
    properties = Properties(user=(("policy", text("return message(a=1)")),))
    ann.send(Subscribe(7, (Filter("t", 0), Filter("u", 0)), properties))
    assert ann.take(Suback) == []
    workers.compile()
    here.turn()
    assert ann.only(Suback).reasons == (0, 0)
    ann.publish("u", b"{}")
    assert ann.payloads() == [b'{"a":1}']


def test_what_is_wrong_with_it_is_said_as_ever() -> None:
    here, workers = world()
    ann = here.connect("ann")
    put(ann, text("return mm"))
    workers.compile()
    here.turn()
    answer = ann.only(Puback)
    assert answer.reason == Reason.PAYLOAD_FORMAT_INVALID
    assert "line 2: nothing is called mm" in (answer.properties.reason_string or "")


def test_one_that_takes_too_long_is_refused() -> None:
    here, workers = world()
    ann = here.connect("ann")
    put(ann, text())
    (job,) = workers._texts
    workers._texts.clear()
    workers.listener.lost(job.number, "time", "took longer than 500 ms")
    here.turn()
    answer = ann.only(Puback)
    assert answer.reason == Reason.PAYLOAD_FORMAT_INVALID
    assert "was not compiled: took longer" in (answer.properties.reason_string or "")
    # Its time counts, as that of a call would.
    account = here.broker.agents.policies.account(here.broker.context.sessions["ann"])
    assert account.allowance.left_s <= 0.5


def test_who_sets_many_is_charged_for_them_and_told_to_wait() -> None:
    here, workers = world(PolicyLimits(share=0.1, share_s=10))
    ann = here.connect("ann")
    reasons = []
    for _ in range(10):
        put(ann, text())
        if workers._texts:
            (job,) = workers._texts
            workers._texts.clear()
            workers.listener.lost(job.number, "time", "took longer than 500 ms")
            here.turn()
        reasons.append(ann.only(Puback).properties.reason_string or "")
    assert sum("was not compiled" in reason for reason in reasons) <= 3
    assert "share of a processor is used up" in reasons[-1]


def test_a_text_that_is_known_does_not_wait() -> None:
    here, workers = world()
    ann, bob = here.connect("ann"), here.connect("bob")
    same = text()
    put(ann, same)
    workers.compile()
    here.turn()
    assert ann.only(Puback).reason == Reason.SUCCESS
    put(bob, same)
    assert bob.only(Puback).reason == Reason.SUCCESS
    assert not workers.compile()


def test_who_has_gone_waits_no_more() -> None:
    here, workers = world()
    ann = here.connect("ann")
    put(ann, text())
    ann.drop()
    assert not here.broker.is_throttling
    workers.compile()
    here.turn()
    assert here.broker.view.policies().count == 0


def test_a_topic_alias_hides_nothing() -> None:
    here, workers = world()
    ann = here.connect("ann")
    alias = Properties(topic_alias=1)
    ann.send(Publish("$rove/policy", text().encode(), 0, properties=alias))
    workers.compile()
    here.turn()
    ann.send(Publish("", text("return None").encode(), 0, properties=alias))
    assert here.broker.is_throttling
    workers.compile()
    here.turn()
    assert "return None" in here.broker.view.policies().policies[0].text
