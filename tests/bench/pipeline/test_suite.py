"""The bench of the pipeline measures what it says, and compares answers before it does."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import msgspec
import pytest

from rove.bench.match.engines import WrongAnswerError
from rove.bench.measure import Measure
from rove.bench.pipeline import suite as pipeline_bench
from rove.bench.pipeline.suite import SUITE, PipelineBench, PipelineOptions
from rove.bench.pipeline.workload import Pairs, Work, judged
from rove.bench.processes import Process
from rove.testing.boxes import Boxes

SMALL = PipelineOptions(
    workloads=("W2",), sizes=(300,), rows=8_000, workers=(2,), rounds=1, size_max=300
)


@pytest.mark.soak
def test_a_small_run_beside_the_kernel_and_beside_sql() -> None:
    options = msgspec.structs.replace(SMALL, parts=("speed", "joins", "evolving"))
    told: list[str] = []
    measures = {measure.name: measure for measure in SUITE.run(options, told.append)}
    prefix = "pipeline.W2.300."
    assert {name.removeprefix(prefix) for name in measures} == {
        "kernel2", "spark2", "spark2.rows", "spark2.grouped", "spark2.pairs",
        "between", "grid", "match", "match.sql", "resting", "travelling",
    }  # fmt: skip
    assert all(measure.value > 0 for measure in measures.values())
    spark = measures[f"{prefix}spark2"]
    kernel = measures[f"{prefix}kernel2"]
    assert spark.ratio == pytest.approx(spark.value / kernel.value)
    assert (spark.against, spark.goal) == (kernel.name, None), "goals are for 100,000 and more"
    assert measures[f"{prefix}match.sql"].goal == ">= 150×"
    assert measures[f"{prefix}travelling"].goal == "<= 1.5×"
    assert "speed" in told


@pytest.mark.soak
def test_everything_in_small() -> None:
    options = msgspec.structs.replace(SMALL, workloads=("W1", "W2"), workers=(1, 2))
    measures = {measure.name: measure for measure in SUITE.run(options)}
    scaling = measures["pipeline.W1.300.scaling"]
    one, two = (measures[f"pipeline.W1.300.spark{workers}"].value for workers in (1, 2))
    assert scaling.ratio == pytest.approx(two / one)
    memory = measures["pipeline.W1.300.memory2.all"]
    assert memory.unit == "MiB"
    assert memory.value > 50


def test_a_picture_has_a_line_for_each_engine(tmp_path: Path) -> None:
    measures = [
        Measure(f"pipeline.W1.{size}.{what}", 1e9 / size, "rows/s")
        for size in (10_000, 100_000)
        for what in ("kernel2", "spark2", "spark2.pairs")
    ]
    options = PipelineOptions(workloads=["W1"], plots=tmp_path / "new")
    bench = PipelineBench(options, lambda text: None)
    pipeline_bench._draw(bench, measures)
    (path,) = bench.plots
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_busy_machine_is_told_from_a_slow_spark() -> None:
    speeds = {"kernel1": 100.0, "kernel2": 90.0, "spark1": 40.0, "spark2": 88.0}
    control, scaling = pipeline_bench._scaling("here", speeds)
    assert (control.name, control.ratio, control.reached) == ("here.undisturbed", 0.9, False)
    assert (scaling.name, scaling.reached) == ("here.scaling", True)
    quiet = {"kernel1": 100.0, "kernel2": 190.0}
    (alone,) = pipeline_bench._scaling("here", quiet)
    assert alone.reached
    assert list(pipeline_bench._scaling("here", {"kernel2": 1.0, "spark2": 1.0})) == []


class Liar:
    """A Spark that has lost a pair."""

    def ask(self, function: object, work: Work, rows: int) -> Pairs:
        return judged(work, self.boxes, rows)[1:]

    def __init__(self, boxes: Boxes) -> None:
        self.boxes = boxes


def test_a_wrong_answer_is_not_measured() -> None:
    with PipelineBench(SMALL, lambda text: None) as bench:
        work, boxes = bench.work("W2", 3_000)
        with pytest.raises(WrongAnswerError, match="here differs from the full scan"):
            bench.check(work, boxes, cast(Process, Liar(boxes)), "here")
