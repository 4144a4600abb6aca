"""The tile-based engine, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rove.world.engines.array_bus import ArrayBus
from rove.world.engines.messages import MessageKind
from rove.world.engines.roles import SERVERS_FROM
from rove.world.engines.tile_engine import (
    OUTSIDE,
    REPLY,
    REQUEST,
    STRIDE_M,
    UPDATE,
    TileClients,
    TileEngine,
    TileMasters,
    make_tables,
    topics_of,
)
from rove.world.runs.state import NOBODY

if TYPE_CHECKING:
    from tests.world.conftest import Toy, ToyMaker


class Squares:
    """Square tiles of 10 m, ten in a row: easier to count than triangles."""

    def in_rectangles(self, x: Any, y: Any, reach_x: Any, reach_y: Any) -> tuple[Any, Any]:
        starts, found = [0], []
        for cx, cy in zip(x.tolist(), y.tolist(), strict=True):
            for row in range(10):
                for column in range(10):
                    across = abs(cx - 10 * column - 5) <= 5 + reach_x
                    if across and abs(cy - 10 * row - 5) <= 5 + reach_y:
                        found.append(10 * row + column)
            starts.append(len(found))
        return np.array(starts, np.int64), np.array(found, np.int32)

    def tile_at(self, x: Any, y: Any) -> Any:
        tiles = 10 * np.floor(y / 10) + np.floor(x / 10)
        inside = (x >= 0) & (x < 100) & (y >= 0) & (y < 100)
        return np.where(inside, tiles, NOBODY).astype(np.int32)


@pytest.fixture
def squares(toy: ToyMaker) -> ToyMaker:
    def make(places: list[tuple[float, float]], **options: Any) -> Toy:
        world = toy(places, reach=(3.0, 3.0), **options)
        world.tiles = Squares()  # type: ignore[assignment]
        world.step()
        world.tick = 0
        return world

    return make


def _topics(bus: ArrayBus, table: str, subscriber: int) -> list[int]:
    topics, subscribers = bus.joined(table)
    return sorted(topics[subscribers == subscriber].tolist())


def test_tiles_are_joined_asked_for_answered_and_left(squares: ToyMaker) -> None:
    world, bus = squares([(15.0, 15.0), (22.0, 15.0), (25.0, 15.0)], clients=1), ArrayBus()
    engine, counters = TileEngine(bus), bus.counters
    engine.step(world, world.begin())
    # It sees 11 to 19 and a bit: tile 11 alone, and whatever is in no tile.
    assert _topics(bus, UPDATE, 0) == _topics(bus, REPLY, 0) == [OUTSIDE, 12]
    assert _topics(bus, REQUEST, SERVERS_FROM) == [12, 13]
    assert counters.published[MessageKind.REQUEST] == 2
    # All three entities are new where they are, but only its own is where the client listens.
    assert counters.published[MessageKind.REPLICA] == 3
    assert counters.delivered[MessageKind.REPLICA] == 1
    assert len(engine.replicas) == 0
    engine.step(world, world.step())
    # Nobody heard the request in tile 11 ere the server came, and the answer is due: left.
    assert _topics(bus, REPLY, 0) == []
    moved = world.step(lambda: world.entities.x.__setitem__(0, 17.0))
    engine.step(world, moved)
    assert _topics(bus, UPDATE, 0) == [OUTSIDE, 12, 13]
    assert _topics(bus, REPLY, 0) == [13]
    assert counters.published[MessageKind.REQUEST] == 3
    assert counters.delivered[MessageKind.REQUEST] == 1
    before = counters.published[MessageKind.REPLICA]
    engine.step(world, world.step())
    assert counters.published[MessageKind.REPLICA] == before + 2
    assert engine.replicas.of(0).entity.tolist() == [1, 2]
    assert _topics(bus, REPLY, 0) == []
    engine.step(world, world.step(lambda: world.entities.x.__setitem__(0, 15.0)))
    assert _topics(bus, UPDATE, 0) == [OUTSIDE, 12]
    assert len(engine.replicas) == 0


def test_an_answer_is_given_once_for_all_who_ask(squares: ToyMaker) -> None:
    world, bus = squares([(5.0, 5.0), (6.0, 5.0), (25.0, 5.0)], clients=2), ArrayBus()
    engine, counters = TileEngine(bus), bus.counters
    for changes in (world.begin(), world.step(), world.step()):
        engine.step(world, changes)
    before = counters.published[MessageKind.REPLICA], counters.delivered[MessageKind.REPLICA]

    def jump() -> None:
        world.entities.x[:2] = [24.0, 26.0]

    engine.step(world, world.step(jump))
    # Both have come into the tile, as full replicas, and both had joined it before.
    came = counters.published[MessageKind.REPLICA], counters.delivered[MessageKind.REPLICA]
    assert (came[0] - before[0], came[1] - before[1]) == (2, 4)
    engine.step(world, world.step())
    # Asked twice, answered once: the three of them, to both.
    answered = counters.published[MessageKind.REPLICA], counters.delivered[MessageKind.REPLICA]
    assert (answered[0] - came[0], answered[1] - came[1]) == (3, 6)
    assert engine.replicas.of(0).entity.tolist() == [1, 2]
    assert engine.replicas.of(1).entity.tolist() == [0, 2]


def test_who_comes_into_a_tile_is_a_replica_and_left_is_dropped(squares: ToyMaker) -> None:
    world, bus = squares([(15.0, 15.0), (25.0, 15.0)], clients=1), ArrayBus()
    engine, counters = TileEngine(bus), bus.counters
    for changes in (world.begin(), world.step(), world.step()):
        engine.step(world, changes)
    before = counters.published[MessageKind.REPLICA]
    engine.step(world, world.step(lambda: world.entities.x.__setitem__(1, 19.0)))
    assert counters.published[MessageKind.REPLICA] == before + 1
    assert counters.published[MessageKind.LEFT] == 1
    assert counters.delivered[MessageKind.LEFT] == 0
    assert engine.replicas.of(0).entity.tolist() == [1]
    assert _topics(bus, REQUEST, SERVERS_FROM) == [12]
    updates = counters.delivered[MessageKind.UPDATE]
    engine.step(world, world.step(lambda: world.entities.x.__setitem__(1, 18.0)))
    assert counters.delivered[MessageKind.UPDATE] == updates + 1
    engine.step(world, world.step(lambda: world.entities.x.__setitem__(1, 25.0)))
    assert counters.delivered[MessageKind.LEFT] == 1
    assert len(engine.replicas) == 0


def test_what_is_in_no_tile_is_seen_by_all(squares: ToyMaker) -> None:
    world, bus = squares([(15.0, 15.0), (-1.0, 15.0)], clients=1), ArrayBus()
    engine = TileEngine(bus)
    for changes in (world.begin(), world.step()):
        engine.step(world, changes)
    assert engine.replicas.of(0).entity.tolist() == [1]
    assert _topics(bus, REQUEST, SERVERS_FROM) == [OUTSIDE, 12]
    assert topics_of(np.array([NOBODY, 0, 7], np.int32)).tolist() == [OUTSIDE, 1, 8]


def test_tiles_are_looked_up_again_after_a_stride(squares: ToyMaker) -> None:
    world, bus = squares([(15.0, 15.0)]), ArrayBus()
    engine = TileEngine(bus)
    engine.step(world, world.begin())
    asked = bus.counters.published[MessageKind.REQUEST]
    # It sees up to 18, and has looked up to 19: half a stride further all is known.
    engine.step(world, world.step(lambda: world.entities.x.__setitem__(0, 15.0 + STRIDE_M)))
    assert bus.counters.published[MessageKind.REQUEST] == asked
    engine.step(world, world.step(lambda: world.entities.x.__setitem__(0, 16.0 + STRIDE_M)))
    assert bus.counters.published[MessageKind.REQUEST] == asked + 1


def test_a_request_on_its_way_while_servers_hand_over_is_not_lost(squares: ToyMaker) -> None:
    world, bus = squares([(5.0, 5.0), (49.0, 15.0), (46.0, 15.0)], clients=1, servers=2), ArrayBus()
    engine = TileEngine(bus)
    for changes in (world.begin(), world.step(), world.step()):
        engine.step(world, changes)

    def come() -> None:
        world.entities.x[0], world.entities.y[0] = 45.0, 15.0

    engine.step(world, world.step(come))
    # Server 0 was asked. Before it answers, entity 2 belongs to server 1, and is still there.
    changes = world.step()
    world.entities.server[2] = 1
    engine.step(world, changes)
    assert engine.replicas.of(0).entity.tolist() == [1, 2]


def test_roles_know_and_do_only_what_is_theirs(random_toy: ToyMaker) -> None:
    """Two processes of servers and two of clients: together they do the same."""
    world, bus = random_toy(3, players=10, servers=2), ArrayBus()
    make_tables(bus)
    servers = {0: TileMasters(bus, [0]), 1: TileMasters(bus, [1])}
    halves = {range(5): TileClients(bus, range(5)), range(5, 10): TileClients(bus, range(5, 10))}
    alone = TileEngine(ArrayBus())
    changes = world.begin()
    for _ in range(100):
        alone.step(world, changes)
        for clients in halves.values():
            clients.act(world.clients, world.entities, world.tiles, changes.tick)
        for server in servers.values():
            server.act(world.entities, changes)
        deliveries = bus.turn(changes.at)
        for numbers, clients in halves.items():
            heard = deliveries.where(np.isin(deliveries.receiver, list(numbers)))
            clients.receive(heard, world.clients, changes.tick)
        for number, server in servers.items():
            server.receive(deliveries.where(deliveries.receiver == SERVERS_FROM + number))
        changes = world.step()
    keys = np.concatenate([clients.replicas.keys for clients in halves.values()])
    assert np.sort(keys).tolist() == alone.replicas.keys.tolist()
    mine, theirs = bus.counters.row(0.1), alone.counters.row(0.1)
    assert mine == theirs
