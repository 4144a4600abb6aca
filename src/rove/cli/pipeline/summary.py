"""`rove pipeline summary`: several runs as one table, of `rove bench --json` or of a database.

Reads the files itself; Spark is not started for a table of some lines.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rove.cli.common.output import emit_json
from rove.errors import UsageError

if TYPE_CHECKING:
    from rove.bench.summaries import Summary

HEADINGS = ("measure", "n", "mean", "95 %", "median", "95 %", "deviation", "unit", "ratio", "95 %")
_TEXTS = (0, 7)
"""Columns that are no numbers."""


def add_summary(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove pipeline summary`."""
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help="lines of `rove bench --json`"
    )
    parser.add_argument("--database", metavar="URL", help="of metrics, for the runs that it has")
    parser.add_argument("--scenario", metavar="NAME", help="of these, only the runs of one")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run_summary(arguments: argparse.Namespace) -> int:
    """Print a line for each measure."""
    from rove.bench.summaries import of_runs, read, summarise

    if bool(arguments.files) == (arguments.database is not None):
        raise UsageError("name files, or a --database: one of them")
    if arguments.database is None:
        found = summarise(read(arguments.files))
    else:
        from rove.metrics.database import Database

        with Database(arguments.database) as database:
            found = summarise(of_runs(database, arguments.scenario))
    if arguments.json:
        for one in found:
            emit_json(msgspec.to_builtins(one))
    else:
        _print_table(found)
    return 0


def _print_table(found: list[Summary]) -> None:
    rows = [HEADINGS, *(_row(one) for one in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    for row in rows:
        cells = [
            f"{cell:<{width}}" if column in _TEXTS else f"{cell:>{width}}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def _row(one: Summary) -> tuple[str, ...]:
    ratio = "" if one.ratio is None else f"{one.ratio:.2f}×"
    return (
        one.name if one.against is None else f"{one.name} (against {one.against})",
        str(one.n),
        _number(one.mean),
        _interval(one.mean_low, one.mean_high),
        _number(one.median),
        _interval(one.median_low, one.median_high),
        "" if one.deviation is None else _number(one.deviation),
        one.unit,
        ratio,
        _interval(one.ratio_low, one.ratio_high),
    )


def _number(value: float) -> str:
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{_number(low)} to {_number(high)}"
