"""Speed against the number of subscriptions, as a picture: growth is seen, not read off a table.

Both axes are logarithmic, since engines differ by factors and sizes go from a thousand to a
million. Each engine has a colour, a marker and a dash of its own (the colours are those of Okabe
and Ito, which colour-blind readers can tell apart, their yellow darkened for paper), and its name
stands at the end of its line, where no legend has to be looked up. 800 pixels wide,
for a page of documentation.

Needs matplotlib, which is imported only when a picture is drawn: `pip install rove[plots]`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from rove.bench.measure import Measure
from rove.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Lines: TypeAlias = dict[str, list[tuple[int, float]]]
"""For each engine its points, (subscriptions, value), the fewest subscriptions first."""

COLOURS: Final = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#8C6D1F",
)
MARKERS: Final = "osD^vPX*"
DASHES: Final = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1)))
_SIZE_INCHES: Final = (8.0, 5.0)
DOTS_PER_INCH: Final = 100
_LABEL_HEIGHT: Final = 0.042
"""What a label takes of the height of the axes."""


def speed_plot(
    measures: Iterable[Measure], prefix: str, path: Path, title: str, unit: str = "events/s"
) -> None:
    """Draw the measures called `prefix.SIZE.ENGINE`, one line for each engine, into a PNG file."""
    lines = lines_of(measures, prefix, unit)
    if not lines:
        raise UsageError(
            f"nothing to draw: no measure is called {prefix}.SIZE.ENGINE and given in {unit}"
        )
    _figure(lines, title, unit).savefig(path, format="png")


def lines_of(measures: Iterable[Measure], prefix: str, unit: str) -> Lines:
    """The points of each engine, out of all measures."""
    found: Lines = {}
    for measure in measures:
        if not measure.name.startswith(f"{prefix}.") or measure.unit != unit:
            continue
        size, _, engine = measure.name.removeprefix(f"{prefix}.").partition(".")
        if size.isdecimal() and engine and measure.value > 0:
            found.setdefault(engine, []).append((int(size), measure.value))
    return {engine: sorted(points) for engine, points in found.items()}


def new_figure(size_inches: tuple[float, float]) -> Figure:
    """An empty picture; UsageError where nothing can be drawn."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(
            f"plots need matplotlib ({error}); install it with `pip install rove[plots]`"
        ) from None
    return Figure(figsize=size_inches, dpi=DOTS_PER_INCH, layout="constrained")


def _figure(lines: Lines, title: str, unit: str) -> Figure:
    figure = new_figure(_SIZE_INCHES)
    from matplotlib.ticker import EngFormatter

    axes = figure.add_subplot(xscale="log", yscale="log")
    for number, (engine, points) in enumerate(lines.items()):
        axes.plot(
            *zip(*points, strict=True),
            label=engine,
            color=COLOURS[number % len(COLOURS)],
            marker=MARKERS[number % len(MARKERS)],
            linestyle=DASHES[number % len(DASHES)],
        )
    axes.set_title(title, loc="left")
    axes.set_xlabel("subscriptions")
    axes.set_ylabel(unit)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(which="major", color="#DDDDDD")
    axes.spines[["top", "right"]].set_visible(False)
    label_ends(axes, lines)
    return figure


def label_ends(axes: Axes, lines: Lines) -> None:
    """The name of each engine beside the last point of its line, moved up where two would meet."""
    ends = {engine: points[-1] for engine, points in lines.items()}
    lowest, highest = (math.log10(limit) for limit in axes.get_ylim())
    apart = _LABEL_HEIGHT * (highest - lowest)
    colours = {line.get_label(): line.get_color() for line in axes.get_lines()}
    taken: dict[int, float] = {}
    for engine, (size, value) in sorted(ends.items(), key=lambda end: end[1][1]):
        height = max(math.log10(value), taken.get(size, -math.inf) + apart)
        taken[size] = height
        axes.annotate(
            engine,
            (size, 10**height),
            xytext=(8, 0),
            textcoords="offset points",
            verticalalignment="center",
            color=colours[engine],
        )
