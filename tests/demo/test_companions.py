"""The pipeline beside the demonstration, where it cannot run."""

import json
import urllib.request
from pathlib import Path

import pytest

from rove.bench.pipeline.feed import Feed, publish_some
from rove.demo.companions import SCENARIO, SparkBeside, monitor_beside
from rove.lake.log import open_for_writing
from tests.effort import PATIENCE_S


def test_an_empty_lake_is_waited_for(tmp_path: Path) -> None:
    open_for_writing(tmp_path)
    with SparkBeside(tmp_path, {"smog": "NO2 > 40"}) as spark:
        assert spark.counts() == {"smog": 0}
        assert spark.trouble == ""


@pytest.mark.soak
def test_what_keeps_it_from_running_is_told(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    feed.publish("air/1", {"NO2": 41}, 1.0)
    feed.write()
    [damaged] = (tmp_path / "kind=publications").rglob("*.parquet")
    damaged.write_bytes(b"no parquet")
    with SparkBeside(tmp_path, {"smog": "NO2 > 40"}) as spark:
        *_, counts = spark.catch_up(5)
        assert counts == {"smog": 0}
        assert "rove: error: match: cannot read" in spark.trouble


def test_what_is_being_installed_is_waited_for(tmp_path: Path) -> None:
    lake, ended = tmp_path / "lake", tmp_path / "ended"
    open_for_writing(lake)
    with SparkBeside(lake, {"smog": "NO2 > 40"}, ended) as spark:
        catching_up = spark.catch_up(5)
        for said in ("", "\n"):
            assert next(catching_up) == {"smog": 0}
            assert spark.is_installing()
            ended.write_text(said)
        ended.write_text("2\n")
        assert list(catching_up)[-1] == {"smog": 0}
        assert spark.trouble.startswith("its installation failed")


def test_it_starts_when_it_has_been_installed(tmp_path: Path) -> None:
    ended = tmp_path / "ended"
    with SparkBeside(tmp_path, {"smog": "NO2 > 40"}, ended) as spark:
        assert spark.is_installing()
        ended.write_text("0\n")
        assert not spark.is_installing()
        assert spark.trouble == ""


def test_an_end_before_spark_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROVE_SPARK_CONF", "no setting")
    feed = Feed(tmp_path)
    publish_some(feed, 6, 0.0)
    feed.write()
    with SparkBeside(tmp_path, {"smog": "NO2 > 40"}) as spark:
        *_, counts = spark.catch_up(5)
        assert counts == {"smog": 0}
        assert "rove: error: 'no' is no setting of Spark" in spark.trouble


@pytest.mark.soak
def test_a_world_is_there_to_look_at() -> None:
    with monitor_beside() as beside:
        with urllib.request.urlopen(f"{beside.url()}/api/world", timeout=PATIENCE_S) as answer:
            assert json.load(answer)["scenario"] == SCENARIO
        with urllib.request.urlopen(f"{beside.url()}/api/hello", timeout=PATIENCE_S) as answer:
            assert json.load(answer)["parts"]["metrics"] is True
