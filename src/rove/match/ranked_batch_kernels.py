# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""The compiled part of ranking past publications: a whole batch in one call, row after row.

The broker lets one publication after another into all windows (`rove.match.ranked_kernels`). Who
has a long batch at hand can turn this round and run one window after another, each over all that
it was given: windows do not know of each other, and one that is worked on stays in the cache.

A window is kept as a *loose skyband*: its k best in order, and behind them, as they came, those
that may still become one. Most publications are worse than the k best and are only put behind
them. When there is no more room, whoever has k newer and better ones is dropped, which is done
for all at once; what is left is the skyband. A strict one, kept at every step, takes 600 ns for a
publication in windows of thousands, this one 30.

These stand apart, since a broker never needs them and should not wait for their compilation.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import from_dtype, njit, types

from rove.match.ranked_kernels import (
    MEMBER,
    ROW,
    TOLD,
    drop_left,
    join_list,
    next_departure,
    set_departure,
    sort_until,
    tell_best,
    write_member,
)


def _array(kind: Any) -> Any:
    return types.Array(kind, 1, "C")


_i8 = types.int64
_rows, _members, _told = (_array(from_dtype(kind)) for kind in (ROW, MEMBER, TOLD))
_numbers, _integers, _marks = _array(types.float64), _array(_i8), _array(types.uint8)
_pool = types.Tuple((_rows, _members, _integers, _numbers, _numbers))
_options = {"cache": True, "nogil": True, "error_model": "numpy"}
_inlined = {**_options, "inline": "always"}


@njit(_integers(_integers, _i8), **_options)
def order_by_row(chosen: Any, row_count: int) -> Any:
    """What sorts by row and leaves the order within one as it is; by counting."""
    starts = np.zeros(row_count + 1, np.int64)
    for row in chosen:
        starts[row + 1] += 1
    for row in range(row_count):
        starts[row + 1] += starts[row]
    order = np.empty(chosen.size, np.int64)
    for i in range(chosen.size):
        order[starts[chosen[i]]] = i
        starts[chosen[i]] += 1
    return order


@njit(**_inlined)
def _slide(pool: Any, row: int, now: float, told: Any, count: int) -> int:
    """Let members leave a window until `now`, or until there is no room to tell."""
    rows, members, _, leaves_at, block_leaves_at = pool
    while leaves_at[row] <= now and told.size - count >= rows[row].k:
        moment = leaves_at[row]
        best_kept = drop_left(rows, members, row, moment)
        sort_until(rows, members, row, best_kept, rows[row].k)
        count = tell_best(rows, members, row, moment, -1, told, count)
        following = next_departure(rows, members, row)
        set_departure(leaves_at, block_leaves_at, row, following)
    return count


@njit(types.void(_rows, _members, _i8, types.float64), **_options)
def _prune(rows: Any, members: Any, row: int, moment: float) -> None:
    """Drop who has left, and who has k newer and better ones: it will never be told."""
    drop_left(rows, members, row, moment)
    start, count, k = rows[row].start, rows[row].count, rows[row].k
    sequences = np.empty(count, np.int64)
    for j in range(count):
        sequences[j] = -members[start + j].sequence
    order = np.argsort(sequences)
    best_scores, best_tails = np.empty(k), np.empty(k, np.int64)
    best_count = 0
    stays = np.zeros(count, np.uint8)
    for j in order:
        score, tail = members[start + j].score, members[start + j].tail
        place = best_count
        while place > 0 and (
            score < best_scores[place - 1]
            or (score == best_scores[place - 1] and tail < best_tails[place - 1])
        ):
            place -= 1
        if place == k:
            continue
        stays[j] = 1
        best_count = min(k, best_count + 1)
        for other in range(best_count - 1, place, -1):
            best_scores[other], best_tails[other] = best_scores[other - 1], best_tails[other - 1]
        best_scores[place], best_tails[place] = score, tail
    kept = start
    for j in range(count):
        if stays[j]:
            if kept < start + j:
                members[kept] = members[start + j]
            kept += 1
    rows[row].count = kept - start


@njit(**_inlined)
def _has_room(rows: Any, members: Any, used: Any, row: int, moment: float) -> bool:
    """Room for one more member: tidied up, or at the end of the pool; False if that is full."""
    if rows[row].count < rows[row].capacity:
        return True
    _prune(rows, members, row, moment)
    if 2 * rows[row].count <= rows[row].capacity:
        return True
    capacity = 2 * rows[row].capacity
    if used[0] + capacity > members.size:
        return False
    start = rows[row].start
    for j in range(rows[row].count):
        members[used[0] + j] = members[start + j]
    rows[row].start = used[0]
    rows[row].capacity = capacity
    used[0] += capacity
    return True


@njit(**_inlined)
def _enter(
    pool: Any,
    row: int,
    at: float,
    sequence: int,
    score: float,
    tail: int,
    whole: int,
    told: Any,
    count: int,
) -> int:
    """A publication enters a window that has room for it."""
    rows, members, _, leaves_at, block_leaves_at = pool
    departure = at + rows[row].span
    somebody_left = False
    if rows[row].counts:
        departure = rows[row].arrivals + rows[row].span
        somebody_left = next_departure(rows, members, row) <= rows[row].arrivals
        if somebody_left:
            best_kept = drop_left(rows, members, row, float(rows[row].arrivals))
            sort_until(rows, members, row, best_kept, rows[row].k)
    gap = join_list(rows, members, row, score, tail)
    write_member(members, gap, score, departure, sequence, tail, whole)
    if rows[row].count == 1 and not rows[row].counts:
        set_departure(leaves_at, block_leaves_at, row, departure)
    if somebody_left or gap - rows[row].start < rows[row].k:
        count = tell_best(rows, members, row, at, sequence, told, count)
    return count


_steps = types.Tuple((_integers, _integers, _numbers, _integers, _marks, _marks))
"""(rows, numbers, scores, tails, whole, known): what happens to rows, in order of time."""


@njit(
    types.UniTuple(_i8, 2)(_pool, _steps, _numbers, _integers, _i8, _integers, _i8, _told, _i8),
    **_options,
)
def run_windows(
    pool: Any,
    steps: Any,
    ats: Any,
    sequences: Any,
    publications: int,
    order: Any,
    first: int,
    told: Any,
    count: int,
) -> tuple[int, int]:
    """A whole batch enters its windows, `order` having brought together what is of one row.

    `numbers` of steps say which of `ats` and `sequences` are theirs. From `publications` on these
    are ends: one empties a row, and lets nothing in afterwards if its sequence is -1.
    Returns how many were told, and where to go on when there is more room.
    """
    rows, members, used, leaves_at, block_leaves_at = pool
    chosen, numbers, scores, tails, whole, known = steps
    for place in range(first, order.size):
        i = order[place]
        if not known[i]:
            continue
        row, at, sequence = chosen[i], ats[numbers[i]], sequences[numbers[i]]
        if leaves_at[row] <= at:
            count = _slide(pool, row, at, told, count)
        if leaves_at[row] <= at or told.size - count < rows[row].k:
            return count, place
        if numbers[i] >= publications:
            rows[row].count = 0
            set_departure(leaves_at, block_leaves_at, row, math.inf)
            if sequence < 0:
                rows[row].accepted_at = math.inf
            continue
        if at < rows[row].accepted_at:
            continue
        # Of the k best none has left by then, so they stay in order.
        moment = float(rows[row].arrivals) if rows[row].counts else at
        if not _has_room(rows, members, used, row, moment):
            return count, place
        rows[row].arrivals += 1
        count = _enter(pool, row, at, sequence, scores[i], tails[i], whole[i], told, count)
    return count, order.size
