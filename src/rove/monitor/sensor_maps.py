"""Heat maps of sensors: the mean of their readings for each cell of a grid.

There are two sources. `SensorMap` has the last readings of the instruments of a world: everything
with a place (`x`, `y`) and a number. Readings older than `KEPT_S` are dropped. `heat` reads virtual
sensors from the tables of the pipeline, for each channel and day in the cells of a grid on earth;
the map of a world lies somewhere on earth too (`rove.world.feeds.air`), and cells beside it are
left out. Only the newest day of the finest grid is read, with Arrow alone: Spark is not needed for
it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from rove.world.feeds.air import METRES_PER_DEGREE, ZAGREB
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


FILES_MAX: Final = 20
CELLS_MAX: Final = 10_000
_COLUMNS: Final = ["attribute", "cell", "corners", "start", "count", "mean", "last_at"]


def has_sensors(out: Path) -> bool:
    """Whether the pipeline has made any."""
    return bool(_files(out))


def heat(out: Path, attribute: str, width: float, height: float) -> dict[str, Any] | None:
    """One attribute over a map of that size; None if nothing of it lies there. For threads."""
    files = _files(out)
    if not files:
        return None
    newest: dict[tuple[str, str], tuple[float, list[float]]] = {}
    for file in files:
        for row in _rows(file):
            place = _place(row["corners"], width, height)
            if place is None or row["mean"] is None:
                continue
            key, start = (row["attribute"], row["cell"]), row["start"].timestamp()
            if key not in newest or newest[key][0] < start:
                age_s = time.time() - row["last_at"].timestamp()
                values = [*place, row["count"], row["mean"], age_s]
                newest[key] = start, [round(float(value), 3) for value in values]
    attributes = sorted({name for name, _ in newest})
    if not attributes:
        return None
    if attribute not in attributes:
        attribute = next((name for name in UNITS if name in attributes), attributes[0])
    cells = [values for (name, _), (_, values) in newest.items() if name == attribute]
    means = [cell[5] for cell in cells]
    return {
        "source": "pipeline",
        "attribute": attribute,
        "attributes": attributes,
        "unit": UNITS.get(attribute, ""),
        "cell_m": _cell_m(files[0]),
        "cells": cells[:CELLS_MAX],
        "min": min(means),
        "max": max(means),
    }


def _files(out: Path) -> list[Path]:
    """The newest day of each channel, in the finest grid and the shortest interval there is."""
    grids = sorted((out / "sensors").glob("cell_m=*"), key=lambda path: _number(path.name))
    for grid in grids:
        for interval in sorted(grid.glob("interval=*")):
            newest = [
                max(days)
                for channel in sorted(interval.glob("channel=*"))
                if (days := list(channel.glob("day=*/sensors.parquet")))
            ]
            if newest:
                return newest[:FILES_MAX]
    return []


def _number(name: str) -> int:
    written = name.partition("=")[2]
    return int(written) if written.isdecimal() else 2**62


def _cell_m(file: Path) -> int:
    return next((_number(part) for part in file.parts if part.startswith("cell_m=")), 0)


def _rows(file: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq  # only where there is a pipeline

    rows: list[dict[str, Any]] = pq.read_table(file, columns=_COLUMNS).to_pylist()
    return rows


def _place(corners: Any, width: float, height: float) -> tuple[float, ...] | None:
    """Where a cell lies on the map, in metres; None if it lies beside it."""
    if not corners:
        return None
    x = [(corner["long"] - ZAGREB.long) * ZAGREB.long_metres for corner in corners]
    y = [(corner["lat"] - ZAGREB.lat) * METRES_PER_DEGREE for corner in corners]
    x0, y0, x1, y1 = min(x), min(y), max(x), max(y)
    return (x0, y0, x1, y1) if x1 > 0 and y1 > 0 and x0 < width and y0 < height else None
