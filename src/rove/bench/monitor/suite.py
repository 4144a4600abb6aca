"""`rove bench monitor`: the size, the traffic and the cost of the monitor's page.

Names are `monitor.WHAT`:

- `size`: everything that a page may load, compressed;
- `stream`: what one page receives while it shows all walkers ten times a second, without and with
  the areas of a thousand clients;
- `pages`: the CPU time of broker and monitor for many open pages, all of which show the world and
  request the broker's state as the operations view does. The broker is idle otherwise; its CPU time
  without pages is measured before, and subtracted;
- `paint`: until something is on the screen, in a browser that has never seen the page;
- `frames`: JavaScript for a picture of all walkers and the areas of a thousand clients, which come
  over the wire. What the graphics card does is not in it: in software, that says nothing;
- `recording`: the cost of recording metrics for a broker (`rove.bench.monitor.metrics`).

One broker, one monitor and one world serve all parts: walkers in a town that grows with them, of
whom a thousand look around. Chromium is Debian's, through playwright; if either is missing, its
parts are skipped and the reason is shown.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

from rove.bench.harness import Bench, Suite, SuiteOptions, Tell
from rove.bench.measure import Measure
from rove.bench.monitor import metrics as metrics_bench
from rove.errors import RoveError
from rove.monitor.monitor_process import MonitorProcess
from rove.monitor.page_files import Files
from rove.testing import broker_processes
from rove.testing.broker_processes import cpu_seconds

ASKED: Final = ("health", "metrics", "clients", "queues", "slow", "subscriptions")
"""What a page asks of the broker ..."""
ASKED_EVERY_S: Final = 2.0
"""... this often."""
_READY_S: Final = 120.0
_SIDE_M: Final = 1_000.0
"""Of the town of a thousand."""
_AREAS: Final = "Areas of all clients"
_FLAGS: Final = ["--no-sandbox", "--enable-unsafe-swiftshader", "--disable-background-networking"]


class MonitorBenchError(RoveError):
    """The benchmark of the monitor cannot go on."""


class MonitorOptions(SuiteOptions, frozen=True, kw_only=True):
    """How much to measure."""

    walkers: int = 10_000
    clients: int = 1_000
    """Of these, who look around."""
    pages: int = 20
    settle_s: float = 20.0
    """Until everybody walks."""
    seconds: float = 20.0
    frames: int = 200
    recording: metrics_bench.Options = metrics_bench.Options()


QUICK: Final = MonitorOptions(
    walkers=60, clients=20, pages=3, settle_s=0.5, seconds=1.5, frames=5,
    recording=metrics_bench.QUICK,
)  # fmt: skip

# -- what is measured ------------------------------------------------------------------------------


class MonitorBench(Bench[MonitorOptions]):
    """A broker, a world and a monitor of both, which are started when they are first needed."""

    def __init__(self, options: MonitorOptions, tell: Tell) -> None:
        super().__init__(options, tell)
        self._monitor: MonitorProcess | None = None
        self.broker_pid = 0
        self.broker_idle = 0.0
        """The share of a core that the broker uses without any page."""

    @property
    def monitor_pid(self) -> int:
        assert self._monitor is not None, "ask for the address first"
        return self._monitor.pid

    def url(self) -> str:
        """The monitor's address, when everybody in its world walks."""
        if self._monitor is not None:
            return self._monitor.url()
        options, folder = self.options, self.folder
        broker = self.open(broker_processes.rove(folder))
        self.broker_pid = broker.pid
        self.broker_idle = _share_of_core(broker.pid, min(options.seconds, 5.0))
        scenario = folder / "walkers.toml"
        scenario.write_text(_scenario(options.walkers, options.clients), encoding="utf-8")
        address = f"http://127.0.0.1:{broker.http_port}"
        words = (str(scenario), "--port", "0", "--broker", address)
        self._monitor = self.open(MonitorProcess(*words))
        url = self._monitor.url()
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


def _size(_bench: MonitorBench) -> Iterator[Measure]:
    files = Files()
    kb = sum(min(len(files[path].packed), len(files[path].body)) for path in files) / 1_000
    yield Measure("monitor.size", kb, "KB").at_most(150)


def _stream(bench: MonitorBench) -> Iterator[Measure]:
    url = bench.url()
    name = f"monitor.stream.{bench.options.walkers}"
    for case, areas in (("", False), (".areas", True)):
        bench.tell(f"{name}{case}")
        heard = asyncio.run(_heard(url, bench.options.seconds, areas=areas))
        kb_per_s = heard.bytes / heard.seconds / 1_000
        yield Measure(f"{name}{case}", kb_per_s, "KB/s").at_most(100)
        yield Measure(f"{name}{case}.messages", heard.messages / heard.seconds, "messages/s")
    yield Measure(f"{name}.speed", heard.speed, "x real time")


# -- many pages ------------------------------------------------------------------------------------


def _pages(bench: MonitorBench) -> Iterator[Measure]:
    url = bench.url()
    bench.tell(f"{bench.options.pages} pages for {bench.options.seconds:g} s")
    before = cpu_seconds(bench.broker_pid), cpu_seconds(bench.monitor_pid)
    began = time.monotonic()
    asyncio.run(_open_pages(url, bench.options.pages, bench.options.seconds))
    passed_s = time.monotonic() - began
    after = cpu_seconds(bench.broker_pid), cpu_seconds(bench.monitor_pid)
    broker, monitor = (100 * (b - a) / passed_s for a, b in zip(before, after, strict=True))
    broker = max(0.0, broker - 100 * bench.broker_idle)
    name = f"monitor.pages.{bench.options.pages}"
    yield Measure(f"{name}.broker", broker, "% of a core").at_most(5)
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


def _paint(bench: MonitorBench) -> Iterator[Measure]:
    url = bench.url()
    with _browser(bench.tell) as browser:
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
        yield Measure("monitor.paint", best, "ms").at_most(1_000)


def _frames(bench: MonitorBench) -> Iterator[Measure]:
    url = bench.url()
    with _browser(bench.tell) as browser:
        if browser is None:
            return
        page = browser.new_page(viewport={"width": 1280, "height": 800}, bypass_csp=True)
        page.goto(f"{url}/#world", timeout=_READY_S * 1_000)
        page.get_by_label(_AREAS).press("Space", timeout=_READY_S * 1_000)
        for what, count in (("dots", bench.options.walkers), ("rectangles", bench.options.clients)):
            page.wait_for_function(
                f"window.roveFrames && window.roveFrames().{what} >= {count}",
                timeout=_READY_S * 1_000,
            )
        begun = int(page.evaluate("window.roveFrames().frames"))
        enough = f"window.roveFrames().frames >= {begun + bench.options.frames}"
        page.wait_for_function(enough, timeout=10 * _READY_S * 1_000)
        found = page.evaluate("window.roveFrames()")
    name = f"monitor.frames.{bench.options.walkers}.{bench.options.clients}"
    mean = Measure(f"{name}.mean", float(found["script_ms_mean"]), "ms of JavaScript")
    yield mean.at_most(4)
    yield Measure(f"{name}.p95", float(found["script_ms_p95"]), "ms of JavaScript")


def _recording(bench: MonitorBench) -> Iterator[Measure]:
    yield from metrics_bench.run(bench.options.recording, bench.tell)


SUITE: Final = Suite(
    name="monitor",
    parts={
        "size": _size,
        "stream": _stream,
        "pages": _pages,
        "paint": _paint,
        "frames": _frames,
        "recording": _recording,
    },
    options=MonitorOptions(),
    quick=QUICK,
    needs_linux_to="reads CPU times from /proc",
    bench=MonitorBench,
)
