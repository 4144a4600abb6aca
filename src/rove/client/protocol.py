"""The client side of one MQTT connection: bytes and time in; bytes, events and a deadline out.

This is the only client protocol in Rove. The library adds resending and flow control
(`rove.client.session`), and so does the HTTP interface's client inside the broker. The simulation,
the world's bus and the load generators use it as it is. It has no sockets and no clock, so every
rule is a test of a few lines.

`open` begins a connection, `receive` takes the bytes that arrived, `output` gives the bytes to
send, `lose` ends the connection, and `advance` is due at `wake_at`. A program sends any packet with
`write`, and a packet that the broker answers with `ask`, which chooses the packet identifier and
passes the answer to a callback. Everything else comes back as an event.

`reader` turns bytes into packets, and can be replaced. Decoding is most of what a notification
costs, and a load generator whose notifications all have the same size need not decode them.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from rove.client.errors import ClientError
from rove.mqtt.decoder import PACKET_BYTES_MAX, PacketDecoder
from rove.mqtt.encoder import PINGREQ, encode
from rove.mqtt.packets import (
    V5,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Filter,
    Malformed,
    Packet,
    Pingresp,
    Properties,
    Puback,
    Publish,
    Reason,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)

PACKET_ID_MAX: Final = 65_535
RECEIVE_MAX: Final = 65_535
"""What the specification assumes when a receive maximum is not given."""
WINDOW_MAX: Final = PACKET_ID_MAX // 2
"""Publications in flight at most, so that free packet identifiers are always found quickly."""
PING_AFTER: Final = 0.75
"""Of the keep-alive; the specification requires a packet within all of it."""

Request = Subscribe | Unsubscribe | Publish
"""Packets that the broker answers with one packet; a PUBLISH only with QoS 1."""
Response = Suback | Unsuback | Puback


class ProtocolSettings(msgspec.Struct, frozen=True):
    """What a client sends when it connects."""

    client_id: str = ""
    """Empty: the broker chooses one."""
    user_name: str | None = None
    password: bytes | None = None
    clean_start: bool = True
    """For the first connection; later ones always resume the session."""
    session_expiry_s: int = 0
    keep_alive_s: int = 30
    receive_max: int = 1_000
    packet_bytes_max: int = 16 * 1024 * 1024
    will: Will | None = None
    answer_timeout_s: float = 10.0
    """How long the broker may take for CONNACK and PINGRESP."""
    version: int = V5


class PacketReader(typing.Protocol):
    """Turns the bytes of one connection into packets."""

    def feed(self, data: bytes) -> Iterable[Packet | Malformed]:
        """The packets that these bytes complete and the protocol has to handle."""


# -- events ----------------------------------------------------------------------------------


class Opened(msgspec.Struct, frozen=True):
    """The broker has accepted the connection; `ClientSession.resume` must be called next."""

    session_present: bool


class Ended(msgspec.Struct, frozen=True):
    """The connection has ended: refused, ended by the broker, silent for too long, or invalid."""

    reason: int
    text: str | None
    refused: bool = False
    """It was the answer to CONNECT."""


class DeliveryToken:
    """A notification of QoS 1 or 2 that has not been acknowledged yet."""

    __slots__ = ("connection", "publish", "taken", "untaken")

    def __init__(self, publish: Publish, connection: int) -> None:
        self.publish = publish
        self.connection = connection
        """The number of the connection over which it last arrived."""
        self.untaken = 0
        """For its owner to count."""
        self.taken = False


class PublishReceived(msgspec.Struct, frozen=True, gc=False):
    """A notification; its token, which QoS 0 has not, must be acknowledged once it is taken."""

    publish: Publish
    delivery: DeliveryToken | None


Event = Opened | Ended | PublishReceived


class ServerInfo(msgspec.Struct, frozen=True):
    """What the broker announced in CONNACK."""

    window: int = WINDOW_MAX
    packet_bytes_max: float = math.inf
    qos_max: int = 2
    has_retain: bool = True
    has_subscription_ids: bool = True
    keep_alive_s: int = 0
    is_rove: bool = False
    """Whether it supports the topics and properties of `docs/protocol.md`."""


# -- packets with Rove's properties ----------------------------------------------------------


def subscribe_packet(
    filters: tuple[Filter, ...],
    identifier: int | None = None,
    user: tuple[tuple[str, str], ...] = (),
) -> Subscribe:
    """A SUBSCRIBE; `docs/protocol.md` lists the user properties, such as `filter`."""
    ids = () if identifier is None else (identifier,)
    return Subscribe(0, filters, Properties(user=user, subscription_ids=ids))


def unsubscribe_packet(
    topic_filters: tuple[str, ...], identifier: int | None = None
) -> Unsubscribe:
    """An UNSUBSCRIBE; with an identifier it ends only that subscription to the topic filter.

    Brokers without this property have one subscription per topic filter.
    """
    user = () if identifier is None else (("subscription", str(identifier)),)
    return Unsubscribe(0, topic_filters, Properties(user=user))


# -- the connection ----------------------------------------------------------------------------


class Protocol:
    """One connection at a time. `now` is any clock that does not go back, in seconds."""

    def __init__(self, settings: ProtocolSettings) -> None:
        self.settings = settings
        self.client_id = settings.client_id
        self.server = ServerInfo()
        self.is_open = False
        """Between CONNACK and the end of the connection."""
        self.reader: PacketReader = self.new_reader()
        self._linked = False
        self._wants_clean_start = settings.clean_start
        self._out: list[bytes] = []
        self._asked: dict[int, Callable[[Response], None]] = {}
        """What to call with the answer to each request, by packet identifier."""
        self._last_packet_id = 0
        self._sent_at = self._heard_at = 0.0
        self._answer_due_at = math.inf

    # -- the life of a connection --------------------------------------------------------------

    def open(self, now: float) -> None:
        """A connection was opened: send CONNECT."""
        self.begin(now)
        self.write(self._connect())

    def begin(self, now: float) -> None:
        """A connection was opened: reset the state, and send nothing yet."""
        self._linked = True
        self.is_open = False
        self.reader = self.new_reader()
        self._clear_output()
        self._asked.clear()
        self._sent_at = self._heard_at = now
        self._answer_due_at = now + self.settings.answer_timeout_s

    def _connect(self) -> Connect:
        settings = self.settings
        receive_max, packet_bytes_max = settings.receive_max, settings.packet_bytes_max
        return Connect(
            client_id=self.client_id,
            version=settings.version,
            clean_start=self._wants_clean_start,
            keep_alive_s=settings.keep_alive_s,
            user_name=settings.user_name,
            password=settings.password,
            will=settings.will,
            properties=Properties(
                session_expiry_s=settings.session_expiry_s or None,
                receive_max=receive_max if receive_max < RECEIVE_MAX else None,
                packet_size_max=packet_bytes_max if packet_bytes_max < PACKET_BYTES_MAX else None,
            ),
        )

    def lose(self) -> None:
        """The connection was lost."""
        self._linked = self.is_open = False
        self._clear_output()
        self._asked.clear()
        self._answer_due_at = math.inf

    def disconnect(self, *, forget: bool = False) -> None:
        """Send DISCONNECT, and nothing more; with `forget` the broker ends the session."""
        if self.is_open:
            properties = Properties(session_expiry_s=0 if forget else None)
            self.write(Disconnect(properties=properties))
            self._linked = self.is_open = False

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Take bytes that arrived. Bytes to send because of them are in `output`."""
        events: list[Event] = []
        self._heard_at = now
        for packet in self.reader.feed(data):
            if not self._linked:
                break
            if type(packet) is Publish and self.is_open:
                self._arrive(packet, events)
            else:
                self._take(packet, events)
        return events

    def output(self, now: float) -> bytes:
        """The bytes to send since the last call."""
        if not self._out:
            return b""
        data = b"".join(self._out)
        self._clear_output()
        self._sent_at = now
        return data

    def _clear_output(self) -> None:
        self._out.clear()

    def wake_at(self) -> float:
        """When to call `advance`."""
        return min(self._answer_due_at, self._ping_at())

    def advance(self, now: float) -> list[Event]:
        """Send a ping if it is due; end if the broker has been silent for too long."""
        if now >= self._answer_due_at:
            self._answer_due_at = math.inf
            what = "PINGREQ" if self.is_open else "CONNECT"
            waited_s = self.settings.answer_timeout_s
            text = f"the broker did not answer {what} within {waited_s:g} s"
            return [Ended(Reason.KEEP_ALIVE_TIMEOUT, text)]
        if now >= self._ping_at():
            self._out.append(PINGREQ)
            self._answer_due_at = now + self.settings.answer_timeout_s
        return []

    def _ping_at(self) -> float:
        if not self.is_open or not self.server.keep_alive_s or self._answer_due_at != math.inf:
            return math.inf
        # Received bytes count as much as sent ones: a dead connection still accepts bytes.
        return min(self._sent_at, self._heard_at) + self.server.keep_alive_s * PING_AFTER

    # -- sending -------------------------------------------------------------------------------

    def write(self, packet: Packet) -> None:
        """Send a packet with the next output."""
        self._out.append(encode(packet, self.settings.version))

    def write_bytes(self, data: bytes) -> None:
        """Send packets that are encoded already."""
        self._out.append(data)

    def ask(self, request: Request, answered: Callable[[Response], None]) -> None:
        """Send a request under a free packet identifier; `answered` is called with the answer, or
        not at all if the connection is lost."""
        packet_id = request.packet_id = self.take_packet_id()
        self._asked[packet_id] = answered
        self.write(request)

    def take_packet_id(self) -> int:
        """The next free packet identifier."""
        packet_id = self._last_packet_id
        for _ in range(PACKET_ID_MAX):
            packet_id = packet_id % PACKET_ID_MAX + 1
            if not self._is_used(packet_id):
                self._last_packet_id = packet_id
                return packet_id
        raise ClientError(
            f"the broker has not answered {PACKET_ID_MAX:,} packets, and there are no more packet"
            " identifiers; wait for some of the answers"
        )

    def _is_used(self, packet_id: int) -> bool:
        return packet_id in self._asked

    # -- receiving -------------------------------------------------------------------------------

    def _arrive(self, publish: Publish, events: list[Event]) -> None:
        """A notification has arrived."""
        if self._is_allowed(publish, events):
            events.append(PublishReceived(publish, None))

    def _is_allowed(self, publish: Publish, events: list[Event]) -> bool:
        """Whether it has no topic alias: our clients never allow any."""
        if publish.properties.topic_alias is None:
            return True
        self._give_up(Reason.TOPIC_ALIAS_INVALID, "a topic alias, and none was offered", events)
        return False

    def _take(self, packet: Packet | Malformed, events: list[Event]) -> None:
        """Any other packet has arrived."""
        match packet:
            case Malformed():
                self._give_up(packet.reason, packet.text, events)
            case Disconnect():
                self._end(packet.reason, words(packet.properties), events)
            case Connack() if not self.is_open:
                self._accept(packet, events)
            case Auth():
                self._give_up(Reason.PROTOCOL_ERROR, "AUTH, which was not asked for", events)
            case _ if not self.is_open:
                self._give_up(Reason.PROTOCOL_ERROR, f"{_name(packet)} before CONNACK", events)
            case Suback() | Unsuback() | Puback():
                self._answer(packet)
            case Pingresp():
                self._answer_due_at = math.inf
            case _:
                text = f"{_name(packet)}, which answers nothing"
                self._give_up(Reason.PROTOCOL_ERROR, text, events)

    def _answer(self, packet: Response) -> None:
        """The broker has answered a request; answers to nothing are ignored."""
        if (answered := self._asked.pop(packet.packet_id, None)) is not None:
            answered(packet)

    def _accept(self, packet: Connack, events: list[Event]) -> None:
        """The answer to CONNECT."""
        self._answer_due_at = math.inf
        properties = packet.properties
        if packet.reason >= Reason.UNSPECIFIED_ERROR:
            self._linked = False
            events.append(Ended(packet.reason, words(properties), refused=True))
            return
        if packet.session_present and self._wants_clean_start:
            text = "an old session, and a new one was asked for"
            self._give_up(Reason.PROTOCOL_ERROR, text, events)
            return
        self.server = _announced(properties, self.settings)
        self.client_id = properties.assigned_client_id or self.client_id
        self.is_open = True
        self._wants_clean_start = False
        events.append(Opened(packet.session_present))

    def _end(self, reason: int, text: str | None, events: list[Event]) -> None:
        self._linked = self.is_open = False
        events.append(Ended(reason, text))

    def _give_up(self, reason: int, text: str, events: list[Event]) -> None:
        """The broker has broken a rule: send the reason and end the connection."""
        self.write(Disconnect(reason))
        self._end(reason, f"the broker sent what it may not: {text}", events)

    def new_reader(self) -> PacketDecoder:
        """A reader for every kind of packet."""
        settings = self.settings
        return PacketDecoder(
            version=settings.version,
            packet_bytes_max=settings.packet_bytes_max,
            from_server=True,
        )


def words(properties: Properties) -> str | None:
    """What the broker said besides the code; where to go instead, if it said that."""
    if properties.server_reference is not None:
        return f"{properties.reason_string or 'moved'}: {properties.server_reference}"
    return properties.reason_string


def _name(packet: Packet) -> str:
    return type(packet).__name__.upper()


def _announced(properties: Properties, settings: ProtocolSettings) -> ServerInfo:
    def given(value: int | None, default: int) -> int:
        return default if value is None else value

    size_max = properties.packet_size_max
    return ServerInfo(
        window=min(given(properties.receive_max, RECEIVE_MAX), WINDOW_MAX),
        packet_bytes_max=math.inf if size_max is None else size_max,
        qos_max=given(properties.qos_max, 2),
        has_retain=given(properties.retain_available, 1) != 0,
        has_subscription_ids=given(properties.subscription_ids_available, 1) != 0,
        keep_alive_s=given(properties.server_keep_alive_s, settings.keep_alive_s),
        is_rove=any(name == "rove" for name, _ in properties.user),
    )
