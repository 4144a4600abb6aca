"""What a run of a world came to, as a person reads it and as a program does.

A line for each engine: what it costs (subscriptions, operations on them, messages, bytes, the time
that finding receivers took) and how good it is (how long replicas were missing or stale beyond the
delay that it states; seconds of all clients and replicas added up). Below, a line for each audience
if something was published that has one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table

from rove.cli.common.output import bytes_text, count_text

if TYPE_CHECKING:
    from rove.world.runs.scenario_run import ScenarioResult

_LIVE: Final = "●"
_UNKNOWN: Final = "–"
"""Only the broker knows it."""
_COLUMNS_MIN: Final = 120
"""A terminal that has fewer breaks lines; rich would cut figures."""


def show(result: ScenarioResult) -> None:
    """Print it."""
    console = Console(file=sys.stdout)
    console.width = max(console.width, _COLUMNS_MIN)
    console.print(heading(result), style="bold", highlight=False, soft_wrap=True)
    if result.engines:
        console.print(engine_table(result))
    if result.heard:
        console.print(audience_table(result))
        if (devices := device_table(result)) is not None:
            console.print(devices)
    console.print(closing_line(result), highlight=False, soft_wrap=True)


def heading(result: ScenarioResult) -> str:
    """What was run."""
    players, servers = _some(result.players, "player"), _some(result.servers, "server")
    others = f"{result.entities:,} entities in all"
    return f"{result.scenario}: {result.title}; {players}, {others}, {servers}, seed {result.seed}"


def _some(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def engine_table(result: ScenarioResult) -> Table:
    """A line for each engine, the live one marked."""
    costs = ("subscriptions", "operations", "replicas", "updates", "bytes", "matching")
    table = _table("engine", "delay", *costs, "missing", "stale")
    facts = {engine.name: engine for engine in result.engines}
    for name, of in result.summary().items():
        table.add_row(
            f"{_LIVE if facts[name].live else ' '} {name}",
            f"{facts[name].delay_s:.1f} s",
            count_text(of["subscriptions"]),
            count_text(of["subscribes"] + of["unsubscribes"]),
            count_text(of["replica_messages"]),
            count_text(of["update_notifications"]),
            bytes_text(of["published_bytes"] + of["delivered_bytes"]),
            _milliseconds(of["matching_s"]),
            _seconds(of["missing_s"]),
            _seconds(of["stale_s"]),
        )
    return table


def audience_table(result: ScenarioResult) -> Table:
    """A line for each audience: what it subscribed to, what was published, what it was told."""
    table = _table(
        "audience",
        *("subscriptions", "operations", "publications", "bytes"),
        *("notifications", "bytes", "matching"),
    )
    for name, of in result.audiences().items():
        table.add_row(
            name,
            count_text(of["subscriptions"]),
            count_text(of["operations"]),
            count_text(of["publications"]),
            bytes_text(of["published_bytes"]),
            count_text(of["notifications"]),
            bytes_text(of["notified_bytes"]),
            _milliseconds(of["matching_s"]) if "matching_s" in of else _UNKNOWN,
        )
    return table


def device_table(result: ScenarioResult) -> Table | None:
    """A line for each audience with devices: what policies left of it, and what came through."""
    table = _table("device", "sent", "bytes", "changed", "received", "bytes", "network", "battery")
    for name, of in result.audiences().items():
        if "battery" in of:
            table.add_row(
                name,
                count_text(of["notifications"]),
                bytes_text(of["notified_bytes"]),
                count_text(of["changed"]) if "changed" in of else _UNKNOWN,
                count_text(of["received"]),
                bytes_text(of["received_bytes"]),
                f"{of['network']:.0%}",
                f"{of['battery']:.0%}",
            )
    return table if table.row_count else None


def closing_line(result: ScenarioResult) -> str:
    """How fast it was, and the hash of its history."""
    took = ""
    if result.elapsed_s is not None and result.speed is not None:
        took = f" in {result.elapsed_s:.1f} s, {result.speed:,.1f}x real time"
    world = f"{result.seconds:g} s of the world, {result.ticks:,} ticks"
    if result.servers > 1:
        world += f", {result.handed_over:,} hand-overs"
    return f"{world}{took}; trace {result.trace_hash}"


def json_rows(result: ScenarioResult) -> Iterator[dict[str, object]]:
    """What the run was, then what each engine and each audience came to."""
    yield {
        "scenario": result.scenario,
        "title": result.title,
        "seed": result.seed,
        "players": result.players,
        "entities": result.entities,
        "servers": result.servers,
        "seconds": result.seconds,
        "ticks": result.ticks,
        "handed_over": result.handed_over,
        "elapsed_s": result.elapsed_s,
        "speed": result.speed,
        "trace_hash": result.trace_hash,
    }
    facts = {engine.name: engine for engine in result.engines}
    for name, figures in result.summary().items():
        about = facts[name]
        yield {"engine": name, "live": about.live, "delay_s": about.delay_s, **figures}
    for name, figures in result.audiences().items():
        yield {"audience": name, **figures}


def _table(first: str, *headings: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for each in headings:
        table.add_column(each, justify="right", no_wrap=True)
    return table


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.0f} ms"


def _seconds(value: float) -> str:
    return f"{value:,.1f} s" if value else "0 s"
