"""A subscription's inbox: batches without task switches, and the four choices for slow readers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rove.client.errors import ClientClosed, SlowConsumer
from rove.client.notifications import Notification, reader_into
from rove.client.protocol import DeliveryToken
from rove.client.subscription import Slow, Subscription
from rove.mqtt.packets import Properties, Publish


class Owner:
    """Stands for the client: notes what it is told."""

    def __init__(self) -> None:
        self.taken_packets: list[int] = []
        self.left = 0

    def taken(self, delivery: DeliveryToken) -> None:
        self.taken_packets.append(delivery.publish.packet_id)

    def leave(self, subscription: Subscription[Any]) -> asyncio.Future[None]:
        self.left += 1
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


class Inbox:
    """A subscription to try, and its owner."""

    def __init__(self, slow: Slow = "wait", inbox_max: int = 3) -> None:
        self.owner = Owner()
        self.subscription = Subscription[Any](
            self.owner, "t", None, reader_into(Any), slow=slow, inbox_max=inbox_max, seen_max=10
        )

    def arrive(self, *numbers: int, qos: int = 1, id: str | None = None) -> list[int]:
        return [self._arrive(number, qos, id) for number in numbers]

    def _arrive(self, number: int, qos: int, id: str | None) -> int:
        user = (("id", id),) if id is not None else ()
        publish = Publish("t", b"%d" % number, qos, packet_id=number, properties=Properties(user))
        return self.subscription.arrive(publish, DeliveryToken(publish, 1) if qos else None)

    async def rest(self) -> list[int]:
        return [one.value for one in await self.subscription.batch()]


async def test_a_batch_is_handed_over_without_a_task_switch() -> None:
    inbox = Inbox(inbox_max=10)
    switches = 0

    async def count() -> None:
        nonlocal switches
        while True:
            await asyncio.sleep(0)
            switches += 1

    other = asyncio.create_task(count())
    await asyncio.sleep(0)
    before = switches
    inbox.arrive(*range(1, 9))
    values = []
    async for one in inbox.subscription:
        values.append(one.value)
        if len(values) == 8:
            break
    assert values == list(range(1, 9))
    assert switches == before
    other.cancel()


async def test_waiting_ends_when_something_comes() -> None:
    inbox = Inbox()
    waiting = [asyncio.create_task(anext(inbox.subscription)) for _ in range(2)]
    await asyncio.sleep(0)
    inbox.arrive(1)
    await asyncio.sleep(0.001)
    inbox.arrive(2)
    assert {one.value for one in await asyncio.gather(*waiting)} == {1, 2}


async def test_a_wait_can_be_cancelled_and_loses_nothing() -> None:
    inbox = Inbox()
    waiting = asyncio.create_task(anext(inbox.subscription))
    await asyncio.sleep(0)
    waiting.cancel()
    inbox.arrive(1)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await inbox.rest() == [1]


async def test_batches_have_a_size_and_a_time() -> None:
    inbox = Inbox(inbox_max=10)
    inbox.arrive(1, 2, 3)
    assert [one.value for one in await inbox.subscription.batch(count_max=2)] == [1, 2]
    assert await inbox.rest() == [3]
    assert await inbox.subscription.batch(timeout_s=0.001) == []
    asyncio.get_running_loop().call_soon(inbox.arrive, 4)
    assert [one.value for one in await inbox.subscription.batch(timeout_s=10)] == [4]


# -- slow readers --------------------------------------------------------------------------------


async def test_waiting_acknowledges_what_is_taken() -> None:
    inbox = Inbox("wait", inbox_max=1)
    assert inbox.arrive(1, 2, 3) == [True, True, True]
    assert inbox.owner.taken_packets == []
    assert inbox.subscription.waiting == 3
    assert (await anext(inbox.subscription)).value == 1
    assert inbox.owner.taken_packets == [1]
    assert inbox.subscription.dropped == 0


async def test_waiting_cannot_hold_back_qos_0_and_drops_the_newest() -> None:
    inbox = Inbox("wait", inbox_max=2)
    assert inbox.arrive(1, 2, 3, qos=0) == [False, False, False]
    assert await inbox.rest() == [1, 2]
    assert inbox.subscription.dropped == 1


@pytest.mark.parametrize(("slow", "kept"), [("drop-oldest", [3, 4, 5]), ("drop-newest", [1, 2, 3])])
async def test_dropping_is_bounded_and_counted(slow: Slow, kept: list[int]) -> None:
    inbox = Inbox(slow)
    assert not any(inbox.arrive(1, 2, 3, 4, 5))
    assert await inbox.rest() == kept
    assert inbox.subscription.dropped == 2
    assert inbox.owner.taken_packets == []


async def test_an_error_comes_after_what_is_there() -> None:
    inbox = Inbox("error")
    inbox.arrive(1, 2, 3, 4, 5)
    assert inbox.owner.left == 1
    assert await inbox.rest() == [1, 2, 3]
    with pytest.raises(SlowConsumer, match="3 notifications"):
        await anext(inbox.subscription)
    with pytest.raises(SlowConsumer):
        await inbox.subscription.batch()


# -- duplicates ----------------------------------------------------------------------------------


async def test_what_comes_twice_is_handed_over_once() -> None:
    inbox = Inbox()
    inbox.arrive(1, id="a")
    assert inbox.arrive(1, id="a") == [False]
    inbox.arrive(3, id="b")
    assert await inbox.rest() == [1, 3]
    assert (inbox.subscription.duplicates, inbox.subscription.received) == (1, 2)


async def test_the_same_id_with_something_new_to_say_is_no_duplicate() -> None:
    inbox = Inbox()
    inbox.arrive(1, id="a")
    inbox.arrive(2, id="a")
    assert await inbox.rest() == [1, 2]


async def test_without_ids_everything_is_new() -> None:
    inbox = Inbox()
    inbox.arrive(1, 1)
    assert await inbox.rest() == [1, 1]


# -- listening -----------------------------------------------------------------------------------


async def test_a_listener_gets_what_waits_and_what_comes() -> None:
    inbox = Inbox()
    heard: list[int] = []
    inbox.arrive(1)
    inbox.subscription.listen(lambda one: heard.append(one.value))
    assert inbox.owner.taken_packets == [1]
    assert inbox.arrive(2) == [False]
    inbox.subscription.listen(None)
    inbox.arrive(3)
    assert heard == [1, 2]
    assert await inbox.rest() == [3]


async def test_a_listener_that_fails_is_reported_and_called_again() -> None:
    inbox = Inbox()
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: reported.append(what))

    def listener(one: Notification[Any]) -> None:
        raise ZeroDivisionError(one.value)

    inbox.subscription.listen(listener)
    inbox.arrive(1, 2)
    assert [str(what["exception"]) for what in reported] == ["1", "2"]


# -- the end -------------------------------------------------------------------------------------


async def test_closing_ends_the_loop_after_what_is_there() -> None:
    inbox = Inbox()
    inbox.arrive(1, 2)
    await inbox.subscription.close()
    await inbox.subscription.close()
    assert inbox.owner.left == 1
    assert inbox.owner.taken_packets == [1, 2]
    assert [one.value async for one in inbox.subscription] == [1, 2]
    assert inbox.owner.taken_packets == [1, 2]
    assert inbox.arrive(3) == [False]
    assert await inbox.subscription.batch() == []
    assert inbox.subscription.is_ended


async def test_leaving_closes() -> None:
    inbox = Inbox()
    async with inbox.subscription:
        pass
    assert inbox.owner.left == 1


async def test_an_end_wakes_who_waits() -> None:
    inbox = Inbox()
    waiting = asyncio.create_task(anext(inbox.subscription))
    await asyncio.sleep(0)
    inbox.subscription.end(ClientClosed("over"))
    with pytest.raises(ClientClosed, match="over"):
        await waiting


async def test_it_shows_what_it_is() -> None:
    assert repr(Inbox().subscription) == "Subscription('t')"
