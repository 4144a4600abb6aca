# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""The compiled part of traffic: every vehicle one tick on.

The vehicles of a lane are a chain, the first ahead; there is no overtaking, so it never needs
sorting. A place on a lane is metres from where the lane begins; on the turn that leads into it,
less than 0.

A tick first does what was planned a tick ago (`_move`), so that an entity's velocity is true until
the next tick, and then plans anew: who may cross the stop line (`_admit`), how fast everybody goes
(`_plan`). Speeds follow the Intelligent Driver Model with the values usual in towns: acceleration
1.4 m/s², comfortable braking 2 m/s², 1.2 s behind the next, 2 m between standing cars, exponent 4.

Safety does not depend on the model: no vehicle gets nearer to the one ahead than GAP_MIN_M, none
crosses a stop line without being admitted, and one is admitted only if there is room for all of it
beyond the junction (lanes count the metres that their vehicles will take when they queue). So no
junction is ever blocked, and a vehicle at a junction waits only for vehicles that can leave it.
Full lanes in a circle could still wait for each other for ever: a vehicle that was held up by a
full lane for DETOUR_S takes another turn if one has room, and after PATIENCE_S parks for a while,
which makes room.

Measured: 5,000 vehicles on the road in a city of 1,520 lanes, 0.7 ms of processor time a tick.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numba import from_dtype, njit, types

from rove.match.index.intrinsics import F8, I4, I8, row_of, table_of
from rove.world.traffic.roads import GREEN, LANE, RED, TURN

ACCELERATION_MPS2: Final = 1.4
BRAKING_MPS2: Final = 2.0
BRAKING_MPS2_MAX: Final = 8.0
STOPPING_MPS2: Final = 4.0
"""A vehicle that would have to brake harder for a yellow light goes on."""
TIME_GAP_S: Final = 1.2
STANDING_GAP_M: Final = 2.0
GAP_MIN_M: Final = 0.5
BEFORE_LINE_M: Final = 1.0
"""How far before the stop line people stand."""
QUEUE_SPARE_M: Final = 1.0
"""What a queueing vehicle may take more than its length and its gap."""
CRAWLING_MPS: Final = 0.05
"""Who is slower than this stands; else queues would creep for ever."""
STEADY_MPS2: Final = 0.02
"""Smaller changes of speed are not worth a new leg."""
PARKING_MPS: Final = 1.0
PARKED_M: Final = 0.3
DETOUR_S: Final = 20.0
PATIENCE_S: Final = 60.0
REST_S: Final = 30.0

PARKED, WAITING, DRIVING = range(3)
PULLED_IN, PULLED_OUT, ARRIVED, DETOURS = range(4)
"""Places in the array of what happened."""

VEHICLE = np.dtype(
    [
        ("place", "f8"),  # of its front
        ("speed", "f8"),
        ("step", "f8"),  # metres until the next tick
        ("planned", "f8"),  # the speed until then, while others still have to know the one before
        ("length", "f8"),
        ("stop_place", "f8"),  # where its trip ends, on its destination
        ("lane", "i4"),
        ("state", "i4"),
        ("ahead", "i4"),
        ("behind", "i4"),
        ("turn", "i4"),  # that it is not wholly off
        ("next_turn", "i4"),  # -1 on the lane where its trip ends
        ("destination", "i4"),  # a row of the table of ways
        ("admitted", "i4"),
        ("came", "i8"),  # the tick when it came near the junction, or -1
        ("blocked", "i8"),  # the tick since when a full lane keeps it back, or -1
        ("ready", "i8"),  # the tick from which it may pull out
    ]
)
LOOP = np.dtype(
    [("place", "f8"), ("speeds", "f8"), ("lane", "i4"), ("passed", "i4"), ("ticks", "i4")]
)

_VEHICLES, _LANES, _TURNS, _LOOPS = (
    row_of(from_dtype(kind)) for kind in (VEHICLE, LANE, TURN, LOOP)
)


# -- chains ---------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def queue_m(vehicle: Any) -> float:
    """What a vehicle takes of a full lane."""
    return vehicle.length + STANDING_GAP_M + QUEUE_SPARE_M


@njit(cache=True, nogil=True)
def _put_between(vehicles: Any, lanes: Any, number: int, ahead: int, behind: int) -> None:
    """Into the chain of its lane."""
    one = vehicles[number]
    lane = lanes[one.lane]
    one.ahead, one.behind = ahead, behind
    if ahead >= 0:
        vehicles[ahead].behind = number
    else:
        lane.first = number
    if behind >= 0:
        vehicles[behind].ahead = number
    else:
        lane.last = number
    lane.used += queue_m(one)


@njit(cache=True, nogil=True)
def _take_out(vehicles: Any, lanes: Any, number: int) -> None:
    """Of the chain of its lane."""
    one = vehicles[number]
    lane = lanes[one.lane]
    if one.ahead >= 0:
        vehicles[one.ahead].behind = one.behind
    else:
        lane.first = one.behind
    if one.behind >= 0:
        vehicles[one.behind].ahead = one.ahead
    else:
        lane.last = one.ahead
    one.ahead = one.behind = -1
    # An empty lane has all its room: sums of floats must not creep.
    lane.used = 0.0 if lane.first < 0 else lane.used - queue_m(one)


@njit(cache=True, nogil=True)
def _leave_road(vehicles: Any, lanes: Any, turns: Any, number: int) -> None:
    one = vehicles[number]
    _take_out(vehicles, lanes, number)
    if one.turn >= 0:
        turns[one.turn].busy -= 1
    one.turn = one.next_turn = -1
    one.admitted = 0
    one.came = one.blocked = -1
    one.speed = one.step = 0.0


@njit(cache=True, nogil=True)
def _turn_from(vehicles: Any, number: int, ways: Any, destinations: Any) -> int:
    """The turn that a vehicle takes next; -1 if its trip ends on its lane."""
    one = vehicles[number]
    if destinations[one.destination] == one.lane and one.place < one.stop_place:
        return -1
    return int(ways[one.destination, one.lane])


@njit(cache=True, nogil=True)
def _leaving_rear(vehicles: Any, lanes: Any, turns: Any, lane: int) -> float:
    """Where on a lane the rear of the one is that left it last, while it is in the junction."""
    number = lanes[lane].leaving
    if number < 0:
        return np.inf
    gone = vehicles[number]
    if gone.turn < 0 or turns[gone.turn].source != lane:
        return np.inf
    return lanes[lane].length + turns[gone.turn].length + gone.place - gone.length


# -- moving -----------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _move(vehicles: Any, lanes: Any, turns: Any, ways: Any, destinations: Any) -> None:
    """What was planned."""
    for number in range(len(vehicles)):
        one = vehicles[number]
        if one.state != DRIVING:
            continue
        one.place += one.step
        if one.turn >= 0 and one.place >= one.length:
            turns[one.turn].busy -= 1
            one.turn = -1
    for lane in range(len(lanes)):
        number = lanes[lane].first
        if number < 0 or vehicles[number].place <= lanes[lane].length:
            continue
        one = vehicles[number]
        if one.admitted == 0:  # a step up to the line, rounded to beyond it
            one.place = lanes[lane].length
            continue
        turn = turns[one.next_turn]
        _take_out(vehicles, lanes, number)
        lanes[lane].leaving = number
        one.place -= lanes[lane].length + turn.length
        one.lane = turn.target
        one.turn = one.next_turn
        turn.busy += 1
        one.admitted = 0
        one.came = one.blocked = -1
        _put_between(vehicles, lanes, number, lanes[one.lane].last, -1)
        one.next_turn = _turn_from(vehicles, number, ways, destinations)


@njit(cache=True, nogil=True)
def _feel(vehicles: Any, lanes: Any, turns: Any, loops: Any) -> None:
    """Detectors notice who drove over them, and whether somebody is above them now."""
    for i in range(len(loops)):
        loop = loops[i]
        covered = False
        number = lanes[loop.lane].leaving
        rear = _leaving_rear(vehicles, lanes, turns, loop.lane)
        if rear < np.inf:
            front = rear + vehicles[number].length
            covered = rear <= loop.place
            if front - vehicles[number].step < loop.place:
                loop.passed += 1
                loop.speeds += vehicles[number].speed
        number = lanes[loop.lane].first
        while number >= 0 and vehicles[number].place >= loop.place:
            one = vehicles[number]
            covered = covered or one.place - one.length <= loop.place
            if one.place - one.step < loop.place:
                loop.passed += 1
                loop.speeds += one.speed
            number = one.behind
        loop.ticks += covered


# -- coming and going -------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _pull_in(
    vehicles: Any, lanes: Any, turns: Any, tick: int, tick_s: float, happened: Any
) -> None:
    """Those who have arrived park; those whom full lanes keep back take another way, or a rest."""
    for number in range(len(vehicles)):
        one = vehicles[number]
        if one.state != DRIVING:
            continue
        if one.next_turn < 0:
            if one.place >= one.stop_place - PARKED_M:
                _leave_road(vehicles, lanes, turns, number)
                one.state = PARKED
                happened[ARRIVED] += 1
        elif one.blocked >= 0:
            waited_s = (tick - one.blocked) * tick_s
            if waited_s >= PATIENCE_S and one.speed == 0.0:
                _leave_road(vehicles, lanes, turns, number)
                one.state = WAITING
                one.ready = tick + math.ceil(REST_S / tick_s)
                happened[PULLED_IN] += 1
            elif waited_s >= DETOUR_S:
                _detour(vehicles, lanes, turns, number, happened)


@njit(cache=True, nogil=True)
def _detour(vehicles: Any, lanes: Any, turns: Any, number: int, happened: Any) -> None:
    """The first turn that leads to a lane with room, if there is one."""
    one = vehicles[number]
    end = lanes[one.lane + 1].turns if one.lane + 1 < len(lanes) else len(turns)
    for turn in range(lanes[one.lane].turns, end):
        target = lanes[turns[turn].target]
        if turn != one.next_turn and target.used + queue_m(one) <= target.room:
            one.next_turn = turn
            one.blocked = -1
            happened[DETOURS] += 1
            return


@njit(cache=True, nogil=True)
def _pull_out(
    vehicles: Any,
    lanes: Any,
    turns: Any,
    ways: Any,
    destinations: Any,
    tick: int,
    happened: Any,
) -> None:
    """Those who wait beside the road for a gap, and find one."""
    for number in range(len(vehicles)):
        one = vehicles[number]
        if one.state != WAITING or one.ready > tick:
            continue
        lane = lanes[one.lane]
        # One place is left for who was admitted from elsewhere and can no longer stop.
        if lane.used + 2.0 * queue_m(one) > lane.room:
            continue
        behind, ahead = lane.first, -1
        while behind >= 0 and vehicles[behind].place > one.place:
            ahead = behind
            behind = vehicles[behind].behind
        rear = _leaving_rear(vehicles, lanes, turns, one.lane)
        if ahead >= 0:
            rear = vehicles[ahead].place - vehicles[ahead].length
        if rear - one.place < STANDING_GAP_M:
            continue
        if behind >= 0:
            speed = vehicles[behind].speed
            needs_m = STANDING_GAP_M + speed * TIME_GAP_S + speed * speed / (2.0 * BRAKING_MPS2)
            if one.place - one.length - vehicles[behind].place < needs_m:
                continue
            vehicles[behind].admitted = 0
            vehicles[behind].came = -1
        one.state = DRIVING
        _put_between(vehicles, lanes, number, ahead, behind)
        one.next_turn = _turn_from(vehicles, number, ways, destinations)
        happened[PULLED_OUT] += 1


# -- junctions --------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _must_go_on(speed: float, distance_m: float) -> bool:
    """Whether somebody can no longer stop before the line as people do."""
    return distance_m < speed * speed / (2.0 * STOPPING_MPS2)


@njit(cache=True, nogil=True)
def _looks_from_m(speed: float) -> float:
    """From how far a driver minds the junction: where he would begin to brake."""
    return 10.0 + speed * TIME_GAP_S + speed * speed / (2.0 * BRAKING_MPS2)


@njit(cache=True, nogil=True)
def _is_taken(turns: Any, conflicts: Any, turn: int) -> bool:
    """Whether a turn in conflict is busy, or somebody who came earlier is to have it."""
    end = turns[turn + 1].conflicts if turn + 1 < len(turns) else len(conflicts)
    for i in range(turns[turn].conflicts, end):
        other = turns[conflicts[i]]
        if other.busy > 0 or other.claimed > 0:
            return True
    return False


@njit(cache=True, nogil=True)
def _ask(vehicles: Any, lanes: Any, turns: Any, lane: int, tick: int) -> bool:
    """Whether the first of a lane wants to cross and, but for others in the junction, may."""
    number = lanes[lane].first
    if number < 0 or vehicles[number].next_turn < 0:
        return False
    one = vehicles[number]
    distance_m = lanes[lane].length - one.place
    keeps = one.admitted == 1 and _must_go_on(one.speed, distance_m)
    one.admitted = 0
    if one.came < 0:
        if distance_m > _looks_from_m(one.speed):
            return False
        one.came = tick
    signal = lanes[lane].signal
    if signal == RED or (signal != GREEN and not _must_go_on(one.speed, distance_m)):
        return False
    target = lanes[turns[one.next_turn].target]
    if target.used + queue_m(one) > target.room:
        if one.blocked < 0:
            one.blocked = tick
        return False
    one.blocked = -1
    if keeps:
        one.admitted = 1
        turns[one.next_turn].claimed = 1
    return not keeps


@njit(cache=True, nogil=True)
def _admit(
    vehicles: Any,
    lanes: Any,
    turns: Any,
    conflicts: Any,
    node_starts: Any,
    node_lanes: Any,
    tick: int,
) -> None:
    """Who may cross the stop line: first who can no longer stop, then who came first."""
    for turn in range(len(turns)):
        turns[turn].claimed = 0
    asks = np.zeros(len(lanes), np.bool_)
    for lane in range(len(lanes)):
        asks[lane] = _ask(vehicles, lanes, turns, lane, tick)
    for node in range(len(node_starts) - 1):
        while True:
            earliest = -1
            for i in range(node_starts[node], node_starts[node + 1]):
                lane = node_lanes[i]
                if asks[lane] and (
                    earliest < 0
                    or vehicles[lanes[lane].first].came < vehicles[lanes[earliest].first].came
                ):
                    earliest = lane
            if earliest < 0:
                break
            asks[earliest] = False
            one = vehicles[lanes[earliest].first]
            if not _is_taken(turns, conflicts, one.next_turn):
                one.admitted = 1
            turns[one.next_turn].claimed = 1


# -- speeds -----------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _pushed_back(speed: float, gap_m: float, leader_speed: float) -> float:
    """The model's braking for somebody ahead, as a part of the acceleration."""
    gap_m = max(gap_m, 0.01)
    closing = speed * (speed - leader_speed) / (2.0 * math.sqrt(ACCELERATION_MPS2 * BRAKING_MPS2))
    wanted_m = STANDING_GAP_M + max(0.0, speed * TIME_GAP_S + closing)
    return (wanted_m / gap_m) ** 2


@njit(cache=True, nogil=True)
def _slowed(speed: float, limit: float, distance_m: float, tick_s: float) -> float:
    """A speed from which the limit is reached by comfortable braking within a distance."""
    after_m = max(0.0, distance_m - speed * tick_s)
    return min(speed, math.sqrt(limit * limit + 2.0 * BRAKING_MPS2 * after_m))


@njit(cache=True, nogil=True)
def _ahead_of_first(vehicles: Any, lanes: Any, turns: Any, number: int) -> Any:
    """What the first of a lane has before it: how strongly it is pushed back, how far it may go."""
    one = vehicles[number]
    lane = lanes[one.lane]
    push, free_m = 0.0, np.inf
    rear = _leaving_rear(vehicles, lanes, turns, one.lane)
    if rear < np.inf:
        push = _pushed_back(one.speed, rear - one.place, vehicles[lane.leaving].speed)
        free_m = rear - one.place - GAP_MIN_M
    distance_m = lane.length - one.place
    if one.next_turn < 0:
        return push, free_m
    if one.admitted == 0:
        if one.came >= 0:
            gap_m = distance_m - BEFORE_LINE_M + STANDING_GAP_M
            push = max(push, _pushed_back(one.speed, gap_m, 0.0))
        return push, min(free_m, distance_m)
    last = lanes[turns[one.next_turn].target].last
    if last >= 0:
        leader = vehicles[last]
        gap_m = distance_m + turns[one.next_turn].length + leader.place - leader.length
        push = max(push, _pushed_back(one.speed, gap_m, leader.speed))
        free_m = min(free_m, gap_m - GAP_MIN_M)
    return push, free_m


@njit(cache=True, nogil=True)
def _plan(vehicles: Any, lanes: Any, turns: Any, number: int, tick_s: float) -> None:
    """How fast a vehicle goes until the next tick."""
    one = vehicles[number]
    lane = lanes[one.lane]
    limit = lane.limit if one.place >= 0.0 else turns[one.turn].limit
    if one.ahead < 0:
        push, free_m = _ahead_of_first(vehicles, lanes, turns, number)
    else:
        leader = vehicles[one.ahead]
        gap_m = leader.place - leader.length - one.place
        push = _pushed_back(one.speed, gap_m, leader.speed)
        free_m = gap_m - GAP_MIN_M
    change = ACCELERATION_MPS2 * (1.0 - (one.speed / limit) ** 4 - push)
    change = max(change, -BRAKING_MPS2_MAX)
    speed = one.speed + change * tick_s
    if abs(change) < STEADY_MPS2 and one.speed <= limit:
        speed = one.speed
    if push < 0.05 and one.speed + ACCELERATION_MPS2 * tick_s >= limit:
        speed = limit
    speed = min(max(speed, 0.0), limit)
    if one.next_turn >= 0:
        turn_limit = turns[one.next_turn].limit
        speed = _slowed(speed, turn_limit, lane.length - one.place, tick_s)
    else:
        left_m = one.stop_place - one.place
        speed = _slowed(speed, PARKING_MPS, left_m, tick_s)
        free_m = min(free_m, left_m)
    if speed < CRAWLING_MPS:
        speed = 0.0
    step = speed * tick_s
    if step > free_m:
        step = max(0.0, free_m)
        speed = step / tick_s
    one.planned, one.step = speed, step


# -- places -----------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _point(lanes: Any, turns: Any, lane: int, turn: int, place: float) -> Any:
    """Where a place of a lane, or of the turn that leads into it, is."""
    if place >= 0.0:
        line = lanes[lane]
        return line.x + line.ux * place, line.y + line.uy * place
    bend = turns[turn]
    along = bend.length + place
    return bend.x + bend.ux * along, bend.y + bend.uy * along


@njit(cache=True, nogil=True)
def _velocity(lanes: Any, turns: Any, one: Any, x: float, y: float, tick_s: float) -> Any:
    """Along the lane, or from here straight to where it will be on the next piece of its way."""
    ends = one.place + one.step
    line = lanes[one.lane]
    if one.place >= 0.0 and ends <= line.length:
        return line.ux * one.speed, line.uy * one.speed
    if ends <= 0.0:
        return turns[one.turn].ux * one.speed, turns[one.turn].uy * one.speed
    if ends <= line.length:
        to_x, to_y = _point(lanes, turns, one.lane, one.turn, ends)
    else:
        bend = turns[one.next_turn]
        to_x = bend.x + bend.ux * (ends - line.length)
        to_y = bend.y + bend.uy * (ends - line.length)
    return (to_x - x) / tick_s, (to_y - y) / tick_s


@njit(
    types.void(
        _VEHICLES, _LANES, _TURNS, row_of(I4), row_of(F8), row_of(F8), row_of(F8), row_of(F8),
        row_of(types.uint8), F8,
    ),
    cache=True,
    nogil=True,
)  # fmt: skip
def write_entities(
    vehicles: Any,
    lanes: Any,
    turns: Any,
    entities: Any,
    x: Any,
    y: Any,
    vx: Any,
    vy: Any,
    changes: Any,
    tick_s: float,
) -> None:
    """Positions and velocities; `changes` is 1 where something changed, 3 if the velocity did."""
    for number in range(len(vehicles)):
        one, entity = vehicles[number], entities[number]
        new_x, new_y = _point(lanes, turns, one.lane, one.turn, one.place)
        new_vx, new_vy = 0.0, 0.0
        if one.step > 0.0:
            new_vx, new_vy = _velocity(lanes, turns, one, new_x, new_y, tick_s)
        turned = new_vx != vx[entity] or new_vy != vy[entity]
        moved = new_x != x[entity] or new_y != y[entity]
        changes[number] = 3 if turned else 1 if moved else 0
        x[entity], y[entity], vx[entity], vy[entity] = new_x, new_y, new_vx, new_vy


@njit(
    types.void(
        _VEHICLES, _LANES, _TURNS, row_of(I4), row_of(I4), row_of(I4), table_of(I4), row_of(I4),
        _LOOPS, row_of(I8), I8, F8,
    ),
    cache=True,
    nogil=True,
)  # fmt: skip
def drive(
    vehicles: Any,
    lanes: Any,
    turns: Any,
    conflicts: Any,
    node_starts: Any,
    node_lanes: Any,
    ways: Any,
    destinations: Any,
    loops: Any,
    happened: Any,
    tick: int,
    tick_s: float,
) -> None:
    """One tick: do what was planned, then plan the next."""
    _move(vehicles, lanes, turns, ways, destinations)
    _feel(vehicles, lanes, turns, loops)
    _pull_in(vehicles, lanes, turns, tick, tick_s, happened)
    _pull_out(vehicles, lanes, turns, ways, destinations, tick, happened)
    _admit(vehicles, lanes, turns, conflicts, node_starts, node_lanes, tick)
    for number in range(len(vehicles)):
        if vehicles[number].state == DRIVING:
            _plan(vehicles, lanes, turns, number, tick_s)
    for number in range(len(vehicles)):
        if vehicles[number].state == DRIVING:
            vehicles[number].speed = vehicles[number].planned
