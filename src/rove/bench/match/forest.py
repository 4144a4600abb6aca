"""What a covering forest costs to build and to match with, beside asking everyone.

On W1 and W4 of `rove.testing.boxes`: ordinary subscriptions, and ones that were made to cover
each other. The share of roots is what a forest is for, since only roots are sent to another
broker. Beside it, on the same publications: the oracle asked for every subscription, as slow and
plain as the forest's own evaluations, and the full scan in NumPy. The answers of all three are
compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from rove.bench.match.scan import Scan
from rove.bench.measure import Measure, seconds_for
from rove.lang import Subscription, matches, parse
from rove.match.forest import Forest
from rove.testing.boxes import Boxes, Events, Name, workload

_EVENTS = 20
_REMOVALS = 200


def run(
    names: Sequence[Name] = ("W1", "W4"), sizes: Sequence[int] = (1_000, 3_000, 10_000)
) -> Iterator[Measure]:
    """All measures, each as soon as it is known."""
    for name in names:
        for size in sizes:
            yield from _measures(f"forest.{name}.{size}", *workload(name, size, _EVENTS))


def _measures(name: str, boxes: Boxes, events: Events) -> Iterator[Measure]:
    subscriptions = [parse(boxes.text(row)) for row in range(len(boxes))]
    forest = Forest()
    build_s = seconds_for(lambda: _fill(forest, subscriptions), rounds=1)
    yield Measure(f"{name}.build", build_s, "s")
    yield Measure(f"{name}.insert", 1e6 * build_s / len(boxes), "µs")
    yield Measure(f"{name}.compared", _compared(forest) / len(boxes), "pairs/subscription")
    yield Measure(f"{name}.roots", 100 * len(forest.roots()) / len(boxes), "%")
    yield from _matching(name, forest, subscriptions, boxes, events)
    gone = np.random.default_rng(1).permutation(len(boxes))[:_REMOVALS].tolist()
    remove_s = seconds_for(lambda: _thin_out(forest, gone), rounds=1)
    yield Measure(f"{name}.remove", 1e6 * remove_s / len(gone), "µs")


def _matching(
    name: str, forest: Forest, subscriptions: list[Subscription], boxes: Boxes, events: Events
) -> Iterator[Measure]:
    publications = [events.publication(number) for number in range(len(events))]
    scan = Scan(boxes.attributes, boxes.lows, boxes.highs, np.arange(len(boxes)), boxes.speeds)

    def by_oracle() -> list[set[int]]:
        return [
            {id for id, one in enumerate(subscriptions) if matches(one, publication)}
            for publication in publications
        ]

    def by_forest() -> list[set[int]]:
        return [forest.match(publication) for publication in publications]

    def by_scan() -> list[set[int]]:
        return [set(scan.match(values).tolist()) for values in events.values]

    oracle_us, wanted = _us_per_event(by_oracle, rounds=1)
    yield Measure(f"{name}.oracle", oracle_us, "µs/event")
    for engine, work in (("match", by_forest), ("scan", by_scan)):
        took_us, found = _us_per_event(work, rounds=3)
        if found != wanted:
            raise AssertionError(f"{name}.{engine} differs from the oracle")
        ratio = oracle_us / took_us
        yield Measure(f"{name}.{engine}", took_us, "µs/event", ratio, f"{name}.oracle")


def _us_per_event(work: Callable[[], list[set[int]]], rounds: int) -> tuple[float, list[set[int]]]:
    found: list[set[int]] = []

    def keep() -> None:
        found[:] = work()

    return 1e6 * seconds_for(keep, rounds) / _EVENTS, found


def _fill(forest: Forest, subscriptions: list[Subscription]) -> None:
    for id, subscription in enumerate(subscriptions):
        forest.insert(id, subscription)


def _thin_out(forest: Forest, gone: list[int]) -> None:
    for id in gone:
        forest.remove(id)


def _compared(forest: Forest) -> int:
    return forest.counts.boxes_compared + forest.counts.covers_asked
