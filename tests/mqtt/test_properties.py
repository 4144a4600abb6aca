"""Fields and properties by themselves: sizes, ends, and the table against the specification's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.mqtt.packets import NO_PROPERTIES, Properties, Reason
from rove.mqtt.properties import (
    TABLE,
    VARINT_MAX,
    Fields,
    PacketFault,
    PacketType,
    Property,
    read,
    write,
    write_binary,
    write_text,
    write_varint,
)

TABLE_2_4 = """
01 PUBLISH WILL
02 PUBLISH WILL
03 PUBLISH WILL
08 PUBLISH WILL
09 PUBLISH WILL
0B PUBLISH SUBSCRIBE
11 CONNECT CONNACK DISCONNECT
12 CONNACK
13 CONNACK
15 CONNECT CONNACK AUTH
16 CONNECT CONNACK AUTH
17 CONNECT
18 WILL
19 CONNECT
1A CONNACK
1C CONNACK DISCONNECT
1F CONNACK PUBACK PUBREC PUBREL PUBCOMP SUBACK UNSUBACK DISCONNECT AUTH
21 CONNECT CONNACK
22 CONNECT CONNACK
23 PUBLISH
24 CONNACK
25 CONNACK
26 CONNECT CONNACK PUBLISH WILL PUBACK PUBREC PUBREL PUBCOMP SUBSCRIBE SUBACK UNSUBSCRIBE UNSUBACK
26 DISCONNECT AUTH
27 CONNECT CONNACK
28 CONNACK
29 CONNACK
2A CONNACK
"""
"""Section 2.2.2.2 of the specification: the identifiers, and where they may stand."""


def test_the_table_is_the_specifications() -> None:
    lines = [line.split() for line in TABLE_2_4.strip().splitlines()]
    expected = {(int(identifier, 16), place) for identifier, *places in lines for place in places}
    assert {(each.identifier, place.name) for each in TABLE for place in each.places} == expected


def test_every_property_has_its_field() -> None:
    assert sorted(each.name for each in TABLE) == sorted(Properties.__struct_fields__)
    assert len({each.identifier for each in TABLE}) == len(TABLE)


def fields_of(data: bytes) -> Fields:
    return Fields(data, 0, len(data))


# --- fields -----------------------------------------------------------------------------------

SIZES = [
    (0, "00"),
    (127, "7F"),
    (128, "8001"),
    (16_383, "FF7F"),
    (16_384, "808001"),
    (2_097_151, "FFFF7F"),
    (2_097_152, "80808001"),
    (VARINT_MAX, "FFFFFF7F"),
]
"""Table 1-1 of the specification."""


@pytest.mark.parametrize(("value", "written"), SIZES)
def test_variable_byte_integers(value: int, written: str) -> None:
    assert write_varint(value) == bytes.fromhex(written)
    assert fields_of(bytes.fromhex(written)).varint("size") == value


@given(st.integers(0, VARINT_MAX))
def test_a_variable_byte_integer_comes_back(value: int) -> None:
    fields = fields_of(write_varint(value))
    assert fields.varint("size") == value
    fields.finish()


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("", "the size is missing"),
        ("80", "the size is missing"),
        ("8000", "more bytes than it needs"),
        ("FF8000", "more bytes than it needs"),
        ("80808080", "longer than four bytes"),
        ("FFFFFFFF01", "longer than four bytes"),
    ],
)
def test_a_bad_variable_byte_integer(written: str, words: str) -> None:
    with pytest.raises(PacketFault, match=words) as caught:
        fields_of(bytes.fromhex(written)).varint("size")
    assert caught.value.reason == Reason.MALFORMED_PACKET


@pytest.mark.parametrize("value", [-1, VARINT_MAX + 1])
def test_what_no_variable_byte_integer_can_hold(value: int) -> None:
    with pytest.raises(ValueError, match=str(value) if value > 0 else "range"):
        write_varint(value)


def test_fields_are_taken_one_after_the_other() -> None:
    fields = fields_of(bytes.fromhex("01 0203 04050607 0001 61 0002 FF00 08 09"))
    assert fields.byte("a") == 1
    assert fields.two("b") == 0x0203
    assert fields.four("c") == 0x0405_0607
    assert fields.text("d") == "a"
    assert fields.binary("e") == b"\xff\x00"
    assert fields.left == 2
    assert fields.rest() == b"\x08\x09"
    fields.finish()


def test_fields_end_where_they_are_told() -> None:
    fields = Fields(b"xx\x00\x01yyy", 2, 5)
    assert fields.binary("a") == b"y"
    with pytest.raises(PacketFault, match="the b is missing"):
        fields.byte("b")


@pytest.mark.parametrize("size", range(6))
def test_no_field_reads_beyond_the_end(size: int) -> None:
    data = bytes.fromhex("0004 61626364 0000")
    for take in (Fields.text, Fields.binary):
        with pytest.raises(PacketFault, match="the thing needs"):
            take(Fields(data, 0, size), "thing")
    for take_number in (Fields.two, Fields.four):
        needed = 2 if take_number is Fields.two else 4
        if size < needed:
            with pytest.raises(
                PacketFault, match=f"the thing needs {needed} bytes and {size} are left"
            ):
                take_number(Fields(data, 0, size), "thing")


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_a_text_comes_back(text: str) -> None:
    assert fields_of(write_text(text)).text("text") == text


@given(st.binary())
def test_only_utf_8_without_nul_is_text(raw: bytes) -> None:
    try:
        expected = raw.decode("utf-8", errors="strict")
    except UnicodeDecodeError:
        expected = "\0"
    fields = fields_of(write_binary(raw))
    if "\0" in expected:
        with pytest.raises(PacketFault, match="the text"):
            fields.text("text")
    else:
        assert fields.text("text") == expected


@pytest.mark.parametrize(
    "raw", ["C080", "C1BF", "E08080", "EDA080", "EDBFBF", "F4908080", "F8888080", "80", "C3", "FF"]
)
def test_what_is_not_utf_8(raw: str) -> None:
    with pytest.raises(PacketFault, match="the text is not UTF-8 at its byte 0"):
        fields_of(write_binary(bytes.fromhex(raw))).text("text")


# --- properties -------------------------------------------------------------------------------


def test_no_properties_are_one_byte_and_one_object() -> None:
    assert write(NO_PROPERTIES, PacketType.PUBLISH) == b"\x00"
    assert write(Properties(), PacketType.PUBLISH) == b"\x00"
    assert read(fields_of(b"\x00"), PacketType.PUBLISH) is NO_PROPERTIES


def test_only_what_a_place_can_have_is_written() -> None:
    everything = Properties(
        user=(("a", "b"),), payload_format=1, receive_max=2, reason_string="r", will_delay_s=3
    )
    assert write(everything, PacketType.PUBACK).hex() == "0b" + "1f000172" + "2600016100" + "0162"
    assert (
        write(everything, PacketType.WILL).hex() == "0e" + "0101" + "1800000003" + "26000161000162"
    )
    assert write(everything, PacketType.PINGREQ) == b"\x00"


def test_zero_is_written_and_none_is_not() -> None:
    properties = Properties(payload_format=0, message_expiry_s=0, content_type="")
    assert write(properties, PacketType.PUBLISH).hex() == "0a" + "0100" + "0200000000" + "030000"
    assert read(fields_of(write(properties, PacketType.PUBLISH)), PacketType.PUBLISH) == properties


def test_reading_stops_at_the_end_of_the_properties() -> None:
    fields = fields_of(bytes.fromhex("02 0101 0101"))
    assert read(fields, PacketType.PUBLISH) == Properties(payload_format=1)
    assert fields.rest() == b"\x01\x01"


def test_a_value_may_not_reach_beyond_the_properties() -> None:
    with pytest.raises(PacketFault, match="message expiry interval needs 4 bytes and 2 are left"):
        read(fields_of(bytes.fromhex("03 020000 0000")), PacketType.PUBLISH)


EXAMPLES: dict[str, tuple[str, object]] = {
    "payload_format": ("01 01", 1),
    "message_expiry_s": ("02 00000102", 258),
    "content_type": ("03 0001 74", "t"),
    "response_topic": ("08 0001 74", "t"),
    "correlation_data": ("09 0001 FF", b"\xff"),
    "subscription_ids": ("0B 8001", (128,)),
    "session_expiry_s": ("11 FFFFFFFF", 0xFFFF_FFFF),
    "assigned_client_id": ("12 0001 63", "c"),
    "server_keep_alive_s": ("13 0102", 258),
    "authentication_method": ("15 0001 6D", "m"),
    "authentication_data": ("16 0001 FF", b"\xff"),
    "request_problem_information": ("17 00", 0),
    "will_delay_s": ("18 00000001", 1),
    "request_response_information": ("19 01", 1),
    "response_information": ("1A 0000", ""),
    "server_reference": ("1C 0001 73", "s"),
    "reason_string": ("1F 0002 C3BC", "ü"),
    "receive_max": ("21 0001", 1),
    "topic_alias_max": ("22 0000", 0),
    "topic_alias": ("23 FFFF", 0xFFFF),
    "qos_max": ("24 00", 0),
    "retain_available": ("25 01", 1),
    "user": ("26 0001 61 0001 62", (("a", "b"),)),
    "packet_size_max": ("27 00000001", 1),
    "wildcards_available": ("28 00", 0),
    "subscription_ids_available": ("29 01", 1),
    "shared_available": ("2A 00", 0),
}


def section(*parts: bytes) -> Fields:
    """Properties as they stand in a packet."""
    return fields_of(write_varint(sum(map(len, parts))) + b"".join(parts))


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry.name)
def test_a_property_by_hand(entry: Property) -> None:
    written, value = EXAMPLES[entry.name]
    raw = bytes.fromhex(written)
    expected = Properties(**{entry.name: value})  # type: ignore[arg-type]
    for place in PacketType:
        if place in entry.places:
            assert write(expected, place) == write_varint(len(raw)) + raw
            assert read(section(raw), place) == expected
        else:
            assert write(expected, place) == b"\x00"
            with pytest.raises(
                PacketFault, match=f"{entry.title} .* does not belong in {place.name}"
            ):
                read(section(raw), place)


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry.name)
def test_a_property_stands_once_unless_it_may_repeat(entry: Property) -> None:
    raw = bytes.fromhex(EXAMPLES[entry.name][0])
    place = min(entry.places)
    if entry.name in ("user", "subscription_ids"):
        found = read(section(raw, raw), place)
        assert len(getattr(found, entry.name)) == 2
    else:
        with pytest.raises(PacketFault, match=f"the {entry.title} stands there twice") as caught:
            read(section(raw, raw), place)
        assert caught.value.reason == Reason.PROTOCOL_ERROR


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry.name)
def test_a_property_that_breaks_off_is_refused(entry: Property) -> None:
    raw = bytes.fromhex(EXAMPLES[entry.name][0])
    for size in range(1, len(raw)):
        with pytest.raises(PacketFault, match=r"are left|is missing") as caught:
            read(section(raw[:size]), min(entry.places))
        assert caught.value.reason == Reason.MALFORMED_PACKET
