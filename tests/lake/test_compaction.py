"""A table that grows by small commits has few files, and loses what nobody needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rove.lake import compaction, delta
from rove.lake.delta import DeltaTable
from rove.lake.files import read_columns, remove_files, write_file
from rove.lake.storage import folders

SCHEMA = pa.schema([("day", pa.date32()), ("x", pa.int64()), ("text", pa.string())])


def add(table: DeltaTable, number: int, day: str = "2026-11-16") -> None:
    rows = pa.table({"x": pa.array([number], pa.int64())})
    begun_at = table.version
    table.commit("w", number, [write_file(table.uri, rows, {"day": day})])
    compaction.maintain(table, ["day"], begun_at)


def by_day(table: DeltaTable) -> dict[str, int]:
    days = [str(day) for day in table.files()["partition.day"].to_pylist()]
    return {day: days.count(day) for day in days}


def test_files_of_a_day_stay_few_while_it_grows_and_become_one(tmp_path: Path) -> None:
    table = DeltaTable.for_writing(tmp_path, SCHEMA, ["day"], compaction.CONFIGURATION)
    for number in range(20):
        add(table, number)
        assert by_day(table)["2026-11-16"] <= compaction.NEWEST_FILES_MAX
    add(table, 20, "2026-11-17")
    assert by_day(table) == {"2026-11-16": 1, "2026-11-17": 1}
    add(table, 21)  # late
    assert by_day(table) == {"2026-11-16": 1, "2026-11-17": 1}
    assert table._table.count() == 22


def test_what_is_replaced_and_not_added_to_is_left_alone(tmp_path: Path) -> None:
    table = DeltaTable.for_writing(tmp_path, SCHEMA, ["day"], compaction.CONFIGURATION)
    for number in range(12):
        rows = pa.table({"x": pa.array([number], pa.int64())})
        table.commit("w", number, [write_file(table.uri, rows, {"day": "2026-11-16"})])
        compaction.maintain(table, ["day"], table.version, grows=False)
    assert by_day(table) == {"2026-11-16": 12}


def test_what_the_killed_left_goes_with_the_hundredth_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaned: list[Any] = []
    monkeypatch.setattr(DeltaTable, "vacuum", lambda self, **how: cleaned.append(how))
    monkeypatch.setattr(delta, "CHECKPOINT_COMMITS", 5)
    table = DeltaTable.for_writing(tmp_path, SCHEMA, ["day"], compaction.CONFIGURATION)
    for number in range(6):
        add(table, number)
    assert cleaned == [{"orphans": True}]


def test_columns_are_read_as_they_are_wanted(tmp_path: Path) -> None:
    file = write_file(str(tmp_path), pa.table({"x": pa.array([7], pa.int64())}))
    wanted = pa.schema([("text", pa.string()), ("x", pa.float64())])
    assert read_columns(str(tmp_path), file.path, wanted).to_pylist() == [{"text": None, "x": 7.0}]
    remove_files(str(tmp_path), [file])
    assert list(tmp_path.iterdir()) == []


def test_folders_are_listed_and_tables_known(tmp_path: Path) -> None:
    assert folders(str(tmp_path / "none")) == []
    assert not delta.exists(tmp_path / "none")
    DeltaTable.for_writing(tmp_path / "b", SCHEMA, [], {})
    (tmp_path / "a").mkdir()
    (tmp_path / "file").touch()
    assert folders(str(tmp_path)) == ["a", "b"]
    assert delta.exists(tmp_path / "b")
    assert [field.name for field in DeltaTable(tmp_path / "b").fields] == SCHEMA.names
