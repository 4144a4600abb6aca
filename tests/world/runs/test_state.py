"""Columns of a world."""

import numpy as np
import pytest

from rove.world.runs.state import NOBODY, ChangeDetector, Entities, EntityKind, WorldError


def test_new_entities_are_lines_of_all_columns() -> None:
    entities = Entities()
    first = entities.add(
        EntityKind.PLAYER, ["ann", "bob"], np.array([1.0, 2.0]), np.zeros(2), speed=1.5
    )
    more = entities.add(EntityKind.ITEM, ["apple"], np.array([4.0]), np.array([3.0]))
    assert (first.tolist(), more.tolist(), len(entities)) == ([0, 1], [2], 3)
    assert entities.kind.tolist() == [EntityKind.PLAYER, EntityKind.PLAYER, EntityKind.ITEM]
    assert entities.x.tolist() == [1.0, 2.0, 4.0]
    assert entities.speed.tolist() == [1.5, 1.5, 0.0]
    assert entities.holder.tolist() == [NOBODY] * 3
    assert entities.version.tolist() == [1, 1, 1]
    assert entities.number("apple") == 2


def test_names_are_given_once_and_known() -> None:
    entities = Entities()
    entities.add(EntityKind.NPC, ["npc1"], np.zeros(1), np.zeros(1))
    with pytest.raises(WorldError, match="already a npc1"):
        entities.add(EntityKind.NPC, ["npc1"], np.zeros(1), np.zeros(1))
    with pytest.raises(WorldError, match="nobody called npc2"):
        entities.number("npc2")


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
