"""A whole broker: what it keeps over a restart, what it reloads, how it refuses to start."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.dataset as ds
import pytest
from tests.serve.conftest import PATIENCE_S, Running

import rove
from rove.broker.limits import Limits
from rove.errors import RoveError
from rove.serve.config import Access, Channel, Config, Data, Lake, Listen
from rove.serve.index_file import NAME
from rove.serve.server import Server, settings_of

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
            entry.publication.payload for entry in server.shell.broker.state.sessions["away"].queue
        ]
    )
    assert queued == [b'{"NO2":1,"lat":45.9}']


@pytest.mark.parametrize("damage", [b"", b"nonsense" * 1000, None])
def test_a_damaged_index_costs_nothing_but_time(
    start_server: Start, tmp_path: Path, damage: bytes | None
) -> None:
    first = start_server()
    run(subscribe_and_leave(url_of(first)))
    first.stop()
    index = tmp_path / "data" / NAME
    assert index.stat().st_size > 0
    if damage is None:
        index.unlink()
    else:
        index.write_bytes(damage)
    second = start_server()
    run(publish(url_of(second), {"NO2": 41}))
    assert run(come_back(url_of(second), 1)) == [{"NO2": 41}]


def test_the_lake_gets_what_channels_keep(start_server: Start, tmp_path: Path) -> None:
    air = Channel("air", ("air/#",), ("publications", "notifications"))
    server = start_server(lake=Lake(channels=(air,), seconds_per_file=0.05))
    run(subscribe_and_leave(url_of(server)))
    run(publish(url_of(server), {"NO2": 41}, {"NO2": 39}))
    server.stop()
    again = start_server(lake=Lake(channels=(air,), seconds_per_file=0.05))
    run(publish(url_of(again), {"NO2": 43}))
    again.stop()
    lake = tmp_path / "data" / "lake"
    kept = ds.dataset(lake / "publications", partitioning="hive").to_table().to_pylist()
    kept.sort(key=lambda row: row["position"])
    assert [row["payload"] for row in kept] == [b'{"NO2":41}', b'{"NO2":39}', b'{"NO2":43}']
    assert len({row["position"] for row in kept}) == 3
    told = ds.dataset(lake / "notifications", partitioning="hive").to_table().to_pylist()
    assert [row["client_id"] for row in told] == ["away", "away"]


def test_limits_and_passwords_are_reloaded(start_server: Start, tmp_path: Path) -> None:
    server = start_server()
    config = server.server.config
    rules = tmp_path / "rules"
    rules.write_text("allow user * publish,subscribe open/#\n")
    changed = msgspec.structs.replace(
        config, limits=Limits(topic_levels_max=3), access=Access(acl_file=str(rules))
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
    bad = msgspec.structs.replace(config, access=Access(acl_file="/nowhere/rules"))
    with pytest.raises(RoveError, match="nowhere"):
        server.look(lambda running: running.reload(bad))
    assert server.look(lambda running: running.config is config)


def test_a_port_in_use_is_named(start_server: Start, tmp_path: Path) -> None:
    port = start_server().ports["mqtt"]
    config = Config(
        listen=Listen(mqtt_port=port, http_port="off"), data=Data(str(tmp_path / "other"))
    )
    for _ in range(2):  # the second time, the folder is not in use either
        with pytest.raises(RoveError, match=f"cannot listen for mqtt on 127.0.0.1:{port}"):
            run(Server(config).start())


def test_a_folder_in_use_is_named(start_server: Start, tmp_path: Path) -> None:
    start_server()
    config = Config(listen=Listen(mqtt_port=0, http_port="off"), data=Data(str(tmp_path / "data")))
    with pytest.raises(RoveError, match="data"):
        run(Server(config).start())


def test_a_broker_lives_in_the_time_that_it_is_given(tmp_path: Path) -> None:
    clock = [1000.0]

    async def evolve() -> list[int]:
        config = Config(
            listen=Listen(mqtt_port=0, http_port="off"), data=Data(str(tmp_path), "none")
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
            await asyncio.sleep(0.05)
        await server.stop()
        return found

    started = time.monotonic()
    assert run(evolve()) == [5]
    assert time.monotonic() - started < PATIENCE_S


def test_channels_are_left_alone_without_a_lake() -> None:
    channel = Channel("air", ("air/#",))
    assert settings_of(Config(lake=Lake(enabled=False, channels=(channel,)))).channels == ()
    assert settings_of(Config(lake=Lake(channels=(channel,)))).channels[0].name == "air"
