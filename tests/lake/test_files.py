"""Files that tasks write are in a table when a commit names them, with true statistics."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rove.lake.delta import DeltaTable
from rove.lake.files import write_file
from rove.lake.storage import LakeError

SCHEMA = pa.schema(
    [
        ("cell", pa.string()),
        ("position", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("value", pa.float64()),
        ("text", pa.string()),
    ]
)


def a_table(folder: Path) -> DeltaTable:
    return DeltaTable.for_writing(folder / "table", SCHEMA, ["cell"], {})


def some_rows(first: int, count: int, value: float = 0.5, text: str = "x") -> pa.Table:
    at = datetime(2026, 11, 18, 8, 0, 0, 1_001, tzinfo=UTC)
    columns = {
        "position": pa.array(range(first, first + count), pa.int64()),
        "at": pa.array([at] * count, SCHEMA.field("at").type),
        "value": pa.array([value] * count, pa.float64()),
        "text": [text] * count,
    }
    return pa.table(columns)


def positions(table: DeltaTable) -> list[int]:
    return sorted(pl.read_delta(table.uri)["position"].to_list())


def test_a_file_counts_when_it_is_committed_and_only_once(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    kept = write_file(table.uri, some_rows(0, 3), {"cell": "a b/ü%"})
    write_file(table.uri, some_rows(0, 3), {"cell": "a b/ü%"})  # of a task that died afterwards
    assert positions(table) == []
    assert table.commit("job", 7, [kept])
    assert not table.commit("job", 7, [kept])
    assert table.number("job") == 7
    assert positions(table) == [0, 1, 2]
    assert set(pl.read_delta(table.uri)["cell"]) == {"a b/ü%"}


def test_what_is_replaced_goes_in_the_same_commit(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    first, second = (write_file(table.uri, some_rows(n, 1), {"cell": "a b"}) for n in (0, 1))
    table.commit("job", 1, [first, second])
    one = write_file(table.uri, some_rows(0, 2), {"cell": "a b"})
    table.commit("fold", 1, [one], [first.path, second.path])
    assert positions(table) == [0, 1]
    assert table.files().num_rows == 1


def test_two_who_commit_the_same_are_told(tmp_path: Path) -> None:
    one = a_table(tmp_path)
    other = DeltaTable(one.uri)
    file = write_file(one.uri, some_rows(0, 1), {"cell": None})
    one.commit("job", 1, [file])
    with pytest.raises(LakeError, match="Concurrent transaction"):
        other.commit("job", 1, [file])
    assert not other.commit("job", 1, [file])  # it has looked again
    assert positions(one) == [0]


def test_statistics_never_exclude_a_row(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    odd = [
        some_rows(0, 2, math.nan),
        some_rows(2, 1, math.inf),
        some_rows(3, 1, text="é" * 40),
        some_rows(4, 1, -0.0, text=""),
        some_rows(5, 0),
    ]
    table.commit("job", 1, [write_file(table.uri, rows, {"cell": "c"}) for rows in odd])
    read = pl.scan_delta(table.uri)
    at = datetime(2026, 11, 18, 8, 0, 0, 1_001, tzinfo=UTC)
    assert read.filter(pl.col("at") == at).collect().height == 5
    assert read.filter(pl.col("value") == math.inf).collect().height == 1
    assert read.filter(pl.col("value").is_nan()).collect().height == 2
    assert read.filter(pl.col("text") == "é" * 40).collect().height == 1
    assert read.filter(pl.col("value") == 0.0).collect().height == 1


def test_columns_may_be_added(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    table.commit("job", 1, [write_file(table.uri, some_rows(0, 1), {"cell": "c"})])
    table.add_columns([pa.field("NO2", pa.float64())])
    rows = some_rows(1, 1).append_column("NO2", pa.array([41.5]))
    table.commit("job", 2, [write_file(table.uri, rows, {"cell": "c"})])
    read = pl.read_delta(table.uri).sort("position")
    assert read["NO2"].to_list() == [None, 41.5]


def test_files_that_no_commit_names_are_removed_in_the_end(tmp_path: Path) -> None:
    table = DeltaTable.for_writing(
        tmp_path / "table",
        SCHEMA,
        ["cell"],
        {"delta.deletedFileRetentionDuration": "interval 0 seconds"},
    )
    kept, lost = (write_file(table.uri, some_rows(n, 1), {"cell": "c"}) for n in (0, 1))
    table.commit("job", 1, [kept])
    table.vacuum(orphans=True)
    there = {path.name for path in Path(table.uri).rglob("*.parquet")}
    assert there == {Path(kept.path).name}, lost
    assert pc.sum(table.files()["num_records"]).as_py() == 1
