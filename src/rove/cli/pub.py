"""`rove pub`: publish a value, or every line of a file.

Returns when the broker has everything on disk (QoS 0: when it was sent). Lines are sent a thousand
at a time, in order. One that is not JSON is named on stderr and left out, the others are published
all the same, and the exit code is then 2; so it is when the broker refuses one.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rove.cli.common.arguments import add_json_flag
from rove.cli.common.connection import add_connection_arguments, named_values, open_client
from rove.cli.common.input import STDIN, opened
from rove.cli.common.output import emit_json
from rove.cli.common.progress import watched_lines
from rove.errors import UsageError

if TYPE_CHECKING:
    from rove.client import Client, Published

_EXIT_LINES_LEFT_OUT = 2
_COMPLAINTS_SHOWN_MAX = 20
_JSON_STARTS = (b"{", b"[")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove pub`."""
    parser.add_argument("topic")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("value", nargs="?", help="JSON or text; - reads it from standard input")
    what.add_argument("--file", metavar="FILE", help="publish the content of a file")
    what.add_argument("--lines", metavar="FILE", help="publish every line; - is standard input")
    parser.add_argument("-q", "--qos", type=int, choices=(0, 1, 2), default=1)
    parser.add_argument("--retain", action="store_true", help="keep it as the topic's last value")
    parser.add_argument("--id", help="its name (default: a new one); the same again is the same")
    parser.add_argument(
        "--valid-for", metavar="SECONDS", help="keep it for later subscriptions; or `forever`"
    )
    parser.add_argument(
        "--expiry", metavar="SECONDS", type=int, help="how long it may wait for who is away"
    )
    parser.add_argument(
        "-D",
        "--property",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a user property, which subscriptions see as an attribute",
    )
    parser.add_argument("--raw", action="store_true", help="whatever it is, JSON or not")
    add_json_flag(parser)
    add_connection_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Publish."""
    if arguments.lines is None:
        return asyncio.run(_publish_one(arguments, _payload(arguments)))
    if arguments.id is not None:
        raise UsageError("--id names one publication, and --lines are many")
    return asyncio.run(_Lines(arguments).publish())


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "qos": arguments.qos,
        "retain": arguments.retain,
        "valid_for": arguments.valid_for,
        "expiry_s": arguments.expiry,
        "user": named_values(arguments.property, "-D"),
    }


def _payload(arguments: argparse.Namespace) -> bytes:
    """The bytes to publish; what begins like JSON has to be JSON."""
    payload: bytes
    if arguments.file is not None:
        payload = Path(arguments.file).read_bytes()
    elif arguments.value is None:
        raise UsageError("there is nothing to publish; give a value, --file or --lines")
    elif arguments.value == STDIN:
        payload = sys.stdin.buffer.read()
    else:
        payload = arguments.value.encode("utf-8", "surrogateescape")
    if payload.lstrip().startswith(_JSON_STARTS) and not arguments.raw:
        try:
            msgspec.json.decode(payload)
        except msgspec.DecodeError as error:
            raise UsageError(f"the value is not JSON: {error} (--raw sends it as it is)") from None
    return payload


async def _publish_one(arguments: argparse.Namespace, payload: bytes) -> int:
    options = _options(arguments)
    async with open_client(arguments) as client:
        published = await client.publish(arguments.topic, payload, id=arguments.id, **options)
    if arguments.json:
        # Only what was published is of interest here, not what the broker says besides.
        emit_json({"id": published.id, "has_subscribers": published.has_subscribers})
    else:
        nobody = "" if published.has_subscribers else " (nobody has subscribed to it)"
        print(f"{published.id}{nobody}")
    return 0


class _Lines:
    """One run over many lines."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.published = self.complaints = 0
        self._options = _options(arguments)
        self._unanswered: set[asyncio.Future[Published]] = set()

    async def publish(self) -> int:
        """Publish every line, then say how many there were."""
        file = self.arguments.lines
        began_at = time.perf_counter()
        with opened(file) as lines:
            async with open_client(self.arguments) as client:
                await self._publish_all(client, watched_lines(lines, file, "publishing"))
        took_s = time.perf_counter() - began_at
        self._summarise(took_s)
        return _EXIT_LINES_LEFT_OUT if self.complaints else 0

    async def _publish_all(self, client: Client, lines: Iterable[bytes]) -> None:
        for number, line in enumerate(lines, start=1):
            payload = line.rstrip(b"\r\n")
            if not payload.strip() or not self._is_good(number, payload):
                continue
            receipt = await client.post(self.arguments.topic, payload, **self._options)
            self._unanswered.add(receipt)
            receipt.add_done_callback(self._answered(number))
        if self._unanswered:
            await asyncio.wait(self._unanswered)

    def _is_good(self, number: int, payload: bytes) -> bool:
        if self.arguments.raw:
            return True
        try:
            msgspec.json.decode(payload)
        except msgspec.DecodeError as error:
            self._complain(number, f"left out: not JSON: {error}")
            return False
        return True

    def _answered(self, number: int) -> Callable[[asyncio.Future[Published]], None]:
        def answered(receipt: asyncio.Future[Published]) -> None:
            self._unanswered.discard(receipt)
            error = receipt.exception()
            if error is None:
                self.published += 1
            else:
                self._complain(number, str(error))

        return answered

    def _complain(self, number: int, what: str) -> None:
        self.complaints += 1
        if self.complaints <= _COMPLAINTS_SHOWN_MAX:
            print(f"rove: {self.arguments.lines}, line {number}: {what}", file=sys.stderr)

    def _summarise(self, took_s: float) -> None:
        more = self.complaints - _COMPLAINTS_SHOWN_MAX
        if more > 0:
            print(f"rove: {more} more lines left out", file=sys.stderr)
        if self.arguments.json:
            emit_json({"published": self.published, "left_out": self.complaints, "s": took_s})
            return
        rate = f"{self.published / max(took_s, 1e-9):,.0f}"
        print(
            f"{self.published:,} published, {self.complaints:,} left out, "
            f"in {took_s:.2f} s: {rate}/s",
            file=sys.stderr,
        )
