"""Packets on their way out and back: generated, cut anywhere, damaged, and read by a stranger.

The stranger is the `mqtt5` package, a codec of version 5 that shares nothing with ours. It is a
codec only and more lenient than the specification: it reads and writes topic names with
wildcards and U+0000, DUP with QoS 0, packet identifier 0, SUBSCRIBE without filters, SUBACK
without reasons, AUTH without a method, and a session that is present although the connection is
refused. In one place it is stricter: it does not know the AUTH of two bytes. So it is asked about
lawful packets; what is unlawful is shown in `test_reading`.
"""

from collections.abc import Sequence
from typing import Any

import mqtt5
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rove.mqtt.decoder import PacketDecoder
from rove.mqtt.encoder import encode
from rove.mqtt.packets import (
    NO_PROPERTIES,
    V5,
    V311,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Filter,
    Malformed,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
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
from rove.mqtt.properties import TABLE, PacketType
from tests.effort import examples

# --- packets that their sender may send -------------------------------------------------------

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=12)
FILTERS = st.sampled_from(["a", "a/#", "+/b", "#", "$SYS/x", "ü/+/#", "$share/g/a"])
BYTES = st.binary(max_size=12)
FLAGS = st.integers(0, 1)
TWO = st.integers(0, 0xFFFF)
FOUR = st.integers(0, 0xFFFF_FFFF)
PACKET_IDS = st.integers(1, 0xFFFF)
NUMBERS = st.one_of(
    st.integers(1, 300), st.sampled_from([16_383, 16_384, 2_097_151, 2_097_152, 268_435_455])
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "payload_format": FLAGS,
    "message_expiry_s": FOUR,
    "content_type": TEXTS,
    "response_topic": NAMES,
    "correlation_data": BYTES,
    "subscription_ids": NUMBERS.map(lambda number: (number,)),
    "session_expiry_s": FOUR,
    "assigned_client_id": TEXTS,
    "server_keep_alive_s": TWO,
    "authentication_method": TEXTS,
    "authentication_data": BYTES,
    "request_problem_information": FLAGS,
    "will_delay_s": FOUR,
    "request_response_information": FLAGS,
    "response_information": TEXTS,
    "server_reference": TEXTS,
    "reason_string": TEXTS,
    "receive_max": st.integers(1, 0xFFFF),
    "topic_alias_max": TWO,
    "topic_alias": st.integers(1, 0xFFFF),
    "qos_max": FLAGS,
    "retain_available": FLAGS,
    "user": st.lists(st.tuples(TEXTS, TEXTS), max_size=3).map(tuple),
    "packet_size_max": st.integers(1, 0xFFFF_FFFF),
    "wildcards_available": FLAGS,
    "subscription_ids_available": FLAGS,
    "shared_available": FLAGS,
}


def properties_of(
    place: PacketType, *, without: tuple[str, ...] = (), **always: st.SearchStrategy[Any]
) -> st.SearchStrategy[Properties]:
    names = [each.name for each in TABLE if place in each.places and each.name not in without]
    optional = {name: VALUES[name] for name in names if name not in always}
    filled = st.fixed_dictionaries(always, optional=optional).map(lambda it: Properties(**it))
    return filled if always else st.one_of(st.just(NO_PROPERTIES), filled)


@st.composite
def wills(draw: st.DrawFn, version: int) -> Will:
    properties = draw(properties_of(PacketType.WILL)) if version == V5 else NO_PROPERTIES
    qos = draw(st.integers(0, 2))
    return Will(draw(NAMES), draw(BYTES), qos, draw(st.booleans()), properties)


@st.composite
def connects(draw: st.DrawFn, version: int) -> Connect:
    properties = NO_PROPERTIES
    if version == V5:
        properties = draw(properties_of(PacketType.CONNECT))
        if properties.authentication_method is None:
            properties = msgspec.structs.replace(properties, authentication_data=None)
    user_name = draw(st.none() | TEXTS)
    password = draw(st.none() | BYTES) if version == V5 or user_name is not None else None
    will = draw(st.none() | wills(version))
    clean_start = draw(st.booleans())
    return Connect(
        draw(TEXTS), version, clean_start, draw(TWO), user_name, password, will, properties
    )


@st.composite
def publishes(draw: st.DrawFn, version: int, from_server: bool) -> Publish:
    properties = NO_PROPERTIES
    if version == V5:
        properties = draw(properties_of(PacketType.PUBLISH, without=("subscription_ids",)))
        if from_server:
            ids = tuple(draw(st.lists(NUMBERS, max_size=3)))
            properties = msgspec.structs.replace(properties, subscription_ids=ids)
    topic = draw(NAMES if properties.topic_alias is None else st.one_of(st.just(""), NAMES))
    payload = draw(st.binary(max_size=200))
    qos = draw(st.integers(0, 2))
    packet_id = draw(PACKET_IDS) if qos else 0
    dup = qos > 0 and draw(st.booleans())
    return Publish(topic, payload, qos, draw(st.booleans()), dup, packet_id, properties)


def codes(kind: type) -> set[int]:
    """The codes of an enumeration of the stranger's, which cannot be iterated over."""
    return {int(code) for code in vars(kind).values() if isinstance(code, kind)}  # type: ignore[call-overload]


def answers(
    kind: type[Puback | Pubrec | Pubrel | Pubcomp], place: PacketType, reasons: set[int]
) -> st.SearchStrategy[Packet]:
    return st.builds(kind, PACKET_IDS, st.sampled_from(sorted(reasons)), properties_of(place))


def some(reasons: set[int]) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.sampled_from(sorted(reasons)), min_size=1, max_size=4).map(tuple)


def options(version: int) -> st.SearchStrategy[Filter]:
    if version == V311:
        return st.builds(Filter, FILTERS, st.integers(0, 2))
    made = st.builds(
        Filter, FILTERS, st.integers(0, 2), st.booleans(), st.booleans(), st.integers(0, 2)
    )
    return made.filter(lambda it: not (it.no_local and it.topic_filter.startswith("$share/")))


SERVERS_ONLY = {135, 137, 139, 141, 142, 143, *range(154, 163)}
"""Reasons of DISCONNECT that a client does not send."""

BOTH_WAYS_5 = [
    answers(Puback, PacketType.PUBACK, codes(mqtt5.PubAckReasonCode)),
    answers(Pubrec, PacketType.PUBREC, codes(mqtt5.PubRecReasonCode)),
    answers(Pubrel, PacketType.PUBREL, codes(mqtt5.PubRelReasonCode)),
    answers(Pubcomp, PacketType.PUBCOMP, codes(mqtt5.PubCompReasonCode)),
]
FROM_CLIENT_5 = st.one_of(
    publishes(V5, False),
    *BOTH_WAYS_5,
    st.builds(
        Subscribe,
        PACKET_IDS,
        st.lists(options(V5), min_size=1, max_size=3).map(tuple),
        properties_of(PacketType.SUBSCRIBE),
    ),
    st.builds(
        Unsubscribe,
        PACKET_IDS,
        st.lists(FILTERS, min_size=1, max_size=3).map(tuple),
        properties_of(PacketType.UNSUBSCRIBE),
    ),
    st.just(Pingreq()),
    st.builds(
        Disconnect,
        st.sampled_from(sorted(codes(mqtt5.DisconnectReasonCode) - SERVERS_ONLY)),
        properties_of(PacketType.DISCONNECT),
    ),
    st.builds(
        Auth,
        st.sampled_from([0x18, 0x19]),
        properties_of(PacketType.AUTH, authentication_method=TEXTS),
    ),
)
FROM_SERVER_5 = st.one_of(
    publishes(V5, True),
    *BOTH_WAYS_5,
    st.builds(Connack, st.booleans(), st.just(0), properties_of(PacketType.CONNACK)),
    st.builds(
        Connack,
        st.just(False),
        st.sampled_from(sorted(codes(mqtt5.ConnAckReasonCode))),
        properties_of(PacketType.CONNACK),
    ),
    st.builds(
        Suback, PACKET_IDS, some(codes(mqtt5.SubAckReasonCode)), properties_of(PacketType.SUBACK)
    ),
    st.builds(
        Unsuback,
        PACKET_IDS,
        some(codes(mqtt5.UnsubAckReasonCode)),
        properties_of(PacketType.UNSUBACK),
    ),
    st.just(Pingresp()),
    st.builds(
        Disconnect,
        st.sampled_from(sorted(codes(mqtt5.DisconnectReasonCode) - {4})),
        properties_of(PacketType.DISCONNECT, without=("session_expiry_s",)),
    ),
    st.builds(
        Auth,
        st.sampled_from([0x00, 0x18]),
        properties_of(PacketType.AUTH, authentication_method=TEXTS),
    ),
)
BOTH_WAYS_311 = [st.builds(kind, PACKET_IDS) for kind in (Puback, Pubrec, Pubrel, Pubcomp)]
FROM_CLIENT_311 = st.one_of(
    publishes(V311, False),
    *BOTH_WAYS_311,
    st.builds(Subscribe, PACKET_IDS, st.lists(options(V311), min_size=1, max_size=3).map(tuple)),
    st.builds(Unsubscribe, PACKET_IDS, st.lists(FILTERS, min_size=1, max_size=3).map(tuple)),
    st.just(Pingreq()),
    st.just(Disconnect()),
)
FROM_SERVER_311 = st.one_of(
    publishes(V311, True),
    *BOTH_WAYS_311,
    st.builds(Connack, st.booleans()),
    st.builds(Connack, st.just(False), st.sampled_from([0x00, 0x84, 0x85, 0x86, 0x87, 0x88])),
    st.builds(Suback, PACKET_IDS, some({0, 1, 2, 0x80})),
    st.builds(Unsuback, PACKET_IDS),
    st.just(Pingresp()),
)
FLOWS = st.one_of(
    *[
        st.tuples(st.just(version), st.just(from_server), st.lists(packets, min_size=1, max_size=4))
        for version, from_server, packets in (
            (V5, False, FROM_CLIENT_5),
            (V5, True, FROM_SERVER_5),
            (V311, False, FROM_CLIENT_311),
            (V311, True, FROM_SERVER_311),
        )
    ]
)
"""What one side sends: the version, whether it is the server, and packets."""
Flow = tuple[int, bool, list[Packet]]


# --- out and back -----------------------------------------------------------------------------


def in_pieces(reader: PacketDecoder, pieces: list[bytes]) -> list[Packet | Malformed]:
    return [packet for piece in pieces for packet in reader.feed(piece)]


@given(FLOWS)
def test_what_is_written_is_read(flow: Flow) -> None:
    version, from_server, packets = flow
    written = b"".join([encode(packet, version) for packet in packets])
    assert PacketDecoder(version=version, from_server=from_server).feed(written) == packets


@pytest.mark.parametrize("version", [V5, V311])
def test_connects_are_read(version: int) -> None:
    @given(connects(version))
    def check(packet: Connect) -> None:
        reader = PacketDecoder()
        assert reader.feed(encode(packet)) == [packet]
        assert reader.version == version

    check()


@given(FLOWS)
@examples(40)
def test_cuts_do_not_matter(flow: Flow) -> None:
    version, from_server, packets = flow
    written = b"".join([encode(packet, version) for packet in packets])
    check_all_cuts(written, version, from_server, packets)


def check_all_cuts(
    written: bytes, version: int | None, from_server: bool, expected: Sequence[Packet | Malformed]
) -> None:
    """Cut in two at every place, and into single bytes."""
    cuts = [[written[:at], written[at:]] for at in range(len(written) + 1)]
    cuts.append([written[at : at + 1] for at in range(len(written))])
    for pieces in cuts:
        reader = PacketDecoder(version=version, from_server=from_server)
        assert in_pieces(reader, pieces) == expected


# --- damage -----------------------------------------------------------------------------------


def check_survives(written: bytes, version: int | None, from_server: bool) -> None:
    """No exception, one end at most, and the same however the bytes were cut."""
    found = PacketDecoder(version=version, from_server=from_server).feed(written)
    assert all(not isinstance(packet, Malformed) for packet in found[:-1])
    check_all_cuts(written, version, from_server, found)


@given(
    st.binary(max_size=60),
    st.sampled_from([(None, False), (V5, False), (V5, True), (V311, False), (V311, True)]),
)
@examples(300)
def test_any_bytes_are_survived(written: bytes, side: tuple[int | None, bool]) -> None:
    check_survives(written, *side)


@given(st.one_of(connects(V5), connects(V311)), st.data())
@examples(100)
def test_a_damaged_connect_is_survived(packet: Connect, data: st.DataObject) -> None:
    check_survives(data.draw(damaged(encode(packet))), None, False)


@given(FLOWS, st.data())
@examples(150)
def test_damaged_packets_are_survived(flow: Flow, data: st.DataObject) -> None:
    version, from_server, packets = flow
    written = b"".join([encode(packet, version) for packet in packets[:2]])
    check_survives(data.draw(damaged(written)), version, from_server)


@st.composite
def damaged(draw: st.DrawFn, written: bytes) -> bytes:
    """Some bytes changed, dropped or put in, most of them near the beginning."""
    found = bytearray(written)
    for _ in range(draw(st.integers(1, 3))):
        at = min(draw(st.one_of(st.integers(0, 12), st.integers(0, 300))), len(found))
        size = draw(st.integers(0, 2))
        found[at : at + size] = draw(st.binary(max_size=2))
    return bytes(found)


@given(FLOWS, st.data())
@examples(200)
def test_what_is_read_from_damaged_bytes_can_be_written(flow: Flow, data: st.DataObject) -> None:
    """The reader gives nothing that is not a packet: its own bytes are read as the same."""
    version, from_server, packets = flow
    found = PacketDecoder(version=version, from_server=from_server).feed(
        data.draw(damaged(encode(packets[0], version)))
    )
    for packet in found:
        if not isinstance(packet, Malformed):
            again = PacketDecoder(version=version, from_server=from_server).feed(
                encode(packet, version)
            )
            assert again == [packet]


# --- the stranger -----------------------------------------------------------------------------

NAMES_THERE = {
    "payload_format": "payload_format_indicator",
    "message_expiry_s": "message_expiry_interval",
    "session_expiry_s": "session_expiry_interval",
    "server_keep_alive_s": "server_keep_alive",
    "will_delay_s": "will_delay_interval",
    "request_problem_information": "request_problem_info",
    "request_response_information": "request_response_info",
    "response_information": "response_info",
    "reason_string": "reason_str",
    "qos_max": "max_qos",
    "packet_size_max": "max_packet_size",
    "wildcards_available": "wildcard_subscription_available",
    "subscription_ids_available": "subscription_id_available",
    "shared_available": "shared_subscription_available",
}
DEFAULTS_THERE = {
    "payload_format": 0,
    "will_delay_s": 0,
    "request_problem_information": 1,
    "request_response_information": 0,
    "receive_max": 65_535,
    "topic_alias_max": 0,
    "retain_available": 1,
    "wildcards_available": 1,
    "subscription_ids_available": 1,
    "shared_available": 1,
}
"""`mqtt5` does not tell these from no property at all, and leaves them out."""
FLAGS_THERE = {
    "request_problem_information", "request_response_information", "retain_available",
    "wildcards_available", "subscription_ids_available", "shared_available",
}  # fmt: skip


def properties_there(properties: Properties, *, one_id: bool = False) -> dict[str, Any]:
    """The properties as arguments of the stranger's classes."""
    found: dict[str, Any] = {"user_properties": list(properties.user)}
    if properties.subscription_ids:
        ids = list(properties.subscription_ids)
        found |= {"subscription_id": ids[0]} if one_id else {"subscription_ids": ids}
    for name in msgspec.structs.asdict(properties).keys() - {"user", "subscription_ids"}:
        value = getattr(properties, name)
        if value is not None:
            if name == "qos_max":
                value = mqtt5.QoS(value)
            elif name in FLAGS_THERE:
                value = bool(value)
            found[NAMES_THERE.get(name, name)] = value
    return found


def there(packet: Packet) -> Any:
    """The same packet as the stranger has it."""
    match packet:
        case Connect():
            return connect_there(packet)
        case Connack(present, reason, properties):
            return mqtt5.ConnAckPacket(
                session_present=present,
                reason_code=mqtt5.ConnAckReasonCode(reason),
                **properties_there(properties),
            )
        case Publish():
            return publish_there(packet)
        case Subscribe(packet_id, filters, properties):
            return mqtt5.SubscribePacket(
                packet_id, [filter_there(it) for it in filters],
                **properties_there(properties, one_id=True),
            )  # fmt: skip
        case Unsubscribe(packet_id, topic_filters, properties):
            return mqtt5.UnsubscribePacket(
                packet_id, list(topic_filters), **properties_there(properties)
            )
        case Suback(packet_id, reasons, properties):
            granted = [mqtt5.SubAckReasonCode(reason) for reason in reasons]
            return mqtt5.SubAckPacket(packet_id, granted, **properties_there(properties))
        case Unsuback(packet_id, reasons, properties):
            ended = [mqtt5.UnsubAckReasonCode(reason) for reason in reasons]
            return mqtt5.UnsubAckPacket(packet_id, ended, **properties_there(properties))
        case Pingreq():
            return mqtt5.PingReqPacket()
        case Pingresp():
            return mqtt5.PingRespPacket()
        case Disconnect(reason, properties):
            code = mqtt5.DisconnectReasonCode(reason)
            return mqtt5.DisconnectPacket(reason_code=code, **properties_there(properties))
        case Auth(reason, properties):
            auth_code = mqtt5.AuthReasonCode(reason)
            return mqtt5.AuthPacket(reason_code=auth_code, **properties_there(properties))
        case _:
            return answer_there(packet)


def answer_there(packet: Puback | Pubrec | Pubrel | Pubcomp) -> Any:
    kind, code = {
        Puback: (mqtt5.PubAckPacket, mqtt5.PubAckReasonCode),
        Pubrec: (mqtt5.PubRecPacket, mqtt5.PubRecReasonCode),
        Pubrel: (mqtt5.PubRelPacket, mqtt5.PubRelReasonCode),
        Pubcomp: (mqtt5.PubCompPacket, mqtt5.PubCompReasonCode),
    }[type(packet)]
    said = properties_there(packet.properties)
    return kind(packet.packet_id, reason_code=code(packet.reason), **said)


def connect_there(packet: Connect) -> mqtt5.ConnectPacket:
    return mqtt5.ConnectPacket(
        packet.client_id,
        username=packet.user_name,
        password=packet.password,
        clean_start=packet.clean_start,
        will=None if packet.will is None else will_there(packet.will),
        keep_alive=packet.keep_alive_s,
        **properties_there(packet.properties),
    )


def will_there(will: Will) -> mqtt5.Will:
    return mqtt5.Will(
        will.topic,
        payload=will.payload,
        qos=mqtt5.QoS(will.qos),
        retain=will.retain,
        **properties_there(will.properties),
    )


def publish_there(packet: Publish) -> mqtt5.PublishPacket:
    return mqtt5.PublishPacket(
        packet.topic,
        packet.payload,
        qos=mqtt5.QoS(packet.qos),
        retain=packet.retain,
        packet_id=packet.packet_id or None,
        duplicate=packet.dup,
        **properties_there(packet.properties),
    )


def filter_there(each: Filter) -> mqtt5.TopicFilter:
    return mqtt5.TopicFilter(
        each.topic_filter,
        max_qos=mqtt5.QoS(each.qos),
        no_local=each.no_local,
        retain_as_published=each.retain_as_published,
        retain_handling=mqtt5.RetainHandling(each.retain_handling),
    )


def without_defaults(properties: Properties, defaults: dict[str, int]) -> Properties:
    dropped = {name: None for name, value in defaults.items() if getattr(properties, name) == value}
    return msgspec.structs.replace(properties, **dropped)


def left_by_stranger(packet: Packet) -> Packet:
    """The packet without the properties that `mqtt5` leaves out as defaults."""
    if isinstance(packet, Pingreq | Pingresp):
        return packet
    defaults = DEFAULTS_THERE
    if isinstance(packet, Connect):
        defaults = defaults | {"session_expiry_s": 0}
        if packet.will is not None:
            properties = without_defaults(packet.will.properties, DEFAULTS_THERE)
            will = msgspec.structs.replace(packet.will, properties=properties)
            packet = msgspec.structs.replace(packet, will=will)
    properties = without_defaults(packet.properties, defaults)
    return msgspec.structs.replace(packet, properties=properties)


@given(st.one_of(connects(V5), FROM_CLIENT_5, FROM_SERVER_5))
@examples(400)
def test_the_stranger_reads_what_we_write(packet: Packet) -> None:
    written = encode(packet)
    assert mqtt5.read(memoryview(written)) == (there(packet), len(written))


@given(st.one_of(connects(V5), FROM_CLIENT_5))
@examples(300)
def test_we_read_what_the_stranger_writes_as_a_client(packet: Packet) -> None:
    reader = PacketDecoder(version=None if isinstance(packet, Connect) else V5)
    assert reader.feed(there(packet).write()) == [left_by_stranger(packet)]


@given(FROM_SERVER_5)
@examples(300)
def test_we_read_what_the_stranger_writes_as_a_server(packet: Packet) -> None:
    reader = PacketDecoder(version=V5, from_server=True)
    assert reader.feed(there(packet).write()) == [left_by_stranger(packet)]


def test_every_kind_of_packet_is_generated() -> None:
    kinds: set[type] = set()

    @given(st.one_of(connects(V5), FROM_CLIENT_5, FROM_SERVER_5))
    @settings(max_examples=400, derandomize=True)
    def collect(packet: Packet) -> None:
        kinds.add(type(packet))

    collect()
    assert kinds == set(Packet.__args__)


def test_the_stranger_knows_the_same_reasons() -> None:
    names = (
        "ConnAck", "PubAck", "PubRec", "PubRel", "PubComp", "SubAck", "UnsubAck", "Disconnect",
        "Auth",
    )  # fmt: skip
    known = {code for name in names for code in codes(getattr(mqtt5, f"{name}ReasonCode"))}
    assert known == set(map(int, Reason))
