"""MQTT over WebSocket, at `/mqtt`.

The frames of a WebSocket are one stream of bytes, as the specification of MQTT requires: a packet
may span frames and a frame may hold many packets. Frames are binary; a text frame ends the
connection. The only subprotocol is `mqtt`, and only requests that the HTTP interface allows are
upgraded (`rove.serve.http.authentication`).

It is built on the part of `websockets` that does no I/O, as a protocol of asyncio, so that a frame
goes to the broker in the call that read it. Through ASGI each frame would cost a queue, a wake-up
and a waiting task, and it could not be known how much is unsent.
"""

from __future__ import annotations

import asyncio
import http
import logging
from typing import Any, cast

from uvicorn.server import ServerState
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import SEND_EOF, State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from rove.serve.http.authentication import HttpAuthenticator, cross_site_fault
from rove.serve.listener import TransportPeer, peer_name, unsent_high
from rove.serve.logs import events

PATH = "/mqtt"
SUBPROTOCOL = Subprotocol("mqtt")
FRAME_BYTES = 64 * 1024
"""What goes out is cut into frames of this size: many receivers take no frame above 1 MB."""
CLOSE_S = 2.0
"""How long we wait for the other side to close."""

log = events("http")
QUIET = logging.getLogger("rove.http.frames")
"""For `websockets`, which at debug level would log every frame, passwords in CONNECT included."""
QUIET.setLevel(logging.WARNING)


class MqttWebSocket(TransportPeer):
    """A `Peer` on a WebSocket. uvicorn's HTTP protocol makes it when a client asks for an
    upgrade."""

    def __init__(
        self, config: object, server_state: ServerState, app_state: dict[str, Any]
    ) -> None:
        super().__init__(app_state["shell"])
        self._connections: set[Any] = server_state.connections
        self._guests: HttpAuthenticator = app_state["guests"]
        self._certificate: dict[str, object] | None = app_state.get("certificate")
        packet_bytes_max = self._shell.broker.view.limits.packet_bytes_max
        self._frames = ServerProtocol(
            subprotocols=[SUBPROTOCOL],
            max_size=(None, packet_bytes_max + FRAME_BYTES),
            select_subprotocol=_selected,
            logger=QUIET,
        )
        self._closing: asyncio.TimerHandle | None = None

    # -- asyncio's side ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=unsent_high(self._shell))
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._frames.receive_data(data)
            self._take_events()
        except Exception as error:
            self._shell.failed(error, "WebSocket", self._link)
            self._transport.abort()

    def eof_received(self) -> None:
        self._frames.receive_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        if self._closing is not None:
            self._closing.cancel()
        super().connection_lost(exc)

    # -- frames --------------------------------------------------------------------------------

    def _take_events(self) -> None:
        for event in self._frames.events_received():
            if isinstance(event, Request):
                self._shake_hands(event)
            else:
                self._take_frame(cast(Frame, event))
        self._write_frames()
        if self._frames.close_expected():
            self._close_soon()

    def _shake_hands(self, request: Request) -> None:
        frames = self._frames
        refusal = self._refusal(request)
        response = frames.accept(request) if refusal is None else frames.reject(*refusal)
        frames.send_response(response)
        log.debug("websocket", peer=peer_name(self._transport), status=response.status_code)
        if frames.state is State.OPEN:
            self._link = self._shell.opened(peer_name(self._transport), self)

    def _refusal(self, request: Request) -> tuple[http.HTTPStatus, str] | None:
        path = request.path.partition("?")[0]
        if path != PATH:
            return http.HTTPStatus.NOT_FOUND, f"there is no WebSocket at {path}, but at {PATH}\n"
        offered = ", ".join(request.headers.get_all("Sec-WebSocket-Protocol"))
        if SUBPROTOCOL not in (name.strip() for name in offered.split(",")):
            what = f"the subprotocol is {SUBPROTOCOL}; offered was {offered or 'none'}\n"
            return http.HTTPStatus.BAD_REQUEST, what
        headers = {name.lower(): value for name, value in request.headers.raw_items()}
        fault = self._guests.stranger_fault(headers)
        if fault is None and self._certificate:
            # A browser shows a certificate that it has on behalf of any page.
            fault = cross_site_fault(headers)
        return None if fault is None else (http.HTTPStatus.FORBIDDEN, f"{fault}\n")

    def _take_frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.TEXT:
            self._frames.fail(CloseCode.UNSUPPORTED_DATA, "MQTT is sent in binary frames")
        elif frame.opcode in (Opcode.BINARY, Opcode.CONT) and self._link is not None:
            self._shell.received(self._link, bytes(frame.data))

    def _write_frames(self) -> None:
        for data in self._frames.data_to_send():
            if data == SEND_EOF:
                self._transport.close()
            elif not self._transport.is_closing():
                self._transport.write(data)

    def _close_soon(self) -> None:
        if self._closing is None:
            loop = asyncio.get_running_loop()
            self._closing = loop.call_later(CLOSE_S, self._transport.abort)

    # -- the shell's side ----------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        if self._frames.state is not State.OPEN:
            return
        for at in range(0, len(data), FRAME_BYTES):
            self._frames.send_binary(data[at : at + FRAME_BYTES])
        self._write_frames()

    def buffered_bytes(self) -> int:
        return self._transport.get_write_buffer_size()

    def close(self) -> None:
        if self._frames.state is State.OPEN:
            self._frames.send_close(CloseCode.NORMAL_CLOSURE)
            self._write_frames()
        self._close_soon()

    def certificate(self) -> dict[str, object]:
        """The client's certificate, if it showed one."""
        return self._certificate or {}

    # -- uvicorn's side ------------------------------------------------------------------------

    def shutdown(self) -> None:
        """The server ends; the broker has said its goodbye already."""
        self.close()


def _selected(_protocol: ServerProtocol, _offered: object) -> Subprotocol:
    return SUBPROTOCOL
