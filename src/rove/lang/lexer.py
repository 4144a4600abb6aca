"""Splits an expression into tokens.

A token is a plain string: a name, a number, a string or a sign. Positions are not stored,
because only errors need them; `span` finds them by reading the expression again. That halves
the time for valid expressions, which are nearly all.

Refused here, before anything else: an expression over the length limit, and characters that
are invisible or change how the rest is shown (controls, lone surrogates, characters that
change the direction of writing).
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

from rove.lang.errors import LimitError, TextError
from rove.lang.limits import TEXT_BYTES_MAX

# Written so that a long string or name is one step of the engine, not one for each character.
_STRING = r"'[^']*(?:''[^']*)*'"
_QUOTED_NAME = r"`(?:[^`]|``)[^`]*(?:``[^`]*)*`"
_SEGMENT = rf"(?:[^\W\d]\w*|{_QUOTED_NAME})"
_TOKEN = re.compile(
    rf"{_SEGMENT}(?:\.{_SEGMENT})*"  # a name, dots included
    r"|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"  # a number
    rf"|{_STRING}"
    r"|<=|>=|!=|<>"
    r"|[^ \t\r\n]"  # any other character alone: a sign, or an error for the parser to explain
)
_COMMENT_OR_QUOTED = re.compile(rf"{_STRING}|{_QUOTED_NAME}|--[^\n]*")
_FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # controls, but for tab and line ends
    "\ud800-\udfff"  # halves of surrogate pairs
    "\u202a-\u202e\u2066-\u2069]"  # direction overrides: the text would not read as it stands
)
_NAMELESS = {0x00: "NULL", 0x08: "BACKSPACE", 0x1B: "ESCAPE", 0x7F: "DELETE"}
_NAMELESS_KINDS = {
    "Cc": "a control character",
    "Cs": "half a surrogate pair",
    "Co": "a private character",
}
_WHITE = " \t\r\n"

_RESERVED_WORDS: Final = """
    AND OR NOT BETWEEN IN LIKE ESCAPE IS NULL TRUE FALSE
    SELECT WHERE ORDER BY ASC DESC LIMIT WITHIN
"""
RESERVED: Final = frozenset(_RESERVED_WORDS.split())
"""Words that name an attribute only in backticks."""

END = ""
"""The token after the last one."""


def tokens_of(text: str) -> list[str]:
    """The tokens of `text`, END at the end; refuses only what no parser should see."""
    _refuse_long(text)
    if not text.isprintable():
        _refuse_forbidden(text)
    found = _TOKEN.findall(_without_comments(text) if "--" in text else text)
    found.append(END)
    return found


def span(text: str, index: int) -> tuple[int, int]:
    """Where token `index` is in `text`; the end of the text for the END token."""
    for position, match in enumerate(_TOKEN.finditer(_without_comments(text))):
        if position == index:
            return match.span()
    end = len(_without_comments(text).rstrip(_WHITE))
    return end, end


def is_name(token: str) -> bool:
    """True for a bare or quoted name, keywords included."""
    first = token[:1]
    if first == "`":
        return token != "`"
    return first == "_" or (first.isalnum() and not first.isdecimal())  # as _SEGMENT has it


@lru_cache(maxsize=1024)
def keyword_of(token: str) -> str:
    """The keyword that `token` spells, in capitals; empty if it spells none.

    Only in ASCII: the capital of a dotless ı is I too, and `ın` is still no IN.
    """
    upper = token.upper()
    return upper if upper in RESERVED and token.isascii() else ""


def segments_of(name: str) -> tuple[str, ...]:
    """The parts of a name between its dots, without their backticks."""
    if "`" not in name:
        return tuple(name.split("."))
    found = re.findall(_SEGMENT, name)
    return tuple(s[1:-1].replace("``", "`") if s[0] == "`" else s for s in found)


def character_name(character: str) -> str:
    """U+XXXX and the official name, for diagnostics."""
    point = ord(character)
    kind = _NAMELESS_KINDS.get(unicodedata.category(character), "an unassigned character")
    name = unicodedata.name(character, _NAMELESS.get(point, kind))
    return f"U+{point:04X} {name}"


def forbidden_in(text: str) -> bool:
    """True if `text` could not be written inside a subscription, not even in quotes."""
    return not text.isprintable() and _FORBIDDEN.search(text) is not None


def _refuse_long(text: str) -> None:
    size, at_least = len(text), "" if text.isascii() else "more than "  # without a copy
    if size <= TEXT_BYTES_MAX and at_least:
        size, at_least = len(text.encode(errors="surrogatepass")), ""
    if size > TEXT_BYTES_MAX:
        raise LimitError(
            f"the text has {at_least}{size:,} bytes; at most {TEXT_BYTES_MAX:,} are read",
            text[:TEXT_BYTES_MAX],
            0,
            hint="split it into several subscriptions",
        )


def _refuse_forbidden(text: str) -> None:
    match = _FORBIDDEN.search(text)
    if match is not None:
        raise TextError(
            f"{character_name(match.group())} is not allowed in a filter expression",
            text,
            match.start(),
            hint="remove it; tabs and line ends are fine between words",
        )


def _without_comments(text: str) -> str:
    """`text` with every `-- comment` blanked out, so that all places stay the same."""
    if "--" not in text:
        return text

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        return " " * len(found) if found.startswith("--") else found

    return _COMMENT_OR_QUOTED.sub(blank, text)
