"""Subscriptions that an index cannot decide alone: what is kept of them, and how they are computed.

A row may leave a doubt, and a row that waits for its segment has not been indexed yet. Then the
subscription is computed: each conjunction by a compiled program (`rove.match.programs`). Patterns
are no part of the programs. Which patterns a publication fits is found in one pass over its
strings, for all subscriptions at once (`rove.match.texts`), so here it is a set of numbers to look
into, and a conjunction of 256 patterns costs no more than one of two.

Cost: 0.3 to 2 µs for a conjunction, once its program is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Self

import msgspec

from rove.lang.moment import at_moment, at_moments
from rove.lang.normal import Conjunction
from rove.lang.patterns import Pattern
from rove.lang.sets import ValueSet
from rove.lang.tree import ValueNode
from rove.match.batch import Batch
from rove.match.designs import Split, split
from rove.match.programs import compiled_conjunction
from rove.match.rows import Row
from rove.match.subjects import Subjects

Publication = Mapping[str, object]
State = Mapping[str, object]


class Facts:
    """Which patterns a publication fits, by the numbers of their subjects."""

    __slots__ = ("present", "true")

    def __init__(self, subjects: Iterable[int], undecided: Iterable[int] = ()) -> None:
        self.present = frozenset(subjects)
        self.true = self.present.difference(undecided)

    @classmethod
    def of(cls, batch: Batch, publication: int) -> Self:
        """Those of a publication in a batch."""
        first, end = batch.starts[publication], batch.starts[publication + 1]
        return cls(batch.subjects[first:end].tolist(), batch.undecided.get(publication, ()))


class Test(NamedTuple):
    """A conjunction that is computed."""

    fitting: frozenset[int]
    missing: frozenset[int]
    """Subjects of patterns that the publication must fit, or must not."""
    program: Callable[[Publication, float, State], bool]
    """The rest of it."""


class Kept(msgspec.Struct):
    """What must be remembered of a subscription that is more than its rows."""

    conjunctions: tuple[Conjunction, ...]
    accepted_at: float
    me: State
    follows: bool
    tests: list[Test] | None = None
    splits: list[Split] | None = None
    asked: frozenset[int] = frozenset()
    """If it follows, the patterns that its rows ask for: with `me.` known, some may be settled."""

    @property
    def work(self) -> int:
        """How many predicates are computed for a publication at most."""
        work = sum(1 + len(one.sets) + len(one.atoms) for one in self.conjunctions)
        if self.follows:
            sets = (allowed for one in self.conjunctions for allowed in one.sets.values())
            work += sum(len(allowed.fitting) + len(allowed.missing) for allowed in sets)
        return work

    def ask(self, rows: Iterable[Row], subjects: Subjects) -> None:
        """Take note of the patterns that the rows of its present state ask for."""
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

    def moved(self, me: State) -> Kept:
        """The same with another state. What is compiled now makes every later move cheaper."""
        splits = self.splits or [split(one) for one in self.conjunctions]
        return msgspec.structs.replace(self, me=me, splits=splits)

    def holds(self, publication: Publication, at: float, facts: Facts, subjects: Subjects) -> bool:
        """Whether one of the conjunctions holds."""
        if at < self.accepted_at:
            return False
        if self.tests is None:
            asked = self.asked if self.follows else None
            self.tests = [_test(one, subjects, asked) for one in self.conjunctions]
        t = at - self.accepted_at
        return any(
            test.fitting <= facts.true
            and test.missing.isdisjoint(facts.present)
            and bool(test.program(publication, t, self.me))
            for test in self.tests
        )


def _test(conjunction: Conjunction, subjects: Subjects, asked: frozenset[int] | None) -> Test:
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
    program = compiled_conjunction(msgspec.structs.replace(conjunction, sets=rest))
    return Test(frozenset(fitting), frozenset(missing), program)
