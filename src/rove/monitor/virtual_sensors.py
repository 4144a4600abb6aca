"""Virtual sensors that the pipeline has computed, placed on the map of a world.

The pipeline writes, for each channel and day, what was read in each cell of a grid on earth; a
world's map lies somewhere on earth, too (`rove.world.feeds.air`). A cell is drawn where its corners
are on that map; those beside it are left out. Only the newest day of the finest grid is read, with
nothing but Arrow: Spark is not needed to look at what it has made.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

from rove.monitor.sensors import UNITS
from rove.world.feeds.air import METRES_PER_DEGREE, ZAGREB

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
