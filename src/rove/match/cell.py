"""A cell: a share of the subscriptions with filter expressions, and their index.

The broker matches with one cell, and a matcher process has one or more. Spark's index distinguishes
topic filters in the same way (`on_filter`). A cell keeps three kinds of subscriptions apart:

- Fixed, evolving and following subscriptions are in one index for all topic filters. The topic
  filter is one more condition, `$filter = n`, and a publication is matched once for each filter
  that its topic fits. So an expression is never evaluated for a topic that it does not belong to.
- Subscriptions that evolve by a published design are in a second matcher. Their answers depend on
  earlier publications, so they must be able to move to another process than the first kind.
- Ranked subscriptions are in one matcher for each topic filter. A rank without a condition is the
  fastest, so they get no condition on the filter.

The first kind is *stateless*: every cell that has it gives the same answer at any time. The others
are *stateful*: their answers follow from their past, so each is in exactly one cell.

Cost: that of `rove.match.matcher`, and about 1 µs for each publication and filter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, Self

import msgspec
import numpy as np

from rove.lang.tree import TRUE, And, Attribute, Comparison, Condition, Literal, Subscription
from rove.match.designs.design import Counters, Evolve
from rove.match.index.rows import Positions
from rove.match.matcher import EXACT, Matcher, Work, checked
from rove.match.results import Pairs, RankedDelivery
from rove.match.saved import load, save

FILTER_ATTRIBUTE: Final = "$filter"
"""No name of the language begins with $, so no expression can use it."""
_CONTENTS: Final = "cell"
_STATELESS, _DESIGNS = 0, -1
"""The numbers of the two matchers that belong to no single topic filter."""


class ShownPublication(Protocol):
    """What a cell reads of a publication."""

    @property
    def at(self) -> float: ...

    @property
    def filters(self) -> Sequence[int]:
        """The topic filters that it fits."""
        ...

    @property
    def key(self) -> object:
        """Its name in ranked deliveries."""
        ...

    def attributes(self) -> Mapping[str, object]: ...


class CellSubscription(msgspec.Struct, gc=False):
    """A subscription with what a cell needs of it."""

    id: int
    text: Subscription
    filter: int
    accepted_at: float
    me: Mapping[str, object] | None = None
    evolve: Evolve = EXACT

    @property
    def is_stateful(self) -> bool:
        """Whether its answers depend on earlier publications."""
        return self.text.rank is not None or self.evolve.design != "exact"


class CellMatches(msgspec.Struct, gc=False):
    """The subscriptions that publications match."""

    counts: list[int]
    """How many of `ids` each publication has; empty if there is none at all."""
    ids: Positions
    """Subscriptions, in the order of the publications."""
    ranked: list[RankedDelivery]
    undecided: list[int] = []
    """Subscriptions that were skipped because their patterns took too many steps."""

    def by_row(self) -> list[tuple[int, list[int]]]:
        """The rows of publications that match, each with its subscriptions."""
        found, ids, begin = [], self.ids.tolist(), 0
        for row, count in enumerate(self.counts):
            if count:
                found.append((row, ids[begin : begin + count]))
                begin += count
        return found


_NOBODY: Final = np.zeros(0, np.int64)


class Cell:
    """Some subscriptions; finds those that publications match."""

    def __init__(self, *, compiled: bool = True) -> None:
        self._compiled = compiled
        self._stateless = Matcher(compiled=compiled)
        self._designs = Matcher(compiled=compiled)
        self._unranked: list[Matcher] = []
        """Those of the two that have subscriptions."""
        self._ranked: dict[int, Matcher] = {}
        """By the number of the topic filter."""
        self._rank_filter: dict[int, int] = {}
        """The filters of ranked subscriptions."""
        self.touched: list[int] = []
        """Topic filters whose windows the last batch entered, completely or in part."""

    def __len__(self) -> int:
        return len(self._stateless) + len(self._designs) + len(self._rank_filter)

    def __contains__(self, id: int) -> bool:
        return id in self._stateless or id in self._rank_filter or id in self._designs

    def ids(self) -> set[int]:
        """The numbers of all subscriptions."""
        return self._stateless.ids() | self._designs.ids() | self._rank_filter.keys()

    def stateless_ids(self) -> set[int]:
        """The numbers of stateless subscriptions."""
        return self._stateless.ids()

    def stateful_ids(self) -> set[int]:
        """The numbers of stateful subscriptions."""
        return self._designs.ids() | self._rank_filter.keys()

    # -- changing ------------------------------------------------------------------------------

    def add(self, one: CellSubscription) -> None:
        """Add a subscription; LanguageError if it is refused."""
        if one.text.rank is not None:
            matcher = self._ranked.get(one.filter) or Matcher(compiled=self._compiled)
            matcher.add(one.id, one.text, one.accepted_at, one.me, one.evolve)
            self._ranked[one.filter] = matcher
            self._rank_filter[one.id] = one.filter
            return
        matcher = self._stateless if one.evolve.design == "exact" else self._designs
        matcher.add(one.id, _with_filter(one), one.accepted_at, one.me, one.evolve)
        if matcher not in self._unranked:
            self._find_unranked()

    def _find_unranked(self) -> None:
        self._unranked = [one for one in (self._stateless, self._designs) if len(one)]

    def remove(self, id: int) -> None:
        """Remove a subscription; KeyError if it is not here."""
        filter = self._rank_filter.pop(id, None)
        if filter is None:
            self._matcher_of(id).remove(id)
            self._find_unranked()
            return
        matcher = self._ranked[filter]
        matcher.remove(id)
        if not len(matcher):
            del self._ranked[filter]

    def set_state(self, id: int, changes: Mapping[str, object]) -> None:
        """Change `me.` variables of its subscriber; KeyError if it is not here."""
        self._matcher_of(id).set_state(id, changes)

    def _matcher_of(self, id: int) -> Matcher:
        filter = self._rank_filter.get(id)
        if filter is not None:
            return self._ranked[filter]
        return self._designs if id in self._designs else self._stateless

    # -- matching ------------------------------------------------------------------------------

    def match(self, shown: Sequence[ShownPublication]) -> CellMatches:
        """The subscriptions that publications match; times must not decrease."""
        self.touched = []
        used = self._unranked
        counts, ids = self._match_unranked(shown) if used else ([], _NOBODY)
        ranked: list[RankedDelivery] = []
        for filter, matcher in self._ranked.items():
            here = [one for one in shown if filter in one.filters]
            if here:
                self.touched.append(filter)
                used = [*used, matcher]
                rows = [one.attributes() for one in here]
                keys = [one.key for one in here]
                ranked += matcher.match(rows, [one.at for one in here], keys).ranked
        undecided: list[int] = []
        for matcher in used:
            if matcher.undecided:
                undecided += matcher.undecided
                matcher.undecided.clear()
        return CellMatches(counts, ids, ranked, sorted(undecided))

    def _match_unranked(self, shown: Sequence[ShownPublication]) -> tuple[list[int], Positions]:
        row_of: list[int] = []
        rows: list[Mapping[str, object]] = []
        at: list[float] = []
        for number, one in enumerate(shown):
            for filter in one.filters:
                row_of.append(number)
                rows.append({**one.attributes(), FILTER_ATTRIBUTE: filter})
                at.append(one.at)
        if not rows:
            return [], _NOBODY
        if len(rows) == 1 and len(self._unranked) == 1 and self._unranked[0] is self._stateless:
            # Without designs, the matcher would only pass the publication on to its index.
            ids = self._stateless.index.match_one(rows[0], at[0])
            counts = [0] * len(shown)
            counts[row_of[0]] = len(ids)
            return (counts, ids) if len(ids) else ([], _NOBODY)
        return _joined([one.match(rows, at) for one in self._unranked], row_of, len(shown))

    def advance(self, now: float) -> list[RankedDelivery]:
        """Let windows slide and designs evolve."""
        return [one for part in self.slides for one in self.advance_some(part, now)]

    @property
    def slides(self) -> list[int]:
        """The parts that `advance_some` can advance."""
        return [_DESIGNS, *self._ranked]

    def advance_some(self, part: int, now: float) -> list[RankedDelivery]:
        """Let the windows of one topic filter slide, or designs evolve."""
        matcher = self._designs if part == _DESIGNS else self._ranked[part]
        return matcher.advance(now)

    # -- rebuilding ----------------------------------------------------------------------------

    def held_by(self, filter: int) -> list[object]:
        """The publications that windows of one topic filter may still deliver."""
        matcher = self._ranked.get(filter)
        return [] if matcher is None else matcher.live_keys()

    def renew_unranked(self, wanted: Sequence[CellSubscription]) -> None:
        """Rebuild the indexes of subscriptions without a rank, with these subscriptions."""
        stateless, designs = Matcher(compiled=self._compiled), Matcher(compiled=self._compiled)
        for one in wanted:
            if one.text.rank is None:
                matcher = stateless if one.evolve.design == "exact" else designs
                matcher.add(one.id, _with_filter(one), one.accepted_at, one.me, one.evolve)
        self._stateless, self._designs = stateless, designs
        self._find_unranked()

    def renew_ranked(
        self,
        filter: int,
        wanted: Sequence[CellSubscription],
        shown: Sequence[tuple[ShownPublication, object]],
    ) -> None:
        """Rebuild the windows of one topic filter from the publications that they held."""
        matcher = Matcher(compiled=self._compiled)
        for one in wanted:
            if one.text.rank is not None and one.filter == filter:
                matcher.add(one.id, one.text, one.accepted_at, one.me, one.evolve)
        for held, key in shown:
            matcher.match([held.attributes()], [held.at], [key])
        others = {id: other for id, other in self._rank_filter.items() if other != filter}
        ids = matcher.ids()
        self._ranked.pop(filter, None)
        if ids:
            self._ranked[filter] = matcher
        self._rank_filter = others | dict.fromkeys(ids, filter)

    def next_change_at(self) -> float:
        """When `advance` has something to do at the latest; infinity if never."""
        due_at = self._designs.next_change_at()
        for one in self._ranked.values():
            due_at = min(due_at, one.next_change_at())
        return due_at

    def live_keys(self) -> list[object]:
        """The publications that some window may still deliver."""
        return [key for matcher in self._ranked.values() for key in matcher.live_keys()]

    def counters(self) -> Mapping[str, Counters]:
        """What each design for evolving subscriptions has done so far."""
        return self._designs.counters()

    def merge_due(self) -> Work | None:
        """Work on an index that is to be run beside, then installed (see `Matcher`)."""
        for matcher in (self._stateless, self._designs, *self._ranked.values()):
            if (work := matcher.merge_due()) is not None:
                return work
        return None

    # -- saving --------------------------------------------------------------------------------

    def save(self, *, stateless: bool = True, stateful: bool = True) -> list[bytes | memoryview]:
        """Everything, or one kind only, as parts of one buffer."""
        matchers: dict[int, Matcher] = {_STATELESS: self._stateless} if stateless else {}
        if stateful:
            matchers |= {_DESIGNS: self._designs, **self._ranked}
        return save(_CONTENTS, list(matchers), [one.save() for one in matchers.values()])

    @classmethod
    def load(cls, saved: bytes | memoryview, *, compiled: bool = True) -> Self:
        """The cell that was saved; SavedError if it is none."""
        cell = cls(compiled=compiled)
        kinds, blocks = load(saved, _CONTENTS, list[int])
        for which, block in zip(kinds, blocks, strict=False):
            cell._take(which, Matcher.load(block, compiled=compiled))
        cell._find_unranked()
        return cell

    def _take(self, which: int, matcher: Matcher) -> None:
        if which == _STATELESS:
            self._stateless = matcher
        elif which == _DESIGNS:
            self._designs = matcher
        else:
            self._ranked[which] = matcher
            self._rank_filter |= dict.fromkeys(matcher.ids(), which)


def _joined(
    found: Sequence[Pairs], row_of: Sequence[int], rows: int
) -> tuple[list[int], Positions]:
    """The pairs of several matchers, by publication instead of by row."""
    ids = np.concatenate([one.subscriptions for one in found])
    if not len(ids):
        return [], _NOBODY
    # Rows are in the order of their publications, so one matcher's pairs are in order too.
    owner = np.asarray(row_of)[np.concatenate([one.publications for one in found])]
    if len(found) > 1:
        order = np.argsort(owner, kind="stable")
        ids, owner = ids[order], owner[order]
    return np.bincount(owner, minlength=rows).tolist(), ids


def check(one: CellSubscription) -> None:
    """LanguageError if a cell would refuse a subscription.

    The expression is checked as it was written: the topic filter adds no conjunctions, and an error
    must show only what the author wrote.
    """
    checked(one.id, one.text, one.accepted_at, one.me, one.evolve)


def _with_filter(one: CellSubscription) -> Subscription:
    """The expression, restricted to the topics of the subscription's filter."""
    return Subscription(on_filter(one.filter, one.text.condition), one.text.select, one.text.rank)


def on_filter(number: int, condition: Condition) -> Condition:
    """A condition, restricted to publications that fit one topic filter."""
    here = Comparison("=", Attribute((FILTER_ATTRIBUTE,)), Literal(number))
    return here if condition == TRUE else And((here, condition))
