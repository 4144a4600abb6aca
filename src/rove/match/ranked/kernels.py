# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""The compiled part of ranking: the members of every subscription's window, best first.

Each subscription has a *row*, and in one pool of records a piece for its *members*: its k best in
order, followed by those that may still become one, in the order of their arrival. Most publications
are worse than the k best and are only appended. The appended members are looked at only when one of
the k best has left; no other departure needs attention.

Two kinds of rows differ in what they do when there is no more room. A *list* can be refilled, so it
keeps the best members and a threshold that nothing outside of it beats. A *skyband* drops, for all
members at once, those that k newer ones beat, since these will never be delivered. (A skyband that
is pruned at every step is smaller, but then every publication has to find its place in it and push
others out.)

Windows are independent. So a batch of publications is run one skyband after another, each with all
its publications, and the skyband at hand stays in the cache.

Lists lie far apart in memory and each is visited briefly, so their cost is waiting for memory; the
next few are prefetched. Measured at 100,000 lists of thirty: 0.2 µs for a member that arrives, 0.6
µs for one that leaves.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import from_dtype, njit, types
from numba.extending import intrinsic

from rove.match.ranked.score_kernels import LANES

MEMBER = np.dtype(
    [
        ("score", "f8"),  # lower is better
        ("leaves_at", "f8"),  # a time, or for a window that counts, a number of arrivals
        ("sequence", "i8"),
        ("is_dropped", "i4"),  # only while a skyband is tidied up
        ("tail", "i2"),  # what an integer beyond 2^53 has more than `score`
        ("whole", "u1"),  # the score is an integer
        ("delivered", "u1"),
    ]
)
ROW = np.dtype(
    [
        ("id", "i8"),
        ("start", "i8"),
        ("span", "f8"),
        ("accepted_at", "f8"),
        ("threshold", "f8"),  # no member outside of the list is better than this
        ("capacity", "i4"),
        ("count", "i4"),
        ("k", "i4"),
        ("limit", "i4"),  # at this length a list is too long; 0 for a skyband
        ("target", "i4"),  # how many members stay then
        ("place", "i4"),
        # What is needed for nearly everything stands above, in one line of the cache.
        ("threshold_tail", "i8"),
        ("sign", "f8"),
        ("counts", "i8"),  # 1 for a window of the last n, 0 for a window of time
        ("arrivals", "i8"),
        ("first_sequence", "i8"),
        ("underfull_at", "f8"),
        ("refilled_at", "f8"),
        ("least_target", "i8"),
        ("shape", "i8"),  # which columns its constants stand in, at `place`; -1 without a score
    ]
)
DELIVERY = np.dtype(
    [
        ("at", "f8"),
        ("id", "i8"),
        ("sequence", "i8"),
        ("score", "f8"),
        ("tail", "i8"),
        ("whole", "u1"),
        ("promoted", "u1"),
    ]
)

_i8, _f8, _u1 = types.int64, types.float64, types.uint8


def _row(kind: Any) -> Any:
    return types.Array(kind, 1, "C")


_rows, _members, _deliveries = (_row(from_dtype(kind)) for kind in (ROW, MEMBER, DELIVERY))
_numbers, _integers, _marks = _row(_f8), _row(_i8), _row(_u1)
_options = {"cache": True, "nogil": True, "error_model": "numpy"}
# Arrays that are handed on are counted, which costs more than most of the helpers do. What makes
# no arrays itself can do without.
_uncounted = {**_options, "_nrt": False}
_inlined = {**_uncounted, "inline": "always"}


@intrinsic
def _prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Ask for the memory of array[index]; lists lie far apart, and waiting for them is the cost."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        records = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = builder.gep(records.data, [arguments[1]])
        address = builder.bitcast(place, ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
        function = builder.module.globals.get("llvm.prefetch.p0") or ir.Function(
            builder.module, kind, "llvm.prefetch.p0"
        )
        # For writing, to be kept in every cache, as data.
        builder.call(function, [address, number(1), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@njit(**_inlined)
def _not_worse(score: float, tail: int, other: float, other_tail: int) -> bool:
    return score < other or (score == other and tail <= other_tail)


@njit(**_inlined)
def _is_ahead(member: Any, score: float, tail: int, sequence: int) -> bool:
    """Better, or as good and newer."""
    if member.score != score:
        return member.score < score
    return member.tail < tail or (member.tail == tail and member.sequence > sequence)


@njit(**_inlined)
def _is_behind(member: Any, score: float, tail: int, sequence: int) -> bool:
    if member.score != score:
        return member.score > score
    return member.tail > tail or (member.tail == tail and member.sequence < sequence)


@njit(**_inlined)
def _deliver_best(
    rows: Any, members: Any, row: int, at: float, newest: int, deliveries: Any, count: int
) -> int:
    """Deliver those of the k best that were not delivered before, the best first."""
    start, sign = rows[row].start, rows[row].sign
    for j in range(start, start + min(rows[row].k, rows[row].count)):
        if members[j].delivered:
            continue
        members[j].delivered = 1
        deliveries[count].at = at
        deliveries[count].id = rows[row].id
        deliveries[count].sequence = members[j].sequence
        deliveries[count].score = members[j].score * sign
        deliveries[count].tail = members[j].tail * np.int64(sign)
        deliveries[count].whole = members[j].whole
        deliveries[count].promoted = members[j].sequence != newest
        count += 1
    return count


@njit(**_inlined)
def _drop_left(rows: Any, members: Any, row: int, moment: float) -> int:
    """Remove the members that have left at `moment`; returns how many of the k best remain."""
    kept = start = rows[row].start
    end = start + rows[row].count
    best_end, best_kept = min(end, start + rows[row].k), 0
    for j in range(start, end):
        if members[j].leaves_at > moment:
            if kept < j:
                members[kept] = members[j]
            kept += 1
        if j < best_end:
            best_kept = kept - start
    rows[row].count = kept - start
    return best_kept


@njit(**_inlined)
def _next_departure(rows: Any, members: Any, row: int) -> float:
    """When the next of the k best leaves; departures of the others need no attention."""
    earliest = math.inf
    start = rows[row].start
    for j in range(start, start + min(rows[row].k, rows[row].count)):
        earliest = min(earliest, members[j].leaves_at)
    return earliest


@njit(**_inlined)
def _swap(members: Any, a: int, b: int) -> None:
    """Field by field, since a record cannot be held without making an array for it."""
    one, other = members[a], members[b]
    one.score, other.score = other.score, one.score
    one.leaves_at, other.leaves_at = other.leaves_at, one.leaves_at
    one.sequence, other.sequence = other.sequence, one.sequence
    one.tail, other.tail = other.tail, one.tail
    one.whole, other.whole = other.whole, one.whole
    one.delivered, other.delivered = other.delivered, one.delivered


@njit(**_inlined)
def _sort_until(rows: Any, members: Any, row: int, first: int, end: int) -> None:
    """Bring the best of the unsorted rest to their places from `first` on, up to `end`."""
    start, count = rows[row].start, rows[row].count
    for place in range(start + first, start + min(end, count)):
        best = place
        for j in range(place + 1, start + count):
            one = members[best]
            if _is_ahead(members[j], one.score, one.tail, one.sequence):
                best = j
        if best != place:
            _swap(members, place, best)


@njit(**_inlined)
def _join_list(rows: Any, members: Any, row: int, score: float, tail: int) -> int:
    """Open a gap for a new member; its index. Behind the k best nothing is in order."""
    start, k = rows[row].start, rows[row].k
    end = start + rows[row].count
    rows[row].count += 1
    gap = end
    if end >= start + k:
        gap = start + k - 1
        if not _not_worse(score, tail, members[gap].score, members[gap].tail):
            return end
        members[end] = members[gap]
    while gap > start and _not_worse(score, tail, members[gap - 1].score, members[gap - 1].tail):
        members[gap] = members[gap - 1]
        gap -= 1
    return gap


@njit(**_inlined)
def _write_member(
    members: Any, at: int, score: float, leaves_at: float, sequence: int, tail: int, whole: int
) -> None:
    members[at].score = score
    members[at].leaves_at = leaves_at
    members[at].sequence = sequence
    members[at].is_dropped = 0
    members[at].tail = tail
    members[at].whole = whole
    members[at].delivered = 0


@njit(**_inlined)
def _moved(rows: Any, members: Any, used: Any, row: int, capacity: int) -> bool:
    """More room for a row, at the end of the pool; False if that is full."""
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
def _set_departure(leaves_at: Any, block_leaves_at: Any, row: int, moment: float) -> None:
    """When the next member of a row leaves, and so of its block of rows."""
    block = row // LANES
    before = leaves_at[row]
    leaves_at[row] = moment
    if moment <= block_leaves_at[block]:
        block_leaves_at[block] = moment
    elif before == block_leaves_at[block]:
        earliest = math.inf
        for i in range(block * LANES, (block + 1) * LANES):
            earliest = min(earliest, leaves_at[i])
        block_leaves_at[block] = earliest


@njit(**_inlined)
def _fetch_row(rows: Any, chosen: Any, i: int, end: int) -> bool:
    """Prefetch a row that comes soon; True if a list can be prefetched too."""
    if i + 8 < end:
        _prefetch(rows, chosen[i + 8])
    return i + 4 < end


_scored = types.Tuple((_integers, _numbers, _integers, _marks, _marks))
"""(rows, scores, tails, whole, known): the rows that may get a publication, and its scores."""
_pool = types.Tuple((_rows, _members, _integers, _numbers, _numbers))
"""(rows, members, used, leaves_at, block_leaves_at)"""


@njit(**_inlined)
def _due(leaves_at: Any, block_leaves_at: Any, now: float, due: Any) -> int:
    """The rows that may lose a member until `now`."""
    count = 0
    for block in range(block_leaves_at.size):
        if block_leaves_at[block] <= now:
            for row in range(block * LANES, (block + 1) * LANES):
                due[count] = row
                count += leaves_at[row] <= now
    return count


@njit(types.UniTuple(_i8, 3)(_pool, _f8, _deliveries, _i8, _integers, _integers), **_uncounted)
def expire(
    pool: Any, now: float, deliveries: Any, count: int, due: Any, underfull: Any
) -> tuple[int, int, int]:
    """Let members leave until `now`, moment by moment, and others move up.

    A row with fewer than k members and perhaps more outside of its list is left underfull: it must
    be refilled before it can deliver anything. `due` has room for every row and one more. Returns
    the number of deliveries and of underfull rows, and 1 if there was no room for all.
    """
    rows, members, _, leaves_at, block_leaves_at = pool
    due_count, waiting = _due(leaves_at, block_leaves_at, now, due), 0
    for i in range(due_count):
        row = due[i]
        if _fetch_row(rows, due, i, due_count):
            next_row = rows[due[i + 4]]
            for j in range(next_row.start, next_row.start + next_row.count, 2):
                _prefetch(members, j)
        while leaves_at[row] <= now:
            if deliveries.size - count < rows[row].k:
                return count, waiting, 1
            moment = leaves_at[row]
            before = rows[row].count
            best_kept = _drop_left(rows, members, row, moment)
            _sort_until(rows, members, row, best_kept, rows[row].k)
            following = _next_departure(rows, members, row)
            if rows[row].count < before:
                if rows[row].count < rows[row].k and rows[row].threshold < math.inf:
                    rows[row].underfull_at = moment
                    underfull[waiting] = row
                    waiting += 1
                    following = math.inf
                else:
                    count = _deliver_best(rows, members, row, moment, -1, deliveries, count)
            _set_departure(leaves_at, block_leaves_at, row, following)
    return count, waiting, 0


# -- skybands -------------------------------------------------------------------------------


@njit(**_inlined)
def _slide(
    rows: Any,
    members: Any,
    leaves_at: Any,
    block_leaves_at: Any,
    row: int,
    now: float,
    deliveries: Any,
    count: int,
) -> int:
    """Let members leave a window until `now`, or until there is no room for deliveries."""
    while leaves_at[row] <= now and deliveries.size - count >= rows[row].k:
        moment = leaves_at[row]
        best_kept = _drop_left(rows, members, row, moment)
        _sort_until(rows, members, row, best_kept, rows[row].k)
        count = _deliver_best(rows, members, row, moment, -1, deliveries, count)
        following = _next_departure(rows, members, row)
        _set_departure(leaves_at, block_leaves_at, row, following)
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
    """Take one into the k best so far, behind those as good; the last of more than k falls out."""
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


@njit(types.void(_rows, _members, _i8, _f8, _scratch), **_uncounted)
def _prune(rows: Any, members: Any, row: int, moment: float, scratch: Any) -> None:
    """Drop members that have left, and those that k newer ones beat: never to be delivered."""
    ages, stays, scores, tails = scratch
    _drop_left(rows, members, row, moment)
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
    # Those that go are marked; the others close the gaps and keep their order.
    for i in range(best_count, count):
        if not stays[i]:
            members[ages[i]].is_dropped = 1
    kept = start + best_count
    for j in range(start + best_count, start + count):
        if not members[j].is_dropped:
            if kept < j:
                members[kept] = members[j]
            kept += 1
    rows[row].count = kept - start


@njit(**_inlined)
def _skyband_has_room(
    rows: Any, members: Any, used: Any, row: int, moment: float, scratch: Any
) -> bool:
    """Room for one more member: tidied up, or at the end of the pool; False if that is full."""
    if rows[row].count < rows[row].capacity:
        return True
    if scratch[0].size < max(rows[row].count, rows[row].k):
        return False
    _prune(rows, members, row, moment, scratch)
    if 3 * rows[row].count <= rows[row].capacity:
        return True
    return _moved(rows, members, used, row, 2 * rows[row].capacity)


@njit(**_inlined)
def _join_skyband(
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
    deliveries: Any,
    count: int,
) -> int:
    """A publication enters a window that has room for it."""
    departure = at + rows[row].span
    has_departures = False
    if rows[row].counts:
        departure = rows[row].arrivals + rows[row].span
        has_departures = _next_departure(rows, members, row) <= rows[row].arrivals
        if has_departures:
            best_kept = _drop_left(rows, members, row, float(rows[row].arrivals))
            _sort_until(rows, members, row, best_kept, rows[row].k)
    gap = _join_list(rows, members, row, score, tail)
    _write_member(members, gap, score, departure, sequence, tail, whole)
    if rows[row].count == 1 and not rows[row].counts:
        _set_departure(leaves_at, block_leaves_at, row, departure)
    if has_departures or gap - rows[row].start < rows[row].k:
        count = _deliver_best(rows, members, row, at, sequence, deliveries, count)
    return count


_steps = types.Tuple((_integers, _integers, _numbers, _integers, _marks, _marks))
"""(rows, numbers, scores, tails, whole, known): what happens, row after row, in order of time."""


@njit(
    types.UniTuple(_i8, 2)(
        _pool, _steps, _numbers, _integers, _i8, _i8, _deliveries, _i8, _scratch
    ),
    **_uncounted,
)
def run_skybands(
    pool: Any,
    steps: Any,
    ats: Any,
    sequences: Any,
    publications: int,
    first: int,
    deliveries: Any,
    count: int,
    scratch: Any,
) -> tuple[int, int]:
    """A whole batch enters its skybands.

    `numbers` of steps say which of `ats` and `sequences` are theirs. From `publications` on these
    are ends: one empties a row, and lets nothing in afterwards if its sequence is -1.
    Returns the number of deliveries, and where to go on when there is more room.
    """
    rows, members, used, leaves_at, block_leaves_at = pool
    chosen, numbers, scores, tails, whole, known = steps
    for i in range(first, chosen.size):
        if not known[i]:
            continue
        row, at, sequence = chosen[i], ats[numbers[i]], sequences[numbers[i]]
        if leaves_at[row] <= at:
            count = _slide(rows, members, leaves_at, block_leaves_at, row, at, deliveries, count)
        if leaves_at[row] <= at or deliveries.size - count < rows[row].k:
            return count, i
        if numbers[i] >= publications:
            rows[row].count = 0
            _set_departure(leaves_at, block_leaves_at, row, math.inf)
            if sequence < 0:
                rows[row].accepted_at = math.inf
            continue
        if at < rows[row].accepted_at:
            continue
        # Of the k best none has left by then, so they stay in order.
        moment = float(rows[row].arrivals) if rows[row].counts else at
        if not _skyband_has_room(rows, members, used, row, moment, scratch):
            return count, i
        rows[row].arrivals += 1
        count = _join_skyband(
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
            deliveries,
            count,
        )
    return count, chosen.size


# -- lists ----------------------------------------------------------------------------------

_worst = types.Tuple((_numbers, _numbers, _numbers))
"""(threshold of each place, worst of each block, worst of each group of blocks)"""


@njit(types.void(_worst, _i8, _f8), **_uncounted)
def set_threshold(worst: Any, place: int, threshold: float) -> None:
    """A new threshold, and with it what the zone maps above it say."""
    for level in range(3):
        before = worst[level][place]
        worst[level][place] = threshold
        if level == 2 or before == threshold:
            return
        above = place // LANES
        if threshold < before and before < worst[level + 1][above]:
            return
        threshold = -math.inf
        for i in range(above * LANES, min((above + 1) * LANES, worst[level].size)):
            threshold = max(threshold, worst[level][i])
        place = above


@njit(**_inlined)
def _part(rows: Any, members: Any, row: int, wanted: int) -> None:
    """Bring the `wanted` best of a list to its front; the k best are there already."""
    low = rows[row].start + rows[row].k
    high = rows[row].start + rows[row].count - 1
    middle = rows[row].start + wanted
    while low < high:
        pivot = members[(low + high) >> 1]
        score, tail, sequence = pivot.score, pivot.tail, pivot.sequence
        i, j = low, high
        while i <= j:
            while _is_ahead(members[i], score, tail, sequence):
                i += 1
            while _is_behind(members[j], score, tail, sequence):
                j -= 1
            if i <= j:
                _swap(members, i, j)
                i += 1
                j -= 1
        if middle <= j:
            high = j
        elif middle >= i:
            low = i
        else:
            break


@njit(**_inlined)
def _trimmed(rows: Any, members: Any, row: int, at: float) -> bool:
    """Shorten a list that has become too long; from then on only better ones enter it."""
    if rows[row].count < rows[row].limit:
        return False
    _drop_left(rows, members, row, at)
    start, count, target = rows[row].start, rows[row].count, rows[row].target
    if count <= target:
        return False
    _part(rows, members, row, target)
    best = members[start + target]
    for j in range(start + target + 1, start + count):
        if _is_ahead(members[j], best.score, best.tail, best.sequence):
            best = members[j]
    rows[row].count = target
    rows[row].threshold = best.score
    rows[row].threshold_tail = best.tail
    return True


@njit(**_inlined)
def _list_has_room(rows: Any, members: Any, used: Any, row: int) -> bool:
    """Room for one more member of a list; False if the pool is full."""
    if rows[row].count < rows[row].capacity:
        return True
    capacity = min(2 * rows[row].capacity, rows[row].limit)
    return _moved(rows, members, used, row, capacity)


@njit(types.UniTuple(_i8, 2)(_pool, _scored, _i8, _f8, _i8, _worst, _deliveries, _i8), **_uncounted)
def enter_lists(
    pool: Any,
    scored: Any,
    first: int,
    at: float,
    sequence: int,
    worst: Any,
    deliveries: Any,
    count: int,
) -> tuple[int, int]:
    """A publication enters the list of every row whose threshold it beats."""
    rows, members, used, leaves_at, block_leaves_at = pool
    chosen, scores, tails, whole, known = scored
    for i in range(first, chosen.size):
        row = chosen[i]
        if _fetch_row(rows, chosen, i, chosen.size):
            following = rows[chosen[i + 4]]
            _prefetch(members, following.start + following.k - 1)
            _prefetch(members, following.start + following.count)
        threshold, threshold_tail = rows[row].threshold, rows[row].threshold_tail
        if (
            not known[i]
            or at < rows[row].accepted_at
            or not _not_worse(scores[i], tails[i], threshold, threshold_tail)
        ):
            continue
        if deliveries.size - count < rows[row].k or not _list_has_room(rows, members, used, row):
            return count, i
        departure = at + rows[row].span
        gap = _join_list(rows, members, row, scores[i], tails[i])
        _write_member(members, gap, scores[i], departure, sequence, tails[i], whole[i])
        if rows[row].count == 1:
            _set_departure(leaves_at, block_leaves_at, row, departure)
        if gap - rows[row].start < rows[row].k:
            count = _deliver_best(rows, members, row, at, sequence, deliveries, count)
        if _trimmed(rows, members, row, at):
            set_threshold(worst, rows[row].place, rows[row].threshold)
            # Good ones come in plenty: a list that had to grow may be shorter again.
            target = max(rows[row].least_target, rows[row].target >> 1)
            rows[row].target, rows[row].limit = target, 2 * target
    return count, chosen.size


@njit(_i8(_pool, _i8, _scored, _numbers, _worst, _deliveries, _i8), **_options)
def refill(
    pool: Any, row: int, scored: Any, departures: Any, worst: Any, deliveries: Any, count: int
) -> int:
    """Rebuild the list of an underfull row from the shared window, and deliver.

    `scored` has sequence numbers in the place of rows; there must be room for all of them, or
    for as many as a list may have. A member that was delivered before and fell
    out of the list has k newer and better ones, so it is not delivered twice.
    """
    rows, members, _, leaves_at, block_leaves_at = pool
    sequences, scores, tails, whole, known = scored
    start, before = rows[row].start, rows[row].count
    delivered = np.empty(before, np.int64)
    for j in range(before):
        delivered[j] = members[start + j].sequence if members[start + j].delivered else -1
    rows[row].count = 0
    rows[row].threshold, rows[row].threshold_tail = math.inf, 0
    for i in range(sequences.size):
        threshold, threshold_tail = rows[row].threshold, rows[row].threshold_tail
        if known[i] and _not_worse(scores[i], tails[i], threshold, threshold_tail):
            gap = _join_list(rows, members, row, scores[i], tails[i])
            _write_member(members, gap, scores[i], departures[i], sequences[i], tails[i], whole[i])
            _trimmed(rows, members, row, rows[row].underfull_at)
    for j in range(start, start + rows[row].count):
        for sequence in delivered:
            if members[j].sequence == sequence:
                members[j].delivered = 1
    set_threshold(worst, rows[row].place, rows[row].threshold)
    _set_departure(leaves_at, block_leaves_at, row, _next_departure(rows, members, row))
    return _deliver_best(rows, members, row, rows[row].underfull_at, -1, deliveries, count)
