"""A backtest on the terminal: one line for each day, its hours as small bars.

A period of more than two months has a line for each week, with bars for its days: what people want
to see first is when it would be too much, and that fits on a screen.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from rove.cli.common.output import bytes_text, count_text, duration_text
from rove.cli.ls import printable
from rove.cli.top import BARS

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from rove.pipeline.tables.backtest import BacktestReport, CountByBits, ExampleNotification

HOUR_S: Final = 3_600
DAY_S: Final = 86_400
DAYS_MAX: Final = 62
"""Of more days than these, weeks are shown."""
_WIDTH: Final = 100
"""Where nobody watches."""
_SHOWN_CHARACTERS: Final = 160
_MONDAY_S: Final = 4 * DAY_S
"""The first one after the beginning of 1970, which was a Thursday."""
_EXAMPLES: Final = {"first": "only the first", "second": "only the second", "both": "both"}


class BacktestRow(NamedTuple):
    """A day or a week: when it begins, and what came in each of its hours or days."""

    at: int
    parts: tuple[int, ...]
    first: int
    second: int
    both: int


def show(report: BacktestReport) -> None:
    """Print a report for people."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False)
    for line in summary(report):
        console.print(line, markup=False, soft_wrap=True)
    if report.hours:
        console.print()
        console.print(_chart(report))
        for title, counts, every in (
            ("publisher", report.publishers, report.publishers_all),
            ("topic", report.topics, report.topics_all),
        ):
            console.print()
            console.print(_ranking(report, title, counts, every))
    _show_examples(console, report)
    console.print()
    for line in cost(report):
        console.print(line, markup=False, soft_wrap=True)


def summary(report: BacktestReport) -> Iterator[str]:
    """The answer in a few lines."""
    where = f"{report.source}, {', '.join(map(repr, report.channels))}"
    length = duration_text(report.until - report.since)
    yield f"{where}, {_moment(report.since)} to {_moment(report.until)} UTC ({length})"
    share = f"{100 * report.share:.3g} % of {count_text(report.publications)} publications"
    yield f"notifications  {count_text(report.notifications)} ({share})"
    yield (
        f"a day          {count_text(report.per_day)}, on the wire about "
        f"{bytes_text(report.bytes_per_day)} ({bytes_text(report.notification_bytes)} each)"
    )
    if report.against is not None:
        yield f"against        {count_text(report.notifications_against)} ({report.against})"
        yield (
            f"differences    only by the first {count_text(report.only_first)}, "
            f"only by the second {count_text(report.only_second)}, both {count_text(report.both)}"
        )


def cost(report: BacktestReport) -> Iterator[str]:
    """What it took."""
    one = report.cost
    share = 100 * one.bytes_read / one.bytes_all if one.bytes_all else 0.0
    yield (
        f"read {bytes_text(one.bytes_read)} of {bytes_text(one.bytes_all)} ({share:.2g} %), "
        f"{count_text(one.rows_read)} rows in {count_text(one.files_read)} of "
        f"{count_text(one.files_all)} files; {one.seconds:.1f} s, {one.cpu_s:.1f} s of CPU"
    )


def lines_of(report: BacktestReport) -> list[BacktestRow]:
    """Days with their hours or, of many days, weeks with their days; all of the period."""
    is_long = report.until - report.since > DAYS_MAX * DAY_S
    line_s, part_s = (7 * DAY_S, DAY_S) if is_long else (DAY_S, HOUR_S)
    offset_s = _MONDAY_S if is_long else 0
    begin = _floor(report.since, line_s, offset_s)
    last = max((int(hour.name) for hour in report.hours), default=begin)
    end = max(_floor(report.until - 1, line_s, offset_s), _floor(last, line_s, offset_s))
    parts = {at: [0] * (line_s // part_s) for at in range(begin, end + line_s, line_s)}
    sums = {at: [0, 0, 0] for at in parts}
    for hour in report.hours:
        at = _floor(int(hour.name), line_s, offset_s)
        parts[at][(int(hour.name) - at) // part_s] += hour.total
        for place, count in enumerate((hour.first, hour.second, hour.both)):
            sums[at][place] += count
    return [BacktestRow(at, tuple(counts), *sums[at]) for at, counts in parts.items()]


def bars(counts: Sequence[int], most: int) -> str:
    """A bar for each count; what is 0 is empty, and what is not can be seen."""
    return "".join(
        " " if not count else BARS[min(len(BARS) - 1, count * len(BARS) // (most + 1))]
        for count in counts
    )


def _floor(at: float, size_s: int, offset_s: int) -> int:
    return int((at - offset_s) // size_s) * size_s + offset_s


def _chart(report: BacktestReport) -> Table:
    from rich.table import Table

    lines = lines_of(report)
    by_week = len(lines[0].parts) == 7
    most = max(count for line in lines for count in line.parts)
    unit = "day" if by_week else "hour"
    table = Table(box=None, pad_edge=False)
    table.add_column("week of" if by_week else "day")
    table.add_column(f"by {unit}, up to {count_text(most)}", no_wrap=True)
    for name in _columns(report):
        table.add_column(name, justify="right")
    for line in lines:
        day = time.strftime("%Y-%m-%d", time.gmtime(line.at))
        table.add_row(day, bars(line.parts, most), *_numbers(report, line))
    return table


def _columns(report: BacktestReport) -> tuple[str, ...]:
    return ("notifications",) if report.against is None else tuple(_EXAMPLES.values())


def _numbers(report: BacktestReport, one: BacktestRow | CountByBits) -> list[str]:
    if report.against is None:
        return [count_text(one.first)]
    return [count_text(count) for count in (one.first, one.second, one.both)]


def _ranking(
    report: BacktestReport, title: str, counts: Sequence[CountByBits], every: int
) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    more = f", {len(counts)} of {count_text(every)}" if every > len(counts) else ""
    table.add_column(f"{title}{more}")
    for name in _columns(report):
        table.add_column(name, justify="right")
    for one in counts:
        table.add_row(Text(printable(one.name) or "(none)"), *_numbers(report, one))
    return table


def _show_examples(console: Console, report: BacktestReport) -> None:
    for name, title in _EXAMPLES.items():
        shown = report.examples.get(name, ())
        if not shown:
            continue
        console.print()
        console.print("examples" if report.against is None else f"examples of {title}")
        for one in shown:
            console.print(f"  {_example(one)}", markup=False, soft_wrap=True)


def _example(one: ExampleNotification) -> str:
    said = json.dumps(dict(one.attributes), ensure_ascii=False)
    if len(said) > _SHOWN_CHARACTERS:
        said = f"{said[: _SHOWN_CHARACTERS - 1]}…"
    told = f" (told {_moment(one.due)})" if one.due > one.at else ""
    return printable(f"{_moment(one.at)}{told} {one.topic} {one.client_id} {said}")


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(at))
