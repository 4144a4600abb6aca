"""Transports: TCP, TLS and WebSocket carry the same bytes, and say why they could not be opened."""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from websockets.asyncio.server import ServerConnection, serve

from rove.client.addresses import Address, parse_address
from rove.client.errors import AddressError, ConnectionFailed, MissingPackage
from rove.client.transports import open_transport, tls_context

CERTIFICATES = Path(__file__).resolve().parent.parent / "serve" / "certificates"


class Owner:
    """Notes what a transport tells."""

    def __init__(self) -> None:
        self.data = b""
        self.lost: list[Exception | None] = []
        self.congested: list[bool] = []
        self.changed = asyncio.Event()

    def transport_received(self, data: bytes) -> None:
        self.data += data
        self.changed.set()

    def transport_lost(self, error: Exception | None) -> None:
        self.lost.append(error)
        self.changed.set()

    def transport_congested(self, is_congested: bool) -> None:
        self.congested.append(is_congested)
        self.changed.set()

    async def until(self, size: int) -> bytes:
        while len(self.data) < size:
            self.changed.clear()
            await self.changed.wait()
        return self.data


class Peer:
    """Echoes what it is sent, after it was told to read; `bye` makes it hang up."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.reads.set()
        self.tasks: set[asyncio.Task[None]] = set()

    async def tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        await self.reads.wait()
        while (data := await reader.read(1 << 16)) and data != b"bye":
            writer.write(data)
        writer.close()

    async def websocket(self, connection: ServerConnection) -> None:
        assert connection.subprotocol == "mqtt"
        await self.reads.wait()
        async for data in connection:
            if data == b"bye":
                return
            await connection.send(data)


@asynccontextmanager
async def peer_at(scheme: str, tls: ssl.SSLContext | None) -> AsyncIterator[tuple[Address, Peer]]:
    """Somebody who listens for transports of that kind."""
    peer = Peer()
    if scheme.startswith("ws"):
        async with serve(
            peer.websocket,
            "127.0.0.1",
            0,
            ssl=tls,
            subprotocols=["mqtt"],  # type: ignore[list-item]
            compression=None,
            max_size=None,
        ) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            yield parse_address(f"{scheme}://127.0.0.1:{port}"), peer
            return
    listener = await asyncio.start_server(peer.tcp, "127.0.0.1", 0, ssl=tls)
    port = listener.sockets[0].getsockname()[1]
    yield parse_address(f"{scheme}://127.0.0.1:{port}"), peer
    listener.close()
    if peer.tasks:
        await asyncio.wait(peer.tasks)


def contexts(scheme: str) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """What the peer and the transport speak TLS with."""
    if scheme not in ("mqtts", "wss"):
        return None, None
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(CERTIFICATES / "server.pem", CERTIFICATES / "server.key")
    return server, ssl.create_default_context(cafile=CERTIFICATES / "authority.pem")


ALL = pytest.mark.parametrize("scheme", ["mqtt", "mqtts", "ws", "wss"])


@ALL
async def test_bytes_go_both_ways(scheme: str) -> None:
    server, tls = contexts(scheme)
    async with peer_at(scheme, server) as (address, _):
        owner = Owner()
        transport = await open_transport(address, tls, 10, owner)
        transport.write(b"one")
        assert await owner.until(3) == b"one"
        transport.write(b"two" * 100_000)
        await owner.until(300_003)
        await transport.close()
        assert owner.lost == []


@ALL
async def test_a_lost_transport_is_told_once(scheme: str) -> None:
    server, tls = contexts(scheme)
    async with peer_at(scheme, server) as (address, _):
        owner = Owner()
        transport = await open_transport(address, tls, 10, owner)
        transport.write(b"bye")
        while not owner.lost:
            owner.changed.clear()
            await owner.changed.wait()
        await transport.close()
        assert len(owner.lost) == 1


@pytest.mark.parametrize("scheme", ["mqtt", "ws"])
async def test_a_transport_that_takes_nothing_says_so(scheme: str) -> None:
    async with peer_at(scheme, None) as (address, peer):
        peer.reads.clear()
        owner = Owner()
        transport = await open_transport(address, None, 10, owner)
        size = 0
        while not owner.congested:
            transport.write(b"x" * 100_000)
            size += 100_000
            await asyncio.sleep(0)
        assert owner.congested == [True]
        peer.reads.set()
        await owner.until(size)
        assert owner.congested[-1] is False
        await transport.close()


async def test_nobody_there(free_port: int) -> None:
    address = parse_address(f"mqtt://127.0.0.1:{free_port}")
    with pytest.raises(ConnectionFailed, match=f"{address} cannot be reached: Connection refused$"):
        await open_transport(address, None, 10, Owner())


async def test_a_host_that_is_none() -> None:
    with pytest.raises(ConnectionFailed, match=r"mqtt://host\.invalid:1883 cannot be reached: \w"):
        await open_transport(parse_address("mqtt://host.invalid"), None, 10, Owner())


async def test_nobody_answers() -> None:
    writers: list[asyncio.StreamWriter] = []
    listener = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    with pytest.raises(ConnectionFailed, match=r"did not answer within 0\.05 s"):
        await open_transport(parse_address(f"ws://127.0.0.1:{port}"), None, 0.05, Owner())
    while not writers:
        await asyncio.sleep(0.002)
    writers[0].transport.abort()
    listener.close()


async def test_a_certificate_of_nobody_we_know() -> None:
    server, _ = contexts("mqtts")
    async with peer_at("mqtts", server) as (address, _):
        with pytest.raises(ConnectionFailed, match=r"TLS failed.*tls=…"):
            await open_transport(address, None, 10, Owner())


async def test_a_web_server_that_knows_no_mqtt() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    with pytest.raises(ConnectionFailed, match="does not speak MQTT over WebSocket"):
        await open_transport(parse_address(f"ws://127.0.0.1:{port}"), None, 10, Owner())
    listener.close()


async def test_without_the_package_the_error_says_which(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "websockets.asyncio.client", None)
    with pytest.raises(MissingPackage, match="pip install websockets"):
        await open_transport(parse_address("ws://127.0.0.1:9"), None, 10, Owner())


def test_tls_has_to_go_with_the_scheme() -> None:
    context = ssl.create_default_context()
    with pytest.raises(AddressError, match="write mqtts://"):
        tls_context(parse_address("mqtt://h"), context)
    with pytest.raises(AddressError, match="write wss://"):
        tls_context(parse_address("ws://h"), True)
    with pytest.raises(AddressError, match="tls=False"):
        tls_context(parse_address("mqtts://h"), False)
    assert tls_context(parse_address("mqtts://h"), context) is context
    default = tls_context(parse_address("mqtts://h"), None)
    assert default is not None
    assert default.verify_mode == ssl.CERT_REQUIRED
    assert tls_context(parse_address("mqtt://h"), None) is None
