"""Measures the bridge to Kafka, both ways, beside what it is made of.

Towards Kafka: a lake that is there, against a producer of Kafka that writes the same records
without a bridge. Towards the broker: records that are there, against a client that publishes as
many with QoS 2. Kafka, broker and bridge share the machine. What the bridge takes to start is no
part of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from rove.bench.harness import Bench, Suite, SuiteOptions, Tell
from rove.bench.measure import Measure
from rove.bench.servers.kafka import KafkaServer, kafka_server
from rove.bridge.bridge import Bridge
from rove.bridge.routes import config_of
from rove.broker.storage.records import LogRow
from rove.client import connect
from rove.serve.disk.lake import LakeAppender
from rove.testing import broker_processes
from rove.testing.broker_processes import HOST

_OUTWARD = 100_000
_INWARD = 30_000
_PARTITIONS = 2
_KEYS = 100
_WAIT_S = 120.0


def run(bench: Bench[SuiteOptions]) -> Iterator[Measure]:
    """Both directions."""
    bench.tell("starting Kafka")
    kafka = bench.open(kafka_server(bench.folder / "kafka"))
    _make_topics(kafka, "plain", "out", "in")
    yield from _outward(kafka, bench.folder, bench.tell)
    broker = bench.open(broker_processes.rove(bench.folder))
    yield from _inward(kafka, broker.port, bench.tell)


def _make_topics(kafka: KafkaServer, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.servers, "log_level": 0})
    for made in admin.create_topics([NewTopic(name, _PARTITIONS) for name in names]).values():
        made.result(_WAIT_S)


def _payload(number: int) -> bytes:
    return msgspec.json.encode({"n": number, "NO2": number % 97 / 2, "place": "x" * 160})


def _outward(kafka: KafkaServer, folder: Path, tell: Tell) -> Iterator[Measure]:
    tell("a producer alone")
    plain = _OUTWARD / _produced(kafka, "plain", _OUTWARD)
    yield Measure("bridge.producer", plain, "records/s", note="without a bridge")
    lake = LakeAppender(folder / "lake")
    at_s = time.time()
    for first in range(1, _OUTWARD + 1, 20_000):
        numbers = range(first, min(first + 20_000, _OUTWARD + 1))
        lake.take([(each, _row(each, at_s)) for each in numbers])
    tell("from the lake to Kafka")
    for name, text in (("bridge.outward", ""), ("bridge.outward.filter", "n >= 0")):
        route = {"from": "mqtt:air/#", "to": "kafka:out", "name": name, "filter": text}
        rate = _rate(kafka, route, _OUTWARD, lake=str(folder / "lake"))
        yield Measure(name, rate, "publications/s", rate / plain, "bridge.producer")


def _row(number: int, at_s: float) -> LogRow:
    topic = f"air/{number % _KEYS}"
    return LogRow("publications", "air", at_s, topic, str(number), payload=_payload(number))


def _inward(kafka: KafkaServer, port: int, tell: Tell) -> Iterator[Measure]:
    url = f"mqtt://{HOST}:{port}"
    tell("a client alone")
    plain = _INWARD / asyncio.run(_published(url))
    yield Measure("bridge.client", plain, "publications/s", note="QoS 2, without a bridge")
    _produced(kafka, "in", _INWARD)
    tell("from Kafka to the broker")
    route = {"from": "kafka:in", "to": "mqtt:in/{key}"}
    rate = _rate(kafka, route, _INWARD, broker=url)
    yield Measure("bridge.inward", rate, "records/s", rate / plain, "bridge.client")


def _rate(kafka: KafkaServer, route: dict[str, str], count: int, **more: str) -> float:
    """How many a second a route brings over, from the first to the last."""
    config = config_of({"kafka": kafka.servers, "routes": [route], **more}, "the benchmark")

    async def bring() -> float:
        bridge = Bridge(config, tell=lambda text: None)
        [progress] = bridge.progress
        running = asyncio.create_task(bridge.run())
        begin_s = sent = 0.0
        while progress.sent < count:
            await asyncio.sleep(0.002)
            if running.done():
                await running
            if progress.sent and not begin_s:
                begin_s, sent = time.perf_counter(), progress.sent
        took_s = time.perf_counter() - begin_s
        bridge.stop()
        await running
        return (count - sent) / took_s if count > sent else count / took_s

    return asyncio.run(bring())


def _produced(kafka: KafkaServer, topic: str, count: int) -> float:
    """Seconds that a producer takes for so many records, until Kafka has all of them."""
    options = {"enable.idempotence": True, "linger.ms": 5, "compression.type": "lz4"}
    producer = Producer({"bootstrap.servers": kafka.servers, "log_level": 0, **options})
    begin_s = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, _payload(number), str(number % _KEYS).encode())
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(_WAIT_S) == 0, "Kafka does not take what it is given"
    return time.perf_counter() - begin_s


async def _published(url: str) -> float:
    """Seconds that a client takes to publish with QoS 2, until the broker has answered for all."""
    async with connect(url) as client:
        begin_s = time.perf_counter()
        receipts = [
            await client.post(f"in/{number % _KEYS}", _payload(number), qos=2)
            for number in range(_INWARD)
        ]
        for receipt in receipts:
            await receipt
        return time.perf_counter() - begin_s


SUITE: Final = Suite(name="bridge", parts={"bridge": run}, options=SuiteOptions())
