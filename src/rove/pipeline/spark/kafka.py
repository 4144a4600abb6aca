"""Kafka as a source and a sink of the pipeline, by Spark's own connector, which is a jar.

Source: the records of a topic into a typed table, each once; the table stores the offsets. Spark's
connector needs an offset for every partition of a topic, even for those without records. They are
found by a stream that starts at the end of the topic: it takes a second and reads nothing.

Sink: publications or notifications of a lake as records, by a stream with a checkpoint. Spark's
connector has no transactions, so a batch that was being written at a crash is repeated: each record
at least once. A single task writes a batch, in the order of the log: two tasks would write rows of
one key concurrently. The header `rove-position` is the row's position in the log, by which a
consumer recognizes repeats. (`rove bridge kafka` writes publications exactly once.)
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from rove.errors import RoveError
from rove.lake.storage import Location, resolved
from rove.pipeline.spark.dialect import check_streams
from rove.pipeline.tables.file_import import first_line, ingest_rows
from rove.pipeline.tables.ingest import IngestReport, TargetTable
from rove.pipeline.tables.quality import RuleBook

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

EARLIEST: Final = -2
"""The offset of the beginning, for Spark's connector."""
KINDS: Final = ("publications", "notifications")
EXPORT_ROWS: Final = 50_000
"""Rows in a batch of an export; at most these are repeated after a crash."""
_NO_CONNECTOR: Final = ("KAFKA_DATA_SOURCE_NOT_ENABLED", "DATA_SOURCE_NOT_FOUND")
_NOTIFICATION_SQL: Final = (
    "named_struct('position', position, 'at', at, 'topic', topic, 'id', id, "
    "'client_id', client_id, 'subscriptions', subscriptions)"
)
Offsets = dict[str, dict[str, int]]


class KafkaError(RoveError):
    """Kafka cannot be read or written, or Spark has no connector for it."""


# --- in ---------------------------------------------------------------------------------------


def ingest_kafka(
    spark: SparkSession,
    servers: str,
    topic: str,
    tables: Location,
    channel: str,
    *,
    options: Mapping[str, str] | None = None,
    rules: RuleBook | None = None,
) -> IngestReport:
    """Ingest the records of a Kafka topic into a table, from where the last run ended."""
    target = TargetTable(resolved(tables), channel, rules or RuleBook())
    name = f"kafka:{servers}/{topic}"
    stored = target.channel.sources().get(name)
    source_options = {"kafka.bootstrap.servers": servers, "subscribe": topic, **(options or {})}
    begin, end = between(stored, latest_offsets(spark, source_options))
    if end == stored:
        return IngestReport()
    with _told("read"):
        records = (
            spark.read.format("kafka")
            .options(
                startingOffsets=begin, endingOffsets=end, includeHeaders="true", **source_options
            )
            .load()
        )
        return ingest_rows(spark, kafka_rows(records), target, {name: end})


def latest_offsets(spark: SparkSession, source_options: Mapping[str, str]) -> Offsets:
    """The end offsets of all partitions."""
    with _told("read"), tempfile.TemporaryDirectory() as folder:
        query = (
            spark.readStream.format("kafka")
            .options(startingOffsets="latest", **source_options)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", Path(folder).as_uri())
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        progress: Any = query.lastProgress
    if progress is None:
        raise KafkaError("Kafka did not report the end of the topic; try again")
    found = progress["sources"][0]["endOffset"]
    return msgspec.convert(
        found if isinstance(found, dict) else msgspec.json.decode(found), Offsets
    )


def between(stored: str | None, latest: Offsets) -> tuple[str, str]:
    """The first and the last offsets of all partitions, as the connector writes them.

    A partition that is new since the last run is read from its beginning.
    """
    known: Offsets = msgspec.json.decode(stored, type=Offsets) if stored else {}
    begin = {
        topic: {number: known.get(topic, {}).get(number, EARLIEST) for number in ends}
        for topic, ends in latest.items()
    }
    return _written(begin), _written(latest)


def _written(offsets: Offsets) -> str:
    ordered = {
        topic: dict(sorted(ends.items(), key=lambda each: int(each[0])))
        for topic, ends in sorted(offsets.items())
    }
    return msgspec.json.encode(ordered).decode()


def kafka_rows(records: DataFrame) -> DataFrame:
    """Records as rows of the lake: the value is the payload, headers are user properties."""
    return records.selectExpr(
        "cast(null as long) position",
        "timestamp at",
        "topic",
        "concat(topic, '/', partition, '/', offset) id",
        "coalesce(cast(key as string), '') client_id",
        "coalesce(value, x'') payload",
        "coalesce(transform(headers, each -> named_struct('name', each.key, "
        "'value', coalesce(cast(each.value as string), ''))), array()) user",
        "cast(0 as tinyint) qos",
        "cast(null as string) reason",
    )


# --- out --------------------------------------------------------------------------------------


def export_kafka(
    spark: SparkSession,
    lake: str,
    servers: str,
    topic: str,
    checkpoint: Path,
    *,
    kind: str = "publications",
    channels: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> int:
    """Write rows of a lake as records, from the checkpoint on; returns how many."""
    from rove.pipeline.lake.data_source import register

    check_streams()
    register(spark)
    chosen = {"channels": msgspec.json.encode(list(channels)).decode()} if channels else {}
    bounds = {"slices": "1", "max_rows": str(EXPORT_ROWS)}
    rows = spark.readStream.format("rove").options(kind=kind, **bounds, **chosen).load(lake)
    with _told("write"):
        query = (
            kafka_records(rows, kind)
            .writeStream.format("kafka")
            .options(topic=topic, checkpointLocation=checkpoint.resolve().as_uri())
            .options(**{"kafka.bootstrap.servers": servers, **(options or {})})
            .trigger(availableNow=True)
            .start()
        )
        return _rows_taken(query)


def _rows_taken(query: StreamingQuery) -> int:
    """How many rows a query processes until it ends. Spark keeps only its last hundred batches."""
    of_batch: dict[int, int] = {}
    has_ended = False
    while not has_ended:
        has_ended = query.awaitTermination(1)
        of_batch |= {each["batchId"]: each["numInputRows"] for each in query.recentProgress}
    return sum(of_batch.values())


def kafka_records(rows: DataFrame, kind: str) -> DataFrame:
    """Rows of the lake as records.

    The value of a publication is its payload, the key its topic. The value of a notification is
    JSON with what the log has of it, the key the client that was notified.
    """
    is_publication = kind == "publications"
    headers = (
        "named_struct('key', 'rove-position', 'value', cast(cast(position as string) as binary))",
        "named_struct('key', 'rove-id', 'value', cast(id as binary))",
        "named_struct('key', 'rove-topic', 'value', cast(topic as binary))",
    )
    each = "named_struct('key', each.name, 'value', cast(each.value as binary))"
    user = f"transform(user, each -> {each})"
    return rows.selectExpr(
        "cast(topic as binary) key" if is_publication else "cast(client_id as binary) key",
        "payload value"
        if is_publication
        else f"cast(to_json({_NOTIFICATION_SQL}) as binary) value",
        f"concat(coalesce({user}, array()), array({', '.join(headers)})) headers",
    )


# --- errors -----------------------------------------------------------------------------------


@contextmanager
def _told(verb: str) -> Iterator[None]:
    """Turn errors of Spark and its connector into one line."""
    from pyspark import __version__ as version
    from pyspark.errors import AnalysisException, PySparkException

    try:
        yield
    except AnalysisException as error:
        if error.getCondition() not in _NO_CONNECTOR:
            raise KafkaError(f"cannot {verb} Kafka: {first_line(error)}") from error
        raise KafkaError(
            "this Spark has no connector for Kafka; give it with "
            f"--packages org.apache.spark:spark-sql-kafka-0-10_2.13:{version}, or its jars "
            "with --jars"
        ) from error
    except PySparkException as error:
        raise KafkaError(f"cannot {verb} Kafka: {first_line(error)}") from error
