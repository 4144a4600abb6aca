"""Credentials are read strictly; hosts and origins that cannot be read are nobody's."""

import base64

import pytest

from rove.base.http import (
    HttpError,
    basic_authorization,
    basic_credentials,
    foreign_page_error,
    host_name,
    is_loopback,
)


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
    assert basic_credentials(written) == expected


@pytest.mark.parametrize(
    "written",
    ["", "Basic", "Basic !!!", "Bearer x", header(b"no colon"), header(b":x"), header(b"\xff:x")],
)
def test_credentials_that_cannot_be_read(written: str) -> None:
    with pytest.raises(HttpError) as refused:
        basic_credentials(written)
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


def test_credentials_are_read_as_they_were_written() -> None:
    assert basic_credentials(basic_authorization("zoë", "a:b")) == ("zoë", b"a:b")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("broker.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
    ],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("headers", "is_foreign", "is_foreign_with_port"),
    [
        ({}, False, False),
        ({"origin": "http://a.example:81"}, True, False),
        ({"origin": "http://a.example"}, False, True),
        ({"origin": "http://b.example:81"}, True, True),
        ({"origin": "null"}, True, True),
        ({"origin": "//["}, True, True),
        ({"sec-fetch-site": "same-origin"}, False, False),
        ({"sec-fetch-site": "none"}, False, False),
        ({"sec-fetch-site": "same-site"}, True, True),
        ({"sec-fetch-site": "cross-site"}, True, True),
        ({"sec-fetch-site": "a word of tomorrow"}, True, True),
    ],
)
def test_pages_of_other_sites(
    headers: dict[str, str], is_foreign: bool, is_foreign_with_port: bool
) -> None:
    request = {"host": "A.example:81", **headers}
    is_other_port = headers.get("origin") == "http://a.example:81"
    assert (foreign_page_error(request) is not None) is (is_foreign and not is_other_port)
    assert (foreign_page_error(request, checks_port=True) is not None) is is_foreign_with_port
