"""What one process of a live world does at a tick, whatever its bus: no clock and no socket here.

Over a real broker a world is played by several processes, each with a role: servers, the hosts of
clients, and the service of the object-based engine. All of them run the same world in lockstep
(`Lockstep`): same scenario, same seed, same commands at the same ticks, hence the same history. A
process uses only what its role may have: a server its own entities, a client its own avatar.
Everything else comes over the bus, and clients have only what was delivered (`LiveRole`).
Considered: one process that computes the world and informs the others. It would be one more message
for every movement, and all would wait for it; a tick of 500 inhabitants takes 0.3 ms.

**A tick** has two halves. `receive` processes what has arrived since the last tick and compares it
with the world as it still is; then the world advances and `act` publishes. The network has the
whole tick between the two halves. So an engine's stated delay is one tick longer here than in
process, where a turn takes no time.

**Another engine** becomes live while the world runs. All processes switch at the same tick. Clients
and the service begin at once; servers begin `MASTERS_LATER_TICKS` later, when all receivers have
subscribed, and publish everything they have. The previous engine continues until both have worked
side by side for `OVERLAP_TICKS`. Until then a client has what either has delivered.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol, cast

import numpy as np

from rove.world.engines import object_engine, tile_engine
from rove.world.engines.area_engine import AreaClients, AreaMasters, AreaRules, Design
from rove.world.engines.bus import Bus, Deliveries, EngineCounters
from rove.world.engines.ensemble import ENGINES, Ensemble, full_name, make_engine
from rove.world.engines.object_engine import InterestService, ObjectClients, ObjectMasters
from rove.world.engines.pair_kernels import pairs_of
from rove.world.engines.replicas import Replicas
from rove.world.engines.tile_engine import TileClients, TileMasters
from rove.world.engines.truth import GroundTruth, ReplicaChecker
from rove.world.map.tiles import Tiles
from rove.world.runs.scenario_run import ScenarioRun
from rove.world.runs.scenarios import Scenario, ScenarioError
from rove.world.runs.simulation import Refusal, World
from rove.world.runs.state import Clients, Entities, Ints, TickChanges, WorldError

DELAY_TICKS: Final = 1
"""After how many ticks a client of any engine has what it ought to have, if the network takes less
than a tick; as `rove.world.engines.truth` counts them."""
MASTERS_LATER_TICKS: Final = 2
OVERLAP_TICKS: Final = 10
_WAIT_TICKS: Final = 3
"""How long tile-based clients wait for replies: one tick would do if no message were ever late."""


class Role(enum.StrEnum):
    """What a process plays."""

    SERVER = "server"
    """Holds the master copies of some regions."""
    CLIENTS = "clients"
    """Hosts some clients."""
    INTEREST = "interest"
    """The interest-management service of the object-based engine."""


# -- the world in lockstep ----------------------------------------------------------------


class Lockstep:
    """The world of a scenario as every process runs it, and the commands that are to come."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario: Final = scenario
        self.world: Final[World] = ScenarioRun(scenario.sized(engines=())).world
        self.world.engine_names = [full_name(name) for name in scenario.engines.use]
        self._written = sorted(scenario.commands, key=lambda said: said.at)
        self._orders: dict[int, list[str]] = {}

    def order(self, tick: int, text: str) -> None:
        """A command for a tick to come; WorldError if it has gone by, for then histories differ."""
        if tick <= self.world.tick:
            raise WorldError(
                f"the command {text!r} is for tick {tick} and came at tick {self.world.tick}; "
                "commands have to be sent earlier, or the network is too slow"
            )
        self._orders.setdefault(tick, []).append(text)

    def begin(self) -> TickChanges:
        """Tick 0."""
        return self.world.begin()

    def step(self) -> tuple[TickChanges, list[tuple[str, str | None]]]:
        """One tick on; and of the commands that were ordered for it, why each was refused.

        None if it was not. ScenarioError if one of the scenario cannot be obeyed.
        """
        world = self.world
        while self._written and self._written[0].at <= world.at:
            said = self._written.pop(0)
            try:
                world.obey(said.do)
            except WorldError as error:
                where = f"{self.scenario.name}: at {said.at:g} s, {said.do!r}"
                raise ScenarioError(f"{where}: {error}") from None
        given = [self._give(text) for text in self._orders.pop(world.tick + 1, ())]
        changes = world.step()
        refused = {id(refusal.command): refusal for refusal in self._refusals()}
        answers = []
        for text, command, why in given:
            late = refused.get(id(command))
            answers.append((text, why if late is None else late.why))
        return changes, answers

    def _give(self, text: str) -> tuple[str, object, str | None]:
        try:
            return text, self.world.obey(text), None
        except WorldError as error:
            return text, None, str(error)

    def _refusals(self) -> list[Refusal]:
        refusals = list(self.world.refusals)
        self.world.refusals.clear()
        return refusals


class Dummies:
    """All engines of a scenario in process, beside what is live; they send nothing."""

    def __init__(self, scenario: Scenario, world: World, timer: Callable[[], int] | None) -> None:
        chosen = scenario.engines
        self._shown = _SteppedElsewhere(world)
        engines = [
            make_engine(name, resubscribe_s=chosen.resubscribe_s, lag_s=chosen.lag_s, timer=timer)
            for name in chosen.use
        ]
        self._ensemble = Ensemble(self._shown, engines)

    def take(self, changes: TickChanges) -> None:
        """Take a tick that the world has taken."""
        self._shown.changes = changes
        if changes.tick:
            self._ensemble.step()
        else:
            self._ensemble.begin()

    def rows(self) -> dict[str, dict[str, float]]:
        """The figures of each engine."""
        tick_s = self._shown.tick_s
        return {engine.name: dict(engine.counters.row(tick_s)) for engine in self._ensemble.engines}


class _SteppedElsewhere:
    """A world that is moved by somebody else, as an ensemble wants to see it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.changes: TickChanges
        self.engine_names: Sequence[str] = ()
        self.engine_wanted: str | None = None
        self.tick_s = world.tick_s

    @property
    def entities(self) -> Entities:
        return self._world.entities

    @property
    def clients(self) -> Clients:
        return self._world.clients

    @property
    def tiles(self) -> Tiles:
        return self._world.tiles

    def begin(self) -> TickChanges:
        return self.changes

    def step(self) -> TickChanges:
        return self.changes


# -- one role of one engine ---------------------------------------------------------------


class LiveBus(Bus, Protocol):
    """A bus that an engine can leave while others go on."""

    def close(self) -> None:
        """End all subscriptions."""


class EngineRole(NamedTuple):
    """One role of one engine."""

    act: Callable[[World, TickChanges], None]
    receive: Callable[[Deliveries, World], None]
    replicas: Replicas | None
    """What its clients know, if it has any."""


def make_role(
    role: Role, numbers: Sequence[int], engine: str, bus: Bus, scenario: Scenario
) -> EngineRole | None:
    """A role of an engine for some servers or clients; None if the engine has no such role."""
    full = full_name(engine)
    if full not in ENGINES:
        raise WorldError(f"there is no engine {engine}; there are {', '.join(ENGINES)}")
    if full == "object":
        return _object_part(role, numbers, bus)
    if full == "tile":
        return _tile_part(role, numbers, bus)
    chosen = scenario.engines
    named = {"area": "resubscribe", "evolving": "exact"}
    design = cast(Design, named.get(full, full.removeprefix("evolving-")))
    rules = AreaRules(design, ahead_s=chosen.resubscribe_s, lag_s=chosen.lag_s)
    return _area_part(role, numbers, bus, rules)


def _object_part(role: Role, numbers: Sequence[int], bus: Bus) -> EngineRole:
    object_engine.make_tables(bus)
    match role:
        case Role.SERVER:
            masters = ObjectMasters(bus, numbers)
            return EngineRole(
                lambda world, changes: masters.act(world.entities, changes), _deaf, None
            )
        case Role.CLIENTS:
            clients = ObjectClients(bus, numbers)
            return EngineRole(
                lambda world, changes: clients.act(world.clients),
                lambda told, world: clients.receive(told, world.clients, world.entities),
                clients.replicas,
            )
    service = InterestService(bus)
    return EngineRole(
        lambda world, changes: service.act(world.clients),
        lambda told, world: service.receive(told),
        None,
    )


def _tile_part(role: Role, numbers: Sequence[int], bus: Bus) -> EngineRole | None:
    tile_engine.make_tables(bus)
    match role:
        case Role.SERVER:
            masters = TileMasters(bus, numbers)
            return EngineRole(
                lambda world, changes: masters.act(world.entities, changes),
                lambda told, world: masters.receive(told),
                None,
            )
        case Role.CLIENTS:
            clients = TileClients(bus, numbers, wait_ticks=_WAIT_TICKS)
            return EngineRole(
                lambda world, changes: clients.act(
                    world.clients, world.entities, world.tiles, changes.tick
                ),
                lambda told, world: clients.receive(told, world.clients, world.tick),
                clients.replicas,
            )
    return None


def _area_part(role: Role, numbers: Sequence[int], bus: Bus, rules: AreaRules) -> EngineRole | None:
    rules.make_tables(bus)
    match role:
        case Role.SERVER:
            masters = AreaMasters(bus, rules, numbers)
            return EngineRole(
                lambda world, changes: masters.act(world.clients, world.entities, changes),
                lambda told, world: masters.receive(told),
                None,
            )
        case Role.CLIENTS:
            clients = AreaClients(bus, rules, numbers)
            return EngineRole(
                lambda world, changes: clients.act(
                    world.clients, world.entities, changes.tick, changes.at
                ),
                lambda told, world: clients.receive(told, world.clients, world.tick),
                clients.replicas,
            )
    return None


def _deaf(told: Deliveries, world: World) -> None:
    """For roles without subscriptions: there is nothing to receive."""


# -- a role, whichever engine is live -----------------------------------------------------


class _PlayedEngine:
    """An engine that is played: its bus, its part, and from when to when."""

    def __init__(self, engine: str, bus: LiveBus, part: EngineRole, begins_at: int) -> None:
        self.engine = engine
        self.bus = bus
        self.part = part
        self.begins_at = begins_at
        self.ends_at: int | None = None


Heard = Callable[[LiveBus, Deliveries], None]


class LiveRole:
    """A role in the live engine, and for a while also in the one that was live before."""

    def __init__(
        self,
        role: Role,
        numbers: Sequence[int],
        scenario: Scenario,
        make_bus: Callable[[int], LiveBus],
    ) -> None:
        """`make_bus` makes the bus of the n-th engine that is live; all processes count alike."""
        self._role = role
        self._numbers = numbers
        self._scenario = scenario
        self._make_bus = make_bus
        self._made = 0
        self._voices: list[_PlayedEngine] = []
        self._ended: list[tuple[str, EngineCounters]] = []
        self.engine = ""
        """The live one."""

    def begin(self, engine: str, tick: int) -> None:
        """Let an engine be live; the one before has some time to end."""
        first = not self._made
        self.engine = full_name(engine)
        bus = self._make_bus(self._made)
        self._made += 1
        for voice in self._voices:
            if voice.ends_at is None:
                voice.ends_at = tick + OVERLAP_TICKS
        later = MASTERS_LATER_TICKS if self._role is Role.SERVER and not first else 0
        part = make_role(self._role, self._numbers, self.engine, bus, self._scenario)
        if part is not None:
            self._voices.append(_PlayedEngine(self.engine, bus, part, tick + later))

    def receive(self, world: World, heard: Heard | None = None) -> None:
        """Take in what has come; `heard` is shown it, too."""
        for voice in self._voices:
            deliveries = voice.bus.turn(world.at)
            if heard is not None:
                heard(voice.bus, deliveries)
            voice.part.receive(deliveries, world)

    def act(self, world: World, changes: TickChanges) -> None:
        """Say what there is to say; begin and end engines whose time has come."""
        wanted, world.engine_wanted = world.engine_wanted, None
        if wanted is not None and full_name(wanted) != self.engine:
            self.begin(wanted, changes.tick)
        for voice in self._voices:
            if changes.tick >= voice.begins_at:
                voice.part.act(world, changes)
        for voice in [one for one in self._voices if one.ends_at == changes.tick]:
            self._end(voice)

    def end(self) -> None:
        """Leave the world."""
        for voice in list(self._voices):
            self._end(voice)

    def _end(self, voice: _PlayedEngine) -> None:
        voice.bus.close()
        self._voices.remove(voice)
        self._ended.append((voice.engine, voice.bus.counters))

    @property
    def counters(self) -> EngineCounters | None:
        """Of the live engine; None if it has no such role."""
        for voice in reversed(self._voices):
            if voice.engine == self.engine and voice.ends_at is None:
                return voice.bus.counters
        return None

    def visible(self) -> Replicas:
        """What the clients of this process have, by any of the engines that are played."""
        tables = [each.part.replicas for each in self._voices if each.part.replicas is not None]
        if len(tables) == 1:
            return tables[0]
        visible = Replicas()
        for table in tables:
            told = table.all()
            motion = (told.x, told.y, told.vx, told.vy)
            visible.put(told.client, told.entity, told.version, *motion, told.tick)
        return visible

    def rows(self, tick_s: float) -> dict[str, dict[str, float]]:
        """The figures of each engine that is or was live, as far as this process knows."""
        rows: dict[str, dict[str, float]] = {}
        played = [(voice.engine, voice.bus.counters) for voice in self._voices]
        for engine, counters in [*self._ended, *played]:
            add_row(rows.setdefault(engine, {}), counters.row(tick_s))
        return rows


def add_row(total: dict[str, float], row: dict[str, int | float] | dict[str, float]) -> None:
    """Add the figures of a process, or of a time, to a total."""
    for name, value in row.items():
        total[name] = total.get(name, 0) + value


class ClientChecker:
    """Measures what some clients have against the truth."""

    def __init__(self, clients: Sequence[int], count: int) -> None:
        """Some clients of so many."""
        self._truth = GroundTruth()
        self._is_mine = np.zeros(count, np.bool_)
        self._is_mine[np.asarray(clients, np.int64)] = True
        self._checkers: dict[int, ReplicaChecker] = {}

    def check(self, world: World, replicas: Replicas, counters: EngineCounters) -> None:
        """Count for this tick, to the account of the live engine."""
        truth = self._truth
        truth.step(world.entities, world.clients, world.tick)
        _, clients = pairs_of(truth.keys)
        mine = self._is_mine[clients]
        # Pairs of others are forgotten at once and so begin anew at every tick, unnoticed.
        truth.keys, truth.since = truth.keys[mine], truth.since[mine]
        checker = self._checkers.get(id(counters))
        if checker is None:
            checker = self._checkers[id(counters)] = ReplicaChecker(DELAY_TICKS, counters)
        checker.check(truth, replicas)


def shares(count: int, parts: int) -> list[Ints]:
    """The numbers 0 to count - 1, dealt out evenly."""
    return [np.arange(part, count, parts, dtype=np.int32) for part in range(parts)]
