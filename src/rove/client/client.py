"""The client: what a program publishes, subscribes to and says of itself, over one line.

`connect` is the door. A program that is cut off need not notice: publications wait in the outbox,
subscriptions are made again, and what the broker queued comes in order. What cannot be mended (the
session was taken over, the broker refuses who we are) is raised wherever the program is waiting.
"""

from __future__ import annotations

import asyncio
import math
import os
import ssl
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Literal, Self, TypeVar, get_args, overload

import msgspec

from rove.client.addresses import DEFAULT_URL, parse_address
from rove.client.errors import (
    ClientClosed,
    ClientError,
    FilterError,
    PublishRefused,
    SubscribeRefused,
    in_words,
)
from rove.client.ids import MAKER_DIGITS, IdMaker
from rove.client.line import Line
from rove.client.me import TOPIC as ME_TOPIC
from rove.client.me import Me, report
from rove.client.notifications import ID, reader_into
from rove.client.opening import Opening
from rove.client.options import (
    Connection,
    Options,
    OutboxPolicy,
    Will,
    check_slow,
    payload_of,
)
from rove.client.outbox import Room
from rove.client.protocol import Delivery, Outgoing, Protocol, Wanted
from rove.client.routes import Identity, Route, Routes
from rove.client.subscription import Slow, Subscription
from rove.lang.errors import TextError
from rove.lang.parser import parse
from rove.mqtt.packets import Filter, Properties, Publish, Reason
from rove.mqtt.topics import filter_fault, name_fault, text_fault

T = TypeVar("T")
Engine = Literal["broker", "spark"]
"""Who finds what meets a filter: the broker as it comes, or Spark in what the lake has of it."""
UNPUBLISH_TOPIC: Final = "$rove/unpublish"
PAYLOAD_BYTES_MAX: Final = 256_000_000
"""A little less than fits into a packet, so that topic and properties always fit beside it."""
EXPIRY_S_MAX: Final = 0xFFFF_FFFF
DRAIN_S: Final = 5.0
"""How long `close` waits for publications that nobody has answered for."""
SEEN_MAX: Final = 4_096
"""Ids of notifications that a subscription remembers, to know again what comes twice."""


class Published(msgspec.Struct, frozen=True):
    """A publication that the broker has taken (QoS 0: that was sent)."""

    id: str
    has_subscribers: bool = True
    """False if the broker said that nobody wants it now."""
    user: Mapping[str, str] = {}
    """User properties of the broker's answer, if it has any."""


def connect(
    url: str = DEFAULT_URL,
    *,
    client_id: str | None = None,
    user_name: str | None = None,
    password: str | None = None,
    session_expiry_s: int = 300,
    clean_start: bool | None = None,
    keep_alive_s: int = 30,
    tls: ssl.SSLContext | bool | None = None,
    will: Will | None = None,
    on_connection: Callable[[Connection], object] | None = None,
    on_slow: Slow = "wait",
    receive_max: int = 1_000,
    outbox_max: int = 10_000,
    outbox_bytes_max: int = 16 * 1024 * 1024,
    outbox_full: OutboxPolicy = "wait",
    timeout_s: float = 10.0,
    retry_s_max: float = 30.0,
) -> Opening[Client]:
    """Connect to a broker: `client = await connect(…)`, or `async with connect(…) as client`.

    Without `client_id` the session is this object's and ends with it. With one, a session of that
    name is found again, with its subscriptions and what was queued for them (unless `clean_start`),
    and outlives `close` by `session_expiry_s`.
    """
    options = Options(
        address=parse_address(url),
        client_id=client_id,
        user_name=user_name,
        password=password,
        session_expiry_s=session_expiry_s,
        clean_start=clean_start,
        keep_alive_s=keep_alive_s,
        tls=tls,
        will=will,
        on_connection=on_connection,
        on_slow=on_slow,
        receive_max=receive_max,
        outbox_max=outbox_max,
        outbox_bytes_max=outbox_bytes_max,
        outbox_full=outbox_full,
        timeout_s=timeout_s,
        retry_s_max=retry_s_max,
    )
    options.check()
    return Opening(partial(_open, options))


async def _open(options: Options) -> Client:
    client = Client(options)
    await client._line.open()
    return client


class Client:
    """A connected client; made by `connect`. Not to be shared between threads (see `sync`)."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._session = Protocol(options.settings())
        self._line = Line(options, self._session, self)
        self._loop = asyncio.get_running_loop()
        self._ids = IdMaker(os.urandom(MAKER_DIGITS // 2).hex())
        self._room = Room(
            options.outbox_max, options.outbox_bytes_max, waits=options.outbox_full == "wait"
        )
        self._routes = Routes(self._session.acknowledge)
        self._error: ClientError | None = None
        self._claims: asyncio.TimerHandle | None = None
        self.me = Me(self._send_me)
        """The subscriber's own variables; see `rove.client.me`."""

    @property
    def client_id(self) -> str:
        """As it was chosen, or as the broker gave it."""
        return self._session.client_id

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection at this moment. Publishing and subscribing need none."""
        return self._session.is_open

    @property
    def is_closed(self) -> bool:
        """Whether it is of no more use: closed, or ended by the broker."""
        return self._error is not None

    @property
    def waiting(self) -> int:
        """Publications that the broker has not answered for."""
        return self._room.count

    @property
    def unclaimed(self) -> int:
        """Notifications of an earlier program's subscriptions, dropped as this one made none."""
        return self._routes.unclaimed_dropped

    # -- publishing ------------------------------------------------------------------------------

    async def publish(
        self,
        topic: str,
        value: object,
        *,
        qos: int = 1,
        retain: bool = False,
        id: str | None = None,
        valid_for: float | Literal["forever"] | None = None,
        expiry_s: int | None = None,
        user: Mapping[str, str] | None = None,
    ) -> Published:
        """Publish; returns when the broker has taken it (QoS 0: when it was sent).

        Bytes are sent as they are, everything else as JSON. `valid_for` keeps it for subscriptions
        that are made later; `expiry_s` bounds how long it may wait for who is away. `id` names
        it; the same id again is the same publication. PublishRefused if the broker refuses it.
        """
        packet, id = self._packet(topic, value, qos, retain, id, valid_for, expiry_s, user)
        return await (await self._post(packet, id))

    async def post(
        self,
        topic: str,
        value: object,
        *,
        qos: int = 1,
        retain: bool = False,
        id: str | None = None,
        valid_for: float | Literal["forever"] | None = None,
        expiry_s: int | None = None,
        user: Mapping[str, str] | None = None,
    ) -> asyncio.Future[Published]:
        """Publish without waiting for the broker: returns when there is room in the outbox.

        What is returned can be awaited for the broker's answer. For many publications in a row:
        a thousand are then under way at once, instead of one.
        """
        packet, id = self._packet(topic, value, qos, retain, id, valid_for, expiry_s, user)
        return await self._post(packet, id)

    async def unpublish(self, id: str) -> None:
        """Withdraw a publication of this client: it is delivered to nobody any more."""
        packet, _ = self._packet(UNPUBLISH_TOPIC, id.encode(), 1, False, None, None, None, None)
        await (await self._post(packet, id))

    def _packet(
        self,
        topic: str,
        value: object,
        qos: int,
        retain: bool,
        id: str | None,
        valid_for: float | Literal["forever"] | None,
        expiry_s: int | None,
        user: Mapping[str, str] | None,
    ) -> tuple[Publish, str]:
        """The packet and its id; what can be known to be wrong is refused here."""
        if (fault := name_fault(topic)) is not None:
            raise PublishRefused(fault, Reason.TOPIC_NAME_INVALID)
        if qos not in (0, 1, 2):
            raise PublishRefused(f"QoS is {qos}; it may be 0, 1 or 2", Reason.QOS_NOT_SUPPORTED)
        payload = payload_of(value)
        if len(payload) > PAYLOAD_BYTES_MAX:
            text = f"{len(payload)} bytes of payload; MQTT carries {PAYLOAD_BYTES_MAX} at most"
            raise PublishRefused(text, Reason.PACKET_TOO_LARGE)
        if expiry_s is not None and not 0 <= expiry_s <= EXPIRY_S_MAX:
            text = f"expiry_s is {expiry_s}; it may be 0 to {EXPIRY_S_MAX}"
            raise PublishRefused(text, Reason.PROTOCOL_ERROR)
        if id is None:
            id = self._ids.make(time.time_ns() // 1_000_000)
        properties = [(ID, id)]
        if valid_for is not None:
            properties.append(("valid-for", _validity(valid_for)))
        properties += user.items() if user is not None else ()
        for name, text in properties:
            if (fault := text_fault(name) or text_fault(text)) is not None:
                raise PublishRefused(f"the user property {name!r} {fault}", Reason.PROTOCOL_ERROR)
        return (
            Publish(
                topic,
                payload,
                qos,
                retain,
                properties=Properties(user=tuple(properties), message_expiry_s=expiry_s),
            ),
            id,
        )

    async def _post(self, packet: Publish, id: str) -> asyncio.Future[Published]:
        self._check_usable()
        size_bytes = len(packet.payload) + len(packet.topic)
        if not self._room.take_now(size_bytes):
            await self._room.take(size_bytes)
            self._check_usable()
        self.me.flush()
        outgoing, receipt = self._outgoing(packet, id)
        self._session.publish(outgoing)
        if self._line.flush_if_much():
            await asyncio.sleep(0)  # or a loop that only publishes would never let us read
        return receipt

    def _outgoing(self, packet: Publish, id: str) -> tuple[Outgoing, asyncio.Future[Published]]:
        receipt: asyncio.Future[Published] = self._loop.create_future()

        def answered(reason: int, text: str | None) -> None:
            self._room.give(outgoing.size_bytes)
            if receipt.done():
                return
            if self._error is not None:
                receipt.set_exception(self._error)
            elif reason >= Reason.UNSPECIFIED_ERROR:
                what = _WHAT.get(packet.topic, f"the publication on {packet.topic!r}")
                receipt.set_exception(
                    PublishRefused(f"{what} was refused: {in_words(reason, text)}", reason)
                )
            else:
                wanted = reason != Reason.NO_MATCHING_SUBSCRIBERS
                receipt.set_result(Published(id, wanted, dict(outgoing.answer.user)))

        outgoing = Outgoing(packet, answered)
        return outgoing, receipt

    def _send_me(self, payload: bytes) -> asyncio.Future[Published]:
        """A change of `me`. It takes no turn in the outbox: there are few, and they are small."""
        self._check_usable()
        outgoing, receipt = self._about_me(payload)
        self._session.publish(outgoing)
        self._line.flush_soon()
        return receipt

    def _about_me(self, payload: bytes) -> tuple[Outgoing, asyncio.Future[Published]]:
        self._room.add(len(payload) + len(ME_TOPIC))
        id = self._ids.make(time.time_ns() // 1_000_000)
        packet = Publish(ME_TOPIC, payload, 1, properties=Properties(user=((ID, id),)))
        return self._outgoing(packet, id)

    # -- subscribing -----------------------------------------------------------------------------

    @overload
    def subscribe(
        self,
        topic: str,
        filter: str | None = None,
        *,
        qos: int = ...,
        evolve: str | None = ...,
        engine: Engine | None = ...,
        slow: Slow | None = ...,
        inbox_max: int = ...,
        no_local: bool = ...,
        retained: Literal["always", "new", "never"] = ...,
    ) -> Opening[Subscription[Any]]: ...

    @overload
    def subscribe(
        self,
        topic: str,
        filter: str | None = None,
        *,
        into: type[T],
        qos: int = ...,
        evolve: str | None = ...,
        engine: Engine | None = ...,
        slow: Slow | None = ...,
        inbox_max: int = ...,
        no_local: bool = ...,
        retained: Literal["always", "new", "never"] = ...,
    ) -> Opening[Subscription[T]]: ...

    def subscribe(
        self,
        topic: str,
        filter: str | None = None,
        *,
        into: Any = Any,
        qos: int = 1,
        evolve: str | None = None,
        engine: Engine | None = None,
        slow: Slow | None = None,
        inbox_max: int = 1_000,
        no_local: bool = False,
        retained: Literal["always", "new", "never"] = "always",
    ) -> Opening[Subscription[Any]]:
        """Subscribe to topics, and of these to what a text of the language says.

        Await it, or enter it with `async with`; leaving unsubscribes. A bad text raises
        FilterError at once. `into` is what `notification.value` is read as: a msgspec struct or
        any type that msgspec reads, `dict`, or `bytes` for the payload as it is. `slow` says what
        happens when notifications come faster than they are taken (`rove.client.subscription`).
        With `engine="spark"` a pipeline over the broker's lake finds what is wanted, seconds later.
        """
        self._check_usable()
        slow = self._options.on_slow if slow is None else slow
        check_slow(slow, "slow")
        handling = _RETAINED.get(retained)
        if handling is None:
            raise SubscribeRefused(f"retained is {retained!r}; it may be {', '.join(_RETAINED)}")
        if qos not in (0, 1, 2) or inbox_max < 1:
            raise SubscribeRefused(f"qos is 0, 1 or 2 (not {qos}), inbox_max 1 at least")
        if (fault := filter_fault(topic)) is not None:
            raise SubscribeRefused(fault, Reason.TOPIC_FILTER_INVALID)
        subscription = Subscription(
            self,
            topic,
            filter,
            reader_into(into),
            slow=slow,
            inbox_max=inbox_max,
            seen_max=SEEN_MAX,
        )
        asked = Filter(topic, qos, no_local, retain_handling=handling)
        identity = (topic, _user_properties(filter, evolve, engine))
        return Opening(partial(self._subscribe, subscription, asked, identity))

    async def _subscribe(
        self, subscription: Subscription[T], asked: Filter, identity: Identity
    ) -> Subscription[T]:
        self._check_usable()
        self.me.flush()
        route = self._routes.find(identity)
        if route is None:
            wanted = Wanted(self._routes.identifier(identity), asked, identity[1], _nobody)
            route = Route(identity, wanted)
            wanted.answered = partial(self._answered, route)
            self._routes.add(route)
        elif asked.qos < route.wanted.filter.qos:
            asked = msgspec.structs.replace(asked, qos=route.wanted.filter.qos)
        route.wanted.filter = asked
        route.join(subscription)
        self._routes.claim(self._loop.time())
        answer: asyncio.Future[None] = self._loop.create_future()
        route.asking.append(answer)
        self._session.subscribe(route.wanted)
        self._line.flush_soon()
        try:
            await answer
        except asyncio.CancelledError:
            await subscription.close()
            raise
        return subscription

    def _answered(self, route: Route, reason: int, text: str | None) -> None:
        """The broker has answered to a subscription, made for the first time or again."""
        asking, route.asking = route.asking, []
        if reason < Reason.UNSPECIFIED_ERROR:
            for answer in asking:
                if not answer.done():
                    answer.set_result(None)
            return
        self._routes.remove(route)
        what = f"the subscription to {route.identity[0]!r} was refused"
        error = SubscribeRefused(f"{what}: {in_words(reason, text)}", reason)
        for answer in asking:
            if not answer.done():
                answer.set_exception(error)
        for subscription in route.subscriptions:
            subscription.end(error)

    def leave(self, subscription: Subscription[Any]) -> asyncio.Future[None]:
        """For a subscription: end it at the broker. Done at once while there is no connection."""
        left: asyncio.Future[None] = self._loop.create_future()
        for route in self._routes:
            if subscription in route.subscriptions:
                route.leave(subscription)
                if not route.subscriptions and self._error is None:
                    self._routes.remove(route)
                    self._session.unsubscribe(route.wanted, lambda *_: _settle(left))
                    self._line.flush_soon()
                    if self._session.is_open:
                        return left
        _settle(left)
        return left

    def taken(self, delivery: Delivery) -> None:
        """For a subscription: a notification was handed over."""
        delivery.untaken -= 1
        if delivery.untaken <= 0:
            self._session.acknowledge(delivery)
            self._line.flush_soon()

    # -- for the line ----------------------------------------------------------------------------

    def arrived(self, publish: Publish, delivery: Delivery | None) -> None:
        """A notification has come."""
        self._routes.arrive(publish, delivery, self._loop.time())

    def opened(self, session_present: bool) -> Outgoing | None:
        """There is a connection; what a broker without our session has to be told first."""
        if session_present:
            until = self._routes.expect_claims(self._loop.time())
            if self._claims is not None:
                self._claims.cancel()
            self._claims = self._loop.call_at(until, self._give_up_claims)
            return None
        payload = self.me.snapshot()
        if payload is None:
            return None
        outgoing, receipt = self._about_me(payload)
        receipt.add_done_callback(report)
        return outgoing

    def finished(self, error: ClientError) -> None:
        """The line has ended for good: whoever waits for something is told."""
        if self._error is not None:
            return
        self._error = error
        if self._claims is not None:
            self._claims.cancel()
        self._room.fail(error)
        for outgoing in self._session.unfinished():
            outgoing.answered(Reason.UNSPECIFIED_ERROR, None)
        for route in self._routes:
            for answer in route.asking:
                if not answer.done():
                    answer.set_exception(error)
            for subscription in route.subscriptions:
                subscription.end(None if isinstance(error, ClientClosed) else error)

    def _give_up_claims(self) -> None:
        self._routes.give_up_unclaimed()
        self._line.flush_soon()

    def _check_usable(self) -> None:
        if self._error is not None:
            raise self._error

    # -- ending ----------------------------------------------------------------------------------

    async def close(self, *, forget: bool | None = None, drain_s: float = DRAIN_S) -> None:
        """Disconnect, after what was published was acknowledged (or `drain_s` have passed).

        With `forget` the session ends, with its subscriptions and its queue; without, it stays
        for `session_expiry_s`. By default it stays if the client id was chosen.
        """
        if self.is_closed:
            return
        self.me.flush()
        if self._session.is_open:
            await self._room.emptied(drain_s)
        self.finished(ClientClosed("the client was closed"))
        forget = self._options.client_id is None if forget is None else forget
        await self._line.close(forget=forget)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        state = "connected" if self.is_connected else "closed" if self._error else "away"
        return f"Client({str(self._options.address)!r}, client_id={self.client_id!r}, {state})"


_WHAT: Final = {UNPUBLISH_TOPIC: "unpublishing", ME_TOPIC: "a change of `me`"}
_RETAINED: Final = {"always": 0, "new": 1, "never": 2}


def _validity(valid_for: float | Literal["forever"]) -> str:
    if valid_for == "forever":
        return "forever"
    try:
        seconds = float(valid_for)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        text = f"valid_for is {valid_for!r}; it may be a number of seconds above 0, or 'forever'"
        raise PublishRefused(text, Reason.PROTOCOL_ERROR)
    return f"{seconds:.15g}"


def _user_properties(
    filter: str | None, evolve: str | None, engine: Engine | None
) -> tuple[tuple[str, str], ...]:
    """What a subscription says besides its topic; a bad text is refused without the broker."""
    properties: list[tuple[str, str]] = []
    if filter is not None:
        try:
            parse(filter)
        except TextError as error:
            raise FilterError(*error.args) from None
        properties.append(("filter", filter))
    if evolve is not None:
        if filter is None:
            raise SubscribeRefused("evolve says how a filter evolves, and there is no filter")
        properties.append(("evolve", evolve))
    if engine is not None:
        if engine not in get_args(Engine):
            raise SubscribeRefused(f"there is no engine {engine!r}; there is broker and spark")
        if filter is None:
            raise SubscribeRefused("engine says who matches a filter, and there is no filter")
        properties.append(("engine", engine))
    return tuple(properties)


def _nobody(_reason: int, _text: str | None) -> None:
    """Nobody waits for this answer."""


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
