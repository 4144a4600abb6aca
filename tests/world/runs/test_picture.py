"""Pictures are drawn, and show the areas that are really subscribed to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rove.world.map.maps import load_map
from rove.world.map.tiles import Tiles
from rove.world.runs.picture import areas_of, draw_map, draw_world
from rove.world.runs.scenario_run import ScenarioRun
from rove.world.runs.scenarios import load_scenario
from tests.effort import some

PNG = b"\x89PNG\r\n\x1a\n"


def played(scenario: str, engine: str, seconds: float = 3.0) -> ScenarioRun:
    sized = load_scenario(scenario).sized(players=15, seconds=seconds, engines=[engine])
    run = ScenarioRun(sized)
    run.play()
    return run


@pytest.mark.parametrize("engine", some(["evolving", "object", "tile", "area"]))
def test_a_world_is_drawn(engine: str, tmp_path: Path) -> None:
    path = tmp_path / "world.png"
    draw_world(played("crowd", engine, 0.5), path)
    assert path.read_bytes().startswith(PNG)


def test_a_world_without_engines_and_with_traffic_is_drawn(tmp_path: Path) -> None:
    run = ScenarioRun(load_scenario("air").sized(players=5, seconds=0.5))
    run.play()
    path = tmp_path / "world.png"
    draw_world(run, path)
    assert path.read_bytes().startswith(PNG)


def test_maps_are_drawn(tmp_path: Path) -> None:
    for name in ("arena", "city"):
        map_ = load_map(name)
        draw_map(map_, Tiles(map_), tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").read_bytes().startswith(PNG)


def test_an_object_based_client_is_shown_what_it_sees() -> None:
    run = played("sparse", "object")
    world, areas = run.world, areas_of(run)
    assert np.array_equal(areas.x, world.entities.x[world.clients.avatar])
    assert set(areas.reach_x) == {world.clients.reach_x}
    assert areas.chosen == 0
    assert not np.any(areas.vx)


@pytest.mark.parametrize("engine", ["area", "evolving"])
def test_rectangles_hold_what_their_clients_see(engine: str) -> None:
    run = played("sparse", engine)
    world, areas = run.world, areas_of(run)
    avatars = world.clients.avatar
    x, y = world.entities.x[avatars], world.entities.y[avatars]
    assert np.all(np.abs(areas.x - x) + world.clients.reach_x <= areas.reach_x + 1e-6)
    assert np.all(np.abs(areas.y - y) + world.clients.reach_y <= areas.reach_y + 1e-6)
    moving = np.zeros(len(x)) if engine == "area" else world.entities.vx[avatars]
    assert np.allclose(areas.vx, moving)
    assert np.any(areas.vx) == (engine == "evolving")


def test_tiles_are_those_that_are_listened_to() -> None:
    run = played("sparse", "tile")
    world, areas = run.world, areas_of(run)
    avatars = world.clients.avatar
    x, y = world.entities.x[avatars], world.entities.y[avatars]
    starts, tiles = world.tiles.in_rectangles(x, y, world.clients.reach_x, world.clients.reach_y)
    assert set(tiles.tolist()) <= set(areas.tiles.tolist())
    assert set(tiles[: starts[1]].tolist()) <= set(areas.chosen_tiles.tolist())
    # Not more than a rounding error more.
    assert len(areas.tiles) <= len(set(tiles.tolist())) + 2
    assert not len(areas.x)
