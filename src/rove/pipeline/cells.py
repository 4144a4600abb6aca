"""Where on the map a row is: the MGRS grid, as a column.

Tables are cut into folders by cell, and virtual sensors are cells, so both must agree on what a
cell is and what it is called. MGRS names squares of 100, 10 and 1 km from pole to pole, with the
exceptions of Norway and Svalbard; near the poles it goes over to a grid of its own (UPS). All of
that is left to the package `mgrs`, which has the reference implementation inside and converts
whole columns at 0.5 µs a point on one core, so there is no table of ours to be wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import mgrs
import numpy as np
import pyarrow as pa

from rove.errors import RoveError

if TYPE_CHECKING:
    from numpy.typing import NDArray

NONE: Final = "none"
"""The cell of a row that has no position, or none on this planet."""
KM_DEFAULT: Final = 10
_DIGITS: Final = {100: 0, 10: 1, 1: 2}
"""By size in km, the digits that MGRS appends for each axis."""
_RECORD_BYTES: Final = 15
_CONVERTER: Final = mgrs.MGRS()


class CellError(RoveError):
    """There is no such size of a cell."""


def is_on_map(lat: NDArray[np.float64], long: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which points have a latitude and a longitude that exist; NaN stands for a missing one."""
    return (np.abs(lat) <= 90) & (np.abs(long) <= 180)


def cells(lat: NDArray[np.float64], long: NDArray[np.float64], km: int = KM_DEFAULT) -> Any:
    """The cell of each point, as an Arrow array of texts; NaN stands for a missing coordinate."""
    valid = is_on_map(lat, long)
    names = cell_names(lat[valid], long[valid], km)
    if valid.all():
        return names
    places = np.where(valid, np.cumsum(valid) - 1, len(names))
    return pa.concat_arrays([names, pa.array([NONE])]).take(pa.array(places))


def cell_names(lat: NDArray[np.float64], long: NDArray[np.float64], km: int) -> Any:
    """The same for points that are all on the map."""
    if km not in _DIGITS:
        raise CellError(f"there are no cells of {km} km; choose from 100, 10 and 1")
    points = np.ascontiguousarray(np.column_stack((lat, long)), np.float64)
    records = _CONVERTER.toMGRSArray(points, MGRSPrecision=_DIGITS[km])
    raw = pa.Array.from_buffers(
        pa.binary(_RECORD_BYTES), len(points), [None, pa.py_buffer(records)]
    )
    # Names repeat: each is decoded once, and only numbers are handled for every point.
    coded = raw.dictionary_encode()
    names = [record.rstrip(b"\0").decode() for record in coded.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(coded.indices)
