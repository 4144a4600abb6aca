"""A traffic centre: it subscribes to what happens around lights, and acts on it.

The loop of a traffic application closed: loops in the road publish, a subscription to the area
around a light brings together what concerns it, and the centre gives green to those who wait.
How it decides is as plain as can be: of the phases of a light the one whose lanes are most covered
by waiting cars, if that is clearly another than the one that is shown, and not too often. Better
rules exist; this one is to show that what subscribers hear is enough to do something about it.

Costs nothing but the subscriptions, one for each light, and what they are told.
"""

from __future__ import annotations

from typing import Final, cast

import numpy as np

from rove.world.feeds.audiences import Audience, FeedNotifications
from rove.world.traffic.lights import Lights
from rove.world.traffic.vehicles import Traffic

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

    def hear(self, told: FeedNotifications, at: float) -> None:
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
