"""Translates publications to records of Kafka, and records to publications.

The payload is the value, both ways as it is. Towards Kafka the key is the topic or an attribute,
user properties are headers, and so are the topic (`rove-topic`), the id (`rove-id`), the position
(`rove-position`) and the bridge (`rove-bridge`). Towards the broker headers are user properties,
and the id is `topic/partition/offset`, which the pipeline also uses for a record of Kafka.

A bridge never moves something back to the topic from which it came.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from rove.bridge.routes import BridgeError, BridgeRoute, filter_of, key_of
from rove.lang import matches, selected
from rove.lang.attributes import attributes_of
from rove.lang.values import look_up
from rove.mqtt.topics import fits, name_fault, text_fault

TOPIC: Final = "rove-topic"
ID: Final = "rove-id"
POSITION: Final = "rove-position"
BRIDGE: Final = "rove-bridge"
_OWN: Final = frozenset({TOPIC, ID, POSITION, BRIDGE})
_RESERVED: Final = frozenset({"id", "valid-for"})
"""User properties with a meaning for the broker."""


class LakeRow(msgspec.Struct, frozen=True, gc=False):
    """A publication in the lake."""

    position: int
    at_us: int
    topic: str
    id: str
    client_id: str
    payload: bytes
    user: tuple[tuple[str, str], ...] = ()


class KafkaRecord(msgspec.Struct, frozen=True, gc=False):
    """A record of Kafka."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    at_ms: int = 0
    partition: int = 0
    offset: int = 0


class BridgePublication(msgspec.Struct, frozen=True, gc=False):
    """A publication for the broker."""

    topic: str
    payload: bytes
    user: tuple[tuple[str, str], ...]


class Untranslatable(BridgeError):
    """The other side cannot take something."""


class Translator:
    """The translation of one route."""

    def __init__(self, route: BridgeRoute, bridge: str) -> None:
        self._route = route
        self._bridge = bridge
        self._text = filter_of(route)
        self._key = key_of(route)
        self._origin = f"{route.kafka_topic}/"

    # -- towards Kafka -------------------------------------------------------------------------

    def record(self, row: LakeRow) -> KafkaRecord | None:
        """The record for a publication; None if there is none."""
        if not fits(self._route.mqtt_topic, row.topic):
            return None
        if row.client_id.startswith(f"{self._bridge}:") and row.id.startswith(self._origin):
            return None
        payload, key = row.payload, row.topic
        if self._text is not None or self._key is not None:
            attributes = attributes_of(row.topic, row.payload, row.user)
            if self._text is not None:
                if not matches(self._text, attributes):
                    return None
                if self._text.select is not None:
                    payload = msgspec.json.encode(selected(self._text, attributes))
            if self._key is not None:
                key = _text_of(look_up(attributes, self._key.path))
        headers = [
            (name, value.encode()) for name, value in row.user if name not in _OWN and name != "id"
        ]
        own = ((TOPIC, row.topic), (ID, row.id), (POSITION, str(row.position)))
        headers += [(name, value.encode()) for name, value in (*own, (BRIDGE, self._bridge))]
        return KafkaRecord(key.encode() or None, payload, headers, row.at_us // 1000)

    # -- towards the broker --------------------------------------------------------------------

    def publication(self, record: KafkaRecord) -> BridgePublication | None:
        """The publication for a record; None if there is none, Untranslatable if it is
        impossible."""
        headers = record.headers
        if any(name == BRIDGE and value == self._bridge.encode() for name, value in headers):
            return None
        topic = self._topic(record)
        user = tuple(self._user(record))
        payload = record.value or b""
        if self._text is not None:
            attributes = attributes_of(topic, payload, user)
            if not matches(self._text, attributes):
                return None
            if self._text.select is not None:
                payload = msgspec.json.encode(selected(self._text, attributes))
        return BridgePublication(topic, payload, user)

    def name_of(self, record: KafkaRecord) -> str:
        """`topic/partition/offset`."""
        return f"{self._origin}{record.partition}/{record.offset}"

    def _topic(self, record: KafkaRecord) -> str:
        written = self._route.mqtt_topic
        places = {"topic": self._route.kafka_topic, "partition": str(record.partition)}
        if "{key}" in written:
            try:
                places["key"] = (record.key or b"").decode()
            except UnicodeDecodeError:
                raise self._cannot(record, "its key is no UTF-8") from None
        for name, value in places.items():
            written = written.replace(f"{{{name}}}", value)
        if (fault := name_fault(written)) is not None or written.startswith("$"):
            raise self._cannot(record, fault or "topics that begin with $ are the broker's own")
        return written

    def _user(self, record: KafkaRecord) -> Iterable[tuple[str, str]]:
        yield "id", self.name_of(record)
        for name, value in record.headers:
            if name in _RESERVED or name in _OWN or value is None:
                continue
            text = value.decode(errors="replace")
            if text_fault(name) is None and text_fault(text) is None:
                yield name, text

    def _cannot(self, record: KafkaRecord, why: str) -> Untranslatable:
        return Untranslatable(f"the record {self.name_of(record)} cannot be published: {why}")


def _text_of(value: object) -> str:
    """A key: text as it is, empty if missing, otherwise JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
