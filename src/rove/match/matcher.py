"""The matcher: subscriptions come and go, batches of publications come in, matches come out.

The entry point of this room. It runs in a broker, in matcher processes, at the edge and in Spark's
workers, so it does no I/O, takes the time as an argument and never stops for a rebuild
(`rove.match.index.index` describes how merges run elsewhere). It consists of:

- an exact index for fixed, evolving and following subscriptions (`rove.match.index.index`),
- the three published designs for evolving subscriptions that choose one (`designs`),
- ranked subscriptions: a second index for their conditions, and their windows in
  `rove.match.ranked`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import index as as_integer
from typing import Final, NamedTuple, Protocol, Self

import msgspec
import numpy as np

from rove.lang.errors import LanguageError, PublicationError
from rove.lang.limits import INTEGER_MAX
from rove.lang.normal_form import Conjunction, normalise
from rove.lang.oracle import Publication
from rove.lang.tree import Subscription, is_conditional
from rove.lang.values import admit, change_state
from rove.match.designs.design import Counters, Design, DesignState, Evolve, checked_seconds
from rove.match.designs.lees import Lees
from rove.match.designs.versioned import Clees, Pes
from rove.match.engine import want, warm_up
from rove.match.index.batch import SlotBatch
from rove.match.index.columns import PublicationTable, batch_of
from rove.match.index.index import ExactIndex, ReadingMatcher
from rove.match.index.layout import Buffer
from rove.match.index.rows import Floats, Positions
from rove.match.index.subjects import Subjects
from rove.match.ranked.windows import Windows
from rove.match.results import Matches, Pairs, RankedDelivery
from rove.match.saved import (
    IndexState,
    SavedError,
    SavedSubject,
    WindowsState,
    load,
    save,
    without_collector,
)

EXACT = Evolve()
_DESIGNS: Final[dict[str, type[Pes | Lees | Clees]]] = {"pes": Pes, "lees": Lees, "clees": Clees}

_CONTENTS: Final = "matcher"


class Matcher:
    """Decides which subscriptions get a publication."""

    def __init__(self, *, compiled: bool = True) -> None:
        """With `compiled`, wait for the kernels; without, use them as soon as they are there."""
        self._compiled = compiled
        self._subjects = Subjects()
        self.undecided: set[int] = set()
        """Subscriptions that were skipped since `clear` was last called on this set.

        Trying their patterns on a publication took more steps than it may take
        (`rove.lang.limits.PATTERN_STEPS_MAX`), so it is unknown whether they match.
        """
        self.index = ExactIndex(self._subjects, compiled=compiled, undecided=self.undecided)
        """The subscriptions without a rank and without a design."""
        self._conditions = ExactIndex(self._subjects, compiled=compiled, undecided=self.undecided)
        """Those of ranked subscriptions."""
        self._windows = Windows()
        self._is_ranked: dict[int, bool] = {}
        """Ranked subscriptions, and whether their condition says anything."""
        self._design_indexes: list[ExactIndex] = []
        self._designs: dict[str, Design] = {}
        self._design_of: dict[int, Design] = {}
        self._states: dict[int, dict[str, object]] = {}
        self._published = 0

    def __len__(self) -> int:
        return len(self.index) + len(self._is_ranked) + len(self._design_of)

    def __contains__(self, id: int) -> bool:
        return id in self.index or id in self._is_ranked or id in self._design_of

    def ids(self) -> set[int]:
        """The ids of all subscriptions."""
        return self.index.ids() | set(self._is_ranked) | set(self._design_of)

    # -- changing ----------------------------------------------------------------------------

    def add(
        self,
        id: int,
        subscription: Subscription,
        accepted_at: float = 0.0,
        me: Mapping[str, object] | None = None,
        evolve: Evolve = EXACT,
    ) -> None:
        """Add a subscription under an id, 0 or more, that is not in use."""
        if id in self:
            raise LanguageError(f"there is already a subscription {id}", "remove it first")
        self._add(id, subscription, checked(id, subscription, accepted_at, me, evolve))

    def replace(
        self,
        id: int,
        subscription: Subscription,
        accepted_at: float = 0.0,
        me: Mapping[str, object] | None = None,
        evolve: Evolve = EXACT,
    ) -> None:
        """Replace a subscription by another; every publication is matched with exactly one of them.

        When the new one is refused, the old one stays.
        """
        fit = checked(id, subscription, accepted_at, me, evolve)
        self.remove(id)
        self._add(id, subscription, fit)

    def remove(self, id: int) -> None:
        """Remove a subscription; KeyError if there is none of that id."""
        if id in self._is_ranked:
            self._windows.remove(id)
            if self._is_ranked.pop(id):
                self._conditions.remove(id)
        elif id in self._design_of:
            self._design_of.pop(id).remove(id)
        else:
            self.index.remove(id)
        self._states.pop(id, None)

    def set_state(self, id: int, changes: Mapping[str, object]) -> None:
        """Change `me.` variables of a subscription; None removes one."""
        if id not in self:
            raise KeyError(id)
        admit(changes)
        me = dict(self._states.get(id, {}))
        change_state(me, changes)
        self._states[id] = me
        if id in self._is_ranked:
            self._windows.set_state(id, me)
            if self._is_ranked[id]:
                self._conditions.set_state(id, me)
        elif id in self._design_of:
            self._design_of[id].set_state(id, me)
        else:
            self.index.set_state(id, me)

    def _add(self, id: int, subscription: Subscription, checked: _Checked) -> None:
        conjunctions, accepted_at, me, evolve = checked
        self._want(ranked=subscription.rank is not None)
        if me:
            self._states[id] = me
        if subscription.rank is not None:
            self._windows.add(id, subscription, accepted_at, me)
            self._is_ranked[id] = is_conditional(subscription)
            if self._is_ranked[id]:
                self._conditions.add(id, conjunctions, accepted_at, me)
        elif evolve.design != "exact":
            design = self._design(evolve.design)
            design.add(id, conjunctions, accepted_at, me, evolve.seconds)
            self._design_of[id] = design
        else:
            self.index.add(id, conjunctions, accepted_at, me)

    def _want(self, *, ranked: bool = False) -> None:
        """Have the kernels loaded: here and now, or by the callbacks of `when_wanted`."""
        want(ranked=ranked)
        if self._compiled and ranked:
            warm_up()

    def _design(self, name: str) -> Design:
        if name not in self._designs:
            self._designs[name] = _DESIGNS[name](self._new_index)
        return self._designs[name]

    def _new_index(self) -> ExactIndex:
        """An index for a design, which takes part in merging."""
        self._design_indexes.append(ExactIndex(compiled=self._compiled, undecided=self.undecided))
        return self._design_indexes[-1]

    def add_boxes(
        self,
        ids: Positions,
        attributes: Sequence[str],
        lows: Floats,
        highs: Floats,
        speeds: Floats | None = None,
    ) -> None:
        """Add many subscriptions at once that are a box each (see `rows.from_boxes`)."""
        taken = [id for id in ids.tolist() if id in self]
        if taken:
            raise LanguageError(f"there is already a subscription {taken[0]}", "remove it first")
        self._want()
        self.index.add_boxes(ids, attributes, lows, highs, speeds)

    # -- matching ----------------------------------------------------------------------------

    def match(
        self,
        publications: Sequence[Publication],
        at: Sequence[float],
        keys: Sequence[object] | None = None,
    ) -> Matches:
        """The subscriptions that get each of `publications`, which appear at the times `at`.

        Publications hold what `rove.lang.values.admit` admits. Windows slide and designs evolve
        with the times, which must not decrease for them. `keys` name the publications when a
        ranked subscription is given one; without, they are numbered as they come.
        """
        return self._matched(self._subjects.batch(publications, at), keys)

    def match_table(
        self,
        columns: PublicationTable,
        at: Sequence[float] | Floats,
        keys: Sequence[object] | None = None,
    ) -> Matches:
        """The same for publications that come as columns of any types; no loop over the rows."""
        return self._matched(batch_of(self._subjects, columns, at), keys)

    def _matched(self, batch: SlotBatch, keys: Sequence[object] | None) -> Matches:
        if keys is not None and len(keys) != len(batch):
            raise PublicationError(
                f"{len(batch)} publications came with {len(keys)} keys", "give each its own"
            )
        if self._is_ranked and (np.diff(batch.at) < 0).any():
            raise PublicationError("times run back within a batch", "sort publications by time")
        found = self.index.match_batch(batch)
        if self._design_of:
            found = self._with_designs(found, batch.publications, batch.at.tolist())
        ranked = self._rank(batch, keys) if self._is_ranked else ()
        self._published += len(batch)
        return Matches.of(found, ranked)

    def match_one(self, publication: Publication, at: float) -> Positions:
        """The ids that get one publication, ranked subscriptions left aside: the quickest way.

        For when nothing else is waiting; of many publications at once, each costs less.
        """
        if self._design_of:
            batch = self._subjects.batch([publication], [at])
            found = self._with_designs(self.index.match_batch(batch), [publication], [at])
            return found.subscriptions
        return self.index.match_one(publication, at)

    def match_columns(self, names: Sequence[str], values: Floats, at: Floats) -> Matches:
        """The same for publications that come as numbers, a line each; NaN is a missing value.

        Only for subscriptions whose boxes say everything.
        """
        found = self.index.match_columns(names, values, at)
        return Matches.of(found)

    def reader(self, names: Sequence[str]) -> ReadingMatcher:
        """Match publications that are numbers, one at a time (see `ReadingMatcher`).

        Ranked subscriptions and those that evolve by a design are left aside.
        """
        return ReadingMatcher(self.index, names)

    def _with_designs(
        self, found: Pairs, publications: Sequence[Publication], at: Sequence[float]
    ) -> Pairs:
        parts: list[Pairs] = [found]
        parts += [design.match(publications, at) for design in self._designs.values()]
        numbers = np.concatenate([part.publications for part in parts])
        ids = np.concatenate([part.subscriptions for part in parts])
        order = np.argsort(numbers, kind="stable")
        return Pairs(numbers[order], ids[order])

    def _rank(self, batch: SlotBatch, keys: Sequence[object] | None) -> list[RankedDelivery]:
        matched = self._conditions.match_batch(batch)
        ends = matched.starts(len(batch)).tolist()
        ranked: list[RankedDelivery] = []
        for number, publication in enumerate(batch.publications):
            ids = np.sort(matched.subscriptions[ends[number] : ends[number + 1]])
            key = self._published + number if keys is None else keys[number]
            ranked += self._windows.publish(key, publication, float(batch.at[number]), ids)
        return ranked

    def advance(self, now: float) -> list[RankedDelivery]:
        """Let time pass: windows slide, publications move up, designs evolve."""
        for design in self._designs.values():
            design.advance(now)
        return self._windows.advance(now) if self._is_ranked else []

    def next_change_at(self) -> float:
        """When `advance` has something to do at the latest; infinity if never."""
        due_at = self._windows.next_change_at()
        for design in self._designs.values():
            due_at = min(due_at, design.next_change_at())
        return due_at

    def live_keys(self) -> list[object]:
        """The keys of the publications that some window may still deliver."""
        return self._windows.live_keys()

    def counters(self) -> dict[str, Counters]:
        """What each design in use has done so far."""
        return {name: design.counters for name, design in self._designs.items()}

    def evaluated_at(self, id: int) -> float | None:
        """The moment whose `t` a design answers for; None where answers are of their own time."""
        design = self._design_of.get(id)
        return None if design is None else design.evaluated_at(id)

    # -- merging -----------------------------------------------------------------------------

    def _indexes(self) -> list[ExactIndex]:
        return [self.index, self._conditions, *self._design_indexes]

    def merge_due(self) -> Work | None:
        """The next work that is worthwhile, if any: `run` it anywhere, then `install` it."""
        for index in self._indexes():
            work: Work | None = index.merge_due() or index.subjects.merge_due()
            if work is not None:
                return work
        return self._windows.merge_due()

    def install(self, work: Work) -> None:
        """Take over finished work."""
        work.install()

    def merge_all(self) -> None:
        """Do all work that is due, here and now."""
        for index in self._indexes():
            index.settle_fresh()
        while (work := self.merge_due()) is not None:
            self.install(work.run())

    def compact(self) -> None:
        """Make the indexes as quick to search as they get, here and now."""
        self.merge_all()
        for index in self._indexes():
            index.compact()

    def prepare(self, begins_at: float, ends_at: float) -> None:
        """Prepare for these times, for callers with many publications from a history.

        Answers are the same without; a broker need not call it, since its merges follow the time.
        """
        for index in self._indexes():
            index.prepare(begins_at, ends_at)

    # -- saving ------------------------------------------------------------------------------

    @without_collector()
    def save(self) -> list[bytes | memoryview]:
        """Everything, as parts of one buffer (`file.writelines` takes them)."""
        index, segments = self.index.state()
        conditions, condition_segments = self._conditions.state()
        state = _MatcherState(
            self._subjects.state(),
            index,
            conditions,
            len(segments),
            self._windows.state(),
            self._is_ranked,
            {name: design.state() for name, design in self._designs.items()},
            self._states,
            self._published,
        )
        blocks = [[buffer.data] for buffer in segments + condition_segments]
        return save(_CONTENTS, state, blocks)

    @classmethod
    @without_collector()
    def load(cls, saved: bytes | memoryview, *, compiled: bool = True) -> Self:
        """The matcher that was saved; a private mapping of a file is not read before it is used.

        SavedError if `saved` holds no matcher of this version.
        """
        state, blocks = load(saved, _CONTENTS, _MatcherState)
        segments = [_segment(block) for block in blocks]
        matcher = cls(compiled=compiled)
        subjects = matcher._subjects = Subjects.from_state(state.subjects)
        own, others = segments[: state.segments], segments[state.segments :]
        matcher.index, matcher._conditions = (
            ExactIndex.from_state(
                saved_index, buffers, subjects, compiled=compiled, undecided=matcher.undecided
            )
            for saved_index, buffers in ((state.index, own), (state.conditions, others))
        )
        matcher._restore(state)
        if len(matcher):
            matcher._want(ranked=bool(matcher._is_ranked))
        return matcher

    def _restore(self, state: _MatcherState) -> None:
        """Everything outside of the indexes."""
        self._windows = Windows.from_state(state.windows)
        self._is_ranked = state.is_ranked
        for name, design_state in state.designs.items():
            design = _DESIGNS[name].from_state(design_state, self._new_index)
            self._designs[name] = design
            self._design_of |= {saved.id: design for saved in design_state.subscriptions}
        self._states = state.states
        self._published = state.published

    @property
    def nbytes(self) -> int:
        """Bytes of the indexes."""
        return self.index.nbytes + self._conditions.nbytes


class _MatcherState(msgspec.Struct, frozen=True):
    """A matcher without its segments, as it is saved."""

    subjects: list[SavedSubject]
    index: IndexState
    conditions: IndexState
    segments: int
    """How many of the segments are of `index`; the others are of `conditions`."""
    windows: WindowsState
    is_ranked: dict[int, bool]
    designs: dict[str, DesignState]
    states: dict[int, dict[str, object]]
    published: int


def _segment(block: memoryview) -> Buffer:
    """A segment where it lies, or a copy where that cannot be written to."""
    if len(block) % 8:
        raise SavedError("the saved matcher has a segment that is not made of whole words")
    buffer: Buffer = np.frombuffer(block, np.int64)
    return buffer.copy() if block.readonly else buffer


class Work(Protocol):
    """Work beside matching: `run` it anywhere, then `install` it here."""

    def run(self) -> Work:
        """Do it; touches nothing that matching uses."""

    def abandon(self) -> None:
        """It could not be run or installed; its inputs may be merged again."""

    def install(self) -> None:
        """Use the result from now on."""


class _Checked(NamedTuple):
    """The arguments of adding a subscription, after all checks."""

    conjunctions: tuple[Conjunction, ...]
    accepted_at: float
    me: dict[str, object]
    evolve: Evolve


def checked(
    id: int,
    subscription: Subscription,
    accepted_at: float,
    me: Mapping[str, object] | None,
    evolve: Evolve,
) -> _Checked:
    """Refuse what cannot be added, before anything is changed; LanguageError says why."""
    if not 0 <= as_integer(id) <= INTEGER_MAX:
        raise LanguageError(f"{id} is no id", "ids are integers of 64 bits from 0 on")
    if not math.isfinite(accepted_at):
        raise LanguageError("a subscription must be accepted at a finite time")
    if subscription.rank is not None and evolve.design != "exact":
        raise LanguageError(
            f"a ranked subscription cannot evolve by {evolve.design}", "write evolve = exact"
        )
    if evolve.design in ("pes", "clees"):
        checked_seconds(evolve.design, evolve.seconds)
    elif evolve.design not in ("exact", *_DESIGNS):
        raise LanguageError(f"there is no design {evolve.design}", "see parse_evolve")
    state = dict(me or {})
    admit(state)
    return _Checked(normalise(subscription).conjunctions, accepted_at, state, evolve)
