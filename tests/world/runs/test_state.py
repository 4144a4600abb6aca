"""Columns of a world."""

import numpy as np
import pytest

from rove.world.runs.state import NOBODY, Entities, EntityKind, WorldError


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
