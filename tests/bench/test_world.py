"""The bench of the world measures what it says."""

from __future__ import annotations

import msgspec
import pytest

from rove.bench import world as world_bench
from rove.bench.world import QUICK, SUITE


@pytest.mark.soak
def test_speed_and_memory_in_small() -> None:
    options = msgspec.structs.replace(QUICK, players=(400,), parts=("speed", "memory"))
    told: list[str] = []
    measures = {measure.name: measure for measure in SUITE.run(options, told.append)}
    assert list(measures) == ["world.speed1.400", "world.speed2.400", "world.memory.400"]
    one, two = measures["world.speed1.400"], measures["world.speed2.400"]
    assert two.ratio == pytest.approx(two.value / one.value)
    assert (two.against, two.goal) == (one.name, None), "goals are for 1,000 and 10,000"
    assert measures["world.memory.400"].value > 1
    assert told[0] == "speed"


@pytest.mark.soak
def test_evolving_saves_what_was_published_of_the_operations_and_errs_no_more() -> None:
    rows = world_bench.walk_far(40, 60.0)
    area, evolving = rows["area"], rows["evolving"]
    before = world_bench.operations(area)
    assert before > 40 * 60
    for design in ("evolving", "evolving-pes", "evolving-lees", "evolving-clees"):
        assert world_bench.operations(rows[design]) <= 0.032 * before
    for wrong in ("missing_s", "stale_s"):
        assert evolving[wrong] <= area[wrong]
    assert evolving["update_notifications"] > 0
