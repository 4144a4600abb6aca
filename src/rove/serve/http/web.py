"""The HTTP listeners: uvicorn's protocol in the broker's own event loop.

Of uvicorn only the protocol is used, not its server: that one polls ten times a second, catches
signals, and waits for open streams to end by themselves when it stops, none of which suits a
broker. A connection is told 503 when there are too many. Every request has a deadline for its head
and one for its body, whether it is the first of its connection or the hundredth: a client that
sends a byte now and then would otherwise hold its connection for ever. Between two requests a
connection may rest for `KEEP_ALIVE_S`.

A small `POST /publish` costs about 370 µs of CPU (1,500 a second over 20 connections on a busy
machine), nearly all of it for reading and writing HTTP in Python; a program that publishes much
should speak MQTT. A delivery over WebSocket costs 1.3 times one over TCP.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from rove.base.http_answers import BODY_S
from rove.serve.http.authentication import Guests
from rove.serve.http.websocket import MqttWebSocket
from rove.serve.listener import stop_listening
from rove.serve.shell import Shell

KEEP_ALIVE_S = 30
"""How long a connection may rest between two requests."""
GOODBYE_S = 3.0
"""How long stopping waits for connections to close."""
BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"retry-after: 1\r\ncontent-length: %d\r\n\r\n%s"
)


class Web:
    """All HTTP and HTTPS listeners of a broker."""

    def __init__(self, shell: Shell, guests: Guests, make_app: Callable[[], ASGIApp]) -> None:
        self.shell = shell
        self.guests = guests
        self._state = ServerState()
        self.connections: set[Any] = self._state.connections
        """Whatever is connected, HTTP or a WebSocket."""
        self._config = uvicorn.Config(
            make_app(),
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            ws=MqttWebSocket,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        self._config.load()
        self._servers: list[asyncio.Server] = []

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Accept HTTP on an address; the port, which for 0 is any that was free."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: HttpConnection(self, self._config, self._state),
            host,
            port,
            ssl=tls,
            backlog=1024,
            reuse_address=True,
        )
        self._servers.append(server)
        found: int = server.sockets[0].getsockname()[1]
        return found

    async def stop_listening(self) -> None:
        """Accept nobody any more."""
        for server in self._servers:
            await stop_listening(server)

    async def stop(self) -> None:
        """End every connection: those that rest at once, the others when they have answered."""
        await self.stop_listening()
        for connection in list(self.connections):
            connection.shutdown()
        await self._wait_for_the_end(GOODBYE_S)
        for connection in list(self.connections):
            connection.abort()
        # Whoever reads a body that will not come hears of that, and ends by itself.
        await self._wait_for_the_end(GOODBYE_S)
        for task in list(self._state.tasks):
            task.cancel()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)

    async def _wait_for_the_end(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while (self.connections or self._state.tasks) and loop.time() < end:
            await asyncio.sleep(0.01)


class HttpConnection(H11Protocol):
    """One HTTP connection."""

    def __init__(self, web: Web, config: uvicorn.Config, state: ServerState) -> None:
        super().__init__(config, state, {"web": web})
        self.logger = logging.getLogger("rove.http")
        self._web = web
        self._deadline: asyncio.TimerHandle | None = None
        self._awaited: tuple[str, object] | None = None
        """What the deadline is for: the head or the body, and behind which request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {
            **self.app_state,
            "transport": transport,
            "certificate": transport.get_extra_info("peercert"),
        }
        limits = self._web.shell.broker.view.limits
        if len(self.connections) > limits.http_connections_max:
            self._web.shell.broker.counters.quota_hits += 1
            what = f'{{"error":"more than {limits.http_connections_max} connections"}}'.encode()
            transport.write(BUSY % (len(what), what))
            transport.close()
            return
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._watch()

    def _watch(self) -> None:
        """Set the deadline of what the client has begun to send, or has to send first."""
        awaited = self._awaited_now()
        if awaited == self._awaited:
            return
        self._awaited = awaited
        if self._deadline is not None:
            self._deadline.cancel()
        if awaited is not None:
            limits = self._web.shell.broker.view.limits
            # Whoever reads a body answers 408 first.
            in_s = limits.connect_timeout_s if awaited[0] == "head" else BODY_S + GOODBYE_S
            self._deadline = self.loop.call_later(in_s, self.abort)

    def _awaited_now(self) -> tuple[str, object] | None:
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return None  # it ends, or it is a WebSocket now
        state = self.conn.their_state
        if state is h11.SEND_BODY:
            return "body", self.cycle
        has_begun = not self.headers or bool(self.conn.trailing_data[0])
        return ("head", self.cycle) if state is h11.IDLE and has_begun else None

    def abort(self) -> None:
        """Close now."""
        self.transport.abort()
