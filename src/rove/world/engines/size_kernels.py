"""The compiled part of counting bytes: how long numbers get when they are written out.

Asking `str` takes 100 ns a number; here it is 2 ns, by comparing with powers of ten.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, types

from rove.match.index.intrinsics import F8, I8, row_of


@njit(cache=True, nogil=True, inline="always")
def _whole_number_bytes(value: int) -> int:
    size = 1
    if value < 0:
        size = 2
        value = -value
    while value >= 10000:
        value //= 10000
        size += 4
    return size + (value >= 10) + (value >= 100) + (value >= 1000)


@njit(types.void(row_of(I8), row_of(I8)), cache=True, nogil=True)
def add_whole_number_bytes(values: Any, sizes: Any) -> None:
    """Add to each size what its whole number takes: sign and digits."""
    for i in range(values.size):
        sizes[i] += _whole_number_bytes(values[i])


@njit(types.void(row_of(F8), row_of(I8)), cache=True, nogil=True)
def add_length_bytes(metres: Any, sizes: Any) -> None:
    """Add to each size what its length takes: metres with three decimals, or `null`."""
    for i in range(metres.size):
        if math.isnan(metres[i]):
            sizes[i] += 4
            continue
        millimetres = np.int64(np.rint(metres[i] * 1000.0))
        minus = millimetres < 0
        sizes[i] += minus + _whole_number_bytes(abs(millimetres) // 1000) + 4


@njit(
    types.void(row_of(types.int8), row_of(I8), row_of(I8), row_of(I8), row_of(I8)),
    cache=True,
    nogil=True,
)
def tally(whats: Any, counts: Any, sizes: Any, totals: Any, total_bytes: Any) -> None:
    """Add messages, each counts[i] times, to the totals of their kinds."""
    for i in range(whats.size):
        totals[whats[i]] += counts[i]
        total_bytes[whats[i]] += counts[i] * sizes[i]
