"""Workers that read files themselves give what Spark gives, or leave it to Spark."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rove.pipeline import parquet_scan
from rove.pipeline.matching import match
from rove.pipeline.parquet_scan import Scan, ScanError, Slice, cut, scan_of
from rove.pipeline.ranking import rank

NOON = datetime.datetime(2026, 5, 1, 12, tzinfo=datetime.UTC)
COLUMNS: dict[str, Any] = {
    "id": pa.array(range(1000), pa.int64()),
    "small": pa.array([None if n % 7 == 0 else n % 100 for n in range(1000)], pa.int8()),
    "unsigned": pa.array(range(1000), pa.uint16()),
    "x": pa.array([n / 3 for n in range(1000)], pa.float32()),
    "name": pa.array([f"n{n % 10}" for n in range(1000)]).dictionary_encode(),
    "at": pa.array([NOON + datetime.timedelta(seconds=n) for n in range(1000)]),
    "ok": pa.array([n % 2 == 0 for n in range(1000)]),
}
TEXTS = ["x > 200", "small < 3 AND name = 'n1'", "unsigned >= 998", "id BETWEEN t AND t + 5"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files, one of several row groups, in a place with a space and a sign in its name."""
    place = tmp_path / "a table, 50%"
    place.mkdir()
    table = pa.table(COLUMNS)
    pq.write_table(table.slice(0, 900), place / "one.parquet", row_group_size=100)
    pq.write_table(table.slice(900), place / "two.parquet", use_deprecated_int96_timestamps=True)
    return place


def found(df: Any, **how: Any) -> list[tuple[Any, ...]]:
    rows = match(df, TEXTS, at="at", **how).collect()
    return sorted(tuple(row) for row in rows)


def test_both_ways_find_the_same(spark: Any, folder: Path) -> None:
    files = spark.read.parquet(str(folder))
    assert scan_of(files, files.columns) is not None
    everything = files.where("id >= 0")
    assert scan_of(everything, everything.columns) is None
    assert len(found(files)) > 300
    # Nulls do not compare with numbers; as text, everything does.
    assert list(map(repr, found(files))) == list(map(repr, found(everything)))
    assert match(files, TEXTS, at="at").schema == match(everything, TEXTS, at="at").schema


def test_a_column_that_a_file_lacks_is_null_there(spark: Any, folder: Path) -> None:
    pq.write_table(pa.table({"ID": [5000], "at": [NOON]}), folder / "three.parquet")
    files = spark.read.schema("id long, x float, at timestamp").parquet(str(folder))
    scan = scan_of(files, files.columns)
    assert scan is not None
    rows = [
        row for task in range(len(scan.tasks)) for b in scan.read(task) for row in b.to_pylist()
    ]
    assert len(rows) == 1001
    assert {"id": 5000, "x": None, "at": NOON} in rows


def test_what_is_not_simply_files_is_left_to_spark(spark: Any, folder: Path) -> None:
    files = spark.read.parquet(str(folder))
    files.createOrReplaceTempView("as_they_lie")
    assert scan_of(spark.table("as_they_lie"), ["id"]) is not None, "only a name"
    for other in (
        spark.createDataFrame([(1,)], "id long"),
        files.union(files),
        files.limit(5),
        files.select("id"),
        spark.read.option("modifiedAfter", "2020-01-01T00:00:00").parquet(str(folder)),
        spark.read.json(spark.sparkContext.parallelize(['{"id": 1}'])),
    ):
        assert scan_of(other, ["id"]) is None
    assert scan_of(files, []) is None
    files.cache()
    try:
        assert scan_of(files, ["id"]) is None, "it may be in memory"
    finally:
        files.unpersist()


def test_folders_that_are_columns_and_unusual_types_are_left_to_spark(
    spark: Any, tmp_path: Path
) -> None:
    table = pa.table({"id": [1], "list": [[1, 2]], "day": [datetime.date(2026, 1, 1)]})
    (tmp_path / "day=1").mkdir()
    pq.write_table(table, tmp_path / "day=1" / "x.parquet")
    assert scan_of(spark.read.parquet(str(tmp_path)), ["id"]) is None
    files = spark.read.parquet(str(tmp_path / "day=1" / "x.parquet"))
    assert scan_of(files, ["id", "list"]) is None
    assert scan_of(files, ["id"]) is not None


def test_tasks_are_alike_and_cover_everything(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [str(folder / "one.parquet"), str(folder / "two.parquet")]
    assert list(cut(paths, 2)) == [(Slice(paths[0]), Slice(paths[1]))], "too little to cut"
    monkeypatch.setattr(parquet_scan, "SLICE_BYTES_MIN", 1)
    tasks = list(cut(paths, 1))
    assert 3 <= len(tasks) <= 8
    groups = [group for task in tasks for each in task for group in each.groups or ()]
    assert groups == list(range(9))
    schema = pa.schema([("id", pa.int64())]).serialize().to_pybytes()
    scan = Scan(tuple(tasks), schema)
    ids = [id for n in range(len(tasks)) for b in scan.read(n) for id in b["id"].to_pylist()]
    assert ids == list(range(1000))


def test_a_file_that_is_gone_is_named(folder: Path) -> None:
    schema = pa.schema([("id", pa.int64())]).serialize().to_pybytes()
    missing = str(folder / "three.parquet")
    with pytest.raises(ScanError, match=r"cannot read .*three\.parquet"):
        list(Scan(((Slice(missing),),), schema).read(0))


@pytest.mark.soak
def test_ranks_over_files_are_the_same(spark: Any, folder: Path) -> None:
    files = spark.read.parquet(str(folder))
    texts = [
        "x > 20 ORDER BY x DESC LIMIT 3 WITHIN 60 SECONDS",
        "ORDER BY small LIMIT 1 WITHIN 9 PUBLICATIONS",
    ]
    both = [
        sorted(tuple(row) for row in rank(df, texts, at="at", order="id", keep=["id"]).collect())
        for df in (files, files.where("id >= 0"))
    ]
    assert len(both[0]) > 900
    assert both[0] == both[1]
