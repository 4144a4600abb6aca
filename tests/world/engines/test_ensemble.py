"""Engines side by side: who is live makes no difference to them, and a switch loses nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import shapely  # type: ignore[import-untyped]

from rove.world.engines.counters import EngineCounters
from rove.world.engines.ensemble import Ensemble
from rove.world.engines.registry import ENGINES, make_engine
from rove.world.engines.truth import ReplicaChecker
from rove.world.map.maps import Map
from rove.world.map.sight import Walls
from rove.world.runs.simulation import World
from rove.world.runs.state import WorldError
from tests.effort import some

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
