"""Which rows are duplicates, in one run and over several, by Spark."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rove.pipeline.tables.duplicates import duplicate_positions, file_keys

Row = tuple[int | None, float, str, str]
"""position, at, client_id, id"""


def file(path: Path, *rows: Row) -> Path:
    positions, at_s, clients, ids = zip(*rows, strict=True)
    at_us = pa.array([int(each * 1e6) for each in at_s])
    table = {
        "position": pa.array(positions, pa.int64()),
        "at": at_us.cast(pa.timestamp("us", tz="UTC")),
        "client_id": pa.array(clients),
        "id": pa.array(ids),
        "more": pa.array([1.5] * len(rows)),
    }
    pq.write_table(pa.table(table), path)
    return path


def fresh(spark: Any, *paths: Path) -> Any:
    return spark.read.parquet(*map(str, paths)).select("position", "at", "client_id", "id")


@pytest.mark.soak
def test_the_same_id_of_the_same_client_shortly_before(spark: Any, tmp_path: Path) -> None:
    one = file(
        tmp_path / "1.parquet",
        (1, 0, "a", "x"), (2, 1, "b", "x"), (3, 2, "a", "y"), (4, 10, "a", "x"), (5, 11, "a", ""),
    )  # fmt: skip
    two = file(
        tmp_path / "2.parquet",
        (6, 20, "a", "x"), (7, 20, "a", ""), (8, 30.5, "a", "x"), (9, 30.5, "b", "x"),
    )  # fmt: skip
    found = duplicate_positions(fresh(spark, one, two), None, 10.0)
    # 4 repeats 1 and 6 repeats 4, which was no good itself; 8 comes 10.5 s after 6.
    assert found.tolist() == [4, 6]
    before = file_keys(spark, str(tmp_path), [one.name])
    again = duplicate_positions(fresh(spark, two), before, 10.0)
    assert again.tolist() == [6]  # as if they had come together
    assert duplicate_positions(fresh(spark, one), None, 10.5).tolist() == [4]


def test_old_rows_without_a_position_and_broken_files(spark: Any, tmp_path: Path) -> None:
    outside = file(tmp_path / "outside.parquet", (None, 5, "a", "x"))
    new = file(tmp_path / "new.parquet", (1, 6, "a", "x"), (2, 6, "a", "z"))
    torn = tmp_path / "torn.parquet"
    torn.write_bytes(b"PAR1 torn")
    before = file_keys(spark, str(tmp_path), [outside.name, torn.name])
    assert duplicate_positions(fresh(spark, new), before, 60.0).tolist() == [1]
    nothing = fresh(spark, new).limit(0)
    assert duplicate_positions(nothing, before, 60.0).tolist() == []
