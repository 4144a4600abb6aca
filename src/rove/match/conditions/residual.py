"""Residual conditions: what an index cannot decide by itself, and how it is evaluated.

An index can return a row in doubt, and a row that was just added is not in an index yet. Then the
subscription is evaluated: each conjunction by a compiled program
(`rove.match.conditions.programs`). Patterns are not part of these programs. One pass over the
strings of a publication finds which patterns they fit, for all subscriptions
(`rove.match.patterns.pattern_set`). Here a pattern is a number to look up in that set, so a
conjunction of 256 patterns costs no more than one of two.

Compiling takes 15 to 40 µs a node. That is more than a single evaluation is worth, and an
expression of 256 predicates would delay the first publication after it. So conjunctions are cut
into parts. The first few times, the trees of all parts are walked; after that, each publication
compiles a few more parts of a subscription. A predicate that would take too long to compile is
walked every time, at 1 µs a node; the cost of its expression takes that into account
(`rove.lang.costs`).

Cost: 0.3 to 2 µs for a conjunction whose program is compiled, 5 to 20 µs before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Self, TypeVar

import msgspec

from rove.lang.limits import COMPILED_NODES_MAX
from rove.lang.normal_form import Conjunction, NormalForm, holds
from rove.lang.partial_evaluation import at_moment, at_moments
from rove.lang.patterns import Pattern
from rove.lang.sets import ValueSet
from rove.lang.tree import Comparison, ValueNode, walk
from rove.match.conditions.programs import TruthProgram, compiled_conjunction
from rove.match.designs.design import Split, split
from rove.match.index.batch import SlotBatch
from rove.match.index.rows import IndexRow, Integers
from rove.match.index.subjects import Subjects
from rove.match.saved import ResidualState, SavedConjunction

Publication = Mapping[str, object]
State = Mapping[str, object]
One = TypeVar("One", ValueNode, Comparison)

WALKS_MIN: Final = 2
"""How often a conjunction is computed before it is compiled."""
PART_MAX: Final = 6
"""Predicates that are compiled together."""
PART_NODES_MAX: Final = 16
"""The same in nodes, unless one predicate has more."""
NODES_AT_ONCE: Final = 8
"""Nodes of a subscription that are compiled for one publication, with the rest of their part:
so one large predicate at most. Nearly always less than 1 ms, 2 ms at worst."""
PREPARED_FROM: Final = 32
"""Predicates of a subscription from which on it is cut into parts when it is accepted."""


class FittingPatterns(msgspec.Struct, eq=False):
    """Which patterns a publication fits, by the numbers of their subjects.

    Most subscriptions use none, so the sets are made when they are first read.
    """

    _subjects: Sequence[int] | Integers
    _undecided: Iterable[int] = ()
    _present: frozenset[int] | None = None
    _true: frozenset[int] | None = None

    @classmethod
    def of(cls, batch: SlotBatch, publication: int) -> Self:
        """Those of a publication in a batch."""
        first, end = batch.starts[publication], batch.starts[publication + 1]
        return cls(batch.subjects[first:end], batch.undecided.get(publication, ()))

    @property
    def present(self) -> frozenset[int]:
        """The patterns that it fits, and those that took too many steps to decide."""
        if self._present is None:
            self._present = frozenset(map(int, self._subjects))
        return self._present

    @property
    def true(self) -> frozenset[int]:
        """The patterns that it fits."""
        if self._true is None:
            self._true = self.present.difference(self._undecided)
        return self._true


class Test:
    """Some predicates: computed by walking their trees at first, then by a compiled program."""

    __slots__ = ("_form", "_program", "nodes", "walks")

    def __init__(self, predicates: Conjunction, nodes: int) -> None:
        self._form = NormalForm((predicates,))
        self.nodes = nodes
        self.walks = math.inf
        """How often the trees are still walked."""
        self._program: TruthProgram | None = None

    def holds(self, publication: Publication, t: float, me: State) -> bool:
        if self._program is None:
            if self.walks:
                self.walks -= 1
                return holds(self._form, publication, t, me)
            (predicates,) = self._form.conjunctions
            self._program = compiled_conjunction(predicates)
        return bool(self._program(publication, t, me))


class Tests(NamedTuple):
    """A conjunction that is computed."""

    fitting: frozenset[int]
    missing: frozenset[int]
    """Subjects of patterns that the publication must fit, or must not."""
    parts: tuple[Test, ...]
    """The rest of it, in parts that are quick to compile."""


class ResidualConditions(msgspec.Struct):
    """A subscription whose rows do not decide everything, or are not in an index yet."""

    conjunctions: tuple[Conjunction, ...]
    accepted_at: float
    me: State
    follows: bool
    tests: list[Tests] | None = None
    splits: list[Split] | None = None
    asked: frozenset[int] = frozenset()
    """If it follows, the patterns that its rows use: a value of `me.` may decide some."""

    def state(self) -> ResidualState:
        """Everything but the compiled programs."""
        conjunctions = list(map(SavedConjunction.of, self.conjunctions))
        return ResidualState(conjunctions, self.accepted_at, dict(self.me), self.follows)

    @classmethod
    def from_state(cls, state: ResidualState) -> Self:
        """What `state` was taken from."""
        conjunctions = tuple(saved.conjunction() for saved in state.conjunctions)
        return cls(conjunctions, state.accepted_at, state.me, state.follows)

    @property
    def work(self) -> int:
        """How many predicates are computed for a publication at most."""
        work = sum(1 + len(one.sets) + len(one.atoms) for one in self.conjunctions)
        if self.follows:
            sets = (allowed for one in self.conjunctions for allowed in one.sets.values())
            work += sum(len(allowed.fitting) + len(allowed.missing) for allowed in sets)
        return work

    def ask(self, rows: Iterable[IndexRow], subjects: Subjects) -> None:
        """Remember the patterns that the rows of its current state use."""
        asked = frozenset(
            subject for row in rows for subject, _ in row.sets if subjects.is_pattern(subject)
        )
        if asked != self.asked:
            self.asked, self.tests = asked, None

    def known(self) -> list[Conjunction]:
        """The conjunctions with `me.` replaced by what it is."""
        if self.splits is None:
            found = at_moments(self.conjunctions, None, self.me)
        else:
            found = [
                at_moment(one, None, self.me) if split.uses_time else split.at(0.0, self.me)
                for one, split in zip(self.conjunctions, self.splits, strict=True)
            ]
        return [one for one in found if one is not None]

    def moved(self, me: State) -> ResidualConditions:
        """The same with another state. What is compiled now makes every later move cheaper."""
        splits = self.splits or [split(one) for one in self.conjunctions]
        return msgspec.structs.replace(self, me=me, splits=splits)

    def prepare(self, subjects: Subjects) -> None:
        """Cut the conjunctions into parts, to be compiled one after the other."""
        asked = self.asked if self.follows else None
        self.tests = [_tests(one, subjects, asked) for one in self.conjunctions]
        nodes = 0
        for tests in self.tests:
            for part in tests.parts:
                if part.nodes <= COMPILED_NODES_MAX:
                    part.walks = WALKS_MIN + nodes // NODES_AT_ONCE
                    nodes += part.nodes

    def holds(
        self, publication: Publication, at: float, facts: FittingPatterns, subjects: Subjects
    ) -> bool:
        """Whether one of the conjunctions holds."""
        if at < self.accepted_at:
            return False
        if self.tests is None:
            self.prepare(subjects)
        t = at - self.accepted_at
        # Plain loops: calls and generators would take as long as a short program.
        for fitting, missing, parts in self.tests or ():
            if fitting and not fitting <= facts.true:
                continue
            if missing and not missing.isdisjoint(facts.present):
                continue
            for part in parts:
                if not part.holds(publication, t, self.me):
                    break
            else:
                return True
        return False


def _tests(conjunction: Conjunction, subjects: Subjects, asked: frozenset[int] | None) -> Tests:
    """A conjunction with its patterns as facts, as far as its rows ask for them (None: all)."""

    def numbers_of(subject: ValueNode, patterns: Iterable[Pattern]) -> set[int] | None:
        """None if a pattern is not looked for in publications."""
        numbers = {subjects.pattern_number(subject, pattern) for pattern in patterns}
        known = {number for number in numbers if number is not None}
        is_known = known == numbers and (asked is None or known <= asked)
        return known if is_known else None

    fitting: set[int] = set()
    missing: set[int] = set()
    rest = dict(conjunction.sets)
    for subject, allowed in conjunction.sets.items():
        if not allowed.patterned or (allowed.fitting and (allowed.numbers or allowed.facts)):
            continue
        fits, misses = numbers_of(subject, allowed.fitting), numbers_of(subject, allowed.missing)
        if fits is not None and misses is not None:
            fitting |= fits
            missing |= misses
            rest[subject] = ValueSet(allowed.numbers, allowed.strings, facts=allowed.facts)
    parts = tuple(_parts(rest, conjunction.atoms))
    return Tests(frozenset(fitting), frozenset(missing), parts)


def _parts(sets: Mapping[ValueNode, ValueSet], atoms: Iterable[Comparison]) -> Iterator[Test]:
    """The predicates of a conjunction, a few at a time and the cheap ones first."""
    for some, nodes in _some(sets):
        yield Test(Conjunction({subject: sets[subject] for subject in some}), nodes)
    for others, nodes in _some(sorted(atoms, key=repr)):
        yield Test(Conjunction({}, frozenset(others)), nodes)


def _some(predicates: Iterable[One]) -> Iterator[tuple[list[One], int]]:
    """A few predicates at a time, and how many nodes these have."""
    some: list[One] = []
    total = 0
    for one in predicates:
        nodes = sum(1 for _ in walk(one))
        if some and (len(some) == PART_MAX or total + nodes > PART_NODES_MAX):
            yield some, total
            some, total = [], 0
        some.append(one)
        total += nodes
    if some:
        yield some, total
