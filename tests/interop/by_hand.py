"""The job `match` without Spark: what a lake has, judged by the evaluator of the language.

Slow and obvious, for tests that need a table that grows beside a lake: each step takes what is new
and commits it as one batch. Only plain texts; ranked rows are for the test to say.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from rove.lake.files import write_file
from rove.lang.attributes import attributes_of
from rove.lang.oracle import matches
from rove.lang.parser import parse
from rove.mqtt.topics import fits
from rove.pipeline.jobs.notifications import SCHEMA, MatchOutput
from rove.pipeline.lake.log import Event, Lake

Pair = tuple[int, int]
"""A subscription and the position of a publication that meets it."""


def notifications(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows of the table, of which only `subscription` and `position` have to be said."""
    nothing = {"id": "", "at": 0, "score": None, "promoted": False, "sequence": None}
    return pa.Table.from_pylist([{**nothing, **row} for row in rows], SCHEMA)


class Batches:
    """Commits batches, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.output = MatchOutput(folder)

    def commit(self, last: int, *parts: list[dict[str, Any]]) -> None:
        """What was found up to a position, as so many files; what has a score is ranked."""
        sequence = self.output.sequence
        for row in (row for part in parts for row in part if row.get("score") is not None):
            sequence += 1
            row["sequence"] = sequence
        written = [write_file(self.output.uri, notifications(part)) for part in parts]
        self.output.commit(last, written, [], sequence)


class HandMatch:
    """Matches what a lake gets."""

    def __init__(self, lake: Path, out: Path) -> None:
        self.pairs: set[Pair] = set()
        """All that was found, of all subscriptions."""
        self.ids: dict[int, str] = {}
        """Ids of publications by position."""
        self._lake = Lake(lake)
        self._batches = Batches(out)
        self._done = self._batches.output.done
        self._live: dict[int, Event] = {}

    def step(self) -> bool:
        """Take what is new; whether there was anything."""
        up_to = self._lake.position()
        if up_to <= self._done:
            return False
        found = [
            {"subscription": number, "position": position}
            for position, number in sorted(self._judged(up_to))
        ]
        self.pairs |= {(row["subscription"], row["position"]) for row in found}
        self._batches.commit(up_to, found)
        self._done = up_to
        return True

    def _judged(self, up_to: int) -> list[Pair]:
        happened: list[tuple[int, Event | dict[str, Any]]] = [
            (event.position, event) for event in self._lake.events(self._done, up_to)
        ]
        for file in self._lake.files("publications", self._done, up_to):
            rows = self._lake.read(file, after=self._done, up_to=up_to).to_pylist()
            happened += [(row["position"], row) for row in rows]
        found = []
        for position, each in sorted(happened, key=lambda one: one[0]):
            if isinstance(each, Event):
                self._change(each)
            else:
                self.ids[position] = each["id"]
                met = [event for event in self._live.values() if _meets(event, each)]
                found += [(position, event.number) for event in met]
        return found

    def _change(self, event: Event) -> None:
        if event.event == "made" and event.text:
            self._live[event.number] = event
        elif event.event == "ended":
            self._live.pop(event.number, None)
        elif event.event == "started":
            self._live = {number: one for number, one in self._live.items() if one.durable}


def _meets(event: Event, row: dict[str, Any]) -> bool:
    user = [(each["name"], each["value"]) for each in row["user"] or ()]
    attributes = attributes_of(row["topic"], row["payload"], user)
    return fits(event.filter, row["topic"]) and matches(parse(event.text), attributes)
