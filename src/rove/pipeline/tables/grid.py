"""The MGRS grid: the cell of each row, as a column.

Tables are partitioned by cell, and virtual sensors are cells, so both use the same cells and names.
MGRS names squares of 100, 10 and 1 km and of 100 m from pole to pole, with the exceptions of Norway
and Svalbard; near the poles it has another grid (UPS). The package `mgrs` does all that: it
contains the reference implementation and converts whole columns at 0.5 µs a point on one core, so
we need no tables of our own that could be wrong.
"""

from __future__ import annotations

import functools
import math
import re
import warnings
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import mgrs
import numpy as np
import pyarrow as pa

from rove.errors import RoveError

if TYPE_CHECKING:
    from numpy.typing import NDArray

NONE: Final = "none"
"""The cell of rows without a position, or with an impossible one."""
KM_DEFAULT: Final = 10
CELLS_M: Final = (100_000, 10_000, 1_000, 100)
_METRE_DIGITS: Final = 5
"""Digits of MGRS for each axis to name a square metre."""
_RECORD_BYTES: Final = 15
_NAME: Final = re.compile(r"(\d*[A-Z]{3})(\d*)")
_CONVERTER: Final = mgrs.MGRS()


class CellError(RoveError):
    """There is no such cell, or size of a cell."""


def is_on_map(lat: NDArray[np.float64], long: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which points have a valid latitude and longitude; NaN stands for a missing one."""
    return (np.abs(lat) <= 90) & (np.abs(long) <= 180)


def cells(lat: NDArray[np.float64], long: NDArray[np.float64], km: int = KM_DEFAULT) -> Any:
    """The cell of each point, as in tables: NONE for an invalid point."""
    return cell_names(lat, long, 1_000 * km).fill_null(NONE)


def cell_names(lat: NDArray[np.float64], long: NDArray[np.float64], cell_m: int) -> Any:
    """The cell of each point, as an Arrow array of strings; null for an invalid point."""
    if cell_m not in CELLS_M:
        sizes = ", ".join(f"{size:,}" for size in CELLS_M)
        raise CellError(f"there are no cells of {cell_m} m; choose from {sizes}")
    valid = is_on_map(lat, long)
    points = np.ascontiguousarray(np.column_stack((lat, long))[valid], np.float64)
    digits = _METRE_DIGITS - round(math.log10(cell_m))
    records = _CONVERTER.toMGRSArray(points, MGRSPrecision=digits)
    raw = pa.Array.from_buffers(
        pa.binary(_RECORD_BYTES), len(points), [None, pa.py_buffer(records)]
    )
    # Names repeat: each is decoded once, and points have only dictionary indices.
    coded = raw.dictionary_encode()
    decoded = [record.rstrip(b"\0").decode() for record in coded.dictionary.to_pylist()]
    names = pa.array(decoded, pa.string()).take(coded.indices)
    if valid.all():
        return names
    return names.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


class Square(NamedTuple):
    """The centre of a cell, and its corners from the south-west, counter-clockwise.

    For a cell that a zone's border cuts, it is the whole square. A cell of 100 km at the edge of
    the polar grids may have no corners.
    """

    lat: float
    long: float
    corners: tuple[tuple[float, float], ...] | None


@functools.lru_cache(maxsize=100_000)
def square_of(cell: str) -> Square:
    """The square of a cell; CellError for an invalid name."""
    found = _NAME.fullmatch(cell)
    if found is None or len(found[2]) % 2:
        raise CellError(f"{cell!r} is no cell of the MGRS grid, such as 33TWL7572")
    head, digits = found[1], len(found[2]) // 2
    east, north = found[2][:digits], found[2][digits:]
    size_m = 10 ** (_METRE_DIGITS - digits)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # mgrs warns where latitude bands meet
        lat, long = _CONVERTER.toLatLon(cell)
        try:
            corners = tuple(
                _corner(lat, long, size_m, head + _metres(east, x) + _metres(north, y))
                for x, y in (("0", "0"), ("9", "0"), ("9", "9"), ("0", "9"))
            )
        except mgrs.core.MGRSError:
            return Square(lat, long, None)
    return Square(lat, long, corners)


def _metres(digits: str, filler: str) -> str:
    return digits.ljust(_METRE_DIGITS, filler)


def _corner(lat: float, long: float, cell_m: int, last_metre: str) -> tuple[float, float]:
    """A corner: half a metre beyond the centre of the last square metre."""
    near_lat, near_long = _CONVERTER.toLatLon(last_metre)
    factor = cell_m / (cell_m - 1)
    east = (near_long - long + 180) % 360 - 180
    return lat + factor * (near_lat - lat), (long + factor * east + 180) % 360 - 180
