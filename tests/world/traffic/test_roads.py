"""Lanes, turns, conflicts and ways."""

import heapq
import itertools
import math

import numpy as np
import pytest
import shapely  # type: ignore[import-untyped]

from rove.world.map.maps import Camera, Detector, Lane, Light, Phase, Roads
from rove.world.runs.state import WorldError
from rove.world.traffic.roads import CAR_WIDTH_M, LANE_WIDTH_M, STOP_LINE_M, RoadGraph

LIMIT = 13.9
ARRIVED = -1


def grid(side: int, *, block_m: float = 110.0, green_s: float = 20.0) -> Roads:
    """Streets in both directions, lights at each junction (none if they had no time), loops."""
    nodes = [(50.0 + block_m * x, 50.0 + block_m * y) for y in range(side) for x in range(side)]
    lanes: list[Lane] = []
    coming: dict[int, tuple[list[int], list[int]]] = {node: ([], []) for node in range(side**2)}
    for start, end in itertools.permutations(range(side**2), 2):
        if math.dist(nodes[start], nodes[end]) < 1.1 * block_m:
            coming[end][start % side == end % side].append(len(lanes))
            lanes.append(Lane(start, end, LIMIT))
    lights = [
        Light(node, tuple(Phase(green_s, tuple(some)) for some in both), offset_s=7.0 * node)
        for node, both in coming.items()
        if green_s > 0
    ]
    detectors = [Detector(f"loop{lane}", lane, 80.0) for lane in range(0, len(lanes), 3)]
    cameras = [Camera(f"camera{node}", *nodes[node], 60.0) for node in range(0, side**2, 4)]
    return Roads(tuple(nodes), tuple(lanes), tuple(lights), tuple(detectors), tuple(cameras))


def ring(*, around_m: float = 1000.0, limit: float = LIMIT) -> Roads:
    """One way round, four corners."""
    a = around_m / 4
    nodes = ((0.0, 0.0), (a, 0.0), (a, a), (0.0, a))
    return Roads(nodes, tuple(Lane(node, (node + 1) % 4, limit) for node in range(4)))


def test_a_lane_keeps_to_the_right_and_ends_before_the_junction() -> None:
    graph = RoadGraph(ring())
    east = graph.lanes[0]
    assert (east["x"], east["y"]) == (STOP_LINE_M, -LANE_WIDTH_M / 2)
    assert east["length"] == 250.0 - 2 * STOP_LINE_M
    assert graph.point(0, 10.0) == (STOP_LINE_M + 10.0, -LANE_WIDTH_M / 2)
    assert graph.place_m(0, 100.0) == 100.0 - STOP_LINE_M
    assert graph.place_m(0, 1.0) == 0.0
    assert graph.place_m(0, 250.0) == east["length"]


def test_lanes_side_by_side_have_a_place_each() -> None:
    roads = Roads(((0.0, 0.0), (99.0, 0.0)), (Lane(0, 1, 9.0), Lane(0, 1, 9.0), Lane(1, 0, 9.0)))
    first, second, back = RoadGraph(roads).lanes["y"].tolist()
    assert (first, second, back) == (-1.75, -5.25, 1.75)


def test_turns_lead_from_lane_to_lane_and_back_only_where_there_is_little_choice() -> None:
    graph = RoadGraph(grid(3))
    lanes = graph.roads.lanes
    for lane in range(len(lanes)):
        targets = [graph.turns["target"][turn] for turn in graph.turns_of(lane)]
        assert all(lanes[target].from_node == lanes[lane].to_node for target in targets)
        turns_back = [lanes[target].to_node == lanes[lane].from_node for target in targets]
        is_corner = lanes[lane].to_node in (0, 2, 6, 8)
        assert sum(turns_back) == is_corner
        assert len(targets) == (2 if is_corner else 3 if lanes[lane].to_node == 4 else 2)
    dead_end = RoadGraph(Roads(((0.0, 0.0), (99.0, 0.0)), (Lane(0, 1, 9.0), Lane(1, 0, 9.0))))
    assert dead_end.turns["target"].tolist() == [1, 0]


def test_a_turn_joins_the_ends_and_is_slow_when_it_is_sharp() -> None:
    graph = RoadGraph(grid(3))
    for turn in graph.turns:
        source, target = graph.lanes[turn["source"]], graph.lanes[turn["target"]]
        ends = turn["x"] + turn["ux"] * turn["length"], turn["y"] + turn["uy"] * turn["length"]
        assert ends == pytest.approx((target["x"], target["y"]))
        begins = graph.point(int(turn["source"]), float(source["length"]))
        assert begins == pytest.approx((turn["x"], turn["y"]))
        straight = source["ux"] * target["ux"] + source["uy"] * target["uy"] > 0.99
        assert turn["limit"] == LIMIT if straight else 2.9 < turn["limit"] < 6.0


@pytest.mark.parametrize("seed", range(5))
def test_conflicts_are_turns_of_other_lanes_that_come_near(seed: int) -> None:
    rng = np.random.default_rng(seed)
    spokes = [(300 * math.cos(a), 300 * math.sin(a)) for a in np.sort(rng.uniform(0, 6.28, 5))]
    nodes = ((0.0, 0.0), *spokes)
    lanes = [Lane(*ends, LIMIT) for node in range(1, 6) for ends in ((0, node), (node, 0))]
    graph = RoadGraph(Roads(nodes, tuple(lanes)))
    turns = graph.turns
    lines = [
        shapely.LineString([(t["x"], t["y"]), (t["x"] + t["ux"] * t["length"],
                                               t["y"] + t["uy"] * t["length"])])
        for t in turns
    ]  # fmt: skip
    starts = np.append(turns["conflicts"], len(graph.conflicts))
    for turn in range(len(turns)):
        expected = [
            other
            for other in range(len(turns))
            if turns["source"][other] != turns["source"][turn]
            and graph.lanes["node"][turns["source"][other]]
            == graph.lanes["node"][turns["source"][turn]]
            and (
                turns["target"][other] == turns["target"][turn]
                or lines[turn].distance(lines[other]) < CAR_WIDTH_M
            )
        ]
        assert graph.conflicts[starts[turn] : starts[turn + 1]].tolist() == expected


def test_lanes_are_known_by_where_they_lead() -> None:
    graph = RoadGraph(grid(4))
    for node in range(16):
        here = graph.node_lanes[graph.node_starts[node] : graph.node_starts[node + 1]].tolist()
        assert here == [n for n, lane in enumerate(graph.roads.lanes) if lane.to_node == node]


def seconds_along(graph: RoadGraph, ways: np.ndarray, lane: int, destination: int) -> float:
    """From the end of a lane to the beginning of another, as the table says."""
    lit = {light.node for light in graph.roads.lights}
    time = 0.0
    for _ in range(len(graph.lanes)):
        turn = graph.turns[ways[lane]]
        time += float(turn["length"] / turn["limit"])
        lane = int(turn["target"])
        if lane == destination:
            return time
        line = graph.lanes[lane]
        time += line["length"] / line["limit"] + (10.0 if line["node"] in lit else 0.0)
    raise AssertionError("the way never ends")


def quickest(graph: RoadGraph, lane: int, destination: int) -> float:
    """The same by Dijkstra's algorithm."""
    lit = {light.node for light in graph.roads.lights}
    waiting: list[tuple[float, int]] = [(0.0, lane)]
    done: set[int] = set()
    while True:
        time, here = heapq.heappop(waiting)
        if here == ARRIVED:
            return time
        if here in done:
            continue
        done.add(here)
        for turn in graph.turns_of(here):
            to = int(graph.turns["target"][turn])
            then = time + graph.turns["length"][turn] / graph.turns["limit"][turn]
            if to == destination:
                heapq.heappush(waiting, (then, ARRIVED))
            elif to not in done:
                line = graph.lanes[to]
                light = 10.0 if line["node"] in lit else 0.0
                heapq.heappush(waiting, (then + line["length"] / line["limit"] + light, to))


def test_ways_are_the_quickest() -> None:
    rng = np.random.default_rng(3)
    plain = grid(5)
    lanes = [Lane(x.from_node, x.to_node, float(rng.uniform(5, 25))) for x in plain.lanes]
    graph = RoadGraph(Roads(plain.nodes, tuple(lanes), plain.lights[::2]))
    destinations = np.array([0, 17, len(lanes) - 1], np.int32)
    ways = graph.ways(destinations)
    for number, destination in enumerate(destinations.tolist()):
        for lane in range(len(lanes)):
            found = seconds_along(graph, ways[number], lane, destination)
            assert found == pytest.approx(quickest(graph, lane, destination))


def test_what_vehicles_cannot_use_is_refused() -> None:
    with pytest.raises(WorldError, match=r"lane 0 \(0 to 1\) is 15.0 m long; the shortest .* 20 m"):
        RoadGraph(Roads(((0.0, 0.0), (15.0, 0.0)), (Lane(0, 1, 9.0), Lane(1, 0, 9.0))))
    with pytest.raises(WorldError, match="lane 0 leads to node 1, where no lane begins"):
        RoadGraph(Roads(((0.0, 0.0), (50.0, 0.0)), (Lane(0, 1, 9.0),)))
    apart = [(0.0, 0.0), (50.0, 0.0), (0.0, 99.0), (50.0, 99.0)]
    lanes = [Lane(*ends, 9.0) for ends in ((0, 1), (1, 0), (2, 3), (3, 2))]
    with pytest.raises(WorldError, match=r"no way leads from lane 2 \(2 to 3\) to lane 0"):
        RoadGraph(Roads(tuple(apart), tuple(lanes))).ways(np.array([0], np.int32))
