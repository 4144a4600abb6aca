"""`rove bench monitor`: what the monitor's page weighs, hears and costs.

Names are `monitor.WHAT`:

- `size`: everything that a page may load, compressed;
- `stream`: what one page hears while it watches all walkers ten times a second, without and with
  the areas of a thousand clients;
- `pages`: what many open pages, all of which watch the world and ask for the broker's inside as the
  view of operations does, cost the broker's process, and the monitor's. The broker has nothing
  else to do; what it takes without pages is measured before, and taken off;
- `paint`: until something is on the screen, in a browser that has never seen the page;
- `frames`: JavaScript for a picture of all walkers and the areas of a thousand clients, which come
  over the wire. What the graphics card does is not in it: in software, that says nothing;
- `recording`: what writing down its metrics costs a broker (`rove.bench.monitor.metrics`).

One broker, one monitor and one world serve all parts: walkers in a town that grows with them, of
whom a thousand look around. Chromium is Debian's, through playwright; where either is missing, its
parts are left out and the reason is told.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from rove.bench.measure import Measure
from rove.bench.monitor import metrics as metrics_bench
from rove.errors import RoveError
from rove.monitor.monitor_process import MonitorProcess
from rove.monitor.page_files import Files
from rove.testing import broker_processes
from rove.testing.broker_processes import cpu_seconds

SIZE_KB_MAX: Final = 150.0
STREAM_KB_PER_S_MAX: Final = 100.0
PAGES_PERCENT_MAX: Final = 5.0
PAINT_MS_MAX: Final = 1_000.0
FRAME_MS_MAX: Final = 4.0
ASKED: Final = ("health", "metrics", "clients", "queues", "slow", "subscriptions")
"""What a page asks of the broker ..."""
ASKED_EVERY_S: Final = 2.0
"""... this often."""
_READY_S: Final = 120.0
_SIDE_M: Final = 1_000.0
"""Of the town of a thousand."""
_AREAS: Final = "Areas of all clients"
_FLAGS: Final = ["--no-sandbox", "--enable-unsafe-swiftshader", "--disable-background-networking"]

Tell = Callable[[str], None]


class MonitorBenchError(RoveError):
    """The benchmark of the monitor cannot go on."""


class Options(msgspec.Struct, frozen=True):
    """What to measure."""

    walkers: int = 10_000
    clients: int = 1_000
    """Of these, who look around."""
    pages: int = 20
    settle_s: float = 20.0
    """Until everybody walks."""
    seconds: float = 20.0
    frames: int = 200
    recording: metrics_bench.Options = metrics_bench.Options()
    parts: Sequence[str] = ()
    """Of PARTS; all if none is named."""


QUICK: Final = Options(
    walkers=60, clients=20, pages=3, settle_s=0.5, seconds=1.5, frames=5,
    recording=metrics_bench.QUICK,
)  # fmt: skip
"""Enough to see that everything is measured; the figures mean nothing."""


def run(options: Options | None = None, tell: Tell = lambda text: None) -> Iterator[Measure]:
    """All measures, each as soon as it is known."""
    options = options or Options()
    with _Scene(options) as scene:
        for part in options.parts or PARTS:
            tell(part)
            yield from PARTS[part](options, tell, scene)


# -- what is measured ------------------------------------------------------------------------------


class _Scene:
    """A broker, a world and a monitor of both; started when they are first needed."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._ends = ExitStack()
        self._beside: MonitorProcess | None = None
        self.broker_pid = 0
        self.broker_idle = 0.0
        """What the broker takes of a core when nobody asks anything."""

    def __enter__(self) -> _Scene:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    @property
    def monitor_pid(self) -> int:
        assert self._beside is not None, "ask for the address first"
        return self._beside.pid

    def url(self) -> str:
        """The monitor's address, when everybody in its world walks."""
        if self._beside is not None:
            return self._beside.url()
        options = self._options
        folder = Path(self._ends.enter_context(tempfile.TemporaryDirectory(prefix="rove-bench-")))
        broker = self._ends.enter_context(broker_processes.rove(folder))
        self.broker_pid = broker.pid
        self.broker_idle = _share_of_core(broker.pid, min(options.seconds, 5.0))
        scenario = folder / "walkers.toml"
        scenario.write_text(_scenario(options.walkers, options.clients), encoding="utf-8")
        address = f"http://127.0.0.1:{broker.http_port}"
        words = (str(scenario), "--port", "0", "--broker", address)
        self._beside = self._ends.enter_context(MonitorProcess(*words))
        url = self._beside.url()
        asyncio.run(_heard(url, options.settle_s, areas=False))
        return url


def _scenario(walkers: int, clients: int) -> str:
    side_m = _SIDE_M * math.sqrt(walkers / 1_000)
    return f"""
title = "Walkers"
about = "For `rove bench monitor`."
[map]
generate = "town"
width = {side_m:.1f}
height = {side_m:.1f}
[people]
players = {clients}
npcs = {walkers - clients}
npcs_look = false
[engines]
use = ["evolving"]
"""


def _share_of_core(pid: int, seconds: float) -> float:
    before = cpu_seconds(pid)
    time.sleep(seconds)
    return (cpu_seconds(pid) - before) / seconds


class _Heard(NamedTuple):
    """What came over a WebSocket."""

    seconds: float
    bytes: int
    messages: int
    speed: float
    """Of the world, beside real time."""


async def _heard(url: str, seconds: float, *, areas: bool) -> _Heard:
    """Watch the world for a while, from a whole frame on, which is not counted."""
    from websockets.asyncio.client import connect

    address = url.replace("http", "ws", 1) + "/api/live"
    async with connect(address, max_size=None) as socket:
        await socket.send(json.dumps({"type": "watch", "world": True, "areas": areas}))
        speed, kinds = 1.0, {1, 3} if areas else {1}
        async with asyncio.timeout(_READY_S):
            while kinds:
                message = await socket.recv()
                kinds -= {message[0]} if isinstance(message, bytes) else set()
        began, size, count = time.monotonic(), 0, 0
        while (passed_s := time.monotonic() - began) < seconds:
            message = await asyncio.wait_for(socket.recv(), _READY_S)
            size, count = size + len(message), count + 1
            if isinstance(message, str) and '"type":"state"' in message:
                speed = json.loads(message).get("speed", speed)
    return _Heard(passed_s, size, count, speed)


# -- size and stream -------------------------------------------------------------------------------


def _size(_options: Options, _tell: Tell, _scene: _Scene) -> Iterator[Measure]:
    files = Files()
    kb = sum(min(len(files[path].packed), len(files[path].body)) for path in files) / 1_000
    yield Measure("monitor.size", kb, "KB", goal=f"<= {SIZE_KB_MAX:g}", reached=kb <= SIZE_KB_MAX)


def _stream(options: Options, tell: Tell, scene: _Scene) -> Iterator[Measure]:
    url = scene.url()
    name = f"monitor.stream.{options.walkers}"
    for case, areas in (("", False), (".areas", True)):
        tell(f"{name}{case}")
        heard = asyncio.run(_heard(url, options.seconds, areas=areas))
        kb_per_s = heard.bytes / heard.seconds / 1_000
        goal, reached = f"<= {STREAM_KB_PER_S_MAX:g}", kb_per_s <= STREAM_KB_PER_S_MAX
        yield Measure(f"{name}{case}", kb_per_s, "KB/s", goal=goal, reached=reached)
        yield Measure(f"{name}{case}.messages", heard.messages / heard.seconds, "messages/s")
    yield Measure(f"{name}.speed", heard.speed, "x real time")


# -- many pages ------------------------------------------------------------------------------------


def _pages(options: Options, tell: Tell, scene: _Scene) -> Iterator[Measure]:
    url = scene.url()
    tell(f"{options.pages} pages for {options.seconds:g} s")
    before = cpu_seconds(scene.broker_pid), cpu_seconds(scene.monitor_pid)
    began = time.monotonic()
    asyncio.run(_open_pages(url, options.pages, options.seconds))
    passed_s = time.monotonic() - began
    after = cpu_seconds(scene.broker_pid), cpu_seconds(scene.monitor_pid)
    broker, monitor = (100 * (b - a) / passed_s for a, b in zip(before, after, strict=True))
    broker = max(0.0, broker - 100 * scene.broker_idle)
    name, goal = f"monitor.pages.{options.pages}", f"<= {PAGES_PERCENT_MAX:g}"
    reached = broker <= PAGES_PERCENT_MAX
    yield Measure(f"{name}.broker", broker, "% of a core", goal=goal, reached=reached)
    yield Measure(f"{name}.monitor", monitor, "% of a core")


async def _open_pages(url: str, count: int, seconds: float) -> None:
    host, _, port = url.removeprefix("http://").rpartition(":")
    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            tasks.create_task(_watching(url, seconds))
            # Pages are opened at different moments and stay out of step.
            late_s = ASKED_EVERY_S * number / count
            tasks.create_task(_asking(host, int(port), late_s, seconds))


async def _watching(url: str, seconds: float) -> None:
    await _heard(url, seconds, areas=False)


async def _asking(host: str, port: int, late_s: float, seconds: float) -> None:
    end = time.monotonic() + seconds
    await asyncio.sleep(late_s)
    while time.monotonic() < end:
        for route in ASKED:
            await _get(host, port, f"/api/broker/{route}")
        await asyncio.sleep(ASKED_EVERY_S)


async def _get(host: str, port: int, path: str) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        request = f"GET {path} HTTP/1.1\r\nhost: {host}:{port}\r\nconnection: close\r\n\r\n"
        writer.write(request.encode())
        answer = await asyncio.wait_for(reader.read(), _READY_S)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    if not answer.startswith(b"HTTP/1.1 200"):
        raise MonitorBenchError(f"{path} was answered {answer[:100]!r}")


# -- in a browser ----------------------------------------------------------------------------------


def _executable() -> str | None:
    named = os.environ.get("ROVE_CHROMIUM")
    found = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    return named or next((path for path in found if path is not None), None)


@contextmanager
def _browser(tell: Tell) -> Iterator[Any]:
    """Chromium, or None where it cannot be had."""
    path = _executable()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        tell(f"left out: {error}")
        yield None
        return
    if path is None:
        tell("left out: there is no Chromium on this machine")
        yield None
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def _paint(_options: Options, tell: Tell, scene: _Scene) -> Iterator[Measure]:
    url = scene.url()
    with _browser(tell) as browser:
        if browser is None:
            return
        best = math.inf
        for _ in range(3):
            context = browser.new_context(bypass_csp=True)
            page = context.new_page()
            page.goto(url, wait_until="load", timeout=_READY_S * 1_000)
            painted = "performance.getEntriesByName('first-contentful-paint').length > 0"
            page.wait_for_function(painted, timeout=_READY_S * 1_000)
            value = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
            best = min(best, float(page.evaluate(value)))
            context.close()
        goal, reached = f"<= {PAINT_MS_MAX:g}", best <= PAINT_MS_MAX
        yield Measure("monitor.paint", best, "ms", goal=goal, reached=reached)


def _frames(options: Options, tell: Tell, scene: _Scene) -> Iterator[Measure]:
    url = scene.url()
    with _browser(tell) as browser:
        if browser is None:
            return
        page = browser.new_page(viewport={"width": 1280, "height": 800}, bypass_csp=True)
        page.goto(f"{url}/#world", timeout=_READY_S * 1_000)
        page.get_by_label(_AREAS).press("Space", timeout=_READY_S * 1_000)
        for what, count in (("dots", options.walkers), ("rectangles", options.clients)):
            page.wait_for_function(
                f"window.roveFrames && window.roveFrames().{what} >= {count}",
                timeout=_READY_S * 1_000,
            )
        begun = int(page.evaluate("window.roveFrames().frames"))
        enough = f"window.roveFrames().frames >= {begun + options.frames}"
        page.wait_for_function(enough, timeout=10 * _READY_S * 1_000)
        found = page.evaluate("window.roveFrames()")
    name = f"monitor.frames.{options.walkers}.{options.clients}"
    mean, goal = float(found["script_ms_mean"]), f"<= {FRAME_MS_MAX:g}"
    reached = mean <= FRAME_MS_MAX
    yield Measure(f"{name}.mean", mean, "ms of JavaScript", goal=goal, reached=reached)
    yield Measure(f"{name}.p95", float(found["script_ms_p95"]), "ms of JavaScript")


def _recording(options: Options, tell: Tell, _scene: _Scene) -> Iterator[Measure]:
    yield from metrics_bench.run(options.recording, tell)


PARTS: Final[dict[str, Callable[[Options, Tell, _Scene], Iterator[Measure]]]] = {
    "size": _size,
    "stream": _stream,
    "pages": _pages,
    "paint": _paint,
    "frames": _frames,
    "recording": _recording,
}
"""Each part by its name, in the order in which they are measured."""
