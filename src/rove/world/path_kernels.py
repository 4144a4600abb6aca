# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""The compiled part of path finding: A* from triangle to triangle, then the string is pulled.

Where a side is crossed is not known while searching. The middle of the side is the usual guess, and
bends every way over open ground; here it is the point that makes the way from where one came over
this side to the goal the shortest, so that over open ground the search goes straight ahead.

The triangles found are a corridor. A string through it, pulled tight (the funnel algorithm of Lee
and Preparata), bends only at corners of walls, and by the exact test of `rove.world.tile_kernels`
it never cuts one.

A search marks what it has seen with its own number, so nothing is cleared between searches.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numba import njit, types

from rove.world.tile_kernels import (
    cell_along,
    holds,
    is_grazed,
    nearest_on_side,
    nearest_on_triangle,
    side,
)

_i4, _i8, _f8 = types.int32, types.int64, types.float64
_numbers, _words, _longs = (types.Array(each, 1, "C") for each in (_f8, _i4, _i8))
_triangles, _points = types.Array(_f8, 3, "C"), types.Array(_f8, 2, "C")
_neighbours = types.Array(_i4, 2, "C")
_grid = (_f8, _f8, _f8, _i8, _i8, _longs, _words)
_options = {"cache": True, "nogil": True, "error_model": "numpy"}

_BEND_MIN_M: Final = 1e-6
"""A smaller bend is rounding: the halved sides of a slanted wall are not quite in line."""

# -- where one is -------------------------------------------------------------------------


@njit(_words(_triangles, *_grid, _f8, _f8, _f8), **_options)
def tiles_around(
    triangles: Any,
    left: float,
    bottom: float,
    cell_m: float,
    columns: int,
    rows: int,
    starts: Any,
    members: Any,
    x: float,
    y: float,
    graze_m: float,
) -> Any:
    """All triangles that hold a point, else all that it grazes."""
    cell = cell_along(y, bottom, cell_m, rows) * columns + cell_along(x, left, cell_m, columns)
    found = np.empty(starts[cell + 1] - starts[cell], np.int32)
    count = 0
    for grazing in (False, True):
        for place in range(starts[cell], starts[cell + 1]):
            tile = members[place]
            if grazing:
                is_there = is_grazed(triangles, tile, x, y, graze_m)
            else:
                is_there = holds(triangles, tile, x, y)
            if is_there:
                found[count] = tile
                count += 1
        if count:
            break
    return found[:count]


@njit(types.UniTuple(_f8, 2)(_triangles, _words, _i8, _f8, _f8), **_options)
def nearest_in_part(triangles: Any, part: Any, wanted: int, x: float, y: float) -> Any:
    """The point of a connected part of the free space that is nearest to a point outside it."""
    best_x, best_y, best = math.nan, math.nan, math.inf
    for tile in range(len(triangles)):
        if part[tile] == wanted:
            near_x, near_y = nearest_on_triangle(triangles, tile, x, y)
            away = math.hypot(near_x - x, near_y - y)
            if away < best:
                best_x, best_y, best = near_x, near_y, away
    return best_x, best_y


# -- a heap of (estimate, tile) -------------------------------------------------------------


@njit(**_options)
def _push(estimates: Any, tiles: Any, count: int, estimate: float, tile: int) -> int:
    """Put a tile on a heap; how many there are now."""
    place = count
    while place > 0:
        above = (place - 1) >> 1
        if estimates[above] <= estimate:
            break
        estimates[place], tiles[place] = estimates[above], tiles[above]
        place = above
    estimates[place], tiles[place] = estimate, tile
    return count + 1


@njit(**_options)
def _pop(estimates: Any, tiles: Any, count: int) -> int:
    """Take the first off a heap, which the caller has read; how many are left."""
    count -= 1
    estimate, tile = estimates[count], tiles[count]
    place = 0
    while True:
        below = 2 * place + 1
        if below >= count:
            break
        if below + 1 < count and estimates[below + 1] < estimates[below]:
            below += 1
        if estimates[below] >= estimate:
            break
        estimates[place], tiles[place] = estimates[below], tiles[below]
        place = below
    estimates[place], tiles[place] = estimate, tile
    return count


# -- the search -----------------------------------------------------------------------------


@njit(**_options)
def _crossing(
    ax: float, ay: float, bx: float, by: float, x: float, y: float, goal_x: float, goal_y: float
) -> tuple[float, float]:
    """The point between a and b over which the way from (x, y) to the goal is shortest."""
    along_x, along_y = bx - ax, by - ay
    square = along_x * along_x + along_y * along_y
    here = ((x - ax) * along_x + (y - ay) * along_y) / square
    there = ((goal_x - ax) * along_x + (goal_y - ay) * along_y) / square
    here_away = abs((x - ax) * along_y - (y - ay) * along_x)
    there_away = abs((goal_x - ax) * along_y - (goal_y - ay) * along_x)
    away = here_away + there_away
    # As light is reflected: a goal on the near side counts as if it lay as far beyond.
    share = (here * there_away + there * here_away) / away if away > 0.0 else here
    share = min(max(share, 0.0), 1.0)
    return ax + share * along_x, ay + share * along_y


@njit(**_options)
def _corridor(
    triangles: Any,
    neighbours: Any,
    from_tiles: Any,
    to_tiles: Any,
    seen: Any,
    came_from: Any,
    crossings: Any,
    heap_estimates: Any,
    heap_tiles: Any,
    x: float,
    y: float,
    goal_x: float,
    goal_y: float,
    search: int,
) -> int:
    """The tile of the goal, from which `came_from` leads back to the start; -1 if there is no way.

    `crossings` has for each tile where one came into it, and how far that was. `seen` is
    2 * search for a tile that waits and 2 * search + 1 for one that is done.
    """
    waiting, done = 2 * search, 2 * search + 1
    straight = math.hypot(goal_x - x, goal_y - y)
    count = 0
    for tile in from_tiles:
        seen[tile], came_from[tile] = waiting, -1
        crossings[tile] = (x, y, 0.0)
        count = _push(heap_estimates, heap_tiles, count, straight, tile)
    while count:
        tile = heap_tiles[0]
        count = _pop(heap_estimates, heap_tiles, count)
        if seen[tile] == done:
            continue
        seen[tile] = done
        for goal in to_tiles:
            if tile == goal:
                return tile
        at_x, at_y, walked = crossings[tile]
        for a in range(3):
            other = neighbours[tile, a]
            if other < 0 or seen[other] == done:
                continue
            b = (a + 1) % 3
            over_x, over_y = _crossing(
                triangles[tile, a, 0],
                triangles[tile, a, 1],
                triangles[tile, b, 0],
                triangles[tile, b, 1],
                at_x,
                at_y,
                goal_x,
                goal_y,
            )
            length = walked + math.hypot(over_x - at_x, over_y - at_y)
            if seen[other] != waiting or length < crossings[other, 2]:
                seen[other], came_from[other] = waiting, tile
                crossings[other] = (over_x, over_y, length)
                estimate = length + math.hypot(goal_x - over_x, goal_y - over_y)
                count = _push(heap_estimates, heap_tiles, count, estimate, other)
    return -1


# -- pulling the string ---------------------------------------------------------------------


@njit(**_options)
def _doors(
    triangles: Any, neighbours: Any, came_from: Any, last: int, goal_x: float, goal_y: float
) -> Any:
    """The sides that a corridor crosses, from its beginning: left x and y, right x and y.

    The goal ends it, as a door without width.
    """
    count = 1
    tile = last
    while came_from[tile] >= 0:
        tile = came_from[tile]
        count += 1
    doors = np.empty((count, 4))
    doors[count - 1] = (goal_x, goal_y, goal_x, goal_y)
    tile = last
    for number in range(count - 2, -1, -1):
        before = came_from[tile]
        for a in range(3):
            if neighbours[before, a] == tile:
                b = (a + 1) % 3
                # Corners go counterclockwise: who leaves over this side has the second on the left.
                doors[number, 0], doors[number, 1] = (
                    triangles[before, b, 0],
                    triangles[before, b, 1],
                )
                doors[number, 2], doors[number, 3] = (
                    triangles[before, a, 0],
                    triangles[before, a, 1],
                )
        tile = before
    return doors


@njit(**_options)
def _put(points: Any, count: int, x: float, y: float) -> int:
    """Add a point to a way unless it stands there already; how many there are now."""
    if count and points[count - 1, 0] == x and points[count - 1, 1] == y:
        return count
    points[count, 0], points[count, 1] = x, y
    return count + 1


@njit(**_options)
def _straightened(points: Any, count: int) -> Any:
    """The points after the first, without those that lie on the line between their neighbours."""
    kept = 1
    for number in range(1, count - 1):
        near_x, near_y = nearest_on_side(
            points[kept - 1, 0],
            points[kept - 1, 1],
            points[number + 1, 0],
            points[number + 1, 1],
            points[number, 0],
            points[number, 1],
        )
        if not math.hypot(near_x - points[number, 0], near_y - points[number, 1]) <= _BEND_MIN_M:
            points[kept] = points[number]
            kept += 1
    points[kept] = points[count - 1]
    return points[1 : kept + 1].copy()


@njit(**_options)
def _pulled(doors: Any, x: float, y: float) -> Any:
    """The shortest way through doors: the points after the start, the last door last."""
    points = np.empty((len(doors) + 2, 2))
    points[0] = (x, y)
    count = 1
    left_x, left_y, right_x, right_y = x, y, x, y
    left_door = right_door = door = -1
    while door + 1 < len(doors):
        door += 1
        here_x, here_y = points[count - 1]
        new_x, new_y = doors[door, 2], doors[door, 3]
        if side(here_x, here_y, right_x, right_y, new_x, new_y) >= 0:
            at_tip = here_x == right_x and here_y == right_y
            if at_tip or side(here_x, here_y, left_x, left_y, new_x, new_y) < 0:
                right_x, right_y, right_door = new_x, new_y, door
            else:
                # The right crossed over the left: the string bends at the left.
                count = _put(points, count, left_x, left_y)
                right_x, right_y, door, right_door = left_x, left_y, left_door, left_door
                continue
        new_x, new_y = doors[door, 0], doors[door, 1]
        if side(here_x, here_y, left_x, left_y, new_x, new_y) <= 0:
            at_tip = here_x == left_x and here_y == left_y
            if at_tip or side(here_x, here_y, right_x, right_y, new_x, new_y) > 0:
                left_x, left_y, left_door = new_x, new_y, door
            else:
                count = _put(points, count, right_x, right_y)
                left_x, left_y, door, left_door = right_x, right_y, right_door, right_door
    last = doors[len(doors) - 1]
    count = _put(points, count, last[0], last[1])
    if count == 1:
        return points[:1].copy()
    return _straightened(points, count)


# -- all of it --------------------------------------------------------------------------------


@njit(**_options)
def _is_reachable(part: Any, from_tiles: Any, to_tiles: Any) -> bool:
    for start in from_tiles:
        for goal in to_tiles:
            if part[start] == part[goal]:
                return True
    return False


@njit(
    _points(
        *(_triangles, _neighbours, _words, *_grid),
        *(_longs, _words, _points, _numbers, _words),
        *(_f8, _f8, _f8, _f8, _f8, _i8),
    ),
    **_options,
)
def find_way(
    triangles: Any,
    neighbours: Any,
    part: Any,
    left: float,
    bottom: float,
    cell_m: float,
    columns: int,
    rows: int,
    starts: Any,
    members: Any,
    seen: Any,
    came_from: Any,
    crossings: Any,
    heap_estimates: Any,
    heap_tiles: Any,
    x: float,
    y: float,
    goal_x: float,
    goal_y: float,
    graze_m: float,
    search: int,
) -> Any:
    """The points of a way after the start, the goal last; none if there is no way."""
    from_tiles = tiles_around(
        triangles, left, bottom, cell_m, columns, rows, starts, members, x, y, graze_m
    )
    to_tiles = tiles_around(
        triangles, left, bottom, cell_m, columns, rows, starts, members, goal_x, goal_y, graze_m
    )
    if not _is_reachable(part, from_tiles, to_tiles):
        return np.empty((0, 2))
    last = _corridor(
        triangles,
        neighbours,
        from_tiles,
        to_tiles,
        seen,
        came_from,
        crossings,
        heap_estimates,
        heap_tiles,
        x,
        y,
        goal_x,
        goal_y,
        search,
    )
    doors = _doors(triangles, neighbours, came_from, last, goal_x, goal_y)
    return _pulled(doors, x, y)
