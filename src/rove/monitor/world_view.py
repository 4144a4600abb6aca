"""A world as the page draws it: the map and who is on it, once for each run, as JSON.

Coordinates are metres, rounded to centimetres: nobody sees more, and half of the bytes are digits.
More than 30,000 tiles are a grey haze in any picture and are left out. The shipped town with 200
players makes 87 KB, the open plain with its 8,000 tiles 361; compressed 22 and 55.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from rove.world.engines.registry import Engine
from rove.world.map.maps import Map, Roads
from rove.world.map.tiles import Tiles
from rove.world.runs.running import Run
from rove.world.runs.state import EntityKind, Floats

TILES_MAX: Final = 30_000
LANE_M: Final = 3.0
"""How wide a lane is drawn; maps say nothing of it."""


def world_view(run: Run, name: str) -> dict[str, Any]:
    """Everything of a run that does not move."""
    world, scenario = run.world, run.scenario
    regions = world.regions
    return {
        "run": name,
        "scenario": scenario.name,
        "title": scenario.title,
        "about": scenario.about,
        "seed": scenario.seed,
        "seconds": scenario.seconds,
        "tick_s": world.tick_s,
        "map": _map_view(world.map, world.tiles),
        "regions": [
            dict(zip(("server", "x0", "y0", "x1", "y1"), (n, *regions.rectangle(n)), strict=True))
            for n in range(regions.count)
        ],
        "entities": {
            "names": world.entities.names,
            "kinds": world.entities.kind.tolist(),
            "kind_names": [kind.name.lower() for kind in EntityKind],
        },
        "clients": {
            "avatars": world.clients.avatar.tolist(),
            "reach": [world.clients.reach_x, world.clients.reach_y],
        },
        "engines": [_engine_view(one, run) for one in _engines(run)],
    }


def _engines(run: Run) -> Iterable[Engine]:
    return run.ensemble.engines if run.ensemble is not None else ()


def _engine_view(engine: Engine, run: Run) -> dict[str, Any]:
    chosen = run.scenario.engines
    lag_s = chosen.lag_s if engine.name in ("evolving-pes", "evolving-clees") else None
    return {
        "name": engine.name,
        "delay_s": engine.delay_ticks * run.world.tick_s,
        "live": engine.name == run.live,
        "design": engine.name.partition("-")[2] or engine.name,
        "lag_s": lag_s,
    }


def _map_view(map_: Map, tiles: Tiles) -> dict[str, Any]:
    is_few = len(tiles) <= TILES_MAX
    return {
        "name": map_.name,
        "width": map_.width,
        "height": map_.height,
        "walls": [_rounded(np.array(wall)) for wall in map_.obstacles],
        "roads": [] if map_.roads is None else _roads_view(map_.roads),
        "places": {name: [float(x), float(y)] for name, (x, y) in map_.places.items()},
        "tiles": _rounded(tiles.triangles.reshape(-1, 6)) if is_few else [],
    }


def _roads_view(roads: Roads) -> list[dict[str, Any]]:
    return [
        {"points": [roads.nodes[lane.from_node], roads.nodes[lane.to_node]], "width": LANE_M}
        for lane in roads.lanes
    ]


def _rounded(points: Floats) -> Any:
    return points.round(2).tolist()
