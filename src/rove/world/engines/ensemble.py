"""Many engines on one world at the same time: one is live, the others are dummies.

All of them take every tick and do all of their work, each on a bus of its own, so that they can be
compared in one and the same history. What clients have is what the live engine has told them;
nobody hears a dummy. An engine does not know which of the two it is: its counters cannot depend on
it.

When another engine becomes live, a client keeps what it has until the new engine has confirmed it
(it has a replica of its own) or refuted it (its stated delay has passed, and it still has none). So
a switch loses nothing. It costs a merge of two tables at each tick until that delay has passed.

The truth is found once a tick, and every engine is measured by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rove.world.engines.registry import Engine, full_name
from rove.world.engines.replicas import Replicas
from rove.world.engines.roles import EngineWorld
from rove.world.engines.truth import GroundTruth, ReplicaChecker
from rove.world.map.sight import Walls, sees
from rove.world.runs.state import TickChanges, WorldError


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

    def __init__(self, world: SteppedWorld, engines: Sequence[Engine], *, live: str = "") -> None:
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

    def _engine(self, name: str) -> Engine:
        for engine in self.engines:
            if engine.name in (name, full_name(name)):
                return engine
        running = ", ".join(engine.name for engine in self.engines)
        raise WorldError(f"engine {name} does not run here; there are {running}")
