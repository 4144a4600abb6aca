"""The full scan: every bound of every subscription compared, in plain NumPy.

What every index is measured against, so it is made as quick as NumPy can be while it still
looks at everything: one contiguous column a side, compared in pieces of 65,536 rows whose
results stay in the cache (whole columns of a million are up to 15 % slower), no conversions, no
allocation but for the answer. It stops early for nothing. Only sides that no subscription asks
for are left out, since nobody would keep a column of infinities.

Cost: a million boxes take 1.9 ms for two attributes (W2 of `rove.testing.boxes`) and 25 ms for
twenty (W3); moving ones three times that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

_PIECE_ROWS: Final = 65_536

_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]


class _Column(NamedTuple):
    """One attribute: the sides that somebody asks for, and who may do without it."""

    attribute: int
    sides: list[tuple[np.ufunc, _Floats]]
    speeds: _Floats | None
    not_asking: _Bools


class Scan:
    """Subscriptions that are one box each, all asked anew for each publication.

    A publication matches where `low <= value <= high` for every attribute. Where both bounds
    are infinite the attribute may be missing too. `speeds` are added to both bounds for every
    second since time 0.
    """

    def __init__(
        self,
        attributes: Sequence[str],
        lows: _Floats,
        highs: _Floats,
        ids: npt.NDArray[np.int64],
        speeds: _Floats | None = None,
    ) -> None:
        shape = (len(attributes), len(ids))
        assert lows.shape == highs.shape == shape, "one line per attribute, one column per id"
        self.attributes = tuple(attributes)
        self._ids = ids
        columns = (_column(n, lows[n], highs[n], speeds) for n in range(len(attributes)))
        self._columns = [column for column in columns if column.sides]
        self._fits = np.empty(len(ids), np.bool_)
        piece_rows = min(_PIECE_ROWS, len(ids))
        self._side_fits = np.empty(piece_rows, np.bool_)
        self._shift = np.empty(piece_rows, np.float64)
        self._moved = np.empty(piece_rows, np.float64)

    def __len__(self) -> int:
        return len(self._ids)

    def match(self, values: _Floats, t: float = 0.0) -> npt.NDArray[np.int64]:
        """The ids whose boxes hold a publication: one value per attribute, NaN where missing."""
        is_missing = np.isnan(values).tolist()
        self._fits.fill(True)
        for start in range(0, len(self._ids), _PIECE_ROWS):
            rows = slice(start, start + _PIECE_ROWS)
            fits = self._fits[rows]
            for column in self._columns:
                if is_missing[column.attribute]:
                    np.logical_and(fits, column.not_asking[rows], out=fits)
                else:
                    self._compare(column, rows, values[column.attribute], t)
        return self._ids[np.flatnonzero(self._fits)]

    def _compare(self, column: _Column, rows: slice, value: np.float64, t: float) -> None:
        """Both sides of one attribute; moved ones are rounded as `low + speed * t` is."""
        fits = self._fits[rows]
        side_fits = self._side_fits[: len(fits)]
        shift, moved = self._shift[: len(fits)], self._moved[: len(fits)]
        if column.speeds is not None:
            np.multiply(column.speeds[rows], t, out=shift)
        for compare, bounds in column.sides:
            if column.speeds is None:
                compare(bounds[rows], value, out=side_fits)
            else:
                np.add(bounds[rows], shift, out=moved)
                compare(moved, value, out=side_fits)
            np.logical_and(fits, side_fits, out=fits)


def _column(attribute: int, lows: _Floats, highs: _Floats, speeds: _Floats | None) -> _Column:
    sides = ((np.less_equal, lows), (np.greater_equal, highs))
    is_moving = speeds is not None and speeds[attribute].any()
    return _Column(
        attribute,
        [(compare, np.ascontiguousarray(b)) for compare, b in sides if np.isfinite(b).any()],
        np.ascontiguousarray(speeds[attribute]) if speeds is not None and is_moving else None,
        np.isinf(lows) & np.isinf(highs),
    )
