"""Vehicles drive, queue, park; none touches another, none crosses a red line, none is lost."""

import itertools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from rove.world.map.maps import Lane, Light, Phase, Roads
from rove.world.runs.state import Entities, EntityKind, WorldError
from rove.world.traffic.roads import RED, RoadGraph
from rove.world.traffic.vehicle_kernels import DRIVING, WAITING
from rove.world.traffic.vehicles import VEHICLE_LENGTH_M, Traffic, demand
from tests.world.traffic.test_roads import LIMIT, grid, ring

TICK_S = 0.1


def traffic_on(
    roads: Roads, vehicles: int, *, seed: int = 1, driving: float = 1.0, trips: float = 60.0
) -> Traffic:
    rng = np.random.Generator(np.random.PCG64(seed))
    graph = RoadGraph(roads)
    return Traffic(graph, Entities(), rng, vehicles=vehicles, driving=driving, trips_per_hour=trips)


def set_on_lane(traffic: Traffic, lane: int, places: list[float], destination: int) -> None:
    """Have vehicles 0, 1, … wait at places of a lane, from the front to the back."""
    table = traffic.table
    count = len(places)
    table["lane"][:count], table["place"][:count] = lane, places
    table["state"][:count] = WAITING
    where = int(np.flatnonzero(traffic._destinations == destination)[0])
    table["destination"][:count] = where
    table["stop_place"][:count] = 100.0


def chain(traffic: Traffic, lane: int) -> list[int]:
    """The vehicles of a lane, from both ends alike."""
    table, found = traffic.table, []
    number = int(traffic.roads.lanes["first"][lane])
    while number >= 0:
        found.append(number)
        number = int(table["behind"][number])
    back, number = [], int(traffic.roads.lanes["last"][lane])
    while number >= 0:
        back.append(number)
        number = int(table["ahead"][number])
    assert found == back[::-1]
    return found


def rears_and_fronts(traffic: Traffic, lane: int) -> list[tuple[float, float]]:
    """What vehicles take of a lane, those in the junction behind it that came from it included."""
    table, roads = traffic.table, traffic.roads
    places = [float(table["place"][number]) for number in chain(traffic, lane)]
    for number in np.flatnonzero((table["state"] == DRIVING) & (table["turn"] >= 0)).tolist():
        turn = roads.turns[table["turn"][number]]
        if turn["source"] == lane:
            before = float(roads.lanes["length"][lane] + turn["length"])
            places.append(float(table["place"][number]) + before)
    return [(place - VEHICLE_LENGTH_M, place) for place in sorted(places)]


def check_order(traffic: Traffic) -> None:
    """Every vehicle is once where it says that it is, and none overlaps another."""
    seen: list[int] = []
    for lane in range(len(traffic.roads.lanes)):
        here = chain(traffic, lane)
        seen += here
        assert (traffic.table["lane"][here] == lane).all()
        taken = rears_and_fronts(traffic, lane)
        for (_, front), (rear, _) in itertools.pairwise(taken):
            assert rear - front > 0.4
        line = traffic.roads.lanes[lane]
        assert abs(line["used"] - len(here) * (VEHICLE_LENGTH_M + 3.0)) < 1e-6
        assert line["used"] <= line["room"]
    assert sorted(seen) == np.flatnonzero(traffic.is_driving).tolist()


def check_junctions(traffic: Traffic) -> None:
    """No two vehicles of different lanes are on turns in conflict."""
    roads = traffic.roads
    on = traffic.table["turn"][traffic.is_driving & (traffic.table["turn"] >= 0)]
    assert np.array_equal(np.bincount(on, minlength=len(roads.turns)), roads.turns["busy"])
    starts = np.append(roads.turns["conflicts"], len(roads.conflicts))
    for turn in np.unique(on).tolist():
        assert not np.isin(roads.conflicts[starts[turn] : starts[turn + 1]], on).any()


class Watch:
    """Compares each tick with the one before."""

    def __init__(self, traffic: Traffic) -> None:
        self.traffic = traffic
        self.at = 0.0
        self.crossed = 0

    def step(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        traffic, entities = self.traffic, self.traffic._entities
        table, roads = traffic.table.copy(), traffic.roads
        signal = roads.lanes["signal"].copy()
        x, y, vx, vy = (getattr(entities, c).copy() for c in ("x", "y", "vx", "vy"))
        self.at += TICK_S
        changed, legs = traffic.advance(TICK_S, self.at)
        self._check_crossings(table, signal)
        self._check_speeds()
        assert np.allclose(entities.x, x + vx * TICK_S, rtol=0.0, atol=1e-6)
        assert np.allclose(entities.y, y + vy * TICK_S, rtol=0.0, atol=1e-6)
        turned = (entities.vx != vx) | (entities.vy != vy)
        assert legs.tolist() == np.flatnonzero(turned).tolist()
        moved = turned | (entities.x != x) | (entities.y != y)
        assert changed.tolist() == np.flatnonzero(moved).tolist()
        return changed, legs

    def _check_crossings(self, before: npt.NDArray[np.void], signal: npt.NDArray[np.int32]) -> None:
        crossed = np.flatnonzero(self.traffic.table["lane"] != before["lane"])
        self.crossed += len(crossed)
        assert (signal[before["lane"][crossed]] != RED).all()

    def _check_speeds(self) -> None:
        table, roads, entities = self.traffic.table, self.traffic.roads, self.traffic._entities
        limit = roads.lanes["limit"][table["lane"]]
        on_turn = self.traffic.is_driving & (table["place"] < 0)
        limit[on_turn] = roads.turns["limit"][table["turn"][on_turn]]
        assert (table["speed"] >= 0).all()
        assert (table["speed"] <= limit + 1e-9).all()
        assert (np.hypot(entities.vx, entities.vy) <= table["speed"] + 1e-6).all()


@pytest.mark.parametrize(
    ("vehicles", "green_s", "block_m"), [(150, 20.0, 110.0), (400, 8.0, 80.0), (150, 0.0, 40.0)]
)
def test_nobody_touches_anybody_or_crosses_red(
    vehicles: int, green_s: float, block_m: float
) -> None:
    roads = grid(4, block_m=block_m, green_s=green_s) if block_m > 56 else mixed_blocks()
    traffic = traffic_on(roads, vehicles)
    watch = Watch(traffic)
    for tick in range(1200):
        watch.step()
        if tick % 20 == 0:
            check_order(traffic)
            check_junctions(traffic)
    assert watch.crossed > 50
    assert traffic.counts()["trips_ended"] > 5


def mixed_blocks() -> Roads:
    """A town without lights whose streets are of several lengths and limits."""
    at = [0.0, 60.0, 85.0, 200.0]
    nodes = [(x, y) for y in at for x in at]
    limits = [8.3, 13.9, 22.0]
    lanes = [
        Lane(a, b, limits[(a // 4 + b) % 3])
        for a in range(16)
        for b in range(16)
        if abs(a // 4 - b // 4) + abs(a % 4 - b % 4) == 1
    ]
    return Roads(tuple(nodes), tuple(lanes))


def test_vehicles_are_conserved_and_named() -> None:
    traffic = traffic_on(grid(3), 60, driving=0.5)
    entities = traffic._entities
    assert (entities.kind == EntityKind.VEHICLE).all()
    assert entities.names[:2] == ["car0", "car1"]
    at = 0.0
    for _ in range(1000):
        at += TICK_S
        traffic.advance(TICK_S, at)
        counts = traffic.counts()
        assert counts["driving"] + counts["parked"] + counts["waiting"] == 60
        assert counts["driving"] == counts["trips_begun"] - counts["trips_ended"]


def test_free_flow_reaches_the_limit_and_then_makes_no_new_legs() -> None:
    traffic = traffic_on(ring(around_m=4000.0), 1, trips=0.0)
    at, turned = 0.0, []
    for _ in range(600):
        at += TICK_S
        _, legs = traffic.advance(TICK_S, at)
        turned.append(len(legs) > 0)
        if traffic.table["speed"][0] == LIMIT:
            break
    assert 8.0 < at < 40.0
    steady = [len(traffic.advance(TICK_S, at + (i + 1) * TICK_S)[1]) for i in range(20)]
    assert sum(steady) == 0


def test_a_queue_discharges_two_seconds_apart() -> None:
    nodes = ((0.0, 0.0), (400.0, 0.0), (800.0, 0.0), (800.0, 400.0), (0.0, 400.0))
    lanes = tuple(Lane(node, (node + 1) % 5, LIMIT) for node in range(5))
    red_s = 60.0
    light = Light(1, (Phase(red_s), Phase(300.0, (0,))))
    traffic = traffic_on(Roads(nodes, lanes, (light,)), 14, driving=0.0, trips=0.0)
    set_on_lane(traffic, 0, [300.0 - 20.0 * number for number in range(14)], destination=4)
    at = 0.0
    crossed: list[float] = []
    while len(crossed) < 14 and at < 200.0:
        at += TICK_S
        before = traffic.table["lane"].copy()
        traffic.advance(TICK_S, at)
        crossed += [at] * int((traffic.table["lane"] != before).sum())
        if at < red_s:
            assert not crossed
    assert len(crossed) == 14
    headways = np.diff(crossed)[3:]
    assert 1.5 < headways.mean() < 2.4
    assert headways.max() < 3.0


def test_yellow_is_long_enough_to_brake_as_people_do() -> None:
    traffic = traffic_on(grid(4, block_m=250.0, green_s=9.0), 60)
    at, hardest = 0.0, 0.0
    for _ in range(3000):
        at += TICK_S
        before = traffic.table["speed"].copy()
        was_driving = traffic.is_driving
        traffic.advance(TICK_S, at)
        change = (traffic.table["speed"] - before)[was_driving & traffic.is_driving]
        hardest = min(hardest, float(change.min(initial=0.0)) / TICK_S)
    assert -8.5 < hardest < -1.0


@pytest.mark.parametrize("green_s", [0.0, 10.0])
def test_a_jam_always_dissolves(green_s: float) -> None:
    """As many vehicles as there is room for, all of whom want somewhere: a gridlock by design."""
    roads = grid(3, block_m=70.0, green_s=green_s)
    traffic = traffic_on(roads, 170, trips=0.0)
    at, driving = 0.0, []
    for _ in range(9_000):
        at += TICK_S
        traffic.advance(TICK_S, at)
        driving.append(traffic.counts()["driving"])
    assert max(driving) > 100
    counts = traffic.counts()
    assert (counts["driving"], counts["waiting"], counts["parked"]) == (0, 0, 170)
    check_order(traffic)


def test_lanes_that_are_full_in_a_circle_are_not_stuck_for_ever() -> None:
    """Round and round with no other way: somebody has to pull in."""
    traffic = traffic_on(ring(around_m=320.0), 60, trips=0.0)
    assert traffic._destinations.tolist() == [0, 1, 2, 3]
    traffic.table["destination"] = (traffic.table["lane"] + 3) % 4
    room = traffic.roads.lanes["room"].copy()
    at = 0.0

    def go_on_until(done: Callable[[], bool], latest: float) -> None:
        nonlocal at
        while not done():
            at += TICK_S
            traffic.advance(TICK_S, at)
            assert at < latest

    go_on_until(lambda: at > 2.0, 3.0)
    assert traffic.counts()["driving"] > 10
    traffic.roads.lanes["room"] = traffic.roads.lanes["used"]
    go_on_until(lambda: at > 50.0, 51.0)
    assert not traffic.table["speed"].any()
    go_on_until(lambda: traffic.counts()["rests"] > 0, 80.0)
    assert traffic.table["speed"].any()
    traffic.roads.lanes["room"] = room
    go_on_until(lambda: traffic.counts()["parked"] == 60, 1500.0)


def test_one_seed_is_one_history() -> None:
    def history(seed: int) -> bytes:
        traffic = traffic_on(grid(3), 80, seed=seed)
        for tick in range(1, 400):
            traffic.advance(TICK_S, tick * TICK_S)
            if tick == 100:
                traffic.lights.set_phase("light4", 1, tick * TICK_S)
        return b"".join(
            (traffic.table.tobytes(), traffic._entities.x.tobytes(), traffic.loops.tobytes())
        )

    assert history(5) == history(5)
    assert history(5) != history(6)


def test_rush_hour_is_when_people_set_out() -> None:
    hours = np.arange(0.0, 24.0, 0.25)
    wanted = demand(hours)
    assert ((wanted >= 0) & (wanted <= 1)).all()
    assert demand(8.0) > 0.9
    assert demand(17.0) > 0.75
    assert demand(3.0) < 0.1
    assert demand(12.5) < 0.7
    assert demand(25.0) == demand(1.0)

    def trips(begins_h: float) -> int:
        rng = np.random.Generator(np.random.PCG64(1))
        roads = RoadGraph(grid(3))
        traffic = Traffic(
            roads, Entities(), rng, vehicles=100, driving=0.0, trips_per_hour=6, begins_h=begins_h
        )
        for tick in range(1, 3000):
            traffic.advance(TICK_S, tick * TICK_S)
        return traffic.counts()["trips_begun"]

    assert trips(8.0) > 4 * trips(2.0)


def test_a_changed_light_changes_who_drives() -> None:
    """Hold one direction green: its queue is gone, the other's is not."""
    traffic = traffic_on(grid(3, green_s=15.0), 120)
    at = 0.0
    for _ in range(600):
        at += TICK_S
        traffic.advance(TICK_S, at)
    traffic.lights.set_phase("light4", 0, at, hold_s=1e6)
    favoured, other = traffic.lights.has_green("light4")
    crossed = np.zeros(len(traffic.roads.lanes), np.int64)
    for tick in range(600):
        at += TICK_S
        before = traffic.table["lane"].copy()
        traffic.advance(TICK_S, at)
        if tick > 100:
            left = before[traffic.table["lane"] != before]
            np.add.at(crossed, left, 1)
    assert crossed[list(favoured)].sum() > 10
    assert crossed[list(other)].sum() == 0


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(WorldError, match="driving is a part"):
        traffic_on(grid(3), 5, driving=2.0)
    with pytest.raises(WorldError, match="trips_per_hour is -1; give 0 or more"):
        traffic_on(grid(3), 5, trips=-1.0)
    with pytest.raises(WorldError, match="no lane has 40 m"):
        traffic_on(grid(2, block_m=30.0), 5)
    with pytest.raises(WorldError, match="a tick of 2 s is too long"):
        traffic_on(grid(3), 5).advance(2.0, 2.0)


def test_no_vehicles_are_no_trouble() -> None:
    changed, legs = traffic_on(grid(3), 0).advance(TICK_S, TICK_S)
    assert (len(changed), len(legs)) == (0, 0)
