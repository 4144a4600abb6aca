"""Every engine against the oracle: a million triples in `make test`, fifty million in `make soak`.

A *triple* is a subscription, a publication and a `t` (with the subscriber's state), which the
oracle was asked about once and by which at least one engine was judged. Trials are those of
`tests.differential.trials`: publications on the bounds of the subscriptions and right beside
them, missing, of the wrong type, beyond 64 bits; and between them subscriptions come, go, are
replaced, move with their subscriber, are merged, saved and loaded.

Boxes in columns and ranked subscriptions are asked in other ways than the rest, so they have
trials of their own below. All is drawn from seeds that a failure names; `make soak` takes new
ones.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from random import Random, SystemRandom
from typing import Any
from unittest import mock

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from rove.bench.match.scan import Scan
from rove.lang import RankedWindow, Subscription, WindowDelivery, matches, parse, to_text
from rove.lang.tree import is_conditional
from rove.lang.values import change_state
from rove.match.designs.design import parse_evolve
from rove.match.index import index
from rove.match.matcher import Matcher
from rove.match.ranked.windows import Windows
from rove.match.results import RankedDelivery
from rove.testing.boxes import Boxes, Events
from tests.differential.drawing import PLAIN_NUMBERS, Drawing, Moment
from tests.differential.trials import (
    Counts,
    Difference,
    EngineMakers,
    ForestEngine,
    MatcherEngine,
    NumpyEngine,
    Plan,
    Trial,
    without_kernels,
)
from tests.effort import is_soak

Record = Callable[[str, object], None]

SHARDS = 4
"""Parts of a run, which go to different cores."""


# -- the engines of subscriptions that are not ranked -------------------------------------------


def evolving(*texts: str) -> Callable[[], MatcherEngine]:
    return lambda: MatcherEngine(*map(parse_evolve, texts))


IN_TURN: tuple[EngineMakers, ...] = (
    {"lees": evolving("lees"), "pes": evolving("pes 1s", "pes 0.5s", "pes 0.3s", "pes 7s")},
    {"numpy": NumpyEngine},
    {"clees": evolving("clees 1s", "clees 0.5s", "clees 0.3s", "clees 7s")},
    {"warming": lambda: NumpyEngine(kernels_come=True)},
    {"mixed": evolving("exact", "pes 1s", "clees 500ms", "lees", "pes 10ms")},
)
"""Beside the index with its kernels, which takes part every time; so there can be more trials."""

PLANS = (
    Plan(),
    Plan(moving=0.7, subscriptions=90, publications=100, live=150),
    Plan(texts=0.7, moving=0.1, subscriptions=300, live=400),
    Plan(names=150, subscriptions=200, live=300, changes_per_batch=15),
    Plan(moving=0.1, live=1_200, changes=100, fresh_max=128, merge_width=8, at_once_max=2_000),
    Plan(fresh_max=3, merge_width=2, moving=0.4, together_min=0),
    Plan(fresh_max=50, merge_width=4, at_once_max=100, together_min=16),
)


def trial(seed: int) -> Trial:
    plan = PLANS[seed % len(PLANS)]
    if not is_soak():
        plan = msgspec.structs.replace(plan, publications=24, changes=60, live=plan.live // 2)
    return Trial(seed, plan, {"kernels": MatcherEngine, **IN_TURN[seed % len(IN_TURN)]})


def run(trials: Iterator[Trial], triples: int) -> Counts:
    """As many trials as it takes to ask the oracle so often, and to give every engine a turn."""
    counts = Counts()
    for number, one in enumerate(trials, start=1):
        counts.add(one.run())
        if counts.triples >= triples and number >= len(IN_TURN):
            break
    return counts


def trials_of(shard: int, first_seed: int = 0) -> Iterator[Trial]:
    return map(trial, itertools.count(first_seed + shard, SHARDS))


def report(record: Record, counts: Counts) -> None:
    """Into the test report, and onto the screen with `pytest -rP`."""
    record("triples", counts.triples)
    record("decisions", sum(counts.decisions.values()))
    print(counts)


def new_seed() -> int:
    return SystemRandom().randrange(10**12)


# Some 27,000 of them in `make test`, by smaller trials; all in `make soak`.
@pytest.mark.parametrize(
    "shard", [0, *(pytest.param(shard, marks=pytest.mark.soak) for shard in range(1, SHARDS))]
)
def test_a_million_triples(shard: int, record_property: Record) -> None:
    triples = (1_000_000 if is_soak() else 60_000) // SHARDS
    counts = run(trials_of(shard), triples)
    report(record_property, counts)
    assert counts.triples >= triples
    assert counts.matches > 0.02 * counts.decisions.total()
    assert counts.decisions.keys() == {"kernels"}.union(*IN_TURN)


@pytest.mark.soak
@pytest.mark.parametrize("shard", range(SHARDS))
def test_fifty_million_triples(shard: int, record_property: Record) -> None:
    counts = run(trials_of(shard, new_seed()), 50_000_000 // SHARDS)
    report(record_property, counts)
    assert counts.triples >= 50_000_000 // SHARDS


# -- the forest ----------------------------------------------------------------------------------


def forest_trial(seed: int) -> Trial:
    """Few subscriptions under many ids: comparing two of them may take a tenth of a second."""
    plan = Plan(subscriptions=16, publications=100, live=60, changes=80, moving=0.08)
    return Trial(seed, plan, {"forest": ForestEngine})


def test_the_forest(record_property: Record) -> None:
    counts = run(map(forest_trial, itertools.count()), 500_000 if is_soak() else 3_000)
    report(record_property, counts)
    assert counts.matches > 0


@pytest.mark.soak
def test_the_forest_for_long(record_property: Record) -> None:
    report(record_property, run(map(forest_trial, itertools.count(new_seed())), 500_000))


# -- boxes in columns ------------------------------------------------------------------------------

Floats = npt.NDArray[np.float64]
NAMES = ("x", "y", "z")
EDGES = np.array([*PLAIN_NUMBERS, 1 / 3, 1e6, 2.0**53 - 1, -(2.0**53) + 1, 5e-324])
OUTSIDE = np.array([-0.0, 2.0**53, -(2.0**63), 1e300, -1e300, np.finfo(float).max])


class BoxTrial:
    """Boxes that may travel, as arrays and as texts, and publications that are columns."""

    def __init__(self, seed: int) -> None:
        self.counts = Counts()
        self._seed = seed
        self._random = random = np.random.default_rng(seed)
        shape = (len(NAMES), int(random.choice([3, 70, 300])))
        lows, highs = (self._bounds(shape, infinite) for infinite in (-math.inf, math.inf))
        if random.random() < 0.8:  # otherwise many are empty
            lows, highs = np.minimum(lows, highs), np.maximum(lows, highs)
        speeds = random.choice([0.0, 0.1, -2.5, 1.0], shape) if random.random() < 0.6 else None
        self._boxes = Boxes(NAMES, lows, highs, speeds)
        self._subscriptions = [parse(self._boxes.text(row)) for row in range(len(self._boxes))]
        self._live = np.arange(len(self._boxes))
        self._matchers = {
            "columns": Matcher(),
            "columns, numpy": Matcher(),
            "columns, from texts": Matcher(),
            "publications": Matcher(),
        }

    def _bounds(self, shape: tuple[int, int], infinite: float) -> Floats:
        drawn = self._random.choice(EDGES, shape)
        return np.where(self._random.random(shape) < 0.3, infinite, drawn)

    def run(self) -> Counts:
        with mock.patch.object(index, "FRESH_MAX", 20):
            self._begin()
            for t in (0.0, 0.7, 8.0):
                events = Events(NAMES, self._values(60, t))
                judged = self._judged(events, t)
                self._publish(events, t, judged)
                self._remove()
                there = set(self._live.tolist())
                self._publish(events, t, [[id for id in ids if id in there] for ids in judged])
        return self.counts

    def _around(self, name: str) -> AbstractContextManager[object]:
        return without_kernels() if name.endswith("numpy") else nullcontext()

    def _begin(self) -> None:
        for name, matcher in self._matchers.items():
            with self._around(name):
                if name == "columns, from texts":
                    for row, subscription in enumerate(self._subscriptions):
                        matcher.add(row, subscription)
                else:
                    boxes = self._boxes
                    matcher.add_boxes(self._live, NAMES, boxes.lows, boxes.highs, boxes.speeds)

    def _remove(self) -> None:
        """Every third of those that are there, and perhaps a merge."""
        gone, self._live = self._live[::3], np.delete(self._live, np.s_[::3])
        for name, matcher in self._matchers.items():
            with self._around(name):
                for id in gone.tolist():
                    matcher.remove(id)
                if self._random.random() < 0.5:
                    matcher.compact()

    def _values(self, count: int, t: float) -> Floats:
        """Bounds as they are at `t`, their neighbours, what is far outside, and gaps."""
        boxes, shape = self._boxes, (len(NAMES), count)
        rows = self._random.integers(len(boxes), size=count)
        values = np.where(
            self._random.random(shape) < 0.5, boxes.lows[:, rows], boxes.highs[:, rows]
        )
        if boxes.speeds is not None:
            values = values + boxes.speeds[:, rows] * t
        step = self._random.choice([-math.inf, 0, 0, math.inf], shape)
        values = np.where(step == 0, values, np.nextafter(values, step))
        drawn = self._random.choice([*EDGES, *OUTSIDE], shape)
        usable = np.isfinite(values) & (self._random.random(shape) < 0.85)
        values = np.where(usable, values, drawn)
        return np.where(self._random.random(shape) < 0.1, math.nan, values).T.copy()

    def _judged(self, events: Events, t: float) -> list[list[int]]:
        """Of each publication, who of those that are there matches it."""
        publications = [events.publication(number) for number in range(len(events))]
        self.counts.triples += len(publications) * len(self._live)
        return [
            [row for row in self._live.tolist() if matches(self._subscriptions[row], one, t)]
            for one in publications
        ]

    def _publish(self, events: Events, t: float, judged: list[list[int]]) -> None:
        boxes, live = self._boxes, self._live
        speeds = None if boxes.speeds is None else boxes.speeds[:, live]
        scan = Scan(NAMES, boxes.lows[:, live], boxes.highs[:, live], live, speeds)
        self._compare("scan", events, t, [scan.match(line, t) for line in events.values], judged)
        for name, matcher in self._matchers.items():
            with self._around(name):
                if name == "publications":
                    publications = [events.publication(i) for i in range(len(events))]
                    found = matcher.match(publications, [t] * len(events))
                else:
                    found = matcher.match_columns(NAMES, events.values, np.full(len(events), t))
            ends = np.searchsorted(found.publications, np.arange(1, len(events)))
            self._compare(name, events, t, np.split(found.subscriptions, ends), judged)

    def _compare(
        self,
        name: str,
        events: Events,
        t: float,
        found: Sequence[npt.NDArray[np.int64]],
        judged: list[list[int]],
    ) -> None:
        for number, (ids, wanted) in enumerate(zip(found, judged, strict=True)):
            self.counts.decisions[name] += len(self._live)
            self.counts.matches += len(wanted)
            if sorted(ids.tolist()) != wanted:
                wrong = sorted(set(ids.tolist()) ^ set(wanted))[:3]
                texts = [to_text(self._subscriptions[row]) for row in wrong]
                raise Difference(
                    f"{name}, boxes of seed {self._seed}: {wrong} {texts}"
                    f" for {events.publication(number)} at {t}"
                )


def test_boxes_in_columns(record_property: Record) -> None:
    counts = Counts()
    for seed in range(4 if is_soak() else 1):
        counts.add(BoxTrial(seed).run())
    report(record_property, counts)
    assert counts.triples > 10_000
    assert counts.matches > 0.02 * counts.decisions.total()


@pytest.mark.soak
def test_boxes_in_columns_for_long(record_property: Record) -> None:
    counts, seeds = Counts(), itertools.count(new_seed())
    while counts.triples < 5_000_000:
        counts.add(BoxTrial(next(seeds)).run())
    report(record_property, counts)


# -- ranked subscriptions --------------------------------------------------------------------------

Told = list[tuple[int, object, float, str, bool]]
"""Subscription, publication, time, score as it is spelled (1, 1.0 and -0.0 differ), promoted."""
SCORES = (
    "{0}",
    "abs({0} - {2})",
    "{2} * {0} + {3} * {1}",
    "pow({0} - {2}, 2) + pow({1} - {3}, 2)",
    "distance({0}, {1}, {2}, {3})",
    "greatest({0}, {1})",
    "{0} / {1}",
    "{0} - {2} * t",
    "abs({0} - me.x)",
    "floor({0}) + {2}",
    "sqrt({0})",
    "-{0}",
    "7",
)
WINDOWS = ("1 SECOND", "2.5 SECONDS", "300 MILLISECONDS", "5 PUBLICATIONS", "1 PUBLICATION")


class RankedTrial:
    """One story for the pruned lists, the strict skybands, a matcher, and the plain windows."""

    def __init__(self, seed: int) -> None:
        self.counts = Counts()
        self._seed = seed
        self._random = random = Random(seed)
        self._drawing = Drawing(random, moving=random.choice((0.1, 0.5)))
        self._alone: dict[str, Windows] = {
            "pruned": Windows(spare=random.choice((0, 6))),
            "strict": Windows(shares=False),
        }
        self._matcher = Matcher()
        self._windows: dict[int, tuple[Subscription, float, dict[str, Any], RankedWindow]] = {}
        self._now = 0.0

    def run(self) -> Counts:
        for id in range(30):
            self._add(id)
        for number in range(80):
            self._change(1_000 + number)
            self._now += self._random.choice((0.0, 0.1, 0.1, 0.5, 1.0))
            if self._random.random() < 0.2:
                self._advance()
            else:
                self._publish(number)
        return self.counts

    # -- changes

    def _subscription(self) -> Subscription:
        numbers = (self._random.choice((0, 1, 2.5, -3, 0.1, 2**53)) for _ in range(2))
        names = self._random.choices(("a", "b", "c", "n.m"), k=2)
        score = self._random.choice(SCORES).format(*names, *numbers)
        order, k = self._random.choice(("ASC", "DESC")), self._random.choice((1, 2, 3, 10))
        rank = f"ORDER BY {score} {order} LIMIT {k} WITHIN {self._random.choice(WINDOWS)}"
        condition = ""
        if self._random.random() < 0.5:
            (drawn,) = self._drawing.subscriptions(1)
            condition = to_text(drawn)
        return parse(f"{condition} {rank}")

    def _add(self, id: int) -> None:
        subscription, me = self._subscription(), self._drawing.state()
        accepted_at = self._now + self._random.choice((0.0, 0.0, 0.0, -1.0, 0.5))
        window = RankedWindow(subscription, accepted_at)
        self._windows[id] = (subscription, accepted_at, dict(me), window)
        for ranked in self._alone.values():
            ranked.add(id, subscription, accepted_at, me)
        self._matcher.add(id, subscription, accepted_at, me)

    def _change(self, new_id: int) -> None:
        what, id = self._random.random(), self._random.choice(list(self._windows))
        if what < 0.2:
            self._add(new_id)
        elif what < 0.4 and len(self._windows) > 10:
            del self._windows[id]
            for ranked in self._alone.values():
                ranked.remove(id)
            self._matcher.remove(id)
        elif what < 0.7:
            changes = {"x": None, **self._drawing.state()}
            me = self._windows[id][2]
            change_state(me, changes)
            for ranked in self._alone.values():
                ranked.set_state(id, dict(me))
            self._matcher.set_state(id, changes)
        elif what < 0.75:
            self._matcher = Matcher.load(b"".join(self._matcher.save()))
        elif what < 0.85:
            self._matcher.merge_all()

    # -- deliveries

    def _publication(self) -> dict[str, Any]:
        near = [one[0] for one in self._random.sample(list(self._windows.values()), 2)]
        found = self._drawing.publication(near, Moment(0.5, {"x": 2.5}))
        for name in "abc":
            if self._random.random() < 0.7:
                found[name] = self._random.choice(PLAIN_NUMBERS)
        return found

    def _publish(self, key: int) -> None:
        publication, now = self._publication(), self._now
        matched = [
            id
            for id, (subscription, accepted_at, me, _) in self._windows.items()
            if matches(subscription, publication, now - accepted_at, me)
        ]
        conditional = [id for id in matched if is_conditional(self._windows[id][0])]
        wanted = self._told(
            (id, one)
            for id, (_, _, me, window) in self._windows.items()
            for one in window.publish(publication, now, me, key)
        )
        self.counts.triples += len(self._windows)
        self.counts.matches += 3 * len(wanted)
        for name, ranked in self._alone.items():
            met = matched if name == "strict" else conditional
            found = ranked.publish(key, publication, now, np.array(met, np.int64))
            self._compare(name, found, wanted, publication)
            self.counts.decisions[name] += len(self._windows)
        found = list(self._matcher.match([publication], [now], [key]).ranked)
        self._compare("matcher", found, wanted, publication)
        self.counts.decisions["matcher"] += len(self._windows)

    def _advance(self) -> None:
        wanted = self._told(
            (id, one)
            for id, (_, _, _, window) in self._windows.items()
            for one in window.advance(self._now)
        )
        for name, ranked in self._alone.items():
            self._compare(name, ranked.advance(self._now), wanted, "no publication")
        self._compare("matcher", self._matcher.advance(self._now), wanted, "no publication")

    @staticmethod
    def _told(found: Iterator[tuple[int, WindowDelivery]]) -> Told:
        ordered = sorted(found, key=lambda pair: (pair[1].at, pair[0]))
        return [(id, one.key, one.at, repr(one.score), one.promoted) for id, one in ordered]

    def _compare(
        self, name: str, found: list[RankedDelivery], wanted: Told, publication: object
    ) -> None:
        """What was delivered, to whom, in which order; and that nobody else was given anything."""
        told = [(d.subscription, d.key, d.at, repr(d.score), d.promoted) for d in found]
        if told != wanted:
            wrong = [one for one in (*told, *wanted) if (one in told) != (one in wanted)]
            ids = {one[0] for one in wrong}
            texts = [to_text(self._windows[id][0]) for id in ids if id in self._windows]
            raise Difference(
                f"{name}, ranks of seed {self._seed}, at {self._now}: delivered {told}, the plain"
                f" windows say {wanted}; {texts}; {publication}"
            )


def test_ranked_subscriptions(record_property: Record) -> None:
    counts = Counts()
    for seed in range(15 if is_soak() else 5):
        counts.add(RankedTrial(seed).run())
    report(record_property, counts)
    assert counts.triples > 5_000
    assert counts.matches > 0.02 * counts.decisions.total()


@pytest.mark.soak
def test_ranked_subscriptions_for_long(record_property: Record) -> None:
    counts, seeds = Counts(), itertools.count(new_seed())
    while counts.triples < 2_000_000:
        counts.add(RankedTrial(next(seeds)).run())
    report(record_property, counts)


# -- what these trials have found ------------------------------------------------------------------


def test_without_kernels_a_moving_bound_excludes_only_its_own_row() -> None:
    engine = NumpyEngine()
    with engine.surroundings(), mock.patch.object(index, "FRESH_MAX", 1):
        for id in range(5):
            engine.add(id, parse(f"x < {id} + t"), 0.0, {})
        assert sorted(engine.match([{"x": 3}] * 2, [0.0, 1.0])[1].tolist()) == [3, 4, 4]


def test_a_segment_with_many_empty_rows_is_not_merged_for_ever() -> None:
    matcher = Matcher()
    for id in range(28):
        matcher.add(id, parse(f"a{id} > 1 AND b{id} > 1"))
    matcher.add(28, parse("z != 5 OR z IS NULL"))
    matcher.save()  # waiting rows become a segment
    assert matcher.merge_due() is None


def test_bounds_as_large_as_floats_get_do_not_overflow_aloud() -> None:
    matcher = Matcher()
    for id in range(2):
        matcher.add(id, parse("x BETWEEN -1.7e308 + 1.7e308 * t AND 1.7e308 + 1.7e308 * t"))
    matcher.save()  # waiting rows become a segment
    found = matcher.match([{"x": 5}] * 2, [0.0, 0.5])  # at 0.5, one end has left the floats
    assert (found.publications.tolist(), sorted(found.subscriptions.tolist())) == ([0, 0], [0, 1])
