"""Structured logs on standard error: the name of an event and its fields, for people or programs.

    log = events("sessions")
    log.info("session opened", client="phone", user="alice")

    2026-11-16 03:17:44.120Z info     session opened            client=phone user=alice
    {"at": "2026-11-16T03:17:44.120Z", "level": "info", "event": "session opened", ...}

It is built on the standard `logging`, so that messages of libraries have the same form, and a
program that embeds the broker can install other handlers. structlog does all this too; the part
that is needed fits on a page.

The log of a broker must not do three things. **Reveal secrets**: a field named password, token or
the like is masked, and so is `password=…` or the password in `scheme://user:secret@host` inside any
text; bytes are only counted. **Be forged**: names that clients choose are quoted if they have
spaces or control characters, so that no client can forge a line. **Fill the disk**: repeats of a
warning beyond `REPEATS_MAX` in `WINDOW_S` are dropped, and the next one has their number.

A line takes about 40 µs and is written at once: a slow reader of the pipe slows down the broker.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from rove.serve.settings import LogSettings

MASK: Final = "***"
SECRET_NAME: Final = re.compile(
    r"passw(or)?d|passphrase|secret|token|authorization|cookie|credential|private_?key|api_?key",
    re.IGNORECASE,
)
NO_SECRET_NAME: Final = re.compile(r"_(file|bytes|count)$")
"""`password_file` is a path, and no secret."""
SECRET_IN_TEXT: Final = re.compile(
    rf"(?P<name>(?:{SECRET_NAME.pattern})\w*[\"']?\s*[=:]\s*(?:basic\s+|bearer\s+)?)"
    r"(?P<value>\"[^\"]*\"|'[^']*'|[^\s,;&\"']+)",
    re.IGNORECASE,
)
SECRET_IN_URL: Final = re.compile(r"(?P<begin>\w+://[^\s/:@]*:)[^\s/@]+@")
PLAIN_VALUE: Final = re.compile(r"[!#-<>-\[\]-~]+")
"""Values without quotes in a line of text: ASCII without spaces, quotes, = and backslashes."""
VALUE_CHARS_MAX: Final = 1_000
EVENT_WIDTH: Final = 28

REPEATS_MAX: Final = 10
WINDOW_S: Final = 10.0
KINDS_MAX: Final = 1_000
"""The number of different warnings that are counted; beyond it, counting starts anew."""


class EventLog:
    """The log of one part of the broker."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, event: str, /, **fields: object) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        self._write(logging.ERROR, event, fields)

    def fault(self, event: str, error: BaseException, /, **fields: object) -> None:
        """An error with the traceback of an exception that was handled."""
        self._logger.error(event, exc_info=error, extra={"fields": fields})

    def exception(self, event: str, /, **fields: object) -> None:
        """An error with the traceback of the exception that is being handled."""
        self._logger.error(event, exc_info=True, extra={"fields": fields})

    def _write(self, level: int, event: str, fields: Mapping[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={"fields": fields})


# A program that uses this as a library and installs no handler gets no log.
logging.getLogger("rove").addHandler(logging.NullHandler())


def events(part: str) -> EventLog:
    """The log of one part: `sessions`, `store`, ..."""
    return EventLog(logging.getLogger(f"rove.{part}"))


def install(settings: LogSettings, stream: TextIO | None = None) -> logging.Handler:
    """Log to a stream, by default standard error; call it again to change the settings.

    Libraries are logged from level `warning`, or `debug` if that is the level.
    """
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, _OurHandler):
            root.removeHandler(handler)
    ours = _OurHandler(stream or sys.stderr)
    ours.setFormatter(JsonLines() if settings.format == "json" else TextLines())
    ours.addFilter(Repeats())
    root.addHandler(ours)
    level = getattr(logging, settings.level.upper())
    logging.getLogger("rove").setLevel(level)
    root.setLevel(level if level == logging.DEBUG else max(level, logging.WARNING))
    return ours


class _OurHandler(logging.StreamHandler[TextIO]):
    """Known again when the settings change."""


# --- secrets ------------------------------------------------------------------------------------


def without_secrets(name: str, value: object) -> object:
    """A field as it may be shown; nested ones likewise."""
    if SECRET_NAME.search(name) and not NO_SECRET_NAME.search(name):
        return MASK
    match value:
        case str():
            return masked(value)
        case bytes() | bytearray() | memoryview():
            return f"<{len(value)} bytes>"
        case dict():
            return {str(key): without_secrets(str(key), each) for key, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [without_secrets("", each) for each in value]
        case None | bool() | int() | float():
            return value
    return masked(str(value))


def masked(text: str) -> str:
    """A text without what looks like a secret in it, and not too long."""
    if len(text) > VALUE_CHARS_MAX:
        text = f"{text[:VALUE_CHARS_MAX]}... ({len(text)} characters)"
    text = SECRET_IN_URL.sub(rf"\g<begin>{MASK}@", text)
    return SECRET_IN_TEXT.sub(rf"\g<name>{MASK}", text)


# --- lines --------------------------------------------------------------------------------------


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields: Mapping[str, object] = getattr(record, "fields", {})
    shown = {name: without_secrets(name, value) for name, value in fields.items()}
    suppressed = getattr(record, "suppressed", 0)
    return shown | ({"suppressed": suppressed} if suppressed else {})


def _event(record: logging.LogRecord) -> str:
    return masked(record.getMessage())


def _at(record: logging.LogRecord, separator: str) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(separator, "milliseconds").replace("+00:00", "Z")


class TextLines(logging.Formatter):
    """For people: time, level, event, then name=value."""

    def format(self, record: logging.LogRecord) -> str:
        event = _event(record)
        if not event.isprintable():
            event = json.dumps(event)
        fields = " ".join(f"{name}={_quoted(value)}" for name, value in _fields(record).items())
        line = f"{_at(record, ' ')} {record.levelname.lower():<8} {event:<{EVENT_WIDTH}} {fields}"
        if record.exc_info:
            trace = masked_lines(self.formatException(record.exc_info))
            line = "\n".join([line.rstrip(), *(f"    {each}" for each in trace)])
        return line.rstrip()


def masked_lines(text: str) -> list[str]:
    """The lines of a traceback, each fit to be shown."""
    return [masked(line) for line in text.splitlines()]


def _quoted(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if PLAIN_VALUE.fullmatch(text) else json.dumps(text)


class JsonLines(logging.Formatter):
    """For programs: one object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": _at(record, "T"),
            "level": record.levelname.lower(),
            "event": _event(record),
            "logger": record.name,
        }
        # A field cannot pass itself off as one of ours.
        line |= {
            name if name not in line else f"{name}_": value
            for name, value in _fields(record).items()
        }
        if record.exc_info:
            trace = masked_lines(self.formatException(record.exc_info))
            line["exception"] = "\n".join(trace)
        return json.dumps(line, default=str)


class Repeats(logging.Filter):
    """Lets the first few of each warning through, and counts the others.

    What makes two warnings the same is the logger and the event, not the fields: a thousand
    clients with the same trouble are one trouble.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[tuple[str, str], list[float]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write it; marks it with how many were dropped before."""
        if record.levelno < logging.WARNING:
            return True
        if len(self._kinds) >= KINDS_MAX:
            self._kinds.clear()
        # Since when, how many were written since then, how many were dropped since then.
        window = self._kinds.setdefault((record.name, str(record.msg)), [record.created, 0, 0])
        if record.created - window[0] >= WINDOW_S:
            record.suppressed = int(window[2])
            window[:] = [record.created, 0, 0]
        if window[1] >= REPEATS_MAX:
            window[2] += 1
            return False
        window[1] += 1
        return True
