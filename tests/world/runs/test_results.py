"""What a run comes to is its last sample, by the order of the engines."""

from __future__ import annotations

from rove.world.runs.results import EngineFacts, RunResult, RunSample


def test_the_last_sample_counts() -> None:
    result = RunResult(
        scenario="dense",
        title="Many",
        seed=1,
        players=2,
        entities=2,
        servers=1,
        seconds=10.0,
        ticks=100,
        trace_hash="ab",
        engines=(EngineFacts("tile", 0.3, live=True), EngineFacts("area", 0.7, live=False)),
        samples=(
            RunSample(1.0, "area", {"n": 1.0}),
            RunSample(1.0, "tile", {"n": 2.0}),
            RunSample(2.0, "area", {"n": 3.0}),
            RunSample(2.0, "tile", {"n": 4.0}),
        ),
        heard=(RunSample(1.0, "smog", {"n": 5.0}), RunSample(2.0, "smog", {"n": 6.0})),
        elapsed_s=4.0,
    )
    assert list(result.summary().items()) == [("tile", {"n": 4.0}), ("area", {"n": 3.0})]
    assert result.audiences() == {"smog": {"n": 6.0}}
    assert result.speed == 2.5


def test_without_a_clock_there_is_no_speed() -> None:
    nothing = RunResult("a", "b", 1, 0, 0, 1, 1.0, 10, "ab", (), (), ())
    assert nothing.speed is None
    assert nothing.summary() == {}
