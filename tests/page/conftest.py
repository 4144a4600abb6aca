"""The monitor's page as people see it: a real broker, a real database, a real browser.

One monitor is shared by all tests of a worker, with a small world that goes on while they look at
it; starting it takes some seconds. Debian's Chromium is looked for (`.ci/run` installs it), and
without one these tests are skipped. Each page fails its test if it logs an error, throws, or is
stopped by its own content security policy.

Screenshots (`shot`) go to a folder of the test run, and into docs with `ROVE_SHOTS=docs`.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rove.testing.broker_processes import accepts
from rove.testing.ports import free_port
from tests.effort import PATIENCE_S
from tests.interop.conftest import TOOLS, RunningBroker

PATIENCE_MS = PATIENCE_S * 1000
SCENARIO = "crowd"
PLAYERS = 60
FLAGS = [
    "--no-sandbox",
    "--enable-unsafe-swiftshader",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP *.example 127.0.0.1",
]
Shot = Callable[[Any, str], Path]


def executable() -> str | None:
    """The browser of this machine."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    return None


@pytest.fixture(scope="package")
def chromium() -> Iterator[Any]:
    """A browser; every test gets contexts of its own.

    Not for longer than this folder: while Playwright is there, this thread has an event loop that
    runs, and no other test could run one.
    """
    path = executable()
    if path is None:
        pytest.skip("there is no Chromium on this machine; Debian's package is called chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS, timeout=PATIENCE_MS)
        yield browser
        browser.close()


class RunningMonitor:
    """`rove monitor` in a process, with a world, beside a broker and a database."""

    def __init__(self, folder: Path, *, scenario: str = SCENARIO, players: int = PLAYERS) -> None:
        self.folder = folder
        # A matcher is there when a test asks for it, and not when the machine is busy.
        matchers = {"ROVE_MATCHERS__MAX": "1", "ROVE_MATCHERS__PAUSE_S": "3600"}
        self.broker = RunningBroker(folder / "broker", **matchers)
        self.database = str(folder / "metrics.sqlite")
        self.port = free_port()
        self._scenario = scenario
        self._players = players
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return (self.folder / "monitor.log").read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        """Start it and wait until its world has begun."""
        command = [sys.executable, "-m", "rove", "monitor", self._scenario]
        command += ["--players", str(self._players), "--port", str(self.port)]
        command += ["--broker", f"http://127.0.0.1:{self.broker.http_port}"]
        command += ["--database", self.database]
        with (self.folder / "monitor.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        end = time.monotonic() + PATIENCE_S
        while not accepts(self.port):
            assert self._process.poll() is None, f"it has ended:\n{self.log}"
            assert time.monotonic() < end, f"it does not listen:\n{self.log}"
            time.sleep(0.02)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(PATIENCE_S)
            finally:
                self._process.kill()
                self._process = None


@pytest.fixture(scope="package")
def monitor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMonitor]:
    """One monitor for all tests: they share its world, its broker and its database."""
    if executable() is None:
        pytest.skip("there is no Chromium on this machine; Debian's package is called chromium")
    running = RunningMonitor(tmp_path_factory.mktemp("monitor"))
    running.broker.start()
    try:
        running.start()
        yield running
    finally:
        running.stop()
        running.broker.kill()


class Watched:
    """Opens pages, and collects what they complain about."""

    def __init__(self, browser: Any, url: str) -> None:
        self._browser = browser
        self._url = url
        self._contexts: list[Any] = []
        self.complaints: list[str] = []
        self.expected: list[str] = []
        """Patterns of complaints that a test provokes."""

    def open(self, path: str = "/", url: str | None = None, **context: Any) -> Any:
        """A page in a context of its own, once its header says that it is connected."""
        settings = {"viewport": {"width": 1280, "height": 800}, "reduced_motion": "reduce"}
        made = self._browser.new_context(**{**settings, **context})
        made.set_default_timeout(PATIENCE_MS)
        self._contexts.append(made)
        page = made.new_page()
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto((url or self._url) + path)
        return page

    def _heard(self, message: Any) -> None:
        if message.type == "error":
            self.complaints.append(f"{message.text} ({message.location.get('url', '')})")

    def close(self) -> list[str]:
        """Close all pages; the complaints that nobody expected."""
        for context in self._contexts:
            context.close()
        return [
            said for said in self.complaints if not any(re.search(p, said) for p in self.expected)
        ]


@pytest.fixture
def watched(chromium: Any, monitor: RunningMonitor) -> Iterator[Watched]:
    """For tests that open pages in ways of their own."""
    one = Watched(chromium, monitor.url)
    yield one
    assert one.close() == []


@pytest.fixture
def page(watched: Watched) -> Any:
    """A fresh page at `/`."""
    return watched.open()


@pytest.fixture(scope="session")
def shot(tmp_path_factory: pytest.TempPathFactory) -> Shot:
    """Takes a screenshot, `monitor-NAME.png`; its path."""
    chosen = os.environ.get("ROVE_SHOTS")
    folder = Path(chosen) if chosen else tmp_path_factory.mktemp("shots")

    def take(page: Any, name: str) -> Path:
        path = folder / f"monitor-{name}.png"
        page.screenshot(path=path)
        return path

    return take


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, which finds faults of accessibility; `make setup` fetches it."""
    path = TOOLS / "node_modules" / "axe-core" / "axe.min.js"
    if not path.is_file():
        pytest.skip("axe-core could not be fetched (tests/interop/fetch-tools.sh)")
    return path.read_text(encoding="utf-8")


def faults_of(page: Any, axe: str) -> list[str]:
    """What axe-core finds wrong with a page, in a line each."""
    page.evaluate(axe)
    found = page.evaluate("axe.run({resultTypes: ['violations']})")
    return [
        f"{one['id']}: {one['help']} ({[node['target'] for node in one['nodes'][:3]]})"
        for one in found["violations"]
    ]
