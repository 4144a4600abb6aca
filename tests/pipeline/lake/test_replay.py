"""A recorded life of a broker against Spark over its lake, notification by notification."""

import itertools
import multiprocessing
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as f

from rove.base.processes import cores
from rove.lake.log import open_for_writing
from rove.pipeline.lake.log import Lake, LakeError
from rove.pipeline.lake.replay import replay
from tests.effort import is_soak
from tests.interop.recorded import Notified, Recording, record


def found_by_spark(spark: Any, recording: Recording, **how: Any) -> list[Notified]:
    frame = replay(spark, recording.read, until=recording.world.now, buckets=3, **how)
    rows = frame.select("subscription", "id", "promoted").collect()
    return [Notified(*row) for row in rows]


ONE_SEGMENT = 2**62


@pytest.mark.parametrize(
    ("seed", "begun_min"),
    [
        (42, 5),
        pytest.param(41, ONE_SEGMENT, marks=pytest.mark.soak),
    ],
)
def test_spark_finds_what_the_broker_did(
    tmp_path: Path, spark: Any, seed: int, begun_min: int
) -> None:
    recording = Recording(tmp_path / "lake", seed, elastic=seed == 42)
    recording.play(900 if is_soak() else 500)
    expected = Counter(recording.notified())
    assert len(expected) > 300
    assert sum(one.promoted for one in expected) > 10
    assert Counter(found_by_spark(spark, recording, begun_min=begun_min)) == expected


@pytest.mark.soak
def test_spark_finds_what_the_broker_did_in_a_long_life(tmp_path: Path, spark: Any) -> None:
    equal_in_spark(tmp_path, spark, lives=1, publications=3_000, bursts=(1, 20))


@pytest.mark.soak
def test_spark_finds_what_the_broker_did_of_ten_million(tmp_path: Path, spark: Any) -> None:
    """An hour on two cores that others used too, three quarters of it the simulated brokers'."""
    bursts = (1, 10, 100, 1_000)
    equal_in_spark(tmp_path, spark, lives=4, publications=10_000_000, bursts=bursts)


def equal_in_spark(
    tmp_path: Path, spark: Any, lives: int, publications: int, bursts: Sequence[int]
) -> None:
    """Lives side by side, each with its lake, then Spark over one lake after the other."""
    folders = [tmp_path / f"lake{number}" for number in range(lives)]
    seeds = range(44, 44 + lives)
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(lives, cores()), mp_context=fresh) as processes:
        each = (itertools.repeat(publications // lives), itertools.repeat(bursts))
        ends = list(processes.map(record, folders, seeds, *each))
    for folder, end in zip(folders, ends, strict=True):
        compared = difference(spark, Lake(folder), end)
        differing = compared.where("more != 0")
        told = compared.selectExpr(
            "sum(told)", "coalesce(sum(told) FILTER (WHERE promoted), 0)", "count_if(more != 0)"
        )
        (row,) = told.collect()
        print(f"{folder.name}: notifications, promoted, different: {tuple(row)}")
        assert row[2] == 0, differing.limit(20).collect()
        assert row[0] > publications // lives // 2
        assert row[1] > 10


def difference(spark: Any, lake: Lake, until: float) -> Any:
    """By notification, how often the broker told of it, and how often more than that Spark did.

    Whose turn it is in a group of those who share is not in the log, so a group counts as one.
    """
    rows = lake.notifications(spark)
    why = f.coalesce(f.decode("payload", "utf-8"), f.lit(""))
    first = rows.where(~why.contains("initial"))
    expected = first.select(
        f.explode("subscriptions").alias("subscription"),
        "id",
        why.contains("promoted").alias("promoted"),
        f.lit(1).alias("told"),
        f.lit(-1).alias("more"),
    )
    found = replay(spark, lake, until=until).select(
        "subscription", "id", "promoted", f.lit(0).alias("told"), f.lit(1).alias("more")
    )
    shared = [(e.number, f"{e.share}/{e.filter}") for e in lake.events() if e.share is not None]
    groups = spark.createDataFrame(shared, "subscription long, team string").distinct()
    return (
        expected.unionAll(found)
        .join(f.broadcast(groups), "subscription", "left")
        .groupBy(
            f.when(f.col("team").isNull(), f.col("subscription")).alias("subscription"),
            "team",
            # Numbers are quicker, and nobody publishes without one.
            f.substring("id", 2, 20).cast("long").alias("id"),
            "promoted",
        )
        .agg(f.sum("told").alias("told"), f.sum("more").alias("more"))
    )


def test_a_range_of_the_past_on_one_channel(tmp_path: Path, spark: Any) -> None:
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
    open_for_writing(tmp_path)
    with pytest.raises(LakeError, match="has no publications yet"):
        replay(spark, Lake(tmp_path))
