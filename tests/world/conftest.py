"""A small world by hand, for engines: it does what a test says, or anything at random.

`toy` makes one. It has no paths and no behaviours: entities go straight on as they are told,
through walls too, are put elsewhere, appear, are picked up, used and dropped. Time passes as in the
real world (`rove.world.runs.simulation`), whose tests are its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pytest

from rove.world.map.maps import Map
from rove.world.map.tiles import Tiles
from rove.world.runs.state import NOBODY, Clients, Entities, EntityKind, Ints, TickChanges

WALLS = (
    ((20.0, 20.0), (35.0, 20.0), (35.0, 30.0), (20.0, 30.0)),
    ((60.0, 50.0), (64.0, 50.0), (64.0, 90.0), (60.0, 90.0)),
)


@cache
def walled_tiles(side: float, tile_m: float) -> Tiles:
    """Ground with two houses."""
    return Tiles(Map("toy", side, side, WALLS), side_max_m=tile_m)


class Toy:
    """Some entities, some of which look around."""

    def __init__(
        self,
        places: list[tuple[float, float]],
        *,
        clients: int | None = None,
        reach: tuple[float, float] = (10.0, 6.0),
        servers: int = 1,
        side: float = 100.0,
        tick_s: float = 0.1,
        tile_m: float = 20.0,
    ) -> None:
        """The first `clients` entities, or all, are avatars."""
        self.entities = Entities()
        self.tick, self.tick_s, self.side, self.servers = 0, tick_s, side, servers
        self.tiles = walled_tiles(side, tile_m)
        self.add(places)
        looking = len(places) if clients is None else clients
        self.clients = Clients(np.arange(looking, dtype=np.int32), *reach)
        self._settle()
        self._remember()

    @property
    def at(self) -> float:
        return self.tick * self.tick_s

    def add(self, places: list[tuple[float, float]], kind: EntityKind = EntityKind.NPC) -> Ints:
        """More entities, from the next tick on."""
        first = len(self.entities)
        names = [f"e{first + i}" for i in range(len(places))]
        x, y = np.array(places, np.float64).reshape(-1, 2).T
        return self.entities.add(kind, names, x.copy(), y.copy())

    def begin(self) -> TickChanges:
        everybody = np.arange(len(self.entities), dtype=np.int32)
        return TickChanges(self.tick, self.at, everybody, everybody, np.empty(0, np.int32))

    def step(self, act: Callable[[], None] = lambda: None) -> TickChanges:
        """A tick: all move, `act` changes what it likes, and what has changed is found out."""
        of = self.entities
        self.tick += 1
        of.x += of.vx * self.tick_s
        of.y += of.vy * self.tick_s
        act()
        carried = np.flatnonzero(of.holder != NOBODY)
        for column in (of.x, of.y, of.vx, of.vy):
            column[carried] = column[of.holder[carried]]
        self._settle()
        return self._changes()

    def _settle(self) -> None:
        of = self.entities
        of.tile[:] = self.tiles.tile_at(of.x, of.y)
        of.server[:] = np.clip(of.x / self.side * self.servers, 0, self.servers - 1)
        carried = np.flatnonzero(of.holder != NOBODY)
        of.server[carried] = of.server[of.holder[carried]]

    def _remember(self) -> None:
        of = self.entities
        columns = (of.x, of.y, of.vx, of.vy, of.server, of.holder, of.uses)
        self._before = [column.copy() for column in columns]

    def _changes(self) -> TickChanges:
        of, count = self.entities, len(self._before[0])
        columns: list[Any] = [of.x, of.y, of.vx, of.vy, of.server, of.holder, of.uses]
        differs = [now[:count] != then for now, then in zip(columns, self._before, strict=True)]
        changed = np.any(differs, axis=0)
        of.version[:count][changed] += 1
        changed = np.concatenate([changed, np.ones(len(of) - count, np.bool_)])
        self._remember()
        numbers = [
            np.flatnonzero(flags).astype(np.int32)
            for flags in (changed, differs[2] | differs[3], differs[4])
        ]
        return TickChanges(self.tick, self.at, *numbers)


class RandomToy(Toy):
    """A toy in which everything happens that can happen to an engine."""

    def __init__(self, seed: int, players: int = 30, items: int = 20, **options: float) -> None:
        self.rng = np.random.Generator(np.random.PCG64(seed))
        side = float(options.get("side", 100.0))
        places = self.rng.uniform(0, side, (players + items, 2))
        super().__init__([], side=side, servers=int(options.get("servers", 3)))
        self.add([tuple(place) for place in places])
        self.entities.kind[players:] = EntityKind.ITEM
        self.clients = Clients(np.arange(players, dtype=np.int32), 10.0, 6.0)
        self._settle()
        self._remember()
        self.legs = int(options.get("leg_ticks", 20))
        self.jumps = float(options.get("jumps", 0.002))

    def step(self, act: Callable[[], None] | None = None) -> TickChanges:
        return super().step(self._anything if act is None else act)

    def _anything(self) -> None:
        of, rng, side = self.entities, self.rng, self.side
        players = self.clients.avatar
        turning = players[rng.random(len(players)) < 1 / self.legs]
        resting = rng.random(len(turning)) < 0.3
        angle, speed = rng.uniform(0, 2 * np.pi, len(turning)), rng.uniform(0.5, 12, len(turning))
        of.vx[turning] = np.where(resting, 0.0, speed * np.cos(angle))
        of.vy[turning] = np.where(resting, 0.0, speed * np.sin(angle))
        out = (of.x < 0) | (of.x > side) | (of.y < 0) | (of.y > side)
        of.vx[out] = np.where(of.x[out] < side / 2, 3.0, -3.0)
        of.vy[out] = np.where(of.y[out] < side / 2, 2.0, -2.0)
        items = np.flatnonzero(of.kind == EntityKind.ITEM).astype(np.int32)
        lying = items[of.holder[items] == NOBODY]
        of.vx[lying] = of.vy[lying] = 0.0
        self._handle_items(items)
        jumping = np.flatnonzero(rng.random(len(of)) < self.jumps)
        of.x[jumping] = rng.uniform(0, side, len(jumping))
        of.y[jumping] = rng.uniform(0, side, len(jumping))
        if rng.random() < self.jumps:
            self.add([(float(rng.uniform(0, side)), float(rng.uniform(0, side)))], EntityKind.ITEM)

    def _handle_items(self, items: Ints) -> None:
        of, rng = self.entities, self.rng
        used = items[rng.random(len(items)) < 0.05]
        of.uses[used] += 1
        for item in items[rng.random(len(items)) < 0.03].tolist():
            if of.holder[item] != NOBODY:
                of.holder[item] = NOBODY
                of.vx[item] = of.vy[item] = 0.0
            else:
                near = np.hypot(of.x - of.x[item], of.y - of.y[item])[self.clients.avatar]
                of.holder[item] = self.clients.avatar[int(np.argmin(near))]


ToyMaker: TypeAlias = Callable[..., Toy]


@pytest.fixture
def toy() -> ToyMaker:
    """Makes a world in which nothing happens but what the test does."""
    return Toy


@pytest.fixture
def random_toy() -> ToyMaker:
    """Makes a world in which everything happens."""
    return RandomToy
