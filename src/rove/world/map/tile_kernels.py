# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""The compiled part of tiles: which triangle a point lies in, which ones a rectangle touches.

Everything rests on one question: on which side of a line is a point? It is answered exactly. In
floating point alone a point on the border of two triangles could be in both, in one or in none,
and it would depend on the compiler which; here it is on the border if it is on the border. The
usual way costs six operations and knows when it may be wrong; then, and only then, the six products
are added up without rounding (Shewchuk, 1997).

Triangles are looked up through a grid of square cells. Each cell lists the triangles that touch
it, in ascending order, so the first that holds a point is the one with the lowest number.

Measured on the shipped town (1,844 triangles), one core: 70 ns for the triangle of a point, 0.6 µs
for the 10 triangles that touch a rectangle of 60 x 40 m.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numba import njit, types

_i4, _i8, _f8, _b1 = types.int32, types.int64, types.float64, types.boolean
_numbers, _words, _longs = (types.Array(each, 1, "C") for each in (_f8, _i4, _i8))
_triangles = types.Array(_f8, 3, "C")
_flags = types.Array(_b1, 1, "C")
_points, _neighbours = types.Array(_f8, 2, "C"), types.Array(_i4, 2, "C")
_grid = (_f8, _f8, _f8, _i8, _i8, _longs, _words)
"""Left, bottom, cell size; columns, rows; where the list of a cell starts, and the lists."""

_options = {"cache": True, "nogil": True, "error_model": "numpy"}
_inlined = {**_options, "inline": "always"}

_DOUBT: Final = (3.0 + 16.0 * 2.0**-53) * 2.0**-53
"""The largest relative error of the usual way."""
_SPLITTER: Final = 2.0**27 + 1.0
_SWEEPS_MAX: Final = 100

# -- on which side --------------------------------------------------------------------------


@njit(_i8(_numbers), **_options)
def _exact_sum_sign(terms: Any) -> int:
    """The sign of a sum, computed without rounding. The terms are used up."""
    for last in range(1, len(terms)):
        # What stands before `last` is a sum whose parts do not overlap; one more is added to it.
        total = terms[last]
        for part in range(last):
            low = terms[part]
            high = total + low
            share = high - total
            terms[part] = (total - (high - share)) + (low - share)
            total = high
        terms[last] = total
    for part in range(len(terms) - 1, -1, -1):
        if terms[part] != 0.0:
            return 1 if terms[part] > 0.0 else -1
    return 0


@njit(types.void(_numbers, _i8, _f8, _f8), **_options)
def _put_product(terms: Any, place: int, left: float, right: float) -> None:
    """left * right as a rounded product and the exact rest (Dekker, 1971)."""
    product = left * right
    scaled = _SPLITTER * left
    left_high = scaled - (scaled - left)
    left_low = left - left_high
    scaled = _SPLITTER * right
    right_high = scaled - (scaled - right)
    right_low = right - right_high
    rest = left_high * right_high - product
    rest += left_high * right_low
    rest += left_low * right_high
    terms[place] = product
    terms[place + 1] = rest + left_low * right_low


@njit(_i8(_f8, _f8, _f8, _f8, _f8, _f8), **_options)
def _exact_side(ax: float, ay: float, bx: float, by: float, px: float, py: float) -> int:
    terms = np.empty(12)
    _put_product(terms, 0, ax, by)
    _put_product(terms, 2, -ax, py)
    _put_product(terms, 4, -px, by)
    _put_product(terms, 6, -ay, bx)
    _put_product(terms, 8, ay, px)
    _put_product(terms, 10, py, bx)
    return _exact_sum_sign(terms)


@njit(_i8(_f8, _f8, _f8, _f8, _f8, _f8), **_options)
def side(ax: float, ay: float, bx: float, by: float, px: float, py: float) -> int:
    """Of the line from a to b: 1 if p is to the left, -1 to the right, 0 on it."""
    left = (ax - px) * (by - py)
    right = (ay - py) * (bx - px)
    difference = left - right
    doubt = _DOUBT * (abs(left) + abs(right))
    if difference > doubt:
        return 1
    if difference < -doubt:
        return -1
    return _exact_side(ax, ay, bx, by, px, py)


# Triangles are given as the array of all and a number: a view of one would cost more than the test.


@njit(_b1(_triangles, _i8, _f8, _f8), **_options)
def holds(triangles: Any, number: int, x: float, y: float) -> bool:
    """Whether a point is in a triangle (corners counterclockwise); the border belongs to it."""
    ax, ay = triangles[number, 0, 0], triangles[number, 0, 1]
    bx, by = triangles[number, 1, 0], triangles[number, 1, 1]
    cx, cy = triangles[number, 2, 0], triangles[number, 2, 1]
    return (
        side(ax, ay, bx, by, x, y) >= 0
        and side(bx, by, cx, cy, x, y) >= 0
        and side(cx, cy, ax, ay, x, y) >= 0
    )


@njit(**_options)
def _is_left_reached(
    ax: float, ay: float, bx: float, by: float, box: tuple[float, float, float, float]
) -> bool:
    """Whether a rectangle has a point on the line from a to b or to the left of it."""
    left, bottom, right, top = box
    x = left if by > ay else right
    y = top if bx > ax else bottom
    return side(ax, ay, bx, by, x, y) >= 0


@njit(_b1(_triangles, _i8, types.UniTuple(_f8, 4)), **_options)
def touches(triangles: Any, number: int, box: tuple[float, float, float, float]) -> bool:
    """Whether a triangle and a closed rectangle (left, bottom, right, top) share a point."""
    left, bottom, right, top = box
    ax, ay = triangles[number, 0, 0], triangles[number, 0, 1]
    bx, by = triangles[number, 1, 0], triangles[number, 1, 1]
    cx, cy = triangles[number, 2, 0], triangles[number, 2, 1]
    return (
        max(ax, bx, cx) >= left
        and min(ax, bx, cx) <= right
        and max(ay, by, cy) >= bottom
        and min(ay, by, cy) <= top
        and _is_left_reached(ax, ay, bx, by, box)
        and _is_left_reached(bx, by, cx, cy, box)
        and _is_left_reached(cx, cy, ax, ay, box)
    )


@njit(**_options)
def nearest_on_side(
    ax: float, ay: float, bx: float, by: float, x: float, y: float
) -> tuple[float, float]:
    """The point between a and b that is nearest to (x, y), rounded."""
    along_x, along_y = bx - ax, by - ay
    length = along_x * along_x + along_y * along_y
    share = ((x - ax) * along_x + (y - ay) * along_y) / length
    share = min(max(share, 0.0), 1.0)
    if share == 1.0:
        return bx, by
    return ax + share * along_x, ay + share * along_y


@njit(types.UniTuple(_f8, 2)(_triangles, _i8, _f8, _f8), **_options)
def nearest_on_triangle(triangles: Any, number: int, x: float, y: float) -> tuple[float, float]:
    """The point on the border of a triangle that is nearest to (x, y), rounded."""
    best_x, best_y, best = math.nan, math.nan, math.inf
    for corner in range(3):
        a, b = corner, (corner + 1) % 3
        near_x, near_y = nearest_on_side(
            triangles[number, a, 0],
            triangles[number, a, 1],
            triangles[number, b, 0],
            triangles[number, b, 1],
            x,
            y,
        )
        away = math.hypot(near_x - x, near_y - y)
        if away < best:
            best_x, best_y, best = near_x, near_y, away
    return best_x, best_y


@njit(_b1(_triangles, _i8, _f8, _f8, _f8), **_options)
def is_grazed(triangles: Any, number: int, x: float, y: float, graze_m: float) -> bool:
    """Whether the border of a triangle is that near to a point."""
    near_x, near_y = nearest_on_triangle(triangles, number, x, y)
    return math.hypot(near_x - x, near_y - y) <= graze_m


@njit(_flags(_triangles), **_options)
def are_counterclockwise(triangles: Any) -> Any:
    answer = np.empty(len(triangles), np.bool_)
    for number in range(len(triangles)):
        ax, ay = triangles[number, 0, 0], triangles[number, 0, 1]
        bx, by = triangles[number, 1, 0], triangles[number, 1, 1]
        answer[number] = side(ax, ay, bx, by, triangles[number, 2, 0], triangles[number, 2, 1]) > 0
    return answer


# -- the grid -------------------------------------------------------------------------------


@njit(**_inlined)
def cell_along(at: float, start: float, cell_m: float, count: int) -> int:
    """The column of an x or the row of a y: the first or last one for what lies beyond."""
    place = (at - start) / cell_m
    if not place > 0.0:
        return 0
    return count - 1 if place >= count else int(place)


@njit(types.Tuple((_longs, _words))(_triangles, _f8, _f8, _f8, _i8, _i8, _f8), **_options)
def cells_of(
    triangles: Any, left: float, bottom: float, cell_m: float, columns: int, rows: int, margin: Any
) -> Any:
    """The triangles that touch each cell, made larger by a margin: where lists start, and lists."""
    starts = np.zeros(columns * rows + 1, np.int64)
    members = np.empty(0, np.int32)
    free = starts.copy()
    for filling in (False, True):
        if filling:
            for cell in range(columns * rows):
                free[cell] = starts[cell]
                starts[cell + 1] += starts[cell]
            members = np.empty(starts[columns * rows], np.int32)
        for number in range(len(triangles)):
            ax, ay = triangles[number, 0, 0], triangles[number, 0, 1]
            bx, by = triangles[number, 1, 0], triangles[number, 1, 1]
            cx, cy = triangles[number, 2, 0], triangles[number, 2, 1]
            first_row = cell_along(min(ay, by, cy) - margin, bottom, cell_m, rows)
            last_row = cell_along(max(ay, by, cy) + margin, bottom, cell_m, rows)
            first_column = cell_along(min(ax, bx, cx) - margin, left, cell_m, columns)
            last_column = cell_along(max(ax, bx, cx) + margin, left, cell_m, columns)
            for row in range(first_row, last_row + 1):
                low = bottom + row * cell_m
                for column in range(first_column, last_column + 1):
                    near = left + column * cell_m
                    right, top = near + cell_m + margin, low + cell_m + margin
                    if touches(triangles, number, (near - margin, low - margin, right, top)):
                        cell = row * columns + column
                        if filling:
                            members[free[cell]] = number
                            free[cell] += 1
                        else:
                            starts[cell + 1] += 1
    return starts, members


@njit(_words(_triangles, *_grid, _numbers, _numbers, _f8), **_options)
def tiles_of_points(
    triangles: Any,
    left: float,
    bottom: float,
    cell_m: float,
    columns: int,
    rows: int,
    starts: Any,
    members: Any,
    x: Any,
    y: Any,
    graze_m: float,
) -> Any:
    """The lowest triangle that holds each point; else the lowest that it grazes; else -1."""
    answer = np.full(len(x), -1, np.int32)
    for point in range(len(x)):
        at_x, at_y = x[point], y[point]
        column = cell_along(at_x, left, cell_m, columns)
        cell = cell_along(at_y, bottom, cell_m, rows) * columns + column
        for place in range(starts[cell], starts[cell + 1]):
            if holds(triangles, members[place], at_x, at_y):
                answer[point] = members[place]
                break
        if answer[point] < 0:
            for place in range(starts[cell], starts[cell + 1]):
                if is_grazed(triangles, members[place], at_x, at_y, graze_m):
                    answer[point] = members[place]
                    break
    return answer


@njit(_words(_words, _i8, _i8), **_options)
def _with_room(found: Any, count: int, more: int) -> Any:
    if count + more <= len(found):
        return found
    larger = np.empty(2 * (count + more), np.int32)
    # Not as slices: that compiles for seconds, for the message in case they do not fit.
    for place in range(count):
        larger[place] = found[place]
    return larger


@njit(**_options)
def _sort(values: Any, first: int, end: int) -> None:
    """By insertion: there are a dozen, and most stand right."""
    for after in range(first + 1, end):
        value = values[after]
        place = after
        while place > first and values[place - 1] > value:
            values[place] = values[place - 1]
            place -= 1
        values[place] = value


@njit(
    types.Tuple((_longs, _words))(_triangles, *_grid, _numbers, _numbers, _numbers, _numbers),
    **_options,
)
def tiles_of_rectangles(
    triangles: Any,
    left: float,
    bottom: float,
    cell_m: float,
    columns: int,
    rows: int,
    starts: Any,
    members: Any,
    lefts: Any,
    bottoms: Any,
    rights: Any,
    tops: Any,
) -> Any:
    """The triangles that touch each rectangle, ascending: where lists start, and the lists."""
    count = len(lefts)
    ends = np.zeros(count + 1, np.int64)
    found = np.empty(16 * count + 64, np.int32)
    asked_by = np.full(len(triangles), -1, np.int64)
    for number in range(count):
        first, end = ends[number], ends[number]
        west, south, east, north = lefts[number], bottoms[number], rights[number], tops[number]
        first_column = cell_along(west, left, cell_m, columns)
        last_column = cell_along(east, left, cell_m, columns)
        for row in range(
            cell_along(south, bottom, cell_m, rows), cell_along(north, bottom, cell_m, rows) + 1
        ):
            cell = row * columns
            # The lists of neighbouring cells stand one after the other.
            begin, stop = starts[cell + first_column], starts[cell + last_column + 1]
            found = _with_room(found, end, stop - begin)
            for place in range(begin, stop):
                tile = members[place]
                if asked_by[tile] != number:
                    asked_by[tile] = number
                    if touches(triangles, tile, (west, south, east, north)):
                        found[end] = tile
                        end += 1
        _sort(found, first, end)
        ends[number + 1] = end
    return ends, found[: ends[-1]].copy()


# -- how triangles hang together ----------------------------------------------------------


@njit(_words(_neighbours), **_options)
def parts_of(neighbours: Any) -> Any:
    """The number of the connected part that each triangle belongs to."""
    part = np.full(len(neighbours), -1, np.int32)
    waiting = np.empty(len(neighbours), np.int32)
    parts = 0
    for seed in range(len(neighbours)):
        if part[seed] >= 0:
            continue
        part[seed] = parts
        waiting[0] = seed
        count = 1
        while count:
            count -= 1
            for other in neighbours[waiting[count]]:
                if other >= 0 and part[other] < 0:
                    part[other] = parts
                    waiting[count] = other
                    count += 1
        parts += 1
    return part


@njit(**_options)
def _is_in_circle(points: Any, a: int, b: int, c: int, d: int) -> bool:
    """Whether d is clearly inside the circle through a, b and c, which go counterclockwise."""
    ax, ay = points[a, 0] - points[d, 0], points[a, 1] - points[d, 1]
    bx, by = points[b, 0] - points[d, 0], points[b, 1] - points[d, 1]
    cx, cy = points[c, 0] - points[d, 0], points[c, 1] - points[d, 1]
    a_square, b_square, c_square = ax * ax + ay * ay, bx * bx + by * by, cx * cx + cy * cy
    inside = a_square * (bx * cy - cx * by)
    inside += b_square * (cx * ay - ax * cy)
    inside += c_square * (ax * by - bx * ay)
    size = a_square * (abs(bx * cy) + abs(cx * by))
    size += b_square * (abs(cx * ay) + abs(ax * cy))
    size += c_square * (abs(ax * by) + abs(bx * ay))
    # Four corners of a square lie on one circle; rounding must not turn them to and fro.
    return inside > 1e-9 * size


@njit(**_options)
def _is_left(points: Any, a: int, b: int, c: int) -> bool:
    return (
        side(points[a, 0], points[a, 1], points[b, 0], points[b, 1], points[c, 0], points[c, 1]) > 0
    )


@njit(_i8(_neighbours, _i8, _i8), **_options)
def side_to(neighbours: Any, triangle: int, other: int) -> int:
    """The number of the side of a triangle beyond which another one lies."""
    if neighbours[triangle, 0] == other:
        return 0
    return 1 if neighbours[triangle, 1] == other else 2


@njit(**_options)
def _turn(points: Any, corners: Any, neighbours: Any, one: int, first: int) -> bool:
    """Turn a side into the other diagonal of its two triangles if that makes them rounder."""
    other = neighbours[one, first]
    facing = side_to(neighbours, other, one)
    a, b, c = corners[one, first], corners[one, (first + 1) % 3], corners[one, (first + 2) % 3]
    d = corners[other, (facing + 2) % 3]
    if not (
        _is_in_circle(points, a, b, c, d)
        and _is_left(points, a, d, c)
        and _is_left(points, d, b, c)
    ):
        return False
    beyond_bc, beyond_ca = neighbours[one, (first + 1) % 3], neighbours[one, (first + 2) % 3]
    beyond_ad, beyond_db = neighbours[other, (facing + 1) % 3], neighbours[other, (facing + 2) % 3]
    corners[one, 0], corners[one, 1], corners[one, 2] = a, d, c
    corners[other, 0], corners[other, 1], corners[other, 2] = d, b, c
    if beyond_ad >= 0:
        neighbours[beyond_ad, side_to(neighbours, beyond_ad, other)] = one
    if beyond_bc >= 0:
        neighbours[beyond_bc, side_to(neighbours, beyond_bc, one)] = other
    neighbours[one, 0], neighbours[one, 1], neighbours[one, 2] = beyond_ad, other, beyond_ca
    neighbours[other, 0], neighbours[other, 1], neighbours[other, 2] = beyond_db, beyond_bc, one
    return True


@njit(types.void(_points, types.Array(_i8, 2, "C"), _neighbours), **_options)
def make_round(points: Any, corners: Any, neighbours: Any) -> None:
    """Turn sides until triangles are as round as their corners allow (Lawson, 1977)."""
    for _ in range(_SWEEPS_MAX):
        has_turned = False
        for one in range(len(corners)):
            for first in range(3):
                if neighbours[one, first] > one:
                    has_turned |= _turn(points, corners, neighbours, one, first)
        if not has_turned:
            break
