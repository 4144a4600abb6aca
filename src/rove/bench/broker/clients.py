"""Clients that cost little, so that what is measured is the broker.

The library would spend more on a notification than the broker does. These clients set up a
connection as any other would, packet by packet, and then take short ways that their load allows:
all notifications of one stream have the same size, so a chunk of bytes is cut, counted and
acknowledged as a whole, without looking at each packet. That the packets are what they are taken
for is checked all the same: their first bytes, and that nothing is left over.

Receiving costs about 0.1 µs a notification with QoS 0 and 0.2 with QoS 1, besides the system's
share; looking into each one (to take its delay, or to sift) about 1 µs more.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from rove.client.protocol import (
    PACKET_ID_MAX,
    RECEIVE_MAX,
    PacketReader,
    ProtocolSettings,
    Request,
)
from rove.live.connections import DirectConnection, some_at_a_time
from rove.mqtt.decoder import PACKET_BYTES_MAX
from rove.mqtt.encoder import publish_parts
from rove.mqtt.packets import Malformed, Packet, Puback, Publish, Reason
from rove.testing.broker_processes import HOST, BrokerProcessError

TOPIC: Final = "air/zagreb"
FILTER: Final = "air/#"
X_MIN: Final = 10_000
X_COUNT: Final = 20_000
"""`x` of a publication is one of so many integers, all with five digits, each as likely."""
_DRAWN: Final = 10_007
"""So many are drawn; then they come again."""
_FIRST_NUMBER: Final = 1_000_000_000
"""Numbers have ten digits, so that all publications of a stream have one size."""
_NUMBER_DIGITS: Final = 10
_NUMBER_AT: Final = len('{"n":')
_HEADER_BYTES_MAX: Final = 7
"""Of a packet's own header, and the length of its topic."""
_LITTLE_BYTES: Final = 4_096
_SEGMENT_BYTES: Final = 1_024
_FLOOD: Final = 20
"""Publications that are written at once by who does not wait for anything."""
_POLL_S: Final = 0.002
_ANSWER_S_MAX: Final = 60.0


class Client(DirectConnection):
    """One connection: asks and is answered at first, then does as `take_bytes` says."""

    error = BrokerProcessError

    def __init__(self, client_id: str, *, session_expiry_s: int = 0) -> None:
        settings = ProtocolSettings(
            client_id,
            session_expiry_s=session_expiry_s,
            keep_alive_s=0,
            receive_max=RECEIVE_MAX,
            packet_bytes_max=PACKET_BYTES_MAX,
            answer_timeout_s=_ANSWER_S_MAX,
        )
        super().__init__(settings)
        self.may_write = asyncio.Event()
        self.may_write.set()

    async def connect(
        self, port: int, local_host: str = HOST, *, holds_little: bool = False
    ) -> None:
        """Open the connection, and be let in.

        Between two programs of one machine the system holds megabytes; with `holds_little`, about
        as little as on a poor line: what is not read soon waits in the broker.
        """
        loop = asyncio.get_running_loop()
        one = socket.socket()
        # asyncio does so for the sockets that it makes itself. Without it, the second of two small
        # packets waits for the broker's system to acknowledge the first: up to 40 ms.
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if holds_little:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _LITTLE_BYTES)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, _SEGMENT_BYTES)
        one.setblocking(False)
        one.bind((local_host, 0))
        try:
            await loop.sock_connect(one, (HOST, port))
        except OSError as error:
            one.close()
            raise BrokerProcessError(f"{self.client_id} cannot connect: {error.strerror}") from None
        await loop.create_connection(lambda: self, sock=one)
        await self.settle()

    async def request(self, requests: Sequence[Request]) -> None:
        """Send these, and wait for the answers; a refusal is an error."""
        self.protocol.reader = self.protocol.new_reader()
        for each in requests:
            self.ask(each)
        await self.settle()

    def send(self, data: bytes) -> None:
        """Send encoded packets at once."""
        assert self.transport is not None
        self.transport.write(data)

    # -- asyncio's side ------------------------------------------------------------------------

    def pause_writing(self) -> None:
        self.may_write.clear()

    def resume_writing(self) -> None:
        self.may_write.set()


async def connect_all(clients: Sequence[Client], port: int, local_host: str = HOST) -> None:
    """Connect them all."""
    await some_at_a_time(clients, lambda client: client.connect(port, local_host))


# --- publications -----------------------------------------------------------------------------


class Stream:
    """Publications that are numbered, of one size, with an `x` that is drawn for each."""

    def __init__(self, qos: int, payload_bytes: int, seed: int = 4) -> None:
        self.qos = qos
        self.payload_bytes = payload_bytes
        before = '{"n":'
        between = ',"x":'
        after = ',"NO2":41.5,"lat":45.8,"lon":15.9,"station":"Zagreb-1","pad":"'
        digits = _NUMBER_DIGITS + len(str(X_MIN))
        pad_bytes = payload_bytes - len(before + between + after + '"}') - digits
        assert pad_bytes >= 0, f"a payload has at least {payload_bytes - pad_bytes} bytes"
        payload = f'{before}{"0" * digits}{between}{after}{"x" * pad_bytes}"}}'.encode()
        head, tail = publish_parts(Publish(TOPIC, payload, qos))
        properties = tail[: -len(payload)]
        self._head = head
        self._before = properties + before.encode()
        self._between = between.encode()
        self._after = payload[len(before + between) + digits :]
        draw = random.Random(seed)
        self._xs = [X_MIN + draw.randrange(X_COUNT) for _ in range(_DRAWN)]

    def x(self, number: int) -> int:
        """The `x` of a publication."""
        return self._xs[number % _DRAWN]

    def packet(self, number: int) -> bytes:
        """The publication of that number, as it is sent."""
        packet_id = (number % PACKET_ID_MAX + 1).to_bytes(2, "big") if self.qos else b""
        return b"".join(
            (
                self._head,
                packet_id,
                self._before,
                b"%d" % (_FIRST_NUMBER + number),
                self._between,
                b"%d" % self.x(number),
                self._after,
            )
        )


class Packets(Protocol):
    """Publications by their numbers."""

    @property
    def qos(self) -> int: ...

    def packet(self, number: int) -> bytes:
        """The publication of that number, as it is sent."""
        ...


class Publisher:
    """Sends a stream through a client, and knows what was acknowledged."""

    def __init__(self, client: Client, stream: Packets) -> None:
        self.client = client
        self.stream = stream
        self.sent = 0
        self.acknowledged = 0
        self.sent_at = array("d")
        """When each was sent, in seconds of `time.perf_counter`, where that was wanted."""
        self._window = 0
        self._until = 0.0
        self._reader: PacketReader = client.protocol.reader
        client.protocol.reader = self

    def send(self, count: int) -> None:
        """The next ones, at once."""
        packet = self.stream.packet
        self.client.send(
            b"".join([packet(number) for number in range(self.sent, self.sent + count)])
        )
        self.sent += count

    async def flood(self, until: float) -> None:
        """As many as the connection takes: the broker pushes back through TCP alone."""
        while time.perf_counter() < until:
            await self.client.may_write.wait()
            self.send(_FLOOD)
            await asyncio.sleep(0)

    async def keep_in_flight(self, window: int, until: float) -> None:
        """So many not acknowledged at any time; ends when all are."""
        self._window, self._until = window, until
        self.send(window)
        await asyncio.sleep(until - time.perf_counter())
        self._window = 0
        await self.acknowledgements()

    async def pace(self, per_s: float, until: float) -> None:
        """One by one, at a pace; remembers when each was sent."""
        start = time.perf_counter()
        while (now := time.perf_counter()) < until:
            due = start + self.sent / per_s
            if due > now:
                await asyncio.sleep(due - now)
            self.sent_at.append(time.perf_counter())
            self.send(1)

    async def acknowledgements(self) -> None:
        """Wait until everything is acknowledged."""
        while self.stream.qos and self.acknowledged < self.sent:
            await asyncio.sleep(_POLL_S)

    def feed(self, data: bytes) -> list[Packet | Malformed]:
        """As the client's reader: count the acknowledgements, and leave it all else."""
        packets = list(self._reader.feed(data))
        others = [packet for packet in packets if type(packet) is not Puback]
        for packet in packets:
            if type(packet) is Puback and packet.reason >= Reason.UNSPECIFIED_ERROR:
                raise BrokerProcessError(f"a publication was not taken: {packet}")
        self._answered(len(packets) - len(others))
        return others

    def _answered(self, count: int) -> None:
        """The broker has acknowledged so many."""
        self.acknowledged += count
        if count and self._window and time.perf_counter() < self._until:
            self.send(count)


# --- notifications ----------------------------------------------------------------------------

Look = Callable[[bytes, int], None]
"""Is shown whole packets, one after the other, and the size of each."""


class Tally:
    """What all receivers of a job have received together."""

    def __init__(self) -> None:
        self.received = 0
        self.at = 0.0
        """When the last one came, by `time.perf_counter`."""
        self._mark = 0
        self._is_reached = asyncio.Event()

    def add(self, count: int) -> None:
        """So many more have come."""
        self.received += count
        self.at = time.perf_counter()
        if self.received >= self._mark:
            self._is_reached.set()

    async def reach(self, mark: int, patience_s: float) -> None:
        """Wait until so many have come, or none came for a while."""
        before = -1
        self._mark = mark
        while before < self.received < mark:
            before = self.received
            self._is_reached.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_reached.wait(), patience_s)


class Receiver:
    """Takes the notifications of one client, which all have one size."""

    def __init__(self, client: Client, tally: Tally, qos: int, look: Look | None = None) -> None:
        self._tally = tally
        self._send = client.send
        self._name = client.client_id
        self._acknowledges = qos > 0
        self._look = look
        self._size = 0
        self._first = 0
        self._packet_id_at = 0
        self._rest = b""
        client.take_bytes(self._take)

    def _take(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        if not self._size:
            if len(data) < _HEADER_BYTES_MAX:
                self._rest = data
                return
            self._learn(data)
        size = self._size
        count = len(data) // size
        whole_bytes = count * size
        self._rest = data[whole_bytes:]
        if not count:
            return
        whole = data[:whole_bytes]
        if whole[::size].count(self._first) != count:
            raise BrokerProcessError(f"{self._name} was sent something else than notifications")
        self._tally.add(count)
        if self._look is not None:
            self._look(whole, size)
        if self._acknowledges:
            self._acknowledge(whole, count)

    def _learn(self, data: bytes) -> None:
        """Read the first header: the others are like it."""
        size, at = data[1] & 0x7F, 2
        while data[at - 1] & 0x80:
            size |= (data[at] & 0x7F) << 7 * (at - 1)
            at += 1
        self._first = data[0]
        self._size = at + size
        self._packet_id_at = at + 2 + int.from_bytes(data[at : at + 2], "big")
        if self._first & 0xF0 != 0x30:
            raise BrokerProcessError(f"{self._name} was sent something else than notifications")

    def _acknowledge(self, whole: bytes, count: int) -> None:
        answers = bytearray(b"\x40\x02\x00\x00" * count)
        answers[2::4] = whole[self._packet_id_at :: self._size]
        answers[3::4] = whole[self._packet_id_at + 1 :: self._size]
        self._send(bytes(answers))


def delays_into(delays: array[float], publisher: Publisher, payload_bytes: int) -> Look:
    """Note how long each notification was on its way, in seconds."""
    sent_at = publisher.sent_at
    from_end = payload_bytes - _NUMBER_AT

    def look(whole: bytes, size: int) -> None:
        now = time.perf_counter()
        for begin in range(size - from_end, len(whole), size):
            number = int(whole[begin : begin + _NUMBER_DIGITS]) - _FIRST_NUMBER
            delays.append(now - sent_at[number])

    return look
