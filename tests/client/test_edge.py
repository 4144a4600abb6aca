"""Policies in this process: the broker's own agents, on what has come."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from rove.client import PolicyRefused, connect
from rove.client.edge import EdgePolicy
from rove.client.me import Me
from rove.client.policies import DeviceContext, PolicyNotice, Runs
from rove.client.reports import Reports
from rove.mqtt.packets import Properties, Publish
from rove.policy.limits import PolicyLimits

if TYPE_CHECKING:
    from tests.client.conftest import Scripted, StartBroker

MONITOR = """
LOW = 0.3

def arrived(m, me):
    if m.pulse is None:
        return None
    me.seen = get("seen", 0) + 1
    if get("battery", 1.0) < LOW:
        return keep(m, "pulse", "id")
    if m.pulse > 150:
        return [m, message(alarm=m.pulse, seen=me.seen)]
    return m
"""


class Edge:
    """A policy here, and what it did."""

    def __init__(self, text: str, limits: PolicyLimits | None = None) -> None:
        self.now = 1_000.0
        self.told: list[PolicyNotice] = []
        self.me = Me(lambda _: asyncio.get_running_loop().create_future())
        self.reports = Reports(lambda _: asyncio.get_running_loop().create_future(), lambda: False)
        around = DeviceContext(self.me, self.reports, self.told.append)
        self.policy = EdgePolicy(text, around, limits or PolicyLimits(), lambda: self.now)

    def arrive(self, payload: bytes, **user: str) -> list[Publish]:
        publish = Publish("icu/1", payload, 1, properties=Properties(tuple(user.items())))
        return list(self.policy.arrived(publish, 7))


async def test_messages_pass_are_dropped_changed_and_multiplied() -> None:
    edge = Edge(MONITOR)
    [passed] = edge.arrive(b'{"pulse": 70}', id="a")
    assert (passed.payload, passed.properties.user) == (b'{"pulse": 70}', (("id", "a"),))
    assert edge.arrive(b'{"temperature": 37}') == []
    both = edge.arrive(b'{"pulse": 170}', id="b")
    assert [each.payload for each in both] == [b'{"pulse": 170}', b'{"alarm":170,"seen":2}']
    assert dict(edge.me) == {"seen": 2}
    await edge.reports.start(lambda: {"battery": 0.1}, 100)
    [small] = edge.arrive(b'{"pulse": 70, "ecg": "..."}', id="c")
    assert (small.payload, small.properties.user) == (b'{"pulse":70}', (("id", "c"),))
    edge.reports.stop()


async def test_trouble_suspends_as_in_the_broker() -> None:
    edge = Edge("def arrived(m, me):\n    return m.pulse + 1\n", PolicyLimits(suspension_s=10))
    for _ in range(5):
        assert edge.arrive(b'{"pulse": "none"}', id="x") == []
        edge.now += 2
    stopped, suspended = edge.told[0], edge.told[-1]
    assert (stopped.event, stopped.kind, stopped.line) == ("stopped", "error", 2)
    assert (stopped.topic, stopped.publication, stopped.subscription) == ("icu/1", "x", 7)
    assert (suspended.event, suspended.until) == ("suspended", edge.now - 2 + 10)


async def test_automatic_variables_cannot_be_set() -> None:
    edge = Edge("def arrived(m, me):\n    set(m.name, 1)\n    return m\n")
    await edge.reports.start(lambda: {"ward": "ICU"}, 100)
    assert edge.arrive(b'{"name": "ward"}') == []
    assert edge.arrive(b'{"name": "network"}') == []
    assert len(edge.arrive(b'{"name": "own"}')) == 1
    assert dict(edge.me) == {"own": 1}
    edge.reports.stop()


async def test_it_can_be_replaced_and_removed_and_a_bad_one_changes_nothing() -> None:
    edge = Edge("def arrived(m, me):\n    return None\n")
    with pytest.raises(PolicyRefused):
        edge.policy.replace("def arrived(m, me):\n    return lambda: m\n")
    assert edge.arrive(b"{}") == []
    edge.policy.replace("def arrived(m, me):\n    return message(x=1)\n")
    assert [each.payload for each in edge.arrive(b"{}")] == [b'{"x":1}']
    edge.policy.replace("")
    assert [each.payload for each in edge.arrive(b"bytes")] == [b"bytes"]


async def test_with_any_broker_a_policy_decides_before_the_program_gets_it(
    scripted: type[Scripted],
) -> None:
    async with scripted() as server:
        client = await connect(server.url)
        readings = await client.subscribe("icu/#", policy=MONITOR, policy_runs="here")
        for number, pulse in enumerate([70, None, 170]):
            server.notify("icu/1", msgspec.json.encode({"pulse": pulse}), id=str(number))
        values = [(await anext(readings)).value for _ in range(2)]
        await client.publish("t", 1)  # answered after what was acknowledged
        assert server.unacknowledged == 1  # one of its two is not taken
        values.append((await anext(readings)).value)
        await client.publish("t", 1)
        assert server.unacknowledged == 0
        assert values == [{"pulse": 70}, {"pulse": 170}, {"alarm": 170, "seen": 2}]
        assert readings.received == 3
        await client.set_policy("def arrived(m, me):\n    return message(x=1)\n", readings)
        server.notify("icu/1", b"{}", id="3")
        assert (await anext(readings)).value == {"x": 1}
        await client.remove_policy(readings)
        server.notify("icu/1", b"[]", id="4")
        assert (await anext(readings)).value == []
        assert not [each for each in server.of(Publish) if each.topic.startswith("$rove/")]
        await client.close()


@pytest.mark.parametrize("runs", ["broker", "here"])
async def test_here_and_in_the_broker_it_decides_the_same(
    start_broker: StartBroker, runs: Runs
) -> None:
    async with start_broker() as broker, connect(broker.url) as client:
        await client.report(lambda: {"battery": 0.9})
        found = await client.subscribe("icu/#", policy=MONITOR, policy_runs=runs)
        for pulse in [70, None, 170, 60, "x", 151]:
            await client.publish("icu/1", {"pulse": pulse})
        values = [(await anext(found)).value for _ in range(6)]
        assert values == [
            {"pulse": 70},
            {"pulse": 170},
            {"alarm": 170, "seen": 2},
            {"pulse": 60},
            {"pulse": 151},
            {"alarm": 151, "seen": 4},
        ]
        assert dict(client.me) == ({"seen": 4} if runs == "here" else {})
        async with client.variables() as state:
            while state.get("seen") != 4:
                await anext(state)
