"""A world as a picture: walls, tiles, entities, and the areas of interest of clients.

Areas of interest are drawn as the live engine has them in its publish/subscribe system, not as they
should be: rectangles of an area-based engine where they were placed (or where they have evolved to,
with an arrow for the next seconds), the tiles of a tile-based one, the rectangles of an
object-based engine's interest management. One client is highlighted, to be followed by eye.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart; kinds of entities
also have different markers. Axes are in metres, and equal. Needs matplotlib, which is imported only
when a picture is drawn: `pip install rove[plots]`. The shipped town with 200 players takes 0.7 s.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from rove.errors import UsageError
from rove.world.engines.areas_of_interest import areas_of as rectangles_of
from rove.world.engines.areas_of_interest import tiles_of
from rove.world.map.sight import Walls
from rove.world.runs.state import Entities, EntityKind, Floats, Ints

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rove.world.map.maps import Map, Roads
    from rove.world.map.tiles import Tiles
    from rove.world.runs.scenario_run import ScenarioRun

_LONGER_SIDE_INCHES: Final = 9.0
_SHORTER_SIDE_INCHES_MIN: Final = 3.5
_LEGEND_INCHES: Final = 2.6
_DOTS_PER_INCH: Final = 110
_WALL: Final = "#5A5A5A"
_TILE: Final = "#C8C8C8"
_ROAD: Final = "#EFE6C8"
_AREA: Final = "#56B4E9"
_CHOSEN: Final = "#D55E00"
_TILES_MAX: Final = 30_000
"""More triangles than this are a grey haze and are left out."""


class Marker(NamedTuple):
    """How a kind of entity is drawn."""

    label: str
    shape: str
    colour: str
    size: float


_MARKERS: Final = {
    EntityKind.ITEM: Marker("items", "D", "#E69F00", 14),
    EntityKind.SENSOR: Marker("sensors", "P", "#CC79A7", 22),
    EntityKind.VEHICLE: Marker("vehicles", "s", "#000000", 12),
    EntityKind.NPC: Marker("NPCs", "^", "#009E73", 20),
    EntityKind.PLAYER: Marker("players", "o", "#0072B2", 20),
}


class DrawnAreas(NamedTuple):
    """What clients listen to: rectangles, tiles, or both, and those of one client apart."""

    x: Floats
    y: Floats
    """The centre of each rectangle now."""
    reach_x: Floats
    reach_y: Floats
    vx: Floats
    vy: Floats
    """Metres a second, of those that evolve; otherwise 0."""
    tiles: Ints
    """Tiles to which somebody is subscribed, each once."""
    chosen: int
    """The rectangle of the client that is picked out, or -1."""
    chosen_tiles: Ints


def draw_map(map_: Map, tiles: Tiles, path: Path) -> None:
    """Write a PNG file of a map with nobody on it."""
    figure, axes = _canvas(map_)
    _draw_ground(axes, map_, tiles)
    axes.set_title(f"{map_.name}: {len(tiles):,} tiles", loc="left")
    _finish(figure, axes, path)


def draw_world(run: ScenarioRun, path: Path) -> None:
    """Write a PNG file of a world as it is now."""
    world = run.world
    figure, axes = _canvas(world.map)
    _draw_ground(axes, world.map, world.tiles)
    said = f"{run.scenario.name} at {world.at:g} s, seed {run.scenario.seed}"
    if run.live:
        said += f"; areas of interest as the {run.live} engine has them"
        _draw_areas(axes, areas_of(run), world.tiles)
        _draw_sight(axes, run)
    _draw_entities(axes, world.entities)
    axes.set_title(said, loc="left")
    _finish(figure, axes, path)


# --- areas of interest ----------------------------------------------------------------------------


def areas_of(run: ScenarioRun) -> DrawnAreas:
    """What clients listen to by the subscriptions of the live engine."""
    bus, none = run.buses[run.live], np.empty(0, np.int32)
    found = rectangles_of(run.live, bus, run.world)
    x, y, reach_x, reach_y, vx, vy = found.rectangles.T
    if run.live == "object":
        # They move with the client, and no subscription does.
        vx, vy = np.zeros(len(x)), np.zeros(len(x))
    if run.live != "tile":
        return DrawnAreas(x, y, reach_x, reach_y, vx, vy, none, 0 if len(x) else -1, none)
    tiles, clients = tiles_of(bus)
    return DrawnAreas(x, y, reach_x, reach_y, vx, vy, np.unique(tiles), -1, tiles[clients == 0])


# --- the ground -----------------------------------------------------------------------------------


def _canvas(map_: Map) -> tuple[Figure, Axes]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(
            f"pictures need matplotlib ({error}); install it with `pip install rove[plots]`"
        ) from None
    scale = _LONGER_SIDE_INCHES / max(map_.width, map_.height)
    width = max(map_.width * scale, _SHORTER_SIDE_INCHES_MIN) + _LEGEND_INCHES
    height = max(map_.height * scale, _SHORTER_SIDE_INCHES_MIN)
    figure = Figure(
        figsize=(width, height), dpi=_DOTS_PER_INCH, layout="constrained", facecolor="white"
    )
    axes = figure.add_subplot(aspect="equal", facecolor="white")
    axes.set_xlim(0, map_.width)
    axes.set_ylim(0, map_.height)
    axes.set_xlabel("x, metres")
    axes.set_ylabel("y, metres")
    return figure, axes


def _finish(figure: Figure, axes: Axes, path: Path) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    figure.savefig(path, format="png")


def _draw_ground(axes: Axes, map_: Map, tiles: Tiles) -> None:
    from matplotlib.collections import LineCollection, PolyCollection

    if map_.roads is not None:
        _draw_roads(axes, map_.roads)
    if len(tiles) <= _TILES_MAX:
        sides = tiles.triangles[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2, 2)
        axes.add_collection(
            LineCollection(_list(sides), colors=_TILE, linewidths=0.4, zorder=1, label="tiles")
        )
    if map_.obstacles:
        walls = [np.array(each) for each in map_.obstacles]
        axes.add_collection(PolyCollection(walls, facecolors=_WALL, zorder=2, label="walls"))
    for name, (x, y) in map_.places.items():
        axes.annotate(name, (x, y), color="#333333", fontsize=8, ha="center", va="center", zorder=7)


def _draw_roads(axes: Axes, roads: Roads) -> None:
    from matplotlib.collections import LineCollection

    nodes = np.array(roads.nodes)
    ends = np.array([(lane.from_node, lane.to_node) for lane in roads.lanes])
    lanes = LineCollection(_list(nodes[ends]), colors=_ROAD, linewidths=5, zorder=0, label="roads")
    axes.add_collection(lanes)
    for label, marker, points in (
        ("lights", "X", [roads.nodes[light.node] for light in roads.lights]),
        ("cameras", "v", [(camera.x, camera.y) for camera in roads.cameras]),
    ):
        if points:
            x, y = np.array(points).T
            axes.scatter(x, y, s=16, marker=marker, color="#8C6D1F", zorder=3, label=label)


# --- what is on it --------------------------------------------------------------------------------


def _draw_entities(axes: Axes, entities: Entities) -> None:
    for kind, marker in _MARKERS.items():
        those = np.flatnonzero(entities.kind == kind)
        if not len(those):
            continue
        axes.scatter(
            entities.x[those],
            entities.y[those],
            s=marker.size,
            marker=marker.shape,
            color=marker.colour,
            edgecolors="white",
            linewidths=0.4,
            zorder=6,
            label=f"{len(those):,} {marker.label}",
        )


def _draw_areas(axes: Axes, areas: DrawnAreas, tiles: Tiles) -> None:
    from matplotlib.collections import PolyCollection

    if len(areas.tiles):
        _fill(axes, tiles.triangles[areas.tiles], _AREA, 0.18, "tiles listened to")
    if len(areas.chosen_tiles):
        _fill(axes, tiles.triangles[areas.chosen_tiles], _CHOSEN, 0.35, "tiles of one client")
    if not len(areas.x):
        return
    corners = _corners(areas)
    others = np.arange(len(corners)) != areas.chosen
    axes.add_collection(
        PolyCollection(
            _list(corners[others]),
            facecolors=(*_rgb(_AREA), 0.05),
            edgecolors=(*_rgb(_AREA), 0.7),
            linewidths=0.6,
            zorder=4,
            label="areas of interest",
        )
    )
    if areas.chosen >= 0:
        _fill(axes, corners[[areas.chosen]], _CHOSEN, 0.25, "area of one client")
    _draw_arrows(axes, areas)


def _draw_sight(axes: Axes, run: ScenarioRun) -> None:
    """Lines from the client that is picked out to what it has and no wall hides."""
    from matplotlib.collections import LineCollection

    if run.ensemble is None or not len(run.world.clients.avatar):
        return
    seen = run.ensemble.in_sight(Walls(run.world.map)).of(0)
    avatar = run.world.clients.avatar[0]
    begin = run.world.entities.x[avatar], run.world.entities.y[avatar]
    lines = [(begin, end) for end in zip(seen.x, seen.y, strict=True)]
    if lines:
        axes.add_collection(
            LineCollection(lines, colors=_CHOSEN, linewidths=0.8, zorder=5, label="in its sight")
        )


def _draw_arrows(axes: Axes, areas: DrawnAreas) -> None:
    """Where areas that evolve go in the next five seconds."""
    moving = np.flatnonzero((areas.vx != 0) | (areas.vy != 0))
    if not len(moving):
        return
    axes.quiver(
        areas.x[moving],
        areas.y[moving],
        areas.vx[moving] * 5.0,
        areas.vy[moving] * 5.0,
        angles="xy",
        scale_units="xy",
        scale=1.0,
        color=_CHOSEN,
        width=0.0025,
        zorder=5,
        label="evolving: the next 5 s",
    )


def _corners(areas: DrawnAreas) -> Floats:
    """(n, 4, 2)."""
    left, right = areas.x - areas.reach_x, areas.x + areas.reach_x
    low, high = areas.y - areas.reach_y, areas.y + areas.reach_y
    pairs = [(left, low), (right, low), (right, high), (left, high)]
    return np.stack([np.stack(pair, axis=1) for pair in pairs], axis=1)


def _fill(axes: Axes, polygons: Floats, colour: str, strength: float, label: str) -> None:
    from matplotlib.collections import PolyCollection

    axes.add_collection(
        PolyCollection(
            _list(polygons),
            facecolors=(*_rgb(colour), strength),
            edgecolors=(*_rgb(colour), min(1.0, 2 * strength)),
            linewidths=0.8,
            zorder=4,
            label=label,
        )
    )


def _rgb(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return red, green, blue


def _list(polygons: Floats) -> Any:
    return list(polygons)
