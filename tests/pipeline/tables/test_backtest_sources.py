"""A history knows what it has, hands out little, and finds single publications again."""

from __future__ import annotations

import json
import operator
import random
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rove.broker.storage.records import LogRow
from rove.lake.log import open_for_writing
from rove.lang import parse
from rove.lang.attributes import attributes_of
from rove.lang.replay import Replay, ReplayedNotification
from rove.pipeline.lake.log import Lake, LakeError
from rove.pipeline.matching.pruning import PrunedExpression
from rove.pipeline.tables.backtest_sources import (
    BacktestSourceError,
    LakeSource,
    TableSource,
    TimeRange,
    day_of,
    open_source,
)
from rove.pipeline.tables.backtest_tasks import BacktestExpression, Example
from rove.pipeline.tables.ingest import ingest
from rove.pipeline.tables.table import Table
from rove.serve.disk.lake import LakeAppender as BrokersLake

BEGIN = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
DAY = 86_400.0
TEXTS = (
    "NO2 > 60",
    "kind = 'car' AND NO2 BETWEEN 20 AND 40",
    "NO2 IS NULL OR speed * 2 > NO2",
    "distance(lat, long, 45.8, 15.97) < 3000",
    "lat > 45.85 AND NOT (kind IN ('car', 'bus'))",
    "deep.z >= 2 AND topic LIKE 'air/%'",
    "deep IS NOT NULL AND speed > 0.9",
    "speed = 9007199254740993",
    "user = 'yes'",
    "NO2 BETWEEN t / 5000 - 5 AND t / 5000 + 5",
    "NO2 > me.limit AND kind = me.kind",
    "missing > 3",
)
RANKED = (
    "kind = 'car' ORDER BY NO2 DESC LIMIT 2 WITHIN 6 HOURS",
    "ORDER BY abs(speed - me.limit) LIMIT 1 WITHIN 20 PUBLICATIONS",
)
ME: dict[str, object] = {"limit": 30, "kind": "bus"}


class Past:
    """Three days of publications in two channels."""

    def __init__(self, folder: Path, *, rows: int = 500, seed: int = 3) -> None:
        self.lake, self.tables = folder / "lake", folder / "tables"
        self._chance = random.Random(seed)
        self.rows = [self._row(number) for number in range(rows)]
        self.rows.sort(key=lambda row: row.at)
        writer = BrokersLake(self.lake, rows_per_file=100)
        writer.take(list(enumerate(self.rows, 1)))
        (self.lake / "_position").write_text(str(rows))
        ingest(None, self.lake, self.tables)

    def _row(self, number: int) -> LogRow:
        chance = self._chance
        said: dict[str, Any] = {
            "lat": chance.uniform(45.7, 45.9),
            "long": chance.uniform(15.8, 16.1),
            "NO2": chance.choice((chance.uniform(0, 80), chance.randrange(80), "broken", None)),
            "kind": chance.choice(("car", "bus", "tram", 7)),
            "speed": chance.choice((chance.random(), 9007199254740993, 12, [1])),
            "deep": chance.choice(({"z": chance.randrange(4)}, {}, 5, {"z": {"w": 1}})),
        }
        for name in list(said):
            if chance.random() < 0.1:
                del said[name]
        channel = chance.choice(("air", "road"))
        payload = json.dumps(said).encode() if chance.random() < 0.97 else b"no json"
        at = BEGIN + chance.randrange(int(3 * DAY * 1e6)) / 1e6
        topic = f"{channel}/{chance.choice('abc')}"
        user = (("user", chance.choice(("yes", "no"))),) if chance.random() < 0.2 else ()
        client = f"c{chance.randrange(9)}"
        return LogRow("publications", channel, at, topic, f"p{number}", client, payload, user)

    def published(self, since: float, until: float, channel: str | None = None) -> list[LogRow]:
        return [
            row for row in self.rows if since <= row.at < until and channel in (None, row.channel)
        ]

    def notified(
        self,
        text: str,
        since: float,
        until: float,
        *,
        channel: str | None = None,
        me: Mapping[str, object] = ME,
        accepted_at: float | None = None,
    ) -> list[ReplayedNotification]:
        """What the oracle says."""
        replay = Replay()
        replay.subscribe("a", text, since if accepted_at is None else accepted_at, me)
        found: list[ReplayedNotification] = []
        for row in self.published(since, until, channel):
            attributes = attributes_of(row.topic, row.payload, row.user)
            found += replay.publish(row.id, attributes, row.at)
        return found + replay.advance(until)


TEXT = "lat > 45.85"
ASKED = [(BacktestExpression(TEXT), PrunedExpression(parse(TEXT)))]


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Past:
    return Past(tmp_path_factory.mktemp("past"), rows=120)


def period(since: float, until: float) -> TimeRange:
    return TimeRange(round((BEGIN + since * DAY) * 1e6), round((BEGIN + until * DAY) * 1e6))


def test_a_period_ends_before_its_end() -> None:
    assert period(0, 1).days == ("2026-11-01", "2026-11-01")
    assert period(0, 1.5).days == ("2026-11-01", "2026-11-02")
    assert period(0, 1).has(period(0, 1).since_us)
    assert not period(0, 1).has(period(0, 1).until_us)


def test_tables_are_taken_where_there_are_any(past: Past, tmp_path: Path) -> None:
    data = past.lake.parent
    assert isinstance(open_source(data_folder=data), TableSource)
    assert isinstance(open_source(lake=past.lake), LakeSource)
    (tmp_path / "lake").symlink_to(past.lake)
    history = open_source(data_folder=tmp_path, channels=["road"])
    assert isinstance(history, LakeSource)
    assert history.channels == ["road"]
    assert history.span() == ("2026-11-01", "2026-11-03")
    assert open_source(tables_folder=past.tables).span() == ("2026-11-01", "2026-11-03")


def test_what_is_missing_is_named(past: Past, tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="there is no lake at"):
        open_source(data_folder=tmp_path)
    with pytest.raises(
        BacktestSourceError, match=r"there are no tables in .* `rove pipeline ingest`"
    ):
        open_source(tables_folder=tmp_path)
    with pytest.raises(BacktestSourceError, match="no channel 'sea'; it has 'air', 'road'"):
        open_source(tables_folder=past.tables, channels=["sea"])
    with pytest.raises(BacktestSourceError, match="no channel 'sea'; it has 'air', 'road'"):
        open_source(lake=past.lake, channels=["sea"])
    open_for_writing(tmp_path)
    with pytest.raises(BacktestSourceError, match="has no publications yet"):
        open_source(lake=tmp_path)


@pytest.mark.parametrize(("since", "until"), [(0, 3), (0.3, 1.9), (1, 2), (2.9, 9), (-5, -1)])
def test_publications_of_a_period_are_counted_without_reading_them(
    spark: Any, past: Past, since: float, until: float
) -> None:
    parts = TableSource(past.tables).inputs(spark, period(since, until), ASKED, "")
    expected = len(past.published(BEGIN + since * DAY, BEGIN + until * DAY))
    assert sum(part.publications or 0 for part in parts) == expected


def test_rows_are_restricted_to_what_may_match(spark: Any, past: Past) -> None:
    whole = period(0.5, 2.5)
    ids = {
        row.id: attributes_of(row.topic, row.payload).get("lat")
        for row in past.published(BEGIN + 0.5 * DAY, BEGIN + 2.5 * DAY)
    }
    expected = {id for id, lat in ids.items() if isinstance(lat, float) and lat > 45.85}
    tables = TableSource(past.tables).inputs(spark, whole, ASKED, "")
    found = [row.position for part in tables for row in part.rows.collect()]
    positions = {row.id: position for position, row in enumerate(past.rows, 1)}
    assert sorted(found) == sorted(positions[id] for id in expected)
    (lake,) = LakeSource(Lake(past.lake)).inputs(spark, whole, ASKED, "")
    assert {row.id for row in lake.rows.collect()} == set(ids)
    nowhere = [(BacktestExpression("sea = 1"), PrunedExpression(parse("sea = 1")))]
    assert all(
        part.rows is None for part in TableSource(past.tables).inputs(spark, whole, nowhere, "")
    )


def test_an_area_that_moves_is_looked_for_where_it_is_by_day(spark: Any, past: Past) -> None:
    text = "lat BETWEEN 45.7 + t * 8e-7 AND 45.72 + t * 8e-7"
    whole = period(0, 3)
    history = TableSource(past.tables)

    def files(t: tuple[float, float]) -> int:
        asked = [(BacktestExpression(text, BEGIN), PrunedExpression(parse(text), t))]
        return sum(part.files for part in history.inputs(spark, whole, asked, ""))

    standing = [(BacktestExpression("lat > 45"), PrunedExpression(parse("lat > 45")))]
    every = sum(part.files for part in history.inputs(spark, whole, standing, ""))
    assert 0 < files((0.0, 3 * DAY)) < every


def test_every_publication_is_found_again(past: Past) -> None:
    places = {
        row["id"]: (entry.cell, row["position"])
        for channel in ("air", "road")
        for entry in Table(past.tables, channel).files()
        for row in _ids(past.tables, channel, entry.path)
    }
    lake, tables = LakeSource(Lake(past.lake)), TableSource(past.tables)
    for row in past.rows[:60]:
        cell, position = places[row.id]
        at_us = round(row.at * 1e6)
        one = Example(0, at_us, position, row.client_id, row.topic, cell, at_us)
        expected = (row.id, attributes_of(row.topic, row.payload, row.user))
        for history in (tables, lake):
            found = history.find(one, partial(operator.eq, expected[1]))
            assert (found.id, found.attributes) == expected
            assert found.bytes_read > 0
    gone = Example(0, 0, 10**9, "", "", "none", 0)
    for history in (lake, tables):
        with pytest.raises(
            BacktestSourceError, match=r"a publication of 1970-01-01T.* is no longer there"
        ):
            history.find(gone, lambda said: True)


def _ids(tables: Path, channel: str, path: str) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(Path(Table(tables, channel).uri_of("data"), path))
    rows: list[dict[str, Any]] = file.read(["id", "position"]).to_pylist()
    return rows


def test_days_are_called_as_folders_are() -> None:
    assert day_of(0) == "1970-01-01"
    assert day_of(round((BEGIN + DAY) * 1e6) - 1) == "2026-11-01"
