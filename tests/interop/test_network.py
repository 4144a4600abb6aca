"""Networks of broker processes that are killed under load: nothing is lost, twice or out of order.

Every broker has a subscriber of everything with a durable session, and a publisher of numbers of
its own. Brokers are killed at random moments and started again, so links break in the middle of
frames, ways change, and queues are taken up from disk.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
import urllib.request
from collections import defaultdict
from typing import Any, Final

import pytest

import rove
from tests.effort import PATIENCE_S
from tests.interop.conftest import RunningBroker, StartBroker

PAUSE_S: Final = 0.02
"""Between two publications of one publisher."""
Joins = tuple[tuple[int, ...], ...]
"""For each broker: the earlier ones that it joins."""
TRIANGLE: Final[Joins] = ((), (0,), (0, 1))
RING_WITH_CHORD: Final[Joins] = ((), (0,), (1,), (2, 0), (3, 0))


class Life:
    """Brokers that are killed, and clients that stay."""

    def __init__(self, brokers: list[RunningBroker], seed: int, kills: int) -> None:
        self.brokers = brokers
        self.random = random.Random(seed)
        self.kills = kills
        self.is_over = False
        self.published: dict[int, int] = {}
        """By broker: how many numbers its publisher has published, all acknowledged."""
        self.got: list[dict[int, list[int]]] = [defaultdict(list) for _ in brokers]
        """By subscriber: by publisher, the numbers that came."""

    async def run(self) -> None:
        clients = [await self.subscriber(number) for number in range(len(self.brokers))]
        await self.until_asked()
        async with asyncio.TaskGroup() as tasks:
            for number in range(len(self.brokers)):
                tasks.create_task(self.publish(number))
            await self.kill_at_random()
            self.is_over = True
        wanted = sum(self.published.values())
        end = time.monotonic() + PATIENCE_S
        while any(sum(map(len, got.values())) < wanted for got in self.got):
            assert time.monotonic() < end, (self.published, self.got)
            await asyncio.sleep(PAUSE_S)
        for client in clients:
            await client.close()

    def url(self, number: int) -> str:
        return f"mqtt://127.0.0.1:{self.brokers[number].port}"

    async def subscriber(self, number: int) -> Any:
        name = f"subscriber-{number}"
        client = await rove.connect(self.url(number), client_id=name, session_expiry_s=600)
        subscription = await client.subscribe("numbers/+", qos=1)

        def take(one: Any) -> None:
            self.got[number][int(one.topic.rpartition("/")[2])].append(one.value)

        subscription.listen(take)
        return client

    async def until_asked(self) -> None:
        """Wait until every broker has asked all others for publications."""
        async with asyncio.timeout(PATIENCE_S):
            for broker in self.brokers:
                while not await asyncio.to_thread(self.is_asked, broker):
                    await asyncio.sleep(PAUSE_S)

    def is_asked(self, broker: RunningBroker) -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}/mesh") as page:
            others = json.load(page)["brokers"]
        asking = [one for one in others if one["asks_for"]]
        return len(asking) == len(self.brokers) - 1

    async def publish(self, number: int) -> None:
        name = f"publisher-{number}"
        client = await rove.connect(self.url(number), client_id=name, session_expiry_s=600)
        count = 0
        while not self.is_over:
            await client.publish(f"numbers/{number}", count, qos=1)
            count += 1
            await asyncio.sleep(PAUSE_S)
        self.published[number] = count
        await client.close()

    async def kill_at_random(self) -> None:
        for _ in range(self.kills):
            await asyncio.sleep(self.random.uniform(0.1, 0.6))
            broker = self.random.choice(self.brokers)
            await asyncio.to_thread(broker.kill)
            await asyncio.sleep(self.random.uniform(0, 0.5))
            await asyncio.to_thread(broker.start)

    def check(self) -> None:
        for got in self.got:
            for number, count in self.published.items():
                assert got[number] == list(range(count))


def live(start_broker: StartBroker, joins: Joins, seed: int, kills: int) -> None:
    """One life of a network."""
    brokers: list[RunningBroker] = []
    for number, others in enumerate(joins):
        urls = json.dumps([f"127.0.0.1:{brokers[other].port}" for other in others])
        brokers.append(start_broker(ROVE_MESH__NAME=f"b{number}", ROVE_MESH__JOIN=urls))
    life = Life(brokers, seed, kills)
    asyncio.run(life.run())
    life.check()
    for broker in brokers:
        assert broker.stop() == 0, broker.log
        assert "Traceback" not in broker.log


def test_a_triangle_of_brokers_that_are_killed_loses_nothing(start_broker: StartBroker) -> None:
    live(start_broker, TRIANGLE, seed=1, kills=3)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_a_ring_with_a_chord_loses_nothing(start_broker: StartBroker, seed: int) -> None:
    live(start_broker, RING_WITH_CHORD, seed, kills=20)
