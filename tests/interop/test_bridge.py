"""`rove bridge kafka` with a real Kafka and a real broker, killed at any moment.

What Kafka has is what a consumer sees that reads committed records only; what the broker has is
what its lake says. Both are compared with what was sent: nothing is missing, nothing is there
twice, and of one key nothing is out of order.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import signal
import subprocess
import sys
import threading
import urllib.request
import uuid
from collections import defaultdict
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import rove
from rove.bench.servers.kafka import KafkaServer
from rove.bridge.bridge import Bridge
from rove.bridge.inbound import InboundRoute
from rove.bridge.routes import BridgeConfig, BridgeError, config_of
from rove.bridge.session import BridgeSession
from rove.bridge.transactions import KafkaTransactions, KafkaUnavailable
from rove.lake.log import LakeLog
from rove.lake.storage import LakeError
from tests.effort import PATIENCE_S, is_soak
from tests.interop.conftest import RunningBroker
from tests.waiting import eventually

LAKE = '[{name = "all", topics = ["#"], keep = ["publications"]}]'
PARTITIONS = 2


pytestmark = pytest.mark.soak  # a Kafka, a broker and a bridge, in processes of their own


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    running = RunningBroker(tmp_path_factory.mktemp("broker"), ROVE_LAKE__CHANNELS=LAKE)
    running.start()
    yield running
    running.kill()


@pytest.fixture
def topic(kafka: KafkaServer) -> str:
    """A topic of its own."""
    name = f"t{uuid.uuid4().hex[:8]}"
    make_topic(kafka, name)
    return name


def make_topic(kafka: KafkaServer, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.servers, "log_level": 0})
    for made in admin.create_topics([NewTopic(name, PARTITIONS)]).values():
        made.result(PATIENCE_S)


def committed(kafka: KafkaServer, topic: str) -> list[tuple[bytes, int]]:
    """The keys and numbers that a consumer of committed records sees, a partition after another."""
    found: list[tuple[bytes, int]] = []
    for partition in range(PARTITIONS):
        consumer = Consumer(
            {
                "bootstrap.servers": kafka.servers,
                "group.id": "witness",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(topic, partition, 0)])
        ended = False
        while not ended:
            for message in consumer.consume(1_000, 1.0):
                if (error := message.error()) is not None:
                    ended = ended or error.name() == "_PARTITION_EOF"
                else:
                    found.append((message.key() or b"", json.loads(message.value() or b"0")["n"]))
        consumer.close()
    return found


def logged(broker: RunningBroker, prefix: str) -> list[tuple[bytes, int]]:
    """Topics and numbers of publications that the broker has taken, in order."""
    try:
        log = LakeLog(broker.data / "lake")
    except LakeError:
        return []
    rows = [
        row
        for file in log.files("publications")
        for row in log.read(file, ("position", "topic", "payload")).to_pylist()
        if row["topic"].startswith(prefix)
    ]
    rows.sort(key=lambda row: row["position"])
    return [(row["topic"].encode(), json.loads(row["payload"])["n"]) for row in rows]


def check_each_once(found: list[tuple[bytes, int]], sent: int) -> None:
    numbers = sorted(number for _, number in found)
    missing = set(range(sent)) - set(numbers)
    assert not missing, f"{len(missing)} of {sent} are missing"
    assert numbers == list(range(sent)), f"{len(numbers) - sent} came twice"
    of_key = defaultdict(list)
    for key, number in found:
        of_key[key].append(number)
    assert len(of_key) == 5
    assert all(numbers == sorted(numbers) for numbers in of_key.values()), "out of order"


def plan(kafka: KafkaServer, broker: RunningBroker, bridge: str, /, **route: str) -> BridgeConfig:
    return config_of(
        {
            "kafka": kafka.servers,
            "broker": f"mqtt://127.0.0.1:{broker.port}",
            "lake": str(broker.data / "lake"),
            "name": bridge,
            "routes": [route],
        },
        "the test",
    )


def bring(config: BridgeConfig) -> Bridge:
    """Everything that is there."""

    async def run() -> Bridge:
        bridge = Bridge(config, tell=lambda text: None)
        await bridge.run(once=True)
        return bridge

    return asyncio.run(run())


async def publish(broker: RunningBroker, prefix: str, numbers: range, pace_s: float = 0.0) -> None:
    """QoS 2, so that the broker has each once even if it is killed meanwhile."""
    url = f"mqtt://127.0.0.1:{broker.port}"
    async with rove.connect(url, client_id=f"p-{prefix}", retry_s_max=0.5) as client:
        receipts = []
        for number in numbers:
            receipts.append(await client.post(f"{prefix}/{number % 5}", {"n": number}, qos=2))
            if pace_s and number % 20 == 0:
                await asyncio.sleep(pace_s)
        for receipt in receipts:
            await receipt


def produce(kafka: KafkaServer, topic: str, numbers: range) -> None:
    # Without idempotence, what is sent again to a new topic may come out of order.
    options = {"enable.idempotence": True, "log_level": 0}
    producer = Producer({"bootstrap.servers": kafka.servers, **options})
    for number in numbers:
        producer.produce(topic, json.dumps({"n": number}).encode(), f"{number % 5}".encode())
    assert producer.flush(PATIENCE_S) == 0


# --- without kills ----------------------------------------------------------------------------


def test_publications_come_to_kafka_once_and_go_on_where_they_were(
    kafka: KafkaServer, broker: RunningBroker, topic: str
) -> None:
    route = {"from": f"mqtt:{topic}/#", "to": f"kafka:{topic}"}
    for begin, end in ((0, 300), (300, 400)):
        asyncio.run(publish(broker, topic, range(begin, end)))
        eventually(lambda end=end: len(logged(broker, topic)) == end)  # type: ignore[misc]
        bridge = bring(plan(kafka, broker, topic + ".b", **route))
        check_each_once(committed(kafka, topic), end)
    assert bridge.progress[0].sent == 100
    assert bridge.progress[0].is_at_end
    # Under another name it begins again, with a filter.
    only = {**route, "name": "only", "filter": "n >= 390", "to": f"kafka:{topic}"}
    assert bring(plan(kafka, broker, topic + ".b", **only)).progress[0].sent == 10
    late = {**route, "name": "late", "start": "latest"}
    assert bring(plan(kafka, broker, topic + ".b", **late)).progress[0].sent == 0


def test_records_come_to_the_broker_once_and_go_on_where_they_were(
    kafka: KafkaServer, broker: RunningBroker, topic: str
) -> None:
    route = {"from": f"kafka:{topic}", "to": f"mqtt:{topic}/{{key}}"}
    for begin, end in ((0, 1_200), (1_200, 1_300)):
        produce(kafka, topic, range(begin, end))
        bridge = bring(plan(kafka, broker, topic + ".b", **route))
        eventually(lambda end=end: len(logged(broker, topic)) >= end)  # type: ignore[misc]
        check_each_once(logged(broker, topic), end)
    assert bridge.progress[0].sent == 100
    # What the bridge has brought from there it does not bring back.
    back = {"from": f"mqtt:{topic}/#", "to": f"kafka:{topic}"}
    assert bring(plan(kafka, broker, topic + ".b", **back)).progress[0].sent == 0


def test_transactions_that_were_aborted_are_not_published(
    kafka: KafkaServer, broker: RunningBroker, topic: str
) -> None:
    producer = Producer(
        {"bootstrap.servers": kafka.servers, "transactional.id": topic, "log_level": 0}
    )
    producer.init_transactions(PATIENCE_S)
    for number in range(10):
        producer.begin_transaction()
        producer.produce(topic, b'{"n": %d}' % (number // 2), str(number // 2).encode())
        (producer.commit_transaction if number % 2 else producer.abort_transaction)(PATIENCE_S)
    route = {"from": f"kafka:{topic}", "to": f"mqtt:{topic}/{{key}}"}
    bring(plan(kafka, broker, topic + ".b", **route))
    eventually(lambda: len(logged(broker, topic)) >= 5)
    check_each_once(logged(broker, topic), 5)


def test_what_cannot_be_published_stops_a_route_or_is_skipped(
    kafka: KafkaServer, broker: RunningBroker, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": kafka.servers, "log_level": 0})
    for key in (b"0", b"#", b"1", b"$rove/me"):
        producer.produce(topic, b'{"n": 1}', key, partition=0)
    producer.flush()
    route = {"from": f"kafka:{topic}", "to": f"mqtt:{topic}/{{key}}"}
    with pytest.raises(BridgeError, match=f"the record {topic}/0/1 cannot be published: a topic"):
        bring(plan(kafka, broker, topic + ".b", **route))
    bridge = bring(plan(kafka, broker, topic + ".b", **route, refused="skip"))
    assert (bridge.progress[0].sent, bridge.progress[0].refused) == (3, 1)


def test_a_topic_that_kafka_does_not_have_is_told_in_one_line(
    kafka: KafkaServer, broker: RunningBroker
) -> None:
    route = {"from": "kafka:nowhere", "to": "mqtt:x"}
    with pytest.raises(BridgeError, match="has no topic 'nowhere'; create it first"):
        bring(plan(kafka, broker, "nobody", **route))


def test_a_second_bridge_of_the_same_name_ends_the_first(
    kafka: KafkaServer, broker: RunningBroker, topic: str
) -> None:
    one = plan(kafka, broker, topic + ".b", **{"from": f"mqtt:{topic}", "to": f"kafka:{topic}"})
    stopped = threading.Event()
    first, second = (KafkaTransactions(one, one.routes[0], stopped) for _ in range(2))
    assert first.open() == {}
    first.write((), {one.routes[0].title: b"1"})
    assert second.open() == {one.routes[0].title: b"1"}
    with pytest.raises(BridgeError, match=r"another bridge .* has taken this route over"):
        first.write((), {one.routes[0].title: b"2"})
    second.write((), {one.routes[0].title: b"3"})
    assert KafkaTransactions(one, one.routes[0], stopped).open() == {one.routes[0].title: b"3"}


def test_a_kafka_that_is_away_is_told(free_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rove.bridge.transactions.ANSWER_S_MAX", 0.2)
    told = {"kafka": f"127.0.0.1:{free_port}", "lake": "x"}
    one = config_of({**told, "routes": [{"from": "mqtt:a", "to": "kafka:a"}]}, "the test")
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(KafkaUnavailable, match=f"Kafka at 127.0.0.1:{free_port}"):
        KafkaTransactions(one, one.routes[0], stopped).open()


# --- ended between two steps ------------------------------------------------------------------


@pytest.mark.parametrize("step", [(InboundRoute, "_keep"), (BridgeSession, "release")])
def test_ended_between_publishing_and_releasing_nothing_is_lost_or_twice(
    kafka: KafkaServer,
    broker: RunningBroker,
    topic: str,
    step: tuple[type, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    produce(kafka, topic, range(1_500))
    route = {"from": f"kafka:{topic}", "to": f"mqtt:{topic}/{{key}}"}
    end_before(monkeypatch, *step, number=2)
    with pytest.raises(BridgeError, match="ended here"):
        bring(plan(kafka, broker, topic + ".b", **route))
    monkeypatch.undo()
    bring(plan(kafka, broker, topic + ".b", **route))
    eventually(lambda: len(logged(broker, topic)) >= 1_500)
    check_each_once(logged(broker, topic), 1_500)


def test_ended_before_a_commit_nothing_is_lost_or_twice(
    kafka: KafkaServer, broker: RunningBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(publish(broker, topic, range(300)))
    eventually(lambda: len(logged(broker, topic)) == 300)
    route = {"from": f"mqtt:{topic}/#", "to": f"kafka:{topic}"}
    end_before(
        monkeypatch, KafkaTransactions, "_insist", number=2
    )  # opening, the first position, then
    with pytest.raises(BridgeError, match="ended here"):
        bring(plan(kafka, broker, topic + ".b", **route))
    monkeypatch.undo()
    bring(plan(kafka, broker, topic + ".b", **route))
    check_each_once(committed(kafka, topic), 300)


def end_before(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, number: int) -> None:
    """Have a call raise instead of doing anything, as a kill would end there."""
    original, calls = getattr(owner, name), itertools.count()

    def call(*arguments: object) -> object:
        if next(calls) == number:
            raise BridgeError("ended here")
        return original(*arguments)

    monkeypatch.setattr(owner, name, call)


# --- with kills -------------------------------------------------------------------------------


class BridgeProcess:
    """`rove bridge kafka`, to be killed."""

    def __init__(self, kafka: KafkaServer, broker: RunningBroker, name: str, *route: str) -> None:
        self._command = [
            sys.executable, "-m", "rove", "bridge", "kafka", "--kafka", kafka.servers,
            "--url", f"mqtt://127.0.0.1:{broker.port}", "--lake", str(broker.data / "lake"),
            "--name", name, "--route", *route,
        ]  # fmt: skip
        self._log = broker.folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(PATIENCE_S) == 0, self._log.read_text()
        self._process = None

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None


def high_water(kafka: KafkaServer, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": kafka.servers, "group.id": "w", "log_level": 0})
    try:
        ends = [
            consumer.get_watermark_offsets(TopicPartition(topic, each), 5.0)[1]
            for each in range(PARTITIONS)
        ]
    except KafkaException:
        return -1
    finally:
        consumer.close()
    return sum(ends)


def received(broker: RunningBroker) -> int:
    """Publications that this life of the broker was sent, repeated ones too."""
    url = f"http://127.0.0.1:{broker.http_port}/metrics"
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("rove_publications_received_total "):
                return int(line.split()[1])
    return 0


def kills() -> list[str]:
    """Who is killed, in order."""
    if not is_soak():
        return ["bridge", "bridge"]
    order = ["bridge", "broker", "kafka"] * 4
    random.SystemRandom().shuffle(order)
    return order


def test_killed_on_the_way_to_kafka_nothing_is_lost_or_twice(
    kafka: KafkaServer, broker: RunningBroker, topic: str
) -> None:
    order = kills()
    count = 3_000 * len(order)
    print(f"killed in this order: {order}")
    bridge = BridgeProcess(kafka, broker, f"{topic}.b", f"mqtt:{topic}/#", f"kafka:{topic}")
    publishing = threading.Thread(
        target=lambda: asyncio.run(publish(broker, topic, range(count), pace_s=0.02))
    )
    publishing.start()
    try:
        bridge.start()
        for who in order:
            before = high_water(kafka, topic)
            eventually(
                lambda before=before: high_water(kafka, topic) > before or not publishing.is_alive()  # type: ignore[misc]
            )
            strike(who, bridge, broker, kafka)
        publishing.join(PATIENCE_S)
        assert not publishing.is_alive()
        eventually(lambda: len(logged(broker, topic)) >= count)
        eventually(lambda: len(committed(kafka, topic)) >= count)
        bridge.stop()
    finally:
        bridge.kill()
    check_each_once(committed(kafka, topic), count)


def test_killed_on_the_way_to_the_broker_nothing_is_lost_or_twice(
    kafka: KafkaServer, broker: RunningBroker, topic: str
) -> None:
    order = kills()
    count = 5_000 * len(order)
    produce(kafka, topic, range(count))
    bridge = BridgeProcess(kafka, broker, f"{topic}.b", f"kafka:{topic}", f"mqtt:{topic}/{{key}}")
    try:
        bridge.start()
        for who in order:
            before = received(broker)
            eventually(
                lambda before=before: (
                    received(broker) != before  # type: ignore[misc]
                    or len(logged(broker, topic)) >= count
                )
            )
            strike(who, bridge, broker, kafka)
        eventually(lambda: len(logged(broker, topic)) >= count)
        bridge.stop()
    finally:
        bridge.kill()
    check_each_once(logged(broker, topic), count)


def strike(who: str, bridge: BridgeProcess, broker: RunningBroker, kafka: KafkaServer) -> None:
    """Kill one of them, and start it again."""
    if who == "bridge":
        bridge.kill()
        bridge.start()
        return
    for victim in (broker, kafka):
        if who == ("broker" if victim is broker else "kafka"):
            victim.kill()
            victim.start()
    assert bridge.is_running(), "a bridge outlives both"
