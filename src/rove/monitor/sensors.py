"""Readings on a map: what sensors last said, as a mean for each square of a grid.

A reading is anything that instruments of a world publish with a place (`x`, `y`) and a number: air,
loops, cameras, vehicles. What was said more than `KEPT_S` ago is forgotten. The squares are those
of virtual sensors: whoever looks at a square sees the mean of the sensors that are in it now.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from rove.world.feeds.audiences import FeedPublication
from rove.world.map.maps import Map

KEPT_S: Final = 60.0
SQUARES_ACROSS: Final = 40
UNITS: Final = {
    "NO2": "µg/m³",
    "PM10": "µg/m³",
    "CO": "mg/m³",
    "temperature": "°C",
    "humidity": "%",
    "battery": "%",
}
_PLACES: Final = frozenset(("x", "y", "lat", "long"))
_SENSORS_MAX: Final = 100_000


class _Reading(NamedTuple):
    at: float
    x: float
    y: float
    values: dict[str, float]


class SensorMap:
    """The last reading of every sensor of a world."""

    def __init__(self, map_: Map) -> None:
        side = max(map_.width, map_.height) / SQUARES_ACROSS
        steps = (1.0, 2.0, 5.0, 10.0)
        power = 10.0 ** math.floor(math.log10(side))
        self.cell_m = next(power * step for step in steps if power * step >= side)
        self._last: dict[str, _Reading] = {}

    def take(self, feeds: Iterable[FeedPublication]) -> None:
        """Note what was published."""
        for feed in feeds:
            place = feed.attributes.get("x"), feed.attributes.get("y")
            if not all(isinstance(each, int | float) for each in place):
                continue
            values = {
                name: float(value)
                for name, value in feed.attributes.items()
                if name not in _PLACES
                and isinstance(value, int | float)
                and not isinstance(value, bool)
            }
            if feed.topic in self._last or len(self._last) < _SENSORS_MAX:
                x, y = (float(each) for each in place if isinstance(each, int | float))
                self._last[feed.topic] = _Reading(feed.at, x, y, values)

    def view(self, attribute: str, at: float) -> dict[str, Any]:
        """One attribute over the map; the first there is, if there is none of that name."""
        for topic in [topic for topic, one in self._last.items() if at - one.at > KEPT_S]:
            del self._last[topic]
        attributes = sorted({name for one in self._last.values() for name in one.values})
        if attribute not in attributes:
            known = [name for name in UNITS if name in attributes]
            attribute = (known or attributes or [""])[0]
        cells: dict[tuple[int, int], list[_Reading]] = {}
        for one in self._last.values():
            if attribute in one.values:
                key = math.floor(one.x / self.cell_m), math.floor(one.y / self.cell_m)
                cells.setdefault(key, []).append(one)
        rows = [self._cell(key, found, attribute, at) for key, found in sorted(cells.items())]
        means = [row[5] for row in rows]
        return {
            "attribute": attribute,
            "attributes": attributes,
            "unit": UNITS.get(attribute, ""),
            "cell_m": self.cell_m,
            "cells": rows,
            "min": min(means, default=None),
            "max": max(means, default=None),
        }

    def _cell(
        self, key: tuple[int, int], found: list[_Reading], attribute: str, at: float
    ) -> list[float]:
        x, y = key[0] * self.cell_m, key[1] * self.cell_m
        mean = math.fsum(one.values[attribute] for one in found) / len(found)
        age_s = at - max(one.at for one in found)
        numbers = (x, y, x + self.cell_m, y + self.cell_m, len(found), mean, age_s)
        return [round(number, 3) for number in numbers]
