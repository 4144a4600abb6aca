"""Engines side by side: who is live makes no difference to them, and a switch loses nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import shapely  # type: ignore[import-untyped]

from rove.world.engines.array_bus import ArrayBus
from rove.world.engines.bus import EngineCounters
from rove.world.engines.ensemble import ENGINES, Ensemble, WorldEngine, full_name, make_engine
from rove.world.engines.truth import GroundTruth, ReplicaChecker
from rove.world.map.maps import Map
from rove.world.map.sight import Walls
from rove.world.runs.simulation import World
from rove.world.runs.state import EntityKind, TickChanges, WorldError
from tests.effort import is_soak, some

if TYPE_CHECKING:
    from tests.world.conftest import ToyMaker

FOUR = ("object", "tile", "area", "evolving")


def _ensemble(seed: int, live: str = "", names: tuple[str, ...] = FOUR) -> Ensemble:
    world = World(Map("yard", 90.0, 70.0, (((30.0, 20.0), (50.0, 20.0), (40.0, 45.0)),)), seed=seed)
    world.populate(players=12, npcs=6, items=8, reach=(15.0, 10.0))
    return Ensemble(world, [make_engine(name) for name in names], live=live)


def test_counters_do_not_depend_on_who_is_live() -> None:
    _compare(seed=1, ticks=40)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_counters_never_depend_on_who_is_live(seed: int) -> None:
    _compare(seed, ticks=300)


def _compare(seed: int, ticks: int) -> None:
    """One history, with each engine live in turn."""
    runs = []
    for live in ENGINES:
        ensemble = _ensemble(seed, live, ENGINES)
        for _ in range(ticks):
            ensemble.step()
        rows = ensemble.sample()
        assert [row["engine"] for row in rows if row.pop("is_live")] == [live]
        runs.append((ensemble.world.hash(), rows))  # type: ignore[attr-defined]
    assert all(run == runs[0] for run in runs[1:])
    assert all(row["deliveries"] != 0 for row in runs[0][1])


def test_switching_makes_no_difference_to_counters() -> None:
    steady, switched = _ensemble(5), _ensemble(5)
    for tick in range(60):
        steady.step()
        switched.step()
        switched.switch(FOUR[tick % 4])
    for row, other in zip(steady.sample(), switched.sample(), strict=True):
        del row["is_live"], other["is_live"]
        assert row == other


@pytest.mark.parametrize("seed", some(range(2)))
@pytest.mark.soak
def test_a_switch_loses_no_replica(seed: int, random_toy: ToyMaker) -> None:
    world = random_toy(seed, jumps=0.005)
    world.engine_names, world.engine_wanted = (), None  # type: ignore[attr-defined]
    engines = [make_engine(name) for name in ENGINES]
    ensemble = Ensemble(world, engines)  # type: ignore[arg-type]
    checker = ReplicaChecker(max(engine.delay_ticks for engine in engines), EngineCounters())
    rng = np.random.default_rng(seed)
    ensemble.begin()
    switches = 0
    for _ in range(150):
        ensemble.step()
        if rng.random() < 0.3:
            ensemble.switch(str(rng.choice(ENGINES)))
            switches += 1
        verdict = checker.check(ensemble.truth, ensemble.visible())
        assert (verdict.missing, verdict.stale) == (0, 0)
    assert switches > 30


def test_what_a_client_has_is_kept_until_it_is_confirmed_or_refuted(random_toy: ToyMaker) -> None:
    world = random_toy(1)
    world.engine_names, world.engine_wanted = (), None  # type: ignore[attr-defined]
    ensemble = Ensemble(world, [make_engine("tile"), make_engine("object")])  # type: ignore[arg-type]
    for _ in range(20):
        ensemble.step()
    tile, other = (set(engine.replicas.keys.tolist()) for engine in ensemble.engines)
    assert tile - other
    assert set(ensemble.visible().keys.tolist()) == tile
    ensemble.switch("object")
    assert ensemble.live == "object"
    assert set(ensemble.visible().keys.tolist()) == tile | other
    # The object-based engine may take a tick longer; then what it does not have is refuted.
    ensemble.step()
    kept = set(ensemble.visible().keys.tolist())
    assert kept > set(ensemble.engines[1].replicas.keys.tolist())
    ensemble.step()
    assert ensemble.visible().keys.tolist() == ensemble.engines[1].replicas.keys.tolist()


def test_what_walls_hide_is_not_in_sight() -> None:
    ensemble = _ensemble(4)
    walls = Walls(ensemble.world.map)  # type: ignore[attr-defined]
    hidden = 0
    for _ in range(60):
        ensemble.step()
        has, sees_ = ensemble.visible(), set(ensemble.in_sight(walls).keys.tolist())
        entities = ensemble.world.entities
        triangle = shapely.Polygon([(30.0, 20.0), (50.0, 20.0), (40.0, 45.0)])
        for key, client, entity in zip(has.keys.tolist(), *has.pairs(), strict=True):
            avatar = ensemble.world.clients.avatar[client]
            ends = [(entities.x[each], entities.y[each]) for each in (avatar, entity)]
            cut = triangle.buffer(-0.01).intersects(shapely.LineString(ends))
            touched = triangle.intersects(shapely.LineString(ends))
            if cut == touched:  # neither grazes
                assert (key in sees_) is not cut
                hidden += cut
    assert hidden > 20


def test_a_command_switches() -> None:
    ensemble = _ensemble(1)
    assert ensemble.live == "object"
    ensemble.step()
    ensemble.world.obey("engine evolving")  # type: ignore[attr-defined]
    ensemble.step()
    assert ensemble.live == "evolving"
    assert [row["is_live"] for row in ensemble.sample()] == [False, False, False, True]


def test_samples_say_when_and_who() -> None:
    ensemble = _ensemble(1)
    with pytest.raises(WorldError, match="nothing has happened yet"):
        ensemble.sample()
    ensemble.begin()
    ensemble.begin()
    assert [row["tick"] for row in ensemble.sample()] == [0, 0, 0, 0]
    for _ in range(7):
        ensemble.step()
    row = ensemble.sample()[2]
    assert (row["tick"], row["engine"]) == (7, "area")
    assert row["at"] == pytest.approx(0.7)
    assert row["subscriptions"] == ensemble.engines[2].subscriptions()
    assert (row["missing_s"], row["stale_s"]) == (0.0, 0.0)


def test_engines_are_named_once_and_known() -> None:
    with pytest.raises(WorldError, match="no engine to run"):
        _ensemble(1, names=())
    with pytest.raises(WorldError, match="area is named twice"):
        _ensemble(1, names=("area", "area"))
    with pytest.raises(WorldError, match="engine pes does not run here; there are object, tile"):
        _ensemble(1).switch("pes")


if TYPE_CHECKING:
    from tests.world.conftest import Toy, ToyMaker


class Watched:
    """An engine, the truth and a checker on a world."""

    def __init__(self, world: Any, engine: WorldEngine, delay_ticks: int | None = None) -> None:
        self.world, self.engine = world, engine
        self.truth = GroundTruth()
        delay = engine.delay_ticks if delay_ticks is None else delay_ticks
        self.checker = ReplicaChecker(delay, engine.counters)
        self.take(world.begin())

    def take(self, changes: TickChanges) -> None:
        self.truth.step(self.world.entities, self.world.clients, changes.tick)
        self.engine.step(self.world, changes)
        self.checker.check(self.truth, self.engine.replicas)

    def run(self, ticks: int) -> Watched:
        for _ in range(ticks):
            self.take(self.world.step())
        return self

    def faults(self) -> tuple[int, int]:
        counters = self.engine.counters
        return counters.missing_ticks, counters.stale_ticks


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("seed", some([1, 0, 2]))
def test_nothing_is_missing_or_stale_after_the_stated_delay(
    name: str, seed: int, random_toy: ToyMaker
) -> None:
    jumps = (0.0, 0.02, 0.002)[seed]
    watched = Watched(random_toy(seed, jumps=jumps), make_engine(name)).run(
        250 if is_soak() else 100
    )
    assert watched.faults() == (0, 0)
    assert watched.engine.counters.row(0.1)["replica_messages"] > 100


@pytest.mark.soak
@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("seed", range(100, 106))
def test_nothing_is_missing_or_stale_for_long(name: str, seed: int, random_toy: ToyMaker) -> None:
    toy = random_toy(seed, jumps=0.003 * (seed % 4), leg_ticks=5 * (seed % 5 + 1))
    assert Watched(toy, make_engine(name)).run(1500).faults() == (0, 0)


def test_stated_delays_are_as_short_as_they_can_be(random_toy: ToyMaker) -> None:
    delays = {name: make_engine(name).delay_ticks for name in ENGINES}
    assert delays.pop("object") == 1
    assert set(delays.values()) == {0}
    watched = Watched(random_toy(5, jumps=0.01), make_engine("object"), delay_ticks=0).run(100)
    missing, stale = watched.faults()
    assert missing == 0
    assert stale > 0


@pytest.mark.parametrize("name", ENGINES)
def test_nobody_has_a_replica_of_the_own_avatar(name: str, random_toy: ToyMaker) -> None:
    watched = Watched(random_toy(6), make_engine(name))
    for _ in range(50):
        watched.run(1)
        clients, entities = watched.engine.replicas.pairs()
        assert len(clients) > 0
        assert not np.any(watched.world.clients.avatar[clients] == entities)


@pytest.mark.parametrize("name", ENGINES)
def test_one_history_has_one_set_of_counters(name: str, random_toy: ToyMaker) -> None:
    rows = [
        Watched(random_toy(7), make_engine(name)).run(100).engine.counters.row(0.1)
        for _ in range(2)
    ]
    assert rows[0] == rows[1]


@pytest.mark.parametrize("name", ENGINES)
def test_the_real_world_is_told_as_well(name: str) -> None:
    world = World(
        Map("yard", 120.0, 90.0, (((40.0, 30.0), (60.0, 30.0), (50.0, 60.0)),)), seed=3, servers=4
    )
    world.populate(players=25, npcs=10, items=15, reach=(15.0, 10.0), npcs_look=False)
    for number in range(1, 6):
        world.obey(f"follow player{number} npc{number}")
    world.obey("gather 8 at 20 20")
    watched = Watched(world, make_engine(name)).run(300)
    assert watched.faults() == (0, 0)
    assert world.regions.handed_over > 0


@pytest.mark.parametrize("name", ENGINES)
def test_who_appears_or_is_put_elsewhere_is_there_a_tick_later(name: str, toy: ToyMaker) -> None:
    world = toy([(10.0, 10.0), (80.0, 80.0), (12.0, 10.0)], clients=2)
    watched = Watched(world, make_engine(name)).run(3)
    assert _known(watched) == {(0, 2)}
    watched.take(world.step(lambda: _put(world, 2, 82.0, 80.0)))
    watched.run(1)
    assert _known(watched) == {(1, 2)}

    def appear() -> None:
        world.add([(11.0, 11.0)], EntityKind.ITEM)

    watched.take(world.step(appear))
    watched.run(1)
    assert _known(watched) == {(0, 3), (1, 2)}
    watched.take(world.step(lambda: _put(world, 0, 80.0, 79.0)))
    watched.run(1)
    assert _known(watched) == {(0, 1), (0, 2), (1, 0), (1, 2)}
    assert watched.faults() == (0, 0)


@pytest.mark.parametrize("name", ENGINES)
def test_what_is_used_carried_and_dropped_is_told(name: str, toy: ToyMaker) -> None:
    world = toy([(10.0, 10.0), (12.0, 10.0)], clients=1)
    watched = Watched(world, make_engine(name)).run(3)

    def use() -> None:
        world.entities.uses[1] += 1

    def take() -> None:
        world.entities.holder[1] = 0

    def walk() -> None:
        world.entities.vx[0] = 1.4

    def drop() -> None:
        world.entities.holder[1] = -1
        world.entities.vx[1] = 0.0

    for act in (use, take, walk, lambda: None, drop, lambda: None):
        watched.take(world.step(act))
        copy = watched.engine.replicas.of(0)
        assert copy.version.tolist() == [world.entities.version[1]]
        assert copy.x.tolist() == [world.entities.x[1]]
    assert world.entities.version[1] == 1 + 5


@pytest.mark.parametrize("name", ENGINES)
def test_servers_that_hand_over_lose_nothing(name: str, toy: ToyMaker) -> None:
    places = [(45.0, 10.0), (48.0, 12.0), (52.0, 9.0), (55.0, 11.0)]
    world = toy(places, servers=4)
    world.entities.vx[:] = [3.0, 1.0, -2.0, -1.0]
    watched = Watched(world, make_engine(name)).run(60)
    assert watched.faults() == (0, 0)


def _put(world: Toy, entity: int, x: float, y: float) -> None:
    world.entities.x[entity], world.entities.y[entity] = x, y


def _known(watched: Watched) -> set[tuple[int, int]]:
    """(client, entity), of what ought to be known; tiles show more than that."""
    held = set(zip(*(column.tolist() for column in watched.engine.replicas.pairs()), strict=True))
    due = set(zip(*(column.tolist() for column in watched.truth.pairs()), strict=True))
    assert held >= due
    return due if watched.engine.name == "tile" else held


# -- the registry -------------------------------------------------------------------------


def test_engines_are_made_by_name() -> None:
    assert [make_engine(name).name for name in ENGINES] == list(ENGINES)
    assert make_engine("clees").name == full_name("clees") == "evolving-clees"
    bus = ArrayBus()
    assert make_engine("object", bus).counters is bus.counters
    with pytest.raises(WorldError, match="no engine turbo; there are object, tile, area"):
        make_engine("turbo")


def test_time_is_counted_if_somebody_has_a_clock(random_toy: ToyMaker) -> None:
    now = iter(range(0, 10**9, 1000))
    engine = make_engine("area", timer=lambda: next(now))
    Watched(random_toy(1), engine).run(3)
    assert engine.counters.matching_ns > 0
    assert engine.subscriptions() == engine.counters.subscriptions > 0


# -- what the engines are compared for ----------------------------------------------------


def _straight(toy: ToyMaker, ticks: int, leg_ticks: int, name: str) -> Watched:
    """Twenty who walk to and fro in long legs, and forty things that lie about."""
    rng = np.random.default_rng(1)
    places = [tuple(place) for place in rng.uniform(5, 495, (60, 2))]
    world = toy(places, clients=20, side=500.0, reach=(30.0, 20.0))
    watched = Watched(world, make_engine(name))

    def turn() -> None:
        if world.tick % leg_ticks == 1:
            angle = rng.uniform(0, 2 * np.pi, 20)
            inward = np.arctan2(250 - world.entities.y[:20], 250 - world.entities.x[:20])
            angle = np.where(rng.random(20) < 0.5, inward, angle)
            world.entities.vx[:20], world.entities.vy[:20] = (
                1.4 * np.cos(angle),
                1.4 * np.sin(angle),
            )

    for _ in range(ticks):
        watched.take(world.step(turn))
    return watched


@pytest.mark.soak
def test_evolving_subscriptions_save_resubscribing(toy: ToyMaker) -> None:
    runs = {name: _straight(toy, 1200, 400, name) for name in ("area", "evolving", "evolving-lees")}
    operations = {}
    for name, run in runs.items():
        counters = run.engine.counters
        # What it takes to begin is the same for all.
        operations[name] = counters.subscribes + counters.unsubscribes - (2 * 20 + 60)
        assert run.faults() == (0, 0)
    assert operations["evolving-lees"] == operations["evolving"] > 0
    assert operations["evolving"] <= (1 - 0.968) * operations["area"]
    updates = {
        name: run.engine.counters.row(0.1)["update_notifications"] for name, run in runs.items()
    }
    assert updates["evolving"] <= 1.01 * updates["area"]


def _crowd(toy: ToyMaker, name: str, side: float, people: int) -> float:
    """Subscriptions for each client, where some are on a square."""
    rng = np.random.default_rng(2)
    places = [tuple(place) for place in rng.uniform(200, 200 + side, (people, 2))]
    world = toy(places, side=500.0, reach=(30.0, 20.0), tile_m=50.0)
    world.entities.vx[:] = rng.uniform(-1.4, 1.4, people)
    return Watched(world, make_engine(name)).run(20).engine.subscriptions() / people


def test_in_a_crowd_objects_take_more_subscriptions_and_far_apart_fewer(toy: ToyMaker) -> None:
    dense = {name: _crowd(toy, name, 40.0, 80) for name in ("object", "tile", "area", "evolving")}
    sparse = {name: _crowd(toy, name, 280.0, 12) for name in dense}
    assert dense["object"] > 1.5 * dense["tile"] > 1.5 * dense["area"]
    assert dense["object"] > 10 * dense["area"]
    assert dense["area"] == dense["evolving"] == 3.0
    assert sparse["object"] < sparse["area"] < sparse["tile"]
