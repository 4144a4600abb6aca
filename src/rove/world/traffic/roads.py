"""The roads of a map as vehicles need them: lanes, the turns between them, and ways to places.

A map draws roads as nodes and one-way lanes between them. Here each lane gets a place of its own
to the right of that line, ends at a stop line before the junction, and is joined to the lanes that
it may go on to by *turns*, straight ways across the junction. Two turns that come nearer to each
other than a car is wide, or lead into one lane, are in *conflict*: traffic lets no two vehicles of
different lanes be on such turns at once, lights or not.

Ways: a vehicle keeps no list of lanes. For each destination a table says which turn to take at the
end of every lane, so a vehicle that had to go elsewhere is still told the way, and a change of mind
costs nothing. The table has destinations times lanes entries of 4 bytes; for a city of 1,500 lanes
and 256 destinations 1.5 MB, made in 17 ms; the graph itself in 60 ms.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rove.world.map.maps import Roads
from rove.world.runs.state import Floats, Ints, WorldError
from rove.world.traffic.road_kernels import ways

LANE_WIDTH_M: Final = 3.5
CAR_WIDTH_M: Final = 2.0
STOP_LINE_M: Final = 8.0
"""From the middle of a junction to where vehicles wait."""
LANE_MIN_M: Final = 12.0
"""Between the two junctions: a vehicle must have room beside none of them."""
SIDEWAYS_MAX_MPS2: Final = 3.0
"""What people put up with in a bend."""
TURN_SPEED_MIN_MPS: Final = 3.0
LIGHT_S: Final = 10.0
"""What a light costs on average, for choosing a way."""

GREEN, YELLOW, RED = range(3)

LANE = np.dtype(
    [
        ("x", "f8"),  # where it begins, behind the junction
        ("y", "f8"),
        ("ux", "f8"),  # its direction, of length one
        ("uy", "f8"),
        ("length", "f8"),  # up to the stop line
        ("limit", "f8"),
        ("room", "f8"),  # metres of queue that it takes
        ("used", "f8"),
        ("node", "i4"),  # where it leads
        ("turns", "i4"),  # its turns are those from here to the next lane's
        ("first", "i4"),  # of its vehicles
        ("last", "i4"),
        ("leaving", "i4"),  # who crossed the stop line last
        ("signal", "i4"),
    ]
)
TURN = np.dtype(
    [
        ("x", "f8"),
        ("y", "f8"),
        ("ux", "f8"),
        ("uy", "f8"),
        ("length", "f8"),
        ("limit", "f8"),
        ("source", "i4"),
        ("target", "i4"),
        ("conflicts", "i4"),  # its conflicts are those from here to the next turn's
        ("busy", "i4"),  # how many vehicles are on it, or not wholly off it
        ("claimed", "i4"),
    ]
)
Lanes = npt.NDArray[np.void]
Turns = npt.NDArray[np.void]


class RoadGraph:
    """Lanes, turns and conflicts as columns. Whoever drives here writes in them: one each."""

    def __init__(self, roads: Roads) -> None:
        self.roads = roads
        self.nodes = np.array(roads.nodes, np.float64).reshape(-1, 2)
        self.lanes = _lanes(roads)
        self.turns = _turns(self.lanes, roads)
        self.conflicts = _conflicts(self.lanes, self.turns)
        """The turns in conflict with each turn, one after the other."""
        self.node_starts, self.node_lanes = _by_node(self.lanes["node"], len(self.nodes))
        """The lanes that lead to node n are node_lanes[node_starts[n] : node_starts[n + 1]]."""

    def lane_name(self, lane: int) -> str:
        """The lane in an error message."""
        ends = self.roads.lanes[lane]
        return f"{lane} ({ends.from_node} to {ends.to_node})"

    def place_m(self, lane: int, at_m: float) -> float:
        """A place that a map measures from the node, from where the lane begins here."""
        length_m = float(self.lanes["length"][lane])
        back_m = (self.roads.lane_length_m(lane) - length_m) / 2
        return min(max(at_m - back_m, 0.0), length_m)

    def turns_of(self, lane: int) -> range:
        """The turns at the end of a lane."""
        starts = self.lanes["turns"]
        return range(starts[lane], starts[lane + 1] if lane + 1 < len(starts) else len(self.turns))

    def ways(self, destinations: Ints) -> Ints:
        """By destination (a lane) and lane, the turn that leads there in the shortest time.

        The turn of the destination itself leads once round, for those who are past their place.
        WorldError if there is a lane from which one of them cannot be reached.
        """
        lanes, turns = self.lanes, self.turns
        lit = np.zeros(len(self.nodes))
        lit[[light.node for light in self.roads.lights]] = LIGHT_S
        seconds = lanes["length"] / lanes["limit"] + lit[lanes["node"]]
        turn_seconds = turns["length"] / turns["limit"]
        order = np.argsort(turns["target"], kind="stable").astype(np.int32)
        into_starts = np.searchsorted(turns["target"][order], np.arange(len(lanes) + 1))
        found: Ints = ways(
            destinations.astype(np.int32),
            seconds,
            turn_seconds,
            turns["source"].copy(),
            turns["target"].copy(),
            np.append(lanes["turns"], len(turns)).astype(np.int32),
            into_starts.astype(np.int32),
            order,
        )
        if (found < 0).any():
            number, lane = np.argwhere(found < 0)[0]
            there = self.lane_name(destinations[number])
            raise WorldError(
                f"no way leads from lane {self.lane_name(lane)} to lane {there}; "
                "every lane must be reachable from every other"
            )
        return found

    def point(self, lane: int, place_m: float) -> tuple[float, float]:
        """Where a place on a lane is."""
        line: Any = self.lanes[lane]
        return float(line["x"] + line["ux"] * place_m), float(line["y"] + line["uy"] * place_m)


def _lanes(roads: Roads) -> Lanes:
    found = np.zeros(len(roads.lanes), LANE)
    beside: dict[tuple[int, int], int] = {}
    for number, lane in enumerate(roads.lanes):
        ends = lane.from_node, lane.to_node
        (x, y), (to_x, to_y) = (roads.nodes[node] for node in ends)
        apart_m = roads.lane_length_m(number)
        back_m = min(STOP_LINE_M, (apart_m - LANE_MIN_M) / 2)
        if back_m < STOP_LINE_M / 2:
            raise WorldError(
                f"lane {number} ({ends[0]} to {ends[1]}) is {apart_m:.1f} m long; "
                f"the shortest that vehicles can use has {LANE_MIN_M + STOP_LINE_M:g} m"
            )
        ux, uy = (to_x - x) / apart_m, (to_y - y) / apart_m
        beside[ends] = beside.get(ends, 0) + 1
        right_m = LANE_WIDTH_M * (beside[ends] - 0.5)
        line: Any = found[number]
        line["x"], line["y"] = x + ux * back_m + uy * right_m, y + uy * back_m - ux * right_m
        line["ux"], line["uy"], line["node"] = ux, uy, ends[1]
        line["length"] = line["room"] = apart_m - 2 * back_m
        line["limit"] = lane.speed_limit
    for column in ("first", "last", "leaving"):
        found[column] = -1
    return found


def _turns(lines: Lanes, roads: Roads) -> Turns:
    """Every way on; back only where there is at most one other, or some towns had no way round."""
    lanes = roads.lanes
    out_of: dict[int, list[int]] = {}
    for number, lane in enumerate(lanes):
        out_of.setdefault(lane.from_node, []).append(number)
    pairs: list[tuple[int, int]] = []
    for number, lane in enumerate(lanes):
        ways_on = out_of.get(lane.to_node, [])
        others = [way for way in ways_on if lanes[way].to_node != lane.from_node]
        targets = others if len(others) > 1 else ways_on
        if not targets:
            raise WorldError(
                f"lane {number} leads to node {lane.to_node}, where no lane begins; add one"
            )
        lines["turns"][number] = len(pairs)
        pairs += [(number, target) for target in targets]
    found = np.zeros(len(pairs), TURN)
    source, target = np.array(pairs, np.int32).reshape(-1, 2).T
    from_, to = lines[source], lines[target]
    found["source"], found["target"] = source, target
    found["x"] = from_["x"] + from_["ux"] * from_["length"]
    found["y"] = from_["y"] + from_["uy"] * from_["length"]
    dx, dy = to["x"] - found["x"], to["y"] - found["y"]
    length = np.sqrt(dx * dx + dy * dy)
    found["length"], found["ux"], found["uy"] = length, dx / length, dy / length
    cosine = np.clip(from_["ux"] * to["ux"] + from_["uy"] * to["uy"], -1.0, 1.0)
    half_angle_sine = np.maximum(np.sqrt((1.0 - cosine) / 2.0), 1e-6)
    bend = np.sqrt(SIDEWAYS_MAX_MPS2 * length / (2.0 * half_angle_sine))
    limit = np.minimum(from_["limit"], to["limit"])
    found["limit"] = np.minimum(limit, np.maximum(bend, TURN_SPEED_MIN_MPS))
    return found


def _conflicts(lanes: Lanes, turns: Turns) -> Ints:
    """Sets where each turn's conflicts begin, and gives them all."""
    starts, at_node = _by_node(
        lanes["node"][turns["source"]], int(lanes["node"].max(initial=0)) + 1
    )
    here = [at_node[begin:end] for begin, end in itertools.pairwise(starts.tolist())]
    one = np.concatenate([np.repeat(some, len(some)) for some in here])
    other = np.concatenate([np.tile(some, len(some)) for some in here])
    of_others = turns["source"][one] != turns["source"][other]
    one, other = one[of_others], other[of_others]
    into_one = turns["target"][one] == turns["target"][other]
    near = into_one | (_apart_m(turns[one], turns[other]) < CAR_WIDTH_M)
    one, other = one[near], other[near]
    order = np.lexsort((other, one))
    turns["conflicts"] = np.searchsorted(one[order], np.arange(len(turns)))
    found: Ints = other[order]
    return found


def _apart_m(one: Turns, other: Turns) -> Floats:
    """How near turns come to others, pair by pair: 0 if they cross."""
    apart = [
        _from_line(line, *end) for line, ends in ((one, other), (other, one)) for end in _ends(ends)
    ]
    cross = one["ux"] * other["uy"] - one["uy"] * other["ux"]
    dx, dy = other["x"] - one["x"], other["y"] - one["y"]
    parallel = np.abs(cross) < 1e-9
    divisor = np.where(parallel, 1.0, cross)
    along_one = (dx * other["uy"] - dy * other["ux"]) / divisor
    along_other = (dx * one["uy"] - dy * one["ux"]) / divisor
    crosses = ~parallel & (along_one >= 0) & (along_one <= one["length"])
    crosses &= (along_other >= 0) & (along_other <= other["length"])
    nearest: Floats = np.where(crosses, 0.0, np.minimum.reduce(apart))
    return nearest


def _ends(lines: Turns) -> list[tuple[Floats, Floats]]:
    """Where straight pieces begin and end."""
    x, y, length = lines["x"], lines["y"], lines["length"]
    return [(x, y), (x + lines["ux"] * length, y + lines["uy"] * length)]


def _from_line(lines: Turns, x: Floats, y: Floats) -> Floats:
    """From points to straight pieces."""
    dx, dy = x - lines["x"], y - lines["y"]
    along = np.clip(dx * lines["ux"] + dy * lines["uy"], 0.0, lines["length"])
    dx, dy = dx - along * lines["ux"], dy - along * lines["uy"]
    found: Floats = np.sqrt(dx * dx + dy * dy)
    return found


def _by_node(node: Ints, count: int) -> tuple[Ints, Ints]:
    order = np.argsort(node, kind="stable").astype(np.int32)
    starts = np.searchsorted(node[order], np.arange(count + 1)).astype(np.int32)
    return starts, order
