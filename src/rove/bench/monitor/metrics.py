"""What recording metrics every second costs a broker: a part of `rove bench monitor`.

Two brokers, each a process of its own: one records into a metrics database, one does not. In turns
they get the same load, one publisher as fast as it can and many subscribers with QoS 1, and the CPU
time of each is taken for what it delivered; it has all threads in it, the recorder's too. Of each
the round counts that was least disturbed.

Two processes that run the same program differ by up to ten in a hundred, by where things happen to
lie in memory. So there are several pairs of them, each new, and the overhead is the mean of all
pairs, with its 95 % interval: what is within that is none that can be seen.

What is too small to be seen there is seen in a broker that has nothing else to do: how much more of
a core it takes with recording than without. Names are `monitor.recording.CASE`.

Two and a half minutes in all.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from rove.base.intervals import mean_interval
from rove.bench.broker.load import LOAD, BrokerOutcome, FanOut
from rove.bench.measure import Measure
from rove.testing import broker_processes
from rove.testing.broker_processes import BrokerProcessError, Running, cpu_seconds

GOAL_PERCENT: Final = 2.0
IDLE_GOAL_PERCENT: Final = 0.5
_CASES: Final = ("off", "on")
_SETTINGS: Final = {"PYTHONHASHSEED": "0"}
"""One difference less."""


class Options(msgspec.Struct, frozen=True):
    """What to measure."""

    seconds: float = 3.0
    """How long each load publishes."""
    pairs: int = 5
    """Of brokers."""
    rounds: int = 3
    """That each broker of a pair has."""
    subscribers: int = 100
    payload_bytes: int = 256
    idle_s: float = 20.0
    every_s: float = 1.0
    database: str = ""
    """Where to record; a file of SQLite in a folder that is gone afterwards unless told."""


QUICK: Final = Options(seconds=0.3, pairs=1, rounds=1, subscribers=5, idle_s=0.3, every_s=0.1)
"""Enough to see that everything is measured; the figures mean nothing."""


def run(
    options: Options | None = None, tell: Callable[[str], None] = lambda text: None
) -> Iterator[Measure]:
    """All measures, each as soon as it is known."""
    options = options or Options()
    found: dict[str, list[float]] = {case: [] for case in _CASES}
    for number in range(options.pairs):
        with ExitStack() as stack:
            brokers = {name: stack.enter_context(_running(name, options)) for name in _CASES}
            pair: dict[str, list[float]] = {case: [] for case in _CASES}
            for turn in range(options.rounds):
                for case in _CASES if turn % 2 else reversed(_CASES):
                    tell(f"monitor.recording.{case}, pair {number + 1}, round {turn + 1}")
                    pair[case].append(_efficiency(_loaded(brokers[case], options)))
            for case in _CASES:
                found[case].append(max(pair[case]))
            if number == options.pairs - 1:
                yield from compared(found["off"], found["on"])
                yield _written(brokers["on"])
                tell("monitor.recording.idle")
                yield from _idle(brokers, options)


@contextmanager
def _running(name: str, options: Options) -> Iterator[Running]:
    with tempfile.TemporaryDirectory(prefix="rove-bench-") as folder:
        settings = dict(_SETTINGS)
        if name == "on":
            settings |= {
                "ROVE_METRICS__DATABASE": options.database or str(Path(folder) / "metrics.db"),
                "ROVE_METRICS__EVERY_S": str(options.every_s),
            }
        with broker_processes.rove(Path(folder), settings) as broker:
            yield broker


def _loaded(broker: Running, options: Options) -> BrokerOutcome:
    outcome = LOAD.run(
        FanOut(
            port=broker.port,
            pid=broker.pid,
            seconds=options.seconds,
            qos=1,
            subscribers=options.subscribers,
            payload_bytes=options.payload_bytes,
        )
    )
    if outcome.received != outcome.expected:
        raise BrokerProcessError(
            f"monitor.recording: {outcome.received:,} notifications came, "
            f"{outcome.expected:,} were due"
        )
    return outcome


def _efficiency(outcome: BrokerOutcome) -> float:
    """Deliveries for each second of CPU time; a tick at least."""
    return outcome.received / max(outcome.broker_cpu_s, 0.01)


def compared(off: Sequence[float], on: Sequence[float]) -> Iterator[Measure]:
    """Deliveries for each second of CPU time of several pairs, and by how much they are fewer."""
    without, recording = np.array(off), np.array(on)
    yield Measure("monitor.recording.off", float(without.mean()), "deliveries/CPU s")
    yield Measure(
        "monitor.recording.on",
        float(recording.mean()),
        "deliveries/CPU s",
        float((recording / without).mean()),
        "monitor.recording.off",
    )
    fewer = 100 * (1 - recording / without)
    overhead = float(fewer.mean())
    yield Measure(
        "monitor.recording.overhead",
        overhead,
        "%",
        goal=f"<= {GOAL_PERCENT:g} %",
        reached=overhead <= GOAL_PERCENT,
    )
    if bounds := mean_interval(fewer):
        yield Measure("monitor.recording.overhead.low", bounds[0], "%")
        yield Measure("monitor.recording.overhead.high", bounds[1], "%")


def _written(broker: Running) -> Measure:
    """That it has recorded at all; BrokerProcessError if not."""
    end = time.monotonic() + broker_processes.START_S_MAX
    while True:
        found = broker.metrics()
        if found["rove_metrics_written_total"] > 0:
            return Measure("monitor.recording.readings", found["rove_metrics_written_total"], "")
        if time.monotonic() > end:
            raise BrokerProcessError("monitor.recording: nothing was recorded")
        time.sleep(0.05)


def _idle(brokers: dict[str, Running], options: Options) -> Iterator[Measure]:
    """The share of a core that brokers take who have nothing to do, all at the same time."""
    for broker in brokers.values():
        broker_processes.settle(broker.pid, seconds_max=options.idle_s)
    before = {case: cpu_seconds(broker.pid) for case, broker in brokers.items()}
    begin = time.perf_counter()
    time.sleep(options.idle_s)
    passed_s = time.perf_counter() - begin
    share = {
        case: 100 * (cpu_seconds(broker.pid) - before[case]) / passed_s
        for case, broker in brokers.items()
    }
    yield Measure("monitor.recording.idle.off", share["off"], "% of a core")
    more = share["on"] - share["off"]
    yield Measure(
        "monitor.recording.idle.more",
        more,
        "% of a core",
        goal=f"<= {IDLE_GOAL_PERCENT:g} %",
        reached=more <= IDLE_GOAL_PERCENT,
    )
