"""The compiled part of sorted pairs: which subscriber has joined which topic, which client has a
replica of which entity.

A pair of two numbers is one key of 64 bits, the first number above the second, and a table is its
keys in ascending order. The changes of a tick are sorted, usually because they arrive so, and are
merged in one walk over both. A hash table would find a single pair sooner; but a tick touches most
of the pairs, in order, and reads memory from one end to the other at 1 to 5 ns a pair.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from rove.match.index.intrinsics import F8, I4, I8, row_of, table_of

SECOND_BITS = 32
_KEYS, _NUMBERS, _FLAGS = row_of(I8), row_of(I4), row_of(types.boolean)
_MARKS = table_of(I8)
_SECOND = (1 << SECOND_BITS) - 1


@njit(types.Tuple((_KEYS, types.boolean))(_NUMBERS, _NUMBERS), cache=True, nogil=True)
def keys_of(first: Any, second: Any) -> tuple[Any, bool]:
    """The keys of pairs, and whether they ascend (equal ones may follow each other)."""
    keys = np.empty(first.size, np.int64)
    ascends, before = True, np.int64(-1)
    for i in range(first.size):
        key = (np.int64(first[i]) << SECOND_BITS) | np.int64(second[i])
        ascends = ascends and bool(before <= key)
        before = key
        keys[i] = key
    return keys, ascends


@njit(types.Tuple((_NUMBERS, _NUMBERS))(_KEYS), cache=True, nogil=True)
def pairs_of(keys: Any) -> tuple[Any, Any]:
    """The two numbers of each key."""
    first, second = np.empty(keys.size, np.int32), np.empty(keys.size, np.int32)
    for i in range(keys.size):
        first[i] = keys[i] >> SECOND_BITS
        second[i] = keys[i] & _SECOND
    return first, second


@njit(cache=True, nogil=True)
def _reached(keys: Any, start: int, wanted: int) -> int:
    """The first place from `start` on with a key that is not below `wanted`.

    In leaps that double, then by halves: a few among many do not cost a walk.
    """
    leap, low, high = 1, start, start
    while high < keys.size and keys[high] < wanted:
        low = high + 1
        high += leap
        leap *= 2
    high = min(high, keys.size)
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@njit(_KEYS(_KEYS, _KEYS), cache=True, nogil=True)
def missing_from(keys: Any, wanted: Any) -> Any:
    """Those of the ascending `wanted` that are not among the ascending keys, each once."""
    missing = np.empty(wanted.size, np.int64)
    count, i = 0, 0
    for j in range(wanted.size):
        if j > 0 and wanted[j] == wanted[j - 1]:
            continue
        i = _reached(keys, i, wanted[j])
        if i == keys.size or keys[i] != wanted[j]:
            missing[count] = wanted[j]
            count += 1
    return missing[:count]


@njit(_KEYS(_KEYS, _KEYS), cache=True, nogil=True)
def with_keys(keys: Any, new: Any) -> Any:
    """The keys and others that are not among them, all ascending."""
    merged = np.empty(keys.size + new.size, np.int64)
    i = 0
    for j in range(new.size):
        end = _reached(keys, i, new[j])
        merged[i + j : end + j] = keys[i:end]
        merged[end + j] = new[j]
        i = end
    merged[i + new.size :] = keys[i:]
    return merged


@njit(_KEYS(_KEYS, _KEYS), cache=True, nogil=True)
def without_keys(keys: Any, old: Any) -> Any:
    """The keys without others, all ascending; those that are not there do not matter."""
    left = np.empty(keys.size, np.int64)
    count, i = 0, 0
    for j in range(old.size):
        end = _reached(keys, i, old[j])
        left[count : count + end - i] = keys[i:end]
        count += end - i
        i = end + 1 if end < keys.size and keys[end] == old[j] else end
    left[count : count + keys.size - i] = keys[i:]
    return left[: count + keys.size - i]


@njit(_KEYS(_KEYS), cache=True, nogil=True)
def starts_of(keys: Any) -> Any:
    """Where the pairs of each first number start, and, one further, where the last ones end."""
    count = (keys[-1] >> SECOND_BITS) + 1 if keys.size else 0
    starts = np.zeros(count + 1, np.int64)
    for i in range(keys.size):
        starts[(keys[i] >> SECOND_BITS) + 1] += 1
    for first in range(count):
        starts[first + 1] += starts[first]
    return starts


@njit(types.Tuple((_KEYS, _NUMBERS))(_KEYS, _KEYS, _NUMBERS, _NUMBERS), cache=True, nogil=True)
def receivers_of(keys: Any, starts: Any, everywhere: Any, topics: Any) -> tuple[Any, Any]:
    """The subscribers of each topic, ascending, among them those that are everywhere.

    Those of topics[i] are at ends[i]:ends[i + 1].
    """
    known = starts.size - 1
    room = 0
    for i in range(topics.size):
        if topics[i] < known:
            room += starts[topics[i] + 1] - starts[topics[i]]
        room += everywhere.size
    ends = np.zeros(topics.size + 1, np.int64)
    receivers = np.empty(room, np.int32)
    count = 0
    for i in range(topics.size):
        begin, end = np.int64(0), np.int64(0)
        if topics[i] < known:
            begin, end = starts[topics[i]], starts[topics[i] + 1]
        e = 0
        for k in range(begin, end):
            subscriber = keys[k] & _SECOND
            while e < everywhere.size and everywhere[e] <= subscriber:
                if everywhere[e] < subscriber:
                    receivers[count] = everywhere[e]
                    count += 1
                e += 1
            receivers[count] = subscriber
            count += 1
        while e < everywhere.size:
            receivers[count] = everywhere[e]
            count += 1
            e += 1
        ends[i + 1] = count
    return ends, receivers[:count]


@njit(_KEYS(_KEYS, _NUMBERS), cache=True, nogil=True)
def distinct_counts(ends: Any, receivers: Any) -> Any:
    """How many different ones there are in each stretch, in which equal ones follow each other."""
    counts = np.zeros(ends.size - 1, np.int64)
    for i in range(counts.size):
        for k in range(ends[i], ends[i + 1]):
            counts[i] += k == ends[i] or receivers[k] != receivers[k - 1]
    return counts


@njit(_NUMBERS(_NUMBERS, I8), cache=True, nogil=True)
def last_lines(numbers: Any, count: int) -> Any:
    """Where each number stands for the last time, by number; all are below `count`."""
    lasts = np.full(count, -1, np.int32)
    for i in range(numbers.size):
        lasts[numbers[i]] = i
    return lasts[lasts >= 0]


# -- what ought to be and what is ---------------------------------------------------------


@njit(I8(_KEYS, _NUMBERS, _NUMBERS, _KEYS, _KEYS, I8, _KEYS, _KEYS), cache=True, nogil=True)
def continue_pairs(
    starts: Any,
    seconds: Any,
    own: Any,
    keys: Any,
    since: Any,
    tick: int,
    new_keys: Any,
    new_since: Any,
) -> int:
    """Write down the pairs of now and since when they are, from those of the tick before.

    The second numbers of the first number f are at starts[f]:starts[f + 1]; the pair of each
    second number with its `own` first number is left out. How many there are is returned; there
    has to be room for all.
    """
    one, count, before, known = np.uint64(1), np.uint64(0), np.uint64(0), np.uint64(keys.size)
    for first in range(starts.size - 1):
        for k in range(np.uint64(starts[first]), np.uint64(starts[first + 1])):
            key = (np.int64(first) << SECOND_BITS) | np.int64(seconds[k])
            while before < known and keys[before] < key:
                before += one
            has_been = before < known and keys[before] == key
            new_keys[count] = key
            new_since[count] = since[before] if has_been else tick
            count += np.uint64(own[np.uint32(seconds[k])] != first)
    return int(count)


@njit(
    types.UniTuple(I8, 3)(_KEYS, _KEYS, _KEYS, _MARKS, _KEYS, I8, row_of(types.int8)),
    cache=True,
    nogil=True,
)
def judge(
    keys: Any, since: Any, held: Any, marks: Any, versions_due: Any, judged_since: int, out: Any
) -> tuple[int, int, int]:
    """(missing, stale, extra): pairs that ought to be against pairs that are held.

    A pair is judged if it is since `judged_since` or earlier, and stale if its version is below
    that of its first number in `versions_due`. `out` has 0 for a pair that is well, 1 for a
    missing and 2 for a stale one. A line of `marks` begins with the version.
    """
    missing, stale, met, j = 0, 0, 0, 0
    for i in range(keys.size):
        while j < held.size and held[j] < keys[i]:
            j += 1
        has = j < held.size and held[j] == keys[i]
        met += has
        out[i] = 0
        if since[i] > judged_since:
            continue
        if not has:
            missing += 1
            out[i] = 1
        elif marks[j, 0] < versions_due[keys[i] >> SECOND_BITS]:
            stale += 1
            out[i] = 2
    return missing, stale, held.size - met


# -- pairs with a state -------------------------------------------------------------------

_MOTIONS, _VALUES = table_of(F8), row_of(F8)
_TOLD = (_KEYS, _KEYS, _VALUES, _VALUES, _VALUES, _VALUES)
"""Version, tick, x, y, vx and vy of messages."""


@njit(cache=True, nogil=True, inline="always")
def _write(marks: Any, motions: Any, place: int, told: Any, line: int) -> None:
    version, tick, x, y, vx, vy = told
    marks[place, 0] = version[line]
    marks[place, 1] = tick[line]
    motions[place, 0] = x[line]
    motions[place, 1] = y[line]
    motions[place, 2] = vx[line]
    motions[place, 3] = vy[line]


@njit(cache=True, nogil=True, inline="always")
def _move(keys: Any, marks: Any, motions: Any, target: int, source: int) -> None:
    keys[target] = keys[source]
    for column in range(2):
        marks[target, column] = marks[source, column]
    for column in range(4):
        motions[target, column] = motions[source, column]


@njit(types.boolean(_NUMBERS, _NUMBERS, _NUMBERS, _KEYS), cache=True, nogil=True)
def write_keys(firsts: Any, lines: Any, seconds: Any, keys: Any) -> bool:
    """Write down the keys of the pairs (firsts[lines[i]], seconds[i]); whether they ascend."""
    ascends, before = True, np.int64(-1)
    for i in range(lines.size):
        key = (np.int64(firsts[lines[i]]) << SECOND_BITS) | np.int64(seconds[i])
        ascends = ascends and bool(before <= key)
        before = key
        keys[i] = key
    return ascends


@njit(
    I8(_KEYS, _MARKS, _MOTIONS, _KEYS, _NUMBERS, types.Tuple(_TOLD), _NUMBERS),
    cache=True,
    nogil=True,
)
def confirm(
    keys: Any, marks: Any, motions: Any, new: Any, lines: Any, told: Any, fresh: Any
) -> int:
    """Give pairs that are there what messages tell; how many are not there.

    `new` ascends, and lines[i] is the message for new[i]. Lower versions change nothing. Where in
    `new` the pairs are that are not there is written to `fresh`; of several messages for one, that
    is the last of the highest version.
    """
    version = told[0]
    count, reached = 0, 0
    for i in range(new.size):
        if reached < keys.size and keys[np.uint64(reached)] < new[i]:
            reached += 1  # most often it is the next
            if reached < keys.size and keys[np.uint64(reached)] < new[i]:
                reached = _reached(keys, reached, new[i])
        place, line = np.uint64(reached), np.uint32(lines[i])
        if reached < keys.size and keys[place] == new[i]:
            if version[line] >= marks[place, 0]:
                _write(marks, motions, place, told, line)
        elif count > 0 and new[fresh[count - 1]] == new[i]:
            if version[line] >= version[lines[fresh[count - 1]]]:
                fresh[count - 1] = i
        else:
            fresh[count] = i
            count += 1
    return count


@njit(
    types.void(_KEYS, I8, _MARKS, _MOTIONS, _KEYS, _NUMBERS, types.Tuple(_TOLD), _NUMBERS),
    cache=True,
    nogil=True,
)
def insert(
    keys: Any,
    count: int,
    marks: Any,
    motions: Any,
    new: Any,
    lines: Any,
    told: Any,
    fresh: Any,
) -> None:
    """Put the pairs new[fresh], which are not there, among the first `count`; there is room.

    From the last to the first, so that nothing in front of the first new one is touched.
    """
    end = count
    for j in range(fresh.size - 1, -1, -1):
        key = new[fresh[j]]
        while end > 0 and keys[end - 1] > key:
            end -= 1
            _move(keys, marks, motions, end + j + 1, end)
        keys[end + j] = key
        _write(marks, motions, end + j, told, lines[fresh[j]])


@njit(_FLAGS(_KEYS, _KEYS), cache=True, nogil=True)
def are_among(keys: Any, others: Any) -> Any:
    """Which keys are among others; both ascend."""
    flags = np.zeros(keys.size, np.bool_)
    place = 0
    for j in range(others.size):
        place = _reached(keys, place, others[j])
        if place < keys.size and keys[place] == others[j]:
            flags[place] = True
    return flags


@njit(I8(_KEYS, _MARKS, _MOTIONS, _FLAGS), cache=True, nogil=True)
def remove(keys: Any, marks: Any, motions: Any, gone: Any) -> int:
    """Close the gaps where `gone` is set; how many are left."""
    count = 0
    for i in range(gone.size):
        if not gone[i]:
            if count < i:
                _move(keys, marks, motions, count, i)
            count += 1
    return count
