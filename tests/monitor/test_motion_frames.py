"""Frames: both ends and the page foresee the same, and nobody is wrong by more than a decimetre."""

import numpy as np
import pytest

from rove.monitor.motion_frames import TOLERANCE_M, ClientAreas, Motion, header_of
from tests.monitor.conftest import read_frame

TICK_S = 0.1


class Walk:
    """Some who accelerate, turn and stop at random."""

    def __init__(self, seed: int, count: int = 37, speed: float = 3.0) -> None:
        self.rng = np.random.Generator(np.random.PCG64(seed))
        self.x, self.y = self.rng.uniform(0, 1000, (2, count))
        self.vx, self.vy = np.zeros(count), np.zeros(count)
        self.speed = speed
        self.tick = 0

    def step(self) -> None:
        self.tick += 1
        self.x, self.y = self.x + self.vx * TICK_S, self.y + self.vy * TICK_S
        turned = self.rng.uniform(0, 1, len(self.x)) < 0.2
        for v in (self.vx, self.vy):
            v[turned] = self.rng.uniform(-self.speed, self.speed, turned.sum())

    @property
    def at(self) -> float:
        return self.tick * TICK_S

    def look(self, motion: Motion) -> bytes:
        return motion.look(self.x, self.y, self.vx, self.vy, self.tick, self.at, TICK_S)


@pytest.mark.parametrize("speed", [0.2, 3.0, 80.0])
def test_nobody_is_wrong_by_more_than_is_tolerated_at_either_end(speed: float) -> None:
    walk, there, here = Walk(1, speed=speed), Motion(37), Motion(37)
    for _ in range(200):
        here.take(walk.look(there))
        for motion in (there, here):
            x, y = motion.foreseen(walk.at)
            # Velocities above 32 m/s cannot be told, but places can.
            assert np.hypot(x - walk.x, y - walk.y).max() <= TOLERANCE_M + 1e-4
        assert np.array_equal(there.foreseen(walk.at), here.foreseen(walk.at))
        walk.step()


def test_who_goes_straight_on_is_told_once() -> None:
    walk, motion = Walk(2), Motion(37)
    walk.vx[:] = 1.4
    assert header_of(walk.look(motion)).number == 37
    for _ in range(50):
        walk.tick += 1
        walk.x = walk.x + walk.vx * TICK_S
        assert header_of(walk.look(motion)).number == 0


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_columns_are_aligned_whatever_their_length(count: int) -> None:
    walk, motion = Walk(3, count), Motion(count)
    walk.vx[:] = -1.2345
    frame = read_frame(walk.look(motion))
    assert frame.kind == 2
    assert frame.columns[0] == tuple(range(count))
    assert frame.columns[1] == pytest.approx(walk.x, abs=1e-3)
    assert frame.columns[3] == (-1234,) * count or frame.columns[3] == (-1235,) * count
    whole = read_frame(motion.whole())
    assert (whole.kind, whole.is_whole, len(whole.columns[0])) == (1, 1, count)


def test_who_missed_some_ticks_gets_all_of_them_in_one_frame() -> None:
    walk, there, here, late = Walk(4), Motion(37), Motion(37), Motion(37)
    first = walk.look(there)
    here.take(first)
    late.take(first)
    seen = here.tick
    for _ in range(3):
        walk.step()
        here.take(walk.look(there))
    frame = here.legs_since(seen)
    if header_of(frame).kind == 2:
        late.take(frame)
        assert np.allclose(late.foreseen(walk.at), here.foreseen(walk.at), atol=1e-3)
    assert header_of(here.legs_since(here.tick)).number == 0


def test_a_frame_that_would_be_longer_than_everybody_is_everybody() -> None:
    walk, motion = Walk(5), Motion(37)
    walk.look(motion)
    assert header_of(motion.legs_since(-1)).kind == 1


def rectangles(count: int, vx: float = 1.0) -> np.ndarray:
    places = np.arange(count) * 10.0
    columns = [places, places, np.full(count, 30.0), np.full(count, 20.0)]
    return np.column_stack([*columns, np.full(count, vx), np.zeros(count)])


def test_rectangles_that_move_as_foreseen_are_told_once() -> None:
    there, here = ClientAreas(5), ClientAreas(5)
    clients = np.arange(5, dtype=np.int32)
    first = there.look(clients, rectangles(5), 1, 0.1)
    here.take(first)
    assert read_frame(first).is_whole == 1
    moved = rectangles(5)
    moved[:, 0] += 0.1
    frame = there.look(clients, moved, 2, 0.2)
    assert (header_of(frame).number, header_of(frame).is_whole) == (0, 0)
    moved[3, 0] += 5.0
    here.take(frame := there.look(clients, moved, 3, 0.2))
    assert read_frame(frame).columns[0] == (3,)
    assert read_frame(here.since(2)).columns[0] == (3,)
    assert read_frame(here.since(-1)).columns[0] == (0, 1, 2, 3, 4)


def test_when_rectangles_are_gone_all_are_told_anew() -> None:
    there, here = ClientAreas(4), ClientAreas(4)
    here.take(there.look(np.arange(4, dtype=np.int32), rectangles(4), 1, 0.1))
    frame = there.look(np.arange(2, dtype=np.int32), rectangles(4)[:2], 2, 0.1)
    here.take(frame)
    assert read_frame(frame).is_whole == 1
    assert read_frame(here.since(1)).columns[0] == (0, 1)
    assert read_frame(here.since(1)).is_whole == 1
    assert read_frame(here.since(2)).is_whole == 0
