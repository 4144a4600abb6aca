"""The matcher: subscriptions come and go, batches of publications come in, pairs come out.

Rows (the conjunctions of subscriptions) live in *segments*, which never change but for bits
that mark removed rows. New rows wait in a small list and are checked one by one; when there
are enough of them they become a segment, and when there are several segments of like size
they become one, as in a log-structured store. So an insertion costs a few merges of its row
over its lifetime, and a publication looks into a handful of trees.

Merging one million rows takes seconds, so it is never done on the way: `merge_due` says what
is worth merging, `Merge.run` does it (anywhere, also in another thread), `install` takes the
result over, together with whatever was removed meanwhile.

What a segment cannot decide (arithmetic over attributes, `t`, `me.`) is decided for the rows
that it leaves over, by the normal form's own meaning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from rove.lang.errors import LanguageError
from rove.lang.normal import Conjunction, NormalForm, holds, normalise
from rove.lang.oracle import Publication
from rove.lang.tree import Subscription
from rove.lang.values import change_state
from rove.match.segment import Segment, is_shared

FRESH_MAX: Final = 64
"""Rows that wait before they become a segment of their own: one block."""
MERGE_WIDTH: Final = 8
"""Segments of one size that are merged into one of the next."""


class Matches(NamedTuple):
    """Pairs, sorted by publication and subscription, each once."""

    publications: npt.NDArray[np.int32]
    """Positions in the batch."""
    subscriptions: npt.NDArray[np.int64]
    """The ids that the subscriptions were added with."""


class _Subscriber(msgspec.Struct):
    accepted_at: float
    me: dict[str, object]
    rows: list[_Row]


class _Row(msgspec.Struct, eq=False):
    """One conjunction of one subscription, and where it is kept."""

    id: int
    conjunction: Conjunction
    must_compute: bool
    holder: _Held | None = None
    place: int = -1


class _Held(msgspec.Struct, eq=False):
    """A segment, its rows by number, and what of them must be computed."""

    segment: Segment
    rows: list[_Row]
    ids: npt.NDArray[np.int64]
    must_compute: npt.NDArray[np.bool_]
    alive: int


class Merge:
    """Work that can be done elsewhere: several segments into one."""

    def __init__(self, held: list[_Held]) -> None:
        self.held = held
        self.rows = [row for one in held for row in one.rows if row.holder is one]
        self.segment: Segment | None = None

    def run(self) -> Merge:
        """Build the new segment; touches nothing that the matcher uses."""
        self.segment = Segment([row.conjunction for row in self.rows])
        return self


class Matcher:
    """Decides which subscriptions a publication matches. Ranks are not looked at here."""

    def __init__(self) -> None:
        self._subscribers: dict[int, _Subscriber] = {}
        self._fresh: list[_Row] = []
        self._held: list[_Held] = []

    def __len__(self) -> int:
        return len(self._subscribers)

    # -- changing ----------------------------------------------------------------------

    def add(
        self,
        id: int,
        subscription: Subscription,
        accepted_at: float = 0.0,
        me: Mapping[str, object] | None = None,
    ) -> None:
        """Add a subscription under an id that is not in use."""
        if id in self._subscribers:
            raise LanguageError(f"there is already a subscription {id}")
        conjunctions = normalise(subscription).conjunctions
        rows = [_Row(id, conjunction, _must_compute(conjunction)) for conjunction in conjunctions]
        self._subscribers[id] = _Subscriber(accepted_at, dict(me or {}), rows)
        self._fresh += rows
        if len(self._fresh) >= FRESH_MAX:
            self._settle_fresh()

    def remove(self, id: int) -> None:
        """Remove a subscription; KeyError if there is none of that id."""
        for row in self._subscribers.pop(id).rows:
            if row.holder is None:
                self._fresh.remove(row)
            else:
                row.holder.segment.remove(row.place)
                row.holder.alive -= 1
                row.holder = None

    def replace(
        self,
        id: int,
        subscription: Subscription,
        accepted_at: float = 0.0,
        me: Mapping[str, object] | None = None,
    ) -> None:
        """Put another subscription in the place of one; no publication meets both or none."""
        normalise(subscription)  # refused before anything is removed
        self.remove(id)
        self.add(id, subscription, accepted_at, me)

    def set_state(self, id: int, changes: Mapping[str, object]) -> None:
        """Change `me.` variables of a subscription; None removes one."""
        change_state(self._subscribers[id].me, changes)

    # -- merging -----------------------------------------------------------------------

    def merge_due(self) -> Merge | None:
        """Segments that are worth merging now, if any."""
        by_level: dict[int, list[_Held]] = {}
        for held in self._held:
            by_level.setdefault(_level(held.alive), []).append(held)
        due = [held for held in by_level.values() if len(held) >= MERGE_WIDTH]
        return Merge(due[0]) if due else None

    def install(self, merge: Merge) -> None:
        """Take over a finished merge; rows removed while it ran stay removed."""
        assert merge.segment is not None, "run the merge first"
        merged = set(map(id, merge.held))
        self._held = [held for held in self._held if id(held) not in merged]
        self._hold(merge.segment, merge.rows, merged)

    def _settle_fresh(self) -> None:
        rows, self._fresh = self._fresh, []
        self._hold(Segment([row.conjunction for row in rows]), rows, set())

    def _hold(self, segment: Segment, rows: list[_Row], before: set[int]) -> None:
        """Keep `rows` in `segment`; those that are in none of the holders `before` are gone."""
        held = _Held(
            segment,
            rows,
            np.array([row.id for row in rows], np.int64),
            np.array([row.must_compute for row in rows], np.bool_),
            len(rows),
        )
        for place, row in enumerate(rows):
            if before and (row.holder is None or id(row.holder) not in before):
                segment.remove(place)
                held.alive -= 1
            else:
                row.holder, row.place = held, place
        self._held.append(held)

    # -- matching ----------------------------------------------------------------------

    def match(self, publications: Sequence[Publication], at: Sequence[float]) -> Matches:
        """Who is interested in each of `publications`, which appear at the times `at`."""
        numbers: list[npt.NDArray[np.int32]] = []
        ids: list[npt.NDArray[np.int64]] = []
        for held in self._held:
            found, rows = held.segment.match(publications)
            doubtful = held.must_compute[rows]
            if doubtful.any():
                kept = ~doubtful
                for i in np.flatnonzero(doubtful):
                    number = found[i]
                    kept[i] = self._holds(held.rows[rows[i]], publications[number], at[number])
                found, rows = found[kept], rows[kept]
            numbers.append(found)
            ids.append(held.ids[rows])
        pairs = [
            (number, row.id)
            for number, publication in enumerate(publications)
            for row in self._fresh
            if self._holds(row, publication, at[number])
        ]
        numbers.append(np.array([number for number, _ in pairs], np.int32))
        ids.append(np.array([id for _, id in pairs], np.int64))
        return _distinct(np.concatenate(numbers), np.concatenate(ids))

    def _holds(self, row: _Row, publication: Publication, at: float) -> bool:
        subscriber = self._subscribers[row.id]
        t = at - subscriber.accepted_at
        return holds(NormalForm((row.conjunction,)), publication, t, subscriber.me)


def _must_compute(conjunction: Conjunction) -> bool:
    """True if a segment cannot decide the whole conjunction."""
    return bool(conjunction.atoms) or not all(map(is_shared, conjunction.sets))


def _level(rows: int) -> int:
    """Segments of one level hold up to MERGE_WIDTH times as many rows as those below."""
    level = 0
    while rows > FRESH_MAX * MERGE_WIDTH**level * 2:
        level += 1
    return level


def _distinct(numbers: npt.NDArray[np.int32], ids: npt.NDArray[np.int64]) -> Matches:
    """Sorted, and each pair once: several conjunctions of one subscription may match."""
    if len(numbers) < 2:
        return Matches(numbers, ids)
    order = np.lexsort((ids, numbers))
    numbers, ids = numbers[order], ids[order]
    first = np.empty(len(ids), np.bool_)
    first[0] = True
    np.logical_or(numbers[1:] != numbers[:-1], ids[1:] != ids[:-1], out=first[1:])
    return Matches(numbers[first], ids[first])
