"""URLs of brokers: what is read out of them, what is refused, and that no password is shown."""

import pytest

from rove.client.addresses import Address, parse_address
from rove.client.errors import AddressError


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("mqtt://host", Address("mqtt", "host", 1883)),
        ("mqtt://host/", Address("mqtt", "host", 1883)),
        ("mqtts://host", Address("mqtts", "host", 8883)),
        ("mqtt://ann@host:7", Address("mqtt", "host", 7, user_name="ann")),
        (
            "mqtt://a%40b:p%3Aw@host",
            Address("mqtt", "host", 1883, user_name="a@b", password="p:w"),
        ),
        ("mqtt://[::1]:7", Address("mqtt", "::1", 7)),
        ("ws://host", Address("ws", "host", 80, "/mqtt")),
        ("wss://host:9/other", Address("wss", "host", 9, "/other")),
    ],
)
def test_an_address_is_read(url: str, address: Address) -> None:
    assert parse_address(url) == address


def test_what_an_address_is() -> None:
    assert parse_address("wss://h").is_tls
    assert parse_address("wss://h").is_websocket
    assert parse_address("mqtts://h").is_tls
    assert not parse_address("mqtt://h").is_tls
    assert not parse_address("mqtt://h").is_websocket


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("localhost", "no scheme"),
        ("localhost:1883", "no scheme"),
        ("http://h", "the scheme 'http'"),
        ("mqtt://", "names no host"),
        ("mqtt://h:port", "no address"),
        ("mqtt://h:99999", "no address"),
        ("mqtt://h/topic", "says more"),
        ("mqtt://h?x=1", "says more"),
        ("ws://h/mqtt#f", "says more"),
    ],
)
def test_what_is_no_address_is_refused(url: str, complaint: str) -> None:
    with pytest.raises(AddressError, match=complaint) as caught:
        parse_address(url)
    assert "mqtt://host:1883" in str(caught.value)


@pytest.mark.parametrize("url", ["mqtt://u:secret@h:x", "http://u:secret@h", "u:secret@h"])
def test_a_refusal_shows_no_password(url: str) -> None:
    with pytest.raises(AddressError) as caught:
        parse_address(url)
    assert "secret" not in str(caught.value)


def test_an_address_shows_no_password() -> None:
    address = parse_address("mqtt://u:secret@h:7")
    assert f"{address} {address!r}" == "mqtt://h:7 mqtt://h:7"
    assert str(parse_address("ws://[::1]:7")) == "ws://[::1]:7/mqtt"
