"""What has changed, against a comparison by hand."""

import numpy as np

from rove.world.runs.differences import ChangeDetector
from rove.world.runs.state import Entities, EntityKind

COLUMNS = ("x", "y", "vx", "vy", "speed", "server", "holder", "uses")


def test_every_column_is_looked_at() -> None:
    entities = Entities()
    entities.add(
        EntityKind.NPC, [f"npc{i}" for i in range(20)], np.zeros(20), np.zeros(20), speed=1
    )
    memory = ChangeDetector(entities)
    rng = np.random.Generator(np.random.PCG64(5))
    for _ in range(100):
        before = {column: getattr(entities, column).tolist() for column in COLUMNS}
        for column in COLUMNS:
            touched = rng.integers(20, size=rng.integers(3))
            getattr(entities, column)[touched] = rng.integers(3, size=len(touched))
        differing = {
            column: {i for i in range(20) if getattr(entities, column)[i] != before[column][i]}
            for column in COLUMNS
        }
        changed, legs, moved = memory.compare(entities)
        assert changed.tolist() == sorted(set().union(*differing.values()))
        assert legs.tolist() == sorted(differing["vx"] | differing["vy"])
        assert moved.tolist() == sorted(differing["x"] | differing["y"])
    assert [each.tolist() for each in memory.compare(entities)] == [[], [], []]


def test_what_was_changed_back_has_not_changed() -> None:
    entities = Entities()
    entities.add(EntityKind.NPC, ["npc1"], np.zeros(1), np.zeros(1))
    memory = ChangeDetector(entities)
    entities.x[0] = 1
    entities.x[0] = 0
    assert memory.compare(entities)[0].tolist() == []
