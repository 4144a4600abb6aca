"""Lines over time as SVG: round axes, names at the ends, and names that cannot break it."""

import itertools
import re
from xml.etree import ElementTree

import pytest

from rove.monitor import svg


def line(
    name: str, values: list[float], *, dash: str = "", is_heavy: bool = False
) -> svg.ChartLine:
    return svg.ChartLine(name, "area", dash, is_heavy, list(range(len(values))), values)


def drawn(*lines: svg.ChartLine) -> ElementTree.Element:
    """What a reader of XML makes of it."""
    return ElementTree.fromstring(svg.chart("Subscriptions", "subscriptions", list(lines)))


def texts(picture: ElementTree.Element, look: str) -> list[str]:
    return [one.text or "" for one in picture.iter("text") if look in one.get("class", "").split()]


@pytest.mark.parametrize(
    ("high", "expected"),
    [
        (0.0, [0, 1]),
        (1.0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (7.0, [0, 2, 4, 6, 8]),
        (980.0, [0, 200, 400, 600, 800, 1000]),
        (1e6, [0, 2e5, 4e5, 6e5, 8e5, 1e6]),
    ],
)
def test_ticks_are_round_and_hold_everything(high: float, expected: list[float]) -> None:
    assert svg.ticks_of(0.0, high) == pytest.approx(expected)


def test_ticks_reach_below_zero() -> None:
    ticks = svg.ticks_of(-3.0, 8.0)
    assert ticks[0] <= -3
    assert ticks[-1] >= 8
    assert 0.0 in ticks


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (12.34, "12.3"), (999.6, "1 k"), (1234, "1.23 k"), (2.5e6, "2.5 M"),
        (-1500, "−1.5 k"), (0.00012, "1.2e−04"), (3e9, "3 G"),
    ],
)  # fmt: skip
def test_numbers_are_short(value: float, text: str) -> None:
    assert svg.short(value) == text


@pytest.mark.parametrize(("seconds", "text"), [(5, "0:05"), (65, "1:05"), (7380, "2:03:00")])
def test_times_are_those_of_a_clock(seconds: float, text: str) -> None:
    assert svg.clock(seconds) == text


def test_a_drawing_has_axes_with_units_and_names_at_the_ends() -> None:
    picture = drawn(line("object", [1, 2, 3]), line("area (live)", [9, 8, 7], is_heavy=True))
    assert texts(picture, "axis") == ["subscriptions", "time of the run (min:s)"]
    assert texts(picture, "tick")[:6] == ["0", "2", "4", "6", "8", "10"]
    assert sorted(texts(picture, "end")) == ["area (live)", "object"]
    assert texts(picture, "heavy") == ["area (live)"]
    assert "object 3, area (live) 7" in picture.get("aria-label", "")


def test_a_path_leads_through_the_points() -> None:
    picture = drawn(line("object", [0, 10, 5], dash="6 3"))
    [path] = [one for one in picture.iter("path") if "line" in one.get("class", "")]
    assert path.get("stroke-dasharray") == "6 3"
    steps = [float(number) for number in re.findall(r"-?[\d.]+", path.get("d", ""))]
    places = [(steps[0], steps[1])]
    for dx, dy in zip(steps[2::2], steps[3::2], strict=True):
        places.append((places[-1][0] + dx, places[-1][1] + dy))
    (x0, y0), (x1, y1), (x2, y2) = places
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(2 * (y2 - y1), abs=0.3)
    assert y1 < y2 < y0


def test_labels_do_not_cover_each_other() -> None:
    picture = drawn(*(line(f"engine-{n}", [5.0, 5.0 + n / 100]) for n in range(7)))
    heights = sorted(
        float(one.get("y", "0"))
        for one in picture.iter("text")
        if "end" in one.get("class", "").split()
    )
    assert len(heights) == 7
    assert all(high - low >= 14 for low, high in itertools.pairwise(heights))
    assert heights[-1] <= svg.HEIGHT


def test_names_are_text() -> None:
    picture = drawn(line('<script>alert("x")</script>', [1, 2]))
    [name] = texts(picture, "end")
    assert name.startswith("<script>")
    assert not list(picture.iter("script"))


def test_many_points_become_fewer_and_keep_their_mean() -> None:
    many = line("object", [float(n % 7) for n in range(10_000)])
    few = svg.thinned(many)
    assert len(few.at) <= svg.POINTS_MAX
    assert sum(few.value) / len(few.value) == pytest.approx(sum(many.value) / 10_000, rel=0.01)
    assert len(svg.chart("x", "y", [many])) < 6_000


def test_one_point_is_a_dot_and_none_is_said() -> None:
    assert len(list(drawn(line("object", [3.0])).iter("circle"))) == 1
    assert texts(drawn(), "tick") == ["nothing was recorded"]
