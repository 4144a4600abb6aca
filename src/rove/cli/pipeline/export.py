"""`rove pipeline export`: publications or notifications of a lake to a topic of Kafka."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rove.cli.common.arguments import add_json_flag
from rove.cli.common.output import count_text, emit_json
from rove.cli.pipeline.ingest import add_connector_arguments, with_jars

if TYPE_CHECKING:
    from rove.pipeline.spark.session import SparkSettings


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove pipeline export`, but for those about Spark."""
    parser.add_argument("--lake", metavar="LOCATION", required=True, help="a folder or a URI")
    parser.add_argument("--kafka", metavar="HOST:PORT", required=True, help="its servers")
    parser.add_argument("--kafka-topic", metavar="TOPIC", required=True, help="to write")
    parser.add_argument(
        "--checkpoint", metavar="FOLDER", type=Path, required=True, help="how far it is"
    )
    parser.add_argument("--kind", choices=("publications", "notifications"), default="publications")
    parser.add_argument(
        "--channel", metavar="NAME", action="append", default=[], help="only these (default all)"
    )
    add_connector_arguments(parser)
    add_json_flag(parser)


def run(arguments: argparse.Namespace, settings: SparkSettings) -> int:
    """Write what there is, tell how much that was."""
    from rove.pipeline.lake.log import Lake
    from rove.pipeline.spark.kafka import export_kafka
    from rove.pipeline.spark.session import open_session

    lake = Lake(arguments.lake)  # before Spark takes seconds to start
    session = open_session(with_jars(settings, arguments))
    try:
        count = export_kafka(
            session,
            lake.uri,
            arguments.kafka,
            arguments.kafka_topic,
            arguments.checkpoint,
            kind=arguments.kind,
            channels=arguments.channel,
        )
    finally:
        session.stop()
    if arguments.json:
        emit_json({"records": count})
    else:
        print(f"{count_text(count)} {arguments.kind} to {arguments.kafka_topic}")
    return 0
