"""`rove mesh`: the network of brokers, as one of them sees it.

rove mesh                     all brokers, and the links of this one
rove mesh connect URL         join another broker until this one stops
rove mesh disconnect NAME     close the link to a neighbour
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from rove.cli.common.arguments import add_json_flag
from rove.cli.common.connection import BrokerApi, add_http_arguments
from rove.cli.common.output import bytes_text, count_text, emit_json
from rove.cli.ls import ListColumn, plain_lines
from rove.errors import UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove mesh`."""
    parser.add_argument(
        "action", nargs="?", choices=("connect", "disconnect"), help="(default: show the network)"
    )
    parser.add_argument(
        "broker", nargs="?", help="to connect: host:port or mqtts://user@host:port; else its name"
    )
    add_http_arguments(parser)
    add_json_flag(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show the network, or change it."""
    api, action, broker = BrokerApi(arguments), arguments.action, arguments.broker
    if action is not None and not broker:
        what = "the address" if action == "connect" else "the name"
        raise UsageError(f"rove mesh {action} needs {what} of a broker")
    if action == "connect":
        answer = api.ask("/mesh/links", {"url": broker})
        line = f"joining {answer['joins']}; `rove mesh` shows the result"
    elif action == "disconnect":
        answer = api.ask(f"/mesh/links/{quote(broker, safe='')}", method="DELETE")
        line = f"disconnected from {answer['name']}"
    else:
        answer = api.ask("/mesh")
        line = ""
    if arguments.json:
        emit_json(answer)
    elif line:
        print(line)
    else:
        sys.stdout.writelines(network_lines(answer))
    return 0


def network_lines(status: dict[str, Any]) -> Iterable[str]:
    """The network for people: brokers, links, and what could not be joined."""
    subscriptions, entries = status["subscriptions"], status["asks_for"]
    yield (
        f"{status['name']} has {_counted(subscriptions, 'subscription')}, and asks each other"
        f" broker for {_counted(entries, 'entry', 'entries')}"
        f" ({bytes_text(status['asks_for_bytes'])})\n"
    )
    if status["brokers"]:
        yield "\n"
        yield from plain_lines(BROKERS, status["brokers"])
    if status["links"]:
        yield "\n"
        yield from plain_lines(LINKS, status["links"])
    for join in status["joins"]:
        if join["trouble"]:
            yield f"\n{join['url']} is not joined: {join['trouble']}\n"
    for name in status["conflicts"]:
        yield f"\ntwo brokers are called {name}\n"


def _counted(count: int, one: str, several: str = "") -> str:
    return f"{count_text(count)} {one if count == 1 else several or f'{one}s'}"


def _milliseconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{round(seconds * 1e3, 1) + 0.0:.1f} ms"


def _state(one: dict[str, Any]) -> str:
    if one["is_connected"]:
        return "connected"
    return "opening" if one["is_reachable"] else "unreachable"


BROKERS = (
    ListColumn("broker", lambda one: one["name"]),
    ListColumn("state", _state),
    ListColumn("via", lambda one: one["via"] or "–"),
    ListColumn("hops", lambda one: str(one["hops"] or "–"), True),
    ListColumn("delay", lambda one: _milliseconds(one["delay_s"] or None), True),
    ListColumn("asks for", lambda one: count_text(one["asks_for"]), True),
    ListColumn("sent", lambda one: count_text(one["sent"]), True),
    ListColumn("received", lambda one: count_text(one["received"]), True),
    ListColumn("in vain", lambda one: count_text(one["received_in_vain"]), True),
    ListColumn("queued", lambda one: count_text(one["queued"]), True),
    ListColumn("neighbours", lambda one: ", ".join(one["neighbours"])),
)
LINKS = (
    ListColumn("link to", lambda one: one["name"] or "–"),
    ListColumn("state", lambda one: one["state"]),
    ListColumn("opened", lambda one: "here" if one["outgoing"] else "there"),
    ListColumn("round trip", lambda one: _milliseconds(one["delay_s"]), True),
    ListColumn("clock ahead", lambda one: _milliseconds(one["offset_s"]), True),
    ListColumn("sent", lambda one: bytes_text(one["sent_bytes"]), True),
    ListColumn("received", lambda one: bytes_text(one["received_bytes"]), True),
    ListColumn("waiting", lambda one: bytes_text(one["queued_bytes"]), True),
)
