"""The bench of metrics, in small: everything is read and added up."""

from pathlib import Path

from rove.bench.pipeline.metrics import measures


def test_every_reading_is_added_up(tmp_path: Path) -> None:
    found = {one.name: one for one in measures(tmp_path, rows=30, series=8)}
    # 300 s of eight series, by 10 s, by minutes and by hours.
    minutes, hours = 6, 1
    assert 8 * (30 + minutes - 1 + hours) <= found["pipeline.metrics.240.rollups"].value
    assert found["pipeline.metrics.240.rollups"].value <= 8 * (30 + minutes + hours + 1)
    assert found["pipeline.metrics.240"].goal == "≤ 5 s for 160,000"
    assert found["pipeline.metrics.240.cpu"].value > 0
