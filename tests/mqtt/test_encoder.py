"""Packets and the bytes they are, written by hand from the specification, in both versions.

Every example is tried both ways: written, and read back by the side that receives it.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.mqtt.decoder import PacketDecoder
from rove.mqtt.encoder import PINGREQ, PINGRESP, encode, encode_within, publish_parts
from rove.mqtt.packets import (
    V5,
    V311,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Filter,
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

FROM_CLIENT_5 = [
    (Connect("", V5, True, 0), "10 0D  0004 4D515454 05 02 0000  00  0000"),
    (
        Connect("ab", V5, False, 60, properties=Properties(session_expiry_s=10)),
        "10 14  0004 4D515454 05 00 003C  05 11 0000000A  0002 6162",
    ),
    (
        Connect(
            "c", V5, True, 10, "u", b"\x00p",
            Will("w", b"bye", 1, True, Properties(will_delay_s=5, user=(("k", "v"),))),
            Properties(receive_max=20, packet_size_max=65536),
        ),
        ("10 32  0004 4D515454 05 EE 000A"
        "  08 21 0014 27 00010000  0001 63"
        "  0C 18 00000005 26 0001 6B 0001 76  0001 77  0003 627965"
        "  0001 75  0002 0070"),
    ),
    (
        Connect("c", V5, True, 0, None, b"secret"),
        "10 16  0004 4D515454 05 42 0000  00  0001 63  0006 736563726574",
    ),
    (
        Connect(
            "", V5, True, 0,
            properties=Properties(
                authentication_method="m", authentication_data=b"\x01", topic_alias_max=2,
                request_problem_information=0, request_response_information=1,
            ),
        ),
        ("10 1C  0004 4D515454 05 02 0000"
        "  0F 15 0001 6D 16 0001 01 17 00 19 01 22 0002  0000"),
    ),
    (
        Subscribe(10, (Filter("a/b", 1), Filter("c/#", 2, True, True, 2))),
        "82 0F  000A  00  0003 612F62 01  0003 632F23 2E",
    ),
    (
        Subscribe(
            1, (Filter("t"),),
            Properties(subscription_ids=(268_435_455,), user=(("filter", "x > 1"),)),
        ),
        "82 1C  0001  15 0B FFFFFF7F 26 0006 66696C746572 0005 78203E2031  0001 74 00",
    ),
    (Unsubscribe(258, ("a", "b/+")), "A2 0B  0102  00  0001 61  0003 622F2B"),
    (
        Unsubscribe(1, ("a",), Properties(user=(("", ""),))),
        "A2 0B  0001  05 26 0000 0000  0001 61",
    ),
    (Pingreq(), "C0 00"),
    (Disconnect(), "E0 00"),
    (Disconnect(Reason.DISCONNECT_WITH_WILL), "E0 01 04"),
    (Disconnect(properties=Properties(session_expiry_s=1)), "E0 07 00 05 11 00000001"),
    (
        Auth(Reason.REAUTHENTICATE, Properties(authentication_method="m")),
        "F0 06 19 04 15 0001 6D",
    ),
]  # fmt: skip

FROM_SERVER_5 = [
    (Connack(), "20 03 00 00 00"),
    (Connack(True), "20 03 01 00 00"),
    (Connack(reason=Reason.NOT_AUTHORIZED), "20 03 00 87 00"),
    (
        Connack(
            properties=Properties(
                session_expiry_s=1, assigned_client_id="x", server_keep_alive_s=2,
                authentication_method="m", authentication_data=b"d", response_information="i",
                server_reference="s", reason_string="r", receive_max=3, topic_alias_max=4,
                qos_max=1, retain_available=0, user=(("a", "b"),), packet_size_max=5,
                wildcards_available=0, subscription_ids_available=1, shared_available=0,
            )
        ),
        ("20 3F 00 00 3C"
        "11 00000001  12 0001 78  13 0002  15 0001 6D  16 0001 64  1A 0001 69  1C 0001 73"
        "1F 0001 72  21 0003  22 0004  24 01  25 00  26 0001 61 0001 62  27 00000005"
        "28 00  29 01  2A 00"),
    ),
    (Suback(10, (0, 1, 2, Reason.NOT_AUTHORIZED)), "90 07  000A  00  00 01 02 87"),
    (
        Suback(1, (Reason.TOPIC_FILTER_INVALID,), Properties(reason_string="no")),
        "90 09  0001  05 1F 0002 6E6F  8F",
    ),
    (Unsuback(2, (0, Reason.NO_SUBSCRIPTION_EXISTED)), "B0 05  0002  00  00 11"),
    (Pingresp(), "D0 00"),
    (Disconnect(), "E0 00"),
    (Disconnect(Reason.SESSION_TAKEN_OVER), "E0 01 8E"),
    (
        Disconnect(Reason.USE_ANOTHER_SERVER, Properties(server_reference="s")),
        "E0 06 9C 04 1C 0001 73",
    ),
    (Auth(), "F0 00"),
    (
        Auth(
            Reason.CONTINUE_AUTHENTICATION,
            Properties(authentication_method="m", authentication_data=b"\xff"),
        ),
        "F0 0A 18 08 15 0001 6D 16 0001 FF",
    ),
    (
        Publish("t", b"x", properties=Properties(subscription_ids=(1, 128))),
        "30 0A  0001 74  05 0B 01 0B 8001  78",
    ),
]  # fmt: skip

BOTH_WAYS_5 = [
    (Publish("a/b", b""), "30 06  0003 612F62  00"),
    (Publish("a/b", b"hi", retain=True), "31 08  0003 612F62  00  6869"),
    (Publish("a", b"hi", 1, packet_id=258), "32 08  0001 61  0102  00  6869"),
    (Publish("a", b"", 2, True, True, 65535), "3D 06  0001 61  FFFF  00"),
    (Publish("", b"x", properties=Properties(topic_alias=7)), "30 07  0000  03 23 0007  78"),
    (
        Publish(
            "t", b"{}", 1, packet_id=1,
            properties=Properties(
                payload_format=1, message_expiry_s=60, content_type="j", response_topic="r/1",
                correlation_data=b"\x00\x01", user=(("a", "1"), ("a", "2")),
            ),
        ),
        ("32 2C  0001 74  0001  24 01 01  02 0000003C  03 0001 6A  08 0003 722F31  09 0002 0001"
        "26 0001 61 0001 31  26 0001 61 0001 32  7B7D"),
    ),
    (Publish("t", bytes(200)), "30 CC01  0001 74  00" + "00" * 200),
    (Publish("t", bytes(16_380)), "30 808001  0001 74  00" + "00" * 16_380),
    (Publish("t", bytes(2_097_148)), "30 80808001  0001 74  00" + "00" * 2_097_148),
    (Puback(1), "40 02 0001"),
    (Puback(258, Reason.NO_MATCHING_SUBSCRIBERS), "40 03 0102 10"),
    (
        Puback(1, Reason.NOT_AUTHORIZED, Properties(reason_string="no")),
        "40 09 0001 87 05 1F 0002 6E6F",
    ),
    (Puback(1, properties=Properties(user=(("a", "b"),))), "40 0B 0001 00 07 26 0001 61 0001 62"),
    (Pubrec(1), "50 02 0001"),
    (Pubrec(1, Reason.QUOTA_EXCEEDED), "50 03 0001 97"),
    (Pubrel(1), "62 02 0001"),
    (Pubrel(1, Reason.PACKET_ID_NOT_FOUND), "62 03 0001 92"),
    (Pubcomp(65535), "70 02 FFFF"),
    (
        Pubcomp(1, Reason.PACKET_ID_NOT_FOUND, Properties(user=(("", ""),))),
        "70 09 0001 92 05 26 0000 0000",
    ),
]  # fmt: skip

FROM_CLIENT_311 = [
    (Connect("", V311, True, 0), "10 0C  0004 4D515454 04 02 0000  0000"),
    (
        Connect("c", V311, False, 60, "u", b"p", Will("w", b"", 2, False)),
        "10 18  0004 4D515454 04 D4 003C  0001 63  0001 77  0000  0001 75  0001 70",
    ),
    (Subscribe(1, (Filter("a/+", 2), Filter("#"))), "82 0C  0001  0003 612F2B 02  0001 23 00"),
    (Unsubscribe(1, ("a", "b")), "A2 08  0001  0001 61  0001 62"),
    (Pingreq(), "C0 00"),
    (Disconnect(), "E0 00"),
]
FROM_SERVER_311 = [
    (Connack(), "20 02 00 00"),
    (Connack(True), "20 02 01 00"),
    (Connack(reason=Reason.UNSUPPORTED_PROTOCOL_VERSION), "20 02 00 01"),
    (Connack(reason=Reason.CLIENT_ID_NOT_VALID), "20 02 00 02"),
    (Connack(reason=Reason.SERVER_UNAVAILABLE), "20 02 00 03"),
    (Connack(reason=Reason.BAD_USER_NAME_OR_PASSWORD), "20 02 00 04"),
    (Connack(reason=Reason.NOT_AUTHORIZED), "20 02 00 05"),
    (Suback(3, (0, 1, 2, 0x80)), "90 06  0003  00 01 02 80"),
    (Unsuback(3), "B0 02 0003"),
    (Pingresp(), "D0 00"),
]
BOTH_WAYS_311 = [
    (Publish("a/b", b"hi"), "30 07  0003 612F62  6869"),
    (Publish("a", b"", 1, True, True, 10), "3B 05  0001 61  000A"),
    (Publish("a", bytes(125), 2, packet_id=1), "34 8201  0001 61  0001" + "00" * 125),
    (Puback(1), "40 02 0001"),
    (Pubrec(2), "50 02 0002"),
    (Pubrel(3), "62 02 0003"),
    (Pubcomp(4), "70 02 0004"),
]

EXAMPLES = [
    *[(V5, False, *example) for example in FROM_CLIENT_5 + BOTH_WAYS_5],
    *[(V5, True, *example) for example in FROM_SERVER_5 + BOTH_WAYS_5],
    *[(V311, False, *example) for example in FROM_CLIENT_311 + BOTH_WAYS_311],
    *[(V311, True, *example) for example in FROM_SERVER_311 + BOTH_WAYS_311],
]


@pytest.mark.parametrize(
    ("version", "from_server", "packet", "written"),
    EXAMPLES,
    ids=[f"{version}-{type(packet).__name__}" for version, _, packet, _ in EXAMPLES],
)
def test_bytes_by_hand(version: int, from_server: bool, packet: Packet, written: str) -> None:
    expected = bytes.fromhex(written)
    assert encode(packet, version) == expected
    known = None if isinstance(packet, Connect) else version
    reader = PacketDecoder(version=known, from_server=from_server)
    assert reader.feed(expected) == [packet]
    assert reader.version == version


def test_every_packet_has_an_example() -> None:
    shown = {(version, type(packet)) for version, _, packet, _ in EXAMPLES}
    missing = {(version, kind) for version in (V5, V311) for kind in Packet.__args__} - shown
    assert missing == {(V311, Auth)}


def test_311_is_told_only_what_it_knows() -> None:
    said = Properties(reason_string="no", user=(("a", "b"),), subscription_ids=(4,))
    assert encode(Puback(1, Reason.NOT_AUTHORIZED, said), V311) == b"\x40\x02\x00\x01"
    assert encode(Pubrec(1, Reason.QUOTA_EXCEEDED, said), V311) == b"\x50\x02\x00\x01"
    assert encode(Publish("t", b"x", properties=said), V311) == b"\x30\x04\x00\x01tx"
    assert encode(Disconnect(Reason.PROTOCOL_ERROR, said), V311) == b"\xe0\x00"
    assert encode(Unsuback(1, (0, 0x11), said), V311) == b"\xb0\x02\x00\x01"
    refusals = (2, Reason.NOT_AUTHORIZED, Reason.WILDCARDS_NOT_SUPPORTED)
    assert encode(Suback(1, refusals, said), V311) == b"\x90\x05\x00\x01\x02\x80\x80"
    options = Filter("t", 1, no_local=True, retain_as_published=True, retain_handling=2)
    assert encode(Subscribe(1, (options,), said), V311) == b"\x82\x06\x00\x01\x00\x01t\x01"
    will = Will("w", b"", properties=Properties(will_delay_s=3))
    assert encode(Connect("", V311, will=will, properties=said)) == (
        b"\x10\x11\x00\x04MQTT\x04\x06\x00\x3c\x00\x00\x00\x01w\x00\x00"
    )


@pytest.mark.parametrize(
    "reason", [Reason.SERVER_BUSY, Reason.BANNED, Reason.QUOTA_EXCEEDED, Reason.PACKET_TOO_LARGE]
)
def test_reasons_that_311_lacks_become_server_unavailable(reason: Reason) -> None:
    assert encode(Connack(reason=reason), V311) == b"\x20\x02\x00\x03"
    assert encode(Connack(reason=int(reason)), V311) == b"\x20\x02\x00\x03"


def test_311_has_no_auth() -> None:
    with pytest.raises(ValueError, match=r"3\.1\.1 has no AUTH"):
        encode(Auth(), V311)


def test_an_auth_with_a_reason_says_that_it_has_no_properties() -> None:
    assert encode(Auth(Reason.REAUTHENTICATE)) == b"\xf0\x02\x19\x00"


def test_a_connect_is_encoded_by_its_own_version() -> None:
    packet = Connect("", V311)
    assert encode(packet, V5) == encode(packet, V311)


def test_empty_properties_are_no_properties() -> None:
    assert encode(Puback(1, properties=Properties())) == b"\x40\x02\x00\x01"
    assert encode(Disconnect(properties=Properties())) == b"\xe0\x00"
    assert encode(Publish("t", b"x", properties=Properties())) == b"\x30\x05\x00\x01t\x00x"


def test_pings_are_constants() -> None:
    assert encode(Pingreq()) == PINGREQ
    assert encode(Pingresp(), V311) == PINGRESP


# --- the parts of a PUBLISH ---------------------------------------------------------------------


@given(
    version=st.sampled_from([V5, V311]),
    topic=st.text("ab/ü", min_size=1, max_size=200),
    payload=st.binary(max_size=300),
    qos=st.sampled_from([0, 1, 2]),
    retain=st.booleans(),
    packet_id=st.integers(1, 65535),
    ids=st.lists(st.integers(1, 268_435_455), max_size=3).map(tuple),
)
def test_parts_make_the_packet(
    version: int,
    topic: str,
    payload: bytes,
    qos: int,
    retain: bool,
    packet_id: int,
    ids: tuple[int, ...],
) -> None:
    properties = Properties(subscription_ids=ids)
    packet = Publish(topic, payload, qos, retain, False, packet_id if qos else 0, properties)
    head, tail = publish_parts(packet, version)
    between = packet_id.to_bytes(2, "big") if qos else b""
    assert head + between + tail == encode(packet, version)


def test_parts_do_not_depend_on_packet_identifier_and_dup() -> None:
    fresh = Publish("t", b"x", 1)
    again = Publish("t", b"x", 1, False, True, 77)
    assert publish_parts(again) == publish_parts(fresh)
    assert encode(again) == b"\x3a\x07\x00\x01t\x00\x4d\x00x"


# --- what does not fit ------------------------------------------------------------------------

SAID = Properties(reason_string="r" * 50, user=(("name", "v" * 50),))
ANSWERS: list[Packet] = [
    Connack(properties=SAID),
    Puback(1, Reason.NOT_AUTHORIZED, SAID),
    Pubrec(1, Reason.NOT_AUTHORIZED, SAID),
    Pubrel(1, Reason.PACKET_ID_NOT_FOUND, SAID),
    Pubcomp(1, Reason.PACKET_ID_NOT_FOUND, SAID),
    Suback(1, (0,), SAID),
    Unsuback(1, (0,), SAID),
    Disconnect(Reason.SERVER_BUSY, SAID),
    Auth(Reason.CONTINUE_AUTHENTICATION, SAID),
]


def properties_read(written: bytes | None) -> Properties:
    assert written is not None
    (packet,) = PacketDecoder(version=V5, from_server=True).feed(written)
    return packet.properties  # type: ignore[union-attr]


@pytest.mark.parametrize("packet", ANSWERS[:-1])
def test_what_is_dropped_from_an_answer_that_is_too_large(packet: Packet) -> None:
    whole = encode(packet)
    assert encode_within(packet, V5, None) == whole
    assert encode_within(packet, V5, len(whole)) == whole
    without_reason = encode_within(packet, V5, len(whole) - 1)
    assert properties_read(without_reason) == Properties(user=SAID.user)
    assert without_reason is not None
    bare = encode_within(packet, V5, len(without_reason) - 1)
    assert properties_read(bare) == Properties()
    assert bare is not None
    assert encode_within(packet, V5, len(bare)) == bare
    assert encode_within(packet, V5, len(bare) - 1) is None


def test_an_auth_keeps_what_it_is_for() -> None:
    properties = Properties(
        authentication_method="m", authentication_data=b"d" * 20, reason_string="r" * 50
    )
    packet = Auth(Reason.CONTINUE_AUTHENTICATION, properties)
    kept = Properties(authentication_method="m", authentication_data=b"d" * 20)
    assert properties_read(encode_within(packet, V5, 40)) == kept
    assert encode_within(packet, V5, 20) is None


@pytest.mark.parametrize(
    "packet",
    [
        Publish("t", b"x", properties=Properties(user=SAID.user)),
        Connect("c", properties=Properties(user=SAID.user)),
        Subscribe(1, (Filter("t"),), Properties(user=SAID.user)),
        Unsubscribe(1, ("t",), Properties(user=SAID.user)),
    ],
)
def test_nothing_is_dropped_from_what_somebody_says(packet: Packet) -> None:
    whole = encode(packet)
    assert encode_within(packet, V5, len(whole)) == whole
    assert encode_within(packet, V5, len(whole) - 1) is None


def test_a_text_that_cannot_be_counted_is_refused() -> None:
    encode(Publish("x" * 65_535, b""))
    with pytest.raises(ValueError, match="65536 bytes do not fit a field of MQTT, at most 65535"):
        encode(Publish("x" * 65_536, b""))
    with pytest.raises(ValueError, match="65536 bytes"):
        encode(Connect("c", password=bytes(65_536)))


def test_a_number_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(OverflowError):
        encode(Puback(65_536))
    with pytest.raises(ValueError, match="268435456 is too large"):
        encode(Subscribe(1, (Filter("t"),), Properties(subscription_ids=(268_435_456,))))
