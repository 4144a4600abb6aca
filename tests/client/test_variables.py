"""The owner's view of its state: whole, newest, and over when the subscription is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from rove.client import SubscribeRefused, connect
from rove.client.notifications import reader_into
from rove.client.subscription import Subscription
from rove.client.variables import Variables
from rove.mqtt.packets import Publish

if TYPE_CHECKING:
    from tests.client.conftest import Scripted, StartBroker


class Owner:
    """Stands for the client."""

    def taken(self, delivery: object) -> None:
        raise AssertionError("nothing waits to be taken")

    def leave(self, subscription: Subscription[Any]) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


class Shown:
    """Variables, and a subscription that can be given states."""

    def __init__(self) -> None:
        self.subscription = Subscription[dict[str, Any]](
            Owner(),
            "$rove/me",
            None,
            reader_into(dict[str, Any]),
            slow="drop-oldest",
            inbox_max=1,
            seen_max=10,
        )
        self.variables = Variables(self.subscription)

    def show(self, **state: Any) -> None:
        self.subscription.arrive(Publish("$rove/me", msgspec.json.encode(state), 1), None)


async def test_it_is_a_mapping_of_the_newest_state() -> None:
    shown = Shown()
    shown.show(x=1, battery=0.5)
    state = await shown.variables.begin(1)
    assert dict(state) == {"x": 1, "battery": 0.5}
    shown.show(x=1, battery=0.4)
    shown.show(x=2)
    assert (state["x"], len(state), "battery" in state) == (2, 1, False)
    assert repr(state) == "Variables({'x': 2})"


async def test_a_loop_over_it_is_given_what_has_changed_and_ends_with_it() -> None:
    shown = Shown()
    shown.show(x=1)
    state = await shown.variables.begin(1)
    shown.show(x=2)
    shown.show(x=3)
    assert await anext(state) == {"x": 3}
    waiting = asyncio.ensure_future(anext(state))
    await asyncio.sleep(0)
    shown.show(x=4)
    assert await waiting == {"x": 4}
    await state.close()
    assert [each async for each in state] == []


async def test_a_broker_that_shows_nothing_is_said_so(scripted: type[Scripted]) -> None:
    async with scripted() as server:
        client = await connect(server.url, timeout_s=0.05)
        with pytest.raises(SubscribeRefused, match="is it a Rove broker"):
            await client.variables()
        await client.close()


async def test_a_subscriber_sees_what_it_set_and_what_it_reported(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as broker, connect(broker.url) as client:
        await client.me.set(x=1)
        async with client.variables() as state:
            assert dict(state) == {"x": 1}
            await client.report(lambda: {"battery": 0.5})
            await client.me.set(x=2)
            while state["x"] == 1:
                await anext(state)
            assert state["battery"] == 0.5
            assert state["connected"] is True


async def test_it_goes_on_over_a_lost_connection(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rove.client.connection._RETRY_S_FIRST", 0.01)
    async with start_broker() as broker, connect(broker.url) as client:
        await client.report(lambda: {"battery": 0.5})
        async with client.variables() as state:
            before = state["connected_at"]
            broker.cut()
            while (await anext(state))["connected_at"] == before:
                pass
            assert state["connected"] is True
