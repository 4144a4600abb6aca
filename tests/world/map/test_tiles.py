"""Tiles cover the free space exactly, fit side to side, and are found as a slow search finds."""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import shapely  # type: ignore[import-untyped]

from rove.world.map.generation import generate
from rove.world.map.maps import GRAZE_M, Map, Point, load_map
from rove.world.map.tiles import Tiles, grid_over, neighbours_of
from rove.world.runs.state import Floats, WorldError


def box(left: float, bottom: float, right: float, top: float) -> tuple[Point, ...]:
    return ((left, bottom), (right, bottom), (right, top), (left, top))


def stars(seed: int, count: int) -> tuple[tuple[Point, ...], ...]:
    """Jagged obstacles at odd angles that overlap each other."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        corners = int(rng.integers(3, 9))
        angles = np.sort(rng.uniform(0, 2 * np.pi, corners))
        centre, radius = rng.uniform(12, 88, 2), rng.uniform(2, 10, corners)
        points = centre + radius[:, None] * np.stack([np.cos(angles), np.sin(angles)], 1)
        if shapely.Polygon(points).is_valid and shapely.Polygon(points).area > 1:
            found.append(tuple((float(x), float(y)) for x, y in points))
    return tuple(found)


@functools.cache
def example(name: str) -> tuple[Map, Tiles]:
    hard = {
        "corners touch": (box(10, 10, 20, 20), box(20, 20, 30, 30), box(30, 10, 40, 20)),
        "sides touch": (box(10, 10, 20, 20), box(20, 12, 30, 18), box(10, 20, 12, 25)),
        "at the border": (box(0, 10, 20, 20), box(90, 90, 100, 100), ((0, 50), (9, 45), (9, 55))),
        "corner on side": (box(10, 10, 20, 20), ((20, 15), (30, 12), (30, 18))),
        "cut in two": (box(40, 0, 42, 100),),
        "courtyard": (
            *(box(20, 20, 80, 24), box(20, 76, 80, 80), box(20, 20, 24, 80)),
            box(76, 20, 80, 80),
        ),
        "checkers": tuple(
            box(10 * i, 10 * j, 10 * i + 10, 10 * j + 10)
            for i in range(1, 9)
            for j in range(1, 9)
            if (i + j) % 2
        ),
        "slanted cut": (((0, 0.1), (99.9, 100), (99, 100), (0, 1)),),
        "stars": stars(1, 12),
        "more stars": stars(2, 30),
        "empty": (),
    }
    if name in hard:
        made = Map(name, 100, 100, hard[name])
        return made, Tiles(made, side_max_m=17)
    if name == "small town":
        made = generate("town", np.random.default_rng(3), 400, 300)
        return made, Tiles(made, side_max_m=30)
    made = load_map(name)
    return made, Tiles(made)


HARD = (
    *("corners touch", "sides touch", "at the border", "corner on side", "cut in two"),
    *("courtyard", "checkers", "slanted cut", "stars", "more stars", "empty"),
)
EXAMPLES = (*HARD, "small town", "arena", "maze", "ward")


@pytest.mark.parametrize("name", EXAMPLES)
def test_tiles_cover_the_free_space_and_nothing_else(name: str) -> None:
    made, tiles = example(name)
    polygons = shapely.polygons(tiles.triangles)
    free = made.free_space.area
    assert tiles.areas.sum() == pytest.approx(free, rel=1e-12)
    assert shapely.union_all(polygons).area == pytest.approx(free, rel=1e-9)
    walls = made.walls
    shapely.prepare(walls)
    assert shapely.area(shapely.intersection(polygons, walls)).max() < 1e-9


@pytest.mark.parametrize("name", EXAMPLES)
def test_neighbours_are_mutual_and_share_a_side(name: str) -> None:
    _, tiles = example(name)
    corners = [[tuple(point) for point in each] for each in tiles.triangles.tolist()]
    owners: dict[frozenset[tuple[float, ...]], list[tuple[int, int]]] = {}
    for number, points in enumerate(corners):
        for first in range(3):
            ends = frozenset((points[first], points[(first + 1) % 3]))
            owners.setdefault(ends, []).append((number, first))
    for sharing in owners.values():
        assert len(sharing) <= 2
        for (one, first), (other, _) in zip(sharing, reversed(sharing), strict=True):
            assert tiles.neighbours[one, first] == (other if len(sharing) == 2 else -1)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_side_without_neighbour_is_a_wall(name: str) -> None:
    """Were there a gap between two tiles, a way through would be missed."""
    made, tiles = example(name)
    number, first = np.nonzero(tiles.neighbours < 0)
    a, b = tiles.triangles[number, first], tiles.triangles[number, (first + 1) % 3]
    middles = shapely.points((a + b) / 2)
    assert shapely.distance(made.free_space.boundary, middles).max() < 1e-9


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_side_is_longer_than_allowed(name: str) -> None:
    _, tiles = example(name)
    sides = np.linalg.norm(tiles.triangles - np.roll(tiles.triangles, -1, axis=1), axis=2)
    allowed = 17 if name in HARD else 30 if name == "small town" else 50
    assert sides.max() <= allowed
    assert len(tiles) == len(tiles.triangles) == len(tiles.neighbours) == len(tiles.part)


@pytest.mark.parametrize(
    ("name", "parts"),
    [("cut in two", 2), ("courtyard", 2), ("slanted cut", 2), ("checkers", 19), ("ward", 1)],
)
def test_parts_are_those_of_the_free_space(name: str, parts: int) -> None:
    made, tiles = example(name)
    expected = sorted(each.area for each in shapely.get_parts(made.free_space))
    assert len(expected) == parts
    found = np.bincount(tiles.part, weights=tiles.areas)
    assert sorted(found.tolist()) == pytest.approx(expected)


# -- tile_at --------------------------------------------------------------------------------


def slow_tile_at(triangles: Floats, x: float, y: float) -> int:
    """Fractions, every triangle, the lowest number; where there is none, shapely tells how far."""
    px, py = Fraction(x), Fraction(y)
    near = np.flatnonzero(
        np.all(triangles.min(axis=1) <= (x, y), axis=1)
        & np.all(triangles.max(axis=1) >= (x, y), axis=1)
    )
    for number in near.tolist():
        points = [(Fraction(u), Fraction(v)) for u, v in triangles[number].tolist()]
        turns = [
            (bx - ax) * (py - ay) - (by - ay) * (px - ax)
            for (ax, ay), (bx, by) in zip(points, points[1:] + points[:1], strict=True)
        ]
        if min(turns) >= 0:
            return number
    grazed = np.flatnonzero(
        shapely.distance(shapely.polygons(triangles), shapely.Point(x, y)) <= GRAZE_M
    )
    return int(grazed[0]) if len(grazed) else -1


def questions(tiles: Tiles, seed: int) -> Floats:
    """Points anywhere, on corners, in the middle of sides, and some bits beside them."""
    rng = np.random.default_rng(seed)
    low, high = tiles.triangles.min(axis=(0, 1)), tiles.triangles.max(axis=(0, 1))
    anywhere = rng.uniform(low - 1, high + 1, (150, 2))
    some = tiles.triangles[rng.integers(len(tiles), size=80)]
    corners = some[:, 0]
    middles = (some[:, 0] + some[:, 1]) / 2
    share = rng.uniform(size=(80, 1))
    along = some[:, 1] + share * (some[:, 2] - some[:, 1])
    beside = corners + rng.integers(-2, 3, (80, 2)) * np.spacing(corners)
    grazing = middles + rng.uniform(-2 * GRAZE_M, 2 * GRAZE_M, (80, 2))
    return np.concatenate([anywhere, corners, middles, along, beside, grazing])


@pytest.mark.parametrize("name", EXAMPLES)
def test_tile_at_is_what_a_slow_search_finds(name: str) -> None:
    _, tiles = example(name)
    points = questions(tiles, seed=7)
    found = tiles.tile_at(points[:, 0], points[:, 1])
    assert found.dtype == np.int32
    assert found.tolist() == [slow_tile_at(tiles.triangles, x, y) for x, y in points.tolist()]


def test_walls_and_the_outside_have_no_tile() -> None:
    _, tiles = example("cut in two")
    x = np.array([41.0, 41.9989, 41.9995, 50.0, -0.01, 100.002, 50.0, np.inf, np.nan, -1e300])
    y = np.array([50.0, 50.0, 50.0, 50.0, 50.0, 50.0, 1e9, 50.0, 50.0, 50.0])
    is_somewhere = (tiles.tile_at(x, y) >= 0).tolist()
    assert is_somewhere == [False, False, True, True, *6 * [False]]


def test_nobody_asks() -> None:
    _, tiles = example("stars")
    nobody = np.empty(0)
    assert tiles.tile_at(nobody, nobody).tolist() == []
    starts, found = tiles.in_rectangles(nobody, nobody, 3, 3)
    assert starts.tolist() == [0]
    assert found.tolist() == []


# -- in_rectangles ----------------------------------------------------------------------------


def rectangles(tiles: Tiles, seed: int) -> tuple[Floats, Floats, Floats, Floats]:
    """x, y and reaches: of all sizes, also none, and with borders through corners of tiles."""
    rng = np.random.default_rng(seed)
    centres = questions(tiles, seed)
    rng.shuffle(centres)
    centres = centres[:120]
    reach = rng.uniform(0, 40, (120, 2)) * rng.integers(0, 2, (120, 2))
    corners = tiles.triangles[rng.integers(len(tiles), size=40), 0]
    reach[:40] = np.abs(np.round(corners) - centres[:40])
    centres[:40] = np.round(centres[:40])
    return centres[:, 0], centres[:, 1], reach[:, 0], reach[:, 1]


@pytest.mark.parametrize("name", EXAMPLES)
def test_in_rectangles_is_what_shapely_finds(name: str) -> None:
    _, tiles = example(name)
    x, y, reach_x, reach_y = rectangles(tiles, seed=8)
    starts, found = tiles.in_rectangles(x, y, reach_x, reach_y)
    assert starts.dtype == np.int64
    assert found.dtype == np.int32
    polygons = shapely.polygons(tiles.triangles)
    for number in range(len(x)):
        asked = shapely_box(
            x[number] - reach_x[number],
            y[number] - reach_y[number],
            x[number] + reach_x[number],
            y[number] + reach_y[number],
        )
        expected = np.flatnonzero(shapely.intersects(polygons, asked))
        assert found[starts[number] : starts[number + 1]].tolist() == expected.tolist()


def shapely_box(left: float, bottom: float, right: float, top: float) -> Any:
    """Also a rectangle without width or height, which shapely takes for invalid."""
    if left == right and bottom == top:
        return shapely.Point(left, bottom)
    if left == right or bottom == top:
        return shapely.LineString([(left, bottom), (right, top)])
    return shapely.box(left, bottom, right, top)


def test_who_is_in_a_rectangle_is_in_one_of_its_tiles() -> None:
    """What the tile engine stands on: no object in sight lies in a tile that was not asked for."""
    _, tiles = example("small town")
    rng = np.random.default_rng(9)
    x, y = rng.uniform(0, 400, 200), rng.uniform(0, 300, 200)
    starts, found = tiles.in_rectangles(x, y, 30, 20)
    for number in range(len(x)):
        # Closed rectangles: also what lies on the border, to the last bit.
        inside_x = np.append(rng.uniform(x[number] - 30, x[number] + 30, 20), x[number] + 30)
        inside_y = np.append(rng.uniform(y[number] - 20, y[number] + 20, 20), y[number] - 20)
        theirs = tiles.tile_at(inside_x, inside_y)
        asked = found[starts[number] : starts[number + 1]]
        assert np.isin(theirs[theirs >= 0], asked).all()


# -- the rest -------------------------------------------------------------------------------


def test_the_same_map_is_cut_in_the_same_way() -> None:
    made, tiles = example("more stars")
    again = Tiles(made, side_max_m=17)
    assert tiles.triangles.tobytes() == again.triangles.tobytes()
    assert tiles.neighbours.tobytes() == again.neighbours.tobytes()


def test_the_shipped_town_has_about_two_thousand_tiles() -> None:
    _, tiles = example("town")
    assert 1500 <= len(tiles) <= 2500
    a, b, c = (np.roll(tiles.triangles, -turn, axis=1) for turn in range(3))
    one, other = b - a, c - a
    cosines = np.einsum("ncd,ncd->nc", one, other)
    cosines /= np.linalg.norm(one, axis=2) * np.linalg.norm(other, axis=2)
    least = np.degrees(np.arccos(cosines)).min(axis=1)
    assert np.median(least) > 30


@pytest.mark.parametrize("side_max_m", [0.0, -1.0, float("nan")])
def test_a_size_that_is_none_is_refused(side_max_m: float) -> None:
    with pytest.raises(WorldError, match="side_max_m is"):
        Tiles(load_map("arena"), side_max_m=side_max_m)


def test_a_gap_too_small_for_a_triangle_is_refused() -> None:
    """Two slanted walls a few bits apart: halved, the tiles between would have no inside."""
    rng = np.random.default_rng(0)
    a, b = rng.uniform(5, 95, (2, 2))
    across = np.array([a[1] - b[1], b[0] - a[0]]) / np.linalg.norm(b - a)
    one, other = (a + b) / 2 + 4 * across, (a + b) / 2 - 4 * across
    gap = 1e-14 * across
    walls = np.array([[a + gap, b + gap, one], [b, a, other]]).tolist()
    with pytest.raises(WorldError, match=r"map gap: near \(.*\) obstacles come so close that no"):
        Tiles(Map("gap", 100, 100, tuple(tuple(map(tuple, each)) for each in walls)), side_max_m=7)


def test_a_grid_over_nothing_finds_nothing() -> None:
    grid = grid_over(np.empty((0, 3, 2)))
    assert grid.members.tolist() == []
    assert neighbours_of(np.empty((0, 3), np.int64)).shape == (0, 3)
