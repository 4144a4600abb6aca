"""A Delta table as whoever writes and watches it sees it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from rove.lake import compaction
from rove.lake.compaction import compact_where_many
from rove.lake.delta import DeltaTable
from rove.lake.files import write_file

SCHEMA = pa.schema([("part", pa.string()), ("x", pa.int64())])


def table_in(folder: Path, *partition_by: str) -> DeltaTable:
    return DeltaTable.for_writing(folder, SCHEMA, partition_by, {})


def add(table: DeltaTable, number: int, part: str = "a") -> None:
    rows = pa.table({"x": pa.array([number], pa.int64())})
    table.commit(
        "me", number, [write_file(table.uri, rows, {"part": part})], numbers={"n": -number}
    )


def test_a_commit_keeps_further_numbers(tmp_path: Path) -> None:
    table = table_in(tmp_path, "part")
    assert table.number("n") is None
    for number in (3, 5):
        add(table, number)
    add(table, 4)  # is there already
    assert (table.number("me"), table.number("n")) == (5, -5)
    assert DeltaTable(tmp_path).number("n") == -5


def test_others_notice_a_commit(tmp_path: Path) -> None:
    table, other = table_in(tmp_path, "part"), DeltaTable(tmp_path)
    assert not other.has_newer()
    add(table, 1)
    assert other.has_newer()
    other.refresh()
    assert not other.has_newer()
    assert other.id == table.id != table_in(tmp_path / "another").id


def test_its_rows_are_those_of_all_its_files(tmp_path: Path) -> None:
    table = DeltaTable.for_writing(tmp_path, SCHEMA, (), {})
    assert table.rows().schema == SCHEMA
    for number in range(3):
        rows = pa.table({"part": ["a"], "x": pa.array([number], pa.int64())})
        table.commit("me", number, [write_file(table.uri, rows)])
    assert sorted(table.rows(["x"])["x"].to_pylist()) == [0, 1, 2]


def test_only_where_many_lie_together_are_they_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "SMALL_FILES_MAX", 4)
    table = table_in(tmp_path, "part")
    for number, part in enumerate("aabbabb"):
        assert not compact_where_many(table)
        add(table, number, part)
    assert compact_where_many(table)
    assert table.files().num_rows == 2
    assert not compact_where_many(table)
