"""Authentication of HTTP requests: as for MQTT, with the precautions that browsers need.

Users authenticate by Basic authentication or by a client certificate; without either a request is
anonymous, if the broker allows that. The first check of a password takes 50 ms of a thread; a few
are checked at once and the others wait, so that guessing does not overload the machine.

If everybody on this machine may connect without a name, a web page in a browser on this machine
still may not: it could post to `127.0.0.1`, or open a WebSocket to it, on behalf of the user. Such
requests are recognised by their `Origin`, or by a `Host` that is not this machine's.

A page of another site must not change anything, or take messages out of a queue, with or without a
password that the browser remembers. A browser has to prove that the page is the broker's: by
`Origin`, by `Sec-Fetch-Site`, or, if it sends neither (a GET over plain HTTP to another machine),
by a header of ours, which pages of other sites cannot set. Other programs send only their own
credentials, and need no proof. (A token in every URL was considered: curl would have to fetch one
first.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from rove.base.http import (
    BASIC_HINT,
    CHALLENGE,
    HttpError,
    basic_credentials,
    foreign_page_error,
    host_name,
    is_loopback,
    requested_host,
)
from rove.broker.access import Identity
from rove.serve.passwords import Authenticator
from rove.serve.settings import TlsSettings
from rove.serve.tls import user_of

CHECKS_MAX = 4
"""Passwords that are checked at once."""
BROWSER = "Mozilla/"
"""How every browser introduces itself; pages cannot change it in what they may send elsewhere."""
PROOF = "x-rove"
"""A page may set this header only in requests to its own site: others would have to be allowed."""


class HttpAuthenticator:
    """Finds out who sends a request."""

    def __init__(self, door: Callable[[], Authenticator], tls: TlsSettings) -> None:
        self._door = door
        self._tls = tls
        self._checks = asyncio.Semaphore(CHECKS_MAX)

    async def identify(
        self, headers: Mapping[str, str], address: str, certificate: Mapping[str, Any] | None
    ) -> Identity:
        """The identity of the sender; `HttpError` if it is refused."""
        user, password = basic_credentials(headers.get("authorization"))
        certificate_user = user_of(certificate, self._tls)
        door = self._door()
        if user is None or certificate_user is not None:
            found = door.identify("", address, user, None, certificate_user)
        else:
            async with self._checks:
                found = await asyncio.to_thread(door.identify, "", address, user, password)
        if found is None:
            what = "the user name or the password is wrong" if user else "this needs a user name"
            raise HttpError(401, what, BASIC_HINT, CHALLENGE)
        if found.user is None and (fault := self.stranger_fault(headers)) is not None:
            raise HttpError(403, fault)
        return found

    def stranger_fault(self, headers: Mapping[str, str]) -> str | None:
        """Why a request may not be served though it comes from this machine, or None."""
        door = self._door()
        if door.anonymous != "loopback" or door.has_users:
            return None
        host = requested_host(headers)
        if not is_loopback(host):
            return f"this broker serves its own machine only, and is not called {host!r}"
        origin = headers.get("origin")
        if origin is not None and not is_loopback(host_name(origin)):
            return f"this broker serves its own machine only, not a page of {origin}"
        return None


def cross_site_fault(headers: Mapping[str, str]) -> str | None:
    """Why a request that changes something may come from a page of another site, or None.

    A browser adds the password that it remembers to what any page sends.
    """
    fault = foreign_page_error(headers)
    if fault is not None or "origin" in headers or "sec-fetch-site" in headers:
        return fault
    if headers.get("user-agent", "").startswith(BROWSER) and PROOF not in headers:
        return f"a browser has to prove whose page asks: send the header {PROOF}: 1, or use https"
    return None
