"""A whole broker: what it keeps over a restart, what it reloads, how it refuses to start."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable

import rove
from rove.broker.limits import Limits
from rove.broker.subscriptions.router import Router
from rove.elastic.elasticity import ElasticitySettings
from rove.errors import RoveError
from rove.lang.replay import RankedWindow
from rove.match import engine
from rove.serve.disk.data_folder import INDEX_NAME
from rove.serve.passwords import set_password
from rove.serve.server import Server, elasticity_of, folder_mode_of, settings_of
from rove.serve.settings import (
    AccessSettings,
    Channel,
    Config,
    DataSettings,
    LakeSettings,
    ListenSettings,
    MatcherSettings,
    PolicySettings,
)
from rove.serve.workers.policy_workers import memory_bytes_of
from tests.effort import PATIENCE_S
from tests.serve.conftest import Running

Start = Callable[..., Running]


def run(coroutine: Any) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE_S))


def url_of(server: Running) -> str:
    return f"mqtt://127.0.0.1:{server.ports['mqtt']}"


async def subscribe_and_leave(url: str) -> None:
    client = await rove.connect(url, client_id="away", session_expiry_s=600)
    await client.me.set(home=45.8)
    await client.subscribe("air/#", filter="NO2 > 40")
    await client.subscribe("air/#", filter="lat > me.home")
    await client.close()


async def publish(url: str, *values: dict[str, object]) -> None:
    async with rove.connect(url) as client:
        for value in values:
            await client.publish("air/zagreb", value)


async def come_back(url: str, expected: int) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    client = await rove.connect(url, client_id="away", session_expiry_s=600)
    arrived = asyncio.Event()

    def take(notification: Any) -> None:
        found.append(notification.value)
        if len(found) >= expected:
            arrived.set()

    (await client.subscribe("air/#", filter="NO2 > 40")).listen(take)
    await arrived.wait()
    await client.close()
    return found


def test_what_was_queued_is_there_after_a_restart(start_server: Start) -> None:
    first = start_server()
    run(subscribe_and_leave(url_of(first)))
    run(publish(url_of(first), {"NO2": 41, "lat": 0}, {"NO2": 39, "lat": 0}, {"NO2": 42, "lat": 0}))
    first.stop()
    second = start_server()
    assert run(come_back(url_of(second), 2)) == [{"NO2": 41, "lat": 0}, {"NO2": 42, "lat": 0}]


def test_subscriptions_and_state_are_there_after_a_restart(start_server: Start) -> None:
    first = start_server()
    run(subscribe_and_leave(url_of(first)))
    first.stop()
    second = start_server()
    run(publish(url_of(second), {"NO2": 1, "lat": 45.9}, {"NO2": 1, "lat": 45.7}))
    queued = second.look(
        lambda server: [
            entry.publication.payload
            for entry in server.shell.broker.context.sessions["away"].queue
        ]
    )
    assert queued == [b'{"NO2":1,"lat":45.9}']


async def subscribe_ranked(url: str) -> None:
    for number in range(20):
        client = await rove.connect(url, client_id=f"ranked-{number}", session_expiry_s=600)
        await client.subscribe("air/#", filter="ORDER BY NO2 DESC LIMIT 10 WITHIN 7 DAYS")
        await client.close()


def test_ranked_subscriptions_that_are_restored_before_the_kernels_become_quick(
    start_server: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start_server()
    run(subscribe_ranked(url_of(first)))
    first.stop()
    for thread in threading.enumerate():
        if thread.name == "rove-warm-up":
            thread.join()
    may_load, quick = threading.Event(), engine.search_kernel

    def load(*, ranked: bool) -> None:
        may_load.wait(PATIENCE_S)
        engine.search_kernel = quick

    monkeypatch.setattr(engine, "search_kernel", None)
    monkeypatch.setattr(engine, "warm_up", load)
    plain_publish, plain = RankedWindow.publish, []

    def counted(window: RankedWindow, *arguments: Any) -> Any:
        plain.append(window)
        return plain_publish(window, *arguments)

    monkeypatch.setattr(RankedWindow, "publish", counted)
    second = start_server()
    run(publish(url_of(second), {"NO2": 1}))
    assert len(plain) == 20
    may_load.set()
    run(until(lambda: second.look(is_merged)))
    run(publish(url_of(second), {"NO2": 2}))
    assert len(plain) == 20
    sessions = second.look(lambda server: server.shell.broker.context.sessions)
    assert [len(sessions[f"ranked-{number}"].queue) for number in range(20)] == [2] * 20


async def until(condition: Callable[[], bool]) -> None:
    while not await asyncio.to_thread(condition):
        await asyncio.sleep(0.01)


def is_merged(server: Server) -> bool:
    return engine.search_kernel is not None and server.shell.broker.merge_due() is None


@pytest.mark.parametrize("damage", [b"", b"nonsense" * 1000, None])
def test_a_damaged_index_costs_nothing_but_time(
    start_server: Start, tmp_path: Path, damage: bytes | None
) -> None:
    first = start_server()
    run(subscribe_and_leave(url_of(first)))
    first.stop()
    index = tmp_path / "data" / INDEX_NAME
    assert index.stat().st_size > 0
    if damage is None:
        index.unlink()
    else:
        index.write_bytes(damage)
    second = start_server()
    run(publish(url_of(second), {"NO2": 41}))
    assert run(come_back(url_of(second), 1)) == [{"NO2": 41}]


def test_the_index_is_saved_though_matchers_have_it(start_server: Start, tmp_path: Path) -> None:
    first = start_server(matchers=MatcherSettings(min=1, max=1))
    end_at = time.monotonic() + 3 * PATIENCE_S
    while not first.look(lambda server: server.shell.broker.router.expressions.is_offloaded):
        assert time.monotonic() < end_at
        time.sleep(0.02)
    run(subscribe_and_leave(url_of(first)))
    first.stop()
    saved = Router().expressions
    saved.load((tmp_path / "data" / INDEX_NAME).read_bytes())
    assert len(saved._saved) == 2
    second = start_server()
    run(publish(url_of(second), {"NO2": 41}))
    assert run(come_back(url_of(second), 1)) == [{"NO2": 41}]


def test_the_lake_gets_what_channels_keep(start_server: Start, tmp_path: Path) -> None:
    air = Channel("air", ("air/#",), ("publications", "notifications"))
    server = start_server(lake=LakeSettings(channels=(air,), seconds_per_file=0.05))
    run(subscribe_and_leave(url_of(server)))
    run(publish(url_of(server), {"NO2": 41}, {"NO2": 39}))
    server.stop()
    again = start_server(lake=LakeSettings(channels=(air,), seconds_per_file=0.05))
    run(publish(url_of(again), {"NO2": 43}))
    again.stop()
    lake = tmp_path / "data" / "lake"
    rows = DeltaTable(lake).to_pyarrow_table().sort_by("position").to_pylist()
    kept = [row for row in rows if row["kind"] == "publications"]
    assert [row["payload"] for row in kept] == [b'{"NO2":41}', b'{"NO2":39}', b'{"NO2":43}']
    assert len({row["position"] for row in kept}) == 3
    told = [row["client_id"] for row in rows if row["kind"] == "notifications"]
    assert told == ["away", "away"]


def test_limits_and_passwords_are_reloaded(start_server: Start, tmp_path: Path) -> None:
    server = start_server()
    config = server.server.config
    rules = tmp_path / "rules"
    rules.write_text("allow user * publish,subscribe open/#\n")
    changed = msgspec.structs.replace(
        config, limits=Limits(topic_levels_max=3), access=AccessSettings(acl_file=str(rules))
    )
    server.look(lambda running: running.reload(changed))

    async def publish_all() -> list[str]:
        told = []
        async with rove.connect(url_of(server)) as client:
            for topic in ("open/a", "closed/a", "open/a/b/c"):
                try:
                    await client.publish(topic, b"x")
                    told.append("taken")
                except RoveError as error:
                    told.append(str(error))
        return told

    taken, closed, deep = run(publish_all())
    assert taken == "taken"
    assert "not allowed" in closed
    assert "3 levels" in deep


def test_a_reload_that_is_refused_changes_nothing(start_server: Start) -> None:
    server = start_server()
    config = server.server.config
    bad = msgspec.structs.replace(config, access=AccessSettings(acl_file="/nowhere/rules"))
    with pytest.raises(RoveError, match="nowhere"):
        server.look(lambda running: running.reload(bad))
    assert server.look(lambda running: running.config is config)


def test_a_port_in_use_is_named(start_server: Start, tmp_path: Path) -> None:
    port = start_server().ports["mqtt"]
    config = Config(
        listen=ListenSettings(mqtt_port=port, http_port="off"),
        data=DataSettings(str(tmp_path / "other")),
    )
    for _ in range(2):  # the second time, the folder is not in use either
        with pytest.raises(RoveError, match=f"cannot listen for mqtt on 127.0.0.1:{port}"):
            run(Server(config).start())


def test_a_folder_in_use_is_named(start_server: Start, tmp_path: Path) -> None:
    start_server()
    config = Config(
        listen=ListenSettings(mqtt_port=0, http_port="off"),
        data=DataSettings(str(tmp_path / "data")),
    )
    with pytest.raises(RoveError, match="data"):
        run(Server(config).start())


def test_a_broker_lives_in_the_time_that_it_is_given(tmp_path: Path) -> None:
    clock = [1000.0]

    async def evolve() -> list[int]:
        config = Config(
            listen=ListenSettings(mqtt_port=0, http_port="off"),
            data=DataSettings(str(tmp_path), "none"),
        )
        server = Server(config, now=lambda: clock[0])
        await server.start()
        found: list[int] = []
        async with rove.connect(f"mqtt://127.0.0.1:{server.ports['mqtt']}") as client:
            moving = await client.subscribe("x", filter="x BETWEEN t AND t + 1")
            moving.listen(lambda notification: found.append(notification.value["x"]))
            await client.publish("x", {"x": 5})
            clock[0] = 1005.0
            await client.publish("x", {"x": 5})
            async with asyncio.timeout(PATIENCE_S):
                while not found:
                    await asyncio.sleep(0.001)
        await server.stop()
        return found

    assert run(evolve()) == [5]


def test_channels_are_left_alone_without_a_lake() -> None:
    channel = Channel("air", ("air/#",))
    assert settings_of(Config(lake=LakeSettings(enabled=False, channels=(channel,)))).channels == ()
    assert settings_of(Config(lake=LakeSettings(channels=(channel,)))).channels[0].name == "air"


# --- matchers -----------------------------------------------------------------------------------


def members(server: Running) -> dict[int, int]:
    """The matchers that match, with their processes."""

    def look(running: Server) -> dict[int, int]:
        coordinator = running.shell.broker.coordinator
        assert coordinator is not None
        if not coordinator.is_offloaded:
            return {}
        return {number: member.pid for number, member in coordinator.members.items()}

    found: dict[int, int] = server.look(look)
    return found


def wait_for_members(server: Running, is_right: Callable[[dict[int, int]], bool]) -> dict[int, int]:
    end_at = time.monotonic() + 3 * PATIENCE_S
    while not is_right(found := members(server)):
        assert time.monotonic() < end_at
        time.sleep(0.02)
    return found


async def hear(server: Running, *values: int) -> list[int]:
    """What reaches a subscriber of publications above 10."""
    found: list[int] = []
    async with rove.connect(url_of(server)) as client:
        high = await client.subscribe("x", filter="x > 10")
        high.listen(lambda notification: found.append(notification.value["x"]))
        for value in values:
            await client.publish("x", {"x": value})
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < sum(value > 10 for value in values):
                await asyncio.sleep(0.01)
    return found


def test_matchers_match_are_replaced_and_end_with_the_broker(start_server: Start) -> None:
    server = start_server(matchers=MatcherSettings(min=1, max=1))
    assert run(hear(server, 11)) == [11]
    ((first, pid),) = wait_for_members(server, bool).items()
    assert run(hear(server, 12, 5, 13)) == [12, 13]
    os.kill(pid, signal.SIGKILL)
    assert run(hear(server, 14, 6, 15)) == [14, 15]
    second = wait_for_members(server, lambda found: bool(found) and first not in found)
    assert run(hear(server, 16)) == [16]
    server.stop()
    for gone in (pid, *second.values()):
        with pytest.raises(ProcessLookupError):
            os.kill(gone, 0)
    assert not (Path(server.server.config.data.folder) / "matchers").exists()


def test_the_layout_of_matchers_is_reloaded(start_server: Start) -> None:
    server = start_server(matchers=MatcherSettings(max=1, layout="replicated"))
    config = server.server.config
    changed = msgspec.structs.replace(config, matchers=MatcherSettings(max=1, layout="partitioned"))
    server.look(lambda running: running.reload(changed))

    def layout(running: Server) -> str:
        view = running.shell.broker.view.matchers(running.shell.now())
        assert view is not None
        return view.layout

    end_at = time.monotonic() + PATIENCE_S
    while server.look(layout) != "partitioned":
        assert time.monotonic() < end_at
        time.sleep(0.01)


def test_how_many_matchers_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def most(cores: int, **keys: Any) -> int:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
        return elasticity_of(MatcherSettings(**keys)).matchers_max

    assert [most(cores) for cores in (1, 2, 8)] == [0, 2, 8]
    assert most(1, min=3) == 3
    assert most(8, max=1) == 1
    assert most(8, max=0) == 0
    chosen = elasticity_of(
        MatcherSettings("partitioned", 1, 4, 500, split_below=0.1, merge_above=0.6, pause_s=9)
    )
    assert chosen == ElasticitySettings("partitioned", 1, 4, 500, 0.1, 0.6, 9)


# --- policies -----------------------------------------------------------------------------------

COUNTS = "def arrived(m, me):\n    me.n = get('n', 0) + 1\n    return message(n=me.n, x=m.x)"
FOR_EVER = "def arrived(m, me):\n    while m.x > 0:\n        pass\n    return m"


def workers(server: Running) -> list[int]:
    """The processes that work for policies."""

    def look(running: Server) -> list[int]:
        assert running._workers is not None
        return running._workers.pids

    found: list[int] = server.look(look)
    return found


async def shown(server: Running, policy: str, *values: int, others: int = 0) -> list[Any]:
    """What a policy makes of publications, until as many have come as are let through."""
    found: list[Any] = []
    async with rove.connect(url_of(server)) as client:
        seen = await client.subscribe("x")
        seen.listen(lambda notification: found.append(notification.value))
        await client.set_policy(policy)
        for value in values:
            await client.publish("x", {"x": value})
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < len(values) - others:
                await asyncio.sleep(0.01)
    return found


def test_policies_run_within_the_broker_unless_they_take_long(
    start_server: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker compiles them in any case. What is long is counted in steps here: on a busy machine
    the shortest call may take milliseconds."""
    monkeypatch.setattr("rove.broker.policies.agents.INLINE_MS", 1_000 * PATIENCE_S)
    server = start_server(policies=PolicySettings(workers=1, steps_max=20_000))

    def calls() -> tuple[int, int]:
        total = server.look(lambda running: running.shell.broker.view.policies().total)
        return total.calls, total.in_workers

    assert run(shown(server, COUNTS, 7, 8)) == [{"n": 1, "x": 7}, {"n": 2, "x": 8}]
    assert calls() == (2, 0)
    assert run(shown(server, FOR_EVER, 1, 0, others=1)) == [{"x": 0}]
    assert calls()[1] > 0
    assert len(workers(server)) == 1


def test_policies_run_in_processes_that_are_replaced_and_end_with_the_broker(
    start_server: Start,
) -> None:
    server = start_server(policies=PolicySettings(workers=1, isolation="process"))
    assert run(shown(server, COUNTS, 7, 8)) == [{"n": 1, "x": 7}, {"n": 2, "x": 8}]
    (first,) = workers(server)
    os.kill(first, signal.SIGKILL)
    end_at = time.monotonic() + PATIENCE_S
    while workers(server) == [first]:
        assert time.monotonic() < end_at
        time.sleep(0.01)
    assert run(shown(server, COUNTS, 9)) == [{"n": 1, "x": 9}]
    (second,) = workers(server)
    server.stop()
    for gone in (first, second):
        with pytest.raises(ProcessLookupError):
            os.kill(gone, 0)


def test_a_broker_may_run_no_policies(start_server: Start) -> None:
    server = start_server(policies=PolicySettings(enabled=False))
    assert server.look(lambda running: running.shell.broker.jobs) is None
    with pytest.raises(rove.RoveError, match="runs no policies"):
        run(shown(server, COUNTS))


def test_limits_of_policies_are_reloaded(start_server: Start) -> None:
    server = start_server(policies=PolicySettings(workers=1))
    config = server.server.config
    changed = PolicySettings(workers=1, text_bytes_max=30, memory_bytes_max=1 << 30)
    server.look(lambda running: running.reload(msgspec.structs.replace(config, policies=changed)))
    with pytest.raises(rove.RoveError, match="30"):
        run(shown(server, COUNTS))
    memory = server.look(
        lambda running: running._workers is not None and running._workers.memory_bytes
    )
    assert memory == memory_bytes_of(changed.limits)


def test_others_pass_through_the_data_folder_only_to_a_lake_that_they_may_read() -> None:
    data = DataSettings(folder="data")
    for readers, inside in (("owner", 0o700), ("group", 0o710), ("everybody", 0o711)):
        lake = msgspec.convert({"readers": readers}, LakeSettings)
        assert folder_mode_of(Config(data=data, lake=lake)) == inside
        elsewhere = msgspec.structs.replace(lake, folder="/srv/lake")
        assert folder_mode_of(Config(data=data, lake=elsewhere)) == 0o700


def test_a_lake_is_shared_and_nothing_else(start_server: Start, tmp_path: Path) -> None:
    air = Channel("air", ("air/#",), ("publications",))
    start_server(lake=LakeSettings(channels=(air,), readers="group")).stop()
    data = tmp_path / "data"
    assert data.stat().st_mode & 0o777 == 0o710
    assert (data / "rove.db").stat().st_mode & 0o777 == 0o600
    assert (data / "lake").stat().st_mode & 0o777 == 0o750


def test_a_password_file_is_closed_to_others(tmp_path: Path) -> None:
    users = tmp_path / "users"
    set_password(users, "ana", b"secret")
    users.chmod(0o644)
    Server(Config(access=AccessSettings(password_file=str(users))))
    assert users.stat().st_mode & 0o777 == 0o640
