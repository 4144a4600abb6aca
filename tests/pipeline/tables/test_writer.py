"""Files of a table: what goes into which, in which order, and nothing of what was in vain."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rove.lake import files
from rove.pipeline.tables import writer as writer_module
from rove.pipeline.tables.commits import REJECTED, WriteResult
from rove.pipeline.tables.quality import AttributeRule, QualityRules
from rove.pipeline.tables.table import TableSchema
from rove.pipeline.tables.writer import TableWriter

MIDNIGHT_US = 1_794_787_200_000_000  # 2026-11-16
ZAGREB = {"lat": 45.8, "long": 15.98}
SCHEMA = TableSchema("air").extended(
    {(("lat",), "float"): 3, (("long",), "float"): 2, (("x",), "small"): 1}
)


def rows(payloads: Sequence[dict[str, Any]], at_s: Sequence[int], first: int = 0) -> Any:
    """As the lake has them."""
    count = len(payloads)
    at_us = pa.array([MIDNIGHT_US + each * 1_000_000 for each in at_s])
    return pa.table(
        {
            "position": pa.array(range(first, first + count), pa.int64()),
            "at": at_us.cast(pa.timestamp("us", tz="UTC")),
            "topic": pa.array(["t"] * count).dictionary_encode(),
            "id": pa.array([str(first + each) for each in range(count)]),
            "client_id": pa.array(["c"] * count).dictionary_encode(),
            "payload": pa.array([json.dumps(each).encode() for each in payloads]),
            "user": pa.array([[]] * count, REJECTED.field("user").type),
            "qos": pa.array([1] * count, pa.int8()),
        }
    )


def written(folder: Path, outcome: WriteResult) -> dict[str, dict[str, list[Any]]]:
    """Files by folder."""
    paths = [
        *(Path("data", file.path) for file in outcome.data),
        *(Path("rejected", file.path) for file in outcome.rejected),
    ]
    return {
        path.parent.as_posix(): pq.ParquetFile(folder / path).read().to_pydict() for path in paths
    }


def test_a_file_for_each_day_and_cell_sorted_by_time(tmp_path: Path) -> None:
    writer = TableWriter(str(tmp_path), SCHEMA, QualityRules())
    writer.take(rows([{**ZAGREB, "x": 1}, {"x": 2}, {**ZAGREB, "x": 3}], [9, 86_399, 86_400]))
    writer.take(rows([{**ZAGREB, "x": 4}], [2], first=3))
    outcome = writer.finish()
    found = written(tmp_path, outcome)
    assert {folder: content["x"] for folder, content in found.items()} == {
        "data/day=2026-11-16/cell=33TWL77": [4, 1],
        "data/day=2026-11-16/cell=none": [2],
        "data/day=2026-11-17/cell=33TWL77": [3],
    }
    first = next(file for file in outcome.data if file.rows == 2)
    stats = json.loads(first.stats)
    assert (stats["minValues"]["position"], stats["maxValues"]["position"]) == (0, 3)
    assert (stats["minValues"]["lat"], stats["maxValues"]["long"]) == (45.8, 15.98)
    assert first.partition == {"day": "2026-11-16", "cell": "33TWL77"}
    assert first.size_bytes == (tmp_path / "data" / first.path).stat().st_size
    day = MIDNIGHT_US // 3_600_000_000
    assert outcome.hours == [day, day + 23, day + 24]
    assert outcome.counts == {"in": 4, "out": 4}
    assert outcome.newest_at_us == MIDNIGHT_US + 86_400_000_000
    assert not list(tmp_path.rglob(".*"))


def test_files_are_compressed_in_row_groups_with_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ROW_GROUP_ROWS", 50)
    writer = TableWriter(str(tmp_path), SCHEMA, QualityRules())
    writer.take(rows([{"x": each} for each in range(120)], range(120)))
    [file] = writer.finish().data
    meta = pq.ParquetFile(tmp_path / "data" / file.path).metadata
    assert [meta.row_group(each).num_rows for each in range(3)] == [50, 50, 20]
    column = meta.row_group(1).column(meta.schema.names.index("x"))
    assert (column.statistics.min, column.statistics.max) == (50, 99)
    assert column.compression == "ZSTD"
    assert "lat" not in meta.schema.names  # nobody had one


def test_what_is_held_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "ROWS_HELD_MAX", 100)
    writer = TableWriter(str(tmp_path), SCHEMA, QualityRules())
    for batch in range(5):
        writer.take(rows([{"x": each} for each in range(60)], range(60), first=batch * 60))
    assert sorted(file.rows for file in writer.finish().data) == [60, 120, 120]


def test_rejected_rows_are_kept_as_they_came(tmp_path: Path) -> None:
    rules = QualityRules(attributes={"x": AttributeRule(max=5)})
    duplicates = np.array([2], np.int64)
    writer = TableWriter(str(tmp_path), SCHEMA, rules, duplicates=duplicates)
    writer.take(rows([{"x": 1}, {"x": 9}, {"x": 2}], [0, 1, 2]))
    outcome = writer.finish()
    assert outcome.counts == {"in": 3, "out": 1, "duplicate": 1, "range:x": 1}
    rejected = written(tmp_path, outcome)["rejected"]
    assert rejected["reason"] == ["range:x", "duplicate"]
    assert rejected["payload"] == [b'{"x": 9}', b'{"x": 2}']
    assert rejected["position"] == [1, 2]
    [path] = (tmp_path / "rejected").iterdir()
    assert pq.read_schema(path).equals(REJECTED)


def test_what_has_no_column_takes_everything_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "ROWS_HELD_MAX", 2)
    writer = TableWriter(str(tmp_path), SCHEMA, QualityRules())
    writer.take(rows([{"x": 1}, {"x": 2}], [0, 1]))  # is on disk now
    assert list(tmp_path.rglob("*.parquet"))
    writer.take(rows([{"x": "text"}, {"y": 1.5}], [2, 3], first=2))
    writer.take(rows([{"y": 2.5}, {"x": 3, "z" * 300: 1}], [4, 5], first=4))
    outcome = writer.finish()
    assert not outcome.is_complete
    assert outcome.needs_rest
    assert sorted(outcome.unmet) == [(("x",), "text", 1), (("y",), "float", 2)]
    assert (outcome.data, outcome.rejected, outcome.counts) == ([], [], {})
    assert not list(tmp_path.rglob("*.parquet"))
