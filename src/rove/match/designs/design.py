"""What the designs for evolving subscriptions share: options, counters, interface, the split.

A subscription whose bounds depend on `t` or `me.` can be matched in several ways, and which one
is cheapest depends on how often things are published, how fast bounds move and how wrong an
answer may be. Beside the exact index there are three published designs. A subscription can
select one; each has its own data structures:

    pes    periodic: evaluated every so often, in between a plain subscription (`pes`)
    lees   lazy: evaluated when something is published, always exact (`lees`)
    clees  lazy with a cache: evaluated when published, reused for a while (`clees`)

All of them use an index for plain conjunctions, passed as a factory, and one split of a
conjunction: the part that never changes, and the part that does. The split costs one walk over the
tree when a subscription is added. A version (the split at one moment) costs one evaluation per
bound and is exactly what the oracle would compute, to the last bit.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Generic, Literal, Protocol, Self, TypeAlias, TypeVar, cast

import msgspec
import numpy as np
import numpy.typing as npt

from rove.lang.errors import LanguageError, TextError
from rove.lang.normal_form import Conjunction, NormalForm, comparison_set, holds, meet
from rove.lang.oracle import Publication, State
from rove.lang.partial_evaluation import at_moment
from rove.lang.sets import EMPTY, ValueSet, intersection
from rove.lang.tree import Attribute, Comparator, Comparison, Me, Node, Time, ValueNode, walk
from rove.lang.values import Path, look_up
from rove.match.conditions.programs import (
    TruthProgram,
    ValueProgram,
    compiled_conjunction,
    compiled_value,
)
from rove.match.results import Pairs
from rove.match.saved import SavedConjunction

# -- options ------------------------------------------------------------------------------

DesignName: TypeAlias = Literal["exact", "pes", "lees", "clees"]

SECONDS_MIN: Final = 0.001
"""The shortest interval or threshold: below it, only evaluating would be done."""
_SECONDS_OF: Final = {"ms": 0.001, "s": 1.0, "min": 60.0}
_TIMED: Final = {"pes": "an interval", "clees": "a threshold"}
_UNTIMED: Final = ("exact", "lees")
_EXAMPLES: Final = "write exact, pes 1s, lees or clees 500ms"
_TIME = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([^\W\d_]*)")


class Evolve(msgspec.Struct, frozen=True):
    """How one subscription is to evolve: a design and, where it takes one, its time."""

    design: DesignName = "exact"
    seconds: float | None = None
    """The interval of `pes`, the threshold of `clees`; None for the others."""


def parse_evolve(text: str) -> Evolve:
    """`exact`, `pes 1s`, `lees` or `clees 500ms` as an option; TextError for anything else."""
    words = text.strip().lower()
    design, _, time = words.partition(" ")
    if design in _UNTIMED:
        if time:
            what = f"{design} takes no time: it is never out of date"
            raise _refusal(what, text, time.strip(), f"write {design}")
        return Evolve(cast(DesignName, design))
    if design not in _TIMED:
        found = f"no design {design}" if design else "no design here"
        raise _refusal(f"there is {found}", text, design, _EXAMPLES)
    if not time:
        what = f"{design} needs {_TIMED[design]}"
        raise _refusal(what, text, design, f"for example {design} 500ms")
    return Evolve(cast(DesignName, design), _seconds(text, time.strip()))


def _seconds(text: str, time: str) -> float:
    found = _TIME.fullmatch(time)
    if found is None:
        raise _refusal(f"{time} is no time", text, time, "write a number and ms, s or min")
    number, unit = found.groups()
    if unit not in _SECONDS_OF:
        what = f"there is no unit {unit}" if unit else f"{number} has no unit"
        raise _refusal(what, text, unit or number, f"write {number}ms, {number}s or {number}min")
    # Dividing rounds once, so that 300ms is 0.3s to the last bit.
    seconds = float(number) / 1000 if unit == "ms" else float(number) * _SECONDS_OF[unit]
    if not math.isfinite(seconds):
        raise _refusal(f"{time} is not finite", text, time, "write a number that fits a float")
    if seconds < SECONDS_MIN:
        raise _refusal(f"{time} is less than a millisecond", text, time, "the least is 1ms")
    return seconds


def _refusal(what: str, text: str, blamed: str, hint: str) -> TextError:
    start = max(text.lower().find(blamed), 0)
    return TextError(what, text, start, start + len(blamed), hint)


def checked_seconds(design: str, option: float | None) -> float:
    """The time that a design was given; LanguageError if it is none, or none that it can use."""
    if option is None or not math.isfinite(option) or option < SECONDS_MIN:
        given = "nothing" if option is None else f"{option} s"
        hint = f"give it at least {SECONDS_MIN} s"
        raise LanguageError(f"{design} needs {_TIMED[design]} and was given {given}", hint)
    return option


# -- the interface ------------------------------------------------------------------------


class Matching(Protocol):
    """Anything that matches publications."""

    def match(self, publications: Sequence[Publication]) -> Pairs:
        """Positions of publications and the ids that match them, each pair once."""


class StaticIndex(Matching, Protocol):
    """An index of plain conjunctions: neither `t` nor `me.` occurs in them."""

    def add(self, id: int, conjunctions: Sequence[Conjunction]) -> None:
        """Add one or more conjunctions under an id that is not in use; one of them must hold."""

    def remove(self, id: int) -> None:
        """Remove everything that was added under an id."""


NewIndex: TypeAlias = Callable[[], StaticIndex]


class OneByOne:
    """The simplest static index: evaluates every conjunction. For tests of the designs."""

    def __init__(self) -> None:
        self.held: dict[int, tuple[Conjunction, ...]] = {}

    def add(self, id: int, conjunctions: Sequence[Conjunction]) -> None:
        """Add one or more conjunctions under an id that is not in use."""
        refuse_second(id, self.held)
        self.held[id] = tuple(conjunctions)

    def remove(self, id: int) -> None:
        """Remove everything that was added under an id."""
        del self.held[id]

    def match(self, publications: Sequence[Publication]) -> Pairs:
        """Positions of publications and the ids that match them."""
        found = [
            (position, id)
            for position, publication in enumerate(publications)
            for id, conjunctions in self.held.items()
            if holds(NormalForm(conjunctions), publication)
        ]
        positions = np.array([position for position, _ in found], np.int32)
        return Pairs(positions, np.array([id for _, id in found], np.int64))


class Counters(msgspec.Struct):
    """What a design has done so far: running totals."""

    evaluations: int = 0
    """Times that the evolving part of a subscription was evaluated for a moment."""
    evolutions: int = 0
    """Versions that took the place of an older one because their time had come (pes)."""
    evolutions_skipped: int = 0
    """Versions that were never made: the next was due before a publication came (pes)."""
    cache_hits: int = 0
    """Pairs that were decided by a version made for an earlier publication (clees)."""
    cache_misses: int = 0
    """Pairs for which a version had to be made (clees)."""
    stale_answers_possible: int = 0
    """Pairs decided, either way, by a version of another moment than the publication's own."""


class SavedSubscription(msgspec.Struct, frozen=True):
    """One subscription of a design, as it is saved and moved."""

    id: int
    conjunctions: tuple[SavedConjunction, ...]
    accepted_at: float
    me: dict[str, object]
    option: float | None
    evaluated_at: float | None
    """The moment of the version in use, so that answers go on as they were."""


class DesignState(msgspec.Struct, frozen=True):
    """The whole state of a design, as plain values."""

    subscriptions: tuple[SavedSubscription, ...]
    counters: Counters


# -- a conjunction in two -----------------------------------------------------------------

ALWAYS: Final = Conjunction()
"""The conjunction of nothing, which everything matches."""
_NOTHING: Final[Publication] = {}
"""The publication for values in which no attribute occurs."""


class Split(msgspec.Struct, frozen=True, dict=True):
    """A conjunction in two: what never changes, and what depends on `t` or `me.`.

    What is evaluated again and again is compiled when it is needed first: that costs as much as
    two or three evaluations of the tree, and not every design evaluates every part.
    """

    whole: Conjunction
    fixed: Conjunction
    evolving: Conjunction
    bounds: tuple[Comparison, ...]
    """Of `evolving`, the comparisons of a publication (left) with `t` and `me.` (right)."""
    rest: Conjunction
    """Of `evolving`, everything else."""
    attributes: frozenset[Path]
    """Without a value for each of these the evolving part cannot hold."""
    uses_time: bool
    """False if nothing but `me.` moves it."""

    @cached_property
    def whole_holds(self) -> TruthProgram:
        """Says whether the whole conjunction holds for (publication, t, me)."""
        return compiled_conjunction(self.whole)

    @cached_property
    def evolving_holds(self) -> TruthProgram:
        """Says whether the evolving part holds for (publication, t, me)."""
        return compiled_conjunction(self.evolving)

    @cached_property
    def _values(self) -> list[tuple[ValueNode, Comparator, ValueProgram]]:
        """Each bound, with what computes its right side."""
        return [(one.left, one.comparator, compiled_value(one.right)) for one in self.bounds]

    def at(self, t: float, me: State) -> Conjunction | None:
        """The plain conjunction that this is at a moment; None if it cannot hold then."""
        sets = dict(self.fixed.sets)
        for subject, comparator, compute in self._values:
            value = compute(_NOTHING, t, me)
            if value is None or (type(value) is bool and comparator not in ("=", "!=")):
                return None
            allowed = comparison_set(comparator, value)
            before = sets.get(subject)
            sets[subject] = both = allowed if before is None else intersection(before, allowed)
            if both == EMPTY:
                return None
        found = Conjunction(sets, self.fixed.atoms)
        if self.rest == ALWAYS:
            return found
        rest = at_moment(self.rest, t, me)
        return None if rest is None else meet(found, rest)


class _Seen:
    """What occurs in a node, found in one walk, since walking is the cost of splitting."""

    def __init__(self, node: Node) -> None:
        self.has_time = self.has_state = False
        self.attributes: list[Path] = []
        for part in walk(node):
            kind = type(part)
            if kind is Time:
                self.has_time = True
            elif kind is Me:
                self.has_state = True
            elif isinstance(part, Attribute):
                self.attributes.append(part.path)

    @property
    def is_evolving(self) -> bool:
        return self.has_time or self.has_state


def split(conjunction: Conjunction) -> Split:
    """`conjunction` in two; both parts together mean what it means."""
    seen: list[_Seen] = []
    bounds: set[Comparison] = set()
    others: set[Comparison] = set()
    evolving_sets: dict[ValueNode, ValueSet] = {}
    for subject, allowed in conjunction.sets.items():
        here = _Seen(subject)
        if here.is_evolving:
            evolving_sets[subject] = allowed
            seen.append(here)
    for atom in conjunction.atoms:
        left, right = _Seen(atom.left), _Seen(atom.right)
        if left.is_evolving or right.is_evolving:
            (others if left.is_evolving or right.attributes else bounds).add(atom)
            seen += (left, right)
    fixed_sets = {s: a for s, a in conjunction.sets.items() if s not in evolving_sets}
    return Split(
        whole=conjunction,
        fixed=Conjunction(fixed_sets, conjunction.atoms - bounds - others),
        evolving=Conjunction(evolving_sets, frozenset(bounds | others)),
        bounds=tuple(bounds),
        rest=Conjunction(evolving_sets, frozenset(others)),
        attributes=frozenset(path for each in seen for path in each.attributes),
        uses_time=any(each.has_time for each in seen),
    )


class Evolving(msgspec.Struct):
    """One subscription, split, with all that says what it means at a moment."""

    id: int
    accepted_at: float
    me: dict[str, object]
    option: float | None
    splits: tuple[Split, ...]
    uses_time: bool
    """False if nothing but `me.` moves it: then no version of it grows old."""

    @classmethod
    def of(
        cls,
        id: int,
        conjunctions: Iterable[Conjunction],
        accepted_at: float,
        me: State,
        option: float | None,
    ) -> Evolving:
        """Split a subscription."""
        splits = tuple(map(split, conjunctions))
        uses_time = any(one.uses_time for one in splits)
        return cls(id, accepted_at, dict(me), option, splits, uses_time)

    @property
    def is_fixed(self) -> bool:
        """True if neither `t` nor `me.` occurs."""
        return all(one.evolving == ALWAYS for one in self.splits)

    @property
    def is_always_candidate(self) -> bool:
        """True if no publication can be ruled out without evaluating."""
        return any(one.fixed == ALWAYS for one in self.splits)

    def at(self, moment: float) -> list[Conjunction]:
        """The plain conjunctions that this is at a moment; none if it cannot hold then."""
        t = moment - self.accepted_at
        versions = (one.at(t, self.me) for one in self.splits)
        return [version for version in versions if version is not None]

    def saved(self, evaluated_at: float | None) -> SavedSubscription:
        """As it is saved."""
        whole = tuple(SavedConjunction.of(one.whole) for one in self.splits)
        me = dict(self.me)
        return SavedSubscription(self.id, whole, self.accepted_at, me, self.option, evaluated_at)


def refuse_second(id: int, held: Mapping[int, object]) -> None:
    """LanguageError if an id is in use."""
    if id in held:
        raise LanguageError(f"there is already a subscription {id}")


# -- the designs' common part -----------------------------------------------------------------


class HeldSubscription(Protocol):
    """A subscription as a design keeps it."""

    evolving: Evolving


Held = TypeVar("Held", bound=HeldSubscription)


class EvolvingDesign(ABC, Generic[Held]):
    """Matches subscriptions that evolve. Time is an argument and does not run backwards.

    In one batch the times may stand in any order; from call to call they do not decrease. A
    publication that appears before a subscription was accepted does not match it. `me` holds
    all variables of the subscriber, values that were already validated.

    A design says how it inserts, deletes and refreshes a subscription, and how it matches.
    """

    @abstractmethod
    def __init__(self, new_index: NewIndex) -> None:
        self.counters = Counters()
        self._held: dict[int, Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    def add(
        self,
        id: int,
        conjunctions: Sequence[Conjunction],
        accepted_at: float,
        me: State,
        option: float | None = None,
    ) -> None:
        """Add a subscription under an id that is not in use.

        `option` is its interval or threshold, for a design that takes one.
        """
        refuse_second(id, self._held)
        self._held[id] = self._insert(Evolving.of(id, conjunctions, accepted_at, me, option))

    def remove(self, id: int) -> None:
        """Remove a subscription; KeyError if there is none of that id."""
        self._delete(self._held.pop(id))

    def set_state(self, id: int, me: State) -> None:
        """Replace the subscriber's variables; no later answer uses the earlier ones."""
        one = self._held[id]
        one.evolving.me = dict(me)
        self._refresh(one)

    @abstractmethod
    def match(self, publications: Sequence[Publication], at: Sequence[float]) -> Pairs:
        """The subscriptions that match each of `publications`, which appear at the times `at`."""

    def advance(self, now: float) -> None:
        """Do what is due by now; `match` does so by itself, this does it early."""

    def next_change_at(self) -> float:
        """When `advance` has something to do; infinity if never."""
        return math.inf

    def evaluated_at(self, id: int) -> float | None:
        """The moment whose `t` answers are given for; None if that of the publication itself."""
        return None

    def state(self) -> DesignState:
        """Everything that `from_state` needs to go on."""
        saved = tuple(one.evolving.saved(self.evaluated_at(id)) for id, one in self._held.items())
        return DesignState(saved, msgspec.structs.replace(self.counters))

    @classmethod
    def from_state(cls, state: DesignState, new_index: NewIndex) -> Self:
        """The design that `state` was taken from, with the same versions."""
        found = cls(new_index)
        for saved in state.subscriptions:
            conjunctions = [one.conjunction() for one in saved.conjunctions]
            found.add(saved.id, conjunctions, saved.accepted_at, saved.me, saved.option)
            if saved.evaluated_at is not None:
                found._restore_version(found._held[saved.id], saved.evaluated_at)
        found.counters = msgspec.structs.replace(state.counters)
        return found

    @abstractmethod
    def _insert(self, evolving: Evolving) -> Held:
        """Begin to match a subscription."""

    @abstractmethod
    def _delete(self, one: Held) -> None:
        """Match it no more."""

    @abstractmethod
    def _refresh(self, one: Held) -> None:
        """Its variables have changed."""

    def _restore_version(self, one: Held, moment: float) -> None:
        """Make the version again that was in use when the design was saved."""


Design: TypeAlias = "EvolvingDesign[Any]"


# -- versions -----------------------------------------------------------------------------


class Versions:
    """How many versions there are, and how many of them were made for the latest moment.

    What is needed to count answers that may be stale without looking at each version.
    """

    def __init__(self) -> None:
        self.count = 0
        self._latest = -math.inf
        self._count_of_latest = 0

    def made(self, moment: float) -> None:
        """There is one more."""
        self.count += 1
        if moment > self._latest:
            self._latest, self._count_of_latest = moment, 0
        self._count_of_latest += moment == self._latest

    def dropped(self, moment: float) -> None:
        """There is one less, which was made for `moment`."""
        self.count -= 1
        self._count_of_latest -= moment == self._latest

    def made_before(self, moment: float) -> int:
        """How many were made for an earlier moment, `moment` being no earlier than any."""
        return self.count - (self._count_of_latest if self._latest == moment else 0)


# -- batches ------------------------------------------------------------------------------


def covers(publication: Publication, paths: Iterable[Path]) -> bool:
    """True if a publication has something at every path."""
    return all(look_up(publication, path) is not None for path in paths)


def in_order_of_time(at: Sequence[float]) -> list[int]:
    """The positions of a batch, earliest first; those of one time keep their order."""
    return sorted(range(len(at)), key=at.__getitem__)


def by_publication(found: Pairs, count: int) -> list[list[int]]:
    """The ids of each of `count` publications."""
    ends, ids = found.starts(count).tolist(), found.subscriptions.tolist()
    return [ids[ends[i] : ends[i + 1]] for i in range(count)]


class Answers:
    """Gathers the pairs of one batch."""

    def __init__(self, publications: Sequence[Publication]) -> None:
        self._publications = publications
        self._positions: list[npt.NDArray[np.int32]] = []
        self._ids: list[npt.NDArray[np.int64]] = []

    def give(self, position: int, ids: Sequence[int] | npt.NDArray[np.int64]) -> None:
        """`ids` match the publication at `position`."""
        self._positions.append(np.full(len(ids), position, np.int32))
        self._ids.append(np.asarray(ids, np.int64))

    def ask(self, index: Matching, run: list[int]) -> None:
        """Whatever `index` finds for the publications at the positions `run`, which is emptied."""
        if run:
            found = index.match([self._publications[position] for position in run])
            self._positions.append(np.array(run, np.int32)[found.publications])
            self._ids.append(found.subscriptions)
            run.clear()

    def pairs(self) -> Pairs:
        """All pairs, sorted, each once."""
        if not self._ids:
            return Pairs(np.empty(0, np.int32), np.empty(0, np.int64))
        positions, ids = np.concatenate(self._positions), np.concatenate(self._ids)
        order = np.lexsort((ids, positions))
        positions, ids = positions[order], ids[order]
        first = np.ones(len(ids), np.bool_)
        np.logical_or(positions[1:] != positions[:-1], ids[1:] != ids[:-1], out=first[1:])
        return Pairs(positions[first], ids[first])
