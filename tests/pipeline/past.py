"""A small past with odd types, in a lake and in tables, and what the oracle says of a text."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rove.broker.records import LogRow
from rove.lang.attributes import attributes_of
from rove.lang.replay import Notification, Replay
from rove.pipeline.ingest import ingest
from rove.serve.lake import Lake as BrokersLake

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
    ) -> list[Notification]:
        """What the oracle says."""
        replay = Replay()
        replay.subscribe("a", text, since if accepted_at is None else accepted_at, me)
        found: list[Notification] = []
        for row in self.published(since, until, channel):
            attributes = attributes_of(row.topic, row.payload, row.user)
            found += replay.publish(row.id, attributes, row.at)
        return found + replay.advance(until)
