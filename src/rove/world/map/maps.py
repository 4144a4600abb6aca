"""Maps: a rectangle of ground with obstacles on it, named places, and perhaps roads.

A map is a TOML file that a person can read and write with any editor. GeoJSON and the formats of
games were considered: they say far more than a world needs (projections, layers, pictures), and
none of them says where a traffic light stands and which lanes it stops.

    name = "yard"
    width = 100                      # metres; x goes from 0 to the right, y from 0 up
    height = 80
    obstacles = [                    # polygons: corners in order, the last joins the first
        [[20, 20], [40, 20], [40, 50]],
    ]

    [places]                         # names for points, for commands and scenarios
    gate = [5, 40]

    [roads]
    nodes = [[10, 10], [90, 10]]
    lanes = [{from = 0, to = 1, speed_limit = 13.9}]      # one-way; a street is two lanes
    lights = [{node = 1, phases = [{seconds = 30, green = [0]}, {seconds = 20, green = []}]}]
    detectors = [{name = "loop1", lane = 0, at_m = 60}]
    cameras = [{name = "camera1", x = 90, y = 10, reach_m = 40}]

Obstacles may touch and overlap; they block walking and sight. Every `Map`
is checked when it is created. Reading a shipped one takes 10 to 20 ms.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import shapely  # type: ignore[import-untyped]

from rove.base.documents import decode_document, read_document
from rove.world.runs.state import WorldError

Point: TypeAlias = tuple[float, float]

GRAZE_M: Final = 0.001
"""What is nearer to a border than this is on it: positions along a slanted wall are rounded."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]*")


class Lane(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A way for vehicles, straight from one node to another; nobody drives it backwards."""

    from_node: int = msgspec.field(name="from")
    to_node: int = msgspec.field(name="to")
    speed_limit: float
    """Metres a second."""


class Phase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A time during which some of the lanes that end at a node have green, all others red."""

    seconds: float
    green: tuple[int, ...] = ()
    """Numbers of lanes; nobody while the junction is cleared."""


class Light(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The lights of a node: phases one after the other, over and over."""

    node: int
    phases: tuple[Phase, ...]
    offset_s: float = 0.0
    """How far into its phases it is when the world begins."""


class Detector(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A loop in a lane that notices who drives over it."""

    name: str
    lane: int
    at_m: float
    """From the beginning of the lane."""


class Camera(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sees the vehicles around it."""

    name: str
    x: float
    y: float
    reach_m: float


class Roads(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where vehicles drive. Nodes and lanes are known by their numbers, from 0."""

    nodes: tuple[Point, ...]
    lanes: tuple[Lane, ...]
    lights: tuple[Light, ...] = ()
    detectors: tuple[Detector, ...] = ()
    cameras: tuple[Camera, ...] = ()

    def lane_length_m(self, lane: int) -> float:
        ends = self.lanes[lane]
        return math.dist(self.nodes[ends.from_node], self.nodes[ends.to_node])


class Map(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """Ground from (0, 0) to (width, height), metres, and what stands on it."""

    name: str
    width: float
    height: float
    obstacles: tuple[tuple[Point, ...], ...] = ()
    places: dict[str, Point] = {}
    roads: Roads | None = None

    def __post_init__(self) -> None:
        for complaint in _complaints(self):
            raise WorldError(f"map {self.name}: {complaint}")

    @cached_property
    def walls(self) -> shapely.Geometry:
        """All obstacles as one geometry: those that touch are one."""
        return shapely.union_all(_polygons(self.obstacles))

    @cached_property
    def free_space(self) -> shapely.Geometry:
        """Where one can be."""
        return shapely.difference(shapely.box(0, 0, self.width, self.height), self.walls)


# -- reading ------------------------------------------------------------------------------


def shipped_maps() -> list[str]:
    """The names of the maps that come with Rove."""
    found = (Path(file.name) for file in resources.files("rove.world").joinpath("maps").iterdir())
    return sorted(file.stem for file in found if file.suffix == ".toml")


def load_map(name_or_path: str | Path) -> Map:
    """A shipped map by its name, or a map file; WorldError says what is wrong with it."""
    name = str(name_or_path)
    if name in shipped_maps():
        shipped = resources.files("rove.world").joinpath("maps", f"{name}.toml")
        return read_map(shipped.read_text(encoding="utf-8"), f"{name}.toml")
    path = Path(name_or_path)
    if not path.exists():
        names = ", ".join(shipped_maps())
        raise WorldError(f"no map and no file is called {name}; shipped are {names}")
    return read_document(path, Map, WorldError)


def read_map(text: str, where: str) -> Map:
    """The map that a text describes; `where` is the file to be named in errors."""
    return decode_document(text, Map, where, WorldError)


# -- checking -----------------------------------------------------------------------------


def _polygons(obstacles: Sequence[Sequence[Point]]) -> Any:
    corners = np.array([point for each in obstacles for point in each], float).reshape(-1, 2)
    numbers = np.repeat(np.arange(len(obstacles)), [len(each) for each in obstacles])
    return shapely.polygons(shapely.linearrings(corners, indices=numbers))


def _complaints(map_: Map) -> Iterator[str]:
    """What is wrong with a map, the first thing first: later checks rely on earlier ones."""
    for key, value in (("width", map_.width), ("height", map_.height)):
        if not 0 < value < math.inf:
            yield f"{key} = {value}: a map has a size in metres above 0"
    yield from _wrong_obstacles(map_)
    yield from _wrong_places(map_)
    if map_.roads is not None:
        yield from _wrong_roads(map_, map_.roads)


def _is_on(map_: Map, point: Point) -> bool:
    return 0 <= point[0] <= map_.width and 0 <= point[1] <= map_.height


def _wrong_obstacles(map_: Map) -> Iterator[str]:
    for number, obstacle in enumerate(map_.obstacles):
        if len(obstacle) < 3:
            yield f"obstacles[{number}] has {len(obstacle)} corners; it takes three or more"
        for point in obstacle:
            if not _is_on(map_, point):
                yield f"obstacles[{number}] has a corner {list(point)} that is not on the map"
    polygons = _polygons(map_.obstacles)
    for wrong in np.flatnonzero(~shapely.is_valid(polygons)):
        reason = shapely.is_valid_reason(polygons[wrong])
        yield f"obstacles[{wrong}] is no polygon: {reason}"
    inner = shapely.buffer(polygons, -GRAZE_M, join_style="mitre")
    for thin in np.flatnonzero(shapely.is_empty(inner)):
        yield f"obstacles[{thin}] is thinner than {2000 * GRAZE_M:g} mm; walls have two sides"
    if map_.free_space.is_empty:
        yield "obstacles cover all of it; leave room to walk"


def _wrong_places(map_: Map) -> Iterator[str]:
    for name, point in map_.places.items():
        if not _NAME.fullmatch(name):
            yield f"places.{name}: a name is a small letter, then small letters, digits, - and _"
        if not _is_on(map_, point):
            yield f"places.{name} = {list(point)} is not on the map"
        if not shapely.intersects_xy(map_.free_space, *point):
            yield f"places.{name} = {list(point)} is inside an obstacle; places can be walked to"


def _wrong_roads(map_: Map, roads: Roads) -> Iterator[str]:
    for number, point in enumerate(roads.nodes):
        if not _is_on(map_, point):
            yield f"roads.nodes[{number}] = {list(point)} is not on the map"
    for number, lane in enumerate(roads.lanes):
        for key, node in (("from", lane.from_node), ("to", lane.to_node)):
            if not 0 <= node < len(roads.nodes):
                yield f"roads.lanes[{number}].{key} = {node}: there are {len(roads.nodes)} nodes"
        if roads.lane_length_m(number) < GRAZE_M:
            yield f"roads.lanes[{number}] leads nowhere; it needs two nodes apart"
        if not 0 < lane.speed_limit < math.inf:
            yield f"roads.lanes[{number}].speed_limit = {lane.speed_limit}: give metres a second"
    for number, light in enumerate(roads.lights):
        yield from _wrong_light(roads, light, f"roads.lights[{number}]")
    yield from _wrong_instruments(map_, roads)


def _wrong_light(roads: Roads, light: Light, where: str) -> Iterator[str]:
    if not 0 <= light.node < len(roads.nodes):
        yield f"{where}.node = {light.node}: there are {len(roads.nodes)} nodes"
    if not light.phases:
        yield f"{where} has no phases; give at least one"
    if not math.isfinite(light.offset_s):
        yield f"{where}.offset_s = {light.offset_s}: give seconds"
    for number, phase in enumerate(light.phases):
        if not 0 < phase.seconds < math.inf:
            yield f"{where}.phases[{number}].seconds = {phase.seconds}: a phase takes time"
        for lane in phase.green:
            if not (0 <= lane < len(roads.lanes) and roads.lanes[lane].to_node == light.node):
                there = f"lane {lane} does not end at node {light.node}"
                yield f"{where}.phases[{number}].green: {there}"


def _wrong_instruments(map_: Map, roads: Roads) -> Iterator[str]:
    for number, detector in enumerate(roads.detectors):
        where = f"roads.detectors[{number}]"
        if not 0 <= detector.lane < len(roads.lanes):
            yield f"{where}.lane = {detector.lane}: there are {len(roads.lanes)} lanes"
        length_m = roads.lane_length_m(detector.lane)
        if not 0 <= detector.at_m <= length_m:
            yield f"{where}.at_m = {detector.at_m}: its lane is {length_m:g} m long"
    for number, camera in enumerate(roads.cameras):
        if not _is_on(map_, (camera.x, camera.y)):
            yield f"roads.cameras[{number}] at {[camera.x, camera.y]} is not on the map"
        if not 0 < camera.reach_m < math.inf:
            yield f"roads.cameras[{number}].reach_m = {camera.reach_m}: give metres above 0"
    names = [detector.name for detector in roads.detectors]
    names += [camera.name for camera in roads.cameras]
    for name in names:
        if not _NAME.fullmatch(name):
            yield f"roads: {name!r}: a name is a small letter, then small letters, digits, - and _"
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"roads: two instruments are called {name}; names are given once"


# -- writing ------------------------------------------------------------------------------


def map_text(map_: Map) -> str:
    """A map as the text of its file; reading it gives an equal map."""
    lines = [
        f"name = {_quoted(map_.name)}",
        f"width = {_number(map_.width)}",
        f"height = {_number(map_.height)}",
        *_listed("obstacles", map(_inline, map_.obstacles)),
    ]
    if map_.places:
        lines += ["", "[places]"]
        lines += [f"{name} = {_inline(point)}" for name, point in map_.places.items()]
    if map_.roads is not None:
        lines += ["", "[roads]", *_road_lines(map_.roads)]
    return "\n".join(lines) + "\n"


def _road_lines(roads: Roads) -> Iterator[str]:
    yield from _listed("nodes", map(_inline, roads.nodes))
    yield from _listed("lanes", map(_inline, roads.lanes))
    yield from _listed("lights", map(_inline, roads.lights))
    yield from _listed("detectors", map(_inline, roads.detectors))
    yield from _listed("cameras", map(_inline, roads.cameras))


def _listed(key: str, values: Iterator[str]) -> list[str]:
    lines = [f"    {value}," for value in values]
    return [f"{key} = [", *lines, "]"] if lines else [f"{key} = []"]


def _inline(value: object) -> str:
    """A value on one line."""
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(type(value))
        pairs = ((each.encode_name, getattr(value, each.name)) for each in fields)
        return "{" + ", ".join(f"{key} = {_inline(each)}" for key, each in pairs) + "}"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return _number(value) if isinstance(value, int | float) else _quoted(str(value))


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _quoted(text: str) -> str:
    """A text as TOML: its escapes are those of JSON, but for one character."""
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")
