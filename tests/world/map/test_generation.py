"""Generated maps: the same from the same seed, of any size, and fit to live in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import shapely  # type: ignore[import-untyped]

from rove.world.map.generation import MAP_KINDS, generate
from rove.world.map.maps import Map, map_text
from rove.world.map.paths import Paths
from rove.world.map.tiles import Tiles
from rove.world.runs.state import WorldError


def made(kind: str, seed: int, width: float = 500, height: float = 400) -> Map:
    return generate(kind, np.random.Generator(np.random.PCG64(seed)), width, height)


@pytest.mark.parametrize("kind", MAP_KINDS)
def test_one_seed_gives_one_map(kind: str) -> None:
    assert map_text(made(kind, 1)) == map_text(made(kind, 1))


@pytest.mark.parametrize("kind", [kind for kind in MAP_KINDS if kind != "plain"])
def test_another_seed_gives_another_map(kind: str) -> None:
    assert made(kind, 1) != made(kind, 2)


@pytest.mark.parametrize("kind", MAP_KINDS)
@pytest.mark.parametrize(
    ("width", "height"), [(40, 40), (41.7, 300), (500, 45), (237.34567, 411.96789), (1000, 1000)]
)
def test_every_size_can_be_cut_and_every_place_be_reached(
    kind: str, width: float, height: float
) -> None:
    """Houses leave streets free all the way: one part, whatever was drawn."""
    each = made(kind, 3, width, height)
    assert (each.name, each.width, each.height) == (kind, width, height)
    tiles = Tiles(each)
    assert tiles.part.max() == 0
    assert tiles.areas.sum() == pytest.approx(each.free_space.area)
    paths = Paths(tiles)
    first, *others = each.places.values()
    assert all(paths.path(*first, *other) is not None for other in others)


@pytest.mark.parametrize("kind", ["town", "city"])
def test_houses_do_not_overlap_and_keep_off_the_streets(kind: str) -> None:
    each = made(kind, 4, 600, 600)
    houses = shapely.polygons([list(house) for house in each.obstacles if len(house) == 4])
    assert shapely.union_all(houses).area == pytest.approx(shapely.area(houses).sum())
    assert any(len(house) > 4 for house in each.obstacles)
    for along in range(0, 601, 100 if kind == "town" else 200):
        half = MAP_KINDS[kind].street_m / 2 - 0.05
        street = shapely.box(along - half, 0, along + half, 600)
        assert not each.walls.intersects(street)


def test_between_any_two_points_of_a_maze_there_is_one_way() -> None:
    """One outline without holes: walls all hang together with the border."""
    free = made("maze", 5, 200, 160).free_space
    assert free.geom_type == "Polygon"
    assert len(free.interiors) == 0
    assert free.area == pytest.approx(200 * 160 - made("maze", 5, 200, 160).walls.area)


def test_a_city_has_what_traffic_needs() -> None:
    each = made("city", 6, 800, 600)
    roads = each.roads
    assert roads is not None
    assert len(roads.nodes) == 5 * 4
    pairs = {(lane.from_node, lane.to_node) for lane in roads.lanes}
    assert len(pairs) == len(roads.lanes) == 2 * (4 * 4 + 5 * 3)
    assert {(end, start) for start, end in pairs} == pairs
    lines = shapely.linestrings(
        np.array([[roads.nodes[lane.from_node], roads.nodes[lane.to_node]] for lane in roads.lanes])
    )
    assert shapely.distance(each.walls, lines).min() > 4
    assert roads.detectors
    assert roads.cameras


def test_lights_never_let_streets_that_cross_go_together() -> None:
    roads = made("city", 7, 800, 600).roads
    assert roads is not None
    arriving = [[lane.to_node for lane in roads.lanes].count(node) for node in range(20)]
    assert [light.node for light in roads.lights] == [
        node for node, lanes in enumerate(arriving) if lanes >= 3
    ]
    for light in roads.lights:
        greens = [lane for phase in light.phases for lane in phase.green]
        assert len(greens) == len(set(greens)) == arriving[light.node]
        for phase in light.phases:
            levels = {
                roads.nodes[roads.lanes[lane].from_node][1] == roads.nodes[light.node][1]
                for lane in phase.green
            }
            assert len(levels) <= 1


def test_blocks_and_streets_can_be_chosen() -> None:
    rng = np.random.default_rng(8)
    coarse = generate("town", rng, 600, 600, block_m=300, street_m=60, name="coarse")
    fine = generate("town", rng, 600, 600, block_m=50, street_m=5)
    assert coarse.name == "coarse"
    assert len(coarse.obstacles) < 20 < 100 < len(fine.obstacles)
    assert not coarse.walls.intersects(shapely.box(270.1, 0, 329.9, 600))


def test_five_kilometres_are_no_trouble() -> None:
    large = made("town", 9, 5000, 5000)
    assert len(large.obstacles) > 3000
    assert large.free_space.geom_type == "Polygon"


@pytest.mark.soak
@pytest.mark.parametrize("kind", MAP_KINDS)
def test_five_kilometres_are_cut_into_tiles(kind: str) -> None:
    each = made(kind, 10, 5000, 5000)
    tiles = Tiles(each)
    assert tiles.part.max() == 0
    assert tiles.areas.sum() == pytest.approx(each.free_space.area)


@pytest.mark.parametrize(
    ("kind", "sizes", "complaint"),
    [
        ("forest", {}, "there is no kind of map forest; choose from plain, town, maze, city"),
        ("town", {"width": 39}, "width = 39: a map is generated from 40 m on"),
        ("town", {"height": float("inf")}, "height = inf: a map is generated"),
        ("town", {"width": float("nan")}, "width = nan: a map is generated"),
        ("town", {"block_m": 1}, "block_m = 1: blocks are 2 m or more"),
        ("town", {"street_m": 0.5}, "street_m = 0.5: streets take from 1 m to 95 m where they"),
        ("town", {"street_m": 96}, "street_m = 96: streets take from 1 m to 95 m where they are"),
        ("maze", {"block_m": 10, "street_m": 9.7}, "street_m = 9.7: streets take from 1 m to 9.6"),
    ],
)
def test_what_cannot_be_made_is_refused(kind: str, sizes: dict[str, float], complaint: str) -> None:
    asked: dict[str, Any] = {"width": 500, "height": 500, **sizes}
    with pytest.raises(WorldError) as caught:
        generate(kind, np.random.default_rng(0), **asked)
    assert str(caught.value).startswith(complaint)
