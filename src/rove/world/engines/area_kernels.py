"""The compiled part of areas: which rectangles hold which points.

Points are sorted into a grid that is about as fine as a few cells per rectangle, row by row, so
that a rectangle reads one short stretch of memory per row of cells. The pairs that are found come
by rectangle and are then dealt out by point, which keeps the rectangles of each point in their
order without any sorting.

Rectangles are taken to be of like size: a huge one among small ones is right, but reads all that
it covers. The general index of `rove.match` has no such preference. It takes 3 µs to take in a
rectangle and 50 ns to find a pair, which is several times too slow for a thousand clients that
subscribe anew ten times a second in four engines; here nothing is kept between two batches, and a
pair takes 8 to 12 ns, all included.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, types

from rove.match.index.intrinsics import F8, I4, I8, row_of
from rove.world.runs.state import Floats, Ints, Longs

EXACT, PES, CLEES = 0, 1, 2
"""How a moving rectangle is evaluated; `lees` has the answers of `exact`."""
_COLUMNS_PER_RECTANGLE, _ROWS_PER_RECTANGLE = 10.0, 2.0
"""Of mean size. Finer cells read fewer points in vain; but each row is a stretch of its own."""
NEVER = -math.inf
"""The moment of a version that is not there."""


@njit(cache=True, nogil=True, inline="always")
def _cell(value: float, corner: float, per_metre: float, last: int) -> int:
    """The row or column of a value; of those outside, the nearest.

    It never falls when the value grows, whatever is rounded: so no point can be between two values
    and its cell not be.
    """
    place = (value - corner) * per_metre
    if not place > 0.0:
        return 0
    return int(place) if place < last else last


@njit(cache=True, nogil=True)
def _cells_along(span: float, side: float) -> int:
    """How many cells a side of the grid has."""
    return int(min(max(span / side, 1.0), 1e6)) if side > 0.0 and span > 0.0 else 1


@njit(
    types.Tuple((I8, I8))(F8, F8, row_of(F8), row_of(F8), row_of(F8), row_of(F8), I8),
    cache=True,
    nogil=True,
)
def _grid_size(
    span_x: float, span_y: float, low_x: Any, high_x: Any, low_y: Any, high_y: Any, points: int
) -> tuple[int, int]:
    """Columns and rows: a few per rectangle, but not many more cells than points."""
    width, height, count = 0.0, 0.0, 0
    for i in range(low_x.size):
        if low_x[i] <= high_x[i] and low_y[i] <= high_y[i]:
            width += high_x[i] - low_x[i]
            height += high_y[i] - low_y[i]
            count += 1
    if count == 0:
        return 1, 1
    columns = _cells_along(span_x, width / count / _COLUMNS_PER_RECTANGLE)
    rows = _cells_along(span_y, height / count / _ROWS_PER_RECTANGLE)
    while columns * rows > 4 * points + 64:
        if columns > rows:
            columns = (columns + 1) // 2
        else:
            rows = (rows + 1) // 2
    return columns, rows


@njit(cache=True, nogil=True)
def _sorted_into(cells: Any, count: int, x: Any, y: Any) -> tuple[Any, Any, Any, Any]:
    """Where each cell starts, and the points, cell by cell: number, x, y."""
    starts = np.zeros(count + 1, np.uint32)
    for i in range(cells.size):
        starts[cells[i] + 1] += 1
    for cell in range(count):
        starts[cell + 1] += starts[cell]
    numbers = np.empty(cells.size, np.uint32)
    sorted_x, sorted_y = np.empty(cells.size), np.empty(cells.size)
    following = starts[:-1].copy()
    for i in range(cells.size):
        place = following[cells[i]]
        following[cells[i]] = place + 1
        numbers[place] = i
        sorted_x[place] = x[i]
        sorted_y[place] = y[i]
    return starts, numbers, sorted_x, sorted_y


@njit(cache=True, nogil=True)
def _dealt_out(points: Any, rectangles: Any, pairs: int, count: int) -> tuple[Any, Any]:
    """Pairs by point, those of a point in the order in which they came."""
    starts = np.zeros(count + 1, np.int64)
    for i in range(pairs):
        starts[points[i] + np.uint32(1)] += 1
    for point in range(count):
        starts[point + 1] += starts[point]
    following = starts[:-1].astype(np.uint32)
    dealt = np.empty(pairs, np.int32)
    for i in range(pairs):
        point = points[i]
        dealt[following[point]] = rectangles[i]
        following[point] += np.uint32(1)
    return starts, dealt


_ROW, _NUMBERS = row_of(F8), row_of(I4)
_ROOM = row_of(types.uint32)
"""Indices without a sign need not be asked whether they count from the end: a third quicker."""


@njit(cache=True, nogil=True, inline="always")
def _window(
    low_x: float, high_x: float, low_y: float, high_y: float, grid: Any
) -> tuple[int, int, int, int]:
    """The columns and rows of cells that a rectangle touches, without those after the last."""
    if not (low_x <= high_x and low_y <= high_y):
        return 0, 0, 0, 0
    left, bottom, per_x, per_y, columns, rows = grid
    first, last = _cell(low_x, left, per_x, columns - 1), _cell(high_x, left, per_x, columns - 1)
    low, high = _cell(low_y, bottom, per_y, rows - 1), _cell(high_y, bottom, per_y, rows - 1)
    return first, last + 1, low, high + 1


@njit(cache=True, nogil=True)
def _room_needed(starts: Any, low_x: Any, high_x: Any, low_y: Any, high_y: Any, grid: Any) -> int:
    """How many points all rectangles together have to look at."""
    room, columns = 0, grid[4]
    for i in range(low_x.size):
        first, last, low, high = _window(low_x[i], high_x[i], low_y[i], high_y[i], grid)
        for row in range(low, high):
            room += int(starts[row * columns + last]) - int(starts[row * columns + first])
    return room


@njit(
    types.Tuple((row_of(I8), _NUMBERS, _ROOM, _NUMBERS))(
        *(_ROW, _ROW, _ROW, _ROW, _ROW, _ROW, _ROOM, _NUMBERS)
    ),
    cache=True,
    nogil=True,
)
def _search(
    x: Any, y: Any, low_x: Any, high_x: Any, low_y: Any, high_y: Any, ones: Any, others: Any
) -> tuple[Any, Any, Any, Any]:
    """See `RectangleSearch.find`; `ones` and `others` are room for pairs, returned larger."""
    points, rectangles = x.size, low_x.size
    if points == 0 or rectangles == 0:
        return np.zeros(points + 1, np.int64), np.empty(0, np.int32), ones, others
    left, bottom = x.min(), y.min()
    span_x, span_y = x.max() - left, y.max() - bottom
    columns, rows = _grid_size(span_x, span_y, low_x, high_x, low_y, high_y, points)
    per_x = columns / span_x if span_x > 0.0 else 0.0
    per_y = rows / span_y if span_y > 0.0 else 0.0
    cells = np.empty(points, np.uint32)
    for i in range(points):
        row = _cell(y[i], bottom, per_y, rows - 1)
        cells[i] = row * columns + _cell(x[i], left, per_x, columns - 1)
    starts, numbers, sorted_x, sorted_y = _sorted_into(cells, columns * rows, x, y)
    grid = (left, bottom, per_x, per_y, columns, rows)
    room = _room_needed(starts, low_x, high_x, low_y, high_y, grid)
    if room > ones.size:
        ones, others = np.empty(2 * room, np.uint32), np.empty(2 * room, np.int32)
    pairs = np.uint64(0)
    for i in range(rectangles):
        left_side, right_side, low_side, high_side = low_x[i], high_x[i], low_y[i], high_y[i]
        first, last, low, high = _window(left_side, right_side, low_side, high_side, grid)
        for row in range(low, high):
            for k in range(starts[row * columns + first], starts[row * columns + last]):
                # Written in any case: a branch on the outcome would be mispredicted often.
                ones[pairs] = numbers[k]
                others[pairs] = i
                inside = (sorted_x[k] >= left_side) & (sorted_x[k] <= right_side)
                inside &= (sorted_y[k] >= low_side) & (sorted_y[k] <= high_side)
                pairs += np.uint64(inside)
    dealt_starts, dealt = _dealt_out(ones, others, np.int64(pairs), points)
    return dealt_starts, dealt, ones, others


class RectangleSearch:
    """Finds rectangles around points; keeps the room that it once needed.

    New memory is dear: to be given a page costs as much as finding 100 pairs.
    """

    def __init__(self) -> None:
        self._ones = np.empty(0, np.uint32)
        self._others: Ints = np.empty(0, np.int32)

    def find(
        self, x: Floats, y: Floats, low_x: Floats, high_x: Floats, low_y: Floats, high_y: Floats
    ) -> tuple[Longs, Ints]:
        """The closed rectangles around each point: those of point p are at starts[p]:starts[p + 1].

        They ascend. A rectangle with a low above its high holds nothing.
        """
        starts, found, self._ones, self._others = _search(
            x, y, low_x, high_x, low_y, high_y, self._ones, self._others
        )
        return starts, found


@njit(cache=True, nogil=True, inline="always")
def _last_turn(since: float, interval_s: float, at: float) -> float:
    """The last moment `since + k * interval_s` that is not after `at` (as in `Pes`)."""
    turn = math.floor((at - since) / interval_s)
    if since + (turn + 1) * interval_s <= at:
        turn += 1
    elif since + turn * interval_s > at:
        turn -= 1
    return min(since + turn * interval_s, at)


@njit(cache=True, nogil=True, inline="always")
def _moment(design: int, seconds: float, since: float, version_at: float, at: float) -> float:
    """When a moving rectangle is evaluated for something published at `at`."""
    if design == PES:
        return _last_turn(since, seconds, at)
    if design == CLEES and version_at != NEVER and version_at + seconds >= at:
        return version_at
    return at


@njit(
    types.UniTuple(_ROW, 4)(row_of(I4), types.Array(F8, 2, "C"), _ROW, I8, F8, F8),
    cache=True,
    nogil=True,
)
def sides_at(
    lines: Any, areas: Any, version_at: Any, design: int, seconds: float, at: float
) -> tuple[Any, Any, Any, Any]:
    """(low_x, high_x, low_y, high_y) of some lines of a table, for what is published at `at`.

    A line of `areas` is low_x, high_x, low_y, high_y, vx, vy, since. Versions that `clees` makes
    are noted in `version_at`.
    """
    low_x, high_x = np.empty(lines.size), np.empty(lines.size)
    low_y, high_y = np.empty(lines.size), np.empty(lines.size)
    for i in range(lines.size):
        line = lines[i]
        vx, vy, since = areas[line, 4], areas[line, 5], areas[line, 6]
        if since > at:
            low_x[i] = low_y[i] = np.inf
            high_x[i] = high_y[i] = -np.inf
            continue
        t = 0.0
        if vx != 0.0 or vy != 0.0:
            moment = _moment(design, seconds, since, version_at[line], at)
            version_at[line] = moment
            t = moment - since
        low_x[i] = areas[line, 0] + vx * t
        high_x[i] = areas[line, 1] + vx * t
        low_y[i] = areas[line, 2] + vy * t
        high_y[i] = areas[line, 3] + vy * t
    return low_x, high_x, low_y, high_y
