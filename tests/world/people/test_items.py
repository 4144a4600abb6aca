"""Picking up, dropping, using, giving."""

import numpy as np
import pytest

from rove.world.people import items
from rove.world.runs.state import NOBODY, Entities, EntityKind, WorldError

ANN, BOB, APPLE, PEAR, CAR = range(5)
TICK_S = 0.1


@pytest.fixture
def entities() -> Entities:
    """Ann at the origin, an apple in her reach; Bob in reach of her, a pear far away."""
    made = Entities()
    made.add(EntityKind.PLAYER, ["ann", "bob"], np.array([0.0, 0.0]), np.array([0.0, 2.0]), speed=1)
    made.add(EntityKind.ITEM, ["apple", "pear"], np.array([1.0, 9.0]), np.array([0.5, 9.0]))
    made.add(EntityKind.VEHICLE, ["car"], np.array([0.0]), np.array([1.0]))
    return made


def test_an_item_has_one_holder(entities: Entities) -> None:
    items.pick_up(entities, ANN, APPLE)
    assert entities.holder.tolist() == [NOBODY, NOBODY, ANN, NOBODY, NOBODY]
    assert items.carried_by(entities, ANN).tolist() == [APPLE]
    with pytest.raises(WorldError, match="apple is carried by ann"):
        items.pick_up(entities, BOB, APPLE)
    with pytest.raises(WorldError, match="ann has apple already"):
        items.pick_up(entities, ANN, APPLE)
    items.give(entities, ANN, APPLE, BOB)
    assert entities.holder[APPLE] == BOB
    with pytest.raises(WorldError, match="ann does not carry apple"):
        items.drop(entities, ANN, APPLE)
    items.drop(entities, BOB, APPLE)
    assert entities.holder[APPLE] == NOBODY


def test_reach_ends_at_two_metres(entities: Entities) -> None:
    with pytest.raises(WorldError, match=r"pear is 12\.73 m from ann, whose reach is 2 m"):
        items.pick_up(entities, ANN, PEAR)
    entities.x[PEAR], entities.y[PEAR] = 2.0, 0.0
    items.pick_up(entities, ANN, PEAR)
    items.give(entities, ANN, PEAR, BOB)
    entities.y[BOB] = 2.01
    with pytest.raises(WorldError, match=r"ann is 2\.01 m from bob"):
        items.give(entities, BOB, PEAR, ANN)


def test_using_counts(entities: Entities) -> None:
    items.use(entities, ANN, APPLE)
    items.pick_up(entities, ANN, APPLE)
    items.use(entities, ANN, APPLE)
    assert entities.uses.tolist() == [0, 0, 2, 0, 0]
    with pytest.raises(WorldError, match="apple is carried by ann"):
        items.use(entities, BOB, APPLE)
    with pytest.raises(WorldError, match=r"pear is \d+\.\d\d m from bob"):
        items.use(entities, BOB, PEAR)


def test_what_is_no_item_and_who_has_no_hands(entities: Entities) -> None:
    with pytest.raises(WorldError, match="bob is no item"):
        items.pick_up(entities, ANN, BOB)
    with pytest.raises(WorldError, match="car has no hands"):
        items.pick_up(entities, CAR, APPLE)
    items.pick_up(entities, ANN, APPLE)
    with pytest.raises(WorldError, match="car has no hands"):
        items.give(entities, ANN, APPLE, CAR)
    with pytest.raises(WorldError, match="ann has apple already"):
        items.give(entities, ANN, APPLE, ANN)


def tick(entities: Entities) -> None:
    """What a world does to those who walk straight on, and then to what they carry."""
    for entity in (ANN, BOB):
        entities.x[entity] += entities.vx[entity] * TICK_S
        entities.y[entity] += entities.vy[entity] * TICK_S
    items.follow_holders(entities)


def test_an_item_glides_into_the_hand_and_stays_there(entities: Entities) -> None:
    entities.vx[ANN], entities.vy[ANN] = 0.7, -0.3
    items.pick_up(entities, ANN, APPLE)
    items.take_velocities(entities, TICK_S)
    assert (entities.x[APPLE], entities.y[APPLE]) == (1.0, 0.5)
    for _ in range(3):
        told = (
            entities.x[APPLE] + entities.vx[APPLE] * TICK_S,
            (entities.y[APPLE] + entities.vy[APPLE] * TICK_S),
        )
        tick(entities)
        items.take_velocities(entities, TICK_S)
        assert (entities.x[APPLE], entities.y[APPLE]) == pytest.approx(told)
        assert entities.x[APPLE] == entities.x[ANN]
        assert (entities.vx[APPLE], entities.vy[APPLE]) == (0.7, -0.3)
    items.drop(entities, ANN, APPLE)
    items.take_velocities(entities, TICK_S)
    where = entities.x[APPLE], entities.y[APPLE]
    tick(entities)
    assert (entities.x[APPLE], entities.y[APPLE]) == where != (entities.x[ANN], entities.y[ANN])
    assert (entities.vx[APPLE], entities.vy[APPLE]) == (0, 0)
