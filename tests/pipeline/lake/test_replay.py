"""A recorded life of a broker against Spark over its lake, notification by notification."""

import itertools
import multiprocessing
import random
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as f

from rove.base.processes import cores
from rove.lake.log import open_for_writing
from rove.pipeline.lake.log import Lake, LakeError
from rove.pipeline.lake.replay import Segments, cuts_of, open_segments, replay, write_segments
from rove.pipeline.lake.versions import FOR_EVER, Version
from rove.pipeline.matching.index_files import IndexFileError
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


# --- segments -------------------------------------------------------------------------------------


def random_versions(seed: int, count: int) -> list[Version]:
    """Versions of all lengths, many that begin together."""
    chance = random.Random(seed)
    versions = []
    for number in range(count):
        since = chance.choice((-1, chance.randrange(10_000), chance.randrange(100) * 100))
        until = chance.choice((FOR_EVER, since + chance.randrange(1, 300)))
        versions.append(Version(number=number, text="x > 1", since=since, until=until))
    return versions


def batch_of(positions: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"position": pa.array(positions, pa.int64())})


@pytest.mark.parametrize("begun_min", [1, 7, 10**9])
def test_each_position_meets_all_versions_that_hold(tmp_path: Path, begun_min: int) -> None:
    versions = random_versions(1, 400)
    count = write_segments(versions, tmp_path / "some", begun_min)
    segments = open_segments(str(tmp_path / "some"))
    assert len(segments) == count
    assert (count == 1) == (begun_min > 400)
    edges = {position + step for one in versions for position in (one.since,) for step in (0, 1)}
    for position in sorted(edges - {-1}):
        (number,) = segments.numbers(batch_of([position])).tolist()
        met = {one.number for one in segments.versions(number)}
        assert met >= {one.number for one in versions if one.since < position <= one.until}


def test_segments_are_short_where_much_changes_and_few_otherwise(tmp_path: Path) -> None:
    """A thousand that stay, and a hundred thousand changes of a hundred others."""
    staying = [Version(number=one, text="") for one in range(1_000)]
    moving = [
        Version(number=1_000 + at % 100, text="", since=at, until=at + 100) for at in range(100_000)
    ]
    write_segments([*staying, *moving], tmp_path / "some")
    segments = Segments(str(tmp_path / "some"))
    sizes = [len(segments.versions(number)) for number in range(len(segments))]
    assert max(sizes) <= 2_500
    assert sum(sizes) <= 3 * (len(staying) + len(moving))


def test_those_that_begin_together_stay_together() -> None:
    since = np.array([-1] * 10 + [5] * 10 + [9], np.int64)
    until = np.full(21, FOR_EVER, np.int64)
    assert cuts_of(since, until, begun_min=3) == [5, 9]
    assert cuts_of(since[:10], until[:10], begun_min=3) == []
    assert cuts_of(since[:0], until[:0]) == []


def test_a_batch_is_split_and_an_index_is_written_once(tmp_path: Path) -> None:
    versions = [
        Version(number=at, text="x > 1", since=at * 10, until=at * 10 + 10) for at in range(6)
    ]
    assert write_segments(versions, tmp_path / "some", begun_min=2) == 3
    segments = Segments(str(tmp_path / "some"))
    parts = [here["position"].to_pylist() for _, here in segments.split(batch_of([1, 50, 2, 51]))]
    assert parts == [[1, 2], [50, 51]]
    written = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.index")}
    assert len(written) == 2
    list(Segments(str(tmp_path / "some")).split(batch_of([1, 50, 51])))
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.index")} == written


def test_what_holds_no_versions_is_named(tmp_path: Path) -> None:
    with pytest.raises(IndexFileError, match=r"cannot open the index .*none"):
        Segments(str(tmp_path / "none"))
    (tmp_path / "other").write_bytes(b"something else")
    with pytest.raises(IndexFileError, match=r"cannot open the index .*other"):
        Segments(str(tmp_path / "other"))
