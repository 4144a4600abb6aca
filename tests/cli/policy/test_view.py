"""What `rove policy test` prints: values as people read them, columns that fit, colours."""

from __future__ import annotations

import base64
import io
import re

import pytest
from PIL import Image

from rove.cli.policy.view import (
    Style,
    heading_line,
    message_lines,
    shortened,
    terminal_style,
    time_text,
    value_text,
)
from rove.policy.trial import PolicyTrial
from rove.world.feeds.hospital import ecg_png


def jpeg(width: int, height: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, height), "red").save(out, "JPEG", progressive=True)
    return out.getvalue()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("Zagreb", '"Zagreb"'),
        ("čšž", '"čšž"'),
        (None, "null"),
        (True, "true"),
        (7, "7"),
        (0.1 + 0.2, "0.3"),
        ([1, {"a": "b"}], '[1, {"a": "b"}]'),
        (b"hello", "hello"),
        (b"\x00\x01\x02", "text, 3 B"),
        (b"\xff\xfe", "bytes, 2 B"),
        (ecg_png(80, 0.3), "PNG 400×250, 100 KB"),
        (base64.b64encode(ecg_png(80, 0.3)).decode(), "PNG 400×250, 100 KB"),
        (b"\x89PNG\r\n\x1a\n", "PNG, 8 B"),
        (b"\xff\xd8\xff\xe0\x00", "JPEG, 5 B"),
    ],
)
def test_values(value: object, text: str) -> None:
    assert value_text(value) == text


def test_a_picture_is_its_kind_and_size() -> None:
    picture = jpeg(320, 200)
    assert value_text(picture).startswith("JPEG 320×200, ")
    assert value_text(base64.b64encode(picture).decode()) == value_text(picture)
    assert value_text("iVBORw0KGgo" + "?" * 80).startswith('"iVBOR'), "only looks like one"
    assert value_text("A" * 80) == f'"{"A" * 80}"'


def test_what_does_not_fit_is_shortened() -> None:
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdef", 4) == "abc…"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0000123, "12 µs"), (0.0034, "3.4 ms"), (1.2, "1.20 s")]
)
def test_times(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


@pytest.mark.parametrize("width", [60, 80, 120, 160])
def test_lines_are_as_wide_as_they_may_be(width: int) -> None:
    trial = PolicyTrial(
        "def arrived(m, me):\n    m.more = m.text\n    me.last = m.text\n    return m"
    )
    tried = trial.show({"text": "x" * 500, "a_name_that_is_longer_than_most": 1}, "t" * 300)
    style = Style(width, has_colour=False)
    lines = [heading_line(style), *message_lines(1, 0.0, tried, style)]
    assert max(map(len, lines)) <= width
    right = heading_line(style).index("what is sent")
    assert [line[right - 2] for line in lines[2:]] == [" ", " ", "+", "+"]
    brief = Style(width, has_colour=False, is_brief=True)
    (line,) = message_lines(1, 0.0, tried, brief)
    assert line.index("changed") == heading_line(brief).index("what is sent")


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "9999")
    style = terminal_style(is_terminal=True, is_brief=False)
    assert (style.width, style.has_colour) == (160, True)
    trial = PolicyTrial("def arrived(m, me):\n    m.x = 2\n    del m.y\n    return m")
    plain = Style(160, has_colour=False)
    tried = trial.show({"x": 1, "y": 1})
    painted = list(message_lines(1, 0.0, tried, style))
    assert "\x1b[33m~ 2\x1b[0m" in painted[1]
    assert "\x1b[31m-\x1b[0m" in painted[2]
    bare = [re.sub(r"\x1b\[\d+m", "", line).rstrip() for line in painted]
    assert bare == [line.rstrip() for line in message_lines(1, 0.0, tried, plain)]
