"""`rove ls [clients|subscriptions|queues|matchers|policies]`: what is inside a broker that runs."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from rove.cli.common.arguments import add_json_flag
from rove.cli.common.connection import BrokerApi, add_http_arguments
from rove.cli.common.output import bytes_text, count_text, duration_text, emit_json, is_terminal

if TYPE_CHECKING:
    from rich.table import Table

PAGE = 1000
POLICIES_MAX = 10_000
"""Policies that a broker shows; it has no pages of them."""


class ListColumn(NamedTuple):
    """A column: its title, and what it shows of an item."""

    title: str
    shown: Callable[[dict[str, Any]], str]
    is_number: bool = False


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove ls`."""
    parser.add_argument(
        "what", nargs="?", choices=tuple(COLUMNS), default="clients", help="(default clients)"
    )
    parser.add_argument(
        "--client", metavar="NAME", help="only subscriptions, or policies, of this client"
    )
    parser.add_argument(
        "--limit", metavar="N", type=int, default=1000, help="how many at most (default 1000)"
    )
    add_http_arguments(parser)
    add_json_flag(parser)


def run(arguments: argparse.Namespace) -> int:
    """List, and say on stderr if that was not all."""
    items, is_all = _items(BrokerApi(arguments), arguments)
    if arguments.json:
        emit_json(items)
        return 0
    columns = COLUMNS[arguments.what]
    if not items:
        print(NOTHING[arguments.what], file=sys.stderr)
    elif is_terminal():
        _draw(columns, items)
    else:
        sys.stdout.writelines(plain_lines(columns, items))
    if not is_all:
        print(f"there are more than {len(items)}; --limit shows more", file=sys.stderr)
    return 0


def _items(broker: BrokerApi, arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], bool]:
    """As many as were asked for, page by page; and whether there were no more."""
    if arguments.what == "matchers":
        matchers: list[dict[str, Any]] = broker.ask("/matchers")["matchers"]
        return matchers[: arguments.limit], len(matchers) <= arguments.limit
    if arguments.what == "policies":
        return _policies(broker, arguments)
    found: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None and len(found) < arguments.limit:
        query: dict[str, Any] = {"limit": min(PAGE, arguments.limit - len(found))}
        if arguments.what != "queues":
            query["after"] = after
        if arguments.what == "subscriptions" and arguments.client is not None:
            query["client"] = arguments.client
        page = broker.ask(f"/{arguments.what}?{urlencode(query)}")
        found += page["items"]
        after = page.get("next")
    return found, after is None


def _policies(
    broker: BrokerApi, arguments: argparse.Namespace
) -> tuple[list[dict[str, Any]], bool]:
    query: dict[str, Any] = {"limit": max(0, min(POLICIES_MAX, arguments.limit))}
    if arguments.client is not None:
        query["client"] = arguments.client
    if not arguments.json:
        query["short"] = "true"
    view = broker.ask(f"/policies?{urlencode(query)}")
    found: list[dict[str, Any]] = view["policies"]
    return found, view["count"] <= len(found)


# --- what is shown --------------------------------------------------------------------------------


def _ago(item: dict[str, Any], name: str) -> str:
    return "" if item[name] is None else duration_text(max(0.0, time.time() - item[name]))


def _policy_state(one: dict[str, Any]) -> str:
    """Whether it is at work, and for how long not."""
    left_s = (one["suspended_until"] or 0.0) - time.time()
    return f"suspended, {duration_text(left_s)} left" if left_s > 0 else "at work"


def _tally(title: str, name: str) -> ListColumn:
    return ListColumn(title, lambda one: count_text(one["tally"][name]), True)


COLUMNS: dict[str, tuple[ListColumn, ...]] = {
    "clients": (
        ListColumn("client", lambda one: one["client"]),
        ListColumn("user", lambda one: one["user"] or "–"),
        ListColumn("state", lambda one: "connected" if one["connected"] else "away"),
        ListColumn("for", lambda one: _ago(one, "since"), True),
        ListColumn("MQTT", lambda one: one["version"]),
        ListColumn("subscriptions", lambda one: count_text(one["subscriptions"]), True),
        ListColumn("queued", lambda one: count_text(one["queue_messages"]), True),
        ListColumn("in flight", lambda one: count_text(one["inflight"]), True),
        ListColumn("from", lambda one: one["address"] or ""),
    ),
    "subscriptions": (
        ListColumn("number", lambda one: str(one["number"]), True),
        ListColumn("client", lambda one: one["client"]),
        ListColumn("topic", lambda one: one["topic"]),
        ListColumn("filter", lambda one: one["filter"] or "–"),
        ListColumn("evolve", lambda one: one["evolve"] or "–"),
        ListColumn("engine", lambda one: one["engine"]),
        ListColumn("QoS", lambda one: str(one["qos"]), True),
        ListColumn("for", lambda one: _ago(one, "accepted_at"), True),
    ),
    "queues": (
        ListColumn("client", lambda one: one["client"]),
        ListColumn("state", lambda one: "connected" if one["connected"] else "away"),
        ListColumn("queued", lambda one: count_text(one["queue_messages"]), True),
        ListColumn("size", lambda one: bytes_text(one["queue_bytes"]), True),
        ListColumn("oldest", lambda one: duration_text(one["oldest_s"]), True),
        ListColumn("in flight", lambda one: count_text(one["inflight"]), True),
    ),
    "matchers": (
        ListColumn("matcher", lambda one: str(one["number"]), True),
        ListColumn("role", lambda one: one["role"]),
        ListColumn("process", lambda one: str(one["pid"] or "–"), True),
        ListColumn("idle", lambda one: f"{one['idle_share']:.0%}", True),
        ListColumn("subscriptions", lambda one: count_text(one["subscriptions"]), True),
        ListColumn("cells", lambda one: count_text(one["cells"]), True),
        ListColumn("messages/s", lambda one: count_text(one["messages_per_s"]), True),
        ListColumn("messages", lambda one: count_text(one["messages"]), True),
    ),
    "policies": (
        ListColumn("client", lambda one: one["client_id"]),
        ListColumn("of", lambda one: one["topic_filter"] or "the session"),
        ListColumn("state", _policy_state),
        ListColumn("for", lambda one: _ago(one, "set_at"), True),
        _tally("calls", "calls"),
        _tally("passed", "passed"),
        _tally("changed", "changed"),
        _tally("dropped", "dropped"),
        ListColumn("stopped", lambda one: count_text(sum(one["tally"]["stopped"].values())), True),
        ListColumn("waiting", lambda one: count_text(one["waiting"]), True),
        ListColumn("in", lambda one: bytes_text(one["tally"]["bytes_in"]), True),
        ListColumn("out", lambda one: bytes_text(one["tally"]["bytes_out"]), True),
        ListColumn("CPU", lambda one: f"{one['tally']['cpu_s'] * 1000:,.0f} ms", True),
        ListColumn("last trouble", lambda one: one["last_trouble"] or "–"),
    ),
}
NOTHING = {
    "clients": "there is nobody",
    "subscriptions": "there are no subscriptions",
    "queues": "nothing waits for anybody",
    "matchers": "nobody matches",
    "policies": "nobody has a policy",
}


def _draw(columns: tuple[ListColumn, ...], items: Iterable[dict[str, Any]]) -> None:
    from rich.console import Console

    Console().print(table_of(columns, items))


def table_of(columns: tuple[ListColumn, ...], items: Iterable[dict[str, Any]]) -> Table:
    """As a terminal shows it."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column.title, justify="right" if column.is_number else "left")
    for item in items:
        # Text, because what clients call themselves must not be taken for markup.
        table.add_row(*(Text(printable(column.shown(item))) for column in columns))
    return table


def plain_lines(columns: tuple[ListColumn, ...], items: Iterable[dict[str, Any]]) -> list[str]:
    """The same for a pipe: columns between two spaces, no colours, nothing cut off."""
    rows = [[column.title for column in columns]]
    rows += [[printable(column.shown(item)) for column in columns] for item in items]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return [_line(columns, row, widths) for row in rows]


def _line(columns: tuple[ListColumn, ...], row: list[str], widths: list[int]) -> str:
    cells = [
        cell.rjust(width) if column.is_number else cell.ljust(width)
        for column, cell, width in zip(columns, row, widths, strict=True)
    ]
    return "  ".join(cells).rstrip() + "\n"


def printable(text: str) -> str:
    """Without what a terminal would obey."""
    return "".join(each if each.isprintable() else "�" for each in text)
