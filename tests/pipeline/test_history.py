"""A recorded life of a broker against Spark over its lake, notification by notification."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as f
from tests.interop.recorded import Notified, Recording

from rove.pipeline.history import replay
from rove.pipeline.lake import Lake, LakeError


def found_by_spark(spark: Any, recording: Recording, **how: Any) -> list[Notified]:
    frame = replay(spark, recording.read, until=recording.world.now, buckets=3, **how)
    rows = frame.select("subscription", "id", "promoted").collect()
    return [Notified(*row) for row in rows]


@pytest.mark.parametrize("seed", [41, 42])
def test_spark_finds_what_the_broker_did(tmp_path: Path, spark: Any, seed: int) -> None:
    recording = Recording(tmp_path / "lake", seed)
    recording.play(900)
    expected = Counter(recording.notified())
    assert len(expected) > 500
    assert sum(one.promoted for one in expected) > 10
    assert Counter(found_by_spark(spark, recording)) == expected


@pytest.mark.soak
def test_spark_finds_what_the_broker_did_of_ten_million(tmp_path: Path, spark: Any) -> None:
    """An hour or more, nearly all of it the simulated broker's."""
    equal_in_spark(tmp_path, spark, 10_000_000)


def equal_in_spark(tmp_path: Path, spark: Any, publications: int) -> None:
    recording = Recording(tmp_path / "lake", 44, rows_per_file=65_536)
    recording.play(publications // 85, publishing=200, burst=100)  # of 100 steps, 86 publish
    assert len(recording.read.files("publications")) > 4
    there = spark.read.parquet(str(recording.folder / "notifications"))
    why = f.coalesce(f.decode("payload", "utf-8"), f.lit(""))
    first = there.where(f.size("earlier") == 0)
    expected = first.where(~why.contains("initial")).select(
        f.explode("subscriptions").alias("subscription"), "id", why.contains("promoted").alias("p")
    )
    found = replay(spark, recording.read, until=recording.world.now)
    # Once, since both comparisons would compute it.
    kept = str(tmp_path / "found")
    found.select("subscription", "id", f.col("promoted").alias("p")).write.parquet(kept)
    found = spark.read.parquet(kept)
    assert expected.count() > publications / 10
    assert found.exceptAll(expected).limit(5).collect() == []
    assert expected.exceptAll(found).limit(5).collect() == []


def test_a_stretch_of_the_past_on_one_channel(tmp_path: Path, spark: Any) -> None:
    recording = Recording(tmp_path / "lake", 43, ranked=False)
    recording.play(400)
    rows = recording.publications().to_pylist()
    middle, last = rows[60]["position"], rows[200]["position"]
    wanted = {
        row["id"]
        for row in rows
        if middle < row["position"] <= last and row["topic"].startswith("air/")
    }
    found = found_by_spark(spark, recording, after=middle, up_to=last, channels=["air"])
    expected = [one for one in recording.notified() if one.id in wanted]
    assert len(expected) > 20
    assert sorted(found) == sorted(expected)


def test_an_empty_lake_says_so(tmp_path: Path, spark: Any) -> None:
    with pytest.raises(LakeError, match="has no publications yet"):
        replay(spark, Lake(tmp_path))
