# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""The compiled part of ranking past publications: a whole batch in one call, row after row.

The broker lets one publication after another into all windows (`rove.match.ranked_kernels`). Who
has a long batch at hand can turn this round and run one window after another, each over all that
it was given: windows do not know of each other, and one that is worked on stays in the cache.
Measured with `rove.lab.pipeline_ranked_bench`.

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
    enter_skyband,
    has_room,
    set_departure,
    slide_skyband,
)


def _array(kind: Any) -> Any:
    return types.Array(kind, 1, "C")


_i8 = types.int64
_rows, _members, _told = (_array(from_dtype(kind)) for kind in (ROW, MEMBER, TOLD))
_numbers, _integers, _marks = _array(types.float64), _array(_i8), _array(types.uint8)
_pool = types.Tuple((_rows, _members, _integers, _numbers, _numbers))
_options = {"cache": True, "nogil": True, "error_model": "numpy"}

_steps = types.Tuple((_integers, _marks, _numbers, _integers, _numbers, _integers, _marks))
"""(rows, is_end, ats, sequences, scores, tails, whole): what happens to rows, in order of time."""


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


@njit(types.UniTuple(_i8, 2)(_pool, _steps, _integers, _i8, _told, _i8), **_options)
def run_skybands(
    pool: Any, steps: Any, order: Any, first: int, told: Any, count: int
) -> tuple[int, int]:
    """A whole batch enters its skybands, `order` having brought together what is of one row.

    A row is slid to the time of each step, so it stays in the cache until it is done. An end
    empties a row and lets nothing in afterwards, if its sequence is -1, else it goes on empty.
    Returns how many were told, and where to go on when there is more room.
    """
    rows, members, used, leaves_at, block_leaves_at = pool
    chosen, is_end, ats, sequences, scores, tails, whole = steps
    for place in range(first, order.size):
        i = order[place]
        row, at = chosen[i], ats[i]
        if leaves_at[row] <= at:
            count = slide_skyband(pool, row, at, told, count)
        if leaves_at[row] <= at or told.size - count < rows[row].k:
            return count, place
        if is_end[i]:
            rows[row].count = 0
            set_departure(leaves_at, block_leaves_at, row, math.inf)
            if sequences[i] < 0:
                rows[row].accepted_at = math.inf
            continue
        if at < rows[row].accepted_at:
            continue
        if not has_room(rows, members, used, row):
            return count, place
        count = enter_skyband(
            pool, row, at, sequences[i], scores[i], tails[i], whole[i], told, count
        )
    return count, order.size
