"""The load takes notifications of all sizes, and lets nothing pass that was not due."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from rove.bench.broker.clients import Client, Tally
from rove.bench.elastic.load import LOAD, Closed, Flooded, Paced, _Listener, _Sender
from rove.bench.elastic.workload import TOPIC, Drawn, due_bytes, work_of
from rove.bench.load import Notes
from rove.mqtt.decoder import PacketDecoder
from rove.mqtt.encoder import encode
from rove.mqtt.packets import Connack, Properties, Puback, Publish
from rove.testing import broker_processes
from rove.testing.broker_processes import BrokerProcessError, Running
from rove.testing.ports import free_port

WORK = work_of("gas", 60)
DUE = due_bytes(WORK, 60, 0, 1).tolist()


class Written:
    """Stands for a connection: what is written to it is kept."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += bytes(data)


def sender(qos: int = 1) -> tuple[_Sender, Written]:
    client, written = Client("publisher"), Written()
    client.connection_made(cast(Any, written))
    client.data_received(encode(Connack()))
    written.data = b""
    return _Sender(client, Drawn(WORK, qos)), written


def notification(publisher: _Sender, number: int, more: int = 0) -> bytes:
    """As a broker would send it; with so many identifiers more than are due."""
    (sent,) = PacketDecoder(version=5).feed(Drawn(WORK, 0).packet(number))
    assert isinstance(sent, Publish)
    count = DUE[publisher.stream.reading(number)] // 2 + more
    ids = Properties(subscription_ids=tuple(range(1, count + 1)))
    return encode(Publish(TOPIC, sent.payload, 0, properties=ids))


def listening() -> tuple[_Sender, Client, Tally, Notes]:
    publisher = _Sender(Client("publisher"), Drawn(WORK, 1))
    taker, tally, notes = Client("taker"), Tally(), Notes()
    _Listener(taker, publisher, DUE, tally, notes)
    return publisher, taker, tally, notes


class TestListener:
    @pytest.mark.parametrize("step", [1, 3, 50, 10_000])
    def test_counts_however_the_bytes_are_cut(self, step: int) -> None:
        publisher, taker, tally, notes = listening()
        data = b"".join(notification(publisher, number) for number in range(6))
        for begin in range(0, len(data), step):
            taker.protocol.reader.feed(data[begin : begin + step])
        assert tally.received == 6
        assert list(notes.numbers) == list(range(6))

    @pytest.mark.parametrize(
        "numbers_and_more",
        [[(0, 1)], [(0, -1)], [(1, 0), (0, 0)], [(1, 0), (1, 0)]],
        ids=["too many met", "too few met", "out of order", "twice"],
    )
    def test_what_was_not_due_is_an_error(self, numbers_and_more: list[tuple[int, int]]) -> None:
        publisher, taker, _, _ = listening()
        *before, last = [notification(publisher, number, more) for number, more in numbers_and_more]
        for data in before:
            taker.protocol.reader.feed(data)
        with pytest.raises(BrokerProcessError, match="bytes of identifiers, not"):
            taker.protocol.reader.feed(last)


class TestSender:
    def test_sends_so_many_with_a_few_under_way(self) -> None:
        async def run() -> None:
            publisher, written = sender()
            task = asyncio.create_task(publisher.send_all(5, 2, time.perf_counter() + 60))
            await asyncio.sleep(0)
            for number in range(1, 6):
                sent = len(list(PacketDecoder(version=5).feed(written.data)))
                assert sent == min(number + 1, 5)
                publisher.client.data_received(encode(Puback(number)))
            await task
            assert (publisher.sent, publisher.acknowledged, len(publisher.sent_at)) == (5, 5, 5)

        asyncio.run(run())

    def test_gives_up_when_it_takes_too_long(self) -> None:
        async def run() -> None:
            publisher, _ = sender()
            task = asyncio.create_task(publisher.send_all(1_000, 2, time.perf_counter() - 1))
            await asyncio.sleep(0)
            publisher.client.data_received(encode(Puback(1)) + encode(Puback(2)))
            await task
            assert publisher.sent == 2

        asyncio.run(run())

    def test_keeps_a_pace(self) -> None:
        async def run() -> None:
            publisher, _ = sender(qos=0)
            await publisher.keep_pace(200, 0.1)
            assert 1 <= publisher.sent <= 21
            assert list(publisher.sent_at) == sorted(publisher.sent_at)

        asyncio.run(run())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder: Path = tmp_path_factory.mktemp("broker")
    with broker_processes.rove(folder) as running:
        yield running


@pytest.mark.soak
def test_runs_of_several_sizes_and_lengths(broker: Running) -> None:
    job = Closed(
        port=broker.port, pid=broker.pid, sessions=3, sizes=[2, 40], counts=[5, 20], under_way=2
    )
    runs = LOAD.run(job).runs
    assert [(one.subscriptions, one.sent) for one in runs] == [(2, 5), (2, 20), (40, 5), (40, 20)]
    last = runs[-1]
    assert 0 < last.p50_ms <= last.p99_ms
    assert len(last.quarters_ms) == 4
    assert last.received > 20, "three sessions, most of them met"
    assert last.children_cpu_s == 0


@pytest.mark.soak
def test_paces_are_traced(broker: Running) -> None:
    job = Paced(
        port=broker.port, pid=broker.pid, sessions=1, size=30, steps=[(50, 0.2), (200, 0.2)]
    )
    outcome = LOAD.run(job)
    assert outcome.trace is not None
    sent_s, delays_ms = outcome.trace.arrays()
    assert len(sent_s) == len(delays_ms) == outcome.runs[0].received > 0
    assert (delays_ms > 0).all()
    assert np.all(np.diff(sent_s) >= 0)
    assert 0 <= sent_s.min() < sent_s.max()


@pytest.mark.soak
def test_as_many_as_are_taken(broker: Running) -> None:
    job = Flooded(
        port=broker.port,
        pid=broker.pid,
        work="sums",
        sessions=1,
        size=20,
        publishers=3,
        under_way=10,
        seconds=0.2,
    )
    (found,) = LOAD.run(job).runs
    assert found.received == found.sent > 30
    assert found.sent_per_s > 0


def test_a_broker_that_is_not_there_is_told_of() -> None:
    job = Flooded(port=free_port(), pid=1, size=1, publishers=1, under_way=1, seconds=0.1)
    with pytest.raises(BrokerProcessError, match="cannot connect"):
        LOAD.run(job)
