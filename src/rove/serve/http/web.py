"""The HTTP listeners: uvicorn's protocol in the broker's own event loop.

Only uvicorn's protocol is used, not its server, which polls ten times a second, catches signals,
and when it stops waits for open streams to end by themselves: none of this suits a broker. If there
are too many connections, a new one is answered 503. Every request has a deadline for its head and
one for its body, whether it is the first of its connection or the hundredth: otherwise a client
that sends a byte now and then would hold its connection for ever. Between two requests a connection
may be idle for `KEEP_ALIVE_S`.

A small `POST /publish` costs about 370 µs of CPU (1,500 a second over 20 connections on a busy
machine), nearly all of it for reading and writing HTTP in Python; programs that publish much should
use MQTT. A delivery over WebSocket costs 1.3 times one over TCP.
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
from rove.serve.http.authentication import HttpAuthenticator
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

    def __init__(
        self, shell: Shell, guests: HttpAuthenticator, make_app: Callable[[], ASGIApp]
    ) -> None:
        self._app_state = {"shell": shell, "guests": guests, "web": self}
        self._state = ServerState()
        self.connections: set[Any] = self._state.connections
        """All connections, HTTP and WebSocket."""
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
            lambda: HttpConnection(self._config, self._state, self._app_state),
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
        """Accept no more connections."""
        for server in self._servers:
            await stop_listening(server)

    async def stop(self) -> None:
        """End every connection: idle ones at once, the others when they have answered."""
        await self.stop_listening()
        for connection in list(self.connections):
            connection.shutdown()
        await self._wait_for_the_end(GOODBYE_S)
        for connection in list(self.connections):
            connection.abort()
        # Requests that wait for the rest of a body fail now, and end by themselves.
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

    def __init__(
        self, config: uvicorn.Config, state: ServerState, app_state: dict[str, Any]
    ) -> None:
        super().__init__(config, state, app_state)
        self.logger = logging.getLogger("rove.http")
        self._shell: Shell = app_state["shell"]
        self._deadline: asyncio.TimerHandle | None = None
        self._awaited: tuple[str, object] | None = None
        """What the deadline is for: the head or the body, and after which request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {
            **self.app_state,
            "transport": transport,
            "certificate": transport.get_extra_info("peercert"),
        }
        limits = self._shell.broker.view.limits
        if len(self.connections) > limits.http_connections_max:
            self._shell.broker.counters.quota_hits += 1
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
        """Set the deadline for what the client has begun to send, or must send first."""
        awaited = self._awaited_now()
        if awaited == self._awaited:
            return
        self._awaited = awaited
        if self._deadline is not None:
            self._deadline.cancel()
        if awaited is not None:
            limits = self._shell.broker.view.limits
            # A handler that reads a body answers 408 before that.
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
