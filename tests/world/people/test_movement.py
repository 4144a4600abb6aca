"""Walking, beside an obvious walker."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.world.people.movement import Movement
from rove.world.runs.state import Entities, EntityKind, WorldError

TICK_S = 0.1
Point = tuple[float, float]


def walkers(*starts: Point, speed: float = 1.0) -> tuple[Entities, Movement]:
    entities = Entities()
    x, y = np.array(starts, dtype=float).reshape(-1, 2).T.copy()
    entities.add(EntityKind.NPC, [f"npc{i + 1}" for i in range(len(starts))], x, y, speed=speed)
    return entities, Movement(entities, TICK_S)


def place(entities: Entities, entity: int) -> Point:
    return float(entities.x[entity]), float(entities.y[entity])


def velocity(entities: Entities, entity: int) -> Point:
    return float(entities.vx[entity]), float(entities.vy[entity])


def path(*points: Point) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.array(points, dtype=float).reshape(-1, 2)


def test_a_leg_is_walked_in_whole_ticks_and_ends_exactly() -> None:
    entities, movement = walkers((0, 0))
    assert movement.set_path(0, path((0.25, 0)))
    assert movement.is_moving(0)
    assert velocity(entities, 0) == pytest.approx((0.25 / 0.3, 0))
    arrivals = [movement.advance().tolist() for _ in range(4)]
    assert arrivals == [[], [], [0], []]
    assert place(entities, 0) == (0.25, 0.0)
    assert velocity(entities, 0) == (0.0, 0.0)
    assert not movement.is_moving(0)


def test_at_a_corner_it_turns_within_the_tick() -> None:
    entities, movement = walkers((0, 0))
    movement.set_path(0, path((0.2, 0), (0.2, 0.1)))
    movement.advance()
    assert velocity(entities, 0) == pytest.approx((1, 0))
    assert movement.advance().tolist() == []
    assert place(entities, 0) == (0.2, 0.0)
    assert velocity(entities, 0) == pytest.approx((0, 1))
    assert movement.advance().tolist() == [0]
    assert place(entities, 0) == (0.2, 0.1)


@pytest.mark.parametrize("points", [[], [(1, 2)], [(1, 2), (1, 2)]])
def test_who_is_there_already_does_not_set_out(points: Sequence[Point]) -> None:
    entities, movement = walkers((1, 2))
    movement.set_path(0, path((5, 5)))
    assert not movement.set_path(0, path(*points))
    assert velocity(entities, 0) == (0, 0)
    assert movement.advance().tolist() == []
    assert place(entities, 0) == (1, 2)


def test_doubled_waypoints_cost_no_time() -> None:
    entities, movement = walkers((0, 0))
    movement.set_path(0, path((0, 0), (0.1, 0), (0.1, 0), (0.2, 0), (0.2, 0)))
    assert movement.advance().tolist() == []
    assert movement.advance().tolist() == [0]
    assert place(entities, 0) == (0.2, 0)


def test_stopping_forgets_the_path() -> None:
    entities, movement = walkers((0, 0))
    movement.set_path(0, path((1, 0), (2, 0)))
    movement.advance()
    movement.stop(0)
    assert velocity(entities, 0) == (0, 0)
    assert movement.advance().tolist() == []
    assert place(entities, 0) == pytest.approx((0.1, 0))


def test_several_stop_at_once() -> None:
    entities, movement = walkers((0, 0), (1, 1), (2, 2))
    for entity in range(3):
        movement.set_path(entity, path((5, 5)))
    movement.stop(np.array([0, 2], np.int32))
    assert [movement.is_moving(entity) for entity in range(3)] == [False, True, False]
    assert entities.vx.astype(bool).tolist() == [False, True, False]


def test_another_speed_counts_at_once_and_keeps_the_way() -> None:
    entities, movement = walkers((0, 0), (0, 5))
    movement.set_path(0, path((1, 0), (1, 1)))
    movement.advance()
    movement.set_speed(np.array([0, 1], np.int32), 3.0)
    assert velocity(entities, 0) == pytest.approx((3, 0))
    assert velocity(entities, 1) == (0, 0)
    ticks = 0
    while movement.is_moving(0):
        movement.advance()
        ticks += 1
    assert ticks == 3 + 4
    assert place(entities, 0) == (1, 1)
    assert entities.speed.tolist() == [3, 3]


@pytest.mark.parametrize("speed", [0.0, -1.0, 1e9, math.nan])
def test_a_speed_has_bounds(speed: float) -> None:
    _, movement = walkers((0, 0))
    with pytest.raises(WorldError, match=r"0\.01 to 1000 metres a second"):
        movement.set_speed(np.array([0], np.int32), speed)


def test_paths_that_cannot_be_walked_are_refused() -> None:
    _, movement = walkers((0, 0))
    with pytest.raises(WorldError, match="npc1 has a point nowhere"):
        movement.set_path(0, path((math.inf, 0)))
    _, movement = walkers((0, 0), speed=0)
    with pytest.raises(WorldError, match="npc1 has no speed"):
        movement.set_path(0, path((1, 0)))


def test_entities_may_be_added_later() -> None:
    entities, movement = walkers((0, 0))
    movement.advance()
    entities.add(EntityKind.NPC, ["late"], np.zeros(1), np.zeros(1), speed=1)
    assert not movement.is_moving(1)
    movement.set_path(1, path((0.1, 0)))
    assert movement.advance().tolist() == [1]


class SlowWalker:
    """The same rule, written down once more, for one entity."""

    def __init__(self, start: Point, speed: float) -> None:
        self.place, self.speed = start, speed
        self.ahead: list[Point] = []
        self.ticks, self.tick = 0, 0
        self.start = start

    def go(self, points: Sequence[Point]) -> None:
        self.ahead = list(points)
        self.set_out()

    def set_out(self) -> None:
        while self.ahead and self.ahead[0] == self.place:
            self.ahead.pop(0)
        self.start, self.tick = self.place, 0
        if self.ahead:
            metres = math.dist(self.place, self.ahead[0])
            self.ticks = max(1, math.ceil(metres / (self.speed * TICK_S) - 1e-9))

    def advance(self) -> bool:
        if not self.ahead:
            return False
        self.tick += 1
        if self.tick == self.ticks:
            self.place = self.ahead.pop(0)
            self.set_out()
            return not self.ahead
        part = self.tick / self.ticks
        (x0, y0), (x1, y1) = self.start, self.ahead[0]
        self.place = (x0 + part * (x1 - x0), y0 + part * (y1 - y0))
        return False


coordinates = st.sampled_from([0.0, 0.1, 0.15, 1.0, 2.5, -3.0, 7.0])
points = st.tuples(coordinates, coordinates)
orders = st.tuples(st.integers(0, 3), st.lists(points, max_size=5), st.integers(0, 30))


@given(st.lists(points, min_size=4, max_size=4), st.lists(orders, max_size=12))
def test_many_walk_as_each_would_alone(
    starts: list[Point], given_orders: list[tuple[int, list[Point], int]]
) -> None:
    entities, movement = walkers(*starts, speed=1.3)
    slow = [SlowWalker(start, 1.3) for start in starts]
    for entity, way, ticks in given_orders:
        slow[entity].place = place(entities, entity)  # else a rounding error could be a leg
        slow[entity].go(way)
        assert movement.set_path(entity, path(*way)) == bool(slow[entity].ahead)
        for _ in range(ticks):
            before = [*zip(entities.x, entities.y, entities.vx, entities.vy, strict=True)]
            arrived = movement.advance().tolist()
            assert arrived == [i for i, walker in enumerate(slow) if walker.advance()]
            for i, (x, y, vx, vy) in enumerate(before):
                assert place(entities, i) == pytest.approx(slow[i].place, abs=1e-9)
                told = (x + vx * TICK_S, y + vy * TICK_S)
                assert place(entities, i) == pytest.approx(told, abs=1e-9)
                assert math.hypot(vx, vy) <= 1.3 * (1 + 1e-8)


def test_the_store_of_waypoints_does_not_grow_for_ever() -> None:
    rng = np.random.Generator(np.random.PCG64(1))
    entities, movement = walkers(*[(0.0, 0.0)] * 20)
    slow = [SlowWalker((0.0, 0.0), 1.0) for _ in range(20)]
    for _ in range(600):
        entity = int(rng.integers(20))
        way = [(float(a), float(b)) for a, b in rng.integers(-5, 5, (int(rng.integers(30)), 2))]
        slow[entity].place = place(entities, entity)
        slow[entity].go(way)
        movement.set_path(entity, path(*way))
        movement.advance()
        for walker in slow:
            walker.advance()
    for i, walker in enumerate(slow):
        assert place(entities, i) == pytest.approx(walker.place, abs=1e-9)
    assert len(movement._waypoints) <= 2048
