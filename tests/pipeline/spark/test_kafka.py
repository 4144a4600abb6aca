"""Kafka as a source and a sink of Spark. Those with a server come last: Spark keeps its jars."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from rove.bench.servers.jars import JarsMissingError
from rove.bench.servers.kafka import KafkaServer, connector_jars
from rove.broker.storage.records import LogRow
from rove.pipeline.spark.kafka import (
    KafkaError,
    between,
    export_kafka,
    ingest_kafka,
    kafka_records,
    kafka_rows,
)
from rove.pipeline.tables.table import Table
from rove.serve.disk.lake import LakeAppender
from tests.effort import PATIENCE_S

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


def test_every_partition_has_an_offset_also_without_records() -> None:
    latest = {"air": {"10": 4, "0": 8, "2": 0}}
    begin, end = between(None, latest)
    assert begin == '{"air":{"0":-2,"2":-2,"10":-2}}'
    assert end == '{"air":{"0":8,"2":0,"10":4}}'
    assert between('{"air":{"0":8,"2":0}}', latest) == ('{"air":{"0":8,"2":0,"10":-2}}', end)
    assert between(end, latest) == (end, end)


def test_without_its_jar_it_says_what_to_do(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(KafkaError, match="no connector for Kafka; give it with --packages org"):
        ingest_kafka(spark, "127.0.0.1:1", "air", tmp_path / "tables", "air")


def test_records_become_rows(spark: Any) -> None:
    schema = (
        "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
        "timestampType int, headers array<struct<key: string, value: binary>>"
    )
    records = spark.createDataFrame(
        [
            (b"s1", b'{"x": 1}', "air", 0, 7, NOON.replace(tzinfo=None), 0, [("unit", b"ug")]),
            (None, None, "air", 10, 3, NOON.replace(tzinfo=None), 0, None),
        ],
        schema,
    )
    first, second = (row.asDict(recursive=True) for row in kafka_rows(records).collect())
    assert (first["id"], first["client_id"], first["payload"]) == ("air/0/7", "s1", b'{"x": 1}')
    assert first["user"] == [{"name": "unit", "value": "ug"}]
    assert (second["client_id"], second["payload"], second["user"]) == ("", b"", [])


def test_rows_become_records(spark: Any) -> None:
    rows = spark.createDataFrame(
        [(7, NOON.replace(tzinfo=None), "air/a", "r-1", "bea", b"{}", [("unit", "g")], [1, 2])],
        "position long, at timestamp, topic string, id string, client_id string, payload binary, "
        "user array<struct<name: string, value: string>>, subscriptions array<long>",
    )
    [one] = (row.asDict(recursive=True) for row in kafka_records(rows, "publications").collect())
    assert (one["key"], one["value"]) == (b"air/a", b"{}")
    headers = {each["key"]: bytes(each["value"]) for each in one["headers"]}
    assert headers == {
        "unit": b"g", "rove-position": b"7", "rove-id": b"r-1", "rove-topic": b"air/a"
    }  # fmt: skip
    [told] = (row.asDict(recursive=True) for row in kafka_records(rows, "notifications").collect())
    assert told["key"] == b"bea"
    assert json.loads(told["value"])["subscriptions"] == [1, 2]


# --- with a server ----------------------------------------------------------------------------


@pytest.fixture
def connected(spark: Any) -> Any:
    """The session that all share, with the connector."""
    try:
        for jar in connector_jars():
            spark.sql(f"ADD JAR '{jar}'")
    except JarsMissingError as error:
        pytest.skip(str(error))
    return spark


def make_topic(kafka: KafkaServer, partitions: int) -> str:
    name = f"s{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka.servers, "log_level": 0})
    admin.create_topics([NewTopic(name, partitions)])[name].result(PATIENCE_S)
    return name


@pytest.mark.soak
def test_each_record_is_ingested_once_though_partitions_are_empty_or_new(
    connected: Any, kafka: KafkaServer, tmp_path: Path
) -> None:
    topic = make_topic(kafka, 3)

    def produce(partition: int, *numbers: int) -> None:
        producer = Producer({"bootstrap.servers": kafka.servers, "log_level": 0})
        for number in numbers:
            producer.produce(topic, b'{"NO2": %d}' % number, b"s1", partition=partition)
        assert producer.flush(PATIENCE_S) == 0

    def ingested() -> tuple[int, list[int]]:
        report = ingest_kafka(connected, kafka.servers, topic, tmp_path / "tables", "air")
        return report.rows_in, sorted(Table(tmp_path / "tables", "air").read()["NO2"].to_pylist())

    produce(1, 1, 2, 3)
    assert ingested() == (3, [1, 2, 3])
    assert ingested() == (0, [1, 2, 3])
    produce(1, 4)
    produce(2, 5)
    assert ingested() == (2, [1, 2, 3, 4, 5])
    admin = AdminClient({"bootstrap.servers": kafka.servers, "log_level": 0})
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(PATIENCE_S)
    produce(3, 6)
    assert ingested() == (1, [1, 2, 3, 4, 5, 6])


@pytest.mark.soak
def test_a_lake_is_exported_from_where_it_was(
    connected: Any, kafka: KafkaServer, tmp_path: Path
) -> None:
    topic = make_topic(kafka, 1)
    lake = LakeAppender(tmp_path / "lake")

    def exported(first: int, last: int) -> int:
        row = LogRow("publications", "air", NOON.timestamp(), "air/a", "r", payload=b"{}")
        lake.take([(position, row) for position in range(first, last + 1)])
        return export_kafka(
            connected, str(tmp_path / "lake"), kafka.servers, topic, tmp_path / "checkpoint"
        )

    assert exported(1, 4) == 4
    assert exported(5, 6) == 2
    consumer = Consumer({"bootstrap.servers": kafka.servers, "group.id": "w", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = consumer.consume(6, PATIENCE_S)
    consumer.close()
    positions = [dict(message.headers() or ())["rove-position"] for message in found]
    assert positions == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert {message.key() for message in found} == {b"air/a"}
