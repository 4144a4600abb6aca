"""A centre that hears of queues and does something about them."""

import numpy as np

from rove.world.feeds.audiences import FeedNotifications, FeedPublication
from rove.world.map.maps import Detector, Light, Phase, Roads
from rove.world.runs.state import Entities
from rove.world.traffic.centre import GREEN_S_MIN, TrafficCentre
from rove.world.traffic.roads import GREEN, RoadGraph
from rove.world.traffic.roadside import Roadside
from rove.world.traffic.vehicles import Traffic
from tests.world.traffic.test_roads import grid

TICK_S = 0.1


def lit_badly() -> Roads:
    """Lights that give one direction a minute and the other five seconds; loops at every line."""
    plain = grid(3)
    lights = tuple(
        Light(one.node, (Phase(60.0, one.phases[0].green), Phase(5.0, one.phases[1].green)))
        for one in plain.lights
    )
    loops = tuple(Detector(f"loop{lane}", lane, 92.0) for lane in range(len(plain.lanes)))
    return Roads(plain.nodes, plain.lanes, lights, loops)


def town(seed: int, driving: float = 1.0) -> tuple[Traffic, Roadside, TrafficCentre]:
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
    traffic, _, centre = town(1, driving=0.0)
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
    _, _, centre = town(1)
    told: FeedNotifications = centre.audience.publish(
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
    traffic, roadside, centre = town(seed)
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
