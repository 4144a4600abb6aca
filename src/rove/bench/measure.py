"""What every benchmark needs: a measure, a stopwatch, and one way to show the result.

For people a table, for programs one JSON object a line, always with at least `name`, `value`
and `unit`, and with `ratio` and `against` where something is compared. Figures depend on the
machine; ratios of one run are what to trust.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterable

import msgspec


class Measure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One figure; with a `goal`, whether it was reached is shown too."""

    name: str
    value: float
    unit: str
    ratio: float | None = None
    against: str | None = None
    goal: str | None = None
    reached: bool | None = None
    note: str | None = None
    """What a figure cannot say; in a table it stands at the end."""


def seconds_for(work: Callable[[], object], rounds: int = 3) -> float:
    """The time of one call, as the best of several: the least disturbed one."""
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def machine() -> str:
    """The machine in a line: a figure without it means nothing."""
    return (
        f"{platform.python_implementation()} {platform.python_version()}, "
        f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()} {platform.release()}"
    )


def show(measures: Iterable[Measure], *, as_json: bool) -> None:
    """Print measures as they come (JSON) or all together (a table)."""
    if as_json:
        for measure in measures:
            sys.stdout.buffer.write(msgspec.json.encode(measure) + b"\n")
            sys.stdout.buffer.flush()
        return
    _print_table(list(measures))


def _print_table(measures: list[Measure]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=machine(), title_justify="left", box=None, pad_edge=False)
    headings = ["measure", "value", "unit", "ratio", "against", "goal"]
    headings += ["note"] * any(m.note for m in measures)
    for heading in headings:
        numeric = heading in ("value", "ratio")
        # A name that is cut short names nothing; notes can go on in another line.
        whole = numeric or heading == "measure"
        table.add_column(heading, justify="right" if numeric else "left", no_wrap=whole)
    for m in measures:
        ratio = "" if m.ratio is None else f"{m.ratio:.2f}×"
        goal = "" if m.goal is None else f"{'✔' if m.reached else '✘'} {m.goal}"
        value = f"{m.value:,.4g}" if m.value < 1000 else f"{m.value:,.0f}"
        row = [m.name, value, m.unit, ratio, m.against or "", goal, m.note or ""]
        table.add_row(*row[: len(headings)])
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)
