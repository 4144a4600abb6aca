"""`rove match`: subscriptions from one file over publications from another, offline.

Runs the engine, or with `--oracle` the language's own evaluator; both write the same lines, which
a test compares. A line that cannot be read is named on stderr and left out, the others are done
all the same, and the exit code is then 2. Publications are read, matched and written in batches,
so a file may be larger than memory.

The engine's kernels take half a second to load, and a quarter of a minute to compile where no
cache has them yet. A small job is done sooner without: it begins with NumPy, and only after half
a second of matching are the kernels fetched, in a thread beside it. They are used from the batch
on that finds them ready. (Ranked subscriptions cannot do without theirs, and wait for them.)
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import IO, Protocol

import msgspec

from rove.base.files import replacing
from rove.cli.common.input import STDIN, opened
from rove.cli.common.progress import watched_lines
from rove.errors import UsageError
from rove.lang import LanguageError
from rove.lang.replay import (
    Replay,
    ReplayedNotification,
    StateRecord,
    read_publication,
    read_subscription,
)

_EXIT_LINES_LEFT_OUT = 2
_COMPLAINTS_SHOWN_MAX = 20
_KERNELS_AFTER_S = 0.5
"""So long has a job to last before it is worth fetching kernels, which takes at least as long."""


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
        "--count", action="store_true", help="print how many notifications there are, and not them"
    )
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
    parser.add_argument(
        "--evolve",
        metavar="DESIGN",
        help='how subscriptions evolve that do not say: exact (default), "pes 1s", lees or '
        '"clees 500ms"',
    )
    parser.add_argument(
        "--oracle",
        action="store_true",
        help="evaluate every subscription for every publication: slow, and beyond doubt",
    )


def run(arguments: argparse.Namespace) -> int:
    """Match, and say on stderr what was done."""
    if arguments.subscriptions == arguments.publications == STDIN:
        raise UsageError("only one of the two files can be standard input")
    if arguments.count and arguments.output is not None:
        raise UsageError("--count writes no notifications, so there is nothing for --output")
    if arguments.oracle and arguments.evolve is not None:
        raise UsageError("the oracle knows no designs; leave out --oracle or --evolve")
    job = _Job(arguments)
    with opened(arguments.subscriptions) as lines:
        job.subscribe(lines)
    with opened(arguments.publications) as lines, _output(arguments.output) as output:
        for pieces in job.notifications(watched_lines(lines, arguments.publications, "matching")):
            output.write(b"".join(pieces))
    if arguments.count:
        print(job.replay.delivered)
    job.summarise()
    return _EXIT_LINES_LEFT_OUT if job.complaints else 0


class _Replay(Protocol):
    """What a job needs; `rove.match.replay.EngineReplay` has it."""

    @property
    def now(self) -> float: ...

    @property
    def delivered(self) -> int: ...

    def subscribe(
        self,
        name: str,
        text: str,
        accepted_at: float = 0.0,
        me: Mapping[str, object] | None = None,
        evolve: str | None = None,
    ) -> None: ...

    def check_state(self, name: str, changes: Mapping[str, object]) -> None: ...

    def set_state(self, name: str, changes: Mapping[str, object]) -> None: ...

    def publish(self, name: str, publication: Mapping[str, object], at: float) -> None: ...

    @property
    def is_full(self) -> bool: ...

    def deliver(self) -> list[bytes]: ...

    def advance(self, at: float) -> list[bytes]: ...


class _OracleReplay:
    """The oracle, in the same clothes. It is always exact, whatever a subscription prefers."""

    is_full = True

    def __init__(self, *, writes: bool) -> None:
        self.delivered = 0
        self._replay = Replay()
        self._encoder = msgspec.json.Encoder()
        self._writes = writes
        self._found: list[ReplayedNotification] = []
        self.check_state = self._replay.check_state
        self.set_state = self._replay.set_state

    @property
    def now(self) -> float:
        return self._replay.now

    def subscribe(
        self,
        name: str,
        text: str,
        accepted_at: float = 0.0,
        me: Mapping[str, object] | None = None,
        evolve: str | None = None,
    ) -> None:
        self._replay.subscribe(name, text, accepted_at, me)

    def publish(self, name: str, publication: Mapping[str, object], at: float) -> None:
        self._found += self._replay.publish(name, publication, at)

    def deliver(self) -> list[bytes]:
        found, self._found = self._found, []
        self.delivered += len(found)
        return [self._encoder.encode(one) + b"\n" for one in found] if self._writes else []

    def advance(self, at: float) -> list[bytes]:
        self._found += self._replay.advance(at)
        return self.deliver()


def _replay(arguments: argparse.Namespace) -> _Replay:
    writes = not arguments.count
    if arguments.oracle:
        return _OracleReplay(writes=writes)
    from rove.match import Evolve, parse_evolve  # NumPy, which the oracle does without
    from rove.match.replay import EngineReplay

    evolve = Evolve() if arguments.evolve is None else parse_evolve(arguments.evolve)
    return EngineReplay(evolve=evolve, compiled=False, writes=writes)


class _Kernels:
    """Fetches the kernels in the background, once a job has lasted long enough to want them."""

    def __init__(self) -> None:
        self._fetched: Future[None] | None = None

    def consider(self, matching_s: float) -> None:
        """The job has been matching for so long."""
        if self._fetched is None and matching_s >= _KERNELS_AFTER_S:
            from rove.match import warm_up

            executor = ThreadPoolExecutor(1)
            self._fetched = executor.submit(warm_up)
            executor.shutdown(wait=False)

    def complaint(self) -> str | None:
        """Why there are none, if they were wanted and could not be had."""
        if self._fetched is None or not self._fetched.done():
            return None
        error = self._fetched.exception()
        return None if error is None else f"the kernels could not be loaded: {error}"


class _Job:
    """One run: counts what happens and remembers how many lines were left out."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.replay = _replay(arguments)
        self.subscriptions = self.publications = self.complaints = 0
        self._kernels = None if arguments.oracle else _Kernels()
        self._loading_s = self._matching_s = self._began_at = 0.0

    def subscribe(self, lines: Iterable[bytes]) -> None:
        began_at = time.perf_counter()
        for number, line in _numbered(lines):
            try:
                record = read_subscription(line)
                name = str(number if record.id is None else record.id)
                self.replay.subscribe(name, record.filter, record.at, record.me, record.evolve)
                self.subscriptions += 1
            except LanguageError as error:
                self._complain(self.arguments.subscriptions, number, error)
        self._loading_s = time.perf_counter() - began_at

    def notifications(self, lines: Iterable[bytes]) -> Iterator[list[bytes]]:
        """Pieces of whole lines, a batch at a time."""
        self._began_at = time.perf_counter()
        for number, line in _numbered(lines):
            try:
                pieces = self._take(line, number)
            except LanguageError as error:
                self._complain(self.arguments.publications, number, error)
                continue
            if pieces:
                yield pieces
        yield self.replay.deliver()
        if self.arguments.until is not None:
            yield self.replay.advance(self.arguments.until)
        self._matching_s = time.perf_counter() - self._began_at

    def _take(self, line: bytes, number: int) -> list[bytes]:
        options, replay = self.arguments, self.replay
        record = read_publication(line, number, time_key=options.time_key, id_key=options.id_key)
        at = record.at if record.at is not None else max(replay.now, 0.0)
        if isinstance(record, StateRecord):
            for name, changes in record.changes.items():
                replay.check_state(name, changes)
            pieces = replay.advance(at)
            for name, changes in record.changes.items():
                replay.set_state(name, changes)
            return pieces
        replay.publish(record.id, record.attributes, at)
        self.publications += 1
        if not replay.is_full:
            return []
        if self._kernels is not None:
            self._kernels.consider(time.perf_counter() - self._began_at)
        return replay.deliver()

    def _complain(self, file: str, number: int, error: LanguageError) -> None:
        self.complaints += 1
        if self.complaints <= _COMPLAINTS_SHOWN_MAX:
            print(f"rove: {file}, line {number}, left out: {error}", file=sys.stderr)

    def summarise(self) -> None:
        more = self.complaints - _COMPLAINTS_SHOWN_MAX
        if more > 0:
            print(f"rove: {more} more lines left out", file=sys.stderr)
        if self._kernels is not None and (complaint := self._kernels.complaint()) is not None:
            print(f"rove: slower than need be: {complaint}", file=sys.stderr)
        print(
            f"{self.subscriptions:,} subscriptions, {self.publications:,} publications, "
            f"{self.replay.delivered:,} notifications, {self.complaints:,} lines left out\n"
            f"loaded in {self._loading_s:.2f} s, matched in {self._matching_s:.2f} s: "
            f"{_rate(self.publications, self._matching_s)} publications/s, "
            f"{_rate(self.replay.delivered, self._matching_s)} notifications/s",
            file=sys.stderr,
        )


def _rate(count: int, seconds: float) -> str:
    return f"{count / max(seconds, 1e-9):,.0f}"


def _numbered(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers, without the empty ones."""
    return ((number, line) for number, line in enumerate(lines, start=1) if line.strip())


@contextmanager
def _output(file: str | None) -> Iterator[IO[bytes]]:
    """Where notifications go; a named file appears only when it is complete."""
    if file is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with replacing(file) as stream:
        yield stream
