"""What a route writes to Kafka: records and its positions, in transactions.

Positions are records of a compacted topic with the bridge's name and one partition, under the keys
`route` (towards Kafka) and `route/partition` (towards the broker). Consumer groups would lose them
a week after a bridge last ran. A transaction has the name `bridge.route`; opening it ends what
another process has open under that name, and that process can write no more.

All calls block. One takes 3 to 10 ms on loopback, most of it in Kafka.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from rove.bridge.routes import BridgeConfig, BridgeError, BridgeRoute
from rove.bridge.translation import KafkaRecord
from rove.errors import RoveError

ANSWER_S_MAX: Final = 10.0
_COMPACTED: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(4 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}
_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)


class KafkaUnavailable(RoveError):
    """Kafka cannot be reached at the moment; trying again may help."""


class KafkaTransactions:
    """The transactions of one route."""

    def __init__(
        self, config: BridgeConfig, route: BridgeRoute, is_stopped: threading.Event
    ) -> None:
        self._config, self._route = config, route
        self._is_stopped = is_stopped
        self._topic = config.name
        self._producer: Producer | None = None

    # -- opening -------------------------------------------------------------------------------

    def open(self) -> dict[str, bytes]:
        """End what other processes have open under this name; returns the positions, by key."""
        with kafka_errors(self._config):
            self._make_topic()
            name = f"{self._config.name}.{self._route.title}"
            self._producer = Producer(
                settings(self._config)
                | {"transactional.id": name, "linger.ms": 5, "compression.type": "lz4"}
            )
            self._insist(lambda: self._opened().init_transactions(ANSWER_S_MAX))
            return self._read()

    def close(self) -> None:
        """Close; an open transaction ends when the next process opens it."""
        if self._producer is not None:
            self._producer.purge()
            self._producer = None

    def partitions(self) -> list[int]:
        """The partitions of the route's topic; BridgeError if Kafka has no such topic."""
        with kafka_errors(self._config):
            found = self._admin().list_topics(timeout=ANSWER_S_MAX).topics
        topic = found.get(self._route.kafka_topic)
        if topic is None or topic.error is not None or not topic.partitions:
            raise BridgeError(
                f"route {self._route.title!r}: Kafka at {self._config.kafka} has no topic "
                f"{self._route.kafka_topic!r}; create it first"
            )
        return sorted(topic.partitions)

    def _opened(self) -> Producer:
        assert self._producer is not None, "open it first"
        return self._producer

    def _admin(self) -> AdminClient:
        return AdminClient(settings(self._config))

    def _make_topic(self) -> None:
        admin = self._admin()  # without a reference it would end before it has an answer
        made = admin.create_topics(
            [NewTopic(self._topic, 1, config=_COMPACTED)], request_timeout=ANSWER_S_MAX
        )
        try:
            made[self._topic].result(ANSWER_S_MAX)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        except TimeoutError:
            raise KafkaUnavailable(f"Kafka at {self._config.kafka} does not answer") from None

    def _read(self) -> dict[str, bytes]:
        """The positions of this route in the topic; of several, the last counts."""
        found: dict[str, bytes] = {}
        title = self._route.title
        options = {"group.id": self._topic, "enable.auto.commit": False}
        consumer = Consumer(
            settings(self._config)
            | options
            | {"isolation.level": "read_committed", "enable.partition.eof": True}
        )
        try:
            consumer.assign([TopicPartition(self._topic, 0, 0)])
            while True:
                self._check_stopped()
                for message in consumer.consume(1_000, 0.5):
                    error = message.error()
                    if error is not None:
                        if error.code() == KafkaError._PARTITION_EOF:
                            return found
                        raise KafkaException(error)
                    key = (message.key() or b"").decode()
                    if key == title or key.startswith(f"{title}/"):
                        found[key] = message.value() or b""
        finally:
            consumer.close()

    # -- writing -------------------------------------------------------------------------------

    def write(self, records: Iterable[KafkaRecord], positions: Mapping[str, bytes]) -> None:
        """Records of the route's topic and positions: all of them count, or none.

        KafkaUnavailable if none do and it may be tried again.
        """
        producer, topic = self._opened(), self._route.kafka_topic
        with kafka_errors(self._config):
            try:
                producer.begin_transaction()
                for record in records:
                    self._produce(topic, record.key, record.value, record)
                for key, value in positions.items():
                    self._produce(self._topic, key.encode(), value)
                self._insist(lambda: producer.commit_transaction(ANSWER_S_MAX))
            except KafkaException as error:
                if error.args[0].txn_requires_abort():
                    self._insist(lambda: producer.abort_transaction(ANSWER_S_MAX))
                raise

    def _produce(
        self, topic: str, key: bytes | None, value: bytes | None, record: KafkaRecord | None = None
    ) -> None:
        more: dict[str, Any] = {}
        if record is not None:
            more = {"headers": list(record.headers), "timestamp": record.at_ms}
        producer = self._opened()
        while True:
            try:
                producer.produce(topic, value, key, **more)
                return
            except BufferError:
                self._check_stopped()
                producer.poll(0.1)

    def _insist(self, call: Callable[[], None]) -> None:
        """Repeat a call until its outcome is known: a time limit leaves that open."""
        while True:
            try:
                call()
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                self._check_stopped()

    def _check_stopped(self) -> None:
        if self._is_stopped.is_set():
            raise KafkaUnavailable(f"Kafka at {self._config.kafka} did not answer before the end")


def settings(config: BridgeConfig) -> dict[str, Any]:
    """Options of all Kafka clients."""
    return {
        "log_level": 0,
        "reconnect.backoff.max.ms": 2_000,
        **config.kafka_options,
        "bootstrap.servers": config.kafka,
    }


class kafka_errors:  # noqa: N801 (reads as a word, like contextlib's)
    """Kafka errors as one line: KafkaUnavailable, or BridgeError if a retry cannot help."""

    def __init__(self, config: BridgeConfig) -> None:
        self._config = config

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, KafkaException):
            return
        what: KafkaError = error.args[0]
        where = f"Kafka at {self._config.kafka}"
        if what.code() in _FENCED:
            raise BridgeError(
                f"another bridge {self._config.name!r} has taken this route over; "
                "each needs a name of its own"
            ) from error
        if what.fatal() or not _may_pass(what):
            raise BridgeError(f"{where}: {_words(what)}") from error
        raise KafkaUnavailable(f"{where}: {_words(what)}") from error


def _may_pass(what: KafkaError) -> bool:
    return what.code() not in (
        KafkaError._AUTHENTICATION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError._INVALID_ARG,
    )


def _words(what: KafkaError) -> str:
    return f"{what.str()} ({what.name()})"
