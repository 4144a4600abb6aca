"""A connection without the library: what the broker asks for is done, what goes wrong is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rove.client.protocol import ProtocolSettings, subscribe_packet
from rove.errors import RoveError
from rove.live.connections import DirectConnection, ignore, some_at_a_time
from rove.mqtt.decoder import PacketDecoder
from rove.mqtt.encoder import encode
from rove.mqtt.packets import (
    Connack,
    Disconnect,
    Filter,
    Malformed,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    Reason,
    Suback,
)
from tests.effort import PATIENCE_S

HOST = "127.0.0.1"


class Broker(asyncio.Protocol):
    """Answers packets as it is told to."""

    def __init__(self, answer: Callable[[Packet | Malformed], Packet | None]) -> None:
        self._answer = answer
        self._reader = PacketDecoder()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for packet in self._reader.feed(data):
            if (answer := self._answer(packet)) is not None:
                self._transport.write(encode(answer))


def play(
    answer: Callable[[Packet | Malformed], Packet | None],
    scene: Callable[[DirectConnection], Awaitable[None]],
) -> None:
    """Connect to a broker that answers so, and do something."""

    async def all_of_it() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Broker(answer), HOST, 0)
        connection = DirectConnection(ProtocolSettings("one", keep_alive_s=0))
        async with server, asyncio.timeout(PATIENCE_S):
            port = server.sockets[0].getsockname()[1]
            await loop.create_connection(lambda: connection, HOST, port)
            try:
                await scene(connection)
            finally:
                connection.close()

    asyncio.run(all_of_it())


def test_a_broker_that_wants_signs_of_life_is_given_them() -> None:
    pings = 0

    def answer(packet: Packet | Malformed) -> Packet | None:
        nonlocal pings
        if isinstance(packet, Pingreq):
            pings += 1
            return Pingresp()
        return Connack(properties=Properties(server_keep_alive_s=1))

    async def scene(connection: DirectConnection) -> None:
        await connection.settle()
        while pings < 2:
            await asyncio.sleep(0.01)

    play(answer, scene)


@pytest.mark.parametrize(
    ("connack", "suback", "complaint"),
    [
        (Connack(reason=Reason.NOT_AUTHORIZED), None, "one was not let in: not authorized"),
        (Connack(), Suback(1, (0, Reason.QUOTA_EXCEEDED)), "one may not subscribe: quota exceeded"),
        (Connack(), Disconnect(Reason.SERVER_BUSY), "one was sent away: server busy"),
    ],
)
def test_a_refusal_is_told_to_who_waits(
    connack: Packet, suback: Packet | None, complaint: str
) -> None:
    answers = iter([connack, suback, None])

    async def scene(connection: DirectConnection) -> None:
        await connection.settle()
        connection.ask(subscribe_packet((Filter("a"), Filter("b"))))
        await connection.settle()

    with pytest.raises(RoveError, match=complaint):
        play(lambda _: next(answers), scene)


def test_bytes_may_be_taken_past_the_protocol() -> None:
    taken: list[bytes] = []
    connection = DirectConnection(ProtocolSettings("one"))
    connection.take_bytes(taken.append)
    connection.data_received(encode(Publish("a", b"x")))
    connection.take_bytes(ignore)
    connection.data_received(b"anything")
    assert taken == [encode(Publish("a", b"x"))]


def test_not_all_connect_at_once() -> None:
    connecting = at_once = done = 0

    async def connect(number: int) -> None:
        nonlocal connecting, at_once, done
        connecting += 1
        at_once = max(at_once, connecting)
        await asyncio.sleep(0)
        connecting -= 1
        done += 1

    asyncio.run(some_at_a_time(range(120), connect))
    assert done == 120
    assert at_once <= 50
