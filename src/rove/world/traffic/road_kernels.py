# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""The compiled part of roads: shortest ways from every lane to some of them.

One search per destination, backwards from it, with a queue of lanes whose time has become shorter
(simpler than a heap and, on roads, as quick). Which of two equal ways is taken does not depend on
the order of the search: of the turns at the end of a lane the first of the shortest is taken.
Measured: 256 destinations in a city of 1,520 lanes in 17 ms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from rove.match.index.intrinsics import F8, I4, row_of, table_of


@njit(
    types.void(I4, row_of(F8), row_of(F8), row_of(I4), row_of(I4), row_of(I4), row_of(F8)),
    cache=True,
    nogil=True,
)
def _times_to(
    destination: int,
    seconds: Any,
    turn_seconds: Any,
    source: Any,
    into_starts: Any,
    into: Any,
    times: Any,
) -> None:
    """From the beginning of each lane to the beginning of the destination."""
    lanes = len(seconds)
    times[:] = np.inf
    times[destination] = 0.0
    waiting = np.empty(lanes, np.int32)
    waits = np.zeros(lanes, np.bool_)
    first, count = 0, 1
    waiting[0] = destination
    while count > 0:
        lane = waiting[first]
        first = (first + 1) % lanes
        count -= 1
        waits[lane] = False
        for i in range(into_starts[lane], into_starts[lane + 1]):
            turn = into[i]
            before = source[turn]
            time = seconds[before] + turn_seconds[turn] + times[lane]
            if time < times[before] and before != destination:
                times[before] = time
                if not waits[before]:
                    waits[before] = True
                    waiting[(first + count) % lanes] = before
                    count += 1


@njit(
    table_of(I4)(
        row_of(I4),
        row_of(F8),
        row_of(F8),
        row_of(I4),
        row_of(I4),
        row_of(I4),
        row_of(I4),
        row_of(I4),
    ),
    cache=True,
    nogil=True,
)
def ways(
    destinations: Any,
    seconds: Any,
    turn_seconds: Any,
    source: Any,
    target: Any,
    turn_starts: Any,
    into_starts: Any,
    into: Any,
) -> Any:
    """By destination and lane the turn to take; -1 where none leads there."""
    lanes = len(seconds)
    found = np.full((len(destinations), lanes), np.int32(-1))
    times = np.empty(lanes)
    for number in range(len(destinations)):
        _times_to(destinations[number], seconds, turn_seconds, source, into_starts, into, times)
        for lane in range(lanes):
            shortest = np.inf
            for turn in range(turn_starts[lane], turn_starts[lane + 1]):
                time = turn_seconds[turn] + times[target[turn]]
                if time < shortest:
                    shortest = time
                    found[number, lane] = turn
    return found
