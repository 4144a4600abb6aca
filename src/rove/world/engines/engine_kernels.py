# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""The compiled part of the engines: which rectangle is due, which replica is to go, how many bytes.

Each is one pass over all clients, all entities or all replicas, a few nanoseconds for each. A mask
and a dozen array operations in its place would be ten passes, and harder to read.

**Rectangles that follow.** `follow` decides for all things at once whether a rectangle has to be
placed, and what has to be requested. There are three rectangles around a moving thing:

- its *sight*, the reach in each direction. At all times this has to lie in
- the *view*: its sight while it continues for `ahead_s` with its velocity. A request for a view
  brings everything in it, so the next request is due after `ahead_s`;
- the *subscription*: the view, longer in front by what a broker may lag (`lag_s`). It moves with
  the thing if it evolves, otherwise it rests.

Ground that was requested *and* has been in the subscription ever since is known: all changes there
were delivered. For a rectangle that moves with (ux, uy) for t seconds since the request, that is
the part of the view in front of its present rear. Only the rest of the new view has to be
requested, and nothing if there is no rest. The known part is sent as the centre of a rectangle as
large as the new view (`former`), which is possible if it reaches an end of the view in each
direction; otherwise everything is requested.

**Sizes.** Bytes of numbers are counted by comparing with powers of ten: 2 ns a number, where
formatting it takes 100.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numba import njit, types

from rove.match.index.intrinsics import F8, I4, I8, row_of
from rove.world.engines.pair_kernels import SECOND_BITS

SLACK_M: Final = 0.01
"""By how much views are wider than the reach: positions over MQTT are rounded to millimetres."""
_EDGE_M: Final = 0.002
"""By how much the known part is reported smaller at its end, for the same reason."""
_ASTRAY_M: Final = 1e-6
"""An entity farther from its predicted place has not moved by its velocity."""
_ROUNDING_S: Final = 1e-9

HAS, PLACED_X, PLACED_Y, PLACED_AT, UX, UY, VIEW_X, VIEW_Y, HALF_X, HALF_Y, ASKED_AT = range(11)
FOLLOWED_COLUMNS: Final = 11
"""Of a line of `followed`: whether there is a rectangle; where the thing was when it was placed,
and when; the rectangle's velocity; centre and half the sides of the view that was asked for last,
and when."""

_FLAGS, _KEYS, _NUMBERS, _VALUES = row_of(types.boolean), row_of(I8), row_of(I4), row_of(F8)
_TABLE = types.Array(F8, 2, "C")
_SECOND: Final = (1 << SECOND_BITS) - 1


@njit(cache=True, nogil=True, inline="always")
def _ahead_s(vx: float, vy: float, ahead_s: float, ahead_max_x: float, ahead_max_y: float) -> float:
    """For how long a view is made: less for those who would get too far in that time."""
    if abs(vx) * ahead_s > ahead_max_x:
        ahead_s = ahead_max_x / abs(vx)
    if abs(vy) * ahead_s > ahead_max_y:
        ahead_s = ahead_max_y / abs(vy)
    return ahead_s


@njit(cache=True, nogil=True, inline="always")
def _is_due(followed: Any, i: int, thing: Any, evolves: bool, ahead_s: float, at: float) -> bool:
    """Whether a new rectangle has to be placed: there is none, it leads astray, it is old."""
    x, y, vx, vy = thing
    if followed[i, HAS] == 0.0:
        return True
    seconds = at - followed[i, PLACED_AT]
    if evolves:
        ux, uy = followed[i, UX], followed[i, UY]
        astray_x = abs(x - followed[i, PLACED_X] - ux * seconds) > _ASTRAY_M
        astray_y = abs(y - followed[i, PLACED_Y] - uy * seconds) > _ASTRAY_M
        return (vx != ux) | (vy != uy) | astray_x | astray_y
    has_moved = (x != followed[i, PLACED_X]) | (y != followed[i, PLACED_Y])
    return has_moved & (seconds >= ahead_s - _ROUNDING_S)


@njit(cache=True, nogil=True, inline="always")
def _sees_beyond(followed: Any, i: int, x: float, y: float, reaches: Any) -> bool:
    """Whether what is seen is no longer all in the view that was asked for."""
    beyond_x = abs(x - followed[i, VIEW_X]) + reaches[0] > followed[i, HALF_X]
    return beyond_x | (abs(y - followed[i, VIEW_Y]) + reaches[1] > followed[i, HALF_Y])


@njit(cache=True, nogil=True, inline="always")
def _look(followed: Any, i: int, thing: Any, reaches: Any, ahead_s: float, at: float) -> None:
    """Take note of a new view."""
    x, y, vx, vy = thing
    seconds = _ahead_s(vx, vy, ahead_s, reaches[2], reaches[3])
    followed[i, VIEW_X], followed[i, VIEW_Y] = x + vx * seconds / 2, y + vy * seconds / 2
    followed[i, HALF_X] = reaches[0] + SLACK_M + abs(vx) * seconds / 2
    followed[i, HALF_Y] = reaches[1] + SLACK_M + abs(vy) * seconds / 2
    followed[i, ASKED_AT] = at


@njit(cache=True, nogil=True, inline="always")
def _place(
    followed: Any, i: int, thing: Any, evolves: bool, lag_s: float, at: float, out: Any, o: int
) -> None:
    """Take note of a new rectangle around the view, and write it to line o of `out`."""
    x, y, vx, vy = thing
    followed[i, HAS], followed[i, PLACED_AT] = 1.0, at
    followed[i, PLACED_X], followed[i, PLACED_Y] = x, y
    followed[i, UX], followed[i, UY] = (vx, vy) if evolves else (0.0, 0.0)
    out[o, 0] = followed[i, VIEW_X] + vx * lag_s / 2
    out[o, 1] = followed[i, VIEW_Y] + vy * lag_s / 2
    out[o, 2] = followed[i, HALF_X] + abs(vx) * lag_s / 2
    out[o, 3] = followed[i, HALF_Y] + abs(vy) * lag_s / 2
    out[o, 4], out[o, 5] = followed[i, UX], followed[i, UY]


@njit(cache=True, nogil=True, inline="always")
def _known_side(low: float, high: float, view: float, half: float) -> Any:
    """(all, former): whether a side of a view lies in [low, high], else where a former one lay."""
    # Of a view that has only moved, the rear is where it was computed to be, up to rounding.
    if low <= view - half + _ASTRAY_M:
        if high >= view + half - _ASTRAY_M:
            return True, view
        return False, high - _EDGE_M - half if high > view - half else math.nan
    if high >= view + half - _ASTRAY_M and low < view + half:
        return False, low + _EDGE_M + half
    return False, math.nan


@njit(cache=True, nogil=True, inline="always")
def _ask(before: Any, followed: Any, i: int, at: float, out: Any, o: int) -> bool:
    """Write what to ask for to line o of `out`, given the line before; False if all is known."""
    former_x = former_y = math.nan
    view_x, half_x = followed[i, VIEW_X], followed[i, HALF_X]
    view_y, half_y = followed[i, VIEW_Y], followed[i, HALF_Y]
    if before[HAS] != 0.0:
        seconds = at - before[ASKED_AT]
        moved_x, moved_y = before[UX] * seconds, before[UY] * seconds
        low_x = before[VIEW_X] - before[HALF_X] + max(moved_x, 0.0)
        high_x = before[VIEW_X] + before[HALF_X] + min(moved_x, 0.0)
        low_y = before[VIEW_Y] - before[HALF_Y] + max(moved_y, 0.0)
        high_y = before[VIEW_Y] + before[HALF_Y] + min(moved_y, 0.0)
        all_x, former_x = _known_side(low_x, high_x, view_x, half_x)
        all_y, former_y = _known_side(low_y, high_y, view_y, half_y)
        if all_x and all_y:
            return False
    if math.isnan(former_x) or math.isnan(former_y):
        former_x = former_y = math.nan
    out[o, 0], out[o, 1], out[o, 2], out[o, 3] = view_x, view_y, half_x, half_y
    out[o, 4], out[o, 5] = former_x, former_y
    return True


@njit(
    types.Tuple((_NUMBERS, _TABLE, _NUMBERS, _TABLE))(
        *(_TABLE, _NUMBERS, _NUMBERS),
        *(types.UniTuple(_VALUES, 4), _FLAGS, _VALUES, types.boolean, F8, F8, F8),
    ),
    cache=True,
    nogil=True,
)
def follow(
    followed: Any,
    lines: Any,
    numbers: Any,
    motion: Any,
    renewed: Any,
    reaches: Any,
    evolves: bool,
    ahead_s: float,
    lag_s: float,
    at: float,
) -> tuple[Any, Any, Any, Any]:
    """(placed, rectangles, asking, questions): which lines have to place what, and ask for what.

    Line lines[i] of `followed` follows entity numbers[i]; `motion` has x, y, vx, vy of all. Lines
    that are `renewed` place in any case. `reaches` are reach_x, reach_y, and how long a view may be
    in front, x and y. A rectangle is x, y, half its sides, vx, vy; a question is the view's x, y,
    half its sides, and the former x and y (NaN if all is new).
    """
    x, y, vx, vy = motion
    placed, asking = np.empty(lines.size, np.int32), np.empty(lines.size, np.int32)
    rectangles, questions = np.empty((lines.size, 6)), np.empty((lines.size, 6))
    before = np.empty(FOLLOWED_COLUMNS)
    places = asks = 0
    for i in range(lines.size):
        number, row = numbers[i], lines[i]
        thing = (x[number], y[number], vx[number], vy[number])
        is_placed = renewed[row] or _is_due(followed, row, thing, evolves, ahead_s, at)
        is_asked = is_placed or _sees_beyond(followed, row, thing[0], thing[1], reaches)
        if not is_asked and evolves and (thing[2] != 0.0 or thing[3] != 0.0):
            is_asked = at - followed[row, ASKED_AT] >= ahead_s - _ROUNDING_S
        if not is_asked:
            continue
        for column in range(FOLLOWED_COLUMNS):
            before[column] = followed[row, column]
        _look(followed, row, thing, reaches, ahead_s, at)
        if _ask(before, followed, row, at, questions, asks):
            asking[asks] = row
            asks += 1
        if is_placed or not evolves:
            _place(followed, row, thing, evolves, lag_s, at, rectangles, places)
            placed[places] = row
            places += 1
    return (
        placed[:places].copy(),
        rectangles[:places].copy(),
        asking[:asks].copy(),
        questions[:asks].copy(),
    )


@njit(_TABLE(_TABLE, F8), cache=True, nogil=True)
def views_at(followed: Any, at: float) -> Any:
    """Low x, high x, low y, high y of each view, gone on as its rectangle goes."""
    views = np.empty((followed.shape[0], 4))
    for i in range(views.shape[0]):
        line = followed[i]
        seconds = at - line[ASKED_AT]
        x, y = line[VIEW_X] + line[UX] * seconds, line[VIEW_Y] + line[UY] * seconds
        views[i, 0], views[i, 1] = x - line[HALF_X], x + line[HALF_X]
        views[i, 2], views[i, 3] = y - line[HALF_Y], y + line[HALF_Y]
    return views


# -- replicas -----------------------------------------------------------------------------


_KINDS = types.Array(types.int8, 1, "C")


@njit(types.UniTuple(_NUMBERS, 2)(_KINDS, *(_NUMBERS,) * 4, I8), cache=True, nogil=True)
def heard_by_clients(
    what: Any, entity: Any, message: Any, receiver: Any, avatar: Any, wanted: int
) -> tuple[Any, Any]:
    """(messages, clients): deliveries of a kind, but none to a client about its own avatar.

    Receivers that are no clients have numbers beyond theirs.
    """
    messages, clients = np.empty(message.size, np.int32), np.empty(message.size, np.int32)
    count = 0
    for i in range(message.size):
        line, client = message[i], receiver[i]
        messages[count], clients[count] = line, client
        if client < avatar.size:
            count += (what[line] == wanted) & (entity[line] != avatar[client])
    return messages[:count], clients[:count]


@njit(_KEYS(_KEYS, _NUMBERS, _NUMBERS, _NUMBERS), cache=True, nogil=True)
def sightings(starts: Any, seeing: Any, numbers: Any, avatar: Any) -> Any:
    """Who sees what, as ascending (entity, client) keys, but no client its own avatar.

    The clients that see entity numbers[i] are seeing[starts[i]:starts[i + 1]].
    """
    keys = np.empty(seeing.size, np.int64)
    count = 0
    for i in range(numbers.size):
        for k in range(starts[i], starts[i + 1]):
            keys[count] = (np.int64(numbers[i]) << SECOND_BITS) | np.int64(seeing[k])
            count += avatar[seeing[k]] != numbers[i]
    return keys[:count]


@njit(
    _FLAGS(_KEYS, types.Array(I8, 2, "C"), _TABLE, _TABLE, F8, I8),
    cache=True,
    nogil=True,
)
def are_out_of_sight(
    keys: Any, marks: Any, motions: Any, sights: Any, tolerance_m: float, moving_since: int
) -> Any:
    """Which replicas are outside of their client's rectangle, or move and have fallen silent.

    `marks` and `motions` are those of the replicas. `sights` has low x, high x, low y, high y of
    each client. Who moves tells so at every tick; if the last that was heard is from before
    `moving_since`, it has left.
    """
    gone = np.zeros(keys.size, np.bool_)
    for i in range(keys.size):
        sight = sights[keys[i] & _SECOND]
        x, y = motions[i, 0], motions[i, 1]
        in_x = (x >= sight[0] - tolerance_m) & (x <= sight[1] + tolerance_m)
        in_y = (y >= sight[2] - tolerance_m) & (y <= sight[3] + tolerance_m)
        moves = (motions[i, 2] != 0.0) | (motions[i, 3] != 0.0)
        gone[i] = not (in_x & in_y) or (moves and marks[i, 1] < moving_since)
    return gone


@njit(
    _FLAGS(_NUMBERS, _NUMBERS, _NUMBERS, _VALUES, _VALUES, types.UniTuple(_VALUES, 6)),
    cache=True,
    nogil=True,
)
def are_asked_for(message: Any, asked: Any, own: Any, x: Any, y: Any, questions: Any) -> Any:
    """Which entities have to be shown: asked for, and not known to who asks.

    Question message[i] was found by the rectangle of entity asked[i]; own[m] is the avatar of who
    asks. `questions` are x, y, half the sides, former x and y of all.
    """
    view_x, view_y, half_x, half_y, former_x, former_y = questions
    wanted = np.zeros(x.size, np.bool_)
    for i in range(message.size):
        line, entity = message[i], asked[i]
        is_in = (abs(x[entity] - view_x[line]) <= half_x[line]) and (
            abs(y[entity] - view_y[line]) <= half_y[line]
        )
        # Where all is new, the former place is NaN and no comparison holds.
        was_in = (abs(x[entity] - former_x[line]) <= half_x[line]) and (
            abs(y[entity] - former_y[line]) <= half_y[line]
        )
        if is_in and not was_in and own[line] != entity:
            wanted[entity] = True
    return wanted


# -- tiles --------------------------------------------------------------------------------


@njit(
    types.Tuple((_KEYS, _NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS))(
        _KEYS, _NUMBERS, _NUMBERS, _KEYS, _NUMBERS
    ),
    cache=True,
    nogil=True,
)
def exchanged(
    starts: Any, members: Any, lines: Any, new_starts: Any, new_members: Any
) -> tuple[Any, Any, Any, Any, Any, Any]:
    """(starts, members, joined lines and members, left lines and members) of an exchange.

    The members of line i are members[starts[i]:starts[i + 1]], ascending; those of lines[j], which
    ascend, become new_members[new_starts[j]:new_starts[j + 1]].
    """
    count = starts.size - 1
    all_starts = np.zeros(count + 1, np.int64)
    room = members.size + new_members.size
    all_members = np.empty(room, np.int32)
    joined, joined_members = np.empty(room, np.int32), np.empty(room, np.int32)
    left, left_members = np.empty(room, np.int32), np.empty(room, np.int32)
    joins = leaves = j = used = 0
    for i in range(count):
        a, a_end = starts[i], starts[i + 1]
        if j == lines.size or lines[j] != i:
            all_members[used : used + a_end - a] = members[a:a_end]
            used += a_end - a
            all_starts[i + 1] = used
            continue
        b, b_end = new_starts[j], new_starts[j + 1]
        j += 1
        all_members[used : used + b_end - b] = new_members[b:b_end]
        used += b_end - b
        all_starts[i + 1] = used
        while a < a_end or b < b_end:
            if b == b_end or (a < a_end and members[a] < new_members[b]):
                left[leaves], left_members[leaves] = i, members[a]
                leaves += 1
                a += 1
            elif a == a_end or new_members[b] < members[a]:
                joined[joins], joined_members[joins] = i, new_members[b]
                joins += 1
                b += 1
            else:
                a += 1
                b += 1
    return (
        all_starts,
        all_members[:used].copy(),
        joined[:joins].copy(),
        joined_members[:joins].copy(),
        left[:leaves].copy(),
        left_members[:leaves].copy(),
    )


@njit(_FLAGS(_KEYS, _NUMBERS, _FLAGS, _KEYS, _NUMBERS), cache=True, nogil=True)
def are_elsewhere(keys: Any, topic_of: Any, looked_at: Any, starts: Any, topics: Any) -> Any:
    """Which replicas lie in a tile that their client has left; only clients `looked_at` are.

    `topic_of` has the topic of each entity's tile; those of client c are, ascending,
    topics[starts[c]:starts[c + 1]], and 0.
    """
    gone = np.zeros(keys.size, np.bool_)
    for i in range(keys.size):
        client = keys[i] & _SECOND
        if looked_at[client]:
            topic = topic_of[keys[i] >> SECOND_BITS]
            low, end = starts[client], starts[client + 1]
            high = end
            while low < high:
                middle = (low + high) >> 1
                if topics[middle] < topic:
                    low = middle + 1
                else:
                    high = middle
            gone[i] = topic != 0 and (low == end or topics[low] != topic)
    return gone


@njit(cache=True, nogil=True, inline="always")
def _whole_number_bytes(value: int) -> int:
    size = 1
    if value < 0:
        size = 2
        value = -value
    while value >= 10000:
        value //= 10000
        size += 4
    return size + (value >= 10) + (value >= 100) + (value >= 1000)


@njit(types.void(row_of(I8), row_of(I8)), cache=True, nogil=True)
def add_whole_number_bytes(values: Any, sizes: Any) -> None:
    """Add to each size what its whole number takes: sign and digits."""
    for i in range(values.size):
        sizes[i] += _whole_number_bytes(values[i])


@njit(types.void(row_of(F8), row_of(I8)), cache=True, nogil=True)
def add_length_bytes(metres: Any, sizes: Any) -> None:
    """Add to each size what its length takes: metres with three decimals, or `null`."""
    for i in range(metres.size):
        if math.isnan(metres[i]):
            sizes[i] += 4
            continue
        millimetres = np.int64(np.rint(metres[i] * 1000.0))
        minus = millimetres < 0
        sizes[i] += minus + _whole_number_bytes(abs(millimetres) // 1000) + 4


@njit(
    types.void(row_of(types.int8), row_of(I8), row_of(I8), row_of(I8), row_of(I8)),
    cache=True,
    nogil=True,
)
def tally(whats: Any, counts: Any, sizes: Any, totals: Any, total_bytes: Any) -> None:
    """Add messages, each counts[i] times, to the totals of their kinds."""
    for i in range(whats.size):
        totals[whats[i]] += counts[i]
        total_bytes[whats[i]] += counts[i] * sizes[i]
