"""One MQTT session as its client sees it: bytes and moments in, bytes and events out.

No sockets and no clock, so that every rule of resending is a test of a few lines. The session
lives over any number of connections: `open` begins one, `receive` reads what came, `output` is
what has to be sent, `lose` ends it. Answers go to whoever asked, as a call; everything else is
returned as an event.

What survives a lost connection, and how:

    publications    wait in `outbox` until the broker's receive maximum lets them go, in order.
                    Those that were sent and not acknowledged are sent again: with the same packet
                    identifier and DUP if the broker still knows the session, otherwise as new ones
                    with the same `id`, by which the broker and other subscribers know them again.
    subscriptions   are made again if the broker has forgotten the session.
    notifications   that came and were not acknowledged come again. They are known again by their
                    packet identifier, and not handed over twice.

Acknowledgements are sent in the order in which notifications came, as the specification demands:
one that is not taken holds back those behind it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from rove.mqtt.packets import (
    NO_PROPERTIES,
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
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Reason,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from rove.mqtt.reading import Reader
from rove.mqtt.writing import PINGREQ, encode

PACKET_ID_MAX: Final = 65_535
WINDOW_MAX: Final = PACKET_ID_MAX // 2
"""Publications under way at most, so that packet identifiers are always found quickly."""
PING_AFTER: Final = 0.75
"""Of the keep-alive; the specification wants something to be sent within all of it."""

Answer = Callable[[int, str | None], None]
"""Is told the reason code and the broker's own words, if it gave any."""


class Settings(msgspec.Struct, frozen=True):
    """What a client says of itself when it connects."""

    client_id: str = ""
    """Empty: the broker gives one."""
    user_name: str | None = None
    password: bytes | None = None
    clean_start: bool = True
    """For the first connection; those after it always want the session back."""
    session_expiry_s: int = 0
    keep_alive_s: int = 30
    receive_max: int = 1_000
    packet_bytes_max: int = 16 * 1024 * 1024
    will: Will | None = None
    answer_timeout_s: float = 10.0
    """How long the broker may take for CONNACK and PINGRESP."""


# -- events ----------------------------------------------------------------------------------


class Opened(msgspec.Struct, frozen=True):
    """The broker has accepted the connection; `Protocol.resume` has to be called next."""

    session_present: bool


class Ended(msgspec.Struct, frozen=True):
    """The connection is of no more use: refused, ended by the broker, silent or garbled."""

    reason: int
    text: str | None
    refused: bool = False
    """It was the answer to CONNECT."""


class Arrived(msgspec.Struct, frozen=True, gc=False):
    """A notification; its delivery, unless of QoS 0, has to be acknowledged when it was taken."""

    publish: Publish
    delivery: Delivery | None


Event = Opened | Ended | Arrived


# -- what is under way -------------------------------------------------------------------------


class Outgoing:
    """A publication on its way to the broker."""

    __slots__ = ("answer", "answered", "holds", "publish", "received", "released", "size_bytes")

    def __init__(self, publish: Publish, answered: Answer, *, holds: bool = False) -> None:
        self.publish = publish
        """With a packet identifier, if whoever publishes chooses them."""
        self.answered = answered
        self.holds = holds
        """QoS 2: `answered` is told of PUBREC, and `Protocol.release` has to be called."""
        self.received = False
        """Of one that holds: the broker has it."""
        self.answer = NO_PROPERTIES
        """What the broker's answer said besides its reason, when there is one."""
        self.released = False
        """QoS 2: the broker has it, and PUBREL is out."""
        self.size_bytes = len(publish.payload) + len(publish.topic)


class Delivery:
    """A notification of QoS 1 or 2 that the broker waits to hear of."""

    __slots__ = ("connection", "publish", "taken", "untaken")

    def __init__(self, publish: Publish, connection: int) -> None:
        self.publish = publish
        self.connection = connection
        """The number of the connection over which it came last."""
        self.untaken = 0
        """For its owner to count."""
        self.taken = False


class Wanted:
    """A subscription that there shall be."""

    __slots__ = ("answered", "filter", "granted", "identifier", "user")

    def __init__(
        self,
        identifier: int,
        filter: Filter,
        user: tuple[tuple[str, str], ...],
        answered: Answer,
    ) -> None:
        self.identifier = identifier
        self.filter = filter
        self.user = user
        self.answered = answered
        """Called again when the subscription had to be made again."""
        self.granted = False


class _Unwanted:
    """A subscription that shall end."""

    __slots__ = ("answered", "wanted")

    def __init__(self, wanted: Wanted, answered: Answer) -> None:
        self.wanted = wanted
        self.answered = answered


class Server(msgspec.Struct, frozen=True):
    """What the broker announced in CONNACK."""

    window: int = WINDOW_MAX
    packet_bytes_max: float = math.inf
    qos_max: int = 2
    has_retain: bool = True
    has_subscription_ids: bool = True
    keep_alive_s: int = 0
    is_rove: bool = False
    """It knows more than MQTT: the topics and properties of `docs/protocol.md`."""


# -- the session -------------------------------------------------------------------------------


class Protocol:
    """The state of one session. `now` is any clock that does not go back, in seconds."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.client_id = settings.client_id
        self.server = Server()
        self.outbox: deque[Outgoing] = deque()
        """Publications that were not sent yet, or have to be sent as if they had not been."""
        self.wanted: dict[int, Wanted] = {}
        """By identifier."""
        self.is_open = False
        """Between CONNACK (and `resume`) and the end of the connection."""
        self.is_congested = False
        """Set by the shell while the connection takes nothing more."""
        self._has_been_open = False
        self._connection = 0
        self._linked = False
        self._reader = self._new_reader()
        self._out: list[bytes] = []
        self.output_bytes = 0
        """Publications among what `output` will give."""
        self._inflight: dict[int, Outgoing] = {}
        """Sent and not acknowledged, by packet identifier, in the order of sending."""
        self._again: deque[Outgoing] = deque()
        """Of these, the ones that this connection has not been sent yet."""
        self._under_way = 0
        """Of these, the ones that count against the broker's receive maximum."""
        self._requests: dict[int, Wanted | _Unwanted] = {}
        self._unwanted: list[_Unwanted] = []
        self._restoring = 0
        """Publications at the head of the outbox that go before any subscription is made."""
        self._last_packet_id = 0
        self._unacknowledged: dict[int, Delivery] = {}
        self._in_order: deque[Delivery] = deque()
        self._unreleased: set[int] = set()
        """QoS 2 that was taken, and that the broker has not released."""
        self._sent_at = self._heard_at = 0.0
        self._answer_due_at = math.inf

    # -- connections ---------------------------------------------------------------------------

    def open(self, now: float) -> None:
        """There is a connection: say who we are."""
        settings = self.settings
        self._connection += 1
        self._linked = True
        self._reader = self._new_reader()
        self._clear_output()
        self._sent_at = self._heard_at = now
        self._answer_due_at = now + settings.answer_timeout_s
        connect = Connect(
            client_id=self.client_id,
            clean_start=settings.clean_start and not self._has_been_open,
            keep_alive_s=settings.keep_alive_s,
            user_name=settings.user_name,
            password=settings.password,
            will=settings.will,
            properties=Properties(
                session_expiry_s=settings.session_expiry_s or None,
                receive_max=settings.receive_max,
                packet_size_max=settings.packet_bytes_max,
            ),
        )
        self._write(connect)

    def resume(self, restored: Sequence[Outgoing] = ()) -> None:
        """Go on after `Opened`; `restored` are to be published before subscriptions are made."""
        self.is_open = True
        self.outbox.extendleft(reversed(restored))
        self._restoring = len(restored)
        if not restored:
            self._make_requests()
        self._fill()

    def _make_requests(self) -> None:
        """Ask for all subscriptions that there shall be, or shall not be any more."""
        unwanted, self._unwanted = self._unwanted, []
        for each in unwanted:
            self._request(each)
        for wanted in list(self.wanted.values()):
            if not wanted.granted:
                self._request(wanted)

    def lose(self) -> None:
        """The connection is gone."""
        self._linked = self.is_open = self.is_congested = False
        self._restoring = 0
        self._clear_output()
        self._answer_due_at = math.inf
        self._again.clear()
        self._in_order.clear()
        self._under_way = 0
        self._unwanted += [each for each in self._requests.values() if isinstance(each, _Unwanted)]
        self._requests.clear()

    def disconnect(self, *, forget: bool) -> None:
        """Say goodbye; with `forget` the broker need not keep the session."""
        if self.is_open:
            properties = Properties(session_expiry_s=0 if forget else None)
            self._write(Disconnect(properties=properties))
            self.is_open = False

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Read what came. Whatever has to be said now is in `output`."""
        events: list[Event] = []
        self._heard_at = now
        for packet in self._reader.feed(data):
            if not self._linked:
                break
            if type(packet) is Publish:
                self._arrive(packet, events)
            else:
                self._take(packet, events)
        self._fill()
        return events

    def output(self, now: float) -> bytes:
        """Everything that has to be sent, once."""
        if not self._out:
            return b""
        data = b"".join(self._out)
        self._clear_output()
        self._sent_at = now
        return data

    def _clear_output(self) -> None:
        self._out.clear()
        self.output_bytes = 0

    def wake_at(self) -> float:
        """When `advance` has something to do."""
        return min(self._answer_due_at, self._ping_at())

    def advance(self, now: float) -> list[Event]:
        """Ping when it is time; say so when the broker has been silent for too long."""
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
        # Hearing nothing counts as much as saying nothing: a dead line takes what it is given.
        return min(self._sent_at, self._heard_at) + self.server.keep_alive_s * PING_AFTER

    # -- what the program wants ------------------------------------------------------------------

    def publish(self, outgoing: Outgoing) -> None:
        """Send it as soon as it may be sent."""
        self.outbox.append(outgoing)
        self._fill()

    def subscribe(self, wanted: Wanted) -> None:
        """Make a subscription, now and whenever the broker has forgotten it."""
        self.wanted[wanted.identifier] = wanted
        if self.is_open and not self._restoring:
            self._request(wanted)

    def unsubscribe(self, wanted: Wanted, answered: Answer) -> None:
        """End a subscription."""
        self.wanted.pop(wanted.identifier, None)
        unwanted = _Unwanted(wanted, answered)
        if self.is_open and not self._restoring:
            self._request(unwanted)
        else:
            self._unwanted.append(unwanted)

    def acknowledge(self, delivery: Delivery) -> None:
        """Its notification was taken. If its connection is gone, it is told when it comes again."""
        delivery.taken = True
        if delivery.connection == self._connection and self._linked:
            self._acknowledge_in_order()

    def release(self, outgoing: Outgoing, answered: Answer) -> None:
        """Send the PUBREL of one that holds; `answered` is told of PUBCOMP."""
        outgoing.holds, outgoing.released, outgoing.answered = False, True, answered
        packet_id = outgoing.publish.packet_id
        if self._inflight.get(packet_id) is not outgoing:  # of a session that the broker forgot
            answered(Reason.SUCCESS, None)
        elif self.is_open and outgoing not in self._again:
            self._write(Pubrel(packet_id))

    def release_earlier(self, packet_ids: Iterable[int], answered: Answer) -> None:
        """Before the first connection: what an earlier process had published and not released."""
        for packet_id in packet_ids:
            outgoing = Outgoing(Publish("", b"", qos=2, packet_id=packet_id), answered)
            outgoing.released = True
            self._inflight[packet_id] = outgoing

    def continue_sending(self) -> None:
        """The connection takes more again."""
        self.is_congested = False
        self._fill()

    def unfinished(self) -> list[Outgoing]:
        """All publications that nobody has answered for, in order."""
        return [*self._inflight.values(), *self.outbox]

    # -- sending ---------------------------------------------------------------------------------

    def _write(self, packet: Packet) -> None:
        self._out.append(encode(packet))

    def _fill(self) -> None:
        """Send what waits, as far as the broker's window and the connection allow."""
        window = self.server.window
        while self.is_open and not self.is_congested:
            queue = self._again or self.outbox
            if not queue:
                return
            outgoing = queue[0]
            if outgoing.publish.qos and self._under_way >= window and not outgoing.released:
                return
            queue.popleft()
            self._send(outgoing)
            if self._restoring:
                self._restoring -= 1
                if not self._restoring:
                    self._make_requests()

    def _send(self, outgoing: Outgoing) -> None:
        publish = outgoing.publish
        if outgoing.released:
            self._write(Pubrel(publish.packet_id))
            return
        if outgoing.received:
            return
        publish.dup = publish.packet_id != 0
        if publish.qos and not publish.packet_id:
            publish.packet_id = self._take_packet_id()
        data = encode(publish)
        if (fault := self._fault(publish, len(data))) is not None:
            self._inflight.pop(publish.packet_id, None)
            outgoing.answered(*fault)
            return
        self._out.append(data)
        self.output_bytes += len(data)
        if publish.qos:
            self._inflight[publish.packet_id] = outgoing
            self._under_way += 1
        else:
            outgoing.answered(Reason.SUCCESS, None)

    def _fault(self, publish: Publish, size_bytes: int) -> tuple[int, str] | None:
        """What the broker has said that it would refuse is not sent to it."""
        server = self.server
        if size_bytes > server.packet_bytes_max:
            text = (
                f"{size_bytes} bytes; the broker takes packets of {server.packet_bytes_max} at most"
            )
            return Reason.PACKET_TOO_LARGE, text
        if publish.qos > server.qos_max:
            text = f"QoS {publish.qos}; the broker knows {server.qos_max} at most"
            return Reason.QOS_NOT_SUPPORTED, text
        if publish.retain and not server.has_retain:
            return Reason.RETAIN_NOT_SUPPORTED, "the broker retains nothing"
        return None

    def _request(self, request: Wanted | _Unwanted) -> None:
        packet_id = self._take_packet_id()
        self._requests[packet_id] = request
        if isinstance(request, Wanted):
            ids = (request.identifier,) if self.server.has_subscription_ids else ()
            properties = Properties(user=request.user, subscription_ids=ids)
            self._write(Subscribe(packet_id, (request.filter,), properties))
        else:
            # The broker may have others on the same topics; brokers that do not know the
            # property have one subscription per topic filter.
            only = Properties(user=(("subscription", str(request.wanted.identifier)),))
            self._write(Unsubscribe(packet_id, (request.wanted.filter.topic_filter,), only))

    def _take_packet_id(self) -> int:
        packet_id = self._last_packet_id
        while True:
            packet_id = packet_id % PACKET_ID_MAX + 1
            if packet_id not in self._inflight and packet_id not in self._requests:
                self._last_packet_id = packet_id
                return packet_id

    # -- receiving -------------------------------------------------------------------------------

    def _arrive(self, publish: Publish, events: list[Event]) -> None:
        if not publish.qos:
            events.append(Arrived(publish, None))
            return
        packet_id = publish.packet_id
        if packet_id in self._unreleased:
            self._write(Pubrec(packet_id))
            return
        known = self._unacknowledged.get(packet_id)
        if known is not None and _is_again(publish, known.publish):
            known.connection = self._connection
            self._in_order.append(known)
            if known.taken:
                self._acknowledge_in_order()
            return
        if len(self._in_order) >= self.settings.receive_max:
            text = f"more than the {self.settings.receive_max} notifications that may be under way"
            self._give_up(Reason.RECEIVE_MAX_EXCEEDED, text, events)
            return
        delivery = Delivery(publish, self._connection)
        self._unacknowledged[packet_id] = delivery
        self._in_order.append(delivery)
        events.append(Arrived(publish, delivery))

    def _acknowledge_in_order(self) -> None:
        in_order = self._in_order
        while in_order and in_order[0].taken:
            publish = in_order.popleft().publish
            packet_id = publish.packet_id
            del self._unacknowledged[packet_id]
            if publish.qos == 1:
                self._write(Puback(packet_id))
            else:
                self._unreleased.add(packet_id)
                self._write(Pubrec(packet_id))

    def _take(self, packet: Packet | Malformed, events: list[Event]) -> None:
        match packet:
            case Puback():
                self._finished(packet.packet_id, packet.reason, packet.properties)
            case Pubcomp():
                # Its PUBREC was a yes. "Not found" only means that an earlier PUBCOMP was lost.
                self._finished(packet.packet_id, Reason.SUCCESS, packet.properties)
            case Pubrec():
                self._received(packet)
            case Pubrel():
                self._unreleased.discard(packet.packet_id)
                self._write(Pubcomp(packet.packet_id))
            case Suback() | Unsuback():
                self._answer(packet)
            case Pingresp():
                self._answer_due_at = math.inf
            case Connack():
                self._accept(packet, events)
            case Disconnect():
                self._end(packet.reason, _words(packet.properties), events)
            case Malformed():
                self._give_up(packet.reason, packet.text, events)
            case Auth():
                self._give_up(Reason.PROTOCOL_ERROR, "AUTH, which was not asked for", events)
            case _:
                name = type(packet).__name__.upper()
                self._give_up(Reason.PROTOCOL_ERROR, f"{name}, which no broker sends", events)

    def _finished(self, packet_id: int, reason: int, properties: Properties) -> None:
        """The broker has answered for a publication; answers to nothing are ignored."""
        outgoing = self._inflight.pop(packet_id, None)
        if outgoing is not None:
            self._under_way = max(0, self._under_way - 1)
            outgoing.answer = properties
            outgoing.answered(reason, _words(properties))

    def _received(self, packet: Pubrec) -> None:
        """QoS 2: the broker has the publication, or will not have it."""
        if packet.reason >= Reason.UNSPECIFIED_ERROR:
            self._finished(packet.packet_id, packet.reason, packet.properties)
        elif (outgoing := self._inflight.get(packet.packet_id)) is not None:
            if outgoing.holds:
                if not outgoing.received:
                    outgoing.received = True
                    outgoing.answered(packet.reason, _words(packet.properties))
                return
            outgoing.released = True
            self._write(Pubrel(packet.packet_id))
        else:
            self._write(Pubrel(packet.packet_id, Reason.PACKET_ID_NOT_FOUND))

    def _answer(self, packet: Suback | Unsuback) -> None:
        request = self._requests.pop(packet.packet_id, None)
        if request is None:
            return
        reason = packet.reasons[0] if packet.reasons else int(Reason.SUCCESS)
        if isinstance(request, Wanted):
            request.granted = reason < Reason.UNSPECIFIED_ERROR
            if not request.granted and self.wanted.get(request.identifier) is request:
                del self.wanted[request.identifier]
        request.answered(reason, _words(packet.properties))

    # -- the beginning and the end of a connection -----------------------------------------------

    def _accept(self, packet: Connack, events: list[Event]) -> None:
        self._answer_due_at = math.inf
        properties = packet.properties
        if packet.reason >= Reason.UNSPECIFIED_ERROR:
            events.append(Ended(packet.reason, _words(properties), refused=True))
            return
        self.server = _announced(properties, self.settings)
        self.client_id = properties.assigned_client_id or self.client_id
        self._has_been_open = True
        if packet.session_present:
            self._again = deque(self._inflight.values())
        else:
            self._start_afresh()
        events.append(Opened(packet.session_present))

    def _start_afresh(self) -> None:
        """The broker knows nothing of the session: what it had not finished begins again."""
        self._unacknowledged.clear()
        self._unreleased.clear()
        inflight, self._inflight = self._inflight, {}
        for outgoing in reversed(inflight.values()):
            if outgoing.released:  # the broker has had it; only its last word is lost
                outgoing.answered(Reason.SUCCESS, None)
            elif not outgoing.received:
                if not outgoing.holds:
                    outgoing.publish.packet_id = 0
                self.outbox.appendleft(outgoing)
        for wanted in self.wanted.values():
            wanted.granted = False
        unwanted, self._unwanted = self._unwanted, []
        for each in unwanted:
            each.answered(Reason.SUCCESS, None)

    def _end(self, reason: int, text: str | None, events: list[Event]) -> None:
        self._linked = self.is_open = False
        events.append(Ended(reason, text))

    def _give_up(self, reason: int, text: str, events: list[Event]) -> None:
        """The broker has broken a rule: tell it, and end the connection."""
        self._write(Disconnect(reason))
        self._end(reason, f"the broker sent what it may not: {text}", events)

    def _new_reader(self) -> Reader:
        settings = self.settings
        return Reader(version=V5, packet_bytes_max=settings.packet_bytes_max, from_server=True)


def _is_again(publish: Publish, known: Publish) -> bool:
    """Whether this is what came before, or a new one that was given an old packet identifier."""
    return publish.dup and publish.topic == known.topic and publish.payload == known.payload


def _words(properties: Properties) -> str | None:
    """What the broker said besides the code; where to go instead, if it said that."""
    if properties.server_reference is not None:
        return f"{properties.reason_string or 'moved'}: {properties.server_reference}"
    return properties.reason_string


def _announced(properties: Properties, settings: Settings) -> Server:
    def given(value: int | None, default: int) -> int:
        return default if value is None else value

    size_max = properties.packet_size_max
    return Server(
        window=min(given(properties.receive_max, PACKET_ID_MAX), WINDOW_MAX),
        packet_bytes_max=math.inf if size_max is None else size_max,
        qos_max=given(properties.qos_max, 2),
        has_retain=given(properties.retain_available, 1) != 0,
        has_subscription_ids=given(properties.subscription_ids_available, 1) != 0,
        keep_alive_s=given(properties.server_keep_alive_s, settings.keep_alive_s),
        is_rove=any(name == "rove" for name, _ in properties.user),
    )
