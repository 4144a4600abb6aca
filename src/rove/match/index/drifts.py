"""Boxes that all move in the same way, made quick to check.

What a tree finds among boxes that were made for a whole horizon has to be checked with the bounds
of the moment. Areas that travel have the same few bounds, so their numbers are kept as one line
of memory for each row, and checked by four comparisons without a branch. Most of what is found
lies inside for the whole horizon anyway: for that there are *inner* columns, the bounds at their
tightest, so that only those between the outer and the inner box need their line at all. (Reading
a line that is not near costs as much as ten comparisons of 64.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rove.match.index import layout
from rove.match.index.keys import Keys, float_keys
from rove.match.index.layout import AT_LEAST, AT_MOST, CODE_MAX, WIDTH
from rove.match.index.rows import Floats, Rows

_DRIFTS_MAX: Final = 4


class Times(NamedTuple):
    """For which times a segment's moving boxes are right."""

    begins_at: float = -np.inf
    ends_at: float = np.inf


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


def drift_sections(
    rows: Rows,
    taken: npt.NDArray[np.bool_],
    times: Times,
    index: Mapping[int, npt.NDArray[Any]],
) -> dict[int, npt.NDArray[Any]]:
    """Lines and inner columns of rows in their final order, if all that are taken move alike."""
    counts = np.diff(rows.bound_starts)[taken]
    count = int(counts[0]) if len(counts) else 0
    values = rows.bound_values.reshape(-1, 4)
    if not 0 < count <= _DRIFTS_MAX or (counts != count).any() or np.isfinite(values[:, 2:]).any():
        return {}
    tests = rows.bound_tests.reshape(-1, count)
    comparators = tests[0] & 7
    if (tests != tests[0]).any() or not np.isin(comparators, (AT_LEAST, AT_MOST)).all():
        return {}
    # Both sides are negated for upper bounds, so that one comparison does for all.
    signs = np.where(comparators == AT_MOST, -1.0, 1.0)
    drifts = np.zeros((len(taken), 2, _DRIFTS_MAX))
    drifts[:, 0] = -np.finfo(np.float64).max  # what excludes nothing, where there are fewer
    drifts[taken, 0, :count] = signs * values[:, 0].reshape(-1, count)
    drifts[taken, 1, :count] = signs * values[:, 1].reshape(-1, count)
    sections = {layout.DRIFTS: drifts.ravel(), layout.DRIFT_TESTS: tests[0]}
    if index:
        least, most = (ends.reshape(-1, count) for ends in extremes(rows, times))
        tightest = np.where(comparators == AT_MOST, least, most)
        sections[layout.INNERS] = _inner_columns(tightest, tests[0], taken, index)
    return sections


def _inner_columns(
    tightest: Floats,
    tests: npt.NDArray[np.int32],
    taken: npt.NDArray[np.bool_],
    index: Mapping[int, npt.NDArray[Any]],
) -> npt.NDArray[np.uint16]:
    """By block and drift, 64 codes that a value passes only if it is inside all the time."""
    from rove.match.index.building_kernels import code_all

    columns = np.full((len(taken) // WIDTH, len(tests), WIDTH), CODE_MAX, np.uint16)
    for i, test in enumerate(tests.tolist()):
        starts = index[layout.CUT_STARTS]
        cuts: Keys = index[layout.CUTS][starts[test >> 3] : starts[(test >> 3) + 1]]
        codes = np.empty(len(tightest), np.uint16)
        code_all(float_keys(tightest[:, i]), cuts, codes)
        # One beyond, since a code may stand for many keys; upper bounds are turned over.
        whole = codes.astype(np.int64)
        passing = whole + 1 if test & 7 == AT_LEAST else CODE_MAX - whole + 1
        column = np.full(len(taken), CODE_MAX, np.int64)
        column[taken] = np.where(np.isnan(tightest[:, i]), CODE_MAX, np.minimum(passing, CODE_MAX))
        columns[:, i, :] = column.reshape(-1, WIDTH)
    return columns.ravel()
