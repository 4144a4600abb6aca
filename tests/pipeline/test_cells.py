"""Cells are those of the reference implementation, everywhere, and `none` where there is none."""

import math

import mgrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.pipeline.cells import CellError, cells

KM = {100: 0, 10: 1, 1: 2}
ONE_BY_ONE = mgrs.MGRS()

# Corners of the grid: borders of zones and bands, Norway, Svalbard, where UPS begins, the poles.
BORDERS = [
    (45.8, 15.98), (45.8, 18.0), (45.8, math.nextafter(18, 0)), (0.0, 0.0), (-0.0, -180.0),
    (0.0, 180.0), (8.0, 6.0), (math.nextafter(8, 0), 6.0), (56.0, 3.0), (60.0, 4.0), (60.0, 2.9),
    (64.0, 3.0), (63.99, 3.0), (72.0, 9.0), (73.0, 8.99), (75.0, 21.0), (78.0, 33.0), (80.0, 42.0),
    (84.0, 10.0), (84.01, 10.0), (89.99, -170.0), (90.0, 0.0), (-80.0, 10.0), (-80.01, 10.0),
    (-90.0, 123.0), (-89.5, -0.0),
]  # fmt: skip


def by_one(lat: float, long: float, km: int) -> str:
    return str(ONE_BY_ONE.toMGRS(lat, long, MGRSPrecision=KM[km]))


def column(points: list[tuple[float, float]], km: int) -> list[str]:
    lats = np.array([lat for lat, _ in points], float)
    longs = np.array([long for _, long in points], float)
    found: list[str] = cells(lats, longs, km).to_pylist()
    return found


@pytest.mark.parametrize("km", KM)
def test_borders_norway_svalbard_and_poles_are_the_packages(km: int) -> None:
    assert column(BORDERS, km) == [by_one(lat, long, km) for lat, long in BORDERS]


def test_some_names_are_what_maps_say() -> None:
    assert column([(45.8, 15.98)], 100) == ["33TWL"]
    assert column([(60.0, 4.0)], 100) == ["32VKM"]  # zone 31 gives way to Norway
    assert column([(89.5, 10.0)], 10) == ["ZAG04"]  # the grid of the north pole
    assert column([(-89.5, 10.0)], 10) == ["BAN05"]


@given(
    st.lists(st.tuples(st.floats(-90, 90), st.floats(-180, 180)), min_size=1, max_size=20),
    st.sampled_from(sorted(KM)),
)
def test_columns_are_as_one_by_one(points: list[tuple[float, float]], km: int) -> None:
    assert column(points, km) == [by_one(lat, long, km) for lat, long in points]


def test_no_position_is_none_and_others_keep_their_places() -> None:
    nan, inf = math.nan, math.inf
    points = [(nan, 1.0), (45.8, 15.98), (1.0, nan), (90.1, 0.0), (0.0, -180.1), (inf, 0.0)]
    points += [(0.0, inf), (60.0, 4.0)]
    assert column(points, 100) == ["none", "33TWL", *["none"] * 5, "32VKM"]
    assert column([(nan, nan)], 10) == ["none"]
    assert column([], 10) == []


def test_a_size_that_is_not_in_the_grid_is_refused() -> None:
    with pytest.raises(CellError, match="no cells of 5 km; choose from 100, 10 and 1"):
        column([(1.0, 1.0)], 5)
