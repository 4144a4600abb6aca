"""The interest of clients as each engine has it in its publish/subscribe system.

These are not the ideal areas: rectangles of an area-based engine where they are evaluated now (a
design that lags has them where they were a moment ago), the tiles of a tile-based one, the topics
of an object-based one and the rectangles that its interest management uses. For pictures and the
monitor; costs a copy of the rectangles, 0.1 ms for 1,000 clients.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from rove.world.engines.area_engine import UPDATE
from rove.world.engines.bus import Rectangles
from rove.world.engines.object_engine import OBJECTS
from rove.world.engines.roles import EngineWorld
from rove.world.engines.tile_engine import OUTSIDE, topics_of
from rove.world.runs.state import Floats, Ints


class InspectableBus(Protocol):
    """What this module uses of a `rove.world.engines.array_bus.ArrayBus`."""

    def joined(self, table: str) -> tuple[Ints, Ints]:
        """(topics, subscribers) of a topic table, ascending."""

    def believed(self, table: str) -> Rectangles:
        """The rectangles of an area table as they are evaluated now."""


class ClientRectangles(NamedTuple):
    """The rectangles of clients, now."""

    client: Ints
    rectangles: Floats
    """A line for each: x, y, half the sides, and the velocity in metres a second."""


class ClientInterest(NamedTuple):
    """The interest of one client."""

    rectangles: Floats
    tiles: Ints
    objects: Ints
    """Entities to whose topics it is subscribed."""


def areas_of(engine: str, bus: InspectableBus, world: EngineWorld) -> ClientRectangles:
    """The rectangles of all clients by one engine; a tile-based one has none."""
    clients, entities = world.clients, world.entities
    if engine == "tile":
        return ClientRectangles(np.empty(0, np.int32), np.empty((0, 6)))
    if engine == "object":
        avatars = clients.avatar
        reaches = np.full(len(avatars), clients.reach_x), np.full(len(avatars), clients.reach_y)
        motion = (entities.x, entities.y, entities.vx, entities.vy)
        x, y, vx, vy = (column[avatars] for column in motion)
        numbers = np.arange(len(avatars), dtype=np.int32)
        return ClientRectangles(numbers, np.column_stack([x, y, *reaches, vx, vy]))
    found = bus.believed(UPDATE)
    columns = (found.x, found.y, found.reach_x, found.reach_y, found.vx, found.vy)
    return ClientRectangles(found.receiver, np.column_stack(columns))


def tiles_of(bus: InspectableBus) -> tuple[Ints, Ints]:
    """(tiles, clients): who is subscribed to which tile, by a tile-based engine."""
    topics, clients = bus.joined(UPDATE)
    is_tile = topics != OUTSIDE
    return topics[is_tile] - topics_of(np.zeros(1, np.int32))[0], clients[is_tile]


def listening_of(
    engine: str, bus: InspectableBus, world: EngineWorld, client: int
) -> ClientInterest:
    """The interest of one client, as one engine has it."""
    areas = areas_of(engine, bus, world)
    none = np.empty(0, np.int32)
    tiles, objects = none, none
    if engine == "tile":
        every, clients = tiles_of(bus)
        tiles = every[clients == client]
    elif engine == "object":
        topics, clients = bus.joined(OBJECTS)
        objects = topics[clients == client]
    return ClientInterest(areas.rectangles[areas.client == client], tiles, objects)
