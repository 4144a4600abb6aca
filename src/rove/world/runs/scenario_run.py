"""A scenario, run: the world and the engines take tick after tick, and samples are taken.

`ScenarioRun` can be inspected between ticks, for pictures and the console; `run` plays a scenario
from beginning to end and returns its result. Both are in process and in virtual time. No clock is
read in here: a caller may pass a `timer` (nanoseconds). Without one the durations in a result are 0
or None; nothing else depends on it.

A tick has an order: commands whose time has come are given, in the order of the file; the world and
all engines take the tick; then instruments publish and audiences are notified. A command that fails
(somebody is not in reach) ends the run: a scenario is an experiment, and half of one is worthless.
A run that is *open* is interactive instead: it records refusals, continues after the scenario's
last second, and is sampled on demand.

A sample has its figures by name, as the counters of the engines have them, so a new counter needs
no change here, nor in the files that are written of it. Figures are totals since the world began,
except those that count what there is now; so the last sample of each engine sums up its run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import msgspec

from rove.world.engines.array_bus import ArrayBus
from rove.world.engines.ensemble import Ensemble, make_engine
from rove.world.feeds.audiences import Audience, FeedPublication
from rove.world.feeds.instruments import Instruments, audiences_of, devices_of
from rove.world.people.behaviours import make_behaviour
from rove.world.runs.scenarios import Scenario, ScenarioError, make_map
from rove.world.runs.simulation import World
from rove.world.runs.state import TickChanges, WorldError


class RunSample(msgspec.Struct, frozen=True):
    """What an engine, or an audience, had come to at a moment."""

    at: float
    """Seconds since the world began."""
    source: str
    """The name of the engine, or of the audience."""
    figures: dict[str, float]
    live: bool = False
    """Whether it was the engine that clients heard."""


class EngineFacts(msgspec.Struct, frozen=True):
    """What an engine says of itself."""

    name: str
    delay_s: float
    """How long it may take until a client has what it should have."""
    live: bool
    """At the end."""


class ScenarioResult(msgspec.Struct, frozen=True):
    """A whole run."""

    scenario: str
    title: str
    seed: int
    players: int
    entities: int
    servers: int
    seconds: float
    """Of the world's own time."""
    ticks: int
    trace_hash: str
    """Of the world at every tick: one seed, one history, one hash."""
    engines: tuple[EngineFacts, ...]
    samples: tuple[RunSample, ...]
    """Of the engines, by time."""
    heard: tuple[RunSample, ...]
    """Of the audiences, by time."""
    handed_over: int = 0
    """How often a server gave a master copy to another."""
    elapsed_s: float | None = None
    """How long the run took; None if nobody had a clock."""

    @property
    def speed(self) -> float | None:
        """How many times as fast as real time it was."""
        return self.seconds / self.elapsed_s if self.elapsed_s else None

    def summary(self) -> dict[str, dict[str, float]]:
        """The last figures of each engine, in the order of the engines."""
        last = {sample.source: sample.figures for sample in self.samples}
        return {engine.name: last[engine.name] for engine in self.engines}

    def audiences(self) -> dict[str, dict[str, float]]:
        """The last figures of each audience."""
        return {sample.source: sample.figures for sample in self.heard}


Timer: TypeAlias = Callable[[], int]
Tell: TypeAlias = Callable[[float, float], None]
"""Is told how many seconds of how many have passed in the world."""
_REFUSED_KEPT: Final = 1_000


def run(
    scenario: Scenario,
    *,
    players: int | None = None,
    engines: Sequence[str] | None = None,
    live: str | None = None,
    seconds: float | None = None,
    seed: int | None = None,
    tell: Tell | None = None,
    timer: Timer | None = None,
) -> ScenarioResult:
    """Run a scenario, or one that differs from it in some sizes, to its end."""
    chosen = scenario.sized(players=players, engines=engines, live=live, seconds=seconds, seed=seed)
    run_ = ScenarioRun(chosen, timer=timer)
    run_.play(tell)
    return run_.result()


class ScenarioRun:
    """A scenario that is being run."""

    def __init__(
        self, scenario: Scenario, *, timer: Timer | None = None, is_open: bool = False
    ) -> None:
        """As it is before it begins; `is_open` for one that goes on as long as it is stepped."""
        self.scenario = scenario
        self._is_open = is_open
        self.refused: Final[deque[tuple[str, str]]] = deque(maxlen=_REFUSED_KEPT)
        """Of an open run: commands of the scenario that could not be given, and why."""
        self.feeds: list[FeedPublication] = []
        """What instruments have published in the last tick."""
        self._timer = timer
        self._began_ns = timer() if timer is not None else 0
        self.world = _populated(scenario)
        self._instruments = Instruments(scenario, self.world)
        self.audiences = audiences_of(scenario, self.world)
        self.devices = devices_of(scenario)
        """What each audience reads with; None where it does not matter."""
        self.buses = {name: ArrayBus(timer) for name in scenario.engines.use}
        """By engine: what is subscribed and published there."""
        self.ensemble = self._ensemble() if self.buses else None
        """None if the scenario has no engines."""
        self._orders = sorted(scenario.commands, key=lambda said: said.at)
        self._ticks_left = round(scenario.seconds / scenario.tick_s)
        self._sample_ticks = self._ticks(scenario.sample_s)
        self._samples: list[RunSample] = []
        self._heard: list[RunSample] = []
        self._telling_ns = dict.fromkeys((audience.name for audience in self.listening), 0)

    @property
    def listening(self) -> list[Audience]:
        """All audiences; that of the traffic centre is the last, where there is one."""
        centre = self._instruments.centre
        return [*self.audiences, *([] if centre is None else [centre.audience])]

    def _ensemble(self) -> Ensemble:
        chosen = self.scenario.engines
        engines = [
            make_engine(name, bus, resubscribe_s=chosen.resubscribe_s, lag_s=chosen.lag_s)
            for name, bus in self.buses.items()
        ]
        return Ensemble(self.world, engines, live=chosen.live)

    def _ticks(self, seconds: float) -> int:
        return max(1, round(seconds / self.scenario.tick_s))

    # -- time ------------------------------------------------------------------------------

    def play(self, tell: Tell | None = None) -> None:
        """To the end of the scenario."""
        while self._ticks_left > 0:
            self.step()
            if tell is not None and self.world.tick % self._sample_ticks == 0:
                tell(self.world.at, self.scenario.seconds)

    def step(self) -> TickChanges:
        """One tick on, for everything there is; a sample where one is due."""
        self._give_orders()
        changes = (self.world if self.ensemble is None else self.ensemble).step()
        if self.world.refusals and not self._is_open:
            refusal = self.world.refusals[0]
            where = f"{self.scenario.name}: at {changes.at:g} s, '{refusal.command}'"
            raise ScenarioError(f"{where}: {refusal.why}")
        if self.listening or self._is_open:
            self._tell_audiences(changes)
        self._ticks_left -= 1
        is_due = changes.tick % self._sample_ticks == 0 or self._ticks_left == 0
        if is_due and not self._is_open:
            self._take_sample()
        return changes

    def _give_orders(self) -> None:
        while self._orders and self._orders[0].at <= self.world.at:
            said = self._orders.pop(0)
            try:
                self.world.obey(said.do)
            except WorldError as error:
                if self._is_open:
                    self.refused.append((said.do, str(error)))
                    continue
                where = f"{self.scenario.name}: at {said.at:g} s, {said.do!r}"
                raise ScenarioError(f"{where}: {error}") from None

    def _tell_audiences(self, changes: TickChanges) -> None:
        self.feeds = self._instruments.feeds(changes.at)
        everybody = zip(self.audiences, self.scenario.audiences, self.devices, strict=True)
        for audience, chosen, devices in everybody:
            began_ns = self._timer() if self._timer is not None else 0
            if chosen.follow and changes.tick % self._ticks(chosen.follow_s) == 0:
                audience.look_around(self.world.entities)
            told = audience.publish(self.feeds, changes.at)
            if self._timer is not None:
                self._telling_ns[audience.name] += self._timer() - began_ns
            if devices is not None:
                devices.hear(told, changes.at)

    # -- what came of it -------------------------------------------------------------------

    def _take_sample(self) -> None:
        for row in self.ensemble.sample() if self.ensemble is not None else ():
            name, live = str(row.pop("engine")), bool(row.pop("is_live"))
            at, _ = float(row.pop("at")), row.pop("tick")
            figures = {figure: float(value) for figure, value in row.items()}
            self._samples.append(RunSample(at, name, figures, live))
        devices = dict(zip((one.name for one in self.audiences), self.devices, strict=True))
        for audience in self.listening:
            reading = devices.get(audience.name)
            counts = {
                "subscriptions": len(audience),
                **msgspec.structs.asdict(audience.counts),
                "matching_s": self._telling_ns[audience.name] / 1e9,
                **({} if reading is None else reading.figures()),
            }
            figures = {figure: float(value) for figure, value in counts.items()}
            self._heard.append(RunSample(self.world.at, audience.name, figures))

    def sample(self) -> tuple[list[RunSample], list[RunSample]]:
        """Of an open run: what each engine, and each audience, has come to by now."""
        self._samples, self._heard = [], []
        self._take_sample()
        return self._samples, self._heard

    def result(self) -> ScenarioResult:
        """What came of it so far."""
        world, scenario = self.world, self.scenario
        elapsed_s = None if self._timer is None else (self._timer() - self._began_ns) / 1e9
        engines = self.ensemble.engines if self.ensemble is not None else ()
        return ScenarioResult(
            scenario=scenario.name,
            title=scenario.title,
            seed=scenario.seed,
            players=scenario.people.players,
            entities=len(world.entities),
            servers=scenario.people.servers,
            seconds=world.at,
            ticks=world.tick,
            trace_hash=world.hash(),
            engines=tuple(
                EngineFacts(
                    engine.name, engine.delay_ticks * world.tick_s, engine.name == self.live
                )
                for engine in engines
            ),
            samples=tuple(self._samples),
            heard=tuple(self._heard),
            handed_over=world.regions.handed_over,
            elapsed_s=elapsed_s,
        )

    @property
    def live(self) -> str:
        """The engine that clients hear; empty if there is none."""
        return self.ensemble.live if self.ensemble is not None else ""


def _populated(scenario: Scenario) -> World:
    people = scenario.people
    world = World(
        make_map(scenario), seed=scenario.seed, tick_s=scenario.tick_s, servers=people.servers
    )
    world.populate(
        people.players,
        people.npcs,
        people.items,
        reach=people.reach,
        speed=people.speed,
        behaviour=make_behaviour(people.behaviour, people.parameters),
        npcs_look=people.npcs_look,
    )
    return world
