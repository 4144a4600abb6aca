"""The cheap clients of the load say and count what honest ones would."""

import asyncio
import json
import socket
import time
from array import array
from itertools import pairwise
from typing import Any, cast

import pytest

from rove.bench.broker.clients import (
    TOPIC,
    X_COUNT,
    X_MIN,
    Client,
    Publisher,
    Receiver,
    Stream,
    Tally,
    delays_into,
)
from rove.mqtt.decoder import PacketDecoder
from rove.mqtt.encoder import encode
from rove.mqtt.packets import Connack, Disconnect, Puback, Publish, Reason
from rove.testing.broker_processes import HOST, BrokerProcessError


class Written:
    """Stands for a connection: what is written to it is kept."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += bytes(data)

    def close(self) -> None:
        pass


def client() -> tuple[Client, Written]:
    """One that was let in, and what it writes from then on."""
    made, written = Client("one"), Written()
    made.connection_made(cast(Any, written))
    made.data_received(encode(Connack()))
    written.data = b""
    return made, written


def test_small_packets_do_not_wait_for_acknowledgements() -> None:
    """Or the client's own system would hold them back, and the broker be blamed for it."""

    class LetIn(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            cast(asyncio.Transport, transport).write(encode(Connack()))

    async def run() -> int:
        server = await asyncio.get_running_loop().create_server(LetIn, HOST, 0)
        async with server:
            made = Client("one")
            await made.connect(server.sockets[0].getsockname()[1])
            assert made.transport is not None
            its_socket = made.transport.get_extra_info("socket")
            made.close()
            return int(its_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    assert asyncio.run(run())


def read(data: bytes) -> list[Any]:
    return list(PacketDecoder(version=5).feed(data))


class TestStream:
    @pytest.mark.parametrize("qos", [0, 1])
    def test_publications_are_numbered_json_of_one_size(self, qos: int) -> None:
        stream = Stream(qos, 256)
        packets = read(b"".join(map(stream.packet, range(3))))
        assert [len(packet.payload) for packet in packets] == [256] * 3
        assert {packet.topic for packet in packets} == {TOPIC}
        assert [packet.packet_id for packet in packets] == ([1, 2, 3] if qos else [0, 0, 0])
        contents = [json.loads(packet.payload) for packet in packets]
        assert [b["n"] - a["n"] for a, b in pairwise(contents)] == [1, 1]
        assert [content["x"] for content in contents] == [stream.x(n) for n in range(3)]

    def test_packet_identifiers_begin_anew(self) -> None:
        stream = Stream(1, 256)
        last, first = read(stream.packet(65_534) + stream.packet(65_535))
        assert (last.packet_id, first.packet_id) == (65_535, 1)

    def test_every_x_is_allowed_and_two_streams_differ(self) -> None:
        one, other = Stream(0, 256, 1), Stream(0, 256, 2)
        xs = [one.x(number) for number in range(1_000)]
        assert all(X_MIN <= x < X_MIN + X_COUNT for x in xs)
        assert xs != [other.x(number) for number in range(1_000)]


def notifications(stream: Stream, count: int) -> bytes:
    return b"".join(map(stream.packet, range(count)))


class TestReceiver:
    @pytest.mark.parametrize("step", [1, 7, 300, 301, 10_000])
    def test_counts_however_the_bytes_are_cut(self, step: int) -> None:
        async def run() -> None:
            taker, written = client()
            tally = Tally()
            Receiver(taker, tally, 1)
            data = notifications(Stream(1, 256), 5)
            for begin in range(0, len(data), step):
                taker.data_received(data[begin : begin + step])
            assert tally.received == 5
            assert [answer.packet_id for answer in read(written.data)] == [1, 2, 3, 4, 5]
            assert {type(answer) for answer in read(written.data)} == {Puback}

        asyncio.run(run())

    def test_half_a_notification_is_none(self) -> None:
        async def run() -> None:
            taker, written = client()
            tally = Tally()
            Receiver(taker, tally, 0)
            taker.data_received(notifications(Stream(0, 256), 2)[:-1])
            assert (tally.received, written.data) == (1, b"")

        asyncio.run(run())

    @pytest.mark.parametrize("position", [0, 1])
    def test_anything_else_is_no_notification(self, position: int) -> None:
        async def run() -> None:
            taker, _ = client()
            Receiver(taker, Tally(), 0)
            stream = Stream(0, 256)
            data = notifications(stream, position) + encode(Disconnect(Reason.QUOTA_EXCEEDED))
            with pytest.raises(BrokerProcessError, match="something else"):
                taker.data_received(data + notifications(stream, 2))

        asyncio.run(run())

    def test_large_sizes_are_understood(self) -> None:
        async def run() -> None:
            taker, _ = client()
            tally = Tally()
            Receiver(taker, tally, 0)
            taker.data_received(notifications(Stream(0, 20_000), 2))
            assert tally.received == 2

        asyncio.run(run())

    def test_delays_are_taken_by_number(self) -> None:
        async def run() -> None:
            publisher = Publisher(client()[0], stream := Stream(0, 256))
            publisher.sent_at = array("d", [time.perf_counter() - 10, time.perf_counter() - 1])
            delays = array("d")
            taker, _ = client()
            Receiver(taker, Tally(), 0, delays_into(delays, publisher, 256))
            taker.data_received(stream.packet(1) + stream.packet(0))
            assert [round(delay) for delay in delays] == [1, 10]

        asyncio.run(run())


class TestTally:
    def test_waits_for_what_is_due(self) -> None:
        async def run() -> None:
            tally = Tally()
            asyncio.get_running_loop().call_later(0.01, tally.add, 3)
            asyncio.get_running_loop().call_later(0.02, tally.add, 4)
            await tally.reach(7, patience_s=10)
            assert tally.received == 7

        asyncio.run(run())

    def test_gives_up_when_nothing_comes(self) -> None:
        async def run() -> None:
            tally = Tally()
            tally.add(1)
            await tally.reach(2, patience_s=0.05)
            assert tally.received == 1

        asyncio.run(run())


class TestPublisher:
    def test_keeps_a_window_full_and_ends_when_all_is_acknowledged(self) -> None:
        async def run() -> None:
            sender, written = client()
            publisher = Publisher(sender, Stream(1, 256))
            until = time.perf_counter() + 0.2
            task = asyncio.create_task(publisher.keep_in_flight(4, until))
            await asyncio.sleep(0)
            assert len(read(written.data)) == 4
            sender.data_received(encode(Puback(1)) + encode(Puback(2, 0x10)))
            assert [packet.packet_id for packet in read(written.data)] == [1, 2, 3, 4, 5, 6]
            await asyncio.sleep(0.25)
            assert not task.done()
            sender.data_received(b"".join(encode(Puback(number)) for number in range(3, 7)))
            await task
            assert (publisher.sent, publisher.acknowledged) == (6, 6)

        asyncio.run(run())

    def test_remembers_when_it_sent_at_a_pace(self) -> None:
        async def run() -> None:
            sender, written = client()
            publisher = Publisher(sender, Stream(0, 256))
            await publisher.pace(100, time.perf_counter() + 0.1)
            sent = read(written.data)
            assert len(sent) == publisher.sent == len(publisher.sent_at) > 1
            assert {type(packet) for packet in sent} == {Publish}
            assert list(publisher.sent_at) == sorted(publisher.sent_at)

        asyncio.run(run())

    def test_floods_only_while_the_connection_takes_it(self) -> None:
        async def run() -> None:
            sender, written = client()
            publisher = Publisher(sender, Stream(0, 256))
            sender.pause_writing()
            task = asyncio.create_task(publisher.flood(time.perf_counter() + 0.1))
            await asyncio.sleep(0.02)
            assert not written.data
            sender.resume_writing()
            await task
            assert len(read(written.data)) == publisher.sent > 0

        asyncio.run(run())

    @pytest.mark.parametrize(
        ("packet", "complaint"),
        [
            (Puback(1, Reason.QUOTA_EXCEEDED), "was not taken"),
            (Disconnect(Reason.QUOTA_EXCEEDED), "was sent away"),
        ],
    )
    def test_a_refusal_is_an_error(self, packet: Puback | Disconnect, complaint: str) -> None:
        async def run() -> None:
            sender, _ = client()
            Publisher(sender, Stream(1, 256))
            with pytest.raises(BrokerProcessError, match=complaint):
                sender.data_received(encode(packet))

        asyncio.run(run())


def test_what_was_lost_is_an_error_unless_it_was_meant() -> None:
    async def run(is_meant: bool) -> None:
        one, _ = client()
        if is_meant:
            one.close()
        one.connection_lost(None)

    with pytest.raises(BrokerProcessError, match="the connection of one was lost"):
        asyncio.run(run(is_meant=False))
    asyncio.run(run(is_meant=True))
