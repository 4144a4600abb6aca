"""A client's session: what it subscribed to, what waits for it, what is under way to it.

A session outlives its connection for as long as the client asked for (CUPUS: a subscriber stays
*registered* while it is *disconnected*). One that does is *durable*: everything in it is kept in
the journal. One that ends with its connection is never written.

Notifications of QoS 1 and 2 are entries of a queue. An entry is given a packet identifier when it
is sent, is then *in flight*, and goes when the client has acknowledged it.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from rove.broker.access import Identity
from rove.broker.publications.publication import Publication
from rove.broker.storage.records import QueueRow, SessionRow, queue_key
from rove.broker.subscriptions.costs import Spent
from rove.lang.tree import Attribute
from rove.mqtt.packets import Will

if TYPE_CHECKING:
    from rove.broker.policies.slots import SubscriberContext
    from rove.broker.sessions.links import Link
    from rove.broker.subscriptions.subscription import Subscription, SubscriptionKey

PACKET_ID_MAX = 65_535
Select = tuple[Attribute, ...] | None


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
        """Decided once: a session that was kept stays so to its end."""
        self.identity = Identity(None, client_id)
        """Who it belongs to: kept while the client is away."""
        self.link: Link | None = None
        self.will: Will | None = None
        self.will_at = math.inf
        """When the will of a client that is away is published."""
        self.watched_at = math.inf
        """When the session is next thought of while its client is away."""
        self.away_since: float | None = None
        self.me: dict[str, object] = {}
        """Never changed, only replaced: who computes with it sees whether it still holds."""
        self.automatic: frozenset[str] = frozenset()
        """Variables that the system keeps."""
        self.subscriber: SubscriberContext | None = None
        """Where policies and reports are dealt with; None for nearly all."""
        self.subscriptions: dict[SubscriptionKey, Subscription] = {}
        self.spent = Spent()
        """What the texts of all its subscriptions cost together."""
        self.queue: deque[Entry] = deque()
        """What was not sent yet, in order."""
        self.queue_bytes = 0
        self.inflight: dict[int, Entry] = {}
        """What was sent and not acknowledged, by packet identifier, in the order of sending."""
        self.resends: deque[Entry] = deque()
        """What is in flight since an earlier connection, and waits to be sent on this one."""
        self.next_entry = 0
        self.next_packet_id = 1
        self.received: set[int] = set()
        """Packet identifiers of QoS 2 publications from the client that it has not released."""
        self.recent_ids: dict[str, None] = {}
        """Ids of its last publications, oldest first: what comes again is known again."""
        self.replaying = False
        """The client came back to a full queue and is given it at a measured pace."""
        self.allowance = 0.0
        self.publish_allowance = math.inf
        """Publications that it may make at once, where their rate is limited."""
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
