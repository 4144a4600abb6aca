"""What is seen is what shapely says crosses no obstacle; along walls and past corners one sees."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import shapely  # type: ignore[import-untyped]

from rove.world.map.maps import Map, load_map, shipped_maps
from rove.world.map.sight import Walls, sees, solid
from rove.world.runs.state import Floats

HOUSE = Map("house", 100, 100, (((40.0, 40.0), (60.0, 40.0), (60.0, 60.0), (40.0, 60.0)),))


@functools.cache
def example(name: str) -> tuple[Map, Walls]:
    made = load_map(name)
    return made, Walls(made)


def slow_sees(made: Map, lines: Floats) -> list[bool]:
    inner = solid(made)
    ends = lines.reshape(-1, 2, 2)
    return [not shapely.LineString(each).intersects(inner) for each in ends]


@pytest.mark.parametrize("name", shipped_maps())
def test_sees_is_what_shapely_finds(name: str) -> None:
    made, walls = example(name)
    rng = np.random.default_rng(1)
    size = np.array([made.width, made.height])
    starts = rng.uniform(-0.1, 1.1, (400, 2)) * size
    near = starts[:200] + rng.normal(0, 15, (200, 2))
    far = rng.uniform(-0.1, 1.1, (200, 2)) * size
    lines = np.concatenate([starts, np.concatenate([near, far])], axis=1)
    found = sees(walls, *lines.T)
    assert found.dtype == np.bool_
    assert found.tolist() == slow_sees(made, lines)


@pytest.mark.parametrize("name", ["arena", "ward"])
def test_level_and_upright_lines_and_points_are_lines_too(name: str) -> None:
    made, walls = example(name)
    rng = np.random.default_rng(2)
    x0, x1, y0, y1 = rng.uniform(0, 1, (4, 300)) * np.array(
        [[made.width], [made.width], [made.height], [made.height]]
    )
    lines = np.concatenate(
        [
            np.stack([x0[:100], y0[:100], x1[:100], y0[:100]], 1),
            np.stack([x0[100:200], y0[100:200], x0[100:200], y1[100:200]], 1),
            np.stack([x0[200:], y0[200:], x0[200:], y0[200:]], 1),
        ]
    )
    inner = solid(made)
    expected = [
        not (
            shapely.Point(line[:2])
            if (line[:2] == line[2:]).all()
            else shapely.LineString(line.reshape(2, 2))
        ).intersects(inner)
        for line in lines
    ]
    assert sees(walls, *lines.T).tolist() == expected
    assert {True, False} == set(expected)


@pytest.mark.parametrize(
    ("line", "is_seen"),
    [
        ((10, 50, 90, 50), False),  # through
        ((40, 30, 40, 70), True),  # along a side
        ((40, 40, 60, 40), True),  # a side itself
        ((30, 50, 50, 30), True),  # past a corner
        ((40, 40, 60, 60), False),  # from corner to corner
        ((30, 30, 70, 70), False),
        ((50, 50, 50, 50), False),  # inside
        ((45, 45, 55, 55), False),
        ((40, 50, 10, 50), True),  # away from the wall
        ((40.0005, 30, 40.0005, 70), True),  # half a millimetre off
        ((40.0015, 30, 40.0015, 70), False),
        ((-50, 50, 30, 50), True),  # from off the map
        ((-50, -50, 150, 150), False),
        ((200, 200, 300, 300), True),
    ],
)
def test_a_house_hides_what_is_behind_it(line: tuple[float, ...], is_seen: bool) -> None:
    x0, y0, x1, y1 = (np.array([float(each)]) for each in line)
    assert sees(HOUSE, x0, y0, x1, y1).tolist() == [is_seen]
    assert sees(HOUSE, x1, y1, x0, y0).tolist() == [is_seen]


def test_solid_is_what_is_left_of_the_obstacles() -> None:
    assert solid(HOUSE).bounds == pytest.approx((40.001, 40.001, 59.999, 59.999))


def test_one_does_not_look_between_a_wall_and_the_border() -> None:
    wall = Map("wall", 100, 100, (((40.0, 0.0), (60.0, 0.0), (60.0, 100.0), (40.0, 100.0)),))
    for y in (0.0, 0.0005, 100.0):
        assert sees(wall, 10, y, 90, y).tolist() == [False]


def test_houses_that_touch_leave_no_crack() -> None:
    boxes = [(10, 10, 20, 20), (20, 10, 30, 20)]
    walls = tuple(((a, b), (c, b), (c, d), (a, d)) for a, b, c, d in boxes)
    row = Map("row", 100, 100, walls)
    one, other = np.array([20.0]), np.array([0.0])
    assert sees(row, one, other, one, other + 50).tolist() == [False]


def test_one_may_look_at_many_and_nobody() -> None:
    many = np.linspace(0, 100, 11)
    from_one = sees(HOUSE, 50, 0, many, 100)
    assert from_one.tolist() == [*3 * [True], *5 * [False], *3 * [True]]
    assert sees(HOUSE, many[:0], many[:0], many[:0], many[:0]).tolist() == []
