"""A process of a live world: prepares, keeps time, reports, and ends when it is told to."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest

from rove.live.engine_roles import Role
from rove.live.role_process import (
    COMMAND_TOPIC,
    DelayHistograms,
    RoleJob,
    RoleOutcome,
    RolePlayer,
    RoleReady,
    RoleReport,
    ScheduledCommand,
    percentile_s,
    rehearse,
)
from rove.mqtt.encoder import encode
from rove.mqtt.packets import Publish
from rove.testing.ports import free_port
from rove.world.runs.scenarios import MapSettings, PeopleSettings, Scenario, TimedCommand
from rove.world.runs.state import WorldError
from tests.effort import PATIENCE_S
from tests.live.test_engine_roles import scenario
from tests.live.test_mqtt_bus import Shore, shore


def small(**changes: object) -> Scenario:
    given: dict[str, object] = {
        "people": PeopleSettings(players=4, reach=(30.0, 30.0)),
        "map": MapSettings(generate="plain", width=40.0, height=40.0),
        "commands": (),
        "seconds": 1.0,
        **changes,
    }
    return scenario(**given)


def job(here: Shore, role: Role, numbers: tuple[int, ...], **changes: object) -> RoleJob:
    given: dict[str, object] = {
        "name": str(role),
        "role": role,
        "numbers": numbers,
        "scenario": small(),
        "run": "test",
        "url": f"mqtt://127.0.0.1:{here.server.ports['mqtt']}",
        **changes,
    }
    return RoleJob(**given)  # type: ignore[arg-type]


async def play(players: list[RolePlayer], began: float) -> list[RoleOutcome]:
    for player in players:
        await player.prepare()
    try:
        await asyncio.gather(*(player.play(began) for player in players))
        return [player.outcome() for player in players]
    finally:
        for player in players:
            await player.leave()


def test_a_server_and_a_host_play_a_second(tmp_path: Path) -> None:
    said: list[RoleReady | RoleReport] = []

    async def scene() -> list[RoleOutcome]:
        async with shore(tmp_path, [99]) as here:
            of = small(seconds=2.5)
            server = job(here, Role.SERVER, (0,), scenario=of, has_dummies=True)
            players = [
                RolePlayer(server, said.append),
                RolePlayer(job(here, Role.CLIENTS, (0, 1, 2, 3), scenario=of), said.append),
            ]
            return await play(players, time.time() + 1.0)

    server, host = asyncio.run(scene())
    assert server.last.tick == host.last.tick == 25
    assert server.last.hash == host.last.hash
    assert {type(one) for one in said} == {RoleReady, RoleReport}
    assert host.last.rows["object"]["subscriptions"] >= 4
    assert server.last.rows["object"]["publications"] > 20
    assert set(server.last.dummies) == {"object", "tile", "area", "evolving"}
    assert not server.delays
    # Nobody is an interest-management service here, so clients were told nothing.
    assert host.last.rows["object"]["update_notifications"] == 0


def test_updates_are_measured_from_the_moment_of_their_tick(tmp_path: Path) -> None:
    async def scene() -> list[RoleOutcome]:
        async with shore(tmp_path, [99]) as here:
            of = small(seconds=4.0).sized(engines=["tile"])
            players = [
                RolePlayer(job(here, Role.SERVER, (0,), scenario=of), lambda _: None),
                RolePlayer(job(here, Role.CLIENTS, (0, 1, 2, 3), scenario=of), lambda _: None),
            ]
            return await play(players, time.time() + 1.0)

    _, host = asyncio.run(scene())
    assert sum(host.delays) > 20
    assert set(host.client_delays_s) == {0, 1, 2, 3}
    for half, most, nearly_all in host.client_delays_s.values():
        assert 0 < half <= most <= nearly_all


def test_commands_that_come_by_mqtt_are_obeyed_at_their_tick(tmp_path: Path) -> None:
    async def scene() -> RolePlayer:
        async with shore(tmp_path, [99]) as here:
            player = RolePlayer(job(here, Role.SERVER, (0,)), lambda _: None)
            await player.prepare()
            for order in (
                ScheduledCommand(5, "stop player*", "test"),
                ScheduledCommand(6, "go player1 to 1 1", "another world"),
            ):
                payload = msgspec.json.encode(order)
                here.links[99].say(encode(Publish(COMMAND_TOPIC, payload)))
            here.links[99].say(encode(Publish(COMMAND_TOPIC, b"noise")))
            await here.links[99].settle()
            await player.play(time.time() + 0.5)
            await player.leave()
            return player

    world = asyncio.run(scene())._world
    assert not world.entities.vx.any()
    assert world.tick == 10


def test_a_command_that_comes_too_late_ends_it(tmp_path: Path) -> None:
    async def scene() -> None:
        async with shore(tmp_path, [99]) as here:
            player = RolePlayer(job(here, Role.SERVER, (0,)), lambda _: None)
            await player.prepare()
            late = msgspec.json.encode(ScheduledCommand(0, "stop player1"))
            here.links[99].say(encode(Publish(COMMAND_TOPIC, late)))
            await here.links[99].settle()
            try:
                await player.play(time.time())
            finally:
                await player.leave()

    with pytest.raises(WorldError, match="for tick 0 and came"):
        asyncio.run(scene())


def test_it_ends_when_it_is_told_to(tmp_path: Path) -> None:
    async def scene() -> RoleOutcome:
        async with shore(tmp_path, [99]) as here:
            endless = small(seconds=1_000.0)
            player = RolePlayer(job(here, Role.SERVER, (0,), scenario=endless), lambda _: None)
            await player.prepare()
            asyncio.get_running_loop().call_later(0.5, player.stop)
            await player.play(time.time())
            await player.leave()
            return player.outcome()

    assert 0 < asyncio.run(scene()).last.tick < 9_000


@pytest.mark.soak
def test_a_process_says_in_a_line_why_it_cannot_begin() -> None:
    nowhere = RoleJob(
        name="server 1",
        role=Role.SERVER,
        numbers=(0,),
        scenario=small(),
        run="test",
        url=f"mqtt://127.0.0.1:{free_port()}",
    )
    done = subprocess.run(
        [sys.executable, "-m", "rove.live.role_process"],
        input=msgspec.json.encode(nowhere) + b"\n",
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == b""
    last = done.stderr.decode().strip().splitlines()[-1]
    assert "cannot connect to mqtt://127.0.0.1" in last


def test_rehearsing_does_not_mind_commands_for_who_is_not_there() -> None:
    rehearse(
        small(people=PeopleSettings(players=20), commands=(TimedCommand(0.0, "stop player20"),))
    )


def test_percentiles_are_at_most_two_percent_above() -> None:
    rng = np.random.default_rng(3)
    delays_s = rng.lognormal(-4, 1, 5_000)
    clients = rng.integers(0, 7, 5_000).astype(np.int32)
    histogram = DelayHistograms(7)
    histogram.add(clients[:2_000], delays_s[:2_000])
    histogram.add(clients[2_000:], delays_s[2_000:])
    for share in (0.5, 0.95, 0.99, 1.0):
        exact = np.quantile(delays_s, share, method="inverted_cdf")
        assert exact <= percentile_s(histogram.of_all(), share) * (1 + 1e-9)
        assert percentile_s(histogram.of_all(), share) <= exact * 1.0201
    of_one = delays_s[clients == 4]
    half = np.quantile(of_one, 0.5, method="inverted_cdf")
    assert half * 0.9999 <= percentile_s(histogram.counts[4], 0.5) <= half * 1.0201


def test_extreme_delays_are_counted() -> None:
    histogram = DelayHistograms(1)
    histogram.add(np.zeros(3, np.int32), np.array([-0.5, 0.0, 1e6]))
    assert histogram.of_all().sum() == 3
    assert percentile_s(histogram.of_all(), 0.5) == pytest.approx(0.0001)
    assert percentile_s(histogram.of_all(), 1.0) > 100
    assert np.isnan(percentile_s(DelayHistograms(2).of_all(), 0.5))
