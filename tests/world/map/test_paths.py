"""Ways never cut a wall, are short, and are found whenever there are any."""

from __future__ import annotations

import functools
import heapq
import itertools
import math

import numpy as np
import pytest
import shapely  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from rove.world.map.generation import generate
from rove.world.map.maps import GRAZE_M, Map, load_map
from rove.world.map.path_kernels import EXCESS_MAX
from rove.world.map.paths import CLEARANCE_M, Paths, straight_ahead
from rove.world.map.sight import Walls, sees
from rove.world.map.tiles import Tiles
from rove.world.runs.state import Floats, WorldError

CUT = (((40.0, 0.0), (42.0, 0.0), (42.0, 100.0), (40.0, 100.0)),)
STAIRS = tuple(
    ((10.0 * k, 10.0 * k), (10.0 * k + 11, 10.0 * k), (10.0 * k + 11, 10.0 * k + 11))
    for k in range(1, 8)
)


@functools.cache
def example(name: str) -> tuple[Map, Tiles, Paths]:
    made = {
        "cut in two": lambda: Map("cut in two", 100, 100, CUT),
        "stairs": lambda: Map("stairs", 100, 100, STAIRS),
        "small town": lambda: generate("town", np.random.default_rng(3), 400, 300),
    }.get(name, lambda: load_map(name))()
    tiles = Tiles(made)
    return made, tiles, Paths(tiles)


EXAMPLES = ("stairs", "small town", "arena", "maze", "ward", "plain", "city")


def journeys(paths: Paths, seed: int, count: int) -> Floats:
    x, y = paths.free_points(np.random.default_rng(seed), 2 * count)
    return np.stack([x[:count], y[:count], x[count:], y[count:]], axis=1)


def whole(journey: Floats, way: Floats | None) -> Floats:
    """A way with its start."""
    assert way is not None
    return np.concatenate([journey[None, :2], way])


def length(points: Floats) -> float:
    return float(np.linalg.norm(np.diff(points, axis=0), axis=1).sum())


@pytest.mark.parametrize("name", EXAMPLES)
def test_ways_lead_to_the_goal_and_never_cut_a_wall(name: str) -> None:
    made, _, paths = example(name)
    ground = shapely.box(0, 0, made.width, made.height)
    inner = shapely.buffer(made.walls, -1e-6, join_style="mitre")  # along a wall is not through it
    shapely.prepare(inner)
    ready = Walls(made)
    for journey in journeys(paths, seed=1, count=150):
        points = whole(journey, paths.path(*journey.tolist()))
        assert points[-1].tolist() == journey[2:].tolist()
        line = shapely.LineString(points)
        assert not shapely.intersects(inner, line)
        assert ground.covers(line)
        ends = (points[:-1, 0], points[:-1, 1], points[1:, 0], points[1:, 1])
        assert sees(ready, *ends).all()


@pytest.mark.parametrize("name", EXAMPLES)
def test_ways_are_no_shorter_than_straight_and_straight_where_one_sees(name: str) -> None:
    made, _, paths = example(name)
    asked = journeys(paths, seed=2, count=200)
    clear = sees(Walls(made), *asked.T)
    for journey, is_clear in zip(asked, clear.tolist(), strict=True):
        points = whole(journey, paths.path(*journey.tolist()))
        straight = math.dist(journey[:2], journey[2:])
        assert length(points) >= straight * (1 - 1e-12)
        assert (len(points) == 2) <= is_clear


def shortest(made: Map, journey: Floats) -> float:
    """Dijkstra over all corners that see each other."""
    corners = np.array([journey[:2], journey[2:], *itertools.chain(*made.obstacles)])
    count = len(corners)
    one, other = (each.reshape(-1) for each in np.mgrid[:count, :count])
    clear = sees(Walls(made), *corners[one].T, *corners[other].T).reshape(count, count)
    apart = np.linalg.norm(corners[:, None] - corners[None], axis=2)
    best = np.full(count, np.inf)
    waiting = [(0.0, 0)]
    while waiting:
        walked, corner = heapq.heappop(waiting)
        if walked < best[corner]:
            best[corner] = walked
            for beyond in np.flatnonzero(clear[corner]).tolist():
                heapq.heappush(waiting, (walked + apart[corner, beyond], beyond))
    return float(best[1])


@pytest.mark.parametrize("name", ["stairs", "ward", "small town"])
def test_ways_are_hardly_longer_than_the_shortest(name: str) -> None:
    made, _, paths = example(name)
    excesses = []
    for journey in journeys(paths, seed=3, count=25):
        found = length(whole(journey, paths.path(*journey.tolist())))
        best = shortest(made, journey)
        # Who sees may cut a millimetre off a corner.
        assert best * (1 - 1e-4) <= found <= best * EXCESS_MAX
        excesses.append(found / best - 1)
    assert np.mean(excesses) < 0.01


def test_over_open_ground_one_goes_straight() -> None:
    _, _, paths = example("plain")
    for journey in journeys(paths, seed=4, count=300):
        assert len(whole(journey, paths.path(*journey.tolist()))) == 2


def test_a_way_bends_at_corners_only_and_says_each_once() -> None:
    made, _, paths = example("small town")
    corners = {corner for obstacle in made.obstacles for corner in obstacle}
    bends = 0
    for journey in journeys(paths, seed=5, count=150):
        points = whole(journey, paths.path(*journey.tolist()))
        for before, at, after in zip(points, points[1:], points[2:], strict=False):
            assert tuple(at.tolist()) in corners
            turn = np.cross(np.append(at - before, 0), np.append(after - at, 0))[2]
            assert abs(turn) > 1e-9
            bends += 1
    assert bends > 100


def test_along_a_wall_there_is_no_stop() -> None:
    """Halved sides leave corners in the middle of walls; who passes them goes on."""
    _, _, paths = example("cut in two")
    way = paths.path(42.0, 3.0, 42.0, 97.0)
    assert way is not None
    assert way.tolist() == [[42.0, 97.0]]


# -- where there is no way --------------------------------------------------------------------


def test_there_is_no_way_through_a_closed_wall() -> None:
    _, _, paths = example("cut in two")
    assert paths.path(10, 50, 90, 50) is None
    assert paths.path(10, 50, 10, 90) is not None


@pytest.mark.parametrize(
    "journey",
    [(41, 50, 90, 50), (90, 50, 41, 50), (90, 50, 101, 50), (-1, 0, 1, 1), (41, 1, 41, 2)],
)
def test_there_is_no_way_from_or_to_a_wall_or_the_outside(journey: tuple[float, ...]) -> None:
    _, _, paths = example("cut in two")
    assert paths.path(*journey) is None
    assert paths.path(90, 50, math.nan, 50) is None


def test_who_is_there_has_a_way_of_one_point() -> None:
    _, _, paths = example("small town")
    way = paths.path(3, 3, 3, 3)
    assert way is not None
    assert way.tolist() == [[3, 3]]


def test_there_is_a_way_from_where_two_parts_meet_in_a_point() -> None:
    """Four squares around a point: two walls, two yards. Who stands on it may go into both."""
    boxes = [(50, 50, 100, 100), (0, 0, 50, 50)]
    walls = tuple(((a, b), (c, b), (c, d), (a, d)) for a, b, c, d in boxes)
    paths = Paths(Tiles(Map("corner", 100, 100, walls)))
    assert paths.path(50, 50, 10, 90) is not None
    assert paths.path(50, 50, 90, 10) is not None
    assert paths.path(90, 10, 10, 90) is None


def test_corners_of_walls_can_be_left_and_reached() -> None:
    made, _, paths = example("small town")
    corners = [corner for obstacle in made.obstacles for corner in obstacle][::3]
    for one, other in itertools.pairwise(corners):
        assert paths.path(*one, *other) is not None


def check_random_map(seed: int) -> None:
    """Ways between points and corners of tiles, on a map of boxes that touch, line up, overlap."""
    rng = np.random.default_rng(seed)
    if seed % 2:
        made = generate("maze", rng, *rng.uniform(40, 150, 2).tolist())
    else:
        cells = np.argwhere(rng.random((10, 10)) < 0.3) * 10.0
        boxes = [((x, y), (x + 10, y), (x + 10, y + 10), (x, y + 10)) for x, y in cells.tolist()]
        made = Map("boxes", 100, 100, tuple(boxes))
    tiles = Tiles(made, side_max_m=float(rng.choice([10, 25, 60])))
    paths = Paths(tiles)
    x, y = paths.free_points(rng, 15)
    corners = tiles.triangles[rng.integers(len(tiles), size=25), 0]
    corners = corners[tiles.part[tiles.tile_at(*corners.T)] == paths.main_part]
    stops = rng.permutation(np.concatenate([np.stack([x, y], axis=1), corners]))
    inner = shapely.buffer(made.walls, -1e-6, join_style="mitre")
    shapely.prepare(inner)
    for one, other in itertools.pairwise(stops):
        points = whole(one, paths.path(*one.tolist(), *other.tolist()))
        assert points[-1].tolist() == other.tolist()
        assert not shapely.intersects(inner, shapely.LineString(points))


@pytest.mark.parametrize("seed", range(24))
def test_ways_are_found_on_random_maps(seed: int) -> None:
    check_random_map(seed)


@pytest.mark.soak
def test_ways_are_found_on_many_random_maps() -> None:
    for seed in range(24, 3000):
        check_random_map(seed)


def test_who_grazes_a_wall_can_leave_it() -> None:
    _, _, paths = example("cut in two")
    for x in (42.0, 41.9995):
        way = paths.path(x, 50, 90, 60)
        assert way is not None
        assert way.tolist() == [[90, 60]]


# -- points -----------------------------------------------------------------------------------


def test_free_points_are_free_and_in_the_largest_part() -> None:
    _, tiles, paths = example("cut in two")
    x, y = paths.free_points(np.random.default_rng(1), 5000)
    assert (tiles.tile_at(x, y) >= 0).all()
    assert (x > 42 - 1e-9).all()


def test_free_points_are_drawn_evenly() -> None:
    """Each tile gets its share: chi-squared, with the bound for one chance in a million."""
    _, tiles, paths = example("small town")
    count = 200_000
    x, y = paths.free_points(np.random.default_rng(2), count)
    drawn = np.bincount(tiles.tile_at(x, y), minlength=len(tiles))
    expected = tiles.areas / tiles.areas.sum() * count
    freedom = len(tiles) - 1
    assert ((drawn - expected) ** 2 / expected).sum() < freedom + 4.9 * math.sqrt(2 * freedom)
    halves = [(x < 200).mean(), (y < 150).mean()]
    made = example("small town")[0]
    free = made.free_space
    west = shapely.intersection(free, shapely.box(0, 0, 200, 300)).area / free.area
    south = shapely.intersection(free, shapely.box(0, 0, 400, 150)).area / free.area
    assert halves == pytest.approx([west, south], abs=0.006)


def test_one_seed_gives_the_same_points_and_ways() -> None:
    _, tiles, paths = example("small town")
    again = Paths(tiles)
    asked = journeys(paths, seed=6, count=40)
    assert asked.tobytes() == journeys(again, seed=6, count=40).tobytes()
    for journey in asked[::-1]:
        again.path(*journey.tolist())
    for journey in asked:  # what was searched before has no influence
        one, other = (whole(journey, each.path(*journey.tolist())) for each in (paths, again))
        assert one.tobytes() == other.tobytes()


def test_no_points_can_be_asked_for() -> None:
    x, y = example("arena")[2].free_points(np.random.default_rng(0), 0)
    assert (x.tolist(), y.tolist()) == ([], [])


def test_the_nearest_free_point_is_where_shapely_finds_it() -> None:
    made, tiles, paths = example("cut in two")
    largest = max(shapely.get_parts(made.free_space), key=shapely.area)
    rng = np.random.default_rng(7)
    asked = rng.uniform(-20, 120, (300, 2))
    moved = 0
    for x, y in asked.tolist():
        found = paths.nearest_free(x, y)
        away = shapely.distance(largest, shapely.Point(x, y))
        assert math.dist(found, (x, y)) == pytest.approx(away, abs=1e-9)
        tile = tiles.tile_at(np.array([found[0]]), np.array([found[1]]))
        assert tiles.part[tile] == paths.main_part
        moved += away > 0
        if away == 0:
            assert found == (x, y)
    assert 0 < moved < 300


@pytest.mark.parametrize("name", ["stairs", "arena", "small town"])
def test_from_the_nearest_free_point_there_is_a_way(name: str) -> None:
    made, tiles, paths = example(name)
    rng = np.random.default_rng(8)
    asked = rng.uniform(0, 1, (200, 2)) * (made.width, made.height)
    inside = asked[tiles.tile_at(asked[:, 0], asked[:, 1]) < 0]
    assert len(inside) > 3
    for x, y in inside.tolist():
        near = paths.nearest_free(x, y)
        assert shapely.distance(made.walls, shapely.Point(near)) < GRAZE_M
        assert paths.path(*near, *paths.nearest_free(made.width / 2, made.height / 2)) is not None


def test_no_point_is_near_to_nothing() -> None:
    with pytest.raises(WorldError, match=r"\(nan, 0\) is no point; give metres"):
        example("arena")[2].nearest_free(math.nan, 0)


YARD = Map(
    "yard",
    100,
    80,
    (
        ((20, 20), (40, 20), (40, 50), (20, 50)),
        ((60, 0), (62, 0), (62, 60), (60, 60)),
        ((70, 70), (90, 60), (85, 75)),
    ),
)
TILES = Tiles(YARD, side_max_m=12)
A_LITTLE_MORE, A_LITTLE_LESS = YARD.free_space.buffer(1e-6), YARD.free_space.buffer(-1e-6)


@pytest.mark.parametrize(
    ("start", "direction", "end"),
    [
        ((10, 10), (1, 0), (60 - CLEARANCE_M, 10)),
        ((10, 10), (5, 0), (60 - CLEARANCE_M, 10)),
        ((10, 30), (1, 0), (20 - CLEARANCE_M, 30)),
        ((10, 30), (-1, 0), (CLEARANCE_M, 30)),
        ((10, 10), (0, 1), (10, 80 - CLEARANCE_M)),
        ((50, 30), (0, -1), (50, CLEARANCE_M)),
        # Along a wall and past its corner.
        ((10, 20), (1, 0), (60 - CLEARANCE_M, 20)),
        ((40, 60), (0, -1), (40, CLEARANCE_M)),
        # Against the wall that it stands at.
        ((20, 30), (1, 0), (20, 30)),
        ((0, 0), (-1, -1), (0, 0)),
    ],
)
def test_where_it_ends(
    start: tuple[float, float], direction: tuple[float, float], end: tuple[float, float]
) -> None:
    assert straight_ahead(TILES, *start, *direction) == pytest.approx(end, abs=1e-6)


@pytest.mark.parametrize("direction", [(0.0, 0.0), (math.inf, 0.0), (math.nan, 1.0)])
def test_a_direction_is_needed(direction: tuple[float, float]) -> None:
    with pytest.raises(WorldError, match="is no direction"):
        straight_ahead(TILES, 10, 10, *direction)


@given(st.integers(0, 100), st.integers(0, 80), st.integers(-9, 9), st.integers(-9, 9))
def test_as_a_geometer_would_draw_it(x: int, y: int, dx: int, dy: int) -> None:
    """Corners and sides included: whole numbers meet them often."""
    inside = shapely.intersects_xy(YARD.free_space, x, y)
    if not inside or dx == dy == 0:
        return
    end = straight_ahead(TILES, x, y, dx, dy)
    way = shapely.LineString([(x, y), end])
    assert A_LITTLE_MORE.covers(way)
    # A little farther there is a wall, or the corner of one that was touched.
    length = math.hypot(dx, dy)
    beyond = (end[0] + dx / length * 0.06, end[1] + dy / length * 0.06)
    assert not A_LITTLE_LESS.covers(shapely.LineString([(x, y), beyond]))


def test_from_inside_a_wall_it_goes_nowhere() -> None:
    assert straight_ahead(TILES, 30.0, 30.0, 1, 0) == (30.0, 30.0)
    assert TILES.tile_at(np.array([30.0]), np.array([30.0]))[0] == -1
