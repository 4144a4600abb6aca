"""A publication inside the broker: what came, when, from whom, and how it goes out again.

Its payload is decoded once, when the first subscription with a text or the first policy asks:
brokers that nobody asks never parse.

The packet that goes out is made once for all receivers that get it with the same options, and
its two bytes of packet identifier are put in between.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from rove.broker.sessions.aliases import Written
from rove.broker.storage.records import PublicationRow
from rove.lang.attributes import members_of, merged
from rove.lang.selection import selected
from rove.lang.tree import Attribute, Literal, Subscription
from rove.mqtt.encoder import publish_parts
from rove.mqtt.packets import NO_PROPERTIES, V5, Properties, Publish

PARTS_MAX = 64
"""Forms in which a publication is ready to be sent; each holds its payload once more, and one that
is retained may live for years."""
_UNREAD: dict[str, object] = {}
"""Stands for a payload that nobody has looked into."""
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
        "id",
        "is_derived",
        "kept",
        "number",
        "payload",
        "position",
        "properties",
        "publisher",
        "qos",
        "retain",
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
        """The client id; it says who publishes, and nothing about whose it is."""
        self.user = user
        """Whose it is: the user who published it, or None for the anonymous."""
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
        self.kept = 0
        """How many rows of the journal speak of it; its own row is there while any does."""
        self._members: dict[str, object] | None = _UNREAD
        self._attributes: Mapping[str, object] | None = None
        self._parts: dict[tuple[object, ...], tuple[bytes, bytes]] = {}

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        """In a window that is saved, its number stands for it."""
        return int, (self.number,)

    def __int__(self) -> int:
        return self.number

    @property
    def name(self) -> Name:
        """What tells it from all others: no two owners, and no two clients, share their ids."""
        return self.user, self.publisher, self.id

    # -- what it says --------------------------------------------------------------------------

    def members(self) -> dict[str, object] | None:
        """The members of its payload, decoded once; None if it is no JSON object."""
        if self._members is _UNREAD:
            self._members = members_of(self.payload)
        return self._members

    def attributes(self) -> Mapping[str, object]:
        """What subscriptions see of it."""
        if self._attributes is None:
            self._attributes = merged(self.topic, self.members(), self.properties.user)
        return self._attributes

    @property
    def size_bytes(self) -> int:
        """What it counts for where room is limited."""
        return len(self.payload) + len(self.topic)

    def is_over(self, now: float) -> bool:
        """True when it must not be delivered any more."""
        return self.withdrawn or self.expires_at <= now

    # -- how it goes out -----------------------------------------------------------------------

    def parts(
        self,
        version: int,
        qos: int,
        retain: bool,
        subscription_ids: tuple[int, ...],
        now: float,
        select: tuple[Attribute, ...] | None = None,
        written: Written | None = None,
    ) -> tuple[bytes, bytes]:
        """The packet before and after its packet identifier; of what it says, only `select`.

        `written` is how its topic is written, if not in full.
        """
        left_s = None
        if version == V5:
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
            if version == V5 and (has_own or self.properties is not NO_PROPERTIES):
                properties = self._properties(left_s, subscription_ids, alias)
            packet = Publish(topic, payload, qos, retain, False, 0, properties)
            if len(self._parts) >= PARTS_MAX:
                self._parts.clear()
            parts = publish_parts(packet, version)
            if not qos:
                # Nothing comes in between: put together once, for all receivers.
                parts = (parts[0] + parts[1], b"")
            self._parts[key] = parts
        return parts

    def _properties(
        self, left_s: int | None, subscription_ids: tuple[int, ...], alias: int | None
    ) -> Properties:
        came = self.properties
        return Properties(
            user=came.user,
            payload_format=came.payload_format,
            message_expiry_s=left_s,
            content_type=came.content_type,
            response_topic=came.response_topic,
            correlation_data=came.correlation_data,
            subscription_ids=subscription_ids,
            topic_alias=alias,
        )

    def selected(self, select: tuple[Attribute, ...]) -> bytes:
        """Its payload with nothing but these attributes."""
        return msgspec.json.encode(selected(Subscription(Literal(True), select), self.attributes()))

    # -- how it is kept ------------------------------------------------------------------------

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
        )

    def derived(
        self, number: int, payload: bytes, user: tuple[tuple[str, str], ...]
    ) -> Publication:
        """The same with another content, as a policy made it; to be withdrawn with this one."""
        came = self.properties
        is_object = payload.startswith(b"{")
        was_object = self.payload.lstrip(b" \t\r\n").startswith(b"{")
        properties = Properties(
            user=user,
            payload_format=came.payload_format if is_object else None,
            # A picture of which a policy tells in words is not sent as a picture.
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
    def restored(cls, number: int, row: PublicationRow) -> Publication:
        """As it was read from disk."""
        publish = Publish(row.topic, row.payload, row.qos, False, False, 0, row.properties)
        found = cls(number, publish, row.publisher, row.id, row.at, row.valid_until, user=row.user)
        found.expires_at = math.inf if row.expires_at is None else row.expires_at
        found.is_derived, found.position = row.is_derived, row.position
        return found


def user_property(properties: Properties, *names: str) -> str | None:
    """The first user property of one of these names."""
    for name, value in properties.user:
        if name in names:
            return value
    return None
