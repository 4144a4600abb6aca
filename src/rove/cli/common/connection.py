"""How commands reach their broker, over MQTT or HTTP: the same options and variables for all.

A password is never an argument, because every user of a machine can read the arguments of every
process: it comes from a file or from the variable ROVE_PASSWORD. The broker's URL may come from
ROVE_URL (or ROVE_HTTP_URL), so that it need not be written each time. HTTP is that of the standard
library, because a command sends one request.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

from rove.errors import RoveError, UsageError

if TYPE_CHECKING:
    import ssl
    from urllib.error import HTTPError

    from rove.client import Client, Connection
    from rove.client.opener import Opener

URL_VARIABLE: Final = "ROVE_URL"
PASSWORD_VARIABLE: Final = "ROVE_PASSWORD"


def add_connection_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of every command that connects to a broker."""
    parser.add_argument(
        "--url",
        help=f"of the broker, as mqtt://user@host:1883 (default {URL_VARIABLE}, or this machine)",
    )
    parser.add_argument(
        "--client-id",
        metavar="NAME",
        help="a session of that name, which outlives the command (default: one that does not)",
    )
    add_trust_arguments(parser, "mqtts:// and wss://")


def add_trust_arguments(parser: argparse.ArgumentParser, schemes: str) -> None:
    """Add the arguments for the password and for trusted certificates."""
    parser.add_argument(
        "--password-file",
        metavar="FILE",
        help=f"whose first line is the password (default: {PASSWORD_VARIABLE}, or none)",
    )
    parser.add_argument(
        "--ca", metavar="FILE", help=f"certificate of the authority to trust, for {schemes}"
    )


def open_client(arguments: argparse.Namespace, **options: Any) -> Opener[Client]:
    """A client for the arguments; enter it to connect."""
    from rove.client import connect
    from rove.client.addresses import DEFAULT_URL

    return connect(
        arguments.url or os.environ.get(URL_VARIABLE) or DEFAULT_URL,
        client_id=arguments.client_id,
        password=password_from(arguments.password_file),
        tls=tls_with(arguments.ca),
        on_connection=_ConnectionReporter().report,
        **options,
    )


def named_values(written: list[str], option: str) -> dict[str, str]:
    """The values of an option that was given as NAME=VALUE any number of times."""
    found = {}
    for each in written:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise UsageError(f"{option} takes NAME=VALUE, not {each!r}")
        found[name] = value
    return found


def password_from(file: str | None) -> str | None:
    """The password in a file, or in the environment; None if there is none."""
    if file is None:
        return os.environ.get(PASSWORD_VARIABLE)
    lines = Path(file).read_text("utf-8").splitlines()
    if not lines or not lines[0]:
        raise UsageError(f"{file} is empty; its first line must be the password")
    return lines[0]


def tls_with(authority: str | None) -> ssl.SSLContext | None:
    """A context that trusts this authority; None, for those of the system, without one."""
    if authority is None:
        return None
    import ssl

    try:
        return ssl.create_default_context(cafile=authority)
    except ssl.SSLError as error:
        raise UsageError(f"{authority} is not a PEM certificate: {error.reason or error}") from None


class _ConnectionReporter:
    """Writes to stderr when the connection is lost and when it is back."""

    def __init__(self) -> None:
        self._is_lost = False

    def report(self, connection: Connection) -> None:
        if connection.state == "lost" and not self._is_lost:
            self._is_lost = True
            print(f"rove: {connection.error}; trying again", file=sys.stderr)
        elif connection.state == "connected" and self._is_lost:
            self._is_lost = False
            print("rove: connected again", file=sys.stderr)


# --- HTTP -----------------------------------------------------------------------------------------

HTTP_URL_VARIABLE: Final = "ROVE_HTTP_URL"
DEFAULT_HTTP_URL: Final = "http://127.0.0.1:8080"
TIMEOUT_S: Final = 30


class BrokerRequestError(RoveError):
    """The broker did not answer, or refused."""


def add_http_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of every command that uses the HTTP interface."""
    parser.add_argument(
        "--url",
        help=f"of its HTTP interface, as http://user@host:8080 (default {HTTP_URL_VARIABLE}, or "
        "this machine)",
    )
    add_trust_arguments(parser, "https://")


class BrokerApi:
    """The HTTP interface of the broker that the arguments name."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        written = arguments.url or os.environ.get(HTTP_URL_VARIABLE) or DEFAULT_HTTP_URL
        parts = urlsplit(written)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"--url takes http://host:8080 or https://host:8443, not {written}")
        if parts.password is not None:
            raise UsageError(
                "a password on the command line can be read by everybody on this machine; "
                f"use --password-file or {PASSWORD_VARIABLE}"
            )
        host = parts.netloc.rpartition("@")[2]
        self.url = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self._headers = _authorization(parts.username, arguments.password_file)
        self._tls = tls_with(arguments.ca)

    def ask(self, path: str, body: object = None, method: str | None = None) -> Any:
        """GET, or POST if there is a body, or another method; returns the JSON of the answer."""
        return json.loads(self.text(path, body, method))

    def text(self, path: str, body: object = None, method: str | None = None) -> str:
        """The same without decoding."""
        import urllib.error  # 40 ms that a command need not pay before it asks
        import urllib.request

        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, self._headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=self._tls) as answer:
                found: bytes = answer.read()
                return found.decode()
        except urllib.error.HTTPError as error:
            with error:
                raise BrokerRequestError(_refusal(error, self.url)) from None
        except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
            reason = getattr(error, "reason", error)
            what = getattr(reason, "strerror", None) or reason
            raise BrokerRequestError(
                f"no answer from {self.url}: {what}; is the broker up?"
            ) from None


def _refusal(error: HTTPError, url: str) -> str:
    try:
        found = json.loads(error.read())
        hint = f"; {found['hint']}" if "hint" in found else ""
        return f"{found['error']}{hint}"
    except (ValueError, KeyError, TypeError):
        return f"{url} answered {error.code} {error.reason}"


def _authorization(user: str | None, password_file: str | None) -> dict[str, str]:
    if user is None:
        return {}
    password = password_from(password_file)
    if not password:
        raise UsageError(f"{user} needs a password: --password-file or {PASSWORD_VARIABLE}")
    from rove.base.http import basic_authorization

    return {"authorization": basic_authorization(user, password)}
