"""A map cut into triangles that never cross a wall: what paths run over, and topics stand for.

Walls are sides of triangles, so who walks from triangle to triangle walks around walls, and a topic
for each triangle is about a piece of ground that is not cut in two. Squares were considered: they
are simpler, but a square may lie on both sides of a wall.

GEOS cuts the free space into a constrained Delaunay triangulation, whose corners are those of the
obstacles and none else. Where triangles are too large for topics, their longest sides are halved
until none is longer than `side_max_m`. A side is halved only when it is the longest of both its
triangles, all such sides in one go, so triangles always fit side to side. After each round sides
are turned until the triangulation is Delaunay again; without this, thin triangles remain along
every long bare wall, twice as many tiles in the shipped town.

Numbers go through the map row by row, about, so that near tiles have near numbers.

Cost: the shipped town (1 km², 1,844 tiles) is cut in 40 ms. GEOS needs time with the square of the
number of obstacles: 5 km x 5 km of town with 4,600 houses (44,000 tiles) take 2 s.
"""

from __future__ import annotations

import itertools
from typing import Any, Final, NamedTuple

import numpy as np
import shapely  # type: ignore[import-untyped]

from rove.world.map.maps import GRAZE_M, Map
from rove.world.map.tile_kernels import (
    are_counterclockwise,
    cells_of,
    make_round,
    parts_of,
    tiles_of_points,
    tiles_of_rectangles,
)
from rove.world.runs.state import Floats, Ints, Longs, WorldError

SIDE_MAX_M: Final = 50.0
_CELLS_PER_TRIANGLE: Final = 2.0
_CELLS_ALONG_MAX: Final = 4096
_ROUNDS_ROUND: Final = 60
"""Halving alone comes to an end, and making round helps it to; this makes it certain."""


class Grid(NamedTuple):
    """Square cells over triangles, and the triangles that touch each cell."""

    left: float
    bottom: float
    cell_m: float
    columns: int
    rows: int
    starts: Longs
    """Where the list of a cell starts, cells row by row."""
    members: Ints


class Tiles:
    """The triangles of a map."""

    def __init__(self, map_: Map, *, side_max_m: float = SIDE_MAX_M) -> None:
        if not side_max_m > 0:
            raise WorldError(f"side_max_m is {side_max_m}; sides of triangles are longer than 0 m")
        points, corners = _halved(*_welded(triangulated(map_.free_space)), side_max_m)
        corners = corners[_order(points[corners].mean(axis=1), side_max_m)]
        self.triangles: Floats = np.ascontiguousarray(points[corners])
        """(n, 3, 2): the corners of each, counterclockwise."""
        self.corners: Ints = corners.astype(np.int32)
        """(n, 3): numbers for the corners, the same for those in the same place."""
        self.neighbours = neighbours_of(corners)
        """(n, 3): who lies beyond the side from a corner to the next; -1 where a wall is."""
        _refuse_slivers(map_, self.triangles)
        self.areas = areas_of(self.triangles)
        self.part = parts_of(self.neighbours)
        """Which connected part of the free space each lies in."""
        self.grid = grid_over(self.triangles)

    def __len__(self) -> int:
        return len(self.triangles)

    def tile_at(self, x: Floats, y: Floats) -> Ints:
        """The tile of each point: of several the lowest number, -1 in a wall or off the map.

        What reaches less than a millimetre into a wall still counts as beside it.
        """
        tiles: Ints = tiles_of_points(
            self.triangles, *self.grid, column_of(x), column_of(y), GRAZE_M
        )
        return tiles

    def in_rectangles(
        self, x: Floats, y: Floats, reach_x: Floats | float, reach_y: Floats | float
    ) -> tuple[Longs, Ints]:
        """The tiles that touch the closed rectangle around each point.

        Those of number i are `tiles[starts[i]:starts[i + 1]]`, ascending.
        """
        starts, tiles = tiles_of_rectangles(
            self.triangles,
            *self.grid,
            column_of(x - reach_x),
            column_of(y - reach_y),
            column_of(x + reach_x),
            column_of(y + reach_y),
        )
        return starts, tiles


def column_of(values: Floats) -> Floats:
    return np.ascontiguousarray(values, np.float64)


# -- cutting ------------------------------------------------------------------------------


def triangulated(area: shapely.Geometry) -> Floats:
    """An area cut into triangles between its own corners: (n, 3, 2), counterclockwise."""
    parts = shapely.get_parts(shapely.constrained_delaunay_triangles(area))
    triangles = shapely.get_coordinates(parts).reshape(-1, 4, 2)[:, :3]
    clockwise = ~are_counterclockwise(np.ascontiguousarray(triangles))
    triangles[clockwise] = triangles[clockwise, ::-1]
    return np.ascontiguousarray(triangles)


def _welded(triangles: Floats) -> tuple[Floats, Longs]:
    """The different corners, and of each triangle the numbers of its three."""
    points, numbers = np.unique(triangles.reshape(-1, 2), axis=0, return_inverse=True)
    return points, numbers.reshape(-1, 3).astype(np.int64)


class _Sides(NamedTuple):
    """The different sides of triangles, each once for the two that share it."""

    ends: Longs
    """(m, 2): the numbers of the corners, the lower first."""
    of: Longs
    """(n, 3): the side from each corner of a triangle to the next."""


def _sides(corners: Longs) -> _Sides:
    ends = np.stack([corners, np.roll(corners, -1, axis=1)], axis=2).reshape(-1, 2)
    ends.sort(axis=1)
    keys = ends[:, 0] * (corners.max(initial=0) + 1) + ends[:, 1]
    _, first, numbers = np.unique(keys, return_index=True, return_inverse=True)
    return _Sides(ends[first], numbers.reshape(-1, 3))


def _halved(points: Floats, corners: Longs, side_max_m: float) -> tuple[Floats, Longs]:
    """Triangles whose sides are no longer than a maximum."""
    for rounds in itertools.count():
        if rounds < _ROUNDS_ROUND:
            make_round(points, corners, neighbours_of(corners))
        sides = _sides(corners)
        lengths = np.linalg.norm(points[sides.ends[:, 0]] - points[sides.ends[:, 1]], axis=1)
        if not np.any(lengths > side_max_m):
            break
        # By rank rather than by length: of two that are as long, all agree which is longer.
        rank = np.empty(len(lengths), np.int64)
        rank[np.argsort(lengths, kind="stable")] = np.arange(len(lengths))
        longest = np.argmax(rank[sides.of], axis=1)
        chosen = sides.of[np.arange(len(corners)), longest]
        asking = np.bincount(chosen, minlength=len(lengths))
        sharing = np.bincount(sides.of.reshape(-1), minlength=len(lengths))
        is_halved = (lengths > side_max_m) & (asking == sharing)
        middle = np.cumsum(is_halved) - 1 + len(points)
        ends = points[sides.ends[is_halved]]
        points = np.concatenate([points, ends[:, 0] + (ends[:, 1] - ends[:, 0]) / 2])
        cut = is_halved[chosen]
        halves = _split(corners[cut], longest[cut], middle[chosen[cut]])
        corners = np.concatenate([corners[~cut], halves])
    return points, corners


def _split(corners: Longs, longest: Longs, middle: Longs) -> Longs:
    """Both halves of triangles, each cut from the middle of a side to the opposite corner."""
    each = np.arange(len(corners))
    a, b = corners[each, longest], corners[each, (longest + 1) % 3]
    top = corners[each, (longest + 2) % 3]
    return np.concatenate([np.stack([a, middle, top], 1), np.stack([middle, b, top], 1)])


def _order(centres: Floats, stripe_m: float) -> Longs:
    """Upwards in stripes from left to right."""
    stripe = np.floor(centres[:, 1] / stripe_m)
    return np.lexsort((centres[:, 1], centres[:, 0], stripe))


def neighbours_of(corners: Longs) -> Ints:
    """The triangle beyond each side, -1 if there is none."""
    of = _sides(corners).of.reshape(-1)
    order = np.argsort(of, kind="stable")
    shared = np.flatnonzero(of[order][1:] == of[order][:-1])
    one, other = order[shared], order[shared + 1]
    neighbours = np.full(len(of), -1, np.int32)
    neighbours[one], neighbours[other] = other // 3, one // 3
    return neighbours.reshape(-1, 3)


def areas_of(triangles: Floats) -> Floats:
    one, other = triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]
    areas: Floats = (one[:, 0] * other[:, 1] - one[:, 1] * other[:, 0]) / 2
    return areas


def _refuse_slivers(map_: Map, triangles: Floats) -> None:
    for number in np.flatnonzero(~are_counterclockwise(triangles))[:1]:
        x, y = triangles[number, 0]
        raise WorldError(
            f"map {map_.name}: near ({x:g}, {y:g}) obstacles come so close that no triangle fits"
            " between them; let them touch or leave a millimetre"
        )


# -- finding ------------------------------------------------------------------------------


def grid_over(triangles: Floats) -> Grid:
    """A grid with about two cells to a triangle."""
    if not len(triangles):
        return Grid(0.0, 0.0, 1.0, 1, 1, np.zeros(2, np.int64), np.empty(0, np.int32))
    low = triangles.min(axis=(0, 1)) - GRAZE_M
    width, height = triangles.max(axis=(0, 1)) + GRAZE_M - low
    cell_m = float(np.sqrt(width * height / (_CELLS_PER_TRIANGLE * len(triangles))))
    cell_m = max(cell_m, float(max(width, height)) / _CELLS_ALONG_MAX)
    columns, rows = int(width // cell_m) + 1, int(height // cell_m) + 1
    frame: tuple[Any, ...] = (float(low[0]), float(low[1]), cell_m, columns, rows)
    # Twice, so that rounding where cells meet hides nobody.
    return Grid(*frame, *cells_of(triangles, *frame, 2 * GRAZE_M))
