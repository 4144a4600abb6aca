"""One MQTT session over successive connections: the state that `rove.client.protocol` does not
keep.

What survives a lost connection, and how:

    publications    wait in `outbox` until the broker's receive maximum allows them, in order.
                    Those that were sent and not acknowledged are sent again: with the same packet
                    identifier and DUP if the broker has kept the session, otherwise as new ones
                    with the same `id`, by which the broker and subscribers recognise them.
    subscriptions   are made again if the broker has lost the session.
    notifications   that were not acknowledged are sent again by the broker. They are recognised by
                    their packet identifier, and the program does not get them twice.

Acknowledgements are sent in the order in which notifications arrived, as the specification
requires: one that is not taken holds back those after it. A publication of QoS 2 counts against the
broker's receive maximum until PUBCOMP; the broker's answer to it is in PUBREC.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from rove.client.protocol import (
    DeliveryToken,
    Event,
    Protocol,
    ProtocolSettings,
    PublishReceived,
    Response,
    subscribe_packet,
    unsubscribe_packet,
    words,
)
from rove.mqtt.encoder import encode
from rove.mqtt.packets import (
    NO_PROPERTIES,
    Connack,
    Filter,
    Malformed,
    Packet,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Reason,
)

Answer = Callable[[int, str | None], None]
"""Called with the reason code and the broker's text, if it has sent any."""


# -- requests in progress ----------------------------------------------------------------------


class Outgoing:
    """A publication on its way to the broker."""

    __slots__ = (
        "answer",
        "answered",
        "holds",
        "publish",
        "reason",
        "received",
        "released",
        "size_bytes",
    )

    def __init__(self, publish: Publish, answered: Answer, *, holds: bool = False) -> None:
        self.publish = publish
        """With a packet identifier, if the caller chooses them."""
        self.answered = answered
        self.holds = holds
        """QoS 2: `answered` is called on PUBREC, and `ClientSession.release` must be called."""
        self.received = False
        """With `holds`: the broker has it."""
        self.reason: int = Reason.SUCCESS
        """QoS 2: the reason in PUBREC."""
        self.answer = NO_PROPERTIES
        """The properties of the broker's answer, once there is one."""
        self.released = False
        """QoS 2: the broker has it, and PUBREL was sent."""
        self.size_bytes = len(publish.payload) + len(publish.topic)


class SubscriptionRequest:
    """A subscription that the session should have."""

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


class _UnsubscribeRequest:
    """A subscription that shall end."""

    __slots__ = ("answered", "request")

    def __init__(self, request: SubscriptionRequest, answered: Answer) -> None:
        self.request = request
        self.answered = answered


# -- the session -------------------------------------------------------------------------------


class ClientSession(Protocol):
    """The state of one session."""

    def __init__(self, settings: ProtocolSettings) -> None:
        super().__init__(settings)
        self.outbox: deque[Outgoing] = deque()
        """Publications that were not sent yet, or must be sent as new."""
        self.requests: dict[int, SubscriptionRequest] = {}
        """By identifier."""
        self.is_congested = False
        """Set by the shell while the socket accepts no more bytes."""
        self.output_bytes = 0
        """The size of the publications in the next `output`."""
        self._is_resumed = False
        """On this connection."""
        self._connection = 0
        self._inflight: dict[int, Outgoing] = {}
        """Sent and not acknowledged, by packet identifier, in the order of sending."""
        self._again: deque[Outgoing] = deque()
        """Those of them that were not sent on this connection yet."""
        self._under_way = 0
        """How many of them count against the broker's receive maximum."""
        self._unsubscribing: list[_UnsubscribeRequest] = []
        """To be sent on the next connection, or not answered yet on this one."""
        self._restoring = 0
        """How many publications at the head of the outbox must be sent before any SUBSCRIBE."""
        self._unacknowledged: dict[int, DeliveryToken] = {}
        self._in_order: deque[DeliveryToken] = deque()
        self._unreleased: set[int] = set()
        """Packet identifiers of QoS 2 that were taken and the broker has not released."""

    # -- connections ---------------------------------------------------------------------------

    def open(self, now: float) -> None:
        """A connection was opened: send CONNECT."""
        self._connection += 1
        self._is_resumed = False
        super().open(now)

    def resume(self, restored: Sequence[Outgoing] = ()) -> None:
        """Continue after `Opened`; `restored` is published before subscriptions are made."""
        self._is_resumed = True
        self.outbox.extendleft(reversed(restored))
        self._restoring = len(restored)
        if not restored:
            self._make_requests()
        self._fill()

    def _make_requests(self) -> None:
        """Send every SUBSCRIBE and UNSUBSCRIBE that the broker has not answered."""
        for unsubscribing in self._unsubscribing:
            self._request_end(unsubscribing)
        for request in list(self.requests.values()):
            if not request.granted:
                self._request(request)

    def lose(self) -> None:
        """The connection was lost."""
        super().lose()
        self.is_congested = False
        self._restoring = 0
        self._again.clear()
        self._in_order.clear()
        self._under_way = 0

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Take bytes that arrived. Bytes to send because of them are in `output`."""
        events = super().receive(data, now)
        self._fill()
        return events

    def _clear_output(self) -> None:
        super()._clear_output()
        self.output_bytes = 0

    @property
    def _makes_requests(self) -> bool:
        return self.is_open and self._is_resumed and not self._restoring

    # -- for the program --------------------------------------------------------------------------

    def publish(self, outgoing: Outgoing) -> None:
        """Send a publication as soon as the broker allows it."""
        self.outbox.append(outgoing)
        self._fill()

    def subscribe(self, request: SubscriptionRequest) -> None:
        """Make a subscription, now and again whenever the broker has lost the session."""
        self.requests[request.identifier] = request
        if self._makes_requests:
            self._request(request)

    def unsubscribe(self, request: SubscriptionRequest, answered: Answer) -> None:
        """End a subscription."""
        self.requests.pop(request.identifier, None)
        unsubscribing = _UnsubscribeRequest(request, answered)
        self._unsubscribing.append(unsubscribing)
        if self._makes_requests:
            self._request_end(unsubscribing)

    def acknowledge(self, delivery: DeliveryToken) -> None:
        """A notification was taken. If its connection is lost, it is acknowledged when it is sent
        again."""
        delivery.taken = True
        if delivery.connection == self._connection and self._linked:
            self._acknowledge_in_order()

    def release(self, outgoing: Outgoing, answered: Answer) -> None:
        """Send the PUBREL of a publication that holds; `answered` is called on PUBCOMP."""
        outgoing.holds, outgoing.released, outgoing.answered = False, True, answered
        packet_id = outgoing.publish.packet_id
        if self._inflight.get(packet_id) is not outgoing:  # of a session that the broker has lost
            answered(Reason.SUCCESS, None)
        elif self.is_open and outgoing not in self._again:
            self.write(Pubrel(packet_id))

    def release_earlier(self, packet_ids: Iterable[int], answered: Answer) -> None:
        """Before the first connection: release what an earlier process published and did not
        release."""
        for packet_id in packet_ids:
            outgoing = Outgoing(Publish("", b"", qos=2, packet_id=packet_id), answered)
            outgoing.released = True
            self._inflight[packet_id] = outgoing

    def continue_sending(self) -> None:
        """The socket accepts bytes again."""
        self.is_congested = False
        self._fill()

    def unfinished(self) -> list[Outgoing]:
        """All publications without an answer, in order."""
        return [*self._inflight.values(), *self.outbox]

    # -- sending ---------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Send waiting publications, as far as the broker's window and the socket allow."""
        window = self.server.window
        while self.is_open and self._is_resumed and not self.is_congested:
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
            self.write(Pubrel(publish.packet_id))
            return
        if outgoing.received:
            return
        publish.dup = publish.packet_id != 0
        if publish.qos and not publish.packet_id:
            publish.packet_id = self.take_packet_id()
        data = encode(publish, self.settings.version)
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
        """Why the broker would refuse a publication, by the limits that it announced."""
        server = self.server
        if size_bytes > server.packet_bytes_max:
            text = f"a publication may have {server.packet_bytes_max} bytes, this has {size_bytes}"
            return Reason.PACKET_TOO_LARGE, text
        if publish.qos > server.qos_max:
            text = f"QoS {publish.qos}; the broker supports {server.qos_max} at most"
            return Reason.QOS_NOT_SUPPORTED, text
        if publish.retain and not server.has_retain:
            return Reason.RETAIN_NOT_SUPPORTED, "the broker retains nothing"
        return None

    def _request(self, request: SubscriptionRequest) -> None:
        identifier = request.identifier if self.server.has_subscription_ids else None
        packet = subscribe_packet((request.filter,), identifier, request.user)
        self.ask(packet, partial(self._subscribed, request))

    def _request_end(self, unsubscribing: _UnsubscribeRequest) -> None:
        request = unsubscribing.request
        packet = unsubscribe_packet((request.filter.topic_filter,), request.identifier)
        self.ask(packet, partial(self._unsubscribed, unsubscribing))

    def _subscribed(self, request: SubscriptionRequest, packet: Response) -> None:
        reason = reason_of(packet)
        request.granted = reason < Reason.UNSPECIFIED_ERROR
        if not request.granted and self.requests.get(request.identifier) is request:
            del self.requests[request.identifier]
        request.answered(reason, words(packet.properties))

    def _unsubscribed(self, unsubscribing: _UnsubscribeRequest, packet: Response) -> None:
        self._unsubscribing.remove(unsubscribing)
        unsubscribing.answered(reason_of(packet), words(packet.properties))

    def _is_used(self, packet_id: int) -> bool:
        return packet_id in self._inflight or super()._is_used(packet_id)

    # -- receiving -------------------------------------------------------------------------------

    def _arrive(self, publish: Publish, events: list[Event]) -> None:
        if not self._is_allowed(publish, events):
            return
        if not publish.qos:
            events.append(PublishReceived(publish, None))
            return
        packet_id = publish.packet_id
        if packet_id in self._unreleased:
            self.write(Pubrec(packet_id))
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
        delivery = DeliveryToken(publish, self._connection)
        self._unacknowledged[packet_id] = delivery
        self._in_order.append(delivery)
        events.append(PublishReceived(publish, delivery))

    def _acknowledge_in_order(self) -> None:
        in_order = self._in_order
        while in_order and in_order[0].taken:
            publish = in_order.popleft().publish
            packet_id = publish.packet_id
            del self._unacknowledged[packet_id]
            if publish.qos == 1:
                self.write(Puback(packet_id))
            else:
                self._unreleased.add(packet_id)
                self.write(Pubrec(packet_id))

    def _take(self, packet: Packet | Malformed, events: list[Event]) -> None:
        match packet:
            case _ if not self.is_open:
                super()._take(packet, events)
            case Puback() if packet.packet_id in self._inflight:
                self._finished(packet.packet_id, packet.reason, packet.properties)
            case Pubcomp():
                self._completed(packet)
            case Pubrec():
                self._received(packet)
            case Pubrel():
                self._unreleased.discard(packet.packet_id)
                self.write(Pubcomp(packet.packet_id))
            case _:
                super()._take(packet, events)

    def _finished(self, packet_id: int, reason: int, properties: Properties) -> None:
        """The broker has answered for a publication; unexpected answers are ignored."""
        outgoing = self._inflight.pop(packet_id, None)
        if outgoing is not None:
            self._under_way = max(0, self._under_way - 1)
            outgoing.answer = properties
            outgoing.answered(reason, words(properties))

    def _completed(self, packet: Pubcomp) -> None:
        """QoS 2: the broker has released the packet identifier.

        Its PUBREC accepted the publication. "Not found" only means that a PUBCOMP was lost.
        """
        outgoing = self._inflight.get(packet.packet_id)
        if outgoing is not None:
            self._finished(packet.packet_id, outgoing.reason, outgoing.answer)

    def _received(self, packet: Pubrec) -> None:
        """QoS 2: the broker has the publication, or refuses it."""
        outgoing = self._inflight.get(packet.packet_id)
        if packet.reason >= Reason.UNSPECIFIED_ERROR:
            self._finished(packet.packet_id, packet.reason, packet.properties)
        elif outgoing is None:
            self.write(Pubrel(packet.packet_id, Reason.PACKET_ID_NOT_FOUND))
        else:
            outgoing.reason, outgoing.answer = packet.reason, packet.properties
            if not outgoing.holds:
                outgoing.released = True
                self.write(Pubrel(packet.packet_id))
            elif not outgoing.received:
                outgoing.received = True
                outgoing.answered(packet.reason, words(packet.properties))

    # -- the beginning and the end of a connection -----------------------------------------------

    def _accept(self, packet: Connack, events: list[Event]) -> None:
        super()._accept(packet, events)
        if not self.is_open:
            return
        if packet.session_present:
            self._again = deque(self._inflight.values())
        else:
            self._start_afresh()

    def _start_afresh(self) -> None:
        """The broker has lost the session: send unfinished publications and subscriptions again."""
        self._unacknowledged.clear()
        self._unreleased.clear()
        inflight, self._inflight = self._inflight, {}
        for outgoing in reversed(inflight.values()):
            if outgoing.released:  # the broker has taken it; only the PUBCOMP is missing
                outgoing.answered(outgoing.reason, words(outgoing.answer))
            elif not outgoing.received:
                if not outgoing.holds:
                    outgoing.publish.packet_id = 0
                self.outbox.appendleft(outgoing)
        for request in self.requests.values():
            request.granted = False
        unsubscribing, self._unsubscribing = self._unsubscribing, []
        for each in unsubscribing:
            each.answered(Reason.SUCCESS, None)


def _is_again(publish: Publish, known: Publish) -> bool:
    """Whether this is the same publication again, or another with a reused packet identifier."""
    return publish.dup and publish.topic == known.topic and publish.payload == known.payload


def reason_of(packet: Response) -> int:
    """The reason code of an answer; of several, the worst."""
    if isinstance(packet, Puback):
        return packet.reason
    return max(packet.reasons, default=int(Reason.SUCCESS))
