"""A publication inside the broker: its content, and the packet that goes out to subscribers.

The payload is decoded once, when the first filter expression or policy needs it; without any, it
is never parsed. The outgoing packet is encoded once for all receivers with the same options, and
the two bytes of its packet identifier are inserted for each.

The broker keeps no history. For `/explain` it remembers the last publications
(`RecentPublications`): their content and not the objects, because whoever holds a `Publication`
keeps it from expiring. Of a payload above `PAYLOAD_BYTES_MAX` only the size is remembered, so that
all takes 160 MB at worst with the default of 10,000. Remembering costs about 0.3 µs per
publication; a limit of 0 makes it nothing.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from weakref import ref

import msgspec

from rove.broker.publications.forwarded import FOREVER, FORWARDED, ForwardedFacts, read_facts
from rove.broker.sessions.aliases import TopicForm
from rove.broker.storage.records import PublicationRow
from rove.lang.attributes import members_of, merged, selected
from rove.lang.tree import Attribute, Literal, Subscription
from rove.mqtt.encoder import publish_parts
from rove.mqtt.packets import NO_PROPERTIES, V5, Properties, Publish

PARTS_MAX = 64
"""Encoded packets that are cached per publication; each holds a copy of the payload, and a retained
publication may live for years."""
_UNREAD: dict[str, object] = {}
"""Marks a payload that was not decoded yet."""
Name = tuple[str | None, str, str]
"""The user who published it (None for the anonymous), the client id, and the id that it gave."""


class Publication:
    """One publication; alive as long as a queue, a window or the retained store holds it."""

    __slots__ = (
        "__weakref__",
        "_attributes",
        "_members",
        "_parts",
        "at",
        "expires_at",
        "group",
        "id",
        "is_derived",
        "is_named",
        "kept",
        "number",
        "origin",
        "origin_number",
        "payload",
        "position",
        "properties",
        "publisher",
        "qos",
        "retain",
        "skips_brokers",
        "topic",
        "user",
        "valid_until",
        "withdrawn",
    )

    def __init__(
        self,
        number: int,
        publish: Publish,
        publisher: str,
        id: str,
        at: float,
        valid_until: float | None = None,
        user: str | None = None,
    ) -> None:
        self.number = number
        self.topic = publish.topic
        self.payload = publish.payload
        self.qos = publish.qos
        self.retain = publish.retain
        self.properties = publish.properties
        self.publisher = publisher
        """The client id of the publisher, which is not the owner."""
        self.user = user
        """The owner: the user that published it, or None for an anonymous client."""
        self.id = id
        self.at = at
        expiry_s = publish.properties.message_expiry_s
        self.expires_at = math.inf if expiry_s is None else at + expiry_s
        self.valid_until = valid_until
        """None when it is not kept for later subscriptions."""
        self.withdrawn = False
        self.position = 0
        """Of its first row of the log; 0 if the log has none."""
        self.is_derived = False
        """A policy made it of another with the same id."""
        self.is_named = False
        """The retained store has been asked to find it by its id."""
        self.kept = 0
        """How many rows of the journal refer to it; its own row is there while any does."""
        self.origin = ""
        """The broker that it was published at; empty for this one."""
        self.origin_number = 0
        """Its number there."""
        self.group: tuple[str, str] | None = None
        """The shared subscription that its origin has chosen this broker for."""
        self.skips_brokers = False
        """Other brokers' subscriptions do not count: it came from one, or goes to all."""
        self._members: dict[str, object] | None = _UNREAD
        self._attributes: Mapping[str, object] | None = None
        self._parts: dict[tuple[object, ...], tuple[bytes, bytes]] = {}

    def __int__(self) -> int:
        """In a saved window, its number stands for it."""
        return self.number

    @property
    def name(self) -> Name:
        """Its unique name: ids of different owners or clients are different."""
        return self.user, self.publisher, self.id

    # -- content -------------------------------------------------------------------------------

    def members(self) -> dict[str, object] | None:
        """The members of its payload, decoded once; None if it is no JSON object."""
        if self._members is _UNREAD:
            self._members = members_of(self.payload)
        return self._members

    def attributes(self) -> Mapping[str, object]:
        """The attributes that filter expressions use."""
        if self._attributes is None:
            self._attributes = merged(self.topic, self.members(), self.properties.user)
        return self._attributes

    @property
    def size_bytes(self) -> int:
        """Its size for all limits of bytes."""
        return len(self.payload) + len(self.topic)

    def is_over(self, now: float) -> bool:
        """Whether it is withdrawn or expired, and must not be delivered any more."""
        return self.withdrawn or self.expires_at <= now

    # -- the packet ----------------------------------------------------------------------------

    def parts(
        self,
        version: int,
        qos: int,
        retain: bool,
        subscription_ids: tuple[int, ...],
        now: float,
        select: tuple[Attribute, ...] | None = None,
        written: TopicForm | None = None,
    ) -> tuple[bytes, bytes]:
        """The packet before and after its packet identifier, with the attributes of `select` only.

        `written` is the form of the topic, if not in full.
        """
        left_s = None
        if version >= V5:
            if self.expires_at != math.inf:
                # Rounded up: a receiver must not see 0 while there is time left.
                left_s = max(1, math.ceil(self.expires_at - now))
        else:
            subscription_ids = ()
        key = (version, qos, retain, subscription_ids, left_s, select, written)
        parts = self._parts.get(key)
        if parts is None:
            payload = self.payload if select is None else self.selected(select)
            topic, alias = written or (self.topic, None)
            properties = NO_PROPERTIES
            has_own = alias is not None or left_s is not None or subscription_ids
            if version == FORWARDED:
                version = V5
                properties = self._properties(
                    left_s, subscription_ids, alias, self._facts().as_property()
                )
            elif version == V5 and (has_own or self.properties is not NO_PROPERTIES):
                properties = self._properties(left_s, subscription_ids, alias)
            packet = Publish(topic, payload, qos, retain, False, 0, properties)
            if len(self._parts) >= PARTS_MAX:
                self._parts.clear()
            parts = publish_parts(packet, version)
            if not qos:
                # No packet identifier comes in between: joined once, for all receivers.
                parts = (parts[0] + parts[1], b"")
            self._parts[key] = parts
        return parts

    def _facts(self) -> ForwardedFacts:
        """What another broker has to know besides the packet."""
        return ForwardedFacts(
            self.number,
            self.publisher,
            self.user,
            self.id,
            self.at,
            self.qos,
            self.retain,
            FOREVER if self.valid_until == math.inf else self.valid_until,
            self.is_named,
        )

    def _properties(
        self,
        left_s: int | None,
        subscription_ids: tuple[int, ...],
        alias: int | None,
        facts: tuple[tuple[str, str], ...] = (),
    ) -> Properties:
        came = self.properties
        return Properties(
            user=facts + came.user,
            payload_format=came.payload_format,
            message_expiry_s=left_s,
            content_type=came.content_type,
            response_topic=came.response_topic,
            correlation_data=came.correlation_data,
            subscription_ids=subscription_ids,
            topic_alias=alias,
        )

    def selected(self, select: tuple[Attribute, ...]) -> bytes:
        """A payload with these attributes only."""
        return msgspec.json.encode(selected(Subscription(Literal(True), select), self.attributes()))

    # -- on disk -------------------------------------------------------------------------------

    def row(self) -> PublicationRow:
        """As it is written to disk."""
        return PublicationRow(
            self.topic,
            self.payload,
            self.qos,
            self.publisher,
            self.id,
            self.at,
            None if self.expires_at == math.inf else self.expires_at,
            self.valid_until,
            self.properties,
            self.is_derived,
            self.position,
            self.user,
            self.origin,
            self.origin_number,
            self.retain,
        )

    def derived(
        self, number: int, payload: bytes, user: tuple[tuple[str, str], ...]
    ) -> Publication:
        """A copy with another content, made by a policy; it is withdrawn with this one."""
        came = self.properties
        is_object = payload.startswith(b"{")
        was_object = self.payload.lstrip(b" \t\r\n").startswith(b"{")
        properties = NO_PROPERTIES
        if user or came is not NO_PROPERTIES:
            properties = Properties(
                user=user,
                payload_format=came.payload_format if is_object else None,
                # If a policy turned a picture into an object, its content type is no longer true.
                content_type=came.content_type if is_object == was_object else None,
                response_topic=came.response_topic,
                correlation_data=came.correlation_data,
            )
        publish = Publish(self.topic, payload, self.qos, self.retain, False, 0, properties)
        made = Publication(number, publish, self.publisher, self.id, self.at, user=self.user)
        made.expires_at = self.expires_at
        made.is_derived = True
        return made

    @classmethod
    def forwarded(cls, number: int, packet: Publish, origin: str, offset_s: float) -> Publication:
        """As it came from another broker, whose clock is `offset_s` behind; ForwardedError."""
        facts, properties = read_facts(packet.properties)
        publish = Publish(
            packet.topic, packet.payload, facts.qos, facts.retain, False, 0, properties
        )
        valid_until = facts.valid_until_here(offset_s)
        at = facts.at + offset_s
        made = cls(number, publish, facts.publisher, facts.id, at, valid_until, facts.user)
        made.origin, made.origin_number = origin, facts.number
        made.is_named = facts.is_named
        return made

    @classmethod
    def restored(cls, number: int, row: PublicationRow) -> Publication:
        """As it was read from disk."""
        publish = Publish(row.topic, row.payload, row.qos, row.retain, False, 0, row.properties)
        found = cls(number, publish, row.publisher, row.id, row.at, row.valid_until, user=row.user)
        found.expires_at = math.inf if row.expires_at is None else row.expires_at
        found.is_derived, found.position = row.is_derived, row.position
        found.origin, found.origin_number = row.origin, row.origin_number
        return found


PAYLOAD_BYTES_MAX = 16 * 1024


class RecentPublication(NamedTuple):
    """What is remembered of a publication, for `/explain`."""

    id: str
    publisher: str
    topic: str
    payload: bytes | int
    """Only its size if it was too large to be remembered."""
    properties: Properties
    qos: int
    retain: bool
    at: float
    notified: int
    """How many sessions were notified when it came."""
    living: ref[Publication]
    """The publication itself, while a queue or the retained store has it."""

    @property
    def expires_at(self) -> float:
        expiry_s = self.properties.message_expiry_s
        return math.inf if expiry_s is None else self.at + expiry_s


class RecentPublications:
    """A ring buffer of the last publications."""

    def __init__(self, count_max: int) -> None:
        self._ring: deque[tuple[Any, ...]] = deque(maxlen=count_max)
        """Plain tuples: a named tuple takes three times as long to make."""
        self._is_on = count_max > 0

    def __len__(self) -> int:
        return len(self._ring)

    def add(self, one: Publication, notified: int) -> None:
        """Remember a publication, and how many sessions were notified of it."""
        if self._is_on:
            payload: bytes | int = one.payload
            if len(one.payload) > PAYLOAD_BYTES_MAX:
                payload = len(one.payload)
            self._ring.append(
                (one.id, one.publisher, one.topic, payload, one.properties, one.qos, one.retain,
                 one.at, notified, ref(one))
            )  # fmt: skip

    def find(self, id: str) -> RecentPublication | None:
        """The last publication of that id, whoever published it."""
        found = (each for each in reversed(self._ring) if each[0] == id)
        return next((RecentPublication(*each) for each in found), None)

    def __iter__(self) -> Iterator[RecentPublication]:
        """The newest first."""
        return (RecentPublication(*each) for each in reversed(self._ring))
