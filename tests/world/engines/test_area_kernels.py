"""Rectangles and points, against asking each pair."""

import math

import numpy as np
import pytest

from rove.lang import normalise, parse
from rove.match.designs.design import OneByOne
from rove.match.designs.versioned import Pes
from rove.world.engines.area_kernels import CLEES, EXACT, NEVER, PES, RectangleSearch, sides_at
from rove.world.runs.state import Floats

Sides = tuple[Floats, Floats, Floats, Floats]


def obvious(x: Floats, y: Floats, sides: Sides) -> list[list[int]]:
    low_x, high_x, low_y, high_y = sides
    return [
        [
            i
            for i in range(len(low_x))
            if low_x[i] <= x[p] <= high_x[i] and low_y[i] <= y[p] <= high_y[i]
        ]
        for p in range(len(x))
    ]


def fast(x: Floats, y: Floats, sides: Sides) -> list[list[int]]:
    starts, found = RectangleSearch().find(x, y, *sides)
    assert len(starts) == len(x) + 1
    assert starts[-1] == len(found)
    return [found[starts[p] : starts[p + 1]].tolist() for p in range(len(x))]


def around(x: Floats, y: Floats, reach_x: float | Floats, reach_y: float | Floats) -> Sides:
    return x - reach_x, x + reach_x, y - reach_y, y + reach_y


@pytest.mark.parametrize("seed", range(30))
def test_random_points_and_rectangles(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points, rectangles = rng.integers(0, 80, 2)
    size = 10.0 ** rng.integers(-2, 4)
    x, y = rng.uniform(-size, size, points), rng.uniform(-size, size, points)
    centre_x, centre_y = rng.uniform(-1.5 * size, 1.5 * size, (2, rectangles))
    reach_x, reach_y = rng.exponential(30.0, (2, rectangles))
    sides = around(centre_x, centre_y, reach_x, reach_y)
    assert fast(x, y, sides) == obvious(x, y, sides)


@pytest.mark.parametrize("seed", range(10))
def test_a_lattice_where_every_point_is_on_borders(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.integers(-4, 5, (2, 60)).astype(np.float64)
    centre_x, centre_y = rng.integers(-4, 5, (2, 50)).astype(np.float64)
    sides = around(centre_x, centre_y, 2.0, 1.0)
    found = fast(x, y, sides)
    assert found == obvious(x, y, sides)
    assert any(found)


def test_the_border_is_in_and_the_next_float_is_not() -> None:
    low, high = np.array([0.1 + 0.2]), np.array([7.3])
    inside = [low[0], high[0]]
    outside = [math.nextafter(low[0], -1), math.nextafter(high[0], 9)]
    coordinates = np.array(inside + outside)
    middle = np.full(4, 1.0)
    assert fast(coordinates, middle, (low, high, low, high)) == [[0], [0], [], []]
    assert fast(middle, coordinates, (low, high, low, high)) == [[0], [0], [], []]


def test_all_in_one_place() -> None:
    x, y = np.full(40, 3.0), np.full(40, -1.0)
    sides = around(np.full(30, 3.0), np.full(30, -1.0), 0.0, 0.0)
    assert fast(x, y, sides) == [list(range(30))] * 40


def test_a_crowd_and_one_far_away() -> None:
    rng = np.random.default_rng(5)
    x, y = rng.normal(0, 1, 200), rng.normal(0, 1, 200)
    x[7], y[7] = 1e9, -1e9
    sides = around(x, y, 1.5, 0.5)
    assert fast(x, y, sides) == obvious(x, y, sides)


def test_rectangles_without_end_and_without_inside() -> None:
    x, y = np.array([0.0, 5.0]), np.array([0.0, 5.0])
    low = np.array([-1e300, 2.0, np.inf, 4.0])
    high = np.array([1e300, 1.0, -np.inf, 1e308])
    assert fast(x, y, (low, high, low, high)) == [[0], [0, 3]]


def test_nothing_and_one() -> None:
    none, one = np.empty(0), np.array([1.0])
    assert fast(none, none, around(one, one, 1.0, 1.0)) == []
    assert fast(one, one, around(none, none, 1.0, 1.0)) == [[]]
    assert fast(one, one, around(one, one, 1.0, 1.0)) == [[0]]
    assert fast(none, none, around(none, none, 1.0, 1.0)) == []


def test_the_room_of_one_search_serves_the_next() -> None:
    rng = np.random.default_rng(8)
    search = RectangleSearch()
    for points in (5, 200, 0, 60):
        x, y = rng.uniform(0, 9, (2, points))
        sides = around(x, y, 2.0, 2.0)
        starts, found = search.find(x, y, *sides)
        again, found_again = RectangleSearch().find(x, y, *sides)
        assert starts.tolist() == again.tolist()
        assert found.tolist() == found_again.tolist()


# -- moving rectangles ------------------------------------------------------------------------

AREA = np.array([[1.0, 3.0, 10.0, 20.0, 0.5, -2.0, 4.0]])
LINE = np.zeros(1, np.int32)


def sides_of(design: int, seconds: float, at: float, version_at: Floats) -> list[float]:
    return [float(side[0]) for side in sides_at(LINE, AREA, version_at, design, seconds, at)]


def moved(t: float) -> list[float]:
    return [1.0 + 0.5 * t, 3.0 + 0.5 * t, 10.0 - 2.0 * t, 20.0 - 2.0 * t]


def test_exact_is_evaluated_at_the_time_of_the_publication() -> None:
    for at in (4.0, 4.3, 100.0):
        assert sides_of(EXACT, 0.0, at, np.array([NEVER])) == moved(at - 4.0)


def test_before_its_submission_it_holds_nothing() -> None:
    for design in (EXACT, PES, CLEES):
        version_at = np.array([NEVER])
        low_x, high_x, low_y, high_y = sides_of(design, 1.0, 3.9, version_at)
        assert low_x > high_x
        assert low_y > high_y
        assert version_at[0] == NEVER


def test_pes_stands_still_between_its_turns() -> None:
    version_at = np.array([NEVER])
    for at, moment in [(4.0, 4.0), (4.49, 4.0), (4.5, 4.5), (7.2, 7.0), (7.5, 7.5)]:
        assert sides_of(PES, 0.5, at, version_at) == moved(moment - 4.0)


def test_turns_of_pes_are_those_of_the_design_whatever_is_rounded() -> None:
    """At the very times `since + k * interval`, and just before, where a quotient rounds up."""
    conjunctions = normalise(parse("x > t")).conjunctions
    rng = np.random.default_rng(4)
    for _ in range(300):
        since, interval_s = rng.choice([0.0, 0.1, 0.7, 1e6 / 3]), rng.choice([0.1, 0.3, 0.7])
        turn_at = float(since + int(rng.integers(0, 1000)) * interval_s)
        for at in (turn_at, math.nextafter(turn_at, math.inf), math.nextafter(turn_at, 0.0)):
            if at < since:
                continue
            pes = Pes(OneByOne)
            pes.add(1, conjunctions, since, {}, interval_s)
            pes.advance(at)
            moment = pes.evaluated_at(1)
            area = np.array([[0.0, 0.0, 0.0, 0.0, 1.0, 0.0, since]])
            version_at = np.array([NEVER])
            sides_at(LINE, area, version_at, PES, interval_s, at)
            assert version_at[0] == moment


def test_clees_keeps_a_version_until_its_threshold_has_passed() -> None:
    version_at = np.array([NEVER])
    for at, moment in [(5.0, 5.0), (5.2, 5.0), (5.5, 5.0), (5.6, 5.6), (6.1, 5.6), (9.0, 9.0)]:
        assert sides_of(CLEES, 0.5, at, version_at) == moved(moment - 4.0)


def test_what_rests_has_no_versions() -> None:
    version_at = np.array([NEVER])
    area = AREA.copy()
    area[0, 4:6] = 0.0
    sides = sides_at(LINE, area, version_at, CLEES, 0.5, 50.0)
    assert [side[0] for side in sides] == [1.0, 3.0, 10.0, 20.0]
    assert version_at[0] == NEVER


def test_lines_are_taken_in_the_order_asked_for() -> None:
    areas = np.repeat(AREA, 3, axis=0)
    areas[:, 0] = [7.0, 8.0, 9.0]
    low_x, *_ = sides_at(np.array([2, 0], np.int32), areas, np.full(3, NEVER), EXACT, 0.0, 4.0)
    assert low_x.tolist() == [9.0, 7.0]
