# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""The compiled part of ranking past publications: a whole batch in one call, row after row.

The broker lets one publication after another into all windows (`rove.match.ranked_kernels`). Who
has a long batch at hand can turn this round and run one window after another, each over all that
it was given: windows do not know of each other, and one that is worked on stays in the cache.

A window is kept as a *loose skyband*: its k best in order, and behind them, as they came, those
that may still become one. Most publications are worse than the k best and are only put behind
them. When there is no more room, whoever has k newer and better ones is dropped, which is done
for all at once; what is left is the skyband. A strict one, kept at every step, is smaller, but
every publication has to find its place in it and push others on.

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
# What makes no arrays need not count who uses them; in loops this short that is most of the time.
_uncounted = {**_options, "_nrt": False}
_inlined = {**_uncounted, "inline": "always"}


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
def _slide(
    rows: Any,
    members: Any,
    leaves_at: Any,
    block_leaves_at: Any,
    row: int,
    now: float,
    told: Any,
    count: int,
) -> int:
    """Let members leave a window until `now`, or until there is no room to tell."""
    while leaves_at[row] <= now and told.size - count >= rows[row].k:
        moment = leaves_at[row]
        best_kept = drop_left(rows, members, row, moment)
        sort_until(rows, members, row, best_kept, rows[row].k)
        count = tell_best(rows, members, row, moment, -1, told, count)
        following = next_departure(rows, members, row)
        set_departure(leaves_at, block_leaves_at, row, following)
    return count


@njit(types.void(_members, _i8, _i8, _i8, _integers), **_uncounted)
def _sort_by_age(members: Any, start: int, first: int, end: int, ages: Any) -> None:
    """Write down members from the oldest to the newest; most stand in that order already."""
    for i in range(first, end):
        sequence = members[start + i].sequence
        place = i
        while place > first and members[ages[place - 1]].sequence > sequence:
            ages[place] = ages[place - 1]
            place -= 1
        ages[place] = start + i


@njit(**_inlined)
def _place_among(scores: Any, tails: Any, count: int, k: int, score: float, tail: int) -> int:
    """Take one into the k best so far, behind those as good; who is too many falls out."""
    place = count if count < k else count - 1
    while place > 0 and (
        score < scores[place - 1] or (score == scores[place - 1] and tail < tails[place - 1])
    ):
        scores[place], tails[place] = scores[place - 1], tails[place - 1]
        place -= 1
    scores[place], tails[place] = score, tail
    return min(k, count + 1)


_scratch = types.Tuple((_integers, _marks, _numbers, _integers))
"""(ages, stays, scores, tails): room for as many as a row has members, or wants."""


@njit(types.void(_rows, _members, _i8, types.float64, _scratch), **_uncounted)
def _prune(rows: Any, members: Any, row: int, moment: float, scratch: Any) -> None:
    """Drop who has left, and who has k newer and better ones: it will never be told."""
    ages, stays, scores, tails = scratch
    drop_left(rows, members, row, moment)
    start, count, k = rows[row].start, rows[row].count, rows[row].k
    best_count = min(count, k)
    _sort_by_age(members, start, 0, best_count, ages)
    _sort_by_age(members, start, best_count, count, ages)
    # From the newest on: `scores` are the best of those that are newer, in order.
    newer, next_best = 0, best_count - 1
    for i in range(count - 1, best_count - 1, -1):
        one = members[ages[i]]
        while next_best >= 0 and members[ages[next_best]].sequence > one.sequence:
            best = members[ages[next_best]]
            newer = _place_among(scores, tails, newer, k, best.score, best.tail)
            next_best -= 1
        score, tail, last = one.score, one.tail, scores[k - 1]
        stays[i] = newer < k or score < last or (score == last and tail < tails[k - 1])
        if stays[i]:
            newer = _place_among(scores, tails, newer, k, score, tail)
    # Who goes is marked; then the others close up, in the order in which they stand.
    for i in range(best_count, count):
        if not stays[i]:
            members[ages[i]].dominators = -1
    kept = start + best_count
    for j in range(start + best_count, start + count):
        if members[j].dominators >= 0:
            if kept < j:
                members[kept] = members[j]
            kept += 1
    rows[row].count = kept - start


@njit(**_inlined)
def _has_room(rows: Any, members: Any, used: Any, row: int, moment: float, scratch: Any) -> bool:
    """Room for one more member: tidied up, or at the end of the pool; False if that is full."""
    if rows[row].count < rows[row].capacity:
        return True
    if scratch[0].size < max(rows[row].count, rows[row].k):
        return False
    _prune(rows, members, row, moment, scratch)
    if 3 * rows[row].count <= rows[row].capacity:
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
    rows: Any,
    members: Any,
    leaves_at: Any,
    block_leaves_at: Any,
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
"""(rows, numbers, scores, tails, whole, known): what happens, row after row, in order of time."""


@njit(
    types.UniTuple(_i8, 2)(_pool, _steps, _numbers, _integers, _i8, _i8, _told, _i8, _scratch),
    **_uncounted,
)
def run_windows(
    pool: Any,
    steps: Any,
    ats: Any,
    sequences: Any,
    publications: int,
    first: int,
    told: Any,
    count: int,
    scratch: Any,
) -> tuple[int, int]:
    """A whole batch enters its windows.

    `numbers` of steps say which of `ats` and `sequences` are theirs. From `publications` on these
    are ends: one empties a row, and lets nothing in afterwards if its sequence is -1.
    Returns how many were told, and where to go on when there is more room.
    """
    rows, members, used, leaves_at, block_leaves_at = pool
    chosen, numbers, scores, tails, whole, known = steps
    for i in range(first, chosen.size):
        if not known[i]:
            continue
        row, at, sequence = chosen[i], ats[numbers[i]], sequences[numbers[i]]
        if leaves_at[row] <= at:
            count = _slide(rows, members, leaves_at, block_leaves_at, row, at, told, count)
        if leaves_at[row] <= at or told.size - count < rows[row].k:
            return count, i
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
        if not _has_room(rows, members, used, row, moment, scratch):
            return count, i
        rows[row].arrivals += 1
        count = _enter(
            rows,
            members,
            leaves_at,
            block_leaves_at,
            row,
            at,
            sequence,
            scores[i],
            tails[i],
            whole[i],
            told,
            count,
        )
    return count, chosen.size
