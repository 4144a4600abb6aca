"""The area-based engine and its designs, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import numpy as np
import pytest

from rove.world.engines.area_engine import (
    REPLY,
    REQUEST,
    UPDATE,
    AreaClients,
    AreaEngine,
    AreaMasters,
    AreaRules,
    Design,
)
from rove.world.engines.array_bus import ArrayBus
from rove.world.engines.messages import MessageKind
from rove.world.engines.roles import SERVERS_FROM
from rove.world.runs.state import WorldError

if TYPE_CHECKING:
    from tests.world.conftest import Toy, ToyMaker

DESIGNS: tuple[Design, ...] = get_args(Design)
REACH_X, REACH_Y = 10.0, 6.0
SLACK = 0.01


def _engine(design: Design) -> tuple[AreaEngine, ArrayBus]:
    bus = ArrayBus()
    return AreaEngine(bus, design=design), bus


def _steps(world: Toy, engine: AreaEngine, count: int) -> None:
    for _ in range(count):
        engine.step(world, world.step())


def _set_out(world: Toy, vx: float, vy: float = 0.0) -> None:
    world.entities.vx[0], world.entities.vy[0] = vx, vy


@pytest.mark.parametrize("design", DESIGNS)
def test_who_rests_subscribes_once_and_asks_once(design: Design, toy: ToyMaker) -> None:
    world = toy([(30.0, 50.0), (33.0, 50.0), (45.0, 50.0)], clients=1)
    engine, bus = _engine(design)
    engine.step(world, world.begin())
    assert engine.subscriptions() == 1 + 1 + 3
    placed = bus.placed(UPDATE)
    assert (placed.x.tolist(), placed.y.tolist()) == ([30.0], [50.0])
    assert (placed.reach_x.tolist(), placed.reach_y.tolist()) == (
        [REACH_X + SLACK],
        [REACH_Y + SLACK],
    )
    assert bus.placed(REPLY).x.tolist() == [30.0]
    assert bus.placed(REQUEST).receiver.tolist() == [SERVERS_FROM] * 3
    # Entities are told when they are new; the client was first to subscribe.
    assert engine.replicas.of(0).entity.tolist() == [1]
    _steps(world, engine, 30)
    assert bus.counters.published[MessageKind.AREA_REQUEST] == 1
    assert (bus.counters.subscribes, bus.counters.unsubscribes) == (5, 0)


def test_resubscribing_is_done_twice_a_second_while_it_moves(toy: ToyMaker) -> None:
    world = toy([(30.0, 50.0)])
    engine, bus = _engine("resubscribe")
    engine.step(world, world.begin())
    engine.step(world, world.step(lambda: _set_out(world, 2.0)))
    # It has not moved yet; what it sees is where it was.
    assert bus.counters.unsubscribes == 0
    _steps(world, engine, 1)
    placed = bus.placed(UPDATE)
    # For half a second ahead, one metre, and it lies.
    assert placed.x[0] == pytest.approx(30.2 + 0.5)
    assert placed.reach_x[0] == pytest.approx(REACH_X + SLACK + 0.5)
    assert placed.vx.tolist() == [0.0]
    assert bus.counters.unsubscribes == 3
    _steps(world, engine, 4)
    assert bus.counters.unsubscribes == 3
    _steps(world, engine, 1)
    assert bus.counters.unsubscribes == 6
    _steps(world, engine, 50)
    assert bus.counters.unsubscribes == 36
    engine.step(world, world.step(lambda: _set_out(world, 0.0)))
    _steps(world, engine, 30)
    # Once more, around where it rests.
    assert bus.counters.unsubscribes == 39
    assert bus.placed(UPDATE).x[0] == world.entities.x[0]
    assert bus.placed(UPDATE).reach_x[0] == pytest.approx(REACH_X + SLACK)
    # The client asked in the beginning and with each placing but the last, when all was known.
    assert bus.counters.published[MessageKind.AREA_REQUEST] == 1 + 12


@pytest.mark.parametrize("design", ["exact", "pes", "lees", "clees"])
def test_a_leg_is_one_evolving_subscription(design: Design, toy: ToyMaker) -> None:
    world = toy([(30.0, 50.0)])
    engine, bus = _engine(design)
    engine.step(world, world.begin())
    engine.step(world, world.step(lambda: _set_out(world, 2.0, -1.0)))
    placed = bus.placed(UPDATE)
    lag_s = 0.5 if design in ("pes", "clees") else 0.0
    assert placed.x[0] == pytest.approx(30.0 + 2.0 * (0.5 + lag_s) / 2)
    assert placed.reach_x[0] == pytest.approx(REACH_X + SLACK + 2.0 * (0.5 + lag_s) / 2)
    assert placed.y[0] == pytest.approx(50.0 - (0.5 + lag_s) / 2)
    assert (placed.vx[0], placed.vy[0], placed.since[0]) == (2.0, -1.0, world.at)
    assert bus.counters.unsubscribes == 3
    _steps(world, engine, 50)
    assert bus.counters.unsubscribes == 3
    # Asked in the beginning, at setting out, and every half second.
    assert bus.counters.published[MessageKind.AREA_REQUEST] == 2 + 10
    engine.step(world, world.step(lambda: _set_out(world, 0.0)))
    _steps(world, engine, 20)
    assert bus.counters.unsubscribes == 6
    assert bus.counters.published[MessageKind.AREA_REQUEST] == 2 + 10


@pytest.mark.parametrize("design", DESIGNS)
def test_only_what_is_new_is_answered(design: Design, toy: ToyMaker) -> None:
    """On the way the client comes by things at rest, one every metre."""
    things = [(30.0 + x, 50.0) for x in range(-20, 40)]
    world = toy([(30.0, 50.0), *things], clients=1)
    engine, bus = _engine(design)
    engine.step(world, world.begin())
    assert len(engine.replicas) == 21
    # When the client asked there was no server yet; all were told when they were new.
    _steps(world, engine, 2)
    assert bus.counters.published[MessageKind.REPLICA] == 0
    engine.step(world, world.step(lambda: _set_out(world, 2.0)))
    _steps(world, engine, 50)
    # Ten metres later ten more are in sight, and what is to come in half a second.
    assert world.entities.x[0] == pytest.approx(40.0)
    assert 10 <= bus.counters.published[MessageKind.REPLICA] <= 12
    seen = engine.replicas.of(0)
    assert set(range(30, 51)) <= {round(x) for x in seen.x.tolist()} <= set(range(29, 53))
    before = bus.counters.published[MessageKind.REPLICA]
    engine.step(world, world.step(lambda: _set_out(world, -2.0)))
    _steps(world, engine, 15)
    # Three metres back: what it left behind comes into view again, and is asked for again.
    assert 2 <= bus.counters.published[MessageKind.REPLICA] - before <= 5


@pytest.mark.parametrize("design", DESIGNS)
def test_what_changed_behind_is_not_taken_for_known(design: Design, toy: ToyMaker) -> None:
    world = toy([(30.0, 50.0), (21.0, 50.0)], clients=1)
    engine, _ = _engine(design)
    engine.step(world, world.begin())
    engine.step(world, world.step(lambda: _set_out(world, 8.0)))
    _steps(world, engine, 5)
    assert len(engine.replicas) == 0

    def use() -> None:
        world.entities.uses[1] += 1

    engine.step(world, world.step(use))
    engine.step(world, world.step(lambda: _set_out(world, -8.0)))
    for _ in range(20):
        _steps(world, engine, 1)
        if abs(world.entities.x[0] - world.entities.x[1]) < REACH_X - 0.8:
            assert engine.replicas.of(0).version.tolist() == [2]
    assert len(engine.replicas) == 1


@pytest.mark.parametrize("design", DESIGNS)
def test_a_mover_is_known_by_its_update_and_forgotten_when_silent(
    design: Design, toy: ToyMaker
) -> None:
    world = toy([(30.0, 50.0), (41.0, 50.0)], clients=1)
    engine, bus = _engine(design)
    engine.step(world, world.begin())
    engine.step(world, world.step(lambda: world.entities.vx.__setitem__(1, -6.0)))
    assert len(engine.replicas) == 0
    _steps(world, engine, 2)
    assert engine.replicas.of(0).entity.tolist() == [1]
    engine.step(world, world.step(lambda: world.entities.vx.__setitem__(1, 6.0)))
    _steps(world, engine, 4)
    assert len(engine.replicas) == 0
    assert bus.counters.published[MessageKind.REPLICA] == 0


@pytest.mark.parametrize("design", DESIGNS)
def test_what_is_taken_away_from_a_place_is_said_to_have_left(
    design: Design, toy: ToyMaker
) -> None:
    world = toy([(30.0, 50.0), (33.0, 50.0)], clients=1)
    engine, bus = _engine(design)
    engine.step(world, world.begin())
    engine.step(world, world.step(lambda: world.entities.x.__setitem__(1, 80.0)))
    assert bus.counters.delivered[MessageKind.LEFT] == 1
    assert len(engine.replicas) == 0
    engine.step(world, world.step(lambda: world.entities.x.__setitem__(1, 31.0)))
    assert engine.replicas.of(0).x.tolist() == [31.0]


def test_a_fast_one_asks_more_often(toy: ToyMaker) -> None:
    """No view is longer in front than a quarter of the reach: servers rely on it."""
    world = toy([(5.0, 50.0), *((x, 50.0) for x in range(20, 95, 5))], clients=1)
    engine, bus = _engine("exact")
    engine.step(world, world.begin())
    engine.step(world, world.step(lambda: _set_out(world, 20.0)))
    assert bus.placed(UPDATE).reach_x[0] == pytest.approx(REACH_X + SLACK + REACH_X / 8)
    before = bus.counters.published[MessageKind.AREA_REQUEST]
    for _ in range(35):
        _steps(world, engine, 1)
        here = world.entities.x[0]
        seen = {round(x) for x in engine.replicas.of(0).x.tolist()}
        # What came into sight two metres ago, a tick, is there.
        assert {x for x in range(20, 95, 5) if here - 8 <= x <= here + 8} <= seen
    assert bus.counters.published[MessageKind.AREA_REQUEST] - before >= 17


@pytest.mark.parametrize("design", DESIGNS)
def test_roles_know_and_do_only_what_is_theirs(design: Design, random_toy: ToyMaker) -> None:
    """Two processes of servers and two of clients: together they know the same."""
    world, bus = random_toy(3, players=10, servers=2, jumps=0.0), ArrayBus()
    rules = AreaRules(design)
    rules.make_tables(bus)
    servers = {0: AreaMasters(bus, rules, [0]), 1: AreaMasters(bus, rules, [1])}
    halves = {
        range(5): AreaClients(bus, rules, range(5)),
        range(5, 10): AreaClients(bus, rules, range(5, 10)),
    }
    alone, _ = _engine(design)
    changes = world.begin()
    for _ in range(100):
        alone.step(world, changes)
        for clients in halves.values():
            clients.act(world.clients, world.entities, changes.tick, changes.at)
        for server in servers.values():
            server.act(world.clients, world.entities, changes)
        deliveries = bus.turn(changes.at)
        for numbers, clients in halves.items():
            heard = deliveries.where(np.isin(deliveries.receiver, list(numbers)))
            clients.receive(heard, world.clients, changes.tick)
        for number, server in servers.items():
            server.receive(deliveries.where(deliveries.receiver == SERVERS_FROM + number))
        changes = world.step()
    keys = np.concatenate([clients.replicas.keys for clients in halves.values()])
    assert np.sort(keys).tolist() == alone.replicas.keys.tolist()
    assert bus.counters.row(0.1) == alone.counters.row(0.1)


def test_intervals_have_to_be_times() -> None:
    with pytest.raises(WorldError, match="ahead_s of an area engine is 0; it is more than 0 s"):
        AreaRules("exact", ahead_s=0.0)
    with pytest.raises(WorldError, match="lag_s"):
        AreaRules("pes", lag_s=float("inf"))
