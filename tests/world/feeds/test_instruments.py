"""What a scenario has besides people publishes, and does not disturb them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from rove.world.feeds.instruments import Instruments, audiences_of
from rove.world.map.maps import load_map
from rove.world.runs.scenario_run import ScenarioRun, run
from rove.world.runs.scenarios import Scenario, ScenarioError, load_scenario
from rove.world.runs.simulation import World
from rove.world.runs.state import EntityKind

HEAD = 'title = "T"\nabout = "For tests."\nseconds = 3\n[map]\nname = "{map}"\n'
PEOPLE = "[people]\nplayers = 6\n[engines]\nuse = []\n"
AIR = '[air]\nsensors = 2\ncarriers = "player*"\n'


def scenario_of(folder: Path, text: str, map_: str = "city") -> Scenario:
    path = folder / "small.toml"
    path.write_text(HEAD.format(map=map_) + PEOPLE + text)
    return load_scenario(path)


def world_of(scenario: Scenario) -> World:
    world = World(load_map(scenario.map.name), seed=1)
    world.populate(scenario.people.players)
    return world


def audience(text: str, **more: object) -> str:
    keys = {"name": '"a"', "topic": '"air/#"', "text": f'"{text}"', **more}
    return "[[audiences]]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items())


def test_sensors_stand_and_are_carried(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path, AIR)
    world = world_of(scenario)
    instruments = Instruments(scenario, world)
    assert int(np.sum(world.entities.kind == EntityKind.SENSOR)) == 2
    names = {feed.topic for at in range(12) for feed in instruments.feeds(at / 10)}
    assert names == {f"air/{name}" for name in world.entities.names}


def test_vehicles_drive_and_publish(tmp_path: Path) -> None:
    text = "[traffic]\nvehicles = 20\ndriving = 1\nvehicles_s = 1\n"
    scenario = scenario_of(tmp_path, text)
    world = world_of(scenario)
    instruments = Instruments(scenario, world)
    cars = np.flatnonzero(world.entities.kind == EntityKind.VEHICLE)
    assert len(cars) == 20
    before = world.entities.x[cars].copy(), world.entities.y[cars].copy()
    topics = set()
    for _ in range(30):
        changes = world.step()
        topics |= {feed.topic.split("/")[1] for feed in instruments.feeds(changes.at)}
    assert "vehicle" in topics
    assert np.any(world.entities.x[cars] != before[0]) or np.any(
        world.entities.y[cars] != before[1]
    )


def test_vehicles_need_roads(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path, "[traffic]\nvehicles = 3\n", "arena")
    with pytest.raises(ScenarioError, match="the map arena has no roads for 3 vehicles"):
        Instruments(scenario, world_of(scenario))


@pytest.mark.parametrize("map_", ["ward", "arena"])
def test_patients_lie_in_beds_where_there_are_any(map_: str, tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path, "[ward]\npatients = 5\n", map_)
    world = world_of(scenario)
    instruments = Instruments(scenario, world)
    feeds = [feed for at in range(11) for feed in instruments.feeds(at / 10)]
    lie = {(feed.attributes["x"], feed.attributes["y"]) for feed in feeds if "x" in feed.attributes}
    beds = {world.map.places.get(f"bed{number}") for number in range(1, 6)}
    assert len(lie) == 5
    assert (lie == beds) == (map_ == "ward")


def test_audiences_have_points_of_their_own_and_follow(tmp_path: Path) -> None:
    text = (
        AIR
        + audience("x < {x} AND y < {y}", count=3)
        + audience("x < me.x", follow="true", count=9)
    )
    scenario = scenario_of(tmp_path, text)
    fixed, following = audiences_of(scenario, world_of(scenario))
    # Who follows has a player each, and there are six.
    assert (len(fixed), len(following)) == (3, 6)
    heard = run(scenario).heard
    again = run(scenario).heard
    assert [sample.figures for sample in heard] == [sample.figures for sample in again]
    assert heard[-1].figures["operations"] > 6


def test_an_audience_does_not_change_the_world(tmp_path: Path) -> None:
    without = run(scenario_of(tmp_path, AIR))
    assert run(scenario_of(tmp_path, AIR + audience("NO2 > 1"))).trace_hash == without.trace_hash


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (audience("NO2 >"), "small: audience a: 'NO2 >': "),
        (audience("NO2 > 1", topic='"air/#/x"'), "is no topic filter"),
        (audience("x < t", evolve='"soon"'), "soon"),
    ],
)
def test_what_is_wrong_is_told(change: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as caught:
        run(scenario_of(tmp_path, AIR + change))
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_traffic_centre_hears_and_acts(tmp_path: Path) -> None:
    traffic = "[traffic]\nvehicles = 250\ndriving = 0.8\ncontrolled = {}\n"
    hashes = {}
    for controlled in ("true", "false"):
        scenario = scenario_of(tmp_path, traffic.format(controlled))
        scenario = msgspec.structs.replace(scenario, seconds=40.0)
        played = ScenarioRun(scenario)
        played.play()
        hashes[controlled] = played.world.hash()
        centre = played._instruments.centre
        assert (centre is not None) == (controlled == "true")
        if centre is not None:
            assert centre.commands > 0
            heard = played.result().heard[-1]
            assert (heard.source, heard.figures["notifications"] > 0) == ("traffic centre", True)
    assert hashes["true"] != hashes["false"], "lights were changed"
