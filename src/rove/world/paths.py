"""Ways around walls, and points to go to.

A way is found over the triangles of `rove.world.tiles` and bends only at corners of walls. It is
the shortest of its corridor; the corridor is the best by an estimate, so a shorter way on the other
side of a house may be missed. Exact shortest ways need a graph of all corners that see each other,
which for a town has a hundred thousand edges and must be built anew for every map.

Cost, one core: 40 µs for a way across the shipped town, 10 µs over open ground, 1 ms across 5 km of
town; see `tests/world/test_paths.py` for how much longer than the shortest they are.
"""

from __future__ import annotations

import numpy as np

from rove.world.maps import GRAZE_M
from rove.world.path_kernels import find_way, nearest_in_part, tiles_around
from rove.world.state import Floats, WorldError
from rove.world.tiles import Tiles


class Paths:
    """Finds ways over the tiles of a map."""

    def __init__(self, tiles: Tiles) -> None:
        self._tiles = tiles
        count = len(tiles)
        sizes = np.bincount(tiles.part, weights=tiles.areas)
        self.main_part = int(np.argmax(sizes))
        """The largest connected part of the free space: where inhabitants live."""
        self._main = np.flatnonzero(tiles.part == self.main_part)
        self._areas_so_far = np.cumsum(tiles.areas[self._main])
        self._searches = 0
        self._seen = np.zeros(count, np.int64)
        self._came_from = np.empty(count, np.int32)
        self._crossings = np.empty((count, 3))
        # A tile waits at most once for each of its sides, and the first ones once more.
        self._heap = np.empty(4 * count), np.empty(4 * count, np.int32)

    def path(self, x0: float, y0: float, x1: float, y1: float) -> Floats | None:
        """The points of a way from one point to another, without the first; None if there is none.

        There is none from or to a wall, or between parts that do not hang together.
        """
        self._searches += 1
        way: Floats = find_way(
            self._tiles.triangles,
            self._tiles.neighbours,
            self._tiles.part,
            *self._tiles.grid,
            self._seen,
            self._came_from,
            self._crossings,
            *self._heap,
            *(float(x0), float(y0), float(x1), float(y1)),
            GRAZE_M,
            self._searches,
        )
        return way if len(way) else None

    def free_points(self, rng: np.random.Generator, count: int) -> tuple[Floats, Floats]:
        """Points drawn evenly from the largest connected part of the free space: x and y."""
        draws = rng.random((count, 3))
        drawn = np.searchsorted(self._areas_so_far, draws[:, 0] * self._areas_so_far[-1], "right")
        corners = self._tiles.triangles[self._main[np.minimum(drawn, len(self._main) - 1)]]
        # The root makes up for a triangle being narrow at its first corner.
        down, across = np.sqrt(draws[:, 1]), draws[:, 2]
        shares = np.stack([1 - down, down * (1 - across), down * across], axis=1)
        points = np.einsum("pc,pcd->pd", shares, corners)
        return points[:, 0].copy(), points[:, 1].copy()

    def nearest_free(self, x: float, y: float) -> tuple[float, float]:
        """The nearest point of the largest connected part: the point itself where it is in it."""
        if not (np.isfinite(x) and np.isfinite(y)):
            raise WorldError(f"({x}, {y}) is no point; give metres")
        around = tiles_around(self._tiles.triangles, *self._tiles.grid, float(x), float(y), GRAZE_M)
        if np.any(self._tiles.part[around] == self.main_part):
            return x, y
        near_x, near_y = nearest_in_part(
            self._tiles.triangles, self._tiles.part, self.main_part, float(x), float(y)
        )
        return near_x, near_y
