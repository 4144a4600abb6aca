"""The pipeline beside the demonstration, where it cannot run."""

from pathlib import Path

from rove.lab.demo_spark import SparkBeside


def test_an_empty_lake_is_waited_for(tmp_path: Path) -> None:
    with SparkBeside(tmp_path, {"smog": "NO2 > 40"}) as spark:
        assert spark.counts() == {"smog": 0}
        assert spark.trouble == ""


def test_what_keeps_it_from_running_is_told(tmp_path: Path) -> None:
    (tmp_path / "_position").write_text("5\n")
    (tmp_path / "subscriptions").write_text("no folder")
    with SparkBeside(tmp_path, {"smog": "NO2 > 40"}) as spark:
        *_, counts = spark.catch_up(5)
        assert counts == {"smog": 0}
        assert "rove: error:" in spark.trouble
