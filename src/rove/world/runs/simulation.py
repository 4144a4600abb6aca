"""The world: a map, its inhabitants, and time that passes tick by tick.

A tick has an order. First all entities move by their velocities; then commands are executed, in the
order of arrival; then entities with nothing to do decide. Commands and decisions change velocities,
which hold from this tick to the next. So the place of an entity follows from an earlier place and
its velocity.

One seed gives one history, bit for bit: all randomness comes from one generator, entities decide in
the order of their numbers, and nothing depends on a clock, a hash or angles (sines differ between C
libraries). Equal values of `hash` mean equal histories.

Measured, CPU time of a step with all its decisions, in a generated town of 9 km² (16,000 tiles,
1,650 houses, four servers): 4 ms with 10,000 wanderers, 8 ms with 10,000 traders, 0.6 ms with 1,000
wanderers on 1 km². Of the 4, the hash takes 1, finding tiles 1, twenty decisions 1.
"""

from __future__ import annotations

import fnmatch
import hashlib
import math
import re
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from rove.world.engines.regions import Regions
from rove.world.map.maps import Map
from rove.world.map.paths import Paths
from rove.world.map.tiles import Tiles
from rove.world.people import execution, items
from rove.world.people.behaviours import BEHAVIOURS, Behaviour, make_behaviour
from rove.world.people.commands import Point, WorldCommand, parse_command
from rove.world.people.movement import Movement
from rove.world.runs.state import (
    ChangeDetector,
    Clients,
    Entities,
    EntityKind,
    Flags,
    Floats,
    Ints,
    Longs,
    TickChanges,
    WorldError,
)

SPEED: Final = 1.4
"""Metres a second: walking."""
_NEVER: Final = np.iinfo(np.int64).max
_BEGIN_PER_TICK: Final = 100
"""Many who get a behaviour at once do not all look for a way in the same tick."""
_TRIES: Final = 8
_REFUSALS_KEPT: Final = 1000
_HASHED: Final = ("x", "y", "vx", "vy", "speed", "server", "holder", "uses", "version")


class Refusal(NamedTuple):
    """A command that turned out to be impossible when it was its turn."""

    tick: int
    command: WorldCommand
    why: str


class World:
    """Everything that is, and the passing of time."""

    def __init__(self, map_: Map, *, seed: int, tick_s: float = 0.1, servers: int = 1) -> None:
        if not 0 < tick_s < math.inf:
            raise WorldError(f"a tick of {tick_s:g} s cannot be; it is more than 0")
        self.map: Final = map_
        self.seed: Final = seed
        self.tick_s: Final = tick_s
        self.tick = 0
        self.rng: Final = np.random.Generator(np.random.PCG64(seed))
        self.entities: Final = Entities()
        self.tiles: Final = Tiles(map_)
        self.paths: Final = Paths(self.tiles)
        self.regions: Final = Regions(map_, servers)
        self.movement: Final = Movement(self.entities, tick_s)
        self.movers: Final[list[Callable[[], None]]] = []
        """Called at each tick when walkers have moved, for those who move otherwise: traffic."""
        self.clients = Clients(np.empty(0, np.int32), 0.0, 0.0)
        self.engine_names: Sequence[str] = ()
        """Set by who runs engines on this world ..."""
        self.engine_wanted: str | None = None
        """... and this is set when a command wants another one to be live."""
        self.refusals: Final[deque[Refusal]] = deque(maxlen=_REFUSALS_KEPT)
        self._orders: list[WorldCommand] = []
        self._memory: ChangeDetector | None = None
        self._trace = hashlib.blake2b(digest_size=16)
        self._minds: list[Behaviour] = [make_behaviour("stand")]
        self._mind: Ints = np.empty(0, np.int32)
        self._wake_tick: Longs = np.empty(0, np.int64)
        """When each decides; who walks is woken by arriving."""
        self._pause_ticks: Longs = np.empty(0, np.int64)
        """How long after arriving."""

    @property
    def at(self) -> float:
        """Seconds since the world began."""
        return self.tick * self.tick_s

    # -- beginning ------------------------------------------------------------------------

    def populate(
        self,
        players: int = 0,
        npcs: int = 0,
        items: int = 0,
        *,
        reach: tuple[float, float] = (30.0, 20.0),
        speed: float = SPEED,
        behaviour: str | Behaviour = "wander",
        npcs_look: bool = True,
    ) -> None:
        """Put player1, npc1, apple1, … at random points; players and NPCs are clients.

        Unless `npcs_look`, only players are. `reach` is half the sides of what a client sees.
        """
        self._refuse_if_begun("inhabitants")
        self.movement.check_speed(speed)
        if isinstance(behaviour, str):
            behaviour = make_behaviour(behaviour)
        if min(players, npcs, items) < 0:
            raise WorldError(f"{players} players, {npcs} NPCs and {items} items cannot be")
        if not all(0 < each < math.inf for each in reach):
            raise WorldError(
                f"a reach of {reach[0]:g}, {reach[1]:g} cannot be; give metres above 0"
            )
        avatars = [self.clients.avatar, self._add(EntityKind.PLAYER, "player", players, speed)]
        people = self._add(EntityKind.NPC, "npc", npcs, speed)
        self._add(EntityKind.ITEM, "apple", items, 0.0)
        self.clients = Clients(np.concatenate([*avatars, people[: npcs * npcs_look]]), *reach)
        self.assign(np.concatenate([avatars[1], people]), behaviour)

    def _add(self, kind: EntityKind, stem: str, count: int, speed: float) -> Ints:
        first = int(np.count_nonzero(self.entities.kind == kind)) + 1
        names = [f"{stem}{first + i}" for i in range(count)]
        x, y = self.paths.free_points(self.rng, count)
        return self.entities.add(kind, names, x, y, speed=speed)

    def _refuse_if_begun(self, what: str) -> None:
        if self._memory is not None:
            raise WorldError(f"the world has begun; {what} come before")

    def begin(self) -> TickChanges:
        """Tick 0: everybody is new. May be called until the first step."""
        if self.tick:
            raise WorldError(f"the world began {self.tick} ticks ago; it begins once")
        everybody = np.arange(len(self.entities), dtype=np.int32)
        if self._memory is None:
            self._fit()
            self.regions.begin(self.entities)
            self._find_tiles(everybody)
            self._memory = ChangeDetector(self.entities)
            self._trace.update("\0".join([*self.entities.names, ""]).encode())
            self._trace.update(self.entities.kind.tobytes())
            self._write_trace()
        return TickChanges(0, 0.0, everybody, everybody.copy(), np.empty(0, np.int32))

    def _fit(self) -> None:
        """Lines for entities that are new: they stand."""
        missing = len(self.entities) - len(self._mind)
        if missing:
            self._mind = np.concatenate([self._mind, np.zeros(missing, np.int32)])
            self._wake_tick = np.concatenate([self._wake_tick, np.full(missing, _NEVER)])
            self._pause_ticks = np.concatenate([self._pause_ticks, np.zeros(missing, np.int64)])

    # -- time -----------------------------------------------------------------------------

    def step(self) -> TickChanges:
        """One tick on; what it has changed."""
        if self._memory is None:
            self.begin()
        assert self._memory is not None
        self.tick += 1
        arrived = self.movement.advance()
        self._wake_tick[arrived] = self.tick + self._pause_ticks[arrived]
        for move in self.movers:
            move()
        items.follow_holders(self.entities)
        self._obey_orders()
        self._let_decide()
        items.take_velocities(self.entities, self.tick_s)
        handed_over = self.regions.hand_over(self.entities, self.tick)
        changed, legs, moved = self._memory.compare(self.entities)
        self._find_tiles(moved)
        self.entities.version[changed] += 1
        self._write_trace()
        return TickChanges(self.tick, self.at, changed, legs, handed_over)

    def hash(self) -> str:
        """A digest of all that has been, from the beginning to this tick."""
        return self._trace.hexdigest()

    def _write_trace(self) -> None:
        for column in _HASHED:
            self._trace.update(getattr(self.entities, column).data)

    def _find_tiles(self, moved: Ints) -> None:
        tiles = self.tiles.tile_at(self.entities.x[moved], self.entities.y[moved])
        # Whoever is nowhere (a vehicle on its way under a house) counts where it was.
        self.entities.tile[moved] = np.where(tiles >= 0, tiles, self.entities.tile[moved])

    def _obey_orders(self) -> None:
        orders, self._orders = self._orders, []
        for command in orders:
            try:
                execution.apply(self, command)
            except WorldError as error:
                self.refusals.append(Refusal(self.tick, command, str(error)))

    def _let_decide(self) -> None:
        due = np.flatnonzero(self._wake_tick <= self.tick).astype(np.int32)
        self._wake_tick[due] = _NEVER
        minds = self._mind[due]
        for mind in np.unique(minds).tolist():
            behaviour, thinking = self._minds[mind], due[minds == mind]
            behaviour.decide_all(self, thinking)
            if behaviour.think_s is not None:
                again = self.tick + self._ticks(behaviour.think_s)
                self._wake_tick[thinking] = np.minimum(self._wake_tick[thinking], again)

    def _ticks(self, seconds: float) -> int:
        """A time as a number of ticks, at least one."""
        return max(1, round(seconds / self.tick_s))

    # -- commands ---------------------------------------------------------------------------

    def obey(self, command: WorldCommand | str) -> WorldCommand:
        """Take a command, to be obeyed in the next tick; WorldError if it cannot be."""
        if isinstance(command, str):
            command = parse_command(command)
        execution.check(self, command)
        self._orders.append(command)
        return command

    def inhabitants(self, pattern: str) -> Ints:
        """The players and NPCs that a name or a pattern (npc*) stands for; WorldError if none."""
        names, kinds = self.entities.names, self.entities.kind
        if "*" not in pattern and "?" not in pattern:
            number = self.entities.number(pattern)
            if kinds[number] > EntityKind.NPC:
                raise WorldError(f"{pattern} is no player and no NPC, but {_kind(kinds[number])}")
            return np.array([number], np.int32)
        fits = re.compile(fnmatch.translate(pattern)).match
        people = np.flatnonzero(kinds <= EntityKind.NPC).tolist()
        found = [number for number in people if fits(names[number])]
        if not found:
            raise WorldError(f"no player and no NPC is called {pattern}; there are {len(people)}")
        return np.array(found, np.int32)

    def place(self, point: Point) -> tuple[float, float]:
        """Where a point or a named place is; WorldError if nobody can stand there."""
        if isinstance(point, str):
            if point not in self.map.places:
                there_are = ", ".join(sorted(self.map.places)) or "none; give two numbers"
                raise WorldError(
                    f"there is no place {point} on the map {self.map.name}; there are {there_are}"
                )
            return self.map.places[point]
        x, y = point
        if self._tile(x, y) < 0:
            size = f"{self.map.width:g} x {self.map.height:g} m"
            is_on = 0 <= x <= self.map.width and 0 <= y <= self.map.height
            where = "inside a wall" if is_on else f"not on the map, which is {size}"
            raise WorldError(f"the point {x:g} {y:g} is {where}")
        return x, y

    def words(self, slot: str) -> Sequence[str]:
        """What can stand for a word in capitals of a command's form; for completion."""
        match slot:
            case "WHO" | "CROWD":
                return self._names(self.entities.kind <= EntityKind.NPC)
            case "ITEM":
                return self._names(self.entities.kind == EntityKind.ITEM)
            case "POINT" | "POINTS":
                return tuple(self.map.places)
            case "BEHAVIOUR":
                return tuple(BEHAVIOURS)
            case "ENGINE":
                return self.engine_names
        return self.entities.names

    def _names(self, chosen: Flags) -> list[str]:
        return [self.entities.names[number] for number in np.flatnonzero(chosen).tolist()]

    # -- what behaviours do -------------------------------------------------------------------

    def assign(self, chosen: Ints, behaviour: Behaviour) -> None:
        """Give some a behaviour; they stop, and decide from now on as it says."""
        behaviour.check(self)
        self._fit()
        self.movement.stop(chosen)
        self._mind[chosen] = self._slot_for(behaviour)
        self._pause_ticks[chosen] = 0
        self._wake_tick[chosen] = self.tick + np.arange(len(chosen)) // _BEGIN_PER_TICK

    def _slot_for(self, behaviour: Behaviour) -> int:
        """Where a behaviour is kept: where it was, or where one is that nobody has any more."""
        for slot, known in enumerate(self._minds):
            if known is behaviour:
                return slot
        used = np.bincount(self._mind, minlength=len(self._minds))
        for slot in np.flatnonzero(used[1:] == 0).tolist():
            self._minds[slot + 1] = behaviour
            return slot + 1
        self._minds.append(behaviour)
        return len(self._minds) - 1

    def behaviour_of(self, entity: int) -> Behaviour:
        """What somebody does at present."""
        return self._minds[int(self._mind[entity])]

    def go(self, entity: int, x: float, y: float, *, pause_s: float = 0.0) -> bool:
        """Walk to a point, rest there and decide again; False if there is no way."""
        of = self.entities
        way = self.paths.path(float(of.x[entity]), float(of.y[entity]), x, y)
        if way is None:
            return False
        self._pause_ticks[entity] = round(pause_s / self.tick_s)
        if not self.movement.set_path(entity, way):
            self.wait(entity, pause_s)
        return True

    def stop(self, entity: int) -> None:
        """Stand still, until the next decision."""
        self.movement.stop(entity)

    def wait(self, entity: int, seconds: float) -> None:
        """Decide again after some time, at the earliest in the next tick."""
        self._wake_tick[entity] = self.tick + self._ticks(seconds)

    def free_points_near(
        self, entities: Ints, x: Floats, y: Floats, within_m: float
    ) -> tuple[Floats, Floats, Flags]:
        """For each entity a random point around a given one that it can walk to.

        The last result says for whom none was found, in a few tries.
        """
        of = self.entities
        home = self.tiles.part[self.tiles.tile_at(of.x[entities], of.y[entities])]
        to_x, to_y = np.empty(len(x)), np.empty(len(x))
        missing = np.arange(len(x))
        for _ in range(_TRIES):
            draws = self.rng.uniform(-1.0, 1.0, (len(missing), 2))
            to_x[missing] = x[missing] + draws[:, 0] * within_m
            to_y[missing] = y[missing] + draws[:, 1] * within_m
            tiles = self.tiles.tile_at(to_x[missing], to_y[missing])
            # Without tile, the last one is looked at, and the answer is not used.
            good = (tiles >= 0) & (self.tiles.part[tiles] == home[missing])
            good &= draws[:, 0] ** 2 + draws[:, 1] ** 2 <= 1.0
            missing = missing[~good]
            if not len(missing):
                break
        found = np.ones(len(x), np.bool_)
        found[missing] = False
        return to_x, to_y, found

    def _tile(self, x: float, y: float) -> int:
        return int(self.tiles.tile_at(np.array([x]), np.array([y]))[0])


def _kind(kind: int) -> str:
    return f"of kind {EntityKind(kind).name}"
