"""`rove top`: a broker's rates, as they are.

Reads `/metrics` twice a second and shows differences. The broker does no more work for this than
for any scraper; a look takes it about a millisecond. Of a broker that may have matchers `/matchers`
is read too, and shown from when there are processes, or something was rearranged. Policies have
lines of their own from the first one on.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from rove.cli.common.arguments import add_json_flag
from rove.cli.common.connection import BrokerApi, add_http_arguments
from rove.cli.common.output import bytes_text, count_text, duration_text, emit_json, is_terminal
from rove.cli.ls import COLUMNS, ListColumn, plain_lines, table_of
from rove.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

BARS = "▁▂▃▄▅▆▇█"
HISTORY = 40
REARRANGED = 3
"""How many of the last rearrangements are shown."""
Metrics = dict[str, float]


class MetricsSample(NamedTuple):
    """What `/metrics` said, and when."""

    at: float
    metrics: Metrics
    matchers: dict[str, Any] | None = None
    """What `/matchers` said, if there is anything to show."""


class ScreenLine(NamedTuple):
    """One line of the screen: what it is called, and what of two samples it shows."""

    name: str
    title: str
    value: Callable[[MetricsSample, MetricsSample], float]
    shown: Callable[[float], str] = count_text


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove top`."""
    parser.add_argument(
        "--interval", metavar="SECONDS", type=float, default=0.5, help="(default 0.5)"
    )
    parser.add_argument("--once", action="store_true", help="measure one interval and stop")
    add_http_arguments(parser)
    add_json_flag(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show until interrupted, or once."""
    if not 0.05 <= arguments.interval <= 3600:
        raise UsageError("--interval takes seconds from 0.05 to 3600")
    broker = BrokerApi(arguments)
    if arguments.json and not arguments.once:
        raise UsageError("--json goes with --once")
    if arguments.once or not is_terminal():
        _once(broker, arguments)
    else:
        _watch(broker, arguments.interval)
    return 0


def _once(broker: BrokerApi, arguments: argparse.Namespace) -> None:
    first = _sample(broker)
    time.sleep(arguments.interval)
    last = _sample(broker)
    measures = measures_of(last)
    values = {one.name: one.value(first, last) for one in measures}
    matchers = last.matchers
    if arguments.json:
        more = {} if matchers is None else {"matchers": matchers}
        emit_json({name: round(value, 3) for name, value in values.items()} | more)
        return
    width = max(len(one.title) for one in measures)
    sys.stdout.writelines(
        f"{one.title:<{width}}  {one.shown(values[one.name]):>12}\n" for one in measures
    )
    if matchers is not None:
        sys.stdout.write(f"\nmatchers, {matchers['layout']}\n")
        sys.stdout.writelines(plain_lines(MATCHERS, matchers["matchers"]))
        if past := rearranged(matchers):
            sys.stdout.writelines(["\n", *plain_lines(REARRANGEMENTS, past)])


def _sample(broker: BrokerApi) -> MetricsSample:
    text = broker.text("/metrics")
    at, metrics = time.monotonic(), read_metrics(text.splitlines())
    return MetricsSample(at, metrics, matchers_of(broker.ask) if "matchers" in metrics else None)


def matchers_of(ask: Callable[[str], Any]) -> dict[str, Any] | None:
    """What a broker tells of its matchers; None of one that has always matched by itself."""
    found: dict[str, Any] = ask("/matchers")
    has_processes = any(one["number"] for one in found["matchers"])
    return found if has_processes or found["reconfigurations"] else None


def read_metrics(lines: Iterable[str]) -> Metrics:
    """The numbers of a text for Prometheus, without `rove_`; those with labels are left out."""
    found: Metrics = {}
    for line in lines:
        name, _, value = line.rpartition(" ")
        if name.startswith("rove_") and "{" not in name:
            found[name.removeprefix("rove_")] = float(value)
    return found


# --- what is shown --------------------------------------------------------------------------------


def _rate(*names: str) -> Callable[[MetricsSample, MetricsSample], float]:
    def rate(first: MetricsSample, last: MetricsSample) -> float:
        grown = sum(
            last.metrics.get(f"{name}_total", 0.0) - first.metrics.get(f"{name}_total", 0.0)
            for name in names
        )
        # A broker that was started anew counts from 0.
        return max(0.0, grown / max(last.at - first.at, 1e-9))

    return rate


def _now(name: str) -> Callable[[MetricsSample, MetricsSample], float]:
    return lambda _first, last: last.metrics.get(name, 0.0)


def _per_second(value: float) -> str:
    return f"{bytes_text(value)}/s"


DROPS = (
    "notifications_dropped_slow",
    "notifications_dropped_overflow",
    "notifications_dropped_expired",
    "notifications_dropped_size",
    "notifications_dropped_away",
    "notifications_dropped_session",
)
BAD = ("dropped_per_s", "faults", "policies_suspended")
"""What is red unless it is 0."""
MEASURES = (
    ScreenLine("publications_per_s", "publications/s", _rate("publications_received")),
    ScreenLine("notifications_per_s", "notifications/s", _rate("notifications_sent")),
    ScreenLine("dropped_per_s", "dropped/s", _rate(*DROPS)),
    ScreenLine("received_bytes_per_s", "received", _rate("bytes_received"), _per_second),
    ScreenLine("sent_bytes_per_s", "sent", _rate("bytes_sent"), _per_second),
    ScreenLine("connections", "connections", _now("connections_open")),
    ScreenLine("sessions_away", "sessions away", _now("sessions_away")),
    ScreenLine("subscriptions", "subscriptions", _now("subscriptions")),
    ScreenLine("queued_messages", "queued", _now("queued_messages")),
    ScreenLine("queued_bytes", "queued bytes", _now("queued_bytes"), bytes_text),
    ScreenLine("inflight_messages", "in flight", _now("inflight_messages")),
    ScreenLine("commit_backlog_bytes", "waits for disk", _now("commit_backlog_bytes"), bytes_text),
    ScreenLine("faults", "faults", _now("faults_total")),
)
POLICY_MEASURES = (
    ScreenLine("policies", "policies", _now("policies")),
    ScreenLine("policies_suspended", "policies suspended", _now("policies_suspended")),
    ScreenLine("policy_calls_per_s", "policy calls/s", _rate("policy_calls")),
    ScreenLine("policy_cores", "cores for policies", _rate("policy_cpu_seconds"), "{:.2f}".format),
)


def measures_of(sample: MetricsSample) -> tuple[ScreenLine, ...]:
    """What there is to show of a broker."""
    return MEASURES + POLICY_MEASURES if "policies" in sample.metrics else MEASURES


def rearranged(matchers: dict[str, Any]) -> list[dict[str, Any]]:
    """The last rearrangements, the newest first."""
    past: list[dict[str, Any]] = matchers["reconfigurations"]
    return past[: -REARRANGED - 1 : -1]


def _why(one: dict[str, Any]) -> str:
    return f"given up: {one['failure']} ({one['reason']})" if one["failure"] else one["reason"]


MATCHERS = tuple(
    one for one in COLUMNS["matchers"] if one.title not in ("process", "cells", "messages")
)
REARRANGEMENTS = (
    ListColumn("ago", lambda one: duration_text(max(0.0, time.time() - one["at"])), True),
    ListColumn("what", lambda one: one["kind"]),
    ListColumn("took", lambda one: f"{one['duration_s'] * 1000:,.0f} ms", True),
    ListColumn("processes", lambda one: str(one["matchers"]), True),
    ListColumn("moved", lambda one: count_text(one["moved"]), True),
    ListColumn("why", _why),
)


class Screen:
    """What is on the terminal: each measure, and how it was lately."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._history: dict[str, deque[float]] = {
            one.name: deque(maxlen=HISTORY) for one in MEASURES + POLICY_MEASURES
        }

    def drawn(self, first: MetricsSample, last: MetricsSample) -> RenderableType:
        """The screen after one more look."""
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        up = duration_text(last.metrics.get("uptime_seconds", 0.0))
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
        table.title = Text(f"rove  {self._url}  up {up}", style="bold")
        if last.metrics.get("publishers_are_paused"):
            table.title.append("  publishers are held back", style="bold red")
        for title, justify in (("", "left"), ("now", "right"), ("lately", "left"), ("", "right")):
            width = 12 if title == "now" else HISTORY if title == "lately" else None
            table.add_column(title, justify=justify, min_width=width)  # type: ignore[arg-type]
        for one in measures_of(last):
            history = self._history[one.name]
            history.append(one.value(first, last))
            highest = max(history)
            style = "red" if one.name in BAD and history[-1] else "cyan"
            most = Text(f"max {one.shown(highest)}", style="dim")
            bars = Text(sparkline(history), style=style)
            table.add_row(one.title, one.shown(history[-1]), bars, most)
        if last.matchers is None:
            return table
        return Group(table, *_matchers_drawn(last.matchers))


def _matchers_drawn(matchers: dict[str, Any]) -> Iterable[RenderableType]:
    """Who matches, and what was rearranged of late; in few lines, a terminal may have 24."""
    from rich.padding import Padding
    from rich.text import Text

    title = f"matchers  {matchers['layout']}, at most {matchers['matchers_max']} processes"
    if matchers["is_reconfiguring"]:
        title += ", being rearranged"
    tables = [table_of(MATCHERS, matchers["matchers"])]
    if past := rearranged(matchers):
        tables.append(table_of(REARRANGEMENTS, past))
        for row, one in zip(tables[-1].rows, past, strict=True):
            row.style = "red" if one["failure"] else ""
    yield Text(title, style="bold")
    for table in tables:
        table.show_edge = False
        for column in table.columns[:-1]:
            # Where there is no room, the reason takes several lines, and nothing else does.
            column.no_wrap = True
        yield Padding(table, (0, 0, 1, 1))


def sparkline(values: Iterable[float]) -> str:
    """Small bars, the highest value as high as can be."""
    listed = list(values)
    highest = max(listed, default=0.0)
    if highest <= 0:
        return BARS[0] * len(listed)
    last = len(BARS) - 1
    return "".join(BARS[round(max(0.0, value) / highest * last)] for value in listed)


def _watch(broker: BrokerApi, interval_s: float) -> None:
    from rich.live import Live

    screen = Screen(broker.url)
    last = _sample(broker)
    with Live(screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(interval_s)
            first, last = last, _sample(broker)
            live.update(screen.drawn(first, last), refresh=True)
