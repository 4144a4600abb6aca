"""Pictures of what `rove bench elastic` measured, with what CUPUS published beside it.

Of CUPUS only what its text states can be drawn: its curves are pictures without numbers. So there
is one point beside experiment 1, and words beside experiments 2 and 3, and no line that would have
had to be guessed.

Looks are those of `rove.bench.plots`. Needs matplotlib, which is imported only when a picture is
drawn: `pip install rove[plots]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rove.bench.elastic.load import Run
from rove.bench.elastic.steps import Elasticity
from rove.bench.plots import COLOURS, DASHES, MARKERS, label_ends, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CUPUS_REMARKS: Final = {
    1_000.0: "CUPUS: matchers\ncome and go\nall the time",
    420.0: "CUPUS: a split,\nand a sudden\ndelay",
    292.0: "CUPUS: always\none matcher",
    95.0: "CUPUS: merges\nin vain, again\nand again",
}
"""What its text says of its loads, high, medium and very low, at most."""
_CUPUS_COLOUR: Final = "#666666"
_GOAL_COLOUR: Final = "#999999"
_DELAY_GOAL_MS: Final = 10.0
_P99_GOAL_MS: Final = 50.0
_SIZE_INCHES: Final = (8.0, 5.0)
_TALL_INCHES: Final = (9.0, 8.0)


def delay(lines: Mapping[str, Sequence[Run]], published: tuple[int, float], path: Path) -> None:
    """Experiment 1: the mean delay against the number of subscriptions, into a PNG file."""
    figure = new_figure(_SIZE_INCHES)
    from matplotlib.ticker import EngFormatter

    axes = figure.add_subplot(xscale="log", yscale="log")
    points = {
        case: [(run.subscriptions, run.mean_ms) for run in runs if run.mean_ms > 0]
        for case, runs in lines.items()
    }
    points = {case: line for case, line in points.items() if line}
    _draw_lines(axes, points)
    size, delay_ms = published
    axes.plot([size], [delay_ms], marker="v", markersize=10, linestyle="none", color=_CUPUS_COLOUR)
    axes.annotate(
        f"CUPUS, its best on 4 vCPU:\nup to {delay_ms:,.0f} ms at {size:,}",
        published,
        xytext=(-10, -4),
        textcoords="offset points",
        horizontalalignment="right",
        verticalalignment="top",
        color=_CUPUS_COLOUR,
    )
    _goal(axes, _DELAY_GOAL_MS, f"goal at {size:,}: {_DELAY_GOAL_MS:g} ms")
    _finish(axes, "Experiment 1: more subscriptions", "subscriptions", "mean delay in ms")
    axes.set_ylim(top=axes.get_ylim()[1] * 4)
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    label_ends(axes, points)
    axes.set_xlim(right=axes.get_xlim()[1] * 16)
    figure.savefig(path, format="png")


def length(lines: Mapping[str, Sequence[Run]], path: Path) -> None:
    """Experiment 2: the mean delay against the publications of a run, into a PNG file."""
    figure = new_figure(_SIZE_INCHES)
    axes = figure.add_subplot(xscale="log")
    points = {
        f"{case}, {what}": [(run.sent, getattr(run, f"{what}_ms")) for run in runs]
        for case, runs in lines.items()
        for what in ("mean", "p99")
    }
    _draw_lines(axes, points)
    axes.set_ylim(bottom=0, top=1.6 * max(value for line in points.values() for _, value in line))
    axes.annotate(
        "CUPUS, in words: the delay does not depend on the number of publications",
        (0.02, 0.96),
        xycoords="axes fraction",
        verticalalignment="top",
        color=_CUPUS_COLOUR,
    )
    _finish(axes, "Experiment 2: longer runs", "publications in a run", "delay in ms")
    axes.legend(loc="upper right", bbox_to_anchor=(1.0, 0.94), frameon=False, ncols=2)
    figure.savefig(path, format="png")


def steps(
    found: Elasticity, title: str, path: Path, remarks: Mapping[float, str] | None = None
) -> None:
    """Experiment 3: paces, delays and matchers over time, into a PNG file."""
    figure = new_figure(_TALL_INCHES)
    pace, delays, matchers = figure.subplots(3, sharex=True, height_ratios=(3, 4, 2))
    _draw_paces(pace, found, remarks or {})
    _draw_delays(delays, found)
    _draw_matchers(matchers, found)
    pace.set_title(title, loc="left")
    matchers.set_xlabel("seconds")
    matchers.set_xlim(0, found.steps[-1].end_s)
    for axes in (pace, delays, matchers):
        for step in found.steps[1:]:
            axes.axvline(step.begin_s, color="#DDDDDD", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, format="png")


def _draw_paces(axes: Axes, found: Elasticity, remarks: Mapping[float, str]) -> None:
    edges = [step.begin_s for step in found.steps] + [found.steps[-1].end_s]
    paces = [step.per_s for step in found.steps]
    axes.stairs(paces, edges, color=COLOURS[0], linewidth=1.5)
    axes.set_ylabel("publications/s")
    axes.set_ylim(0, max(paces) * (1.7 if remarks else 1.2))
    said: set[float] = set()
    for step in found.steps:
        middle = (step.begin_s + step.end_s) / 2
        axes.annotate(
            f"{step.per_s:,.0f}", (middle, step.per_s), xytext=(0, 3),
            textcoords="offset points", horizontalalignment="center", fontsize=8,
        )  # fmt: skip
        if step.per_s in remarks and step.per_s not in said:
            said.add(step.per_s)
            axes.annotate(
                remarks[step.per_s], (middle, 0.99), xycoords=("data", "axes fraction"),
                horizontalalignment="center", verticalalignment="top", fontsize=6.5,
                color=_CUPUS_COLOUR,
            )  # fmt: skip


def _draw_delays(axes: Axes, found: Elasticity) -> None:
    middles = [second.begin_s + 0.5 for second in found.seconds]
    for number, what in enumerate(("p99", "mean", "p50")):
        axes.plot(
            middles,
            [getattr(second, f"{what}_ms") for second in found.seconds],
            label=what,
            color=COLOURS[number],
            linestyle=DASHES[number],
            marker=MARKERS[number],
            markersize=3,
        )
    axes.set_yscale("log")
    axes.set_ylabel("delay in ms,\nsecond by second")
    _goal(axes, _P99_GOAL_MS, f"goal for p99: {_P99_GOAL_MS:g} ms")
    axes.set_ylim(top=5 * max(_P99_GOAL_MS, *(second.p99_ms for second in found.seconds)))
    axes.legend(loc="upper right", frameon=False, ncols=3)


def _draw_matchers(axes: Axes, found: Elasticity) -> None:
    times = [at_s for at_s, _ in found.matchers]
    axes.step(times, [count for _, count in found.matchers], where="post", color=COLOURS[2])
    highest = max((count for _, count in found.matchers), default=0)
    axes.set_ylabel("matchers")
    axes.set_yticks(range(highest + 1))
    axes.set_ylim(-0.3, highest + 1.2)
    for change in found.changes:
        is_done = not change.failure
        axes.axvspan(change.begin_s, max(change.end_s, change.begin_s + 0.05), color="#FFE0B0")
        axes.annotate(
            change.kind if is_done else f"{change.kind}: given up", (change.begin_s, highest + 0.4),
            rotation=45, fontsize=7, color=COLOURS[1],
        )  # fmt: skip
    if not found.changes:
        axes.annotate(
            "nothing was rearranged", (0.5, 0.85), xycoords="axes fraction",
            horizontalalignment="center", fontsize=8, color=_CUPUS_COLOUR,
        )  # fmt: skip


def _draw_lines(axes: Axes, lines: Mapping[str, Sequence[tuple[int, float]]]) -> None:
    for number, (name, points) in enumerate(lines.items()):
        axes.plot(
            *zip(*points, strict=True),
            label=name,
            color=COLOURS[number % len(COLOURS)],
            marker=MARKERS[number % len(MARKERS)],
            linestyle=DASHES[number % len(DASHES)],
        )


def _goal(axes: Axes, value: float, text: str) -> None:
    axes.axhline(value, color=_GOAL_COLOUR, linewidth=1, linestyle=(0, (2, 2)))
    axes.annotate(
        text, (0.01, value), xycoords=("axes fraction", "data"), xytext=(0, 2),
        textcoords="offset points", fontsize=8, color=_GOAL_COLOUR,
    )  # fmt: skip


def _finish(axes: Axes, title: str, across: str, up: str) -> None:
    from matplotlib.ticker import EngFormatter

    axes.set_title(title, loc="left")
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(which="major", color="#DDDDDD")
    axes.spines[["top", "right"]].set_visible(False)
