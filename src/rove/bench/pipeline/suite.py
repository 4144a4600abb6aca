"""`rove bench pipeline`: matching on Spark, compared with the same kernel without it and with SQL.

Everything is measured in one run. Answers are checked first: for some publications with the full
scan, for all of them with the plain kernel (the number of pairs). Names are
`pipeline.WORKLOAD.SUBSCRIPTIONS.WHAT`:

- `kernel1`, `kernel2`: the matcher in one process per core, Arrow batches in memory, pairs counted;
- `spark1`, `spark2`: Spark with one worker on one core, and two on two; publications are read from
  Parquet, and the matches come back to the JVM as packed numbers (`rove.pipeline.match`);
- `spark2.rows`: the same of a DataFrame that is not simply files, so that Spark reads them and
  sends its rows to the workers;
- `spark2.grouped`, `spark2.pairs`: the same as arrays, and as a row for each pair;
- `undisturbed`: whether two kernels were nearly twice as fast as one; if not, something else ran on
  the machine, and none of these ratios counts;
- `between`, `grid`, `match`: a join by BETWEEN, timed on a fiftieth of the rows, a join over a
  grid of cells made beforehand, and `match`, all to rows of pairs that a sink drops;
- `resting`, `travelling`: areas that stand still, and the same that move, at 4 s of event time;
- `memory`: the most that a worker had, after an eighth of the rows and after all;
- ranked windows, replays, the stream, the delivery of notifications and backtests: see the modules
  that `rove.bench.pipeline.jobs` imports; roll-ups: `metrics`; a growing lake, durable publishing
  with it, an object store, and starting Spark: `lake`.

A million publications by default; ten with `full`, against up to a million subscriptions, on two
workers. Takes 15 minutes, two hours with `full`; other programs on the machine halve the
ratios.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from rove.bench.harness import Bench, Setting, Suite, SuiteOptions, Tell
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

_KERNEL_GOAL_SIZE: Final = 100_000
_SCALING_GOAL: Final = 1.7
_CONTROL_GOAL: Final = 1.6
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


class PipelineOptions(SuiteOptions, frozen=True, kw_only=True):
    """How much to measure."""

    workloads: Sequence[Name] = WORKLOADS
    sizes: Sequence[int] = (10_000, 100_000)
    """Numbers of subscriptions, ascending."""
    rows: int = 1_000_000
    workers: Sequence[int] = (1, 2)
    rounds: int = 6
    """At most, and fewer where they take long; Java needs some to warm up."""
    size_max: int = 1_000_000
    """Of the subscriptions that the parts choose by themselves."""


FULL: Final = PipelineOptions(sizes=(10_000, 100_000, 1_000_000), rows=10_000_000, workers=(2,))
QUICK: Final = PipelineOptions(sizes=(500,), rows=20_000, rounds=1, size_max=500)


class PipelineBench(Bench[PipelineOptions]):
    """Spark sessions are started when they are first needed."""

    def __init__(self, options: PipelineOptions, tell: Tell) -> None:
        super().__init__(options, tell)
        self._sparks: dict[int, Process] = {}

    def spark(self, workers: int) -> Process:
        if workers not in self._sparks:
            self._sparks[workers] = self.open(processes.spark(workers))
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


def _speed(bench: PipelineBench) -> Iterator[Measure]:
    drawn: list[Measure] = []
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
                    drawn.append(measure)
            yield from _scaling(label, speeds)
    _draw(bench, drawn)


def _draw(bench: PipelineBench, measures: Sequence[Measure]) -> None:
    """One plot for each workload: speed against the number of subscriptions."""
    for name in bench.options.workloads:
        if (path := bench.plot(f"pipeline-{name}")) is not None:
            speed_plot(measures, f"pipeline.{name}", path, _TITLES[name], UNIT)


def _beside_kernel(
    bench: PipelineBench, work: Work, boxes: Boxes, label: str, workers: int
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
    on_spark = Measure(f"{label}.spark{workers}", per_s, UNIT).compared(plain)
    has_goal = len(boxes) >= _KERNEL_GOAL_SIZE
    yield on_spark.at_least(0.6, "×") if has_goal else on_spark
    if workers == max(bench.options.workers) and len(boxes) <= _FORMS_MAX:
        for form in ("rows", "grouped", "pairs"):
            bench.tell(f"{label}: {form}")
            rounds = bench.options.rounds if form == "rows" else 1
            other = bench.per_s(spark.ask(processes.timed, work, form, rounds))
            yield Measure(f"{on_spark.name}.{form}", other, UNIT).compared(on_spark)


def _scaling(label: str, speeds: dict[str, float]) -> Iterator[Measure]:
    """What a second core brings: to the plain kernel, which is the control, and to Spark.

    Two processes that share nothing are nearly twice as quick as one. Where they were not,
    something else had the machine, and no goal of that size was reached or missed.
    """
    goals = {"undisturbed": ("kernel", _CONTROL_GOAL), "scaling": ("spark", _SCALING_GOAL)}
    for what, (engine, goal) in goals.items():
        if {f"{engine}1", f"{engine}2"} <= speeds.keys():
            one = Measure(f"{label}.{engine}1", speeds[f"{engine}1"], UNIT)
            two = Measure(f"{label}.{what}", speeds[f"{engine}2"], UNIT)
            yield two.compared(one).at_least(goal, "×")


# -- joins -----------------------------------------------------------------------------------------


def _joins(bench: PipelineBench) -> Iterator[Measure]:
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
    between = Measure(f"{label}.between", sample / found["between"][0], UNIT)
    yield between
    grid = Measure(f"{label}.grid", bench.per_s(found["grid"][0]), UNIT)
    yield grid
    yield Measure(f"{label}.match", mine, UNIT).compared(grid).at_least(1, "×")
    yield Measure(f"{label}.match.sql", mine, UNIT).compared(between).at_least(150, "×")


# -- areas that travel -----------------------------------------------------------------------------


def _evolving(bench: PipelineBench) -> Iterator[Measure]:
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
    # The ratio is that of the durations, so that it grows with the cost of moving.
    travelling = Measure(f"{label}.travelling", per_s, UNIT, ratio, f"{label}.resting")
    yield travelling.at_most(1.5, "×")


# -- memory ----------------------------------------------------------------------------------------


def _memory(bench: PipelineBench) -> Iterator[Measure]:
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
    eighth = Measure(f"{label}.eighth", peaks["eighth"], "MiB")
    yield eighth
    yield Measure(f"{label}.share", share, "MiB")
    yield Measure(f"{label}.all", peaks["all"], "MiB").compared(eighth).at_most(1.2, "×")


SUITE: Final = Suite(
    name="pipeline",
    parts={
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
    },
    options=PipelineOptions(),
    quick=QUICK,
    full=FULL,
    accepts={
        "workload": Setting("workloads"),
        "subscriptions": Setting("sizes"),
        "plots": Setting("plots", parts=("speed",)),
    },
    needs_linux_to="reads memory from /proc",
    bench=PipelineBench,
)
