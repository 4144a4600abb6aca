"""`rove explain TEXT --publication JSON`: does it match, and why or why not?

With `--live` a broker is asked instead: why did this publication not reach that client?
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from rove.cli.common.arguments import add_json_flag
from rove.cli.common.input import read_object, read_subscription
from rove.cli.common.output import EXIT_DONT_KNOW, EXIT_NO, EXIT_YES, emit_json
from rove.errors import UsageError
from rove.lang import Explanation, explain

_MARKS = {True: "✔ true   ", False: "✘ false  ", None: "? unknown"}
_SIGNS = {True: "✔", False: "✘", None: "?"}
_VERDICTS = {
    True: "it reaches the subscription",
    False: "it does not reach the subscription",
    None: "whether it reached the subscription cannot be known for certain",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove explain`."""
    from rove.cli.common.connection import add_http_arguments

    parser.add_argument(
        "text", nargs="?", help="a subscription, or - to read one from standard input"
    )
    parser.add_argument(
        "--publication",
        metavar="JSON|@FILE|ID",
        required=True,
        help="what it says; with --live also the id of one that came lately",
    )
    parser.add_argument(
        "--at",
        metavar="SECONDS",
        type=float,
        default=0.0,
        help="t: seconds since the subscription was accepted (default 0)",
    )
    parser.add_argument("--me", metavar="JSON|@FILE", default="{}", help="the subscriber's state")
    live = parser.add_argument_group("asking a broker that runs")
    live.add_argument("--live", action="store_true", help="ask the broker at --url")
    live.add_argument("--client", metavar="NAME", help="all subscriptions of that client")
    live.add_argument("--subscription", metavar="N", type=int, help="one, as rove ls numbers it")
    live.add_argument("--topic", help="of a publication that is given as JSON")
    add_http_arguments(parser)
    add_json_flag(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the explanation; exit 0 if it matches, 1 if not."""
    if arguments.live:
        return _run_live(arguments)
    if arguments.text is None:
        raise UsageError("explain what? write a subscription, or ask a broker with --live")
    if not 0 <= arguments.at < float("inf"):
        raise UsageError("--at takes seconds since the subscription was accepted, from 0 on")
    matched, parts = explain(
        read_subscription(arguments.text),
        read_object(arguments.publication, "--publication"),
        arguments.at,
        read_object(arguments.me, "--me"),
    )
    if arguments.json:
        emit_json({"matches": matched, "parts": msgspec.to_builtins(parts)})
    else:
        print("it matches" if matched else "it does not match")
        print("\n".join(line for part in parts for line in _lines(part, "  ")))
    return EXIT_YES if matched else EXIT_NO


def _lines(part: Explanation, indent: str) -> Iterator[str]:
    shown = part.why if part.parts else f"{part.text}    ({part.why})" if part.why else part.text
    yield f"{indent}{_MARKS[part.truth]}  {shown}"
    for inner in part.parts:
        yield from _lines(inner, f"{indent}  ")


# --- a broker that runs ---------------------------------------------------------------------------


def _run_live(arguments: argparse.Namespace) -> int:
    from rove.cli.common.connection import BrokerApi

    found = BrokerApi(arguments).ask("/explain", _question(arguments))
    if arguments.json:
        emit_json(found)
    else:
        print("\n".join(_live_lines(found)))
    reached = [one["reaches"] for one in found["subscriptions"]]
    if True in reached:
        return EXIT_YES
    return EXIT_DONT_KNOW if None in reached else EXIT_NO


def _question(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.text is not None:
        raise UsageError("--live asks about a subscription of the broker; leave out the text")
    if (arguments.client is None) == (arguments.subscription is None):
        raise UsageError("--live needs --client or --subscription, and not both")
    question: dict[str, Any] = {"publication": arguments.publication}
    if arguments.publication.startswith(("{", "@")):
        if arguments.topic is None:
            raise UsageError("a publication that is given as JSON needs --topic")
        question["publication"] = read_object(arguments.publication, "--publication")
        question["topic"] = arguments.topic
    if arguments.client is not None:
        question["client"] = arguments.client
    else:
        question["subscription"] = arguments.subscription
    return question


def _live_lines(found: dict[str, Any]) -> Iterator[str]:
    from rove.cli.common.output import duration_text
    from rove.cli.ls import printable

    publication = found["publication"]
    said = printable(publication["topic"])
    if "id" in publication:
        ago = duration_text(max(0.0, time.time() - publication["at"]))
        yield (
            f"{printable(publication['id'])} on {said}, published {ago} ago by "
            f"{printable(publication['publisher'])}; sessions notified: {publication['notified']}"
        )
    else:
        yield f"a publication on {said}"
    for one in found["subscriptions"]:
        what = one["subscription"]
        text = f" where {what['filter']}" if what["filter"] else ""
        yield ""
        yield printable(f"subscription {what['number']} of {what['client']}: {what['topic']}{text}")
        for check in one["checks"]:
            yield f"  {_SIGNS[check['passed']]} {check['check']:<10}  {printable(check['why'])}"
            for part in check.get("parts", ()):
                yield from _lines(msgspec.convert(part, Explanation), " " * 6)
        yield f"  {_VERDICTS[one['reaches']]}"
