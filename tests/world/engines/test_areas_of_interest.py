"""What clients listen to, as the bus of each engine believes it."""

import numpy as np
import pytest

from rove.world.engines.area_engine import UPDATE
from rove.world.engines.areas_of_interest import areas_of, listening_of, tiles_of
from rove.world.runs.scenario_run import ScenarioRun
from rove.world.runs.scenarios import EngineSettings, MapSettings, PeopleSettings, Scenario

ENGINES = ("object", "tile", "area", "evolving", "evolving-pes", "evolving-lees", "evolving-clees")


@pytest.fixture(scope="module")
def run() -> ScenarioRun:
    """Some who walk straight on for a long time."""
    scenario = Scenario(
        title="t",
        about="a",
        map=MapSettings(generate="plain", width=2_000.0, height=2_000.0),
        people=PeopleSettings(players=30, behaviour="travel", speed=5.0),
        engines=EngineSettings(use=ENGINES, lag_s=0.5),
        name="listening",
    ).sized()
    made = ScenarioRun(scenario, is_open=True)
    for _ in range(73):
        made.step()
    return made


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "tile"])
def test_what_is_seen_lies_in_what_is_believed(run: ScenarioRun, engine: str) -> None:
    areas = areas_of(engine, run.buses[engine], run.world)
    assert areas.client.tolist() == list(range(30))
    of = run.world.entities
    x, y, reach_x, reach_y, *_ = areas.rectangles.T
    assert (np.abs(of.x[:30] - x) <= reach_x - 30.0 + 1e-6).all()
    assert (np.abs(of.y[:30] - y) <= reach_y - 20.0 + 1e-6).all()


def test_designs_that_lag_stand_still_between_their_steps(run: ScenarioRun) -> None:
    seen: dict[str, list[np.ndarray]] = {}
    for _ in range(10):
        run.step()
        for engine in ("evolving", "evolving-pes", "evolving-clees"):
            areas = areas_of(engine, run.buses[engine], run.world)
            seen.setdefault(engine, []).append(areas.rectangles)
    exact, pes, clees = (np.array(each)[:, :, 0] for each in seen.values())
    # The longest straight walk: a step of PES and CLEES is half a second, five ticks, or more.
    moved = {name: (np.diff(each, axis=0) != 0).sum() for name, each in zip(
        ("exact", "pes", "clees"), (exact, pes, clees), strict=True
    )}  # fmt: skip
    assert moved["exact"] > 0.9 * exact[1:].size
    assert moved["pes"] < 0.4 * exact[1:].size
    assert moved["clees"] < 0.4 * exact[1:].size
    assert (np.array(seen["evolving-pes"])[:, :, 4:] == 0).all()
    assert (np.array(seen["evolving-clees"])[:, :, 4:] == 0).all()
    lag_m = np.abs(exact - pes).max()
    assert 0.5 < lag_m <= 5.0 * 0.6


def test_to_look_changes_nothing(run: ScenarioRun) -> None:
    for engine in ENGINES[2:]:
        bus = run.buses[engine]
        first, second = bus.believed(UPDATE), bus.believed(UPDATE)
        assert all(str(one) == str(other) for one, other in zip(first, second, strict=True))


def test_tiles_and_topics_of_one_client(run: ScenarioRun) -> None:
    tile, nothing = run.buses["tile"], run.buses["object"]
    tiles, clients = tiles_of(tile)
    found = listening_of("tile", tile, run.world, 3)
    assert set(found.tiles.tolist()) == set(tiles[clients == 3].tolist())
    own = int(run.world.entities.tile[3])
    assert own in found.tiles
    assert len(found.rectangles) == 0
    assert len(areas_of("tile", tile, run.world).client) == 0
    seen = listening_of("object", nothing, run.world, 3)
    of = run.world.entities
    near = np.flatnonzero((np.abs(of.x - of.x[3]) < 25) & (np.abs(of.y - of.y[3]) < 15))
    assert set(near.tolist()) - {3} <= set(seen.objects.tolist())
