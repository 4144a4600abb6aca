"""Maps are read, checked and written; what is wrong is named with its file, key and value."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import shapely  # type: ignore[import-untyped]

from rove.world.map.generation import MAP_KINDS, generate
from rove.world.map.maps import (
    Camera,
    Detector,
    Lane,
    Light,
    Map,
    Phase,
    Roads,
    load_map,
    map_text,
    read_map,
    shipped_maps,
)
from rove.world.map.paths import Paths
from rove.world.map.tiles import Tiles
from rove.world.runs.state import WorldError

YARD = """
name = "yard"
width = 100
height = 80
obstacles = [
    [[20, 20], [40, 20], [40, 50]],
]

[places]
gate = [5, 40]

[roads]
nodes = [[10, 10], [90, 10]]
lanes = [{from = 0, to = 1, speed_limit = 13.9}]
lights = [{node = 1, phases = [{seconds = 30, green = [0]}, {seconds = 20, green = []}]}]
detectors = [{name = "loop1", lane = 0, at_m = 60}]
cameras = [{name = "camera1", x = 90, y = 10, reach_m = 40}]
"""


def test_a_map_is_what_its_text_says() -> None:
    assert read_map(YARD, "yard.toml") == Map(
        "yard",
        100,
        80,
        (((20, 20), (40, 20), (40, 50)),),
        {"gate": (5, 40)},
        Roads(
            ((10, 10), (90, 10)),
            (Lane(0, 1, 13.9),),
            (Light(1, (Phase(30, (0,)), Phase(20))),),
            (Detector("loop1", 0, 60),),
            (Camera("camera1", 90, 10, 40),),
        ),
    )


def test_the_example_in_the_docstring_can_be_read() -> None:
    from rove.world.map import maps

    lines = (maps.__doc__ or "").splitlines()
    example = "\n".join(line.strip() for line in lines if line.startswith("    "))
    assert read_map(example, "example") == read_map(YARD, "yard.toml")


def test_free_space_is_what_obstacles_leave() -> None:
    yard = read_map(YARD, "yard.toml")
    assert yard.walls.area == 300
    assert yard.free_space.area == 100 * 80 - 300


def test_obstacles_may_touch_and_overlap_and_stand_at_the_border() -> None:
    boxes = (
        ((0.0, 0.0), (10.0, 0.0), (10.0, 10.0), (0.0, 10.0)),
        ((10.0, 0.0), (20.0, 0.0), (20.0, 10.0), (10.0, 10.0)),
        ((15.0, 5.0), (25.0, 5.0), (25.0, 15.0), (15.0, 15.0)),
    )
    assert Map("heap", 50, 50, boxes).walls.area == 275


@pytest.mark.parametrize("name", shipped_maps())
def test_every_shipped_map_is_read_and_written_as_it_was(name: str) -> None:
    shipped = load_map(name)
    assert shipped.name == name
    assert read_map(map_text(shipped), name) == shipped


def test_the_shipped_maps_are_these() -> None:
    assert shipped_maps() == ["arena", "city", "maze", "plain", "town", "ward"]


@pytest.mark.parametrize("name", shipped_maps())
def test_every_place_of_a_shipped_map_can_be_walked_to(name: str) -> None:
    shipped = load_map(name)
    paths = Paths(Tiles(shipped))
    first, *others = shipped.places.values()
    assert others
    assert all(paths.path(*first, *other) is not None for other in others)


def test_a_map_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "yard.toml"
    file.write_text(YARD)
    assert load_map(file) == load_map(str(file)) == read_map(YARD, "yard.toml")


def test_any_name_and_any_number_survive_writing() -> None:
    rng = np.random.default_rng(5)
    corners = rng.uniform(1, 99, (20, 3, 2))
    obstacles = tuple(tuple((float(x), float(y)) for x, y in each) for each in corners)
    strange = Map('a "map"\n\\ \x7f\x01 ü', 100.1, 1e2 / 3 * 3, obstacles)
    assert read_map(map_text(strange), "strange") == strange


@pytest.mark.parametrize("kind", MAP_KINDS)
def test_every_generated_map_survives_writing(kind: str) -> None:
    made = generate(kind, np.random.default_rng(1), 333.3, 210.7)
    assert read_map(map_text(made), kind) == made


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("width = 100", 'width = "wide"', "`width` is 'wide': expected `float`, got `str`"),
        ("width = 100", "width = 0", "width = 0.0: a map has a size in metres above 0"),
        ("height = 80", "height = inf", "height = inf: a map has a size in metres above 0"),
        ("height = 80", "height = nan", "height = nan: a map has a size in metres above 0"),
        ("height = 80", "", "object missing required field `height`"),
        ("[40, 50]", "[40, 50, 0]", "`obstacles[0][2]` is [40, 50, 0]: expected"),
        ("[40, 50]", "[40, 90]", "obstacles[0] has a corner [40.0, 90.0] that is not on the map"),
        ("[40, 50]", "[40, nan]", "obstacles[0] has a corner [40.0, nan] that is not on the map"),
        (", [40, 50]", "", "obstacles[0] has 2 corners; it takes three or more"),
        ("[40, 50]", "[20, 50], [40, 50]", "obstacles[0] is no polygon: Self-intersection"),
        ("[40, 50]", "[20.001, 20.001]", "obstacles[0] is thinner than 2 mm"),
        ("gate = [5, 40]", "gate = [35, 30]", "places.gate = [35.0, 30.0] is inside an obstacle"),
        ("gate = [5, 40]", "gate = [-5, 40]", "places.gate = [-5.0, 40.0] is not on the map"),
        ("gate = [5, 40]", '"my gate" = [5, 40]', "places.my gate: a name is a small letter"),
        ("gate = [5, 40]", 'gate = "west"', "`places.gate` is 'west': expected"),
        ("gate = [5, 40]", 'gate = [5, ""]', "`places.gate[1]` is '': expected"),
        ("[90, 10]]", "[190, 10]]", "roads.nodes[1] = [190.0, 10.0] is not on the map"),
        ("to = 1", "to = 2", "roads.lanes[0].to = 2: there are 2 nodes"),
        ("to = 1", "to = 0", "roads.lanes[0] leads nowhere"),
        ("13.9", "0", "roads.lanes[0].speed_limit = 0.0: give metres a second"),
        (
            "speed_limit",
            "limit",
            "no key `roads.lanes[0].limit`; did you mean `speed_limit`?",
        ),
        ("node = 1", "node = -1", "roads.lights[0].node = -1: there are 2 nodes"),
        ("node = 1", "node = 0", "roads.lights[0].phases[0].green: lane 0 does not end at node 0"),
        ("seconds = 20", "seconds = 0", "roads.lights[0].phases[1].seconds = 0.0: a phase takes"),
        ("lane = 0", "lane = 1", "roads.detectors[0].lane = 1: there are 1 lanes"),
        ("at_m = 60", "at_m = 81", "roads.detectors[0].at_m = 81.0: its lane is 80 m long"),
        ("x = 90", "x = 101", "roads.cameras[0] at [101.0, 10.0] is not on the map"),
        ("reach_m = 40", "reach_m = 0", "roads.cameras[0].reach_m = 0.0: give metres above 0"),
        ("camera1", "loop1", "two instruments are called loop1; names are given once"),
        ("camera1", "Camera 1", "'Camera 1': a name is a small letter"),
        ('"yard"', "yard", "is not TOML: Invalid value (at line 2, column 8)"),
    ],
)
def test_what_is_wrong_is_named_with_the_file(old: str, new: str, complaint: str) -> None:
    assert old in YARD
    with pytest.raises(WorldError) as caught:
        read_map(YARD.replace(old, new, 1), "my/yard.toml")
    message = str(caught.value)
    assert message.startswith("my/yard.toml")
    assert complaint in message
    assert "\n" not in message


def test_light_without_phases_is_refused() -> None:
    roads = Roads(((0, 0), (9, 0)), (Lane(0, 1, 9),), (Light(1, ()),))
    with pytest.raises(WorldError, match=r"roads\.lights\[0\] has no phases"):
        Map("dark", 10, 10, roads=roads)


def test_a_map_without_room_is_refused() -> None:
    everywhere = ((0.0, 0.0), (10.0, 0.0), (10.0, 10.0), (0.0, 10.0))
    with pytest.raises(WorldError, match="cover all of it"):
        Map("full", 10, 10, (everywhere,))


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(WorldError, match=r"no map and no file is called nowhere; shipped are aren"):
        load_map("nowhere")
    with pytest.raises(WorldError, match=f"cannot read {tmp_path}"):
        load_map(tmp_path)
    (tmp_path / "binary").write_bytes(b"name = \xff\xfe")
    with pytest.raises(WorldError, match=r"binary is not text in UTF-8: .* at byte 7"):
        load_map(tmp_path / "binary")


def test_no_damage_to_a_file_does_more_than_a_world_error() -> None:
    """Cut anywhere, or with a byte changed, a map is read or refused, never anything else."""
    rng = np.random.default_rng(11)
    read = 0
    letters = '0123456789.-,[]{}="abn \n'
    for _ in range(1500):
        text = list(YARD)
        for place in rng.integers(len(text), size=rng.integers(1, 4)):
            text[place] = letters[rng.integers(len(letters))]
        damaged = "".join(text)[: rng.integers(len(text) // 2, 2 * len(text))]
        with contextlib.suppress(WorldError):
            found = read_map(damaged, "damaged")
            assert read_map(map_text(found), "again") == found
            read += 1
    assert 0 < read < 1500


def test_walls_of_the_city_leave_the_streets_free() -> None:
    city = load_map("city")
    roads = city.roads
    assert roads is not None
    ends = [[roads.nodes[lane.from_node], roads.nodes[lane.to_node]] for lane in roads.lanes]
    lines: Any = shapely.linestrings(np.array(ends))
    assert shapely.distance(city.walls, lines).min() > 4


def test_maps_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        load_map("plain").width = 1  # type: ignore[misc]
    assert msgspec.structs.replace(load_map("plain"), width=3000).width == 3000
