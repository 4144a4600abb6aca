"""Server-sent events: `curl -N` as a subscriber.

Each stream is a separate client of the broker. A notification is one event:

    id: the publication's id, if it has one
    event: notification
    data: {"topic":"air/1","value":{"NO2":41},"encoding":"json","user":{},"retained":false,"at":…}

A slow reader is treated as a slow MQTT client: what it does not read waits here (and some 100 KB in
the connection) and is reported to the broker. Beyond the broker's limits QoS 0 is dropped, QoS 1
waits in the queue of the session, and a client that reads nothing for too long is disconnected.

A notification of QoS 1 is acknowledged when it was written to the connection, because this protocol
has no acknowledgements.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections import deque
from collections.abc import Callable

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rove.broker.access import Identity
from rove.client.protocol import DeliveryToken
from rove.mqtt.packets import Publish
from rove.serve.http.in_process import InProcessClient
from rove.serve.listener import unsent_high
from rove.serve.shell import Shell

KEEP_ALIVE_S = 15.0
CHUNK_BYTES = 64 * 1024
INFLIGHT_MAX = 200
"""How many QoS 1 notifications may be unwritten here; the others wait in the session's queue."""
LINE_BREAKS = str.maketrans("", "", "\r\n\0")
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class EventData(msgspec.Struct):
    """The data of an event."""

    topic: str
    value: object
    encoding: str
    """How the payload was converted to `value`: `json`, `text` or `base64`."""
    user: dict[str, str]
    """User properties; of several with one name, the first."""
    retained: bool
    at: float
    """When it was sent, in seconds since 1970."""


def event_data_of(packet: Publish, at: float) -> EventData:
    """A notification in the form for JSON."""
    value, encoding = readable(packet.payload)
    user = dict(reversed(packet.properties.user))
    return EventData(packet.topic, value, encoding, user, packet.retain, at)


def readable(payload: bytes) -> tuple[object, str]:
    """A payload as a value, and how it was converted."""
    with contextlib.suppress(ValueError, RecursionError):
        return msgspec.json.decode(payload), "json"
    with contextlib.suppress(UnicodeDecodeError):
        return payload.decode(), "text"
    return base64.b64encode(payload).decode(), "base64"


def event_of(packet: Publish, at: float) -> bytes:
    """A notification as an event."""
    found = event_data_of(packet, at)
    lines = [b"event: notification\n", b"data: ", msgspec.json.encode(found), b"\n\n"]
    id = found.user.get("id", "").translate(LINE_BREAKS)
    if id:
        lines.insert(0, f"id: {id}\n".encode())
    return b"".join(lines)


class EventStreamClient(InProcessClient):
    """The client of one stream: holds what was not written yet."""

    def __init__(
        self, shell: Shell, name: str, identity: Identity, transport: asyncio.Transport
    ) -> None:
        super().__init__(shell, name, identity)
        self._transport = transport
        self._unwritten: deque[tuple[bytes, DeliveryToken | None]] = deque()
        self._unwritten_bytes = 0
        self._is_stuck = False
        # Lower than the broker's limit for drops: it is reported only when it passes this.
        self._stuck_bytes = unsent_high(shell)
        self.arrived = asyncio.Event()
        """Set when there is something to write, or at the end."""

    def notified(self, packet: Publish, delivery: DeliveryToken | None) -> None:
        event = event_of(packet, time.time())
        self._unwritten.append((event, delivery))
        self._unwritten_bytes += len(event)
        self.arrived.set()
        if (
            self._unwritten_bytes > self._stuck_bytes
            and not self._is_stuck
            and self._link is not None
        ):
            self._is_stuck = True
            self._shell.stuck(self._link)

    def take(self) -> tuple[bytes, list[DeliveryToken | None]]:
        """The next events to write, and the deliveries of their notifications."""
        events: list[bytes] = []
        deliveries: list[DeliveryToken | None] = []
        size = 0
        while self._unwritten and size < CHUNK_BYTES:
            event, delivery = self._unwritten.popleft()
            events.append(event)
            deliveries.append(delivery)
            size += len(event)
        self._unwritten_bytes -= size
        return b"".join(events), deliveries

    def written(self, deliveries: list[DeliveryToken | None]) -> None:
        """Events with these deliveries were written to the connection."""
        for delivery in deliveries:
            self.acknowledge(delivery)
        few = self._unwritten_bytes <= self._stuck_bytes // 4
        if self._is_stuck and few and self._link is not None:
            self._is_stuck = False
            self._shell.unstuck(self._link)

    def buffered_bytes(self) -> int:
        return self._unwritten_bytes

    def close(self) -> None:
        super().close()
        self.arrived.set()

    def abort(self) -> None:
        super().abort()
        self._transport.abort()


class EventStream(Response):
    """The response to `GET /subscribe`: an ASGI application for one request."""

    def __init__(
        self,
        subscriber: EventStreamClient,
        transport: asyncio.Transport,
        ended: Callable[[EventStream], None],
    ) -> None:
        super().__init__()
        self._subscriber = subscriber
        self._transport = transport
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watching = asyncio.ensure_future(self._watch(receive))
        try:
            start = {"type": "http.response.start", "status": 200, "headers": HEADERS}
            await send(start)
            name = self._subscriber.client_id.translate(LINE_BREAKS)
            await _write(send, f": subscribed as {name}\n\n".encode())
            await self._run(send)
            await _write(send, b"", more=False)
        finally:
            watching.cancel()
            self._subscriber.disconnect()
            self._ended(self)

    async def _watch(self, receive: Receive) -> None:
        """Wake the writer when the client has disconnected."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._subscriber.arrived.set()

    async def _run(self, send: Send) -> None:
        subscriber = self._subscriber
        while not self._transport.is_closing():
            subscriber.arrived.clear()
            chunk, deliveries = subscriber.take()
            if chunk:
                await _write(send, chunk)
                if not self._transport.is_closing():
                    subscriber.written(deliveries)
            elif subscriber.end is not None:
                what = msgspec.json.encode({"error": subscriber.end.text})
                await _write(send, b"event: end\ndata: " + what + b"\n\n")
                return
            else:
                await self._wait(send)

    async def _wait(self, send: Send) -> None:
        try:
            async with asyncio.timeout(KEEP_ALIVE_S):
                await self._subscriber.arrived.wait()
        except TimeoutError:
            await _write(send, b": still here\n\n")


async def _write(send: Send, data: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})
