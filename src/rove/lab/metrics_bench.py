"""What recording metrics every second costs a broker: a part of `rove bench monitor`.

Two brokers, each a process of its own: one records into a metrics database, one does not. In turns
they get the same load, one publisher as fast as it can and many subscribers with QoS 1, and the CPU
time of each is taken for what it delivered; it has all threads in it, the recorder's too. Of each
the round counts that was least disturbed. The one that does not record has two turns in each round:
how much they differ is chance, and an overhead below that is none that can be seen.

What is too small to be seen there is seen in a broker that has nothing else to do: how much more of
a core it takes with recording than without. Names are `monitor.recording.CASE`.

Two minutes in all.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from rove.lab import broker_load, broker_process
from rove.lab.broker_load import FanOut, Outcome
from rove.lab.broker_process import BrokerBenchError, Running, cpu_seconds
from rove.lab.measure import Measure

GOAL_PERCENT: Final = 2.0
IDLE_GOAL_PERCENT: Final = 0.5
_CASES: Final = {"off": "off", "again": "off", "on": "on"}
"""Which broker has a turn."""


class Options(msgspec.Struct, frozen=True):
    """What to measure."""

    seconds: float = 3.0
    """How long each load publishes."""
    rounds: int = 8
    subscribers: int = 100
    payload_bytes: int = 256
    idle_s: float = 20.0
    every_s: float = 1.0
    database: str = ""
    """Where to record; a file of SQLite in a folder that is gone afterwards unless told."""


QUICK: Final = Options(seconds=0.3, rounds=1, subscribers=5, idle_s=0.3, every_s=0.1)
"""Enough to see that everything is measured; the figures mean nothing."""


def run(
    options: Options | None = None, tell: Callable[[str], None] = lambda text: None
) -> Iterator[Measure]:
    """All measures, each as soon as it is known."""
    options = options or Options()
    with ExitStack() as stack:
        brokers = {name: stack.enter_context(_running(name, options)) for name in ("off", "on")}
        outcomes: dict[str, list[Outcome]] = {case: [] for case in _CASES}
        for turn in range(options.rounds):
            for case in _turned(list(_CASES), turn):
                tell(f"monitor.recording.{case}, round {turn + 1}")
                outcomes[case].append(_loaded(brokers[_CASES[case]], options))
        yield from _compared(outcomes)
        yield _written(brokers["on"])
        tell("monitor.recording.idle")
        yield from _idle(brokers, options)


@contextmanager
def _running(name: str, options: Options) -> Iterator[Running]:
    with tempfile.TemporaryDirectory(prefix="rove-bench-") as folder:
        settings = {}
        if name == "on":
            settings = {
                "ROVE_METRICS__DATABASE": options.database or str(Path(folder) / "metrics.db"),
                "ROVE_METRICS__EVERY_S": str(options.every_s),
            }
        with broker_process.rove(Path(folder), settings) as broker:
            yield broker


def _turned(cases: list[str], turn: int) -> list[str]:
    """Another one first each time, so that none is always the one after a pause."""
    first = turn % len(cases)
    return cases[first:] + cases[:first]


def _loaded(broker: Running, options: Options) -> Outcome:
    outcome = broker_load.run(
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
        raise BrokerBenchError(
            f"monitor.recording: {outcome.received:,} notifications came, "
            f"{outcome.expected:,} were due"
        )
    return outcome


def _compared(outcomes: dict[str, list[Outcome]]) -> Iterator[Measure]:
    """Deliveries for each second of CPU time, and by how much they are fewer."""
    best = {
        case: max(one.received / max(one.broker_cpu_s, 0.01) for one in found)
        for case, found in outcomes.items()
    }
    without = best["off"]
    yield Measure("monitor.recording.off", without, "deliveries/CPU s")
    yield Measure(
        "monitor.recording.on",
        best["on"],
        "deliveries/CPU s",
        best["on"] / without,
        "monitor.recording.off",
    )
    noise = 100 * abs(1 - best["again"] / without)
    yield Measure("monitor.recording.noise", noise, "%")
    overhead = 100 * (1 - best["on"] / without)
    goal = f"<= {GOAL_PERCENT:g} %"
    yield Measure(
        "monitor.recording.overhead", overhead, "%", goal=goal, reached=overhead <= GOAL_PERCENT
    )


def _written(broker: Running) -> Measure:
    """That it has recorded at all; BrokerBenchError if not."""
    end = time.monotonic() + broker_process.START_S_MAX
    while True:
        found = broker.metrics()
        if found["rove_metrics_written_total"] > 0:
            return Measure("monitor.recording.readings", found["rove_metrics_written_total"], "")
        if time.monotonic() > end:
            raise BrokerBenchError("monitor.recording: nothing was recorded")
        time.sleep(0.05)


def _idle(brokers: dict[str, Running], options: Options) -> Iterator[Measure]:
    """The share of a core that brokers take who have nothing to do, all at the same time."""
    for broker in brokers.values():
        broker_process.settle(broker.pid, seconds_max=options.idle_s)
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
