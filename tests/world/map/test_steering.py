"""Straight ahead until there is a wall."""

import math

import numpy as np
import pytest
import shapely  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from rove.world.map.maps import Map
from rove.world.map.steering import CLEARANCE_M, straight_ahead
from rove.world.map.tiles import Tiles
from rove.world.runs.state import WorldError

YARD = Map(
    "yard",
    100,
    80,
    (
        ((20, 20), (40, 20), (40, 50), (20, 50)),
        ((60, 0), (62, 0), (62, 60), (60, 60)),
        ((70, 70), (90, 60), (85, 75)),
    ),
)
TILES = Tiles(YARD, side_max_m=12)
A_LITTLE_MORE, A_LITTLE_LESS = YARD.free_space.buffer(1e-6), YARD.free_space.buffer(-1e-6)


@pytest.mark.parametrize(
    ("start", "direction", "end"),
    [
        ((10, 10), (1, 0), (60 - CLEARANCE_M, 10)),
        ((10, 10), (5, 0), (60 - CLEARANCE_M, 10)),
        ((10, 30), (1, 0), (20 - CLEARANCE_M, 30)),
        ((10, 30), (-1, 0), (CLEARANCE_M, 30)),
        ((10, 10), (0, 1), (10, 80 - CLEARANCE_M)),
        ((50, 30), (0, -1), (50, CLEARANCE_M)),
        # Along a wall and past its corner.
        ((10, 20), (1, 0), (60 - CLEARANCE_M, 20)),
        ((40, 60), (0, -1), (40, CLEARANCE_M)),
        # Against the wall that it stands at.
        ((20, 30), (1, 0), (20, 30)),
        ((0, 0), (-1, -1), (0, 0)),
    ],
)
def test_where_it_ends(
    start: tuple[float, float], direction: tuple[float, float], end: tuple[float, float]
) -> None:
    assert straight_ahead(TILES, *start, *direction) == pytest.approx(end, abs=1e-6)


@pytest.mark.parametrize("direction", [(0.0, 0.0), (math.inf, 0.0), (math.nan, 1.0)])
def test_a_direction_is_needed(direction: tuple[float, float]) -> None:
    with pytest.raises(WorldError, match="is no direction"):
        straight_ahead(TILES, 10, 10, *direction)


@given(st.integers(0, 100), st.integers(0, 80), st.integers(-9, 9), st.integers(-9, 9))
def test_as_a_geometer_would_draw_it(x: int, y: int, dx: int, dy: int) -> None:
    """Corners and sides included: whole numbers meet them often."""
    inside = shapely.intersects_xy(YARD.free_space, x, y)
    if not inside or dx == dy == 0:
        return
    end = straight_ahead(TILES, x, y, dx, dy)
    way = shapely.LineString([(x, y), end])
    assert A_LITTLE_MORE.covers(way)
    # A little farther there is a wall, or the corner of one that was touched.
    length = math.hypot(dx, dy)
    beyond = (end[0] + dx / length * 0.06, end[1] + dy / length * 0.06)
    assert not A_LITTLE_LESS.covers(shapely.LineString([(x, y), beyond]))


def test_from_inside_a_wall_it_goes_nowhere() -> None:
    assert straight_ahead(TILES, 30.0, 30.0, 1, 0) == (30.0, 30.0)
    assert TILES.tile_at(np.array([30.0]), np.array([30.0]))[0] == -1
