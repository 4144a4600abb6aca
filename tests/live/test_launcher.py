"""A world over a real broker with real processes: one history, figures that add up, clean ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rove.client.sync import connect
from rove.live import launcher as world_live
from rove.live.console import Completer, ConsoleError, console
from rove.live.engine_roles import Role
from rove.live.launcher import OVER_MQTT, LiveError, LiveResult, make_jobs, run_live
from rove.live.role_process import RUN_TOPIC
from rove.testing.broker_processes import rove
from rove.world.runs.scenario_run import ScenarioRun
from rove.world.runs.scenarios import PeopleSettings, Scenario
from rove.world.runs.state import WorldError
from tests.effort import PATIENCE_S
from tests.live.test_role_process import small


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of its own process."""
    with rove(tmp_path_factory.mktemp("broker")) as broker:
        yield f"mqtt://127.0.0.1:{broker.port}"


def crowd(seconds: float = 3.0) -> Scenario:
    people = PeopleSettings(players=10, items=3, reach=(15.0, 15.0), servers=2)
    return small(people=people, seconds=seconds)


@pytest.mark.soak
def test_processes_play_one_history_and_their_figures_add_up(url: str) -> None:
    told: list[tuple[float, float]] = []
    live = run_live(crowd(), url=url, servers=2, hosts=2, tell=lambda at, of: told.append((at, of)))
    result = live.result
    in_process = ScenarioRun(crowd())
    in_process.play()
    assert result.trace_hash == in_process.world.hash()
    assert result.ticks == 30
    assert told[-1] == (3.0, 3.0)
    summary = result.summary()
    assert list(summary) == [f"object{OVER_MQTT}", "object", "tile", "area", "evolving"]
    over_mqtt, dummy = summary[f"object{OVER_MQTT}"], summary["object"]
    assert over_mqtt["update_notifications"] > 50
    assert dummy["publications"] == in_process.result().summary()["object"]["publications"]
    assert [engine.live for engine in result.engines] == [True, False, False, False, False]
    assert live.updates > 20
    assert 0 < live.delay_p50_ms <= live.delay_p95_ms <= live.delay_p99_ms <= live.delay_max_ms
    assert len(live.client_p99_ms) > 1
    names = [process.name for process in live.processes]
    assert names == ["server 1", "server 2", "host 1", "host 2", "interest"]
    with connect(url) as client, client.subscribe(RUN_TOPIC) as runs, pytest.raises(TimeoutError):
        runs.get(0.3)


class Playing(threading.Thread):
    """A world that is played while the test does something with it."""

    def __init__(self, url: str, of: Scenario, hosts: int = 1) -> None:
        super().__init__(daemon=True)
        self.result: LiveResult | None = None
        self.fault: BaseException | None = None
        self._url, self._of, self._hosts = url, of, hosts

    def run(self) -> None:
        try:
            self.result = run_live(self._of, url=self._url, has_dummies=False, hosts=self._hosts)
        except Exception as error:  # whatever it is, the test wants to see it
            self.fault = error

    def await_beginning(self) -> None:
        with connect(self._url) as client, client.subscribe(RUN_TOPIC) as runs:
            while not runs.get(120).payload:
                pass


@pytest.mark.soak
def test_somebody_talks_to_it_and_another_engine_becomes_live(url: str) -> None:
    playing = Playing(url, crowd(6.0))
    playing.start()
    playing.await_beginning()
    with console(url) as talking:
        assert talking.announced.scenario.people.players == 10
        assert "go WHO to POINT" in talking.say("help")
        assert talking.say("stop player*").endswith(": done")
        assert "reach" in talking.say("use player1 apple1")
        with pytest.raises(WorldError, match="nobody called player77"):
            talking.say("stop player77")
        assert talking.complete("follow player1 player1") == ["player1", "player10"]
        assert Completer(talking, lambda: "engine ti")("ti", 0) == "tile "
        assert Completer(talking, lambda: "engine ti")("ti", 1) is None
        assert talking.say("engine tile").endswith(": done")
    playing.join(60)
    assert playing.fault is None
    assert playing.result is not None
    result = playing.result.result
    assert {each.name: each.live for each in result.engines} == {
        f"object{OVER_MQTT}": False,
        f"tile{OVER_MQTT}": True,
    }
    # All stand still, so only who came last to a tile has told of it since.
    assert result.summary()[f"tile{OVER_MQTT}"]["replica_messages"] > 0


@pytest.mark.soak
def test_when_a_process_dies_all_end_and_it_is_named(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids: list[int] = []
    noted = world_live._RoleProcess.__init__

    def note(self: world_live._RoleProcess, job: object, process: object) -> None:
        noted(self, job, process)  # type: ignore[arg-type]
        pids.append(process.pid)  # type: ignore[attr-defined]

    monkeypatch.setattr(world_live._RoleProcess, "__init__", note)
    playing = Playing(url, crowd(60.0), hosts=2)
    playing.start()
    playing.await_beginning()
    os.kill(pids[3], 9)
    playing.join(60)
    assert "host 2 of the world has ended: killed by signal 9" in str(playing.fault)
    assert not any(is_alive(pid) for pid in pids)
    with pytest.raises(ConsoleError, match="no world is played at mqtt://"), console(url):
        pass


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.soak
def test_ctrl_c_ends_it_and_tells_what_came_of_it(tmp_path: Path, url: str) -> None:
    script = tmp_path / "play.py"
    script.write_text(
        "from tests.live.test_launcher import crowd\n"
        "from rove.live.launcher import run_live\n"
        "def tell(at, of): print(at, flush=True)\n"
        f"live = run_live(crowd(600.0), url={url!r}, has_dummies=False, tell=tell)\n"
        "print('stopped', live.was_stopped, live.result.ticks > 0, flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), "src"])},
    )
    assert process.stdout is not None
    try:
        while float(process.stdout.readline()) < 1.0:
            pass
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert said.splitlines()[-1:] == ["stopped True True"], errors


def test_jobs_share_clients_and_name_processes() -> None:
    of = small(people=PeopleSettings(players=5, npcs=2, servers=3))
    jobs = make_jobs(of, "mqtt://127.0.0.1", hosts=2, has_dummies=True)
    assert [job.name for job in jobs] == [
        *("server 1", "server 2", "server 3"),
        *("host 1", "host 2", "interest"),
    ]
    assert [job.has_dummies for job in jobs] == [True] + [False] * 5
    hosted = [number for job in jobs if job.role is Role.CLIENTS for number in job.numbers]
    assert sorted(hosted) == list(range(7))
    without = make_jobs(of.sized(engines=["tile"]), "mqtt://h", hosts=1, has_dummies=False)
    assert Role.INTEREST not in {job.role for job in without}


def test_what_cannot_be_played_is_refused() -> None:
    with pytest.raises(LiveError, match="has no engines"):
        make_jobs(small().sized(engines=()), "mqtt://h", hosts=1, has_dummies=False)
    with pytest.raises(LiveError, match="4 clients cannot be hosted by 9 processes"):
        make_jobs(small(), "mqtt://h", hosts=9, has_dummies=False)
