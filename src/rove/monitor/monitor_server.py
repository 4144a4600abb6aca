"""The monitor's server: one port, a process that plays the world, and an orderly shutdown.

Uvicorn's own server is used here, unlike in the broker, because no messages wait while it polls.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
import uvicorn

from rove.base.http import is_loopback
from rove.errors import RoveError, UsageError
from rove.monitor.application import Monitor
from rove.monitor.broker_client import BrokerClient
from rove.monitor.broker_status import watch_health
from rove.monitor.live_updates import LiveUpdates
from rove.monitor.logins import Logins
from rove.monitor.metrics_history import MetricsHistory
from rove.monitor.run_recorder import RunRecorder
from rove.world.runs.scenarios import Scenario

MESSAGE_BYTES_MAX: Final = 16 * 1024
GOODBYE_S: Final = 2
BACKLOG: Final = 256
CONNECTIONS_MAX: Final = 500
PLAIN_TEXT: Final = (
    "rove: warning: all traffic is in plain text, passwords too; put a proxy with TLS in front of "
    "the monitor that passes `Host` on"
)


class MonitorError(RoveError):
    """The monitor cannot start."""


class Settings(msgspec.Struct, frozen=True):
    """What a monitor is started with."""

    scenario: Scenario | None = None
    host: str = "127.0.0.1"
    port: int = 8090
    broker: str | None = None
    ca_file: str | None = None
    database: str | None = None
    pipeline: Path | None = None
    key: str | None = None
    ends_with_stdin: bool = False
    """Whether it ends when its standard input is closed, as by the end of its parent process."""


def check(settings: Settings) -> None:
    """UsageError for settings that would give everybody access."""
    if settings.broker is None and settings.key is None and not is_loopback(settings.host):
        raise UsageError(
            f"on {settings.host} everybody who reaches it could look and command; give "
            "--password-file with a key, or --broker, whose users then log in"
        )


Listening: TypeAlias = Callable[[str, Callable[[], None]], None]
"""Is called with the address and a function that stops the server."""


def _say(url: str, _stop: Callable[[], None]) -> None:
    print(f"rove: monitor on {url}", file=sys.stderr, flush=True)


async def serve(settings: Settings, listening: Listening = _say) -> None:
    """Serve until SIGTERM, Ctrl-C, or somebody ends it."""
    check(settings)
    broker = None if settings.broker is None else BrokerClient(settings.broker, settings.ca_file)
    made = _socket(settings.host, settings.port)
    port: int = made.getsockname()[1]
    hub = LiveUpdates(settings.scenario)
    history = None if settings.database is None else MetricsHistory(settings.database)
    recording = _recording(settings, hub, history)
    access = Logins(broker, settings.key, f"rove_monitor_{port}")
    monitor = Monitor(hub, access, broker, history, settings.pipeline)
    server = _Server(_config(monitor))

    def stop() -> None:
        server.should_exit = True

    if threading.current_thread() is threading.main_thread():
        for name in ("SIGINT", "SIGTERM"):
            asyncio.get_running_loop().add_signal_handler(getattr(signal, name), stop)
    if settings.ends_with_stdin:
        threading.Thread(target=_at_end_of_stdin, args=(stop,), daemon=True).start()
    hub.start()
    watching = None if broker is None else asyncio.create_task(watch_health(broker, hub))
    try:
        shown = f"[{settings.host}]" if ":" in settings.host else settings.host
        if not is_loopback(settings.host):
            print(PLAIN_TEXT, file=sys.stderr, flush=True)
        listening(f"http://{shown}:{port}", stop)
        await server.serve([made])
    finally:
        if watching is not None:
            watching.cancel()
        hub.stop()
        if recording is not None:
            await recording.close()
        if history is not None:
            history.close()
        if broker is not None:
            broker.close()


class _Server(uvicorn.Server):
    """Uvicorn's, which would raise a signal again when it is done, before we are."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _config(monitor: Monitor) -> uvicorn.Config:
    # Malformed requests of clients do not belong on the terminal of the monitor.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    return uvicorn.Config(
        monitor.application(),
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        ws_max_size=MESSAGE_BYTES_MAX,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=GOODBYE_S,
        limit_concurrency=CONNECTIONS_MAX,
    )


def _at_end_of_stdin(stop: Callable[[], None]) -> None:
    while sys.stdin.buffer.read(1):
        continue
    stop()


def _recording(
    settings: Settings, hub: LiveUpdates, history: MetricsHistory | None
) -> RunRecorder | None:
    """Has the world written down, if there are a world and a database."""
    if settings.database is None or history is None or not hub.has_world:
        return None
    recording = RunRecorder(settings.database, history)
    hub.on_begin = recording.begin
    hub.on_sample = recording.sample
    hub.on_end = lambda run: recording.end(run, time.time())
    return recording


def _socket(host: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        what = error.strerror or str(error)
        raise MonitorError(
            f"cannot listen on {host}:{port}: {what}; choose another --port"
        ) from None
    return made


def run(settings: Settings) -> None:
    """Serve, with uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(serve(settings))
    else:
        uvloop.run(serve(settings))
