"""A real broker for tests: on free ports of this machine, in a thread with an event loop."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec
import pytest

from rove.elastic.view import MatchersView, MatcherView, Reconfiguration
from rove.policy.view import PoliciesView, PolicyCounts, PolicyView
from rove.serve.server import Server
from rove.serve.settings import Config, DataSettings, ListenSettings
from tests.effort import PATIENCE_S


class Answer(NamedTuple):
    """What an HTTP request was answered."""

    status: int
    text: str
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Running:
    """A broker that runs."""

    def __init__(self, config: Config) -> None:
        self.server = Server(config)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="broker")
        self._thread.start()
        self.call(self.server.start())

    @property
    def ports(self) -> dict[str, int]:
        return self.server.ports

    def call(self, coroutine: Any) -> Any:
        """Run something in the broker's loop, and wait for it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_S)

    def look(self, at: Callable[[Server], Any]) -> Any:
        """Look at the broker between two of its turns."""

        async def look() -> Any:
            return at(self.server)

        return self.call(look())

    def stop(self) -> None:
        if self._thread.is_alive():
            self.call(self.server.stop())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(PATIENCE_S)
            self._loop.close()

    # -- HTTP ----------------------------------------------------------------------------------

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.ports['http']}{path}"

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """One request; a body that is not bytes is sent as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url(path), data, headers or {}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return Answer(answer.status, answer.read().decode(), dict(answer.headers))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.read().decode(), dict(error.headers))

    def get(self, path: str, headers: dict[str, str] | None = None) -> Answer:
        return self.ask("GET", path, None, headers)

    def stream(self, path: str, headers: dict[str, str] | None = None) -> Stream:
        """Server-sent events; what was refused has another status than 200."""
        return Stream(self.ports["http"], path, headers)

    def post(self, path: str, body: Any = b"", headers: dict[str, str] | None = None) -> Answer:
        return self.ask("POST", path, body, headers)


class Stream:
    """A reader of server-sent events."""

    def __init__(self, port: int, path: str, headers: dict[str, str] | None = None) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        self._connection.request("GET", path, headers=headers or {})
        self.answer = self._connection.getresponse()
        self.status = self.answer.status
        self.comments: list[str] = []

    def event(self) -> dict[str, str]:
        """The next event as its fields; empty when the stream has ended."""
        fields: dict[str, str] = {}
        while line := self.answer.readline().decode():
            name, _, value = line.rstrip("\n").partition(": ")
            if not name and value:
                self.comments.append(value)
            elif name:
                fields[name] = value
            elif fields:
                break
        return fields

    def data(self) -> Any:
        """The data of the next event."""
        return json.loads(self.event()["data"])

    def close(self) -> None:
        self.answer.close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts brokers with sections of a configuration: `start_server(limits=Limits(...))`."""
    started: list[Running] = []

    def start(**sections: Any) -> Running:
        config = Config(
            listen=ListenSettings(mqtt_port=0, http_port=0),
            data=DataSettings(folder=str(tmp_path / "data")),
        )
        running = Running(msgspec.structs.replace(config, **sections))
        started.append(running)
        return running

    yield start
    for running in started:
        running.stop()


@pytest.fixture
def server(start_server: Callable[..., Running]) -> Running:
    """A broker as it is out of the box."""
    return start_server()


def three_matchers() -> MatchersView:
    """Put together by hand: three processes, after a split, and a merge that was given up."""
    began = time.time() - 90
    out, split = "idle 8 % of the last 2 s, less than 20 %", "idle 11 % of the last 5,000 messages"
    merge = "idle 75 % of the last 10 s, more than 70 %"
    return MatchersView(
        layout="partitioned",
        matchers=[
            MatcherView(1, 101, 2, 60_000, 0.15, 2_400.5, 480_000, "member"),
            MatcherView(2, 102, 1, 20_000, 0.42, 2_400.5, 90_000, "member"),
            MatcherView(4, 104, 1, 20_000, 0.75, 2_400.5, 12_000, "member"),
        ],
        matchers_min=0,
        matchers_max=4,
        reconfigurations=[
            Reconfiguration("out", out, began, 0.8, 1, 100_000),
            Reconfiguration("split", split, began + 30, 0.25, 3, 40_000),
            Reconfiguration("merge", merge, began + 60, 1.5, 3, 0, "matcher 3 has died"),
        ],
        done={"out": 1, "split": 1},
        failed=1,
        tickets_waiting=3,
        is_reconfiguring=False,
    )


QUIET = """def arrived(m, me):
    if me.battery < 0.25 and not every(60):
        return None
    return m
"""


def three_policies() -> PoliciesView:
    """Put together by hand: one that works, one with waiting messages, one that is suspended."""
    now = time.time()
    tallies = [
        PolicyCounts(1_200, 700, 300, 200, {}, 0, 1_050, 2_500_000, 640_000, 2_400, 0.03),
        PolicyCounts(40, 0, 40, 0, {}, 0, 80, 4_000_000, 500_000, 5_000, 2.5, 40),
        PolicyCounts(9, 1, 0, 2, {"steps": 5, "error": 1}, 7, 1, 900, 100, 500_000, 0.06),
    ]
    trouble = "line 3: more than 100000 steps"
    return PoliciesView(
        isolation="none",
        workers=1,
        jobs=1,
        jobs_waiting=3,
        jobs_done=36,
        jobs_lost=1,
        count=3,
        suspended=1,
        total=PolicyCounts(
            1_349, 801, 340, 202, {"steps": 5, "error": 1}, 7, 1_231, 6_600_900, 1_140_100,
            507_400, 2.6, 40,
        ),
        policies=[
            PolicyView("phone", 0, 0, "", QUIET, now - 90, None, 0, "", tallies[0]),
            PolicyView("tablet", 7, 12, "icu/+", QUIET, now - 60, None, 4, "", tallies[1]),
            PolicyView("watch", 0, 0, "", QUIET, now - 30, now + 240, 0, trouble, tallies[2]),
        ],
    )  # fmt: skip
