"""Subjects: the values of publications that rows compare, by number.

A subject is an attribute, `lower` of one, or whether a string fits a pattern. The last two are
computed once for a publication, for all subscriptions that use them. The subject of a pattern is
TRUE if the string fits, and absent otherwise; so of a hundred thousand patterns a publication has
only those that fit (`rove.match.patterns.pattern_set` finds them in one pass over the string).

Other values, such as the distance to a subscriber's home, differ in every subscription. They are
not subjects; they are computed for the rows that satisfy everything else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final, cast

import numpy as np

from rove.lang.errors import PublicationError
from rove.lang.patterns import Pattern
from rove.lang.tree import Attribute, Call, ValueNode
from rove.lang.values import Path, comparable, look_up
from rove.match import engine
from rove.match.index.batch import (
    RAW_FALSE,
    RAW_OPAQUE,
    RAW_TEXT,
    RAW_TRUE,
    SlotBatch,
    Slots,
    Text,
)
from rove.match.index.keys import floor_float
from rove.match.index.rows import Floats
from rove.match.patterns.automaton import PatternBudget
from rove.match.patterns.encoding import pattern_of, program_of
from rove.match.patterns.pattern_set import AutomatonMerge, PatternSet
from rove.match.saved import SavedSubject

_EXACT_MAX: Final = 2**53


def is_subject(node: ValueNode) -> bool:
    """True for attributes, and `lower` of them."""
    return type(node) is Attribute or (
        type(node) is Call and node.name == "lower" and type(node.arguments[0]) is Attribute
    )


class SubjectSource:
    """Where a value comes from, and the subjects that are made of it."""

    __slots__ = ("lowered", "number", "pattern_numbers", "patterns", "rest")

    def __init__(self, rest: Path, number: int) -> None:
        self.rest = rest
        """The path below the publication's own attribute."""
        self.number = number
        """-1 as long as no row compares the value itself."""
        self.patterns: PatternSet | None = None
        self.pattern_numbers: dict[int, int] = {}
        """The subject of each pattern, by its number in `patterns`."""
        self.lowered: SubjectSource | None = None


class PatternMerge:
    """Work that can be done elsewhere: automata into one."""

    def __init__(self, patterns: PatternSet, merge: AutomatonMerge) -> None:
        self._patterns = patterns
        self._merge = merge

    def run(self) -> PatternMerge:
        """Build the new automaton; touches nothing that searches use."""
        self._merge.run()
        return self

    def abandon(self) -> None:
        """It failed: its patterns remain, and may be merged again."""
        self._patterns.abandon(self._merge)

    def install(self) -> None:
        """Search with the new automaton from now on."""
        self._patterns.install(self._merge)


def _with_one_nan(values: Floats) -> Floats:
    """The same numbers; a NaN may come with bits of its own, here all are the same one."""
    missing = np.isnan(values)
    if missing.any():
        return np.where(missing, np.nan, values)
    return np.ascontiguousarray(values, np.float64)


class Subjects:
    """Numbers for subjects, and publications as batches of slots."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}
        self._sources: dict[str, list[SubjectSource]] = {}
        self._uses: dict[int, tuple[PatternSet, int]] = {}
        """Of patterns, by number: the set that they are in, and their number there."""

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, subject: ValueNode) -> int:
        """The number of an attribute or of `lower` of one."""
        found = self._numbers.get(subject)
        if found is None:
            source = self._source(subject)
            found = source.number = self._new(subject)
        return found

    def attribute(self, name: str) -> int:
        """The number of a publication's own attribute."""
        return self.number(Attribute((name,)))

    def pattern(self, subject: ValueNode, pattern: Pattern) -> int:
        """The number of "`subject` fits the pattern"; counts as one use."""
        found = self._numbers.get((subject, pattern))
        if found is None:
            found = self._new((subject, pattern))
        source = self._source(subject)
        if source.patterns is None:
            source.patterns = PatternSet(compiled=engine.search_kernel is not None)
        in_set = source.patterns.add(pattern)
        source.pattern_numbers[in_set] = found
        self._uses[found] = (source.patterns, in_set)
        return found

    def pattern_number(self, subject: ValueNode, pattern: Pattern) -> int | None:
        """The same number if a row uses the pattern; counts as no use."""
        return self._numbers.get((subject, pattern))

    def is_pattern(self, number: int) -> bool:
        """Whether a subject is a pattern."""
        return number in self._uses

    def release(self, number: int) -> None:
        """Take back one use of a subject; a pattern without uses is no longer searched.

        Numbers stay: rows that were removed may still have them.
        """
        used = self._uses.get(number)
        if used is not None:
            patterns, in_set = used
            patterns.remove(in_set)

    def use_again(self, counts: Mapping[int, int]) -> None:
        """Count the patterns that loaded rows use, by number, as used."""
        named = list(self._numbers)
        for number, count in counts.items():
            subject = named[number]
            if isinstance(subject, tuple):
                for _ in range(count):
                    self.pattern(*subject)

    def merge_due(self) -> PatternMerge | None:
        """Patterns that are worth merging now, if any."""
        for patterns in self._pattern_sets():
            patterns.compiled = engine.search_kernel is not None
            if (merge := patterns.merge_due()) is not None:
                return PatternMerge(patterns, merge)
        return None

    def _pattern_sets(self) -> list[PatternSet]:
        found = {id(patterns): patterns for patterns, _ in self._uses.values()}
        return list(found.values())

    def state(self) -> list[SavedSubject]:
        """Every subject, in order of their numbers."""
        return [
            SavedSubject(subject[0], program_of(subject[1]))
            if isinstance(subject, tuple)
            else SavedSubject(cast(ValueNode, subject))
            for subject in self._numbers
        ]

    @classmethod
    def from_state(cls, state: Sequence[SavedSubject]) -> Subjects:
        """The subjects of `state`. A pattern is in use again when a row uses it."""
        subjects = cls()
        for subject in state:
            if subject.pattern is None:
                subjects.number(subject.node)
            else:
                subjects._new((subject.node, pattern_of(subject.pattern)))
        return subjects

    def value(self, number: int, publication: Mapping[str, object]) -> object:
        """The value of the attribute of that number, as `look_up` finds it."""
        subject = next(islice(self._numbers, number, None))
        assert type(subject) is Attribute, "only attributes are compared with what moves"
        return look_up(publication, subject.path)

    def _new(self, subject: object) -> int:
        number = self._numbers[subject] = len(self._numbers)
        return number

    def _source(self, subject: ValueNode) -> SubjectSource:
        if type(subject) is Call:
            (inner,) = subject.arguments
            source = self._source(inner)
            if source.lowered is None:
                source.lowered = SubjectSource((), -1)
            return source.lowered
        assert type(subject) is Attribute
        name, *rest = subject.path
        sources = self._sources.setdefault(name, [])
        for source in sources:
            if source.rest == tuple(rest):
                return source
        sources.append(SubjectSource(tuple(rest), -1))
        return sources[-1]

    def sources_of(self, name: str) -> Sequence[SubjectSource]:
        """All sources of a top-level attribute and of what is nested in it."""
        return self._sources.get(name, ())

    # -- publications ------------------------------------------------------------------------

    def batch(self, publications: Sequence[Mapping[str, object]], at: Sequence[float]) -> SlotBatch:
        """Publications that appear at the times `at`."""
        times = checked_times(at, len(publications))
        slots = Slots()
        starts = [0]
        rounded = []
        undecided: dict[int, list[int]] = {}
        for number, publication in enumerate(publications):
            slots.begin()
            self.fill(slots, publication)
            starts.append(len(slots.subjects))
            rounded.append(slots.rounded)
            if slots.undecided:
                undecided[number] = slots.undecided
        return SlotBatch(
            publications,
            times,
            np.array(starts, np.int64),
            np.array(slots.subjects, np.int32),
            np.array(slots.values, np.float64).view(np.uint64),
            np.array(rounded, np.uint8),
            slots.texts,
            undecided=undecided,
        )

    def columns(self, names: Sequence[str], values: Floats, at: Floats) -> SlotBatch:
        """Publications that come as numbers, a line each, a column for each attribute.

        NaN stands for a missing value. What must be computed needs publications, so this is for
        subscriptions that are decided by their boxes.
        """
        times = checked_times(at, len(values))
        if np.isinf(values).any():
            raise PublicationError("a value is infinite", "numbers must be finite; NaN is missing")
        numbers = np.array([self.attribute(name) for name in names], np.int32)
        total = len(values)
        return SlotBatch(
            (),
            times,
            np.arange(total + 1) * len(numbers),
            np.tile(numbers, total),
            _with_one_nan(values).ravel().view(np.uint64),
            np.zeros(total, np.uint8),
        )

    def fill(self, slots: Slots, publication: Mapping[str, object]) -> None:
        """Append the slots of a publication; plain numbers, the commonest case, without calls."""
        sources = self._sources
        for name, value in publication.items():
            found = sources.get(name)
            if found is None:
                continue
            source = found[0]
            if len(found) == 1 and not source.rest:
                kind = type(value)
                if kind is float or (kind is int and -_EXACT_MAX <= value <= _EXACT_MAX):  # type: ignore[operator]
                    if source.number >= 0:
                        slots.subjects.append(source.number)
                        slots.values.append(value)  # type: ignore[arg-type]
                    continue
            for source in found:
                _put(source, inside(value, source.rest), slots)


def checked_times(at: Sequence[float] | Floats, publications: int) -> Floats:
    """Times as a kernel needs them: it would read past the end of an array that is too short."""
    if len(at) != publications:
        raise PublicationError(
            f"{publications} publications came with {len(at)} times", "give each its own"
        )
    times = np.ascontiguousarray(at, np.float64)
    if not np.isfinite(times).all():
        raise PublicationError("a publication appears at no finite time", "give it in seconds")
    return times


def inside(value: object, rest: Path) -> object:
    """The value that a path leads to, as the language compares it."""
    for name in rest:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return comparable(value)


def _put(source: SubjectSource, value: object, slots: Slots) -> None:
    """The slots of one value: itself, the patterns that it fits, what `lower` makes of it."""
    kind = type(value)
    if value is None:
        return
    if kind is str:
        _put_text(source, value, slots)  # type: ignore[arg-type]
    elif kind is float:
        slots.add(source.number, value)  # type: ignore[arg-type]
    elif kind is int:
        number: int = value  # type: ignore[assignment]
        if not -_EXACT_MAX <= number <= _EXACT_MAX and float(number) != number:
            slots.rounded = 1
            slots.add(source.number, floor_float(number))
        else:
            slots.add(source.number, float(number))
    elif kind is bool:
        slots.add(source.number, RAW_TRUE if value else RAW_FALSE)
    else:
        slots.add(source.number, RAW_OPAQUE)


def _put_text(source: SubjectSource, text: str, slots: Slots) -> None:
    if source.number >= 0:
        slots.texts.append(Text(len(slots.subjects), source.number, text))
        slots.add(source.number, RAW_TEXT)
    if source.patterns is not None:
        budget = slots.budget = slots.budget or PatternBudget()
        for pattern in source.patterns.fitting(text, budget):
            slots.add(source.pattern_numbers[int(pattern)], RAW_TRUE)
        if budget.undecided:
            _put_undecided(source, budget, slots)
    if source.lowered is not None:
        _put_text(source.lowered, text.lower(), slots)


def _put_undecided(source: SubjectSource, budget: PatternBudget, slots: Slots) -> None:
    """Patterns that took too many steps: neither TRUE nor absent, so that no row can hold."""
    for pattern in budget.undecided:
        subject = source.pattern_numbers[pattern]
        slots.add(subject, RAW_OPAQUE)
        slots.undecided.append(subject)
    budget.undecided.clear()
