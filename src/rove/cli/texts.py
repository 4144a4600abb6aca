"""How commands read what a user says: texts of the language, JSON objects, JSON lines.

Reading is bounded: of a text that comes through a pipe no more is read than the language
allows, so that even an endless one is refused at once.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rove.errors import UsageError
from rove.lang import LanguageError, Subscription, admit, parse
from rove.lang.limits import TEXT_BYTES_MAX

STDIN = "-"


def read_text(written: str) -> str:
    """A text given as an argument; `-` reads it from standard input."""
    if written != STDIN:
        return written
    return sys.stdin.read(TEXT_BYTES_MAX + 1).rstrip("\n")


def read_subscription(written: str) -> Subscription:
    """The subscription that an argument holds, or that standard input holds for `-`."""
    return parse(read_text(written))


def read_object(written: str, what: str) -> dict[str, Any]:
    """A JSON object, given as such or as @FILE; refused if a value could not be published."""
    try:
        text = Path(written[1:]).read_text() if written.startswith("@") else written
        found = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{what} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f'{what} must be a JSON object such as {{"NO2": 41}}, not {written}')
    try:
        admit(found)
    except LanguageError as error:
        raise UsageError(f"{what}: {error}") from None
    return found


def add_json_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as one line of JSON")
