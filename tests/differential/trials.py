"""The engines of `rove.match` against the oracle, over millions of answers, while things change.

A *trial* draws some hundred subscriptions, and publications that stand on their bounds
(`tests.differential.drawing`), then tells one story to every engine: subscriptions come, go, are
replaced and change their state, merges begin and end in between, time passes, publications come
alone and in batches. After each batch every answer of every engine, yes or no, is compared with
the oracle's. An engine that declares its answers to be those of another moment is judged at that
moment.

The oracle takes some twelve microseconds for a subscription and a publication, which is what
limits how much can be compared. So it is asked once for each subscription, publication, `t` and
state, and what it said judges every engine at every point of the story. Both are counted:
*triples*, which the oracle was asked about, and *decisions*, the answers of engines that were
compared with what it said. Everything follows from one seed.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from random import Random
from types import SimpleNamespace
from typing import Any, Final, Protocol, TypeAlias
from unittest import mock

import msgspec
import numpy as np
import numpy.typing as npt

from rove.lang.algebra import covers
from rove.lang.normal_form import normalise
from rove.lang.oracle import matches
from rove.lang.printer import to_text
from rove.lang.tree import And, Condition, Me, Not, Or, Subscription, Time, walk
from rove.match import forest
from rove.match.designs import lees
from rove.match.designs.design import Evolve
from rove.match.forest import Forest
from rove.match.index import index
from rove.match.matcher import Matcher, Work
from rove.match.patterns import automaton, pattern_set
from tests.differential.drawing import Drawing, Moment

Publication: TypeAlias = dict[str, Any]
State: TypeAlias = dict[str, Any]
Found: TypeAlias = tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]
"""Positions in a batch, and the ids that match there."""
Truths: TypeAlias = npt.NDArray[np.bool_]
"""A line for each publication of a batch, in it for each id whether it matches."""

_NOT_ASKED: Final = 2
_CHANGES_SHOWN: Final = 12


class Difference(AssertionError):
    """An engine and the oracle do not agree."""


# -- engines ----------------------------------------------------------------------------------


class Engine(Protocol):
    """What takes part."""

    any_time: bool
    """Whether it may be asked about the past and the future too."""
    minds_acceptance: bool
    """Whether what was published before a subscription was accepted does not match it."""

    def surroundings(self) -> AbstractContextManager[object]:
        """What must be so while the engine is used."""

    def takes(self, id: int) -> bool:
        """False for what an engine is not given, because it would take too long."""

    def add(self, id: int, subscription: Subscription, accepted_at: float, me: State) -> None:
        """There is one more subscription."""

    def replace(self, id: int, subscription: Subscription, accepted_at: float, me: State) -> None:
        """There is another one in its place."""

    def remove(self, id: int) -> None:
        """There is one less."""

    def set_state(self, id: int, changes: State) -> None:
        """A subscriber's variables change; None removes one."""

    def tend(self, random: Random, now: float) -> None:
        """Do some of what a broker does between publications."""

    def match(self, publications: Sequence[Publication], at: Sequence[float]) -> Found:
        """Who matches what."""

    def moment_of(self, id: int, at: float) -> float:
        """The moment that the answer given at `at` is declared to be for."""

    def staleness_s(self, id: int) -> float:
        """How long before `at` that moment may be."""


class MatcherEngine:
    """A `Matcher`; ids take turns with the ways to evolve that are given."""

    minds_acceptance = True

    def __init__(self, *ways: Evolve) -> None:
        self.matcher = Matcher()
        self.any_time = not ways
        self._ways = ways or (Evolve(),)
        self._begun: list[Work] = []
        self._done: list[Work] = []

    def surroundings(self) -> AbstractContextManager[object]:
        return nullcontext()

    def takes(self, id: int) -> bool:
        return True

    def add(self, id: int, subscription: Subscription, accepted_at: float, me: State) -> None:
        self.matcher.add(id, subscription, accepted_at, me, self._way(id))

    def replace(self, id: int, subscription: Subscription, accepted_at: float, me: State) -> None:
        self.matcher.replace(id, subscription, accepted_at, me, self._way(id))

    def _way(self, id: int) -> Evolve:
        return self._ways[id % len(self._ways)]

    def remove(self, id: int) -> None:
        self.matcher.remove(id)

    def set_state(self, id: int, changes: State) -> None:
        self.matcher.set_state(id, changes)

    def tend(self, random: Random, now: float) -> None:
        """Mostly begin, run or install work, so that changes fall in between."""
        what = random.random()
        if what < 0.02:
            self.matcher.advance(now)
        elif what < 0.03:
            saved = b"".join(self.matcher.save())
            self.matcher = Matcher.load(memoryview(bytearray(saved)) if what < 0.025 else saved)
            self._begun, self._done = [], []
        elif what < 0.035:
            self.matcher.compact()
        elif what < 0.04:
            self.matcher.merge_all()
        elif what < 0.3 and self._begun:
            self._done.append(self._begun.pop().run())
        elif what < 0.6 and self._done:
            self.matcher.install(self._done.pop())
        elif (work := self.matcher.merge_due()) is not None:
            self._begun.append(work)

    def match(self, publications: Sequence[Publication], at: Sequence[float]) -> Found:
        if len(publications) == 1:
            ids = self.matcher.match_one(publications[0], at[0])
            return np.zeros(len(ids), np.int32), ids
        found = self.matcher.match(publications, at)
        return found.publications, found.subscriptions

    def moment_of(self, id: int, at: float) -> float:
        moment = self.matcher.evaluated_at(id)
        return at if moment is None else moment

    def staleness_s(self, id: int) -> float:
        return self._way(id).seconds or 0.0


def without_kernels() -> AbstractContextManager[object]:
    """As long as this lasts, the kernels are not compiled yet."""
    missing = SimpleNamespace(search_kernel=None, warm_up=lambda **_: None)
    return mock.patch.object(index, "engine", missing)


class NumpyEngine(MatcherEngine):
    """A `Matcher` for which the kernels are not compiled yet; they may come in the middle."""

    def __init__(self, kernels_come: bool = False) -> None:
        self._kernels_come = kernels_come
        self._kernels_are_there = False
        super().__init__()

    def surroundings(self) -> AbstractContextManager[object]:
        if self._kernels_are_there:
            return nullcontext()
        return without_kernels()

    def tend(self, random: Random, now: float) -> None:
        super().tend(random, now)
        if self._kernels_come and random.random() < 0.01:
            self._kernels_are_there = True


class ForestEngine:
    """A covering forest; only one in `share` ids, since comparing two takes milliseconds."""

    any_time = True
    minds_acceptance = False

    def __init__(self, share: int = 1) -> None:
        self._forest = Forest()
        self._share = share

    def surroundings(self) -> AbstractContextManager[object]:
        return mock.patch.object(forest, "covers", _covers_once)

    def takes(self, id: int) -> bool:
        return id % self._share == 0

    def add(self, id: int, subscription: Subscription, accepted_at: float, me: State) -> None:
        self._forest.insert(id, subscription, accepted_at, me)

    def replace(self, id: int, subscription: Subscription, accepted_at: float, me: State) -> None:
        self._forest.remove(id)
        self._forest.insert(id, subscription, accepted_at, me)

    def remove(self, id: int) -> None:
        self._forest.remove(id)

    def set_state(self, id: int, changes: State) -> None:
        self._forest.set_state(id, changes)

    def tend(self, random: Random, now: float) -> None:
        pass

    def match(self, publications: Sequence[Publication], at: Sequence[float]) -> Found:
        pairs = zip(publications, at, strict=True)
        found = [sorted(self._forest.match(one, moment)) for one, moment in pairs]
        positions = np.repeat(np.arange(len(found), dtype=np.int32), [len(ids) for ids in found])
        return positions, np.array([id for ids in found for id in ids], np.int64)

    def moment_of(self, id: int, at: float) -> float:
        return at

    def staleness_s(self, id: int) -> float:
        return 0.0


_covers_once = lru_cache(100_000)(covers)
"""Many ids share a subscription, so that the same question comes again and again."""


# -- the judge ----------------------------------------------------------------------------------


class Live(msgspec.Struct, frozen=True):
    """A subscription that is there: which of the drawn ones, since when, in which state."""

    subscription: int
    accepted_at: float
    state: int


class Judge:
    """What the oracle says about the subscriptions, states and publications of one trial."""

    def __init__(
        self,
        subscriptions: Sequence[Subscription],
        publications: Sequence[Publication],
        states: Sequence[State],
    ) -> None:
        self._subscriptions = subscriptions
        self._publications = publications
        self._states = states
        self.uses_time = [_mentions(one, Time) for one in subscriptions]
        self._uses_state = [_mentions(one, Me) for one in subscriptions]
        self._rows: dict[tuple[int, float, int], int] = {}
        self._said = np.full((256, len(publications)), _NOT_ASKED, np.uint8)
        self.triples = 0

    def row(self, one: Live, t: float) -> int:
        """The row of what is said about a subscription at a `t`, in the state that it is in."""
        number = one.subscription
        key = (
            number,
            t if self.uses_time[number] else 0.0,
            one.state if self._uses_state[number] else 0,
        )
        found = self._rows.get(key)
        if found is None:
            found = self._rows[key] = len(self._rows)
            if found == len(self._said):
                fresh = np.full_like(self._said, _NOT_ASKED)
                self._said = np.concatenate([self._said, fresh])
        return found

    def verdicts(self, rows: Sequence[int], publications: Sequence[int]) -> Truths:
        """A line for each publication, in it what is said in each row."""
        wanted, columns = np.array(rows, np.int64), np.array(publications, np.int64)
        needed = np.unique(wanted)
        is_known = (self._said[np.ix_(needed, columns)] != _NOT_ASKED).all(axis=1)
        if not is_known.all():
            self._ask(set(needed[~is_known].tolist()), publications)
        return self._said[np.ix_(wanted, columns)].T.astype(np.bool_)

    def _ask(self, rows: set[int], publications: Sequence[int]) -> None:
        for (number, t, state), row in self._rows.items():
            if row not in rows:
                continue
            subscription, me, said = (
                self._subscriptions[number],
                self._states[state],
                self._said[row],
            )
            for position in publications:
                if said[position] == _NOT_ASKED:
                    said[position] = matches(subscription, self._publications[position], t, me)
                    self.triples += 1


def _mentions(subscription: Subscription, kind: type) -> bool:
    return any(type(node) is kind for node in walk(subscription.condition))


def _grows_old(subscription: Subscription) -> bool:
    """True if it depends on `t`, and not only mentions it."""
    conjunctions = normalise(subscription).conjunctions
    nodes = (node for one in conjunctions for node in (*one.sets, *one.atoms))
    return any(type(part) is Time for node in nodes for part in walk(node))


# -- trials -----------------------------------------------------------------------------------


class Plan(msgspec.Struct, frozen=True):
    """How large a trial is, what is drawn for it, and how soon rows and patterns are merged."""

    subscriptions: int = 120
    publications: int = 48
    live: int = 250
    """Ids at the beginning; several of them share a subscription."""
    changes: int = 200
    changes_per_batch: int = 12
    moving: float = 0.3
    texts: float = 0.2
    names: int = 0
    """Attributes beside the usual ones."""
    fresh_max: int = 12
    """Rows, and patterns, that wait before they are put together."""
    merge_width: int = 3
    at_once_max: int = 0
    """What is merged on the way; with 0, everything waits for somebody to do it."""
    together_min: int = 2
    """Subscriptions from which on LEES computes them together."""


class Counts(msgspec.Struct):
    """What was compared so far."""

    triples: int = 0
    """Different ones that the oracle was asked about; each of them judged an engine."""
    decisions: Counter[str] = msgspec.field(default_factory=Counter)
    """By engine, its answers that were compared with what the oracle says."""
    matches: int = 0
    """Those of the decisions that were a yes."""

    def add(self, other: Counts) -> None:
        """Count those of another trial too."""
        self.triples += other.triples
        self.decisions += other.decisions
        self.matches += other.matches

    def __str__(self) -> str:
        total = sum(self.decisions.values())
        engines = ", ".join(f"{name} {count:,}" for name, count in sorted(self.decisions.items()))
        return (
            f"{self.triples:,} triples, {total:,} decisions ({engines}), {self.matches:,} matches"
        )


EngineMakers: TypeAlias = Mapping[str, Callable[[], Engine]]


class Trial:
    """One story, told to several engines."""

    def __init__(self, seed: int, plan: Plan, makers: EngineMakers) -> None:
        self.counts = Counts()
        self._seed, self._plan, self._makers = seed, plan, makers
        self._random = random = Random(seed)
        names = [f"w{number}" for number in range(plan.names)]
        self._drawing = Drawing(random, plan.moving, plan.texts, names)
        self._subscriptions = self._drawing.subscriptions(plan.subscriptions)
        self._states = [{}, *(self._drawing.state() for _ in range(4))]
        self._publications = [self._publication() for _ in range(plan.publications)]
        self._judge = Judge(self._subscriptions, self._publications, self._states)
        self._grows_old = [_grows_old(one) for one in self._subscriptions]
        self._live: dict[int, Live] = {}
        self._next_id = 0
        self._now = random.choice([0.0, 0.0, 0.1, 1e6])
        self._changes: deque[str] = deque(maxlen=_CHANGES_SHOWN)
        with self._settings():
            self._engines = {name: make() for name, make in makers.items()}
        # Each its own, so that the story is the same whoever else takes part.
        self._tending = {name: Random(f"{seed} {name}") for name in makers}

    def _publication(self) -> Publication:
        near = self._random.sample(self._subscriptions, self._random.choice((1, 2, 3)))
        t = self._random.choice((0.0, 0.0, 0.5, 1.0, 2.0, 8.0))
        return self._drawing.publication(near, Moment(t, self._random.choice(self._states)))

    @contextmanager
    def _settings(self) -> Iterator[None]:
        plan = self._plan
        with (
            mock.patch.object(index, "FRESH_MAX", plan.fresh_max),
            mock.patch.object(index, "MERGE_WIDTH", plan.merge_width),
            mock.patch.object(index, "MERGED_AT_ONCE_MAX", plan.at_once_max),
            mock.patch.object(lees, "TOGETHER_MIN", plan.together_min),
            mock.patch.object(automaton, "WAITING_MAX", plan.fresh_max),
            mock.patch.object(pattern_set, "AT_ONCE_CHARACTERS_MAX", plan.at_once_max),
        ):
            yield

    def run(self) -> Counts:
        """Tell the story; Difference as soon as an engine is wrong."""
        with self._settings():
            for _ in range(self._plan.live):
                self._add()
            for number in range(self._plan.changes):
                self._change()
                if number % self._plan.changes_per_batch == 0:
                    self._publish()
            self._publish()
        self.counts.triples = self._judge.triples
        return self.counts

    # -- changes -----------------------------------------------------------------------------

    def _change(self) -> None:
        what = self._random.random()
        if not self._live or (what < 0.4 and len(self._live) < 2 * self._plan.live):
            self._add()
        elif what < 0.6:
            self._remove(self._chosen())
        elif what < 0.75:
            self._replace(self._chosen())
        else:
            self._set_state(self._chosen())
        for name, engine in self._engines.items():
            with engine.surroundings():
                engine.tend(self._tending[name], self._now)

    def _chosen(self) -> int:
        return self._random.choice(list(self._live))

    def _drawn(self) -> Live:
        accepted_at = self._random.choice(
            [self._now] * 5 + [0.0] * 3 + [self._now - 0.7, self._now + 1]
        )
        return Live(
            self._random.randrange(len(self._subscriptions)),
            accepted_at,
            self._random.randrange(len(self._states)),
        )

    def _add(self) -> None:
        id, self._next_id = self._next_id, self._next_id + 1
        one = self._live[id] = self._drawn()
        self._tell(id, f"add {id}", lambda engine: engine.add(id, *self._given(one)))

    def _replace(self, id: int) -> None:
        one = self._live[id] = self._drawn()
        self._tell(id, f"replace {id}", lambda engine: engine.replace(id, *self._given(one)))

    def _remove(self, id: int) -> None:
        del self._live[id]
        self._tell(id, f"remove {id}", lambda engine: engine.remove(id))

    def _set_state(self, id: int) -> None:
        before = self._live[id]
        after = self._random.randrange(len(self._states))
        self._live[id] = msgspec.structs.replace(before, state=after)
        changes = {**dict.fromkeys(self._states[before.state]), **self._states[after]}
        self._tell(id, f"state {id} {changes}", lambda engine: engine.set_state(id, changes))

    def _given(self, one: Live) -> tuple[Subscription, float, State]:
        return self._subscriptions[one.subscription], one.accepted_at, self._states[one.state]

    def _tell(self, id: int, change: str, told: Callable[[Engine], None]) -> None:
        self._changes.append(change)
        for engine in self._engines.values():
            if engine.takes(id):
                with engine.surroundings():
                    told(engine)

    # -- publishing --------------------------------------------------------------------------

    def _publish(self) -> None:
        """A batch, now; and for those engines that allow it, another at various times."""
        self._now += self._random.choice([0.0, 0.5, 0.5, 1.0, 1.0, 2.0, 8.0, 0.1])
        count = self._random.choice((1, 3, len(self._publications), len(self._publications)))
        chosen = self._random.sample(range(len(self._publications)), count)
        self._changes.append(f"publish {count} at {self._now}")
        for name in self._engines:
            self._compare(name, chosen, [self._now] * count)
        if self._random.random() < 0.3:
            times = (self._now, self._now - 0.5, self._now + 1.0, 0.0)
            at = self._random.choices(times, k=count)
            for name, engine in self._engines.items():
                if engine.any_time:
                    self._compare(name, chosen, at)

    def _compare(self, name: str, chosen: Sequence[int], at: Sequence[float]) -> None:
        """Ask one engine about a batch, and compare all that it says."""
        engine = self._engines[name]
        with engine.surroundings():
            found = engine.match([self._publications[position] for position in chosen], at)
        truths = np.zeros((len(chosen), self._next_id), np.bool_)
        truths[found] = True
        if truths.sum() != len(found[0]):
            raise Difference(f"{name} says something twice (seed {self._seed})")
        ids = [id for id in self._live if engine.takes(id)]
        wanted = np.zeros_like(truths)
        for moment in sorted(set(at)):
            here = [place for place, time in enumerate(at) if time == moment]
            publications = [chosen[place] for place in here]
            wanted[np.ix_(here, ids)] = self._verdicts(name, ids, publications, moment)
        self.counts.decisions[name] += len(chosen) * len(ids)
        self.counts.matches += int(wanted.sum())
        for place, id in np.argwhere(truths != wanted).tolist():
            raise Difference(self._explained(name, id, chosen[place], at[place]))

    def _verdicts(self, name: str, ids: list[int], publications: list[int], at: float) -> Truths:
        """What the oracle says of each id, at the moment that the engine answered for."""
        places, rows = [], []
        for place, id in enumerate(ids):
            one = self._live[id]
            if at >= one.accepted_at or not self._engines[name].minds_acceptance:
                places.append(place)
                rows.append(self._judge.row(one, self._moment(name, id, at) - one.accepted_at))
        found = np.zeros((len(publications), len(ids)), np.bool_)
        if rows:
            found[:, places] = self._judge.verdicts(rows, publications)
        return found

    def _moment(self, name: str, id: int, at: float) -> float:
        """The moment that an engine declares; Difference if it is too long ago."""
        engine = self._engines[name]
        moment = engine.moment_of(id, at)
        # One rounding of times as large as these may come on top.
        is_in_time = moment <= at <= moment + engine.staleness_s(id) + math.ulp(at)
        if not is_in_time and self._grows_old[self._live[id].subscription]:
            raise Difference(f"{self._headline(name)}answers at {at} for {id} at {moment}")
        return moment

    # -- differences -------------------------------------------------------------------------

    def _headline(self, name: str) -> str:
        return f"{name}, in the trial of seed {self._seed} with {self._plan}:\n  "

    def _explained(self, name: str, id: int, position: int, at: float) -> str:
        """What is known about a difference, and the smallest that shows it."""
        publication, one = self._publications[position], self._live.get(id)
        changes = "\n    ".join(self._changes)
        if one is None:
            what = f"{id} is gone, and matches {publication} at {at}"
            return f"{self._headline(name)}{what}\n  last changes:\n    {changes}"
        subscription, accepted_at, me = self._given(one)
        moment = self._moment(name, id, at)
        said = matches(subscription, publication, moment - accepted_at, me)
        case = Case(subscription, publication, at, accepted_at, me)
        with self._settings(), mock.patch.object(index, "FRESH_MAX", 1):
            smallest = smallest_of(self._makers[name], case)
        lines = [
            f"{'FALSE' if said else 'TRUE'}, but the oracle says {said} of id {id}:",
            f"{case}",
            f"alone wrong as well; the smallest: {smallest}" if smallest else "alone it is right",
            f"answered for {moment}; last changes:",
            f"  {changes}",
        ]
        return self._headline(name) + "\n  ".join(lines)


class Case(msgspec.Struct, frozen=True):
    """One subscription and one publication, and when."""

    subscription: Subscription
    publication: Publication
    at: float
    accepted_at: float
    me: State

    def __str__(self) -> str:
        text = to_text(self.subscription)
        return f"{text}; {self.publication} at {self.at}, accepted {self.accepted_at}, me {self.me}"

    def is_wrong(self, make: Callable[[], Engine]) -> bool:
        """True if an engine that knows nothing else is wrong about it."""
        engine = make()
        with engine.surroundings():
            if not engine.takes(0):
                return False
            engine.add(0, self.subscription, self.accepted_at, self.me)
            found = len(engine.match([self.publication], [self.at])[1]) > 0
        t = engine.moment_of(0, self.at) - self.accepted_at
        is_open = self.at >= self.accepted_at or not engine.minds_acceptance
        return found != (is_open and matches(self.subscription, self.publication, t, self.me))


def smallest_of(make: Callable[[], Engine], case: Case) -> Case | None:
    """The smallest case that is wrong as `case` is; None if that is not wrong by itself."""
    if not case.is_wrong(make):
        return None
    while (smaller := next((c for c in _smaller(case) if c.is_wrong(make)), None)) is not None:
        case = smaller
    return case


def _smaller(case: Case) -> Iterator[Case]:
    for condition in _parts(case.subscription.condition):
        yield msgspec.structs.replace(case, subscription=Subscription(condition))
    for field, values in (("publication", case.publication), ("me", case.me)):
        for name in values:
            others = {other: value for other, value in values.items() if other != name}
            yield msgspec.structs.replace(case, **{field: others})


def _parts(condition: Condition) -> Iterator[Condition]:
    """What is a little less than a condition."""
    match condition:
        case And(operands=operands) | Or(operands=operands):
            yield from operands
            for place in range(len(operands)):
                for less in _parts(operands[place]):
                    yield type(condition)((*operands[:place], less, *operands[place + 1 :]))
        case Not(operand=operand):
            yield operand
            yield from (Not(less) for less in _parts(operand))
