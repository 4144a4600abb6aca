"""`rove policy set`, `remove` and `show`: policies of sessions on a broker.

Setting and removing go by MQTT, as the session itself, so it needs a name; a device that is
connected under that name loses its connection to the command, since a session has one. Showing goes
over HTTP and disturbs nobody.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from typing import Any, Final
from urllib.parse import urlencode

from rove.cli.common.arguments import add_json_flag
from rove.cli.common.connection import (
    BrokerApi,
    add_connection_arguments,
    add_http_arguments,
    open_client,
)
from rove.cli.common.input import read_policy
from rove.cli.common.output import EXIT_NO, bytes_text, count_text, duration_text, emit_json
from rove.errors import UsageError

_SHOWN_MAX: Final = 1_000


def configure_set(parser: argparse.ArgumentParser) -> None:
    """The arguments of `rove policy set`."""
    parser.add_argument("file", metavar="FILE", help="a policy; - is standard input")
    _add_session(parser)


def configure_remove(parser: argparse.ArgumentParser) -> None:
    """The arguments of `rove policy remove`."""
    _add_session(parser)


def _add_session(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--subscription",
        metavar="ID",
        type=int,
        help="of the subscription with this identifier only (default: of the whole session)",
    )
    add_json_flag(parser)
    add_connection_arguments(parser)


def run_set(arguments: argparse.Namespace) -> int:
    """Set a policy; returns when the broker has it on disk."""
    _check_session(arguments)
    asyncio.run(_set(arguments, read_policy(arguments.file)))
    _tell(arguments, "set")
    return 0


def run_remove(arguments: argparse.Namespace) -> int:
    """Remove one; whoever has none loses nothing."""
    _check_session(arguments)
    asyncio.run(_set(arguments, None))
    _tell(arguments, "removed")
    return 0


def _check_session(arguments: argparse.Namespace) -> None:
    if arguments.client_id is None:
        raise UsageError("a policy belongs to a session; name it with --client-id")


async def _set(arguments: argparse.Namespace, text: str | None) -> None:
    async with open_client(arguments) as client:
        if text is None:
            await client.remove_policy(subscription=arguments.subscription)
        else:
            await client.set_policy(text, subscription=arguments.subscription)


def _tell(arguments: argparse.Namespace, done: str) -> None:
    if arguments.json:
        named = {"client": arguments.client_id, "subscription": arguments.subscription or 0}
        emit_json({**named, done: True})
        return
    of = f"subscription {arguments.subscription} of " if arguments.subscription else ""
    print(f"{done}: the policy of {of}{arguments.client_id}", file=sys.stderr)


# --- show -----------------------------------------------------------------------------------------


def configure_show(parser: argparse.ArgumentParser) -> None:
    """The arguments of `rove policy show`."""
    parser.add_argument("client", nargs="?", metavar="CLIENT", help="only the policies of this one")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    add_http_arguments(parser)


def run_show(arguments: argparse.Namespace) -> int:
    """Print the policies of a broker with their texts and what they did."""
    query: dict[str, Any] = {"limit": _SHOWN_MAX}
    if arguments.client is not None:
        query["client"] = arguments.client
    found: list[dict[str, Any]] = BrokerApi(arguments).ask(f"/policies?{urlencode(query)}")[
        "policies"
    ]
    for place, one in enumerate(found):
        if arguments.json:
            emit_json(one)
        else:
            sys.stdout.write("\n" * bool(place) + _shown(one, time.time()))
    if not found and not arguments.json:
        who = f"{arguments.client} has no policy" if arguments.client else "nobody has a policy"
        print(who, file=sys.stderr)
    return 0 if found else EXIT_NO


def _shown(one: dict[str, Any], now: float) -> str:
    tally = one["tally"]
    of = f"subscription {one['identifier']} ({one['topic_filter']})"
    whole = "the whole session"
    stopped = sum(tally["stopped"].values())
    ago = duration_text(max(0.0, now - one["set_at"]))
    became = (
        f"{count_text(tally['passed'])} as they came, {count_text(tally['changed'])} changed, "
        f"{count_text(tally['dropped'])} not sent, {count_text(stopped)} stopped"
    )
    lines = [
        f"{one['client_id']}: {of if one['subscription'] else whole}, set {ago} ago",
        f"{count_text(tally['calls'])} messages ({bytes_text(tally['bytes_in'])}): {became}",
        f"{bytes_text(tally['bytes_out'])} sent, {tally['cpu_s']:.2f} s of CPU",
    ]
    if (left_s := (one["suspended_until"] or 0.0) - now) > 0:
        lines.append(f"suspended for another {duration_text(left_s)}")
    if one["last_trouble"]:
        lines.append(f"last trouble: {one['last_trouble']}")
    return "\n".join([*lines, *(f"  {line}" for line in one["text"].splitlines())]) + "\n"
