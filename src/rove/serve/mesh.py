"""The links of this broker to other brokers: connections, dialling, and the clock of the node.

A broker joins another one as a client would: it connects to its MQTT port and sends CONNECT with
the client id `broker:NAME`, a user and a password (or a client certificate). The other broker
authenticates it like every client, and its access rules must give that user the role `broker`.
After CONNACK both sides speak the protocol of `rove.mesh` on the connection. So there is one port,
one TLS configuration and one password file.

    connection ──▶ MeshNode ──▶ tunnel ──▶ TunnelPeer ──▶ Shell ──▶ Broker

What is beyond a link has the rights of the user with which the link was authenticated, on both
sides: a broker that is reached through a neighbour can do no more than that neighbour.

All brokers in `join` are dialled again when their link is lost: at once, and then after at most
`RETRY_S_MAX`. Ordinary clients pay nothing for any of this.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal, cast

from rove import __version__
from rove.base.files import PRIVATE, write_whole
from rove.broker.access import Identity
from rove.broker.sessions.session import BROKER_PREFIX, Link
from rove.client.addresses import Address
from rove.client.transports import system_message, tls_context
from rove.errors import RoveError
from rove.mesh.events import Closed, LinkClosed, MeshEvent, NeighbourJoined, Opened, Received
from rove.mesh.events import NeighbourLeft as Left
from rove.mesh.interest.summary import Summary
from rove.mesh.node import MeshNode
from rove.mesh.peers import Peers
from rove.mqtt.decoder import PacketDecoder
from rove.mqtt.encoder import encode
from rove.mqtt.packets import V5, Connack, Connect, Reason
from rove.serve.config import join_address
from rove.serve.listener import MqttConnection
from rove.serve.logs import events
from rove.serve.settings import MeshSettings
from rove.serve.shell import TURN_RETRY_S, Peer, Shell
from rove.serve.tls import joining_context

log = events("mesh")

EPOCH_FILE: Final = "mesh-epoch"
CONNECT_S: Final = 5.0
"""How long a connection and its CONNACK may take."""
RETRY_S_MIN: Final = 0.1
RETRY_S_MAX: Final = 2.0
REFUSED_S_MAX: Final = 10.0
"""The same where the other side refuses: that does not change by itself, and is logged there."""
LOOK_S: Final = 30.0
"""How often a broker is dialled to which the other side keeps a link; also when that is lost."""
STEADY_S: Final = 1.0
"""A link that has lasted so long is dialled again at once; others could be lost all the time."""
TICK_S_MIN: Final = 0.001
OFFSET_ERROR_S: Final = 0.25
"""How wrong the measured offset between the clocks of two brokers may be."""
REOPEN_S: Final = 1.0
"""After the broker has closed a session with another broker, when it may be opened again."""
PAUSED_BYTES_MAX: Final = 16 * 1024 * 1024
"""What may arrive in a tunnel while the broker does not read; then the tunnel is reset."""

PUBLISH_FIRST: Final = 0x30
"""The upper five bits of a PUBLISH that is no duplicate."""

DialState = Literal["connecting", "joined", "waiting"]


class JoinError(RoveError):
    """Another broker cannot be joined."""


class Dial:
    """A broker that is to be joined, and how far that is."""

    def __init__(self, url: str, address: Address) -> None:
        self.url = url
        self.address = address
        self.state: DialState = "connecting"
        self.name = ""
        """Of the broker there, once that is known."""
        self.trouble = ""
        """Why it is not joined."""
        self.request = 0
        """The number of the request to join it."""
        self.wake = asyncio.Event()
        """Set to dial at once."""
        self.task: asyncio.Task[None] | None = None


class LinkConnection(asyncio.Protocol):
    """A connection on which two brokers speak the protocol of the network."""

    def __init__(self, mesh: Mesh, identity: Identity, dial: Dial | None = None) -> None:
        self._mesh = mesh
        self.identity = identity
        """Whose access rules apply to what is beyond it."""
        self.dial = dial
        self.number = 0
        """Of the link; 0 before CONNACK."""
        self.was_joined = False
        self.transport: asyncio.Transport | None = None
        self.ended: asyncio.Future[LinkClosed] = asyncio.get_running_loop().create_future()
        self._answer = bytearray()
        """What has come of CONNACK."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.number:
            self._mesh.received(self, data)
            return
        self._answer += data
        try:
            end = _packet_end(self._answer)
            if end:
                self._connack(bytes(self._answer[:end]))
                rest = bytes(self._answer[end:])
                self.number = self._mesh.link_opened(self)
                if rest:
                    self._mesh.received(self, rest)
        except JoinError as error:
            self.end(str(error))

    def _connack(self, data: bytes) -> None:
        packets = PacketDecoder(version=V5, from_server=True).feed(data)
        if len(packets) != 1 or not isinstance(packets[0], Connack):
            raise JoinError("it does not answer with CONNACK; is this the MQTT port of a broker?")
        packet = packets[0]
        if packet.reason != Reason.SUCCESS:
            why = packet.properties.reason_string or Reason(packet.reason).name.lower()
            if packet.reason == Reason.BAD_USER_NAME_OR_PASSWORD and self.identity.user is None:
                why += " (the URL names no user)"
            raise JoinError(f"it refuses: {why}")
        if "rove" not in dict(packet.properties.user):
            raise JoinError("it is not a Rove broker")

    def connection_lost(self, exc: Exception | None) -> None:
        why = "the connection was closed" if exc is None else f"the connection was lost: {exc}"
        if self.number:
            self._mesh.link_lost(self, why)
        self.end(why)

    def end(self, reason: str, *, name: str = "", is_quiet: bool = False) -> None:
        """Close the connection after what was written; the first reason counts."""
        if not self.ended.done():
            self.ended.set_result(LinkClosed(self.number, name, reason, is_quiet))
        if self.transport is not None:
            self.transport.close()


class TunnelPeer:
    """Another broker, as a `Peer` of the shell: what is sent to it goes into its tunnel."""

    def __init__(self, mesh: Mesh, name: str, tunnel: int) -> None:
        self._mesh = mesh
        self.name, self.tunnel = name, tunnel
        self.link: Link
        self.is_stuck = False
        self._is_paused = False
        self._unread = bytearray()

    def send(self, data: bytes) -> None:
        self._mesh.send(self, data)

    def buffered_bytes(self) -> int:
        return self._mesh.node.queued_bytes(self.tunnel)

    def close(self) -> None:
        self._mesh.session_closed(self)

    abort = close

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        if self._unread:
            data, self._unread = bytes(self._unread), bytearray()
            self._mesh.shell.received(self.link, data)

    def received(self, data: bytes) -> None:
        """The next part of the stream from it."""
        if not self._is_paused:
            self._mesh.shell.received(self.link, data)
            return
        self._unread += data
        if len(self._unread) > PAUSED_BYTES_MAX:
            self.close()


class Mesh:
    """The network, as far as this broker takes part in it."""

    def __init__(
        self, shell: Shell, settings: MeshSettings, folder: Path, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.shell = shell
        self._loop = loop
        self.configure(settings)
        self._identity = Identity(None, BROKER_PREFIX + settings.name)
        self.node = MeshNode(
            settings.name,
            _next_epoch(folder, shell.now()),
            secrets.token_bytes(16),
            version=__version__,
        )
        budget = settings.summary_bytes
        summary = Summary(settings.covering, budget, offset_error_s=OFFSET_ERROR_S)
        self.peers = Peers(shell.broker, summary)
        self.peers.on_change = self._interest_changed
        self.dials: dict[str, Dial] = {}
        """By URL."""
        self._connections: dict[int, LinkConnection] = {}
        self._tunnels: dict[int, TunnelPeer] = {}
        self.sent: dict[str, int] = {}
        """By broker: publications that were sent to it, repeated ones once."""
        self._blocked: dict[str, int] = {}
        """Brokers that were disconnected here, until they are joined from here; with the number
        of that request."""
        self._requests = 0
        """How often brokers were joined and disconnected."""
        self._last_link = 0
        self._is_due = False
        self._must_advance = True
        self._advance_at_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopping = False
        shell.broker_joined = self.joined

    def configure(self, settings: MeshSettings) -> None:
        """Use these credentials for all connections from now on."""
        self.settings = settings
        self._tls = joining_context(settings)
        self._password = _password_of(settings)

    def start(self) -> None:
        """Join the brokers of the configuration."""
        self.set_join(self.settings.join)
        self.wake()

    async def stop(self) -> None:
        """Close all links. What waits for other brokers stays in their queues."""
        self._is_stopping = True
        tasks = [dial.task for dial in self.dials.values() if dial.task is not None]
        now_s = self.shell.now()
        for number in list(self._connections):
            self.node.close_link(number, now_s, f"{self.node.name} is shutting down")
        self._turn()
        for task in tasks:
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- joining -------------------------------------------------------------------------------

    def set_join(self, urls: Iterable[str]) -> None:
        """Join exactly these brokers of the configuration."""
        wanted = list(dict.fromkeys(urls))
        for url in [url for url in self.dials if url not in wanted]:
            self._give_up(self.dials[url], f"{self.node.name} does not join it any more")
        for url in wanted:
            if url not in self.dials:
                self.join(url)

    def join(self, url: str) -> Dial:
        """Join a broker now, and whenever the link to it is lost."""
        address = join_address(url)
        dial = self.dials.get(url)
        if dial is None:
            dial = self.dials[url] = Dial(url, address)
            dial.task = self._loop.create_task(self._keep_joined(dial), name=f"join {address}")
        else:
            dial.wake.set()
        self._requests += 1
        dial.request = self._requests
        return dial

    def disconnect(self, name: str) -> bool:
        """Close the links to a broker, and let it join no more; False if there is none."""
        reason = f"{self.node.name} was told to disconnect from {name}"
        found = False
        for dial in list(self.dials.values()):
            if name in (dial.name, dial.url, str(dial.address)):
                name = dial.name or name
                self._give_up(dial, reason)
                found = True
        for number, link in list(self.node.links.items()):
            if link.name == name:
                self.node.close_link(number, self.shell.now(), reason)
                found = True
        if found:
            self._requests += 1
            self._blocked[name] = self._requests
        self.wake()
        return found

    def _give_up(self, dial: Dial, reason: str) -> None:
        del self.dials[dial.url]
        for number, connection in list(self._connections.items()):
            if connection.dial is dial:
                self.node.close_link(number, self.shell.now(), reason)
        self._turn()  # the other side gets the reason before the connection is closed
        if dial.task is not None:
            dial.task.cancel()

    async def _keep_joined(self, dial: Dial) -> None:
        wait_s = 0.0
        while True:
            dial.wake.clear()
            before, dial.state = dial.trouble, "connecting"
            began_at_s = self._loop.time()
            try:
                connection = await self._dial(dial)
                end = connection.ended.result()
                trouble, is_quiet = end.reason, end.is_quiet
                was_joined = connection.was_joined
                dial.name = end.name or dial.name
                most_s = REFUSED_S_MAX
            except (RoveError, OSError) as error:
                trouble, was_joined, is_quiet = _trouble(error), False, False
                most_s = RETRY_S_MAX
            dial.state = "waiting"
            if is_quiet:
                is_linked = any(link.name == dial.name for link in self.node.links.values())
                dial.trouble, wait_s = "", LOOK_S if is_linked else RETRY_S_MIN
            else:
                dial.trouble = trouble
                if was_joined and self._loop.time() - began_at_s >= STEADY_S:
                    wait_s = 0.0
                else:
                    wait_s = min(max(2 * wait_s, RETRY_S_MIN), most_s)
                    if trouble != before:
                        log.warning("cannot join", url=str(dial.address), reason=trouble)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s * random.uniform(0.8, 1.0)):
                    await dial.wake.wait()

    async def _dial(self, dial: Dial) -> LinkConnection:
        """Join once; returns when the link has ended."""
        address = dial.address
        user = address.user_name
        identity = Identity(user, self._identity.client_id, "password" if user else "anonymous")
        connection = LinkConnection(self, identity, dial)
        context = tls_context(address, self._tls if address.is_tls else None)
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._loop.create_connection(
                    lambda: connection,
                    address.host,
                    address.port,
                    ssl=context,
                    server_hostname=address.host if context is not None else None,
                )
        except TimeoutError:
            raise JoinError(f"{address} did not answer within {CONNECT_S:g} s") from None
        assert connection.transport is not None
        password = address.password if address.password is not None else self._password
        packet = Connect(
            self._identity.client_id,
            keep_alive_s=0,
            user_name=user,
            password=None if user is None or password is None else password.encode(),
        )
        connection.transport.write(encode(packet, V5))
        answered = self._loop.call_later(CONNECT_S, self._expect_answer, connection)
        try:
            await connection.ended
            return connection
        finally:
            answered.cancel()
            connection.end("given up")

    def _expect_answer(self, connection: LinkConnection) -> None:
        if not connection.number:
            connection.end(f"it did not answer CONNECT within {CONNECT_S:g} s")

    def joined(self, identity: Identity, peer: Peer) -> None:
        """Another broker has sent CONNECT, and was admitted."""
        if self._is_stopping or not isinstance(peer, MqttConnection):
            peer.close()  # not over a WebSocket
            return
        connection = LinkConnection(self, identity)
        connection.connection_made(peer.give_up(connection))
        name = identity.client_id.removeprefix(BROKER_PREFIX)
        number = connection.number = self.link_opened(connection, name)
        if name in self._blocked:
            reason = f"{self.node.name} was told to disconnect from {name}"
            self.node.close_link(number, self.shell.now(), reason)

    # -- links ---------------------------------------------------------------------------------

    def link_opened(self, connection: LinkConnection, name: str | None = None) -> int:
        """A connection is authenticated; `name` is what the other side has called itself."""
        self._last_link += 1
        number = self._last_link
        self._connections[number] = connection
        is_outgoing = connection.dial is not None
        self.node.link_opened(number, self.shell.now(), outgoing=is_outgoing, expected=name)
        self.wake()
        return number

    def received(self, connection: LinkConnection, data: bytes) -> None:
        """Bytes came over a link."""
        self.node.received(connection.number, data, self.shell.now())
        self.wake()

    def link_lost(self, connection: LinkConnection, reason: str) -> None:
        """The connection of a link is gone."""
        if self._connections.pop(connection.number, None) is not None:
            self.node.link_closed(connection.number, self.shell.now(), reason)
            self.wake()

    # -- turns ---------------------------------------------------------------------------------

    def wake(self) -> None:
        """Carry out what the node decides, after the present callbacks."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._turn)

    def _interest_changed(self) -> None:
        self._must_advance = True
        self.wake()

    def _turn(self) -> None:
        self._is_due = False
        try:
            self._do_turn()
        except Exception as error:
            self.shell.failed(error, "mesh")
            # Not at once: a fault that repeats must leave time for everything else.
            self._loop.call_later(TURN_RETRY_S, self.wake)

    def _do_turn(self) -> None:
        output = self.node.take()
        for number, data in output.data.items():
            connection = self._connections.get(number)
            if connection is not None and connection.transport is not None:
                connection.transport.write(data)
        for closed in output.closed:
            self._close(closed)
        for event in output.events:
            self._happened(event)
        now_s = self.shell.now()
        if self._must_advance or now_s >= self._advance_at_s:
            self._must_advance = False
            self._advance_at_s = self.peers.advance(now_s)
            self.shell.wake()
        for peer in self._tunnels.values():
            if peer.is_stuck and self.node.writable(peer.tunnel):
                peer.is_stuck = False
                self.shell.unstuck(peer.link)
        self._set_timer(now_s)

    def _close(self, closed: LinkClosed) -> None:
        connection = self._connections.pop(closed.link, None)
        if connection is None:
            return
        if not (closed.is_quiet or connection.was_joined or connection.dial):
            log.warning("link refused", broker=closed.name, reason=closed.reason)
        connection.end(closed.reason, name=closed.name, is_quiet=closed.is_quiet)

    def _set_timer(self, now_s: float) -> None:
        due_s = min(self.node.next_tick_s(), self._advance_at_s)
        when = self._loop.time() + min(max(due_s - now_s, TICK_S_MIN), 60.0)
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._is_stopping:
            return
        self.node.tick(self.shell.now())
        self.wake()

    # -- tunnels -------------------------------------------------------------------------------

    def _happened(self, event: MeshEvent) -> None:
        match event:
            case Received(tunnel=tunnel, data=data):
                if (peer := self._tunnels.get(tunnel)) is not None:
                    peer.received(data)
            case Opened():
                self._tunnel_opened(event)
            case Closed(tunnel=tunnel):
                if (peer := self._tunnels.pop(tunnel, None)) is not None:
                    self._end_session(peer)
            case NeighbourJoined(name=name, link=number):
                self._neighbour_joined(name, number)
            case Left(name=name):
                log.info("link lost", broker=name, reason=event.reason)
                for dial in self.dials.values():
                    if dial.name == name and dial.state == "waiting":
                        dial.wake.set()

    def _neighbour_joined(self, name: str, number: int) -> None:
        connection = self._connections.get(number)
        if connection is None:
            return
        connection.was_joined = True
        log.info("link joined", broker=name, outgoing=connection.dial is not None)
        if (dial := connection.dial) is not None:
            dial.state, dial.name, dial.trouble = "joined", name, ""
            if self._blocked.pop(name, 0) > dial.request:
                # Its name was not known when somebody disconnected from it.
                self._loop.call_soon(self.disconnect, name)

    def _tunnel_opened(self, event: Opened) -> None:
        via = self._connections.get(self.node.neighbour_link(event.name) or 0)
        user = None if via is None else via.identity.user
        link = self.peers.opened(event.name, event.offset_s, self.shell.now(), user)
        if link is None:
            self._loop.call_later(REOPEN_S, self._reset, event.tunnel)
            return
        peer = TunnelPeer(self, event.name, event.tunnel)
        peer.link, link.peer = link, peer
        self._tunnels[event.tunnel] = peer
        self.shell.wake()

    def send(self, peer: TunnelPeer, data: bytes) -> None:
        """Send to another broker."""
        self.sent[peer.name] = self.sent.get(peer.name, 0) + _publications_in(data)
        self.node.send({peer.tunnel: data}, b"")
        self.wake()
        if not peer.is_stuck and not self.node.writable(peer.tunnel):
            peer.is_stuck = True
            self._loop.call_soon(self._stuck, peer)

    def _stuck(self, peer: TunnelPeer) -> None:
        if peer.is_stuck and peer.tunnel in self._tunnels:
            self.shell.stuck(peer.link)

    def session_closed(self, peer: TunnelPeer) -> None:
        """The broker has closed the session; its streams cannot go on in the middle."""
        if self._tunnels.pop(peer.tunnel, None) is not None:
            self._loop.call_soon(self._end_session, peer)
            self._loop.call_later(REOPEN_S, self._reset, peer.tunnel)

    def _reset(self, tunnel: int) -> None:
        self.node.reset(tunnel, self.shell.now())
        self.wake()

    def _end_session(self, peer: TunnelPeer) -> None:
        self.shell.closed(peer.link)
        self.peers.closed(peer.name, self.shell.now())


def _trouble(error: RoveError | OSError) -> str:
    """Why a broker could not be reached, in one line."""
    if isinstance(error, ssl.SSLCertVerificationError):
        advice = "`ca` in [mesh] names the authority to trust"
        return f"its certificate is not trusted: {error.verify_message}; {advice}"
    return system_message(error) if isinstance(error, OSError) else str(error)


def _password_of(settings: MeshSettings) -> str | None:
    """The password for other brokers."""
    if not settings.password_file:
        return None
    path = Path(settings.password_file)
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise JoinError(f"[mesh] password_file: cannot read {path}: {error}") from None
    if not lines or not lines[0]:
        raise JoinError(f"[mesh] password_file: {path} is empty; its first line is the password")
    return lines[0]


def _packet_end(data: bytearray) -> int:
    """Where the first packet of MQTT ends; 0 if it is not complete."""
    size = 0
    for index, byte in enumerate(data[1:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            end = 2 + index + size
            return end if len(data) >= end else 0
    if len(data) >= 5:
        raise JoinError("it does not answer with CONNACK; is this the MQTT port of a broker?")
    return 0


def _publications_in(data: bytes) -> int:
    """How many packets are publications that are not sent again."""
    count = place = 0
    while place < len(data):
        count += data[place] & 0xF8 == PUBLISH_FIRST
        size = shift = 0
        while True:
            place += 1
            size |= (data[place] & 0x7F) << shift
            shift += 7
            if data[place] < 0x80:
                break
        place += size + 1
    return count


def _next_epoch(folder: Path, now_s: float) -> int:
    """A number that is greater at every start, even if the clock was set back."""
    path = folder / EPOCH_FILE
    try:
        last = int(path.read_bytes())
    except (OSError, ValueError):
        last = 0
    epoch = max(last + 1, int(now_s))
    write_whole(path, (str(epoch).encode(),), mode=PRIVATE)
    return epoch
