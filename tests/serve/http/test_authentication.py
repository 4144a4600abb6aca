"""Who sends a request: credentials are read strictly, and pages of elsewhere are strangers."""

import asyncio
import base64

import pytest

from rove.serve.config import Tls
from rove.serve.http.answers import Fault
from rove.serve.http.authentication import Guests, credentials, cross_site_fault, host_name
from rove.serve.passwords import Door, Hash, Passwords


def header(text: bytes) -> str:
    return f"Basic {base64.b64encode(text).decode()}"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (None, (None, None)),
        (header(b"alice:secret"), ("alice", b"secret")),
        (header(b"alice:with:colons"), ("alice", b"with:colons")),
        (header(b"alice:"), ("alice", b"")),
        (header("zoë:ü".encode()), ("zoë", "ü".encode())),
    ],
)
def test_credentials(written: str | None, expected: tuple[str | None, bytes | None]) -> None:
    assert credentials(written) == expected


@pytest.mark.parametrize(
    "written",
    ["", "Basic", "Basic !!!", "Bearer x", header(b"no colon"), header(b":x"), header(b"\xff:x")],
)
def test_credentials_that_cannot_be_read(written: str) -> None:
    with pytest.raises(Fault) as refused:
        credentials(written)
    assert refused.value.status == 401
    assert "secret" not in refused.value.error


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://localhost:3000", "localhost"),
        ("//[::1]:80", "::1"),
        ("//EXAMPLE.com", "example.com"),
        ("null", ""),
        ("//[", ""),
    ],
)
def test_host_names(url: str, name: str) -> None:
    assert host_name(url) == name


@pytest.mark.parametrize(
    ("headers", "is_fine"),
    [
        ({"host": "a.example"}, True),
        ({"host": "a.example", "origin": "https://a.example"}, True),
        ({"host": "a.example:81", "origin": "http://a.example:80"}, True),
        ({"host": "a.example", "origin": "https://b.example"}, False),
        ({"host": "a.example", "origin": "null"}, False),
        ({"host": "a.example", "user-agent": "curl/8.5.0"}, True),
        ({"host": "a.example", "sec-fetch-site": "same-origin"}, True),
        ({"host": "a.example", "sec-fetch-site": "none"}, True),
        ({"host": "a.example", "sec-fetch-site": "same-site"}, False),
        ({"host": "a.example", "sec-fetch-site": "cross-site"}, False),
        ({"host": "a.example", "sec-fetch-site": "cross-site", "x-rove": "1"}, False),
        ({"host": "a.example", "user-agent": "Mozilla/5.0 (X11)"}, False),
        ({"host": "a.example", "user-agent": "Mozilla/5.0 (X11)", "x-rove": "1"}, True),
    ],
)
def test_what_a_page_may_send(headers: dict[str, str], is_fine: bool) -> None:
    assert (cross_site_fault(headers) is None) is is_fine


HERE = {"host": "127.0.0.1:8080"}
USERS = Passwords({"alice": Hash.of(b"secret")})


@pytest.mark.parametrize(
    ("door", "headers", "address", "status"),
    [
        (Door(), HERE, "127.0.0.1", None),
        (Door(), HERE, "10.0.0.1", 401),
        (Door(), HERE | {"authorization": header(b"x:y")}, "127.0.0.1", None),
        (Door(), {"host": "evil.example"}, "127.0.0.1", 403),
        (Door(), {}, "127.0.0.1", 403),
        (Door(), HERE | {"origin": "https://evil.example"}, "127.0.0.1", 403),
        (Door(anonymous="always"), {"host": "evil.example"}, "10.0.0.1", None),
        (Door(USERS), HERE, "127.0.0.1", 401),
        (Door(USERS), HERE | {"authorization": header(b"alice:guess")}, "127.0.0.1", 401),
        (Door(USERS), {"authorization": header(b"alice:secret")}, "10.0.0.1", None),
    ],
)
def test_who_is_let_in(
    door: Door, headers: dict[str, str], address: str, status: int | None
) -> None:
    async def ask() -> int | None:
        try:
            await Guests(lambda: door, Tls()).identify(headers, address, None)
        except Fault as fault:
            return fault.status
        return None

    assert asyncio.run(ask()) == status


def test_a_certificate_settles_it() -> None:
    certificate = {"subject": ((("commonName", "alice"),),)}

    async def ask() -> tuple[str | None, str]:
        guests = Guests(lambda: Door(USERS, trusts_certificates=True), Tls())
        found = await guests.identify(HERE, "10.0.0.1", certificate)
        return found.user, found.source

    assert asyncio.run(ask()) == ("alice", "certificate")
