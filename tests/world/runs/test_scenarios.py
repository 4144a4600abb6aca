"""Scenario files: the shipped ones can be read, and what is wrong in one is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from rove.world.map.maps import load_map, map_text
from rove.world.runs.scenarios import (
    ScenarioError,
    generate_map,
    load_scenario,
    make_map,
    shipped_scenarios,
)
from rove.world.runs.state import WorldError

GOOD = """
title = "A test"
about = "Nothing else."
[map]
name = "arena"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(written(folder, text))
    said = str(caught.value)
    assert str(folder / "mine.toml") in said
    assert "\n" not in said
    return said


def test_what_is_shipped() -> None:
    assert shipped_scenarios() == [
        "air", "border", "crowd", "dense", "intensive-care", "rush-hour", "sparse", "travel",
        "ward",
    ]  # fmt: skip
    for name in shipped_scenarios():
        scenario = load_scenario(name)
        assert scenario.name == name
        assert make_map(scenario).width > 0


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    text = GOOD + '[people]\nplayers = 5\nreach = [10, 5]\n[[commands]]\nat = 2\ndo = "stop *"\n'
    scenario = load_scenario(written(tmp_path, text))
    assert scenario.name == "mine"
    assert scenario.people.players == 5
    assert scenario.people.reach == (10.0, 5.0)
    assert [(said.at, said.do) for said in scenario.commands] == [(2.0, "stop *")]


def test_a_map_beside_the_scenario_is_found(tmp_path: Path) -> None:
    (tmp_path / "yard.toml").write_text(map_text(load_map("arena")))
    path = written(tmp_path, GOOD.replace("arena", "yard.toml"))
    assert make_map(load_scenario(path)).obstacles == load_map("arena").obstacles


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("[people]\nplayer = 5", "there is no key `people.player`; did you mean `players`?"),
        ("[people]\nplayers = -5", "`people.players` is -5: expected `int` >= 0"),
        ("[people]\nreach = [1]", "`people.reach` is [1]: expected `array` of length 2"),
        ('[people]\nbehaviour = "fly"', "there is no behaviour fly; known are "),
        ("[people.parameters]\nrange_m = 'far'", "behaviour wander: Expected `float`, got `str`"),
        ('[[commands]]\nat = 1\ndo = "gahter 5 at 1 2"', "`commands[0].do` is 'gahter 5 at 1 2'"),
        ('[[commands]]\nat = 1\ndo = "gahter 5 at 1 2"', "did you mean gather"),
        ('[engines]\nuse = ["cable"]', "there is no engine cable; there are object, tile"),
        ('[engines]\nuse = ["tile", "tile"]', "engine tile is named twice"),
        ('[engines]\nuse = ["tile"]\nlive = "area"', "one of those that run (tile), not area"),
    ],
)
def test_what_is_wrong_is_told(change: str, told: str, tmp_path: Path) -> None:
    assert told in refusal(tmp_path, GOOD + change)


@pytest.mark.parametrize(
    ("map_", "told"),
    [
        ("[map]", "either `name`, of a map, or `generate`, a kind of map"),
        ('[map]\nname = "arena"\ngenerate = "town"', "either `name`"),
        ('[map]\ngenerate = "sea"', "`map.generate` is 'sea': there are "),
        ('[map]\ngenerate = "town"\nwidth = 0', "`map.width` is 0: expected `float` > 0"),
    ],
)
def test_a_map_is_named_or_generated(map_: str, told: str, tmp_path: Path) -> None:
    assert told in refusal(tmp_path, f'title = "A"\nabout = "B"\n{map_}\n')


def test_the_name_is_that_of_the_file(tmp_path: Path) -> None:
    assert "it is the file's" in refusal(tmp_path, f'name = "x"\n{GOOD}')


def test_a_scenario_that_there_is_not() -> None:
    with pytest.raises(ScenarioError, match="no scenario and no file is called dens; shipped are"):
        load_scenario("dens")


def test_sizes_of_the_command_line(tmp_path: Path) -> None:
    scenario = load_scenario(written(tmp_path, GOOD + '[engines]\nlive = "area"\n'))
    same = scenario.sized()
    assert same == scenario
    other = scenario.sized(players=3, seconds=7.5, seed=9, engines=["tile", "object"])
    assert (other.people.players, other.seconds, other.seed) == (3, 7.5, 9)
    # The live one does not run any more: it is the first of those that do.
    assert (other.engines.use, other.engines.live) == (("tile", "object"), "tile")
    assert scenario.sized(engines=["pes", "area"]).engines.live == "area"
    assert scenario.sized(engines=["pes"]).engines.use == ("evolving-pes",)
    assert scenario.sized(engines=[]).engines.live == ""
    assert scenario.sized(live="tile").engines.live == "tile"
    with pytest.raises(ScenarioError, match="there is no engine cable"):
        scenario.sized(engines=["cable"])
    with pytest.raises(ScenarioError, match="not tile"):
        scenario.sized(engines=["area"], live="tile")


def test_a_generated_map_grows_with_the_players(tmp_path: Path) -> None:
    text = GOOD.replace('name = "arena"', 'generate = "plain"\nwidth = 200\nm2_per_player = 500')
    scenario = load_scenario(written(tmp_path, text + "[people]\nplayers = 100\n"))
    small, large = make_map(scenario), make_map(scenario.sized(players=400))
    assert small.width * small.height == pytest.approx(50_000, rel=0.01)
    assert large.width == pytest.approx(2 * small.width, rel=0.01)
    assert small.height == pytest.approx(5 * small.width, rel=0.01)


def test_one_seed_one_map() -> None:
    assert generate_map("town", 300, 200, 4) == generate_map("town", 300, 200, 4)
    assert generate_map("town", 300, 200, 4) != generate_map("town", 300, 200, 5)
    with pytest.raises(WorldError, match="no kind of map sea"):
        generate_map("sea", 300, 200, 4)
