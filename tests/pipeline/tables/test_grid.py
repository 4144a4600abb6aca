"""Cells are those of the reference implementation, everywhere, and `none` where there is none."""

import math

import mgrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.pipeline.tables.grid import CELLS_M, CellError, cell_names, cells, square_of

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


@pytest.mark.parametrize("cell_m", CELLS_M)
def test_cells_are_those_of_the_package_everywhere(cell_m: int) -> None:
    drawn = np.random.default_rng(cell_m)
    lat = drawn.uniform(-90, 90, 2_000)
    long = drawn.uniform(-180, 180, 2_000)
    long[:500] = np.round(long[:500] / 6) * 6 + drawn.uniform(-1e-6, 1e-6, 500)
    long = np.clip(long, -180, 180)
    lat[:5], long[5:10] = (np.nan, 91, -91, np.inf, 1e9), (np.nan, 181, -181, np.inf, -np.inf)
    names = cell_names(lat, long, cell_m).to_pylist()
    assert names[:10] == [None] * 10
    digits = 5 - round(math.log10(cell_m))
    exact = mgrs.MGRS()
    points = zip(lat[10:].tolist(), long[10:].tolist(), strict=True)
    assert names[10:] == [exact.toMGRS(*point, MGRSPrecision=digits) for point in points]


def test_there_are_no_other_cells() -> None:
    with pytest.raises(CellError, match=r"no cells of 50 m; choose from 100,000, 10,000"):
        cell_names(np.zeros(1), np.zeros(1), 50)
    for name in ("", "none", "33TWL123", "33TW", "hello"):
        with pytest.raises(CellError, match="is no cell of the MGRS grid"):
            square_of(name)


def metres(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Between two points of a globe."""
    (lat, long), (other_lat, other_long) = (map(math.radians, point) for point in (one, other))
    half = math.sin((lat - other_lat) / 2) ** 2
    half += math.cos(lat) * math.cos(other_lat) * math.sin((long - other_long) / 2) ** 2
    return 2 * 6_371_000 * math.asin(math.sqrt(half))


@pytest.mark.parametrize("cell_m", CELLS_M)
def test_a_cell_lies_between_its_corners(cell_m: int) -> None:
    """Points a little inside of each corner are in the cell, those a little outside are not."""
    drawn = np.random.default_rng(5)
    lat = drawn.uniform(-60, 60, 200)
    # Away from borders of zones: a cell that one cuts has not all of its square.
    long = drawn.integers(-29, 29, 200) * 6 + 3 + drawn.uniform(-0.8, 0.8, 200)
    checked = 0
    for name in cell_names(lat, long, cell_m).to_pylist():
        square = square_of(name)
        assert square.corners is not None
        sides = list(zip(square.corners, (*square.corners[1:], square.corners[0]), strict=True))
        for one, other in sides:
            assert metres(one, other) == pytest.approx(cell_m, rel=0.02)
        inside, outside = (
            np.array([
                (square.lat + share * (y - square.lat), square.long + share * (x - square.long))
                for y, x in square.corners
            ])
            for share in (0.9999, 1.0001)
        )  # fmt: skip
        within = cell_names(inside[:, 0], inside[:, 1], cell_m).to_pylist()
        if {each[:3] for each in within} == {name[:3]}:  # bands of latitude cut cells too
            checked += 1
            assert set(within) == {name}
            assert name not in cell_names(outside[:, 0], outside[:, 1], cell_m).to_pylist()
    assert checked > 150


def test_neighbours_share_corners() -> None:
    west, east = square_of("33TWL7572"), square_of("33TWL7672")
    assert west.corners is not None
    assert east.corners is not None
    assert metres(west.corners[1], east.corners[0]) < 0.001
    assert metres(west.corners[2], east.corners[3]) < 0.001
    assert metres((west.lat, west.long), (east.lat, east.long)) == pytest.approx(1_000, rel=0.005)


def test_every_cell_has_a_centre_even_at_the_poles_and_the_date_line() -> None:
    points = [
        (89.9, 0.0),
        (-89.9, 10.0),
        (84.01, 100.0),
        (-80.01, -84.9),
        (10.0, 179.9999),
        (10.0, -180.0),
    ]
    for point in points:
        for cell_m in CELLS_M:
            (name,) = cell_names(np.array([point[0]]), np.array([point[1]]), cell_m).to_pylist()
            square = square_of(name)
            assert metres(point, (square.lat, square.long)) <= cell_m * 0.75
            for corner in square.corners or ():
                assert metres(corner, (square.lat, square.long)) < cell_m * 0.75
                assert -180 <= corner[1] <= 180
