"""Restarts with much on disk: everything is there again, and how long that takes.

The folder is filled by a broker, over MQTT: sessions with subscriptions that have texts, then
publications while everybody is away. The large version (`make soak`) has 100,000 subscriptions
and a million queued notifications, and prints the time from starting the process to the first
CONNACK; to see it:

    .venv/bin/python -m pytest -q -s -m soak tests/interop/test_restart.py
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import pytest

from rove.mqtt.decoder import PacketDecoder
from rove.mqtt.encoder import encode
from rove.mqtt.packets import (
    V5,
    Connack,
    Connect,
    Disconnect,
    Filter,
    Malformed,
    Packet,
    Properties,
    Puback,
    Publish,
    Reason,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from tests.effort import PATIENCE_S

if TYPE_CHECKING:
    from tests.interop.conftest import RunningBroker, StartBroker

WINDOW = 100
"""Of packets that are not answered."""
Kind = TypeVar("Kind", bound=Packet)


class Size(NamedTuple):
    sessions: int
    subscriptions: int
    """Of each session."""
    publications: int
    """Each is queued for every session."""

    @property
    def identifiers(self) -> range:
        return range(1, self.subscriptions + 1)


SMALL = Size(sessions=20, subscriptions=100, publications=50)
LARGE = Size(sessions=1_000, subscriptions=100, publications=1_000)


class Client:
    """The least that a test needs: packets out, packets in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._packets = PacketDecoder(version=V5, from_server=True)
        self._came: deque[Packet | Malformed] = deque()

    @classmethod
    async def connect(cls, port: int, name: str, receive_max: int = 65_535) -> Client:
        """A client that has been let in, with a session that stays."""
        client = cls(*await asyncio.open_connection("127.0.0.1", port))
        properties = Properties(session_expiry_s=3600, receive_max=receive_max)
        client.send(Connect(name, V5, False, 0, properties=properties))
        assert (await client.next(Connack)).reason == Reason.SUCCESS
        return client

    def send(self, packet: Packet) -> None:
        self._writer.write(encode(packet))

    async def next(self, kind: type[Kind]) -> Kind:
        """The next packet of that kind; a notification is acknowledged."""
        while True:
            while self._came:
                packet = self._came.popleft()
                if isinstance(packet, Publish):
                    self.send(Puback(packet.packet_id))
                if isinstance(packet, kind):
                    return packet
            data = await asyncio.wait_for(self._reader.read(262_144), PATIENCE_S)
            assert data, "the connection has ended"
            self._came += self._packets.feed(data)

    async def close(self) -> None:
        self.send(Disconnect())
        self._writer.close()
        await self._writer.wait_closed()


# -- filling -------------------------------------------------------------------------------------


def text_of(session: int, identifier: int) -> str:
    """Something that only publications for this subscription meet, and no two alike."""
    return (
        f"to = {session} AND number = {identifier} OR level > {100 + session + identifier / 1000}"
    )


def subscribe_to(session: int, identifier: int, text: str) -> Subscribe:
    properties = Properties(user=(("filter", text),), subscription_ids=(identifier,))
    return Subscribe(identifier, (Filter(f"area/{session % 50}/#", 1),), properties)


async def subscribe_all(port: int, size: Size, session: int) -> None:
    client = await Client.connect(port, f"session-{session}")
    for identifier in size.identifiers:
        client.send(subscribe_to(session, identifier, text_of(session, identifier)))
    client.send(Subscribe(60_000, (Filter("everybody", 1),)))
    for _ in range(size.subscriptions + 1):
        assert (await client.next(Suback)).reasons == (1,)
    await client.close()


async def fill(port: int, size: Size) -> None:
    """Subscriptions of every session, then publications that all of them will get."""
    for first in range(0, size.sessions, 50):
        some = range(first, min(first + 50, size.sessions))
        await asyncio.gather(*(subscribe_all(port, size, session) for session in some))
    publisher = await Client.connect(port, "publisher")
    for number in range(size.publications):
        payload = json.dumps({"n": number, "padding": "x" * 100}).encode()
        publisher.send(Publish("everybody", payload, 1, packet_id=number % 60_000 + 1))
        if number >= WINDOW:
            await publisher.next(Puback)
    for _ in range(min(size.publications, WINDOW)):
        await publisher.next(Puback)
    await publisher.close()


# -- looking -------------------------------------------------------------------------------------


async def first_connack(port: int) -> float:
    """When a client was let in; it tries without a pause."""
    while True:
        try:
            client = await Client.connect(port, "first")
        except (ConnectionError, OSError):
            await asyncio.sleep(0.005)
            continue
        moment = time.perf_counter()
        await client.close()
        return moment


async def queued(port: int, session: int, count: int) -> list[int]:
    """The numbers of what waited for a session."""
    client = await Client.connect(port, f"session-{session}")
    numbers = [json.loads((await client.next(Publish)).payload)["n"] for _ in range(count)]
    await client.close()
    return numbers


async def met(port: int, session: int, numbers: range) -> dict[int, tuple[int, ...]]:
    """The subscriptions of a session that are met by publications for each of the numbers."""
    client = await Client.connect(port, f"session-{session}")
    for number in numbers:
        payload = json.dumps({"to": session, "number": number}).encode()
        client.send(Publish(f"area/{session % 50}/x", payload, 1, packet_id=number))
    client.send(Publish("everybody", b"end of %d" % session, 1, packet_id=60_000))
    found: dict[int, tuple[int, ...]] = {}
    while (publish := await client.next(Publish)).payload != b"end of %d" % session:
        if publish.topic != "everybody":
            found[json.loads(publish.payload)["number"]] = publish.properties.subscription_ids
    await client.close()
    return found


def restarted(broker: RunningBroker) -> float:
    """Kill it, start it, wait until a client is let in; how many seconds that took."""
    broker.kill()
    begun = time.perf_counter()
    broker.spawn()
    return asyncio.run(first_connack(broker.port)) - begun


# -- the tests -----------------------------------------------------------------------------------


@pytest.mark.soak
def test_everything_is_there_after_a_restart(start_broker: StartBroker) -> None:
    broker = start_broker()
    asyncio.run(fill(broker.port, SMALL))
    restarted(broker)
    for session in range(SMALL.sessions):
        numbers = asyncio.run(queued(broker.port, session, SMALL.publications))
        assert numbers == list(range(SMALL.publications))
    found = asyncio.run(met(broker.port, 7, SMALL.identifiers))
    assert found == {number: (number,) for number in SMALL.identifiers}


async def change_some(port: int, session: int) -> None:
    """End the subscription 1, let 2 want what 1 wanted, and make 101, which wants the same."""
    client = await Client.connect(port, f"session-{session}")
    only = Properties(user=(("subscription", "1"),))
    client.send(Unsubscribe(1, (f"area/{session % 50}/#",), only))
    assert (await client.next(Unsuback)).reasons == (Reason.SUCCESS,)
    for identifier in (2, 101):
        client.send(subscribe_to(session, identifier, text_of(session, 1)))
        assert (await client.next(Suback)).reasons == (1,)
    await client.close()


@pytest.mark.soak
def test_an_index_that_is_older_than_the_subscriptions_misleads_nobody(
    start_broker: StartBroker,
) -> None:
    size = SMALL._replace(publications=0)
    broker = start_broker()
    asyncio.run(fill(broker.port, size))
    assert broker.stop() == 0  # which saves the index
    broker.start()
    asyncio.run(change_some(broker.port, 7))
    restarted(broker)
    found = asyncio.run(met(broker.port, 7, size.identifiers))
    expected = {number: (number,) for number in size.identifiers if number > 2}
    assert {number: set(ids) for number, ids in found.items() if number == 1} == {1: {2, 101}}
    assert {number: ids for number, ids in found.items() if number != 1} == expected
    others = asyncio.run(met(broker.port, 8, size.identifiers))
    assert others == {number: (number,) for number in size.identifiers}


@pytest.mark.soak
def test_a_full_broker_is_back_soon(start_broker: StartBroker) -> None:
    broker = start_broker()
    begun = time.perf_counter()
    asyncio.run(fill(broker.port, LARGE))
    filling_s = time.perf_counter() - begun
    cold_s = restarted(broker)
    assert asyncio.run(queued(broker.port, 3, 5)) == [0, 1, 2, 3, 4]
    assert broker.stop() == 0
    warm_s = restarted(broker)
    print(f"\nfilled in {filling_s:.1f} s; to the first CONNACK:")
    print(f"  after kill -9 {cold_s:.2f} s, after a stop (the index is saved) {warm_s:.2f} s")
    print("\n".join(line for line in broker.log.splitlines() if "listening" in line))
    found = asyncio.run(met(broker.port, 999, range(1, 3)))
    assert found == {1: (1,), 2: (2,)}
