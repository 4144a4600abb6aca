# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""The compiled part of scoring: programs, run for 64 subscriptions or publications at a time.

A score is a short list of steps on a stack (see `rove.match.ranked.scores`). Each step is done for
64 lanes before the next one, so that one interpreter runs every expression at nearly the speed of
code compiled for it. It runs in two ways: over numbers, every bit as the evaluator of the
language computes it, and over intervals, where it finds whether any of 64 whole blocks of
subscriptions could want a publication.

Rounding is monotone, so intervals need no margin where only + - * / and the like are used; what
the C library computes (pow, sin, cos, distance) gets one.

Measured: 0.8 ns for a step and lane over numbers, 1.4 ns over intervals.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, types

LANES = 64
"""Lanes of the interpreter, subscriptions of a block, blocks of a group of blocks."""

EXACT_MAX = 2.0**53
"""From here on a float no longer holds every integer."""

(ADD, SUBTRACT, MULTIPLY, DIVIDE, LEAST, GREATEST, POWER) = range(-1, -8, -1)
(NEGATE, ABSOLUTE, ROOT, FLOOR, CEILING, SINE, COSINE) = range(-8, -15, -1)
DISTANCE = -15
"""Steps of a program; a number from 0 on puts that input on the stack."""

_RADIANS = math.pi / 180
_EARTH_RADIUS_M = 6_371_008.8
_MARGIN = 1e-12
_TINY = 1e-300
_DISTANCE_MARGIN_M = 1e-6

_i8, _f8, _b1 = types.int64, types.float64, types.boolean
_numbers, _integers = types.Array(_f8, 1, "C"), types.Array(_i8, 1, "C")
_columns = types.Array(_f8, 2, "C")
_marks = types.Array(types.uint8, 1, "C")
_options = {"cache": True, "nogil": True, "error_model": "numpy"}
# Arrays that are handed on are counted, which costs more than most of the helpers do.
_inlined = {**_options, "inline": "always"}

# -- programs over numbers ----------------------------------------------------------------


@njit(_f8(_f8, _f8, _f8, _f8), **_options)
def _distance(lat_1: float, long_1: float, lat_2: float, long_2: float) -> float:
    """The haversine of `rove.lang.functions`, step by step the same."""
    phi_1, phi_2 = lat_1 * _RADIANS, lat_2 * _RADIANS
    half_phi = math.sin((phi_2 - phi_1) / 2)
    half_lambda = math.sin((long_2 * _RADIANS - long_1 * _RADIANS) / 2)
    haversine = half_phi * half_phi + math.cos(phi_1) * math.cos(phi_2) * (
        half_lambda * half_lambda
    )
    if not haversine > 0.0:
        haversine = 0.0
    if not haversine < 1.0:
        haversine = 1.0
    return 2 * _EARTH_RADIUS_M * math.asin(math.sqrt(haversine))


@njit(**_inlined)
def _arithmetic(step: int, left: Any, right: Any, lanes: int) -> None:
    if step == ADD:
        for i in range(lanes):
            left[i] = left[i] + right[i]
    elif step == SUBTRACT:
        for i in range(lanes):
            left[i] = left[i] - right[i]
    elif step == MULTIPLY:
        for i in range(lanes):
            left[i] = left[i] * right[i]
    else:
        for i in range(lanes):
            left[i] = left[i] / right[i]


@njit(**_inlined)
def _choice_or_power(step: int, left: Any, right: Any, lanes: int) -> None:
    """Of equals the first stays, as Python's min and max have it: zeros have a sign."""
    if step == LEAST:
        for i in range(lanes):
            left[i] = right[i] if right[i] < left[i] else left[i]
    elif step == GREATEST:
        for i in range(lanes):
            left[i] = right[i] if right[i] > left[i] else left[i]
    else:
        for i in range(lanes):
            left[i] = math.pow(left[i], right[i])


@njit(**_inlined)
def _unary(step: int, value: Any, lanes: int) -> None:
    """Adding zero after floor and ceil turns -0.0 into what Python's detour over int gives."""
    for i in range(lanes):
        x = value[i]
        if step == NEGATE:
            value[i] = -x
        elif step == ABSOLUTE:
            value[i] = abs(x)
        elif step == ROOT:
            value[i] = math.nan if x < 0 else math.sqrt(x)
        elif step == FLOOR:
            value[i] = np.floor(x) + 0.0
        elif step == CEILING:
            value[i] = np.ceil(x) + 0.0
        elif step == SINE:
            value[i] = math.sin(x)
        else:
            value[i] = math.cos(x)


@njit(types.void(_integers, _columns, _columns, _numbers, _i8, _b1), **_options)
def evaluate(code: Any, inputs: Any, stack: Any, doubt: Any, lanes: int, whole: bool) -> None:
    """Run a program; the result is stack[0], and `doubt` says how far to trust it.

    Without integers, doubt is 0 where every step gave a finite number and NaN elsewhere: there
    the score is UNKNOWN. With integers (`whole`) it is the sum of all steps' magnitudes: below
    2^53 floats did what integers do.
    """
    doubt[:lanes] = 0.0
    top = -1
    for step in code:
        if step >= 0:
            top += 1
            stack[top, :lanes] = inputs[step, :lanes]
            continue
        if step >= DIVIDE:
            top -= 1
            _arithmetic(step, stack[top], stack[top + 1], lanes)
        elif step >= POWER:
            top -= 1
            _choice_or_power(step, stack[top], stack[top + 1], lanes)
        elif step > DISTANCE:
            _unary(step, stack[top], lanes)
        else:
            top -= 3
            for i in range(lanes):
                stack[top, i] = _distance(
                    stack[top, i], stack[top + 1, i], stack[top + 2, i], stack[top + 3, i]
                )
        result = stack[top]
        if whole:
            for i in range(lanes):
                doubt[i] += abs(result[i])
        else:
            for i in range(lanes):
                doubt[i] += result[i] - result[i]


@njit(
    types.void(_integers, _i8, _i8, _numbers, _columns, _integers, _b1, _f8, _numbers, _numbers),
    **_options,
)
def score_places(
    code: Any,
    depth: int,
    scalars: int,
    event: Any,
    columns: Any,
    places: Any,
    whole: bool,
    sign: float,
    scores: Any,
    doubts: Any,
) -> None:
    """The scores of one publication for the subscriptions at `places`, lower being better."""
    inputs = np.empty((scalars + columns.shape[0], LANES))
    stack = np.empty((depth, LANES))
    doubt = np.empty(LANES)
    for s in range(scalars):
        inputs[s, :] = event[s]
    for first in range(0, places.size, LANES):
        lanes = min(LANES, places.size - first)
        for c in range(columns.shape[0]):
            for i in range(lanes):
                inputs[scalars + c, i] = columns[c, places[first + i]]
        evaluate(code, inputs, stack, doubt, lanes, whole)
        for i in range(lanes):
            scores[first + i] = stack[0, i] * sign
            doubts[first + i] = doubt[i]


@njit(
    _i8(
        _integers,
        _i8,
        _columns,
        _columns,
        _integers,
        _integers,
        _integers,
        _b1,
        _f8,
        _numbers,
        _marks,
        _integers,
    ),
    **_options,
)
def score_pairs(
    code: Any,
    depth: int,
    events: Any,
    columns: Any,
    numbers: Any,
    places: Any,
    chosen: Any,
    whole: bool,
    sign: float,
    scores: Any,
    known: Any,
    asked: Any,
) -> int:
    """The scores of `chosen` pairs: publication numbers[i] for the subscription at places[i].

    Marks which are known. Those that only the oracle can compute are written to `asked`;
    returns their number.
    """
    scalars = events.shape[0]
    inputs = np.empty((scalars + columns.shape[0], LANES))
    stack = np.empty((depth, LANES))
    doubt = np.empty(LANES)
    count = 0
    for first in range(0, chosen.size, LANES):
        lanes = min(LANES, chosen.size - first)
        for s in range(scalars):
            for i in range(lanes):
                inputs[s, i] = events[s, numbers[chosen[first + i]]]
        for c in range(columns.shape[0]):
            for i in range(lanes):
                inputs[scalars + c, i] = columns[c, places[chosen[first + i]]]
        evaluate(code, inputs, stack, doubt, lanes, whole)
        for i in range(lanes):
            pair = chosen[first + i]
            scores[pair] = stack[0, i] * sign
            if whole:
                # Beyond 2^53 floats are no integers, and which zero it is they do not know.
                known[pair] = doubt[i] < EXACT_MAX and stack[0, i] != 0
                asked[count] = pair
                count += not known[pair]
            else:
                known[pair] = doubt[i] == 0
    return count


@njit(_integers(_integers, _i8), **_options)
def order_by_row(chosen: Any, row_count: int) -> Any:
    """The order that sorts by row and is stable within a row: a counting sort."""
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


# -- programs over intervals ----------------------------------------------------------------


@njit(**_inlined)
def _product_bounds(lows: Any, highs: Any, top: int, lanes: int) -> None:
    low, high, other_low, other_high = lows[top], highs[top], lows[top + 1], highs[top + 1]
    for i in range(lanes):
        a, b, c, d = low[i], high[i], other_low[i], other_high[i]
        p, q, r, s = a * c, a * d, b * c, b * d
        low[i] = min(min(p, q), min(r, s))  # noqa: PLW3301 (four at once are not vectorised)
        high[i] = max(max(p, q), max(r, s))  # noqa: PLW3301
        if math.isnan(p + q + r + s):
            low[i], high[i] = -math.inf, math.inf


@njit(**_inlined)
def _quotient_bounds(lows: Any, highs: Any, top: int, lanes: int) -> None:
    """A divisor on both sides of zero may give anything."""
    low, high = lows[top + 1], highs[top + 1]
    for i in range(lanes):
        a, b, c, d = lows[top, i], highs[top, i], low[i], high[i]
        p, q, r, s = a / c, a / d, b / c, b / d
        lows[top, i], highs[top, i] = min(p, q, r, s), max(p, q, r, s)
        if c <= 0.0 <= d or math.isnan(p + q + r + s):
            lows[top, i], highs[top, i] = -math.inf, math.inf


@njit(**_inlined)
def _sum_bounds(step: int, lows: Any, highs: Any, top: int, lanes: int) -> None:
    low, high, other_low, other_high = lows[top], highs[top], lows[top + 1], highs[top + 1]
    if step == ADD:
        for i in range(lanes):
            low[i] += other_low[i]
            high[i] += other_high[i]
    else:
        for i in range(lanes):
            low[i] -= other_high[i]
            high[i] -= other_low[i]


@njit(**_inlined)
def _power_bounds(lows: Any, highs: Any, top: int, lanes: int) -> None:
    """Squares only: it is what distances are made of."""
    low, high, other_low, other_high = lows[top], highs[top], lows[top + 1], highs[top + 1]
    for i in range(lanes):
        a, b = low[i], high[i]
        nearest = 0.0 if a <= 0.0 <= b else min(abs(a), abs(b))
        farthest = max(abs(a), abs(b))
        low[i] = nearest * nearest * (1 - _MARGIN) - _TINY
        high[i] = farthest * farthest * (1 + _MARGIN) + _TINY
        if not (other_low[i] == 2.0 and other_high[i] == 2.0):
            low[i], high[i] = -math.inf, math.inf


@njit(**_inlined)
def _binary_bounds(step: int, lows: Any, highs: Any, top: int, lanes: int) -> None:
    if step >= SUBTRACT:
        _sum_bounds(step, lows, highs, top, lanes)
    elif step == MULTIPLY:
        _product_bounds(lows, highs, top, lanes)
    elif step == DIVIDE:
        _quotient_bounds(lows, highs, top, lanes)
    elif step == POWER:
        _power_bounds(lows, highs, top, lanes)
    else:
        for i in range(lanes):
            a, b, c, d = lows[top, i], highs[top, i], lows[top + 1, i], highs[top + 1, i]
            lows[top, i] = min(a, c) if step == LEAST else max(a, c)
            highs[top, i] = min(b, d) if step == LEAST else max(b, d)


@njit(**_inlined)
def _unary_bounds(step: int, a: float, b: float) -> tuple[float, float]:
    if step == NEGATE:
        return -b, -a
    if step == ABSOLUTE:
        high = max(abs(a), abs(b))
        return (0.0 if a <= 0.0 <= b else min(abs(a), abs(b))), high
    if step == ROOT:
        return math.sqrt(max(0.0, a)), math.sqrt(max(0.0, b))
    if step == FLOOR:
        return np.floor(a), np.floor(b)
    if step == CEILING:
        return np.ceil(a), np.ceil(b)
    return -1 - _MARGIN, 1 + _MARGIN


@njit(**_inlined)
def _least_sine(low: float, high: float) -> float:
    """At most |sin d| for every d of an interval within -pi..pi, without calling any sine."""
    near = 0.0 if low <= 0.0 <= high else min(abs(low), abs(high))
    far = math.pi - max(abs(low), abs(high))
    if far < 0.0 or math.isnan(far):
        return 0.0
    nearest = min(near, far)
    return max(0.0, nearest - nearest * nearest * nearest / 6)


@njit(**_inlined)
def _least_cosine(low: float, high: float) -> float:
    """At most cos of every angle of an interval, in degrees; 0 beyond the poles."""
    angle = max(abs(low), abs(high)) * _RADIANS
    square = angle * angle
    if not square < 2.46:
        return 0.0
    return max(0.0, 1 - square / 2 + square * square / 24 - square * square * square / 720)


@njit(**_inlined)
def _distance_bounds(lows: Any, highs: Any, top: int, lanes: int) -> None:
    """Between any two places of two boxes: asin x >= x and a few terms of each series."""
    half = _RADIANS / 2
    for i in range(lanes):
        a, b, c, d = lows[top, i], highs[top, i], lows[top + 2, i], highs[top + 2, i]
        sine_phi, cosines = 0.0, 0.0
        if max(abs(a), abs(b), abs(c), abs(d)) <= 90.0:
            sine_phi = _least_sine((c - b) * half, (d - a) * half)
            cosines = _least_cosine(a, b) * _least_cosine(c, d)
        sine_lambda = _least_sine(
            (lows[top + 3, i] - highs[top + 1, i]) * half,
            (highs[top + 3, i] - lows[top + 1, i]) * half,
        )
        haversine = sine_phi * sine_phi + cosines * sine_lambda * sine_lambda
        nearest_m = 2 * _EARTH_RADIUS_M * math.sqrt(haversine)
        lows[top, i] = nearest_m * (1 - _MARGIN) - _DISTANCE_MARGIN_M
        highs[top, i] = math.pi * _EARTH_RADIUS_M + _DISTANCE_MARGIN_M


@njit(**_inlined)
def _widen(low: Any, high: Any, lanes: int, whole: bool) -> None:
    """What is no number becomes any number; integers that floats cannot hold get a margin."""
    if whole:
        for i in range(lanes):
            if max(abs(low[i]), abs(high[i])) >= EXACT_MAX:
                low[i] -= abs(low[i]) * _MARGIN
                high[i] += abs(high[i]) * _MARGIN
    for i in range(lanes):
        a, b = low[i], high[i]
        known = not (math.isnan(a) or math.isnan(b))
        low[i] = a if known else -math.inf
        high[i] = b if known else math.inf


@njit(types.void(_integers, _columns, _columns, _columns, _columns, _i8, _b1), **_options)
def bound(
    code: Any, lows: Any, highs: Any, stack_low: Any, stack_high: Any, lanes: int, whole: bool
) -> None:
    """Run a program over intervals; the score lies between stack_low[0] and stack_high[0]."""
    top = -1
    for step in code:
        if step >= 0:
            top += 1
            stack_low[top, :lanes] = lows[step, :lanes]
            stack_high[top, :lanes] = highs[step, :lanes]
            continue
        if step == DISTANCE:
            top -= 3
            _distance_bounds(stack_low, stack_high, top, lanes)
        elif step >= POWER:
            top -= 1
            _binary_bounds(step, stack_low, stack_high, top, lanes)
        else:
            for i in range(lanes):
                stack_low[top, i], stack_high[top, i] = _unary_bounds(
                    step, stack_low[top, i], stack_high[top, i]
                )
        _widen(stack_low[top], stack_high[top], lanes, whole)


_search = types.Tuple((_integers, _i8, _b1, _f8, _columns, _columns, _columns, _columns))


@njit(
    _i8(_search, _columns, _columns, _numbers, _i8, _integers, _i8),
    **_options,
)
def _survivors(
    search: Any, low: Any, high: Any, worst: Any, first: int, found: Any, count: int
) -> int:
    """Of 64 neighbours from `first` on, those whose best possible score may be good enough."""
    code, scalars, whole, sign, lows, highs, stack_low, stack_high = search
    lanes = min(LANES, worst.size - first)
    alive = False
    for i in range(lanes):
        alive |= worst[first + i] > -math.inf
    if not alive:
        return count
    for c in range(low.shape[0]):
        for i in range(lanes):
            lows[scalars + c, i] = low[c, first + i]
            highs[scalars + c, i] = high[c, first + i]
    bound(code, lows, highs, stack_low, stack_high, lanes, whole)
    for i in range(lanes):
        best = stack_low[0, i] if sign > 0 else -stack_high[0, i]
        if worst[first + i] > -math.inf and best <= worst[first + i]:
            found[count] = first + i
            count += 1
    return count


@njit(
    _i8(_search, _numbers, _columns, _numbers, _i8, _integers, _numbers, _i8),
    **_options,
)
def _winners(
    search: Any,
    doubt: Any,
    constants: Any,
    thresholds: Any,
    first: int,
    found: Any,
    scores: Any,
    count: int,
) -> int:
    """Of 64 neighbours, those whose very score is good enough, and that score."""
    code, scalars, whole, sign, lows, _, stack, _ = search
    for c in range(constants.shape[0]):
        for i in range(LANES):
            lows[scalars + c, i] = constants[c, first + i]
    evaluate(code, lows, stack, doubt, LANES, whole)
    for i in range(LANES):
        score = stack[0, i] * sign
        found[count] = first + i
        scores[count] = score
        # A free place has a threshold that nothing beats, an UNKNOWN score is in doubt.
        count += score <= thresholds[first + i] and doubt[i] == 0
    return count


_zone = types.Tuple((_columns, _columns, _numbers))


@njit(
    _i8(
        _integers,
        _i8,
        _numbers,
        _numbers,
        _b1,
        _f8,
        _b1,
        _zone,
        _zone,
        _zone,
        _integers,
        _numbers,
    ),
    **_options,
)
def find_candidates(
    code: Any,
    depth: int,
    event_low: Any,
    event_high: Any,
    whole: bool,
    sign: float,
    exact: bool,
    points: Any,
    blocks: Any,
    groups: Any,
    found: Any,
    scores: Any,
) -> int:
    """The places whose threshold a publication may beat; from groups of blocks down.

    Each level is (least constants, greatest constants, worst threshold). With `exact`, the
    places whose threshold it does beat, and their scores; else `scores` is left alone.
    """
    scalars = event_low.size
    lows = np.empty((scalars + points[0].shape[0], LANES))
    highs = np.empty_like(lows)
    for s in range(scalars):
        lows[s, :], highs[s, :] = event_low[s], event_high[s]
    stack_low, stack_high = np.empty((depth, LANES)), np.empty((depth, LANES))
    search = (code, scalars, whole, sign, lows, highs, stack_low, stack_high)
    near_groups = np.empty(groups[2].size, np.int64)
    near_blocks = np.empty(blocks[2].size, np.int64)
    group_count, block_count, count = 0, 0, 0
    for first in range(0, groups[2].size, LANES):
        group_count = _survivors(
            search, groups[0], groups[1], groups[2], first, near_groups, group_count
        )
    for group in near_groups[:group_count]:
        block_count = _survivors(
            search, blocks[0], blocks[1], blocks[2], group * LANES, near_blocks, block_count
        )
    if exact:
        doubt = np.empty(LANES)
        for block in near_blocks[:block_count]:
            count = _winners(
                search, doubt, points[0], points[2], block * LANES, found, scores, count
            )
        return count
    for block in near_blocks[:block_count]:
        count = _survivors(search, points[0], points[1], points[2], block * LANES, found, count)
    return count
