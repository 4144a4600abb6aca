"""Each row of the lake is in its table once, as it was published, whatever happens meanwhile."""

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.compute as pc
import pytest

from rove.broker.storage.records import LogRow
from rove.lake.log import LogFile, open_for_writing
from rove.lake.storage import LakeError, MissingFileError
from rove.lang.attributes import attributes_of
from rove.pipeline.lake.log import Lake
from rove.pipeline.tables import ingest as ingest_module
from rove.pipeline.tables.commits import ChannelTables
from rove.pipeline.tables.ingest import FileRange, IngestError, IngestReport, ingest, rounds, tasks
from rove.pipeline.tables.quality import AttributeRule, QualityRules, RuleBook
from rove.pipeline.tables.table import (
    Table,
    TableSchema,
    TablesError,
    attributes,
    attributes_of_rows,
    channels,
)
from rove.serve.disk.lake import LakeAppender as BrokersLake
from tests.effort import is_soak

NOON_S = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()
Published = dict[int, tuple[str, bytes]]
"""Channel and payload by position."""


def fill(
    lake: Path, published: Published, *, rows_per_file: int = 3, seconds_apart: float = 1.0
) -> None:
    """Let the broker's own writer put publications into a lake, and say how far it is."""
    writer = BrokersLake(lake, rows_per_file=rows_per_file)
    writer.take([(at, _log_row(at, *each, seconds_apart)) for at, each in published.items()])


def _log_row(position: int, channel: str, payload: bytes, seconds_apart: float) -> LogRow:
    at_s = NOON_S + position * seconds_apart
    return LogRow(
        "publications", channel, at_s, f"t/{position % 3}", f"id{position}", "c", payload, qos=1
    )


def numbered(first: int, last: int, channel: str = "air") -> Published:
    return {
        each: (channel, json.dumps({"x": each / 2, "lat": 45.8, "long": 15.98}).encode())
        for each in range(first, last + 1)
    }


def positions(tables: Path, channel: str = "air") -> list[int]:
    found: list[int] = sorted(
        Table(tables, channel).read(columns=["position"])["position"].to_pylist()
    )
    return found


def check_attributes(tables: Path, published: Published) -> None:
    """Every table gives back exactly what its channel published."""
    expected: dict[str, dict[int, Any]] = {}
    for position, (channel, payload) in published.items():
        attributes_there = attributes_of(f"t/{position % 3}", payload)
        expected.setdefault(channel, {})[position] = attributes_there
    assert channels(tables) == sorted(expected)
    for channel, by_position in expected.items():
        table = Table(tables, channel)
        rows = table.read()
        found = attributes_of_rows(table.schema(), rows)
        assert len(found) == len(by_position)
        assert dict(zip(rows["position"].to_pylist(), found, strict=True)) == by_position


# --- by Spark ---------------------------------------------------------------------------------


@pytest.mark.soak
def test_channels_and_odd_names_come_back_through_spark(spark: Any, tmp_path: Path) -> None:
    payloads = [
        b'{"NO2": 1.5, "no2": "x", "a": {"b": [1]}, "a.b": true, "at": 7}',
        b'{"NO2": 2, "No2": null, "x`y": 0.5, "": "empty", "\xc4\xb0": 1, "i": 2}',
        b"no JSON at all",
        b'{"NO2": "text", "n": 123456789012345678901234567890}',
    ]
    odd = ["air", "a/b", "..", "", "ünï 😀"]
    published = {
        each: (odd[each % len(odd)], payloads[each % len(payloads)]) for each in range(1, 41)
    }
    lake, tables = tmp_path / "lake", tmp_path / "tables"
    fill(lake, published)
    report = ingest(spark, lake, tables)
    assert (report.rows_in, report.rows_out, report.position) == (40, 40, 40)
    assert report.by_channel == dict.fromkeys(odd, 8)
    check_attributes(tables, published)
    table = Table(tables, "air")
    by_spark = [
        (row["position"], attributes(table.schema(), row.asDict()))
        for row in table.dataframe(spark).collect()
    ]
    assert sorted(by_spark, key=lambda each: each[0]) == [
        (position, attributes_of(f"t/{position % 3}", payload))
        for position, (channel, payload) in published.items()
        if channel == "air"
    ]
    frame = table.dataframe(spark)
    assert frame.where("`NO2` > 1.7 AND day = '2026-11-16' AND cell = 'none'").count() == 2
    total = frame.selectExpr(f"sum({table.schema().number_sql(('NO2',))})").first()
    assert total is not None
    assert total[0] == 2 * 1.5 + 2 * 2
    assert table.dataframe(spark, cells=["33TWL77"]).count() == 0


@pytest.mark.soak
def test_duplicates_do_not_depend_on_how_runs_are_cut(spark: Any, tmp_path: Path) -> None:
    lake = BrokersLake(tmp_path / "lake", rows_per_file=4)
    ids = [f"id{each % 7}" for each in range(20)]
    lake.take(
        [
            (each, LogRow("publications", "air", NOON_S + each, "t", id_, "c", b"{}"))
            for each, id_ in enumerate(ids)
        ]
    )
    rules = RuleBook({"air": QualityRules(duplicates_s=10)})
    whole = ingest(spark, tmp_path / "lake", tmp_path / "whole", rules=rules)
    for up_to in (5, 13, None):
        ingest(spark, tmp_path / "lake", tmp_path / "cut", rules=rules, up_to=up_to)
    assert whole.rejected == {"duplicate": 13}
    assert positions(tmp_path / "whole") == positions(tmp_path / "cut") == list(range(7))
    assert Table(tmp_path / "cut", "air").counts() == {"in": 20, "out": 7, "duplicate": 13}


# --- growing ----------------------------------------------------------------------------------


def test_a_schema_grows_and_no_file_is_written_again(tmp_path: Path) -> None:
    lake, tables = tmp_path / "lake", tmp_path / "tables"
    published = numbered(1, 10)
    fill(lake, published)
    ingest(None, lake, tables)
    before = {path: path.stat().st_mtime_ns for path in tables.rglob("data/day=*/**/part-*")}
    assert before
    later: Published = {
        11: ("air", b'{"x": "changed", "new": {"deep": 1}}'),
        12: ("air", b'{"x": null, "X": [1, {"y": 2}], "new": 3}'),
        13: ("air", b'{"x": 5}'),
    }
    fill(lake, later)
    report = ingest(None, lake, tables)
    assert report.rows_out == 3
    check_attributes(tables, published | later)
    assert before.items() <= {p: p.stat().st_mtime_ns for p in tables.rglob("part-*")}.items()


def test_what_only_a_late_row_has_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the rows that the schema was guessed from, so that a task has to be done again."""
    monkeypatch.setattr(ingest_module, "SAMPLE_ROWS", 1)
    published = numbered(1, 10)
    published[5] = ("air", b'{"surprise": true, "x": "text", "%s": 1}' % (b"y" * 300))
    fill(tmp_path / "lake", published, rows_per_file=100)
    ingest(None, tmp_path / "lake", tmp_path / "tables")
    check_attributes(tmp_path / "tables", published)
    committed = {file.path for file in Table(tmp_path / "tables", "air").files()}
    data = tmp_path / "tables" / "air" / "data"
    written = {path.relative_to(data).as_posix() for path in data.rglob("part-*")}
    assert written == committed  # what was in vain is gone


def test_running_again_adds_nothing_and_goes_on_where_it_was(tmp_path: Path) -> None:
    lake, tables = tmp_path / "lake", tmp_path / "tables"
    fill(lake, numbered(1, 12), rows_per_file=7)
    assert ingest(None, lake, tables, up_to=5).position == 5
    assert positions(tables) == [1, 2, 3, 4, 5]
    assert ingest(None, lake, tables, up_to=100).rows_out == 7
    assert ingest(None, lake, tables).rows_out == 0
    fill(lake, numbered(13, 20), rows_per_file=7)
    assert ingest(None, lake, tables).rows_out == 8
    assert positions(tables) == list(range(1, 21))
    again = ingest(None, lake, tables)
    assert again == IngestReport(position=20, seconds=again.seconds)


def test_channels_are_chosen(tmp_path: Path) -> None:
    lake, tables = tmp_path / "lake", tmp_path / "tables"
    fill(lake, numbered(1, 3) | numbered(4, 9, "noise"))
    assert ingest(None, lake, tables, channels=["noise"]).by_channel == {"noise": 6}
    assert channels(tables) == ["noise"]
    assert ingest(None, lake, tables).by_channel == {"air": 3}


def test_progress_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_module, "ROUND_BYTES", 1)
    fill(tmp_path / "lake", numbered(1, 9))
    told: list[tuple[int, int]] = []
    ingest(
        None, tmp_path / "lake", tmp_path / "tables", on_progress=lambda *each: told.append(each)
    )
    assert len(told) == 4
    assert told[0][0] == 0
    assert told[-1][0] == told[-1][1]
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert positions(tmp_path / "tables") == list(range(1, 10))


# --- what can be wrong ------------------------------------------------------------------------


def test_a_file_that_cannot_be_read_is_named_and_read_when_it_is_mended(tmp_path: Path) -> None:
    lake, tables = tmp_path / "lake", tmp_path / "tables"
    fill(lake, numbered(1, 9))
    broken = lake / Lake(lake).files("publications")[1].path
    content = broken.read_bytes()
    broken.write_bytes(content[:100])
    report = ingest(None, lake, tables, up_to=5)
    assert report.rows_out == 3
    [unreadable] = report.unreadable
    assert unreadable.startswith(f"{broken.relative_to(lake)}: ")
    assert ingest(None, lake, tables).unreadable == [unreadable, unreadable]  # 4, 5 and then 6
    assert positions(tables) == [1, 2, 3, 7, 8, 9]
    broken.write_bytes(content)
    assert ingest(None, lake, tables).rows_out == 3
    assert positions(tables) == list(range(1, 10))
    assert ingest(None, lake, tables).unreadable == []


def test_workers_that_do_not_see_the_lake_are_an_error_and_nothing_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, tables = tmp_path / "lake", tmp_path / "tables"
    fill(lake, numbered(1, 9))
    run_task = ingest_module.run_task

    def elsewhere(work: Any) -> Any:
        return run_task(msgspec.structs.replace(work, lake=str(tmp_path / "elsewhere")))

    with monkeypatch.context() as patch:
        patch.setattr(ingest_module, "run_task", elsewhere)
        with pytest.raises(MissingFileError, match="has it the same folder as the driver"):
            ingest(None, lake, tables)
    assert ingest(None, lake, tables).rows_out == 9
    assert positions(tables) == list(range(1, 10))


def test_what_retention_took_before_it_was_read_is_left_out(tmp_path: Path) -> None:
    lake, tables = tmp_path / "lake", tmp_path / "tables"
    fill(lake, numbered(1, 9))
    open_for_writing(lake).delete("position <= 3")
    assert ingest(None, lake, tables).rows_out == 6
    assert positions(tables) == list(range(4, 10))


def test_rejected_rows_are_kept_and_counted(tmp_path: Path) -> None:
    lake, tables = tmp_path / "lake", tmp_path / "tables"
    rules = RuleBook({"air": QualityRules(late_s=5, attributes={"x": AttributeRule(max=4)})})
    fill(lake, numbered(1, 10))
    report = ingest(None, lake, tables, rules=rules)
    assert (report.rows_in, report.rows_out, report.rejected) == (10, 8, {"range:x": 2})
    late = LogRow("publications", "air", NOON_S - 60, "t", "late", "c", b"{}")
    BrokersLake(lake).take([(20, late)])
    assert ingest(None, lake, tables, rules=rules).rejected == {"late": 1}
    table = Table(tables, "air")
    rejected = table.read("rejected").to_pylist()
    assert Counter(row["reason"] for row in rejected) == {"range:x": 2, "late": 1}
    quality = table.read("quality")
    counted = {
        (position, reason): rows
        for position, reason, rows in zip(
            *(quality[name].to_pylist() for name in ("position", "reason", "rows")), strict=True
        )
    }
    assert counted == {(10, ""): 8, (10, "range:x"): 2, (20, "late"): 1, (20, ""): 0}
    assert table.counts() == {"in": 11, "out": 8, "range:x": 2, "late": 1}


def test_an_empty_lake_an_unknown_channel_and_rules_that_do_not_fit(tmp_path: Path) -> None:
    lake, tables = tmp_path / "lake", tmp_path / "tables"
    with pytest.raises(LakeError, match="there is no lake"):
        ingest(None, lake, tables)
    BrokersLake(lake)
    with pytest.raises(LakeError, match="has no publications yet"):
        ingest(None, lake, tables)
    fill(lake, numbered(1, 2))
    with pytest.raises(LakeError, match="the lake has no channel 'no'; it has 'air'"):
        ingest(None, lake, tables, channels=["no"])
    with pytest.raises(IngestError, match="duplicates_s, which needs Spark"):
        ingest(None, lake, tables, rules=RuleBook({"*": QualityRules(duplicates_s=1)}))
    ingest(None, lake, tables)
    with pytest.raises(IngestError, match="the cell_km 1, but its table was created with 10"):
        ingest(None, lake, tables, rules=RuleBook({"air": QualityRules(cell_km=1)}))


def test_of_two_that_ingest_the_same_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, tables = tmp_path / "lake", tmp_path / "tables"
    fill(lake, numbered(1, 9))
    run_task = ingest_module.run_task

    def overtaken(work: Any) -> Any:
        monkeypatch.setattr(ingest_module, "run_task", run_task)
        ingest(None, lake, tables)
        return run_task(work)

    monkeypatch.setattr(ingest_module, "run_task", overtaken)
    with pytest.raises(TablesError, match=r"another process has ingested into .*air meanwhile"):
        ingest(None, lake, tables)
    assert positions(tables) == list(range(1, 10))
    fill(lake, numbered(10, 15))
    monkeypatch.setattr(ingest_module, "run_task", overtaken)
    with pytest.raises(LakeError, match=r"cannot write to the table .*air/quality: .*[Cc]oncurr"):
        ingest(None, lake, tables)
    assert positions(tables) == list(range(1, 16))


# --- cutting it up ----------------------------------------------------------------------------


def piece(first: int, last: int, size_bytes: int, channel: str = "air") -> FileRange:
    path, day = f"{channel}-{first}", "2026-11-16"
    file = LogFile(first, last, path, "publications", channel, day, last - first + 1, size_bytes)
    return FileRange(file, first - 1, last)


def test_rounds_are_bounded_and_share_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_module, "ROUND_BYTES", 100)
    pieces = [piece(each * 10, each * 10 + 9, 40) for each in range(7)]
    pieces.append(piece(5, 48, 40, "noise"))  # reaches over several rounds
    seen: Counter[tuple[str, int]] = Counter()
    boundaries = []
    for boundary, found in rounds(pieces):
        boundaries.append(boundary)
        for each in found:
            assert each.up_to <= boundary
            seen.update((each.file.channel, row) for row in range(each.after + 1, each.up_to + 1))
    assert len(boundaries) > 2
    assert boundaries == sorted(set(boundaries))
    assert set(seen.values()) == {1}
    assert len(seen) == 70 + 44


def test_tasks_are_neither_many_nor_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_module, "TASK_BYTES", (100, 300))
    small = [piece(each, each, 1) for each in range(50)]
    assert [len(group) for group in tasks(small, 2)] == [50]
    large = [piece(each, each, 100) for each in range(50)]
    assert {len(group) for group in tasks(large, 2)} == {3, 2}
    middle = [piece(each, each, 100) for each in range(4)]
    assert [len(group) for group in tasks(middle, 2)] == [3, 1]


# --- killed -----------------------------------------------------------------------------------

_CHILD = """
    import sys
    from pathlib import Path
    from rove.pipeline.tables import ingest as module
    module.ROUND_BYTES = 20_000
    spark = None
    if sys.argv[3] == "spark":
        from rove.pipeline.spark.session import SparkSettings, open_session
        spark = open_session(SparkSettings(master="local[2]", memory="1g"))
    print("begins", flush=True)
    module.ingest(spark, Path(sys.argv[1]), Path(sys.argv[2]))
"""


def run_child(lake: Path, tables: Path, how: str, kill_after_s: float) -> int:
    """Ingest in a process that is killed so long after it has begun, unless it is done."""
    script = textwrap.dedent(_CHILD)
    command = [sys.executable, "-W", "ignore", "-c", script, str(lake), str(tables), how]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    with child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            return child.wait(kill_after_s)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)  # Spark's processes too
        return child.wait()


def survive(lake: Path, tables: Path, how: str, rows: int, pauses_s: Sequence[float]) -> int:
    """Kill it again and again; after each death what is there is whole. How often it died."""
    deaths = 0
    for pause_s in [*pauses_s, 600.0]:
        if run_child(lake, tables, how, pause_s) == 0:
            break
        deaths += 1
        if channels(tables):  # what quality says is in data as soon as somebody looks to it
            state = ChannelTables(tables, TableSchema("air")).state
            assert positions(tables) == list(range(1, state.position + 1))
    assert positions(tables) == list(range(1, rows + 1))
    x_sum = pc.sum(Table(tables, "air").read(columns=["x"])["x"]).as_py()
    assert x_sum == rows * (rows + 1) / 4
    counts = Table(tables, "air").counts()
    assert counts == {"in": rows, "out": rows}
    return deaths


def test_killed_at_any_moment_every_row_is_there_once(tmp_path: Path) -> None:
    rows = 30_000
    fill(tmp_path / "lake", numbered(1, rows), rows_per_file=500, seconds_apart=0.01)
    chance = random.Random(5)
    pauses_s = [chance.uniform(0, 0.15) for _ in range(8 if is_soak() else 4)]
    deaths = survive(tmp_path / "lake", tmp_path / "tables", "here", rows, pauses_s)
    assert deaths > 0


@pytest.mark.soak
def test_killed_with_spark_every_row_is_there_once(tmp_path: Path) -> None:
    rows = 60_000
    fill(tmp_path / "lake", numbered(1, rows), rows_per_file=500, seconds_apart=0.01)
    chance = random.Random(6)
    pauses_s = [chance.uniform(0.5, 8) for _ in range(5)]
    deaths = survive(tmp_path / "lake", tmp_path / "tables", "spark", rows, pauses_s)
    assert deaths > 0
