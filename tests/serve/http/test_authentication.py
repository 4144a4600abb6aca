"""Who sends a request: users authenticate, and pages of other sites are refused."""

import asyncio

import pytest

from rove.base.http import HttpError, basic_authorization
from rove.serve.http.authentication import HttpAuthenticator, cross_site_fault
from rove.serve.passwords import Authenticator, Hash, Passwords
from rove.serve.settings import TlsSettings


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
        (Authenticator(), HERE, "127.0.0.1", None),
        (Authenticator(), HERE, "10.0.0.1", 401),
        (
            Authenticator(),
            HERE | {"authorization": basic_authorization("x", "y")},
            "127.0.0.1",
            None,
        ),
        (Authenticator(), {"host": "evil.example"}, "127.0.0.1", 403),
        (Authenticator(), {}, "127.0.0.1", 403),
        (Authenticator(), HERE | {"origin": "https://evil.example"}, "127.0.0.1", 403),
        (Authenticator(anonymous="always"), {"host": "evil.example"}, "10.0.0.1", None),
        (Authenticator(USERS), HERE, "127.0.0.1", 401),
        (
            Authenticator(USERS),
            HERE | {"authorization": basic_authorization("alice", "guess")},
            "127.0.0.1",
            401,
        ),
        (
            Authenticator(USERS),
            {"authorization": basic_authorization("alice", "secret")},
            "10.0.0.1",
            None,
        ),
    ],
)
def test_who_is_let_in(
    door: Authenticator, headers: dict[str, str], address: str, status: int | None
) -> None:
    async def ask() -> int | None:
        try:
            await HttpAuthenticator(lambda: door, TlsSettings()).identify(headers, address, None)
        except HttpError as fault:
            return fault.status
        return None

    assert asyncio.run(ask()) == status


def test_a_certificate_settles_it() -> None:
    certificate = {"subject": ((("commonName", "alice"),),)}

    async def ask() -> tuple[str | None, str]:
        guests = HttpAuthenticator(
            lambda: Authenticator(USERS, trusts_certificates=True), TlsSettings()
        )
        found = await guests.identify(HERE, "10.0.0.1", certificate)
        return found.user, found.source

    assert asyncio.run(ask()) == ("alice", "certificate")
