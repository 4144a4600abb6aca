"""Whole jobs in the bench of the pipeline, in small."""

import pytest

from rove.bench.pipeline.suite import SUITE, PipelineOptions


@pytest.mark.soak
@pytest.mark.parametrize(
    "part",
    ["ranked", "replay", "stream", "deliver", "backtest", "lake", "durable", "store", "start"],
)
def test_a_job_in_small(part: str) -> None:
    assert part in SUITE.parts
    options = PipelineOptions(
        workloads=("W2",), sizes=(300,), rows=5_000, size_max=300, parts=(part,)
    )
    measures = list(SUITE.run(options))
    assert measures
    assert all(measure.value >= 0 for measure in measures)
    assert len({measure.name for measure in measures}) == len(measures)
