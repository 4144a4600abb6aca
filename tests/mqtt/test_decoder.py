"""What the reader refuses, rule by rule, and how it takes bytes in pieces.

One line per rule: the bytes that break it, the reason code that the specification gives for it
and words of the explanation. That good packets are read is shown in `test_writing` (by hand)
and `test_packets` (generated).
"""

import tracemalloc

import pytest

from rove.mqtt.decoder import PACKET_BYTES_MAX, PacketDecoder
from rove.mqtt.encoder import PINGREQ, encode
from rove.mqtt.packets import (
    V5,
    V311,
    Connect,
    Malformed,
    Packet,
    Pingreq,
    Properties,
    Puback,
    Publish,
    Reason,
)

BAD = Reason.MALFORMED_PACKET
FORBIDDEN = Reason.PROTOCOL_ERROR
NAME = Reason.TOPIC_NAME_INVALID
VERSION = Reason.UNSUPPORTED_PROTOCOL_VERSION

Rule = tuple[str, Reason, str]

MQTT5 = "0004 4D515454 05"
MQTT4 = "0004 4D515454 04"

FIRST_PACKETS: list[Rule] = [
    ("C0 00", FORBIDDEN, "first packet is PINGREQ, it must be CONNECT"),
    ("20 03 00 00 00", FORBIDDEN, "first packet is CONNACK"),
    ("30 06 0003 612F62 00", FORBIDDEN, "first packet is PUBLISH"),
    ("00 00", BAD, "no packet of type 0"),
    ("11 0D 0004 4D515454 05 02 0000 00 0000", BAD, "CONNECT: the flags are 0001, not 0000"),
    # The protocol.
    ("10 0C 0004 4D515454 03 02 0000 0000", VERSION, "'MQTT' 3"),
    ("10 0C 0004 4D515454 06 02 0000 0000", VERSION, "'MQTT' 6"),
    ("10 0E 0006 4D5149736470 03 02 0000 0000", VERSION, "'MQIsdp' 3"),
    ("10 0C 0004 6D717474 05 02 0000 0000", VERSION, "'mqtt' 5"),
    ("10 06 0004 4D515454", BAD, "protocol level is missing"),
    ("10 01 00", BAD, "protocol name needs 2 bytes for its length and 1 are left"),
    ("10 00", BAD, "protocol name needs 2 bytes"),
    # The flags.
    (f"10 0D {MQTT5} 03 0000 00 0000", BAD, "reserved connect flag"),
    (f"10 0C {MQTT4} 03 0000 0000", BAD, "reserved connect flag"),
    (f"10 13 {MQTT5} 1E 0000 00 0000 00 0001 77 0000", BAD, "will's QoS is 3"),
    (f"10 0D {MQTT5} 0A 0000 00 0000", FORBIDDEN, "there is no will"),
    (f"10 0D {MQTT5} 22 0000 00 0000", FORBIDDEN, "there is no will"),
    (f"10 0E {MQTT4} 42 0000 0000 0000", FORBIDDEN, "password without a user name"),
    # What comes after.
    (f"10 09 {MQTT5} 02 00", BAD, "keep alive needs 2 bytes"),
    (f"10 0A {MQTT5} 02 0000", BAD, "property length is missing"),
    (f"10 0B {MQTT5} 02 0000 00", BAD, "client identifier needs 2 bytes"),
    (f"10 0E {MQTT5} 02 0000 00 0002 61", BAD, "client identifier needs 2 bytes and 1 are left"),
    (f"10 0F {MQTT5} 02 0000 00 0002 C080", BAD, "client identifier is not UTF-8"),
    (f"10 10 {MQTT5} 02 0000 00 0003 EDA080", BAD, "client identifier is not UTF-8"),
    (f"10 0E {MQTT5} 02 0000 00 0001 00", BAD, "client identifier contains U+0000"),
    (f"10 0E {MQTT5} 02 0000 00 0000 00", BAD, "1 bytes are left over"),
    (f"10 0D {MQTT4} 02 0000 0000 00", BAD, "1 bytes are left over"),
    (f"10 0D {MQTT5} 82 0000 00 0000", BAD, "user name needs 2 bytes"),
    (f"10 0D {MQTT5} 42 0000 00 0000", BAD, "password needs 2 bytes"),
    (f"10 0D {MQTT5} 06 0000 00 0000", BAD, "property length is missing"),
    (f"10 13 {MQTT5} 06 0000 00 0000 00 0001 2B 0000", NAME, "no wildcards"),
    (f"10 11 {MQTT4} 06 0000 0000 0001 23 0000", NAME, "no wildcards"),
    (f"10 12 {MQTT5} 06 0000 00 0000 00 0000 0000", NAME, "at least one character"),
    (f"10 11 {MQTT5} 06 0000 00 0000 00 0001 77", BAD, "payload of the will needs 2 bytes"),
    # Its properties.
    (f"10 10 {MQTT5} 02 0000 03 210000 0000", FORBIDDEN, "receive maximum is 0"),
    (f"10 12 {MQTT5} 02 0000 05 2700000000 0000", FORBIDDEN, "maximum packet size is 0"),
    (f"10 0F {MQTT5} 02 0000 02 1702 0000", FORBIDDEN, "request problem information is 2"),
    (f"10 0F {MQTT5} 02 0000 02 1902 0000", FORBIDDEN, "request response information is 2"),
    (f"10 13 {MQTT5} 02 0000 06 220001 220001 0000", FORBIDDEN, "alias maximum stands there twice"),
    (f"10 11 {MQTT5} 02 0000 04 160001 00 0000", FORBIDDEN, "without an authentication method"),
    (f"10 10 {MQTT5} 02 0000 03 230001 0000", BAD, "topic alias (property 0x23) does not"),
    (f"10 0E {MQTT5} 02 0000 01 00 0000", BAD, "there is no property 0x00"),
    (f"10 18 {MQTT5} 06 0000 00 0000 05 1100000001 0001 77 0000", BAD, "does not belong in WILL"),
    (f"10 0D {MQTT5} 02 0000 FF 0000", BAD, "property length"),
]  # fmt: skip

FROM_CLIENT_5: list[Rule] = [
    # The fixed header.
    ("10 0D 0004 4D515454 05 02 0000 00 0000", FORBIDDEN, "CONNECT came a second time"),
    ("00 00", BAD, "no packet of type 0"),
    ("20 03 00 00 00", FORBIDDEN, "CONNACK is not sent by a client"),
    ("90 04 0001 00 00", FORBIDDEN, "SUBACK is not sent by a client"),
    ("B0 04 0001 00 00", FORBIDDEN, "UNSUBACK is not sent by a client"),
    ("D0 00", FORBIDDEN, "PINGRESP is not sent by a client"),
    ("C0 80 80 80 80", BAD, "remaining length is longer than four bytes"),
    ("C0 80 00", BAD, "more bytes than it needs"),
    ("C0 80 80 80 00", BAD, "more bytes than it needs"),
    ("C1 00", BAD, "PINGREQ: the flags are 0001"),
    ("42 02 0001", BAD, "PUBACK: the flags are 0010, not 0000"),
    ("60 02 0001", BAD, "PUBREL: the flags are 0000, not 0010"),
    ("80 07 0001 00 0001 61 00", BAD, "SUBSCRIBE: the flags are 0000, not 0010"),
    ("A0 06 0001 00 0001 61", BAD, "UNSUBSCRIBE: the flags are 0000, not 0010"),
    ("E1 00", BAD, "DISCONNECT: the flags"),
    ("F1 06 19 04 15 0001 6D", BAD, "AUTH: the flags"),
    ("36 06 0001 61 0001 00", BAD, "QoS is 3"),
    ("3E 06 0001 61 0001 00", BAD, "QoS is 3"),
    ("38 04 0001 61 00", BAD, "DUP is set although QoS is 0"),
    # PUBLISH.
    ("30 00", BAD, "topic name is missing"),
    ("30 01 00", BAD, "topic name is missing"),
    ("30 03 0002 61", BAD, "topic name goes 1 bytes beyond"),
    ("30 04 0001 FF 00", BAD, "not UTF-8 at its byte 0"),
    ("30 04 0001 00 00", BAD, "U+0000"),
    ("30 06 0003 EDB080 00", BAD, "not UTF-8"),
    ("30 04 0001 23 00", NAME, "no wildcards, + and # are for filters: '#'"),
    ("30 06 0003 612F2B 00", NAME, "no wildcards"),
    ("30 03 0000 00", FORBIDDEN, "topic name is empty"),
    ("30 05 0000 02 0101", FORBIDDEN, "topic name is empty"),
    ("30 03 0001 61", BAD, "property length is missing"),
    ("32 03 0001 61", BAD, "packet identifier is missing"),
    ("32 04 0001 61 00", BAD, "packet identifier is missing"),
    ("32 06 0001 61 0000 00", FORBIDDEN, "packet identifier is 0"),
    ("34 06 0001 61 0000 00", FORBIDDEN, "packet identifier is 0"),
    ("30 05 0001 61 8000", BAD, "property length is encoded in more bytes"),
    ("30 04 0001 61 05", BAD, "properties are said to be 5 bytes long and 0 are left"),
    ("30 06 0001 61 02 0102", FORBIDDEN, "payload format indicator is 2"),
    ("30 08 0001 61 04 0100 0101", FORBIDDEN, "payload format indicator stands there twice"),
    ("30 07 0001 61 03 230000", Reason.TOPIC_ALIAS_INVALID, "topic alias is 0"),
    ("30 0A 0001 61 06 230001 230001", FORBIDDEN, "topic alias stands there twice"),
    ("30 08 0001 61 04 080001 2B", FORBIDDEN, "response topic"),
    ("30 07 0001 61 03 080000", FORBIDDEN, "response topic"),
    ("30 06 0001 61 02 0B01", FORBIDDEN, "only a server may send a subscription identifier"),
    ("30 09 0001 61 05 1100000001", BAD, "session expiry interval (property 0x11)"),
    ("30 06 0001 61 02 0200 00000000", BAD, "message expiry interval needs 4 bytes and 1 are left"),
    ("30 06 0001 61 02 7F00", BAD, "there is no property 0x7F"),
    ("30 06 0001 61 02 8100", BAD, "there is no property 0x81"),
    ("30 0A 0001 61 06 260001 6B 0001 76", BAD, "value of a user property"),
    ("30 09 0001 61 05 260001 FF 0000", BAD, "name of a user property"),
    # The answers.
    ("40 00", BAD, "packet identifier needs 2 bytes"),
    ("40 01 00", BAD, "packet identifier needs 2 bytes"),
    ("40 02 0000", FORBIDDEN, "PUBACK: the packet identifier is 0"),
    ("50 02 0000", FORBIDDEN, "PUBREC: the packet identifier is 0"),
    ("62 02 0000", FORBIDDEN, "PUBREL: the packet identifier is 0"),
    ("70 02 0000", FORBIDDEN, "PUBCOMP: the packet identifier is 0"),
    ("40 04 0000 00 00", FORBIDDEN, "PUBACK: the packet identifier is 0"),
    ("40 03 0001 01", FORBIDDEN, "no reason code 0x01"),
    ("40 03 0001 92", FORBIDDEN, "no reason code 0x92"),
    ("50 03 0001 92", FORBIDDEN, "no reason code 0x92"),
    ("62 03 0001 80", FORBIDDEN, "no reason code 0x80"),
    ("70 03 0001 10", FORBIDDEN, "no reason code 0x10"),
    ("40 05 0001 00 00 00", BAD, "1 bytes are left over"),
    ("40 06 0001 00 02 0101", BAD, "does not belong in PUBACK"),
    ("40 0A 0001 00 06 1F0000 1F0000", FORBIDDEN, "reason string stands there twice"),
    # SUBSCRIBE and UNSUBSCRIBE.
    ("82 03 0001 00", FORBIDDEN, "no topic filter"),
    ("82 07 0000 00 0001 61 00", FORBIDDEN, "packet identifier is 0"),
    ("82 06 0001 00 0001 61", BAD, "subscription options is missing"),
    ("82 06 0001 00 0000 00", FORBIDDEN, "topic filter is empty"),
    ("82 07 0001 00 0001 00 00", BAD, "topic filter contains U+0000"),
    ("82 07 0001 00 0001 80 00", BAD, "topic filter is not UTF-8"),
    ("82 07 0001 00 0001 61 03", FORBIDDEN, "QoS of a subscription is 3"),
    ("82 07 0001 00 0001 61 30", FORBIDDEN, "retain handling of a subscription is 3"),
    ("82 07 0001 00 0001 61 40", BAD, "reserved bits"),
    ("82 07 0001 00 0001 61 80", BAD, "reserved bits"),
    ("82 10 0001 00 000A 2473686172652F672F61 04", FORBIDDEN, "no local"),
    ("82 09 0001 02 0B00 0001 61 00", FORBIDDEN, "subscription identifier is 0"),
    ("82 0B 0001 04 0B01 0B02 0001 61 00", FORBIDDEN, "subscription identifier stands there twice"),
    ("82 0A 0001 03 0B8100 0001 61 00", BAD, "subscription identifier is encoded in more bytes"),
    ("82 0D 0001 06 0B8080808001 0001 61 00", BAD, "subscription identifier is longer than four"),
    ("82 0B 0001 04 1F0001 61 0001 61 00", BAD, "reason string (property 0x1F) does not belong"),
    ("A2 03 0001 00", FORBIDDEN, "no topic filter"),
    ("A2 05 0001 00 0000", FORBIDDEN, "topic filter is empty"),
    ("A2 06 0000 00 0001 61", FORBIDDEN, "packet identifier is 0"),
    ("A2 08 0001 02 0B01 0001 61", BAD, "does not belong in UNSUBSCRIBE"),
    ("A2 07 0001 00 0001 61 00", BAD, "topic filter needs 2 bytes for its length and 1 are left"),
    # The others.
    ("C0 01 00", BAD, "PINGREQ: 1 bytes are left over"),
    ("E0 01 8E", FORBIDDEN, "no reason code 0x8E"),
    ("E0 01 01", FORBIDDEN, "no reason code 0x01"),
    ("E0 03 00 00 00", BAD, "1 bytes are left over"),
    ("F0 00", FORBIDDEN, "AUTH: there is no reason code 0x00"),
    ("F0 06 00 04 15 0001 6D", FORBIDDEN, "no reason code 0x00"),
    ("F0 06 01 04 15 0001 6D", FORBIDDEN, "no reason code 0x01"),
    ("F0 01 18", BAD, "property length is missing"),
    ("F0 02 18 00", FORBIDDEN, "authentication method is missing"),
    ("F0 06 18 04 16 0001 6D", FORBIDDEN, "authentication method is missing"),
]  # fmt: skip

FROM_CLIENT_311: list[Rule] = [
    ("F0 00", BAD, "no packet of type 15"),
    ("10 0C 0004 4D515454 04 02 0000 0000", FORBIDDEN, "second time"),
    ("30 02 0000", FORBIDDEN, "topic name is empty"),
    ("30 03 0001 2B", NAME, "no wildcards"),
    ("36 05 0001 61 0001", BAD, "QoS is 3"),
    ("38 03 0001 61", BAD, "DUP"),
    ("32 05 0001 61 0000", FORBIDDEN, "packet identifier is 0"),
    ("40 03 0001 00", BAD, "1 bytes are left over"),
    ("62 04 0001 00 00", BAD, "2 bytes are left over"),
    ("82 02 0001", FORBIDDEN, "no topic filter"),
    ("82 06 0001 0001 61 03", FORBIDDEN, "QoS of a subscription is 3"),
    ("82 06 0001 0001 61 04", BAD, "reserved bits"),
    ("82 06 0001 0001 61 10", BAD, "reserved bits"),
    ("A2 02 0001", FORBIDDEN, "no topic filter"),
    ("E0 01 00", BAD, "1 bytes are left over"),
]

FROM_SERVER_5: list[Rule] = [
    ("10 0D 0004 4D515454 05 02 0000 00 0000", FORBIDDEN, "CONNECT is not sent by a server"),
    ("82 07 0001 00 0001 61 00", FORBIDDEN, "SUBSCRIBE is not sent by a server"),
    ("A2 06 0001 00 0001 61", FORBIDDEN, "UNSUBSCRIBE is not sent by a server"),
    ("C0 00", FORBIDDEN, "PINGREQ is not sent by a server"),
    ("20 03 02 00 00", BAD, "acknowledge flags"),
    ("20 03 01 87 00", FORBIDDEN, "although the connection is refused"),
    ("20 03 00 01 00", FORBIDDEN, "no reason code 0x01"),
    ("20 03 00 8B 00", FORBIDDEN, "no reason code 0x8B"),
    ("20 02 00 00", BAD, "property length is missing"),
    ("20 05 00 00 02 2402", FORBIDDEN, "maximum QoS is 2"),
    ("20 05 00 00 02 2502", FORBIDDEN, "retain available is 2"),
    ("20 05 00 00 02 2802", FORBIDDEN, "wildcard subscription available is 2"),
    ("20 05 00 00 02 2902", FORBIDDEN, "subscription identifiers available is 2"),
    ("20 05 00 00 02 2A02", FORBIDDEN, "shared subscription available is 2"),
    ("20 06 00 00 03 210000", FORBIDDEN, "receive maximum is 0"),
    ("30 06 0001 61 02 0B00", FORBIDDEN, "subscription identifier is 0"),
    ("90 03 0001 00", FORBIDDEN, "no reason code, there must be one"),
    ("90 04 0001 00 03", FORBIDDEN, "no reason code 0x03"),
    ("90 04 0000 00 00", FORBIDDEN, "packet identifier is 0"),
    ("B0 03 0001 00", FORBIDDEN, "no reason code, there must be one"),
    ("B0 04 0001 00 01", FORBIDDEN, "no reason code 0x01"),
    ("E0 01 04", FORBIDDEN, "no reason code 0x04"),
    ("E0 07 80 05 1100000001", FORBIDDEN, "may not send a session expiry interval"),
    ("F0 06 19 04 15 0001 6D", FORBIDDEN, "no reason code 0x19"),
    ("D0 01 00", BAD, "left over"),
]

FROM_SERVER_311: list[Rule] = [
    ("E0 00", FORBIDDEN, "DISCONNECT is not sent by a server"),
    ("F0 00", BAD, "no packet of type 15"),
    ("20 02 00 06", FORBIDDEN, "return code is 6"),
    ("20 02 01 05", FORBIDDEN, "although the connection is refused"),
    ("20 03 00 00 00", BAD, "1 bytes are left over"),
    ("90 03 0001 83", FORBIDDEN, "no reason code 0x83"),
    ("90 02 0001", FORBIDDEN, "no reason code, there must be one"),
    ("B0 03 0001 00", BAD, "1 bytes are left over"),
]


def refused(reader: PacketDecoder, written: str) -> Malformed:
    (found,) = reader.feed(bytes.fromhex(written))
    assert isinstance(found, Malformed)
    return found


def check(reader: PacketDecoder, rule: Rule) -> None:
    written, reason, words = rule
    found = refused(reader, written)
    assert words in found.text
    assert found.reason == reason
    assert "\n" not in found.text
    assert reader.feed(PINGREQ) == []


@pytest.mark.parametrize("rule", FIRST_PACKETS)
def test_refused_as_the_first_packet(rule: Rule) -> None:
    check(PacketDecoder(), rule)


@pytest.mark.parametrize("rule", FROM_CLIENT_5)
def test_refused_from_a_client(rule: Rule) -> None:
    check(PacketDecoder(version=V5), rule)


@pytest.mark.parametrize("rule", FROM_CLIENT_311)
def test_refused_from_a_client_of_311(rule: Rule) -> None:
    check(PacketDecoder(version=V311), rule)


@pytest.mark.parametrize("rule", FROM_SERVER_5)
def test_refused_from_a_server(rule: Rule) -> None:
    check(PacketDecoder(version=V5, from_server=True), rule)


@pytest.mark.parametrize("rule", FROM_SERVER_311)
def test_refused_from_a_server_of_311(rule: Rule) -> None:
    check(PacketDecoder(version=V311, from_server=True), rule)


# --- what is not refused ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "written",
    [
        "40 04 0001 00 00",  # the long form of an answer that has nothing to say
        "E0 02 00 00",
        "82 08 0001 00 0002 2361 00",  # a filter that is none: answered by the broker
        "82 0C 0001 00 0006 247368617265 04",  # `$share` alone is not shared
        "30 06 0003 EFBFBE 00",  # a non-character is a character
        "30 06 0003 EFBBBF 00",  # a byte order mark is a character too
        "30 09 0001 61 02 0101 FFFFFF",  # payloads are not looked into
        "30 0E 0001 61 0A 26 0000 0000 26 0000 0000",
    ],
)
def test_lawful_however_odd(written: str) -> None:
    (packet,) = PacketDecoder(version=V5).feed(bytes.fromhex(written))
    assert not isinstance(packet, Malformed)


def test_a_length_may_be_longer_than_needed_in_311_only() -> None:
    assert PacketDecoder(version=V311).feed(bytes.fromhex("C0 80 00")) == [Pingreq()]
    connect = bytes.fromhex("10 8C 00 0004 4D515454 04 02 0000 0000")
    assert PacketDecoder().feed(connect) == [Connect("", V311, True, 0)]
    found = refused(PacketDecoder(), "10 8D 00 0004 4D515454 05 02 0000 00 0000")
    assert found.reason == Reason.MALFORMED_PACKET
    assert "more bytes than it needs" in found.text


def test_a_byte_order_mark_stays() -> None:
    (packet,) = PacketDecoder(version=V311).feed(bytes.fromhex("30 06 0004 EFBBBF61"))
    assert isinstance(packet, Publish)
    assert packet.topic == "\ufeffa"


def test_the_version_is_learnt_from_connect() -> None:
    for version in (V311, V5):
        reader = PacketDecoder()
        assert reader.version is None
        reader.feed(encode(Connect("c", version)))
        assert reader.version == version


def test_the_version_stays_known_when_the_rest_of_connect_is_wrong() -> None:
    for version in (V311, V5):
        reader = PacketDecoder()
        refused(reader, f"10 08 0004 4D515454 0{version} 01")
        assert reader.version == version
    reader = PacketDecoder()
    refused(reader, "10 08 0004 4D515454 07 00")
    assert reader.version is None


def test_packets_before_a_bad_one_are_given() -> None:
    reader = PacketDecoder(version=V5)
    good = encode(Puback(1)) + encode(Publish("t", b"x"))
    *packets, last = reader.feed(good + b"\x00\x00" + good)
    assert packets == [Puback(1), Publish("t", b"x")]
    assert isinstance(last, Malformed)
    assert reader.feed(good) == []


def test_a_client_has_to_know_its_version() -> None:
    with pytest.raises(ValueError, match="without knowing the version"):
        PacketDecoder(from_server=True)
    with pytest.raises(ValueError, match="version 3 is unknown"):
        PacketDecoder(version=3)


# --- sizes and pieces -------------------------------------------------------------------------


def test_a_packet_as_large_as_allowed_is_read() -> None:
    written = encode(Publish("t", bytes(1000)))
    assert len(PacketDecoder(version=V5, packet_bytes_max=len(written)).feed(written)) == 1
    (found,) = PacketDecoder(version=V5, packet_bytes_max=len(written) - 1).feed(written)
    assert isinstance(found, Malformed)
    assert found.reason == Reason.PACKET_TOO_LARGE
    assert found.text == f"PUBLISH: {len(written)} bytes, at most {len(written) - 1} are accepted"


def test_a_packet_that_is_too_large_is_refused_by_its_header() -> None:
    reader = PacketDecoder(version=V5, packet_bytes_max=1000)
    assert reader.feed(b"\x30\xff\xff") == []
    (found,) = reader.feed(b"\x01")
    assert isinstance(found, Malformed)
    assert found.reason == Reason.PACKET_TOO_LARGE


def test_a_bad_header_is_refused_before_its_body_comes() -> None:
    (found,) = PacketDecoder(version=V5).feed(b"\x36\x7f")
    assert isinstance(found, Malformed)


def test_the_largest_packet_of_all_may_be_announced() -> None:
    reader = PacketDecoder(version=V5)
    assert reader.feed(b"\x30\xff\xff\xff\x7f") == []
    assert PACKET_BYTES_MAX == 5 + 0x0FFF_FFFF


def test_nothing_is_kept_but_what_was_received() -> None:
    tracemalloc.start()
    try:
        reader = PacketDecoder(version=V5)
        reader.feed(b"\x30\xff\xff\xff\x7f\x00\x01t\x00")
        for _ in range(64):
            assert reader.feed(bytes(1024)) == []
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 * 64 * 1024


def test_after_a_bad_packet_nothing_is_kept() -> None:
    reader = PacketDecoder(version=V5)
    reader.feed(b"\x00\x00")
    tracemalloc.start()
    try:
        for _ in range(64):
            reader.feed(bytes(65_536))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2 * 65_536 + 10_000


def test_a_large_packet_in_small_pieces_is_put_together_once() -> None:
    # 3 MB in pieces of 10 bytes: copying all that waits with each piece would be 450 GB.
    packet = Publish("t", bytes(range(250)) * 12_000, 1, packet_id=9)
    written = encode(packet)
    reader = PacketDecoder(version=V5)
    found: list[Packet | Malformed] = []
    for at in range(0, len(written), 10):
        found += reader.feed(written[at : at + 10])
    assert found == [packet]


def test_many_user_properties_are_read_in_one_go() -> None:
    # Appending to a tuple would copy 100,000 entries 100,000 times.
    pairs = tuple((f"name{number}", "") for number in range(100_000))
    packet = Publish("t", b"", properties=Properties(user=pairs))
    assert PacketDecoder(version=V5).feed(encode(packet)) == [packet]
