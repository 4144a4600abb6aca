"""The packets of MQTT, for both versions.

One class per packet for both versions: fields that only version 5 has (properties, most reason
codes) keep their defaults in 3.1.1, and the encoder omits them. Names are those of the
specification, with the unit last. Nothing is checked here: `rove.mqtt.decoder` checks received
packets, and the sender is responsible for its own.

Classes are msgspec structs without a garbage collector's header: a packet costs about 100 ns,
and thousands are alive at once.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Literal

import msgspec

Version = Literal[4, 5]
V311: Final = 4
"""The protocol level that 3.1.1 sends."""
V5: Final = 5
Qos = Literal[0, 1, 2]


class Reason(IntEnum):
    """Reason codes of version 5; below 0x80 is success."""

    SUCCESS = 0x00
    """Also "normal disconnection" and "granted QoS 0"."""
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    REAUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_ID_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_ID_IN_USE = 0x91
    PACKET_ID_NOT_FOUND = 0x92
    RECEIVE_MAX_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    CONNECT_TIME_MAX = 0xA0
    SUBSCRIPTION_IDS_NOT_SUPPORTED = 0xA1
    WILDCARDS_NOT_SUPPORTED = 0xA2


class Properties(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Everything that version 5 can say besides; each packet allows some of it."""

    user: tuple[tuple[str, str], ...] = ()
    """User properties in the order in which they came; a name may come twice."""
    payload_format: int | None = None
    message_expiry_s: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_ids: tuple[int, ...] = ()
    """One at most in SUBSCRIBE; in PUBLISH as many as matched."""
    topic_alias: int | None = None
    session_expiry_s: int | None = None
    assigned_client_id: str | None = None
    server_keep_alive_s: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: int | None = None
    will_delay_s: int | None = None
    request_response_information: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_max: int | None = None
    topic_alias_max: int | None = None
    qos_max: int | None = None
    retain_available: int | None = None
    packet_size_max: int | None = None
    wildcards_available: int | None = None
    subscription_ids_available: int | None = None
    shared_available: int | None = None


NO_PROPERTIES: Final = Properties()
"""Shared by all packets that carry none."""


class Will(msgspec.Struct, gc=False, omit_defaults=True):
    """What the server publishes for a client that goes without saying so."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES


class Connect(msgspec.Struct, gc=False):
    client_id: str
    version: int = V5
    clean_start: bool = True
    """3.1.1 calls it clean session."""
    keep_alive_s: int = 60
    user_name: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = NO_PROPERTIES


class Connack(msgspec.Struct, gc=False):
    session_present: bool = False
    reason: int = Reason.SUCCESS
    """Always a code of version 5; the writer translates it for 3.1.1."""
    properties: Properties = NO_PROPERTIES


class Publish(msgspec.Struct, gc=False):
    topic: str
    """Empty when a topic alias stands for it."""
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    """0 with QoS 0."""
    properties: Properties = NO_PROPERTIES


class Puback(msgspec.Struct, gc=False):
    packet_id: int
    reason: int = Reason.SUCCESS
    properties: Properties = NO_PROPERTIES


class Pubrec(msgspec.Struct, gc=False):
    packet_id: int
    reason: int = Reason.SUCCESS
    properties: Properties = NO_PROPERTIES


class Pubrel(msgspec.Struct, gc=False):
    packet_id: int
    reason: int = Reason.SUCCESS
    properties: Properties = NO_PROPERTIES


class Pubcomp(msgspec.Struct, gc=False):
    packet_id: int
    reason: int = Reason.SUCCESS
    properties: Properties = NO_PROPERTIES


class Filter(msgspec.Struct, gc=False, frozen=True):
    """One line of a SUBSCRIBE."""

    topic_filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0
    """Retained messages: 0 always, 1 only if the subscription is new, 2 never."""


class Subscribe(msgspec.Struct, gc=False):
    packet_id: int
    filters: tuple[Filter, ...]
    properties: Properties = NO_PROPERTIES


class Suback(msgspec.Struct, gc=False):
    packet_id: int
    reasons: tuple[int, ...]
    """One per filter: the QoS granted, or a code from 0x80 (3.1.1 is sent 0x80 for all these)."""
    properties: Properties = NO_PROPERTIES


class Unsubscribe(msgspec.Struct, gc=False):
    packet_id: int
    topic_filters: tuple[str, ...]
    properties: Properties = NO_PROPERTIES


class Unsuback(msgspec.Struct, gc=False):
    packet_id: int
    reasons: tuple[int, ...] = ()
    """One per filter; 3.1.1 knows none."""
    properties: Properties = NO_PROPERTIES


class Pingreq(msgspec.Struct, gc=False):
    pass


class Pingresp(msgspec.Struct, gc=False):
    pass


class Disconnect(msgspec.Struct, gc=False):
    reason: int = Reason.SUCCESS
    properties: Properties = NO_PROPERTIES


class Auth(msgspec.Struct, gc=False):
    reason: int = Reason.SUCCESS
    properties: Properties = NO_PROPERTIES


class Malformed(msgspec.Struct, gc=False):
    """Not a packet but the end of them: what came next could not be understood."""

    reason: int
    text: str
    """For people: what was wrong, and where."""


Packet = (
    Connect
    | Connack
    | Publish
    | Puback
    | Pubrec
    | Pubrel
    | Pubcomp
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
)
