"""`rove bench match`: how fast subscriptions are matched, against the full scan, answers compared.

The workloads W1 to W4 (`rove.testing.boxes`), each in several sizes. The full scan and every
engine get the same publications in one process; the scan judges every answer (see
`rove.bench.match.engines`). Names are `match.WORKLOAD.SIZE.ENGINE.MODE`:

- `stream`: one call from Python for each publication, a line of numbers, as the scan gets it,
- `dictionary`: the same with dictionaries, as a broker has them; goals are those of `stream`,
- `batch4096`: one call for 4,096 of them, as columns,
- `threads2`: the same batch, divided between two threads,
- `missing30.…`: the same publications, with each value missing with a probability of 30 %.

The areas of W2 travel; here they stand still, so that the scan is compared at its quickest, and
the part `kinetic` lets them move. The scan and slow engines are timed on parts of the stream and
the best part counts, quick ones on all of it, several times.

Other parts are measured elsewhere: `rove.bench.match.upkeep`, and the suites that have commands of
their own. All of it takes about a quarter of an hour, mostly the scan's and the strict skybands'.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np

from rove.bench import language as language_bench
from rove.bench.harness import Bench, Part, Setting, Suite, SuiteOptions, Tell
from rove.bench.match import designs as designs_bench
from rove.bench.match import forest as forest_bench
from rove.bench.match import programs as programs_bench
from rove.bench.match import ranked as ranked_bench
from rove.bench.match import slow_expressions
from rove.bench.match import texts as texts_bench
from rove.bench.match import upkeep as match_upkeep
from rove.bench.match.engines import (
    DESIGNS,
    ENGINES,
    DesignEngine,
    Engine,
    IndexEngine,
    Judge,
    Stream,
    stream_of,
    together,
)
from rove.bench.measure import Measure, seconds_for
from rove.bench.plots import speed_plot
from rove.lang import parse
from rove.match import Matcher, warm_up
from rove.match.index.rows import Positions
from rove.match.results import Pairs
from rove.testing.boxes import Boxes, Name, workload

WORKLOADS: Final[tuple[Name, ...]] = ("W1", "W2", "W3", "W4")
SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)

_GOAL_SIZE: Final = 1_000_000
_STREAM_GOALS: Final = {"W1": 400.0, "W2": 900.0, "W3": 230.0, "W4": 75.0}
_BATCH_GOALS: Final = {"W1": 650.0, "W2": 1_000.0, "W3": 340.0, "W4": 150.0}
"""Times the full scan, at a million subscriptions."""
_MISSING_GOAL: Final = 0.5
"""The share of these that is to be reached when values are missing."""
_KINETIC_GOAL_SIZE: Final = 100_000
_KINETIC_EVENTS: Final = 1_024
_KINETIC_S: Final = 4.0
_DESIGNS_MAX: Final = 10_000
"""Areas of which the designs evaluate every one for every new version."""
_SMALL_SIZES: Final = (10, 100, 1_000)
_SMALL_EVENTS: Final = 500
_ENOUGH_S: Final = 0.5
_ROUNDS_MAX: Final = 9

_TITLES: Final = {
    "W1": "W1: boxes around places and thresholds, 5 attributes",
    "W2": "W2: areas of a world, 2 attributes",
    "W3": "W3: a market, 20 attributes",
    "W4": "W4: boxes within boxes, 6 attributes",
}


class MatchOptions(SuiteOptions, frozen=True, kw_only=True):
    """How much to measure."""

    workloads: Sequence[Name] = WORKLOADS
    sizes: Sequence[int] = SIZES
    """Numbers of subscriptions, ascending."""
    engines: Sequence[str] = tuple(ENGINES)
    """Beside the full scan, which is always there to judge."""
    missing: float = 0.3
    """The probability of a value to be missing, in a second run; 0 leaves that out."""
    threads: int = 2
    events: int = 4_096
    """Publications of the stream, and of one batch."""


MatchBench: TypeAlias = Bench[MatchOptions]


# -- speed --------------------------------------------------------------------------------


def _speed(bench: MatchBench) -> Iterator[Measure]:
    options = bench.options
    drawn: list[Measure] = []
    for name in options.workloads:
        for size in options.sizes:
            bench.tell(f"{name} with {size:,} subscriptions")
            for measure in _one_workload(options, name, size, bench.tell):
                yield measure
                drawn.append(measure)
    _draw(bench, drawn)


def _draw(bench: MatchBench, measures: Iterable[Measure]) -> None:
    """One plot for each workload: speed against the number of subscriptions."""
    # Only what is comparable with the scan; lines with missing values would hide the others.
    drawn = [m for m in measures if m.name.endswith((".scan", ".stream")) or ".batch" in m.name]
    drawn = [m for m in drawn if ".missing" not in m.name and ".moving" not in m.name]
    for name in bench.options.workloads:
        if (path := bench.plot(f"matching-{name}")) is not None:
            speed_plot(drawn, f"match.{name}", path, _TITLES[name])


def _one_workload(options: MatchOptions, name: Name, size: int, tell: Tell) -> Iterator[Measure]:
    boxes, events = workload(name, size, options.events)
    boxes = boxes.at_rest()
    prefix = f"match.{name}.{size}"
    engines: dict[str, Engine] = {}
    for kind in options.engines:
        if size <= ENGINES[kind].subscriptions_max:
            tell(f"{prefix}: building {kind}")
            start = time.perf_counter()
            engines[kind] = ENGINES[kind].make(boxes)
            yield Measure(f"{prefix}.{kind}.build", time.perf_counter() - start, "s")
    index = engines.get("index")
    if isinstance(index, IndexEngine):
        yield Measure(f"{prefix}.index.bytes", index.matcher.nbytes / size, "bytes")
    for share in sorted({0.0, options.missing}):
        present = events.with_missing(share) if share else events
        group = f"{prefix}.missing{100 * share:.0f}" if share else prefix
        tell(f"{group}: the full scan")
        judge = Judge(boxes, stream := stream_of(present))
        yield Measure(f"{group}.scan", judge.events_per_s, "events/s")
        for kind, engine in engines.items():
            tell(f"{group}: {kind}")
            timing = _Timing(group, kind, judge, stream, *_goals(kind, name, size, share))
            yield from timing.measures(engine, options.threads)


def _goals(kind: str, name: Name, size: int, share: float) -> tuple[float, float] | tuple[()]:
    """Times the full scan, one at a time and in batches, where something was promised."""
    if kind != "index" or size != _GOAL_SIZE:
        return ()
    factor = _MISSING_GOAL if share else 1.0
    return factor * _STREAM_GOALS[name], factor * _BATCH_GOALS[name]


class _Timing(msgspec.Struct, frozen=True, eq=False):
    """One engine on one stream, beside the full scan."""

    group: str
    kind: str
    judge: Judge
    stream: Stream
    stream_goal: float | None = None
    """Times the full scan."""
    batch_goal: float | None = None

    def measures(self, engine: Engine, threads: int) -> Iterator[Measure]:
        """Whatever this engine can do."""
        if not isinstance(engine, IndexEngine):
            yield self.while_there_is_time(engine)
            return
        yield self.streamed(engine)
        yield self.by_dictionary(engine)
        batch = self.batched(engine)
        yield batch
        if threads > 1:
            yield self.threaded(engine, threads, batch)

    def streamed(self, engine: IndexEngine) -> Measure:
        """Each publication by itself, a line of numbers."""
        per_s = self._one_at_a_time("stream", engine.match_one, self.stream.values)
        return self._against_scan("stream", per_s, self.stream_goal)

    def by_dictionary(self, engine: IndexEngine) -> Measure:
        """Each publication by itself, a dictionary."""
        ask = engine.matcher.match_one
        per_s = self._one_at_a_time("dictionary", ask, self.stream.publications)
        return self._against_scan("dictionary", per_s, None)

    def _one_at_a_time(
        self, mode: str, ask: Callable[[Any, float], Positions], publications: Iterable[Any]
    ) -> float:
        """Publications a second, all of them several times."""
        singles = list(zip(publications, self.stream.at.tolist(), strict=True))
        found = together([ask(publication, at) for publication, at in singles])
        self.judge.check(f"{self.group}.{self.kind}.{mode}", found, len(singles))

        def all_of_them() -> None:
            for publication, at in singles:
                ask(publication, at)

        return len(singles) / steady_seconds(all_of_them)

    def batched(self, engine: Engine) -> Measure:
        """All publications in one call."""
        mode = f"batch{len(self.stream)}"
        self._check(mode, [self.stream], [engine.match(self.stream)])
        per_s = len(self.stream) / steady_seconds(lambda: _taken_apart(engine, self.stream))
        return self._against_scan(mode, per_s, self.batch_goal)

    def threaded(self, engine: Engine, threads: int, batch: Measure) -> Measure:
        """A part of the batch for each thread."""
        parts = self.stream.parts(threads)
        with ThreadPoolExecutor(threads) as pool:
            self._check(f"threads{threads}", parts, list(pool.map(engine.match, parts)))
            seconds = steady_seconds(
                lambda: list(pool.map(lambda part: _taken_apart(engine, part), parts))
            )
        per_s = len(self.stream) / seconds
        name = f"{self.group}.{self.kind}.threads{threads}"
        return Measure(name, per_s, "events/s", per_s / batch.value, batch.name)

    def while_there_is_time(self, engine: Engine) -> Measure:
        """One publication after another, for an engine that needs long."""
        singles, found = self.stream.singles(), list[Pairs]()
        start, elapsed_s = time.perf_counter(), 0.0
        while len(found) < len(singles) and elapsed_s < _ENOUGH_S:
            found.append(engine.match(singles[len(found)]))
            elapsed_s = time.perf_counter() - start
        self._check("stream", singles[: len(found)], found)
        return self._against_scan("stream", len(found) / elapsed_s, None)

    def _check(self, mode: str, parts: Sequence[Stream], found: Sequence[Pairs]) -> None:
        """Put the answers for consecutive parts together, and before the judge."""
        counts = [
            np.diff(pairs.starts(len(part))) for part, pairs in zip(parts, found, strict=True)
        ]
        ids = np.concatenate([pairs.subscriptions for pairs in found])
        pairs = Pairs.counted(np.concatenate(counts).astype(np.int32), ids)
        events = sum(map(len, parts))
        self.judge.check(f"{self.group}.{self.kind}.{mode}", pairs, events)

    def _against_scan(self, mode: str, per_s: float, goal: float | None) -> Measure:
        scan = Measure(f"{self.group}.scan", self.judge.events_per_s, "events/s")
        found = Measure(f"{self.group}.{self.kind}.{mode}", per_s, "events/s").compared(scan)
        return found if goal is None else found.at_least(goal, "×")


def _taken_apart(engine: Engine, stream: Stream) -> None:
    """Match, up to knowing which ids belong to which publication."""
    engine.match(stream).starts(len(stream))


def steady_seconds(work: Callable[[], object]) -> float:
    """The time of one call: the best of several, of fewer where one takes long."""
    first_s = seconds_for(work, rounds=1)
    rounds = min(_ROUNDS_MAX, 1 + int(_ENOUGH_S / first_s))
    return min(first_s, seconds_for(work, rounds))


# -- areas that travel --------------------------------------------------------------------


def _kinetic(bench: MatchBench) -> Iterator[Measure]:
    """W2 with its areas moving, at times spread over some seconds, beside the same at rest."""
    options = bench.options
    for size in options.sizes if "W2" in options.workloads else ():
        prefix = f"match.W2.{size}"
        bench.tell(f"{prefix}: areas that travel")
        boxes, events = workload("W2", size, min(options.events, _KINETIC_EVENTS))
        if "index" in options.engines:
            resting, stream = IndexEngine(boxes.at_rest()), stream_of(events)
            static = _Timing(prefix, "resting", Judge(boxes.at_rest(), stream), stream)
            static_us = 1e6 / static.streamed(resting).value
            cost = Measure(f"{prefix}.static", static_us, "µs/event")
        stream = stream_of(events, lasting_s=_KINETIC_S)
        judge = Judge(boxes, stream)
        yield Measure(f"{prefix}.moving.scan", judge.events_per_s, "events/s")
        if "index" in options.engines:
            moving = _Timing(f"{prefix}.moving", "index", judge, stream)
            yield (found := moving.streamed(engine := IndexEngine(boxes)))
            yield moving.batched(engine)
            yield cost
            yield _kinetic_cost(prefix, size, 1e6 / found.value, cost)
        if size <= _DESIGNS_MAX:
            yield from _designs_in_motion(f"{prefix}.moving", boxes, stream, judge, bench.tell)


def _kinetic_cost(prefix: str, size: int, moving_us: float, static: Measure) -> Measure:
    cost = Measure(f"{prefix}.kinetic", moving_us, "µs/event").compared(static)
    return cost.at_most(1.6, "×") if size == _KINETIC_GOAL_SIZE else cost


def _designs_in_motion(
    group: str, boxes: Boxes, stream: Stream, judge: Judge, tell: Tell
) -> Iterator[Measure]:
    """The published designs on the same stream, evolutions and new versions included."""
    for name, evolve in DESIGNS.items():
        tell(f"{group}: {name}")
        engine = DesignEngine(boxes, evolve)
        start = time.perf_counter()
        found = engine.match(stream)
        per_s = len(stream) / (time.perf_counter() - start)
        judge.check(f"{group}.{name}", found, len(stream), engine.as_of(stream.at))
        ratio = per_s / judge.events_per_s
        yield Measure(f"{group}.{name}.stream", per_s, "events/s", ratio, f"{group}.scan")


# -- few subscriptions --------------------------------------------------------------------


def _small(bench: MatchBench) -> Iterator[Measure]:
    """One publication, dictionary in and ids out, with few subscriptions added one by one."""
    for size in _SMALL_SIZES:
        boxes, events = workload("W1", size, _SMALL_EVENTS)
        stream = stream_of(events)
        matcher = Matcher()
        for row in range(size):
            matcher.add(row, parse(boxes.text(row)))
        judge = Judge(boxes, stream)
        yield _small_call(f"match.W1.{size}.call", matcher, stream, judge)
        matcher.compact()
        yield _small_call(f"match.W1.{size}.call.compacted", matcher, stream, judge)


def _small_call(name: str, matcher: Matcher, stream: Stream, judge: Judge) -> Measure:
    def asked() -> list[list[int]]:
        return [matcher.match_one(publication, 0.0).tolist() for publication in stream.publications]

    found = together([np.array(ids, np.int64) for ids in asked()])
    judge.check(name, found, len(stream))
    call_us = 1e6 * steady_seconds(asked) / len(stream)
    return Measure(name, call_us, "µs").at_most(15, " µs")


# -- the parts ----------------------------------------------------------------------------


Upkeep: TypeAlias = Callable[[Sequence[Name], int, Tell], Iterator[Measure]]


def _upkeep(measure: Upkeep) -> Part:
    """A part that is measured once for each workload, at the largest size."""

    def part(bench: MatchBench) -> Iterator[Measure]:
        return measure(bench.options.workloads, max(bench.options.sizes), bench.tell)

    return part


_ACCEPTS: Final = {
    "workload": Setting("workloads"),
    "subscriptions": Setting("sizes"),
    # The scan always runs, because it checks the answers of the others.
    "engine": Setting("engines", also=("scan",)),
    "missing": Setting("missing"),
    "threads": Setting("threads"),
    "plots": Setting("plots", parts=("speed",)),
}
SUITE: Final = Suite(
    name="match",
    parts={
        "speed": _speed,
        "kinetic": _kinetic,
        "small": _small,
        "changes": _upkeep(match_upkeep.changes),
        "memory": _upkeep(match_upkeep.memory),
        "saving": _upkeep(match_upkeep.saving),
        "start": _upkeep(match_upkeep.start),
        "ranked": lambda bench: ranked_bench.run(),
        "texts": lambda bench: texts_bench.run(),
        "designs": lambda bench: designs_bench.run(),
        "forest": lambda bench: forest_bench.run(),
        "programs": lambda bench: programs_bench.run(),
    },
    options=MatchOptions(),
    accepts=_ACCEPTS,
    prepare=warm_up,
)
ALL_SUITE: Final = Suite(
    name="all",
    parts={**language_bench.SUITE.parts, **SUITE.parts},
    options=SUITE.options,
    accepts=_ACCEPTS,
    prepare=warm_up,
)
"""Everything that needs only a processor."""


def _alone(name: str) -> Suite[SuiteOptions]:
    """A part that also has a command."""
    parts = {name: SUITE.parts[name]}
    return Suite(name=name, parts=parts, options=SuiteOptions(), prepare=warm_up)


RANKED_SUITE: Final = _alone("ranked")
DESIGNS_SUITE: Final = _alone("designs")
FOREST_SUITE: Final = _alone("forest")
PROGRAMS_SUITE: Final = _alone("programs")
TEXTS_SUITE: Final = Suite(
    name="texts",
    parts={
        "contains": lambda bench: texts_bench.run(),
        "slowest": lambda bench: slow_expressions.run(),
    },
    options=SuiteOptions(parts=("contains",)),
    prepare=warm_up,
)
