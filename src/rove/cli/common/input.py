"""How commands read what a user gives them: expressions, policies, JSON objects, moments.

Reading is bounded: of an expression that comes through a pipe no more is read than the language
allows, so that even an endless one is refused at once.
"""

from __future__ import annotations

import json
import re
import sys
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

from rove.errors import UsageError
from rove.lang import LanguageError, Subscription, admit, parse
from rove.lang.limits import TEXT_BYTES_MAX

STDIN = "-"
_SECONDS_OF: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
_AGO: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")


def opened(file: str) -> AbstractContextManager[BinaryIO]:
    """A file to be read as bytes; - is standard input, which stays open."""
    return nullcontext(sys.stdin.buffer) if file == STDIN else Path(file).open("rb")


def read_expression(written: str) -> str:
    """An expression given as an argument; `-` reads it from standard input."""
    if written != STDIN:
        return written
    return sys.stdin.read(TEXT_BYTES_MAX + 1).rstrip("\n")


def read_subscription(written: str) -> Subscription:
    """The subscription that an argument holds, or that standard input holds for `-`."""
    return parse(read_expression(written))


def read_policy(file: str) -> str:
    """The source of a policy; `-` reads it from standard input."""
    try:
        return sys.stdin.read() if file == STDIN else Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8: {error.reason} at {error.start}") from None


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


def moment_of(written: str, option: str, now: float) -> float:
    """Seconds since 1970 of what a person writes; without a zone it is UTC."""
    if written == "now":
        return now
    if ago := _AGO.fullmatch(written):
        return now - float(ago[1]) * _SECONDS_OF[ago[2]]
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        raise UsageError(
            f"{option} takes how long ago (30d, 12h, 2w) or a moment (2026-11-16, "
            f"2026-11-16T08:00), not {written!r}"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
