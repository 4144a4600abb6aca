"""MQTT over TCP and TLS.

One small object per connection; bytes go directly from the socket to the broker and back. An idle
connection takes about 8 KB in all, most of it for asyncio's transport.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

from rove.broker.sessions.session import Link
from rove.serve.shell import Shell

UNSENT_HIGH = 256 * 1024
"""With more unsent bytes a connection counts as stuck, until they are below a quarter."""


class TransportPeer(asyncio.Protocol):
    """The part of a `Peer` that is the same on every transport of asyncio."""

    __slots__ = ("_link", "_shell", "_transport")

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._transport: asyncio.Transport
        self._link: Link | None = None

    # -- asyncio's side ------------------------------------------------------------------------

    def connection_lost(self, exc: Exception | None) -> None:
        if self._link is not None:
            self._shell.closed(self._link)

    def pause_writing(self) -> None:
        if self._link is not None:
            self._shell.stuck(self._link)

    def resume_writing(self) -> None:
        if self._link is not None:
            self._shell.unstuck(self._link)

    # -- the shell's side ----------------------------------------------------------------------

    def abort(self) -> None:
        self._transport.abort()

    def pause(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()


class MqttConnection(TransportPeer):
    """A `Peer` on a stream."""

    __slots__ = ("buffered_bytes", "send")

    def __init__(self, shell: Shell) -> None:
        super().__init__(shell)
        # The transport's methods, because a delivery is little more than these two calls.
        self.send: Callable[[bytes], None]
        self.buffered_bytes: Callable[[], int]

    # -- asyncio's side ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.send = self._transport.write
        self.buffered_bytes = self._transport.get_write_buffer_size
        self._transport.set_write_buffer_limits(high=unsent_high(self._shell))
        try:
            self._link = self._shell.opened(peer_name(self._transport), self)
        except Exception as error:
            self._shell.failed(error, "connection")
            self._transport.abort()
        if self._shell.is_stopping:  # accepted just before the end, reported just after it
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._link is not None:
            self._shell.received(self._link, data)

    # -- the shell's side ----------------------------------------------------------------------

    def close(self) -> None:
        self._transport.close()

    def give_up(self, protocol: asyncio.Protocol) -> asyncio.Transport:
        """Leave the connection to another protocol."""
        self._link = None
        self.resume()
        self._transport.set_protocol(protocol)
        return self._transport

    def certificate(self) -> dict[str, object]:
        """The client's certificate, if it has sent one."""
        found = self._transport.get_extra_info("peercert")
        return cast(dict[str, object], found or {})


def unsent_high(shell: Shell) -> int:
    """From how many unsent bytes a connection is stuck: fewer than the broker drops at."""
    return min(UNSENT_HIGH, shell.broker.view.limits.unsent_bytes_max // 2)


def peer_name(transport: asyncio.BaseTransport) -> str:
    """Where a connection comes from, for logs."""
    found = transport.get_extra_info("peername")
    if isinstance(found, tuple) and len(found) >= 2:
        host = f"[{found[0]}]" if ":" in str(found[0]) else found[0]
        return f"{host}:{found[1]}"
    return str(found or "?")


async def listen(
    shell: Shell, host: str, port: int, tls: ssl.SSLContext | None = None
) -> asyncio.Server:
    """Accept MQTT on an address; port 0 takes any free one."""
    loop = asyncio.get_running_loop()
    return await loop.create_server(
        lambda: MqttConnection(shell), host, port, ssl=tls, backlog=1024, reuse_address=True
    )


async def stop_listening(server: asyncio.Server) -> None:
    """Accept no more connections.

    asyncio accepts a connection in one turn and makes its transport in the next; a server that is
    closed between the two would leave the socket open, and warn. uvloop does both at once.
    """
    loop = asyncio.get_running_loop()
    if isinstance(loop, asyncio.SelectorEventLoop):
        for one in server.sockets:
            loop.remove_reader(one.fileno())
        await asyncio.sleep(0)
    server.close()
