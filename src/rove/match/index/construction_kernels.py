"""The compiled part of building a segment: rows put in order, columns packed, keys coded.

The order decides how quick a search is. A publication goes wherever a box may hold its value,
so a good order is one in which few groups of neighbours can hold it. Rows are divided in two,
again and again; each time along the side of a subject for which a typical publication is likely
to need only one of the parts. A typical value is taken to be like the bounds themselves: where
many bounds are, there many values will be. (Choosing by variance instead made a market of 20
attributes 30 times slower.) Parts are cut at whole nodes of the tree that will stand over them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from rove.match.index.intrinsics import F4, F8, I4, I8, U2, U8, row_of, table_of
from rove.match.index.layout import CODE_MAX, WIDTH

_SAMPLE = 160
"""Rows looked at to choose where to divide."""
_LARGE = WIDTH * WIDTH
"""Rows of a part in which a few strays do not matter."""


@njit(types.void(row_of(U2), row_of(I4), I8, I8, I8), cache=True, nogil=True)
def _select(values: Any, order: Any, first: int, end: int, middle: int) -> None:
    """Reorder order[first:end] so that the smallest values stand before `middle`."""
    low, high = first, end - 1
    while low < high:
        pivot = values[order[(low + high) >> 1]]
        i, j = low, high
        while i <= j:
            while values[order[i]] < pivot:
                i += 1
            while values[order[j]] > pivot:
                j -= 1
            if i <= j:
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if middle <= j:
            high = j
        elif middle >= i:
            low = i
        else:
            return


@njit(F8(row_of(U2), row_of(U2), row_of(I4), row_of(F4), I8, I8, I8), cache=True, nogil=True)
def _reached(
    lows: Any, highs: Any, sample: Any, shares: Any, first: int, end: int, strays: int
) -> float:
    """The share of values that lie between the lowest low and the highest high of some rows.

    So many of the farthest ends do not count, on either side: in a large part they will be
    divided from the others later on.
    """
    ends = np.empty(end - first, np.uint16)
    for i in range(first, end):
        ends[i - first] = lows[sample[i]]
    low = np.sort(ends)[min(strays, ends.size - 1)] if strays else np.min(ends)
    for i in range(first, end):
        ends[i - first] = highs[sample[i]]
    high = np.sort(ends)[max(ends.size - 1 - strays, 0)] if strays else np.max(ends)
    last = shares.size - 1
    if high < low:
        return 0.0
    return float(shares[min(np.int64(high) + 1, last)] - shares[min(np.int64(low), last)])


@njit(F8(row_of(U2), row_of(U2), row_of(I4), row_of(F4), I8, I8), cache=True, nogil=True)
def _reached_alone(lows: Any, highs: Any, sample: Any, shares: Any, first: int, end: int) -> float:
    """The share of values that a row of these reaches on its own, in the mean."""
    total = 0.0
    last = shares.size - 1
    for i in range(first, end):
        low, high = np.int64(lows[sample[i]]), np.int64(highs[sample[i]])
        total += float(shares[min(high + 1, last)] - shares[min(low, last)])
    return total / (end - first)


@njit(F8(row_of(U2), row_of(U2), row_of(I4), row_of(F4), I8, I8, F8), cache=True, nogil=True)
def _cost(
    lows: Any, highs: Any, sample: Any, shares: Any, middle: int, strays: int, before: float
) -> float:
    """The share of rows that is still reached after a cut of the sample at `middle`."""
    left = _reached(lows, highs, sample, shares, 0, middle, strays)
    right = _reached(lows, highs, sample, shares, middle, sample.size, strays)
    return (left * middle + right * (sample.size - middle)) / (before * sample.size)


@njit(
    types.UniTuple(I8, 2)(table_of(U2), table_of(U2), table_of(F4), row_of(I4), I8, I8, I8),
    cache=True,
    nogil=True,
)
def _best_cut(
    lows: Any, highs: Any, shares: Any, order: Any, first: int, end: int, unit: int
) -> tuple[int, int]:
    """(2 * subject + side, position) of the cut after which fewest rows are reached."""
    size = min(end - first, _SAMPLE)
    sample = np.empty(size, np.int32)
    for i in range(size):
        sample[i] = order[first + i * (end - first) // size]
    units = (end - first + unit - 1) // unit
    half = max(units // 2, 1) * unit
    middle = max(1, min(size - 1, half * size // (end - first)))
    strays = size // 16 if end - first > _LARGE else 0
    best_cost, best_side, best_position = np.inf, 0, half
    for subject in range(lows.shape[0]):
        low, high, share = lows[subject], highs[subject], shares[subject]
        before = _reached(low, high, sample, share, 0, size, 2 * strays)
        if before <= 0.0:
            continue
        for side in range(2):
            _select(high if side else low, sample, 0, size, middle)
            cost = _cost(low, high, sample, share, middle, strays, before)
            if cost < best_cost:
                best_cost, best_side, best_position = cost, 2 * subject + side, half
        # Or those that ask for the subject apart from those that do not.
        indifferent = 0
        for i in range(size):
            indifferent += low[sample[i]] == 0
        position = (indifferent * (end - first) // size + unit // 2) // unit * unit
        if 0 < position < end - first and 0 < indifferent < size:
            _select(low, sample, 0, size, indifferent)
            reached = _reached(low, high, sample, share, indifferent, size, strays)
            alone = _reached_alone(low, high, sample, share, indifferent, size)
            asking = size - indifferent
            cost = (indifferent + asking * (reached + alone) / 2) / (before * size)
            if cost < best_cost:
                best_cost, best_side, best_position = cost, 2 * subject, position
    return best_side, first + best_position


@njit(types.void(table_of(U2), table_of(U2), table_of(F4), row_of(I4)), cache=True, nogil=True)
def put_in_order(lows: Any, highs: Any, shares: Any, order: Any) -> None:
    """Put rows (columns of `lows` and `highs`) in an order of like neighbours.

    shares[subject, code] is the share of typical values with a lower code.
    """
    firsts = np.empty(512, np.int64)
    ends = np.empty(512, np.int64)
    firsts[0], ends[0] = 0, order.size
    waiting = 1 if lows.shape[0] > 0 else 0  # rows that ask for nothing are all alike
    while waiting > 0:
        waiting -= 1
        first, end = firsts[waiting], ends[waiting]
        if end - first <= WIDTH:
            continue
        unit = WIDTH
        while unit * WIDTH < end - first:
            unit *= WIDTH
        side, middle = _best_cut(lows, highs, shares, order, first, end, unit)
        bounds = highs[side >> 1] if side & 1 else lows[side >> 1]
        _select(bounds, order, first, end, middle)
        firsts[waiting], ends[waiting] = first, middle
        firsts[waiting + 1], ends[waiting + 1] = middle, end
        waiting += 2


@njit(F8(row_of(U2), I8, I8, row_of(F4)), cache=True, nogil=True)
def _exclusion(bounds: Any, first: int, side: int, shares: Any) -> float:
    """The share of values that a node's column excludes for all 64; -1 if none for any."""
    nearest = bounds[first]
    excludes = False
    for i in range(first, first + WIDTH):
        excludes |= bounds[i] != (CODE_MAX if side else 0)
        nearest = max(nearest, bounds[i]) if side else min(nearest, bounds[i])
    if not excludes:
        return -1.0
    last = shares.size - 1
    if side:
        return 1.0 - float(shares[min(nearest + 1, last)])
    return float(shares[min(nearest, last)])


@njit(
    I8(
        table_of(U2),
        table_of(U2),
        row_of(I4),
        table_of(F4),
        row_of(I8),
        row_of(I4),
        row_of(U2),
    ),
    cache=True,
    nogil=True,
)
def pack(
    lows: Any,
    highs: Any,
    subjects: Any,
    shares: Any,
    starts: Any,
    keys: Any,
    columns: Any,
) -> int:
    """Write the columns of a level's nodes, leaving out those that exclude nothing.

    starts[n] is the first column of node n; keys[c] is 2 * subject, plus 1 for an upper bound.
    Upper bounds are turned over, so that one comparison does for both sides. Columns that exclude
    most come first, so that most nodes are done after one. With no room in `columns` they are
    only counted.
    """
    count = 0
    excluded = np.empty(2 * lows.shape[0], np.float64)
    for node in range(lows.shape[1] // WIDTH):
        starts[node] = count
        first = node * WIDTH
        for i in range(lows.shape[0]):
            excluded[2 * i] = _exclusion(lows[i], first, 0, shares[i])
            excluded[2 * i + 1] = _exclusion(highs[i], first, 1, shares[i])
        for _ in range(excluded.size):
            best = np.argmax(excluded)
            if excluded[best] < 0.0:
                break
            excluded[best] = -1.0
            if columns.size > 0:
                bounds = highs[best >> 1] if best & 1 else lows[best >> 1]
                keys[count] = 2 * subjects[best >> 1] + (best & 1)
                for i in range(WIDTH):
                    bound = bounds[first + i]
                    columns[count * WIDTH + i] = CODE_MAX - bound if best & 1 else bound
            count += 1
    starts[lows.shape[1] // WIDTH] = count
    return count


@njit(types.void(row_of(U8), row_of(U8), row_of(U2)), cache=True, nogil=True)
def code_all(keys: Any, cuts: Any, codes: Any) -> None:
    """The codes of many keys among the cuts of one subject."""
    for i in range(keys.size):
        codes[i] = np.searchsorted(cuts, keys[i], side="right")
