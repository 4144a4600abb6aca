"""A connection as the broker sees it: what fits the client is what it is sent."""

import pytest

from rove.broker.sessions.links import Link, in_one_line
from rove.mqtt.packets import V5, V311, Connack, Disconnect, Properties, Puback, Publish, Reason
from rove.testing.mqtt import SimulatedBroker


def test_a_packet_is_written_in_the_clients_version() -> None:
    link = Link("here", 0.0, 1_000)
    answer = Puback(7, Reason.QUOTA_EXCEEDED)
    link.version = V5
    assert link.encoded(answer) == b"\x40\x03\x00\x07\x97"
    assert (link.is_v5, link.is_v311) == (True, False)
    link.version = V311
    assert link.encoded(answer) == b"\x40\x02\x00\x07"
    assert (link.is_v5, link.is_v311) == (False, True)


def test_what_is_too_large_for_the_client_loses_its_reason_string() -> None:
    link = Link("here", 0.0, 1_000)
    link.packet_bytes_max = 10
    goodbye = Disconnect(Reason.PROTOCOL_ERROR, Properties(reason_string="a long explanation"))
    assert link.encoded(goodbye) == b"\xe0\x01\x82"


def test_what_cannot_be_made_to_fit_is_nothing() -> None:
    link = Link("here", 0.0, 1_000)
    link.packet_bytes_max = 10
    assert link.encoded(Publish("topic", bytes(100))) is None


def test_no_two_links_share_their_aliases() -> None:
    one, two = Link("one", 0.0, 1_000), Link("two", 0.0, 1_000)
    one.aliases = {1: "a"}
    assert two.aliases == {}


def test_a_reason_string_is_one_line_unless_people_read_it() -> None:
    diagnostic = "column 6: expected a value\n  NO2 >\n       ^\n  something must follow >"
    link = Link("here", 0.0, 1_000)
    said = "column 6: expected a value; NO2 >; something must follow >"
    assert link.explained(diagnostic).reason_string == said
    link.takes_lines = True
    assert link.explained(diagnostic).reason_string == diagnostic


def test_no_control_character_is_left_in_one_line() -> None:
    assert in_one_line("a topic \x01\tof\x7f theirs") == "a topic ⟨U+0001⟩ of⟨U+007F⟩ theirs"


class TestIdsOfTheBroker:
    @pytest.mark.parametrize("client_id", ["http", "http:", "http:alice"])
    @pytest.mark.parametrize("user", [None, "alice", "bob"])
    def test_nobody_else_can_have_them(self, client_id: str, user: str | None) -> None:
        client = SimulatedBroker().client(client_id)
        client.send_connect(user=user)
        assert client.only(Connack).reason == Reason.CLIENT_ID_NOT_VALID
        assert client.is_closed()

    def test_others_that_look_like_them_are_free(self) -> None:
        world = SimulatedBroker()
        for client_id in ("http2", "https:alice", "HTTP:alice", "my-http:x"):
            world.connect(client_id)
