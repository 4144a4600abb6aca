"""Measures the disk: durable commits alone and in groups, many publishers at once, and a start.

The figures are the disk's as much as ours, so what a commit costs alone comes first and groups
are compared with it. The busy ones run beside a thread that never rests, as the broker's event
loop at its limit would: what is lost there is lost to the interpreter's lock.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rove.bench.harness import Bench, Suite, SuiteOptions
from rove.bench.measure import Measure
from rove.broker.storage.journal import Changes
from rove.broker.storage.records import QueueRow, encoded, queue_key
from rove.serve.disk.store import Store, Writer

_ROW_BYTES = 1024
_GROUPS = (1, 100, 1_000)
_QUEUE_ROWS = 1_000_000
_QUEUE_SESSIONS = 1_000
_SUBMITTERS = 50
_SECONDS = 1.0
"""Of each measure that can be cut short."""
_LOAD_GOAL_S = 1.0
_SUBMIT_GOAL = 15_000


def run(bench: Bench[SuiteOptions]) -> Iterator[Measure]:
    """Yield all measures of the store."""
    yield from _commits(bench.folder / "idle", "store.commit")
    with _busy_thread():
        yield from _commits(bench.folder / "busy", "store.busy.commit")
    yield from _submits(bench.folder / "submits")
    yield from _start(bench.folder / "queue")


def _commits(folder: Path, name: str) -> Iterator[Measure]:
    """Rows per second, by the number of rows in a commit."""
    alone = 0.0
    with Store.open(folder) as store:
        numbers = iter(range(10**9))
        for group in _GROUPS:
            rate = group * _per_second(lambda group=group: store.commit(_some(numbers, group)))  # type: ignore[misc]
            if group == _GROUPS[0]:
                alone = rate
                yield Measure(f"{name}.{group}", rate, "rows/s")
            else:
                against = f"{name}.{_GROUPS[0]}"
                yield Measure(f"{name}.{group}", rate, "rows/s", rate / alone, against)
            store.checkpoint()


def _submits(folder: Path) -> Iterator[Measure]:
    """Publishers that each wait for their acknowledgement before they go on."""
    with Store.open(folder) as store:
        writer = Writer(store)
        numbers = iter(range(10**9))
        end = time.perf_counter() + _SECONDS
        finished = threading.Semaphore(0)
        acknowledged = [0]

        def submit(error: BaseException | None = None) -> None:
            if time.perf_counter() >= end:
                finished.release()
                return
            writer.submit(_some(numbers, 1), done)

        def done(error: BaseException | None) -> None:
            acknowledged[0] += 1
            submit()

        for _ in range(_SUBMITTERS):
            submit()
        for _ in range(_SUBMITTERS):
            finished.acquire()
        writer.close(10)
    rate = acknowledged[0] / _SECONDS
    yield Measure(
        f"store.submit.{_SUBMITTERS}",
        rate,
        "rows/s",
        goal=f">= {_SUBMIT_GOAL:,} rows/s",
        reached=rate >= _SUBMIT_GOAL,
    )


def _start(folder: Path) -> Iterator[Measure]:
    """Reading a long queue at a start."""
    with Store.open(folder, "process") as store:
        changes = Changes()
        for number in range(_QUEUE_ROWS):
            key = queue_key(number % _QUEUE_SESSIONS, number // _QUEUE_SESSIONS)
            changes.put("queue", key, encoded(QueueRow(number, 1, False, (7,))))
        store.commit(changes)
        store.checkpoint()
    with Store.open(folder) as store:
        begin = time.perf_counter()
        rows = sum(1 for _ in store.load("queue"))
        load_s = time.perf_counter() - begin
        assert rows == _QUEUE_ROWS, "the queue is not all there"
        reached = load_s <= _LOAD_GOAL_S
        yield Measure("store.load", load_s, "s", goal=f"<= {_LOAD_GOAL_S:g} s", reached=reached)


def _some(numbers: Iterator[int], count: int) -> Changes:
    changes = Changes()
    for _ in range(count):
        changes.put("publications", next(numbers), _ROW)
    return changes


_ROW = os.urandom(_ROW_BYTES)


def _per_second(work: Callable[[], None]) -> float:
    """How often it can be done in a second, tried for a while."""
    times = 0
    begin = time.perf_counter()
    while times == 0 or time.perf_counter() - begin < _SECONDS:
        work()
        times += 1
    return times / (time.perf_counter() - begin)


@contextmanager
def _busy_thread() -> Iterator[None]:
    is_over = threading.Event()

    def spin() -> None:
        while not is_over.is_set():
            pass

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


SUITE: Final = Suite(name="store", parts={"store": run}, options=SuiteOptions())
