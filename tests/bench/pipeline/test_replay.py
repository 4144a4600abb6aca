"""The benchmark of replays runs through, and stops where an answer is wrong."""

from typing import Any

import pytest

from rove.bench.match.engines import WrongAnswerError
from rove.bench.pipeline import replay as bench


@pytest.mark.soak
def test_moving_is_measured_beside_resting(spark: Any) -> None:
    resting, moving, cpu = bench.run(spark, followers=20, changes=30, publications=400)
    assert moving.name == "pipeline.replay.20x30.400"
    assert (moving.against, moving.goal) == (resting.name, None)
    assert cpu.value > 0


@pytest.mark.soak
def test_another_answer_stops_it(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench._World, "expected", lambda *_: {(0, 0)})
    with pytest.raises(WrongAnswerError, match="differs from a loop"):
        list(bench.run(spark, followers=2, changes=3, publications=40))
