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
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin, Subprotocol

from rove.broker.limits import Limits
from rove.mqtt.encoder import encode
from rove.mqtt.packets import Connect
from rove.serve.settings import ListenSettings, TlsSettings
from tests.effort import PATIENCE_S

if TYPE_CHECKING:
    from tests.serve.conftest import Running

CERTIFICATES = Path(__file__).parents[1] / "certificates"


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


@pytest.mark.parametrize(
    "first", [b"", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"], ids=["first", "second"]
)
def test_who_dribbles_a_head_is_closed(start_server: Callable[..., Running], first: bytes) -> None:
    server = start_server(limits=Limits(connect_timeout_s=0.3))
    with socket.create_connection(("127.0.0.1", server.ports["http"]), timeout=PATIENCE_S) as slow:
        slow.sendall(first + b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: ")
        assert is_closed_while_sending(slow, b"x")


def test_who_dribbles_a_body_is_closed(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rove.serve.http.web.BODY_S", 0.1)
    monkeypatch.setattr("rove.serve.http.web.GOODBYE_S", 0.1)
    for path in ("/nothing", "/healthz"):  # answered without a look at the body
        with socket.create_connection(
            ("127.0.0.1", server.ports["http"]), timeout=PATIENCE_S
        ) as slow:
            head = f"GET {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n"
            slow.sendall(head.encode())
            assert is_closed_while_sending(slow, b"x")


def is_closed_while_sending(slow: socket.socket, piece: bytes) -> bool:
    """Send a little again and again, until the other side has had enough."""
    slow.settimeout(0.02)
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            slow.sendall(piece)
            if not slow.recv(10_000):
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


def test_every_request_has_a_deadline_of_its_own(server: Running) -> None:
    request = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"

    def exchange(data: bytes) -> None:
        steady.sendall(data)
        answer = b""
        while not answer.endswith(b'"ok"}\n'):
            answer += steady.recv(10_000)

    with socket.create_connection(
        ("127.0.0.1", server.ports["http"]), timeout=PATIENCE_S
    ) as steady:
        steady.sendall(request[:9])
        wait_for(lambda: bool(server.server._web.connections))
        (one,) = server.server._web.connections
        wait_for(lambda: one._deadline is not None)
        deadlines = [one._deadline]
        for _ in range(2):
            # There is always the beginning of a request there, but never of the same one.
            exchange(request[9:] + request[:9])
            wait_for(lambda: one._awaited is not None and one._deadline not in deadlines)
            deadlines.append(one._deadline)
        assert [each.cancelled() for each in deadlines] == [True, True, False]
        exchange(request[9:])
        wait_for(deadlines[-1].cancelled)
        assert one._awaited is None


def test_a_body_of_two_lengths_ends_the_connection(server: Running) -> None:
    with socket.create_connection(("127.0.0.1", server.ports["http"]), timeout=PATIENCE_S) as bent:
        head = b"POST /publish?topic=a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n"
        bent.sendall(
            head + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n"
        )
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while data := bent.recv(10_000):
                answer += data
        assert answer.startswith(b"HTTP/1.1 400")
        assert answer.count(b"HTTP/1.1") == 1


def test_what_is_no_http_is_refused(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_connection(
        ("127.0.0.1", server.ports["http"]), timeout=PATIENCE_S
    ) as stranger:
        stranger.sendall(b"\x10\x0c\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\r\n\r\n")
        assert b"400" in stranger.recv(100)
    assert {record.name for record in caplog.records} <= {"rove.http", "rove.broker", "rove.server"}


def test_stopping_waits_for_nobody(server: Running, caplog: pytest.LogCaptureFixture) -> None:
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
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


def secured(start_server: Callable[..., Running], **more: Any) -> Running:
    tls = TlsSettings(
        certificate=str(CERTIFICATES / "server.pem"), key=str(CERTIFICATES / "server.key"), **more
    )
    listen = ListenSettings(mqtt_port=0, http_port=0, https_port=0)
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


def test_a_page_of_elsewhere_cannot_use_the_certificate_of_a_browser(
    start_server: Callable[..., Running],
) -> None:
    server = secured(start_server, client_ca=str(CERTIFICATES / "authority.pem"))
    context = ssl.create_default_context(cafile=CERTIFICATES / "authority.pem")
    context.load_cert_chain(CERTIFICATES / "client.pem", CERTIFICATES / "client.key")
    port = server.ports["https"]

    async def shake_hands(origin: str) -> int:
        url, protocols = f"wss://localhost:{port}/mqtt", [Subprotocol("mqtt")]
        try:
            async with connect(url, subprotocols=protocols, ssl=context, origin=Origin(origin)):
                return 101
        except InvalidStatus as error:
            return error.response.status_code

    assert asyncio.run(shake_hands("https://evil.example")) == 403
    assert asyncio.run(shake_hands(f"https://localhost:{port}")) == 101
