"""Regions and what is handed over at their borders."""

import numpy as np
import pytest

from rove.world.engines.regions import KEPT_M, HandOver, Regions
from rove.world.map.maps import Map
from rove.world.runs.state import Entities, EntityKind, WorldError


def regions(count: int, width: float = 200, height: float = 100) -> Regions:
    return Regions(Map("yard", width, height), count)


def crowd(x: list[float], y: list[float]) -> Entities:
    entities = Entities()
    names = [f"npc{i + 1}" for i in range(len(x))]
    entities.add(EntityKind.NPC, names, np.array(x, float), np.array(y, float), speed=1)
    return entities


@pytest.mark.parametrize(
    ("count", "width", "height", "columns", "rows"),
    [(1, 200, 100, 1, 1), (2, 200, 100, 2, 1), (2, 100, 200, 1, 2), (8, 200, 100, 4, 2),
     (4, 100, 100, 2, 2), (7, 300, 100, 7, 1), (12, 100, 100, 3, 4)],
)  # fmt: skip
def test_rectangles_are_nearly_squares(
    count: int, width: float, height: float, columns: int, rows: int
) -> None:
    cut = regions(count, width, height)
    assert (cut.columns, cut.rows) == (columns, rows)


def test_rectangles_cover_the_map_once() -> None:
    cut = regions(6)
    areas = [cut.rectangle(server) for server in range(6)]
    assert sum((x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in areas) == pytest.approx(200 * 100)
    rng = np.random.Generator(np.random.PCG64(1))
    x, y = rng.uniform(0, 200, 500), rng.uniform(0, 100, 500)
    for a, b, server in zip(x, y, cut.server_of(x, y), strict=True):
        x0, y0, x1, y1 = areas[server]
        assert x0 <= a <= x1
        assert y0 <= b <= y1


def test_borders_and_what_lies_beyond_the_map() -> None:
    cut = regions(2)
    x = np.array([0.0, 100.0, 99.999, 200.0, -5.0, 205.0])
    assert cut.server_of(x, np.full(6, 50.0)).tolist() == [0, 1, 0, 1, 0, 1]


def test_it_takes_a_server() -> None:
    with pytest.raises(WorldError, match="0 servers"):
        regions(0)


def test_walking_along_a_border_hands_nothing_to_and_fro() -> None:
    cut, entities = regions(2), crowd([99.5], [10])
    cut.begin(entities)
    rng = np.random.Generator(np.random.PCG64(2))
    for tick in range(200):
        entities.x[0] = 100 + rng.uniform(-KEPT_M, KEPT_M)
        assert cut.hand_over(entities, tick).tolist() == []
    entities.x[0] = 100 + KEPT_M + 0.01
    assert cut.hand_over(entities, 200).tolist() == [0]
    entities.x[0] = 100 - KEPT_M + 0.01
    assert cut.hand_over(entities, 201).tolist() == []
    assert entities.server.tolist() == [1]
    assert list(cut.latest) == [HandOver(200, 0, 0, 1)]
    assert cut.handed_over == 1


def test_hand_over_as_one_by_one() -> None:
    """The same rule for single entities, in plain words."""
    cut = regions(6)
    rng = np.random.Generator(np.random.PCG64(3))
    entities = crowd(rng.uniform(0, 200, 60).tolist(), rng.uniform(0, 100, 60).tolist())
    cut.begin(entities)
    held = entities.server.tolist()
    crossings = 0
    for tick in range(100):
        entities.x[:] = np.clip(entities.x + rng.normal(0, 2, 60), 0, 200)
        entities.y[:] = np.clip(entities.y + rng.normal(0, 2, 60), 0, 100)
        expected = []
        for i, server in enumerate(held):
            x0, y0, x1, y1 = cut.rectangle(server)
            kept_x = x0 - KEPT_M <= entities.x[i] <= x1 + KEPT_M
            if not (kept_x and y0 - KEPT_M <= entities.y[i] <= y1 + KEPT_M):
                held[i] = int(cut.server_of(entities.x[i : i + 1], entities.y[i : i + 1])[0])
                expected.append(i)
        assert cut.hand_over(entities, tick).tolist() == expected
        assert entities.server.tolist() == held
        crossings += len(expected)
    assert crossings > 50
    assert cut.handed_over == len(cut.latest) == crossings


def test_what_is_carried_goes_with_its_holder() -> None:
    cut, entities = regions(2), crowd([90], [10])
    entities.add(
        EntityKind.ITEM, ["apple1", "apple2"], np.array([90.0, 120.0]), np.array([10.0, 10.0])
    )
    entities.holder[1] = 0
    cut.begin(entities)
    assert entities.server.tolist() == [0, 0, 1]
    entities.x[:2] = 110
    assert cut.hand_over(entities, 1).tolist() == [0, 1]
    # The holder is kept on the left while the item, counted for itself, would be right.
    entities.x[:2] = 99.5
    entities.holder[2] = 0
    assert cut.hand_over(entities, 2).tolist() == []
    entities.x[0] = 50
    assert cut.hand_over(entities, 3).tolist() == [0, 1, 2]
    assert entities.server.tolist() == [0, 0, 0]


def test_one_server_has_everything() -> None:
    cut, entities = regions(1), crowd([10, 190], [10, 90])
    cut.begin(entities)
    assert cut.hand_over(entities, 1).tolist() == []
    assert entities.server.tolist() == [0, 0]
