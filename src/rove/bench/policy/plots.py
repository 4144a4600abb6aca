"""Pictures of what `rove bench policy` measured, with what SUBLIM published beside it.

Of SUBLIM only numbers that it published are drawn (`rove.bench.policy.sublim`), and words stand
where it has only a curve. Overheads are drawn on a scale that is straight near zero and logarithmic
above it: a few percent and some hundreds have to be told apart in one picture.

Looks are those of `rove.bench.plots`. Needs matplotlib, which is imported only when a picture is
drawn: `pip install rove[plots]`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rove.bench.plots import COLOURS, DASHES, MARKERS, new_figure
from rove.bench.policy.load import PolicyOutcome
from rove.bench.policy.sublim import BATTERY, LINK_TEXT, MALICIOUS, OVERHEAD, OVERHEAD_TEXT, SHARES
from rove.client.devices import EnergyModel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Line = Sequence[tuple[int, float]]

_SUBLIM_COLOUR: Final = "#666666"
_GOAL_COLOUR: Final = "#999999"
_LABELS: Final = {
    "passed": "nothing to compress",
    "one": "compressed, one quality",
    "many": "compressed, all qualities",
}
_LINKS: Final = {
    "stateless": "stateless policy",
    "direct": "stateful, by the last report alone",
    "stateful": "stateful policy of the case study",
}
_STRAIGHT: Final = 5.0
"""Percent up to which the scale of overheads is straight."""
_WIDE_INCHES: Final = (10.0, 7.5)
_PANEL_INCHES: Final = 3.4
"""The width of one panel of several."""
_SIZE_INCHES: Final = (8.0, 5.0)


def overhead(found: Mapping[tuple[int, int], Mapping[str, PolicyOutcome]], path: Path) -> None:
    """Experiment 1, by SUBLIM's measure and by processor time, into a PNG file."""
    rates = sorted({rate for rate, _ in found})
    width, height = _WIDE_INCHES
    figure = new_figure((max(width, _PANEL_INCHES * len(rates)), height))
    panels = figure.subplots(2, len(rates), sharex=True, sharey="row", squeeze=False)
    for column, rate in enumerate(rates):
        durations, costs = panels[0][column], panels[1][column]
        for place, (case, label) in enumerate(_LABELS.items()):
            _draw(durations, _more(found, rate, case, "seconds"), label, place)
            _draw(costs, _more(found, rate, case, "cpu_s"), label, place)
        theirs = [(n, more) for (r, n), more in OVERHEAD.items() if r == rate]
        if theirs:
            _draw_sublim(durations, theirs)
        else:
            _words(durations, OVERHEAD_TEXT, (0.02, 0.96))
        _percent_scale(durations)
        _percent_scale(costs)
        _goal(durations, 5.0, "goal: 5 %")
        _finish(durations, f"{rate} messages a minute", "", "")
        _finish(costs, "", "subscribers", "")
    # Not before all is drawn: it would fix the other end, too.
    panels[1][0].set_ylim(bottom=-1)
    panels[0][0].set_ylabel("time until all is delivered,\n% more than blind delivery")
    panels[1][0].set_ylabel("processor time of the broker,\n% more than blind delivery")
    _legend(figure, panels[0][-1])
    figure.suptitle(
        "Experiment 1: a policy for each subscriber, messages of 100 KB", x=0.01, ha="left"
    )
    figure.savefig(path, format="png")


def link(lines: Mapping[str, Line], path: Path) -> None:
    """Experiment 2: what gets through, into a PNG file."""
    figure = new_figure(_SIZE_INCHES)
    axes = figure.add_subplot()
    for place, (name, line) in enumerate(lines.items()):
        _draw(axes, line, _LINKS[name], place)
    _words(axes, LINK_TEXT, (0.02, 0.4))
    axes.set_ylim(0, 112)
    title = "Experiment 2: a link between 300 kb/s and 3 Mb/s, messages of 100 KB"
    _finish(axes, title, "messages a minute", "% of the messages received")
    axes.legend(loc="lower left", frameon=False)
    figure.savefig(path, format="png")


def battery(lines: Mapping[str, Line], model: EnergyModel, path: Path) -> None:
    """Experiment 3: how long a device lasts, into a PNG file."""
    figure = new_figure(_SIZE_INCHES)
    axes = figure.add_subplot()
    rates = [rate for rate, _ in lines["stateless"]]
    _draw(axes, [(rate, 100.0) for rate in rates], "no messages", 2)
    for place, name in enumerate(("stateful", "stateless")):
        _draw(axes, lines[name], f"{name} policy", place)
    for (rate, long), (_, short) in zip(lines["stateful"], lines["stateless"], strict=True):
        axes.annotate(
            f"+{100 * (long - short) / short:.0f} %", (rate, short), xytext=(0, -8),
            textcoords="offset points", horizontalalignment="center", verticalalignment="top",
            fontsize=8,
        )  # fmt: skip
    _words(axes, f"SUBLIM, in words: up to {BATTERY:g} % longer", (0.02, 0.2))
    message_mj, byte_uj = 1e3 * model.joules_per_message, 1e6 * model.joules_per_byte
    told = f"a device uses {model.idle_w:g} W, {message_mj:g} mJ a message, {byte_uj:g} µJ a byte"
    _words(axes, told, (0.02, 0.13))
    axes.set_ylim(0, 112)
    title = "Experiment 3: how long a battery lasts"
    _finish(axes, title, "messages of 100 KB a minute", "battery life, % of that without messages")
    axes.legend(loc="lower right", frameon=False)
    figure.savefig(path, format="png")


def malicious(
    found: Mapping[tuple[int, int], Mapping[str, Sequence[PolicyOutcome]]], path: Path
) -> None:
    """Experiment 4: overheads, and the delays of those who mean no harm, into a PNG file."""
    rates = sorted({rate for rate, _ in found})
    figure = new_figure(_WIDE_INCHES)
    panels = figure.subplots(2, len(rates), sharex=True, sharey="row", squeeze=False)
    for column, rate in enumerate(rates):
        overheads, delays = panels[0][column], panels[1][column]
        counts = sorted(count for one, count in found if one == rate)
        for place, share in enumerate(SHARES):
            some = {count: found[rate, count] for count in counts}
            line = [(count, _median_more(each, f"{share}")) for count, each in some.items()]
            _draw(overheads, line, f"{share} % malicious", place)
            line = [(n, _median(each[f"{share}"], "p99_ms")) for n, each in some.items()]
            _draw(delays, line, f"{share} % malicious", place)
            theirs = [(n, each[place]) for (r, n), each in MALICIOUS.items() if r == rate]
            overheads.plot(
                *zip(*theirs, strict=True), color=_SUBLIM_COLOUR, linestyle=DASHES[place],
                marker=MARKERS[place], markersize=4,
                label=f"SUBLIM, {share} %",
            )  # fmt: skip
        _percent_scale(overheads)
        _finish(overheads, f"{rate} messages a minute", "", "")
        _finish(delays, "", "subscribers that mean no harm", "")
    panels[1][0].set_ylim(bottom=0)
    panels[0][0].set_ylabel("time until all is delivered,\n% more than blind delivery")
    panels[1][0].set_ylabel("p99 of their delays in ms")
    _legend(figure, panels[0][-1])
    figure.suptitle("Experiment 4: policies that never end", x=0.01, ha="left")
    figure.savefig(path, format="png")


# -- sums ---------------------------------------------------------------------------------------


def _more(
    found: Mapping[tuple[int, int], Mapping[str, PolicyOutcome]], rate: int, case: str, what: str
) -> Line:
    """Percent more than blind delivery, by the number of subscribers."""
    line = []
    for (one, count), some in sorted(found.items()):
        if one == rate:
            blind = getattr(some["blind"], what)
            line.append((count, 100 * (getattr(some[case], what) - blind) / blind))
    return line


def _median(some: Sequence[PolicyOutcome], what: str) -> float:
    return statistics.median(float(getattr(one, what)) for one in some)


def _median_more(found: Mapping[str, Sequence[PolicyOutcome]], case: str) -> float:
    blind = _median(found["blind"], "seconds")
    return 100 * (_median(found[case], "seconds") - blind) / blind


# -- looks --------------------------------------------------------------------------------------


def _draw(axes: Axes, line: Line, label: str, place: int) -> None:
    axes.plot(
        *zip(*line, strict=True),
        label=label,
        color=COLOURS[place],
        marker=MARKERS[place],
        linestyle=DASHES[place],
    )


def _draw_sublim(axes: Axes, line: Line) -> None:
    axes.plot(
        *zip(*line, strict=True), label="SUBLIM, as published", color=_SUBLIM_COLOUR,
        marker="X", linestyle=(0, (3, 1, 1, 1)),
    )  # fmt: skip


def _percent_scale(axes: Axes) -> None:
    from matplotlib.ticker import FixedLocator, ScalarFormatter

    axes.set_yscale("symlog", linthresh=_STRAIGHT, linscale=0.4)
    axes.yaxis.set_major_locator(FixedLocator([-5, 0, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000]))
    axes.yaxis.set_minor_locator(FixedLocator([]))
    axes.yaxis.set_major_formatter(ScalarFormatter())


def _goal(axes: Axes, value: float, text: str) -> None:
    axes.axhline(value, color=_GOAL_COLOUR, linewidth=1, linestyle=(0, (2, 2)))
    axes.annotate(
        text, (0.01, value), xycoords=("axes fraction", "data"), xytext=(0, 2),
        textcoords="offset points", fontsize=8, color=_GOAL_COLOUR,
    )  # fmt: skip


def _legend(figure: Figure, axes: Axes) -> None:
    """Beside the panels, for all of them."""
    lines, labels = axes.get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)


def _words(axes: Axes, text: str, place: tuple[float, float]) -> None:
    axes.annotate(
        text, place, xycoords="axes fraction", verticalalignment="top", fontsize=9,
        color=_SUBLIM_COLOUR,
    )  # fmt: skip


def _finish(axes: Axes, title: str, across: str, up: str) -> None:
    axes.set_title(title, loc="left", fontsize=10)
    if across:
        axes.set_xlabel(across)
    if up:
        axes.set_ylabel(up)
    axes.grid(which="major", color="#DDDDDD")
    axes.spines[["top", "right"]].set_visible(False)
