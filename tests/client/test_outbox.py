"""Room in the outbox: bounded by count and bytes, given in the order of asking."""

from __future__ import annotations

import asyncio

import pytest

from rove.client.errors import ClientClosed, OutboxFull
from rove.client.outbox import IdGenerator, OutboxQuota


async def test_count_and_bytes_bound_it() -> None:
    room = OutboxQuota(2, 100, waits=False)
    assert room.take_now(10)
    assert not room.take_now(91)
    assert room.take_now(90)
    assert not room.take_now(0)
    with pytest.raises(OutboxFull, match=r"2 publications of 100 bytes.*outbox_max"):
        await room.take(0)


async def test_one_is_always_let_in() -> None:
    room = OutboxQuota(1, 10, waits=False)
    assert room.take_now(1_000)
    assert not room.take_now(0)


async def test_who_waits_gets_it_in_order_and_nobody_overtakes() -> None:
    room = OutboxQuota(1, 100, waits=True)
    await room.take(1)
    order: list[str] = []

    async def wait(name: str) -> None:
        await room.take(1)
        order.append(name)

    tasks = [asyncio.create_task(wait(name)) for name in "abc"]
    await asyncio.sleep(0)
    for _ in tasks:
        assert not room.take_now(1)
        room.give(1)
        assert not room.take_now(1)
        await asyncio.sleep(0)
    assert order == ["a", "b", "c"]
    assert room.count == 1


async def test_who_gives_up_holds_nothing() -> None:
    room = OutboxQuota(1, 100, waits=True)
    await room.take(1)
    first, second = (asyncio.create_task(room.take(1)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    room.give(1)  # in the same turn: the first may have been given it already
    with pytest.raises(asyncio.CancelledError):
        await first
    await second
    assert room.count == 1


async def test_who_was_given_it_and_gave_up_gives_it_on() -> None:
    room = OutboxQuota(1, 100, waits=True)
    await room.take(1)
    first, second = (asyncio.create_task(room.take(1)) for _ in range(2))
    await asyncio.sleep(0)
    room.give(1)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await second
    assert room.count == 1


async def test_waiting_ends_with_the_client() -> None:
    room = OutboxQuota(1, 100, waits=True)
    await room.take(1)
    waiting = asyncio.create_task(room.take(1))
    await asyncio.sleep(0)
    room.fail(ClientClosed("over"))
    with pytest.raises(ClientClosed):
        await waiting


async def test_one_can_wait_until_it_is_empty() -> None:
    room = OutboxQuota(5, 100, waits=True)
    assert await room.emptied(0)
    await room.take(1)
    assert not await room.emptied(0.001)
    asyncio.get_running_loop().call_soon(room.give, 1)
    assert await room.emptied(10)


MAKER = "0123456789"


def test_ids_are_in_the_order_of_their_making() -> None:
    maker = IdGenerator(MAKER)
    made = [maker.make(now_ms) for now_ms in (5, 5, 6, 6, 3, 1_000_000, 7)]
    assert made == sorted(set(made))
    assert {len(id) for id in made} == {28}


def test_two_makers_never_make_the_same() -> None:
    assert IdGenerator("0" * 10).make(1) != IdGenerator("1" * 10).make(1)


def test_more_than_a_millisecond_can_count_borrow_the_next() -> None:
    maker = IdGenerator(MAKER)
    first = maker.make(1)
    maker._count = (1 << 24) - 1
    second, third = maker.make(1), maker.make(1)
    assert first < second < third
    assert second.startswith("000000000002")
