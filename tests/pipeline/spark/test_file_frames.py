"""Files of a table as a DataFrame: the same rows, whether Spark reads them or workers do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rove.lake.files import write_file
from rove.pipeline.spark import file_frames
from rove.pipeline.spark.file_frames import frame_of_files, partition_of

SCHEMA = pa.schema([("x", pa.int64()), ("odd.name", pa.string())])
BY = pa.schema([("day", pa.date32()), ("cell", pa.string())])


@pytest.mark.parametrize("by_workers", [False, True])
def test_columns_partitions_and_what_is_missing(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_workers: bool
) -> None:
    uri = str(tmp_path)
    where = {"day": "2026-11-16", "cell": "a"}
    files = [
        write_file(uri, pa.table({"x": [1, 2], "odd.name": ["p", None]}), where),
        write_file(uri, pa.table({"x": [3]}), {"day": "2026-11-17", "cell": None}),
    ]
    torn = tmp_path / "torn.parquet"
    torn.write_bytes(b"PAR1")
    if by_workers:
        monkeypatch.setattr(file_frames, "folder_of", lambda _: None)
    paths = [file.path for file in files]
    frame = frame_of_files(spark, uri, paths, SCHEMA, BY)
    found = sorted((row[0], row[1], str(row[2]), row[3]) for row in frame.collect())
    assert found == [
        (1, "p", "2026-11-16", "a"),
        (2, None, "2026-11-16", "a"),
        (3, None, "2026-11-17", None),
    ]
    assert frame.where("day = '2026-11-16' AND x > 1").count() == 1
    lenient = frame_of_files(spark, uri, [*paths, torn.name], SCHEMA, pa.schema([]), lenient=True)
    assert lenient.count() == 3
    assert frame_of_files(spark, uri, [], SCHEMA, BY).collect() == []


def test_partitions_are_told_by_paths() -> None:
    assert partition_of("day=2026-11-16/cell=a%2Fb/part-0.parquet") == {
        "day": "2026-11-16",
        "cell": "a/b",
    }
    assert partition_of("cell=__HIVE_DEFAULT_PARTITION__/x.parquet") == {"cell": None}
