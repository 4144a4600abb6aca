"""From a topic of Kafka to the broker.

Each partition has its own session, so that its order is kept and its offsets are packet
identifiers. A batch goes through five steps, and a kill between any two of them is harmless:

    publish        QoS 2, the packet identifier is made of the offset
    PUBREC         the broker has all of it on disk, with the packet identifiers
    position       is written to Kafka: from here on the batch is not read again
    PUBREL         the packet identifiers are released
    PUBCOMP        awaited by the next batch, before its own position is written

After a kill before the position, the batch is read and published again, and the broker recognises
the packet identifiers that it has. After a kill later on, the next process releases them and reads
on.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from rove.bridge.routes import BridgeConfig, BridgeError, BridgeRoute, RouteProgress
from rove.bridge.session import BATCH_MAX, BridgeSession, Position, cut, must_settle, packet_id_of
from rove.bridge.transactions import (
    ANSWER_S_MAX,
    KafkaTransactions,
    KafkaUnavailable,
    kafka_errors,
    settings,
)
from rove.bridge.translation import KafkaRecord, Translator, Untranslatable
from rove.client.addresses import DEFAULT_URL, parse_address
from rove.client.options import ClientOptions, Connection

POLL_S: Final = 0.2
LOOK_FOR_PARTITIONS_S: Final = 60.0
_NEVER_S: Final = 0xFFFF_FFFF
"""The broker reduces it to what it allows."""

T = TypeVar("T")
InThread = Callable[..., Awaitable[Any]]
"""Runs a blocking call in the thread of the route."""


class BrokerCredentials(msgspec.Struct, frozen=True):
    """User and password at the broker."""

    password: str | None = None
    tls: ssl.SSLContext | None = None


class _Partition:
    """One partition and its session."""

    def __init__(self, position: Position, session: BridgeSession) -> None:
        self.position = position
        self.session = session
        self.waiting: list[KafkaRecord] = []
        self.is_at_end = False


class InboundRoute:
    """One route."""

    def __init__(
        self,
        config: BridgeConfig,
        route: BridgeRoute,
        progress: RouteProgress,
        is_stopped: threading.Event,
        access: BrokerCredentials,
        tell: Callable[[str], None],
    ) -> None:
        self._config, self._route, self._progress = config, route, progress
        self._access, self._tell = access, tell
        self._translator = Translator(route, config.name)
        self._transactions = KafkaTransactions(config, route, is_stopped)
        self._consumer: Consumer | None = None
        self._partitions: dict[int, _Partition] = {}
        self._looked_at = 0.0

    # -- opening and closing -------------------------------------------------------------------

    async def open(self, in_thread: InThread) -> None:
        """Read the position, and connect a session for each partition."""
        found: Mapping[str, bytes] = await in_thread(self._transactions.open)
        numbers: list[int] = await in_thread(self._transactions.partitions)
        begins = await in_thread(self._open_consumer, numbers, found)
        for number in numbers:
            stored = found.get(self._key(number))
            position = begins[number]
            session = BridgeSession(self._options(number, is_known=stored is not None))
            self._partitions[number] = _Partition(position, session)
            await session.open(position.packet_ids())
            if session.was_forgotten:
                self._tell(
                    f"the broker has forgotten the session of {self._route.kafka_topic}/{number}; "
                    f"what was under way when it was last there may come twice"
                )
        # Written at once: the meaning of `latest` must not change with the next start.
        fresh = {self._key(each): begins[each] for each in numbers if self._key(each) not in found}
        if fresh:
            await in_thread(self._keep, fresh)
        for partition in self._partitions.values():
            await partition.session.released()
        self._looked_at = asyncio.get_running_loop().time()

    async def close(self, in_thread: InThread) -> None:
        """Close; nothing is lost, in whatever step it was."""
        partitions, self._partitions = self._partitions, {}
        for partition in partitions.values():
            await partition.session.close()
        await in_thread(self._close_consumer)
        self._transactions.close()

    def _options(self, number: int, *, is_known: bool) -> ClientOptions:
        options = ClientOptions(
            address=parse_address(self._config.broker or DEFAULT_URL),
            client_id=f"{self._config.name}:{self._route.title}:{number}",
            password=self._access.password,
            tls=self._access.tls,
            session_expiry_s=_NEVER_S,
            # Without a position, packet identifiers of an earlier run would mean other offsets.
            clean_start=not is_known,
            on_connection=self._on_connection,
        )
        options.check()
        return options

    def _on_connection(self, connection: Connection) -> None:
        if connection.state == "lost":
            self._progress.troubles += 1
            self._progress.trouble = str(connection.error)
        elif connection.state == "connected":
            self._progress.trouble = ""

    def _key(self, number: int) -> str:
        return f"{self._route.title}/{number}"

    def _open_consumer(self, numbers: list[int], found: Mapping[str, bytes]) -> dict[int, Position]:
        topic = self._route.kafka_topic
        with kafka_errors(self._config):
            consumer = Consumer(
                settings(self._config)
                | {
                    "group.id": f"{self._config.name}.{self._route.title}",
                    "enable.auto.commit": False,
                    "auto.offset.reset": "error",
                    "isolation.level": "read_committed",
                    "enable.partition.eof": True,
                    "queued.max.messages.kbytes": 16 * 1024,
                }
            )
            self._consumer = consumer
            begins = {}
            for number in numbers:
                stored = found.get(self._key(number))
                if stored:
                    begins[number] = msgspec.json.decode(stored, type=Position)
                    continue
                at = TopicPartition(topic, number)
                low, high = consumer.get_watermark_offsets(at, ANSWER_S_MAX)
                first = low if self._route.start == "earliest" else high
                begins[number] = Position(first, first)
            consumer.assign(
                [TopicPartition(topic, number, begin.next) for number, begin in begins.items()]
            )
        return begins

    def _close_consumer(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    # -- batches --------------------------------------------------------------------------------

    async def step(self, in_thread: InThread) -> bool:
        """Move one batch; False if there was nothing to move."""
        partitions = self._partitions
        if not any(each.waiting for each in partitions.values()):
            await self._look_for_partitions(in_thread)
            for number, record in await in_thread(self._consume):
                partitions[number].waiting.append(record)
        batches: dict[int, list[KafkaRecord]] = {}
        for number, partition in partitions.items():
            batch, partition.waiting = cut(partition.waiting)
            if batch:
                batches[number] = batch
        self._progress.is_at_end = not batches and all(p.is_at_end for p in partitions.values())
        if not batches:
            return False
        await self._settle(batches, in_thread)
        sent = sum(self._publish(partitions[number], batch) for number, batch in batches.items())
        refused = 0
        for number in batches:
            refused += await self._received(number)
        for number in batches:
            await partitions[number].session.released()
        await in_thread(self._keep, {
            self._key(number): Position(batch[-1].offset + 1, batch[0].offset)
            for number, batch in batches.items()
        })  # fmt: skip
        for number, batch in batches.items():
            partitions[number].position = Position(batch[-1].offset + 1, batch[0].offset)
            partitions[number].session.release()
        count = sum(map(len, batches.values()))
        self._progress.read += count
        self._progress.sent += sent - refused
        self._progress.refused += refused
        self._progress.position = sum(each.position.next for each in partitions.values())
        return True

    def _consume(self) -> list[tuple[int, KafkaRecord]]:
        assert self._consumer is not None, "open it first"
        found = []
        with kafka_errors(self._config):
            for message in self._consumer.consume(BATCH_MAX, POLL_S):
                number, offset = message.partition(), message.offset()
                if (error := message.error()) is not None:
                    self._judge(error, number)
                    continue
                assert number is not None
                assert offset is not None
                self._partitions[number].is_at_end = False
                headers: Any = message.headers() or ()
                at_ms = message.timestamp()[1]
                record = KafkaRecord(
                    message.key(), message.value(), tuple(headers), at_ms, number, offset
                )
                found.append((number, record))
        return found

    def _judge(self, error: KafkaError, number: int | None) -> None:
        """Handle an event of the consumer that is no record."""
        if error.code() == KafkaError._PARTITION_EOF and number is not None:
            self._partitions[number].is_at_end = True
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            title, topic = self._route.title, self._route.kafka_topic
            raise BridgeError(
                f"route {title!r}: {topic}/{number} no longer has what comes next ({error.str()}); "
                "give the route another name to begin again"
            )
        elif not error.retriable() and error.code() not in (
            KafkaError._TRANSPORT,
            KafkaError._ALL_BROKERS_DOWN,
            KafkaError._RESOLVE,
        ):
            raise KafkaException(error)
        else:
            self._progress.trouble = error.str()

    async def _look_for_partitions(self, in_thread: InThread) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._looked_at < LOOK_FOR_PARTITIONS_S:
            return
        self._looked_at = now
        if set(await in_thread(self._transactions.partitions)) != set(self._partitions):
            raise KafkaUnavailable(f"{self._route.kafka_topic} has other partitions than before")

    async def _settle(self, batches: Mapping[int, list[KafkaRecord]], in_thread: InThread) -> None:
        """After a gap in the offsets, release everything before packet identifiers are reused."""
        settled = {}
        for number, batch in batches.items():
            partition = self._partitions[number]
            if must_settle(partition.position, batch):
                await partition.session.released()
                partition.position = Position(partition.position.next, partition.position.next)
                settled[self._key(number)] = partition.position
        if settled:
            await in_thread(self._keep, settled)

    def _publish(self, partition: _Partition, batch: list[KafkaRecord]) -> int:
        """Publish the records of a batch that pass; returns their number."""
        sent = 0
        for record in batch:
            try:
                publication = self._translator.publication(record)
            except Untranslatable as error:
                if self._route.refused == "stop":
                    raise
                self._progress.refused += 1
                self._tell(str(error))
                continue
            if publication is None:
                self._progress.left += 1
            else:
                partition.session.publish(packet_id_of(record.offset), publication)
                sent += 1
        return sent

    async def _received(self, number: int) -> int:
        """Wait until the broker has the batch; returns how many it refused, or raises
        BridgeError."""
        session = self._partitions[number].session
        await session.received()
        for _, why in session.refusals:
            text = (
                f"a record of {self._route.kafka_topic}/{number} was refused by the broker: {why}"
            )
            if self._route.refused == "stop":
                raise BridgeError(f"route {self._route.title!r}: {text}")
            self._tell(text)
        return len(session.refusals)

    def _keep(self, positions: Mapping[str, Position]) -> None:
        encoded = {key: msgspec.json.encode(position) for key, position in positions.items()}
        self._transactions.write((), encoded)
