"""`rove pipeline policy LAKE [FILE]`: try a policy on the past, before it goes live.

With a file, what its policy would have sent of everything that clients were notified of; without,
what the policies did that there were, computed anew and compared with the log.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rove.cli.common.arguments import add_json_flag
from rove.cli.common.input import moment_of, read_policy
from rove.cli.common.output import EXIT_NO, EXIT_YES, bytes_text, count_text, emit_json
from rove.errors import UsageError

if TYPE_CHECKING:
    from rove.pipeline.lake.log import Lake
    from rove.pipeline.spark.session import SparkSettings

SHOWN: Final = 20
_SUMMED: Final = (
    "messages",
    "sent",
    "bytes_in",
    "bytes_out",
    "passed",
    "changed",
    "dropped",
    "stopped",
    "suspended",
    "steps",
    "different",
)
_COUNTS: Final = ("messages", "sent")
_SIZES: Final = ("bytes_in", "bytes_out")
_VERDICTS: Final = ("passed", "changed", "dropped", "stopped", "suspended")
HEADINGS: Final = (
    *("client", "policy of", "messages", "sent", "bytes in", "bytes out", "saved"),
    *_VERDICTS,
    "steps",
)
_TEXTS: Final = 2
"""The first columns are no numbers."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove pipeline policy`, but for those about Spark."""
    parser.add_argument("lake", metavar="LAKE", help="a broker's lake: a folder or a URI")
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="a policy to try, - is standard input; without, those that there were",
    )
    parser.add_argument(
        "--client", metavar="ID", action="append", default=[], help="only this one; several times"
    )
    parser.add_argument("--channel", metavar="NAME", action="append", default=[], help="only this")
    when = parser.add_argument_group("when, in whole days of UTC (30d, 2w ago; or 2026-11-16)")
    when.add_argument("--since", metavar="WHEN", help="(default: all that the lake has)")
    when.add_argument("--until", metavar="WHEN", default="now", help="(default now)")
    parser.add_argument(
        "--all", action="store_true", help=f"show every client, not the {SHOWN} with most messages"
    )
    add_json_flag(parser)


def run(arguments: argparse.Namespace, spark: SparkSettings | None = None) -> int:
    """Compute, and show; the exit code says whether the log says the same."""
    days = _days(arguments, time.time())
    text = None if arguments.file is None else read_policy(arguments.file)
    from rove.pipeline.lake.log import Lake
    from rove.pipeline.spark.session import open_session

    lake = Lake(arguments.lake)
    if text is not None:
        from rove.policy.compiler import compiled
        from rove.policy.limits import PolicyLimits

        # What is wrong with it is told before Spark starts.
        compiled(text, bytes_max=PolicyLimits().text_bytes_max)
    session = open_session(spark)
    try:
        found = counted(session, lake, text, arguments, days)
    finally:
        session.stop()
    total = _total(found)
    if arguments.json:
        emit_json({"policies": found, "total": total})
    else:
        _show(found if arguments.all else found[:SHOWN], total, len(found))
    return EXIT_NO if total["different"] else EXIT_YES


def _days(arguments: argparse.Namespace, now: float) -> tuple[str, str] | None:
    if arguments.since is None:
        return None
    moments = (
        moment_of(arguments.since, "--since", now),
        moment_of(arguments.until, "--until", now),
    )
    if moments[0] > moments[1]:
        raise UsageError("--since must lie before --until")
    first, last = (time.strftime("%Y-%m-%d", time.gmtime(at)) for at in moments)
    return first, last


def counted(
    session: Any,
    lake: Lake,
    text: str | None,
    arguments: argparse.Namespace,
    days: tuple[str, str] | None,
) -> list[dict[str, Any]]:
    """By client and policy, those with most messages first."""
    from rove.pipeline.policies.replay import counts, replay_policies, replay_policy

    how: dict[str, Any] = {
        "client_ids": arguments.client or None,
        "channels": arguments.channel or None,
        "days": days,
        "payloads": False,
    }
    if text is None:
        decisions = replay_policies(session, lake, **how)
    else:
        decisions = replay_policy(session, lake, text, **how)
    rows = [row.asDict() for row in counts(decisions).collect()]
    return sorted(rows, key=lambda row: (-row["messages"], row["client_id"], row["subscription"]))


def _total(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {name: sum(row[name] for row in found) for name in _SUMMED}
    kinds: Counter[str] = Counter()
    for row in found:
        kinds.update(row["kinds"])
    return {**total, "kinds": dict(sorted(kinds.items()))}


def _show(shown: Sequence[Mapping[str, Any]], total: Mapping[str, Any], count: int) -> None:
    rows = [HEADINGS, *(_row(one["client_id"], _owner(one), one) for one in shown)]
    rows.append(_row("all", f"{count_text(count)} policies", total))
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    for row in rows:
        cells = [
            f"{cell:<{width}}" if column < _TEXTS else f"{cell:>{width}}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")
    if count > len(shown):
        sys.stdout.write(f"{count_text(count - len(shown))} more with fewer messages; see --all\n")
    if total["kinds"]:
        told = ", ".join(f"{count_text(times)} by {kind}" for kind, times in total["kinds"].items())
        sys.stdout.write(f"stopped: {told}\n")
    if total["different"]:
        sys.stdout.write(f"{count_text(total['different'])} decisions are not those of the log\n")


def _owner(row: Mapping[str, Any]) -> str:
    number = row["subscription"]
    return f"subscription {number}" if number else "session"


def _row(name: str, owner: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    saved = 1 - row["bytes_out"] / row["bytes_in"] if row["bytes_in"] else 0.0
    return (
        name,
        owner,
        *(count_text(row[column]) for column in _COUNTS),
        *(bytes_text(row[column]) for column in _SIZES),
        f"{saved:.0%}",
        *(count_text(row[column]) for column in _VERDICTS),
        count_text(row["steps"]),
    )
