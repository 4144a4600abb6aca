"""The benchmark of delivering, in small: what it fills, and that it counts what came."""

from __future__ import annotations

from pathlib import Path

import pytest

from rove.bench.pipeline import deliver as bench
from rove.bench.pipeline.feed import Feed
from rove.lake.delta import DeltaTable
from rove.pipeline.lake.log import Lake


def test_everybody_meets_everything(tmp_path: Path) -> None:
    feed = Feed(tmp_path / "lake")
    for number in (1, 2):
        feed.subscribe(number, bench.TEXT, 1.0, engine="spark")
    positions = [feed.publish("air/1", {"x": x}, 2.0) for x in range(3)]
    feed.write()
    bench.everybody_meets_everything(Lake(tmp_path / "lake"), tmp_path / "out")
    rows = DeltaTable(tmp_path / "out").rows().to_pylist()
    pairs = [(row["position"], row["subscription"]) for row in rows]
    assert pairs == [(position, number) for position in positions for number in (1, 2)]


@pytest.mark.soak
def test_a_small_run_delivers_all_of_it_once(tmp_path: Path) -> None:
    rate, cost = bench.rates(tmp_path, 2, 30)
    assert (rate.unit, cost.unit) == ("notifications/s", "µs CPU each")
    assert rate.value > 0


def test_a_lake_that_does_not_fill_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "PATIENCE_S", 0.2)
    with pytest.raises(bench.DeliverBenchError, match="has not got all publications"):
        bench._lake_with(tmp_path / "lake", 1)
