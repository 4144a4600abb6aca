"""`rove monitor export RUN --database URL --out FILE`: a run as a file that can be mailed."""

from __future__ import annotations

import argparse
from pathlib import Path

from rove.errors import UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove monitor export`."""
    options = parser.add_argument_group("rove monitor export RUN: a run as a file to be mailed")
    options.add_argument(
        "--out",
        metavar="FILE",
        type=Path,
        help="the HTML file to write (default: the run's name, here)",
    )


def run(run_id: str, arguments: argparse.Namespace) -> int:
    """Write the report and say where it is."""
    if arguments.database is None:
        raise UsageError(
            "export from where? name the metrics database with --database, a file or a URL"
        )
    from rove.metrics.database import Database
    from rove.monitor.export import report

    with Database(arguments.database) as database:
        text = report(database, run_id)
    path = arguments.out or Path(f"{''.join(map(_plain, run_id))}.html")
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    print(f"{path}: {len(text.encode()) // 1000} KB")
    return 0


def _plain(letter: str) -> str:
    """Runs are named by anybody; files should not be."""
    return letter if letter.isalnum() or letter in "-_." else "-"
