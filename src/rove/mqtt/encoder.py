"""Encodes packets to bytes, in both versions.

Fields that a version does not have are omitted: 3.1.1 has no properties, a few return codes of its
own in CONNACK, 0x80 for every refusal in SUBACK and only the packet identifier in the other
answers. In version 5 the short forms are used where they are equivalent.

The same notification goes to thousands of clients with different packet identifiers. So
`publish_parts` encodes the bytes before and after the identifier once.

Only errors that would make the bytes undecodable are checked: a string or a packet whose length
cannot be encoded is a `ValueError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from rove.mqtt.packets import (
    NO_PROPERTIES,
    V5,
    V311,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Reason,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from rove.mqtt.properties import PacketType, write, write_binary, write_text, write_varint

PINGREQ: Final = b"\xc0\x00"
PINGRESP: Final = b"\xd0\x00"

RETURN_CODES: Final = {
    Reason.SUCCESS: 0,
    Reason.UNSUPPORTED_PROTOCOL_VERSION: 1,
    Reason.CLIENT_ID_NOT_VALID: 2,
    Reason.SERVER_UNAVAILABLE: 3,
    Reason.BAD_USER_NAME_OR_PASSWORD: 4,
    Reason.NOT_AUTHORIZED: 5,
}
"""What CONNACK says in 3.1.1. There is no code for other reasons: they are sent as 3."""
_RETURN_CODE_OTHER: Final = 3

_DROPPABLE: Final = (Connack, Puback, Pubrec, Pubrel, Pubcomp, Suback, Unsuback, Disconnect, Auth)
"""May lose their reason string and user properties when they would be too large."""


def encode(packet: Packet, version: int = V5) -> bytes:
    """The packet in that version; a CONNECT is encoded in its own version."""
    return _ENCODERS[type(packet)](packet, version)


def encode_within(
    packet: Packet, version: int = V5, packet_bytes_max: int | None = None
) -> bytes | None:
    """The same, without reason string, then without user properties, until it fits.

    None when it still does not fit. What a publisher or a subscriber sends is never shortened.
    """
    encoded = encode(packet, version)
    if packet_bytes_max is None or len(encoded) <= packet_bytes_max:
        return encoded
    if version == V311 or not isinstance(packet, _DROPPABLE):
        return None
    for dropped in ({"reason_string": None}, {"reason_string": None, "user": ()}):
        properties = msgspec.structs.replace(packet.properties, **dropped)
        encoded = encode(msgspec.structs.replace(packet, properties=properties), version)
        if len(encoded) <= packet_bytes_max:
            return encoded
    return None


def publish_parts(publish: Publish, version: int = V5) -> tuple[bytes, bytes]:
    """What stands before the packet identifier, and what stands after it.

    With QoS 0 there is none: head and tail together are the packet. The packet identifier and
    DUP of `publish` do not count here.
    """
    tail = publish.payload
    if version == V5:
        properties = publish.properties
        if properties is NO_PROPERTIES:
            tail = b"\0" + tail
        else:
            tail = write(properties, PacketType.PUBLISH) + tail
    topic = publish.topic.encode()
    qos = publish.qos
    first = 0x30 | qos << 1 | publish.retain
    size = 2 + len(topic) + len(tail) + (2 if qos else 0)
    if size < 0x80:
        return bytes((first, size, 0, len(topic))) + topic, tail
    if size < 0x4000:
        # Nearly all other publications. These two forms are written here to save two calls.
        length = (size & 0x7F | 0x80, size >> 7)
        return bytes((first, *length, *divmod(len(topic), 0x100))) + topic, tail
    return bytes((first,)) + write_varint(size) + write_binary(topic), tail


def _publish(packet: Publish, version: int) -> bytes:
    head, tail = publish_parts(packet, version)
    if packet.dup:
        head = bytes((head[0] | 0x08,)) + head[1:]
    if packet.qos:
        return head + packet.packet_id.to_bytes(2, "big") + tail
    return head + tail


def _framed(first: int, body: bytes) -> bytes:
    return bytes((first,)) + write_varint(len(body)) + body


def _connect(packet: Connect, _version: int) -> bytes:
    version = packet.version
    will = packet.will
    flags = packet.clean_start << 1
    if will is not None:
        flags |= 0x04 | will.qos << 3 | will.retain << 5
    flags |= (packet.password is not None) << 6 | (packet.user_name is not None) << 7
    body = write_text("MQTT") + bytes((version, flags)) + packet.keep_alive_s.to_bytes(2, "big")
    if version == V5:
        body += write(packet.properties, PacketType.CONNECT)
    body += write_text(packet.client_id)
    if will is not None:
        body += _will(will, version)
    if packet.user_name is not None:
        body += write_text(packet.user_name)
    if packet.password is not None:
        body += write_binary(packet.password)
    return _framed(0x10, body)


def _will(will: Will, version: int) -> bytes:
    properties = write(will.properties, PacketType.WILL) if version == V5 else b""
    return properties + write_text(will.topic) + write_binary(will.payload)


def _connack(packet: Connack, version: int) -> bytes:
    if version == V5:
        properties = write(packet.properties, PacketType.CONNACK)
        return _framed(0x20, bytes((packet.session_present, packet.reason)) + properties)
    code = RETURN_CODES.get(packet.reason, _RETURN_CODE_OTHER)  # type: ignore[call-overload]
    return bytes((0x20, 2, packet.session_present, code))


def _answer(first: int, place: PacketType) -> Callable[[Any, int], bytes]:
    """PUBACK and the three others that are built like it."""

    def encoded(packet: Puback | Pubrec | Pubrel | Pubcomp, version: int) -> bytes:
        packet_id = packet.packet_id.to_bytes(2, "big")
        if version == V311 or (not packet.reason and packet.properties is NO_PROPERTIES):
            return bytes((first, 2)) + packet_id
        return _framed(first, packet_id + _reason_and_properties(packet, place))

    return encoded


def _reason_and_properties(
    packet: Puback | Pubrec | Pubrel | Pubcomp | Disconnect | Auth, place: PacketType
) -> bytes:
    """As much as has to be said: both, the reason alone, or nothing at all."""
    properties = write(packet.properties, place)
    if len(properties) > 1:
        return bytes((packet.reason,)) + properties
    return bytes((packet.reason,)) if packet.reason else b""


def _subscribe(packet: Subscribe, version: int) -> bytes:
    parts = [packet.packet_id.to_bytes(2, "big")]
    if version == V5:
        parts.append(write(packet.properties, PacketType.SUBSCRIBE))
    for each in packet.filters:
        options = each.qos
        if version == V5:
            options |= (
                each.no_local << 2 | each.retain_as_published << 3 | each.retain_handling << 4
            )
        parts.append(write_text(each.topic_filter) + bytes((options,)))
    return _framed(0x82, b"".join(parts))


def _suback(packet: Suback, version: int) -> bytes:
    packet_id = packet.packet_id.to_bytes(2, "big")
    if version == V5:
        body = packet_id + write(packet.properties, PacketType.SUBACK) + bytes(packet.reasons)
    else:
        body = packet_id + bytes([min(reason, 0x80) for reason in packet.reasons])
    return _framed(0x90, body)


def _unsubscribe(packet: Unsubscribe, version: int) -> bytes:
    parts = [packet.packet_id.to_bytes(2, "big")]
    if version == V5:
        parts.append(write(packet.properties, PacketType.UNSUBSCRIBE))
    parts.extend(map(write_text, packet.topic_filters))
    return _framed(0xA2, b"".join(parts))


def _unsuback(packet: Unsuback, version: int) -> bytes:
    body = packet.packet_id.to_bytes(2, "big")
    if version == V5:
        body += write(packet.properties, PacketType.UNSUBACK) + bytes(packet.reasons)
    return _framed(0xB0, body)


def _disconnect(packet: Disconnect, version: int) -> bytes:
    if version == V311:
        return b"\xe0\x00"
    return _framed(0xE0, _reason_and_properties(packet, PacketType.DISCONNECT))


def _auth(packet: Auth, version: int) -> bytes:
    if version == V311:
        raise ValueError("MQTT 3.1.1 has no AUTH packet")
    body = _reason_and_properties(packet, PacketType.AUTH)
    # Other than DISCONNECT, AUTH has no form that ends after the reason.
    return _framed(0xF0, body + b"\0" if len(body) == 1 else body)


_ENCODERS: Final[dict[type, Callable[[Any, int], bytes]]] = {
    Connect: _connect,
    Connack: _connack,
    Publish: _publish,
    Puback: _answer(0x40, PacketType.PUBACK),
    Pubrec: _answer(0x50, PacketType.PUBREC),
    Pubrel: _answer(0x62, PacketType.PUBREL),
    Pubcomp: _answer(0x70, PacketType.PUBCOMP),
    Subscribe: _subscribe,
    Suback: _suback,
    Unsubscribe: _unsubscribe,
    Unsuback: _unsuback,
    Pingreq: lambda _packet, _version: PINGREQ,
    Pingresp: lambda _packet, _version: PINGRESP,
    Disconnect: _disconnect,
    Auth: _auth,
}
