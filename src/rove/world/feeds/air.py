"""The air of a city: what a sensor measures depends on where it is and when.

A field of pollution over the map: a background, plumes that drift with the wind, and what traffic
blows out along the roads, more at rush hour. Temperature and humidity go with the day and differ a
little from place to place. All of it is smooth, so that a sensor carried through the town reads a
curve and its neighbour nearly the same. Recorded data was considered: it has the city's sensors
where they stood, and says nothing of what a sensor elsewhere would have read.

Sensors stand somewhere or are carried by an entity. They publish, under `air/NAME`, the attributes
`NO2` and `PM10` (µg/m³), `CO` (mg/m³), `temperature` (°C), `humidity` (%), `battery` (%), and where
they are, in metres (`x`, `y`) and in degrees (`lat`, `long`), for subscriptions like
`NO2 > 40 AND lat BETWEEN 45.81 AND 45.82 AND long BETWEEN 15.96 AND 15.98`.

Costs 0.13 ms and 0.3 µs a sensor for a reading; 1,000 sensors that publish every second, 0.6 ms of
processor time a tick of 0.1 s.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from rove.world.feeds.audiences import FeedPublication, Timetable
from rove.world.map.maps import Map, Roads
from rove.world.runs.state import Entities, Floats, Ints, Longs
from rove.world.traffic.curves import DAY_H, bump, hill, wave

METRES_PER_DEGREE: Final = 111_195.0
"""Of latitude, on the sphere on which the language measures."""
PLUMES: Final = 12
CELL_M: Final = 20.0
"""Of the grid that knows how near roads are."""
ROAD_REACH_M: Final = 40.0
BATTERY_PER_READING: Final = 0.02
BATTERY_MIN: Final = 5.0
"""Percent; then somebody brings a full one."""
_NOISE: Final = 0.02
"""By which part a reading may be wrong."""


class Origin(NamedTuple):
    """Where on earth the lower left corner of a map is, in degrees."""

    lat: float
    long: float
    long_metres: float
    """What a degree of longitude measures there."""

    def degrees(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        """Latitude and longitude of places."""
        return self.lat + y / METRES_PER_DEGREE, self.long + x / self.long_metres


ZAGREB: Final = Origin(45.81, 15.96, 77_507.0)


class AirReadings(NamedTuple):
    """What the air is like at some places."""

    no2: Floats
    co: Floats
    pm10: Floats
    temperature: Floats
    humidity: Floats


class AirField:
    """The field."""

    def __init__(self, map_: Map, rng: np.random.Generator, *, begins_h: float = 7.0) -> None:
        self._begins_h = begins_h
        self._width, self._height = map_.width, map_.height
        self._x = rng.uniform(0.0, 3.0 * map_.width, PLUMES)
        self._y = rng.uniform(0.0, 3.0 * map_.height, PLUMES)
        self._strength = rng.uniform(0.3, 1.0, PLUMES)
        self._reach_m = rng.uniform(0.1, 0.3, PLUMES) * max(map_.width, map_.height)
        self._wind = rng.uniform(-1.0, 1.0, 2)
        """Metres a second."""
        self._warmth = rng.uniform(-1.0, 1.0, PLUMES)
        self._roads = _nearness(map_)

    def hour(self, at: float) -> float:
        """The hour of the day at a time of the world."""
        return (self._begins_h + at / 3600.0) % DAY_H

    def read(self, x: Floats, y: Floats, at: float) -> AirReadings:
        """What the air is like at places."""
        hour = self.hour(at)
        near = self._plumes(x, y, at)
        plumes = (near * self._strength).sum(axis=1)
        rush = float(0.15 + hill(hour, 8.0, 1.5) + 0.8 * hill(hour, 17.0, 1.5))
        traffic = self._near_roads(x, y) * rush
        warmth = (near * self._warmth).sum(axis=1)
        temperature = 15.0 + 7.0 * float(wave(hour, 15.0)) + 2.0 * warmth + 0.5 * traffic
        return AirReadings(
            no2=12.0 + 30.0 * plumes + 60.0 * traffic,
            co=0.2 + 0.5 * plumes + 1.5 * traffic,
            pm10=15.0 + 35.0 * plumes + 20.0 * traffic,
            temperature=temperature,
            humidity=np.clip(60.0 - 2.5 * (temperature - 15.0) + 4.0 * plumes, 5.0, 100.0),
        )

    def _plumes(self, x: Floats, y: Floats, at: float) -> Floats:
        """How much of each plume there is at each place, from 0 to 1.

        Plumes drift over a ground three times as wide and high and come in again where they left;
        near its border they are nothing, so nobody sees them jump.
        """
        wide, high = 3.0 * self._width, 3.0 * self._height
        plume_x = (self._x + self._wind[0] * at) % wide
        plume_y = (self._y + self._wind[1] * at) % high
        inside_x, inside_y = plume_x / wide, plume_y / high
        there = 16.0 * inside_x * (1.0 - inside_x) * inside_y * (1.0 - inside_y)
        dx = x[:, None] - (plume_x - self._width)
        dy = y[:, None] - (plume_y - self._height)
        near: Floats = there * bump(np.sqrt(dx * dx + dy * dy) / self._reach_m)
        return near

    def _near_roads(self, x: Floats, y: Floats) -> Floats:
        """Between the corners of a cell as a surface through them."""
        rows, columns = self._roads.shape
        right = np.clip(x / CELL_M, 0.0, columns - 1.001)
        up = np.clip(y / CELL_M, 0.0, rows - 1.001)
        column, row = right.astype(np.int64), up.astype(np.int64)
        right, up = right - column, up - row
        grid = self._roads
        below = grid[row, column] * (1.0 - right) + grid[row, column + 1] * right
        above = grid[row + 1, column] * (1.0 - right) + grid[row + 1, column + 1] * right
        found: Floats = below * (1.0 - up) + above * up
        return found


def _nearness(map_: Map) -> Floats:
    """At the corners of a grid, how near the nearest road is: 1 on it, next to 0 far away."""
    columns, rows = int(map_.width / CELL_M) + 2, int(map_.height / CELL_M) + 2
    x, y = np.meshgrid(np.arange(columns) * CELL_M, np.arange(rows) * CELL_M)
    nearest = np.full((rows, columns), np.inf)
    roads = map_.roads or Roads((), ())
    for lane in roads.lanes:
        (x0, y0), (x1, y1) = roads.nodes[lane.from_node], roads.nodes[lane.to_node]
        squared = (x1 - x0) ** 2 + (y1 - y0) ** 2
        along = np.clip(((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / squared, 0.0, 1.0)
        dx, dy = x - (x0 + along * (x1 - x0)), y - (y0 + along * (y1 - y0))
        nearest = np.minimum(nearest, dx * dx + dy * dy)
    return bump(np.sqrt(nearest) / ROAD_REACH_M)


class AirSensors:
    """Sensors of the air: entities that stand, or that somebody or a vehicle carries."""

    def __init__(
        self,
        air: AirField,
        entities: Entities,
        carriers: Ints,
        rng: np.random.Generator,
        *,
        every_s: float = 1.0,
        origin: Origin = ZAGREB,
    ) -> None:
        """`carriers` are the entities that are sensors themselves, or have one with them."""
        self._air = air
        self._entities = entities
        self._carriers = carriers
        self._rng = rng
        self._origin = origin
        self._times = Timetable(len(carriers), every_s)
        self._battery = rng.uniform(BATTERY_MIN, 100.0, len(carriers))

    def feeds(self, at: float) -> list[FeedPublication]:
        """What is published at a time; to be asked every tick."""
        due = self._times.due(at)
        if not len(due):
            return []
        numbers = self._carriers[due]
        x, y = self._entities.x[numbers], self._entities.y[numbers]
        lat, long = self._origin.degrees(x, y)
        noise = self._rng.uniform(1.0 - _NOISE, 1.0 + _NOISE, (len(AirReadings._fields), len(due)))
        read = [values * part for values, part in zip(self._air.read(x, y, at), noise, strict=True)]
        columns = {
            name: values.round(digits).tolist()
            for name, values, digits in (
                ("NO2", read[0], 2),
                ("CO", read[1], 3),
                ("PM10", read[2], 2),
                ("temperature", read[3], 2),
                ("humidity", np.minimum(read[4], 100.0), 1),
                ("battery", self._drained(due), 1),
                ("x", x, 2),
                ("y", y, 2),
                ("lat", lat, 6),
                ("long", long, 6),
            )
        }
        names = self._entities.names
        return [
            FeedPublication(f"air/{names[number]}", dict(zip(columns, values, strict=True)), at)
            for number, *values in zip(numbers.tolist(), *columns.values(), strict=True)
        ]

    def _drained(self, due: Longs) -> Floats:
        left = self._battery[due] - BATTERY_PER_READING
        left = np.where(left < BATTERY_MIN, 100.0, left)
        self._battery[due] = left
        return left
