"""Connections to a broker over TCP, TLS or WebSocket, with the same few methods.

They use asyncio's protocols and not its streams: a stream costs a task switch per read, and a
protocol is called with the bytes. WebSockets need the package `websockets`, which is imported for
such URLs only.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, cast

from rove.client.addresses import Address
from rove.client.errors import AddressError, ConnectionFailed, MissingPackage

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

Tls = ssl.SSLContext | bool | None
_UNSENT_BYTES_MAX: Final = 256 * 1024


class TransportHandler(Protocol):
    """Receives the events of a transport."""

    def transport_received(self, data: bytes) -> None: ...

    def transport_lost(self, error: Exception | None) -> None:
        """Called once, unless the transport was closed from this side first."""

    def transport_congested(self, is_congested: bool) -> None:
        """Whether written bytes wait, so that writing more would only fill memory."""


class Transport(Protocol):
    """An open connection."""

    def write(self, data: bytes) -> None: ...

    async def close(self) -> None:
        """Close after sending what was written."""


async def open_transport(
    address: Address, tls: Tls, timeout_s: float, handler: TransportHandler
) -> Transport:
    """Connect; ConnectionFailed names the fault."""
    context = tls_context(address, tls)
    try:
        async with asyncio.timeout(timeout_s):
            if address.is_websocket:
                return await _open_websocket(address, context, handler)
            return await _open_tcp(address, context, handler)
    except TimeoutError:
        raise ConnectionFailed(f"{address} did not answer within {timeout_s:g} s") from None
    except ssl.SSLError as error:
        advice = "check the broker's certificate, or give its authority with tls=…"
        reason = system_message(error)
        raise ConnectionFailed(f"{address}: TLS failed: {reason}; {advice}") from error
    except OSError as error:
        raise ConnectionFailed(f"{address} cannot be reached: {system_message(error)}") from error


def tls_context(address: Address, tls: Tls) -> ssl.SSLContext | None:
    """The TLS context; None for plain connections."""
    if not address.is_tls:
        if tls:
            secure = "wss" if address.is_websocket else "mqtts"
            raise AddressError(f"tls was given, and {address} is not secure; write {secure}://…")
        return None
    if tls is False:
        raise AddressError(f"tls=False, and {address} is secure; leave out one of the two")
    return tls if isinstance(tls, ssl.SSLContext) else ssl.create_default_context()


def system_message(error: OSError) -> str:
    """The message of the system, without the text that asyncio adds."""
    if not isinstance(error, ssl.SSLError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error) or type(error).__name__


# -- TCP ---------------------------------------------------------------------------------------


class _Tcp(asyncio.Protocol):
    def __init__(self, handler: TransportHandler) -> None:
        self._handler: TransportHandler | None = handler
        self._transport: asyncio.Transport | None = None
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not derived from it
        self._transport.set_write_buffer_limits(high=_UNSENT_BYTES_MAX)

    def data_received(self, data: bytes) -> None:
        if self._handler is not None:
            self._handler.transport_received(data)

    def pause_writing(self) -> None:
        if self._handler is not None:
            self._handler.transport_congested(True)

    def resume_writing(self) -> None:
        if self._handler is not None:
            self._handler.transport_congested(False)

    def connection_lost(self, error: Exception | None) -> None:
        # From here on it is not to be touched: with TLS, aborting it fails in Python 3.11.2.
        self._transport = None
        if not self._closed.done():
            self._closed.set_result(None)
        if self._handler is not None:
            self._handler.transport_lost(error)

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    async def close(self, timeout_s: float = 2.0) -> None:
        self._handler = None
        if self._transport is not None:
            self._transport.close()
            try:
                await asyncio.wait([self._closed], timeout=timeout_s)
            finally:
                self.abort()  # a peer that takes nothing would keep us for ever

    def abort(self) -> None:
        """Close now, without sending the rest."""
        self._handler = None
        if self._transport is not None:
            self._transport.abort()


async def _open_tcp(
    address: Address, context: ssl.SSLContext | None, handler: TransportHandler
) -> Transport:
    transport = _Tcp(handler)
    try:
        await asyncio.get_running_loop().create_connection(
            lambda: transport,
            address.host,
            address.port,
            ssl=context,
            server_hostname=address.host if context is not None else None,
        )
    except BaseException:
        transport.abort()  # cancelled just after it was opened: nothing else would close it
        raise
    return transport


# -- WebSocket ---------------------------------------------------------------------------------


class _WebSocket:
    """Two tasks read and write frames, as the package requires."""

    def __init__(self, connection: ClientConnection, handler: TransportHandler) -> None:
        self._connection = connection
        self._handler: TransportHandler | None = handler
        self._unsent: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._unsent_bytes = 0
        self._tasks = [
            asyncio.create_task(self._read(), name="rove websocket reader"),
            asyncio.create_task(self._write(), name="rove websocket writer"),
        ]

    def write(self, data: bytes) -> None:
        before, self._unsent_bytes = self._unsent_bytes, self._unsent_bytes + len(data)
        self._unsent.put_nowait(data)
        if before <= _UNSENT_BYTES_MAX < self._unsent_bytes and self._handler is not None:
            self._handler.transport_congested(True)

    async def close(self) -> None:
        self._handler = None
        self._unsent.put_nowait(None)
        await asyncio.wait(self._tasks[1:], timeout=2)
        await self._connection.close()
        await asyncio.wait(self._tasks, timeout=2)

    async def _read(self) -> None:
        error: Exception | None = None
        try:
            async for data in self._connection:
                if self._handler is not None:
                    self._handler.transport_received(
                        data if isinstance(data, bytes) else data.encode()
                    )
        except Exception as caught:  # of the package's own kinds, or of the sockets'
            error = caught
        self._unsent.put_nowait(None)
        if self._handler is not None:
            self._handler.transport_lost(error)

    async def _write(self) -> None:
        while (data := await self._unsent.get()) is not None:
            try:
                await self._connection.send(data)
            except Exception:  # the reader meets the same error and reports it
                return
            before, self._unsent_bytes = self._unsent_bytes, self._unsent_bytes - len(data)
            if before > _UNSENT_BYTES_MAX >= self._unsent_bytes and self._handler is not None:
                self._handler.transport_congested(False)


async def _open_websocket(
    address: Address, context: ssl.SSLContext | None, handler: TransportHandler
) -> Transport:
    connect, invalid = _websockets()
    try:
        connection = await connect(
            str(address),
            subprotocols=["mqtt"],
            ssl=context,
            compression=None,
            max_size=None,
            ping_interval=None,
            open_timeout=None,
        )
    except invalid as error:
        raise ConnectionFailed(f"{address} does not speak MQTT over WebSocket: {error}") from error
    return _WebSocket(connection, handler)


def _websockets() -> tuple[Callable[..., asyncio.Future[ClientConnection]], type[Exception]]:
    try:
        from websockets.asyncio.client import connect
        from websockets.exceptions import WebSocketException
    except ImportError:
        raise MissingPackage(
            "ws:// and wss:// need the package websockets: pip install websockets"
        ) from None
    return connect, WebSocketException  # type: ignore[return-value]
