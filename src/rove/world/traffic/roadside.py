"""What roads and vehicles publish, and a traffic centre that subscribes to it.

Traffic centres have three kinds of sources. A loop in the road counts the vehicles that pass it and
how long it was covered, but cannot identify them. A camera counts the vehicles near it, and the
slow ones, at one moment. An on-board unit has its own place and speed. Subscriptions combine them
by area (all have `x` and `y`) or by lane.

    traffic/detector/NAME   count, occupancy (0 to 1), speed (m/s, if any passed), lane, x, y,
                            interval_s
    traffic/camera/NAME     vehicles, slow, x, y
    traffic/vehicle/NAME    x, y, speed, lane

The centre closes the loop of a traffic application. Its rule is as simple as possible: of the
phases of a light it chooses the one whose lanes are most covered by waiting cars, if the difference
to the present phase is clear, and not too often. Better rules exist; this one shows that the
notifications of a subscription are enough to control the lights.

A feed costs 2 µs: 0.2 ms of processor time a tick for 5,000 vehicles and 190 loops. The centre
costs one subscription for each light and its notifications.
"""

from __future__ import annotations

from typing import Final, cast

import numpy as np

from rove.world.feeds.audiences import Audience, AudienceNotifications, FeedPublication, Timetable
from rove.world.runs.state import Entities, Longs
from rove.world.traffic.lights import Lights
from rove.world.traffic.vehicles import Traffic

SLOW_MPS: Final = 3.0
"""Walking pace, and a bit."""


class Roadside:
    """The instruments of a map's roads, and the on-board units of its vehicles."""

    def __init__(
        self,
        traffic: Traffic,
        entities: Entities,
        *,
        detectors_s: float = 10.0,
        cameras_s: float = 5.0,
        vehicles_s: float = 5.0,
    ) -> None:
        self._traffic = traffic
        self._entities = entities
        roads = traffic.roads
        self._detectors = roads.roads.detectors
        self._cameras = roads.roads.cameras
        self._loop_points = [
            roads.point(int(loop["lane"]), float(loop["place"])) for loop in traffic.loops
        ]
        self._since = np.zeros(len(self._detectors))
        self._since_tick: Longs = np.zeros(len(self._detectors), np.int64)
        self._detector_times = Timetable(len(self._detectors), detectors_s)
        self._camera_times = Timetable(len(self._cameras), cameras_s)
        self._vehicle_times = Timetable(len(traffic), vehicles_s)

    def feeds(self, at: float) -> list[FeedPublication]:
        """What is published at a time; to be asked after every tick of the traffic."""
        found = [self._of_detector(number, at) for number in self._detector_times.due(at).tolist()]
        found += [self._of_camera(number, at) for number in self._camera_times.due(at).tolist()]
        due = self._vehicle_times.due(at)
        return found + self._of_vehicles(due[self._traffic.is_driving[due]], at)

    def _of_detector(self, number: int, at: float) -> FeedPublication:
        detector, loop = self._detectors[number], self._traffic.loops[number]
        ticks = max(1, self._traffic.tick - int(self._since_tick[number]))
        passed = int(loop["passed"])
        x, y = self._loop_points[number]
        attributes: dict[str, object] = {
            "count": passed,
            "occupancy": round(int(loop["ticks"]) / ticks, 4),
            "lane": detector.lane,
            "x": x,
            "y": y,
            "interval_s": round(at - float(self._since[number]), 3),
        }
        if passed:
            attributes["speed"] = round(float(loop["speeds"]) / passed, 2)
        for column in ("passed", "ticks", "speeds"):
            loop[column] = 0
        self._since[number], self._since_tick[number] = at, self._traffic.tick
        return FeedPublication(f"traffic/detector/{detector.name}", attributes, at)

    def _of_camera(self, number: int, at: float) -> FeedPublication:
        camera, traffic, entities = self._cameras[number], self._traffic, self._entities
        dx = entities.x[traffic.numbers] - camera.x
        dy = entities.y[traffic.numbers] - camera.y
        seen = traffic.is_driving & (dx * dx + dy * dy <= camera.reach_m * camera.reach_m)
        slow = seen & (traffic.table["speed"] < SLOW_MPS)
        attributes: dict[str, object] = {
            "vehicles": int(seen.sum()),
            "slow": int(slow.sum()),
            "x": camera.x,
            "y": camera.y,
        }
        return FeedPublication(f"traffic/camera/{camera.name}", attributes, at)

    def _of_vehicles(self, who: Longs, at: float) -> list[FeedPublication]:
        entities, table = self._entities, self._traffic.table
        numbers = self._traffic.numbers[who]
        columns = zip(
            numbers.tolist(),
            entities.x[numbers].round(2).tolist(),
            entities.y[numbers].round(2).tolist(),
            table["speed"][who].round(2).tolist(),
            table["lane"][who].tolist(),
            strict=True,
        )
        return [
            FeedPublication(
                f"traffic/vehicle/{entities.names[number]}",
                {"x": x, "y": y, "speed": speed, "lane": lane},
                at,
            )
            for number, x, y, speed, lane in columns
        ]


AROUND_M: Final = 150.0
CLEARLY: Final = 0.2
"""By how much more another phase's lanes must be covered."""
GREEN_S_MIN: Final = 10.0


class TrafficCentre:
    """Changes phases of lights by what their surroundings publish."""

    def __init__(self, traffic: Traffic, at: float = 0.0, *, around_m: float = AROUND_M) -> None:
        self._lights: Lights = traffic.lights
        self._covered = np.zeros(len(traffic.roads.lanes))
        """How much of the time the loops of each lane were covered, as last heard."""
        self._names = self._lights.names()
        self._not_before = np.full(len(self._names), at)
        self.commands = 0
        """How often it has set a phase."""
        self.audience = Audience("traffic centre")
        for light in traffic.roads.roads.lights:
            x, y = traffic.roads.nodes[light.node].tolist()
            area = (
                f"x BETWEEN {x - around_m} AND {x + around_m} "
                f"AND y BETWEEN {y - around_m} AND {y + around_m}"
            )
            self.audience.subscribe("traffic/detector/+", area, at)

    def hear(self, told: AudienceNotifications, at: float) -> None:
        """What the audience was told of in a tick; subscription n is that of light n."""
        heard: dict[int, None] = {}
        for one in told:
            lane = cast(int, one.feed.attributes["lane"])
            self._covered[lane] = cast(float, one.feed.attributes["occupancy"])
            heard[one.subscription] = None
        for number in heard:
            if at >= self._not_before[number]:
                self._judge(number, at)

    def _judge(self, number: int, at: float) -> None:
        name = self._names[number]
        greens = self._lights.has_green(name)
        waiting = [
            max((float(self._covered[lane]) for lane in some), default=0.0) for some in greens
        ]
        shown = int(self._lights.phase[number])
        best = int(np.argmax(waiting))
        if best != shown and waiting[best] > waiting[shown] + CLEARLY:
            self._lights.set_phase(name, best, at)
            self._not_before[number] = at + GREEN_S_MIN
            self.commands += 1
