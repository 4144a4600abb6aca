"""Where one is, what is nearest, and how a search ends; the ways themselves: `test_paths`."""

from __future__ import annotations

import math

import numpy as np
import pytest
import shapely  # type: ignore[import-untyped]

from rove.world.map.maps import GRAZE_M, load_map
from rove.world.map.path_kernels import (
    FOUND,
    NO_MEMORY,
    NO_WAY,
    find_way,
    nearest_in_part,
    tiles_around,
)
from rove.world.map.paths import bends_of
from rove.world.map.tiles import Tiles
from rove.world.runs.state import Floats

TILES = Tiles(load_map("ward"))


def asked(journey: tuple[float, float, float, float], nodes: int) -> tuple[int, Floats]:
    """A search with memory for some nodes only."""
    ended, way = find_way(
        TILES.triangles,
        TILES.neighbours,
        bends_of(TILES),
        TILES.part,
        *TILES.grid,
        *(np.empty((nodes, 7)), np.empty((nodes, 6), np.int64)),
        *(np.empty(3 * len(TILES)), np.zeros(3 * len(TILES), np.int64)),
        np.zeros(len(TILES), np.int64),
        *(np.empty(nodes), np.empty(nodes, np.int64)),
        *journey,
        GRAZE_M,
        1,
    )
    return ended, way


def test_a_search_ends_in_one_of_three_ways() -> None:
    there, back = load_map("ward").places["bed1"], load_map("ward").places["bed26"]
    ended, way = asked((*there, *back), 5000)
    assert ended == FOUND
    assert way[-1].tolist() == list(back)
    assert asked((*there, 26.5, 6.5), 5000)[0] == NO_WAY
    for nodes in (13, 14, 20, 40):
        assert asked((*there, *back), nodes)[0] == NO_MEMORY


def test_all_tiles_around_a_corner_are_found() -> None:
    rng = np.random.default_rng(1)
    for x, y in TILES.triangles[rng.integers(len(TILES), size=30), 0].tolist():
        expected = np.flatnonzero((TILES.triangles == (x, y)).all(axis=2).any(axis=1)).tolist()
        assert set(expected) <= set(
            tiles_around(TILES.triangles, *TILES.grid, x, y, GRAZE_M).tolist()
        )


def test_who_grazes_a_wall_is_beside_it_and_who_is_deeper_in_is_not() -> None:
    for y, is_there in ((18.0005, True), (18.0011, False), (18.1, False), (17.9, True)):
        found = tiles_around(TILES.triangles, *TILES.grid, 1.0, y, GRAZE_M)
        assert (len(found) > 0) == is_there


def test_the_nearest_point_is_on_the_border_of_the_free_space() -> None:
    free = load_map("ward").free_space
    for x, y in ((26.5, 6.5), (-3.0, 5.0), (70.0, 40.0), (1.9, 1.0)):
        near = nearest_in_part(TILES.triangles, TILES.part, 0, x, y)
        assert math.dist(near, (x, y)) == pytest.approx(shapely.Point(x, y).distance(free))
