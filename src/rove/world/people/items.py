"""Items: pick up, drop, use and give.

An item lies somewhere or is carried by one inhabitant, and has to be within reach to be used. An
item that is taken does not jump: it gets the velocity that brings it to its holder by the next
tick, so the rule of all movement (place plus velocity times time) holds for items too. From then on
it has its holder's place and velocity.

A refusal is a WorldError with the distance. Carrying takes two passes over columns at each tick, 40
µs for 10,000 items; anything with a holder is carried, sensors included.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rove.world.runs.state import NOBODY, Entities, EntityKind, Ints, WorldError

REACH_M: Final = 2.0


def pick_up(entities: Entities, who: int, item: int) -> None:
    """Take an item that lies within reach."""
    _check_kinds(entities, who, item)
    if entities.holder[item] == who:
        raise WorldError(f"{entities.names[who]} has {entities.names[item]} already")
    _check_free(entities, item)
    _check_reach(entities, who, item)
    entities.holder[item] = who


def drop(entities: Entities, who: int, item: int) -> None:
    """Put an item down, here."""
    _check_carried(entities, who, item)
    entities.holder[item] = NOBODY
    entities.vx[item] = entities.vy[item] = 0.0


def use(entities: Entities, who: int, item: int) -> None:
    """Use an item, in the hand or lying within reach."""
    _check_kinds(entities, who, item)
    if entities.holder[item] != who:
        _check_free(entities, item)
        _check_reach(entities, who, item)
    entities.uses[item] += 1


def give(entities: Entities, who: int, item: int, whom: int) -> None:
    """Hand an item to somebody within reach."""
    _check_carried(entities, who, item)
    _check_kinds(entities, whom, item)
    if who == whom:
        raise WorldError(f"{entities.names[who]} has {entities.names[item]} already")
    _check_reach(entities, who, whom)
    entities.holder[item] = whom


def carried_by(entities: Entities, who: int) -> Ints:
    """What somebody carries, ascending."""
    return np.flatnonzero(entities.holder == who).astype(np.int32)


def is_in_reach(entities: Entities, who: int, other: int) -> bool:
    """Whether somebody can touch something."""
    return distance_m(entities, who, other) <= REACH_M


def distance_m(entities: Entities, one: int, other: int) -> float:
    """From one entity to another, through walls."""
    dx = float(entities.x[one] - entities.x[other])
    dy = float(entities.y[one] - entities.y[other])
    # Not hypot: C libraries do not agree on its last bit, and histories would differ.
    return float(np.sqrt(dx * dx + dy * dy))


def follow_holders(entities: Entities) -> None:
    """When holders have moved: everything carried is where its holder is."""
    carried = np.flatnonzero(entities.holder != NOBODY)
    holders = entities.holder[carried]
    entities.x[carried] = entities.x[holders]
    entities.y[carried] = entities.y[holders]


def take_velocities(entities: Entities, tick_s: float) -> None:
    """When it is settled where holders go: everything carried goes where they will be."""
    carried = np.flatnonzero(entities.holder != NOBODY)
    holders = entities.holder[carried]
    dx = entities.x[holders] - entities.x[carried]
    dy = entities.y[holders] - entities.y[carried]
    # In the hand the difference is zero and the velocity the holder's, to the last bit.
    entities.vx[carried] = entities.vx[holders] + dx / tick_s
    entities.vy[carried] = entities.vy[holders] + dy / tick_s


def _check_kinds(entities: Entities, who: int, item: int) -> None:
    if entities.kind[item] != EntityKind.ITEM:
        raise WorldError(f"{entities.names[item]} is no item")
    if entities.kind[who] not in (EntityKind.PLAYER, EntityKind.NPC):
        raise WorldError(f"{entities.names[who]} has no hands; players and NPCs have")


def _check_free(entities: Entities, item: int) -> None:
    if (holder := entities.holder[item]) != NOBODY:
        raise WorldError(f"{entities.names[item]} is carried by {entities.names[holder]}")


def _check_carried(entities: Entities, who: int, item: int) -> None:
    _check_kinds(entities, who, item)
    if entities.holder[item] != who:
        raise WorldError(f"{entities.names[who]} does not carry {entities.names[item]}")


def _check_reach(entities: Entities, who: int, other: int) -> None:
    if not is_in_reach(entities, who, other):
        names = f"{entities.names[other]} is {distance_m(entities, who, other):.2f} m from"
        raise WorldError(f"{names} {entities.names[who]}, whose reach is {REACH_M:g} m")
