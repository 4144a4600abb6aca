"""The client: publishes, subscribes, and sets variables and policies over one connection.

Programs begin with `connect`. They need not notice a lost connection: publications wait in the
outbox, subscriptions are made again, and what the broker queued arrives in order. An error that
reconnecting cannot mend (the session was taken over, the broker refuses the user) is raised
wherever the program waits.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Literal, Self, TypeVar, overload

import msgspec

from rove.client.addresses import DEFAULT_URL, parse_address
from rove.client.connection import PersistentConnection
from rove.client.errors import (
    ClientClosed,
    ClientError,
    PolicyRefused,
    PublishRefused,
    SubscribeRefused,
    in_words,
)
from rove.client.me import TOPIC as ME_TOPIC
from rove.client.me import Me, log_refusal
from rove.client.notifications import ID, reader_into
from rove.client.opener import Opener
from rove.client.options import (
    ClientOptions,
    Connection,
    OutboxPolicy,
    Will,
    check_slow,
    payload_of,
    validity,
)
from rove.client.outbox import MAKER_DIGITS, IdGenerator, OutboxQuota
from rove.client.policies import TOPIC as POLICY_TOPIC
from rove.client.policies import (
    DeviceContext,
    PolicyNotice,
    Runs,
    SessionPolicy,
    check_carried,
    check_runs,
    compiled,
)
from rove.client.protocol import DeliveryToken
from rove.client.reports import TOPIC as REPORT_TOPIC
from rove.client.reports import Reports, Source
from rove.client.session import ClientSession, Outgoing, SubscriptionRequest
from rove.client.subscription import Slow, Subscription
from rove.client.subscription_table import (
    Engine,
    Identity,
    SubscriptionGroup,
    SubscriptionTable,
    identity_of,
)
from rove.client.variables import Variables
from rove.mqtt.packets import Filter, Properties, Publish, Reason
from rove.mqtt.topics import filter_fault, name_fault, text_fault

T = TypeVar("T")
CONTROL: Final = "$rove/"
"""Topics of messages between client and broker itself."""
UNPUBLISH_TOPIC: Final = "$rove/unpublish"
PAYLOAD_BYTES_MAX: Final = 256_000_000
"""A little less than fits into a packet, which leaves room for topic and properties."""
EXPIRY_S_MAX: Final = 0xFFFF_FFFF
DRAIN_S: Final = 5.0
"""How long `close` waits for answers to publications."""
SEEN_MAX: Final = 4_096
"""Ids of notifications that a subscription remembers, to detect duplicates."""


class Published(msgspec.Struct, frozen=True):
    """A publication that the broker has accepted (QoS 0: that was sent)."""

    id: str
    has_subscribers: bool = True
    """False if the broker has reported that no subscription matches it now."""
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
    on_policy: Callable[[PolicyNotice], object] | None = None,
    on_slow: Slow = "wait",
    report: Source | None = None,
    report_every_s: float | None = None,
    receive_max: int = 1_000,
    outbox_max: int = 10_000,
    outbox_bytes_max: int = 16 * 1024 * 1024,
    outbox_full: OutboxPolicy = "wait",
    timeout_s: float = 10.0,
    retry_s_max: float = 30.0,
) -> Opener[Client]:
    """Connect to a broker: `client = await connect(…)`, or `async with connect(…) as client`.

    Without `client_id`, the session belongs to this object and ends with it. With one, an existing
    session of that name is resumed, with its subscriptions and their queues (unless `clean_start`),
    and it outlives `close` by `session_expiry_s`. `report` starts `Client.report`; `on_policy` is
    called with every notice of `Client.policy_notices` and of policies that run here.
    """
    options = ClientOptions(
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
        on_policy=on_policy,
        on_slow=on_slow,
        report=report,
        report_every_s=report_every_s,
        receive_max=receive_max,
        outbox_max=outbox_max,
        outbox_bytes_max=outbox_bytes_max,
        outbox_full=outbox_full,
        timeout_s=timeout_s,
        retry_s_max=retry_s_max,
    )
    options.check()
    return Opener(partial(_open, options))


async def _open(options: ClientOptions) -> Client:
    client = Client(options)
    await client._connection.open()
    try:
        if options.report is not None:
            await client.report(options.report, options.report_every_s)
        if (on_policy := options.on_policy) is not None:
            notices = await client.policy_notices()
            notices.listen(lambda notification: on_policy(notification.value))
    except BaseException:
        await client.close()
        raise
    return client


class Client:
    """A connected client; made by `connect`. Not to be shared between threads (see `sync`)."""

    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        self._session = ClientSession(options.settings())
        self._connection = PersistentConnection(options, self._session, self)
        self._loop = asyncio.get_running_loop()
        self._ids = IdGenerator(os.urandom(MAKER_DIGITS // 2).hex())
        self._room = OutboxQuota(
            options.outbox_max, options.outbox_bytes_max, waits=options.outbox_full == "wait"
        )
        self._table = SubscriptionTable(self._session.acknowledge)
        self._error: ClientError | None = None
        self._claims: asyncio.TimerHandle | None = None
        self.me = Me(partial(self._tell, ME_TOPIC))
        """The subscriber's own variables; see `rove.client.me`."""
        self._policy = SessionPolicy()
        self._reports = Reports(partial(self._tell, REPORT_TOPIC), self._is_heard)
        self._edge = DeviceContext(self.me, self._reports, options.on_policy)

    @property
    def client_id(self) -> str:
        """As the program or the broker has chosen it."""
        return self._session.client_id

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now. Publishing and subscribing work without one."""
        return self._session.is_open

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or ended by the broker, and is of no more use."""
        return self._error is not None

    @property
    def waiting(self) -> int:
        """How many publications the broker has not answered."""
        return self._room.count

    @property
    def unclaimed(self) -> int:
        """Notifications that were dropped because they belong to subscriptions of an earlier
        program which this one has not made."""
        return self._table.unclaimed_dropped

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
        """Publish; returns when the broker has accepted it (QoS 0: when it was sent).

        Bytes are sent as they are, everything else as JSON. `valid_for` keeps it for subscriptions
        that are made later; `expiry_s` limits how long it may wait for clients that are away. A
        publication with the same `id` is the same publication. PublishRefused if the broker
        refuses it.
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

        The result can be awaited for the broker's answer. Use it for many publications in a row:
        a thousand are then in flight at once, instead of one.
        """
        packet, id = self._packet(topic, value, qos, retain, id, valid_for, expiry_s, user)
        return await self._post(packet, id)

    async def unpublish(self, id: str) -> None:
        """Withdraw a publication of this client: the broker stops delivering it."""
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
        """The packet and its id; invalid arguments are refused here."""
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
            properties.append(("valid-for", validity(valid_for)))
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
        if self._connection.flush_if_much():
            await asyncio.sleep(
                0
            )  # otherwise a loop that only publishes would never let the client read
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
                kind = PolicyRefused if packet.topic == POLICY_TOPIC else PublishRefused
                words = f"{what} was refused: {in_words(reason, text)}"
                receipt.set_exception(kind(words, reason))
            else:
                wanted = reason != Reason.NO_MATCHING_SUBSCRIBERS
                receipt.set_result(Published(id, wanted, dict(outgoing.answer.user)))

        outgoing = Outgoing(packet, answered)
        return outgoing, receipt

    def _tell(
        self, topic: str, payload: bytes, user: tuple[tuple[str, str], ...] = ()
    ) -> asyncio.Future[Published]:
        """Send a message to the broker itself. It does not wait for room: these are few and
        small."""
        self._check_usable()
        outgoing, receipt = self._control(topic, payload, user)
        self._session.publish(outgoing)
        self._connection.flush_soon()
        return receipt

    def _control(
        self, topic: str, payload: bytes, user: tuple[tuple[str, str], ...] = ()
    ) -> tuple[Outgoing, asyncio.Future[Published]]:
        self._room.add(len(payload) + len(topic))
        id = self._ids.make(time.time_ns() // 1_000_000)
        packet = Publish(topic, payload, 1, properties=Properties(user=((ID, id), *user)))
        return self._outgoing(packet, id)

    # -- policies and the state of the subscriber --------------------------------------------------

    async def set_policy(
        self, text: str, subscription: Subscription[Any] | int | None = None
    ) -> None:
        """Set the policy of the session, or of one of its subscriptions.

        It replaces an earlier one, which stays if PolicyRefused is raised; that error names the
        fault and its place. A subscription of an earlier program is given by its identifier.
        """
        compiled(text)
        await self._set_policy(text, subscription)

    async def remove_policy(self, subscription: Subscription[Any] | int | None = None) -> None:
        """Remove a policy; a subscription then has that of the session."""
        await self._set_policy("", subscription)

    async def _set_policy(self, text: str, subscription: Subscription[Any] | int | None) -> None:
        self._check_usable()
        if isinstance(subscription, Subscription) and subscription.policy is not None:
            subscription.policy.replace(text)
            return
        self.me.flush()
        holder: SessionPolicy | SubscriptionGroup = self._policy
        user: tuple[tuple[str, str], ...] = ()
        if subscription is not None:
            number = subscription if isinstance(subscription, int) else subscription.identifier
            user = (("subscription", str(number)),)
            check_carried(text)
            found = self._table.of(subscription)
            if found is None and not isinstance(subscription, int):
                raise PolicyRefused(f"{subscription!r} has ended; a policy needs one that has not")
            holder = found or SessionPolicy()
        before, holder.policy = holder.policy, text
        try:
            await self._tell(POLICY_TOPIC, text.encode(), user)
        except PolicyRefused:
            if holder.policy == text:
                holder.policy = before
            raise

    def policy_notices(self) -> Opener[Subscription[PolicyNotice]]:
        """Subscribe to the broker's notices about this subscriber's policies."""
        return self.subscribe(POLICY_TOPIC, into=PolicyNotice)

    def variables(self) -> Opener[Variables]:
        """Watch all variables that the broker keeps for this subscriber."""
        self._check_usable()
        return Opener(self._variables)

    async def _variables(self) -> Variables:
        # QoS 0: states from while we were away are of no interest and need not be queued.
        state = await self.subscribe(
            ME_TOPIC, into=dict[str, Any], qos=0, slow="drop-oldest", inbox_max=1
        )
        return await Variables(state).begin(self._options.timeout_s)

    async def report(self, source: Source | None = None, every_s: float | None = None) -> None:
        """Report the automatic variables of this device, now and regularly.

        `source` returns them; without one, only the number of received notifications is reported.
        Without `every_s` the broker chooses the interval, by default 30 s. Returns when the broker
        has the first report. A second call replaces the source.
        """
        self._check_usable()
        await self._reports.start(source, every_s)

    def _is_heard(self) -> bool:
        return self._session.is_open and self._session.server.is_rove

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
        policy: str | None = ...,
        policy_runs: Runs = ...,
        slow: Slow | None = ...,
        inbox_max: int = ...,
        no_local: bool = ...,
        retained: Literal["always", "new", "never"] = ...,
    ) -> Opener[Subscription[Any]]: ...

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
        policy: str | None = ...,
        policy_runs: Runs = ...,
        slow: Slow | None = ...,
        inbox_max: int = ...,
        no_local: bool = ...,
        retained: Literal["always", "new", "never"] = ...,
    ) -> Opener[Subscription[T]]: ...

    def subscribe(
        self,
        topic: str,
        filter: str | None = None,
        *,
        into: Any = Any,
        qos: int = 1,
        evolve: str | None = None,
        engine: Engine | None = None,
        policy: str | None = None,
        policy_runs: Runs = "broker",
        slow: Slow | None = None,
        inbox_max: int = 1_000,
        no_local: bool = False,
        retained: Literal["always", "new", "never"] = "always",
    ) -> Opener[Subscription[Any]]:
        """Subscribe to topics, with a filter expression to the publications that match it.

        Await it, or enter it with `async with`; leaving unsubscribes. An invalid expression raises
        FilterError at once. `into` is the type of `notification.value`: a msgspec struct or any
        type that msgspec reads, `dict`, or `bytes` for the payload as it is. `slow` chooses what
        happens if notifications arrive faster than they are taken (`rove.client.subscription`).
        With `engine="spark"` a pipeline over the broker's lake matches instead, seconds later.
        `policy` decides about every matching publication; with `policy_runs="here"` it runs in this
        process (`rove.client.edge`) instead of in the broker.
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
        check_runs(policy, policy_runs)
        edge = None
        if policy is not None and policy_runs == "here":
            from rove.client.edge import EdgePolicy

            edge, policy = EdgePolicy(policy, self._edge), None
        subscription = Subscription(
            self,
            topic,
            filter,
            reader_into(into),
            slow=slow,
            inbox_max=inbox_max,
            seen_max=SEEN_MAX,
            policy=edge,
        )
        asked = Filter(topic, qos, no_local, retain_handling=handling)
        identity = identity_of(topic, filter, evolve, engine, policy)
        return Opener(partial(self._subscribe, subscription, asked, identity))

    async def _subscribe(
        self, subscription: Subscription[T], asked: Filter, identity: Identity
    ) -> Subscription[T]:
        self._check_usable()
        self.me.flush()
        self._table.check(identity)
        group = self._table.find(identity)
        if group is None:
            request = SubscriptionRequest(
                self._table.identifier(identity), asked, identity[1], _nobody
            )
            group = SubscriptionGroup(identity, request)
            request.answered = partial(self._answered, group)
            self._table.add(group)
        elif asked.qos < group.request.filter.qos:
            asked = msgspec.structs.replace(asked, qos=group.request.filter.qos)
        group.request.filter = asked
        subscription.identifier = group.request.identifier
        group.join(subscription)
        self._table.claim(self._loop.time())
        answer: asyncio.Future[None] = self._loop.create_future()
        group.pending.append(answer)
        self._session.subscribe(group.request)
        self._connection.flush_soon()
        try:
            await answer
        except asyncio.CancelledError:
            await subscription.close()
            raise
        return subscription

    def _answered(self, group: SubscriptionGroup, reason: int, text: str | None) -> None:
        """The broker has answered a SUBSCRIBE, the first or a repeated one."""
        pending, group.pending = group.pending, []
        if reason < Reason.UNSPECIFIED_ERROR:
            for answer in pending:
                if not answer.done():
                    answer.set_result(None)
            return
        self._table.remove(group)
        what = f"the subscription to {group.identity[0]!r} was refused"
        error = SubscribeRefused(f"{what}: {in_words(reason, text)}", reason)
        for answer in pending:
            if not answer.done():
                answer.set_exception(error)
        for subscription in group.subscriptions:
            subscription.end(error)

    def leave(self, subscription: Subscription[Any]) -> asyncio.Future[None]:
        """For a subscription: end it at the broker. Without a connection, that is done at once."""
        left: asyncio.Future[None] = self._loop.create_future()
        for group in self._table:
            if subscription in group.subscriptions:
                group.leave(subscription)
                if not group.subscriptions and self._error is None:
                    self._table.remove(group)
                    self._session.unsubscribe(group.request, lambda *_: _settle(left))
                    self._connection.flush_soon()
                    if self._session.is_open:
                        return left
        _settle(left)
        return left

    def taken(self, delivery: DeliveryToken) -> None:
        """For a subscription: the program has taken a notification."""
        delivery.untaken -= 1
        if delivery.untaken <= 0:
            self._session.acknowledge(delivery)
            self._connection.flush_soon()

    # -- for the connection ----------------------------------------------------------------------

    def arrived(self, publish: Publish, delivery: DeliveryToken | None) -> None:
        """A notification has arrived."""
        topic = publish.topic
        # Messages of the broker itself do not count as notifications.
        if topic.startswith(CONTROL) or self._reports.came(len(publish.payload) + len(topic)):
            self._table.arrive(publish, delivery, self._loop.time())
        elif delivery is not None:
            self._session.acknowledge(delivery)

    def opened(self, session_present: bool) -> list[Outgoing]:
        """A connection was opened; what to send first to a broker that has lost our session."""
        self._edge.connected_at = time.time()
        self._edge.knows_me = self._session.server.is_rove
        self._reports.connected()
        if session_present:
            until = self._table.expect_claims(self._loop.time())
            if self._claims is not None:
                self._claims.cancel()
            self._claims = self._loop.call_at(until, self._give_up_claims)
            return []
        first = [(ME_TOPIC, self.me.snapshot()), (REPORT_TOPIC, self._reports.restored())]
        first.append((POLICY_TOPIC, self._policy.policy.encode()))
        told = []
        for topic, payload in first:
            if payload:
                outgoing, receipt = self._control(topic, payload)
                receipt.add_done_callback(log_refusal)
                told.append(outgoing)
        return told

    def finished(self, error: ClientError) -> None:
        """There will be no further connection: raise this error for everyone who waits."""
        if self._error is not None:
            return
        self._error = error
        self._reports.stop()
        if self._claims is not None:
            self._claims.cancel()
        self._room.fail(error)
        for outgoing in self._session.unfinished():
            outgoing.answered(Reason.UNSPECIFIED_ERROR, None)
        for group in self._table:
            for answer in group.pending:
                if not answer.done():
                    answer.set_exception(error)
            for subscription in group.subscriptions:
                subscription.end(None if isinstance(error, ClientClosed) else error)

    def _give_up_claims(self) -> None:
        self._table.give_up_unclaimed()
        self._connection.flush_soon()

    def _check_usable(self) -> None:
        if self._error is not None:
            raise self._error

    # -- ending ----------------------------------------------------------------------------------

    async def close(self, *, forget: bool | None = None, drain_s: float = DRAIN_S) -> None:
        """Disconnect once all publications are acknowledged, or after `drain_s`.

        With `forget` the session ends, with its subscriptions and its queue; otherwise it stays
        for `session_expiry_s`. By default it stays if the program has chosen the client id.
        """
        if self.is_closed:
            return
        self.me.flush()
        if self._session.is_open:
            await self._room.emptied(drain_s)
        self.finished(ClientClosed("the client was closed"))
        forget = self._options.client_id is None if forget is None else forget
        await self._connection.close(forget=forget)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        state = "connected" if self.is_connected else "closed" if self._error else "away"
        return f"Client({str(self._options.address)!r}, client_id={self.client_id!r}, {state})"


_WHAT: Final = {
    UNPUBLISH_TOPIC: "unpublishing",
    ME_TOPIC: "a change of `me`",
    POLICY_TOPIC: "the policy",
    REPORT_TOPIC: "a report",
}
_RETAINED: Final = {"always": 0, "new": 1, "never": 2}


def _nobody(_reason: int, _text: str | None) -> None:
    """Ignores an answer."""


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
