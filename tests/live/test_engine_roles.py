"""Roles over a real broker whose clock the test moves: exact, also while engines change."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rove.live.engine_roles import (
    OVERLAP_TICKS,
    ClientChecker,
    Dummies,
    LiveRole,
    Lockstep,
    Role,
    make_role,
    shares,
)
from rove.live.mqtt_bus import MqttBus
from rove.world.engines.array_bus import ArrayBus
from rove.world.engines.roles import SERVERS_FROM, SERVICE
from rove.world.runs.scenario_run import ScenarioRun
from rove.world.runs.scenarios import (
    MapSettings,
    PeopleSettings,
    Scenario,
    ScenarioError,
    TimedCommand,
)
from rove.world.runs.state import WorldError
from tests.live.test_mqtt_bus import Shore, shore

PLAYERS = 16
SERVERS = 2
HOSTS = 2
LINKS = [*range(PLAYERS), *(SERVERS_FROM + number for number in range(SERVERS)), SERVICE]


def scenario(**changes: object) -> Scenario:
    """A small crowd on a small field that two servers share, with something to trade."""
    given: dict[str, object] = {
        "title": "A test",
        "about": "Walks about.",
        "map": MapSettings(generate="plain", width=90.0, height=60.0),
        "people": PeopleSettings(
            players=PLAYERS, items=6, reach=(15.0, 12.0), speed=3.0, servers=SERVERS
        ),
        "commands": (TimedCommand(0.5, "trade player1*"),),
        "name": "test",
        **changes,
    }
    return Scenario(**given)  # type: ignore[arg-type]


class Troupe:
    """All processes of a live world in one, on one broker, tick by tick."""

    def __init__(self, here: Shore, of: Scenario, engine: str) -> None:
        self._here = here
        self._tick_s = of.tick_s
        self.steps: list[Lockstep] = []
        self.plays: list[LiveRole] = []
        self.hosts: list[tuple[Lockstep, LiveRole, ClientChecker]] = []
        for number in range(SERVERS):
            self._join(of, engine, Role.SERVER, [number], [SERVERS_FROM + number])
        for part in shares(PLAYERS, HOSTS):
            mine = part.tolist()
            step, play = self._join(of, engine, Role.CLIENTS, mine, mine)
            self.hosts.append((step, play, ClientChecker(mine, PLAYERS)))
        self._join(of, engine, Role.INTEREST, [], [SERVICE])

    def _join(
        self, of: Scenario, engine: str, role: Role, numbers: list[int], links: list[int]
    ) -> tuple[Lockstep, LiveRole]:
        mine = {number: self._here.links[number] for number in links}
        step = Lockstep(of)
        play = LiveRole(role, numbers, of, lambda n: MqttBus(mine, f"world/test/{n}", n))
        play.begin(engine, 0)
        self.steps.append(step)
        self.plays.append(play)
        return step, play

    async def play(self, ticks: int, orders: dict[int, str] | None = None) -> None:
        await self._here.settle()
        for step in self.steps:
            for tick, text in (orders or {}).items():
                step.order(tick, text)
        changes = [step.begin() for step in self.steps]
        for tick in range(ticks):
            self._here.clock[0] = 1_000.0 + tick * self._tick_s
            for step, play, change in zip(self.steps, self.plays, changes, strict=True):
                play.act(step.world, change)
            await self._here.settle()
            for step, play in zip(self.steps, self.plays, strict=True):
                play.receive(step.world)
            for step, play, judge in self.hosts:
                assert play.counters is not None
                judge.check(step.world, play.visible(), play.counters)
            changes = [step.step()[0] for step in self.steps]

    def total(self, figure: str) -> float:
        rows = [row for play in self.plays for row in play.rows(self._tick_s).values()]
        return sum(row[figure] for row in rows)


def run_troupe(
    folder: Path, engine: str, ticks: int, orders: dict[int, str] | None = None
) -> Troupe:
    async def scene() -> Troupe:
        async with shore(folder, LINKS) as here:
            troupe = Troupe(here, scenario(), engine)
            await troupe.play(ticks, orders)
            return troupe

    return asyncio.run(scene())


@pytest.mark.parametrize("engine", ["object", "tile", "area", "evolving"])
def test_over_a_broker_nothing_is_missing_or_stale(tmp_path: Path, engine: str) -> None:
    troupe = run_troupe(tmp_path, engine, 25)
    assert troupe.total("update_notifications") > 300
    assert (troupe.total("missing_s"), troupe.total("stale_s")) == (0, 0)
    assert len({step.world.hash() for step in troupe.steps}) == 1


def test_what_goes_over_the_broker_is_what_goes_in_process(tmp_path: Path) -> None:
    troupe = run_troupe(tmp_path, "tile", 31)
    in_process = ScenarioRun(scenario(seconds=3.0).sized(engines=["tile"]))
    in_process.play()
    figures = in_process.result().summary()["tile"]
    # Replies are waited for longer over a broker, so only these are the same.
    for name in ("publications", "requests", "subscribes"):
        assert troupe.total(name) == figures[name], name


def test_switching_engines_loses_no_replica(tmp_path: Path) -> None:
    orders = {5: "engine tile", 18: "engine evolving", 31: "engine object", 44: "engine area"}
    troupe = run_troupe(tmp_path, "object", 58, orders)
    assert {play.engine for play in troupe.plays} == {"area"}
    assert (troupe.total("missing_s"), troupe.total("stale_s")) == (0, 0)
    for _, play, _ in troupe.hosts:
        rows = play.rows(0.1)
        assert set(rows) == {"object", "tile", "evolving", "area"}
        assert all(row["update_notifications"] for row in rows.values())


def test_an_engine_that_has_ended_leaves_no_subscriptions(tmp_path: Path) -> None:
    async def scene() -> tuple[int, int]:
        async with shore(tmp_path, LINKS) as here:
            troupe = Troupe(here, scenario(), "tile")
            await troupe.play(OVERLAP_TICKS + 8, {4: "engine area"})
            left = sum(len(link.routes) for link in here.links.values())
            counted = sum(
                0 if play.counters is None else play.counters.subscriptions for play in troupe.plays
            )
            return left - len(here.links), counted  # each link has one for the fence

    left, counted = asyncio.run(scene())
    assert left == counted > 0


class TestLockstep:
    def test_commands_are_obeyed_at_their_tick(self) -> None:
        step = Lockstep(scenario(commands=()))
        step.order(3, "stop player*")
        step.order(3, "go player1 to the-moon")
        for tick in range(1, 5):
            changes, answers = step.step()
            assert changes.tick == tick
            if tick == 3:
                assert answers[0] == ("stop player*", None)
                assert "the-moon" in str(answers[1][1])
                assert not step.world.entities.vx[:PLAYERS].any()
            else:
                assert answers == []

    def test_what_turns_out_to_be_impossible_is_answered(self) -> None:
        step = Lockstep(scenario(commands=()))
        step.order(1, "use player1 apple1")
        _, answers = step.step()
        assert "reach" in str(answers[0][1])

    def test_a_command_that_comes_too_late_is_refused(self) -> None:
        step = Lockstep(scenario())
        step.step()
        with pytest.raises(WorldError, match="for tick 1 and came at tick 1"):
            step.order(1, "stop player1")

    def test_a_bad_command_of_the_scenario_ends_it(self) -> None:
        step = Lockstep(scenario(commands=(TimedCommand(0.0, "stop nobody"),)))
        with pytest.raises(ScenarioError, match="at 0 s, 'stop nobody'"):
            step.step()

    def test_the_history_is_that_of_a_run(self) -> None:
        step, run = Lockstep(scenario()), ScenarioRun(scenario())
        for _ in range(12):
            step.step()
            run.step()
        assert step.world.hash() == run.world.hash()


def test_dummies_count_what_engines_in_process_count() -> None:
    of = scenario(seconds=1.5)
    step = Lockstep(of)
    dummies = Dummies(of, step.world, None)
    dummies.take(step.begin())
    for _ in range(15):
        dummies.take(step.step()[0])
    run = ScenarioRun(of)
    run.play()
    assert dummies.rows() == run.result().summary()


def test_who_has_no_such_role_has_no_part() -> None:
    assert make_role(Role.INTEREST, [], "tile", ArrayBus(), scenario()) is None
    assert make_role(Role.INTEREST, [], "pes", ArrayBus(), scenario()) is None
    with pytest.raises(WorldError, match="there is no engine magic"):
        make_role(Role.SERVER, [0], "magic", ArrayBus(), scenario())


def test_shares_are_even_and_complete() -> None:
    parts = shares(10, 3)
    assert sorted(number for part in parts for number in part.tolist()) == list(range(10))
    assert {len(part) for part in parts} == {3, 4}
