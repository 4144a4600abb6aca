"""Addresses of brokers: URLs such as `mqtt://user@host:1883`, parsed and checked.

    mqtt://host[:1883]       TCP
    mqtts://host[:8883]      TLS over TCP
    ws://host[:80][/mqtt]    WebSocket
    wss://host[:443][/mqtt]  WebSocket over TLS

A URL may contain a password, because some settings leave no other place for it. An option of its
own is better: URLs end up in logs. For the same reason no text that is made here shows a password.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from rove.client.errors import AddressError

DEFAULT_URL: Final = "mqtt://127.0.0.1:1883"
_PORTS: Final = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
_EXPECTED: Final = "write it like mqtt://host:1883, mqtts://host:8883 or ws://host:8080/mqtt"


class Address(msgspec.Struct, frozen=True):
    """A broker's address in its parts."""

    scheme: str
    host: str
    port: int
    path: str = ""
    user_name: str | None = None
    password: str | None = None

    @property
    def is_tls(self) -> bool:
        return self.scheme in ("mqtts", "wss")

    @property
    def is_websocket(self) -> bool:
        return self.scheme in ("ws", "wss")

    def __str__(self) -> str:
        """For people, without user and password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"

    __repr__ = __str__


def parse_address(url: str) -> Address:
    """Parse a URL; AddressError names the fault."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise AddressError(f"{_shown(url)} is no address: {error}; {_EXPECTED}") from None
    if parts.scheme not in _PORTS:
        given = f"the scheme {parts.scheme!r}" if "://" in url else "no scheme"
        raise AddressError(f"{_shown(url)} has {given}; {_EXPECTED}")
    if not parts.hostname:
        raise AddressError(f"{_shown(url)} names no host; {_EXPECTED}")
    is_websocket = parts.scheme in ("ws", "wss")
    path = (parts.path or "/mqtt") if is_websocket else parts.path
    if parts.query or parts.fragment or (path not in ("", "/") and not is_websocket):
        raise AddressError(f"{_shown(url)} says more than where the broker is; {_EXPECTED}")
    return Address(
        scheme=parts.scheme,
        host=parts.hostname,
        port=_PORTS[parts.scheme] if port is None else port,
        path=path if is_websocket else "",
        user_name=None if parts.username is None else unquote(parts.username),
        password=None if parts.password is None else unquote(parts.password),
    )


def _shown(url: str) -> str:
    """A URL for an error message, without the part before an @, which may contain a password."""
    before, at, after = url.rpartition("@")
    scheme, separator, _ = before.partition("://")
    return repr(f"{scheme}://…@{after}" if at and separator else after if at else url)
