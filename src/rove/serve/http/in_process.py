"""Clients of the broker inside its own process: how the HTTP interface publishes and subscribes.

They use MQTT 5 like any client, so there is one set of rules: access, quotas, flow control and
sessions are the broker's, and hold for `POST /publish` as for a client on a socket. A packet costs
the same, less the socket.

All requests of a user to publish share one connection (`Publishers`), so a `POST /publish` costs a
PUBLISH and no CONNECT.

The broker calls `send` in the middle of a turn. Nothing is sent back from there: it goes out when
the turn is over.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, TypeVar

from rove.broker.access import Identity
from rove.broker.sessions.lifecycle import HTTP_CLIENT_ID
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
"""How long a publication waits while publishers are paused; that lasts for a second whenever a
receiver falls behind."""
LOOK_AGAIN_S = 0.02
ACKNOWLEDGEMENT_S = 30.0
"""How long an answer may take, with a slow disk included."""

Found = TypeVar("Found")


class Refused(RoveError):
    """The broker refused: a reason code, and why."""

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
        """For the broker's answers."""
        self._is_paused = False
        self._link: Link | None = None
        self._end: Refused | None = None

    @property
    def client_id(self) -> str:
        return self._session.client_id

    @property
    def end(self) -> Refused | None:
        """Why the connection has ended; None while it is open."""
        return self._end

    # -- requests ------------------------------------------------------------------------------

    async def connect(
        self,
        client_id: str,
        *,
        clean_start: bool = True,
        expiry_s: int = 0,
        receive_max: int = 0,
        is_http_publisher: bool = False,
    ) -> bool:
        """Connect; whether there was a session already."""
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
        """Publish; the broker's reason code, or None for QoS 0."""
        await self._wait_while_paused()
        answered: asyncio.Future[int] = self._loop.create_future()
        self._session.publish(Outgoing(packet, partial(_settle, answered)))
        reason = await self._answer(answered)
        return reason if packet.qos else None

    async def subscribe(self, filters: tuple[Filter, ...], properties: Properties) -> None:
        """Subscribe to these; `Refused` for the first that the broker refuses."""
        await self._ask(Subscribe(0, filters, properties))

    async def unsubscribe(
        self, topic_filters: tuple[str, ...], properties: Properties = NO_PROPERTIES
    ) -> None:
        """End subscriptions."""
        await self._ask(Unsubscribe(0, topic_filters, properties))

    def acknowledge(self, delivery: DeliveryToken | None) -> None:
        """A notification has reached its receiver."""
        if delivery is not None:
            self._session.acknowledge(delivery)
            self._flush()

    def disconnect(self) -> None:
        """Disconnect."""
        self._session.disconnect()
        self._flush()

    # -- notifications and answers -------------------------------------------------------------

    def notified(self, packet: Publish, delivery: DeliveryToken | None) -> None:
        """A notification has arrived. Here it is ignored: it stays with the broker, unacknowledged,
        for the next connection of this client."""

    async def _ask(self, request: Request) -> None:
        answered: asyncio.Future[int] = self._loop.create_future()

        def took(response: Response) -> None:
            _settle(answered, reason_of(response), words(response.properties))

        self._session.ask(request, took)
        await self._answer(answered)

    async def _answer(self, answered: asyncio.Future[Found]) -> Found:
        """Send what there is, and wait for the broker's answer."""
        self._waiting.add(answered)
        try:
            self._flush()
            async with asyncio.timeout(ACKNOWLEDGEMENT_S):
                return await answered
        except TimeoutError:
            what = f"not acknowledged within {ACKNOWLEDGEMENT_S:.0f} s; it may still be done"
            raise Refused(Reason.SERVER_BUSY, what) from None
        finally:
            self._waiting.discard(answered)

    def _flush(self) -> None:
        """Pass on to the broker what the session has to send."""
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
    """Complete a request with the broker's answer."""
    if answered.done():
        return
    if reason >= Reason.UNSPECIFIED_ERROR:
        answered.set_exception(Refused(reason, text or "refused"))
    else:
        answered.set_result(reason)


class Publishers:
    """One connection per user, shared by all requests to publish. Nobody else can have its client
    id, `http` or `http:` and the user's name: that would disconnect it."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._clients: dict[str | None, InProcessClient] = {}
        self._opening = asyncio.Lock()

    async def publish(self, identity: Identity, packet: Publish) -> int | None:
        """Publish as a user; the reason code, or `Refused`."""
        client = await self._client(identity)
        return await client.publish(packet)

    async def _client(self, identity: Identity) -> InProcessClient:
        client = self._clients.get(identity.user)
        if client is not None and client.end is None:
            return client
        async with self._opening:
            client = self._clients.get(identity.user)
            if client is None or client.end is not None:
                client = InProcessClient(self._shell, "http", identity)
                await client.connect(client_id_of(identity), is_http_publisher=True)
                self._clients[identity.user] = client
        return client


def client_id_of(identity: Identity) -> str:
    """The client id with which a user publishes over HTTP."""
    return HTTP_CLIENT_ID if identity.user is None else f"{HTTP_CLIENT_ID}:{identity.user}"
