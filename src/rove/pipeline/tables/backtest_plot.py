"""A plot of a backtest: notifications by hour over the period and, below, by hour of the day.

For two expressions the bars are stacked: only the first, only the second, both; in colours for
colour-blind readers, and with hatches. A period of more than two months is drawn by day.

Needs matplotlib, which is imported only when a picture is drawn: `pip install rove[plots]`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rove.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from rove.pipeline.tables.backtest import BacktestReport

    Series = list[tuple[str, NDArray[np.int64]]]

_HOUR_S: Final = 3_600
_DAY_S: Final = 86_400
_HOURLY_DAYS_MAX: Final = 62
_COLOURS: Final = ("#0072B2", "#D55E00", "#7F7F7F")
_HATCHES: Final = ("", "///", "...")
_SIZE_INCHES: Final = (9.0, 6.0)
_DOTS_PER_INCH: Final = 100
_TITLE_WIDTH: Final = 95


def draw(report: BacktestReport, path: Path) -> None:
    """Write a PNG file."""
    try:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(
            f"plots need matplotlib ({error}); install it with `pip install rove[plots]`"
        ) from None
    step_s = _HOUR_S if report.until - report.since <= _HOURLY_DAYS_MAX * _DAY_S else _DAY_S
    figure = Figure(figsize=_SIZE_INCHES, dpi=_DOTS_PER_INCH, layout="constrained")
    over_time, by_hour = figure.subplots(2, 1, height_ratios=(2, 1))
    begin, series = over_period(report, step_s)
    moments = [
        datetime.fromtimestamp(begin + step * step_s, UTC) for step in range(len(series[0][1]))
    ]
    _stack(over_time, moments, series, timedelta(seconds=step_s))
    over_time.set_ylabel("notifications per hour" if step_s == _HOUR_S else "notifications per day")
    over_time.set_title(_title(report), loc="left", fontsize="medium")
    over_time.set_xlabel("time (UTC)")
    days = AutoDateLocator()  # type: ignore[no-untyped-call]
    over_time.xaxis.set_major_locator(days)
    formatter = ConciseDateFormatter(days)  # type: ignore[no-untyped-call]
    over_time.xaxis.set_major_formatter(formatter)
    if report.against is not None:
        over_time.legend(frameon=False)
    _stack(by_hour, list(range(24)), by_hour_of_day(report), 1)
    by_hour.set_xlabel("hour of the day (UTC)")
    by_hour.set_ylabel("notifications")
    by_hour.set_xticks(range(0, 25, 3))
    figure.savefig(path, format="png")


def over_period(report: BacktestReport, step_s: int) -> tuple[int, Series]:
    """The begin of the first step, and the notifications of each step."""
    begin = int(report.since // step_s)
    last = max([int(report.until - 1) // step_s, *(int(h.name) // step_s for h in report.hours)])
    found = np.zeros((3, last - begin + 1), np.int64)
    for hour in report.hours:
        found[:, int(hour.name) // step_s - begin] += (hour.first, hour.second, hour.both)
    return begin * step_s, _named(report, found)


def by_hour_of_day(report: BacktestReport) -> Series:
    """Notifications by hour of the day, in UTC."""
    found = np.zeros((3, 24), np.int64)
    for hour in report.hours:
        place = int(hour.name) % _DAY_S // _HOUR_S
        found[:, place] += (hour.first, hour.second, hour.both)
    return _named(report, found)


def _named(report: BacktestReport, found: NDArray[np.int64]) -> Series:
    if report.against is None:
        return [("notifications", found[0])]
    names = ("only the first expression", "only the second expression", "both")
    return list(zip(names, found, strict=True))


def _stack(axes: Axes, places: Sequence[Any], series: Series, width: Any) -> None:
    below = np.zeros(len(places), np.int64)
    for (name, counts), colour, hatch in zip(series, _COLOURS, _HATCHES, strict=False):
        axes.bar(
            places, counts, width, bottom=below, label=name, color=colour, hatch=hatch,
            align="edge", edgecolor="white", linewidth=0,
        )  # fmt: skip
        below = below + counts
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color="#DDDDDD")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _title(report: BacktestReport) -> str:
    texts = [report.text, *([report.against] if report.against is not None else [])]
    lines = [textwrap.shorten(text, _TITLE_WIDTH, placeholder=" …") for text in texts]
    if len(lines) == 2:
        lines = [
            f"{number}: {line}" for number, line in zip(("first", "second"), lines, strict=True)
        ]
    counts = f"{report.notifications:,}"
    if report.against is not None:
        counts += f" and {report.notifications_against:,}"
    said = f"{counts} notifications of {report.publications:,} publications"
    return "\n".join([*lines, said])
