"""What a policy made of messages, as a person reads it: input and output side by side.

A message is a line with its number, its time, its topic and what became of it, then a line for each
attribute: what came on the left, what is sent on the right, and between them a mark where the two
differ (`~` changed, `+` new, `-` gone). Variables that changed stand below as `me.name`. Several
outputs stand below each other. Lines are written as they are made, so a long file can be watched;
for that the columns are as wide as the terminal lets them be and not as the widest value. What does
not fit is shortened; a picture is its kind and size, since nobody reads its bytes.
"""

from __future__ import annotations

import base64
import binascii
import json
import shutil
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from rove.cli.common.output import bytes_text, count_text
from rove.policy.agents import Verdict
from rove.policy.limits import PolicyLimits
from rove.policy.messages import TOPIC
from rove.policy.trial import TrialResult
from rove.policy.view import PolicyCounts

_MISSING: Final = object()
_CHANGED, _NEW, _GONE, _SAME = "~", "+", "-", " "
_COLOURS: Final = {_CHANGED: "\x1b[33m", _NEW: "\x1b[32m", _GONE: "\x1b[31m"}
_VERDICT_COLOURS: Final = {"stopped": "\x1b[31m", "suspended": "\x1b[31m", "dropped": "\x1b[2m"}
_PLAIN: Final = "\x1b[0m"
_FAINT: Final = "\x1b[2m"
_BOLD: Final = "\x1b[1m"
_WORDS: Final[dict[Verdict, str]] = {
    "passed": "as it came",
    "sent": "changed",
    "dropped": "nothing",
    "stopped": "stopped",
    "suspended": "suspended",
}
_WIDTH_MIN, _WIDTH_MAX = 60, 160
_NAME_WIDTHS: Final = (12, 16)
"""On a narrow terminal, and on a wide one."""
_WIDE: Final = 100
_NUMBER_WIDTH: Final = 4
_TIME_WIDTH: Final = 8
_BINARY_CHARACTERS_MIN: Final = 64
_PICTURES: Final = ((b"\x89PNG\r\n\x1a\n", "PNG"), (b"\xff\xd8\xff", "JPEG"))
_HEAD_CHARACTERS: Final = 16
_DIGITS_SHOWN: Final = 12
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of JPEG after which its size stands."""


class Style(NamedTuple):
    """How it is written."""

    width: int
    has_colour: bool
    is_brief: bool = False
    """Only a line for each message."""

    @property
    def name_width(self) -> int:
        return _NAME_WIDTHS[self.width >= _WIDE]

    @property
    def side_width(self) -> int:
        """Of what came, and of what is sent."""
        return (self.width - _NUMBER_WIDTH - self.name_width - 8) // 2

    def paint(self, colour: str, text: str) -> str:
        return f"{colour}{text}{_PLAIN}" if self.has_colour and colour and text.strip() else text


def terminal_style(*, is_terminal: bool, is_brief: bool) -> Style:
    """What suits where it is written to; 120 columns where nobody says how many there are."""
    columns = shutil.get_terminal_size((120, 24)).columns
    width = max(_WIDTH_MIN, min(columns, _WIDTH_MAX))
    return Style(width, has_colour=is_terminal, is_brief=is_brief)


def heading_line(style: Style) -> str:
    """What stands where."""
    left = f"{'#':>{_NUMBER_WIDTH}}  {'at':>{_TIME_WIDTH}}  topic, and what came"
    if style.is_brief:
        return style.paint(_FAINT, f"{left[:-15]:<{style.width - 32}}what is sent")
    room = _NUMBER_WIDTH + style.name_width + style.side_width + 8
    return style.paint(_FAINT, f"{left:<{room}}what is sent")


# --- a message ------------------------------------------------------------------------------------


def message_lines(number: int, began: float, tried: TrialResult, style: Style) -> Iterator[str]:
    """One message and what became of it; times count from `began`."""
    yield _heading(number, began, tried, style)
    if tried.stopped is not None:
        at = f"line {tried.stopped.line}: " if tried.stopped.line else ""
        text = f"{tried.stopped.kind}: {at}{tried.stopped.text}"
        yield style.paint(_COLOURS[_GONE], f"{'':{_NUMBER_WIDTH}}  {text}")
    if tried.is_now_suspended:
        text = "one stop too many: it is suspended"
        yield style.paint(_COLOURS[_GONE], f"{'':{_NUMBER_WIDTH}}  {text}")
    if not style.is_brief:
        yield from _side_by_side(tried, style)


def _heading(number: int, began: float, tried: TrialResult, style: Style) -> str:
    verdict = _WORDS[tried.verdict]
    if len(tried.outputs) > 1:
        verdict = f"{len(tried.outputs)} messages"
    used = f"{tried.steps:>7,} step{'s' if tried.steps != 1 else ' '} {time_text(tried.took_s):>7}"
    left = f"{number:>{_NUMBER_WIDTH}}  {tried.at - began:>{_TIME_WIDTH - 2}.6g} s  "
    room = style.width - len(left) - len(used) - 13
    topic = style.paint(_BOLD, f"{shortened(tried.arrived.topic, room):<{room}}")
    colour = _VERDICT_COLOURS.get(tried.verdict, "")
    return f"{left}{topic}  {style.paint(colour, f'{verdict:<10}')} {used}"


def _side_by_side(tried: TrialResult, style: Style) -> Iterator[str]:
    came = {name: value for name, value in tried.arrived.attributes.items() if name != TOPIC}
    outputs = [_without_topic(one) for one in tried.messages]
    for count, sent in enumerate(outputs or [{}]):
        shown = came if count == 0 else {}
        rows = [
            (name, shown.get(name, _MISSING), sent.get(name, _MISSING)) for name in shown | sent
        ]
        for name, before, after in rows:
            is_gone = bool(outputs) and after is _MISSING
            mark = _mark(came.get(name, _MISSING), after) if outputs else _SAME
            yield _row(name, before, after, _GONE if is_gone else mark, style)
    for name, (before, after) in tried.changes.items():
        old = _MISSING if before is None else before
        new = _MISSING if after is None else after
        mark = _NEW if old is _MISSING else _GONE if new is _MISSING else _CHANGED
        yield _row(_variable(name), old, new, mark, style)


def _variable(name: str) -> str:
    return f"me.{name}"


def _without_topic(attributes: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in attributes.items() if name != TOPIC}


def _mark(before: object, after: object) -> str:
    if before is _MISSING:
        return _NEW
    return _SAME if before == after and type(before) is type(after) else _CHANGED


def _row(name: str, before: object, after: object, mark: str, style: Style) -> str:
    side, name_width = style.side_width, style.name_width
    left = "" if before is _MISSING else shortened(value_text(before), side)
    right = "" if after is _MISSING else shortened(value_text(after), side)
    start = f"{'':{_NUMBER_WIDTH}}  {shortened(name, name_width):<{name_width}}"
    end = style.paint(_COLOURS.get(mark, ""), f"{mark} {right}".rstrip())
    return f"{start}  {left:<{side}}  {end}".rstrip()


# --- values ---------------------------------------------------------------------------------------


def shortened(text: str, width: int) -> str:
    """As much of it as fits."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def value_text(value: object) -> str:
    """A value as a person reads it."""
    if isinstance(value, bytes):
        return _picture(value, len(value)) or _raw_text(value)
    if isinstance(value, str):
        return _base64_picture(value) or json.dumps(value, ensure_ascii=False)
    if isinstance(value, float):
        written = repr(value)
        return written if len(written) <= _DIGITS_SHOWN else f"{value:.{_DIGITS_SHOWN - 2}g}"
    return json.dumps(value, ensure_ascii=False, default=repr)


def _raw_text(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"bytes, {bytes_text(len(value))}"
    return text if text.isprintable() else f"text, {bytes_text(len(value))}"


def _base64_picture(value: str) -> str:
    """What it shows, if it is the base64 of a picture; empty if not."""
    if len(value) < _BINARY_CHARACTERS_MIN:
        return ""
    try:
        head = base64.b64decode(value[:_HEAD_CHARACTERS], validate=True)
    except binascii.Error:
        return ""
    if not any(head.startswith(start) for start, _ in _PICTURES):
        return ""
    try:
        found = base64.b64decode(value, validate=True)
    except binascii.Error:
        return ""
    return _picture(found, len(found))


def _picture(value: bytes, size: int) -> str:
    for start, kind in _PICTURES:
        if value.startswith(start):
            sides = _png_sides(value) if kind == "PNG" else _jpeg_sides(value)
            measures = f" {sides[0]}×{sides[1]}" if sides is not None else ""
            return f"{kind}{measures}, {bytes_text(size)}"
    return ""


def _png_sides(value: bytes) -> tuple[int, int] | None:
    if len(value) < 24:
        return None
    width, height = struct.unpack(">II", value[16:24])
    return width, height


def _jpeg_sides(value: bytes) -> tuple[int, int] | None:
    """Go from marker to marker until one tells."""
    place = 2
    while place + 9 <= len(value) and value[place] == 0xFF:
        marker, length = value[place + 1], int.from_bytes(value[place + 2 : place + 4], "big")
        if marker in _FRAMES:
            height, width = struct.unpack(">HH", value[place + 5 : place + 9])
            return width, height
        place += 2 + length
    return None


def time_text(seconds: float) -> str:
    """12 µs or 3.4 ms."""
    if seconds < 999.5e-6:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 0.9995 else f"{seconds:.2f} s"


# --- all of it ------------------------------------------------------------------------------------


def summary_text(tally: PolicyCounts, steps: list[int], took_s: float, limits: PolicyLimits) -> str:
    """What became of all messages, in a line or two."""
    stopped = sum(tally.stopped.values())
    sent = f"{count_text(tally.outputs)} sent ({bytes_text(tally.bytes_out)})"
    kinds = (
        f" ({', '.join(f'{n} by {kind}' for kind, n in tally.stopped.items())})" if stopped else ""
    )
    noun = "message" if tally.calls == 1 else "messages"
    parts = [
        f"{count_text(tally.calls)} {noun} ({bytes_text(tally.bytes_in)})",
        sent,
        f"{tally.passed} as they came",
        f"{tally.changed} changed",
        f"{tally.dropped} not sent",
        f"{stopped} stopped{kinds}",
    ]
    if tally.suspended:
        parts.append(f"{tally.suspended} while suspended")
    calls = max(len(steps), 1)
    most = max(steps, default=0)
    use = (
        f"steps: {sum(steps) / calls:,.1f} a message, {most:,} at most of {limits.steps_max:,}; "
        f"{time_text(took_s / calls)} a message"
    )
    slow = sum(each > limits.inline_steps_max for each in steps)
    if slow:
        use += f"; {slow} would be done by a worker (over {limits.inline_steps_max:,} steps)"
    return f"{', '.join(parts)}\n{use}"


def as_object(number: int, tried: TrialResult, me: dict[str, object]) -> dict[str, Any]:
    """The same for a program: one object."""
    found: dict[str, Any] = {
        "number": number,
        "at": tried.at,
        "topic": tried.arrived.topic,
        "verdict": tried.verdict,
        "input": _jsonable(_without_topic(dict(tried.arrived.attributes))),
        "outputs": [_jsonable(_without_topic(one)) for one in tried.messages],
        "steps": tried.steps,
        "took_ms": tried.took_s * 1e3,
    }
    if tried.changes:
        found["me"] = me
    if tried.stopped is not None:
        stop = tried.stopped
        found["stopped"] = {"kind": stop.kind, "text": stop.text, "line": stop.line}
    if tried.is_now_suspended:
        found["is_now_suspended"] = True
    return found


def _jsonable(attributes: dict[str, object]) -> dict[str, object]:
    """Bytes, which JSON has not, as base64."""
    return {
        name: {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value
        for name, value in attributes.items()
    }
