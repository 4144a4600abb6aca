"""Loops, cameras and on-board units against what can be seen from above."""

from typing import cast

import numpy as np
import pytest

from rove.world.feeds.audiences import Audience, AudienceNotifications, FeedPublication
from rove.world.map.maps import Detector, Light, Phase, Roads
from rove.world.runs.state import Entities
from rove.world.traffic.roads import GREEN, RoadGraph
from rove.world.traffic.roadside import GREEN_S_MIN, SLOW_MPS, Roadside, TrafficCentre
from rove.world.traffic.vehicles import VEHICLE_LENGTH_M, Traffic
from tests.world.traffic.test_roads import grid

TICK_S = 0.1


def town(seed: int = 1, vehicles: int = 100) -> tuple[Traffic, Entities, Roadside]:
    entities = Entities()
    rng = np.random.Generator(np.random.PCG64(seed))
    graph = RoadGraph(grid(3))
    traffic = Traffic(graph, entities, rng, vehicles=vehicles, driving=0.9, trips_per_hour=30)
    return traffic, entities, Roadside(traffic, entities)


def test_loops_count_everybody_once() -> None:
    """Fronts that pass a place, seen from above: entities, not lanes."""
    traffic, _, roadside = town()
    graph = traffic.roads
    passed = np.zeros(len(traffic.loops), np.int64)
    covered = np.zeros(len(traffic.loops), np.int64)
    told = {f"traffic/detector/{one.name}": [0, 0.0] for one in graph.roads.detectors}
    at = 0.0
    for _ in range(1200):
        before = traffic.table.copy()
        was_driving = traffic.is_driving
        at = round(at + TICK_S, 1)
        traffic.advance(TICK_S, at)
        table = traffic.table
        for number, loop in enumerate(traffic.loops):
            lane, place = loop["lane"], loop["place"]
            was_before = (before["lane"] == lane) & (before["place"] < place) & was_driving
            now_after = (table["lane"] != lane) | (table["place"] >= place)
            passed[number] += (was_before & now_after).sum()
            on_lane = traffic.is_driving & (table["lane"] == lane)
            on_lane &= (table["place"] >= place) & (table["place"] - VEHICLE_LENGTH_M <= place)
            covered[number] += on_lane.any()
        for feed in roadside.feeds(at):
            if feed.topic in told:
                span_s = cast(float, feed.attributes["interval_s"])
                told[feed.topic][0] += cast(int, feed.attributes["count"])
                told[feed.topic][1] += cast(float, feed.attributes["occupancy"]) * span_s / TICK_S
    rest = traffic.loops["passed"]
    assert [count for count, _ in told.values()] == (passed - rest).tolist()
    assert passed.sum() > 50
    ticks = np.array([ticks for _, ticks in told.values()]) + traffic.loops["ticks"]
    # The loops are so far from the line that who covers one is on the lane. They feel a car until
    # it parks, and one that pulls out from the tick after.
    assert np.abs(ticks - covered).max() < 5.0
    assert covered.max() > 50


def test_a_loop_tells_the_speed_only_if_somebody_passed() -> None:
    traffic, _, roadside = town()
    speeds = []
    for tick in range(1, 1000):
        traffic.advance(TICK_S, tick * TICK_S)
        for feed in roadside.feeds(tick * TICK_S):
            if feed.topic.startswith("traffic/detector/"):
                assert ("speed" in feed.attributes) == (feed.attributes["count"] != 0)
                assert 0.0 <= cast(float, feed.attributes["occupancy"]) <= 1.0
                speeds.append(cast(float, feed.attributes.get("speed", 0.0)))
    assert 5.0 < max(speeds) <= 13.9


def test_cameras_see_who_is_near_and_who_is_slow() -> None:
    traffic, entities, roadside = town()
    cameras = {f"traffic/camera/{one.name}": one for one in traffic.roads.roads.cameras}
    seen = 0
    for tick in range(1, 600):
        traffic.advance(TICK_S, tick * TICK_S)
        for feed in roadside.feeds(tick * TICK_S):
            if feed.topic not in cameras:
                continue
            camera = cameras[feed.topic]
            near = [
                number
                for number in np.flatnonzero(traffic.is_driving).tolist()
                if np.hypot(entities.x[number] - camera.x, entities.y[number] - camera.y)
                <= camera.reach_m
            ]
            slow = [number for number in near if traffic.table["speed"][number] < SLOW_MPS]
            assert feed.attributes == {
                "vehicles": len(near),
                "slow": len(slow),
                "x": camera.x,
                "y": camera.y,
            }
            seen += len(near)
    assert seen > 20


def test_vehicles_on_the_road_tell_where_they_are_every_five_seconds() -> None:
    traffic, entities, roadside = town(vehicles=40)
    told: dict[str, list[float]] = {}
    for tick in range(1, 300):
        traffic.advance(TICK_S, tick * TICK_S)
        for feed in roadside.feeds(tick * TICK_S):
            if feed.topic.startswith("traffic/vehicle/"):
                number = entities.number(feed.topic.removeprefix("traffic/vehicle/"))
                assert traffic.is_driving[number]
                assert feed.attributes["x"] == pytest.approx(entities.x[number], abs=0.01)
                assert feed.attributes["lane"] == traffic.table["lane"][number]
                told.setdefault(feed.topic, []).append(feed.at)
    assert len(told) > 20
    gaps = [gap / 5.0 for times in told.values() for gap in np.diff(times)]
    assert gaps
    assert np.allclose(gaps, np.round(gaps), atol=1e-6)


def test_subscriptions_find_congestion_by_area() -> None:
    traffic, _, roadside = town(vehicles=160)
    centre = Audience()
    west = centre.subscribe("traffic/#", "x < 150 AND (occupancy > 0.4 OR slow > 4)")
    east = centre.subscribe("traffic/detector/+", "x > 150 AND occupancy > 0.4")
    told: list[tuple[int, FeedPublication]] = []
    for tick in range(1, 900):
        traffic.advance(TICK_S, tick * TICK_S)
        notified = centre.publish(roadside.feeds(tick * TICK_S), tick * TICK_S)
        told += [(one.subscription, one.feed) for one in notified]
    assert {number for number, _ in told} == {west, east}
    for number, feed in told:
        assert (cast(float, feed.attributes["x"]) < 150) == (number == west)


def test_one_seed_publishes_one_way() -> None:
    def published(seed: int) -> list[FeedPublication]:
        traffic, _, roadside = town(seed, 50)
        found = []
        for tick in range(1, 200):
            traffic.advance(TICK_S, tick * TICK_S)
            found += roadside.feeds(tick * TICK_S)
        return found

    assert published(1) == published(1)
    assert published(1) != published(2)


# --- the traffic centre ---------------------------------------------------------------------------


def lit_badly() -> Roads:
    """Lights that give one direction a minute and the other five seconds; loops at every line."""
    plain = grid(3)
    lights = tuple(
        Light(one.node, (Phase(60.0, one.phases[0].green), Phase(5.0, one.phases[1].green)))
        for one in plain.lights
    )
    loops = tuple(Detector(f"loop{lane}", lane, 92.0) for lane in range(len(plain.lanes)))
    return Roads(plain.nodes, plain.lanes, lights, loops)


def lit_town(seed: int, driving: float = 1.0) -> tuple[Traffic, Roadside, TrafficCentre]:
    entities = Entities()
    rng = np.random.Generator(np.random.PCG64(seed))
    traffic = Traffic(RoadGraph(lit_badly()), entities, rng, vehicles=70, driving=driving)
    return traffic, Roadside(traffic, entities, detectors_s=4.0), TrafficCentre(traffic)


def hear(centre: TrafficCentre, at: float, **occupancy: float) -> None:
    """Of lanes named `lane3`, in the middle of the town."""
    feeds = [
        FeedPublication(
            f"traffic/detector/{lane}",
            {"lane": int(lane.removeprefix("lane")), "occupancy": part, "x": 160.0, "y": 160.0},
            at,
        )
        for lane, part in occupancy.items()
    ]
    centre.hear(centre.audience.publish(feeds, at), at)


def test_a_queue_gets_its_green_but_not_too_often() -> None:
    traffic, _, centre = lit_town(1, driving=0.0)
    shown, other = traffic.lights.has_green("light4")
    waits = {f"lane{other[0]}": 0.9}
    hear(centre, 1.0, **{f"lane{other[0]}": 0.1})
    assert centre.commands == 0
    hear(centre, 2.0, **waits)
    assert centre.commands == 1
    traffic.lights.advance(2.0 + 6.0)
    assert (traffic.roads.lanes["signal"][list(other)] == GREEN).all()
    hear(centre, 3.0 + GREEN_S_MIN, **{f"lane{shown[0]}": 0.7})
    assert centre.commands == 1
    hear(centre, 4.0 + GREEN_S_MIN, **{f"lane{other[0]}": 0.0})
    assert centre.commands == 2
    hear(centre, 5.0 + GREEN_S_MIN, **{f"lane{other[0]}": 1.0})
    assert centre.commands == 2


def test_it_hears_only_of_what_is_near_a_light() -> None:
    _, _, centre = lit_town(1)
    told: AudienceNotifications = centre.audience.publish(
        [
            FeedPublication(
                "traffic/detector/a", {"x": 160.0, "y": 160.0, "lane": 1, "occupancy": 0.0}, 1.0
            ),
            FeedPublication(
                "traffic/detector/b", {"x": 20.0, "y": 20.0, "lane": 2, "occupancy": 0.0}, 1.0
            ),
            FeedPublication("traffic/camera/c", {"x": 160.0, "y": 160.0}, 1.0),
        ],
        1.0,
    )
    assert sorted(one.subscription for one in told if one.feed.topic[-1] == "a") == list(range(9))
    assert [one.subscription for one in told if one.feed.topic[-1] == "b"] == [0, 1, 3, 4]
    assert len(told) == 13


def seconds_stood(seed: int, *, controlled: bool) -> float:
    traffic, roadside, centre = lit_town(seed)
    stood = 0.0
    for tick in range(1, 2001):
        at = tick * TICK_S
        traffic.advance(TICK_S, at)
        told = centre.audience.publish(roadside.feeds(at), at)
        if controlled:
            centre.hear(told, at)
        standing = traffic.is_driving & (traffic.table["speed"] == 0.0)
        stood += float(standing.sum()) * TICK_S
    assert (centre.commands > 0) == controlled
    return stood


def test_who_acts_on_what_is_published_shortens_queues() -> None:
    assert seconds_stood(1, controlled=True) < 0.8 * seconds_stood(1, controlled=False)
