"""Subscriptions cut into a version for each state of their subscriber: slow, and plain to see.

What the pipeline does with columns and joins is compared with this.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from rove.lang.values import change_state
from rove.pipeline.lake.live_index import LiveIndex
from rove.pipeline.lake.log import Event, Lake
from rove.pipeline.lake.version_index import VersionIndex, opened
from rove.pipeline.lake.versions import Timeline, Version


def versions_by_state(events: Iterable[Event], engine: str | None = None) -> list[Version]:
    """Every version that events tell of, each with one state."""
    timeline = Timeline(engine)
    holding: dict[int, Version] = {}
    over: list[Version] = []
    for event in events:
        ended, begun = timeline.take(event)
        for one in ended:
            last = holding.pop(one.number)
            over.append(msgspec.structs.replace(last, until=event.position))
        holding |= {one.number: one for one in begun}
        if event.event != "state":
            continue
        for number, one in list(holding.items()):
            if one.client_id == event.client_id:
                me = dict(one.me)
                change_state(me, event.changes)
                over.append(msgspec.structs.replace(one, until=event.position))
                holding[number] = msgspec.structs.replace(one, me=me, since=event.position)
    return over + list(holding.values())


def index_of(lake: Lake, folder: Path) -> VersionIndex:
    """An index of everything that a lake tells of."""
    live = LiveIndex(folder)
    live.take(lake.events())
    return opened(live.spec())
