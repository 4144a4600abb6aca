"""`rove passwd FILE USER`: add a user, change a password, or take a user out."""

from __future__ import annotations

import argparse
import sys
from getpass import getpass
from pathlib import Path

from rove.errors import UsageError
from rove.serve.passwords import close_to_others, delete_user, set_password


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove passwd`.

    There is none for the password itself: everybody can see a running process's arguments.
    """
    parser.add_argument("file", metavar="FILE", type=Path, help="made if it is not there")
    parser.add_argument("user", metavar="USER")
    parser.add_argument(
        "--stdin",
        action="store_true",
        help="read the password as one line from standard input instead of asking twice",
    )
    parser.add_argument("--delete", action="store_true", help="take the user out of the file")


def run(arguments: argparse.Namespace) -> int:
    """Change the file."""
    path, user = arguments.file, arguments.user
    password = ""
    if not arguments.delete:
        password = _one_line() if arguments.stdin else _asked_twice(user)
    if closed := close_to_others(path):
        print(f"rove: warning: {closed}", file=sys.stderr)
    if arguments.delete:
        delete_user(path, user)
        done = "removed"
    else:
        done = "added" if set_password(path, user, password.encode()) else "changed"
    print(f"{user} {done}; a running broker takes it on SIGHUP", file=sys.stderr)
    return 0


def _one_line() -> str:
    return sys.stdin.readline().rstrip("\r\n")


def _asked_twice(user: str) -> str:
    password = getpass(f"Password of {user}: ")
    if getpass("Once more: ") != password:
        raise UsageError("the two passwords differ; nothing was changed")
    return password
