"""Ranked subscriptions: lists behind thresholds (pruned) against a skyband for each (strict).

Every subscription wants its ten best of a sliding window; the window is one of time and holds
`window` publications, one a second. Both get the same stream through the same interface, first
until the window is full, which is not measured. (The strict one is told that everybody matches.)
Then they take turns, that a busy machine may disturb both alike: the strict one is timed over
`strict_events` publications in all, the pruned one over `events`, of which the first are the same.
What both delivered there must be equal, or the benchmark stops. Meanwhile Python collects no
garbage, since the benchmark keeps what was delivered.

Filling the window takes the strict one as long per publication as measuring it does: some 300 s
at 100,000 subscriptions and 10,000 publications.

Shapes: `planar` is the squared distance to a place of one's own, `linear` a weighted sum of three
attributes, `distance` the haversine to a place of one's own in a town.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random

import numpy as np

from rove.bench.measure import Measure
from rove.lang import parse
from rove.match import RankedDelivery, warm_up
from rove.match.ranked.scores import Integers
from rove.match.ranked.windows import Windows

GOAL_RATIO = 200
_K = 10
_TURNS = 5


def _planar(random: Random) -> str:
    x, y = random.random(), random.random()
    return f"(x - {x}) * (x - {x}) + (y - {y}) * (y - {y})"


def _linear(random: Random) -> str:
    return f"{random.random()} * x + {random.random()} * y + {random.random()} * z"


def _distance(random: Random) -> str:
    return f"distance(lat, long, {random.uniform(45.7, 45.9)}, {random.uniform(15.8, 16.1)})"


SHAPES: Mapping[str, Callable[[Random], str]] = {
    "planar": _planar,
    "linear": _linear,
    "distance": _distance,
}


def run(
    subscriptions: int = 100_000,
    window: int = 10_000,
    events: int = 2_000,
    strict_events: int = 40,
    shapes: Sequence[str] = ("planar",),
) -> Iterator[Measure]:
    """Both implementations of every shape, in events a second; the strict one gets fewer."""
    warm_up()
    for shape in shapes:
        yield from _compared(shape, subscriptions, window, events, strict_events)


def _compared(
    shape: str, subscriptions: int, window: int, events: int, strict_events: int
) -> Iterator[Measure]:
    random = Random(1)
    strict, pruned = Windows(shares=False), Windows()
    everybody, nobody = np.arange(subscriptions), np.empty(0, np.int64)
    for id in range(subscriptions):
        score = SHAPES[shape](random)
        subscription = parse(f"ORDER BY {score} LIMIT {_K} WITHIN {window} SECONDS")
        strict.add(id, subscription)
        pruned.add(id, subscription)
    stream = [_publication(random) for _ in range(window + events)]
    for ranked, matched in ((strict, everybody), (pruned, nobody)):
        for number in range(window):
            ranked.publish(number, stream[number], float(number), matched)
    after = stream[window:]
    wanted = _Turns(strict, everybody, after, window)
    delivered = _Turns(pruned, nobody, after, window)
    for turn in range(1, _TURNS + 1):
        wanted.go_on(turn * strict_events // _TURNS)
        delivered.go_on(turn * events // _TURNS)
    if delivered.lists[:strict_events] != wanted.lists:
        raise AssertionError(f"{shape}: strict and pruned have delivered differently")
    strict_per_s, pruned_per_s = strict_events / wanted.seconds, events / delivered.seconds
    name = f"ranked.{shape}.{subscriptions}"
    yield Measure(f"{name}.strict", strict_per_s, "events/s")
    yield Measure(
        f"{name}.pruned",
        pruned_per_s,
        "events/s",
        ratio=pruned_per_s / strict_per_s,
        against=f"{name}.strict",
        goal=f">= {GOAL_RATIO}x",
        reached=pruned_per_s >= GOAL_RATIO * strict_per_s,
    )


def _publication(random: Random) -> dict[str, object]:
    """Attributes for every shape."""
    return {
        "x": random.random(),
        "y": random.random(),
        "z": random.random(),
        "lat": random.uniform(45.7, 45.9),
        "long": random.uniform(15.8, 16.1),
    }


class _Turns:
    """One implementation, and its way through what follows the full window."""

    def __init__(
        self,
        ranked: Windows,
        matched: Integers,
        stream: Sequence[dict[str, object]],
        first_at: int,
    ) -> None:
        self.lists: list[list[RankedDelivery]] = []
        self.seconds = 0.0
        self._ranked, self._matched = ranked, matched
        self._stream = stream
        self._first_at = float(first_at)

    def go_on(self, end: int) -> None:
        """Publish up to number `end`, against the clock."""
        gc.disable()
        start = time.perf_counter()
        for number in range(len(self.lists), end):
            at = self._first_at + number
            self.lists.append(self._ranked.publish(number, self._stream[number], at, self._matched))
        self.seconds += time.perf_counter() - start
        gc.enable()
