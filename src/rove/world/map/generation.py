"""Maps out of nothing but a size and a random generator, as large as an experiment needs.

    plain   open ground, five places
    town    blocks of houses with streets between, some blocks are squares: places to gather
    maze    one way between any two points, and many dead ends
    city    streets in a grid, with lanes, lights, detectors and cameras; houses between them

Coordinates are whole decimetres, so that files are short and walls are straight to the last bit.
What is drawn depends on the generator and the arguments only. 5 km x 5 km of town (4,600 houses)
take 0.6 s, most of it for checking; to cut it into `Tiles` takes 2 s.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np

from rove.world.map.maps import Camera, Detector, Lane, Light, Map, Phase, Point, Roads
from rove.world.runs.state import Flags, Floats, WorldError

_SIZE_MIN_M: Final = 40.0


class Rectangle(NamedTuple):
    """A rectangle of ground."""

    left: float
    bottom: float
    right: float
    top: float

    def corners(self) -> tuple[Point, ...]:
        return (
            (self.left, self.bottom),
            (self.right, self.bottom),
            (self.right, self.top),
            (self.left, self.top),
        )


def generate(
    kind: str,
    rng: np.random.Generator,
    width: float,
    height: float,
    *,
    name: str | None = None,
    block_m: float | None = None,
    street_m: float | None = None,
) -> Map:
    """A new map of a kind.

    `block_m` is how far it is from street to street, `street_m` how wide they are; in a maze these
    are its corridors. What is not given is as `MAP_KINDS` has it.
    """
    if kind not in MAP_KINDS:
        raise WorldError(f"there is no kind of map {kind}; choose from {', '.join(MAP_KINDS)}")
    usual = MAP_KINDS[kind]
    for key, value in (("width", width), ("height", height)):
        if not _SIZE_MIN_M <= value < np.inf:
            raise WorldError(f"{key} = {value}: a map is generated from {_SIZE_MIN_M:g} m on")
    if block_m is None:
        block_m = max(usual.block_m, max(width, height) / usual.blocks_along_max)
    if street_m is None:
        street_m = usual.street_m * block_m / usual.block_m
    plan = _Plan(width, height, block_m, street_m)
    _check(plan, usual)
    return usual.make(kind if name is None else name, rng, plan)


class _Plan(NamedTuple):
    """What a kind has to go by."""

    width: float
    height: float
    block_m: float
    street_m: float

    def lines(self, length: float) -> Floats:
        """Where blocks begin and end along a side of the map, evenly, near the wanted size."""
        lines = _rounded(np.linspace(0.0, length, max(1, round(length / self.block_m)) + 1))
        lines[-1] = length
        return lines

    def spacing_m(self) -> float:
        """From street to street, where they are nearest."""
        lines = (self.lines(self.width), self.lines(self.height))
        return float(min(np.diff(each).min() for each in lines))


class MapKind(NamedTuple):
    """How maps of a kind are made, and what they have when nothing else is asked for."""

    make: Callable[[str, np.random.Generator, _Plan], Map]
    block_m: float
    street_m: float
    between_m_min: float
    """What streets have to leave of a block."""
    blocks_along_max: float = np.inf
    """A large map has larger blocks rather than more than these along a side."""


def _check(plan: _Plan, kind: MapKind) -> None:
    if not 2 <= plan.block_m < np.inf:
        raise WorldError(f"block_m = {plan.block_m}: blocks are 2 m or more")
    street_m_max = plan.spacing_m() - kind.between_m_min
    if not 1 <= plan.street_m <= street_m_max:
        raise WorldError(
            f"street_m = {plan.street_m}: streets take from 1 m to {street_m_max:g} m"
            f" where they are {plan.spacing_m():g} m apart"
        )


def _rounded(values: Floats) -> Floats:
    rounded: Floats = np.round(values, 1)
    return rounded


# -- plain --------------------------------------------------------------------------------


def _plain(name: str, rng: np.random.Generator, plan: _Plan) -> Map:
    return Map(name, plan.width, plan.height, places=_compass(plan))


def _compass(plan: _Plan) -> dict[str, Point]:
    middle_x, middle_y = plan.width / 2, plan.height / 2
    away_x, away_y = 0.45 * plan.width, 0.45 * plan.height
    return {
        "middle": (middle_x, middle_y),
        "north": (middle_x, middle_y + away_y),
        "east": (middle_x + away_x, middle_y),
        "south": (middle_x, middle_y - away_y),
        "west": (middle_x - away_x, middle_y),
    }


# -- houses ---------------------------------------------------------------------------------


def _blocks(plan: _Plan, edge_m: float) -> Iterator[Rectangle]:
    """The ground between streets, row by row; `edge_m` is kept free around each."""
    across, up = plan.lines(plan.width).tolist(), plan.lines(plan.height).tolist()
    for bottom, top in itertools.pairwise(up):
        for left, right in itertools.pairwise(across):
            yield Rectangle(left + edge_m, bottom + edge_m, right - edge_m, top - edge_m)


def _houses(rng: np.random.Generator, block: Rectangle) -> Iterator[tuple[Point, ...]]:
    """One, two or four houses in a block, some of them with a corner taken out."""
    width, height = block.right - block.left, block.top - block.bottom
    columns, rows = ((1, 1), (1, 1), (1, 2), (2, 1), (2, 2))[rng.integers(5)]
    for row in range(rows):
        for column in range(columns):
            draws = rng.uniform(0.04, 0.2, 4)
            house = Rectangle(
                block.left + width * (column + draws[0]) / columns,
                block.bottom + height * (row + draws[1]) / rows,
                block.left + width * (column + 1 - draws[2]) / columns,
                block.bottom + height * (row + 1 - draws[3]) / rows,
            )
            yield _house(rng, Rectangle(*_rounded(np.array(house)).tolist()))


def _house(rng: np.random.Generator, box: Rectangle) -> tuple[Point, ...]:
    corners = box.corners()
    if rng.random() < 0.7:
        return corners
    share_x, share_y = rng.uniform(0.3, 0.7, 2)
    middle_x = float(np.round(box.left + share_x * (box.right - box.left), 1))
    middle_y = float(np.round(box.bottom + share_y * (box.top - box.bottom), 1))
    lost = int(rng.integers(4))
    before, after = corners[lost - 1], corners[(lost + 1) % 4]
    if lost % 2:  # the sides that meet here run along x, then along y
        bend = ((middle_x, before[1]), (middle_x, middle_y), (after[0], middle_y))
    else:
        bend = ((before[0], middle_y), (middle_x, middle_y), (middle_x, after[1]))
    return (*corners[:lost], *bend, *corners[lost + 1 :])


# -- town ---------------------------------------------------------------------------------


def _town(name: str, rng: np.random.Generator, plan: _Plan) -> Map:
    obstacles: list[tuple[Point, ...]] = []
    places: dict[str, Point] = {}
    for block in _blocks(plan, plan.street_m / 2):
        if rng.random() < 0.08:
            centre = np.array([block.left + block.right, block.bottom + block.top]) / 2
            x, y = _rounded(centre).tolist()
            places[_square_name(len(places))] = (x, y)
        else:
            obstacles.extend(_houses(rng, block))
    places["gate"] = (plan.street_m / 4, plan.street_m / 4)
    return Map(name, plan.width, plan.height, tuple(obstacles), places)


def _square_name(number: int) -> str:
    names = ("market", "well", "church", "green", "fair", "fountain")
    return names[number] if number < len(names) else f"square{number + 1}"


# -- maze ---------------------------------------------------------------------------------


def _maze(name: str, rng: np.random.Generator, plan: _Plan) -> Map:
    """Cells in a grid; walls fall along a random tree, so each cell is reached in one way."""
    across, up = plan.lines(plan.width), plan.lines(plan.height)
    columns, rows = len(across) - 1, len(up) - 1
    is_open_right = np.zeros((rows, columns), bool)
    is_open_up = np.zeros((rows, columns), bool)
    for (row, column), (next_row, next_column) in _tree_steps(rng, rows, columns):
        if row == next_row:
            is_open_right[row, min(column, next_column)] = True
        else:
            is_open_up[min(row, next_row), column] = True
    half = (plan.spacing_m() - plan.street_m) / 2
    walls = [*_runs(~is_open_up[:-1], across, up[1:-1], half)]
    upright = _runs(~is_open_right[:, :-1].T, up, across[1:-1], half)
    walls += [Rectangle(box.bottom, box.left, box.top, box.right) for box in upright]
    first = (float(across[1]) / 2, float(up[1]) / 2)
    places = {"entrance": first, "exit": (plan.width - first[0], plan.height - first[1])}
    return Map(name, plan.width, plan.height, tuple(wall.corners() for wall in walls), places)


def _tree_steps(
    rng: np.random.Generator, rows: int, columns: int
) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """From a cell to a new one beside it, until all are reached: back only from dead ends."""
    seen = np.zeros((rows, columns), bool)
    seen[0, 0] = True
    trail = [(0, 0)]
    while trail:
        row, column = trail[-1]
        beside = [(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)]
        new = [(r, c) for r, c in beside if 0 <= r < rows and 0 <= c < columns and not seen[r, c]]
        if not new:
            trail.pop()
            continue
        chosen = new[int(rng.integers(len(new)))]
        seen[chosen] = True
        yield (row, column), chosen
        trail.append(chosen)


def _runs(is_wall: Flags, along: Floats, at: Floats, half: float) -> Iterator[Rectangle]:
    """Walls that lie in one line and touch, as one: from cell border to cell border."""
    for line, walls in zip(at.tolist(), is_wall.tolist(), strict=True):
        first = None
        for place, is_there in enumerate([*walls, False]):
            if is_there and first is None:
                first = place
            elif not is_there and first is not None:
                # Half a thickness more closes the corner with a wall that comes from the side.
                start, end = along[first] - half, along[place] + half
                left, bottom, right, top = _rounded(
                    np.array([start, line - half, end, line + half])
                ).tolist()
                yield Rectangle(
                    max(left, along[0].item()), bottom, min(right, along[-1].item()), top
                )
                first = None


# -- city ---------------------------------------------------------------------------------

_SPEED_LIMIT: Final = 13.9
_GREEN_S: Final = 25.0
_CLEARING_S: Final = 4.0
_DETECTOR_BEFORE_M: Final = 30.0
_CAMERA_REACH_M: Final = 60.0
_CAMERA_EVERY: Final = 4


def _city(name: str, rng: np.random.Generator, plan: _Plan) -> Map:
    obstacles = [
        house for block in _blocks(plan, plan.street_m / 2) for house in _houses(rng, block)
    ]
    roads = _street_grid(rng, plan)
    crossings = np.array(roads.nodes)
    places = {
        place: roads.nodes[int(np.argmin(np.hypot(*(crossings - point).T)))]
        for place, point in _compass(plan).items()
    }
    return Map(name, plan.width, plan.height, tuple(obstacles), places, roads)


def _street_grid(rng: np.random.Generator, plan: _Plan) -> Roads:
    """Streets between the blocks, both ways; lights where they cross."""
    across = _streets(plan.lines(plan.width).tolist(), plan.street_m)
    up = _streets(plan.lines(plan.height).tolist(), plan.street_m)
    nodes = tuple((x, y) for y in up for x in across)
    columns = len(across)
    lanes: list[Lane] = []
    for node in range(len(nodes)):
        beside = [node + 1] if (node + 1) % columns else []
        beside += [node + columns] if node + columns < len(nodes) else []
        for other in beside:
            lanes += [Lane(node, other, _SPEED_LIMIT), Lane(other, node, _SPEED_LIMIT)]
    arriving: list[list[int]] = [[] for _ in nodes]
    for number, lane in enumerate(lanes):
        arriving[lane.to_node].append(number)
    crossings = [node for node in range(len(nodes)) if len(arriving[node]) >= 3]
    roads = Roads(nodes, tuple(lanes))
    return Roads(
        nodes,
        tuple(lanes),
        tuple(_light(rng, roads, node, arriving[node]) for node in crossings),
        tuple(_detector(roads, lane) for node in crossings for lane in arriving[node]),
        tuple(_camera(nodes, node) for node in crossings[::_CAMERA_EVERY]),
    )


def _streets(lines: list[float], street_m: float) -> list[float]:
    """Where streets run: between blocks, and inside the border of the map."""
    first, last = lines[0] + street_m / 4, lines[-1] - street_m / 4
    return [float(line) for line in _rounded(np.array([first, *lines[1:-1], last]))]


def _light(rng: np.random.Generator, roads: Roads, node: int, arriving: list[int]) -> Light:
    """Green along the one street, then along the other, and time to clear between."""
    is_level = {
        lane: roads.nodes[roads.lanes[lane].from_node][1] == roads.nodes[node][1]
        for lane in arriving
    }
    level = tuple(lane for lane in arriving if is_level[lane])
    upright = tuple(lane for lane in arriving if not is_level[lane])
    phases = (
        Phase(_GREEN_S, level),
        Phase(_CLEARING_S),
        Phase(_GREEN_S, upright),
        Phase(_CLEARING_S),
    )
    return Light(node, phases, offset_s=float(rng.integers(round(2 * (_GREEN_S + _CLEARING_S)))))


def _detector(roads: Roads, lane: int) -> Detector:
    length_m = roads.lane_length_m(lane)
    at_m = max(length_m / 2, length_m - _DETECTOR_BEFORE_M)
    return Detector(f"loop{lane}", lane, float(np.round(at_m, 1)))


def _camera(nodes: tuple[Point, ...], node: int) -> Camera:
    return Camera(f"camera{node}", *nodes[node], _CAMERA_REACH_M)


MAP_KINDS: Final = {
    "plain": MapKind(_plain, block_m=100.0, street_m=10.0, between_m_min=0.0),
    "town": MapKind(_town, block_m=100.0, street_m=14.0, between_m_min=5.0),
    "maze": MapKind(_maze, block_m=12.0, street_m=10.0, between_m_min=0.4, blocks_along_max=64),
    "city": MapKind(_city, block_m=200.0, street_m=24.0, between_m_min=5.0),
}
