"""Line charts as SVG, for a report without scripts or external files.

The page draws on a canvas, which a mailed file cannot contain; a bitmap would not adapt to light
and dark. SVG inside HTML takes its colours from the style sheet around it, can be searched, and is
sharp at any size. matplotlib writes SVG too, but as outlines of glyphs, ten times the size, in
fixed colours.

Charts look as on the page: units at the axes, and for each line a dash and its name at its end, so
colour is never the only distinction. A line of 240 points is 2 KB; drawing one takes a millisecond.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final, NamedTuple

WIDTH: Final = 640
HEIGHT: Final = 260
POINTS_MAX: Final = 240
_TOP: Final = 12
_BOTTOM: Final = 40
_LEFT: Final = 68
_RIGHT: Final = 128
_LABEL_HEIGHT: Final = 15
_LABEL_LETTERS_MAX: Final = 18
_TICKS: Final = 5
_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
_TIME_STEPS_S: Final = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800,
    3_600, 7_200, 10_800, 21_600, 43_200, 86_400,
)  # fmt: skip
_PREFIXES: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


class ChartLine(NamedTuple):
    """One of several over the same time."""

    name: str
    look: str
    """A class of the style sheet, which gives its colour."""
    dash: str
    """As `stroke-dasharray` has it; empty for none."""
    is_heavy: bool
    at: Sequence[float]
    value: Sequence[float]


class _ChartFrame(NamedTuple):
    """Where in the picture a value is."""

    first_s: float
    last_s: float
    low: float
    high: float

    def x(self, at: float) -> float:
        span = self.last_s - self.first_s or 1.0
        return _LEFT + (at - self.first_s) / span * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)


def chart(title: str, unit: str, lines: Sequence[ChartLine]) -> str:
    """A drawing with axes; one that says so if there is nothing to draw."""
    drawn = [line for line in map(thinned, lines) if line.at]
    head = (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(_spoken(title, unit, drawn))}">'
    )
    if not drawn:
        said = _text("tick", WIDTH / 2, HEIGHT / 2, "nothing was recorded", "middle")
        return f"{head}{said}</svg>"
    ticks = ticks_of(0.0, max(max(line.value) for line in drawn))
    frame = _ChartFrame(
        min(line.at[0] for line in drawn), max(line.at[-1] for line in drawn), ticks[0], ticks[-1]
    )
    parts = [head, *_value_axis(frame, ticks, unit), *_time_axis(frame)]
    parts += [_path(frame, line) for line in drawn]
    parts += _labels(frame, drawn)
    return "".join([*parts, "</svg>"])


def _spoken(title: str, unit: str, lines: Iterable[ChartLine]) -> str:
    ends = ", ".join(f"{line.name} {short(line.value[-1])}" for line in lines)
    return f"{title} in {unit} over the seconds of the run; at the end: {ends or 'nothing'}"


def _text(look: str, x: float, y: float, content: str, anchor: str = "start") -> str:
    place = f'x="{round(x, 1):g}" y="{round(y, 1):g}" text-anchor="{anchor}"'
    return f'<text class="{look}" {place}>{escape(content)}</text>'


# --- axes -----------------------------------------------------------------------------------------


def ticks_of(low: float, high: float) -> list[float]:
    """Round numbers that hold both, about five of them."""
    span = high - low
    if not span > 0:
        return [low, low + 1.0]
    rough = span / _TICKS
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(step * size for step in _STEPS if step * size >= rough * 0.999_999)
    first = math.floor(low / step)
    last = math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def short(value: float) -> str:
    """A number for people: three digits, thousands as k."""
    size = abs(value)
    for scale, prefix in _PREFIXES:
        if size >= scale * 0.9995:
            return f"{_digits(value / scale)} {prefix}"
    return _digits(value)


def _digits(value: float) -> str:
    if value == 0:
        return "0"
    if abs(value) < 0.001:
        return f"{value:.1e}".replace("-", "−")
    return f"{float(f'{value:.3g}'):g}".replace("-", "−")


def clock(seconds: float) -> str:
    """1:05, or 2:03:00."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _value_axis(frame: _ChartFrame, ticks: Sequence[float], unit: str) -> Iterable[str]:
    for tick in ticks:
        y = frame.y(tick)
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}"/>'
        yield _text("tick", _LEFT - 8, y + 4, short(tick), "end")
    middle = (HEIGHT - _BOTTOM + _TOP) / 2
    yield (
        f'<text class="axis" transform="translate(14 {middle:g}) rotate(-90)" '
        f'text-anchor="middle">{escape(unit)}</text>'
    )


def _time_axis(frame: _ChartFrame) -> Iterable[str]:
    span = frame.last_s - frame.first_s
    longest_s = _TIME_STEPS_S[-1]
    rough = span / _TICKS
    step = next((one for one in _TIME_STEPS_S if one >= rough), 0)
    step = step or math.ceil(rough / longest_s) * longest_s
    number = math.ceil(frame.first_s / step)
    while number * step <= frame.last_s:
        x = frame.x(number * step)
        yield f'<path class="grid" d="M{x:.1f} {_TOP}V{HEIGHT - _BOTTOM}"/>'
        yield _text("tick", x, HEIGHT - _BOTTOM + 16, clock(number * step), "middle")
        number += 1
    middle = (WIDTH - _RIGHT + _LEFT) / 2
    yield _text("axis", middle, HEIGHT - 6, "time of the run (min:s)", "middle")


# --- lines ----------------------------------------------------------------------------------------


def thinned(line: ChartLine) -> ChartLine:
    """With at most `POINTS_MAX` points: means of as many neighbours as it takes."""
    each = math.ceil(len(line.at) / POINTS_MAX)
    if each <= 1:
        return line
    groups = range(0, len(line.at), each)
    return line._replace(
        at=[_mean(line.at[begin : begin + each]) for begin in groups],
        value=[_mean(line.value[begin : begin + each]) for begin in groups],
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _path(frame: _ChartFrame, line: ChartLine) -> str:
    points = [(frame.x(at), frame.y(value)) for at, value in zip(line.at, line.value, strict=True)]
    if len(points) == 1:
        x, y = points[0]
        return f'<circle class="{line.look}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'
    way = [f"M{points[0][0]:.1f} {points[0][1]:.1f}l"]
    x, y = round(points[0][0], 1), round(points[0][1], 1)
    for next_x, next_y in points[1:]:
        # Small steps have fewer digits; each is measured from where the pen is, so none adds up.
        dx, dy = round(next_x - x, 1), round(next_y - y, 1)
        way.append(f"{dx:g} {dy:g} ")
        x, y = round(x + dx, 1), round(y + dy, 1)
    dash = f' stroke-dasharray="{line.dash}"' if line.dash else ""
    heavy = " heavy" if line.is_heavy else ""
    return f'<path class="line {line.look}{heavy}"{dash} d="{"".join(way).rstrip()}"/>'


def _labels(frame: _ChartFrame, lines: Sequence[ChartLine]) -> Iterable[str]:
    """The name of each line at its end, moved apart where they would cover each other."""
    wanted = sorted((frame.y(line.value[-1]), number) for number, line in enumerate(lines))
    places, free = [], float(_TOP)
    for y, number in wanted:
        places.append((max(y, free), number))
        free = places[-1][0] + _LABEL_HEIGHT
    free = float(HEIGHT - _BOTTOM)
    for y, number in reversed(places):
        line = lines[number]
        at = min(y, free)
        free = at - _LABEL_HEIGHT
        name = line.name
        if len(name) > _LABEL_LETTERS_MAX:
            name = name[: _LABEL_LETTERS_MAX - 1] + "…"
        heavy = " heavy" if line.is_heavy else ""
        yield _text(f"end {line.look}{heavy}", WIDTH - _RIGHT + 8, at + 4, name)
