"""`rove pipeline ingest`: the lake, files or a topic of Kafka into typed tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rove.cli.common.arguments import add_json_flag
from rove.cli.common.output import bytes_text, count_text, duration_text, emit_json, emit_rows
from rove.cli.common.progress import progress_bar
from rove.errors import UsageError

if TYPE_CHECKING:
    from rove.pipeline.spark.session import SparkSettings
    from rove.pipeline.tables.ingest import IngestReport
    from rove.pipeline.tables.quality import RuleBook

EXIT_UNREADABLE = 1
"""Everything is done, but for files that could not be read."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove pipeline ingest`, but for those about Spark."""
    parser.add_argument(
        "files", nargs="*", type=Path, help="CSV, JSON lines or Parquet, if no lake"
    )
    parser.add_argument(
        "--tables", metavar="LOCATION", required=True, help="to write: a folder or a URI"
    )
    parser.add_argument("--rules", metavar="FILE", type=Path, help="of quality (docs/tables.md)")
    parser.add_argument(
        "--channel", metavar="NAME", action="append", help="only this one; of files, whose they are"
    )
    add_json_flag(parser)
    lake = parser.add_argument_group("from a broker's lake")
    lake.add_argument("--lake", metavar="LOCATION", help="to read: a folder or a URI")
    lake.add_argument("--up-to", metavar="POSITION", type=int, help="of the log")
    files = parser.add_argument_group("from files")
    files.add_argument("--format", choices=("csv", "jsonl", "parquet"), help="(default by name)")
    files.add_argument("--at", metavar="COLUMN", default="at", help="the moment (default at)")
    files.add_argument("--id", metavar="COLUMN", default="id", help="the id (default id)")
    files.add_argument("--client", metavar="COLUMN", help="who published it")
    files.add_argument("--lat", metavar="COLUMN", help="the latitude, if it is called otherwise")
    files.add_argument("--long", metavar="COLUMN", help="the longitude")
    files.add_argument("--topic", metavar="TOPIC", default="", help="of all rows")
    kafka = parser.add_argument_group("from Kafka")
    kafka.add_argument("--kafka", metavar="HOST:PORT", help="its servers")
    kafka.add_argument("--kafka-topic", metavar="TOPIC", help="to read")
    add_connector_arguments(kafka)


def add_connector_arguments(parser: argparse._ActionsContainer) -> None:
    """Add how Spark gets its connector for Kafka."""
    parser.add_argument("--packages", metavar="NAMES", help="that Spark fetches: its connector")
    parser.add_argument("--jars", metavar="FILES", help="or the connector itself")


def run(arguments: argparse.Namespace, settings: SparkSettings) -> int:
    """Ingest what was named, tell what was done."""
    ingest = _chosen(arguments)
    from rove.pipeline.lake.log import Lake
    from rove.pipeline.spark.session import open_session
    from rove.pipeline.tables.quality import RuleBook, read_rules

    rules = read_rules(arguments.rules) if arguments.rules else RuleBook()
    if arguments.lake is not None:
        Lake(arguments.lake)  # before Spark takes seconds to start
    session = open_session(with_jars(settings, arguments))
    try:
        report = ingest(session, arguments, rules)
    finally:
        session.stop()
    _show(report, as_json=arguments.json)
    return EXIT_UNREADABLE if report.unreadable else 0


def _chosen(arguments: argparse.Namespace) -> Callable[..., IngestReport]:
    """Where from; UsageError if that is not one place."""
    given = {
        _from_lake: arguments.lake is not None,
        _from_files: bool(arguments.files),
        _from_kafka: arguments.kafka is not None,
    }
    chosen = [source for source, is_given in given.items() if is_given]
    if len(chosen) != 1:
        raise UsageError("say where from: --lake LOCATION, files, or --kafka HOST:PORT")
    if chosen != [_from_lake] and len(arguments.channel or ()) != 1:
        raise UsageError("say into which channel, with one --channel NAME")
    if chosen == [_from_kafka] and not arguments.kafka_topic:
        raise UsageError("say which topic of Kafka, with --kafka-topic TOPIC")
    return chosen[0]


def with_jars(settings: SparkSettings, arguments: argparse.Namespace) -> SparkSettings:
    """With the connector that was given."""
    given = {"spark.jars.packages": arguments.packages, "spark.jars": arguments.jars}
    more = {name: value for name, value in given.items() if value}
    return msgspec.structs.replace(settings, conf=settings.conf | more)


def _from_lake(session: Any, arguments: argparse.Namespace, rules: RuleBook) -> IngestReport:
    from rove.pipeline.tables.ingest import ingest

    with progress_bar("ingesting", "bytes", as_json=arguments.json) as tell:
        return ingest(
            session,
            arguments.lake,
            arguments.tables,
            rules=rules,
            channels=arguments.channel,
            up_to=arguments.up_to,
            on_progress=tell,
        )


def _from_files(session: Any, arguments: argparse.Namespace, rules: RuleBook) -> IngestReport:
    from rove.pipeline.tables.file_import import ImportColumns, ingest_files

    columns = ImportColumns(
        at=arguments.at,
        id=arguments.id,
        client_id=arguments.client,
        lat=arguments.lat,
        long=arguments.long,
        topic=arguments.topic,
    )
    return ingest_files(
        session,
        arguments.files,
        arguments.tables,
        arguments.channel[0],
        columns=columns,
        format=arguments.format,
        rules=rules,
    )


def _from_kafka(session: Any, arguments: argparse.Namespace, rules: RuleBook) -> IngestReport:
    from rove.pipeline.spark.kafka import ingest_kafka

    [channel] = arguments.channel
    return ingest_kafka(
        session, arguments.kafka, arguments.kafka_topic, arguments.tables, channel, rules=rules
    )


def _show(report: IngestReport, *, as_json: bool) -> None:
    if as_json:
        emit_json(msgspec.to_builtins(report))
        return
    per_s = report.rows_in / report.seconds if report.seconds else 0.0
    took = f"{duration_text(report.seconds)} ({count_text(round(per_s))} a second)"
    rows = [
        ("rows read", f"{count_text(report.rows_in)} in {took}"),
        *((f"into {channel}", count_text(count)) for channel, count in report.by_channel.items()),
        *((f"rejected: {why}", count_text(count)) for why, count in report.rejected.items()),
        ("written", f"{report.files_written} files, {bytes_text(report.bytes_written)}"),
    ]
    emit_rows(rows)
    for each in report.unreadable:
        print(f"cannot be read, and will be tried again: {each}", file=sys.stderr)
