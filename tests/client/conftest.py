"""What the client is tested against: the real broker, and one that does as it is told.

`broker` starts Rove itself on a free port. `Scripted` speaks MQTT by our codec and obeys: it drops
connections in the middle of things, keeps acknowledgements back, refuses, forgets sessions. What
needs misfortune is tested with it, everything else with the real one.

Tests may be coroutines; each gets an event loop of its own and half a minute.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, Self

import pytest

from rove.mqtt.decoder import PacketDecoder
from rove.mqtt.encoder import encode
from rove.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Malformed,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Reason,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from rove.mqtt.topics import fits
from rove.serve.listener import stop_listening
from rove.serve.server import Server
from rove.serve.settings import Config, DataSettings, ListenSettings, TlsSettings
from tests.effort import PATIENCE_S

TIMEOUT_S = PATIENCE_S
CERTIFICATES = Path(__file__).resolve().parent.parent / "serve" / "certificates"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}

    async def limited() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await pyfuncitem.obj(**arguments)

    asyncio.run(limited())
    return True


# -- the real one --------------------------------------------------------------------------------


class Broker:
    """Rove, running in this process; it can be stopped and started again on the same port."""

    def __init__(self, folder: Path, listens_everywhere: bool) -> None:
        self._folder = folder
        self._listens_everywhere = listens_everywhere
        self._port = 0
        self._server: Server

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self._port}"

    def url_of(self, scheme: str) -> str:
        """Where it listens for that scheme, if it listens everywhere."""
        name = {"ws": "http", "wss": "https"}.get(scheme, scheme)
        return f"{scheme}://127.0.0.1:{self._server.ports[name]}"

    @property
    def sessions(self) -> dict[str, Any]:
        """Those that the broker keeps, by client id."""
        return self._server.shell.broker.context.sessions

    async def start(self) -> None:
        listen, tls = ListenSettings(mqtt_port=self._port, http_port="off"), TlsSettings()
        if self._listens_everywhere:
            listen = ListenSettings(mqtt_port=self._port, mqtts_port=0, http_port=0, https_port=0)
            tls = TlsSettings(str(CERTIFICATES / "server.pem"), str(CERTIFICATES / "server.key"))
        data = DataSettings(folder=str(self._folder), durability="process")
        self._server = Server(Config(listen=listen, tls=tls, data=data))
        await self._server.start()
        self._port = self._server.ports["mqtt"]

    async def stop(self) -> None:
        await self._server.stop()

    def cut(self) -> None:
        """Close all connections, as a broken network would."""
        for link in list(self._server.shell.broker.context.links):
            link.peer.abort()


class StartBroker(Protocol):
    """Starts one for an `async with`."""

    def __call__(self, everywhere: bool = False) -> AbstractAsyncContextManager[Broker]: ...


@pytest.fixture
def start_broker(tmp_path: Path) -> StartBroker:
    @asynccontextmanager
    async def started(everywhere: bool = False) -> AsyncIterator[Broker]:
        broker = Broker(tmp_path / "data", everywhere)
        await broker.start()
        try:
            yield broker
        finally:
            await broker.stop()

    return started


# -- the obedient one ----------------------------------------------------------------------------


class Scripted:
    """A broker for one client at a time, that does as its attributes say."""

    def __init__(self) -> None:
        self.heard: list[Packet] = []
        """Everything that came, of all connections."""
        self.keeps_session = False
        self.acknowledges = True
        """PUBLISH is answered with success; otherwise not at all."""
        self.refusals: list[int] = []
        """Reasons for the next CONNACKs."""
        self.publish_reason: int = Reason.SUCCESS
        self.subscribe_reason: int | None = None
        self.properties = Properties()
        """Of CONNACK."""
        self.answers_pings = True
        self.is_deaf = False
        """Accepts connections and says nothing."""
        self.accepted = 0
        self._filters: dict[str, tuple[int, int]] = {}
        self._sent: dict[int, Publish] = {}
        self._last_packet_id = 0
        self._writer: asyncio.StreamWriter | None = None
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        self._is_stopped = False
        self.port = 0

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        self._is_stopped = False

    async def stop(self) -> None:
        """Listen no more, and drop who is there."""
        assert self._server is not None
        await stop_listening(self._server)
        self._is_stopped = True
        for writer in self._open:
            writer.transport.abort()
        if self._open:
            await asyncio.wait(list(self._open.values()))

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def of(self, kind: type) -> list[Any]:
        """The packets of one kind that came."""
        return [packet for packet in self.heard if type(packet) is kind]

    @property
    def payloads(self) -> list[bytes]:
        return [publish.payload for publish in self.of(Publish)]

    @property
    def unacknowledged(self) -> int:
        return len(self._sent)

    def drop(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()

    def say(self, packet: Packet) -> None:
        assert self._writer is not None
        if not self._writer.is_closing():
            self._writer.write(encode(packet))

    def notify(self, topic: str, payload: bytes, *, id: str | None = None, qos: int = 1) -> None:
        """Send it to the client, with the identifiers of the filters that it fits."""
        ids = tuple(number for each, (number, _) in self._filters.items() if fits(each, topic))
        user = (("id", id),) if id is not None else ()
        publish = Publish(topic, payload, qos, properties=Properties(user, subscription_ids=ids))
        if qos:
            self._last_packet_id += 1
            publish.packet_id = self._last_packet_id
            self._sent[publish.packet_id] = publish
        self.say(publish)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_stopped:  # accepted just before the end, and told of just after it
            writer.transport.abort()
            return
        # Known before it runs: a task that is cancelled before its first step closes nothing.
        self._open[writer] = asyncio.create_task(self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._writer = writer
        packets = PacketDecoder()
        try:
            while not self.is_deaf and (data := await reader.read(65_536)):
                for packet in packets.feed(data):
                    assert not isinstance(packet, Malformed), packet.text
                    self.heard.append(packet)
                    self._answer(packet)
            while self.is_deaf and not writer.is_closing():
                await asyncio.sleep(0.01)
        except ConnectionError:
            pass
        finally:
            writer.close()
            del self._open[writer]

    def _answer(self, packet: Packet) -> None:
        match packet:
            case Connect():
                self._welcome(packet)
            case Publish(qos=1) if self.acknowledges:
                self.say(Puback(packet.packet_id, self.publish_reason))
            case Publish(qos=2) if self.acknowledges:
                self.say(Pubrec(packet.packet_id, self.publish_reason))
            case Pubrel():
                self.say(Pubcomp(packet.packet_id))
            case Puback():
                self._sent.pop(packet.packet_id, None)
            case Subscribe():
                self._subscribe(packet)
            case Unsubscribe():
                self._filters.pop(packet.topic_filters[0], None)
                self.say(Unsuback(packet.packet_id, (Reason.SUCCESS,)))
            case Pingreq() if self.answers_pings:
                self.say(Pingresp())
            case Disconnect():
                pass

    def _welcome(self, packet: Connect) -> None:
        if self.refusals:
            self.say(Connack(False, self.refusals.pop(0), Properties(reason_string="not now")))
            return
        present = self.keeps_session and not packet.clean_start
        if not present:
            self._filters.clear()
            self._sent.clear()
        self.say(Connack(present, properties=self.properties))
        for publish in self._sent.values():
            publish.dup = True
            self.say(publish)

    def _subscribe(self, packet: Subscribe) -> None:
        asked = packet.filters[0]
        reason = asked.qos if self.subscribe_reason is None else self.subscribe_reason
        if reason < Reason.UNSPECIFIED_ERROR:
            ids = packet.properties.subscription_ids
            self._filters[asked.topic_filter] = (ids[0] if ids else 0, reason)
        self.say(Suback(packet.packet_id, (reason,), Properties(reason_string="as told")))


@pytest.fixture
def scripted() -> type[Scripted]:
    return Scripted
