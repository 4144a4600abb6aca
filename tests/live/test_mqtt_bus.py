"""A bus over a real broker delivers what the bus in process does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rove.client.addresses import parse_address
from rove.live import mqtt_bus
from rove.live.mqtt_bus import (
    Arrival,
    ArrivalRoute,
    BusConnection,
    BusConnectionError,
    MqttBus,
    PacketCache,
    PacketSplitter,
    open_connections,
)
from rove.match.designs.design import Evolve
from rove.mqtt.encoder import PINGRESP, encode
from rove.mqtt.packets import Connack, Publish
from rove.serve.server import Server
from rove.serve.settings import Config, DataSettings, ListenSettings
from rove.testing.ports import free_port
from rove.world.engines.array_bus import ArrayBus
from rove.world.engines.bus import Bus, Deliveries
from rove.world.engines.messages import FIELDS, MessageKind, Messages
from rove.world.runs.state import Ints, WorldError

CLIENTS = 5
FENCE = 200_000_000


class Shore:
    """A broker whose clock the test moves, some links and a bus on them."""

    def __init__(self, server: Server, links: dict[int, BusConnection], clock: list[float]) -> None:
        self.server = server
        self.links = links
        self.clock = clock
        self.bus = MqttBus(links, "world/test/0")
        self._fences: list[Arrival] = []

    async def settle(self) -> None:
        """All that was said has been heard by the broker, and all that it sent has arrived."""
        for link in self.links.values():
            # Whoever hears its own fence has all that was published before, by anybody.
            link.subscribe(FENCE, ArrivalRoute(self._fences, f"fence/{link.number}", 0))
        await asyncio.gather(*(link.settle() for link in self.links.values()))
        publisher = next(iter(self.links.values()))
        for link in self.links.values():
            publisher.say(encode(Publish(f"fence/{link.number}", b"fence")))
        publisher.flush()
        async with asyncio.timeout(20):
            while len(self._fences) < len(self.links):
                await asyncio.sleep(0.001)
        self._fences.clear()


@asynccontextmanager
async def shore(folder: Path, numbers: range | list[int] = range(CLIENTS)) -> AsyncIterator[Shore]:
    clock = [1_000.0]
    listen = ListenSettings(mqtt_port=0, http_port="off")
    server = Server(
        Config(listen=listen, data=DataSettings(str(folder / "data"), "none")), now=lambda: clock[0]
    )
    await server.start()
    links = {
        number: BusConnection(number, f"link-{number}", lambda: clock[0]) for number in numbers
    }
    try:
        await open_connections(
            links.values(), parse_address(f"mqtt://127.0.0.1:{server.ports['mqtt']}")
        )
        yield Shore(server, links, clock)
    finally:
        for link in links.values():
            link.close()
        await server.stop()


def play(folder: Path, scene: Callable[[Shore], Coroutine[Any, Any, None]], **given: Any) -> None:
    async def all_of_it() -> None:
        async with shore(folder, **given) as here:
            await scene(here)

    asyncio.run(all_of_it())


def ints(*values: int) -> Ints:
    return np.array(values, np.int32)


def told(deliveries: Deliveries) -> set[tuple[Any, ...]]:
    """Who was told what by which subscription."""
    found = set()
    for message, receiver, subscription in zip(
        deliveries.message.tolist(),
        deliveries.receiver.tolist(),
        deliveries.subscription.tolist(),
        strict=True,
    ):
        what = MessageKind(int(deliveries.messages.what[message]))
        values = tuple(float(getattr(deliveries.messages, name)[message]) for name in FIELDS[what])
        found.add((receiver, subscription, what, values))
    return found


def updates(rng: np.random.Generator, first: int, count: int) -> Messages:
    """Updates with numbers of their own, at places that are whole half metres."""
    return Messages(
        MessageKind.UPDATE,
        count,
        entity=np.arange(first, first + count, dtype=np.int32),
        version=1,
        x=rng.integers(0, 40, count) / 2,
        y=rng.integers(0, 40, count) / 2,
        sender=rng.integers(0, CLIENTS, count).astype(np.int32),
        tick=3,
    )


def test_topics_deliver_as_in_process(tmp_path: Path) -> None:
    async def scene(here: Shore) -> None:
        rng = np.random.default_rng(5)
        buses: list[Bus] = [ArrayBus(), here.bus]
        for bus in buses:
            bus.topics("plain", "world/plain/{}")
            bus.topics("kept", "world/kept/{}/last", retained=True)
            bus.join_all("plain", 4)
        for turn in range(12):
            for table in ("plain", "kept"):
                who, what = rng.integers(0, CLIENTS, (2, 9)).astype(np.int32)
                for bus in buses:
                    bus.join(table, who, what)
                await here.settle()
                gone, left = rng.integers(0, CLIENTS, (2, 4)).astype(np.int32)
                for bus in buses:
                    bus.leave(table, gone, left)
                await here.settle()
                messages = updates(rng, turn * 100, 8)
                topics = rng.permutation(8).astype(np.int32)
                for bus in buses:
                    bus.publish(table, topics, messages)
                await here.settle()
            mine, theirs = (bus.turn(float(turn)) for bus in buses)
            assert told(mine) == told(theirs)
            assert np.all(np.diff(theirs.message) >= 0)
        assert buses[0].counters.published.tolist() == here.bus.counters.published.tolist()
        assert buses[0].counters.delivered.tolist() == here.bus.counters.delivered.tolist()
        for name in ("subscriptions", "subscribes", "unsubscribes"):
            assert getattr(buses[0].counters, name) == getattr(here.bus.counters, name)
        for column, other in zip(buses[0].joined("kept"), here.bus.joined("kept"), strict=True):
            assert column.tolist() == other.tolist()

    play(tmp_path, scene)


@pytest.mark.parametrize("evolve", [Evolve(), Evolve("lees"), Evolve("pes", 0.5)])
def test_rectangles_deliver_as_in_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evolve: Evolve
) -> None:
    monkeypatch.setattr(mqtt_bus, "LATE_S", 0.0)

    async def scene(here: Shore) -> None:
        rng = np.random.default_rng(6)
        buses: list[Bus] = [ArrayBus(), here.bus]
        for bus in buses:
            bus.areas("area", "world/area", evolve)
            bus.areas("many", "world/many", evolve)
        for turn in range(10):
            at = 0.25 * turn
            here.clock[0] = 1_000.0 + at
            numbers = rng.permutation(CLIENTS)[:3].astype(np.int32)
            x, y = rng.integers(0, 20, (2, 3)).astype(float)
            vx, vy = rng.choice([0.0, 0.5, -1.0], (2, 3))
            many = rng.permutation(12)[:3].astype(np.int32)
            gone = rng.permutation(12)[:2].astype(np.int32)
            for bus in buses:
                bus.place("area", numbers, x, y, 3.0, 2.0, vx=vx, vy=vy, since=at)
                receivers = many % np.int32(CLIENTS)
                bus.place("many", many, y, x, 4.0, 4.0, since=at, receivers=receivers)
                bus.lift("many", gone)
            await here.settle()
            messages = updates(rng, turn * 100, 30)
            for bus in buses:
                bus.publish_at("area", messages, at)
                bus.publish_at("many", messages, at)
            await here.settle()
            mine, theirs = (bus.turn(at) for bus in buses)
            assert told(mine) == told(theirs)
        assert buses[0].counters.delivered.tolist() == here.bus.counters.delivered.tolist()
        assert buses[0].counters.subscribes == here.bus.counters.subscribes
        for column, other in zip(buses[0].placed("many"), here.bus.placed("many"), strict=True):
            assert np.asarray(column).tolist() == np.asarray(other).tolist()

    play(tmp_path, scene)


def test_what_moves_is_larger_by_what_it_goes_until_it_is_accepted(tmp_path: Path) -> None:
    async def scene(here: Shore) -> None:
        here.bus.areas("area", "world/area")
        here.bus.place("area", ints(0), np.zeros(1), np.zeros(1), 1.0, 1.0, vx=1.0)
        await here.settle()
        near = Messages(MessageKind.UPDATE, 2, entity=ints(1, 2), x=np.array([1.125, 1.05]))
        here.bus.publish_at("area", near, 0.0)
        await here.settle()
        heard = here.bus.turn(0.0)
        assert heard.messages.entity[heard.message].tolist() == [2]

    play(tmp_path, scene)


def test_a_closed_bus_hears_nothing_and_leaves_nothing_behind(tmp_path: Path) -> None:
    async def scene(here: Shore) -> None:
        here.bus.topics("kept", "world/kept/{}", retained=True)
        here.bus.areas("area", "world/area")
        here.bus.join("kept", ints(1, 2), ints(7, 7))
        here.bus.join_all("kept", 3)
        here.bus.place("area", ints(0), np.zeros(1), np.zeros(1), 1.0, 1.0)
        await here.settle()
        here.bus.publish("kept", ints(7), Messages(MessageKind.UPDATE, 1, version=1))
        await here.settle()
        assert len(here.bus.turn(0.0)) == 3
        here.bus.close()
        await here.settle()
        here.bus.turn(1.0)
        other = MqttBus(here.links, "world/test/0", 1)
        other.topics("kept", "world/kept/{}", retained=True)
        other.areas("area", "world/area")
        other.join("kept", ints(2), ints(7))
        other.publish_at("area", Messages(MessageKind.UPDATE, 1), 1.0)
        await here.settle()
        assert len(other.turn(1.0)) == 0
        assert len(here.bus.turn(2.0)) == 0

    play(tmp_path, scene)


def test_arrivals_have_their_moment_and_retained_ones_are_none(tmp_path: Path) -> None:
    async def scene(here: Shore) -> None:
        bus = here.bus
        bus.topics("kept", "world/kept/{}", retained=True)
        bus.join("kept", ints(1), ints(0))
        await here.settle()
        here.clock[0] = 1_007.0
        bus.publish("kept", ints(0), Messages(MessageKind.UPDATE, 1, version=1))
        await here.settle()
        bus.join("kept", ints(2), ints(0))
        await here.settle()
        assert sorted(bus.turn(0.0).receiver.tolist()) == [1, 2]
        assert bus.arrivals.receiver.tolist() == [1]
        assert bus.arrivals.at_s.tolist() == [1_007.0]

    play(tmp_path, scene)


def test_who_is_not_in_this_process_cannot_subscribe(tmp_path: Path) -> None:
    async def scene(here: Shore) -> None:
        here.bus.topics("plain", "world/plain/{}")
        with pytest.raises(WorldError, match="subscriber 99 has no connection"):
            here.bus.join("plain", ints(99), ints(1))
        with pytest.raises(WorldError, match="no area table plain"):
            here.bus.lift("plain", ints(1))
        with pytest.raises(WorldError, match="already a table plain"):
            here.bus.topics("plain", "world/other/{}")

    play(tmp_path, scene)


def test_nobody_listens_where_there_is_no_broker() -> None:
    async def scene() -> None:
        await BusConnection(0, "lonely", lambda: 0.0).open(
            parse_address(f"mqtt://127.0.0.1:{free_port()}")
        )

    with pytest.raises(BusConnectionError, match="lonely cannot connect to mqtt://127"):
        asyncio.run(scene())


def test_a_broker_that_goes_is_told(tmp_path: Path) -> None:
    async def scene(here: Shore) -> None:
        losses: list[BusConnectionError] = []
        here.links[0].lost = losses.append
        await here.server.stop()
        async with asyncio.timeout(20):
            while not losses:
                await asyncio.sleep(0.001)
        assert "link-0" in str(losses[0])

    play(tmp_path, scene, numbers=[0])


def test_a_text_that_is_refused_is_told(tmp_path: Path) -> None:
    async def scene(here: Shore) -> None:
        here.links[0].subscribe(7, ArrivalRoute([], "world/area", 0), text="x >")
        with pytest.raises(BusConnectionError, match="link-0 may not subscribe: column"):
            await here.links[0].settle()

    play(tmp_path, scene, numbers=[0])


@pytest.mark.parametrize("seed", range(4))
def test_packets_are_cut_wherever_the_bytes_were(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.choice([0, 1, 100, 113, 114, 115, 16_000, 16_400, 70_000], 12)
    packets = [encode(Publish("a/b", bytes(int(size)))) for size in sizes]
    stream = b"".join([*packets, PINGRESP])
    cutter, found, at = PacketSplitter(), [], 0
    while at < len(stream):
        size = int(rng.choice([1, 2, 3, 50, 5_000, 100_000]))
        found += cutter.cut(stream[at : at + size])
        at += size
    assert found == [*packets, PINGRESP]


def test_a_length_that_cannot_be_ends_the_connection() -> None:
    class Nowhere(asyncio.Transport):
        def write(self, data: Any) -> None:
            """What is written reaches nobody."""

    async def scene() -> list[BusConnectionError]:
        link = BusConnection(0, "odd", lambda: 0.0)
        losses: list[BusConnectionError] = []
        link.lost = losses.append
        link.connection_made(Nowhere())
        link.data_received(encode(Connack()))
        link.data_received(b"\x30\xff\xff\xff\xff\x01")
        return losses

    (lost,) = asyncio.run(scene())
    assert "odd was sent away" in str(lost)


def test_what_is_known_is_not_read_again_and_not_kept_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mqtt_bus, "_KNOWN_MAX", 2)
    known = PacketCache()
    for number in range(3):
        known.put(bytes([number]), Publish("a", bytes([number])))
    assert known.get(b"\0") is None
    latest = known.get(b"\2")
    assert latest is not None
    assert latest.payload == b"\2"
