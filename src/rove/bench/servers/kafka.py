"""A real Kafka on loopback, for tests and benchmarks: one node in KRaft mode, with a small heap.

Its jars (45 files, 43 MB), and the connector that Spark needs for it, come by
`rove.bench.servers.jars`; a machine that cannot have them has no Kafka here, and whoever wants it
is told so in one line.

The storage is not formatted by Kafka's own tool, which would be a second start of Java: the one
file that it writes is written here. A start takes 2 to 3 s on an idle machine.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rove.base.processes import Program
from rove.bench.servers.jars import JarsMissingError, fetched
from rove.errors import RoveError
from rove.pipeline.spark.java import JavaError, find_java
from rove.testing.broker_processes import HOST
from rove.testing.ports import free_port

KAFKA: Final = ("org.apache.kafka:kafka_2.13:4.1.0",)
CONNECTOR: Final = ("4.2.0", "4.0.0")
"""Versions of the connector and of what it needs for tokens: each that could be had and works."""
_BESIDE: Final = ("org.apache.kafka:kafka-clients:3.9.2", "org.apache.commons:commons-pool2:2.13.1")
START_S_MAX: Final = 120.0
_CLUSTER: Final = "cm92ZS1vbi1sb29wYmFjaw"
_SETTINGS: Final = """process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@{host}:{controller_port}
log.dirs={folder}
num.partitions=1
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.cleaner.threads=1
log.cleaner.dedupe.buffer.size=2097152
num.network.threads=2
num.io.threads=2
background.threads=2
"""
_JAVA: Final = (
    "-Xmx384m",
    "-Xms64m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
)


class KafkaMissingError(RoveError):
    """There is no Kafka to be had here; the text says why."""


# --- jars -------------------------------------------------------------------------------------


def kafka_jars() -> Path:
    """The folder with the jars of Kafka; JarsMissingError says why there is none."""
    return fetched("kafka", KAFKA)


def connector_jars() -> list[Path]:
    """What Spark needs to read and write Kafka, beside what it has.

    Of this Spark's version; where that is not to be had, the newest that is known to work.
    """
    from pyspark import __version__ as version

    found: list[JarsMissingError] = []
    for each, tokens in ((version, version), CONNECTOR):
        wanted = [
            f"org.apache.spark:spark-sql-kafka-0-10_2.13:{each}",
            f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{tokens}",
        ]
        try:
            folder = fetched("connector", (*wanted, *_BESIDE), alone=True)
        except JarsMissingError as error:
            found.append(error)
        else:
            return sorted(folder.glob("*.jar"))
    raise found[-1]


# --- the server -------------------------------------------------------------------------------


class KafkaServer:
    """One node; killed and started again, it has the same port and the same data."""

    def __init__(self, folder: Path) -> None:
        try:
            self._jars = kafka_jars()
            self._java = find_java().real_home / "bin" / "java"
        except (JarsMissingError, JavaError) as error:
            raise KafkaMissingError(str(error)) from error
        self.port = free_port()
        self.servers = f"{HOST}:{self.port}"
        self._log = folder / "kafka.log"
        self._settings = folder / "kafka.properties"
        self._program: Program | None = None
        data = folder / "kafka"
        data.mkdir(parents=True)
        identity = f"version=1\ncluster.id={_CLUSTER}\nnode.id=1\ndirectory.id={_CLUSTER}\n"
        (data / "meta.properties").write_text(identity, encoding="ascii")
        text = _SETTINGS.format(host=HOST, port=self.port, controller_port=free_port(), folder=data)
        self._settings.write_text(text, encoding="utf-8")

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.spawn()
        assert self._program is not None
        self._program.wait_until(self._answers, START_S_MAX, KafkaMissingError)

    def spawn(self) -> None:
        """Start it, and wait for nothing."""
        command = [str(self._java), *_JAVA, "-cp", f"{self._jars}/*", "kafka.Kafka"]
        self._program = Program("Kafka", [*command, self._settings], self._log)

    def kill(self) -> None:
        """End it without a word of warning."""
        if self._program is not None:
            self._program.kill()
            self._program = None

    def _answers(self) -> bool:
        """Whether it takes requests: it listens a little earlier."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), timeout=1):
            admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
            with contextlib.suppress(KafkaException):
                return bool(admin.list_topics(timeout=2).brokers)
        return False


@contextlib.contextmanager
def kafka_server(folder: Path) -> Iterator[KafkaServer]:
    """A Kafka that is there while it is needed."""
    server = KafkaServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()


if __name__ == "__main__":
    kafka_jars()
    connector_jars()
