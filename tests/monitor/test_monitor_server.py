"""Starting and stopping a monitor."""

import asyncio
import multiprocessing
import socket
from collections.abc import Callable

import pytest

from rove.errors import UsageError
from rove.monitor.monitor_server import MonitorError, Settings, check, serve
from rove.world.runs.scenarios import TrafficSettings
from tests.effort import PATIENCE_S
from tests.monitor.conftest import Running, yard


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "monitor.example"])
def test_nobody_is_let_in_from_elsewhere_by_accident(host: str) -> None:
    with pytest.raises(UsageError, match="--password-file"):
        check(Settings(host=host))
    check(Settings(host=host, key="sesame"))
    check(Settings(host=host, broker="http://127.0.0.1:8080"))


def test_who_serves_others_is_told_that_nothing_is_hidden(
    start_monitor: Callable[..., Running], capsys: pytest.CaptureFixture[str]
) -> None:
    start_monitor(host="0.0.0.0", key="sesame")
    assert "plain text" in capsys.readouterr().err
    start_monitor()
    assert "plain text" not in capsys.readouterr().err


def test_a_port_that_is_taken_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(MonitorError, match="cannot listen on"):
            asyncio.run(serve(Settings(port=taken.getsockname()[1])))


def test_it_stops_while_pages_are_open(start_monitor: Callable[..., Running]) -> None:
    monitor = start_monitor()
    with monitor.live() as page:
        assert page.message("hello")["run"] is None
        monitor.stop()
        page.socket.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", monitor.port), PATIENCE_S).close()


def test_without_a_world_there_is_none(
    start_monitor: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rove.monitor.live_updates.ALIVE_S", 0.2)
    monitor = start_monitor()
    assert monitor.get("/api/world").status == 404
    assert monitor.get("/api/sensors").status == 404
    with monitor.live() as page:
        assert not page.say("pause")["ok"]
        assert page.message("alive")


def test_a_world_whose_process_died_can_be_begun_again(
    start_monitor: Callable[..., Running],
) -> None:
    before = {child.pid for child in multiprocessing.active_children()}
    monitor = start_monitor(scenario=yard())
    first = monitor.get("/api/world").json["run"]
    [process] = [one for one in multiprocessing.active_children() if one.pid not in before]
    with monitor.live() as page:
        page.message("hello")
        process.kill()
        assert page.message("state", is_over=True)["run"] == first
        assert monitor.get("/api/world").json["is_over"] is True
        page.send(type="say", id=1, text="scenario sparse players 3")
        while (world := monitor.get("/api/world").json)["scenario"] != "sparse":
            assert page.message("world")
        assert len(world["clients"]["avatars"]) == 3


def test_a_scenario_that_cannot_be_played_says_why(start_monitor: Callable[..., Running]) -> None:
    monitor = start_monitor(scenario=yard(traffic=TrafficSettings(vehicles=5)))
    answer = monitor.get("/api/world")
    assert answer.status == 503
    assert "has no roads" in answer.json["error"]
    assert monitor.get("/api/hello").status == 200
