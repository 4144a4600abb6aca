"""A client's session and everything that belongs to it: connection, subscriptions, policies, queue.

These types refer to each other (a session has subscriptions, a subscription its session), so they
stand together. They hold state and decide nothing; other modules do that.

A session outlives its connection for as long as the client asked for (CUPUS: a subscriber stays
*registered* while it is *disconnected*). One that does is *durable*: everything in it is kept in
the journal. One that ends with its connection is never written.

Notifications of QoS 1 and 2 are entries of a queue. An entry is given a packet identifier when it
is sent, is then *in flight*, and goes when the client has acknowledged it.

A policy has a *slot* at its session or at one subscription: an agent (`rove.policy.agents`) and, in
order, the *pending decisions*, which are notifications that wait for the agent. Each has everything
that is needed to go on with it later. A session gets a `SubscriberContext` with its first policy or
its first report; sessions without one cost nothing.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from rove.broker.access import Identity
from rove.broker.publications.publication import Publication
from rove.broker.sessions.aliases import Aliases
from rove.broker.storage.records import (
    PendingDecisionRow,
    QueueRow,
    SessionRow,
    SubscriptionRow,
    queue_key,
)
from rove.broker.subscriptions.interest import Interest, Spent, SubscriptionKey, key_of
from rove.lang.errors import visible
from rove.lang.tree import Attribute
from rove.mqtt.decoder import PacketDecoder
from rove.mqtt.encoder import encode_within
from rove.mqtt.packets import V5, V311, Connect, Filter, Malformed, Packet, Properties, Will
from rove.mqtt.topics import split_shared
from rove.policy.accounts import Account
from rove.policy.agents import Agent
from rove.policy.automatic_variables import SentCounter
from rove.policy.jobs import CallJob, CompressionRequest, CompressionResult
from rove.policy.limits import PolicyLimits
from rove.policy.messages import IncomingMessage, UserProperties
from rove.policy.view import PolicyView

ALIASES_NONE: dict[int, str] = {}
PACKET_ID_MAX: Final = 65_535
POLICY: Final = "$rove/policy"
"""The topic on which a client sets a policy and gets notices about it."""
Select = tuple[Attribute, ...] | None


# -- connections ------------------------------------------------------------------------------


class Link:
    """One connection; the fields above the line are the shell's to read or write."""

    __slots__ = (
        "aliases",
        "authenticating",
        "buffered_bytes",
        "closing",
        "connected_at",
        "deadline",
        "heard_at",
        "held",
        "identity",
        "inflight_max",
        "is_http_publisher",
        "is_paused",
        "is_publisher",
        "keep_alive_s",
        "moved_at",
        "name",
        "needs_care",
        "open_publishes",
        "out",
        "packet_bytes_max",
        "peer",
        "pending",
        "reader",
        "seen_bytes",
        "sent_aliases",
        "session",
        "stuck_at",
        "takes_lines",
        "version",
        "waits_for",
        "wants_problems",
        "welcomed_by",
    )

    def __init__(self, name: str, now: float, packet_bytes_max: int) -> None:
        self.name = name
        """Where it comes from, for logs."""
        self.out: list[bytes] = []
        """To be sent, in order. The shell empties it."""
        self.buffered_bytes = 0
        """What the shell has and the system has not taken yet; the shell keeps it up to date."""
        self.closing = False
        """Send what is in `out`, then close."""
        self.identity: Identity | None = None
        """Set by the shell where it is known before CONNECT (the HTTP interface)."""
        self.is_http_publisher = False
        """Set by the shell for its own HTTP publisher, whose client ids are reserved."""
        self.is_paused = False
        """The shell reads nothing from it for the moment."""
        self.takes_lines = False
        """Reason strings may have several lines; set by the shell where people read them."""
        self.peer: Any = None
        """The shell's transport; the broker never uses it."""
        # ------------------------------------------------------------------------------------
        self.reader = PacketDecoder(packet_bytes_max=packet_bytes_max)
        self.session: Session | None = None
        self.authenticating: Connect | None = None
        self.held: Packet | None = None
        """A packet that waits for a worker (`rove.broker.policies.compiler`)."""
        self.pending: list[Packet | Malformed] = []
        """Packets that came while the client was authenticated, or behind one that is held."""
        self.connected_at = self.heard_at = now
        self.deadline = math.inf
        self.keep_alive_s = 0
        self.version: int = V5
        self.packet_bytes_max: int | None = None
        """The client's maximum packet size."""
        self.sent_aliases: Aliases | None = None
        """Topic aliases towards the client; None if it takes none."""
        self.needs_care = False
        """Its packets cannot be shared with others, because of a size limit or topic aliases."""
        self.inflight_max = 0
        self.open_publishes = 0
        """QoS 1 and 2 from it that are not acknowledged yet."""
        self.aliases = ALIASES_NONE
        self.is_publisher = False
        self.stuck_at = now
        """When it last stopped reading."""
        self.moved_at = now
        """While it is stuck: when it last read something of what waits for it."""
        self.seen_bytes = 0
        """What waited for it at the last check."""
        self.waits_for = 0
        """The commit that QoS 0 waits for, so that it does not overtake what is committed."""
        self.welcomed_by = 0
        """The commit that CONNACK waits for: nothing may be sent before it."""
        self.wants_problems = True
        """Whether the client wants reason strings in other packets than CONNACK and DISCONNECT."""

    def encoded(self, packet: Packet) -> bytes | None:
        """A packet in the client's version, without the properties that make it too large."""
        return encode_within(packet, self.version, self.packet_bytes_max)

    def explained(self, text: str) -> Properties:
        """A reason string, in one line unless the client takes lines.

        Mosquitto's library closes the connection over a control character (the specification
        advises against them).
        """
        return Properties(reason_string=text if self.takes_lines else in_one_line(text))

    @property
    def is_v5(self) -> bool:
        return self.version == V5

    @property
    def is_v311(self) -> bool:
        return self.version == V311


def in_one_line(text: str) -> str:
    """A text without control characters, and without the line of carets of a diagnostic."""
    lines = [line.strip() for line in text.split("\n")]
    return visible("; ".join(line for line in lines if line.strip("^")))


# -- sessions ---------------------------------------------------------------------------------


class Entry(msgspec.Struct, gc=False, eq=False):
    """One notification of QoS 1 or 2 on its way to a client."""

    number: int
    publication: Publication
    qos: int
    retain: bool
    ids: tuple[int, ...]
    select: Select = None
    """What of the publication is sent; None for all of it."""
    packet_id: int = 0
    released: bool = False
    """QoS 2: the client has it, and PUBREL is out."""
    times_kept: int = 0
    """How often it was put into the journal."""
    queued_at: float | None = None
    """When it began to wait, where that is not the moment of the publication."""

    def row(self) -> QueueRow:
        """As it is written to disk."""
        return QueueRow(
            self.publication.number,
            self.qos,
            self.retain,
            self.ids,
            self.packet_id,
            self.released,
            self.select,
            self.queued_at,
        )


class Session:
    """One client's session."""

    __slots__ = (
        "allowance",
        "automatic",
        "away_since",
        "began_at",
        "client_id",
        "expiry_s",
        "identity",
        "inflight",
        "is_durable",
        "link",
        "me",
        "next_entry",
        "next_packet_id",
        "number",
        "publish_allowance",
        "publish_allowance_at",
        "queue",
        "queue_bytes",
        "received",
        "recent_ids",
        "replaying",
        "resends",
        "spent",
        "subscriber",
        "subscriptions",
        "version",
        "watched_at",
        "will",
        "will_at",
    )

    def __init__(self, client_id: str, number: int, version: int, expiry_s: int) -> None:
        self.client_id = client_id
        self.number = number
        self.version = version
        self.expiry_s = expiry_s
        self.began_at = math.inf
        self.is_durable = expiry_s > 0
        """Decided once: a durable session stays so to its end."""
        self.identity = Identity(None, client_id)
        """Its user, also while the client is away."""
        self.link: Link | None = None
        self.will: Will | None = None
        self.will_at = math.inf
        """When the will of a client that is away is published."""
        self.watched_at = math.inf
        """When the session is next checked while its client is away."""
        self.away_since: float | None = None
        self.me: dict[str, object] = {}
        """Never changed, only replaced: so it can be compared by identity."""
        self.automatic: frozenset[str] = frozenset()
        """Variables that the broker and the device's reports set."""
        self.subscriber: SubscriberContext | None = None
        """For policies and reports; None for nearly all sessions."""
        self.subscriptions: dict[SubscriptionKey, Subscription] = {}
        self.spent = Spent()
        """The cost of the filter expressions of all its subscriptions."""
        self.queue: deque[Entry] = deque()
        """Entries that were not sent yet, in order."""
        self.queue_bytes = 0
        self.inflight: dict[int, Entry] = {}
        """Entries sent and not acknowledged, by packet identifier, in the order of sending."""
        self.resends: deque[Entry] = deque()
        """Entries in flight since an earlier connection, still to be sent on this one."""
        self.next_entry = 0
        self.next_packet_id = 1
        self.received: set[int] = set()
        """Packet identifiers of QoS 2 publications from the client that it has not released."""
        self.recent_ids: dict[str, None] = {}
        """Ids of its last publications, oldest first, to recognise repeated ones."""
        self.replaying = False
        """The client came back to a queue and gets it at a limited rate."""
        self.allowance = 0.0
        self.publish_allowance = math.inf
        """How many it may publish at once, where the rate is limited."""
        self.publish_allowance_at = 0.0

    def take_packet_id(self) -> int:
        """A packet identifier that is not in use."""
        packet_id = self.next_packet_id
        while packet_id in self.inflight:
            packet_id = packet_id % PACKET_ID_MAX + 1
        self.next_packet_id = packet_id % PACKET_ID_MAX + 1
        return packet_id

    def key_of(self, entry: Entry) -> int:
        """Where the entry is kept in the journal."""
        return queue_key(self.number, entry.number)

    def row(self) -> SessionRow:
        """As it is written to disk."""
        return SessionRow(
            self.number,
            self.version,
            self.expiry_s,
            self.identity.user,
            self.will,
            self.away_since,
            self.me,
            tuple(sorted(self.automatic)),
            self.began_at,
        )


# -- subscriptions ----------------------------------------------------------------------------


class Subscription:
    """One subscription of one session."""

    __slots__ = (
        "accepted_at",
        "filter_number",
        "group",
        "identifier",
        "interest",
        "key",
        "no_local",
        "number",
        "qos",
        "retain_as_published",
        "session",
        "slot",
        "topic_filter",
    )

    def __init__(
        self,
        number: int,
        session: Session,
        asked: Filter,
        identifier: int,
        interest: Interest | None,
        accepted_at: float,
    ) -> None:
        self.number = number
        self.session = session
        self.key: SubscriptionKey = key_of(asked.topic_filter, identifier, interest)
        topic_filter = asked.topic_filter
        if interest is not None:
            topic_filter = topic_filter.removesuffix(f"?{interest.text}")
        shared = split_shared(topic_filter)
        self.group: str | None = None
        """The name of the shared subscription; None if it is not shared."""
        if shared is not None:
            self.group, topic_filter = shared
        self.topic_filter = topic_filter
        """Without the share name and without an expression."""
        self.qos = asked.qos
        self.no_local = asked.no_local
        self.retain_as_published = asked.retain_as_published
        self.identifier = identifier
        """0 is none."""
        self.interest = interest
        self.accepted_at = accepted_at
        self.slot: PolicySlot | None = None
        """Its own policy, instead of its session's."""
        self.filter_number = 0
        """The number of the topic filter among those of subscriptions with an expression."""

    def row(self) -> SubscriptionRow:
        """As it is written to disk."""
        row = SubscriptionRow(
            self.session.client_id,
            self.key[0],
            self.qos,
            self.no_local,
            self.retain_as_published,
            self.identifier,
            self.accepted_at,
        )
        if self.interest is not None:
            row.text, row.evolve = self.interest.text, self.interest.evolve_text
            row.uses_me, row.is_ranked = self.interest.uses_me, self.interest.is_ranked
            row.filter_number, row.engine = self.filter_number, self.interest.engine
            row.matching_steps = self.interest.cost.matching_steps
            row.moving_steps = self.interest.cost.moving_steps
        return row


# -- notifications ----------------------------------------------------------------------------


class Notification(msgspec.Struct, eq=False):
    """A publication for one session: how to deliver it, and which subscriptions matched."""

    session: Session
    publication: Publication
    qos: int
    """As granted; the publication's own may be less."""
    retain: bool
    ids: tuple[int, ...]
    select: Select = None
    """What of the publication is sent; None for all of it."""
    numbers: tuple[int, ...] = ()
    """Of the subscriptions, for the log."""
    why: bytes = b""
    """For the log: why it comes later than its publication."""
    waits: bool = False
    """It is sent after what waits for the commit of this turn."""

    @classmethod
    def restored(
        cls, row: PendingDecisionRow, session: Session, publication: Publication
    ) -> Notification:
        """As it was written to disk (`PendingDecision.row`)."""
        return cls(
            session,
            publication,
            row.qos,
            row.retain,
            row.ids,
            row.select,
            row.numbers,
            row.why,
            row.waits,
        )


def selection(subscriptions: Sequence[Subscription]) -> Select:
    """The attributes to send if all these match: those that any of them selects."""
    chosen: dict[object, None] = {}
    selected = []
    for one in subscriptions:
        select = None if one.interest is None else one.interest.parsed.select
        if select is None:
            return None
        for attribute in select:
            if attribute not in chosen:
                chosen[attribute] = None
                selected.append(attribute)
    return tuple(selected)


# -- policies ---------------------------------------------------------------------------------


class PolicyInput(msgspec.Struct, eq=False):
    """A publication as policies see it, and the outputs that several policies share."""

    arrived: IncomingMessage
    derived: dict[tuple[int | bytes, UserProperties], Publication] = {}
    """By the identity of the payload, which is kept alive here, or by the payload itself if it is
    from a worker, and the user properties; as many as `IncomingMessage` remembers."""


class PendingDecision(msgspec.Struct, eq=False):
    """A notification that a policy has to decide on."""

    notification: Notification
    shown: PolicyInput | None
    """None until its turn after a restart: it is not shared then, and there may be very many."""
    results: dict[CompressionRequest, CompressionResult]
    """Pictures that were compressed for it."""
    me: object = None
    """The variables that a worker got for the whole call."""
    agent: Agent | None = None
    """The agent whose policy a worker runs."""
    limits: PolicyLimits | None = None
    """Of that call; these, the agent and the variables must still hold at its end."""
    asked_at: float = 0.0
    attempts: int = 0
    cpu_s: float = 0.0
    is_light: bool = False
    """The worker runs only the first steps."""
    key: int = 0
    """Its key in the journal; 0 if it is not there."""

    @property
    def size_bytes(self) -> int:
        """What it adds to its account while it waits."""
        return len(self.notification.publication.payload)

    def row(self, subscription: int, queued_at: float) -> PendingDecisionRow:
        """As it is written to disk."""
        one = self.notification
        return PendingDecisionRow(
            one.publication.number,
            subscription,
            one.qos,
            one.retain,
            one.ids,
            one.select,
            one.numbers,
            one.why,
            one.waits,
            queued_at,
        )


class PolicySlot:
    """The place of an agent: a session, or one subscription."""

    __slots__ = ("account", "agent", "session", "subscription", "waiting")

    def __init__(
        self,
        agent: Agent,
        session: Session,
        subscription: Subscription | None,
        account: Account,
    ) -> None:
        self.agent = agent
        self.session = session
        self.account = account
        """Of the user that set the policy."""
        self.subscription = subscription
        """None for the whole session."""
        self.waiting: deque[PendingDecision] = deque()
        """The first is being worked on."""

    # Each of these first updates the account and then the queue. If it fails, it has changed
    # nothing, so undoing the step never reverts a change that was not made.

    def enter(self, pending: PendingDecision) -> None:
        """Append a pending decision."""
        self.account.wait(pending.size_bytes)
        self.waiting.append(pending)

    def enter_first(self, pending: PendingDecision) -> None:
        """Insert a pending decision before the others."""
        self.account.wait(pending.size_bytes)
        self.waiting.appendleft(pending)

    def leave(self) -> PendingDecision:
        """Remove the first pending decision."""
        self.account.wait(-self.waiting[0].size_bytes)
        return self.waiting.popleft()

    def retract(self, pending: PendingDecision) -> None:
        """Remove a pending decision from any position."""
        if pending in self.waiting:
            self.account.wait(-pending.size_bytes)
            self.waiting.remove(pending)

    def swap(self, waiting: deque[PendingDecision]) -> None:
        """Replace the pending decisions."""
        size_bytes = sum(pending.size_bytes for pending in waiting)
        self.account.wait(size_bytes - sum(pending.size_bytes for pending in self.waiting))
        self.waiting = waiting

    @property
    def number(self) -> int:
        """Of the subscription; 0 for the whole session."""
        return 0 if self.subscription is None else self.subscription.number

    @property
    def key(self) -> str:
        """The agent's key in the journal."""
        return slot_key(self.session, self.subscription)

    def job(
        self,
        pending: PendingDecision,
        arrived: IncomingMessage,
        limits: PolicyLimits,
        light: tuple[int, int],
    ) -> CallJob:
        """The job of a worker for a pending decision; the pool numbers it.

        `light` are the steps and the milliseconds after which it is restarted as a long one.
        """
        session, agent = self.session, self.agent
        return CallJob(
            0,
            agent.policy.text,
            arrived.topic,
            arrived.payload,
            arrived.user,
            session.me,
            tuple(session.automatic),
            dict(agent.memory),
            pending.asked_at,
            limits,
            agent.policy.code,
            *light,
        )

    def view(self) -> PolicyView:
        """Its state, for the HTTP interface and the command line."""
        agent, subscription = self.agent, self.subscription
        return PolicyView(
            self.session.client_id,
            self.number,
            0 if subscription is None else subscription.identifier,
            "" if subscription is None else subscription.topic_filter,
            agent.policy.text,
            agent.set_at,
            agent.suspended_until,
            len(self.waiting),
            agent.last_trouble,
            agent.tally,
        )


def slot_key(session: Session, subscription: Subscription | None) -> str:
    """The key of the policy of a session, or of one subscription, in the journal."""
    return f"{0 if subscription is None else subscription.number}/{session.client_id}"


class SubscriberContext:
    """What the broker keeps for a session with policies or reports."""

    __slots__ = ("is_asking", "slot", "traffic", "turns")

    def __init__(self) -> None:
        self.slot: PolicySlot | None = None
        """The policy of the whole session."""
        self.traffic = SentCounter()
        """Notifications while the client was there."""
        self.is_asking = False
        """A worker runs a whole call for it."""
        self.turns: deque[tuple[PolicySlot, PendingDecision]] = deque()
        """The next calls for a worker; each pending decision is the first of its slot, or gone."""
