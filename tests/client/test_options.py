"""Options of a connection: what they become, and what is refused before anything is tried."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rove.client.addresses import parse_address
from rove.client.errors import AddressError, PublishRefused
from rove.client.options import ClientOptions, Will, payload_of, validity

HOST = parse_address("mqtt://ann:pw@host")


def test_a_client_without_a_name_is_nobodys_heir() -> None:
    settings = ClientOptions(HOST).settings()
    assert (settings.client_id, settings.clean_start) == ("", True)
    assert (settings.user_name, settings.password) == ("ann", b"pw")


def test_a_client_with_a_name_wants_its_session() -> None:
    settings = ClientOptions(HOST, client_id="me", user_name="bob", password="other").settings()
    assert (settings.client_id, settings.clean_start) == ("me", False)
    assert (settings.user_name, settings.password) == ("bob", b"other")
    assert ClientOptions(HOST, client_id="me", clean_start=True).settings().clean_start


def test_a_will_is_a_publication() -> None:
    will = Will("gone", {"x": 1}, delay_s=5, user={"a": "b"})
    packet = ClientOptions(HOST, will=will).settings().will
    assert packet is not None
    assert (packet.topic, packet.payload, packet.qos) == ("gone", b'{"x":1}', 1)
    assert packet.properties.will_delay_s == 5
    assert packet.properties.user == (("a", "b"),)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"session_expiry_s": -1}, "session_expiry_s is -1; it may be 0 to"),
        ({"keep_alive_s": 65_536}, "keep_alive_s"),
        ({"receive_max": 0}, "receive_max is 0; it may be 1 to 65535"),
        ({"outbox_max": 0}, "outbox_max is 0; it may be at least 1"),
        ({"outbox_bytes_max": 0}, "outbox_bytes_max"),
        ({"report_every_s": 0}, "report_every_s is 0; it may be at least 0.001"),
        ({"timeout_s": -1}, "timeout_s"),
        ({"retry_s_max": -1}, "retry_s_max"),
        ({"on_slow": "panic"}, "on_slow is 'panic'; it may be 'wait', 'drop-oldest'"),
        ({"outbox_full": "drop"}, "outbox_full"),
        ({"client_id": ""}, "client_id is empty"),
        ({"client_id": "a\0"}, r"client_id contains U\+0000"),
        ({"user_name": "a\0"}, r"user_name contains U\+0000"),
        ({"password": "x" * 65_536}, "password is 65536 bytes long"),
        ({"will": Will("a/#")}, "will: a topic name has no wildcards"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(AddressError, match=complaint):
        ClientOptions(HOST, **options).check()


def test_the_defaults_are_allowed() -> None:
    ClientOptions(HOST).check()


class Reading(msgspec.Struct):
    NO2: float


@pytest.mark.parametrize(
    ("value", "payload"),
    [
        (b"\xff", b"\xff"),
        (bytearray(b"a"), b"a"),
        (memoryview(b"a"), b"a"),
        ({"a": 1}, b'{"a":1}'),
        (Reading(1.5), b'{"NO2":1.5}'),
        ("text", b'"text"'),
        (3, b"3"),
    ],
)
def test_bytes_are_sent_as_they_are_and_all_else_as_json(value: object, payload: bytes) -> None:
    assert payload_of(value) == payload


def test_how_long_something_is_valid_is_said_in_seconds() -> None:
    assert [validity("forever"), validity(3600), validity(0.5)] == ["forever", "3600", "0.5"]
    for nonsense in (0, -1, float("inf"), "soon"):
        with pytest.raises(PublishRefused, match="valid_for"):
            validity(nonsense)  # type: ignore[arg-type]
