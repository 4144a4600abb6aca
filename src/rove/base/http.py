"""Errors and access checks of HTTP, shared by the broker's interface and the monitor.

Both refuse requests in the same words and protect users from the same attacks: a page of another
site makes the user's browser send a request, with the password that the browser remembers, or to
`127.0.0.1`, where no password is needed. Such requests are recognised by their `Origin` and
`Sec-Fetch-Site` headers, and under DNS rebinding by their `Host`.

The module needs the standard library only, so that commands can use it without loading a web
framework; `rove.base.http_answers` has what needs one.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

CHALLENGE: Final = {"www-authenticate": 'Basic realm="rove", charset="UTF-8"'}
BASIC_HINT: Final = "send user and password by Basic authentication (curl -u)"
OWN_SITES: Final = ("same-origin", "none")
"""Values of `Sec-Fetch-Site` that no other site can cause: `none` is typed by the user. Without an
`Origin` even `same-site` may be another host of the same domain."""


class HttpError(Exception):
    """A request that is answered with an error."""

    def __init__(
        self,
        status: int,
        error: str,
        hint: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, error)
        self.status = status
        self.error = error
        self.hint = hint
        self.headers = headers or {}


# --- Basic authentication -------------------------------------------------------------------------


def basic_authorization(user: str, password: str) -> str:
    """The value of an `Authorization` header."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def basic_credentials(header: str | None) -> tuple[str | None, bytes | None]:
    """User and password of an `Authorization` header; neither if there is none."""
    if header is None:
        return None, None
    scheme, _, encoded = header.partition(" ")
    try:
        if scheme.lower() != "basic":
            raise ValueError
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        if not colon or not user:
            raise ValueError
        return user.decode(), password
    except (ValueError, binascii.Error):
        what = "the Authorization header cannot be read"
        raise HttpError(401, what, BASIC_HINT, CHALLENGE) from None


# --- hosts and origins ----------------------------------------------------------------------------


def is_loopback(host: str) -> bool:
    """Whether a host can be reached from this machine only.

    Of names only `localhost` is: any other may resolve to anything.
    """
    if host == "localhost":
        return True
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return bool((mapped or found).is_loopback)


def host_name(url: str) -> str:
    """The host of a URL without its port; empty if there is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def requested_host(headers: Mapping[str, str]) -> str:
    """The host that a request was sent to, without its port."""
    return host_name(f"//{headers.get('host', '')}")


def foreign_page_error(headers: Mapping[str, str], *, checks_port: bool = False) -> str | None:
    """Why a request may come from a page of another site; None if it does not.

    Servers that log users in by cookie check the port as well, because browsers send a cookie to
    every port of a host.
    """
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is not None:
        if checks_port:
            is_own = _host_and_port(origin) == headers.get("host", "").lower()
        else:
            is_own = host_name(origin) == requested_host(headers)
        return None if is_own else f"a page of {origin[:100]} may not do this"
    is_own = site is None or site in OWN_SITES
    return None if is_own else "a page of another site may not do this"


def _host_and_port(url: str) -> str:
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:
        return ""
