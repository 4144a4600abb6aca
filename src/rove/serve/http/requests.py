"""Reading HTTP requests: parameters by name and kind, bodies up to a size.

What is wrong with a parameter is said with its name, what was given and what would be right, and
a parameter that does not exist is refused: misspelt, it would be ignored in silence.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Iterable
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request

from rove.mqtt.topics import text_fault
from rove.serve.http.answers import Fault

BODY_S = 60.0
DIGITS_MAX = 20
USER_PREFIX = "user."
TRUTHS = {"": True, "1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


class Query:
    """The parameters of one request."""

    def __init__(self, items: Iterable[tuple[str, str]], known: Iterable[str]) -> None:
        self._items = list(items)
        names = list(known)
        for name, value in self._items:
            if name not in names and not (name.startswith(USER_PREFIX) and USER_PREFIX in names):
                raise Fault(400, f"there is no parameter {name!r}", _advice(name, names))
            fault = text_fault(name) or text_fault(value)
            if fault is not None:
                raise Fault(400, f"the parameter {name!r} {fault}")

    def texts(self, name: str) -> list[str]:
        """Every value that it was given."""
        return [value for found, value in self._items if found == name]

    def text(self, name: str) -> str | None:
        """Its value, once at most."""
        values = self.texts(name)
        if len(values) > 1:
            raise Fault(400, f"{name} is given {len(values)} times", "give it once")
        return values[0] if values else None

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        """A number within bounds."""
        text = self.text(name)
        if text is None:
            return default
        number = whole_number(text)
        if number is None or not low <= number <= high:
            raise Fault(400, f"{name}={text[:100]}", f"{name} is a number from {low} to {high}")
        return number

    def flag(self, name: str) -> bool:
        """Yes or no."""
        text = self.text(name)
        if text is None:
            return False
        if text.lower() not in TRUTHS:
            raise Fault(400, f"{name}={text}", f"{name} is true or false")
        return TRUTHS[text.lower()]

    def user_properties(self) -> list[tuple[str, str]]:
        """What was given as `user.NAME`."""
        return [
            (name.removeprefix(USER_PREFIX), value)
            for name, value in self._items
            if name.startswith(USER_PREFIX)
        ]


def whole_number(text: str) -> int | None:
    """A number that is written in digits, and not in too many of them."""
    is_one = text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX
    return int(text) if is_one else None


def _advice(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else f"there is {', '.join(known) or 'none'}"


async def body_of(request: Request, bytes_max: int) -> bytes:
    """The body of a request; `Fault` 413 before it is read to its end if it is too large."""
    told = whole_number(request.headers.get("content-length", ""))
    if told is not None and told > bytes_max:
        raise _too_large(bytes_max)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > bytes_max:
                    raise _too_large(bytes_max)
    except TimeoutError:
        what = f"the body did not come within {BODY_S:.0f} s"
        raise Fault(408, what, headers={"connection": "close"}) from None
    except ClientDisconnect:
        raise Fault(400, "the body ended before its end") from None
    return bytes(body)


def _too_large(bytes_max: int) -> Fault:
    what = f"the body has more than {bytes_max} bytes"
    return Fault(413, what, "limits.http_body_bytes_max", {"connection": "close"})


def json_of(body: bytes, kind: type[Any]) -> Any:
    """A body of JSON as what it should be."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Fault(400, f"the body cannot be read: {error}", "it is a JSON object") from None
