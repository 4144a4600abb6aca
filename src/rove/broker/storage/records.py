"""The rows of the journal, one struct per table, as msgpack.

Structs are arrays on disk: names are not stored, so fields are only ever added at the end, with
a default. Encoding or decoding one costs less than a microsecond.

    sessions        client id             SessionRow
    subscriptions   number                SubscriptionRow
    publications    number                PublicationRow   (while it is queued, retained or valid)
    queue           see `queue_key`       QueueRow         (in the order of its keys)
    received        see `received_key`    empty            (QoS 2 from a publisher, not released)
    retained        topic                 number of a publication
    valid           see `valid_key`       number of a publication
    log             position              LogRow           (on its way to the lake)
    feeds           name                  sequence of the last notification that came by it
    agents          see `PolicySlot.key`  Kept of `rove.policy.agents`
    cases           see `queue_key`       PendingDecisionRow
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import msgspec

from rove.lang.tree import Attribute
from rove.mqtt.packets import NO_PROPERTIES, Properties, Will

QUEUE_ENTRY_BITS = 40
"""Bits of an entry's number: 10^12 entries before they collide with the next session's."""
USER_UNKNOWN = ""
"""The user of publications stored before rows had one; no user has an empty name."""


class SessionRow(msgspec.Struct, array_like=True):
    number: int
    version: int
    expiry_s: int
    user: str | None = None
    will: Will | None = None
    away_since: float | None = None
    """None while connected: after a crash, the time of the restart is used."""
    me: dict[str, Any] = {}
    """The subscriber's `me.` variables."""
    automatic: tuple[str, ...] = ()
    """Those of them that the broker or a report sets."""
    began_at: float = math.inf
    """Infinity in rows stored before this field existed."""


class SubscriptionRow(msgspec.Struct, array_like=True):
    client_id: str
    topic_filter: str
    qos: int
    no_local: bool
    retain_as_published: bool
    identifier: int
    """0 is none."""
    accepted_at: float
    text: str = ""
    """Empty for all publications on the topics."""
    evolve: str = ""
    uses_me: bool = False
    is_ranked: bool = False
    filter_number: int = 0
    """The number of the topic filter in the matcher, with an expression."""
    engine: str = "broker"
    """What does the matching: `broker`, or `spark` (the pipeline)."""
    matching_steps: int = 0
    moving_steps: int = 0
    """The cost of the expression (`rove.lang.costs`)."""


class PublicationRow(msgspec.Struct, array_like=True):
    topic: str
    payload: bytes
    qos: int
    publisher: str
    id: str
    at: float
    """When the broker accepted it, in seconds since 1970, as all times here."""
    expires_at: float | None = None
    valid_until: float | None = None
    """Infinity for ever; None when it is not kept for later subscriptions."""
    properties: Properties = NO_PROPERTIES
    is_derived: bool = False
    """A policy made it of another with the same id."""
    position: int = 0
    """Of its first row of the log; 0 if the log has none."""
    user: str | None = USER_UNKNOWN
    """The user that published it; None for an anonymous client."""
    origin: str = ""
    """The broker that it was published at; empty for this one."""
    origin_number: int = 0
    """Its number there."""
    retain: bool = False
    """Whether other brokers, for which it waits, retain it."""


class QueueRow(msgspec.Struct, array_like=True):
    publication: int
    qos: int
    retain: bool
    subscription_ids: tuple[int, ...] = ()
    packet_id: int = 0
    """0 until it was sent."""
    released: bool = False
    """QoS 2: PUBREC has come, PUBREL is out, only PUBCOMP is missing."""
    select: tuple[Attribute, ...] | None = None
    """What of the publication is sent; None for all of it."""
    queued_at: float | None = None
    """When it began to wait, where that is not the moment of the publication."""


class PendingDecisionRow(msgspec.Struct, array_like=True):
    """A notification that waits for a policy's decision."""

    publication: int
    subscription: int
    """The subscription of the policy; 0 for the session's policy."""
    qos: int
    retain: bool
    ids: tuple[int, ...] = ()
    select: tuple[Attribute, ...] | None = None
    numbers: tuple[int, ...] = ()
    why: bytes = b""
    waits: bool = False
    queued_at: float = 0.0


class LogRow(msgspec.Struct, array_like=True):
    """One line of the lake."""

    kind: str
    """`publications`, `notifications`, `subscriptions`, `states` or `metrics`: the lake's table."""
    channel: str
    at: float
    topic: str = ""
    id: str = ""
    """Of the publication; of a notification, of the publication that it is about."""
    client_id: str = ""
    """The publisher, or the client that was notified, or the client of the state."""
    payload: bytes = b""
    """As it came; of a notification, empty, or why it came later than its publication; of
    subscriptions, states and metrics, the facts as JSON."""
    user: tuple[tuple[str, str], ...] = ()
    """User properties of the publication."""
    subscriptions: tuple[int, ...] = ()
    """Of a notification: the numbers of the matching subscriptions."""
    qos: int = 0
    earlier: tuple[str, ...] = ()
    """Other channels that have the same row at a smaller position."""


Row = TypeVar("Row", bound=msgspec.Struct)

encoded = msgspec.msgpack.Encoder().encode


def decoded(kind: type[Row], row: bytes) -> Row:
    """Decode a row."""
    return msgspec.msgpack.decode(row, type=kind)


def decoded_number(row: bytes) -> int:
    """Decode a row that is one number."""
    return msgspec.msgpack.decode(row, type=int)


def queue_key(session: int, entry: int) -> int:
    """The key of an entry: those of one session are adjacent, in order."""
    return session << QUEUE_ENTRY_BITS | entry


def received_key(session: int, packet_id: int) -> int:
    """One key per session and packet identifier."""
    return session << 16 | packet_id
