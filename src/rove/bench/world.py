"""`rove bench world`: how fast the world runs, how much memory it needs, and what engines cost.

Names are `world.WHAT.PLAYERS…`:

- `speed1`, `speed2`: times real time, in virtual time, with all four engines at once, in one
  process and in two. One seed gives one history, so two processes run the same world, each with
  half of the engines, and both must come to the same trace hash;
- `memory`: what a process has beyond what it had with ten players; linear means that ten times the
  players take ten times the bytes;
- `subscribing.DESIGN`: subscribe and unsubscribe operations compared with resubscription, in open
  country where people walk far, and missing and stale replica-seconds;
- `live`: over MQTT in real time, tile-based, with a broker and a process for each role
  (`rove.live.launcher`).

The town grows with the number of players, so that each sees as many others.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from rove.bench.harness import Bench, Setting, Suite, SuiteOptions
from rove.bench.measure import Measure
from rove.bench.processes import Process, chosen_cores, together
from rove.errors import RoveError
from rove.live.launcher import run_live
from rove.world.engines.ensemble import Ensemble, make_engine
from rove.world.map.generation import generate
from rove.world.runs.scenarios import EngineSettings, MapSettings, PeopleSettings, Scenario
from rove.world.runs.simulation import World

FOUR: Final = ("object", "tile", "area", "evolving")
REACH_M: Final = (30.0, 20.0)
ITEMS_SHARE: Final = 10
"""An apple for so many players."""
SERVERS: Final = 4
SEED: Final = 1
_GOALS: Final = {1_000: 20.0, 10_000: 1.0}
_LINEAR_MAX: Final = 1.2
_REDUCTION_GOAL: Final = 0.968
"""What the published system saved of the traffic of subscribing."""
_SIDE_M: Final = 1_000.0
"""Of the town of a thousand."""
_SETTLING_TICKS: Final = 50
_FEW: Final = 10
"""Players with which everything is loaded and compiled."""
_LIVE_SIDE_M: Final = 1_000.0
"""Of the ground of five hundred who are live."""
_LIVE_P99_MS_MAX: Final = 50.0
_LIVE_HOSTS: Final = 2
_LIVE_ENGINE: Final = "tile"
"""The one with the most to deliver. (Over MQTT, evolving rectangles cost the broker 130 µs a
publication at this size, which is more than one core has.)"""
_DESIGNS: Final = ("evolving", "evolving-pes", "evolving-lees", "evolving-clees")


class HistoriesError(RoveError):
    """Two runs of one seed differ."""


class WorldOptions(SuiteOptions, frozen=True, kw_only=True):
    """How much to measure."""

    players: Sequence[int] = (1_000, 10_000)
    ticks: Sequence[int] = (600, 200)
    """That are timed, for each number of players."""
    walkers: int = 500
    """Who walk far, for the part `subscribing`."""
    walked_s: float = 120.0
    live_clients: int = 500
    live_s: float = 300.0


QUICK: Final = WorldOptions(
    players=(50,), ticks=(20,), walkers=20, walked_s=20.0, live_clients=6, live_s=4.0
)


WorldBench: TypeAlias = Bench[WorldOptions]


# -- speed and memory ------------------------------------------------------------------------------


class _Show:
    """A world with some engines, in a process of its own."""

    def __init__(self, _number: int) -> None:
        self.ensemble: Ensemble | None = None


def build_world(players: int, engines: Sequence[str]) -> Ensemble:
    """The town in which speed is measured."""
    side_m = _SIDE_M * math.sqrt(players / 1_000)
    rng = np.random.Generator(np.random.PCG64(SEED))
    world = World(generate("town", rng, side_m, side_m), seed=SEED, servers=SERVERS)
    world.populate(players=players, items=players // ITEMS_SHARE, reach=REACH_M)
    return Ensemble(world, [make_engine(name) for name in engines])


def _begin(show: _Show, players: int, engines: Sequence[str]) -> None:
    """Have a world that has begun to move, and the kernels ready."""
    show.ensemble = build_world(players, engines)
    _steps(show, _SETTLING_TICKS)


def _steps(show: _Show, ticks: int) -> tuple[float, str]:
    """How many times real time it was, and what the world came to."""
    assert show.ensemble is not None, "begin first"
    began = time.perf_counter()
    for _ in range(ticks):
        show.ensemble.step()
    took_s = time.perf_counter() - began
    world = show.ensemble.world
    assert isinstance(world, World)
    return ticks * world.tick_s / took_s, world.hash()


def _resident_bytes(_show: _Show) -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _speed(bench: WorldBench) -> Iterator[Measure]:
    options = bench.options
    for players, ticks in zip(options.players, options.ticks, strict=True):
        one: Measure | None = None
        for processes in (1, 2):
            bench.tell(f"{players} players, {processes} processes")
            times = _times_real(players, ticks, processes)
            name = f"world.speed{processes}.{players}"
            goal = _GOALS.get(players) if processes == 2 else None
            measure = Measure(
                name,
                times,
                "× real time",
                None if one is None else times / one.value,
                None if one is None else one.name,
                None if goal is None else f">= {goal:g}",
                None if goal is None else times >= goal,
            )
            one = one or measure
            yield measure


def _times_real(players: int, ticks: int, processes: int) -> float:
    """How many times real time it is, with the engines spread over so many processes."""
    shares = [FOUR[number::processes] for number in range(processes)]
    with ExitStack() as stack:
        running = [
            stack.enter_context(Process(_Show, [core], number))
            for number, core in enumerate(chosen_cores(processes))
        ]
        together(running, ((_begin, players, share) for share in shares))
        found: list[tuple[float, str]] = together(running, [(_steps, ticks)] * processes)
    if len({said for _, said in found}) > 1:
        raise HistoriesError("one seed has given two histories; that must not be")
    return min(times for times, _ in found)


def _memory(bench: WorldBench) -> Iterator[Measure]:
    options = bench.options
    least: Measure | None = None
    for players in options.players:
        bench.tell(f"{players} players")
        with Process(_Show, [], 0) as process:
            process.ask(_begin, _FEW, FOUR)
            few: int = process.ask(_resident_bytes)
            process.ask(_begin, players, FOUR)
            many: int = process.ask(_resident_bytes)
        each = (many - few) / 1024 / players
        name = f"world.memory.{players}"
        if least is None:
            least = Measure(name, each, "KiB/player")
            yield least
            continue
        ratio = each / least.value
        goal = f"<= {_LINEAR_MAX:g}×"
        yield Measure(name, each, "KiB/player", ratio, least.name, goal, ratio <= _LINEAR_MAX)


# -- subscribing -----------------------------------------------------------------------------------


def walk_far(walkers: int, seconds: float) -> dict[str, dict[str, Any]]:
    """What each design has counted by the end, of people who cross an open country."""
    rng = np.random.Generator(np.random.PCG64(SEED))
    world = World(generate("plain", rng, 2_000, 2_000), seed=SEED)
    world.populate(players=walkers, reach=REACH_M, behaviour="travel")
    ensemble = Ensemble(world, [make_engine(name) for name in ("area", *_DESIGNS)])
    for _ in range(round(seconds / world.tick_s)):
        ensemble.step()
    return {str(row["engine"]): row for row in ensemble.sample()}


def _subscribing(bench: WorldBench) -> Iterator[Measure]:
    options = bench.options
    bench.tell(f"{options.walkers} walkers")
    rows = walk_far(options.walkers, options.walked_s)
    before = operations(rows["area"])
    name = "world.subscribing.resubscribe"
    yield Measure(name, before / options.walked_s / options.walkers, "operations/s per client")
    for design in _DESIGNS:
        saved = 1 - operations(rows[design]) / before
        goal = f">= {_REDUCTION_GOAL:.1%}"
        yield Measure(
            f"world.subscribing.{design}", 100 * saved, "% saved", 1 - saved, name, goal,
            saved >= _REDUCTION_GOAL,
        )  # fmt: skip
    for engine, row in rows.items():
        wrong = float(row["missing_s"]) + float(row["stale_s"])
        yield Measure(f"world.wrong.{engine}", wrong, "replica-seconds")


def operations(row: dict[str, Any]) -> int:
    """Subscribe and unsubscribe operations of an engine."""
    return int(row["subscribes"]) + int(row["unsubscribes"])


# -- over MQTT -------------------------------------------------------------------------------------


def live_scenario(clients: int, seconds: float) -> Scenario:
    """People who walk about in the open without a rest, so that each is told of ten times a second,
    and who stay as far apart as they began.
    """
    side_m = _LIVE_SIDE_M * math.sqrt(clients / 500)
    return Scenario(
        title="Live",
        about="For `rove bench world`.",
        map=MapSettings(generate="plain", width=side_m, height=side_m),
        people=PeopleSettings(
            players=clients,
            reach=REACH_M,
            behaviour="wander",
            parameters={"range_m": 200.0, "pause_s": 0.0},
        ),
        engines=EngineSettings(use=(_LIVE_ENGINE,)),
        seconds=seconds,
        name="live",
    )


def _live(bench: WorldBench) -> Iterator[Measure]:
    options = bench.options
    bench.tell(f"{options.live_clients} clients over MQTT for {options.live_s:g} s")
    scenario = live_scenario(options.live_clients, options.live_s)
    live = run_live(scenario, hosts=_LIVE_HOSTS, has_dummies=False)
    name = f"world.live.{options.live_clients}"
    yield Measure(f"{name}.updates", live.updates / options.live_s, "deliveries/s")
    yield Measure(f"{name}.delay.p50", live.delay_p50_ms, "ms")
    worst_ms, goal = live.delay_p99_ms, f"<= {_LIVE_P99_MS_MAX:g}"
    reached = worst_ms <= _LIVE_P99_MS_MAX
    yield Measure(f"{name}.delay.p99", worst_ms, "ms", goal=goal, reached=reached)
    for figure in ("missing_s", "stale_s"):
        value = live.result.samples[-1].figures[figure]
        yield Measure(f"{name}.{figure.removesuffix('_s')}", value, "replica-seconds")
    for process in live.processes:
        share = 100 * process.cpu_s / options.live_s
        yield Measure(f"{name}.cpu.{process.name}", share, "% of a core")


SUITE: Final = Suite(
    name="world",
    parts={"speed": _speed, "memory": _memory, "subscribing": _subscribing, "live": _live},
    options=WorldOptions(),
    quick=QUICK,
    accepts={"seconds": Setting("live_s")},
    needs_linux_to="binds processes to cores",
)
