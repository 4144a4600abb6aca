"""Execution of commands on a world.

A command is checked twice. `check` refuses at once what can never work: an unknown name, a pattern
without a match, a place off the map, a point in a wall. `apply` executes it in the next tick. If it
fails only then (another player was quicker to take the apple), that is a WorldError too, which the
world records instead of stopping.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, get_args

import numpy as np

from rove.world.map.paths import straight_ahead
from rove.world.people import behaviours, commands, items
from rove.world.people.behaviours import Behaviour, BehaviourWorld, make_behaviour
from rove.world.people.commands import Point, WorldCommand
from rove.world.runs.state import EntityKind, Ints, WorldError

_WITHIN_M_MIN: Final = 5.0


def check(world: BehaviourWorld, command: WorldCommand) -> None:
    """WorldError if a command cannot be obeyed, whatever happens before it is its turn."""
    _DEEDS[type(command)][0](world, command)


def apply(world: BehaviourWorld, command: WorldCommand) -> None:
    """Obey; WorldError if it cannot be done now."""
    _DEEDS[type(command)][1](world, command)


# -- walking ------------------------------------------------------------------------------


def _check_go(world: BehaviourWorld, command: commands.GoCommand) -> None:
    world.inhabitants(command.who)
    world.place(command.point)


def _go(world: BehaviourWorld, command: commands.GoCommand) -> None:
    x, y = world.place(command.point)
    chosen = world.inhabitants(command.who)
    world.assign(chosen, behaviours.Stand())
    blocked = [world.entities.names[each] for each in chosen.tolist() if not world.go(each, x, y)]
    if blocked:
        others = f" and {len(blocked) - 1} others" if len(blocked) > 1 else ""
        raise WorldError(f"there is no way to {x:g} {y:g} for {blocked[0]}{others}")


def _check_steer(world: BehaviourWorld, command: commands.SteerCommand) -> None:
    world.inhabitants(command.who)


def _steer(world: BehaviourWorld, command: commands.SteerCommand) -> None:
    chosen = world.inhabitants(command.who)
    world.assign(chosen, behaviours.Stand())
    if command.dx == 0 and command.dy == 0:
        return
    for entity in chosen.tolist():
        x, y = float(world.entities.x[entity]), float(world.entities.y[entity])
        end = straight_ahead(world.tiles, x, y, command.dx, command.dy)
        world.movement.set_path(entity, np.array([end]))


def _check_speed(world: BehaviourWorld, command: commands.SpeedCommand) -> None:
    world.inhabitants(command.who)
    world.movement.check_speed(command.speed)


def _speed(world: BehaviourWorld, command: commands.SpeedCommand) -> None:
    world.movement.set_speed(world.inhabitants(command.who), command.speed)


# -- behaviours ---------------------------------------------------------------------------

_Behaving: TypeAlias = (
    commands.StopCommand
    | commands.WanderCommand
    | commands.TravelCommand
    | commands.TradeCommand
    | commands.BehaveCommand
    | commands.FollowCommand
    | commands.FleeCommand
    | commands.PatrolCommand
    | commands.GatherCommand
)


def _wanted(command: _Behaving, crowd: Ints) -> Behaviour:
    match command:
        case commands.FollowCommand():
            return behaviours.Follow(command.whom)
        case commands.FleeCommand():
            return behaviours.Flee(command.whom)
        case commands.PatrolCommand():
            return behaviours.Patrol(command.stops)
        case commands.GatherCommand():
            # Unless told otherwise, each has some three square metres.
            within_m = command.within_m or max(_WITHIN_M_MIN, float(np.sqrt(len(crowd))))
            return behaviours.Gather(command.point, within_m)
        case commands.StopCommand():
            return behaviours.Stand()
        case commands.BehaveCommand():
            return make_behaviour(command.behaviour)
    return make_behaviour(command.verb)


def _meant(world: BehaviourWorld, command: _Behaving) -> Ints:
    """Whom a command is for."""
    match command:
        case commands.GatherCommand(who=int(count)):
            return _nearest(world, command.point, count)
        case commands.FollowCommand() | commands.FleeCommand():
            return _others(world, command)
    return world.inhabitants(str(command.who))


def _nearest(world: BehaviourWorld, point: Point, count: int) -> Ints:
    x, y = world.place(point)
    everybody = world.inhabitants("*")
    if count > len(everybody):
        raise WorldError(f"{count} cannot gather: there are {len(everybody)} inhabitants")
    of = world.entities
    squares = (of.x[everybody] - x) ** 2 + (of.y[everybody] - y) ** 2
    return np.sort(everybody[np.argsort(squares, kind="stable")[:count]])


def _others(world: BehaviourWorld, command: commands.FollowCommand | commands.FleeCommand) -> Ints:
    """Nobody follows or flees themselves."""
    whom = world.entities.number(command.whom)
    chosen = world.inhabitants(command.who)
    others: Ints = chosen[chosen != whom]
    if not len(others):
        raise WorldError(f"{command.whom} cannot {command.verb} itself; name somebody else")
    return others


def _check_behaving(world: BehaviourWorld, command: _Behaving) -> None:
    _wanted(command, _meant(world, command)).check(world)


def _behave(world: BehaviourWorld, command: _Behaving) -> None:
    chosen = _meant(world, command)
    world.assign(chosen, _wanted(command, chosen))


# -- items and engines ----------------------------------------------------------------------


def _item(world: BehaviourWorld, name: str) -> int:
    item = world.entities.number(name)
    if world.entities.kind[item] != EntityKind.ITEM:
        raise WorldError(f"{name} is no item")
    return item


def _check_item(
    world: BehaviourWorld,
    command: commands.PickCommand | commands.DropCommand | commands.UseCommand,
) -> None:
    world.inhabitants(command.who)
    if command.item is not None:
        _item(world, command.item)


def _pick(world: BehaviourWorld, command: commands.PickCommand) -> None:
    number = world.entities.number
    items.pick_up(world.entities, number(command.who), number(command.item))


def _drop(world: BehaviourWorld, command: commands.DropCommand) -> None:
    who = world.entities.number(command.who)
    if command.item is not None:
        items.drop(world.entities, who, world.entities.number(command.item))
        return
    carried = items.carried_by(world.entities, who).tolist()
    if not carried:
        raise WorldError(f"{command.who} carries nothing")
    for item in carried:
        items.drop(world.entities, who, item)


def _use(world: BehaviourWorld, command: commands.UseCommand) -> None:
    number = world.entities.number
    items.use(world.entities, number(command.who), number(command.item))


def _check_give(world: BehaviourWorld, command: commands.GiveCommand) -> None:
    world.inhabitants(command.who)
    world.inhabitants(command.whom)
    _item(world, command.item)


def _give(world: BehaviourWorld, command: commands.GiveCommand) -> None:
    number = world.entities.number
    who, item, whom = number(command.who), number(command.item), number(command.whom)
    items.give(world.entities, who, item, whom)


def _check_engine(world: BehaviourWorld, command: commands.EngineCommand) -> None:
    if command.engine not in world.engine_names:
        there_are = ", ".join(world.engine_names) or "none"
        raise WorldError(f"no engine {command.engine} runs on this world; there are {there_are}")


def _engine(world: BehaviourWorld, command: commands.EngineCommand) -> None:
    world.engine_wanted = command.engine


_Deed: TypeAlias = Callable[[BehaviourWorld, Any], None]
_BEHAVING: Final = dict.fromkeys(get_args(_Behaving), (_check_behaving, _behave))
_DEEDS: Final[dict[type[WorldCommand], tuple[_Deed, _Deed]]] = {
    **_BEHAVING,
    commands.GoCommand: (_check_go, _go),
    commands.SteerCommand: (_check_steer, _steer),
    commands.SpeedCommand: (_check_speed, _speed),
    commands.PickCommand: (_check_item, _pick),
    commands.DropCommand: (_check_item, _drop),
    commands.UseCommand: (_check_item, _use),
    commands.GiveCommand: (_check_give, _give),
    commands.EngineCommand: (_check_engine, _engine),
}
"""For each command, how it is checked and how it is done."""
