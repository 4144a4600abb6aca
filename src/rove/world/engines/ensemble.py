"""The engines by name, and many of them on one world: one is live, the others only compared.

A name stands for an engine with the parameters that the scenarios use; for others, create the class
itself (`object_engine`, `tile_engine`, `area_engine`). `rove.world.engines.roles` explains how an
engine takes a tick.

In an ensemble every engine takes every tick and does all of its work on a bus of its own, so
engines are compared in one history. Clients have what the live engine sent. An engine does not know
whether it is live, so its counters cannot depend on it.

When another engine becomes live, a client keeps its replicas until the new engine has confirmed
them (by a replica of its own) or refuted them (its stated delay has passed without one). So a
switch loses nothing. It costs a merge of two tables at each tick until that delay has passed.

The truth is found once a tick, and every engine is measured against it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from rove.world.engines.area_engine import AreaEngine, Design
from rove.world.engines.array_bus import ArrayBus
from rove.world.engines.bus import Bus, EngineCounters
from rove.world.engines.object_engine import ObjectEngine
from rove.world.engines.replicas import Replicas
from rove.world.engines.roles import EngineWorld
from rove.world.engines.tile_engine import TileEngine
from rove.world.engines.truth import GroundTruth, ReplicaChecker
from rove.world.map.sight import Walls, sees
from rove.world.runs.state import TickChanges, WorldError


class WorldEngine(Protocol):
    """One way to tell clients of the world."""

    name: str
    delay_ticks: int
    """How many ticks after it ought to be something may still be missing or old."""

    @property
    def replicas(self) -> Replicas:
        """What its clients know."""

    @property
    def counters(self) -> EngineCounters:
        """What it has cost so far."""

    def step(self, world: EngineWorld, changes: TickChanges) -> None:
        """Take the tick that the world has taken; at the first, everybody is new."""

    def subscriptions(self) -> int:
        """How many there are now."""


_DESIGNS: Final[dict[str, Design]] = {
    "area": "resubscribe",
    "evolving": "exact",
    "evolving-pes": "pes",
    "evolving-lees": "lees",
    "evolving-clees": "clees",
}
ENGINES: Final = ("object", "tile", *_DESIGNS)
"""The names of all engines."""
_SHORT: Final = {"pes": "evolving-pes", "lees": "evolving-lees", "clees": "evolving-clees"}


def full_name(name: str) -> str:
    """The name of an engine in full; pes, lees and clees are the evolving ones."""
    return _SHORT.get(name, name)


def make_engine(
    name: str,
    bus: Bus | None = None,
    *,
    resubscribe_s: float = 0.5,
    lag_s: float = 0.5,
    timer: Callable[[], int] | None = None,
) -> WorldEngine:
    """An engine on a bus of its own, in process unless another is given.

    `resubscribe_s` is how often area-based clients subscribe anew while they move, or ask, where
    subscriptions evolve; `lag_s` the interval of PES and the threshold of CLEES. With a timer
    (nanoseconds) the bus in process counts how long it takes to find receivers.
    """
    full = full_name(name)
    if full not in ENGINES:
        raise WorldError(f"there is no engine {name}; there are {', '.join(ENGINES)}")
    if bus is None:
        bus = ArrayBus(timer)
    if full == "object":
        return ObjectEngine(bus)
    if full == "tile":
        return TileEngine(bus)
    return AreaEngine(bus, name=full, design=_DESIGNS[full], ahead_s=resubscribe_s, lag_s=lag_s)


class SteppedWorld(EngineWorld, Protocol):
    """What an ensemble needs of a `rove.world.runs.simulation.World`."""

    engine_names: Sequence[str]
    """Is told to the world, for its commands."""
    engine_wanted: str | None
    """The engine that a command wants to be live."""

    @property
    def tick_s(self) -> float: ...

    def begin(self) -> TickChanges:
        """Tick 0."""

    def step(self) -> TickChanges:
        """The next tick."""


class Ensemble:
    """A world and its engines."""

    def __init__(
        self, world: SteppedWorld, engines: Sequence[WorldEngine], *, live: str = ""
    ) -> None:
        """The first engine is live unless another is named."""
        names = [engine.name for engine in engines]
        if not names:
            raise WorldError("there is no engine to run; name one or more")
        for name in names:
            if names.count(name) > 1:
                raise WorldError(f"engine {name} is named twice; each runs once")
        self.world = world
        self.engines = tuple(engines)
        self.truth = GroundTruth()
        self.checkers = tuple(
            ReplicaChecker(engine.delay_ticks, engine.counters) for engine in engines
        )
        self._live = self._engine(live) if live else engines[0]
        self._kept = Replicas()
        """What the engine before had told that the live one has not yet confirmed or refuted."""
        self._kept_until = 0
        self._changes: TickChanges | None = None
        world.engine_names = names

    @property
    def live(self) -> str:
        """The name of the engine that clients hear."""
        return self._live.name

    def begin(self) -> None:
        """Tick 0, for the world and all engines. The first step does it if nobody has."""
        if self._changes is None:
            self._take(self.world.begin())

    def step(self) -> TickChanges:
        """One tick on, for the world and all engines; what it has changed."""
        self.begin()
        changes = self.world.step()
        self._take(changes)
        wanted, self.world.engine_wanted = self.world.engine_wanted, None
        if wanted is not None:
            self.switch(wanted)
        return changes

    def switch(self, name: str) -> None:
        """Let another engine be live from now on."""
        engine = self._engine(name)
        if engine is not self._live:
            self._kept = self.visible()
            self._kept_until = self.truth.tick + engine.delay_ticks
            self._live = engine
            self._settle()

    def visible(self) -> Replicas:
        """A copy of what clients have: the replicas of the live engine, and what is kept."""
        if not len(self._kept):
            return self._live.replicas.copy()
        visible = self._kept.copy()
        told = self._live.replicas.all()
        visible.put(
            told.client,
            told.entity,
            told.version,
            told.x,
            told.y,
            told.vx,
            told.vy,
            told.tick,
        )
        return visible

    def in_sight(self, walls: Walls) -> Replicas:
        """Of what clients have, what no wall hides from their avatars."""
        seen, entities = self.visible(), self.world.entities
        clients, _ = seen.pairs()
        avatars = self.world.clients.avatar[clients]
        x, y = seen.positions(self.truth.tick, self.world.tick_s)
        seen.drop_where(~sees(walls, entities.x[avatars], entities.y[avatars], x, y))
        return seen

    def sample(self) -> list[dict[str, int | float | str | bool]]:
        """A row for each engine: when, which, and all its counters."""
        if self._changes is None:
            raise WorldError("nothing has happened yet; let the world begin before it is sampled")
        at, tick = self._changes.at, self._changes.tick
        return [
            {
                "at": at,
                "tick": tick,
                "engine": engine.name,
                "is_live": engine is self._live,
                **engine.counters.row(self.world.tick_s),
            }
            for engine in self.engines
        ]

    def _take(self, changes: TickChanges) -> None:
        world = self.world
        self._changes = changes
        self.truth.step(world.entities, world.clients, changes.tick)
        for engine, checker in zip(self.engines, self.checkers, strict=True):
            engine.step(world, changes)
            checker.check(self.truth, engine.replicas)
        self._settle()

    def _settle(self) -> None:
        """Forget of what is kept what is confirmed or refuted."""
        if not len(self._kept):
            return
        if self.truth.tick > self._kept_until:
            self._kept = Replicas()
        else:
            self._kept.drop(*self._live.replicas.pairs())

    def _engine(self, name: str) -> WorldEngine:
        for engine in self.engines:
            if engine.name in (name, full_name(name)):
                return engine
        running = ", ".join(engine.name for engine in self.engines)
        raise WorldError(f"engine {name} does not run here; there are {running}")
