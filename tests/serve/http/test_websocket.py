"""MQTT over WebSocket: bytes are a stream whatever the frames, and only MQTT is spoken."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from rove.broker.limits import Limits
from rove.mqtt.decoder import PacketDecoder
from rove.mqtt.encoder import encode
from rove.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Filter,
    Malformed,
    Packet,
    Puback,
    Publish,
    Reason,
    Suback,
    Subscribe,
)
from tests.effort import PATIENCE_S

if TYPE_CHECKING:
    from tests.serve.conftest import Running

MQTT = [Subprotocol("mqtt")]


class Client:
    """Speaks MQTT through frames, as told."""

    def __init__(self, connection: ClientConnection) -> None:
        self.socket = connection
        self._reader = PacketDecoder(version=5, from_server=True)
        self._packets: list[Packet | Malformed] = []

    def send(self, *packets: Packet) -> None:
        self.socket.send(b"".join(map(encode, packets)))

    def read(self) -> Packet | Malformed:
        while not self._packets:
            frame = self.socket.recv(timeout=PATIENCE_S)
            assert isinstance(frame, bytes)
            self._packets += self._reader.feed(frame)
        return self._packets.pop(0)


@contextmanager
def client(server: Running, path: str = "/mqtt", **options: Any) -> Iterator[Client]:
    url = f"ws://127.0.0.1:{server.ports['http']}{path}"
    options = {
        "subprotocols": MQTT,
        "max_size": None,
        "compression": None,
        "close_timeout": 0.2,
    } | options
    with connect(url, open_timeout=PATIENCE_S, **options) as connection:
        yield Client(connection)


def test_a_frame_may_hold_many_packets(server: Running) -> None:
    with client(server) as one:
        assert one.socket.subprotocol == "mqtt"
        one.send(
            Connect("one"), Subscribe(1, (Filter("a", 1),)), Publish("a", b"x", 1, packet_id=2)
        )
        assert isinstance(one.read(), Connack)
        answers = [one.read() for _ in range(3)]
        assert {type(answer) for answer in answers} == {Suback, Publish, Puback}


def test_a_packet_may_span_frames_and_fragments(server: Running) -> None:
    with client(server) as one:
        for byte in encode(Connect("one")):
            one.socket.send(bytes((byte,)))
        assert isinstance(one.read(), Connack)
        data = encode(Publish("a", b"y" * 1000, 1, packet_id=1))
        one.socket.send(iter([data[:3], data[3:500], data[500:]]))
        assert isinstance(one.read(), Puback)


def test_a_large_publication_comes_in_frames_that_clients_take(server: Running) -> None:
    with client(server, max_size=70_000) as one:
        one.send(Connect("one"), Subscribe(1, (Filter("a", 0),)))
        one.read()
        one.read()
        one.send(Publish("a", bytes(range(256)) * 2000))
        found = one.read()
        assert isinstance(found, Publish)
        assert found.payload == bytes(range(256)) * 2000


def test_a_text_frame_ends_it(server: Running) -> None:
    with client(server) as one:
        one.send(Connect("one"))
        one.read()
        one.socket.send("hello")
        with pytest.raises(ConnectionClosed) as closed:
            one.socket.recv(timeout=PATIENCE_S)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1003
    wait_until(lambda: sessions(server) == 0)


def test_a_frame_above_the_largest_packet_ends_it(start_server: Callable[..., Running]) -> None:
    server = start_server(limits=Limits(packet_bytes_max=2000))
    with client(server) as one:
        one.send(Connect("one"))
        one.read()
        one.socket.send(b"0" * 100_000)
        with pytest.raises(ConnectionClosed) as closed:
            one.socket.recv(timeout=PATIENCE_S)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009


@pytest.mark.parametrize(
    ("path", "options", "status", "what"),
    [
        ("/mqtt", {"subprotocols": None}, 400, "the subprotocol is mqtt; offered was none"),
        ("/mqtt", {"subprotocols": [Subprotocol("chat")]}, 400, "offered was chat"),
        ("/other", {}, 404, "there is no WebSocket at /other, but at /mqtt"),
        ("/mqtt", {"origin": Origin("https://evil.example")}, 403, "not a page of"),
    ],
)
def test_what_is_refused(
    server: Running, path: str, options: dict[str, Any], status: int, what: str
) -> None:
    with pytest.raises(InvalidStatus) as refused, client(server, path, **options):
        pass
    assert refused.value.response.status_code == status
    assert what in (refused.value.response.body or b"").decode()
    assert server.look(lambda s: len(s.shell.broker.context.links)) == 0


def test_a_name_that_was_bent_to_this_machine_is_refused(server: Running) -> None:
    there = socket.create_connection(("127.0.0.1", server.ports["http"]))
    with (
        pytest.raises(InvalidStatus) as refused,
        connect("ws://evil.example/mqtt", sock=there, subprotocols=MQTT),
    ):
        pass
    assert refused.value.response.status_code == 403
    assert b"is not called 'evil.example'" in (refused.value.response.body or b"")


def test_a_page_of_this_machine_may_connect(server: Running) -> None:
    with client(server, origin=Origin("http://localhost:3000")) as one:
        one.send(Connect("one"))
        assert isinstance(one.read(), Connack)


def test_the_broker_closes_the_websocket_when_it_stops(server: Running) -> None:
    with client(server) as one:
        one.send(Connect("one"))
        one.read()
        server.stop()
        goodbye = one.read()
        assert isinstance(goodbye, Disconnect)
        assert goodbye.reason == Reason.SERVER_SHUTTING_DOWN
        with pytest.raises(ConnectionClosed) as closed:
            one.socket.recv(timeout=PATIENCE_S)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1000


def test_who_leaves_without_a_word_has_left(server: Running) -> None:
    with client(server) as one:
        one.send(Connect("one"))
        one.read()
    wait_until(lambda: sessions(server) == 0)
    assert server.look(lambda s: len(s.shell.broker.context.links)) == 0


def test_who_reads_nothing_is_slow_and_hurts_nobody(start_server: Callable[..., Running]) -> None:
    server = start_server(limits=Limits(unsent_bytes_max=300_000, unsent_disconnect_s=3))
    with client(server, max_queue=1) as slow, client(server) as other:
        for one, name in ((slow, "slow"), (other, "other")):
            one.send(Connect(name), Subscribe(1, (Filter("n"),)))
            one.read()
            one.read()
        for number in range(150):
            other.send(Publish("n", number.to_bytes(2, "big") * 50_000))
            found = other.read()
            assert isinstance(found, Publish)
            assert found.payload[:2] == number.to_bytes(2, "big")
        wait_until(lambda: server.look(lambda s: s.shell.broker.counters.slow_disconnected) == 1)
        assert server.look(lambda s: s.shell.broker.counters.notifications_dropped_slow) > 0


def test_paho_over_websocket(server: Running) -> None:
    found: list[bytes] = []
    one = paho.Client(CallbackAPIVersion.VERSION2, transport="websockets", protocol=paho.MQTTv5)
    one.on_message = lambda _client, _data, message: found.append(bytes(message.payload))
    one.on_connect = lambda client, *_: client.subscribe("p/#", 1)
    one.on_subscribe = lambda client, *_: client.publish("p/1", b"hello", 1)
    one.connect("127.0.0.1", server.ports["http"])
    one.loop_start()
    wait_until(lambda: bool(found))
    one.disconnect()
    one.loop_stop()
    assert found == [b"hello"]


def sessions(server: Running) -> int:
    found: int = server.look(lambda s: len(s.shell.broker.context.sessions))
    return found


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
