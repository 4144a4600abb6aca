"""The horizon of a segment: the time span for which the boxes of its moving bounds are built.

A long one makes boxes large, so that more rows are checked for nothing; after a short one the
segment has to be built again. So it lasts until boxes have grown by a share of their extent, and
several times as long as building takes. Computing it takes a fraction of the construction.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from rove.match.index import layout
from rove.match.index.rows import Floats, Rows

_HORIZON_S: Final = 10.0
_HORIZON_S_MIN: Final = 0.1
_HORIZON_S_MAX: Final = 3600.0
_GROWTH: Final = 0.08
"""By what share of its extent a moving box may grow for the horizon."""
_BUILDING_S: Final = 1e-5
"""What a row costs to build, generously; a horizon is several times that of all rows."""


class Times(NamedTuple):
    """For which times a segment's moving boxes are right."""

    begins_at: float = -np.inf
    ends_at: float = np.inf


def horizon_of(rows: Rows, now: float, until: float) -> Times:
    """From `now` until boxes would have grown by a share of their extent, as the median has it."""
    if not len(rows.bound_tests):
        return Times()
    values = rows.bound_values.reshape(-1, 4)
    found, group = np.unique(
        rows.bound_rows * (1 << 31) + (rows.bound_tests >> 3), return_inverse=True
    )
    count = len(found)
    is_upper = (rows.bound_tests & 7) >= layout.AT_MOST
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(low, group[~is_upper], values[~is_upper, 0])
    np.maximum.at(high, group[is_upper], values[is_upper, 0])
    length_s = _HORIZON_S
    with np.errstate(over="ignore"):  # bounds and speeds may be as large as floats get
        extents = (high - low)[(high > low) & np.isfinite(high - low)]
        speeds = np.abs(values[:, 1])[values[:, 1] != 0]
        if len(extents) and len(speeds):
            speed = min(float(np.median(speeds)), np.finfo(np.float64).max)
            length_s = _GROWTH * float(np.median(extents)) / speed
    length_s = max(_HORIZON_S_MIN, min(length_s, _HORIZON_S_MAX), 2 * _BUILDING_S * len(rows))
    begins_at = now if np.isfinite(now) else 0.0
    return Times(begins_at, max(begins_at + length_s, until))


def extremes(rows: Rows, times: Times) -> tuple[Floats, Floats]:
    """The least and the greatest value of each moving bound within the horizon.

    NaN for a bound that leaves the floats. Rounding never reverses an order, so the ends of the
    horizon give the extremes to the bit.
    """
    values = rows.bound_values.reshape(-1, 4)
    accepted = rows.accepted[rows.bound_rows]
    with np.errstate(over="ignore", invalid="ignore"):
        begin, end = (
            values[:, 0]
            + values[:, 1] * np.clip(np.maximum(at - accepted, 0.0), values[:, 2], values[:, 3])
            for at in times
        )
    unknown = ~(np.isfinite(begin) & np.isfinite(end))
    least, most = np.minimum(begin, end), np.maximum(begin, end)
    least[unknown] = most[unknown] = np.nan
    return least, most
