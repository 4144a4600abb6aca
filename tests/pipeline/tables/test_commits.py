"""Three tables, one ingestion: all of it counts or nothing, and files stay few."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from rove.broker.storage.records import LogRow
from rove.lake import compaction, delta
from rove.pipeline.tables.commits import ChannelTables, ingestions
from rove.pipeline.tables.ingest import ingest
from rove.pipeline.tables.quality import AttributeRule, QualityRules, RuleBook
from rove.pipeline.tables.table import Table, TableSchema, TablesError, attributes_of_rows
from rove.serve.disk.lake import LakeAppender as BrokersLake

NOON_S = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()
SMALL_FILES_MAX = 3
RULES = RuleBook({"air": QualityRules(attributes={"x": AttributeRule(min=0)})})


def publish(folder: Path, first: int, last: int, *, day: int = 0) -> None:
    """Publications of a day into the lake; every tenth will be rejected."""
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


def add(folder: Path, first: int, last: int, *, day: int = 0) -> None:
    publish(folder, first, last, day=day)
    ingest(None, folder / "lake", folder / "tables", rules=RULES)


def content(folder: Path) -> dict[int, Any]:
    table = Table(folder / "tables", "air")
    rows = table.read()
    found = attributes_of_rows(table.schema(), rows)
    by_position = dict(zip(rows["position"].to_pylist(), found, strict=True))
    assert len(by_position) == rows.num_rows  # none twice
    return by_position


def rejected(folder: Path) -> list[int]:
    found: list[int] = Table(folder / "tables", "air").read("rejected")["position"].to_pylist()
    return sorted(found)


def kept_of(first: int, last: int) -> list[int]:
    return [each for each in range(first, last + 1) if each % 10]


# --- all or nothing ---------------------------------------------------------------------------


class KilledError(BaseException):
    """As if the process had ended."""


@pytest.mark.parametrize("survives", range(4))
def test_killed_between_its_commits_the_next_one_does_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survives: int
) -> None:
    """Of quality, rejected and data, in this order, so many are made."""
    add(tmp_path, 1, 20)
    commit = delta.DeltaTable.commit
    made: list[str] = []

    def dies(self: delta.DeltaTable, *given: Any, **named: Any) -> bool:
        if len(made) == survives:
            raise KilledError
        made.append(self.uri.rpartition("/")[2])
        return commit(self, *given, **named)

    publish(tmp_path, 21, 40)
    with monkeypatch.context() as patch:
        patch.setattr(delta.DeltaTable, "commit", dies)
        if survives < 3:
            with pytest.raises(KilledError):
                ingest(None, tmp_path / "lake", tmp_path / "tables", rules=RULES)
        else:
            ingest(None, tmp_path / "lake", tmp_path / "tables", rules=RULES)
    assert made == ["quality", "rejected", "data"][:survives]
    # A reader sees all rows of an ingestion or none.
    assert sorted(content(tmp_path)) == kept_of(1, 40 if survives == 3 else 20)
    if survives:  # whoever opens it to write does the rest, even if others have compacted
        delta.DeltaTable(tmp_path / "tables" / "air" / "quality").compact(10**6)
        ChannelTables(tmp_path / "tables", TableSchema("air"))
        assert sorted(content(tmp_path)) == kept_of(1, 40)
    add(tmp_path, 41, 60)
    assert sorted(content(tmp_path)) == kept_of(1, 60)
    assert rejected(tmp_path) == [10, 20, 30, 40, 50, 60]
    counts = Table(tmp_path / "tables", "air").counts()
    assert counts == {"in": 60, "out": 54, "range:x": 6}


def test_a_last_ingestion_that_nobody_knows_any_more_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(tmp_path, 1, 20)
    monkeypatch.setattr(delta.DeltaTable, "last_info", lambda *_: None)
    ChannelTables(tmp_path / "tables", TableSchema("air"))
    monkeypatch.setattr(ChannelTables, "_finish", lambda *_: None)
    add(tmp_path, 21, 40)
    with pytest.raises(TablesError, match="no longer lists the files of its last ingestion"):
        ChannelTables(tmp_path / "tables", TableSchema("air"))


def test_ingestions_are_numbered_and_say_in_which_hours_they_kept_rows(tmp_path: Path) -> None:
    add(tmp_path, 1, 9)
    add(tmp_path, 11, 19, day=2)
    quality = delta.DeltaTable(Table(tmp_path / "tables", "air").uri_of("quality"))
    found = ingestions(quality, -1, ["position", "hours"]).sort_by("number").to_pylist()
    days = [[f"{hour:%d %H}" for hour in each["hours"]] for each in found]
    assert [(each["number"], each["position"]) for each in found] == [(0, 9), (1, 19)]
    assert days == [["16 11"], ["18 11"]]
    assert ingestions(quality, 0, ["hours"])["number"].to_pylist() == [1]


# --- few files --------------------------------------------------------------------------------


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "NEWEST_FILES_MAX", SMALL_FILES_MAX)


def by_place(folder: Path) -> Counter[tuple[str, str]]:
    return Counter((file.day, file.cell) for file in Table(folder / "tables", "air").files())


@pytest.mark.usefixtures("few")
def test_as_it_runs_files_stay_few_and_rows_as_they_are(tmp_path: Path) -> None:
    most = 0
    for number in range(10):
        add(tmp_path, number * 20 + 1, number * 20 + 20)
        most = max(most, *by_place(tmp_path).values())
    assert most <= SMALL_FILES_MAX
    assert sorted(content(tmp_path)) == kept_of(1, 200)
    assert rejected(tmp_path) == list(range(10, 201, 10))
    table = Table(tmp_path / "tables", "air")
    assert table.counts() == {"in": 200, "out": 180, "range:x": 20}
    for part in ("rejected", "quality"):
        assert delta.DeltaTable(table.uri_of(part)).files().num_rows <= SMALL_FILES_MAX
    add(tmp_path, 201, 220, day=1)
    over = {place: files for place, files in by_place(tmp_path).items() if place[0] == "2026-11-16"}
    assert set(over.values()) == {1}  # of a day that is over
    assert sorted(content(tmp_path)) == kept_of(1, 220)


@pytest.mark.usefixtures("few")
def test_what_is_put_together_is_described_as_before(tmp_path: Path) -> None:
    for number in range(SMALL_FILES_MAX):
        add(tmp_path, number * 20 + 1, number * 20 + 20)
    table = Table(tmp_path / "tables", "air")
    before = table.files(cells=["33TWL77"])
    add(tmp_path, 61, 80)
    [file] = table.files(cells=["33TWL77"])
    assert file.rows > sum(each.rows for each in before)
    assert file.box == (45.8, 45.8, 15.98, 15.98)
    moments = [
        round(at.timestamp() * 1e6) for at in table.read(cells=["33TWL77"])["at"].to_pylist()
    ]
    assert file.at_min_us <= min(moments)
    assert max(moments) <= file.at_max_us < max(moments) + 2_000


@pytest.mark.usefixtures("few")
def test_replaced_files_stay_for_readers_and_then_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def on_disk() -> int:
        return len(list((tmp_path / "tables" / "air" / "data").rglob("part-*")))

    for number in range(SMALL_FILES_MAX + 1):
        add(tmp_path, number * 20 + 1, number * 20 + 20)
    assert on_disk() > 10
    assert sum(by_place(tmp_path).values()) == 3
    at_once = {**compaction.CONFIGURATION, "delta.deletedFileRetentionDuration": "interval 0 hours"}
    monkeypatch.setattr(compaction, "CONFIGURATION", at_once)
    for number in range(SMALL_FILES_MAX + 1):
        add(tmp_path / "hasty", number * 20 + 1, number * 20 + 20)
    assert len(list((tmp_path / "hasty" / "tables" / "air" / "data").rglob("part-*"))) == 3


def test_earlier_versions_can_be_asked_for(tmp_path: Path) -> None:
    add(tmp_path, 1, 9)
    data = DeltaTable(Table(tmp_path / "tables", "air").uri_of("data"))
    version = data.version()
    add(tmp_path, 11, 19)
    data.load_as_version(version)
    assert data.count() == 9
    data.load_as_version(version + 1)
    assert data.count() == 18
