"""Policies under `kill -9` and under load: what was acknowledged is decided once, by one version.

A subscriber's policy counts what it decides on in a variable and writes the count and the number of
its version into what it sends; now and then it takes so long that a worker has to do it. Meanwhile
it is replaced by later versions, and workers and the broker are killed now and then. Afterwards:

- the counts are 1, 2, 3, … without a gap, each with one message only: what was sent, what was
  remembered and what was waiting have survived together or not at all;
- versions never go back, and whatever was published after a version was acknowledged was
  decided by that one or a later one;
- everything acknowledged to the publisher was decided.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from typing import TYPE_CHECKING

import pytest

from rove.mqtt.packets import Packet, Puback, Publish
from tests.interop.test_kill import PAUSE_S, Asker, Lost, Publisher, until

if TYPE_CHECKING:
    from tests.interop.conftest import RunningBroker, StartBroker

KILLS = 2
AHEAD_MAX = 400
"""Publications that wait to be decided."""
# A machine that has other things to do is no offence of the policy.
SETTINGS = {
    "ROVE_POLICIES__SHARE": "1",
    "ROVE_POLICIES__WAITING_MAX": "100000",
    "ROVE_POLICIES__TIME_MS": "60000",
    "ROVE_POLICIES__OFFENCES_MAX": "100000",
}
TEXT = """
VERSION = {version}

def arrived(m, me):
    me.count = get("count", 0) + 1
    if m.n % 20 == 19:
        total = 0
        for i in range(15000):
            total = total + i
    m.count = me.count
    m.first = VERSION
    m.second = VERSION
    return [drop(m, "even"), message(n=m.n, count=me.count, is_second=True)]
"""


class Doctor(Asker):
    """Subscribes, sets policies and notes what comes."""

    async def set_policy(self, version: int) -> None:
        await self.publish("$rove/policy", TEXT.format(version=version))

    def take(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            self.notified.append(packet)
            self.send(Puback(packet.packet_id))
        else:
            super().take(packet)

    def values(self) -> list[dict[str, int]]:
        return [json.loads(one.payload) for one in self.notified]


class Ward:
    """One publisher, one doctor, one broker that is killed."""

    def __init__(self, broker: RunningBroker) -> None:
        self.broker = broker
        self.publisher = Publisher(broker.port, "pulse", 1)
        self.doctor = Doctor(broker.port, "doctor")
        self.granted = 0
        """The last version that was acknowledged."""
        self.granted_at: dict[int, int] = {}
        """The same when a number was published."""
        self.workers_killed = 0

    async def run(self, kills: int, chance: random.Random) -> None:
        self.publisher.start()
        self.doctor.start()
        try:
            await self.doctor.subscribe("t/#", identifier=3)
            await self.doctor.set_policy(0)
            work = [asyncio.ensure_future(one) for one in (self._publish(), self._replace())]
            await self._suffer(kills, chance)
            for one in work:
                one.cancel()
            await asyncio.wait(work)
            assert [one for one in work if not one.cancelled()] == []
            await until(lambda: not self.publisher.open)
            await until(lambda: self.publisher.acknowledged <= self._decided())
        finally:
            await self.publisher.stop()
            await self.doctor.stop()

    async def _publish(self) -> None:
        while True:
            # No more than the broker can do: on a slow machine it would never catch up.
            for _ in range(4 if self.publisher.sent - self._decided_max() < AHEAD_MAX else 0):
                self.granted_at[self.publisher.sent] = self.granted
                self.publisher.publish()
            await asyncio.sleep(PAUSE_S)

    async def _replace(self) -> None:
        version = 0
        while True:
            version += 1
            with contextlib.suppress(Lost):
                await self.doctor.set_policy(version)
                self.granted = version
            await asyncio.sleep(20 * PAUSE_S)

    async def _suffer(self, kills: int, chance: random.Random) -> None:
        """Kill when something has been done since, however long the machine takes for it."""
        for _ in range(kills):
            await self._decide(chance.randrange(50, 200))
            # One in each life: a message that two workers die of is given up.
            await until(self.broker.kill_child)
            self.workers_killed += 1
            await self._decide(chance.randrange(20, 200))
            self.broker.kill()
            self.broker.spawn()
        await self._decide(100)

    async def _decide(self, count: int) -> None:
        """Wait until so many more messages are decided, the last by a new version."""
        decided, granted = self._decided_max() + count, self.granted
        await until(lambda: self._decided_max() >= decided and self.granted > granted)

    def _decided_max(self) -> int:
        """How many are decided at most: some notifications come twice."""
        return len(self.doctor.notified) // 2

    def _decided(self) -> set[int]:
        return {value["n"] for value in self.doctor.values() if "is_second" in value}

    def check(self) -> None:
        values = self.doctor.values()
        firsts = {value["count"]: value for value in values if "first" in value}
        seconds = {value["count"]: value for value in values if "is_second" in value}
        assert sorted(firsts) == sorted(seconds) == list(range(1, len(firsts) + 1))
        for value in values:
            # What comes again is what came before.
            known = firsts if "first" in value else seconds
            assert known[value["count"]] == value
            assert firsts[value["count"]]["n"] == value["n"]
        versions = [firsts[count]["first"] for count in sorted(firsts)]
        assert versions == sorted(versions)
        assert all(value["first"] == value["second"] for value in firsts.values())
        assert all(value["first"] >= self.granted_at[value["n"]] for value in firsts.values())
        assert len(set(versions)) > 3
        assert self.workers_killed


async def live(broker: RunningBroker, kills: int, seed: int) -> None:
    ward = Ward(broker)
    await ward.run(kills, random.Random(seed))
    ward.check()


@pytest.mark.parametrize("isolation", ["process", pytest.param("none", marks=pytest.mark.soak)])
def test_policies_survive_kills_and_are_replaced_whole(
    start_broker: StartBroker, isolation: str
) -> None:
    broker = start_broker(ROVE_POLICIES__ISOLATION=isolation, **SETTINGS)
    asyncio.run(live(broker, KILLS, 7))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_long_lives(start_broker: StartBroker, seed: int) -> None:
    isolation = ("none", "process")[seed % 2]
    broker = start_broker(ROVE_POLICIES__ISOLATION=isolation, **SETTINGS)
    asyncio.run(live(broker, 25, seed))
