"""Ways around walls, points to go to, and how far one can walk straight ahead.

A way is found over the triangles of `rove.world.map.tiles`. It bends only at corners of walls, and
is the shortest there is, to within the `EXCESS_MAX` of `rove.world.map.path_kernels`.

A player who steers by keys walks until the key is released or there is a wall. That is one leg up
to the wall, stopped at the release, not a step for each tick: so the movement of players suits
evolving subscriptions as well as that of NPCs. The line goes from tile to tile, some microseconds
for each.

Cost, one core: 80 µs for a way across the shipped town, 50 µs across the open plain, 0.6 ms
across 5 km of town; 80 µs for the nearest free point in the shipped town (it looks at all tiles).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rove.world.map.maps import GRAZE_M
from rove.world.map.path_kernels import FOUND, NO_MEMORY, find_way, nearest_in_part, tiles_around
from rove.world.map.tiles import Tiles
from rove.world.runs.state import Floats, Longs, WorldError

_STRAIGHT_MIN: Final = 1e-9
"""Radians: the middle of a slanted wall is a corner only by rounding."""


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
        self._bends = bends_of(tiles)
        self._best = np.empty(3 * count), np.zeros(3 * count, np.int64)
        self._is_goal = np.zeros(count, np.int64)
        self._set_aside(2 * count + 1000)

    def _set_aside(self, nodes: int) -> None:
        """Memory for a search. How much one needs is not known before."""
        self._nodes = np.empty((nodes, 7)), np.empty((nodes, 6), np.int64)
        self._heap = np.empty(nodes), np.empty(nodes, np.int64)

    def path(self, x0: float, y0: float, x1: float, y1: float) -> Floats | None:
        """The points of a short way from one point to another, without the first.

        None if there is no way: from or to a wall, or between parts that do not hang together.
        """
        ended = NO_MEMORY
        while ended == NO_MEMORY:
            self._searches += 1
            ended, way = find_way(
                self._tiles.triangles,
                self._tiles.neighbours,
                self._bends,
                self._tiles.part,
                *self._tiles.grid,
                *self._nodes,
                *self._best,
                self._is_goal,
                *self._heap,
                *(float(x0), float(y0), float(x1), float(y1)),
                GRAZE_M,
                self._searches,
            )
            if ended == NO_MEMORY:
                self._set_aside(2 * len(self._heap[0]))
        return way if ended == FOUND else None

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


def bends_of(tiles: Tiles) -> Longs:
    """The number of the corner of a wall at each corner of each tile; -1 where no way can bend.

    A way bends where there is more than half a turn of free ground around a point, but not all.
    """
    before, after = (np.roll(tiles.triangles, step, axis=1) - tiles.triangles for step in (1, -1))
    across = after[..., 0] * before[..., 1] - after[..., 1] * before[..., 0]
    angles = np.arctan2(across, (after * before).sum(axis=2))
    around = np.bincount(tiles.corners.reshape(-1), weights=angles.reshape(-1))
    is_corner = np.zeros(len(around), bool)
    at_wall = tiles.neighbours < 0
    is_corner[tiles.corners[at_wall]] = True
    is_corner[np.roll(tiles.corners, -1, axis=1)[at_wall]] = True
    is_corner &= around > np.pi + _STRAIGHT_MIN
    return np.where(is_corner[tiles.corners], tiles.corners, -1).astype(np.int64)


CLEARANCE_M: Final = 0.05
"""Who walks against a wall stops so far before it."""
_SAME_M: Final = 1e-9


def straight_ahead(tiles: Tiles, x: float, y: float, dx: float, dy: float) -> tuple[float, float]:
    """The last point before a wall, from a point in a direction."""
    length = float(np.sqrt(dx * dx + dy * dy))
    if not 0 < length < np.inf:
        raise WorldError(f"{dx:g} {dy:g} is no direction; write for example 1 0 for the right")
    dx, dy = dx / length, dy / length
    start = int(tiles.tile_at(np.array([x]), np.array([y]))[0])
    farthest = 0.0
    # Through a corner the line may go on in either of two tiles, and one of them may end there.
    waiting = [(0.0, start)] if start >= 0 else []
    seen = {start}
    while waiting:
        metres, tile = waiting.pop()
        metres, beyond = _exits(tiles, tile, x, y, dx, dy, metres)
        farthest = max(farthest, metres)
        waiting += [(metres, each) for each in beyond if each not in seen]
        seen.update(beyond)
    metres = max(0.0, farthest - CLEARANCE_M)
    return x + dx * metres, y + dy * metres


def _exits(
    tiles: Tiles, tile: int, x: float, y: float, dx: float, dy: float, metres: float
) -> tuple[float, list[int]]:
    """After how many metres the line leaves a tile, and where to: nowhere if there is a wall."""
    corners = tiles.triangles[tile].tolist()
    found = []
    for side, (ax, ay) in enumerate(corners):
        bx, by = corners[(side + 1) % 3]
        # Sides run counterclockwise, so this is how fast the line leaves through this one.
        out = dx * (by - ay) - dy * (bx - ax)
        if out > 0:
            at = ((ax - x) * (by - ay) - (ay - y) * (bx - ax)) / out
            found.append((max(at, metres), int(tiles.neighbours[tile, side])))
    first = min(at for at, _ in found)
    return first, [each for at, each in found if each >= 0 and at <= first + _SAME_M]
