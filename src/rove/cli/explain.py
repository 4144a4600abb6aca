"""`rove explain TEXT --publication JSON`: does it match, and why or why not?"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import msgspec

from rove.cli.output import EXIT_NO, EXIT_YES, emit_json
from rove.cli.texts import add_json_flag, read_object, read_subscription
from rove.errors import UsageError
from rove.lang import Explanation, explain

_MARKS = {True: "✔ true   ", False: "✘ false  ", None: "? unknown"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove explain`."""
    parser.add_argument("text", help="a subscription, or - to read one from standard input")
    parser.add_argument("--publication", metavar="JSON|@FILE", required=True)
    parser.add_argument(
        "--at",
        metavar="SECONDS",
        type=float,
        default=0.0,
        help="t: seconds since the subscription was accepted (default 0)",
    )
    parser.add_argument("--me", metavar="JSON|@FILE", default="{}", help="the subscriber's state")
    add_json_flag(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the explanation; exit 0 if it matches, 1 if not."""
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
