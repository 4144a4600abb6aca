"""The compiled rules against the same written plainly, one vehicle at a time."""

import math

import numpy as np
import pytest

from rove.world.runs.state import Entities
from rove.world.traffic import vehicle_kernels as kernels
from rove.world.traffic.roads import RoadGraph
from rove.world.traffic.vehicles import Traffic
from tests.world.traffic.test_roads import grid, ring

TICK_S = 0.1


def intelligent_driver(speed: float, limit: float, gap: float, leader: float) -> float:
    """The acceleration, as the model's authors write it."""
    a, b, headway, s0 = 1.4, 2.0, 1.2, 2.0
    wanted = s0 + max(0.0, speed * headway + speed * (speed - leader) / (2 * math.sqrt(a * b)))
    return a * (1 - (speed / limit) ** 4 - (wanted / gap) ** 2)


def two_cars(gap: float, speed: float, leader: float) -> tuple[Traffic, float]:
    """One behind the other on a long lane; the speed that the one behind is given."""
    rng = np.random.Generator(np.random.PCG64(1))
    graph = RoadGraph(ring(around_m=8000.0))
    traffic = Traffic(graph, Entities(), rng, vehicles=2, driving=0.0, trips_per_hour=0.0)
    table = traffic.table
    table["lane"], table["state"], table["stop_place"] = 0, kernels.WAITING, 500.0
    table["destination"] = int(np.flatnonzero(traffic._destinations == 1)[0])
    table["place"] = 400.0, 400.0 - 4.8 - 60.0
    traffic.advance(TICK_S, TICK_S)
    assert table["state"].tolist() == [kernels.DRIVING] * 2
    table["place"][1] = 400.0 - 4.8 - gap
    table["place"][0] = 400.0
    table["step"] = 0.0
    table["speed"] = leader, speed
    traffic.advance(TICK_S, 2 * TICK_S)
    return traffic, float(table["speed"][1])


@pytest.mark.parametrize("gap", [3.0, 8.0, 20.0, 55.0])
@pytest.mark.parametrize("speed", [0.0, 3.0, 9.0, 13.0])
@pytest.mark.parametrize("leader", [0.0, 5.0, 13.0])
def test_speeds_follow_the_model(gap: float, speed: float, leader: float) -> None:
    _, found = two_cars(gap, speed, leader)
    change = max(intelligent_driver(speed, 13.9, gap, leader), -8.0)
    expected = min(max(0.0, speed + change * TICK_S), 13.9)
    if expected < 0.05:
        expected = 0.0
    expected = min(expected, (gap - 0.5) / TICK_S)
    assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("gap", [0.5, 0.6, 1.0])
def test_nobody_gets_nearer_than_half_a_metre(gap: float) -> None:
    traffic, speed = two_cars(gap, 13.0, 0.0)
    assert speed <= (gap - 0.5) / TICK_S + 1e-9
    place = traffic.table["place"]
    traffic.advance(TICK_S, 3 * TICK_S)
    assert place[0] - 4.8 - place[1] >= 0.5 - 1e-9


def test_who_came_first_goes_first() -> None:
    """At a crossing without lights, in the order in which they came near."""
    rng = np.random.Generator(np.random.PCG64(4))
    graph = RoadGraph(grid(3, green_s=0.0))
    traffic = Traffic(graph, Entities(), rng, vehicles=120, driving=1.0, trips_per_hour=30.0)
    table = traffic.table
    starts = np.append(graph.turns["conflicts"], len(graph.conflicts))
    checked = 0
    for tick in range(1, 700):
        traffic.advance(TICK_S, tick * TICK_S)
        firsts = graph.lanes["first"][graph.lanes["first"] >= 0]
        asking = [n for n in firsts.tolist() if table["came"][n] >= 0 and table["blocked"][n] < 0]
        for one in asking:
            conflicts = graph.conflicts[
                starts[table["next_turn"][one]] : starts[table["next_turn"][one] + 1]
            ]
            if not table["admitted"][one] or not len(conflicts):
                continue
            assert not graph.turns["busy"][conflicts].any()
            for other in asking:
                if other != one and table["next_turn"][other] in conflicts:
                    assert not table["admitted"][other]
                    checked += 1
                    cannot_stop = table["place"][one] + table["speed"][one] ** 2 / 8.0 > (
                        graph.lanes["length"][table["lane"][one]] - 2.0
                    )
                    assert cannot_stop or table["came"][one] <= table["came"][other]
    assert checked > 50
