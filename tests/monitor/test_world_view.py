"""A world as the page draws it."""

import msgspec

from rove.monitor.world_view import world_view
from rove.world.runs.running import Run
from rove.world.runs.scenarios import load_scenario
from tests.monitor.conftest import ENGINES, yard


def test_a_view_has_what_does_not_move() -> None:
    run = Run(yard(), is_open=True)
    view = msgspec.json.decode(msgspec.json.encode(world_view(run, "yard-1")))
    world = run.world
    assert view["run"] == "yard-1"
    assert view["entities"]["names"] == world.entities.names
    kinds = {view["entities"]["kind_names"][kind] for kind in view["entities"]["kinds"]}
    assert kinds == {"player", "item", "sensor"}
    assert view["clients"] == {"avatars": list(range(20)), "reach": [30.0, 20.0]}
    assert [one["name"] for one in view["engines"]] == list(ENGINES)
    assert [one["name"] for one in view["engines"] if one["live"]] == ["object"]
    assert {one["name"]: one["lag_s"] for one in view["engines"]}["evolving-pes"] == 0.5
    area = sum((r["x1"] - r["x0"]) * (r["y1"] - r["y0"]) for r in view["regions"])
    assert len(view["regions"]) == 4
    assert round(area) == round(world.map.width * world.map.height)
    assert all(len(tile) == 6 for tile in view["map"]["tiles"])
    assert len(view["map"]["tiles"]) == len(world.tiles)


def test_roads_are_lanes_and_a_world_may_have_no_engines() -> None:
    view = world_view(Run(load_scenario("air").sized(players=3), is_open=True), "air-1")
    assert view["engines"] == []
    assert view["map"]["roads"]
    assert all(len(road["points"]) == 2 for road in view["map"]["roads"])
