"""The exact question (on which side?) against fractions, and what is built on it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from rove.world.map.tile_kernels import (
    are_counterclockwise,
    cells_of,
    holds,
    make_round,
    parts_of,
    side,
    touches,
)


def exact_side(*coordinates: float) -> int:
    ax, ay, bx, by, px, py = map(Fraction, coordinates)
    turn = (bx - ax) * (py - ay) - (by - ay) * (px - ax)
    return (turn > 0) - (turn < 0)


def test_sides_are_exact_where_rounding_is_not() -> None:
    """Points a few bits beside a line that is given by coordinates of any size."""
    rng = np.random.default_rng(1)
    signs = []
    for _ in range(3000):
        a, b = rng.uniform(-1, 1, (2, 2)) * 10.0 ** rng.integers(-3, 5)
        p = a + rng.uniform(-1, 2) * (b - a)
        p = p + rng.integers(-2, 3, 2) * np.spacing(p)
        given = (*a.tolist(), *b.tolist(), *p.tolist())
        signs.append(side(*given))
        assert signs[-1] == exact_side(*given)
    assert {-1, 1} <= set(signs)


def test_what_is_on_a_line_is_on_it_from_every_end() -> None:
    rng = np.random.default_rng(2)
    for _ in range(500):
        ax, ay, step_x, step_y = (float(each) for each in rng.integers(-50, 50, 4))
        near, far = (float(each) for each in rng.integers(-20, 20, 2))
        points = [(ax + k * step_x, ay + k * step_y) for k in (0.0, near, far)]
        for one in points:
            for two in points:
                for three in points:
                    assert side(*one, *two, *three) == 0


def test_a_usual_test_in_floating_point_would_not_do() -> None:
    """If this fails, the exact way is no longer needed."""
    rng = np.random.default_rng(3)
    wrong = 0
    for _ in range(2000):
        a, b = rng.uniform(0, 1000, (2, 2))
        x, y = (a + rng.uniform() * (b - a)).tolist()
        usual = np.sign((b[0] - a[0]) * (y - a[1]) - (b[1] - a[1]) * (x - a[0]))
        wrong += int(usual) != exact_side(*a.tolist(), *b.tolist(), x, y)
    assert wrong > 0


TRIANGLE = np.array([[[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]]])


@pytest.mark.parametrize(
    ("x", "y", "is_in"),
    [(0, 0, 1), (2, 2, 1), (1, 1, 1), (4, 0, 1), (2, 2.1, 0), (-0.1, 1, 0), (5, 0, 0), (1, -1, 0)],
)
def test_a_triangle_holds_its_border(x: float, y: float, is_in: int) -> None:
    assert holds(TRIANGLE, 0, float(x), float(y)) == bool(is_in)


@pytest.mark.parametrize(
    ("box", "is_touched"),
    [
        ((1.0, 1.0, 1.5, 1.5), True),  # inside
        ((-1.0, -1.0, 9.0, 9.0), True),  # around
        ((2.0, 2.0, 3.0, 3.0), True),  # a corner on the long side
        ((2.0, 2.000001, 3.0, 3.0), False),
        ((4.0, -1.0, 5.0, 1.0), True),  # the triangle's corner on a side
        ((-2.0, 4.0, 3.0, 5.0), True),
        ((-1.0, -1.0, 0.0, 0.0), True),  # corner to corner
        ((-1.0, -1.0, -0.1, 9.0), False),
        ((1.0, -0.5, 2.0, -0.1), False),
        ((1.0, 1.0, 1.0, 1.0), True),  # a point
    ],
)
def test_rectangles_touch(box: tuple[float, float, float, float], is_touched: bool) -> None:
    assert touches(TRIANGLE, 0, box) == is_touched


def test_turning_is_seen() -> None:
    other_way = np.ascontiguousarray(TRIANGLE[:, ::-1])
    flat = np.array([[[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]])
    three = np.concatenate([TRIANGLE, other_way, flat])
    assert are_counterclockwise(three).tolist() == [True, False, False]


def test_each_cell_lists_what_touches_it() -> None:
    rng = np.random.default_rng(4)
    triangles = rng.uniform(0, 30, (40, 3, 2))
    backwards = ~are_counterclockwise(triangles)
    triangles[backwards] = triangles[backwards, ::-1]
    starts, members = cells_of(triangles, 0.0, 0.0, 5.0, 6, 6, 0.25)
    for cell in range(36):
        left, bottom = 5.0 * (cell % 6), 5.0 * (cell // 6)
        box = (left - 0.25, bottom - 0.25, left + 5.25, bottom + 5.25)
        expected = [number for number in range(40) if touches(triangles, number, box)]
        assert members[starts[cell] : starts[cell + 1]].tolist() == expected


def test_parts_hang_together() -> None:
    neighbours = np.array(
        [[2, -1, -1], [3, -1, -1], [0, 4, -1], [1, -1, -1], [2, -1, -1]], np.int32
    )
    assert parts_of(neighbours).tolist() == [0, 1, 0, 1, 0]
    assert parts_of(np.empty((0, 3), np.int32)).tolist() == []


def test_thin_triangles_become_round() -> None:
    """A flat kite cut along its length is cut across instead, and everybody keeps his sides."""
    points = np.array([[0.0, 0.0], [10.0, 0.0], [5.0, 1.0], [5.0, -1.0]])
    corners = np.array([[0, 1, 2], [1, 0, 3]])
    neighbours = np.array([[1, -1, -1], [0, -1, -1]], np.int32)
    make_round(points, corners, neighbours)
    found = {frozenset(each) for each in corners.tolist()}
    assert found == {frozenset({0, 2, 3}), frozenset({1, 2, 3})}
    assert are_counterclockwise(np.ascontiguousarray(points[corners])).all()
    for one, other in ((0, 1), (1, 0)):
        (shared,) = np.flatnonzero(neighbours[one] == other)
        ends: Any = {int(corners[one, shared]), int(corners[one, (shared + 1) % 3])}
        assert ends == {2, 3}


def test_a_square_is_left_alone() -> None:
    points = np.array([[0.1, 0.1], [0.3, 0.1], [0.3, 0.3], [0.1, 0.3]])
    corners = np.array([[0, 1, 2], [0, 2, 3]])
    make_round(points, corners, np.array([[-1, -1, 1], [0, -1, -1]], np.int32))
    assert corners.tolist() == [[0, 1, 2], [0, 2, 3]]
