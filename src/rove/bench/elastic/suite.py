"""`rove bench elastic`: a broker that matches by itself, and with matchers that come and go.

CUPUS's three experiments, as far as its text describes them, and then more than it could do.
Broker, matchers and load are processes; every notification is compared with what was due
(`rove.bench.elastic.load`), so that nothing counts that was lost, came twice or out of order. Names
are `elastic.PART.CASE`:

- `delay`, experiment 1: from publisher to subscriber with 1 to 20,000 subscriptions (a million with
  `full`), publications one after the other, two under way. A publication meets 9 % of all
  subscriptions; ten sessions share them, and each is told once, with the identifiers of all that
  were met. `embedded-1-session` is the same with a single session;
- `length`, experiment 2: the delay in runs of more and more publications, which must not grow;
- `steps`, experiment 3: publications at 95, 292, 420 and 1,000 a second, at four fifths of what the
  broker can take at most, and back; delays, matchers, and what was rearranged and why;
- `heavy`: the same with a work that takes its time in matching (`rove.bench.elastic.workload`), at
  shares of what a broker without matchers can take: here matchers are needed, and come;
- `throughput`: of that work, with one matcher and with two; `undisturbed` says whether the machine
  was free for two;
- `start`: time and memory of a broker that may have matchers, beside one that may not.

The dynamic ones decide by windows of 500 messages and pauses of a quarter of a second, so that a
step need not last minutes; with `full` they decide as a broker does by default, and it does.

Takes four minutes, more than an hour with `full`. On a machine that does something else, delays
mean little.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from rove.bench.broker import restart as broker_restart
from rove.bench.elastic import plots as elastic_plots
from rove.bench.elastic import steps as elastic_steps
from rove.bench.elastic.brokers import CONFIGURATIONS, EMBEDDED, Configuration, Watcher, running
from rove.bench.elastic.load import LOAD, Closed, Flooded, Paced, Run
from rove.bench.elastic.steps import Elasticity
from rove.bench.elastic.workload import Name
from rove.bench.harness import Bench, Setting, Suite, SuiteOptions
from rove.bench.measure import Measure
from rove.bench.processes import Process, together
from rove.testing import broker_processes
from rove.testing.broker_processes import family, resident_bytes, settle
from rove.testing.ports import free_port

CUPUS_SIZE: Final = 20_000
CUPUS_MS: Final = 1_000.0
"""What CUPUS says of its best configuration with so many subscriptions: up to a second."""
_CUPUS_UNIT: Final = "ms at most"
_THROUGHPUT_GOAL: Final = 1.7
_DEMANDING: Final = 10.0
"""So many times the broker's own work is what the matching of `sums` is to take."""
_SAME: Final = 1.05
_CONTROL_GOAL: Final = 1.6


class ElasticOptions(SuiteOptions, frozen=True, kw_only=True):
    """How much to measure."""

    sizes: Sequence[int] = (1, 100, 1_000, 5_000, 10_000, 20_000)
    configurations: Sequence[str] = tuple(CONFIGURATIONS)
    sessions: int = 10
    under_way: int = 2
    run_publications: int = 1_000
    run_s: float = 1.0
    """How long a run of `delay` may take; it is ended early then."""
    length_size: int = 5_000
    lengths: Sequence[int] = (1_000, 2_000, 5_000, 10_000)
    length_configurations: Sequence[str] = ("embedded", "replicated")
    steps_size: int = 5_000
    paces: Sequence[float] = (95, 292, 420, 1_000)
    step_s: float = 4.0
    top_share: float = 0.8
    """Of what the broker can take at most."""
    least: Sequence[int] = (1,)
    """Numbers of matchers that `steps` is tried with at least."""
    heavy_size: int = 1_000
    heavy_shares: Sequence[float] = (0.3, 0.6, 0.85, 1.3, 0.85, 0.6, 0.3)
    heavy_step_s: float = 8.0
    window_messages: int = 500
    pause_s: float = 0.25
    flood_configurations: Sequence[str] = ("embedded", "one", "partitioned", "replicated")
    flood_s: float = 3.0
    flood_publishers: int = 8
    flood_under_way: int = 50
    start_rounds: int = 3

    def dynamic(self, least: int) -> tuple[Configuration, dict[str, str]]:
        """Up to two matchers, and when there are to be how many."""
        return Configuration(least, 2), {
            "ROVE_MATCHERS__WINDOW_MESSAGES": str(self.window_messages),
            "ROVE_MATCHERS__PAUSE_S": str(self.pause_s),
        }


FULL: Final = ElasticOptions(
    sizes=(1, 100, 1_000, 5_000, 10_000, 20_000, 100_000, 1_000_000),
    run_publications=5_000,
    run_s=10.0,
    lengths=(1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000),
    length_configurations=("embedded", "one", "replicated"),
    step_s=60.0,
    least=(0, 1),
    heavy_step_s=60.0,
    window_messages=10_000,
    pause_s=2.0,
    flood_s=10.0,
    start_rounds=10,
)
QUICK: Final = ElasticOptions(
    sizes=(1, 50),
    configurations=("embedded", "replicated"),
    sessions=3,
    run_publications=50,
    lengths=(40, 80),
    length_configurations=("embedded",),
    length_size=50,
    steps_size=50,
    paces=(50, 100),
    step_s=0.5,
    heavy_size=100,
    heavy_shares=(0.2, 0.5),
    heavy_step_s=0.5,
    flood_configurations=("one", "replicated"),
    flood_s=0.3,
    flood_under_way=10,
    start_rounds=1,
)

ElasticBench: TypeAlias = Bench[ElasticOptions]


def _delays(group: str, run: Run) -> list[Measure]:
    found = {"mean": run.mean_ms, "p50": run.p50_ms, "p99": run.p99_ms}
    return [Measure(f"{group}.{name}", value, "ms") for name, value in found.items()]


# -- experiment 1 -------------------------------------------------------------------------------


def _delay(bench: ElasticBench) -> Iterator[Measure]:
    options = bench.options
    cases = {name: (name, options.sessions) for name in options.configurations}
    if "embedded" in cases:
        cases["embedded-1-session"] = ("embedded", 1)
    lines: dict[str, list[Run]] = {}
    for case, (configuration, sessions) in cases.items():
        bench.tell(f"elastic.delay, {case}")
        with running(CONFIGURATIONS[configuration]) as broker:
            job = Closed(
                port=broker.port,
                pid=broker.pid,
                sessions=sessions,
                sizes=options.sizes,
                counts=[options.run_publications],
                under_way=options.under_way,
                seconds_max=options.run_s,
            )
            lines[case] = LOAD.run(job).runs
        for found in lines[case]:
            yield from _delays_beside_cupus(case, found)
    if (path := bench.plot("elastic-delay")) is not None:
        elastic_plots.delay(lines, (CUPUS_SIZE, CUPUS_MS), path)


def _delays_beside_cupus(case: str, found: Run) -> Iterator[Measure]:
    group = f"elastic.delay.{found.subscriptions}"
    mean, *others = _delays(f"{group}.{case}", found)
    if found.subscriptions == CUPUS_SIZE:
        note = "as published: its best configuration on 4 vCPU"
        published = Measure(f"{group}.cupus", CUPUS_MS, _CUPUS_UNIT, note=note)
        if case == "embedded":
            yield published
        mean = mean.compared(published).at_most(10, " ms")
    yield mean
    yield from others
    yield Measure(f"{group}.{case}.rate", found.sent_per_s, "publications/s")


# -- experiment 2 -------------------------------------------------------------------------------


def _length(bench: ElasticBench) -> Iterator[Measure]:
    options = bench.options
    lines: dict[str, list[Run]] = {}
    for name in options.length_configurations:
        bench.tell(f"elastic.length, {name}")
        with running(CONFIGURATIONS[name]) as broker:
            job = Closed(
                port=broker.port,
                pid=broker.pid,
                sessions=options.sessions,
                sizes=[options.length_size],
                counts=options.lengths,
                under_way=options.under_way,
            )
            lines[name] = runs = LOAD.run(job).runs
        for found in runs:
            yield from _delays(f"elastic.length.{found.sent}.{name}", found)
        first, *_, last = runs[-1].quarters_ms
        begin = Measure(f"elastic.length.{name}.first_quarter", first, "ms")
        note = f"of {runs[-1].sent:,} publications"
        end = Measure(f"elastic.length.{name}.last_quarter", last, "ms", note=note)
        yield end.compared(begin).at_most(1.2, "×")
    if (path := bench.plot("elastic-length")) is not None:
        elastic_plots.length(lines, path)


# -- experiment 3 -------------------------------------------------------------------------------


def _steps(bench: ElasticBench) -> Iterator[Measure]:
    options = bench.options
    for least in options.least:
        bench.tell("elastic.steps: how many publications it can take")
        configuration, settings = options.dynamic(least)
        most_per_s = _flooded("gas", configuration, options, settings).sent_per_s
        yield Measure(f"elastic.steps.min{least}.most", most_per_s, "publications/s")
        up = [*options.paces, max(round(options.top_share * most_per_s), options.paces[-1])]
        paces = [(pace, options.step_s) for pace in (*up, *reversed(options.paces))]
        bench.tell(f"elastic.steps, at least {least} matchers")
        found = yield from _elasticity(
            f"elastic.steps.min{least}", "gas", options.steps_size, least, paces, options
        )
        if least == options.least[-1] and (path := bench.plot("elastic-steps")) is not None:
            title = f"Experiment 3: {options.steps_size:,} subscriptions, a pace that changes"
            elastic_plots.steps(found, title, path, elastic_plots.CUPUS_REMARKS)


def _heavy(bench: ElasticBench) -> Iterator[Measure]:
    options = bench.options
    bench.tell("elastic.heavy: how many publications a broker alone can take")
    most_per_s = _flooded("sums", EMBEDDED, options).sent_per_s
    yield Measure("elastic.heavy.embedded", most_per_s, "publications/s")
    paces = [(round(share * most_per_s), options.heavy_step_s) for share in options.heavy_shares]
    bench.tell("elastic.heavy")
    found = yield from _elasticity("elastic.heavy", "sums", options.heavy_size, 0, paces, options)
    if (path := bench.plot("elastic-heavy")) is not None:
        title = f"Matching takes the time: {options.heavy_size:,} subscriptions by sums"
        elastic_plots.steps(found, title, path)


def _elasticity(
    group: str,
    work: Name,
    size: int,
    least: int,
    paces: Sequence[tuple[float, float]],
    options: ElasticOptions,
) -> Generator[Measure, None, Elasticity]:
    """Put a load that changes on a broker whose matchers come and go."""
    configuration, settings = options.dynamic(least)
    with running(configuration, settings) as broker, Watcher(broker) as watcher:
        sessions = options.sessions if work == "gas" else 1
        job = Paced(
            port=broker.port, pid=broker.pid, work=work, sessions=sessions, size=size, steps=paces
        )
        trace = LOAD.run(job).trace
    assert trace is not None, "this load is traced"
    assert watcher.last is not None, "the watcher has looked"
    sent_s, delays_ms = trace.arrays()
    labels = [f"{number}-{per_s:g}" for number, (per_s, _) in enumerate(paces, start=1)]
    steps = elastic_steps.steps_of(paces, labels)
    changes = elastic_steps.changes_of(
        watcher.last.reconfigurations, trace.began_at, sent_s, delays_ms
    )
    matchers = [(one.at - trace.began_at, one.matchers) for one in watcher.seen]
    for step in steps:
        mean, p50, p99 = elastic_steps.stats(elastic_steps.within(step, sent_s, delays_ms))
        name = f"{group}.{step.label}"
        yield from (Measure(f"{name}.mean", mean, "ms"), Measure(f"{name}.p50", p50, "ms"))
        yield Measure(f"{name}.p99", p99, "ms")
        there = [count for at_s, count in matchers if step.begin_s <= at_s < step.end_s]
        yield Measure(f"{name}.matchers", max(there, default=0), "at most")
        count = elastic_steps.changes_in(step, changes, is_last=step is steps[-1])
        changed = Measure(f"{name}.changes", count, "rearrangements")
        yield changed.at_most(2, " rearrangements")
    for number, change in enumerate(changes, start=1):
        name = f"{group}.change{number}.{change.kind}"
        note = f"{change.reason}; {change.matchers} afterwards"
        if change.failure:
            note = f"given up: {change.failure} ({change.reason})"
        yield Measure(name, 1_000 * (change.end_s - change.begin_s), "ms", note=note)
        yield Measure(f"{name}.before.p99", change.before_p99_ms, "ms")
        yield Measure(f"{name}.p99", change.p99_ms, "ms").at_most(50, " ms")
    seconds = elastic_steps.seconds_of(sent_s, delays_ms)
    return Elasticity(steps, seconds, changes, matchers)


# -- throughput ---------------------------------------------------------------------------------


def _flooded(
    work: Name,
    configuration: Configuration,
    options: ElasticOptions,
    settings: dict[str, str] | None = None,
) -> Run:
    size = options.steps_size if work == "gas" else options.heavy_size
    with running(configuration, settings) as broker:
        job = Flooded(
            port=broker.port,
            pid=broker.pid,
            work=work,
            sessions=options.sessions if work == "gas" else 1,
            size=size,
            publishers=options.flood_publishers,
            under_way=options.flood_under_way,
            seconds=options.flood_s,
        )
        (found,) = LOAD.run(job).runs
    return found


def _throughput(bench: ElasticBench) -> Iterator[Measure]:
    options = bench.options
    one: Measure | None = None
    bench.tell("elastic.throughput, whether the machine is free")
    control = _undisturbed(options.flood_s / 2)
    yield control
    note = None if control.reached else "does not count: the machine was not free"
    for name in options.flood_configurations:
        bench.tell(f"elastic.throughput, {name}")
        found = _flooded("sums", CONFIGURATIONS[name], options)
        per_s = Measure(f"elastic.throughput.{name}", found.sent_per_s, "publications/s")
        if one is not None:
            per_s = per_s.compared(one).at_least(_THROUGHPUT_GOAL, "×")
            reached = bool(control.reached) and per_s.reached
            per_s = msgspec.structs.replace(per_s, reached=reached, note=note)
        yield per_s
        yield from _costs(per_s.name, found)
        if name == "one":
            one = per_s


def _costs(group: str, found: Run) -> Iterator[Measure]:
    """CPU time for a publication, and whether matching was what took it."""
    broker_us = 1e6 * found.broker_cpu_s / found.sent
    matchers_us = 1e6 * found.children_cpu_s / found.sent
    broker = Measure(f"{group}.broker", broker_us, "CPU µs/publication")
    yield broker
    if matchers_us:
        cores = (found.broker_cpu_s + found.children_cpu_s) / found.seconds
        yield Measure(f"{group}.cores", cores, "cores used")
        matchers = Measure(f"{group}.matchers", matchers_us, "CPU µs/publication")
        yield matchers.compared(broker).at_least(_DEMANDING, "×")


def _undisturbed(seconds: float) -> Measure:
    """What two processes that share nothing do together, by what one does alone.

    Where that is not nearly twice as much something else had the machine, and what two matchers did
    says nothing.
    """
    with Process(_begun, [], 1) as first, Process(_begun, [], 1) as second:
        both = [first, second]
        together(both, [(_spun, 0.0)] * 2)  # until both are there
        (alone,) = together([first], [(_spun, seconds)])
        ratio = sum(together(both, [(_spun, seconds)] * 2)) / alone
    goal, reached = f">= {_CONTROL_GOAL:g}×", ratio >= _CONTROL_GOAL
    name = "elastic.throughput.undisturbed"
    return Measure(name, ratio, "of one process", goal=goal, reached=reached)


def _begun(workers: int) -> bool:
    return True


def _spun(_state: bool, seconds: float) -> int:
    """So many turns in a time."""
    turns, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        turns += 1
    return turns


# -- start --------------------------------------------------------------------------------------


class _Started(msgspec.Struct, frozen=True):
    seconds: float
    cpu_s: float
    mb: float


def _start(bench: ElasticBench) -> Iterator[Measure]:
    """In turns, and of each the least: others use the machine too."""
    cases = {"without": {"ROVE_MATCHERS__MAX": "0"}, "default": {}}
    found: dict[str, list[_Started]] = {name: [] for name in cases}
    for turn in range(bench.options.start_rounds):
        for name, settings in cases.items():
            bench.tell(f"elastic.start, round {turn + 1}, {name}")
            found[name].append(_started(settings))
    for field, unit in (("seconds", "s"), ("cpu_s", "CPU s"), ("mb", "MB")):
        least = {
            name: min(float(getattr(one, field)) for one in some) for name, some in found.items()
        }
        without = Measure(f"elastic.start.without.{field}", least["without"], unit)
        yield without
        default = Measure(f"elastic.start.default.{field}", least["default"], unit)
        yield default.compared(without).at_most(_SAME, "×")


def _started(settings: dict[str, str]) -> _Started:
    """How long until a broker lets somebody in, and what it and its processes hold at rest."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="rove-bench-") as folder:
        begin = time.perf_counter()
        with broker_processes.rove_starting(Path(folder), port, settings) as broker:
            broker_restart.first_connack(port, lambda: broker.process.poll() is None)
            seconds = time.perf_counter() - begin
            settle(broker.pid)
            pids = family(broker.pid)
            cpu_s = sum(map(broker_processes.cpu_seconds, pids))
            return _Started(seconds, cpu_s, sum(map(resident_bytes, pids)) / 2**20)


SUITE: Final = Suite(
    name="elastic",
    options=ElasticOptions(),
    quick=QUICK,
    full=FULL,
    accepts={
        "subscriptions": Setting("sizes"),
        "plots": Setting("plots", parts=("delay", "length", "steps", "heavy")),
    },
    needs_linux_to="reads CPU times from /proc",
    parts={
        "delay": _delay,
        "length": _length,
        "steps": _steps,
        "heavy": _heavy,
        "throughput": _throughput,
        "start": _start,
    },
)
