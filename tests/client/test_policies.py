"""Policies on their way out, and what a policy that runs here sees of its client."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from rove.client import PolicyRefused, Published, PublishRefused, SubscribeRefused, connect
from rove.client.me import Me
from rove.client.policies import DeviceContext, PolicyNotice, check_runs, compiled
from rove.client.reports import Reports
from rove.mqtt.packets import Properties, Publish, Reason, Subscribe
from rove.policy.automatic import ON_ITS_WAY_S

if TYPE_CHECKING:
    from tests.client.conftest import Scripted, StartBroker

PASS = "def arrived(m, me):\n    return m\n"
DROP = "def arrived(m, me):\n    return None\n"
FAIL = "def arrived(m, me):\n    return m.x + 1\n"
ROVE = Properties(user=(("rove", "1"),))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Come back at once."""
    monkeypatch.setattr("rove.client.connection._RETRY_S_FIRST", 0.01)


def test_a_policy_is_compiled_or_refused_with_line_and_caret() -> None:
    text = "def arrived(m, me):\n    return m\n"
    assert compiled(text).text == text
    with pytest.raises(PolicyRefused) as caught:
        compiled("def arrived(m, me):\n    import os\n    return m\n")
    assert (caught.value.line, caught.value.column, caught.value.reason) == (2, 5, 0x99)
    assert "\n      import os\n      ^" in str(caught.value)


@pytest.mark.parametrize(
    ("policy", "runs", "said"),
    [("x", "there", "'broker' or 'here'"), (None, "here", "there is none")],
)
def test_a_policy_runs_in_the_broker_or_here(policy: str | None, runs: str, said: str) -> None:
    with pytest.raises(PolicyRefused, match=said):
        check_runs(policy, runs)
    check_runs(None, "broker")
    check_runs("x", "here")


class Around:
    """Surroundings, and what was sent and told."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.told: list[PolicyNotice] = []
        self.me = Me(self.send)
        self.reports = Reports(self.send, lambda: True)
        self.surroundings = DeviceContext(self.me, self.reports, self.told.append)

    def send(self, payload: bytes) -> asyncio.Future[Published]:
        self.sent.append(payload)
        done: asyncio.Future[Published] = asyncio.get_running_loop().create_future()
        done.set_result(Published(""))
        return done


async def test_a_policy_sees_the_programs_variables_and_its_devices() -> None:
    around = Around()
    around.me["x"] = 3
    await around.reports.start(lambda: {"battery": 0.5, "dock": None}, 100)
    around.surroundings.connected_at = 12.5
    assert dict(around.surroundings.own) == {"x": 3}
    assert around.surroundings.automatic == {
        "battery": 0.5,
        "network": 1.0,
        "connected": True,
        "connected_at": 12.5,
        "protocol": 5,
    }
    around.reports.stop()


async def test_what_it_sets_is_the_programs_and_a_broker_that_keeps_it_is_told() -> None:
    around = Around()
    around.surroundings.change({"x": 1, "y": 2})
    around.surroundings.change({"y": None, "z": None})
    await asyncio.sleep(0)
    assert dict(around.me) == {"x": 1}
    assert around.sent == []
    around.surroundings.knows_me = True
    around.surroundings.change({"x": 2, "y": 3})
    around.surroundings.change({"y": None})
    await asyncio.sleep(0)
    assert around.sent == [b'{"x":2,"y":null}']


async def test_trouble_is_told_and_logged_and_a_failing_listener_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    around = Around()
    notice = PolicyNotice("stopped", 1.0, "steps", "too many steps")
    with caplog.at_level(logging.WARNING, "rove.client"):
        around.surroundings.tell(notice)
    assert around.told == [notice]
    assert "too many steps" in caplog.text
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    DeviceContext(around.me, around.reports, lambda _: 1 / 0).tell(notice)
    assert [each["message"] for each in failures] == ["on_policy failed"]


# -- a client with policies ------------------------------------------------------------------------


async def test_policies_are_told_by_a_topic_and_by_a_property(scripted: type[Scripted]) -> None:
    async with scripted() as server, connect(server.url) as client:
        readings = await client.subscribe("icu/#", "pulse > 0", policy=PASS)
        await client.set_policy(DROP)
        await client.set_policy(DROP, readings)
        await client.remove_policy(readings.identifier)
        await client.remove_policy()
        await client.set_policy(PASS, 12)  # made by an earlier program
        [subscribe] = server.of(Subscribe)
        assert subscribe.properties.user == (("filter", "pulse > 0"), ("policy", PASS))
        told = [
            (each.topic, each.payload.decode(), dict(each.properties.user).get("subscription"))
            for each in server.of(Publish)
        ]
        of_it = str(readings.identifier)
        assert [(readings.identifier,)] == [subscribe.properties.subscription_ids]
        assert told == [
            ("$rove/policy", DROP, None),
            ("$rove/policy", DROP, of_it),
            ("$rove/policy", "", of_it),
            ("$rove/policy", "", None),
            ("$rove/policy", PASS, "12"),
        ]
        await readings.close()
        with pytest.raises(PolicyRefused, match="has ended"):
            await client.set_policy(PASS, readings)


async def test_a_broker_that_forgot_is_told_me_reports_policy_and_then_subscriptions(
    scripted: type[Scripted],
) -> None:
    async with scripted() as server:
        server.properties = ROVE
        client = await connect(server.url, report=lambda: {"battery": 0.5})
        await client.me.set(x=1)
        await client.set_policy(DROP)
        await client.set_policy(PASS)
        readings = await client.subscribe("icu/#", "pulse > 0", policy=DROP)
        await client.set_policy(FAIL, readings)
        before = len(server.heard)
        server.drop()
        while len([each for each in server.heard[before:] if type(each) is Publish]) < 4:
            await asyncio.sleep(0.002)
        said = [
            each.payload if isinstance(each, Publish) else dict(each.properties.user)["policy"]
            for each in server.heard[before:]
            if isinstance(each, Publish | Subscribe)
        ]
        first = [b'{"x":1}', b'{"battery":0.5}', PASS.encode(), FAIL]
        assert said == [*first, b'{"battery":0.5,"received":0}']
        await client.close()


async def test_a_policy_that_was_removed_or_refused_is_not_told_again(
    scripted: type[Scripted],
) -> None:
    async with scripted() as server:
        client = await connect(server.url)
        await client.set_policy(PASS)
        server.publish_reason = Reason.PAYLOAD_FORMAT_INVALID
        with pytest.raises(PolicyRefused, match="the policy was refused") as caught:
            await client.set_policy(DROP)
        assert caught.value.reason == Reason.PAYLOAD_FORMAT_INVALID
        server.publish_reason = Reason.SUCCESS
        server.drop()
        while server.accepted < 2 or not client.is_connected:
            await asyncio.sleep(0.002)
        await client.remove_policy()
        server.drop()
        while server.accepted < 3 or not client.is_connected:
            await asyncio.sleep(0.002)
        await client.publish("t", 1)
        texts = [PASS, DROP, PASS, "", "1"]
        assert server.payloads == [text.encode() for text in texts]
        await client.close()


async def test_what_cannot_be_is_refused_before_anything_is_sent(scripted: type[Scripted]) -> None:
    bad = "def arrived(m, me):\n    import os\n"
    async with scripted() as server, connect(server.url) as client:
        with pytest.raises(PolicyRefused, match="line 2"):
            await client.set_policy(bad)
        with pytest.raises(PolicyRefused, match="line 2"):
            client.subscribe("t", policy=bad)
        with pytest.raises(PolicyRefused, match="line 2"):
            client.subscribe("t", policy=bad, policy_runs="here")
        with pytest.raises(PolicyRefused, match="set it for the session"):
            client.subscribe("t", policy=PASS + "# long" * 15_000)
        await client.subscribe("t", policy=PASS)
        numbers = await client.subscribe("t", policy=PASS)
        with pytest.raises(PolicyRefused, match="set it for the session"):
            await client.set_policy(PASS + "# long" * 15_000, numbers)
        with pytest.raises(SubscribeRefused, match="such as TRUE"):
            await client.subscribe("t", policy=DROP)
        await client.subscribe("t", "TRUE", policy=DROP)
        assert server.payloads == []
        assert len(server.of(Subscribe)) == 3


async def test_a_simulated_link_loses_for_the_program_and_for_the_report(
    scripted: type[Scripted],
) -> None:
    class Device:
        """Gets nothing that is larger than ten bytes, topic included."""

        def __call__(self) -> dict[str, Any]:
            return {}

        def received(self, size_bytes: int) -> bool:
            return size_bytes <= 10

    async with scripted() as server:
        server.properties = ROVE
        client = await connect(server.url, report=Device(), report_every_s=0.05)
        numbers = await client.subscribe("t")
        await client.subscribe("$rove/me", slow="drop-oldest")
        server.notify("$rove/me", b"{}")  # the broker's own words count for nothing
        for number in (1, 1_000_000_000_000, 2):
            server.notify("t", b"%d" % number)
        assert [(await anext(numbers)).value for _ in range(2)] == [1, 2]
        while server.unacknowledged:  # what was lost too: it must not come again
            await asyncio.sleep(0.002)
        count = len(server.payloads)
        while len(server.payloads) < count + 2:
            await asyncio.sleep(0.002)
        assert sum(msgspec.json.decode(each)["received"] for each in server.payloads) == 2
        await client.close()


async def test_a_client_that_cannot_have_what_it_was_told_is_not_left_open(
    scripted: type[Scripted],
) -> None:
    async with scripted() as server:
        server.properties = ROVE
        server.publish_reason = Reason.PAYLOAD_FORMAT_INVALID
        with pytest.raises(PublishRefused, match="a report was refused"):
            await connect(server.url, report=dict)
        server.subscribe_reason = Reason.NOT_AUTHORIZED
        with pytest.raises(SubscribeRefused, match="policy"):
            await connect(server.url, on_policy=print)
        async with connect(server.url) as client:  # the scripted one has one client at a time
            assert client.is_connected


# -- with the real broker --------------------------------------------------------------------------


async def test_the_broker_runs_them_and_tells_of_trouble(start_broker: StartBroker) -> None:
    told: asyncio.Queue[PolicyNotice] = asyncio.Queue()
    async with start_broker() as broker, connect(broker.url, on_policy=told.put_nowait) as client:
        await client.set_policy("def arrived(m, me):\n    return keep(m, 'x')\n")
        numbers = await client.subscribe("t", "TRUE")
        await client.publish("t", {"x": 1, "y": 1})
        assert (await anext(numbers)).value == {"x": 1}
        await client.set_policy(FAIL, numbers)
        async with client.policy_notices() as notices:
            published = await client.publish("t", {"x": "no number"})
            notice = await told.get()
            assert (notice.event, notice.kind, notice.line) == ("stopped", "error", 2)
            assert (notice.topic, notice.publication) == ("t", published.id)
            assert notice.subscription == numbers.identifier
            assert (await anext(notices)).value == notice
        await client.remove_policy(numbers)
        await client.publish("t", {"x": 2, "y": 2})
        assert (await anext(numbers)).value == {"x": 2}
        await client.remove_policy()
        await client.publish("t", {"x": 3, "y": 3})
        assert (await anext(numbers)).value == {"x": 3, "y": 3}


async def test_what_only_the_broker_knows_is_in_its_answer(start_broker: StartBroker) -> None:
    async with start_broker() as broker, connect(broker.url) as client:
        with pytest.raises(PolicyRefused, match="bytes"):
            await client.set_policy(PASS + "# long" * 10_000)
        with pytest.raises(SubscribeRefused, match="bytes"):
            await client.subscribe("t", policy=PASS + "# long" * 10_000)
        with pytest.raises(PublishRefused, match="can only be read"):
            await client.me.set(network=1)


async def test_network_is_what_came_of_what_was_sent(start_broker: StartBroker) -> None:
    class Device:
        """Loses every second message."""

        def __init__(self) -> None:
            self.shown = 0

        def __call__(self) -> dict[str, Any]:
            return {"shown": self.shown}

        def received(self, size_bytes: int) -> bool:
            self.shown += 1
            return self.shown % 2 == 1

    async with start_broker() as broker:
        client = await connect(broker.url, report=Device(), report_every_s=1_000)
        numbers = await client.subscribe("t", into=int)
        for number in range(10):
            await client.publish("t", number)
        assert [(await anext(numbers)).value for _ in range(5)] == [0, 2, 4, 6, 8]
        async with client.variables() as state:
            assert state["network"] == 1.0
            await asyncio.sleep(ON_ITS_WAY_S)
            await client.report(Device())
            while state["network"] == 1.0:
                await anext(state)
            assert dict(state)["network"] == 0.5
        assert (await client.publish("$rove/report", {})).user == {"every": "30"}
        await client.close()


async def test_a_broker_that_forgot_the_session_runs_the_same_policies_again(
    start_broker: StartBroker,
) -> None:
    back = asyncio.Event()
    async with (
        start_broker() as broker,
        connect(broker.url, session_expiry_s=0, on_connection=lambda _: back.set()) as client,
    ):
        await client.report(lambda: {"battery": 0.5})
        await client.me.set(x=1)
        tell = "def arrived(m, me):\n    return message(battery=me.battery, x=me.x, kind={!r})\n"
        await client.set_policy(tell.format("session"))
        plain = await client.subscribe("t", "TRUE")
        own = await client.subscribe("t", "n > 0", policy=tell.format("first"))
        await client.set_policy(tell.format("second"), own)
        back.clear()
        broker.cut()
        await back.wait()  # lost, or there again: what is published now is sent after all the rest
        await client.publish("t", {"n": 1})
        assert (await anext(plain)).value == {"battery": 0.5, "x": 1, "kind": "session"}
        assert (await anext(own)).value == {"battery": 0.5, "x": 1, "kind": "second"}
