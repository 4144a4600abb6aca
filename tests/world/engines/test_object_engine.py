"""The object-based engine, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rove.world.engines.array_bus import ArrayBus
from rove.world.engines.messages import MessageKind
from rove.world.engines.object_engine import (
    CLIENTS,
    OBJECTS,
    InterestService,
    ObjectClients,
    ObjectEngine,
    ObjectMasters,
    make_tables,
)

if TYPE_CHECKING:
    from tests.world.conftest import Toy, ToyMaker


def _joined(bus: ArrayBus, table: str) -> list[tuple[int, int]]:
    topics, subscribers = bus.joined(table)
    return sorted(zip(topics.tolist(), subscribers.tolist(), strict=True))


def _go(world: Toy, entity: int, vx: float) -> None:
    world.entities.vx[entity] = vx


def test_a_client_is_shown_subscribes_hears_and_leaves(toy: ToyMaker) -> None:
    world, bus = toy([(10.0, 10.0), (21.0, 10.0)], clients=1), ArrayBus()
    engine, counters = ObjectEngine(bus), bus.counters
    engine.step(world, world.begin())
    # The service has all topics, the client its own; both entities were published to the service.
    assert counters.subscriptions == 2
    assert counters.published[MessageKind.UPDATE] == counters.delivered[MessageKind.UPDATE] == 2
    engine.step(world, world.step(lambda: _go(world, 1, -20.0)))
    assert counters.published[MessageKind.UPDATE] == 3
    engine.step(world, world.step())
    # At tick 2 it is in sight, 9 m away. The service hears that now and acts at the next tick.
    assert world.entities.x[1] == 19.0
    assert counters.published[MessageKind.REPLICA] == 0
    engine.step(world, world.step(lambda: _go(world, 1, 0.0)))
    assert counters.delivered[MessageKind.REPLICA] == 1
    assert _joined(bus, OBJECTS) == [(1, 0)]
    copy = engine.replicas.of(0)
    # It was shown as it was a tick ago, and subscribed too late for the update of this tick ...
    assert (copy.entity.tolist(), copy.x.tolist(), copy.tick.tolist()) == ([1], [19.0], [2])
    engine.step(world, world.step())
    # ... which is retained, and given to whoever joins.
    copy = engine.replicas.of(0)
    assert (copy.x.tolist(), copy.tick.tolist()) == ([17.0], [3])
    assert counters.published[MessageKind.UPDATE] == 5
    assert counters.delivered[MessageKind.UPDATE] == 5 + 1


def test_a_border_does_not_cost_a_subscription_at_each_step(toy: ToyMaker) -> None:
    world, bus = toy([(10.0, 10.0), (19.0, 10.0)], clients=1), ArrayBus()
    engine = ObjectEngine(bus)
    engine.step(world, world.begin())
    for x in (19.0, 20.5, 19.5, 20.9, 21.0, 19.0):
        engine.step(world, world.step(lambda x=x: world.entities.x.__setitem__(1, x)))  # type: ignore[misc]
    assert (bus.counters.subscribes, bus.counters.unsubscribes) == (3, 0)
    engine.step(world, world.step())
    # The service does not know what the client keeps, and shows it whenever it comes in.
    assert bus.counters.delivered[MessageKind.REPLICA] == 3
    engine.step(world, world.step(lambda: world.entities.x.__setitem__(1, 21.1)))
    assert (bus.counters.subscribes, bus.counters.unsubscribes) == (3, 1)
    assert len(engine.replicas) == 0
    assert _joined(bus, OBJECTS) == []


def test_a_client_and_what_it_carries_are_put_elsewhere_together(toy: ToyMaker) -> None:
    world = toy([(10.0, 10.0), (50.0, 40.0)], clients=1)
    engine = ObjectEngine(ArrayBus())
    engine.step(world, world.begin())

    def jump(x: float, *entities: int) -> None:
        world.entities.x[list(entities)], world.entities.y[list(entities)] = x, 40.0

    # In sight at tick 1, shown at tick 2, when both have just been put somewhere else.
    engine.step(world, world.step(lambda: jump(50.0, 0)))
    engine.step(world, world.step(lambda: jump(90.0, 0, 1)))
    for _ in range(3):
        engine.step(world, world.step())
    copy = engine.replicas.of(0)
    assert (copy.entity.tolist(), copy.x.tolist()) == ([1], [90.0])


def test_roles_know_and_do_only_what_is_theirs(toy: ToyMaker) -> None:
    """Two processes of servers, two of clients, one service: together they do the same."""
    world, bus = (
        toy([(40.0, 10.0), (45.0, 10.0), (55.0, 10.0), (60.0, 10.0)], servers=2),
        ArrayBus(),
    )
    make_tables(bus)
    servers = [ObjectMasters(bus, [0]), ObjectMasters(bus, [1])]
    some, others = ObjectClients(bus, [0, 3]), ObjectClients(bus, [1, 2])
    service = InterestService(bus)
    alone = ObjectEngine(ArrayBus())
    changes = world.begin()
    world.entities.vx[:] = [3.0, 1.0, -1.0, -3.0]
    for _ in range(60):
        alone.step(world, changes)
        for clients in (others, some):
            clients.act(world.clients)
        service.act(world.clients)
        for server in servers:
            server.act(world.entities, changes)
        deliveries = bus.turn(changes.at)
        service.receive(deliveries)
        for clients, numbers in ((some, [0, 3]), (others, [1, 2])):
            heard = deliveries.where(np.isin(deliveries.receiver, numbers))
            clients.receive(heard, world.clients, world.entities)
        changes = world.step()
    assert sorted([*some.replicas.keys.tolist(), *others.replicas.keys.tolist()]) == (
        alone.replicas.keys.tolist()
    )
    assert set(some.replicas.pairs()[0].tolist()) <= {0, 3}
    assert bus.counters.row(0.1) == alone.counters.row(0.1)
    assert _joined(bus, CLIENTS) == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_a_service_waits_for_who_it_has_not_heard_of(toy: ToyMaker) -> None:
    world, bus = toy([(10.0, 10.0), (12.0, 10.0), (14.0, 10.0)], servers=1), ArrayBus()
    make_tables(bus)
    service, clients, masters = InterestService(bus), ObjectClients(bus), ObjectMasters(bus)
    clients.act(world.clients)
    masters.act(world.entities, world.begin())
    heard = bus.turn(0.0)
    service.receive(heard.where(heard.messages.entity[heard.message] != 0))
    service.act(world.clients)
    shown = bus.turn(0.1)
    # Entity 0 is unknown, and so is what client 0 sees.
    assert shown.receiver.tolist() == [2, 1]
    assert shown.messages.entity.tolist() == [1, 2]
