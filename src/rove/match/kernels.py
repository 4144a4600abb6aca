"""The compiled part of matching: a tree of 64-wide comparisons.

Subscriptions stand in blocks of 64, blocks in groups of 64, and so on up. A node of this tree
is a handful of *columns*: 64 lower or 64 upper bounds of one subject, as unsigned 16-bit codes.
One instruction or two compare a publication's code with all 64 of them and give one 64-bit
mask; the masks of a node's columns are ANDed, and only the children whose bit is left are
looked at. Leaves and inner nodes differ in nothing but what a bit stands for.

A code says between which *cuts* a key lies (see `rove.match.keys`); up to 65,534 bounds of a
subject are all cuts, of more only some. A row whose code then equals the value's is decided by
its full keys, as is one with alternatives (IN, !=) or with bounds that move.

Trees hold rows that have subjects in common. A row that asks for a rare one is found through
that: by the tree, or the short list, of a subject that is present. So attributes that a
publication does not have cost it nothing.

Numba compiles these once, for the signatures below, and caches the result. Measured: 3.4 ns for
a 64-wide comparison with memory, one million rows put in order in 0.4 s.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from rove.match.layout import (
    ABOVE,
    ACCEPTED,
    ALIVE,
    ANY_INEXACT,
    AT,
    AT_LEAST,
    AT_MOST,
    BELOW,
    BOUND_LIMITS,
    BOUND_STARTS,
    BOUND_TESTS,
    BOUND_VALUES,
    CHILDREN,
    CODE_MAX,
    CODES,
    COLUMNS,
    COMPUTE,
    CUT_STARTS,
    CUTS,
    DOUBT_COUNT,
    DRIFT_TESTS,
    DRIFTS,
    EARLY,
    ENTRY_FIRSTS,
    ENTRY_LASTS,
    ENTRY_STARTS,
    ENTRY_SUBJECTS,
    FLAGS,
    ID_COUNT,
    IDS,
    INEXACT,
    INNERS,
    IS_ROUNDED,
    KEYS,
    LOCALS,
    MASKS,
    MOVING,
    MOVING_ROWS,
    NODE_KEYS,
    NODE_STARTS,
    NODES,
    ONLY_MOVING,
    OUT_COUNTS,
    OUT_DOUBTFUL,
    OUT_DOUBTS,
    OUT_IDS,
    OUT_OF_TIME,
    POSTING_ROWS,
    POSTING_STARTS,
    PUBLICATION,
    RAWS,
    ROUNDED,
    SHORT_IDS,
    SLOT_SUBJECTS,
    SPECIAL,
    STARTS,
    T_MAX,
    TIMES,
    TREE_OF_SUBJECT,
    TREE_STARTS,
    TREES,
    WIDTH,
)


def _wide_comparison(predicate: str) -> Any:
    """An intrinsic (address of a column, value) -> mask of 64 answers, `bound predicate value`."""

    @intrinsic
    def compare(typing_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            lanes = ir.VectorType(ir.IntType(16), WIDTH)
            place = builder.inttoptr(arguments[0], lanes.as_pointer())
            column = builder.load(place, align=2)
            empty = ir.Constant(lanes, ir.Undefined)
            first = builder.insert_element(empty, arguments[1], ir.Constant(ir.IntType(32), 0))
            everywhere = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
            repeated = builder.shuffle_vector(first, empty, everywhere)
            mask = builder.icmp_unsigned(predicate, column, repeated)
            return builder.bitcast(mask, ir.IntType(WIDTH))

        return types.uint64(types.int64, types.uint16), generate

    return compare


_at_most = _wide_comparison("<=")
_equal = _wide_comparison("==")


@intrinsic
def _lowest_bit(typing_context: Any, mask: Any) -> Any:
    """The number of the lowest bit that is set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


@intrinsic
def _prefetch(typing_context: Any, address: Any) -> Any:
    """Have a line of memory brought near, for later."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, flag = ir.IntType(8), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), flag, flag, flag])
        fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        place = builder.inttoptr(arguments[0], byte.as_pointer())
        reading, near, data = (ir.Constant(flag, value) for value in (0, 3, 1))
        builder.call(fetch, [place, reading, near, data])
        return context.get_dummy_value()

    return types.none(types.int64), generate


@intrinsic
def _as_float(typing_context: Any, bits: Any) -> Any:
    """The float that has these bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.uint64), generate


def _reading(kind: Any, result: Any) -> Any:
    """An intrinsic (address, i) -> the element i of the array of `kind` that stands there.

    Arrays would be the usual way. But a view of one is counted whenever it is made or handed on,
    and a search makes thousands; with addresses a candidate takes 5 ns instead of 500.
    """
    width = kind.bitwidth // 8

    @intrinsic
    def read(typing_context: Any, address: Any, i: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            stored = context.get_data_type(kind)
            offset = builder.mul(arguments[1], ir.Constant(ir.IntType(64), width))
            place = builder.inttoptr(builder.add(arguments[0], offset), stored.as_pointer())
            return context.cast(builder, builder.load(place), kind, result)

        return result(types.int64, types.int64), generate

    return read


_int = _reading(types.int32, types.int64)
_word = _reading(types.int64, types.int64)
_key_at = _reading(types.uint64, types.uint64)
_real = _reading(types.float64, types.float64)
_byte = _reading(types.uint8, types.int64)


_MAX = float(np.finfo(np.float64).max)
_u1, _u2, _u8 = types.uint8, types.uint16, types.uint64
_i4, _i8, _f8 = types.int32, types.int64, types.float64


def _row(kind: Any) -> Any:
    return types.Array(kind, 1, "C")


@njit(cache=True, nogil=True, inline="always")
def _address(buffer: Any, section: int) -> int:
    """Where a section begins."""
    return np.int64(buffer.ctypes.data) + 8 * buffer[2 * section]


@njit(_i8(_i8, _i8, _i8, _u8), cache=True, nogil=True)
def _code(cuts: int, first: int, end: int, key: Any) -> int:
    """How many of the cuts from `first` to `end` are at most `key`."""
    at, count = first, end - first
    while count > 0:
        half = (count + 1) >> 1
        if _key_at(cuts, at + half - 1) <= key:
            at += half
        count -= half
    return at - first


@njit(cache=True, nogil=True)
def _key(raw: Any) -> Any:
    """The key of a slot: the bits of a float, or what gives the right key for all else."""
    sign = np.uint64(1) << np.uint64(63)
    if raw == sign:  # -0.0 is 0.0
        return sign
    if raw << np.uint64(1) == np.uint64(0xFFF0000000000000):  # NaN stands for a missing value
        return np.uint64(0)
    return ~raw if raw & sign else raw | sign


@njit(cache=True, nogil=True)
def _number(key: Any) -> float:
    """The float of a key; NaN for what is no number."""
    if key < np.uint64(0x0010000000000000) or key >= np.uint64(0xFFF0000000000000):
        return np.nan
    sign = np.uint64(1) << np.uint64(63)
    return _as_float(key ^ sign if key & sign else ~key)


@njit(types.boolean(_row(_i8), _i8, _row(_u8)), cache=True, nogil=True)
def _entries_hold(buffer: Any, row: int, keys: Any) -> bool:
    """Whether each subject of a row has a key within one of its entries."""
    starts, subjects = _address(buffer, ENTRY_STARTS), _address(buffer, ENTRY_SUBJECTS)
    firsts, lasts = _address(buffer, ENTRY_FIRSTS), _address(buffer, ENTRY_LASTS)
    at, end = _int(starts, row), _int(starts, row + 1)
    while at < end:
        subject = _int(subjects, at)
        key = keys[subject]
        inside = False
        while at < end and _int(subjects, at) == subject:
            inside |= _key_at(firsts, at) <= key <= _key_at(lasts, at)
            at += 1
        if not inside:
            return False
    return True


@njit(types.boolean(_f8, _i8, _f8), cache=True, nogil=True)
def _is_within(value: float, comparator: int, bound: float) -> bool:
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


@njit(types.boolean(_row(_i8), _i8, _row(_u8), _f8), cache=True, nogil=True)
def _bounds_hold(buffer: Any, row: int, keys: Any, t: float) -> bool:
    """Whether a row's moving bounds hold at `t`, in the very operations of the evaluator."""
    starts, tests = _address(buffer, BOUND_STARTS), _address(buffer, BOUND_TESTS)
    values, limits = _address(buffer, BOUND_VALUES), _address(buffer, BOUND_LIMITS)
    limited = buffer[2 * BOUND_LIMITS + 1] > 0
    for i in range(_int(starts, row), _int(starts, row + 1)):
        test = _int(tests, i)
        value = _number(keys[test >> 3])
        moved = t
        if limited:
            moved = min(max(t, _real(limits, 2 * i)), _real(limits, 2 * i + 1))
        bound = _real(values, 2 * i) + _real(values, 2 * i + 1) * moved
        if not _is_within(value, test & 7, bound):
            return False
    return True


MISS, MATCH, DOUBT = 0, 1, 2


@njit(_i8(_row(_i8), _i8, _row(_u8), _f8, _i8), cache=True, nogil=True)
def _decide(buffer: Any, row: int, keys: Any, at: float, modes: int) -> int:
    """One row in full: MATCH, MISS, or DOUBT where it must be computed."""
    accepted = _address(buffer, ACCEPTED)
    accepted_at = _real(accepted, row if buffer[2 * ACCEPTED + 1] > 1 else 0)
    if at < accepted_at or not _entries_hold(buffer, row, keys):
        return MISS
    flags = _byte(_address(buffer, FLAGS), row)
    t = at - accepted_at
    if flags & MOVING:
        if modes & ROUNDED or (flags & COMPUTE and t > T_MAX):
            return DOUBT
        if not _bounds_hold(buffer, row, keys, t):
            return MISS
    return DOUBT if flags & COMPUTE else MATCH


@njit(cache=True, nogil=True, inline="always")
def _node_mask(starts: int, sides: int, columns: int, node: int, codes: Any) -> Any:
    """Which of the 64 children of a node a publication can match."""
    mask = np.uint64(0xFFFFFFFFFFFFFFFF)
    for column in range(_word(starts, node), _word(starts, node + 1)):
        side = _int(sides, column)
        # Upper bounds are turned over: branching on the side would be mispredicted half the time.
        code = codes[side >> 1] ^ np.uint16((side & 1) * CODE_MAX)
        mask &= _at_most(columns + column * (2 * WIDTH), code)
        if mask == 0:
            break
    return mask


@njit(_u8(_row(_i8), _i8, _row(_u2)), cache=True, nogil=True)
def _undecided(buffer: Any, node: int, codes: Any) -> Any:
    """The rows of a leaf whose code equals the value's, where a code stands for many keys."""
    starts, sides = _address(buffer, NODE_STARTS), _address(buffer, NODE_KEYS)
    columns, inexact = _address(buffer, COLUMNS), _address(buffer, INEXACT)
    found = np.uint64(0)
    for column in range(_word(starts, node), _word(starts, node + 1)):
        side = _int(sides, column)
        if _byte(inexact, side >> 1):
            code = codes[side >> 1] ^ np.uint16((side & 1) * CODE_MAX)
            found |= _equal(columns + column * (2 * WIDTH), code)
    return found


@njit(_i8(_row(_i8), _i8, _row(_u2), _row(_i4), _row(_i4)), cache=True, nogil=True)
def _leaves_reached(buffer: Any, tree: int, codes: Any, nodes: Any, children: Any) -> int:
    """Walk down level by level; the leaves that may hold a match are left in `nodes`."""
    starts, sides = _address(buffer, NODE_STARTS), _address(buffer, NODE_KEYS)
    columns = _address(buffer, COLUMNS)
    levels = _word(tree, 1)
    waiting = _word(tree, levels + 2) - _word(tree, levels + 1)
    for root in range(waiting):
        nodes[root] = root
    for level in range(levels - 1, 0, -1):
        following = 0
        first_node = _word(tree, level + 2)
        existing = first_node - _word(tree, level + 1)
        for i in range(waiting):
            node = np.int64(nodes[i])
            mask = _node_mask(starts, sides, columns, first_node + node, codes)
            while mask != 0:
                child = node * WIDTH + _lowest_bit(mask)
                if child >= existing:  # without any column, nothing excludes the padding
                    break
                children[following] = child
                mask &= mask - np.uint64(1)
                following += 1
        for i in range(following):
            nodes[i] = children[i]
        waiting = following
    return waiting


@njit(_i8(_row(_i8), _i8), cache=True, nogil=True)
def _id(buffer: Any, row: int) -> int:
    """The subscription of a row; ~id where it has several rows."""
    if buffer[2 * SHORT_IDS + 1] > 0:
        return _int(_address(buffer, SHORT_IDS), row)
    return _word(_address(buffer, IDS), row)


@njit(cache=True, nogil=True, inline="always")
def _drift_value(buffer: Any, i: int, keys: Any) -> float:
    """What the i-th drift is compared with; 0 where there is none."""
    if i >= buffer[2 * DRIFT_TESTS + 1]:
        return 0.0
    test = _int(_address(buffer, DRIFT_TESTS), i)
    value = _number(keys[test >> 3])
    return -value if test & 7 == AT_MOST else value


@njit(_u8(_row(_i8), _i8, _u8, _row(_u8), _f8), cache=True, nogil=True)
def _drifts_hold(buffer: Any, first: int, mask: Any, keys: Any, at: float) -> Any:
    """The same as `_moving_hold` where all rows move in the same way, without a branch."""
    accepted = _address(buffer, ACCEPTED)
    several = 1 if buffer[2 * ACCEPTED + 1] > 1 else 0
    drifts = _address(buffer, DRIFTS) + 64 * first
    values = (
        _drift_value(buffer, 0, keys),
        _drift_value(buffer, 1, keys),
        _drift_value(buffer, 2, keys),
        _drift_value(buffer, 3, keys),
    )
    held = np.uint64(0)
    while mask != 0:
        lane = _lowest_bit(mask)
        mask &= mask - np.uint64(1)
        t = at - _real(accepted, (first + lane) * several)
        inside = True
        for i in range(4):
            bound = _real(drifts, 8 * lane + i) + _real(drifts, 8 * lane + 4 + i) * t
            inside &= (values[i] >= bound) & (bound >= -_MAX)
        held |= np.uint64(inside) << np.uint64(lane)
    return held


@njit(_u8(_row(_i8), _i8, _u8, _row(_u8), _f8), cache=True, nogil=True)
def _moving_hold(buffer: Any, first: int, mask: Any, keys: Any, at: float) -> Any:
    """Those rows of a block whose bounds hold now; all of them only move.

    What `_decide` does, for the commonest case and all in one place: 8 ns a row instead of 80.
    """
    if buffer[2 * DRIFTS + 1] > 0:
        return _drifts_hold(buffer, first, mask, keys, at)
    starts, tests = _address(buffer, BOUND_STARTS), _address(buffer, BOUND_TESTS)
    values, limits = _address(buffer, BOUND_VALUES), _address(buffer, BOUND_LIMITS)
    accepted, limited = _address(buffer, ACCEPTED), buffer[2 * BOUND_LIMITS + 1] > 0
    several = 1 if buffer[2 * ACCEPTED + 1] > 1 else 0
    key_address = np.int64(keys.ctypes.data)
    held = mask
    while mask != 0:
        lane = _lowest_bit(mask)
        mask &= mask - np.uint64(1)
        row = first + lane
        t = at - _real(accepted, row * several)
        for i in range(_int(starts, row), _int(starts, row + 1)):
            test = _int(tests, i)
            moved = t
            if limited:
                moved = min(max(t, _real(limits, 2 * i)), _real(limits, 2 * i + 1))
            bound = _real(values, 2 * i) + _real(values, 2 * i + 1) * moved
            if not _is_within(_number(_key_at(key_address, test >> 3)), test & 7, bound):
                held &= ~(np.uint64(1) << np.uint64(lane))
                break
    return held


@njit(
    types.UniTuple(_i8, 2)(
        _row(_i8),
        _i8,
        _u8,
        _row(_u8),
        _f8,
        _i8,
        _row(_i8),
        _i8,
        _row(_i4),
        _i8,
    ),
    cache=True,
    nogil=True,
)
def _decide_rows(
    buffer: Any,
    first: int,
    mask: Any,
    keys: Any,
    at: float,
    modes: int,
    out_ids: Any,
    count: int,
    out_doubts: Any,
    doubts: int,
) -> tuple[int, int]:
    """The rows of a block that need more than their box, one by one."""
    flags = _address(buffer, FLAGS)
    while mask != 0:
        row = first + _lowest_bit(mask)
        mask &= mask - np.uint64(1)
        if modes & OUT_OF_TIME and _byte(flags, row) & MOVING:
            continue
        verdict = _decide(buffer, row, keys, at, modes)
        if verdict == MATCH:
            out_ids[count] = _id(buffer, row)
            count += 1
        elif verdict == DOUBT:
            out_doubts[doubts] = row
            doubts += 1
    return count, doubts


@njit(types.void(_row(_i8), _i8, _u8), cache=True, nogil=True)
def _prefetch_bounds(buffer: Any, first: int, mask: Any) -> None:
    """Ask for the moving bounds of some rows of a block."""
    if buffer[2 * DRIFTS + 1] > 0:
        drifts = _address(buffer, DRIFTS) + 64 * first
        while mask != 0:
            _prefetch(drifts + 64 * _lowest_bit(mask))
            mask &= mask - np.uint64(1)
        return
    starts, tests = _address(buffer, BOUND_STARTS), _address(buffer, BOUND_TESTS)
    values = _address(buffer, BOUND_VALUES)
    while mask != 0:
        bound = _int(starts, first + _lowest_bit(mask))
        mask &= mask - np.uint64(1)
        _prefetch(tests + 4 * bound)
        _prefetch(values + 16 * bound)
        _prefetch(values + 16 * bound + 64)


@njit(_u8(_row(_i8), _i8, _row(_u2)), cache=True, nogil=True)
def _surely_inside(buffer: Any, block: int, codes: Any) -> Any:
    """The rows of a block whose moving bounds hold all the time that their boxes are right."""
    count = buffer[2 * DRIFT_TESTS + 1]
    if buffer[2 * INNERS + 1] == 0:
        return np.uint64(0)
    inners, tests = _address(buffer, INNERS), _address(buffer, DRIFT_TESTS)
    mask = np.uint64(0xFFFFFFFFFFFFFFFF)
    for i in range(count):
        test = _int(tests, i)
        turned = CODE_MAX if test & 7 == AT_MOST else 0
        code = codes[test >> 3] ^ np.uint16(turned)
        mask &= _at_most(inners + (block * count + i) * (2 * WIDTH), code)
    return mask


@njit(_i8(_row(_i8), _i8, _row(_u2), _row(_i4), _row(_u8), _i8), cache=True, nogil=True)
def _blocks_hit(buffer: Any, tree: int, codes: Any, nodes: Any, masks: Any, waiting: int) -> int:
    """Search the leaves in `nodes`; the blocks that are hit are left there, with their masks.

    Memory is slow: what the next leaves will need is asked for in good time, and the ids of a
    block as soon as it is known to be hit.
    """
    starts, sides = _address(buffer, NODE_STARTS), _address(buffer, NODE_KEYS)
    columns, alive = _address(buffer, COLUMNS), _address(buffer, ALIVE)
    is_short = buffer[2 * SHORT_IDS + 1] > 0
    ids = _address(buffer, SHORT_IDS if is_short else IDS)
    width = 4 if is_short else 8
    first_block, first_leaf = _word(tree, 0), _word(tree, 2)
    moves, only_moving = buffer[2 * BOUND_TESTS + 1] > 0, _address(buffer, ONLY_MOVING)
    hit = 0
    for i in range(waiting):
        if i + 8 < waiting:
            _prefetch(starts + 8 * (first_leaf + nodes[i + 8]))
        if i + 4 < waiting:
            column = _word(starts, first_leaf + nodes[i + 4])
            _prefetch(sides + 4 * column)
            for line in range(8):
                _prefetch(columns + column * (2 * WIDTH) + 64 * line)
        leaf = np.int64(nodes[i])
        mask = _node_mask(starts, sides, columns, first_leaf + leaf, codes)
        mask &= _key_at(alive, first_block + leaf)
        if mask != 0:
            nodes[hit] = leaf
            masks[hit] = mask
            hit += 1
            for line in range(width):
                _prefetch(ids + (first_block + leaf) * WIDTH * width + 64 * line)
            if moves:
                unsure = mask & _key_at(only_moving, first_block + leaf)
                unsure &= ~_surely_inside(buffer, first_block + leaf, codes)
                masks[masks.size // 2 + hit - 1] = unsure
                _prefetch_bounds(buffer, (first_block + leaf) * WIDTH, unsure)
    return hit


@njit(
    types.UniTuple(_i8, 2)(
        _row(_i8),
        _i8,
        _row(_u2),
        _row(_u8),
        _row(_i4),
        _row(_i4),
        _row(_u8),
        _f8,
        _i8,
        _row(_i8),
        _i8,
        _row(_i4),
        _i8,
    ),
    cache=True,
    nogil=True,
)
def _search(
    buffer: Any,
    tree_number: int,
    codes: Any,
    keys: Any,
    nodes: Any,
    children: Any,
    masks: Any,
    at: float,
    modes: int,
    out_ids: Any,
    count: int,
    out_doubts: Any,
    doubts: int,
) -> tuple[int, int]:
    """One publication in one tree; (-1, -1) when there is no room."""
    special, only_moving = _address(buffer, SPECIAL), _address(buffer, ONLY_MOVING)
    moves = buffer[2 * BOUND_TESTS + 1] > 0
    is_short = buffer[2 * SHORT_IDS + 1] > 0
    ids = _address(buffer, SHORT_IDS if is_short else IDS)
    tree = _address(buffer, TREES) + 8 * _int(_address(buffer, TREE_STARTS), tree_number)
    waiting = _leaves_reached(buffer, tree, codes, nodes, children)
    hit = _blocks_hit(buffer, tree, codes, nodes, masks, waiting)
    if count + hit * WIDTH > out_ids.size or doubts + hit * WIDTH > out_doubts.size:
        return -1, -1
    for i in range(hit):
        block, mask = _word(tree, 0) + nodes[i], masks[i]
        first = block * WIDTH
        slow = mask & _key_at(special, block)
        if moves and modes & ~ANY_INEXACT == 0:
            moving, unsure = _key_at(only_moving, block), masks[masks.size // 2 + i]
            slow &= ~moving
            if unsure != 0:
                mask &= ~unsure | _moving_hold(buffer, first, unsure, keys, at)
        else:
            moving = np.uint64(0)
        if modes & ANY_INEXACT and mask & ~moving != 0:
            slow |= mask & ~moving & _undecided(buffer, _word(tree, 2) + nodes[i], codes)
        if modes & EARLY:
            slow = mask
        mask &= ~slow
        while mask != 0:
            row = first + _lowest_bit(mask)
            out_ids[count] = _int(ids, row) if is_short else _word(ids, row)
            mask &= mask - np.uint64(1)
            count += 1
        if slow != 0:
            count, doubts = _decide_rows(
                buffer, first, slow, keys, at, modes, out_ids, count, out_doubts, doubts
            )
    return count, doubts


@njit(
    types.UniTuple(_i8, 2)(
        _row(_i8), _i8, _i8, _row(_u8), _f8, _i8, _row(_i8), _i8, _row(_i4), _i8
    ),
    cache=True,
    nogil=True,
)
def _try_rows(
    buffer: Any,
    rows: int,
    total: int,
    keys: Any,
    at: float,
    modes: int,
    out_ids: Any,
    count: int,
    out_doubts: Any,
    doubts: int,
) -> tuple[int, int]:
    """Rows one by one, whose numbers stand at an address; (-1, -1) when there is no room."""
    alive = _address(buffer, ALIVE)
    if count + total > out_ids.size or doubts + total > out_doubts.size:
        return -1, -1
    for i in range(total):
        row = _int(rows, i)
        if not _key_at(alive, row >> 6) >> np.uint64(row & 63) & np.uint64(1):
            continue
        verdict = _decide(buffer, row, keys, at, modes)
        if verdict == MATCH:
            out_ids[count] = _id(buffer, row)
            count += 1
        elif verdict == DOUBT:
            out_doubts[doubts] = row
            doubts += 1
    return count, doubts


@njit(_i8(_row(_i8), _i8), cache=True, nogil=True)
def _local(buffer: Any, subject: int) -> int:
    """The number that a subject of the matcher has here, or -1."""
    if subject >= buffer[2 * LOCALS + 1]:
        return -1
    return _int(_address(buffer, LOCALS), subject)


@njit(
    types.UniTuple(_i8, 2)(
        _row(_i8),
        _i8,
        _i8,
        _row(_i4),
        _row(_u2),
        _row(_u8),
        _row(_i4),
        _row(_i4),
        _row(_u8),
        _f8,
        _i8,
        _row(_i8),
        _i8,
        _row(_i4),
        _i8,
    ),
    cache=True,
    nogil=True,
)
def _find_one(
    buffer: Any,
    first: int,
    end: int,
    subjects: Any,
    codes: Any,
    keys: Any,
    nodes: Any,
    children: Any,
    masks: Any,
    at: float,
    modes: int,
    out_ids: Any,
    count: int,
    out_doubts: Any,
    doubts: int,
) -> tuple[int, int]:
    """One publication, whose codes and keys are set: the trees and lists that it opens."""
    own_trees = _address(buffer, TREE_OF_SUBJECT)
    list_starts, lists = _address(buffer, POSTING_STARTS), _address(buffer, POSTING_ROWS)
    if _word(_address(buffer, TREES), 0) >= 0:
        count, doubts = _search(
            buffer,
            0,
            codes,
            keys,
            nodes,
            children,
            masks,
            at,
            modes,
            out_ids,
            count,
            out_doubts,
            doubts,
        )
    for slot in range(first, end):
        subject = _local(buffer, subjects[slot])
        if count < 0 or subject < 0 or keys[subject] == 0:
            continue
        tree = _int(own_trees, subject)
        if tree > 0:
            count, doubts = _search(
                buffer,
                tree,
                codes,
                keys,
                nodes,
                children,
                masks,
                at,
                modes,
                out_ids,
                count,
                out_doubts,
                doubts,
            )
        listed, listed_end = _int(list_starts, subject), _int(list_starts, subject + 1)
        if count >= 0 and listed_end > listed:
            rows = lists + 4 * listed
            count, doubts = _try_rows(
                buffer,
                rows,
                listed_end - listed,
                keys,
                at,
                modes,
                out_ids,
                count,
                out_doubts,
                doubts,
            )
    if count >= 0 and modes & OUT_OF_TIME:
        moving, total = _address(buffer, MOVING_ROWS), buffer[2 * MOVING_ROWS + 1]
        count, doubts = _try_rows(
            buffer, moving, total, keys, at, modes, out_ids, count, out_doubts, doubts
        )
    return count, doubts


@njit(
    types.void(_row(_i8), _i8, _i8, _row(_i4), _row(_u8), _row(_u2), _row(_u8)),
    cache=True,
    nogil=True,
)
def _set_codes(
    buffer: Any, first: int, end: int, subjects: Any, raws: Any, codes: Any, keys: Any
) -> None:
    """Write the keys and codes of one publication where its subjects have their places."""
    cut_starts, cuts = _address(buffer, CUT_STARTS), _address(buffer, CUTS)
    for slot in range(first, end):
        subject = _local(buffer, subjects[slot])
        if subject >= 0:
            keys[subject] = _key(raws[slot])
            first_cut, end_cut = _word(cut_starts, subject), _word(cut_starts, subject + 1)
            codes[subject] = _code(cuts, first_cut, end_cut, keys[subject])


@njit(types.void(_row(_i8), _i8, _i8, _row(_i4), _row(_u2), _row(_u8)), cache=True, nogil=True)
def _clear_codes(buffer: Any, first: int, end: int, subjects: Any, codes: Any, keys: Any) -> None:
    """Make all keys and codes 0 again: missing."""
    for slot in range(first, end):
        subject = _local(buffer, subjects[slot])
        if subject >= 0:
            keys[subject] = 0
            codes[subject] = 0


@njit(_i8(_row(_i8), _f8, _u1), cache=True, nogil=True)
def _modes(buffer: Any, at: float, rounded: int) -> int:
    """What a publication meets."""
    times = _address(buffer, TIMES)
    modes = ANY_INEXACT if _real(times, 3) != 0.0 else 0
    if rounded:
        modes |= ROUNDED
    if at < _real(times, 2):
        modes |= EARLY
    if not _real(times, 0) <= at <= _real(times, 1):
        modes |= OUT_OF_TIME
    return modes


@intrinsic
def _pointer(typing_context: Any, address: Any, kind: Any) -> Any:
    """An address as a pointer to elements of `kind`."""
    result = types.CPointer(kind.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(result))

    return result(types.int64, kind), generate


@njit(cache=True, nogil=True, inline="always")
def _array(frame: Any, i: int, kind: Any) -> Any:
    """An array of the frame."""
    return carray(_pointer(frame[2 * i], kind), frame[2 * i + 1])


@njit(types.void(_row(_i8), _row(_i8)), cache=True, nogil=True)
def find(buffer: Any, frame: Any) -> None:
    """All matches of a frame's publications in a segment, as far as there is room.

    A frame is described in `rove.match.layout`. When there is no room, PUBLICATION is the one
    to go on with.
    """
    starts, subjects = _array(frame, STARTS, np.int64), _array(frame, SLOT_SUBJECTS, np.int32)
    raws, at = _array(frame, RAWS, np.uint64), _array(frame, AT, np.float64)
    rounded = _array(frame, IS_ROUNDED, np.uint8)
    codes, keys = _array(frame, CODES, np.uint16), _array(frame, KEYS, np.uint64)
    nodes, children = _array(frame, NODES, np.int32), _array(frame, CHILDREN, np.int32)
    masks = _array(frame, MASKS, np.uint64)
    out_counts, out_ids = _array(frame, OUT_COUNTS, np.int32), _array(frame, OUT_IDS, np.int64)
    out_doubtful = _array(frame, OUT_DOUBTFUL, np.int32)
    out_doubts = _array(frame, OUT_DOUBTS, np.int32)
    count, doubts = frame[2 * ID_COUNT], frame[2 * DOUBT_COUNT]
    publication = frame[2 * PUBLICATION]
    while publication < at.size:
        first, end = starts[publication], starts[publication + 1]
        _set_codes(buffer, first, end, subjects, raws, codes, keys)
        now, now_doubts = _find_one(
            buffer,
            first,
            end,
            subjects,
            codes,
            keys,
            nodes,
            children,
            masks,
            at[publication],
            _modes(buffer, at[publication], rounded[publication]),
            out_ids,
            count,
            out_doubts,
            doubts,
        )
        _clear_codes(buffer, first, end, subjects, codes, keys)
        if now < 0:
            break
        out_counts[publication] = now - count
        out_doubtful[publication] = now_doubts - doubts
        count, doubts = now, now_doubts
        publication += 1
    frame[2 * ID_COUNT], frame[2 * DOUBT_COUNT] = count, doubts
    frame[2 * PUBLICATION] = publication
