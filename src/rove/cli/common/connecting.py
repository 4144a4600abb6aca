"""How commands find their broker: the same options and variables for all of them.

A password is never an argument, because every user of a machine can read the arguments of every
process: it comes from a file or from the variable ROVE_PASSWORD. The broker's URL may come from
ROVE_URL, so that it need not be written each time.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rove.errors import UsageError

if TYPE_CHECKING:
    import ssl

    from rove.client import Client, Connection
    from rove.client.opener import Opener

URL_VARIABLE = "ROVE_URL"
PASSWORD_VARIABLE = "ROVE_PASSWORD"


def add_connection_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what every command takes that talks to a broker."""
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
    """Add how to prove who one is, and whom to trust."""
    parser.add_argument(
        "--password-file",
        metavar="FILE",
        help=f"whose first line is the password (default: {PASSWORD_VARIABLE}, or none)",
    )
    parser.add_argument(
        "--ca", metavar="FILE", help=f"certificate of the authority to trust, for {schemes}"
    )


def open_client(arguments: argparse.Namespace, **options: Any) -> Opener[Client]:
    """The client that the arguments describe, to be entered."""
    from rove.client import connect
    from rove.client.addresses import DEFAULT_URL

    return connect(
        arguments.url or os.environ.get(URL_VARIABLE) or DEFAULT_URL,
        client_id=arguments.client_id,
        password=password_from(arguments.password_file),
        tls=tls_with(arguments.ca),
        on_connection=_Teller().tell,
        **options,
    )


def named_values(written: list[str], option: str) -> dict[str, str]:
    """What was given as NAME=VALUE, any number of times."""
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
        raise UsageError(f"{file} is empty; its first line is to be the password")
    return lines[0]


def tls_with(authority: str | None) -> ssl.SSLContext | None:
    """What trusts that authority; None without one, for whom the system trusts."""
    if authority is None:
        return None
    import ssl

    try:
        return ssl.create_default_context(cafile=authority)
    except ssl.SSLError as error:
        raise UsageError(f"{authority} is no certificate in PEM: {error.reason or error}") from None


class _Teller:
    """Tells a person on stderr when the connection goes and comes."""

    def __init__(self) -> None:
        self._is_lost = False

    def tell(self, connection: Connection) -> None:
        if connection.state == "lost" and not self._is_lost:
            self._is_lost = True
            print(f"rove: {connection.error}; trying again", file=sys.stderr)
        elif connection.state == "connected" and self._is_lost:
            self._is_lost = False
            print("rove: connected again", file=sys.stderr)
