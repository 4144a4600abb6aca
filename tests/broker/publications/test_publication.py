"""A publication: what subscriptions see of it, and how it goes out and is kept."""

import math

import pytest

from rove.broker.publications.publication import PARTS_MAX, Publication, user_property
from rove.broker.storage.records import PublicationRow, decoded, encoded
from rove.lang.attributes import attributes_of
from rove.lang.oracle import matches
from rove.lang.parser import parse
from rove.lang.tree import Attribute
from rove.mqtt.decoder import PacketDecoder
from rove.mqtt.encoder import encode
from rove.mqtt.packets import NO_PROPERTIES, V5, V311, Properties, Publish
from rove.testing.mqtt import SimulatedBroker


class TestAttributes:
    @pytest.mark.parametrize(
        "text",
        [
            "x = 1",
            "place.city = 'Zagreb'",
            "unit = 'ug'",
            "topic = 'air/zagreb'",
            "topic LIKE 'air/%'",
        ],
    )
    def test_payload_user_properties_and_topic_are_attributes(self, text: str) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe("air/#", filter=text)
        payload = b'{"x": 1, "place": {"city": "Zagreb"}}'
        client.publish("air/zagreb", payload, unit="ug")
        assert client.payloads() == [payload]

    def test_a_member_of_the_payload_wins_over_a_user_property(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe("a", filter="x = 1")
        client.publish("a", b'{"x": 1}', x="2")
        client.publish("a", b"{}", x="1")
        assert client.payloads() == [b'{"x": 1}']

    def test_the_topic_wins_over_both(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe("a", filter="topic = 'b'")
        client.publish("a", b'{"topic": "b"}')
        assert client.payloads() == []

    def test_what_is_no_json_is_matched_by_topic_and_user_properties(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe("a", filter="kind = 'raw' AND x IS NULL")
        client.publish("a", b"\xff\xfe", kind="raw")
        client.publish("a", b'{"x": 1', kind="raw")
        client.publish("a", b"[1, 2]", kind="raw")
        client.publish("a", b'{"x": 1}', kind="raw")
        assert client.payloads() == [b"\xff\xfe", b'{"x": 1', b"[1, 2]"]

    def test_a_payload_that_the_language_cannot_hold_is_carried(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe("a", filter="kind = 'raw'")
        payload = b'{"x": 123456789012345678901234567890}'
        client.publish("a", payload, kind="raw")
        assert client.payloads() == [payload]

    def test_no_attribute_can_pretend_to_be_a_filter_number(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe("a", filter="x = 1")
        for number in range(1, 5):
            client.publish("b", b'{"x": 1, "$filter": %d}' % number)
        assert client.payloads() == []


def publication(payload: bytes = b"{}", properties: Properties = NO_PROPERTIES) -> Publication:
    publish = Publish("a/b", payload, 1, properties=properties)
    return Publication(7, publish, "publisher", "id", 100.0)


class TestParts:
    def test_both_parts_around_the_packet_identifier_are_the_packet(self) -> None:
        one = publication(b"payload")
        for version in (V311, V5):
            head, tail = one.parts(version, 1, True, (), 100.0)
            wanted = Publish("a/b", b"payload", 1, True, packet_id=0x1234)
            assert head + b"\x12\x34" + tail == encode(wanted, version)

    def test_the_same_form_is_made_once(self) -> None:
        one = publication()
        assert one.parts(V5, 1, False, (3,), 100.0) is one.parts(V5, 1, False, (3,), 100.0)

    def test_identifiers_are_nothing_to_3_1_1(self) -> None:
        one = publication()
        assert one.parts(V311, 1, False, (3,), 100.0) is one.parts(V311, 1, False, (4,), 100.0)

    def test_the_time_left_is_rounded_up(self) -> None:
        one = publication(properties=Properties(message_expiry_s=10))
        for now, left_s in ((100.0, 10), (100.1, 10), (109.5, 1), (109.999, 1)):
            head, tail = one.parts(V5, 0, False, (), now)
            (packet,) = PacketDecoder(version=V5, from_server=True).feed(head + tail)
            assert isinstance(packet, Publish)
            assert packet.properties.message_expiry_s == left_s

    def test_no_more_forms_are_kept_than_allowed(self) -> None:
        one = publication()
        for number in range(1, 10 * PARTS_MAX):
            one.parts(V5, 1, False, (number,), 100.0)
        assert len(one._parts) <= PARTS_MAX

    def test_a_selection_is_sent_as_json(self) -> None:
        one = publication(b'{"x": 1, "y": {"z": 2, "w": 3}}')
        _, tail = one.parts(V311, 1, False, (), 100.0, (Attribute(("y", "z")),))
        assert tail == b'{"y":{"z":2}}'

    def test_without_a_packet_identifier_it_is_in_one_piece(self) -> None:
        one = publication(b'{"x": 1}')
        head, tail = one.parts(V311, 0, False, (), 100.0)
        assert head.endswith(b'{"x": 1}')
        assert tail == b""
        assert one.parts(V311, 0, False, (), 100.0)[0] is head


class TestRow:
    def test_what_is_read_is_what_was_written(self) -> None:
        said = Properties(user=(("a", "1"),), message_expiry_s=10, content_type="x")
        for valid_until in (None, 150.0, math.inf):
            one = publication(b"1", said)
            one.valid_until = valid_until
            again = Publication.restored(7, decoded(PublicationRow, encoded(one.row())))
            for name in ("number", "topic", "payload", "qos", "properties", "publisher", "id"):
                assert getattr(again, name) == getattr(one, name)
            assert (again.at, again.expires_at) == (100.0, 110.0)
            assert again.valid_until == valid_until

    def test_what_never_expires_still_does_not(self) -> None:
        again = Publication.restored(7, publication().row())
        assert not again.is_over(1e12)


def test_it_is_over_when_it_has_expired_or_was_withdrawn() -> None:
    one = publication(properties=Properties(message_expiry_s=10))
    assert not one.is_over(109.9)
    assert one.is_over(110.0)
    other = publication()
    other.withdrawn = True
    assert other.is_over(100.0)


def test_the_first_user_property_of_a_name_counts() -> None:
    said = Properties(user=(("b", "1"), ("a", "2"), ("a", "3")))
    assert user_property(said, "a") == "2"
    assert user_property(said, "a", "b") == "1"
    assert user_property(said, "c") is None


@pytest.mark.parametrize(
    "number", [2**63 - 1, 2**63, 2**64, -(2**63), -(2**63) - 1, 10**30, 1.7e308, 5e-324]
)
@pytest.mark.parametrize("text", ["x > 5", "x < 5", "x = x", "NOT x = 5", "x + 1 > 5"])
def test_numbers_beyond_all_bounds_mean_what_the_language_says(number: float, text: str) -> None:
    world = SimulatedBroker()
    client = world.connect()
    client.subscribe("a", filter=text)
    payload = b'{"x": %s}' % repr(number).encode()
    client.publish("a", payload)
    attributes = attributes_of("a", payload, ())
    expected = [payload] if matches(parse(text), attributes) else []
    assert client.payloads() == expected


def test_what_a_policy_makes_has_the_content_type_of_its_origin_while_that_holds() -> None:
    picture = Publication(
        1,
        Publish("t", b"\xff\xd8", properties=Properties(content_type="image/jpeg")),
        "a",
        "i",
        0.0,
    )
    assert picture.derived(2, b"\xff\xd8\xff", ()).properties.content_type == "image/jpeg"
    assert picture.derived(3, b'{"pulse":90}', ()).properties.content_type is None
    values = Publication(
        4, Publish("t", b' {"a":1}', properties=Properties(content_type="x/y")), "a", "i", 0.0
    )
    assert values.derived(5, b'{"a":2}', ()).properties.content_type == "x/y"
