# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""The compiled part of path finding: the shortest way over triangles, or nearly.

This is Polyanya (Cui, Harabor and Grastien, 2017). A* from triangle to triangle has to guess where
the sides between them will be crossed, and pulls the string afterwards. That was tried: as fast,
but the way bends in the middle of open ground, around corners of triangles. Polyanya searches over
*views* instead: a view is the last bend of the way and the part of a side that is seen from there.
From side to side a view gets narrower, and what of a side is not seen is seen from where the view
was cut off, if that is the corner of a wall: there the way bends. How long a way through a view is
at least is known exactly, so the first way that reaches the goal is the shortest.

To be certain of the last few metres costs most of the time. So what is still to go counts for five
in a hundred more: no way is longer than the shortest by more than that, and across 5 km of town,
where the shortest take 12 ms, those found take 0.6 ms and are longer by five in a thousand.

Of the ways to a bend only the shortest is followed. Nothing is cleared between searches: each marks
what it has seen with its own number.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numba import njit, types

from rove.world.map.tile_kernels import (
    cell_along,
    holds,
    is_grazed,
    nearest_on_side,
    nearest_on_triangle,
    side_to,
)

_i4, _i8, _f8 = types.int32, types.int64, types.float64
_numbers, _words, _longs = (types.Array(each, 1, "C") for each in (_f8, _i4, _i8))
_triangles, _points = types.Array(_f8, 3, "C"), types.Array(_f8, 2, "C")
_neighbours, _table = (types.Array(each, 2, "C") for each in (_i4, _i8))
_grid = (_f8, _f8, _f8, _i8, _i8, _longs, _words)
_point, _numbering = types.UniTuple(_f8, 2), types.UniTuple(_i8, 3)
_view = types.Tuple((_point, _point, _point, _f8, _numbering))
_memory = types.Tuple((_points, _table, _numbers, _longs, _longs, types.Tuple((_numbers, _longs))))
_mesh = types.Tuple((_triangles, _neighbours, _table))
_pair = types.UniTuple(_i8, 2)
_ends = types.Tuple((_point, _i8))
# Signatures of small functions too: without, each is compiled for every kind of literal given.
_options = {"cache": True, "nogil": True, "error_model": "numpy"}

NO_WAY, FOUND, NO_MEMORY = range(3)
"""How a search ends; without memory it is to be asked again with more."""

EXCESS_MAX: Final = 1.05
"""How much longer than the shortest a way may be. What is still to go counts for so much more."""
_NODES_AT_ONCE: Final = 12
"""Through each of two sides there are three views at most, and of each two are written down."""
_NOTHING_M: Final = 1e-7
"""What is narrower than this is not looked through, and what is longer by less is no longer."""
_BEND_MIN_M: Final = 1e-6
"""A smaller bend is rounding."""

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


# -- a heap of (length, node) ---------------------------------------------------------------


@njit(_i8(_numbers, _longs, _i8, _f8, _i8), **_options)
def _push(lengths: Any, nodes: Any, count: int, length: float, node: int) -> int:
    """Put a node on a heap; how many there are now."""
    place = count
    while place > 0:
        above = (place - 1) >> 1
        if lengths[above] <= length:
            break
        lengths[place], nodes[place] = lengths[above], nodes[above]
        place = above
    lengths[place], nodes[place] = length, node
    return count + 1


@njit(_i8(_numbers, _longs, _i8), **_options)
def _pop(lengths: Any, nodes: Any, count: int) -> int:
    """Take the first off a heap, which the caller has read; how many are left."""
    count -= 1
    length, node = lengths[count], nodes[count]
    place = 0
    while True:
        below = 2 * place + 1
        if below >= count:
            break
        if below + 1 < count and lengths[below + 1] < lengths[below]:
            below += 1
        if lengths[below] >= length:
            break
        lengths[place], nodes[place] = lengths[below], nodes[below]
        place = below
    lengths[place], nodes[place] = length, node
    return count


# -- views ------------------------------------------------------------------------------------

# A view is (bend, left, right, walked, (bend's number, left's number, right's number)): points are
# tuples, which stay in registers. The number of a corner is -1 where no way can bend.


@njit(_f8(_point, _point), **_options)
def _apart(a: Any, b: Any) -> float:
    return math.hypot(b[0] - a[0], b[1] - a[1])


@njit(_f8(_point, _point, _point), **_options)
def _turn(bend: Any, tip: Any, point: Any) -> float:
    """Above 0 if a point is to the left of the line from a bend over a tip, rounded."""
    return (tip[0] - bend[0]) * (point[1] - bend[1]) - (tip[1] - bend[1]) * (point[0] - bend[0])


@njit(_point(_point, _point, _point, _point, types.boolean), **_options)
def _cut(bend: Any, tip: Any, right: Any, left: Any, is_left: bool) -> Any:
    """Where the left or right border of a view cuts a side.

    A side that is all in view, or all hidden by the border, is cut at its end; one that is seen
    from its end only is hidden.
    """
    before, beyond = _turn(bend, tip, right), _turn(bend, tip, left)
    if before >= 0.0 and (is_left or beyond > 0.0):
        return right
    if beyond <= 0.0:
        return left
    share = before / (before - beyond)
    cut = (right[0] + share * (left[0] - right[0]), right[1] + share * (left[1] - right[1]))
    # Corners that stand in line are met, not missed by a rounding.
    if _apart(cut, right) < _NOTHING_M:
        return right
    return left if _apart(cut, left) < _NOTHING_M else cut


@njit(_f8(_view, _point), **_options)
def _length_min(view: Any, goal: Any) -> float:
    """How long a way through a view to the goal is at least."""
    bend, left, right, walked, _ = view
    along_x, along_y = left[0] - right[0], left[1] - right[1]
    square = along_x * along_x + along_y * along_y
    here = ((bend[0] - right[0]) * along_x + (bend[1] - right[1]) * along_y) / square
    there = ((goal[0] - right[0]) * along_x + (goal[1] - right[1]) * along_y) / square
    here_away = abs((bend[0] - right[0]) * along_y - (bend[1] - right[1]) * along_x)
    there_away = abs((goal[0] - right[0]) * along_y - (goal[1] - right[1]) * along_x)
    away = here_away + there_away
    # As light is reflected: a goal on the near side counts as if it lay as far beyond.
    share = (here * there_away + there * here_away) / away if away > 0.0 else here
    share = min(max(share, 0.0), 1.0)
    over = (right[0] + share * along_x, right[1] + share * along_y)
    return walked + EXCESS_MAX * (_apart(bend, over) + _apart(over, goal))


@njit(_view(_view, types.boolean, _point, _point, _pair), **_options)
def _around(view: Any, is_left: bool, left: Any, right: Any, ends: Any) -> Any:
    """What is seen of a side from the left or right end of a view; ends are numbers of corners."""
    bend, view_left, view_right, walked, (_, left_number, right_number) = view
    tip = view_left if is_left else view_right
    number = left_number if is_left else right_number
    return tip, left, right, walked + _apart(bend, tip), (number, ends[0], ends[1])


# -- the search -----------------------------------------------------------------------------


@njit(types.boolean(_numbers, _longs, _view, _i8), **_options)
def _is_best(best: Any, marks: Any, view: Any, search: int) -> bool:
    """Whether nobody has come to the bend of a view by a shorter way; from now on nobody does."""
    walked, bend = view[3], view[4][0]
    if bend < 0:
        return True
    if marks[bend] != search or walked < best[bend]:
        marks[bend], best[bend] = search, walked
    return walked <= best[bend] + _NOTHING_M


@njit(types.void(_memory, _i8, _view, _numbering), **_options)
def _keep(memory: Any, count: int, view: Any, place: Any) -> None:
    """Write down a view as a node; its place is (node before, tile entered, side entered)."""
    views, links, _, _, _, _ = memory
    bend, left, right, walked, numbers = view
    views[count, 0], views[count, 1] = bend
    views[count, 2], views[count, 3] = left
    views[count, 4], views[count, 5] = right
    views[count, 6] = walked
    links[count, 0], links[count, 1], links[count, 2] = numbers
    links[count, 3], links[count, 4], links[count, 5] = place


@njit(_view(_memory, _i8), **_options)
def _view_of(memory: Any, node: int) -> Any:
    views, links, _, _, _, _ = memory
    bend, left = (views[node, 0], views[node, 1]), (views[node, 2], views[node, 3])
    right = (views[node, 4], views[node, 5])
    numbers = (links[node, 0], links[node, 1], links[node, 2])
    return bend, left, right, views[node, 6], numbers


@njit(_view(_view, _point), **_options)
def _last_view(view: Any, goal: Any) -> Any:
    """A view whose bend sees the goal in the tile behind; not walked if there is none."""
    bend, left, right, _, (_, left_number, right_number) = view
    is_at_end = bend in (left, right)
    if not is_at_end and _turn(bend, left, goal) > _NOTHING_M * _apart(bend, left):
        last = _around(view, True, left, right, (-1, -1))
        return last if left_number >= 0 else (bend, left, right, math.inf, (-1, -1, -1))
    if not is_at_end and _turn(bend, right, goal) < -_NOTHING_M * _apart(bend, right):
        last = _around(view, False, left, right, (-1, -1))
        return last if right_number >= 0 else (bend, left, right, math.inf, (-1, -1, -1))
    return view


@njit(_pair(_memory, _pair, _view, _numbering, _point, _i8), **_options)
def _add(memory: Any, counts: Any, view: Any, place: Any, goal: Any, search: int) -> Any:
    """Put a view on the heap if it may lead to the goal; counts are of nodes and of the heap."""
    _, _, best, marks, is_goal, heap = memory
    nodes, waiting = counts
    if not _is_best(best, marks, view, search):
        return counts
    _keep(memory, nodes, view, place)
    if is_goal[place[1]] != search:
        length = _length_min(view, goal)
        return nodes + 1, _push(heap[0], heap[1], waiting, length, nodes)
    last = _last_view(view, goal)
    length = last[3] + EXCESS_MAX * _apart(last[0], goal)
    if length == math.inf:
        return counts
    _keep(memory, nodes + 1, last, (nodes, -1, -1))
    return nodes + 2, _push(heap[0], heap[1], waiting, length, nodes + 1)


@njit(_pair(_mesh, _memory, _pair, _i8, _view, _pair, _ends), **_options)
def _spread(
    mesh: Any, memory: Any, counts: Any, node: int, view: Any, through: Any, ends: Any
) -> Any:
    """Look from a view through one side of the tile behind it."""
    triangles, neighbours, numbers = mesh
    goal, search = ends
    tile, first = through
    other = np.int64(neighbours[tile, first])
    if other < 0:
        return counts
    place = (node, other, side_to(neighbours, other, tile))
    second = (first + 1) % 3
    # Corners go counterclockwise: who leaves has the second on the left.
    door_left = (triangles[tile, second, 0], triangles[tile, second, 1])
    door_right = (triangles[tile, first, 0], triangles[tile, first, 1])
    left_end, right_end = numbers[tile, second], numbers[tile, first]
    bend, left, right, walked, (bend_number, left_number, right_number) = view
    if node < 0 and bend in (door_left, door_right):
        return counts  # who begins at a corner begins in all tiles around it
    if bend in (left, right):
        # Who stands in the door sees all of the room.
        whole = (bend, door_left, door_right, walked, (bend_number, left_end, right_end))
        return _add(memory, counts, whole, place, goal, search)
    cut_left = _cut(bend, left, door_right, door_left, True)
    cut_right = _cut(bend, right, door_right, door_left, False)
    if cut_left == door_right or cut_right == door_left:
        is_left = cut_left == door_right
        if (left_number if is_left else right_number) >= 0:
            hidden = _around(view, is_left, door_left, door_right, (left_end, right_end))
            counts = _add(memory, counts, hidden, place, goal, search)
        return counts
    if cut_left != door_left and left_number >= 0:
        hidden = _around(view, True, door_left, cut_left, (left_end, -1))
        counts = _add(memory, counts, hidden, place, goal, search)
    if cut_right != door_right and right_number >= 0:
        hidden = _around(view, False, cut_right, door_right, (-1, right_end))
        counts = _add(memory, counts, hidden, place, goal, search)
    left_end = left_end if cut_left == door_left else -1
    right_end = right_end if cut_right == door_right else -1
    seen = (bend, cut_left, cut_right, walked, (bend_number, left_end, right_end))
    return _add(memory, counts, seen, place, goal, search)


@njit(_i8(_mesh, _memory, _words, _point, _ends), **_options)
def _search(mesh: Any, memory: Any, from_tiles: Any, start: Any, ends: Any) -> int:
    """The node that sees the goal, -1 if there is none, -2 if there is no memory left."""
    _, links, best, marks, _, heap = memory
    _, search = ends
    room = len(links) - _NODES_AT_ONCE
    counts = (0, 0)
    whole = (start, start, start, 0.0, (-1, -1, -1))
    for tile in from_tiles:
        for first in range(3):
            if counts[0] > room:
                return -2
            counts = _spread(mesh, memory, counts, -1, whole, (tile, first), ends)
    while counts[1]:
        if counts[0] > room:
            return -2
        node = heap[1][0]
        counts = (counts[0], _pop(heap[0], heap[1], counts[1]))
        tile, entered = links[node, 4], links[node, 5]
        if tile < 0:
            return node
        view = _view_of(memory, node)
        if _is_best(best, marks, view, search):
            for further in (1, 2):
                through = (tile, (entered + further) % 3)
                counts = _spread(mesh, memory, counts, node, view, through, ends)
    return -1


# -- the way ----------------------------------------------------------------------------------


@njit(_points(_points), **_options)
def _straightened(points: Any) -> Any:
    """The points after the first, without those that lie on the line between their neighbours."""
    kept = 1
    for number in range(1, len(points) - 1):
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
    points[kept] = points[len(points) - 1]
    return points[1 : kept + 1].copy()


@njit(_points(_memory, _i8, _point, _point), **_options)
def _way(memory: Any, last: int, start: Any, goal: Any) -> Any:
    """The bends from the start to the view that sees the goal, and the goal."""
    views, links, _, _, _, _ = memory
    count = 2
    bend = -1
    node = last
    while node >= 0:
        if links[node, 0] >= 0 and links[node, 0] != bend:
            count += 1
        bend = links[node, 0]
        node = links[node, 3]
    points = np.empty((count, 2))
    points[0], points[count - 1] = start, goal
    bend = -1
    node = last
    while node >= 0:
        if links[node, 0] >= 0 and links[node, 0] != bend:
            count -= 1
            points[count - 1, 0], points[count - 1, 1] = views[node, 0], views[node, 1]
        bend = links[node, 0]
        node = links[node, 3]
    return _straightened(points)


@njit(types.boolean(_words, _words), **_options)
def _have_common(one: Any, other: Any) -> bool:
    for each in one:
        for every in other:
            if each == every:
                return True
    return False


@njit(
    types.Tuple((_i8, _points))(
        *(_triangles, _neighbours, _table, _words, *_grid),
        *(_points, _table, _numbers, _longs, _longs, _numbers, _longs),
        *(_f8, _f8, _f8, _f8, _f8, _i8),
    ),
    **_options,
)
def find_way(
    triangles: Any,
    neighbours: Any,
    numbers: Any,
    part: Any,
    left: float,
    bottom: float,
    cell_m: float,
    columns: int,
    rows: int,
    starts: Any,
    members: Any,
    views: Any,
    links: Any,
    best: Any,
    marks: Any,
    is_goal: Any,
    heap_lengths: Any,
    heap_nodes: Any,
    x: float,
    y: float,
    goal_x: float,
    goal_y: float,
    graze_m: float,
    search: int,
) -> Any:
    """How it ended, and the points of the way after the start, the goal last."""
    nowhere = np.empty((0, 2))
    grid = (left, bottom, cell_m, columns, rows, starts, members)
    from_tiles = tiles_around(triangles, *grid, x, y, graze_m)
    to_tiles = tiles_around(triangles, *grid, goal_x, goal_y, graze_m)
    if not _have_common(part[from_tiles], part[to_tiles]):
        return NO_WAY, nowhere
    start, goal = (x, y), (goal_x, goal_y)
    if not holds(triangles, from_tiles[0], x, y):
        start = nearest_on_triangle(triangles, from_tiles[0], x, y)
    memory = (views, links, best, marks, is_goal, (heap_lengths, heap_nodes))
    if _have_common(from_tiles, to_tiles):
        return FOUND, _way(memory, -1, start, goal)
    for tile in to_tiles:
        is_goal[tile] = search
    mesh = (triangles, neighbours, numbers)
    last = _search(mesh, memory, from_tiles, start, (goal, search))
    if last < 0:
        return (NO_WAY if last == -1 else NO_MEMORY), nowhere
    return FOUND, _way(memory, last, start, goal)
