"""`rove pipeline export` with a real Kafka, its driver and Java killed at any moment.

Nothing is lost, and without what came again, the records of one key are in the order of the log.
What came again are rows of the one batch that was under way at a kill.
"""

from __future__ import annotations

import random
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from rove.bench.pipeline.feed import Feed, publish_some
from rove.bench.servers.kafka import KafkaMissingError, KafkaServer, connector_jars
from rove.bench.servers.spark_cluster import kill_session
from rove.pipeline.spark.kafka import EXPORT_ROWS
from tests.effort import PATIENCE_S
from tests.waiting import eventually

PARTITIONS = 2
KILLS = 4
COUNT = 5 * EXPORT_ROWS
"""Two batches, and what is killed with them, are left when the last kill has been."""


class Export:
    """The command, started again with the same checkpoint."""

    def __init__(self, lake: Path, kafka: KafkaServer, topic: str, folder: Path) -> None:
        jars = ",".join(map(str, connector_jars()))
        self._command = [
            sys.executable, "-m", "rove", "pipeline", "export", "--lake", str(lake),
            "--kafka", kafka.servers, "--kafka-topic", topic, "--jars", jars,
            "--checkpoint", str(folder / "checkpoint"), "--memory", "1g", "--brief",
        ]  # fmt: skip
        self._log = folder / "export.log"
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            # A session of its own, so that its Java can be killed with it.
            self.process = subprocess.Popen(
                self._command, stdout=log, stderr=log, start_new_session=True
            )
        return self.process

    def said(self) -> str:
        return self._log.read_text(errors="replace")[-3_000:]


@pytest.fixture
def topic(kafka: KafkaServer) -> str:
    name = f"e{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka.servers, "log_level": 0})
    admin.create_topics([NewTopic(name, PARTITIONS)])[name].result(PATIENCE_S)
    return name


def witness(kafka: KafkaServer) -> Consumer:
    return Consumer({"bootstrap.servers": kafka.servers, "group.id": "witness", "log_level": 0})


def high_water(kafka: KafkaServer, topic: str) -> int:
    """How many records the topic has."""
    consumer = witness(kafka)
    try:
        ends = [
            consumer.get_watermark_offsets(TopicPartition(topic, each), PATIENCE_S)[1]
            for each in range(PARTITIONS)
        ]
    finally:
        consumer.close()
    return sum(ends)


def records(kafka: KafkaServer, topic: str) -> list[tuple[bytes, int]]:
    """Keys and positions of all records, a partition after another."""
    count, found = high_water(kafka, topic), list[tuple[bytes, int]]()
    consumer = witness(kafka)
    for partition in range(PARTITIONS):
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), PATIENCE_S)
        consumer.assign([TopicPartition(topic, partition, 0)])
        for _ in range(end):
            [message] = consumer.consume(1, PATIENCE_S)
            assert message.error() is None
            headers = dict(message.headers() or ())
            found.append((message.key() or b"", int(headers["rove-position"] or b"")))
    consumer.close()
    assert len(found) == count
    return found


@pytest.mark.soak
def test_killed_while_it_exports_nothing_is_lost_or_out_of_order(
    kafka: KafkaServer, topic: str, tmp_path: Path
) -> None:
    try:
        connector_jars()
    except KafkaMissingError as error:
        pytest.skip(str(error))
    feed = Feed(tmp_path / "lake", rows_per_file=7_000)
    publish_some(feed, COUNT, 1_763_294_400.0)
    feed.write()
    chance = random.SystemRandom()
    export = Export(tmp_path / "lake", kafka, topic, tmp_path)
    try:
        for _ in range(KILLS):
            # Somewhere within one of the batches, first or second of this start.
            more = high_water(kafka, topic) + chance.randrange(1, EXPORT_ROWS)
            eventually(
                lambda more=more: (  # type: ignore[misc]
                    high_water(kafka, topic) >= more or export.process.poll() is not None
                ),
                "nothing is exported",
            )
            assert export.process.poll() is None, export.said()
            kill_session(export.process)
            export.start()
        assert export.process.wait(PATIENCE_S) == 0, export.said()
    finally:
        kill_session(export.process)
    check(records(kafka, topic))


def check(found: list[tuple[bytes, int]]) -> None:
    of_key: dict[bytes, dict[int, None]] = {}
    for key, position in found:
        of_key.setdefault(key, {})[position] = None  # the first time that it is there
    assert sorted(p for positions in of_key.values() for p in positions) == list(range(COUNT))
    for key, positions in of_key.items():
        assert list(positions) == sorted(positions), f"out of order: {key!r}"
    repeated = len(found) - COUNT
    print(f"{repeated} of {COUNT} came again after {KILLS} kills")
    assert repeated <= KILLS * EXPORT_ROWS
