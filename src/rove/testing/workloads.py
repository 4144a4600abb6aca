"""Seeded streams and subscriptions, so that everyone measures and shows the same.

One seed gives one workload, on every machine and Python (only `random.Random` decides). Times
are virtual: a stream says when its publications appear, nobody waits for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import accumulate, islice
from random import Random
from typing import Any, Final

import msgspec

POLLUTANTS: Final = ("NO2", "PM10", "O3")
_PLACES: Final = 2_000
_MEDIANS: Final = {"NO2": 25.0, "PM10": 20.0, "O3": 50.0}
_SPREAD: Final = 0.6
"""The sigma of the lognormal readings."""
_LAT: Final = (45.74, 45.86)
_LONG: Final = (15.86, 16.12)


class AirQuality:
    """W1: boxes around Zipf-popular places with thresholds on readings, and such readings.

    Subscriptions ask for a box of latitude and longitude (1 % for none) and a threshold, at a
    quantile from 0.5 to 0.999, on one of three pollutants (20 % on two). 70 % of the
    publications come from near a popular place.
    """

    def __init__(self, seed: int = 1) -> None:
        self._random = Random(seed)
        self._places = [
            (self._random.uniform(*_LAT), self._random.uniform(*_LONG)) for _ in range(_PLACES)
        ]
        self._popularity = list(accumulate(1 / rank for rank in range(1, _PLACES + 1)))

    def texts(self, count: int) -> list[str]:
        """Subscription texts."""
        return [self._text() for _ in range(count)]

    def publications(self, count: int) -> list[dict[str, Any]]:
        """Readings of all three pollutants at a place."""
        return [self._reading() for _ in range(count)]

    def _place(self) -> tuple[float, float]:
        (place,) = self._random.choices(self._places, cum_weights=self._popularity)
        return place

    def _text(self) -> str:
        number = 2 if self._random.random() < 0.2 else 1
        pollutants = self._random.sample(POLLUTANTS, number)
        parts = [f"{name} > {self._threshold(name)}" for name in pollutants]
        if self._random.random() >= 0.01:
            lat, long = self._place()
            half = self._random.uniform(0.001, 0.01)
            parts.append(f"lat BETWEEN {lat - half:.5f} AND {lat + half:.5f}")
            parts.append(f"long BETWEEN {long - half * 1.4:.5f} AND {long + half * 1.4:.5f}")
        return " AND ".join(parts)

    def _threshold(self, pollutant: str) -> float:
        # The normal quantile by a logistic curve: within 2 % here, and exact is not the point.
        quantile = self._random.uniform(0.5, 0.999)
        normal = math.log(quantile / (1 - quantile)) / 1.702
        return round(_MEDIANS[pollutant] * math.exp(_SPREAD * normal), 1)

    def _reading(self) -> dict[str, Any]:
        if self._random.random() < 0.7:
            lat, long = self._place()
            lat, long = self._random.gauss(lat, 0.004), self._random.gauss(long, 0.006)
        else:
            lat, long = self._random.uniform(*_LAT), self._random.uniform(*_LONG)
        reading = {
            name: round(self._random.lognormvariate(math.log(median), _SPREAD), 1)
            for name, median in _MEDIANS.items()
        }
        return {"lat": round(lat, 5), "long": round(long, 5), **reading}


class Reading(msgspec.Struct, frozen=True):
    """One publication of the city: when it appears, and its attributes."""

    at: float
    attributes: dict[str, Any]


class City:
    """A few sensors on bicycles in the middle of Zagreb, for demonstrations.

    Each rides straight on, turns back at the edge of the map, and publishes once a second; the
    air is worst around one place that drifts slowly.
    """

    LAT: Final = (45.8000, 45.8300)
    LONG: Final = (15.9400, 16.0000)
    SENSORS: Final = 40

    def __init__(self, seed: int = 7) -> None:
        self._random = Random(seed)
        self._sensors = [self._sensor(number) for number in range(self.SENSORS)]

    def readings(self, seconds: int) -> Iterator[Reading]:
        """Everything published during so many seconds, in order of time."""
        for second in range(seconds):
            for number, sensor in enumerate(self._sensors):
                sensor.move(self.LAT, self.LONG)
                at = second + number / len(self._sensors)
                yield Reading(at, self._measured(sensor, at))

    def seconds(self, seconds: int) -> Iterator[list[Reading]]:
        """The same, a second at a time."""
        readings = self.readings(seconds)
        for _ in range(seconds):
            yield list(islice(readings, self.SENSORS))

    def _sensor(self, number: int) -> _Sensor:
        heading = self._random.uniform(0, 2 * math.pi)
        speed = self._random.uniform(0.0001, 0.0004)
        return _Sensor(
            name=f"bike{number:02d}",
            lat=self._random.triangular(*self.LAT),
            long=self._random.triangular(*self.LONG),
            lat_per_s=speed * math.sin(heading),
            long_per_s=speed * 1.4 * math.cos(heading),
        )

    def _measured(self, sensor: _Sensor, at: float) -> dict[str, Any]:
        smog = (45.815 + 0.004 * math.sin(at / 20), 15.968 + 0.010 * math.cos(at / 25))
        distance = math.hypot(sensor.lat - smog[0], (sensor.long - smog[1]) / 1.4)
        no2 = 12 + 55 * math.exp(-((distance / 0.006) ** 2)) + self._random.gauss(0, 2)
        return {
            "sensor": sensor.name,
            "lat": round(sensor.lat, 5),
            "long": round(sensor.long, 5),
            "NO2": round(max(0.0, no2), 1),
        }


class _Sensor(msgspec.Struct):
    name: str
    lat: float
    long: float
    lat_per_s: float
    long_per_s: float

    def move(self, lats: tuple[float, float], longs: tuple[float, float]) -> None:
        """One second further, turning back at the edges."""
        if not lats[0] <= self.lat + self.lat_per_s <= lats[1]:
            self.lat_per_s = -self.lat_per_s
        if not longs[0] <= self.long + self.long_per_s <= longs[1]:
            self.long_per_s = -self.long_per_s
        self.lat += self.lat_per_s
        self.long += self.long_per_s


class GasInterest(msgspec.Struct, frozen=True, gc=False):
    """A subscription of `GasReadings`: what it asks of one attribute."""

    attribute: str
    operator: str
    value: float
    until: float | None = None
    """Of a window of time, its end, which is no longer in it."""

    @property
    def text(self) -> str:
        """As a subscriber writes it."""
        asked = f"{self.attribute} {self.operator} {self.value}"
        return asked if self.until is None else f"{asked} AND {self.attribute} < {self.until}"


class GasReadings:
    """A few thousand readings of four gases by sensors of one city, and interests in such readings.

    Made like the workload that CUPUS was measured with, whose data are not ours: publications are
    readings, drawn again and again; a subscription is a reading with one of the numerical operators
    of CUPUS but BETWEEN, which are five; a quarter of them are windows of time that do not overlap
    and do not care for the gas. So each publication meets 7 to 8 % of all. Readings are what one
    may expect in Zürich over four weeks: low, skewed, with the traffic of the day in them.
    """

    GASES: Final = {"CO": (0.4, 0.45, 2), "O3": (28.0, 0.5, 1), "NO2": (17.0, 0.55, 1),
                    "UFP": (11_500.0, 0.7, 0)}  # fmt: skip
    """Median, sigma of the logarithm, and digits: ppm, ppb, ppb, particles in a cm³."""
    OPERATORS: Final = ("=", "<", "<=", ">", ">=")
    SENSORS: Final = 36
    BEGIN: Final = 1_391_212_800
    """2014-02-01, in seconds since 1970."""
    END: Final = BEGIN + 28 * 86_400
    WINDOWS_SHARE: Final = 0.25

    def __init__(self, seed: int = 6, count: int = 4_000) -> None:
        self._random = Random(seed)
        self.readings: list[dict[str, Any]] = [self._reading() for _ in range(count)]

    def drawn(self, count: int) -> list[int]:
        """The readings that are published, one after the other, by their positions."""
        return self._random.choices(range(len(self.readings)), k=count)

    def interests(self, count: int) -> list[GasInterest]:
        """So many subscriptions, in no order; the windows divide the four weeks among them."""
        windows = int(count * self.WINDOWS_SHARE)
        found = [self._window(number, windows) for number in range(windows)]
        found += [self._interest() for _ in range(count - windows)]
        self._random.shuffle(found)
        return found

    def _reading(self) -> dict[str, Any]:
        gas = self._random.choice(tuple(self.GASES))
        median, sigma, digits = self.GASES[gas]
        at = self._random.randrange(self.BEGIN, self.END)
        # Traffic makes two hills a day; ozone has its valleys there.
        hour = at % 86_400 / 3_600
        hills = math.exp(-((hour - 8) ** 2) / 6) + math.exp(-((hour - 18) ** 2) / 8)
        shift = (-0.3 if gas == "O3" else 0.5) * hills
        value = self._random.lognormvariate(math.log(median) + shift, sigma)
        sensor = self._random.randrange(self.SENSORS)
        return {"sensor": sensor, "timestamp": at, gas: round(value, digits or None)}

    def _interest(self) -> GasInterest:
        reading = self._random.choice(self.readings)
        gas = next(name for name in reading if name in self.GASES)
        return GasInterest(gas, self._random.choice(self.OPERATORS), reading[gas])

    def _window(self, number: int, count: int) -> GasInterest:
        span = self.END - self.BEGIN
        begin, end = (self.BEGIN + span * step / count for step in (number, number + 1))
        return GasInterest("timestamp", ">=", begin, end)
