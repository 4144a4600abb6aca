"""The lake as a source: every row once, in order, never beyond what is complete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from rove.lab.pipeline_feed import Feed, publish_some
from rove.pipeline import source
from rove.pipeline.lake import Lake, LakeFile
from rove.pipeline.source import (
    BEGINNING,
    LakeSource,
    LakeStreamReader,
    Options,
    Slice,
    SourceError,
    end_of_batch,
    read_slice,
    register,
    slices,
)


def filled(folder: Path, writes: int = 4, rows: int = 50, **settings: int) -> Feed:
    feed = Feed(folder, **settings)
    for index in range(writes):
        feed.subscribe(index, "NO2 > 50", float(index))
        publish_some(feed, rows, float(index), seed=index)
        feed.write()
    return feed


def positions(table: Any) -> list[int]:
    return list(table["position"].to_pylist())


def all_positions(folder: Path) -> list[int]:
    whole, missing = read_slice(
        Slice(-1, 2**62, tuple(str(file.path) for file in Lake(folder).files("publications")))
    )
    assert not missing
    return positions(whole)


# --- planning -------------------------------------------------------------------------------------


def test_slices_have_every_row_once_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "SLICE_POSITIONS_MIN", 10)
    feed = filled(tmp_path)
    files = Lake(tmp_path).files("publications")
    expected = all_positions(tmp_path)
    assert len(expected) == 200
    for count in (1, 2, 3, 7, 100):
        found = [read_slice(one)[0] for one in slices(files, BEGINNING, feed.position, count)]
        assert len(found) == min(count, (feed.position + 1) // 10)
        assert [each for table in found for each in positions(table)] == expected
    part = [read_slice(one)[0] for one in slices(files, 60, 130, 2)]
    joined = [each for table in part for each in positions(table)]
    assert joined == [each for each in expected if 60 < each <= 130]


def test_little_is_not_spread(tmp_path: Path) -> None:
    feed = filled(tmp_path)
    assert len(slices(Lake(tmp_path).files("publications"), BEGINNING, feed.position, 8)) == 1


def test_nothing_is_no_slice() -> None:
    assert slices([], BEGINNING, 10, 2) == []
    file = LakeFile(0, 9, Path("x"), "publications", "", "2026-01-01")
    assert slices([file], 9, 9, 2) == []


@pytest.mark.parametrize("rows_max", [1, 7, 50, 51, 199, 200, 1000])
def test_a_batch_is_bounded(tmp_path: Path, rows_max: int) -> None:
    feed = filled(tmp_path)
    files = Lake(tmp_path).files("publications")
    expected = all_positions(tmp_path)
    after, seen = BEGINNING, []
    while after < feed.position:
        here = [file for file in files if file.last > after]
        end = end_of_batch(here, after, feed.position, rows_max)
        assert end > after
        seen.append(sum(after < each <= end for each in expected))
        after = end
    assert sum(seen) == len(expected)
    assert all(count == rows_max for count in seen[:-1])


def test_names_of_files_are_enough_for_a_small_batch(tmp_path: Path) -> None:
    gone = LakeFile(10, 19, tmp_path / "gone", "publications", "", "2026-01-01")
    assert end_of_batch([gone], 9, 30, 10) == 30


def test_only_row_groups_within_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path, writes=1, rows=100)
    (air, _road) = (file.path for file in Lake(tmp_path).files("publications"))
    table = pq.ParquetFile(air).read()
    pq.write_table(table, air, row_group_size=10)
    asked: list[list[int]] = []
    real = pq.ParquetFile.read_row_groups

    def listening(self: Any, groups: list[int], **settings: Any) -> Any:
        asked.append(groups)
        return real(self, groups, **settings)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", listening)
    wanted = positions(table)[23:28]
    found, _ = read_slice(Slice(wanted[0] - 1, wanted[-1], (str(air),)))
    assert positions(found) == wanted
    assert asked == [[2]]


# --- reading --------------------------------------------------------------------------------------


def test_rows_are_what_was_published(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    feed.publish("air/ü", {"NO2": 41}, 1.000001)
    feed.write()
    (one,) = slices(Lake(tmp_path).files("publications"), BEGINNING, feed.position, 2)
    table, _ = read_slice(one)
    assert table.schema == source.COLUMNS
    (row,) = table.to_pylist()
    assert row["payload"] == b'{"NO2":41}'
    assert (row["topic"], row["id"], row["client_id"]) == ("air/ü", "p0", "feed")
    assert table["at"].cast(pa.int64()).to_pylist() == [1_000_001]


def test_a_file_that_retention_removed_is_told(tmp_path: Path) -> None:
    feed = filled(tmp_path, writes=2)
    files = Lake(tmp_path).files("publications")
    (one,) = slices(files, BEGINNING, feed.position, 1)
    files[0].path.unlink()
    table, missing = read_slice(one)
    assert missing == [str(files[0].path)]
    assert table.num_rows == 75
    end_of_batch(files, BEGINNING, feed.position, 10)


@pytest.mark.parametrize("content", [b"", b"PAR1 but not really PAR1"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "0-9.parquet"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=f"cannot read {path} of the lake"):
        read_slice(Slice(-1, 9, (str(path),)))
    file = LakeFile(0, 9, path, "publications", "", "")
    with pytest.raises(SourceError, match="cannot read"):
        end_of_batch([file], -1, 9, 1)


def test_a_file_of_something_else_is_named(tmp_path: Path) -> None:
    path = tmp_path / "0-9.parquet"
    pq.write_table(pa.table({"position": [1], "at": [2]}), path)
    with pytest.raises(SourceError, match="it has no column client_id, id, payload"):
        read_slice(Slice(-1, 9, (str(path),)))


# --- the reader, without Spark --------------------------------------------------------------------


def reader_of(folder: Path, **options: object) -> LakeStreamReader:
    given = {"lake": str(folder), **{name: str(value) for name, value in options.items()}}
    return LakeSource(given).streamReader(None)


def test_offsets_follow_the_position_of_the_lake(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    reader = reader_of(tmp_path)
    start = reader.initialOffset()
    assert start == {"position": -1}
    assert reader.latestOffset(start, ReadMaxRows(10)) == start
    publish_some(feed, 30, 0.0)
    feed.write()
    assert reader.latestOffset(start, ReadMaxRows(10)) == {"position": 9}
    assert reader.latestOffset(start, ReadAllAvailable()) == {"position": 29}
    assert reader.reportLatestOffset() == {"position": 29}
    (part,) = reader.partitions(start, {"position": 9})
    assert [row for batch in reader.read(part) for row in positions(batch)] == list(range(10))


def test_files_above_the_position_are_not_read(tmp_path: Path) -> None:
    feed = filled(tmp_path, writes=2)
    (tmp_path / "_position").write_text("60\n")
    reader = reader_of(tmp_path)
    end = reader.latestOffset({"position": -1}, ReadAllAvailable())
    assert end == {"position": 60}
    (part,) = reader.partitions({"position": -1}, end)
    found = [row for batch in reader.read(part) for row in positions(batch)]
    assert found == [each for each in all_positions(tmp_path) if each <= 60]
    # A broker that was killed may say less than before.
    assert reader.latestOffset({"position": 80}, ReadAllAvailable()) == {"position": 80}
    assert feed.position > 80


def test_what_comes_later_is_not_for_a_query_that_runs_once(tmp_path: Path) -> None:
    feed = filled(tmp_path, writes=1)
    reader = reader_of(tmp_path)
    reader.prepareForTriggerAvailableNow()
    target = feed.position
    publish_some(feed, 30, 9.0)
    feed.write()
    assert reader.latestOffset({"position": -1}, ReadAllAvailable()) == {"position": target}
    assert reader.latestOffset({"position": target}, ReadMaxRows(5)) == {"position": target}


def test_options_are_checked(tmp_path: Path) -> None:
    assert Options.read({"path": "x"}).lake == "x"
    assert Options.read({"lake": "x", "start": "17"}).start == 17
    wrong = [
        ({}, "needs the option"),
        ({"lake": "x", "start": "soon"}, r"Expected `int`, got `str`.*start"),
        ({"lake": "x", "max_rows": "0"}, "must be at least 1"),
        ({"lake": "x", "content": "all"}, "is rows or slices, not all"),
    ]
    for given, told in wrong:
        with pytest.raises(SourceError, match=told):
            Options.read(given)
    assert LakeSource({"lake": "x", "kind": "notifications"}).schema().endswith("array<long>")


# --- in Spark -------------------------------------------------------------------------------------


@pytest.mark.soak
def test_a_query_reads_all_of_it_in_batches(spark: Any, tmp_path: Path) -> None:
    feed = filled(tmp_path / "lake")
    register(spark)
    seen: list[list[int]] = []

    def take(frame: Any, _batch: int) -> None:
        seen.append(sorted(row["position"] for row in frame.select("position").collect()))

    def run() -> None:
        rows = spark.readStream.format("rove-lake").option("max_rows", 60)
        stream = rows.load(str(tmp_path / "lake")).writeStream.foreachBatch(take)
        stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert stream.trigger(availableNow=True).start().awaitTermination(60)

    run()
    assert [len(each) for each in seen] == [60, 60, 60, 20]
    assert [each for batch in seen for each in batch] == all_positions(tmp_path / "lake")
    publish_some(feed, 10, 99.0)
    feed.write()
    run()
    assert seen[4:] == [list(range(feed.position - 9, feed.position + 1))]


def test_rows_are_exact_in_spark(spark: Any, tmp_path: Path) -> None:
    filled(tmp_path / "lake", writes=1)
    register(spark)
    stream = spark.readStream.format("rove-lake").load(str(tmp_path / "lake"))
    tables: list[Any] = []

    def take(frame: Any, _batch: int) -> None:
        tables.append(frame.toArrow())

    query = stream.writeStream.foreachBatch(take)
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert query.trigger(availableNow=True).start().awaitTermination(60)
    files = Lake(tmp_path / "lake").files("publications")
    expected, _ = read_slice(Slice(-1, 2**62, tuple(str(file.path) for file in files)))
    assert tables[0].sort_by("position").cast(source.COLUMNS).equals(expected)
    assert np.all(np.diff(expected["position"].to_numpy()) > 0)
