"""`rove match`: subscriptions from one file over publications from another, offline.

Runs the oracle, so it is exact and slow: every subscription is evaluated for every
publication. Notifications are written as JSON lines; a line that cannot be read is named on
stderr and left out, the others are done all the same, and the exit code is then 2.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, BinaryIO

import msgspec

from rove.cli.output import is_terminal
from rove.cli.texts import STDIN
from rove.errors import UsageError
from rove.lang import LanguageError
from rove.lang.records import StateRecord, read_publication, read_subscription
from rove.lang.replay import Notification, Replay

_EXIT_LINES_LEFT_OUT = 2
_COMPLAINTS_SHOWN_MAX = 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove match`."""
    parser.add_argument(
        "--subscriptions", metavar="FILE", required=True, help="JSON lines: texts or objects"
    )
    parser.add_argument(
        "--publications", metavar="FILE", required=True, help="JSON lines; - is standard input"
    )
    parser.add_argument("--output", metavar="FILE", help="instead of standard output")
    parser.add_argument(
        "--until",
        metavar="SECONDS",
        type=float,
        help="let time pass after the last publication, so that windows slide on",
    )
    parser.add_argument(
        "--time-key", metavar="NAME", default="at", help="attribute with the time (default at)"
    )
    parser.add_argument(
        "--id-key", metavar="NAME", default="id", help="attribute with the name (default id)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Match, and say on stderr what was done."""
    if arguments.subscriptions == arguments.publications == STDIN:
        raise UsageError("only one of the two files can be standard input")
    job = _Job(arguments)
    with _opened(arguments.subscriptions) as lines:
        job.subscribe(lines)
    with _opened(arguments.publications) as lines, _output(arguments.output) as output:
        for notification in job.notifications(_watched(lines, arguments.publications)):
            output.write(job.encoder.encode(notification) + b"\n")
    job.summarise()
    return _EXIT_LINES_LEFT_OUT if job.complaints else 0


class _Job:
    """One run: counts what happens and remembers how many lines were left out."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.replay = Replay()
        self.encoder = msgspec.json.Encoder()
        self.subscriptions = self.publications = self.delivered = self.complaints = 0

    def subscribe(self, lines: Iterable[bytes]) -> None:
        for number, line in _numbered(lines):
            try:
                record = read_subscription(line)
                name = str(number if record.id is None else record.id)
                self.replay.subscribe(name, record.filter, record.at, record.me)
                self.subscriptions += 1
            except LanguageError as error:
                self._complain(self.arguments.subscriptions, number, error)

    def notifications(self, lines: Iterable[bytes]) -> Iterator[Notification]:
        for number, line in _numbered(lines):
            try:
                found = self._take(line, number)
            except LanguageError as error:
                self._complain(self.arguments.publications, number, error)
                continue
            self.delivered += len(found)
            yield from found
        if self.arguments.until is not None:
            found = self.replay.advance(self.arguments.until)
            self.delivered += len(found)
            yield from found

    def _take(self, line: bytes, number: int) -> list[Notification]:
        options = self.arguments
        record = read_publication(line, number, time_key=options.time_key, id_key=options.id_key)
        at = record.at if record.at is not None else max(self.replay.now, 0.0)
        if isinstance(record, StateRecord):
            for name, changes in record.changes.items():
                self.replay.check_state(name, changes)
            found = self.replay.advance(at)
            for name, changes in record.changes.items():
                self.replay.set_state(name, changes)
            return found
        found = self.replay.publish(record.id, record.attributes, at)
        self.publications += 1
        return found

    def _complain(self, file: str, number: int, error: LanguageError) -> None:
        self.complaints += 1
        if self.complaints <= _COMPLAINTS_SHOWN_MAX:
            print(f"rove: {file}, line {number}, left out: {error}", file=sys.stderr)

    def summarise(self) -> None:
        more = self.complaints - _COMPLAINTS_SHOWN_MAX
        if more > 0:
            print(f"rove: {more} more lines left out", file=sys.stderr)
        print(
            f"{self.subscriptions:,} subscriptions, {self.publications:,} publications, "
            f"{self.delivered:,} notifications, {self.complaints:,} lines left out",
            file=sys.stderr,
        )


def _numbered(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers, without the empty ones."""
    return ((number, line) for number, line in enumerate(lines, start=1) if line.strip())


def _opened(file: str) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdin.buffer) if file == STDIN else Path(file).open("rb")


@contextmanager
def _output(file: str | None) -> Iterator[IO[bytes]]:
    """Where notifications go; a named file appears only when it is complete."""
    if file is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    unfinished = Path(f"{file}.unfinished")
    with unfinished.open("wb") as stream:
        yield stream
    unfinished.replace(file)


def _watched(lines: BinaryIO, file: str) -> Iterable[bytes]:
    """The lines, with a progress bar if a person is watching and the size is known."""
    if file == STDIN or not is_terminal(sys.stderr):
        return lines
    return _with_progress(lines, Path(file).stat().st_size)


def _with_progress(lines: BinaryIO, size: int) -> Iterator[bytes]:
    from rich.console import Console  # 60 ms that only a person's terminal has to pay
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    columns = ("matching", BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("matching", total=size)
        for line in lines:
            yield line
            progress.advance(task, len(line))
