"""Ranked subscriptions on Spark: the same as without it, however the data lies."""

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rove.lang import RankedWindow, parse
from rove.pipeline.lake.version_index import RANKED_ROWS
from rove.pipeline.ranked.buckets import RankingError, run_bucket
from rove.pipeline.ranked.ranking import rank, rank_rows
from rove.pipeline.spark.dialect import ddl
from tests.effort import some
from tests.interop.by_state import index_of
from tests.interop.recorded import Recording

TEXTS = [
    ("best", "ORDER BY a LIMIT 2 WITHIN 30 SECONDS"),
    ("good", "a > 3 ORDER BY b DESC LIMIT 3 WITHIN 20 SECONDS"),
    ("near", "a BETWEEN 2 AND 9 ORDER BY abs(b - 0.5) LIMIT 1 WITHIN 8 PUBLICATIONS"),
    ("moving", "a > 2 + t / 100 ORDER BY a - t LIMIT 2 WITHIN 15 SECONDS"),
]


def readings(count: int) -> list[dict[str, Any]]:
    random = Random(3)
    return [
        {
            "at": float(number // 2),
            "n": number,
            "a": random.randrange(12),
            "b": random.choice((random.random(), None)),
            "name": f"r{number}",
        }
        for number in range(count)
    ]


def plainly(rows: list[dict[str, Any]], until: float) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for id, text in TEXTS:
        window = RankedWindow(parse(text))
        deliveries = []
        for row in rows:
            said = {name: value for name, value in row.items() if value is not None}
            deliveries += window.publish(said, row["at"], key=row["name"])
        deliveries += window.advance(until)
        found += [(id, one.key, one.at, float(one.score), one.promoted) for one in deliveries]
    return sorted(found)


@pytest.mark.parametrize("buckets", some([3, 1]))
def test_a_table_is_ranked_by_its_times(spark: Any, buckets: int) -> None:
    rows = readings(400)
    shuffled = Random(1).sample(rows, len(rows))
    df = spark.createDataFrame(pa.Table.from_pylist(shuffled)).repartition(3)
    ranked = rank(df, TEXTS, at="at", order="n", keep=["name"], buckets=buckets, until=1_000.0)
    assert ranked.columns == ["name", "subscription", "due", "score", "promoted"]
    found = [(row[1], row[0], *row[2:]) for row in ranked.collect()]
    assert sorted(found) == plainly(rows, 1_000.0)


def test_what_has_no_place_in_a_table_is_told(spark: Any) -> None:
    df = spark.createDataFrame([(1.0, 2.0)], "at double, score double")
    with pytest.raises(RankingError, match="no column when; there are at, score"):
        rank(df, TEXTS, at="when")
    with pytest.raises(RankingError, match="a column score already"):
        rank(df, TEXTS, at="at")
    with pytest.raises(RankingError, match="no column n"):
        rank(df, TEXTS, at="at", order="n", keep=["at"])


def test_the_lake_is_ranked_as_bucket_by_bucket(spark: Any, tmp_path: Path) -> None:
    recording = Recording(tmp_path / "lake", 2)
    recording.play(500)
    index = index_of(recording.read, tmp_path / "index")
    batches = recording.publications().to_batches(max_chunksize=64)
    rows = pa.Table.from_batches([index.ranked_rows(batch, 3) for batch in batches])
    events = list(recording.read.events())
    until = recording.world.now
    expected = []
    for bucket in range(3):
        own = rows.filter(pc.equal(rows["bucket"], bucket))
        expected += run_bucket(bucket, 3, None, events, own, until)[0].to_pylist()
    df = spark.createDataFrame(rows, ddl(RANKED_ROWS)).repartition(4)
    found = rank_rows(df, events, buckets=3, until=until).toArrow().to_pylist()
    assert len(found) > 50

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        return (row["at"], row["subscription"], row["position"])

    assert sorted(found, key=key) == sorted(expected, key=key)
