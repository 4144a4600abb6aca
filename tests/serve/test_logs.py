"""Logs: their form, and what they never do: tell secrets, be forged, fill the disk."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.serve.logs import (
    REPEATS_MAX,
    WINDOW_S,
    JsonLines,
    Repeats,
    TextLines,
    events,
    install,
    masked,
    without_secrets,
)
from rove.serve.settings import LogSettings


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """A place to log to; afterwards logging is as it was."""
    root, ours = logging.getLogger(), logging.getLogger("rove")
    levels = root.level, ours.level
    handlers = list(root.handlers)
    yield io.StringIO()
    for handler in set(root.handlers) - set(handlers):
        root.removeHandler(handler)
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def record(event: str, at: float = 0.0, level: int = logging.INFO, **fields: Any) -> Any:
    made = logging.LogRecord("rove.test", level, "", 0, event, None, None)
    made.created = at
    made.fields = fields
    return made


def test_a_line_for_people(stream: io.StringIO) -> None:
    install(LogSettings(), stream)
    events("sessions").info("session opened", client="phone", user=None, count=3)
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z info     session opened +"
        r" client=phone user=null count=3\n",
        stream.getvalue(),
    )


def test_a_line_for_programs(stream: io.StringIO) -> None:
    install(LogSettings(format="json"), stream)
    events("sessions").warning("slow", client="phone", bytes_waiting=3, at="mine", who={"a": [1]})
    line = json.loads(stream.getvalue())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("at"))
    assert line == {
        "level": "warning",
        "event": "slow",
        "logger": "rove.sessions",
        "client": "phone",
        "bytes_waiting": 3,
        "at_": "mine",
        "who": {"a": [1]},
    }


def test_the_level_decides_and_can_be_changed(stream: io.StringIO) -> None:
    log = events("store")
    install(LogSettings(level="warning"), stream)
    log.info("unheard")
    log.error("heard")
    install(LogSettings(level="debug"), stream)
    log.debug("heard too")
    assert [line.split()[2] for line in stream.getvalue().splitlines()] == ["error", "debug"]


def test_libraries_are_heard_from_warnings_on(stream: io.StringIO) -> None:
    install(LogSettings(level="info"), stream)
    library = logging.getLogger("some.library")
    library.info("chatter")
    library.warning("trouble with %s", "x")
    assert "trouble with x" in stream.getvalue()
    assert "chatter" not in stream.getvalue()
    install(LogSettings(level="error"), stream)
    library.warning("more trouble")
    assert "more trouble" not in stream.getvalue()


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_exception_comes_with_its_traceback(stream: io.StringIO, form: Any) -> None:
    install(LogSettings(format=form), stream)
    try:
        raise KeyError("password=hunter2")
    except KeyError:
        events("store").exception("commit failed", table="queue")
    text = stream.getvalue()
    assert "commit failed" in text
    assert "Traceback" in text
    assert "KeyError" in text
    assert "hunter2" not in text
    if form == "json":
        assert text.count("\n") == 1


# --- secrets ----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [TextLines(), JsonLines()])
@pytest.mark.parametrize(
    "fields",
    [
        {"password": "hunter2"},
        {"new_password": b"hunter2"},
        {"Authorization": "Basic hunter2"},
        {"headers": {"cookie": "hunter2", "x": ["token=hunter2"]}},
        {"url": "mqtt://alice:hunter2@host:1883"},
        {"error": ValueError("refused: passwd: hunter2")},
        {"query": "topic=a&token=hunter2&x=1"},
        {"line": "authorization: bearer hunter2"},
        {"text": '{"password": "hunter2 and more hunter2"}'},
        {"payload": b"hunter2"},
        {"api_key": "hunter2"},
    ],
)
def test_secrets_are_masked(form: logging.Formatter, fields: dict[str, Any]) -> None:
    assert "hunter2" not in form.format(record("connect", **fields))
    assert "hunter2" not in form.format(record(f"came with {fields.get('url', 'token=hunter2')}"))


def test_what_only_sounds_like_a_secret_is_shown() -> None:
    assert without_secrets("password_file", "/etc/users") == "/etc/users"
    assert without_secrets("key", "listen.mqtt_port") == "listen.mqtt_port"
    assert masked("mqtt://host:1883/a@b") == "mqtt://host:1883/a@b"
    assert masked("the password was wrong") == "the password was wrong"
    assert masked("topic=a&token=x&q=1") == "topic=a&token=***&q=1"


def test_a_long_value_is_cut() -> None:
    assert masked("x" * 5_000) == "x" * 1_000 + "... (5000 characters)"


# --- forgery ----------------------------------------------------------------------------------


@given(st.text(), st.text())
def test_no_value_can_begin_a_line_or_a_field(event: str, value: str) -> None:
    line = TextLines().format(record(event, client=value, end=1))
    assert len(line.splitlines()) == 1
    assert line.endswith(" end=1")
    assert line.isprintable()
    assert len(JsonLines().format(record(event, client=value)).splitlines()) == 1


def test_values_with_spaces_are_quoted() -> None:
    line = TextLines().format(record("e", client="a b=c", topic='x"y', plain="a/b-c.d:1"))
    assert line.endswith('client="a b=c" topic="x\\"y" plain=a/b-c.d:1')


# --- repeats ----------------------------------------------------------------------------------


def test_repeated_warnings_are_counted_instead_of_written() -> None:
    repeats = Repeats()
    written = [repeats.filter(record("slow", 1.0, logging.WARNING, n=n)) for n in range(50)]
    assert written == [True] * REPEATS_MAX + [False] * (50 - REPEATS_MAX)
    assert repeats.filter(record("other", 1.0, logging.WARNING))
    later = record("slow", 1.0 + WINDOW_S, logging.WARNING)
    assert repeats.filter(later)
    assert f"suppressed={50 - REPEATS_MAX}" in TextLines().format(later)
    again = record("slow", 2.0 + WINDOW_S, logging.WARNING)
    assert repeats.filter(again)
    assert "suppressed" not in TextLines().format(again)


def test_what_is_no_warning_is_always_written() -> None:
    repeats = Repeats()
    assert all(repeats.filter(record("opened", 1.0)) for _ in range(100))


def test_many_different_warnings_do_not_fill_the_memory() -> None:
    repeats = Repeats()
    for number in range(5_000):
        assert repeats.filter(record(f"event {number}", 1.0, logging.WARNING))
    assert len(repeats._kinds) <= 1_000


def test_repeats_are_dropped_on_the_way_out(stream: io.StringIO) -> None:
    install(LogSettings(), stream)
    for number in range(100):
        events("clients").warning("refused", client=f"c{number}")
    assert stream.getvalue().count("refused") in range(REPEATS_MAX, 2 * REPEATS_MAX + 1)
