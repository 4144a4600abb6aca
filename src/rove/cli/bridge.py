"""`rove bridge kafka`: topics of a broker to topics of Kafka, and back, until it is stopped."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rove.cli.common.arguments import CommandPart, add_json_flag, add_parts, run_part
from rove.cli.common.connection import URL_VARIABLE, add_trust_arguments, password_from, tls_with
from rove.cli.common.output import emit_json
from rove.errors import UsageError

if TYPE_CHECKING:
    from rove.bridge.bridge import Bridge
    from rove.bridge.routes import BridgeConfig, RouteProgress

REPORT_EVERY_S = 10.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the parts."""
    add_parts(parser, PARTS)


def run(arguments: argparse.Namespace) -> int:
    """Run the part that was named."""
    return run_part(arguments)


def _configure_kafka(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", type=Path, help="routes and all else, as TOML (docs/bridge.md)"
    )
    parser.add_argument(
        "--route",
        nargs=2,
        action="append",
        default=[],
        metavar=("FROM", "TO"),
        help="mqtt:FILTER kafka:TOPIC, or kafka:TOPIC mqtt:TOPIC; several may be given",
    )
    parser.add_argument("--kafka", metavar="HOST:PORT", help="its servers")
    parser.add_argument(
        "--url", help=f"of the broker, for routes towards it (default {URL_VARIABLE}, or here)"
    )
    parser.add_argument(
        "--lake", metavar="LOCATION", help="of the broker, for routes from it: a folder or a URI"
    )
    parser.add_argument("--name", help="of the bridge (default rove-bridge)")
    parser.add_argument("--filter", metavar="TEXT", help="of the routes given here")
    parser.add_argument("--key", metavar="ATTRIBUTE", help="of records, instead of the topic")
    parser.add_argument("--start", choices=("earliest", "latest"), help="of new routes")
    parser.add_argument(
        "--once", action="store_true", help="end when everything that is there is across"
    )
    parser.add_argument(
        "--report-every",
        metavar="SECONDS",
        type=float,
        default=REPORT_EVERY_S,
        help="tell how it goes (default 10)",
    )
    add_json_flag(parser)
    add_trust_arguments(parser, "mqtts:// and wss://")


def _run_kafka(arguments: argparse.Namespace) -> int:
    config = _config(arguments)
    asyncio.run(_bridge(config, arguments))
    return 0


def _config(arguments: argparse.Namespace) -> BridgeConfig:
    """What the file says, and the options over it."""
    from rove.base.documents import read_tables
    from rove.bridge.routes import BridgeError, config_of

    told: dict[str, Any] = {}
    where = "the command line"
    if arguments.file is not None:
        where = str(arguments.file)
        told = read_tables(arguments.file, BridgeError)
    url = arguments.url or (None if "broker" in told else os.environ.get(URL_VARIABLE))
    given = {
        "kafka": arguments.kafka,
        "broker": url,
        "lake": arguments.lake,
        "name": arguments.name,
    }
    told |= {name: value for name, value in given.items() if value is not None}
    more = {"filter": arguments.filter, "key": arguments.key, "start": arguments.start}
    each = {name: value for name, value in more.items() if value is not None}
    if each and not arguments.route:
        raise UsageError(f"--{min(each)} is for routes that --route gives; write it into the file")
    routes = [{"from": source, "to": target, **each} for source, target in arguments.route]
    told["routes"] = [*told.get("routes", ()), *routes]
    if "kafka" not in told:
        raise UsageError("say where Kafka is, with --kafka HOST:PORT or kafka = ... in the file")
    return config_of(told, where)


async def _bridge(config: BridgeConfig, arguments: argparse.Namespace) -> None:
    from rove.bridge.bridge import Bridge
    from rove.bridge.inbound import BrokerCredentials

    access = BrokerCredentials(password_from(arguments.password_file), tls_with(arguments.ca))
    bridge = Bridge(config, access, _tell)
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, bridge.stop)
    reporting = asyncio.create_task(_report(bridge, arguments))
    try:
        await bridge.run(once=arguments.once)
    finally:
        reporting.cancel()
        _show(bridge.progress, None, 0.0, as_json=arguments.json)


def _tell(text: str) -> None:
    print(f"rove: {text}", file=sys.stderr, flush=True)


async def _report(bridge: Bridge, arguments: argparse.Namespace) -> None:
    """Tell how it goes, whenever something has changed."""
    before: list[RouteProgress] = []
    while True:
        await asyncio.sleep(arguments.report_every)
        now = [msgspec.structs.replace(one) for one in bridge.progress]
        if now != before:
            _show(now, before, arguments.report_every, as_json=arguments.json)
        before = now


def _show(
    now: list[RouteProgress], before: list[RouteProgress] | None, seconds: float, *, as_json: bool
) -> None:
    from rove.bridge.routes import progress_line

    for number, one in enumerate(now):
        if as_json:
            emit_json(msgspec.to_builtins(one))
        else:
            _tell(progress_line(one, before[number] if before else None, seconds))
    sys.stdout.flush()


PARTS: dict[str, CommandPart] = {
    "kafka": CommandPart(
        "bring publications to topics of Kafka, and records to topics of the broker",
        _configure_kafka,
        _run_kafka,
    ),
}
