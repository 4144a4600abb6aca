"""`rove up`: run a broker until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from rove.cli.common.arguments import port_number
from rove.cli.config import add_options, load_for
from rove.cli.monitor import DATABASE_VARIABLE, DEFAULT_PORT
from rove.errors import RoveError, UsageError
from rove.serve.logs import events, install
from rove.serve.server import Server

log = events("server")

SWITCH_INTERVAL_S = 0.0005
"""How long a thread may wait for the interpreter. At Python's own 5 ms, the thread that commits
would wait for the busy loop at every step: a tenth as many commits (measured)."""
GC_THRESHOLDS = (10_000, 50, 100)
"""Nearly nothing here is in cycles; at Python's own 700, looking for some took 6 % of the time. At
50,000 a look took 6 to 15 ms, in which everybody waited."""


WILDCARDS = ("0.0.0.0", "::", "")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove up`."""
    add_options(parser)
    parser.add_argument(
        "--monitor",
        metavar="PORT",
        type=port_number,
        nargs="?",
        const=DEFAULT_PORT,
        help=f"serve a page beside it that shows the broker at work ({DEFAULT_PORT}; 0 takes any)",
    )
    parser.add_argument("--name", help="of this broker in a network of brokers (docs/mesh.md)")
    parser.add_argument(
        "--join",
        metavar="URL",
        action="append",
        help="a broker to join, as host:port or mqtts://user@host:port; several may be given",
    )
    parser.add_argument(
        "--accept-loss",
        action="store_true",
        help="start although the database lacks, or may lack, what was acknowledged",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the broker; SIGTERM and Ctrl-C end it in good order, SIGHUP has it read its files."""
    loaded = load_for(arguments)
    if arguments.monitor is not None and loaded.config.listen.http_port == "off":
        raise UsageError("--monitor asks the broker over HTTP; switch `listen.http_port` on")
    install(loaded.config.log)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    server = Server(loaded.config, accept_loss=arguments.accept_loss)
    _runner()(_serve(server, arguments))
    return 0


async def _serve(server: Server, arguments: argparse.Namespace) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    await server.start()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    for name in ("SIGINT", "SIGTERM"):
        loop.add_signal_handler(getattr(signal, name), stopping.set)
    if hasattr(signal, "SIGHUP"):
        loop.add_signal_handler(signal.SIGHUP, _reload, server, arguments)
    for name, port in server.ports.items():
        print(f"rove: {name} on port {port}", file=sys.stderr, flush=True)
    if arguments.monitor is None:
        await stopping.wait()
    else:
        await _watched(server, arguments.monitor, stopping)
    await server.stop()


async def _watched(server: Server, port: int, stopping: asyncio.Event) -> None:
    """Until the broker stops, with a monitor beside it; it does without, if that cannot be."""
    from rove.monitor.monitor_process import MonitorProcess, MonitorProcessError

    listen = server.config.listen
    host = "127.0.0.1" if listen.http_host in WILDCARDS else listen.http_host
    words = ("--broker", f"http://{host}:{server.ports['http']}", "--port", str(port))
    database = server.config.metrics.database
    beside = MonitorProcess(*words, variables={DATABASE_VARIABLE: database} if database else {})

    def tell() -> None:
        try:
            print(f"rove: monitor on {beside.url()}", file=sys.stderr, flush=True)
        except MonitorProcessError as error:
            if not stopping.is_set():
                log.warning(str(error))

    telling = asyncio.create_task(asyncio.to_thread(tell))
    await stopping.wait()
    await asyncio.to_thread(beside.stop)
    await telling


def _reload(server: Server, arguments: argparse.Namespace) -> None:
    """A mistake in a file must not stop a broker that runs."""
    try:
        server.reload(load_for(arguments).config)
    except RoveError as error:
        log.error("not reloaded", reason=str(error))


def _runner() -> Callable[[Coroutine[Any, Any, None]], None]:
    """uvloop where it is installed: it spends half the CPU of asyncio's own loop per packet."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run
