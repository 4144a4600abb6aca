"""Single rows, decided in full: what a search does with the few that a box cannot decide.

Sets with alternatives (IN, !=), subjects with more bounds than codes, bounds that move with `t`.
All comparisons are of keys or, for moving bounds, of floats in the very operations of the
evaluator; what only the evaluator can compute is left as a doubt.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from rove.match.index.intrinsics import (
    F8,
    I8,
    U2,
    U8,
    address,
    array_of,
    as_float,
    at_most,
    byte_at,
    int_at,
    key_at,
    lowest_bit,
    prefetch,
    real_at,
    row_of,
    word_at,
)
from rove.match.index.layout import (
    ABOVE,
    ACCEPTED,
    ALIVE,
    AT_LEAST,
    AT_MOST,
    BELOW,
    BOUND_LIMITS,
    BOUND_STARTS,
    BOUND_TESTS,
    BOUND_VALUES,
    CODE_MAX,
    COMPUTE,
    DOUBT_COUNT,
    DRIFT_TESTS,
    DRIFTS,
    ENTRY_FIRSTS,
    ENTRY_LASTS,
    ENTRY_STARTS,
    ENTRY_SUBJECTS,
    FLAGS,
    ID_COUNT,
    IDS,
    INNERS,
    KEYS,
    MOVING,
    OUT_DOUBTS,
    OUT_IDS,
    OUT_OF_TIME,
    ROUNDED,
    SHORT_IDS,
    T_MAX,
    WIDTH,
)

_MAX = float(np.finfo(np.float64).max)


@njit(I8(I8, I8, I8, U8), cache=True, nogil=True)
def code_of(cuts: int, first: int, end: int, key: Any) -> int:
    """How many of the cuts from `first` to `end` are at most `key`."""
    at, count = first, end - first
    while count > 0:
        half = (count + 1) >> 1
        if key_at(cuts, at + half - 1) <= key:
            at += half
        count -= half
    return at - first


@njit(cache=True, nogil=True)
def key_of(raw: Any) -> Any:
    """The key of a slot: the bits of a float, or what gives the right key for all else."""
    sign = np.uint64(1) << np.uint64(63)
    if raw == sign:  # -0.0 is 0.0
        return sign
    if raw << np.uint64(1) == np.uint64(0xFFF0000000000000):  # NaN stands for a missing value
        return np.uint64(0)
    return ~raw if raw & sign else raw | sign


@njit(cache=True, nogil=True)
def number_of(key: Any) -> float:
    """The float of a key; NaN for what is no number."""
    if key < np.uint64(0x0010000000000000) or key >= np.uint64(0xFFF0000000000000):
        return np.nan
    sign = np.uint64(1) << np.uint64(63)
    return as_float(key ^ sign if key & sign else ~key)


@njit(types.boolean(row_of(I8), I8, row_of(U8)), cache=True, nogil=True)
def entries_hold(buffer: Any, row: int, keys: Any) -> bool:
    """Whether each subject of a row has a key within one of its entries."""
    starts, subjects = address(buffer, ENTRY_STARTS), address(buffer, ENTRY_SUBJECTS)
    firsts, lasts = address(buffer, ENTRY_FIRSTS), address(buffer, ENTRY_LASTS)
    at, end = int_at(starts, row), int_at(starts, row + 1)
    while at < end:
        subject = int_at(subjects, at)
        key = keys[subject]
        inside = False
        while at < end and int_at(subjects, at) == subject:
            inside |= key_at(firsts, at) <= key <= key_at(lasts, at)
            at += 1
        if not inside:
            return False
    return True


@njit(types.boolean(F8, I8, F8), cache=True, nogil=True)
def is_within(value: float, comparator: int, bound: float) -> bool:
    """Whether a comparison holds; a bound that became infinite is UNKNOWN to the evaluator."""
    if comparator == AT_LEAST:
        inside = value >= bound
    elif comparator == AT_MOST:
        inside = value <= bound
    elif comparator == ABOVE:
        inside = value > bound
    elif comparator == BELOW:
        inside = value < bound
    else:
        inside = value == bound
    return inside and bound - bound == 0.0


@njit(types.boolean(row_of(I8), I8, row_of(U8), F8), cache=True, nogil=True)
def bounds_hold(buffer: Any, row: int, keys: Any, t: float) -> bool:
    """Whether a row's moving bounds hold at `t`, in the very operations of the evaluator."""
    starts, tests = address(buffer, BOUND_STARTS), address(buffer, BOUND_TESTS)
    values, limits = address(buffer, BOUND_VALUES), address(buffer, BOUND_LIMITS)
    limited = buffer[2 * BOUND_LIMITS + 1] > 0
    for i in range(int_at(starts, row), int_at(starts, row + 1)):
        test = int_at(tests, i)
        value = number_of(keys[test >> 3])
        moved = t
        if limited:
            moved = min(max(t, real_at(limits, 2 * i)), real_at(limits, 2 * i + 1))
        bound = real_at(values, 2 * i) + real_at(values, 2 * i + 1) * moved
        if not is_within(value, test & 7, bound):
            return False
    return True


MISS, MATCH, DOUBT = 0, 1, 2


@njit(I8(row_of(I8), I8, row_of(U8), F8, I8), cache=True, nogil=True)
def decide(buffer: Any, row: int, keys: Any, at: float, modes: int) -> int:
    """One row in full: MATCH, MISS, or DOUBT where it must be computed."""
    accepted = address(buffer, ACCEPTED)
    accepted_at = real_at(accepted, row if buffer[2 * ACCEPTED + 1] > 1 else 0)
    if at < accepted_at or not entries_hold(buffer, row, keys):
        return MISS
    flags = byte_at(address(buffer, FLAGS), row)
    t = at - accepted_at
    if flags & MOVING:
        if modes & ROUNDED or (flags & COMPUTE and t > T_MAX):
            return DOUBT
        if not bounds_hold(buffer, row, keys, t):
            return MISS
    return DOUBT if flags & COMPUTE else MATCH


@njit(I8(row_of(I8), I8), cache=True, nogil=True)
def id_of(buffer: Any, row: int) -> int:
    """The subscription of a row; ~id where it has several rows."""
    if buffer[2 * SHORT_IDS + 1] > 0:
        return int_at(address(buffer, SHORT_IDS), row)
    return word_at(address(buffer, IDS), row)


@njit(cache=True, nogil=True, inline="always")
def drift_value(buffer: Any, i: int, keys: Any) -> float:
    """What the i-th drift is compared with; 0 where there is none."""
    if i >= buffer[2 * DRIFT_TESTS + 1]:
        return 0.0
    test = int_at(address(buffer, DRIFT_TESTS), i)
    value = number_of(keys[test >> 3])
    return -value if test & 7 == AT_MOST else value


@njit(U8(row_of(I8), I8, U8, row_of(U8), F8), cache=True, nogil=True)
def drifts_hold(buffer: Any, first: int, mask: Any, keys: Any, at: float) -> Any:
    """The same as `moving_hold` where all rows move in the same way, without a branch."""
    accepted = address(buffer, ACCEPTED)
    several = 1 if buffer[2 * ACCEPTED + 1] > 1 else 0
    drifts = address(buffer, DRIFTS) + 64 * first
    values = (
        drift_value(buffer, 0, keys),
        drift_value(buffer, 1, keys),
        drift_value(buffer, 2, keys),
        drift_value(buffer, 3, keys),
    )
    held = np.uint64(0)
    while mask != 0:
        lane = lowest_bit(mask)
        mask &= mask - np.uint64(1)
        t = at - real_at(accepted, (first + lane) * several)
        inside = True
        for i in range(4):
            bound = real_at(drifts, 8 * lane + i) + real_at(drifts, 8 * lane + 4 + i) * t
            inside &= (values[i] >= bound) & (bound >= -_MAX)
        held |= np.uint64(inside) << np.uint64(lane)
    return held


@njit(U8(row_of(I8), I8, U8, row_of(U8), F8), cache=True, nogil=True)
def moving_hold(buffer: Any, first: int, mask: Any, keys: Any, at: float) -> Any:
    """Those rows of a block whose bounds hold now; all of them only move.

    What `decide` does, for the commonest case and all in one place: 8 ns a row instead of 80.
    """
    if buffer[2 * DRIFTS + 1] > 0:
        return drifts_hold(buffer, first, mask, keys, at)
    starts, tests = address(buffer, BOUND_STARTS), address(buffer, BOUND_TESTS)
    values, limits = address(buffer, BOUND_VALUES), address(buffer, BOUND_LIMITS)
    accepted, limited = address(buffer, ACCEPTED), buffer[2 * BOUND_LIMITS + 1] > 0
    several = 1 if buffer[2 * ACCEPTED + 1] > 1 else 0
    key_address = np.int64(keys.ctypes.data)
    held = mask
    while mask != 0:
        lane = lowest_bit(mask)
        mask &= mask - np.uint64(1)
        row = first + lane
        t = at - real_at(accepted, row * several)
        for i in range(int_at(starts, row), int_at(starts, row + 1)):
            test = int_at(tests, i)
            moved = t
            if limited:
                moved = min(max(t, real_at(limits, 2 * i)), real_at(limits, 2 * i + 1))
            bound = real_at(values, 2 * i) + real_at(values, 2 * i + 1) * moved
            if not is_within(number_of(key_at(key_address, test >> 3)), test & 7, bound):
                held &= ~(np.uint64(1) << np.uint64(lane))
                break
    return held


@njit(types.boolean(row_of(I8), I8), cache=True, nogil=True)
def has_room(frame: Any, more: int) -> bool:
    """Whether so many ids and as many doubts can still be noted."""
    ids, doubts = frame[2 * OUT_IDS + 1], frame[2 * OUT_DOUBTS + 1]
    return frame[2 * ID_COUNT] + more <= ids and frame[2 * DOUBT_COUNT] + more <= doubts


@njit(types.void(row_of(I8), row_of(I8), I8, F8, I8), cache=True, nogil=True)
def settle_row(buffer: Any, frame: Any, row: int, at: float, modes: int) -> None:
    """Decide one row in full, and note its subscription, or that it is in doubt."""
    verdict = decide(buffer, row, array_of(frame, KEYS, np.uint64), at, modes)
    if verdict == MATCH:
        array_of(frame, OUT_IDS, np.int64)[frame[2 * ID_COUNT]] = id_of(buffer, row)
        frame[2 * ID_COUNT] += 1
    elif verdict == DOUBT:
        array_of(frame, OUT_DOUBTS, np.int32)[frame[2 * DOUBT_COUNT]] = row
        frame[2 * DOUBT_COUNT] += 1


@njit(types.void(row_of(I8), row_of(I8), I8, U8, F8, I8), cache=True, nogil=True)
def settle_block(buffer: Any, frame: Any, first: int, mask: Any, at: float, modes: int) -> None:
    """Those rows of a block that need more than their box, one by one."""
    flags = address(buffer, FLAGS)
    while mask != 0:
        row = first + lowest_bit(mask)
        mask &= mask - np.uint64(1)
        if not (modes & OUT_OF_TIME and byte_at(flags, row) & MOVING):
            settle_row(buffer, frame, row, at, modes)


@njit(types.boolean(row_of(I8), row_of(I8), I8, I8, F8, I8), cache=True, nogil=True)
def settle_list(buffer: Any, frame: Any, rows: int, total: int, at: float, modes: int) -> bool:
    """Rows whose numbers stand at an address, one by one; False when there is no room."""
    alive = address(buffer, ALIVE)
    if not has_room(frame, total):
        return False
    for i in range(total):
        row = int_at(rows, i)
        if key_at(alive, row >> 6) >> np.uint64(row & 63) & np.uint64(1):
            settle_row(buffer, frame, row, at, modes)
    return True


@njit(types.void(row_of(I8), I8, U8), cache=True, nogil=True)
def prefetch_bounds(buffer: Any, first: int, mask: Any) -> None:
    """Ask for the moving bounds of some rows of a block."""
    if buffer[2 * DRIFTS + 1] > 0:
        drifts = address(buffer, DRIFTS) + 64 * first
        while mask != 0:
            prefetch(drifts + 64 * lowest_bit(mask))
            mask &= mask - np.uint64(1)
        return
    starts, tests = address(buffer, BOUND_STARTS), address(buffer, BOUND_TESTS)
    values = address(buffer, BOUND_VALUES)
    while mask != 0:
        bound = int_at(starts, first + lowest_bit(mask))
        mask &= mask - np.uint64(1)
        prefetch(tests + 4 * bound)
        prefetch(values + 16 * bound)
        prefetch(values + 16 * bound + 64)


@njit(U8(row_of(I8), I8, row_of(U2)), cache=True, nogil=True)
def surely_inside(buffer: Any, block: int, codes: Any) -> Any:
    """The rows of a block whose moving bounds hold all the time that their boxes are right."""
    count = buffer[2 * DRIFT_TESTS + 1]
    if buffer[2 * INNERS + 1] == 0:
        return np.uint64(0)
    inners, tests = address(buffer, INNERS), address(buffer, DRIFT_TESTS)
    mask = np.uint64(0xFFFFFFFFFFFFFFFF)
    for i in range(count):
        test = int_at(tests, i)
        turned = CODE_MAX if test & 7 == AT_MOST else 0
        code = codes[test >> 3] ^ np.uint16(turned)
        mask &= at_most(inners + (block * count + i) * (2 * WIDTH), code)
    return mask
