"""`rove bench pipeline`: matching on Spark, beside the same kernel without it and beside plain SQL.

Everything is measured in one run, and answers are compared first: with the full scan on the first
publications, with the plain kernel (how many pairs there are) on all of them. Names are
`pipeline.WORKLOAD.SUBSCRIPTIONS.WHAT`:

- `kernel1`, `kernel2`: the matcher in one process per core, Arrow batches in memory, pairs counted;
- `spark1`, `spark2`: Spark with one worker on one core, and two on two; publications are read from
  Parquet, and who wants them comes back to the JVM as packed numbers (`rove.pipeline.match`);
- `spark2.rows`: the same of a DataFrame that is not simply files, so that Spark reads them and
  sends its rows to the workers;
- `spark2.grouped`, `spark2.pairs`: the same as arrays, and as a row for each pair;
- `undisturbed`: whether two kernels were nearly twice as quick as one; if not, something else ran
  on the machine, and none of these ratios counts, neither those that were reached nor the others;
- `between`, `grid`, `match`: a join by BETWEEN, timed on a fiftieth of the rows, a join over a
  grid of cells made beforehand, and `match`, all to rows of pairs that a sink drops;
- `resting`, `travelling`: areas that stand still, and the same that move, at 4 s of event time;
- `memory`: the most that a worker had, after an eighth of the rows and after all;
- ranked windows, replays, the stream, the way back to subscribers and backtests: see the modules
  behind `pipeline_bench_jobs`; metrics: see `pipeline_metrics_bench`; a lake that grows, durable
  publishing with it, an object store, and what one waits for: see `pipeline_lake_bench`.

A million publications by default; ten with `full`, against up to a million subscriptions, on two
workers. Takes 15 minutes, two hours with `full`; a machine that does something else halves
the ratios.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from rove.bench.match.engines import WrongAnswerError
from rove.bench.measure import Measure
from rove.bench.pipeline import jobs, processes
from rove.bench.pipeline import lake as pipeline_lake_bench
from rove.bench.pipeline import metrics as pipeline_metrics_bench
from rove.bench.pipeline.processes import Kernels
from rove.bench.pipeline.workload import Work, judged, work_of
from rove.bench.plots import speed_plot
from rove.bench.processes import Process
from rove.testing.boxes import Boxes, Name

WORKLOADS: Final[tuple[Name, ...]] = ("W1", "W2")
UNIT: Final = "rows/s"

_KERNEL_GOAL: Final = 0.6
_KERNEL_GOAL_SIZE: Final = 100_000
_SCALING_GOAL: Final = 1.7
_CONTROL_GOAL: Final = 1.6
_BETWEEN_GOAL: Final = 150.0
_GRID_GOAL: Final = 1.0
_EVOLVING_GOAL: Final = 1.5
_MEMORY_GOAL: Final = 1.2
_JOIN_SIZE: Final = 10_000
_EVOLVING_SIZE: Final = 100_000
_JUDGED_ROWS: Final = 200
_FORMS_MAX: Final = 100_000
"""Subscriptions up to which the other forms are measured: beyond, pairs come by the billion."""
_SAMPLE_SHARE: Final = 50
"""Of the publications, what a join by BETWEEN is timed on."""
_TITLES: Final = {
    "W1": "Spark, W1: boxes around places and thresholds, 5 attributes",
    "W2": "Spark, W2: areas of a world, 2 attributes",
}

Tell: TypeAlias = Callable[[str], None]


class Options(msgspec.Struct, frozen=True):
    """What to measure."""

    workloads: Sequence[Name] = WORKLOADS
    sizes: Sequence[int] = (10_000, 100_000)
    """Numbers of subscriptions, ascending."""
    rows: int = 1_000_000
    workers: Sequence[int] = (1, 2)
    rounds: int = 6
    """At most, and fewer where they take long; Java needs some to warm up."""
    parts: Sequence[str] = ()
    """Of PARTS; all if none is named."""
    size_max: int = 1_000_000
    """Of the subscriptions that the parts choose by themselves."""


FULL: Final = Options(sizes=(10_000, 100_000, 1_000_000), rows=10_000_000, workers=(2,))
QUICK: Final = Options(sizes=(500,), rows=20_000, rounds=1, size_max=500)


def run(options: Options | None = None, tell: Tell = lambda text: None) -> Iterator[Measure]:
    """All measures, each as soon as it is known."""
    options = options or Options()
    with (
        tempfile.TemporaryDirectory(prefix="rove-bench-") as folder,
        _Bench(options, Path(folder), tell) as bench,
    ):
        for part in options.parts or PARTS:
            tell(part)
            yield from PARTS[part](bench)


def draw(measures: Iterable[Measure], workloads: Sequence[Name], folder: Path) -> list[Path]:
    """One picture for each workload, `pipeline-W1.png` and so on: speed against subscriptions."""
    known = list(measures)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in workloads:
        path = folder / f"pipeline-{name}.png"
        lines = [m for m in known if any(word in m.name for word in (".kernel", ".spark"))]
        speed_plot(lines, f"pipeline.{name}", path, _TITLES[name], UNIT)
        paths.append(path)
    return paths


class _Bench:
    """What the parts share: options, a folder, and processes that are started when needed."""

    def __init__(self, options: Options, folder: Path, tell: Tell) -> None:
        self.options = options
        self.folder = folder
        self.tell = tell
        self._stack = ExitStack()
        self._sparks: dict[int, Process] = {}

    def __enter__(self) -> _Bench:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def spark(self, workers: int) -> Process:
        if workers not in self._sparks:
            self._sparks[workers] = self._stack.enter_context(processes.spark(workers))
        return self._sparks[workers]

    def work(
        self, name: Name, size: int, *, moving: bool = False, timed: bool = False
    ) -> tuple[Work, Boxes]:
        rows = self.options.rows
        return work_of(self.folder, name, size, rows, moving=moving, timed=timed)

    def size(self, size: int) -> int:
        return min(size, self.options.size_max)

    def check(self, work: Work, boxes: Boxes, spark: Process, label: str) -> None:
        """Compare what Spark finds with the full scan."""
        rows = min(_JUDGED_ROWS, work.rows)
        found = spark.ask(processes.first_pairs, work, rows)
        if not np.array_equal(found, judged(work, boxes, rows)):
            raise WrongAnswerError(f"{label} differs from the full scan")

    def per_s(self, seconds: float) -> float:
        return self.options.rows / seconds


# -- speed -----------------------------------------------------------------------------------------


def _speed(bench: _Bench) -> Iterator[Measure]:
    for name in bench.options.workloads:
        for size in bench.options.sizes:
            label = f"pipeline.{name}.{size}"
            bench.tell(f"{label}: building")
            work, boxes = bench.work(name, size)
            speeds: dict[str, float] = {}
            for workers in bench.options.workers:
                for measure in _beside_kernel(bench, work, boxes, label, workers):
                    speeds[measure.name.removeprefix(f"{label}.")] = measure.value
                    yield measure
            yield from _scaling(label, speeds)


def _beside_kernel(
    bench: _Bench, work: Work, boxes: Boxes, label: str, workers: int
) -> Iterator[Measure]:
    rounds, spark = bench.options.rounds, bench.spark(workers)
    bench.tell(f"{label}: comparing the answers of {workers}")
    bench.check(work, boxes, spark, label)
    bench.tell(f"{label}: the kernel on {workers}")
    with Kernels(workers) as kernels:
        seconds, pairs = kernels.timed(work, rounds)
    if spark.ask(processes.pairs_total, work) != pairs:
        raise WrongAnswerError(f"{label}: Spark and the kernel differ")
    plain = Measure(f"{label}.kernel{workers}", bench.per_s(seconds), UNIT)
    yield plain
    bench.tell(f"{label}: Spark on {workers}")
    per_s = bench.per_s(spark.ask(processes.timed, work, "packed", rounds))
    has_goal = len(boxes) >= _KERNEL_GOAL_SIZE
    ratio = per_s / plain.value
    yield _compared(
        f"{label}.spark{workers}", per_s, ratio, plain.name, _KERNEL_GOAL if has_goal else None
    )
    if workers == max(bench.options.workers) and len(boxes) <= _FORMS_MAX:
        for form in ("rows", "grouped", "pairs"):
            bench.tell(f"{label}: {form}")
            rounds = bench.options.rounds if form == "rows" else 1
            other = bench.per_s(spark.ask(processes.timed, work, form, rounds))
            what = f"{label}.spark{workers}"
            yield Measure(f"{what}.{form}", other, UNIT, other / per_s, what)


def _scaling(label: str, speeds: dict[str, float]) -> Iterator[Measure]:
    """What a second core brings: to the plain kernel, which is the control, and to Spark.

    Two processes that share nothing are nearly twice as quick as one. Where they were not,
    something else had the machine, and no goal of that size was reached or missed.
    """
    goals = {"undisturbed": ("kernel", _CONTROL_GOAL), "scaling": ("spark", _SCALING_GOAL)}
    for what, (engine, goal) in goals.items():
        if {f"{engine}1", f"{engine}2"} <= speeds.keys():
            two, one = speeds[f"{engine}2"], speeds[f"{engine}1"]
            yield _compared(f"{label}.{what}", two, two / one, f"{label}.{engine}1", goal)


def _compared(
    name: str, value: float, ratio: float, against: str, goal: float | None, unit: str = UNIT
) -> Measure:
    """A measure that is to be so many times another."""
    if goal is None:
        return Measure(name, value, unit, ratio, against)
    return Measure(name, value, unit, ratio, against, f">= {goal:g}×", ratio >= goal)


def _at_most(
    name: str, value: float, unit: str, ratio: float, against: str, goal: float
) -> Measure:
    return Measure(name, value, unit, ratio, against, f"<= {goal:g}×", ratio <= goal)


# -- joins -----------------------------------------------------------------------------------------


def _joins(bench: _Bench) -> Iterator[Measure]:
    """Areas of W2 at rest: what plain SQL makes of them."""
    work, boxes = bench.work("W2", bench.size(_JOIN_SIZE))
    spark = bench.spark(max(bench.options.workers))
    label = f"pipeline.W2.{len(boxes)}"
    bench.tell(f"{label}: joins")
    areas = pa.table(
        {
            "subscription": np.arange(len(boxes)),
            **{f"{axis}0": boxes.lows[i] for i, axis in enumerate("xy")},
            **{f"{axis}1": boxes.highs[i] for i, axis in enumerate("xy")},
        }
    )
    sample = max(1, bench.options.rows // _SAMPLE_SHARE)
    found = spark.ask(processes.timed_joins, work, areas, sample, bench.options.rounds)
    if found["grid"][1] != found["match"][1]:
        raise WrongAnswerError(f"{label}: the join and the matcher differ")
    mine = bench.per_s(found["match"][0])
    between, grid = sample / found["between"][0], bench.per_s(found["grid"][0])
    yield Measure(f"{label}.between", between, UNIT)
    yield Measure(f"{label}.grid", grid, UNIT)
    yield _compared(f"{label}.match", mine, mine / grid, f"{label}.grid", _GRID_GOAL)
    ratio = mine / between
    yield _compared(f"{label}.match.sql", mine, ratio, f"{label}.between", _BETWEEN_GOAL)


# -- areas that travel -----------------------------------------------------------------------------


def _evolving(bench: _Bench) -> Iterator[Measure]:
    size = bench.size(_EVOLVING_SIZE)
    label = f"pipeline.W2.{size}"
    spark = bench.spark(max(bench.options.workers))
    seconds: dict[str, float] = {}
    for what in ("resting", "travelling"):
        bench.tell(f"{label}: {what}")
        work, boxes = bench.work("W2", size, moving=what == "travelling", timed=True)
        bench.check(work, boxes, spark, f"{label}.{what}")
        seconds[what] = spark.ask(processes.timed, work, "packed", bench.options.rounds)
        if what == "resting":
            yield Measure(f"{label}.resting", bench.per_s(seconds[what]), UNIT)
    ratio = seconds["travelling"] / seconds["resting"]
    per_s = bench.per_s(seconds["travelling"])
    yield _at_most(f"{label}.travelling", per_s, UNIT, ratio, f"{label}.resting", _EVOLVING_GOAL)


# -- memory ----------------------------------------------------------------------------------------


def _memory(bench: _Bench) -> Iterator[Measure]:
    """In a session of its own, since a worker's peak stays with it."""
    work, boxes = bench.work("W1", bench.size(_EVOLVING_SIZE))
    workers = max(bench.options.workers)
    label = f"pipeline.W1.{len(boxes)}.memory{workers}"
    peaks: dict[str, float] = {}
    with processes.spark(workers) as spark:
        files = len(work.files)
        for what, some in (("eighth", files // 8), ("all", files)):
            bench.tell(f"{label}: {what}")
            found: list[tuple[int, int]] = spark.ask(processes.worker_bytes, work, some)
            peaks[what] = max(peak for peak, _ in found) / 2**20
    share = max(share for _, share in found) / 2**20
    yield Measure(f"{label}.eighth", peaks["eighth"], "MiB")
    yield Measure(f"{label}.share", share, "MiB")
    ratio = peaks["all"] / peaks["eighth"]
    yield _at_most(f"{label}.all", peaks["all"], "MiB", ratio, f"{label}.eighth", _MEMORY_GOAL)


PARTS: Final[dict[str, Callable[[Any], Iterator[Measure]]]] = {
    "speed": _speed,
    "joins": _joins,
    "evolving": _evolving,
    "memory": _memory,
    "ranked": lambda bench: jobs.ranked(bench.options.rows, bench.options.size_max),
    "replay": lambda bench: jobs.replay(bench.options.size_max),
    "stream": lambda bench: jobs.stream(bench.options.size_max),
    "deliver": lambda bench: jobs.deliver(bench.options.size_max),
    "backtest": lambda bench: jobs.backtest(
        bench.folder, bench.options.rows, bench.options.size_max, bench.tell
    ),
    "metrics": lambda bench: pipeline_metrics_bench.measures(bench.folder),
    "lake": lambda bench: jobs.lake(bench.folder, bench.options.rows, bench.options.size_max),
    "durable": lambda bench: pipeline_lake_bench.durable(
        is_small=bench.options.size_max <= jobs.SMALL_MAX
    ),
    "store": lambda bench: pipeline_lake_bench.store(
        bench.folder, bench.options.rows, bench.size(_EVOLVING_SIZE)
    ),
    "start": lambda bench: jobs.start(bench.options.size_max),
}
"""Each part by its name, in the order in which they are measured."""
