"""The bus of a world over a real broker: subscriptions and publications of one process, by MQTT.

`MqttBus` implements `rove.world.engines.bus` with one `BusConnection` for each client, server or
service that the process plays. Joining a topic is a SUBSCRIBE, placing a rectangle one with a
filter expression, replacing it one more with the same identifier, which replaces it without a gap.
The packets of a tick are collected and written to each connection at once; what arrives is kept in
a list, with its time, until the turn.

A player whose connection is lost has lost its place in the world anyway, so a lost connection ends
the process, with the reason (`rove.live.connections`).

Subscription identifiers show by which subscription a message was found. All clients give the same
topic the same identifier: the broker then encodes a notification once for all of them.

Differences to the bus in process are those of a network: a publication reaches nobody before a
later turn; the order is that of arrival; and a rectangle moves from the moment at which the broker
accepts it, so a moving one is larger by its way in `LATE_S`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np

from rove.client.addresses import Address
from rove.client.protocol import (
    RECEIVE_MAX,
    PacketReader,
    Protocol,
    ProtocolSettings,
    subscribe_packet,
    unsubscribe_packet,
)
from rove.errors import RoveError
from rove.live.connections import DirectConnection, some_at_a_time
from rove.match.designs.design import Evolve
from rove.mqtt.decoder import PACKET_BYTES_MAX
from rove.mqtt.encoder import encode
from rove.mqtt.packets import Filter, Malformed, Packet, Publish
from rove.mqtt.properties import write_text, write_varint
from rove.world.engines.bus import (
    EXACT,
    Deliveries,
    EngineCounters,
    Rectangles,
    area_text,
    topic_text,
)
from rove.world.engines.engine_kernels import tally
from rove.world.engines.messages import Messages, parse_payloads, payloads
from rove.world.runs.state import Floats, Ints, WorldError

LATE_S: Final = 0.1
"""How much later than it was computed the broker may accept a rectangle that moves."""
_CONNECT_S_MAX: Final = 30.0
_NUMBER_BITS: Final = 20
_TABLES_MAX: Final = 4
_GENERATIONS: Final = 63
"""So many buses can be told apart on one connection; then their identifiers come again."""
_EVERYTHING: Final = (1 << _NUMBER_BITS) - 1
_NEVER_RETAINED: Final = 2
_KNOWN_MAX: Final = 5_000

Clock = Callable[[], float]


class BusConnectionError(RoveError):
    """A connection to the broker cannot be, or is no more."""


class Arrival(NamedTuple):
    """A message that has come, and by which subscription it was found."""

    payload: bytes
    topic_bytes: int
    receiver: int
    subscription: int
    at_s: float
    retained: bool
    again: bool
    """Whether it is the same notification, found by a further subscription."""


class ArrivalRoute(NamedTuple):
    """Where the notifications of a subscription go."""

    inbox: list[Arrival]
    topic_filter: str
    number: int
    """The topic or the rectangle that was subscribed to ..."""
    number_of: Callable[[str], int] | None = None
    """... unless it is to be read from the topic of each notification."""


# -- reading ------------------------------------------------------------------------------


class PacketSplitter:
    """Cuts the bytes of a connection into packets, without looking into them."""

    def __init__(self) -> None:
        self._rest = b""

    def cut(self, data: bytes) -> list[bytes]:
        """The packets that these bytes complete; a length that cannot be is left to the reader."""
        if self._rest:
            data = self._rest + data
        packets = []
        at, end = 0, len(data)
        while end - at >= 2:
            size, shift, start = data[at + 1] & 0x7F, 7, at + 2
            while data[start - 1] & 0x80 and shift <= 21 and start < end:
                size |= (data[start] & 0x7F) << shift
                shift, start = shift + 7, start + 1
            if data[start - 1] & 0x80:
                if shift <= 21:
                    break
                size = 0  # there is no such length, and the reader says so
            if start + size > end:
                break
            packets.append(data[at : start + size])
            at = start + size
        self._rest = data[at:]
        return packets


class PacketCache:
    """Notifications that were read lately: others in the same process get the same bytes."""

    def __init__(self) -> None:
        self._packets: dict[bytes, Publish] = {}
        self.get: Final = self._packets.get

    def put(self, raw: bytes, packet: Publish) -> None:
        """Remember one; when there are many, all others are forgotten."""
        if len(self._packets) >= _KNOWN_MAX:
            self._packets.clear()
        self._packets[raw] = packet


class CachingReader:
    """A reader that does not decode what another connection of this process has decoded."""

    def __init__(self, known: PacketCache, reader: PacketReader) -> None:
        self._known = known
        self._reader = reader
        self._cutter = PacketSplitter()

    def feed(self, data: bytes) -> list[Packet | Malformed]:
        packets: list[Packet | Malformed] = []
        for raw in self._cutter.cut(data):
            known = self._known.get(raw)
            if known is not None:
                packets.append(known)
                continue
            for packet in self._reader.feed(raw):
                packets.append(packet)
                if type(packet) is Publish:
                    self._known.put(raw, packet)
        return packets


# -- one connection -----------------------------------------------------------------------


class BusConnection(DirectConnection):
    """One connection: sends collected packets on request and sorts arriving ones."""

    error = BusConnectionError

    def __init__(
        self, number: int, client_id: str, clock: Clock, known: PacketCache | None = None
    ) -> None:
        """`number` is that of the subscriber on the bus; links of one process share `known`."""
        super().__init__(_settings(client_id), clock)
        self.number: Final = number
        self.routes: Final[dict[int, ArrivalRoute]] = {}
        self.lost: Callable[[BusConnectionError], None] | None = None
        """Is told when the connection is lost or the broker refuses something."""
        self._known = PacketCache() if known is None else known

    async def open(self, address: Address, *, tls: ssl.SSLContext | bool | None = None) -> None:
        """Connect, and be let in."""
        if address.is_websocket:
            raise BusConnectionError(
                f"{address}: the world speaks mqtt:// or mqtts://, not WebSocket"
            )
        password = None if address.password is None else address.password.encode()
        self.protocol = Protocol(_settings(self.client_id, address.user_name, password))
        loop = asyncio.get_running_loop()
        context = (tls or True) if address.is_tls else None
        try:
            async with asyncio.timeout(_CONNECT_S_MAX):
                await loop.create_connection(lambda: self, address.host, address.port, ssl=context)
                await self.settle()
        except OSError as error:
            what = "does not answer" if isinstance(error, TimeoutError) else str(error)
            raise BusConnectionError(
                f"{self.client_id} cannot connect to {address}: {what}"
            ) from None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.protocol.reader = CachingReader(self._known, self.protocol.reader)

    def say(self, data: bytes) -> None:
        """Have it sent with the next `flush`."""
        self.protocol.write_bytes(data)

    def subscribe(
        self,
        identifier: int,
        route: ArrivalRoute,
        *,
        text: str | None = None,
        evolve: str | None = None,
        retained: bool = True,
    ) -> None:
        """Subscribe, or put this in the place of what has the same identifier."""
        self.routes[identifier] = route
        given = (("filter", text), ("evolve", evolve))
        user = tuple((name, value) for name, value in given if value is not None)
        wanted = Filter(route.topic_filter, retain_handling=0 if retained else _NEVER_RETAINED)
        self.ask(subscribe_packet((wanted,), identifier, user))

    def unsubscribe(self, identifier: int) -> None:
        """End a subscription; what is under way by it is passed over."""
        route = self.routes.pop(identifier)
        self.ask(unsubscribe_packet((route.topic_filter,), identifier))

    # -- what comes ----------------------------------------------------------------------

    def arrived(self, publish: Publish, now: float) -> None:
        again = False
        topic = publish.topic
        for identifier in publish.properties.subscription_ids:
            route = self.routes.get(identifier)
            if route is not None:
                number = route.number if route.number_of is None else route.number_of(topic)
                arrival = Arrival(
                    publish.payload, len(topic), self.number, number, now, publish.retain, again
                )
                route.inbox.append(arrival)
                again = True

    def failed(self, error: RoveError) -> None:
        if self.lost is not None:
            self.lost(BusConnectionError(str(error)))


def _settings(
    client_id: str, user_name: str | None = None, password: bytes | None = None
) -> ProtocolSettings:
    return ProtocolSettings(
        client_id,
        user_name,
        password,
        keep_alive_s=0,
        receive_max=RECEIVE_MAX,
        packet_bytes_max=PACKET_BYTES_MAX,
        answer_timeout_s=_CONNECT_S_MAX,
    )


async def open_connections(
    links: Iterable[BusConnection], address: Address, *, tls: ssl.SSLContext | bool | None = None
) -> None:
    """Connect them all."""
    await some_at_a_time(list(links), lambda link: link.open(address, tls=tls))


# -- the bus ------------------------------------------------------------------------------


class Arrivals(NamedTuple):
    """What came in the last turn, one line for each notification that was not retained."""

    message: Ints
    """Its line in the messages of the turn."""
    receiver: Ints
    at_s: Floats


class MqttBus:
    """A `rove.world.engines.bus.Bus` over connections to a broker."""

    def __init__(self, links: Mapping[int, BusConnection], root: str, generation: int = 0) -> None:
        """`links` by their numbers; topics begin with `root`. Buses on the same links at the same
        time differ in both root and generation.
        """
        if not links:
            raise WorldError("a bus over MQTT needs a connection")
        self.counters = EngineCounters()
        self.arrivals = Arrivals(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0))
        self._links = links
        self._only = next(iter(links.values())) if len(links) == 1 else None
        self._root = root
        self._generation = generation % _GENERATIONS
        self._tables: dict[str, _MqttTopicTable | _MqttAreaTable] = {}
        self._inbox: list[Arrival] = []
        self._at = -np.inf

    # -- tables --------------------------------------------------------------------------

    def topics(self, table: str, form: str, *, retained: bool = False) -> None:
        """Make a topic table."""
        self._tables[table] = _MqttTopicTable(self._form(form), self._identifiers(table), retained)

    def areas(self, table: str, form: str, evolve: Evolve = EXACT) -> None:
        """Make an area table."""
        self._tables[table] = _MqttAreaTable(self._form(form), self._identifiers(table), evolve)

    def _form(self, form: str) -> str:
        return self._root + form.removeprefix("world")

    def _identifiers(self, table: str) -> int:
        """Where the subscription identifiers of a new table begin."""
        if table in self._tables:
            raise WorldError(f"there is already a table {table}; names are given once")
        if len(self._tables) == _TABLES_MAX:
            raise WorldError(f"a bus over MQTT has {_TABLES_MAX} tables at most")
        return (self._generation * _TABLES_MAX + len(self._tables) << _NUMBER_BITS) + 1

    def _topic_table(self, name: str) -> _MqttTopicTable:
        table = self._tables.get(name)
        if not isinstance(table, _MqttTopicTable):
            raise WorldError(f"there is no topic table {name}")
        return table

    def _area_table(self, name: str) -> _MqttAreaTable:
        table = self._tables.get(name)
        if not isinstance(table, _MqttAreaTable):
            raise WorldError(f"there is no area table {name}")
        return table

    def _link(self, number: int) -> BusConnection:
        try:
            return self._links[number]
        except KeyError:
            raise WorldError(f"subscriber {number} has no connection in this process") from None

    # -- topics --------------------------------------------------------------------------

    def join(self, table: str, subscribers: Ints, topics: Ints) -> None:
        """Subscribers join topics, pair by pair."""
        here = self._topic_table(table)
        for subscriber, topic in zip(subscribers.tolist(), topics.tolist(), strict=True):
            if (topic, subscriber) not in here.joined:
                here.joined.add((topic, subscriber))
                route = ArrivalRoute(self._inbox, here.topic(topic), topic)
                self._link(subscriber).subscribe(here.identifier(topic), route)
                self._subscribed(1)

    def leave(self, table: str, subscribers: Ints, topics: Ints) -> None:
        """Subscribers leave topics, pair by pair."""
        here = self._topic_table(table)
        for subscriber, topic in zip(subscribers.tolist(), topics.tolist(), strict=True):
            if (topic, subscriber) in here.joined:
                here.joined.remove((topic, subscriber))
                self._link(subscriber).unsubscribe(here.identifier(topic))
                self._unsubscribed(1)

    def join_all(self, table: str, subscriber: int) -> None:
        """One subscriber gets everything in a topic table."""
        here = self._topic_table(table)
        if subscriber not in here.everywhere:
            here.everywhere.add(subscriber)
            route = ArrivalRoute(
                self._inbox, here.form.replace("{}", "+"), _EVERYTHING, here.number_of
            )
            identifier = here.identifier(_EVERYTHING)
            self._link(subscriber).subscribe(identifier, route, retained=False)
            self._subscribed(1)

    def publish(self, table: str, topics: Ints, messages: Messages) -> None:
        """Publish each message under a topic."""
        here = self._topic_table(table)
        if len(topics) != len(messages):
            raise WorldError(f"{len(messages)} messages were given {len(topics)} topics")
        numbers = topics.tolist()
        if here.retained:
            here.kept.update(numbers)
        heads = [here.head(number) for number in numbers]
        self._publish(heads, messages, 0x31 if here.retained else 0x30)

    # -- areas ---------------------------------------------------------------------------

    def place(
        self,
        table: str,
        numbers: Ints,
        x: Floats,
        y: Floats,
        reach_x: float | Floats,
        reach_y: float | Floats,
        *,
        vx: float | Floats = 0.0,
        vy: float | Floats = 0.0,
        since: float | Floats = 0.0,
        receivers: Ints | None = None,
    ) -> None:
        """Put rectangles, or replace those of these numbers."""
        here = self._area_table(table)
        values = np.empty((len(numbers), 7))
        for column, value in enumerate((x, y, reach_x, reach_y, vx, vy, since)):
            values[:, column] = value
        to = numbers if receivers is None else receivers
        for number, receiver, row in zip(
            numbers.tolist(), to.tolist(), values.tolist(), strict=True
        ):
            self._place(here, number, receiver, tuple(row))

    def _place(
        self, here: _MqttAreaTable, number: int, receiver: int, values: tuple[float, ...]
    ) -> None:
        before = here.placed.get(number)
        if before is not None:
            self._unsubscribed(1)
            if before[0] != receiver:
                self._link(before[0]).unsubscribe(here.identifier(number, before[0]))
        here.placed[number] = (receiver, values)
        x, y, reach_x, reach_y, vx, vy, _ = values
        moves = vx != 0.0 or vy != 0.0
        reach_x, reach_y = reach_x + abs(vx) * LATE_S, reach_y + abs(vy) * LATE_S
        self._link(receiver).subscribe(
            here.identifier(number, receiver),
            ArrivalRoute(self._inbox, here.form, number),
            text=area_text(x, y, reach_x, reach_y, vx, vy),
            evolve=here.evolve if moves else None,
        )
        self._subscribed(1)

    def lift(self, table: str, numbers: Ints) -> None:
        """Take rectangles away."""
        here = self._area_table(table)
        for number in numbers.tolist():
            if number in here.placed:
                receiver, _ = here.placed.pop(number)
                self._link(receiver).unsubscribe(here.identifier(number, receiver))
                self._unsubscribed(1)

    def publish_at(self, table: str, messages: Messages, at: float) -> None:
        """Publish each message at its (x, y)."""
        self._pass_time(at)
        self._publish([self._area_table(table).head] * len(messages), messages, 0x30)

    # -- turns ---------------------------------------------------------------------------

    def flush(self) -> None:
        """Send what was collected."""
        for link in self._links.values():
            link.flush()

    def turn(self, at: float) -> Deliveries:
        """Hand out everything that has arrived since the last turn."""
        self._pass_time(at)
        # Routes hold on to the list, so it is emptied and not replaced.
        arrived = [arrival for arrival in self._inbox if arrival.payload]
        self._inbox.clear()
        places: dict[bytes, int] = {}
        lines = [places.setdefault(arrival.payload, len(places)) for arrival in arrived]
        messages = parse_payloads(list(places))
        message = np.array(lines, np.int32)
        receiver = np.array([arrival.receiver for arrival in arrived], np.int32)
        subscription = np.array([arrival.subscription for arrival in arrived], np.int32)
        self._note(arrived, messages, message, receiver)
        order = np.lexsort((subscription, receiver, message))
        return Deliveries(at, messages, message[order], receiver[order], subscription[order])

    def _note(
        self, arrived: list[Arrival], messages: Messages, message: Ints, receiver: Ints
    ) -> None:
        """Count notifications, and when they came."""
        first = np.flatnonzero([not arrival.again for arrival in arrived])
        size = np.array([len(one.payload) + one.topic_bytes for one in arrived], np.int64)
        whats = messages.what[message[first]]
        counters = self.counters
        one_each = np.ones(len(first), np.int64)
        tally(whats, one_each, size[first], counters.delivered, counters.delivered_bytes)
        fresh = first[[not arrived[line].retained for line in first.tolist()]]
        at_s = np.array([arrived[line].at_s for line in fresh.tolist()])
        self.arrivals = Arrivals(message[fresh], receiver[fresh], at_s)

    def close(self) -> None:
        """End all subscriptions, and have the broker forget what it retains for this bus."""
        for table in self._tables.values():
            for link, identifier in table.subscriptions(self._links):
                link.unsubscribe(identifier)
            for data in table.forgetting():
                next(iter(self._links.values())).say(data)
        self.flush()

    # -- asking --------------------------------------------------------------------------

    def joined(self, table: str) -> tuple[Ints, Ints]:
        """(topics, subscribers) of a topic table, ascending."""
        pairs = np.array(sorted(self._topic_table(table).joined), np.int32).reshape(-1, 2)
        return pairs[:, 0].copy(), pairs[:, 1].copy()

    def placed(self, table: str) -> Rectangles:
        """The rectangles of an area table, by ascending number."""
        placed = self._area_table(table).placed
        numbers = sorted(placed)
        receivers = np.array([placed[number][0] for number in numbers], np.int32)
        values = np.array([placed[number][1] for number in numbers]).reshape(-1, 7)
        return Rectangles(np.array(numbers, np.int32), receivers, *values.T)

    # -- inside --------------------------------------------------------------------------

    def _publish(self, heads: list[bytes], messages: Messages, first: int) -> None:
        texts = payloads(messages)
        start = bytes((first,))
        packets = [
            start + write_varint(len(head) + len(text)) + head + text
            for head, text in zip(heads, texts, strict=True)
        ]
        if self._only is not None:
            self._only.say(b"".join(packets))
        else:
            for packet, sender in zip(packets, messages.sender.tolist(), strict=True):
                self._link(sender).say(packet)
        # Before a topic stand two bytes with its length, after it one for no properties.
        sizes = np.array([len(head) - 3 for head in heads], np.int64)
        sizes += np.array(list(map(len, texts)), np.int64)
        counters = self.counters
        one_each = np.ones(len(messages), np.int64)
        tally(messages.what, one_each, sizes, counters.published, counters.published_bytes)

    def _subscribed(self, count: int) -> None:
        self.counters.subscribes += count
        self.counters.subscriptions += count

    def _unsubscribed(self, count: int) -> None:
        self.counters.unsubscribes += count
        self.counters.subscriptions -= count

    def _pass_time(self, at: float) -> None:
        if not at >= self._at:
            raise WorldError(f"it is {at} s after it was {self._at} s; time never goes back")
        self._at = at


class _MqttTopicTable:
    """A topic table: who of this process has joined what."""

    def __init__(self, form: str, identifiers_from: int, retained: bool) -> None:
        if form.count("{}") != 1:
            raise WorldError(f"the form {form} of a topic has no place or many for a number, {{}}")
        self.form = form
        self.retained = retained
        self.joined: set[tuple[int, int]] = set()
        self.everywhere: set[int] = set()
        self.kept: set[int] = set()
        """Topics for which the broker retains something that was published here."""
        self._identifiers_from = identifiers_from
        self._heads: dict[int, bytes] = {}
        before, _, after = form.partition("{}")
        self._number = slice(len(before), -len(after) or None)

    def topic(self, number: int) -> str:
        return topic_text(self.form, number)

    def number_of(self, topic: str) -> int:
        return int(topic[self._number])

    def identifier(self, number: int) -> int:
        return self._identifiers_from + number

    def head(self, number: int) -> bytes:
        """What stands before the payload in a PUBLISH, after its first two fields."""
        head = self._heads.get(number)
        if head is None:
            head = self._heads[number] = write_text(self.topic(number)) + b"\0"
        return head

    def subscriptions(self, links: Mapping[int, BusConnection]) -> list[tuple[BusConnection, int]]:
        pairs = [(links[who], self.identifier(topic)) for topic, who in sorted(self.joined)]
        wild = self.identifier(_EVERYTHING)
        return pairs + [(links[who], wild) for who in sorted(self.everywhere)]

    def forgetting(self) -> list[bytes]:
        """Packets that have the broker forget what it retains."""
        return [encode(Publish(self.topic(number), b"", 0, True)) for number in sorted(self.kept)]


class _MqttAreaTable:
    """An area table: the rectangles of this process."""

    def __init__(self, form: str, identifiers_from: int, evolve: Evolve) -> None:
        self.form = form
        time = "" if evolve.seconds is None else f" {evolve.seconds * 1000:g}ms"
        self.evolve = f"{evolve.design}{time}"
        self.head = write_text(form) + b"\0"
        self.placed: dict[int, tuple[int, tuple[float, ...]]] = {}
        """Receiver, and the rectangle as it was placed."""
        self._identifiers_from = identifiers_from

    def identifier(self, number: int, receiver: int) -> int:
        """Who has one rectangle only needs no number to tell it by."""
        return self._identifiers_from + (0 if number == receiver else number + 1)

    def subscriptions(self, links: Mapping[int, BusConnection]) -> list[tuple[BusConnection, int]]:
        return [
            (links[receiver], self.identifier(number, receiver))
            for number, (receiver, _) in sorted(self.placed.items())
        ]

    def forgetting(self) -> list[bytes]:
        return []
