"""What inhabitants do of their own accord.

A behaviour is a small class. It is asked for a decision when somebody has nothing to do (arrived,
or waited long enough) and, if it says so with `think_s`, every so often in between. Decisions are
Python, one by one, and may look at anything; they are rare, because who has decided walks for a
while. Walking itself is done for all in one go (`rove.world.moving`).

    @register
    class Loiter(Behaviour):
        name: ClassVar[str] = "loiter"
        pause_s: float = 5.0

        def decide(self, world: World, entity: int) -> None:
            world.go(entity, *world.place("market"), pause_s=self.pause_s)

Fields of the class are its parameters, checked by type when it is made out of a scenario's file.
One object serves all who got the behaviour at once; what it remembers of each, it keeps by number.
Randomness comes from `world.rng` and from nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

import msgspec
import numpy as np

from rove.world import items
from rove.world.commands import Point
from rove.world.state import NOBODY, Floats, Ints, Kind, WorldError

if TYPE_CHECKING:
    from rove.world.simulation import World

_BLOCKED_S: Final = 1.0
"""Who finds no way looks again after this."""


class Behaviour(msgspec.Struct, eq=False, forbid_unknown_fields=True):
    """What somebody does when nobody says anything else."""

    name: ClassVar[str] = ""
    think_s: ClassVar[float | None] = None
    """How often to decide anew even when there is something to do; None: never."""

    def decide(self, world: World, entity: int) -> None:
        """Send an entity somewhere, let it wait, or neither, and then it stands."""
        raise NotImplementedError(f"the behaviour {self.name} decides nothing")

    def decide_all(self, world: World, entities: Ints) -> None:
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

    def decide(self, world: World, entity: int) -> None:
        """Nothing."""


@register
class Wander(Behaviour):
    """Walk about: to some point near by, rest a little, to another."""

    name: ClassVar[str] = "wander"
    range_m: float = 100.0
    pause_s: float = 3.0

    def decide(self, world: World, entity: int) -> None:
        self.decide_all(world, np.array([entity], np.int32))

    def decide_all(self, world: World, entities: Ints) -> None:
        of = world.entities
        _send(world, entities, of.x[entities], of.y[entities], self.range_m, self.pause_s)


@register
class Gather(Behaviour):
    """Go to a place and mill about there: many in little room."""

    name: ClassVar[str] = "gather"
    point: Point
    within_m: float = 10.0
    pause_s: float = 1.0

    def decide(self, world: World, entity: int) -> None:
        self.decide_all(world, np.array([entity], np.int32))

    def decide_all(self, world: World, entities: Ints) -> None:
        x, y = (np.full(len(entities), each) for each in world.place(self.point))
        _send(world, entities, x, y, self.within_m, self.pause_s)


def _send(
    world: World, entities: Ints, x: Floats, y: Floats, range_m: float, pause_s: float
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
    choices: int = 4
    """The farthest of so many random points."""

    def decide(self, world: World, entity: int) -> None:
        x, y = world.paths.free_points(world.rng, self.choices)
        dx, dy = x - world.entities.x[entity], y - world.entities.y[entity]
        farthest = int(np.argmax(dx * dx + dy * dy))
        if not world.go(entity, float(x[farthest]), float(y[farthest])):
            world.wait(entity, _BLOCKED_S)


@register
class Patrol(Behaviour):
    """From point to point, and from the last to the first."""

    name: ClassVar[str] = "patrol"
    stops: tuple[Point, ...]
    pause_s: float = 0.0
    _reached: dict[int, int] = {}

    def decide(self, world: World, entity: int) -> None:
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
    distance_m: float = 2.0

    def decide(self, world: World, entity: int) -> None:
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
    distance_m: float = 30.0

    def decide(self, world: World, entity: int) -> None:
        of, whom = world.entities, world.entities.number(self.whom)
        metres = items.distance_m(of, entity, whom)
        if metres > self.distance_m:
            world.stop(entity)
            return
        # Away, on a line with the other; who stands in the same point goes anywhere.
        dx, dy = float(of.x[entity] - of.x[whom]), float(of.y[entity] - of.y[whom])
        scale = self.distance_m / metres if metres > 0 else 0.0
        away = np.array([of.x[entity] + dx * scale]), np.array([of.y[entity] + dy * scale])
        one = np.array([entity], np.int32)
        x, y, found = world.free_points_near(one, *away, self.distance_m)
        if found[0]:
            world.go(entity, float(x[0]), float(y[0]))


@register
class Trade(Behaviour):
    """Fetch an item, bring it to somebody, give it away; and again."""

    name: ClassVar[str] = "trade"
    think_s: ClassVar[float | None] = 2.0
    range_m: float = 200.0
    """How far a buyer may be."""
    _buyers: dict[int, int] = {}

    def decide(self, world: World, entity: int) -> None:
        carried = items.carried_by(world.entities, entity)
        if len(carried):
            self._sell(world, entity, int(carried[0]))
        else:
            self._fetch(world, entity)

    def _fetch(self, world: World, entity: int) -> None:
        of = world.entities
        lying = np.flatnonzero((of.kind == Kind.ITEM) & (of.holder == NOBODY))
        if not len(lying):
            world.stop(entity)
            return
        item = int(lying[_nearest(of.x[lying], of.y[lying], of.x[entity], of.y[entity])])
        if items.is_in_reach(of, entity, item):
            world.stop(entity)
            items.pick_up(of, entity, item)
        else:
            world.go(entity, float(of.x[item]), float(of.y[item]))

    def _sell(self, world: World, entity: int, item: int) -> None:
        of = world.entities
        buyer = self._buyers.get(entity, NOBODY)
        if buyer == NOBODY:
            buyer = self._buyers[entity] = self._buyer_for(world, entity)
        if buyer == NOBODY:
            world.stop(entity)
        elif items.is_in_reach(of, entity, buyer):
            world.stop(entity)
            items.give(of, entity, item, buyer)
            del self._buyers[entity]
        else:
            world.go(entity, float(of.x[buyer]), float(of.y[buyer]))

    def _buyer_for(self, world: World, entity: int) -> int:
        """Anybody in range; NOBODY if there is nobody."""
        of = world.entities
        dx, dy = of.x - of.x[entity], of.y - of.y[entity]
        near = (dx * dx + dy * dy <= self.range_m**2) & (of.kind <= Kind.NPC)
        near[entity] = False
        possible = np.flatnonzero(near)
        return int(world.rng.choice(possible)) if len(possible) else NOBODY


def _nearest(x: Floats, y: Floats, to_x: float, to_y: float) -> int:
    return int(np.argmin((x - to_x) ** 2 + (y - to_y) ** 2))
