"""A publication: what subscriptions see of it, and how it goes out and is kept."""

import pytest

from rove.testing.mqtt import World


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
        world = World()
        client = world.connect()
        client.subscribe("air/#", filter=text)
        payload = b'{"x": 1, "place": {"city": "Zagreb"}}'
        client.publish("air/zagreb", payload, unit="ug")
        assert client.payloads() == [payload]

    def test_a_member_of_the_payload_wins_over_a_user_property(self) -> None:
        world = World()
        client = world.connect()
        client.subscribe("a", filter="x = 1")
        client.publish("a", b'{"x": 1}', x="2")
        client.publish("a", b"{}", x="1")
        assert client.payloads() == [b'{"x": 1}']

    def test_the_topic_wins_over_both(self) -> None:
        world = World()
        client = world.connect()
        client.subscribe("a", filter="topic = 'b'")
        client.publish("a", b'{"topic": "b"}')
        assert client.payloads() == []

    def test_what_is_no_json_is_matched_by_topic_and_user_properties(self) -> None:
        world = World()
        client = world.connect()
        client.subscribe("a", filter="kind = 'raw' AND x IS NULL")
        client.publish("a", b"\xff\xfe", kind="raw")
        client.publish("a", b'{"x": 1', kind="raw")
        client.publish("a", b"[1, 2]", kind="raw")
        client.publish("a", b'{"x": 1}', kind="raw")
        assert client.payloads() == [b"\xff\xfe", b'{"x": 1', b"[1, 2]"]

    def test_a_payload_that_the_language_cannot_hold_is_carried(self) -> None:
        world = World()
        client = world.connect()
        client.subscribe("a", filter="kind = 'raw'")
        payload = b'{"x": 123456789012345678901234567890}'
        client.publish("a", payload, kind="raw")
        assert client.payloads() == [payload]

    def test_no_attribute_can_pretend_to_be_a_filter_number(self) -> None:
        world = World()
        client = world.connect()
        client.subscribe("a", filter="x = 1")
        for number in range(1, 5):
            client.publish("b", b'{"x": 1, "$filter": %d}' % number)
        assert client.payloads() == []
