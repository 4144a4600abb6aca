"""A real monitor for tests: its own event loop in a thread, its stage in a process."""

from __future__ import annotations

import asyncio
import http.client
import json
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
import pytest
from websockets.sync.client import ClientConnection, connect

from rove.monitor.monitor_server import Settings, serve
from rove.serve.passwords import set_password
from rove.serve.settings import AccessSettings, Config, DataSettings, ListenSettings
from rove.world.runs.scenarios import (
    AirSettings,
    EngineSettings,
    MapSettings,
    PeopleSettings,
    Scenario,
)
from tests.effort import PATIENCE_S
from tests.serve.conftest import Running as RunningBroker

ENGINES = ("object", "tile", "area", "evolving", "evolving-pes", "evolving-clees")


def yard(**changes: Any) -> Scenario:
    """A few people on open ground, looked at by many engines."""
    found = {
        "title": "Yard",
        "about": "A few people walk about.",
        "map": MapSettings(generate="plain", width=200.0, height=150.0),
        "people": PeopleSettings(players=20, items=5, servers=4),
        "engines": EngineSettings(use=ENGINES),
        "air": AirSettings(sensors=6),
        "seconds": 2.0,
        "name": "yard",
        **changes,
    }
    return Scenario(**found).sized()


class Answer(NamedTuple):
    """What a request was answered."""

    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Running:
    """A monitor that runs."""

    def __init__(self, settings: Settings) -> None:
        self.url = ""
        self._stop: Callable[[], None] = lambda: None
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(settings,), name="monitor")
        self._thread.start()
        assert self._is_up.wait(PATIENCE_S)
        assert self.url, "it did not start"

    def _run(self, settings: Settings) -> None:
        def listening(url: str, stop: Callable[[], None]) -> None:
            self.url, self._stop = url, stop
            self._is_up.set()

        try:
            asyncio.run(serve(settings, listening))
        finally:
            self._is_up.set()

    def stop(self) -> None:
        self._stop()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """One request; a body that is not bytes is sent as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, data, headers or {})
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, answer.read(), found)
        finally:
            connection.close()

    def get(self, path: str, headers: dict[str, str] | None = None) -> Answer:
        return self.ask("GET", path, None, headers)

    def post(self, path: str, body: Any = b"", headers: dict[str, str] | None = None) -> Answer:
        return self.ask("POST", path, body, headers)

    @contextmanager
    def live(self, headers: dict[str, str] | None = None) -> Iterator[Live]:
        """A page's WebSocket."""
        address = f"ws://127.0.0.1:{self.port}/api/live"
        # No pings: who is slow to answer is busy, not dead.
        with connect(
            address,
            additional_headers=headers,
            max_size=None,
            open_timeout=PATIENCE_S,
            ping_interval=None,
        ) as socket:
            yield Live(socket)


class Frame(NamedTuple):
    """A frame, read as the page does, with nothing of ours."""

    kind: int
    tick: int
    at: float
    is_whole: int
    columns: tuple[tuple[float, ...], ...]


def read_frame(data: bytes) -> Frame:
    kind, tick, at, count, is_whole = struct.unpack_from("<IIdII", data)
    forms = {1: "ffff", 2: "Iffhh", 3: "Iffffff"}[kind]
    place, columns = 24, []
    for form in forms:
        columns.append(struct.unpack_from(f"<{count}{form}", data, place))
        place += (struct.calcsize(f"<{count}{form}") + 3) // 4 * 4
    assert place == len(data)
    return Frame(kind, tick, at, is_whole, tuple(columns))


class Live:
    """What a page hears."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self._ids = 0

    def send(self, **message: Any) -> None:
        self.socket.send(json.dumps(message))

    def raw(self) -> Iterator[str | bytes]:
        """All that comes, until the connection is closed, which raises ConnectionClosed."""
        end = time.monotonic() + PATIENCE_S
        while True:
            yield self.socket.recv(timeout=end - time.monotonic())

    def messages(self) -> Iterator[Any]:
        """All that comes: dicts, and frames."""
        for data in self.raw():
            yield read_frame(data) if isinstance(data, bytes) else json.loads(data)

    def message(self, type: str, **fields: Any) -> Any:
        """The next message of a type with these fields."""
        wanted = {"type": type, **fields}.items()
        return next(
            one
            for one in self.messages()
            if isinstance(one, dict) and all(one.get(name) == value for name, value in wanted)
        )

    def frame(self, kind: int) -> Frame:
        """The next frame of a kind."""
        return next(one for one in self.messages() if isinstance(one, Frame) and one.kind == kind)

    def say(self, text: str) -> Any:
        """Have something obeyed; the answer."""
        self._ids += 1
        self.send(type="say", id=self._ids, text=text)
        return self.message("said", id=self._ids)


@pytest.fixture(scope="package", autouse=True)
def _patient() -> Iterator[None]:
    """A world takes long to be made on a busy machine; who asks for it waits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rove.monitor.live_updates.READY_S", PATIENCE_S)
        yield


@pytest.fixture(scope="package")
def monitor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One that plays a small world and records it; tests share it."""
    database = str(tmp_path_factory.mktemp("monitor") / "metrics.sqlite")
    running = Running(Settings(scenario=yard(), port=0, database=database))
    yield running
    running.stop()


@pytest.fixture
def start_monitor() -> Iterator[Callable[..., Running]]:
    """Starts monitors with settings of one's own; without a scenario that takes no time."""
    started: list[Running] = []

    def start(**settings: Any) -> Running:
        running = Running(Settings(**{"port": 0, **settings}))
        started.append(running)
        return running

    yield start
    for running in started:
        running.stop()


@pytest.fixture
def place(tmp_path: Path) -> str:
    """Where a metrics database can be."""
    return str(tmp_path / "metrics.sqlite")


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., RunningBroker]]:
    """Starts brokers with sections of a configuration."""
    started: list[RunningBroker] = []

    def start(**sections: Any) -> RunningBroker:
        folder = str(tmp_path / f"broker{len(started)}")
        config = Config(
            listen=ListenSettings(mqtt_port=0, http_port=0), data=DataSettings(folder=folder)
        )
        running = RunningBroker(msgspec.structs.replace(config, **sections))
        started.append(running)
        return running

    yield start
    for running in started:
        running.stop()


@pytest.fixture
def broker(start_broker: Callable[..., RunningBroker]) -> RunningBroker:
    """A broker as it is out of the box: everybody on this machine may do everything."""
    return start_broker()


@pytest.fixture
def guarded_broker(start_broker: Callable[..., RunningBroker], tmp_path: Path) -> RunningBroker:
    """A broker with two users, of whom one is administrator."""
    users = tmp_path / "users"
    for user in ("admin", "alice"):
        set_password(users, user, f"{user}'s secret".encode())
    return start_broker(access=AccessSettings(password_file=str(users), anonymous="never"))
