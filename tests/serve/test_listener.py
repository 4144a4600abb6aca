"""MQTT over TCP and TLS: bytes in and out, names of peers."""

import asyncio
import gc
import socket
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from rove.mqtt.decoder import PacketDecoder
from rove.mqtt.encoder import PINGREQ, PINGRESP, encode
from rove.mqtt.packets import Connack, Connect, Disconnect, Packet, Publish, Reason
from rove.serve.listener import peer_name
from rove.serve.server import Server
from rove.serve.settings import Config, DataSettings, ListenSettings
from tests.effort import PATIENCE_S
from tests.serve.conftest import Running


class Transport:
    """Says where it comes from."""

    def __init__(self, name: object) -> None:
        self._name = name

    def get_extra_info(self, _what: str) -> object:
        return self._name


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (("127.0.0.1", 5), "127.0.0.1:5"),
        (("::1", 5, 0, 0), "[::1]:5"),
        ("/tmp/socket", "/tmp/socket"),
        (None, "?"),
    ],
)
def test_a_peer_is_named_for_logs(name: object, shown: str) -> None:
    assert peer_name(cast(asyncio.BaseTransport, Transport(name))) == shown


async def exchange(port: int, *parts: bytes, until: int) -> list[Packet]:
    """Send parts one after the other; the first packets that come back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    packets: list[Packet] = []
    decoder = PacketDecoder(version=5, from_server=True)
    for part in parts:
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0.01)
    while len(packets) < until:
        data = await asyncio.wait_for(reader.read(65_536), 10)
        if not data:
            break
        packets += cast(list[Packet], decoder.feed(data))
    writer.close()
    return packets


def test_packets_may_come_in_any_pieces(server: Running) -> None:
    hello = encode(Connect("pieces")) + PINGREQ
    packets = asyncio.run(exchange(server.ports["mqtt"], *(bytes([b]) for b in hello), until=2))
    assert isinstance(packets[0], Connack)
    assert encode(packets[1]) == PINGRESP


def test_a_broken_packet_ends_the_connection_with_a_reason(server: Running) -> None:
    bad = encode(Connect("bad")) + bytes([0x00, 0x00])
    packets = asyncio.run(exchange(server.ports["mqtt"], bad, until=9))
    assert isinstance(packets[-1], Disconnect)
    assert packets[-1].reason >= Reason.UNSPECIFIED_ERROR
    assert packets[-1].properties.reason_string


def test_nothing_is_published_before_a_connection_is_made(server: Running) -> None:
    packets = asyncio.run(exchange(server.ports["mqtt"], encode(Publish("a", b"1")), until=1))
    assert packets == []


@pytest.mark.parametrize("turns", range(6))
def test_who_comes_in_the_last_moment_is_sent_away(tmp_path: Path, turns: int) -> None:
    """However far the loop has got with accepting: nothing stays open, none is left waiting."""

    async def come_and_go() -> None:
        listens, data = (
            ListenSettings(mqtt_port=0, http_port="off"),
            DataSettings(folder=str(tmp_path)),
        )
        server = Server(Config(listen=listens, data=data))
        await server.start()
        with socket.create_connection(
            ("127.0.0.1", server.ports["mqtt"]), timeout=PATIENCE_S
        ) as guest:
            for _ in range(turns):
                await asyncio.sleep(0)
            await server.stop()
            with suppress(ConnectionResetError):
                assert await asyncio.to_thread(guest.recv, 1) == b""

    asyncio.run(come_and_go())
    gc.collect()  # a transport that is still open says so when it is collected, and fails the test
