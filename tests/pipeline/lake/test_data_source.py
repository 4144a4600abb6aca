"""The lake as a source: every row once, in order, never beyond what is complete."""

from __future__ import annotations

import time
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from rove.bench.pipeline.feed import Feed, publish_some
from rove.lake import compaction
from rove.lake.log import COLUMNS, LogFile
from rove.lake.storage import LakeError, MissingFileError
from rove.pipeline.lake import data_source
from rove.pipeline.lake.data_source import (
    BEGINNING,
    LakeDataSource,
    LakeStreamReader,
    Slice,
    SliceFile,
    SourceError,
    SourceOptions,
    end_of_batch,
    may_hold,
    one_slice,
    read_slice,
    register,
    schema_of,
    slices,
    whole,
)
from rove.pipeline.lake.log import Lake
from rove.serve.disk.lake import LakeAppender as WrittenLake


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
    return positions(whole(Lake(folder)))


# --- planning -------------------------------------------------------------------------------------


def test_slices_have_every_row_once_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_source, "SLICE_POSITIONS_MIN", 10)
    feed = filled(tmp_path)
    files = Lake(tmp_path).files("publications")
    expected = all_positions(tmp_path)
    assert len(expected) == 200
    for count in (1, 2, 3, 7, 100):
        found = [
            read_slice(one) for one in slices(files, BEGINNING, feed.position, count, str(tmp_path))
        ]
        assert len(found) == min(count, (feed.position + 1) // 10)
        assert [each for table in found for each in positions(table)] == expected
    part = [read_slice(one) for one in slices(files, 60, 130, 2, str(tmp_path))]
    joined = [each for table in part for each in positions(table)]
    assert joined == [each for each in expected if 60 < each <= 130]


def test_little_is_not_spread(tmp_path: Path) -> None:
    feed = filled(tmp_path)
    files = Lake(tmp_path).files("publications")
    assert len(slices(files, BEGINNING, feed.position, 8, str(tmp_path))) == 1


def test_nothing_is_no_slice() -> None:
    assert slices([], BEGINNING, 10, 2, "lake") == [Slice(BEGINNING, 10, "lake", ())]
    file = LogFile(0, 9, "x", "publications", "", "2026-01-01", 10, 1)
    assert slices([file], 9, 9, 2, "lake") == []


@pytest.mark.parametrize("rows_max", [1, 7, 50, 51, 199, 200, 1000])
def test_a_batch_is_bounded(tmp_path: Path, rows_max: int) -> None:
    feed = filled(tmp_path)
    files = Lake(tmp_path).files("publications")
    expected = all_positions(tmp_path)
    after, seen = BEGINNING, []
    while after < feed.position:
        here = [file for file in files if file.last > after]
        end = end_of_batch(Lake(tmp_path), here, after, feed.position, rows_max)
        assert end > after
        seen.append(sum(after < each <= end for each in expected))
        after = end
    assert sum(seen) == len(expected)
    assert all(count == rows_max for count in seen[:-1])


def test_names_of_files_are_enough_for_a_small_batch(tmp_path: Path) -> None:
    Feed(tmp_path)
    gone = LogFile(10, 19, "gone", "publications", "", "2026-01-01", 10, 1)
    assert end_of_batch(Lake(tmp_path), [gone], 9, 30, 10) == 30


def test_only_row_groups_within_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path, writes=1, rows=100)
    (air, _road) = (file.path for file in Lake(tmp_path).files("publications"))
    table = pq.ParquetFile(tmp_path / air).read()
    pq.write_table(table, tmp_path / air, row_group_size=10)
    asked: list[list[int]] = []
    real = pq.ParquetFile.read_row_groups

    def listening(self: Any, groups: list[int], **settings: Any) -> Any:
        asked.append(groups)
        return real(self, groups, **settings)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", listening)
    wanted = positions(table)[23:28]
    found = read_slice(Slice(wanted[0] - 1, wanted[-1], str(tmp_path), (SliceFile(air),)))
    assert positions(found) == wanted
    assert asked == [[2]]


# --- reading --------------------------------------------------------------------------------------


def test_rows_are_what_was_published(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    feed.publish("air/ü", {"NO2": 41}, 1.000001)
    feed.write()
    table = whole(Lake(tmp_path))
    assert table.schema == schema_of(COLUMNS)
    (row,) = table.to_pylist()
    assert row["payload"] == b'{"NO2":41}'
    assert (row["topic"], row["id"], row["client_id"]) == ("air/ü", "p0", "feed")
    assert table["at"].cast(pa.int64()).to_pylist() == [1_000_001]


def test_a_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    """It does not count as expired: an executor that does not see the lake would lose its rows."""
    feed = filled(tmp_path, writes=2)
    files = Lake(tmp_path).files("publications")
    (one,) = slices(files, BEGINNING, feed.position, 1, str(tmp_path))
    (tmp_path / files[0].path).unlink()
    with pytest.raises(MissingFileError, match="has it the same folder as the driver"):
        read_slice(one)


def test_a_file_that_was_compacted_since_it_was_listed_is_still_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path, writes=4)
    listed = one_slice(Lake(tmp_path))
    before = read_slice(listed)
    written = WrittenLake(tmp_path)
    monkeypatch.setattr(compaction, "SMALL_FILES_MAX", 2)
    written.maintain(time.time())
    assert written.files == 2
    assert read_slice(listed).equals(before)
    assert whole(Lake(tmp_path)).equals(before), "in order, though compaction turns it round"


@pytest.mark.parametrize("content", [b"", b"PAR1 but not really PAR1"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes) -> None:
    filled(tmp_path, writes=1)
    lake = Lake(tmp_path)
    files = lake.files("publications")
    path = tmp_path / files[0].path
    path.write_bytes(content)
    with pytest.raises(LakeError, match=f"cannot read {path}: "):
        whole(lake)
    with pytest.raises(LakeError, match="cannot read"):
        end_of_batch(lake, files, -1, 99, 1)


def test_a_file_of_something_else_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"position": [1], "at": [2]}), tmp_path / "0-9.parquet")
    with pytest.raises(SourceError, match=r"0-9.parquet has no column client_id, earlier, id, pay"):
        read_slice(Slice(-1, 9, str(tmp_path), (SliceFile("0-9.parquet"),)))


# --- the reader, without Spark --------------------------------------------------------------------


def reader_of(folder: Path, **options: object) -> LakeStreamReader:
    given = {"lake": str(folder), **{name: str(value) for name, value in options.items()}}
    return LakeDataSource(given).streamReader(None)


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


def test_a_batch_ends_within_a_file(tmp_path: Path) -> None:
    filled(tmp_path, writes=2)
    reader = reader_of(tmp_path)
    (part,) = reader.partitions({"position": 7}, {"position": 60})
    found = [row for batch in reader.read(part) for row in positions(batch)]
    assert found == [each for each in all_positions(tmp_path) if 7 < each <= 60]
    # Somebody has put an older lake in its place.
    assert reader.latestOffset({"position": 999}, ReadAllAvailable()) == {"position": 999}


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
    assert SourceOptions.read({"path": "x"}).lake == str(Path("x").resolve())
    assert SourceOptions.read({"lake": "x", "start": "17"}).start == 17
    wrong = [
        ({}, "needs the option"),
        ({"lake": "x", "start": "soon"}, r"Expected `int`, got `str`.*start"),
        ({"lake": "x", "max_rows": "0"}, "must be at least 1"),
        ({"lake": "x", "content": "all"}, "is rows or slices, not all"),
        ({"lake": "x", "kind": "publication"}, "is one of publications, .*, not publication"),
        ({"lake": "x", "channels": "air"}, "is a JSON list of names"),
        ({"lake": "x", "days": '["2026-01-01"]'}, "of first and last: Expected `array` of len"),
        ({"lake": "x", "columns": "at, NO2"}, "the lake has no column 'NO2'; it has kind, "),
    ]
    for given, told in wrong:
        with pytest.raises(SourceError, match=told):
            SourceOptions.read(given)
    assert LakeDataSource({"lake": "x", "kind": "notifications"}).schema().endswith("array<long>")


# --- in Spark -------------------------------------------------------------------------------------


@pytest.mark.soak
def test_a_query_reads_all_of_it_in_batches(spark: Any, tmp_path: Path) -> None:
    feed = filled(tmp_path / "lake")
    register(spark)
    seen: list[list[int]] = []

    def take(frame: Any, _batch: int) -> None:
        seen.append(sorted(row["position"] for row in frame.select("position").collect()))

    def run() -> None:
        rows = spark.readStream.format("rove").option("max_rows", 60)
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
    stream = spark.readStream.format("rove").load(str(tmp_path / "lake"))
    tables: list[Any] = []

    def take(frame: Any, _batch: int) -> None:
        tables.append(frame.toArrow())

    query = stream.writeStream.foreachBatch(take)
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert query.trigger(availableNow=True).start().awaitTermination(60)
    expected = whole(Lake(tmp_path / "lake"))
    assert tables[0].sort_by("position").cast(schema_of(COLUMNS)).equals(expected)
    assert np.all(np.diff(expected["position"].to_numpy()) > 0)


def test_filters_of_spark_spare_files_and_change_nothing(spark: Any, tmp_path: Path) -> None:
    filled(tmp_path / "lake", writes=3)
    register(spark)
    options = {"columns": "position, topic, channel, day", "slices": "3"}
    rows = spark.read.format("rove").options(**options).load(str(tmp_path / "lake"))
    everything = rows.toArrow().sort_by("position")
    assert everything.num_rows == 150
    for condition, said in (
        ("position > 60 AND position <= 100", pc.field("position") > 60),
        ("channel = 'air' AND position IN (5, 7, 900)", pc.field("channel") == "air"),
        ("day = '1970-01-01' AND topic = 'air/2'", pc.field("topic") == "air/2"),
        ("channel = 'sea'", pc.field("channel") == "sea"),
    ):
        found = rows.where(condition).toArrow().sort_by("position")
        kept = everything.filter(said)
        if "position <=" in condition:
            kept = kept.filter(pc.field("position") <= 100)
        if "IN (5" in condition:
            kept = kept.filter(pc.field("position").isin([5, 7, 900]))
        assert found.equals(kept), condition


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (EqualTo(("position",), 5), [0]),
        (In(("position",), (9, 10)), [0, 1]),
        (GreaterThan(("position",), 9), [1, 2]),
        (GreaterThanOrEqual(("position",), 9), [0, 1, 2]),
        (LessThan(("position",), 10), [0]),
        (LessThanOrEqual(("position",), 10), [0, 1]),
        (EqualTo(("channel",), "road"), [1]),
        (EqualTo(("day",), date(2026, 1, 1)), [0, 1]),
        (LessThan(("day",), date(2026, 1, 2)), [0, 1]),
        (EqualTo(("payload",), b""), [0, 1, 2]),
        (EqualTo(("user", "name"), "x"), [0, 1, 2]),
        (IsNull(("position",)), [0, 1, 2]),
    ],
)
def test_which_files_a_filter_leaves(condition: Any, expected: list[int]) -> None:
    files = [
        LogFile(0, 9, "a", "publications", "air", "2026-01-01", 10, 1),
        LogFile(10, 19, "b", "publications", "road", "2026-01-01", 10, 1),
        LogFile(20, 29, "c", "publications", "air", "2026-01-02", 10, 1),
    ]
    assert [n for n, file in enumerate(files) if may_hold(file, condition)] == expected


def test_a_session_that_reads_no_python_source_is_told_what_to_set(spark: Any) -> None:
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, "0")
    try:
        with pytest.raises(data_source.SourceError, match=f"set {name} to 10000"):
            data_source.register(spark)
    finally:
        spark.conf.set(name, before)
