"""The engines that `rove bench match` compares, each behind one call, and their judge.

The judge is the full scan (`rove.bench.match.scan`). It is asked about every publication that any
engine is measured on, so an engine that is quick because it is wrong does not get into a table:
`Judge.check` raises. Engines that may answer for an earlier moment (PES, CLEES) say which, and
the judge is asked about that one.

An engine gets a `Stream`, which holds publications both as numbers and as dictionaries, made
before the clock starts: what is compared is matching, not the making of dictionaries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

import msgspec
import numpy as np

from rove.bench.match.scan import Scan
from rove.lang import parse
from rove.match import Evolve, Matcher
from rove.match.forest import Forest
from rove.match.index.construction import built
from rove.match.index.rows import Floats, Positions, from_boxes
from rove.match.index.segment import Segment
from rove.match.index.subjects import Subjects
from rove.match.results import Pairs
from rove.testing.boxes import Boxes, Events

_CHUNKS: Final = 8
"""Parts in which the judge is timed; the least disturbed one counts."""


class WrongAnswerError(AssertionError):
    """An engine and the full scan disagree."""


class Stream(msgspec.Struct, frozen=True, eq=False):
    """Publications, a line each, and when they appear."""

    names: tuple[str, ...]
    values: Floats
    at: Floats
    publications: Sequence[dict[str, float]]

    def __len__(self) -> int:
        return len(self.at)

    def part(self, first: int, end: int) -> Stream:
        """Those from one number to before another."""
        part = slice(first, end)
        return Stream(self.names, self.values[part], self.at[part], self.publications[part])

    def parts(self, count: int) -> list[Stream]:
        """All of them in so many parts of about one size."""
        ends = np.linspace(0, len(self), count + 1).astype(int).tolist()
        return [self.part(first, end) for first, end in pairwise(ends)]

    def singles(self) -> list[Stream]:
        """Each by itself."""
        return self.parts(len(self))


def together(found: Sequence[Positions]) -> Pairs:
    """What was found for one publication after another."""
    counts = np.array([len(ids) for ids in found], np.int32)
    return Pairs.counted(counts, np.concatenate([np.empty(0, np.int64), *found]))


def stream_of(events: Events, lasting_s: float = 0.0) -> Stream:
    """Events as a stream, evenly over so many seconds from time 0 on."""
    publications = [events.publication(number) for number in range(len(events))]
    at = np.linspace(0.0, lasting_s, len(events))
    return Stream(events.attributes, events.values, at, publications)


# -- the judge ----------------------------------------------------------------------------


class Judge:
    """The full scan over some boxes, and what it says about a stream."""

    def __init__(self, boxes: Boxes, stream: Stream, ids: Positions | None = None) -> None:
        """Scans all publications at once; `events_per_s` says how quickly."""
        self._scan = scan_of(boxes, ids)
        self._stream = stream
        self.events_per_s = 0.0
        self._found: list[Positions] = []
        for part in stream.parts(min(_CHUNKS, len(stream))):
            start = time.perf_counter()
            found = [
                self._scan.match(values, t)
                for values, t in zip(part.values, part.at.tolist(), strict=True)
            ]
            per_s = len(part) / (time.perf_counter() - start)
            self.events_per_s = max(self.events_per_s, per_s)
            self._found += found

    def check(self, name: str, found: Pairs, events: int, as_of: Floats | None = None) -> None:
        """Compare what an engine found for the first `events` of the stream.

        With `as_of`, each answer must be that of another moment.
        """
        wanted = self._found[:events]
        if as_of is not None:
            rows = zip(self._stream.values[:events], as_of.tolist(), strict=True)
            wanted = [self._scan.match(values, t) for values, t in rows]
        if not np.array_equal(_in_order(found), _in_order(together(wanted))):
            raise WrongAnswerError(f"{name} differs from the full scan")


def _in_order(pairs: Pairs) -> Positions:
    """Pairs as one number each, ascending: equal for equal answers in whatever order."""
    return np.sort((pairs.publications.astype(np.int64) << 32) | pairs.subscriptions)


def scan_of(boxes: Boxes, ids: Positions | None = None) -> Scan:
    """The full scan of boxes, numbered from 0 unless told otherwise."""
    numbers = np.arange(len(boxes)) if ids is None else ids
    return Scan(boxes.attributes, boxes.lows, boxes.highs, numbers, boxes.speeds)


# -- the engines --------------------------------------------------------------------------


class Engine(Protocol):
    """Something that matches."""

    def match(self, stream: Stream) -> Pairs:
        """Who gets what of a stream."""
        ...


class IndexEngine:
    """The matcher as it is meant to be used for boxes."""

    def __init__(self, boxes: Boxes) -> None:
        self.matcher = Matcher()
        numbers = np.arange(len(boxes))
        self.matcher.add_boxes(numbers, boxes.attributes, boxes.lows, boxes.highs, boxes.speeds)
        self._reader = self.matcher.reader(boxes.attributes)

    def match(self, stream: Stream) -> Pairs:
        """All of the stream in one call."""
        return self.matcher.match_columns(stream.names, stream.values, stream.at)

    def match_one(self, values: Floats, at: float) -> Positions:
        """Who gets one publication: a line of numbers, as the scan gets it."""
        return self._reader.match(values, at)


class NumpyEngine:
    """What a matcher does while its kernels are still being compiled."""

    def __init__(self, boxes: Boxes) -> None:
        self._subjects = Subjects()
        attributes = [self._subjects.attribute(name) for name in boxes.attributes]
        ids = np.arange(len(boxes))
        rows = from_boxes(ids, attributes, boxes.lows, boxes.highs, boxes.speeds)
        self._segment = Segment(built(rows, 0.0, indexed=False), rows.strings)

    def match(self, stream: Stream) -> Pairs:
        """All of the stream in one call."""
        batch = self._subjects.columns(stream.names, stream.values, stream.at)
        found = self._segment.scan(batch)
        return Pairs.counted(found.counts, found.ids.astype(np.int64))


class ForestEngine:
    """The covering forest, asked one publication after another."""

    def __init__(self, boxes: Boxes) -> None:
        self._forest = Forest()
        for row in range(len(boxes)):
            self._forest.insert(row, parse(boxes.text(row)))

    def match(self, stream: Stream) -> Pairs:
        """The stream, one by one."""
        found = [sorted(self._forest.match(one)) for one in stream.publications]
        return together([np.array(ids, np.int64) for ids in found])


class DesignEngine:
    """Subscriptions that evolve by one of the published designs."""

    def __init__(self, boxes: Boxes, evolve: Evolve) -> None:
        self._evolve = evolve
        self._matcher = Matcher()
        for row in range(len(boxes)):
            self._matcher.add(row, parse(boxes.text(row)), evolve=evolve)

    def match(self, stream: Stream) -> Pairs:
        """All of the stream in one call; its times must not go back."""
        return self._matcher.match(stream.publications, stream.at.tolist())

    def as_of(self, at: Floats) -> Floats:
        """For which moments the answers are, if publications come at these times and no others.

        All subscriptions were accepted at time 0 and have no fixed part: each publication
        evaluates all whose version is too old.
        """
        seconds = self._evolve.seconds
        if self._evolve.design == "lees" or seconds is None:
            return at
        if self._evolve.design == "pes":
            return np.floor(at / seconds) * seconds
        moments = []
        made_at = -np.inf
        for time_s in at.tolist():
            if time_s > made_at + seconds:
                made_at = time_s
            moments.append(made_at)
        return np.array(moments)


class Kind(NamedTuple):
    """How an engine is made, and how much it is asked to do."""

    make: Callable[[Boxes], Engine]
    subscriptions_max: int
    """Beyond that it would take minutes for nothing new."""


ENGINES: Final[dict[str, Kind]] = {
    "index": Kind(IndexEngine, 10_000_000),
    "numpy": Kind(NumpyEngine, 100_000),
    "forest": Kind(ForestEngine, 1_000),
}
"""What is compared with the full scan on every workload."""

DESIGNS: Final[dict[str, Evolve]] = {
    "pes": Evolve("pes", 1.0),
    "lees": Evolve("lees"),
    "clees": Evolve("clees", 1.0),
}
"""What is compared with it where areas travel, with versions of up to a second."""
