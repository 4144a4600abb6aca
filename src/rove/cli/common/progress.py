"""One progress bar on stderr for all commands: for a person who watches, nothing for a program.

Rich takes 60 ms to load, which only a terminal has to pay.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Literal, Protocol

from rove.cli.common.input import STDIN
from rove.cli.common.output import is_terminal

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

Counted = Literal["bytes", "seconds", "parts", "nothing"]
_LINES_PER_STEP: Final = 512
"""A step costs more than a line."""


class Tell(Protocol):
    """Says how far it is, or what is being done now."""

    def __call__(
        self, done: float | None = None, total: float | None = None, title: str | None = None
    ) -> None: ...


@contextmanager
def progress_bar(title: str, counted: Counted, *, as_json: bool = False) -> Iterator[Tell]:
    """A bar while the block lasts; none if JSON and the bar would go to one terminal."""
    if not is_terminal(sys.stderr) or (as_json and is_terminal()):
        yield lambda done=None, total=None, title=None: None
        return
    from rich.console import Console
    from rich.progress import Progress

    columns = _columns(counted)
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=1 if counted == "seconds" else None)
        yield lambda done=None, total=None, title=None: progress.update(
            task, completed=done, total=total, description=title
        )


def watched_lines(lines: BinaryIO, file: str, doing: str) -> Iterable[bytes]:
    """The lines of a file, with a bar and a rate; of a pipe nobody knows how long it is."""
    if file == STDIN or not is_terminal(sys.stderr):
        return lines
    return _watched(lines, Path(file).stat().st_size, doing)


def _watched(lines: BinaryIO, size: int, doing: str) -> Iterator[bytes]:
    with progress_bar(doing, "bytes") as tell:
        began_at, read = time.perf_counter(), 0
        for number, line in enumerate(lines):
            yield line
            read += len(line)
            if number % _LINES_PER_STEP == 0:
                rate = (number + 1) / max(time.perf_counter() - began_at, 1e-9)
                tell(read, size, f"{doing}, {rate:,.0f}/s")


def _columns(counted: Counted) -> list[str | ProgressColumn]:
    from rich import progress as of

    title = "{task.description}"
    match counted:
        case "bytes":
            return [title, of.BarColumn(), of.DownloadColumn(), of.TimeRemainingColumn()]
        case "seconds":
            numbers = of.TextColumn("{task.completed:,.0f} of {task.total:,.0f} s")
            return [title, of.BarColumn(), numbers, of.TimeElapsedColumn()]
        case "parts":
            return [title, of.BarColumn(), of.MofNCompleteColumn(), of.TimeElapsedColumn()]
        case "nothing":
            return [of.SpinnerColumn(), of.TimeElapsedColumn(), title]
