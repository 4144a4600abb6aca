"""Parameters of HTTP requests, by name and kind.

An error names the parameter, the value and the rule. Unknown parameters are refused, because a
misspelt one would otherwise be ignored silently.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from rove.base.http import HttpError
from rove.base.http_answers import whole_number
from rove.mqtt.topics import text_fault

USER_PREFIX = "user."
TRUTHS = {"": True, "1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


class Query:
    """The parameters of one request."""

    def __init__(self, items: Iterable[tuple[str, str]], known: Iterable[str]) -> None:
        self._items = list(items)
        names = list(known)
        for name, value in self._items:
            if name not in names and not (name.startswith(USER_PREFIX) and USER_PREFIX in names):
                raise HttpError(400, f"there is no parameter {name!r}", _advice(name, names))
            fault = text_fault(name) or text_fault(value)
            if fault is not None:
                raise HttpError(400, f"the parameter {name!r} {fault}")

    def texts(self, name: str) -> list[str]:
        """Every value that it was given."""
        return [value for found, value in self._items if found == name]

    def text(self, name: str) -> str | None:
        """Its value, once at most."""
        values = self.texts(name)
        if len(values) > 1:
            raise HttpError(400, f"{name} is given {len(values)} times", "give it once")
        return values[0] if values else None

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        """A number within bounds."""
        text = self.text(name)
        if text is None:
            return default
        number = whole_number(text)
        if number is None or not low <= number <= high:
            raise HttpError(400, f"{name}={text[:100]}", f"{name} is a number from {low} to {high}")
        return number

    def flag(self, name: str) -> bool:
        """Yes or no."""
        text = self.text(name)
        if text is None:
            return False
        if text.lower() not in TRUTHS:
            raise HttpError(400, f"{name}={text}", f"{name} is true or false")
        return TRUTHS[text.lower()]

    def user_properties(self) -> list[tuple[str, str]]:
        """What was given as `user.NAME`."""
        return [
            (name.removeprefix(USER_PREFIX), value)
            for name, value in self._items
            if name.startswith(USER_PREFIX)
        ]


def _advice(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else f"there is {', '.join(known) or 'none'}"
