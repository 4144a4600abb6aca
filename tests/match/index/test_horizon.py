"""The horizon: how long boxes that move are right, and what they reach in that time."""

import numpy as np
import pytest

from rove.match.index import horizon
from rove.match.index.construction import built
from rove.match.index.horizon import Times, extremes
from rove.match.index.rows import from_boxes
from rove.match.index.segment import Segment


def test_the_horizon_is_as_long_as_boxes_take_to_grow_a_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(horizon, "_GROWTH", 0.1)
    ids, zero = np.arange(3), np.zeros((1, 3))

    def times(width: float, speed: float, now: float = 5.0) -> tuple[float, float]:
        rows = from_boxes(ids, [0], zero, zero + width, zero + speed)
        segment = Segment(built(rows, now, indexed=True), rows.strings)
        return segment.begins_at, segment.ends_at

    assert times(200.0, 10.0) == (5.0, 7.0)
    assert times(200.0, 1e9) == (5.0, 5.1)
    assert times(200.0, 1e-9) == (5.0, 3605.0)
    assert times(0.0, 1.0) == (5.0, 15.0)
    assert times(200.0, 10.0, float("-inf")) == (0.0, 2.0)
    still = from_boxes(ids, [0], zero, zero + 1)
    assert Segment(built(still, 5.0, indexed=True), {}).ends_at == float("inf")


def test_the_ends_of_the_horizon_give_the_extremes() -> None:
    rows = from_boxes(
        np.arange(2),
        [0],
        np.array([[0.0, 5.0]]),
        np.array([[1.0, 6.0]]),
        np.array([[2.0, -1.0]]),
    )
    least, most = extremes(rows, Times(1.0, 4.0))
    assert least.tolist() == [2.0, 3.0, 1.0, 2.0]
    assert most.tolist() == [8.0, 9.0, 4.0, 5.0]
