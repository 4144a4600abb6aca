"""A client inside the broker's own process: the HTTP interface speaks MQTT 5 to the broker.

So there is one set of rules: access, quotas, flow control and sessions are the broker's own, and
what holds for a client on a socket holds for one behind `POST /publish`. A packet costs what it
costs elsewhere, less the socket.

The broker calls `send` in the middle of its turn. Nothing is answered from there: answers go out
when the turn is over.
"""

from __future__ import annotations

import asyncio
from typing import Any

from rove.broker.access import Identity
from rove.broker.links import Link
from rove.errors import RoveError
from rove.mqtt.packets import (
    NO_PROPERTIES,
    Connack,
    Connect,
    Disconnect,
    Filter,
    Packet,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Reason,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from rove.mqtt.reading import Reader
from rove.mqtt.writing import encode
from rove.serve.shell import Shell

PACKET_ID_MAX = 65_535
RECEIVE_MAX_DEFAULT = 65_535
PATIENCE_S = 3.0
"""How long a publication waits while the broker pushes back; it does so for a second whenever a
receiver falls behind."""
LOOK_AGAIN_S = 0.02
ACKNOWLEDGEMENT_S = 30.0
"""How long an answer may take, a struggling disk included."""


class Refused(RoveError):
    """The broker said no: a reason code, and why."""

    def __init__(self, reason: int, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


class InProcessClient:
    """A `Peer` that is a client."""

    def __init__(self, shell: Shell, name: str, identity: Identity) -> None:
        self._shell = shell
        self._name = name
        self._identity = identity
        self._loop = asyncio.get_running_loop()
        self._reader = Reader(version=5, from_server=True)
        self._waiting: dict[object, asyncio.Future[Any]] = {}
        self._unreleased: set[int] = set()
        """Packet identifiers of QoS 2 that the broker has not forgotten yet."""
        self._last_packet_id = 0
        self._is_paused = False
        self._room = asyncio.Semaphore(1)
        self._link: Link | None = None
        self._end: Refused | None = None
        self.client_id = ""
        self.packet_bytes_max: int | None = None
        """What the broker takes."""

    @property
    def end(self) -> Refused | None:
        """Why the connection is no more; None while it is."""
        return self._end

    # -- what it does --------------------------------------------------------------------------

    async def connect(
        self,
        client_id: str,
        *,
        clean_start: bool = True,
        expiry_s: int = 0,
        receive_max: int = 0,
        is_http_publisher: bool = False,
    ) -> bool:
        """Introduce itself; whether a session was there already."""
        self._link = self._shell.opened(self._name, self, self._identity)
        self._link.takes_lines = True
        self._link.is_http_publisher = is_http_publisher
        properties = Properties(session_expiry_s=expiry_s, receive_max=receive_max or None)
        packet = Connect(client_id, clean_start=clean_start, keep_alive_s=0, properties=properties)
        answer: Connack = await self._ask("connect", packet)
        if answer.reason >= Reason.UNSPECIFIED_ERROR:
            raise Refused(answer.reason, answer.properties.reason_string or "refused")
        self.client_id = answer.properties.assigned_client_id or client_id
        self.packet_bytes_max = answer.properties.packet_size_max
        self._room = asyncio.Semaphore(answer.properties.receive_max or RECEIVE_MAX_DEFAULT)
        return answer.session_present

    async def publish(self, packet: Publish) -> Puback | Pubrec | None:
        """Publish; the broker's answer, or None to QoS 0."""
        size = len(packet.payload) + len(packet.topic.encode())
        if self.packet_bytes_max is not None and size > self.packet_bytes_max - 1024:
            size = len(encode(packet))
            if size > self.packet_bytes_max:
                what = f"a publication may have {self.packet_bytes_max} bytes, this has {size}"
                raise Refused(Reason.PACKET_TOO_LARGE, what)
        await self._wait_while_paused()
        if not packet.qos:
            self._tell(packet)
            return None
        async with self._room:
            packet.packet_id = self._take_packet_id()
            answer: Puback | Pubrec = await self._ask(packet.packet_id, packet)
        if answer.reason >= Reason.UNSPECIFIED_ERROR:
            raise Refused(answer.reason, answer.properties.reason_string or "refused")
        return answer

    async def subscribe(self, filters: tuple[Filter, ...], properties: Properties) -> None:
        """Subscribe to all of these, or to none that was refused: `Refused` for the first."""
        packet_id = self._take_packet_id()
        answer: Suback = await self._ask(packet_id, Subscribe(packet_id, filters, properties))
        for reason in answer.reasons:
            if reason >= Reason.UNSPECIFIED_ERROR:
                raise Refused(reason, answer.properties.reason_string or "refused")

    async def unsubscribe(
        self, topic_filters: tuple[str, ...], properties: Properties = NO_PROPERTIES
    ) -> None:
        """End subscriptions."""
        packet_id = self._take_packet_id()
        packet = Unsubscribe(packet_id, topic_filters, properties)
        answer: Unsuback = await self._ask(packet_id, packet)
        for reason in answer.reasons:
            if reason >= Reason.UNSPECIFIED_ERROR:
                raise Refused(reason, answer.properties.reason_string or "refused")

    def acknowledge(self, packet: Publish) -> None:
        """A notification has reached whom it was for."""
        if packet.qos == 1:
            self._tell(Puback(packet.packet_id))
        elif packet.qos == 2:
            self._tell(Pubrec(packet.packet_id))

    def disconnect(self) -> None:
        """Say goodbye."""
        self._tell(Disconnect())

    # -- what comes ----------------------------------------------------------------------------

    def notified(self, packet: Publish) -> None:
        """A notification has come. Here nobody wants it: it stays with the broker, unacknowledged,
        for whoever connects as this client next."""

    def _take(self, packet: object) -> None:
        match packet:
            case Publish():
                self.notified(packet)
            case Connack():
                self._answered("connect", packet)
            case Puback() | Suback() | Unsuback():
                self._answered(packet.packet_id, packet)
            case Pubrec():
                if packet.reason < Reason.UNSPECIFIED_ERROR:
                    self._unreleased.add(packet.packet_id)
                    self._loop.call_soon(self._tell, Pubrel(packet.packet_id))
                self._answered(packet.packet_id, packet)
            case Pubcomp():
                self._unreleased.discard(packet.packet_id)
            case Pubrel():
                self._loop.call_soon(self._tell, Pubcomp(packet.packet_id))
            case Disconnect():
                self._end = Refused(packet.reason, packet.properties.reason_string or "closed")

    def _answered(self, key: object, packet: object) -> None:
        future = self._waiting.pop(key, None)
        if future is not None and not future.done():
            future.set_result(packet)

    async def _ask(self, key: object, packet: Packet) -> Any:
        future = self._loop.create_future()
        self._waiting[key] = future
        self._tell(packet)
        try:
            async with asyncio.timeout(ACKNOWLEDGEMENT_S):
                return await future
        except TimeoutError:
            what = f"not acknowledged within {ACKNOWLEDGEMENT_S:.0f} s; it may be done all the same"
            raise Refused(Reason.SERVER_BUSY, what) from None

    def _tell(self, packet: Packet) -> None:
        if self._end is not None:
            self._fail_waiting()
        elif self._link is not None:
            self._shell.received(self._link, encode(packet))

    def _take_packet_id(self) -> int:
        packet_id = self._last_packet_id
        while True:
            packet_id = packet_id % PACKET_ID_MAX + 1
            if packet_id not in self._waiting and packet_id not in self._unreleased:
                self._last_packet_id = packet_id
                return packet_id

    async def _wait_while_paused(self) -> None:
        end = self._loop.time() + PATIENCE_S
        while self._is_paused or self._is_too_quick:
            if self._loop.time() < end:
                await asyncio.sleep(LOOK_AGAIN_S)
            elif self._is_too_quick:
                what = "more publications per second than one client may send"
                raise Refused(Reason.MESSAGE_RATE_TOO_HIGH, what)
            else:
                what = "publishers wait until the broker has caught up"
                raise Refused(Reason.SERVER_BUSY, what)

    @property
    def _is_too_quick(self) -> bool:
        return self._link is not None and self._link.is_paused

    # -- the shell's side ----------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        for packet in self._reader.feed(data):
            self._take(packet)

    def buffered_bytes(self) -> int:
        return 0

    def close(self) -> None:
        if self._end is None:
            self._end = Refused(Reason.SERVER_UNAVAILABLE, "the broker closed the connection")
        self._is_paused = False
        self._fail_waiting()
        if self._link is not None:
            link, self._link = self._link, None
            self._loop.call_soon(self._shell.closed, link)

    def abort(self) -> None:
        self.close()

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False

    def _fail_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                assert self._end is not None
                future.set_exception(Refused(self._end.reason, self._end.text))
