"""`rove monitor`: a page that shows a world, its engines and a broker, live.

    rove monitor [SCENARIO]         serve the page, and play a scenario for it
    rove monitor export RUN         write a recorded run as one file

Without a scenario there is no world, unless there is nothing else to show either.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rove.cli.common.arguments import port_number, whole_number
from rove.cli.common.connection import password_from
from rove.errors import UsageError

if TYPE_CHECKING:
    from rove.monitor.monitor_server import Settings
    from rove.world.runs.scenarios import Scenario

DEFAULT_SCENARIO = "crowd"
DEFAULT_PORT = 8090
DATABASE_VARIABLE = "ROVE_DATABASE"
"""Everybody on a machine can read the words of a command."""
_WHOLE = whole_number(0)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove monitor`."""
    parser.add_argument(
        "words",
        nargs="*",
        metavar="SCENARIO | export RUN",
        help="to play (`rove world list`, or a file); or which recorded run to write as a file",
    )
    parser.add_argument(
        "--broker", metavar="URL", help="of its HTTP interface, as http://127.0.0.1:8080"
    )
    parser.add_argument("--ca", metavar="FILE", help="with https: whose certificates to trust")
    parser.add_argument(
        "--database",
        metavar="URL",
        default=os.environ.get(DATABASE_VARIABLE),
        help=f"the metrics database, or its file; one with a password is for {DATABASE_VARIABLE}",
    )
    parser.add_argument(
        "--pipeline", metavar="FOLDER", type=Path, help="where jobs of the pipeline write (--out)"
    )
    parser.add_argument("--host", default="127.0.0.1", help="to listen on (default 127.0.0.1)")
    parser.add_argument(
        "--port",
        type=port_number,
        default=DEFAULT_PORT,
        help=f"(default {DEFAULT_PORT}; 0 takes any)",
    )
    parser.add_argument(
        "--password-file",
        metavar="FILE",
        help="holds a key that opens the page; needed to listen beyond this machine without broker",
    )
    # For whoever starts it as a child: `rove.monitor.monitor_process`.
    parser.add_argument("--end-with-stdin", action="store_true", help=argparse.SUPPRESS)
    _configure_scenario(parser)
    _configure_export(parser)


def _configure_scenario(parser: argparse.ArgumentParser) -> None:
    options = parser.add_argument_group("how the scenario differs from its file")
    options.add_argument("--players", metavar="N", type=_WHOLE, help="instead of the scenario's")
    options.add_argument("--engines", metavar="A,B", help="which run: object,tile …")
    options.add_argument("--live-engine", metavar="NAME", help="the one that clients hear")
    options.add_argument("--seed", metavar="N", type=_WHOLE, help="instead of the scenario's")


def run(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C, or write a report."""
    words = arguments.words
    if words[:1] == ["export"]:
        if len(words) != 2:
            raise UsageError("which run? `rove monitor export RUN --database FILE --out FILE`")
        return _export(words[1], arguments)
    if arguments.out is not None:
        raise UsageError("--out is for `rove monitor export RUN`")
    from rove.monitor import monitor_server

    monitor_server.run(_settings(arguments))
    return 0


def _settings(arguments: argparse.Namespace) -> Settings:
    from rove.monitor.monitor_server import Settings

    key = None
    if arguments.password_file is not None:
        key = password_from(arguments.password_file)
    return Settings(
        scenario=_scenario(arguments),
        host=arguments.host,
        port=arguments.port,
        broker=arguments.broker,
        ca_file=arguments.ca,
        database=arguments.database,
        pipeline=arguments.pipeline,
        key=key,
        ends_with_stdin=arguments.end_with_stdin,
    )


def _scenario(arguments: argparse.Namespace) -> Scenario | None:
    words = arguments.words
    if len(words) > 1:
        raise UsageError(f"one scenario is played at a time, not {' and '.join(words)}")
    has_more = arguments.broker or arguments.database or arguments.pipeline
    if not words and has_more:
        for option in ("players", "engines", "live_engine", "seed"):
            if getattr(arguments, option) is not None:
                written = f"--{option.replace('_', '-')}"
                raise UsageError(f"{written} is about a scenario; name one")
        return None
    from rove.world.runs.scenarios import load_scenario

    return load_scenario(words[0] if words else DEFAULT_SCENARIO).sized(
        players=arguments.players,
        seed=arguments.seed,
        engines=None if arguments.engines is None else arguments.engines.split(","),
        live=arguments.live_engine,
    )


# --- export ---------------------------------------------------------------------------------------


def _configure_export(parser: argparse.ArgumentParser) -> None:
    options = parser.add_argument_group("rove monitor export RUN: a run as a file to be mailed")
    options.add_argument(
        "--out",
        metavar="FILE",
        type=Path,
        help="the HTML file to write (default: the run's name, here)",
    )


def _export(run_id: str, arguments: argparse.Namespace) -> int:
    """Write the report and print its path."""
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
    """Anyone can name a run, so not every letter may become part of a file name."""
    return letter if letter.isalnum() or letter in "-_." else "-"
