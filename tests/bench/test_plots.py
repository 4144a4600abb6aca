"""Plots: the right points, told apart by more than colour; a plain word where nothing is drawn."""

import itertools
import struct
import sys
from pathlib import Path

import pytest

from rove.bench import plots
from rove.bench.measure import Measure
from rove.bench.plots import lines_of, speed_plot
from rove.errors import UsageError

SIZES = (1_000, 10_000, 100_000)
ENGINES = ("scan", "index.stream", "index.batch4096", "forest")
MEASURES = [
    Measure(f"match.W1.{size}.{engine}", 1e6 * (1 + number) / size, "events/s")
    for size in SIZES
    for number, engine in enumerate(ENGINES)
]


class TestLines:
    def test_each_engine_has_its_points_in_order(self) -> None:
        lines = lines_of(reversed(MEASURES), "match.W1", "events/s")
        assert set(lines) == set(ENGINES)
        assert lines["scan"] == [(1_000, 1_000.0), (10_000, 100.0), (100_000, 10.0)]
        assert lines["index.stream"][0] == (1_000, 2_000.0)

    @pytest.mark.parametrize(
        "other",
        [
            Measure("match.W2.1000.scan", 1.0, "events/s"),
            Measure("match.W10.1000.scan", 1.0, "events/s"),
            Measure("match.W1.1000.scan", 1.0, "µs"),
            Measure("match.W1.cold.scan", 1.0, "events/s"),
            Measure("match.W1.1000", 1.0, "events/s"),
            Measure("match.W1.1000.scan", 0.0, "events/s"),
        ],
    )
    def test_what_does_not_belong_is_left_out(self, other: Measure) -> None:
        assert lines_of([other], "match.W1", "events/s") == {}


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "speed.png"
    speed_plot(MEASURES, "match.W1", path, "W1")
    header = path.read_bytes()[:24]
    assert header.startswith(b"\x89PNG")
    assert struct.unpack(">II", header[16:24]) == (800, 500)


def test_engines_differ_in_colour_marker_and_dash_and_are_named_at_their_ends() -> None:
    figure = plots._figure(lines_of(MEASURES, "match.W1", "events/s"), "Title", "events/s")
    (axes,) = figure.get_axes()
    drawn = axes.get_lines()
    assert [line.get_label() for line in drawn] == list(ENGINES)
    for look in ("color", "marker", "linestyle"):
        assert len({str(getattr(line, f"get_{look}")()) for line in drawn}) == len(ENGINES)
    assert {text.get_text() for text in axes.texts} == set(ENGINES)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("subscriptions", "events/s")
    assert axes.get_title(loc="left") == "Title"


def test_labels_of_lines_that_end_together_do_not_meet() -> None:
    same = {engine: [(1_000, 100.0), (10_000, 1.0)] for engine in ENGINES}
    (axes,) = plots._figure(same, "Title", "events/s").get_axes()
    heights = sorted(text.xy[1] for text in axes.texts)  # type: ignore[attr-defined]
    gaps = [high / low for low, high in itertools.pairwise(heights)]
    assert min(gaps) > 1.15


def test_nothing_to_draw_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"match\.W3\.SIZE\.ENGINE"):
        speed_plot(MEASURES, "match.W3", tmp_path / "none.png", "W3")
    assert not (tmp_path / "none.png").exists()


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("matplotlib", "matplotlib.figure", "matplotlib.ticker"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match=r"pip install rove\[plots\]"):
        speed_plot(MEASURES, "match.W1", tmp_path / "none.png", "W1")
