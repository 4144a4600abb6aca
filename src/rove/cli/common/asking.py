"""How commands ask a broker over HTTP: one request, JSON back, errors as lines for people.

With the standard library, as the commands ask little. A password is never an argument, because
every user of a machine can read the arguments of every process: it comes from a file or from the
variable ROVE_PASSWORD.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from rove.cli.common.connecting import (
    PASSWORD_VARIABLE,
    add_trust_arguments,
    password_from,
    tls_with,
)
from rove.errors import RoveError, UsageError

if TYPE_CHECKING:
    from urllib.error import HTTPError

URL_VARIABLE = "ROVE_HTTP_URL"
DEFAULT_URL = "http://127.0.0.1:8080"
TIMEOUT_S = 30


class AskingError(RoveError):
    """The broker did not answer, or said no."""


def add_http_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what every command takes that asks over HTTP."""
    parser.add_argument(
        "--url",
        help=f"of its HTTP interface, as http://user@host:8080 (default {URL_VARIABLE}, or "
        "this machine)",
    )
    add_trust_arguments(parser, "https://")


class Broker:
    """The broker that the arguments name."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        written = arguments.url or os.environ.get(URL_VARIABLE) or DEFAULT_URL
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

    def ask(self, path: str, body: object = None) -> Any:
        """GET, or POST if there is a body; the JSON that is answered."""
        return json.loads(self.text(path, body))

    def text(self, path: str, body: object = None) -> str:
        """The same as it came."""
        import urllib.error  # 40 ms that a command need not pay before it asks
        import urllib.request

        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, self._headers)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=self._tls) as answer:
                found: bytes = answer.read()
                return found.decode()
        except urllib.error.HTTPError as error:
            with error:
                raise AskingError(_refusal(error, self.url)) from None
        except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
            reason = getattr(error, "reason", error)
            what = getattr(reason, "strerror", None) or reason
            raise AskingError(f"no answer from {self.url}: {what}; is the broker up?") from None


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
