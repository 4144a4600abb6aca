"""Workers that read files themselves give what Spark gives, or refuse."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PythonException

from rove.lake.delta import DeltaTable
from rove.lake.files import write_file
from rove.lake.storage import LakeError
from rove.pipeline.matching.dataframes import match
from rove.pipeline.ranked.ranking import rank
from rove.pipeline.spark import parquet_files
from rove.pipeline.spark.parquet_files import (
    FileSlice,
    ParquetFiles,
    ParquetFilesError,
    ParquetScan,
    cut,
)

NOON = datetime.datetime(2026, 5, 1, 12, tzinfo=datetime.UTC)
COLUMNS: dict[str, Any] = {
    "id": pa.array(range(1000), pa.int64()),
    "small": pa.array([None if n % 7 == 0 else n % 100 for n in range(1000)], pa.int8()),
    "x": pa.array([n / 3 for n in range(1000)], pa.float32()),
    "name": pa.array([f"n{n % 10}" for n in range(1000)]).dictionary_encode(),
    "at": pa.array([NOON + datetime.timedelta(seconds=n) for n in range(1000)]),
    "ok": pa.array([n % 2 == 0 for n in range(1000)]),
    "day": pa.array([datetime.date(1500, 1, 1)] * 1000),
    "a.b": pa.array(range(1000), pa.int32()),
}
TEXTS = ["x > 200", "small < 3 AND name = 'n1'", "a.b >= 998", "id BETWEEN t AND t + 5"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files, one of several row groups, in a place with a space and a sign in its name."""
    place = tmp_path / "a table, 50%"
    place.mkdir()
    table = pa.table(COLUMNS)
    pq.write_table(table.slice(0, 900), place / "one.parquet", row_group_size=100)
    pq.write_table(table.slice(900), place / "two.parquet")
    (place / "_SUCCESS").touch()
    return place


def found(df: Any, **how: Any) -> list[str]:
    rows = match(df, TEXTS, at="at", **how).collect()
    return sorted(repr(tuple(row)) for row in rows)


def test_both_ways_find_the_same(spark: Any, folder: Path) -> None:
    by_spark, by_workers = spark.read.parquet(str(folder)), ParquetFiles(spark, folder)
    assert len(found(by_spark)) > 300
    assert found(by_spark) == found(by_workers)
    schemas = [match(df, TEXTS, at="at").schema for df in (by_spark, by_workers)]
    assert schemas[0] == schemas[1]


def test_a_file_and_a_delta_table(spark: Any, tmp_path: Path, folder: Path) -> None:
    one = ParquetFiles(spark, folder / "two.parquet", columns=["id", "x"])
    assert match(one, ["x > 200"]).count() == 100
    rows = pa.table({"id": [1, 2], "x": [1.0, 9.0]})
    table = DeltaTable.for_writing(tmp_path / "delta", rows.schema, [], {})
    kept, _ = (write_file(table.uri, rows) for _ in range(2))
    table.commit("job", 1, [kept])
    committed = ParquetFiles(spark, tmp_path / "delta")
    assert match(committed, ["x > 2"], keep=["id"]).collect() == [(2, 0)]


def one_file(folder: Path, table: Any, **how: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / "x.parquet", **how)
    return folder


def test_what_spark_might_read_differently_is_refused(spark: Any, tmp_path: Path) -> None:
    moment = pa.array([NOON])
    legacy = pa.table({"day": [datetime.date(1500, 1, 1)]}).replace_schema_metadata(
        {"org.apache.spark.legacyDateTime": ""}
    )
    refused: list[tuple[Any, dict[str, Any], str]] = [
        (pa.table({"a": [[1, 2]]}), {}, "column a of .*x.parquet is of type list"),
        (pa.table({"a": pa.array([1], pa.uint16())}), {}, "type uint16"),
        (pa.table({"a": pa.array([NOON.replace(tzinfo=None)])}), {}, "type timestamp"),
        (pa.table({"at": moment}), {"use_deprecated_int96_timestamps": True}, "column at"),
        (legacy, {}, "dates in the calendar of an old Spark"),
        (pa.table({"a": [1], "A": [2]}), {}, "several columns a that differ only in case"),
    ]
    for number, (table, how, complaint) in enumerate(refused):
        with pytest.raises(ParquetFilesError, match=complaint):
            ParquetFiles(spark, one_file(tmp_path / str(number), table, **how))
    one_file(tmp_path / "parts" / "day=1", pa.table({"a": [1]}))
    with pytest.raises(ParquetFilesError, match="a folder that is a partition column"):
        ParquetFiles(spark, tmp_path / "parts")
    with pytest.raises(ParquetFilesError, match="no Parquet files"):
        ParquetFiles(spark, tmp_path / "parts" / "day=2")
    mixed = one_file(tmp_path / "mixed", pa.table({"a": [1], "b": [[1]]}))
    assert ParquetFiles(spark, mixed, columns=["a"]).columns == ["a"]
    with pytest.raises(ParquetFilesError, match="has no column c"):
        ParquetFiles(spark, mixed, columns=["a", "c"])


def test_files_that_differ_are_an_error_and_not_null(spark: Any, folder: Path) -> None:
    other = pa.table(COLUMNS).slice(0, 5).drop_columns(["x"])
    pq.write_table(other, folder / "zzz.parquet")
    with pytest.raises(PythonException, match=r"zzz.parquet has no column x"):
        match(ParquetFiles(spark, folder), TEXTS, at="at").collect()
    wider = other.append_column("x", pa.array([1.0] * 5, pa.float64()))
    pq.write_table(wider, folder / "zzz.parquet")
    with pytest.raises(PythonException, match=r"zzz.parquet has other columns or types"):
        match(ParquetFiles(spark, folder), TEXTS, at="at").collect()


def test_tasks_are_alike_and_cover_everything(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["one.parquet", "two.parquet"]
    sizes = {name: (folder / name).stat().st_size for name in names}
    uri = str(folder)
    assert list(cut(uri, sizes, 8)) == [(FileSlice(names[0]), FileSlice(names[1]))], (
        "too little to cut"
    )
    monkeypatch.setattr(parquet_files, "SLICE_BYTES_MIN", 1)
    tasks = list(cut(uri, sizes, 4))
    assert 3 <= len(tasks) <= 8
    groups = [group for task in tasks for each in task for group in each.groups or ()]
    assert groups == list(range(9))
    schema = pa.schema([("id", pa.int64())]).serialize().to_pybytes()
    scan = ParquetScan(uri, tuple(tasks), schema, ("id",))
    ids = [id for n in range(len(tasks)) for b in scan.read(n) for id in b["id"].to_pylist()]
    assert ids == list(range(1000))


def test_batches_are_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "ARROW_BYTES", 3_000_000)
    table = pa.table({"text": ["-" * 1_000] * 20_000, "n": range(20_000)})
    pq.write_table(table, tmp_path / "x.parquet")
    schema = pa.schema([("text", pa.string()), ("n", pa.int64())]).serialize().to_pybytes()
    scan = ParquetScan(str(tmp_path), ((FileSlice("x.parquet"),),), schema, ("text", "n"))
    batches = list(scan.read(0))
    assert max(batch.nbytes for batch in batches) <= 3_000_000
    assert len(batches) < 12
    assert [n for batch in batches for n in batch["n"].to_pylist()] == list(range(20_000))


def test_a_file_that_is_gone_is_named(folder: Path) -> None:
    schema = pa.schema([("id", pa.int64())]).serialize().to_pybytes()
    with pytest.raises(LakeError, match=r"three\.parquet was not found"):
        list(ParquetScan(str(folder), ((FileSlice("three.parquet"),),), schema, ("id",)).read(0))


@pytest.mark.soak
def test_ranks_over_files_are_the_same(spark: Any, folder: Path) -> None:
    texts = [
        "x > 20 ORDER BY x DESC LIMIT 3 WITHIN 60 SECONDS",
        "ORDER BY small LIMIT 1 WITHIN 9 PUBLICATIONS",
    ]
    both = [
        sorted(tuple(row) for row in rank(df, texts, at="at", order="id", keep=["id"]).collect())
        for df in (spark.read.parquet(str(folder)), ParquetFiles(spark, folder))
    ]
    assert len(both[0]) > 900
    assert both[0] == both[1]
