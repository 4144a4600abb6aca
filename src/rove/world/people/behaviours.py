"""Behaviours: what inhabitants do without commands.

A behaviour is a small class. Its `decide` is called when an entity has nothing to do (it arrived,
or waited long enough) and, with `think_s`, periodically in between. Decisions are plain Python, one
entity at a time, and may look at anything; they are rare, because each is followed by a walk.
Walking is computed for all at once (`rove.world.people.movement`).

    @register
    class Loiter(Behaviour):
        name: ClassVar[str] = "loiter"
        pause_s: float = 5.0

        def decide(self, world: BehaviourWorld, entity: int) -> None:
            world.go(entity, *world.place("market"), pause_s=self.pause_s)

Fields of the class are its parameters, checked by type when a scenario's file is read. One object
serves all entities that got the behaviour together; it keeps what it remembers of each by number.
All randomness comes from `world.rng`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Final, Protocol, TypeVar

import msgspec
import numpy as np

from rove.world.map.paths import Paths
from rove.world.map.tiles import Tiles
from rove.world.people import items
from rove.world.people.commands import Point
from rove.world.people.movement import Movement
from rove.world.runs.state import (
    NOBODY,
    Entities,
    EntityKind,
    Flags,
    Floats,
    Ints,
    WorldError,
)

_BLOCKED_S: Final = 1.0
"""Who finds no way looks again after this."""
_IDLE_S: Final = 5.0
"""Who has nothing to trade looks about again after this."""
_CHASE_S: Final = 2.0
"""Who brings something looks again where the buyer is."""
_FLIGHTS: Final = 8

Metres = Annotated[float, msgspec.Meta(gt=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class BehaviourWorld(Protocol):
    """What behaviours and commands use of a `rove.world.runs.simulation.World`.

    The simulation imports this module; the protocol spares this one the import of the simulation.
    """

    engine_names: Sequence[str]
    engine_wanted: str | None

    @property
    def tick(self) -> int: ...
    @property
    def at(self) -> float: ...
    @property
    def entities(self) -> Entities: ...
    @property
    def movement(self) -> Movement: ...
    @property
    def paths(self) -> Paths: ...
    @property
    def tiles(self) -> Tiles: ...
    @property
    def rng(self) -> np.random.Generator: ...

    def inhabitants(self, pattern: str) -> Ints:
        """The players and NPCs that a name or a pattern (npc*) stands for; WorldError if none."""

    def place(self, point: Point) -> tuple[float, float]:
        """Where a point or a named place is; WorldError if nobody can stand there."""

    def free_points_near(
        self, entities: Ints, x: Floats, y: Floats, within_m: float
    ) -> tuple[Floats, Floats, Flags]:
        """For each entity a random point around a given one that it can walk to."""

    def assign(self, chosen: Ints, behaviour: Behaviour) -> None:
        """Give some entities a behaviour."""

    def go(self, entity: int, x: float, y: float, *, pause_s: float = 0.0) -> bool:
        """Walk to a point, rest there and decide again; False if there is no way."""

    def stop(self, entity: int) -> None:
        """Stand still, until the next decision."""

    def wait(self, entity: int, seconds: float) -> None:
        """Decide again after some time."""


class Behaviour(msgspec.Struct, eq=False, forbid_unknown_fields=True):
    """What somebody does when nobody says anything else."""

    name: ClassVar[str] = ""
    think_s: ClassVar[float | None] = None
    """How often to decide anew even when there is something to do; None: never."""

    def check(self, world: BehaviourWorld) -> None:
        """WorldError if this cannot be done in a world; asked before anybody gets it."""

    def decide(self, world: BehaviourWorld, entity: int) -> None:
        """Send an entity somewhere, let it wait, or neither, and then it stands."""
        raise NotImplementedError(f"the behaviour {self.name} decides nothing")

    def decide_all(self, world: BehaviourWorld, entities: Ints) -> None:
        """The same for several at once, for those who can do that faster."""
        for entity in entities.tolist():
            self.decide(world, entity)


BEHAVIOURS: Final[dict[str, type[Behaviour]]] = {}
"""All that are known, by name."""

AnyBehaviour = TypeVar("AnyBehaviour", bound=type[Behaviour])


def register(kind: AnyBehaviour) -> AnyBehaviour:
    """Make a behaviour known by its name, to commands and scenarios; a decorator."""
    if not kind.name:
        raise WorldError(f"the behaviour {kind.__name__} has no name; give the class one")
    if BEHAVIOURS.get(kind.name, kind) is not kind:
        raise WorldError(f"there is already a behaviour {kind.name}; choose another name")
    BEHAVIOURS[kind.name] = kind
    return kind


def make_behaviour(name: str, parameters: Mapping[str, object] | None = None) -> Behaviour:
    """A behaviour by its name; WorldError if there is none, or a parameter is wrong."""
    if name not in BEHAVIOURS:
        known = ", ".join(sorted(BEHAVIOURS))
        raise WorldError(f"there is no behaviour {name}; known are {known}")
    try:
        return msgspec.convert(dict(parameters or {}), BEHAVIOURS[name])
    except msgspec.ValidationError as error:
        raise WorldError(f"behaviour {name}: {error}") from None


@register
class Stand(Behaviour):
    """Do nothing."""

    name: ClassVar[str] = "stand"

    def decide(self, world: BehaviourWorld, entity: int) -> None:
        """Nothing."""


@register
class Wander(Behaviour):
    """Walk about: to some point near by, rest a little, to another."""

    name: ClassVar[str] = "wander"
    range_m: Metres = 100.0
    pause_s: Seconds = 3.0

    def decide(self, world: BehaviourWorld, entity: int) -> None:
        self.decide_all(world, np.array([entity], np.int32))

    def decide_all(self, world: BehaviourWorld, entities: Ints) -> None:
        of = world.entities
        _send(world, entities, of.x[entities], of.y[entities], self.range_m, self.pause_s)


@register
class Gather(Behaviour):
    """Go to a place and mill about there: many in little room."""

    name: ClassVar[str] = "gather"
    point: Point
    within_m: Metres = 10.0
    pause_s: Seconds = 1.0

    def check(self, world: BehaviourWorld) -> None:
        world.place(self.point)

    def decide(self, world: BehaviourWorld, entity: int) -> None:
        self.decide_all(world, np.array([entity], np.int32))

    def decide_all(self, world: BehaviourWorld, entities: Ints) -> None:
        x, y = (np.full(len(entities), each) for each in world.place(self.point))
        _send(world, entities, x, y, self.within_m, self.pause_s)


def _send(
    world: BehaviourWorld, entities: Ints, x: Floats, y: Floats, range_m: float, pause_s: float
) -> None:
    """Each to a random point around one of its own, there to rest up to some seconds."""
    to_x, to_y, found = world.free_points_near(entities, x, y, range_m)
    pauses_s = world.rng.random(len(entities)) * pause_s
    for i, entity in enumerate(entities.tolist()):
        there = (float(to_x[i]), float(to_y[i]))
        if not (found[i] and world.go(entity, *there, pause_s=float(pauses_s[i]))):
            world.wait(entity, _BLOCKED_S)


@register
class Travel(Behaviour):
    """Go far: across the map, and on at once."""

    name: ClassVar[str] = "travel"
    choices: Annotated[int, msgspec.Meta(ge=1)] = 4
    """The farthest of so many random points."""

    def decide(self, world: BehaviourWorld, entity: int) -> None:
        x, y = world.paths.free_points(world.rng, self.choices)
        dx, dy = x - world.entities.x[entity], y - world.entities.y[entity]
        farthest = int(np.argmax(dx * dx + dy * dy))
        if not world.go(entity, float(x[farthest]), float(y[farthest])):
            world.wait(entity, _BLOCKED_S)


@register
class Patrol(Behaviour):
    """From point to point, and from the last to the first."""

    name: ClassVar[str] = "patrol"
    stops: Annotated[tuple[Point, ...], msgspec.Meta(min_length=1)]
    pause_s: Seconds = 0.0
    _reached: dict[int, int] = {}

    def check(self, world: BehaviourWorld) -> None:
        for stop in self.stops:
            world.place(stop)

    def decide(self, world: BehaviourWorld, entity: int) -> None:
        stop = self._reached.get(entity, 0)
        self._reached[entity] = (stop + 1) % len(self.stops)
        if not world.go(entity, *world.place(self.stops[stop]), pause_s=self.pause_s):
            world.wait(entity, _BLOCKED_S)


@register
class Follow(Behaviour):
    """Walk after somebody, and stand when near."""

    name: ClassVar[str] = "follow"
    think_s: ClassVar[float | None] = 1.0
    whom: str
    distance_m: Metres = 2.0

    def check(self, world: BehaviourWorld) -> None:
        world.entities.number(self.whom)

    def decide(self, world: BehaviourWorld, entity: int) -> None:
        whom = world.entities.number(self.whom)
        if items.distance_m(world.entities, entity, whom) <= self.distance_m:
            world.stop(entity)
        else:
            world.go(entity, float(world.entities.x[whom]), float(world.entities.y[whom]))


@register
class Flee(Behaviour):
    """Keep away from somebody; stand when far enough."""

    name: ClassVar[str] = "flee"
    think_s: ClassVar[float | None] = 1.0
    whom: str
    distance_m: Metres = 30.0

    def check(self, world: BehaviourWorld) -> None:
        world.entities.number(self.whom)

    def decide(self, world: BehaviourWorld, entity: int) -> None:
        of, whom = world.entities, world.entities.number(self.whom)
        if items.distance_m(of, entity, whom) > self.distance_m:
            world.stop(entity)
            return
        # Of some points around, the farthest from the other: straight away may be a wall.
        here = np.full(_FLIGHTS, entity, np.int32)
        x, y, found = world.free_points_near(here, of.x[here], of.y[here], self.distance_m)
        squares = np.where(found, (x - of.x[whom]) ** 2 + (y - of.y[whom]) ** 2, -1.0)
        farthest = int(np.argmax(squares))
        if found[farthest]:
            world.go(entity, float(x[farthest]), float(y[farthest]))


@register
class Trade(Behaviour):
    """Fetch an item, bring it to somebody, give it away; and again."""

    name: ClassVar[str] = "trade"
    range_m: Metres = 200.0
    """How far a buyer may be."""
    pause_s: Seconds = 1.0
    """After taking or giving."""
    _buyers: dict[int, int] = {}

    def decide(self, world: BehaviourWorld, entity: int) -> None:
        carried = items.carried_by(world.entities, entity)
        if len(carried):
            self._sell(world, entity, int(carried[0]))
        else:
            self._fetch(world, entity)

    def _fetch(self, world: BehaviourWorld, entity: int) -> None:
        of = world.entities
        lying = np.flatnonzero((of.kind == EntityKind.ITEM) & (of.holder == NOBODY))
        if not len(lying):
            world.wait(entity, _IDLE_S)
            return
        squares = (of.x[lying] - of.x[entity]) ** 2 + (of.y[lying] - of.y[entity]) ** 2
        item = int(lying[np.argmin(squares)])
        if items.is_in_reach(of, entity, item):
            items.pick_up(of, entity, item)
            world.wait(entity, self.pause_s)
        elif not world.go(entity, float(of.x[item]), float(of.y[item])):
            world.wait(entity, _IDLE_S)

    def _sell(self, world: BehaviourWorld, entity: int, item: int) -> None:
        of = world.entities
        buyer = self._buyers.pop(entity, NOBODY)
        if buyer == NOBODY:
            buyer = self._buyer_for(world, entity)
        if buyer == NOBODY:
            world.wait(entity, _IDLE_S)
        elif items.is_in_reach(of, entity, buyer):
            world.stop(entity)
            items.give(of, entity, item, buyer)
            world.wait(entity, self.pause_s)
        elif world.go(entity, float(of.x[buyer]), float(of.y[buyer])):
            self._buyers[entity] = buyer
            world.wait(entity, _CHASE_S)
        else:
            world.wait(entity, _BLOCKED_S)

    def _buyer_for(self, world: BehaviourWorld, entity: int) -> int:
        """Anybody in range; NOBODY if there is nobody."""
        of = world.entities
        dx, dy = of.x - of.x[entity], of.y - of.y[entity]
        near = (dx * dx + dy * dy <= self.range_m**2) & (of.kind <= EntityKind.NPC)
        near[entity] = False
        possible = np.flatnonzero(near)
        return int(world.rng.choice(possible)) if len(possible) else NOBODY
