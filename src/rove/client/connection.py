"""Keeps a client connected: opens transports, moves bytes, sets timers, reconnects after a loss.

`rove.client.session` makes the decisions; here are the socket, the timer and the delays between
attempts. Everything to send from one turn of the event loop is written together at its end.

After a loss the client reconnects after a random part of a delay that doubles up to `retry_s_max`,
so that a thousand clients of a restarted broker do not all return at once. It gives up only if
reconnecting would fail again: another client has taken the session, or the broker refuses the
user.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from typing import Final, Protocol

from rove.client.errors import (
    ClientError,
    ConnectionEnded,
    ConnectionFailed,
    ConnectionRefused,
    SessionTakenOver,
    in_words,
)
from rove.client.options import ClientOptions, Connection
from rove.client.protocol import DeliveryToken, Ended, Event, Opened, PublishReceived
from rove.client.session import ClientSession, Outgoing
from rove.client.transports import Transport, open_transport
from rove.mqtt.packets import Publish, Reason

_RETRY_S_FIRST: Final = 0.5
_STABLE_S: Final = 5.0
"""After a connection that lasted this long, the delay is short again."""
_UNFLUSHED_BYTES_MAX: Final = 64 * 1024

_FINAL: Final = frozenset(
    {
        Reason.UNSUPPORTED_PROTOCOL_VERSION,
        Reason.CLIENT_ID_NOT_VALID,
        Reason.BAD_USER_NAME_OR_PASSWORD,
        Reason.NOT_AUTHORIZED,
        Reason.BANNED,
        Reason.BAD_AUTHENTICATION_METHOD,
        Reason.SESSION_TAKEN_OVER,
        Reason.USE_ANOTHER_SERVER,
        Reason.SERVER_MOVED,
    }
)
"""Reasons for which reconnecting would fail again."""


class ConnectionHandler(Protocol):
    """Receives the events of a connection."""

    def arrived(self, publish: Publish, delivery: DeliveryToken | None) -> None: ...

    def opened(self, session_present: bool) -> Sequence[Outgoing]:
        """What to publish before anything else, in order."""

    def finished(self, error: ClientError) -> None:
        """The client has given up; there will be no further connection."""


class PersistentConnection:
    """The connection of one client, renewed after every loss."""

    def __init__(
        self, options: ClientOptions, session: ClientSession, handler: ConnectionHandler
    ) -> None:
        self._options = options
        self._session = session
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self._transport: Transport | None = None
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._lost: asyncio.Future[ClientError | None] = self._loop.create_future()
        self._flush_is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._keeping: asyncio.Task[None] | None = None

    # -- for the client --------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect, and from then on stay connected."""
        await self._connect()
        self._keeping = asyncio.create_task(self._keep(), name="rove client")

    async def close(self, *, forget: bool) -> None:
        """Send DISCONNECT if there is a connection, and close it."""
        if self._keeping is None or self._keeping.done():
            return
        self._keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._keeping
        self._session.disconnect(forget=forget)
        self._flush()
        await self._drop_transport()
        self._tell(Connection("closed"))

    def flush_soon(self) -> None:
        """Send at the end of this turn of the event loop."""
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)

    def flush_if_much(self) -> bool:
        """Send now if there is much to send; True if so. Otherwise, at the end of the turn."""
        if self._session.output_bytes < _UNFLUSHED_BYTES_MAX:
            self.flush_soon()
            return False
        self._flush()
        return True

    # -- connecting and reconnecting --------------------------------------------------------------

    async def _connect(self) -> None:
        """One attempt to connect; ConnectionFailed if it fails."""
        self._opened = self._loop.create_future()
        self._lost = self._loop.create_future()
        options = self._options
        self._transport = await open_transport(
            options.address, options.tls, options.timeout_s, self
        )
        self._session.open(self._loop.time())
        self._flush()
        self._set_timer()
        try:
            await self._opened
        except BaseException:
            await self._drop_transport()
            raise

    async def _keep(self) -> None:
        """Reconnect whenever the connection is lost."""
        losses = 0
        while True:
            came_at = self._loop.time()
            error = await self._lost
            await self._drop_transport()
            if self._loop.time() - came_at >= _STABLE_S:
                losses = 0
            while True:
                if error is not None and _is_final(error):
                    self._tell(Connection("closed", error=error))
                    self._handler.finished(error)
                    return
                delay_s = random.uniform(0, min(self._options.retry_s_max, self._delay_s(losses)))
                losses += 1
                self._tell(Connection("lost", error=error, retry_in_s=delay_s))
                await asyncio.sleep(delay_s)
                try:
                    await self._connect()
                except ConnectionFailed as failure:
                    error = failure
                else:
                    break

    @staticmethod
    def _delay_s(losses: int) -> float:
        return _RETRY_S_FIRST * float(2 ** min(losses, 30))

    async def _drop_transport(self) -> None:
        self._cancel_timer()
        transport, self._transport = self._transport, None
        self._session.lose()
        if transport is not None:
            await transport.close()

    def _tell(self, connection: Connection) -> None:
        listener = self._options.on_connection
        if listener is None:
            return
        try:
            listener(connection)
        except Exception as error:
            self._loop.call_exception_handler(
                {"message": "on_connection failed", "exception": error}
            )

    # -- bytes -----------------------------------------------------------------------------------

    def transport_received(self, data: bytes) -> None:
        """For the transport: bytes have arrived."""
        if self._transport is None and self._opened.done():
            return
        self._handle(self._session.receive(data, self._loop.time()))
        self.flush_soon()

    def transport_congested(self, is_congested: bool) -> None:
        """For the transport: whether it is congested."""
        if is_congested:
            self._session.is_congested = True
        else:
            self._session.continue_sending()
            self.flush_soon()

    def transport_lost(self, error: Exception | None) -> None:
        """For the transport: it was closed."""
        why = f": {error}" if error is not None else ""
        self._end(ConnectionFailed(f"{self._options.address} closed the connection{why}"))

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            if type(event) is PublishReceived:
                self._handler.arrived(event.publish, event.delivery)
            elif isinstance(event, Opened):
                self._session.resume(self._handler.opened(event.session_present))
                self._tell(Connection("connected", session_present=event.session_present))
                self._set_timer()
                if not self._opened.done():
                    self._opened.set_result(None)
            elif isinstance(event, Ended):
                self._flush()
                self._end(_error_of(event, str(self._options.address)))

    def _end(self, error: ClientError) -> None:
        """This connection has ended: complete the future of its opening or its loss."""
        if not self._opened.done():
            failure = error if isinstance(error, ConnectionFailed) else ConnectionFailed(str(error))
            self._opened.set_exception(failure)
        elif not self._lost.done():
            self._lost.set_result(error)

    def _flush(self) -> None:
        self._flush_is_due = False
        if self._transport is not None and (data := self._session.output(self._loop.time())):
            self._transport.write(data)

    # -- time ------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        self._cancel_timer()
        wake_at = self._session.wake_at()
        if wake_at != float("inf"):
            self._timer = self._loop.call_at(wake_at, self._tick)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._handle(self._session.advance(self._loop.time()))
        self._flush()
        self._set_timer()


def _is_final(error: ClientError) -> bool:
    return isinstance(error, ConnectionRefused | ConnectionEnded) and error.reason in _FINAL


def _error_of(event: Ended, address: str) -> ClientError:
    words = in_words(event.reason, event.text)
    if event.refused:
        return ConnectionRefused(f"{address} refused the connection: {words}", event.reason)
    if event.reason == Reason.SESSION_TAKEN_OVER:
        return SessionTakenOver(
            f"another connection to {address} uses the same client id: {words}", event.reason
        )
    return ConnectionEnded(f"{address} ended the connection: {words}", event.reason)
