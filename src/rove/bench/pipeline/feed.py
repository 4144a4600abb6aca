"""A lake that is filled by hand: for tests and benchmarks of the pipeline that need no broker.

`Feed` writes publications and the events of subscriptions through the broker's own
`rove.serve.disk.lake`, in one order of positions, and says how far it is after each call. Run as a
program it goes on by itself until it is killed, as a broker would be.

    python -m rove.bench.pipeline.feed FOLDER ROWS_PER_S SECONDS
"""

from __future__ import annotations

import random
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from rove.broker.storage.log import KIND as SUBSCRIPTIONS
from rove.broker.storage.records import LogRow
from rove.lake.storage import Location
from rove.serve.disk.lake import LakeAppender

STEP_S: Final = 0.1
CHANNELS: Final = ("air", "road")
ALIVE_MAX: Final = 20


class Feed:
    """One writer of a lake."""

    def __init__(self, folder: Location, *, rows_per_file: int = 65_536) -> None:
        """Go on after what the lake has."""
        self._lake = LakeAppender(folder, rows_per_file=rows_per_file)
        self._waiting: list[tuple[int, LogRow]] = []
        self.position = self._lake.last_position

    def subscribe(self, number: int, text: str, at: float, **facts: object) -> None:
        """Somebody subscribes; `facts` as in docs/lake.md."""
        told = {"filter": "#", "text": text, "accepted_at": at, "durable": True, **facts}
        client_id = str(told.pop("client_id", f"client{number}"))
        self._event(client_id, at, {"event": "made", "number": number, **told})

    def unsubscribe(self, number: int, at: float) -> None:
        self._event(f"client{number}", at, {"event": "ended", "number": number})

    def change_state(self, client_id: str, at: float, **changes: object) -> None:
        self._event(client_id, at, {"event": "state", "changes": changes})

    def publish(self, topic: str, attributes: Mapping[str, object], at: float) -> int:
        """One publication, in the channel that its topic begins with; its position."""
        channel = topic.partition("/")[0]
        payload = msgspec.json.encode(attributes)
        row = LogRow("publications", channel, at, topic, client_id="feed", payload=payload)
        position = self._add(row)
        row.id = f"p{position}"
        return position

    def write(self) -> int:
        """Let all of it be in the lake, and say so; the position up to which it is."""
        if self._waiting:
            self._lake.take(self._waiting)
            self._waiting = []
        return self.position

    def _event(self, client_id: str, at: float, facts: Mapping[str, object]) -> None:
        payload = msgspec.json.encode(facts)
        self._add(LogRow(SUBSCRIPTIONS, "", at, client_id=client_id, payload=payload))

    def _add(self, row: LogRow) -> int:
        self.position += 1
        self._waiting.append((self.position, row))
        return self.position


def publish_some(feed: Feed, count: int, at: float, seed: int = 0) -> None:
    """Readings with `NO2` from 0 to 100, spread over the channels, a microsecond apart."""
    chance = random.Random(seed)
    for index in range(count):
        channel = CHANNELS[index % len(CHANNELS)]
        reading = {"NO2": round(chance.random() * 100, 2), "sensor": chance.randrange(50)}
        feed.publish(f"{channel}/{index % 7}", reading, at + index / 1e6)


def main(words: Sequence[str]) -> None:
    """Publish at a rate for a while; the last few steps' subscriptions live, the others ended."""
    feed = Feed(Path(words[0]))
    rows_per_step, steps = int(float(words[1]) * STEP_S), int(float(words[2]) / STEP_S)
    alive: deque[int] = deque()
    for _ in range(steps):
        now = round(time.time(), 6)
        begun = feed.position
        publish_some(feed, rows_per_step // 2, now, seed=begun)
        feed.subscribe(begun + 1, f"NO2 > {begun % 97}", now)
        alive.append(begun + 1)
        if len(alive) > ALIVE_MAX:
            feed.unsubscribe(alive.popleft(), now)
        publish_some(feed, rows_per_step // 2, now + rows_per_step / 1e6, seed=begun + 1)
        feed.write()
        time.sleep(STEP_S)


if __name__ == "__main__":
    main(sys.argv[1:])
