"""Runs of scenarios: repeatable, exact, and with the results that they are there to show."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import numpy as np
import pytest

from rove.world.runs.scenario_run import EngineFacts, RunSample, ScenarioResult, ScenarioRun, run
from rove.world.runs.scenarios import Scenario, ScenarioError, load_scenario, shipped_scenarios
from tests.effort import is_soak, some

SMALL = """
title = "Small"
about = "For tests."
seconds = 3
sample_s = 0.5
[map]
name = "arena"
[people]
players = 12
items = 3
"""


def scenario_of(folder: Path, text: str = SMALL) -> Scenario:
    path = folder / "small.toml"
    path.write_text(text)
    return load_scenario(path)


def ordered(at: float, command: str) -> str:
    return f'{SMALL}[[commands]]\nat = {at}\ndo = "{command}"\n'


def operations(result: ScenarioResult, engine: str) -> float:
    figures = result.summary()[engine]
    return figures["subscribes"] + figures["unsubscribes"]


# --- one seed, one history ------------------------------------------------------------------------


def test_one_seed_one_result(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path)
    first = run(scenario)
    assert first == run(scenario)
    assert first.trace_hash != run(scenario, seed=2).trace_hash


def test_engines_do_not_change_the_world(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path)
    all_four = run(scenario)
    alone = run(scenario, engines=["tile"])
    assert run(scenario, engines=[]).trace_hash == alone.trace_hash == all_four.trace_hash
    assert alone.summary()["tile"] == all_four.summary()["tile"]


def test_ten_runs_one_hash() -> None:
    scenario = load_scenario("border").sized(players=20, seconds=1, engines=[])
    assert len({run(scenario).trace_hash for _ in range(10)}) == 1


@pytest.mark.parametrize("seed", some(range(4)))
@pytest.mark.parametrize("name", ["dense", "sparse", "travel", "crowd", "rush-hour"])
def test_who_is_live_changes_no_counter(name: str, seed: int) -> None:
    """Twenty scenarios and seeds: an engine counts the same live and as a dummy, all the time."""
    scenario = load_scenario(name).sized(players=25, seconds=1.5, seed=seed)
    names = scenario.engines.use
    first, last = (run(scenario, live=live) for live in (names[0], names[-1]))
    assert [engine.name for engine in first.engines if engine.live] == [names[0]]
    assert [engine.name for engine in last.engines if engine.live] == [names[-1]]
    assert [sample.figures for sample in first.samples] == [
        sample.figures for sample in last.samples
    ]
    assert first.trace_hash == last.trace_hash


# --- time and samples -----------------------------------------------------------------------------


def test_samples_are_taken_at_their_time(tmp_path: Path) -> None:
    result = run(scenario_of(tmp_path), engines=["area", "tile"], seconds=1.2)
    at = [round(sample.at, 6) for sample in result.samples if sample.source == "tile"]
    assert at == [0.5, 1.0, 1.2]
    assert result.ticks == 12
    assert result.seconds == pytest.approx(1.2)
    assert result.elapsed_s is None
    assert all(figures["matching_s"] == 0 for figures in result.summary().values())


def test_a_timer_measures(tmp_path: Path) -> None:
    ticking = count(0, 1_000_000)
    result = run(scenario_of(tmp_path), engines=["area"], seconds=1, timer=lambda: next(ticking))
    matching_s = result.summary()["area"]["matching_s"]
    assert result.elapsed_s is not None
    assert 0 < matching_s < result.elapsed_s
    assert result.speed == pytest.approx(1.0 / result.elapsed_s)


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[float, float]] = []
    run(scenario_of(tmp_path), seconds=2, tell=lambda at, of: told.append((round(at, 6), of)))
    assert told == [(0.5, 2.0), (1.0, 2.0), (1.5, 2.0), (2.0, 2.0)]


# --- commands -------------------------------------------------------------------------------------


def test_commands_are_given_at_their_time(tmp_path: Path) -> None:
    run_ = ScenarioRun(scenario_of(tmp_path, ordered(1, "stop player*")))
    for _ in range(10):
        run_.step()
    assert np.any(run_.world.entities.vx)
    run_.step()
    assert not np.any(run_.world.entities.vx)


def test_the_live_engine_is_switched(tmp_path: Path) -> None:
    result = run(scenario_of(tmp_path, ordered(1.2, "engine tile")))
    live = {round(sample.at, 6): sample.source for sample in result.samples if sample.live}
    assert live == {0.5: "object", 1.0: "object", **dict.fromkeys((1.5, 2.0, 2.5, 3.0), "tile")}
    assert [engine.name for engine in result.engines if engine.live] == ["tile"]
    assert all(figures["missing_s"] == 0 for figures in result.summary().values())


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("stop npc7", "small: at 1 s, 'stop npc7': there is nobody called npc7"),
        ("engine pes", "small: at 1 s, 'engine pes': "),
        ("pick player1 apple1", "'pick player1 apple1': "),
    ],
)
def test_a_command_that_cannot_be_ends_the_run(command: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as caught:
        run(scenario_of(tmp_path, ordered(1, command)))
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


# --- what is shipped ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", shipped_scenarios())
def test_every_shipped_scenario_runs(name: str) -> None:
    """All engines are exact in all of them, and all audiences are published to."""
    scenario = load_scenario(name)
    players = min(scenario.people.players, 100)
    result = run(scenario, players=players, seconds=min(scenario.seconds, 12 if is_soak() else 8))
    for figures in result.summary().values():
        assert figures["missing_s"] == figures["stale_s"] == 0
        assert figures["update_notifications"] > 0
    assert all(figures["publications"] > 0 for figures in result.audiences().values())
    assert result.engines or result.heard
    assert (result.handed_over > 0) == (name == "border")


def test_dense_costs_the_object_based_engine_most() -> None:
    """Many see each other: a topic for each object is more than tiles or an area."""
    result = run(load_scenario("dense"), seconds=3)
    of = {name: figures["subscriptions"] for name, figures in result.summary().items()}
    assert of["object"] > 1.2 * of["tile"] > 10 * of["area"]
    assert of["area"] == of["evolving"]


def test_sparse_costs_it_least() -> None:
    """Few meet on long ways: the inverse, in subscriptions as in operations."""
    result = run(load_scenario("sparse"), seconds=10)
    of = {name: figures["subscriptions"] for name, figures in result.summary().items()}
    assert of["object"] < 0.5 * of["area"] < 0.5 * of["tile"]
    assert operations(result, "object") < 0.05 * operations(result, "tile")
    assert operations(result, "object") < 0.05 * operations(result, "area")


@pytest.mark.soak
def test_evolving_subscriptions_save_what_was_published() -> None:
    """At least 96.8 % of the operations of resubscription, and no worse replicas."""
    result = run(load_scenario("travel"), players=40, seconds=60)
    summary = result.summary()
    for name in ("evolving", "evolving-pes", "evolving-lees", "evolving-clees"):
        assert 1 - operations(result, name) / operations(result, "area") >= 0.968
        assert summary[name]["missing_s"] <= summary["area"]["missing_s"]
        assert summary[name]["stale_s"] <= summary["area"]["stale_s"]


# -- open runs -------------------------------------------------------------------------------------


def test_an_open_run_takes_refusals_down_and_outlives_its_scenario(tmp_path: Path) -> None:
    text = ordered(0.5, "drop player1") + '[[commands]]\nat = 1\ndo = "go nobody to 5 5"\n'
    made = ScenarioRun(scenario_of(tmp_path, text), is_open=True)
    for _ in range(50):
        made.step()
    assert made.world.at == pytest.approx(5.0), "two seconds more than it has"
    assert [refusal.why for refusal in made.world.refusals] == ["player1 carries nothing"]
    assert [said for said, _ in made.refused] == ["go nobody to 5 5"]


def test_an_open_run_is_sampled_when_somebody_asks(tmp_path: Path) -> None:
    made = ScenarioRun(scenario_of(tmp_path), is_open=True)
    for _ in range(7):
        made.step()
    engines, audiences = made.sample()
    assert [one.source for one in engines] == ["object", "tile", "area", "evolving"]
    assert [one.at for one in engines] == pytest.approx([0.7] * 4)
    assert audiences == []
    assert len(made.sample()[0]) == 4, "nothing is kept"
    closed = run(scenario_of(tmp_path), seconds=0.7)
    assert [one.figures for one in closed.samples[-4:]] == [one.figures for one in engines]


def test_what_instruments_publish_can_be_looked_at(tmp_path: Path) -> None:
    made = ScenarioRun(scenario_of(tmp_path, f"{SMALL}[air]\nsensors = 2\n"), is_open=True)
    heard = set()
    for _ in range(11):
        made.step()
        heard |= {feed.topic for feed in made.feeds}
    assert heard == {"air/sensor1", "air/sensor2"}


def test_the_last_sample_counts() -> None:
    result = ScenarioResult(
        scenario="dense",
        title="Many",
        seed=1,
        players=2,
        entities=2,
        servers=1,
        seconds=10.0,
        ticks=100,
        trace_hash="ab",
        engines=(EngineFacts("tile", 0.3, live=True), EngineFacts("area", 0.7, live=False)),
        samples=(
            RunSample(1.0, "area", {"n": 1.0}),
            RunSample(1.0, "tile", {"n": 2.0}),
            RunSample(2.0, "area", {"n": 3.0}),
            RunSample(2.0, "tile", {"n": 4.0}),
        ),
        heard=(RunSample(1.0, "smog", {"n": 5.0}), RunSample(2.0, "smog", {"n": 6.0})),
        elapsed_s=4.0,
    )
    assert list(result.summary().items()) == [("tile", {"n": 4.0}), ("area", {"n": 3.0})]
    assert result.audiences() == {"smog": {"n": 6.0}}
    assert result.speed == 2.5


def test_without_a_clock_there_is_no_speed() -> None:
    nothing = ScenarioResult("a", "b", 1, 0, 0, 1, 1.0, 10, "ab", (), (), ())
    assert nothing.speed is None
    assert nothing.summary() == {}
