"""The HTTP listeners: how many may come, how long they may take, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from rove.broker.limits import Limits
from rove.mqtt.packets import Connect
from rove.mqtt.writing import encode
from rove.serve.config import Listen, Tls
from tests.effort import PATIENCE_S

if TYPE_CHECKING:
    from tests.serve.conftest import Running

CERTIFICATES = Path(__file__).parent / "certificates"


def connection(server: Running) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", server.ports["http"], timeout=PATIENCE_S)


def test_one_connection_too_many(start_server: Callable[..., Running]) -> None:
    server = start_server(limits=Limits(http_connections_max=2))
    first, second = connection(server), connection(server)
    for each in (first, second):
        each.request("GET", "/healthz")
        assert each.getresponse().read() == b'{"status":"ok"}\n'
    third = server.get("/healthz")
    assert (third.status, third.json) == (503, {"error": "more than 2 connections"})
    first.request("GET", "/healthz")
    assert first.getresponse().read() == b'{"status":"ok"}\n'
    first.close()
    wait_for(lambda: server.get("/healthz").status == 200)
    second.close()


def wait_for(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def test_who_says_nothing_is_closed(start_server: Callable[..., Running]) -> None:
    server = start_server(limits=Limits(connect_timeout_s=0.2))
    with socket.create_connection(
        ("127.0.0.1", server.ports["http"]), timeout=PATIENCE_S
    ) as silent:
        silent.sendall(b"GET /healthz HTTP/1.1\r\nhost:")
        with contextlib.suppress(ConnectionResetError):
            assert silent.recv(100) == b""


def test_what_is_no_http_is_refused(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_connection(
        ("127.0.0.1", server.ports["http"]), timeout=PATIENCE_S
    ) as stranger:
        stranger.sendall(b"\x10\x0c\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\r\n\r\n")
        assert b"400" in stranger.recv(100)
    assert {record.name for record in caplog.records} <= {"rove.http", "rove.broker", "rove.server"}


def test_stopping_waits_for_nobody(server: Running) -> None:
    idle = connection(server)
    idle.request("GET", "/healthz")
    idle.getresponse().read()
    stream = server.stream("/subscribe?topic=a")
    busy = socket.create_connection(("127.0.0.1", server.ports["http"]), timeout=PATIENCE_S)
    busy.sendall(b"POST /publish?topic=a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n")
    wait_for(lambda: len(server.server._web.connections) == 3)
    server.stop()
    for each in (idle, stream, busy):
        each.close()
    assert server.server._web.connections == set()


def secured(start_server: Callable[..., Running], **more: Any) -> Running:
    tls = Tls(
        certificate=str(CERTIFICATES / "server.pem"), key=str(CERTIFICATES / "server.key"), **more
    )
    listen = Listen(mqtt_port=0, http_port=0, https_port=0)
    return start_server(listen=listen, tls=tls)


def asked(server: Running, path: str, certificate: str | None = None) -> tuple[int, bytes]:
    """A request over TLS, with a client's certificate or without."""
    context = ssl.create_default_context(cafile=CERTIFICATES / "authority.pem")
    if certificate is not None:
        context.load_cert_chain(
            CERTIFICATES / f"{certificate}.pem", CERTIFICATES / f"{certificate}.key"
        )
    with contextlib.closing(
        http.client.HTTPSConnection(
            "localhost", server.ports["https"], context=context, timeout=PATIENCE_S
        )
    ) as secure:
        secure.request("GET", path)
        answer = secure.getresponse()
        return answer.status, answer.read()


def test_https(start_server: Callable[..., Running]) -> None:
    server = secured(start_server)
    assert asked(server, "/healthz") == (200, b'{"status":"ok"}\n')


def test_a_client_certificate_is_a_user(start_server: Callable[..., Running]) -> None:
    server = secured(start_server, client_ca=str(CERTIFICATES / "authority.pem"))
    assert asked(server, "/subscriptions")[0] == 401
    assert asked(server, "/subscriptions", "client")[0] == 200


def test_mqtt_over_a_secure_websocket(start_server: Callable[..., Running]) -> None:
    server = secured(start_server)
    context = ssl.create_default_context(cafile=CERTIFICATES / "authority.pem")
    url = f"wss://localhost:{server.ports['https']}/mqtt"

    # Not the client with threads: in one of some hundred cases, its reading of a ticket and its
    # writing of a request spoil each other (Python 3.11 has no lock for that).
    async def answered() -> bytes | str:
        async with connect(url, subprotocols=[Subprotocol("mqtt")], ssl=context) as there:
            await there.send(encode(Connect("one")))
            async with asyncio.timeout(PATIENCE_S):
                return await there.recv()

    answer = asyncio.run(answered())
    assert isinstance(answer, bytes)
    assert answer[0] >> 4 == 2
