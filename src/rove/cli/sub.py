"""`rove sub`: subscribe, and print notifications as they come.

For people one line each: the time, the topic, the values, in columns that widen as they must. With
`--json` one object per line. What comes in one batch is written at once, so that a fast stream
does not wait for a slow terminal's every line. Ctrl-C ends it with a summary.

With `--client-id` the session stays when the command ends, and what is published meanwhile is
printed when the same command is run again.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from rove.cli.common.arguments import add_json_flag
from rove.cli.common.connection import add_connection_arguments, named_values, open_client
from rove.cli.common.input import read_expression, read_policy
from rove.cli.common.output import emit_json

if TYPE_CHECKING:
    from rove.client import Notification, Subscription

_COLUMN_WIDTH_MAX = 24
_TOPIC_WIDTH_MAX = 40


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove sub`."""
    parser.add_argument("topic", help="a topic or topic filter, as air/# or +/zagreb")
    parser.add_argument(
        "filter", nargs="?", help='which of them, as "NO2 > 40"; - reads it from standard input'
    )
    parser.add_argument(
        "--evolve", metavar="DESIGN", help='exact (default), "pes 1s", lees or "clees 500ms"'
    )
    parser.add_argument(
        "--engine",
        choices=("broker", "spark"),
        help="who finds what meets the filter: the broker (default), or Spark, seconds later",
    )
    parser.add_argument(
        "--policy", metavar="FILE", help="a policy that decides what is sent of what matches"
    )
    parser.add_argument("-q", "--qos", type=int, choices=(0, 1, 2), default=1)
    parser.add_argument("--count", metavar="N", type=int, help="end after so many")
    parser.add_argument(
        "--for", metavar="SECONDS", type=float, dest="seconds", help="end after so long"
    )
    parser.add_argument(
        "--me",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a variable of the subscriber, which the filter may name as me.NAME",
    )
    add_json_flag(parser)
    add_connection_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print until there is a reason to end."""
    printer = _Printer(as_json=arguments.json)
    try:
        asyncio.run(_subscribe(arguments, printer))
    finally:
        if printer.has_begun:
            printer.summarise()
    return 0


async def _subscribe(arguments: argparse.Namespace, printer: _Printer) -> None:
    text = None if arguments.filter is None else read_expression(arguments.filter)
    policy = None if arguments.policy is None else read_policy(arguments.policy)
    me = {name: _value(written) for name, written in named_values(arguments.me, "--me").items()}
    async with open_client(arguments) as client:
        if me:
            await client.me.set(**me)
        subscription = await client.subscribe(
            arguments.topic,
            text,
            evolve=arguments.evolve,
            engine=arguments.engine,
            policy=policy,
            qos=arguments.qos,
        )
        printer.has_begun = True
        await _print_all(subscription, printer, arguments.count, arguments.seconds)


async def _print_all(
    subscription: Subscription[Any], printer: _Printer, count: int | None, seconds: float | None
) -> None:
    ends_at = None if seconds is None else time.monotonic() + seconds
    while count is None or printer.count < count:
        left_s = None if ends_at is None else ends_at - time.monotonic()
        if left_s is not None and left_s <= 0:
            return
        batch = await subscription.batch(None if count is None else count - printer.count, left_s)
        for notification in batch:
            printer.print(notification)
        sys.stdout.flush()
        if not batch and subscription.is_ended:
            return


def _value(written: str) -> Any:
    """A number, a text in quotes or any other JSON; anything else is a text."""
    try:
        return msgspec.json.decode(written)
    except msgspec.DecodeError:
        return written


class _Printer:
    """Writes notifications, and counts them."""

    def __init__(self, *, as_json: bool) -> None:
        self.count = 0
        self.has_begun = False
        """Whether there is a subscription, and so something to sum up."""
        self._as_json = as_json
        self._began_at = time.monotonic()
        self._topic_width = 0
        self._widths: dict[str, int] = {}

    def print(self, notification: Notification[Any]) -> None:
        """Write one."""
        self.count += 1
        now = datetime.now().astimezone()
        if self._as_json:
            emit_json(_as_object(notification, now))
            return
        topic = notification.topic
        self._topic_width = max(self._topic_width, min(len(topic), _TOPIC_WIDTH_MAX))
        at = now.strftime("%H:%M:%S.%f")[:-3]
        values = self._columns(notification)
        sys.stdout.write(f"{at}  {topic:<{self._topic_width}}  {values}".rstrip() + "\n")

    def _columns(self, notification: Notification[Any]) -> str:
        """The members of an object side by side, or whatever else it is."""
        value = _decoded(notification.payload)
        if not isinstance(value, dict):
            text = notification.payload.decode("utf-8", "replace")
            return "".join(c if c.isprintable() else "·" for c in text)
        cells = []
        for name, member in value.items():
            cell = f"{name} {member if isinstance(member, str) else json.dumps(member)}"
            width = max(self._widths.get(name, 0), min(len(cell), _COLUMN_WIDTH_MAX))
            self._widths[name] = width
            cells.append(f"{cell:<{width}}")
        return "  ".join(cells)

    def summarise(self) -> None:
        """Say how many there were."""
        took_s = time.monotonic() - self._began_at
        noun = "notification" if self.count == 1 else "notifications"
        print(f"{self.count:,} {noun} in {took_s:.1f} s", file=sys.stderr)


_NOT_JSON = object()


def _decoded(payload: bytes) -> Any:
    try:
        return msgspec.json.decode(payload)
    except msgspec.DecodeError:
        return _NOT_JSON


def _as_object(notification: Notification[Any], now: datetime) -> dict[str, Any]:
    """A notification for programs; a payload that is not JSON is `text`, or else `base64`."""
    found: dict[str, Any] = {
        "at": now.timestamp(),
        "topic": notification.topic,
        "id": notification.id,
    }
    payload = notification.payload
    value = _decoded(payload)
    if value is not _NOT_JSON:
        found["value"] = value
    else:
        try:
            found["text"] = payload.decode()
        except UnicodeDecodeError:
            found["base64"] = base64.b64encode(payload).decode()
    if notification.user:
        found["user"] = notification.user
    if notification.retained:
        found["retained"] = True
    return found
