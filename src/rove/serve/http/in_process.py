"""A client inside the broker's own process: the HTTP interface speaks MQTT 5 to the broker.

So there is one set of rules: access, quotas, flow control and sessions are the broker's own, and
what holds for a client on a socket holds for one behind `POST /publish`. A packet costs what it
costs elsewhere, less the socket.

The broker calls `send` in the middle of its turn. Nothing is answered from there: answers go out
when the turn is over.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, TypeVar

from rove.broker.access import Identity
from rove.broker.sessions.session import Link
from rove.client.protocol import (
    RECEIVE_MAX,
    DeliveryToken,
    Ended,
    Opened,
    ProtocolSettings,
    PublishReceived,
    Request,
    Response,
    words,
)
from rove.client.session import ClientSession, Outgoing, reason_of
from rove.errors import RoveError
from rove.mqtt.decoder import PACKET_BYTES_MAX
from rove.mqtt.packets import (
    NO_PROPERTIES,
    Filter,
    Properties,
    Publish,
    Reason,
    Subscribe,
    Unsubscribe,
)
from rove.serve.shell import Shell

PATIENCE_S = 3.0
"""How long a publication waits while the broker pushes back; it does so for a second whenever a
receiver falls behind."""
LOOK_AGAIN_S = 0.02
ACKNOWLEDGEMENT_S = 30.0
"""How long an answer may take, a struggling disk included."""

Found = TypeVar("Found")


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
        self._session = ClientSession(ProtocolSettings())
        self._opened: asyncio.Future[bool] = self._loop.create_future()
        self._waiting: set[asyncio.Future[Any]] = set()
        """For answers of the broker."""
        self._is_paused = False
        self._link: Link | None = None
        self._end: Refused | None = None

    @property
    def client_id(self) -> str:
        return self._session.client_id

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
        settings = ProtocolSettings(
            client_id,
            clean_start=clean_start,
            session_expiry_s=expiry_s,
            keep_alive_s=0,
            receive_max=receive_max or RECEIVE_MAX,
            packet_bytes_max=PACKET_BYTES_MAX,
        )
        self._session = ClientSession(settings)
        self._link = self._shell.opened(self._name, self, self._identity)
        self._link.takes_lines = True
        self._link.is_http_publisher = is_http_publisher
        self._session.open(self._loop.time())
        return await self._answer(self._opened)

    async def publish(self, packet: Publish) -> int | None:
        """Publish; the broker's reason code, or None to QoS 0."""
        await self._wait_while_paused()
        answered: asyncio.Future[int] = self._loop.create_future()
        self._session.publish(Outgoing(packet, partial(_settle, answered)))
        reason = await self._answer(answered)
        return reason if packet.qos else None

    async def subscribe(self, filters: tuple[Filter, ...], properties: Properties) -> None:
        """Subscribe to all of these, or to none that was refused: `Refused` for the first."""
        await self._ask(Subscribe(0, filters, properties))

    async def unsubscribe(
        self, topic_filters: tuple[str, ...], properties: Properties = NO_PROPERTIES
    ) -> None:
        """End subscriptions."""
        await self._ask(Unsubscribe(0, topic_filters, properties))

    def acknowledge(self, delivery: DeliveryToken | None) -> None:
        """A notification has reached whom it was for."""
        if delivery is not None:
            self._session.acknowledge(delivery)
            self._flush()

    def disconnect(self) -> None:
        """Say goodbye."""
        self._session.disconnect()
        self._flush()

    # -- what comes ----------------------------------------------------------------------------

    def notified(self, packet: Publish, delivery: DeliveryToken | None) -> None:
        """A notification has come. Here nobody wants it: it stays with the broker, unacknowledged,
        for whoever connects as this client next."""

    async def _ask(self, request: Request) -> None:
        answered: asyncio.Future[int] = self._loop.create_future()

        def took(response: Response) -> None:
            _settle(answered, reason_of(response), words(response.properties))

        self._session.ask(request, took)
        await self._answer(answered)

    async def _answer(self, answered: asyncio.Future[Found]) -> Found:
        """Send what there is, and wait for the broker's answer to it."""
        self._waiting.add(answered)
        try:
            self._flush()
            async with asyncio.timeout(ACKNOWLEDGEMENT_S):
                return await answered
        except TimeoutError:
            what = f"not acknowledged within {ACKNOWLEDGEMENT_S:.0f} s; it may be done all the same"
            raise Refused(Reason.SERVER_BUSY, what) from None
        finally:
            self._waiting.discard(answered)

    def _flush(self) -> None:
        """Hand the broker what the session has to send."""
        data = self._session.output(self._loop.time())
        if data and self._link is not None:
            self._shell.received(self._link, data)
        if self._end is not None:
            self._fail_waiting()

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
        for event in self._session.receive(data, self._loop.time()):
            if isinstance(event, PublishReceived):
                self.notified(event.publish, event.delivery)
            elif isinstance(event, Opened):
                self._session.resume()
                if not self._opened.done():
                    self._opened.set_result(event.session_present)
            elif isinstance(event, Ended):
                text = event.text or ("refused" if event.refused else "closed")
                self._end = Refused(event.reason, text)
        self._loop.call_soon(self._flush)

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
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                assert self._end is not None
                future.set_exception(Refused(self._end.reason, self._end.text))


def _settle(answered: asyncio.Future[int], reason: int, text: str | None) -> None:
    """Pass the broker's answer on to who waits for it."""
    if answered.done():
        return
    if reason >= Reason.UNSPECIFIED_ERROR:
        answered.set_exception(Refused(reason, text or "refused"))
    else:
        answered.set_result(reason)
