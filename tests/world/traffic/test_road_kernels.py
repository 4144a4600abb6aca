"""The search for ways, on graphs without a geometry."""

import numpy as np
import pytest

from rove.world.traffic.road_kernels import ways


def table(
    turns: list[tuple[int, int, float]], lanes: int, destinations: list[int]
) -> list[list[int]]:
    """Turns are (source, target, seconds), in order of their sources; a lane takes one second."""
    source, target = (np.array([turn[i] for turn in turns], np.int32) for i in range(2))
    order = np.argsort(target, kind="stable").astype(np.int32)
    numbers = np.arange(lanes + 1)
    found: np.ndarray = ways(
        np.array(destinations, np.int32),
        np.ones(lanes),
        np.array([turn[2] for turn in turns]),
        source,
        target,
        np.searchsorted(source, numbers).astype(np.int32),
        np.searchsorted(target[order], numbers).astype(np.int32),
        order,
    )
    return [[int(turn) for turn in row] for row in found]


def test_of_equal_ways_the_first_turn_is_taken() -> None:
    diamond = [(0, 1, 1.0), (0, 2, 1.0), (1, 3, 1.0), (2, 3, 1.0), (3, 0, 1.0)]
    assert table(diamond, 4, [3]) == [[0, 2, 3, 4]]


def test_a_longer_way_may_be_quicker() -> None:
    assert table([(0, 1, 9.0), (0, 2, 1.0), (1, 0, 1.0), (2, 1, 1.0)], 3, [1]) == [[1, 2, 3]]


def test_where_no_way_leads_there_is_none() -> None:
    assert table([(0, 1, 1.0), (1, 0, 1.0), (2, 0, 1.0)], 3, [2]) == [[-1, -1, -1]]


@pytest.mark.parametrize("seed", range(10))
def test_costs_agree_with_trying_everything(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lanes = 12
    ends = sorted({(int(a), int(b)) for a, b in rng.integers(lanes, size=(40, 2))})
    turns = [(a, b, float(rng.integers(1, 9))) for a, b in ends]
    found = table(turns, lanes, list(range(lanes)))
    best = np.full((lanes, lanes), np.inf)
    np.fill_diagonal(best, 0.0)
    for _ in range(lanes):
        for a, b, seconds in turns:
            better = np.minimum(best[a], 1.0 + seconds + best[b])
            best[a] = np.where(np.arange(lanes) == a, 0.0, better)
    for destination in range(lanes):
        for lane in range(lanes):
            costs = [
                seconds + best[b, destination] if a == lane else np.inf for a, b, seconds in turns
            ]
            least = min(costs)
            expected = costs.index(least) if least < np.inf else -1
            assert found[destination][lane] == expected
