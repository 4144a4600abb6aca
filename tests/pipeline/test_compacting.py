"""Compaction changes files and nothing else, whoever reads, writes or dies meanwhile."""

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rove.broker.records import LogRow
from rove.pipeline import compacting
from rove.pipeline.commits import Change, FileEntry, State
from rove.pipeline.compacting import (
    NEWEST_DAY_FILES_MIN,
    ROWS_MAX,
    SMALL_BYTES,
    CompactError,
    clean,
    compact,
    small_groups,
)
from rove.pipeline.ingest import ingest
from rove.pipeline.quality import AttributeRule, RuleBook, Rules
from rove.pipeline.tables import Table, attributes_of_rows
from rove.serve.lake import Lake as BrokersLake

NOON_S = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()
RULES = RuleBook({"air": Rules(attributes={"x": AttributeRule(min=0)})})


def add(folder: Path, first: int, last: int, *, day: int = 0) -> None:
    """Publications of a day into the lake, and an ingestion of them; every tenth is rejected."""
    rows = []
    for position in range(first, last + 1):
        content: dict[str, object] = {"x": -1 if position % 10 == 0 else position / 2}
        if position % 3:
            content |= {"lat": 45.8 + position % 2, "long": 15.98}
        if position % 7 == 0 and position % 10:
            content["x"] = "text"
        at_s = NOON_S + day * 86_400 - position * 0.001
        payload = json.dumps(content).encode()
        rows.append(
            (position, LogRow("publications", "air", at_s, "t", str(position), "c", payload))
        )
    BrokersLake(folder / "lake").take(rows)
    (folder / "lake" / "_position").write_text(str(last))
    ingest(None, folder / "lake", folder / "tables", rules=RULES)


def content(table: Table) -> dict[int, Any]:
    rows = table.read()
    found = attributes_of_rows(table.schema(), rows)
    by_position = dict(zip(rows["position"].to_pylist(), found, strict=True))
    assert len(by_position) == rows.num_rows  # none twice
    return by_position


def test_rows_stay_and_files_become_few(tmp_path: Path) -> None:
    for number in range(12):
        add(tmp_path, number * 20 + 1, number * 20 + 20, day=number // 10)
    table = Table(tmp_path / "tables", "air")
    before, rejected = content(table), table.read("rejected").num_rows
    first_day = table.files(days=("2026-11-16", "2026-11-16"))
    report = compact(None, tmp_path / "tables", "air")
    # Three cells of the first day, what was rejected and what was counted; not the newest day.
    assert (report.files_before, report.files_after) == (len(first_day) + 24, 5)
    assert content(table) == before
    assert table.read("rejected").num_rows == rejected == 24
    assert sum(table.read("quality")["rows"].to_pylist()) == 240
    by_day = [entry.day for entry in table.files()]
    assert by_day.count("2026-11-16") == 3
    assert by_day.count("2026-11-17") == 6
    assert compact(None, tmp_path / "tables", "air").files_before == 0


def test_what_is_put_together_is_sorted_and_described(tmp_path: Path) -> None:
    for number in range(NEWEST_DAY_FILES_MIN):
        add(tmp_path, number * 20 + 1, number * 20 + 20)
    table = Table(tmp_path / "tables", "air")
    before = table.files(cells=["33TWL77"])
    compact(None, tmp_path / "tables", "air")
    [entry] = table.files(cells=["33TWL77"])
    assert entry.rows == sum(each.rows for each in before)
    assert (entry.first, entry.last) == (before[-1].first, before[0].last)  # later ones came first
    assert entry.at_min_us == before[0].at_min_us
    assert entry.at_max_us == before[-1].at_max_us
    assert entry.box == (45.8, 45.8, 15.98, 15.98)
    moments = table.read(cells=["33TWL77"])["at"].to_pylist()
    assert moments == sorted(moments)


def test_by_spark(spark: Any, tmp_path: Path) -> None:
    for number in range(NEWEST_DAY_FILES_MIN):
        add(tmp_path, number * 20 + 1, number * 20 + 20)
    table = Table(tmp_path / "tables", "air")
    before = content(table)
    assert compact(spark, tmp_path / "tables", "air").files_after == 5
    assert content(table) == before


def entry(path: str, day: str, rows: int = 10, size_bytes: int = 10) -> FileEntry:
    return FileEntry(path, "data", rows, size_bytes, day, "none")


def test_large_files_are_left_and_groups_are_bounded() -> None:
    entries = [entry("large", "1", size_bytes=SMALL_BYTES), entry("alone", "1")]
    entries += [entry(f"half{each}", "2", rows=ROWS_MAX // 2) for each in range(5)]
    entries += [entry(f"new{each}", "3") for each in range(NEWEST_DAY_FILES_MIN - 1)]
    state = State(files={each.path: each for each in entries})
    groups = [[each.path for each in group] for group in small_groups(state)]
    assert groups == [["half0", "half1"], ["half2", "half3"]]
    one_more = entry("new9", "3")
    state = State(files={**state.files, "new9": one_more})
    assert [len(group) for group in small_groups(state)] == [2, 2, NEWEST_DAY_FILES_MIN]


def test_an_ingestion_meanwhile_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(NEWEST_DAY_FILES_MIN):
        add(tmp_path, number * 20 + 1, number * 20 + 20)
    merge = compacting.merge

    def overtaken(work: Any) -> Any:
        monkeypatch.setattr(compacting, "merge", merge)
        add(tmp_path, 1001, 1020)
        return merge(work)

    monkeypatch.setattr(compacting, "merge", overtaken)
    compact(None, tmp_path / "tables", "air")
    found = content(Table(tmp_path / "tables", "air"))
    assert len(found) == (NEWEST_DAY_FILES_MIN + 1) * 18
    assert max(found) == 1019


def test_a_file_that_cannot_be_read_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    for number in range(NEWEST_DAY_FILES_MIN):
        add(tmp_path, number * 20 + 1, number * 20 + 20)
    table = Table(tmp_path / "tables", "air")
    state = table.state()
    broken = table.folder / table.files()[0].path
    broken.write_bytes(b"torn")
    with pytest.raises(CompactError, match=f"cannot read {broken}"):
        compact(None, tmp_path / "tables", "air")
    assert table.state() == state


@pytest.mark.soak
def test_readers_see_every_row_once_all_the_time(tmp_path: Path) -> None:
    add(tmp_path, 1, 20)
    table = Table(tmp_path / "tables", "air")
    done = threading.Event()
    seen: list[int] = []
    wrong: list[object] = []

    def watch() -> None:
        while not done.is_set():
            positions = table.read(columns=["position"])["position"].to_pylist()
            last = max(positions)
            expected = [each for each in range(1, last + 1) if each % 10]
            if sorted(positions) != expected:
                wrong.append(sorted(positions))
            seen.append(last)

    reader = threading.Thread(target=watch)
    reader.start()
    for number in range(1, 25):
        add(tmp_path, number * 20 + 1, number * 20 + 20)
        compact(None, tmp_path / "tables", "air")
    done.set()
    reader.join()
    assert wrong == []
    assert len(set(seen)) > 5  # it did look in between
    assert len(table.files()) < 3 * NEWEST_DAY_FILES_MIN


# --- cleaning ---------------------------------------------------------------------------------


def on_disk(table: Table) -> set[str]:
    return {path.relative_to(table.folder).as_posix() for path in table.folder.rglob("*part-*")}


def test_replaced_files_stay_for_a_while_and_then_go(tmp_path: Path) -> None:
    for number in range(NEWEST_DAY_FILES_MIN):
        add(tmp_path, number * 20 + 1, number * 20 + 20)
    table = Table(tmp_path / "tables", "air")
    before = on_disk(table)
    for name in before:  # written long ago, replaced now
        os.utime(table.folder / name, (1, 1))
    assert compact(None, tmp_path / "tables", "air").files_removed == 0
    assert before < on_disk(table)
    assert clean(table, retired_s=-1) == len(before)
    assert on_disk(table) == set(table.state().files)


def test_what_the_killed_left_goes_when_it_is_old(tmp_path: Path) -> None:
    add(tmp_path, 1, 20)
    table = Table(tmp_path / "tables", "air")
    folder = table.folder / Path(table.files()[0].path).parent
    for name in ("part-x.parquet", ".part-y.parquet.tmp"):
        (folder / name).write_bytes(b"half")
        assert clean(table) == 0
        os.utime(folder / name, (1, 1))
        assert clean(table) == 1
    assert on_disk(table) == set(table.state().files)


def test_old_commits_are_forgotten_when_a_later_one_tells_all(tmp_path: Path) -> None:
    add(tmp_path, 1, 20)
    table = Table(tmp_path / "tables", "air")
    for _ in range(100):
        table.log.commit(table.state(), Change(), lambda state: True)
    state = table.state()
    clean(table)
    assert table.log.versions() == list(range(101))
    time.sleep(0.01)
    clean(table, orphan_s=0.0)
    assert table.log.versions() == list(range(64, 101))
    assert table.state() == state


_CHILD = """
    import sys
    from pathlib import Path
    from rove.pipeline.compacting import compact
    print("begins", flush=True)
    compact(None, Path(sys.argv[1]), "air")
"""


@pytest.mark.soak
def test_killed_at_any_moment_no_row_is_lost(tmp_path: Path) -> None:
    for number in range(12):
        add(tmp_path, number * 20 + 1, number * 20 + 20)
    table = Table(tmp_path / "tables", "air")
    before = content(table)
    chance = random.Random(7)
    for pause_s in [*(chance.uniform(0, 0.05) for _ in range(5)), 120.0]:
        command = [sys.executable, "-c", textwrap.dedent(_CHILD), str(tmp_path / "tables")]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            try:
                child.wait(pause_s)
            except subprocess.TimeoutExpired:
                child.send_signal(signal.SIGKILL)
        assert content(table) == before
    assert len(table.files()) == 3
