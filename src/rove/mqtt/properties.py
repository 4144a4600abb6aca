"""Fields and properties, the parts of packets, decoded and encoded.

`Fields` reads the values of a packet's body in order, or raises a `PacketFault` that names the
wrong value. Properties are one table (identifier, name, kind, and the packets that may contain
them) for decoding and encoding, so that both directions agree. Reading a field costs about 150 ns.
The most frequent packets are decoded without this (see `rove.mqtt.decoder`).

Encoding does not check: a property that its packet does not have is omitted, and a number or
string that is too large for its field is a `ValueError` or an `OverflowError`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache
from itertools import repeat
from typing import Any, Final, NamedTuple, Never

from rove.mqtt.packets import NO_PROPERTIES, Properties, Reason
from rove.mqtt.topics import TEXT_BYTES_MAX, name_fault

VARINT_MAX: Final = 268_435_455
"""Four bytes of seven bits."""


class PacketType(IntEnum):
    """Where properties stand: in a will, or in the packet with this type number."""

    WILL = 0
    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class PacketFault(Exception):
    """What was read breaks a rule; the reader makes a `Malformed` of it."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


def malformed(text: str) -> Never:
    """It cannot be understood."""
    raise PacketFault(Reason.MALFORMED_PACKET, text)


def protocol_error(text: str) -> Never:
    """It can be understood, but may not be sent."""
    raise PacketFault(Reason.PROTOCOL_ERROR, text)


class Fields:
    """The body of a packet, taken field by field."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data = data
        self.at = at
        self.end = end

    @property
    def left(self) -> int:
        """How many bytes have not been taken."""
        return self.end - self.at

    def take(self, size: int, what: str) -> bytes:
        """That many bytes, as they are."""
        at = self.at
        stop = at + size
        if stop > self.end:
            malformed(f"the {what} needs {size} bytes and {self.left} are left")
        self.at = stop
        return self.data[at:stop]

    def rest(self) -> bytes:
        """All that is left."""
        at, self.at = self.at, self.end
        return self.data[at : self.end]

    def byte(self, what: str) -> int:
        at = self.at
        if at >= self.end:
            malformed(f"the {what} is missing")
        self.at = at + 1
        return self.data[at]

    def two(self, what: str) -> int:
        """An integer of two bytes."""
        at = self.at
        stop = at + 2
        if stop > self.end:
            malformed(f"the {what} needs 2 bytes and {self.left} are left")
        self.at = stop
        return self.data[at] << 8 | self.data[at + 1]

    def four(self, what: str) -> int:
        """An integer of four bytes."""
        return int.from_bytes(self.take(4, what), "big")

    def varint(self, what: str) -> int:
        """An integer of one to four bytes, in as few of them as it needs."""
        value = self.byte(what)
        if value < 0x80:
            return value
        value &= 0x7F
        for shift in (7, 14, 21):
            byte = self.byte(what)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if not byte:
                    malformed(f"the {what} is encoded in more bytes than it needs")
                return value
        malformed(f"the {what} is longer than four bytes")

    def binary(self, what: str) -> bytes:
        """Bytes with their count before them."""
        data = self.data
        at = self.at + 2
        if at > self.end:
            malformed(f"the {what} needs 2 bytes for its length and {self.left} are left")
        stop = at + (data[at - 2] << 8 | data[at - 1])
        if stop > self.end:
            malformed(f"the {what} needs {stop - at} bytes and {self.end - at} are left")
        self.at = stop
        return data[at:stop]

    def text(self, what: str) -> str:
        """UTF-8 with its count of bytes before it."""
        try:
            text = self.binary(what).decode()
        except UnicodeDecodeError as error:
            malformed(f"the {what} is not UTF-8 at its byte {error.start} ({error.reason})")
        if "\0" in text:
            malformed(f"the {what} contains U+0000")
        return text

    def packet_id(self) -> int:
        packet_id = self.two("packet identifier")
        if not packet_id:
            protocol_error("the packet identifier is 0, it must be 1 to 65535")
        return packet_id

    def finish(self) -> None:
        """Nothing may be left."""
        if self.left:
            malformed(f"{self.left} bytes are left over at the end")


_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))


def write_varint(value: int) -> bytes:
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x20_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    if value > VARINT_MAX:
        raise ValueError(f"{value} is too large for MQTT to count, at most {VARINT_MAX}")
    return bytes(
        (value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80, value >> 21)
    )


def write_binary(value: bytes) -> bytes:
    size = len(value)
    if size > TEXT_BYTES_MAX:
        shown = value[:40].decode(errors="replace")
        raise ValueError(
            f"{size} bytes do not fit a field of MQTT, at most {TEXT_BYTES_MAX}: {shown!r}..."
        )
    return size.to_bytes(2, "big") + value


def write_text(value: str) -> bytes:
    return write_binary(value.encode())


# --- kinds: how a value is read with its range checked, and written after its identifier ------


class PropertyKind(NamedTuple):
    read: Callable[[Fields, str], Any]
    write: Callable[[bytes, Any], bytes]
    repeats: bool = False
    """Values are a tuple, in the order in which they came."""


def _read_flag(fields: Fields, what: str) -> int:
    value = fields.byte(what)
    if value > 1:
        protocol_error(f"the {what} is {value}, it must be 0 or 1")
    return value


def _not_zero(read: Callable[[Fields, str], int], reason: Reason) -> Callable[[Fields, str], int]:
    def checked(fields: Fields, what: str) -> int:
        value = read(fields, what)
        if not value:
            raise PacketFault(reason, f"the {what} is 0, it must be at least 1")
        return value

    return checked


def _read_topic(fields: Fields, what: str) -> str:
    name = fields.text(what)
    fault = name_fault(name)
    if fault:
        protocol_error(f"the {what}: {fault}")
    return name


def _read_pair(fields: Fields, _what: str) -> tuple[str, str]:
    return fields.text("name of a user property"), fields.text("value of a user property")


def _write_byte(identifier: bytes, value: int) -> bytes:
    return identifier + value.to_bytes(1, "big")


def _write_two(identifier: bytes, value: int) -> bytes:
    return identifier + value.to_bytes(2, "big")


def _write_four(identifier: bytes, value: int) -> bytes:
    return identifier + value.to_bytes(4, "big")


def _write_text(identifier: bytes, value: str) -> bytes:
    return identifier + write_text(value)


def _write_binary(identifier: bytes, value: bytes) -> bytes:
    return identifier + write_binary(value)


# A notification may name thousands of subscriptions, and the next one the same again.
@lru_cache(maxsize=1 << 16)
def _write_number(identifier: bytes, value: int) -> bytes:
    return identifier + write_varint(value)


def _write_numbers(identifier: bytes, values: tuple[int, ...]) -> bytes:
    return b"".join(map(_write_number, repeat(identifier), values))


def _write_pairs(identifier: bytes, pairs: tuple[tuple[str, str], ...]) -> bytes:
    return b"".join([identifier + write_text(name) + write_text(value) for name, value in pairs])


_FLAG: Final = PropertyKind(_read_flag, _write_byte)
_TWO: Final = PropertyKind(Fields.two, _write_two)
_FOUR: Final = PropertyKind(Fields.four, _write_four)
_TEXT: Final = PropertyKind(Fields.text, _write_text)
_TOPIC: Final = PropertyKind(_read_topic, _write_text)
_BINARY: Final = PropertyKind(Fields.binary, _write_binary)
_TWO_NOT_ZERO: Final = PropertyKind(_not_zero(Fields.two, Reason.PROTOCOL_ERROR), _write_two)
_FOUR_NOT_ZERO: Final = PropertyKind(_not_zero(Fields.four, Reason.PROTOCOL_ERROR), _write_four)
_ALIAS: Final = PropertyKind(_not_zero(Fields.two, Reason.TOPIC_ALIAS_INVALID), _write_two)
_NUMBERS: Final = PropertyKind(
    _not_zero(Fields.varint, Reason.PROTOCOL_ERROR), _write_numbers, True
)
_PAIRS: Final = PropertyKind(_read_pair, _write_pairs, True)


# --- the table --------------------------------------------------------------------------------


class Property(NamedTuple):
    identifier: int
    name: str
    """Its field in `Properties`."""
    title: str
    """Its name in the specification, for messages."""
    kind: PropertyKind
    places: frozenset[PacketType]


_MESSAGE: Final = frozenset({PacketType.PUBLISH, PacketType.WILL})
_GREETING: Final = frozenset({PacketType.CONNECT, PacketType.CONNACK})
_CONNECT: Final = frozenset({PacketType.CONNECT})
_CONNACK: Final = frozenset({PacketType.CONNACK})
_EVERYWHERE: Final = frozenset(PacketType) - {PacketType.PINGREQ, PacketType.PINGRESP}
_ANSWERS: Final = _EVERYWHERE - {
    PacketType.WILL,
    PacketType.CONNECT,
    PacketType.PUBLISH,
    PacketType.SUBSCRIBE,
    PacketType.UNSUBSCRIBE,
}

TABLE: Final = (
    Property(0x01, "payload_format", "payload format indicator", _FLAG, _MESSAGE),
    Property(0x02, "message_expiry_s", "message expiry interval", _FOUR, _MESSAGE),
    Property(0x03, "content_type", "content type", _TEXT, _MESSAGE),
    Property(0x08, "response_topic", "response topic", _TOPIC, _MESSAGE),
    Property(0x09, "correlation_data", "correlation data", _BINARY, _MESSAGE),
    Property(
        0x0B, "subscription_ids", "subscription identifier", _NUMBERS,
        frozenset({PacketType.PUBLISH, PacketType.SUBSCRIBE}),
    ),
    Property(
        0x11, "session_expiry_s", "session expiry interval", _FOUR,
        _GREETING | {PacketType.DISCONNECT},
    ),
    Property(0x12, "assigned_client_id", "assigned client identifier", _TEXT, _CONNACK),
    Property(0x13, "server_keep_alive_s", "server keep alive", _TWO, _CONNACK),
    Property(
        0x15, "authentication_method", "authentication method", _TEXT, _GREETING | {PacketType.AUTH}
    ),
    Property(
        0x16, "authentication_data", "authentication data", _BINARY, _GREETING | {PacketType.AUTH}
    ),
    Property(
        0x17, "request_problem_information", "request problem information", _FLAG, _CONNECT
    ),
    Property(0x18, "will_delay_s", "will delay interval", _FOUR, frozenset({PacketType.WILL})),
    Property(
        0x19, "request_response_information", "request response information", _FLAG, _CONNECT
    ),
    Property(0x1A, "response_information", "response information", _TEXT, _CONNACK),
    Property(
        0x1C, "server_reference", "server reference", _TEXT, _CONNACK | {PacketType.DISCONNECT}
    ),
    Property(0x1F, "reason_string", "reason string", _TEXT, _ANSWERS),
    Property(0x21, "receive_max", "receive maximum", _TWO_NOT_ZERO, _GREETING),
    Property(0x22, "topic_alias_max", "topic alias maximum", _TWO, _GREETING),
    Property(0x23, "topic_alias", "topic alias", _ALIAS, frozenset({PacketType.PUBLISH})),
    Property(0x24, "qos_max", "maximum QoS", _FLAG, _CONNACK),
    Property(0x25, "retain_available", "retain available", _FLAG, _CONNACK),
    Property(0x26, "user", "user property", _PAIRS, _EVERYWHERE),
    Property(0x27, "packet_size_max", "maximum packet size", _FOUR_NOT_ZERO, _GREETING),
    Property(0x28, "wildcards_available", "wildcard subscription available", _FLAG, _CONNACK),
    Property(
        0x29, "subscription_ids_available", "subscription identifiers available", _FLAG, _CONNACK
    ),
    Property(0x2A, "shared_available", "shared subscription available", _FLAG, _CONNACK),
)  # fmt: skip

_TITLES: Final = {each.identifier: each.title for each in TABLE}
_READABLE: Final = {
    place: {
        each.identifier: (each.name, each.title, each.kind.read, each.kind.repeats)
        for each in TABLE
        if place in each.places
    }
    for place in PacketType
}
_WRITABLE: Final = {
    place: [
        (each.name, bytes((each.identifier,)), each.kind.write)
        for each in TABLE
        if place in each.places
    ]
    for place in PacketType
}


def read(fields: Fields, place: PacketType) -> Properties:
    """The properties that come next, with the length that stands before them."""
    size = fields.varint("property length")
    if not size:
        return NO_PROPERTIES
    if size > fields.left:
        malformed(f"the properties are said to be {size} bytes long and {fields.left} are left")
    packet_end = fields.end
    fields.end = fields.at + size
    readable = _READABLE[place]
    found: dict[str, Any] = {}
    repeated: dict[str, list[Any]] = {}
    while fields.at < fields.end:
        identifier = fields.byte("property identifier")
        entry = readable.get(identifier)
        if entry is None:
            _refuse(identifier, place)
        name, title, read_value, repeats = entry
        value = read_value(fields, title)
        if repeats:
            repeated.setdefault(name, []).append(value)
        elif name in found:
            protocol_error(f"the {title} stands there twice")
        else:
            found[name] = value
    fields.end = packet_end
    for name, values in repeated.items():
        found[name] = tuple(values)
    return Properties(**found)


def _refuse(identifier: int, place: PacketType) -> Never:
    title = _TITLES.get(identifier)
    if title is None:
        malformed(f"there is no property 0x{identifier:02X}")
    malformed(f"the {title} (property 0x{identifier:02X}) does not belong in {place.name}")


def write(properties: Properties, place: PacketType) -> bytes:
    """The properties that this place can have, with their length before them."""
    if properties is NO_PROPERTIES:
        return b"\0"
    parts = []
    for name, identifier, write_value in _WRITABLE[place]:
        value = getattr(properties, name)
        if value is not None and value != ():
            parts.append(write_value(identifier, value))
    section = b"".join(parts)
    return write_varint(len(section)) + section
