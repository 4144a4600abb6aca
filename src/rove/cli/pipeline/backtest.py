"""`rove backtest TEXT`: what a subscription would have brought, before anybody subscribes."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from rove.cli.common.arguments import add_json_flag
from rove.cli.common.input import moment_of, read_expression, read_object
from rove.cli.common.output import emit_json
from rove.cli.common.progress import progress_bar
from rove.cli.pipeline.backtest_view import show
from rove.cli.pipeline.command import add_spark_options, spark_settings
from rove.errors import UsageError
from rove.lang import parse
from rove.lang.normal_form import accepted_form
from rove.mqtt.topics import filter_fault, split_shared

if TYPE_CHECKING:
    from rove.pipeline.tables.backtest import BacktestQuery, BacktestReport

_EXAMPLES_MAX: Final = 1_000


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove backtest`."""
    parser.add_argument("text", help="of the subscription; - is standard input")
    parser.add_argument("--against", metavar="TEXT", help="another one: what would change?")
    when = parser.add_argument_group("when (ago: 30d, 12h, 2w; or 2026-11-16, 2026-11-16T08:00)")
    when.add_argument("--since", metavar="WHEN", default="30d", help="(default 30d)")
    when.add_argument("--until", metavar="WHEN", default="now", help="(default now)")
    when.add_argument(
        "--accepted-at", metavar="WHEN", help="when t is 0 (default: where the period begins)"
    )
    what = parser.add_argument_group("what")
    what.add_argument("--channel", metavar="NAME", action="append", default=[], help="only this")
    what.add_argument("--topic", metavar="FILTER", default="", help="only what this filter fits")
    what.add_argument("--me", metavar="JSON", help="the subscriber's variables; or @FILE")
    where = parser.add_argument_group("where").add_mutually_exclusive_group()
    where.add_argument("--tables", metavar="LOCATION", help="typed tables: a folder or a URI")
    where.add_argument("--lake", metavar="LOCATION", help="a broker's lake, if no tables")
    where.add_argument(
        "--data",
        metavar="FOLDER",
        type=Path,
        default=Path("rove-data"),
        help="with tables/ or lake/ in it (default rove-data)",
    )
    parser.add_argument("--examples", metavar="N", type=int, default=5, help="(default 5)")
    parser.add_argument("--plot", metavar="FILE.png", type=Path, help="draw it there, too")
    add_json_flag(parser)
    add_spark_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Ask, and show."""
    question = _question(arguments, time.time())
    for text in (question.text, question.against):
        if text is not None:
            accepted_form(parse(text))  # what is wrong with it is told before Spark starts
    report = _asked(arguments, question)
    if arguments.plot is not None:
        from rove.pipeline.tables.backtest_plot import draw

        draw(report, arguments.plot)
    if arguments.json:
        emit_json(as_json(report))
    else:
        show(report)
    return 0


def as_json(report: BacktestReport) -> dict[str, object]:
    """Everything, and what follows from it."""
    return {
        **msgspec.to_builtins(report),
        "notifications": report.notifications,
        "notifications_against": report.notifications_against,
        "share": report.share,
        "per_day": report.per_day,
        "bytes_per_day": report.bytes_per_day,
        "days": msgspec.to_builtins(report.days()),
    }


def _question(arguments: argparse.Namespace, now: float) -> BacktestQuery:
    from rove.pipeline.tables.backtest import BacktestQuery

    fault = filter_fault(arguments.topic) if arguments.topic else None
    if fault:
        raise UsageError(f"--topic: {fault}")
    if split_shared(arguments.topic) is not None:
        raise UsageError("--topic: who shares with whom nobody can tell; name the filter alone")
    if not 0 <= arguments.examples <= _EXAMPLES_MAX:
        raise UsageError(f"--examples takes a number from 0 to {_EXAMPLES_MAX:,}")
    if arguments.plot is not None and arguments.plot.suffix != ".png":
        raise UsageError(f"--plot draws PNG files; {arguments.plot} is called otherwise")
    accepted_at = arguments.accepted_at
    return BacktestQuery(
        text=read_expression(arguments.text),
        against=arguments.against,
        since=moment_of(arguments.since, "--since", now),
        until=moment_of(arguments.until, "--until", now),
        accepted_at=accepted_at and moment_of(accepted_at, "--accepted-at", now),
        me={} if arguments.me is None else read_object(arguments.me, "--me"),
        topic_filter=arguments.topic,
        examples=arguments.examples,
    )


def _asked(arguments: argparse.Namespace, question: BacktestQuery) -> BacktestReport:
    from rove.pipeline.spark.session import open_session
    from rove.pipeline.tables.backtest import backtest
    from rove.pipeline.tables.backtest_sources import open_source

    history = open_source(
        tables_folder=arguments.tables,
        lake=arguments.lake,
        data_folder=arguments.data,
        channels=arguments.channel,
    )
    with progress_bar("starting Spark", "parts", as_json=arguments.json) as tell:
        session = open_session(spark_settings(arguments))
        try:
            return backtest(
                session, history, question, lambda done, parts: tell(done, parts, "matching")
            )
        finally:
            session.stop()
