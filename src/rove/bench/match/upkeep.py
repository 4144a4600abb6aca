"""What an index costs to keep: changes, memory, saving, starting; parts of `rove bench match`.

**Changes.** Subscriptions are added one by one, as parsed texts, to an index that has many
already. Merges run in a thread beside, as they would in a broker; installing them is part of the
time, and of the pauses. What Python's own garbage collector would do about the benchmark's texts
is kept out of it (`gc.freeze`). At the end a full scan over what should be left judges the index.

**Memory.** Bytes as `tracemalloc` counts them: arrays and every Python object that the matcher
keeps, but neither the texts, which it does not keep, nor what the allocator rounds up.

**Saving.** To a file, and back by mapping it, up to the first answer; the answers of the loaded
matcher are judged too.

**Start.** A new process, from its first line until a first publication is matched: with an empty
cache for Numba's kernels, then with the one just filled, and without waiting for kernels.
"""

from __future__ import annotations

import gc
import mmap
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from rove.bench.match.engines import IndexEngine, Judge, Stream, stream_of
from rove.bench.measure import Measure, seconds_for
from rove.lang import Subscription, normalise, parse
from rove.match import Matcher, Work
from rove.testing.boxes import Boxes, Name, workload

_ADDED_MAX: Final = 100_000
_ADDED_PER_CHECK: Final = 64
"""Changes after which a broker looks whether a merge is due."""
_ADDED_PER_PUBLICATION: Final = 10
_EVENTS: Final = 256
_TRACED_MAX: Final = 50_000
"""Tracing slows down what is added one by one."""
_INSERT_GOAL_US: Final = 30.0
_PAUSE_GOAL_MS: Final = 20.0

Tell = Callable[[str], None]


# -- changes ------------------------------------------------------------------------------


def changes(workloads: Sequence[Name], size: int, tell: Tell) -> Iterator[Measure]:
    """Insertions into and removals from an index of `size`, with and without publications."""
    for name in workloads[:1]:
        more = min(size, _ADDED_MAX)
        boxes, events = workload(name, size + more, _EVENTS)
        boxes = boxes.at_rest()
        prefix = f"match.{name}.{size}"
        tell(f"{prefix}: reading {more:,} texts to add")
        added = [parse(boxes.text(row)) for row in range(size, size + more)]
        normalise_us = 1e6 * seconds_for(lambda: list(map(normalise, added)), 1) / more  # noqa: B023
        yield Measure(f"{prefix}.normalise", normalise_us, "µs")
        matcher = IndexEngine(_rows(boxes, np.arange(size))).matcher
        tell(f"{prefix}: adding and removing")
        change = _Changes(prefix, matcher, stream_of(events))
        half = more // 2
        numbered = list(enumerate(added, start=size))
        with _collected():
            yield from change.insert(numbered[:half])
            yield from change.insert_and_match(numbered[half:])
            gone = np.random.default_rng(1).permutation(size + more)[:more]
            yield from change.remove(gone.tolist())
        left = np.setdiff1d(np.arange(size + more), gone)
        _judged(f"{prefix} after changes", matcher, change.stream, _rows(boxes, left), left)


def _rows(boxes: Boxes, rows: np.typing.NDArray[np.int64]) -> Boxes:
    return Boxes(boxes.attributes, boxes.lows[:, rows], boxes.highs[:, rows])


def _judged(
    name: str, matcher: Matcher, stream: Stream, left: Boxes, ids: np.typing.NDArray[np.int64]
) -> None:
    found = matcher.match(stream.publications, stream.at.tolist())
    Judge(left, stream, ids).check(name, found, len(stream))


class _Changes:
    """Times changes of one matcher while somebody else does its merges."""

    def __init__(self, prefix: str, matcher: Matcher, stream: Stream) -> None:
        self.prefix = prefix
        self.matcher = matcher
        self.stream = stream

    def insert(self, subscriptions: Sequence[tuple[int, Subscription]]) -> Iterator[Measure]:
        """Nothing but insertions, one after another."""
        steps = (_step(self.matcher.add, *one) for one in subscriptions)
        yield from self._timed("insert", steps, len(subscriptions), _INSERT_GOAL_US)

    def insert_and_match(
        self, subscriptions: Sequence[tuple[int, Subscription]]
    ) -> Iterator[Measure]:
        """With a publication after every ten insertions; the time is that of both."""
        steps: list[Callable[[], object]] = []
        for number, one in enumerate(subscriptions):
            steps.append(_step(self.matcher.add, *one))
            if number % _ADDED_PER_PUBLICATION == 0:
                publication = self.stream.publications[number % len(self.stream)]
                steps.append(_step(self.matcher.match_one, publication, 0.0))
        yield from self._timed("insert+match", steps, len(subscriptions), None)

    def remove(self, ids: Sequence[int]) -> Iterator[Measure]:
        """Removals, of old ones and new ones."""
        steps = (_step(self.matcher.remove, id) for id in ids)
        yield from self._timed("remove", steps, len(ids), _INSERT_GOAL_US)

    def _timed(
        self, what: str, steps: Iterable[Callable[[], object]], count: int, goal_us: float | None
    ) -> Iterator[Measure]:
        """Amortised time of a change, the longest pause, and what the thread beside needed."""
        longest_s = 0.0
        with _Housekeeper(self.matcher) as housekeeper:
            start = before = time.perf_counter()
            for number, step in enumerate(steps):
                step()
                if number % _ADDED_PER_CHECK == 0:
                    housekeeper.tend()
                now = time.perf_counter()
                longest_s = max(longest_s, now - before)
                before = now
            total_us = 1e6 * (before - start) / count
        name, pause_ms = f"{self.prefix}.{what}", 1e3 * longest_s
        yield _limited(name, total_us, "µs", goal_us)
        yield _limited(f"{name}.pause", pause_ms, "ms", _PAUSE_GOAL_MS)
        merging_us = 1e6 * housekeeper.merging_s / count
        yield Measure(f"{name}.merging", merging_us, "µs")


def _step(work: Callable[..., object], *arguments: object) -> Callable[[], object]:
    return lambda: work(*arguments)


class _Housekeeper:
    """Lets merges run in a thread, and installs them, as a broker would."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._pool = ThreadPoolExecutor(1)
        self._running: Future[Work] | None = None
        self.merging_s = 0.0

    def __enter__(self) -> _Housekeeper:
        return self

    def __exit__(self, *error: object) -> None:
        """Wait for what is running, and do what is still due."""
        while self._running is not None:
            self._running.result()
            self.tend()
        self._pool.shutdown()

    def tend(self) -> None:
        """Install what is done, start what is due."""
        if self._running is not None and self._running.done():
            self._matcher.install(self._running.result())
            self._running = None
        if self._running is None and (due := self._matcher.merge_due()) is not None:
            self._running = self._pool.submit(self._run, due)

    def _run(self, work: Work) -> Work:
        start = time.thread_time()
        work.run()
        self.merging_s += time.thread_time() - start
        return work


@contextmanager
def _collected() -> Iterator[None]:
    """Let the garbage collector not look at what was there before."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _limited(name: str, value: float, unit: str, limit: float | None) -> Measure:
    if limit is None:
        return Measure(name, value, unit)
    return Measure(name, value, unit).at_most(limit, f" {unit}")


# -- memory -------------------------------------------------------------------------------


def memory(workloads: Sequence[Name], size: int, tell: Tell) -> Iterator[Measure]:
    """What a subscription takes, added with many others and one by one."""
    few = min(size, _TRACED_MAX)
    for name in workloads:
        tell(f"match.{name}.{size}: memory")
        boxes = workload(name, size, 1)[0].at_rest()
        yield _bytes_each(f"match.{name}.{size}.memory", size, lambda: IndexEngine(boxes))  # noqa: B023
        texts = [parse(boxes.text(row)) for row in range(few)]
        yield _bytes_each(f"match.{name}.{few}.memory.one-by-one", few, lambda: _filled(texts))  # noqa: B023


def _filled(subscriptions: Sequence[Subscription]) -> Matcher:
    matcher = Matcher()
    for id, subscription in enumerate(subscriptions):
        matcher.add(id, subscription)
    matcher.merge_all()
    return matcher


def _bytes_each(name: str, count: int, make: Callable[[], object]) -> Measure:
    gc.collect()
    tracemalloc.start()
    try:
        kept = make()
        gc.collect()
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    del kept
    return Measure(name, size / count, "bytes").at_most(200, " bytes")


# -- saving -------------------------------------------------------------------------------


def saving(workloads: Sequence[Name], size: int, tell: Tell) -> Iterator[Measure]:
    """A matcher written to a file and mapped again."""
    for name in workloads[:1]:
        prefix = f"match.{name}.{size}"
        tell(f"{prefix}: saving and loading")
        boxes, events = workload(name, size, _EVENTS)
        boxes, stream = boxes.at_rest(), stream_of(events)
        matcher = IndexEngine(boxes).matcher
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "matcher")
            yield Measure(f"{prefix}.save", seconds_for(lambda: _save(matcher, path)), "s")  # noqa: B023
            yield Measure(f"{prefix}.saved", path.stat().st_size / size, "bytes")
            first = stream.publications[0]
            load_s = seconds_for(lambda: _loaded(path).match_one(first, 0.0))  # noqa: B023
            yield Measure(f"{prefix}.load", 1e3 * load_s, "ms")
            _judged(f"{prefix} saved and loaded", _loaded(path), stream, boxes, np.arange(size))


def _save(matcher: Matcher, path: Path) -> None:
    with path.open("wb") as file:
        file.writelines(matcher.save())


def _loaded(path: Path) -> Matcher:
    """By a private mapping, which ends with the matcher."""
    with path.open("rb") as file:
        return Matcher.load(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)))


# -- starting -----------------------------------------------------------------------------

_START: Final = """
import time
begun = time.perf_counter()
from rove.lang import parse
from rove.match import Matcher
matcher = Matcher(compiled=COMPILED)
matcher.add(7, parse("a > 1"))
assert matcher.match([{"a": 2}], [0.0]).subscriptions.tolist() == [7]
print(time.perf_counter() - begun)
"""


def start(workloads: Sequence[Name], size: int, tell: Tell) -> Iterator[Measure]:
    """From a new process to a first answer."""
    del workloads, size  # neither makes a difference
    with tempfile.TemporaryDirectory() as cache:
        tell("compiling the kernels with an empty cache")
        cold_s = _started_s(cache, compiled=True)
        yield Measure("match.start.cold", cold_s, "s")
        tell("starting with a full cache")
        warm_s = min(_started_s(cache, compiled=True) for _ in range(3))
        yield Measure("match.start.warm", warm_s, "s", warm_s / cold_s, "match.start.cold")
        plain_s = min(_started_s(cache, compiled=False) for _ in range(3))
        yield Measure("match.start.numpy", plain_s, "s", plain_s / cold_s, "match.start.cold")


def _started_s(cache: str, *, compiled: bool) -> float:
    command = [sys.executable, "-c", _START.replace("COMPILED", str(compiled))]
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return float(done.stdout)
