"""Measures: how a benchmark reports one figure, times a call and prints its results.

People get a table, programs get one JSON object per line. Each has at least `name`, `value` and
`unit`, and also `ratio` and `against` if the measure is compared with another. Absolute figures
depend on the machine, so trust the ratios within one run.
"""

from __future__ import annotations

import itertools
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable

import msgspec


class Measure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One figure, and perhaps a goal for it or for its ratio to another measure."""

    name: str
    value: float
    unit: str
    ratio: float | None = None
    against: str | None = None
    goal: str | None = None
    reached: bool | None = None
    note: str | None = None
    """A remark, shown at the end of its row."""

    def compared(self, other: Measure | None) -> Measure:
        """With the ratio to another measure, if there is one and it is above zero."""
        if other is None or other.value <= 0:
            return self
        return msgspec.structs.replace(self, ratio=self.value / other.value, against=other.name)

    def at_least(self, goal: float, unit: str = "") -> Measure:
        """With a lower limit as its goal: for the ratio if the unit is `×`, else for the value."""
        return self._with_goal(f">= {goal:,g}{unit}", unit, lambda value: value >= goal)

    def at_most(self, goal: float, unit: str = "") -> Measure:
        """With an upper limit as its goal: for the ratio if the unit is `×`, else for the value."""
        return self._with_goal(f"<= {goal:,g}{unit}", unit, lambda value: value <= goal)

    def _with_goal(self, goal: str, unit: str, is_reached: Callable[[float], bool]) -> Measure:
        value = self.ratio if unit == "×" else self.value
        reached = None if value is None else is_reached(value)
        return msgspec.structs.replace(self, goal=goal, reached=reached)


def seconds_for(work: Callable[[], object], rounds: int = 3) -> float:
    """The duration of one call: the shortest of several, which other programs disturbed least."""
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def machine() -> str:
    """The machine in one line, because a figure means nothing without it."""
    return (
        f"{platform.python_implementation()} {platform.python_version()}, "
        f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()} {platform.release()}"
    )


def show(measures: Iterable[Measure], *, as_json: bool) -> None:
    """Print each measure at once as JSON, or all measures together as a table."""
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
        # A name that is cut short is useless, but a note can continue on the next line.
        whole = numeric or heading == "measure"
        table.add_column(heading, justify="right" if numeric else "left", no_wrap=whole)
    for m in map(_shortened, measures):
        ratio = "" if m.ratio is None else f"{m.ratio:.2f}×"
        goal = "" if m.goal is None else f"{'✔' if m.reached else '✘'} {m.goal}"
        value = f"{m.value:,.4g}" if m.value < 1000 else f"{m.value:,.0f}"
        row = [m.name, value, m.unit, ratio, m.against or "", goal, m.note or ""]
        table.add_row(*row[: len(headings)])
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)


def _shortened(measure: Measure) -> Measure:
    """For the table: of `against`, only the part that differs from the name of the measure."""
    if measure.against is None:
        return measure
    names = zip(measure.name.split("."), measure.against.split("."), strict=False)
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], names))
    against = ".".join(measure.against.split(".")[same:])
    return msgspec.structs.replace(measure, against=against)
