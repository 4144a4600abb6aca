"""Ranked subscriptions, each with the k-skyband of its own window: the strict way.

A member of a window can still be delivered only while fewer than k newer members are better; the
members for which this holds are the k-skyband. It has all that the future needs: whoever is
among the k best is in it, and so is whoever will be, when better and older ones have left. So
nothing outside of a subscription has to be remembered, whatever its score depended on, and a
window of the last n members is as easy as one of time. The price is that every publication
enters the skyband of every subscription that it matches, best or worst: some 100 ns each.

`rove.match.ranked` asks less of the many that need less, and leaves the others to this.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from rove.lang.oracle import score_of
from rove.lang.tree import Rank, Subscription
from rove.match import ranked_kernels as kernels
from rove.match.ranks import (
    Clock,
    Past,
    Publication,
    RankedDelivery,
    Started,
    is_conditional,
    rank_of,
)
from rove.match.score_kernels import LANES
from rove.match.scores import (
    Columns,
    Floats,
    Integers,
    Program,
    Scores,
    Unscored,
    compiled,
    empty_scores,
    read,
)

Records = npt.NDArray[np.void]

_TOLD_ROOM: Final = 20_000
_SKYBAND_ROOM: Final = 4
_SPARSE: Final = 64
_ENTRIES_MIN: Final = 1_024


class Held(NamedTuple):
    """A subscription and what its score needs."""

    subscription: Subscription
    accepted_at: float
    me: Publication


class Entry(NamedTuple):
    """A publication of a window."""

    key: object
    publication: Publication
    at: float


class Pool:
    """Rows, one for each subscription, and the records of their members."""

    def __init__(self) -> None:
        self.rows: Records = np.zeros(LANES, kernels.ROW)
        self.members: Records = np.zeros(1_024, kernels.MEMBER)
        self.used: Integers = np.zeros(1, np.int64)
        self.leaves_at: Floats = np.full(LANES, math.inf)
        """For each row, the earliest moment at which one of its members may leave by age."""
        self.block_leaves_at: Floats = np.full(1, math.inf)
        self._free: list[int] = list(range(LANES - 1, -1, -1))
        self._told: Records = np.zeros(_TOLD_ROOM, kernels.TOLD)
        self._told_count = 0
        self._make_lists()

    def _make_lists(self) -> None:
        """Room for as many row numbers as there are rows."""
        self._due: Integers = np.zeros(self.rows.size + 1, np.int64)
        self._hungry: Integers = np.zeros(self.rows.size, np.int64)

    @property
    def arrays(self) -> tuple[Any, ...]:
        """As the kernels take them."""
        return self.rows, self.members, self.used, self.leaves_at, self.block_leaves_at

    def add(self, id: int, rank: Rank, accepted_at: float, capacity: int) -> int:
        """A row for a subscription."""
        if not self._free:
            self._grow_rows()
        self.make_room(capacity)
        row = self._free.pop()
        counted = rank.window.publications
        record: Any = np.zeros(1, kernels.ROW)
        record["id"], record["k"] = id, rank.k
        record["start"], record["capacity"] = self.used[0], capacity
        record["span"] = rank.window.seconds if counted is None else counted
        record["counts"] = counted is not None
        record["accepted_at"] = accepted_at
        record["sign"] = -1.0 if rank.descending else 1.0
        record["threshold"], record["place"] = math.inf, -1
        record["refilled_at"] = -math.inf
        self.rows[row] = record[0]
        self.used[0] += capacity
        return row

    def remove(self, row: int) -> None:
        self.rows[row]["count"] = self.rows[row]["capacity"] = 0
        self.leaves_at[row] = math.inf
        block = row // LANES
        block_rows = slice(block * LANES, (block + 1) * LANES)
        self.block_leaves_at[block] = self.leaves_at[block_rows].min()
        self._free.append(row)

    def next_change_at(self) -> float:
        return float(self.block_leaves_at.min())

    def make_room(self, wanted: int) -> None:
        """Room for `wanted` more members; what rows have left behind is tidied away first."""
        if self.used[0] + wanted <= self.members.size:
            return
        capacities = self.rows["capacity"]
        starts = np.cumsum(capacities) - capacities
        total = int(capacities.sum())
        members = np.zeros(max(self.members.size, 2 * (total + wanted)), kernels.MEMBER)
        # Every member goes as far as its row does.
        counts = self.rows["count"]
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        members[np.repeat(starts, counts) + within] = self.members[
            np.repeat(self.rows["start"], counts) + within
        ]
        self.members = members
        self.rows["start"] = starts
        self.used[0] = total

    def _reserve(self, row: int, wanted: int) -> None:
        """Room for `wanted` members in a row."""
        if self.rows["capacity"][row] >= wanted:
            return
        self.make_room(wanted)
        start, count = self.rows["start"][row], self.rows["count"][row]
        moved = self.used[0]
        self.members[moved : moved + count] = self.members[start : start + count]
        self.rows["start"][row], self.rows["capacity"][row] = moved, wanted
        self.used[0] += wanted

    def _grow_rows(self) -> None:
        size = self.rows.size
        self.rows = np.concatenate([self.rows, np.zeros(size, kernels.ROW)])
        self.leaves_at = np.concatenate([self.leaves_at, np.full(size, math.inf)])
        blocks = self.block_leaves_at.size
        self.block_leaves_at = np.concatenate([self.block_leaves_at, np.full(blocks, math.inf)])
        self._make_lists()
        self._free += range(2 * size - 1, size - 1, -1)

    def expire(self, now: float) -> Integers:
        """Let members leave until `now`; the rows that have to be refilled meanwhile."""
        hungry: list[Integers] = []
        more = 1
        while more:
            self._told_count, waiting, more = kernels.expire(
                self.arrays, now, self._told, self._told_count, self._due, self._hungry
            )
            if waiting:
                hungry.append(self._hungry[:waiting].copy())
            if more:
                self._make_told_room()
        return np.concatenate(hungry) if hungry else np.empty(0, np.int64)

    def enter_skybands(self, rows: Integers, scores: Scores, at: float, sequence: int) -> None:
        """Let a publication into the skybands of `rows`."""
        first = 0
        while first < rows.size:
            self._told_count, first = kernels.enter_skybands(
                self.arrays, (rows, *scores), first, at, sequence, self._told, self._told_count
            )
            if first < rows.size:
                self._make_told_room()
                self.make_room(int(2 * self.rows["capacity"][rows[first]]))

    def enter_lists(
        self,
        rows: Integers,
        scores: Scores,
        at: float,
        sequence: int,
        worst: tuple[Floats, Floats, Floats],
    ) -> None:
        """Let a publication into those lists whose threshold it beats."""
        first, scored = 0, (rows, *scores)
        while first < rows.size:
            self._told_count, first = kernels.enter_lists(
                self.arrays, scored, first, at, sequence, worst, self._told, self._told_count
            )
            if first < rows.size:
                self._make_told_room()
                self.make_room(int(2 * self.rows["capacity"][rows[first]]))

    def refill(
        self,
        row: int,
        sequences: Integers,
        scores: Scores,
        departures: Floats,
        worst: tuple[Floats, Floats, Floats],
    ) -> None:
        """Make the list of a hungry row anew."""
        self._make_told_room()
        self._reserve(row, min(int(self.rows["limit"][row]), sequences.size))
        scored = (sequences, *scores)
        self._told_count = kernels.refill(
            self.arrays, row, scored, departures, worst, self._told, self._told_count
        )

    def _make_told_room(self) -> None:
        """Room to tell as many as one subscription may want."""
        if self._told.size - self._told_count < _TOLD_ROOM // 2:
            self._told = np.concatenate([self._told, np.zeros(self._told.size, kernels.TOLD)])

    def told(self) -> Records:
        """What was told since the last time, in order of time and subscription."""
        records = self._told[: self._told_count]
        self._told_count = 0
        if self._told.size > _TOLD_ROOM:
            self._told = np.zeros(_TOLD_ROOM, kernels.TOLD)
        return records[np.lexsort((records["id"], records["at"]))]

    def mark_delivered(
        self, row: int, past: Iterable[Past], sequence_of: Mapping[int, int]
    ) -> None:
        """Of the members of a row, which were delivered elsewhere."""
        start, count = self.rows["start"][row], self.rows["count"][row]
        members = self.members[start : start + count]
        was_delivered = [sequence_of[one.number] for one in past if one.delivered]
        members["delivered"] = np.isin(members["sequence"], was_delivered)

    def live_sequences(self) -> set[int]:
        """Of all members, which publications they are."""
        return set(self.sequences().tolist())

    def sequences(self) -> Integers:
        """The same, as an array in order."""
        counts = self.rows["count"]
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        held: Integers = self.members["sequence"][np.repeat(self.rows["start"], counts) + within]
        if not held.size:
            return held
        first, last = int(held.min()), int(held.max())
        if last - first > _SPARSE * held.size:
            return np.unique(held)
        # Windows share their members: to mark them is much quicker than to sort them.
        is_held = np.zeros(last - first + 1, bool)
        is_held[held - first] = True
        return first + np.flatnonzero(is_held)

    def state(self) -> dict[str, Any]:
        """Everything, as bytes and numbers."""
        self.make_room(self.members.size)
        return {
            "rows": self.rows.tobytes(),
            "members": self.members[: self.used[0]].tobytes(),
            "leaves_at": self.leaves_at.tobytes(),
            "free": list(self._free),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        pool = cls()
        pool.rows = np.frombuffer(state["rows"], kernels.ROW).copy()
        pool.members = np.frombuffer(state["members"], kernels.MEMBER).copy()
        pool.used[0] = pool.members.size
        pool.leaves_at = np.frombuffer(state["leaves_at"]).copy()
        pool.block_leaves_at = pool.leaves_at.reshape(-1, LANES).min(axis=1)
        pool._free = list(state["free"])
        pool._make_lists()
        return pool


def entries_of(started: Iterable[Started]) -> dict[int, Entry]:
    """The publications that windows hold, each once, in the order in which they came."""
    found = {
        past.number: Entry(past.key, past.publication, past.at)
        for one in started
        for past in one.past
    }
    return dict(sorted(found.items()))


def delivered(records: Records, entries: Mapping[int, Entry]) -> list[RankedDelivery]:
    """What was told, as deliveries."""
    if not records.size:
        return []
    scores: list[int | float] = records["score"].tolist()
    if records["whole"].any():
        exact = zip(scores, records["tail"].tolist(), records["whole"].tolist(), strict=True)
        scores = [int(score) + tail if whole else score for score, tail, whole in exact]
    found = [entries[sequence] for sequence in records["sequence"].tolist()]
    return list(
        map(
            RankedDelivery,
            records["id"].tolist(),
            [entry.key for entry in found],
            records["at"].tolist(),
            scores,
            records["promoted"].astype(bool).tolist(),
            [entry.publication for entry in found],
        )
    )


class SkybandRanked:
    """Ranked subscriptions, every one with its own k-skyband."""

    def __init__(self) -> None:
        self._pool = Pool()
        self._clock = Clock()
        self._held: dict[int, Held] = {}
        self._row_of: dict[int, int] = {}
        self._columns: dict[tuple[Program | None, bool], Columns] = {}
        """By shape, and whether a condition has to hold."""
        self._place_of: dict[int, tuple[Columns, int]] = {}
        """Without an entry, a subscription has no score in its present state."""
        self._entries: dict[int, Entry] = {}
        self._entries_max = _ENTRIES_MIN
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._held)

    def add(
        self,
        id: int,
        subscription: Subscription,
        accepted_at: float = 0.0,
        me: Publication | None = None,
    ) -> None:
        """Take in a ranked subscription; its window begins empty."""
        if id in self._held:
            raise ValueError(f"subscription {id} is there already; remove it first")
        rank = rank_of(subscription)
        row = self._pool.add(id, rank, accepted_at, _SKYBAND_ROOM)
        self._held[id] = Held(subscription, accepted_at, dict(me or {}))
        self._row_of[id] = row
        self._find_place(id)

    def adopt(self, started: Sequence[Started]) -> None:
        """Take in subscriptions with what their windows hold; nothing was published here yet."""
        sequence_of: dict[int, int] = {}
        for number, entry in entries_of(started).items():
            self._sequence += 1
            sequence_of[number] = self._sequence
            self._entries[self._sequence] = entry
        for one in started:
            self.add(one.id, one.subscription, one.accepted_at, one.me)
            row = self._row_of[one.id]
            rows, scores = np.array([row]), empty_scores(1)
            for past in one.past:
                scores.put(0, past.score, float(self._pool.rows["sign"][row]))
                self._pool.enter_skybands(rows, scores, past.at, sequence_of[past.number])
            self._pool.mark_delivered(row, one.past, sequence_of)
        self._pool.told()

    def remove(self, id: int) -> None:
        """Forget a subscription and its window; KeyError if there is none."""
        del self._held[id]
        self._leave_place(id)
        self._pool.remove(self._row_of.pop(id))

    def set_state(self, id: int, me: Publication) -> None:
        """The whole new state of the subscriber; scores from now on are computed with it."""
        self._held[id] = self._held[id]._replace(me=dict(me))
        self._leave_place(id)
        self._find_place(id)

    def _find_place(self, id: int) -> None:
        subscription, accepted_at, me = self._held[id]
        rank = rank_of(subscription)
        try:
            found = compiled(rank.score, rank.descending, accepted_at, me)
        except Unscored:
            return
        program, constants = found if found is not None else (None, ())
        shape = (program, is_conditional(subscription))
        columns = self._columns.get(shape)
        if columns is None:
            columns = self._columns[shape] = Columns(program)
        self._place_of[id] = columns, columns.add(self._row_of[id], constants)

    def _leave_place(self, id: int) -> None:
        columns, place = self._place_of.pop(id, (None, 0))
        if columns is None:
            return
        columns.remove(place)
        if not columns:
            self._columns = {key: kept for key, kept in self._columns.items() if kept}

    def publish(
        self, key: object, publication: Publication, at: float, matched: Integers
    ) -> list[RankedDelivery]:
        """Let time pass until `at`, then let a publication in, wherever it matches."""
        self._clock.move(at)
        self._pool.expire(at)
        self._sequence += 1
        self._entries[self._sequence] = Entry(key, publication, at)
        for (_, conditional), columns in self._columns.items():
            if not conditional:
                self._enter(columns, columns.places(), publication, at)
        for columns, places in self._matched_places(matched):
            self._enter(columns, places, publication, at)
        deliveries = delivered(self._pool.told(), self._entries)
        if len(self._entries) > self._entries_max:
            self._forget()
        return deliveries

    def _matched_places(self, matched: Integers) -> Iterable[tuple[Columns, Integers]]:
        """The places of those that a condition let through, together with their columns."""
        found: dict[Columns, list[int]] = {}
        for id in matched.tolist():
            columns, place = self._place_of.get(id, (None, 0))
            if columns is not None:
                found.setdefault(columns, []).append(place)
        return [(columns, np.array(places, np.int64)) for columns, places in found.items()]

    def _enter(
        self,
        columns: Columns,
        places: Integers,
        publication: Publication,
        at: float,
    ) -> None:
        if not places.size:
            return
        rows = columns.rows[places]
        if columns.program is None:
            scores, asked = empty_scores(places.size), np.arange(places.size)
        else:
            reading = read(columns.program, publication, at)
            if reading is None:
                return
            scores, asked = columns.score(reading, places)
        if asked.size:
            ask_oracle(self._pool, self._held, rows, scores, asked, publication, at)
        self._pool.enter_skybands(rows, scores, at, self._sequence)

    def _forget(self) -> None:
        """Drop the publications that no window holds any more."""
        live = self._pool.live_sequences()
        self._entries = {number: self._entries[number] for number in sorted(live)}
        self._entries_max = 2 * len(live) + _ENTRIES_MIN

    def live_keys(self) -> list[object]:
        """What the publications are called that some window may still deliver."""
        return [entry.key for entry in self.live_entries()]

    def live_entries(self) -> list[Entry]:
        """The publications that some window holds."""
        self._forget()
        return list(self._entries.values())

    def advance(self, now: float) -> list[RankedDelivery]:
        """Let time pass: members leave, others move up."""
        self._clock.move(now)
        self._pool.expire(now)
        return delivered(self._pool.told(), self._entries)

    def next_change_at(self) -> float:
        """When to advance at the latest; infinity if nothing will leave by age."""
        return self._pool.next_change_at()

    def state(self) -> dict[str, Any]:
        """Everything, as plain values and bytes."""
        self._forget()
        return {
            "now": self._clock.now,
            "pool": self._pool.state(),
            "held": {id: tuple(held) for id, held in self._held.items()},
            "row_of": dict(self._row_of),
            "entries": {number: tuple(entry) for number, entry in self._entries.items()},
            "sequence": self._sequence,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> SkybandRanked:
        """What `state` was taken from."""
        ranked = cls()
        ranked._clock = Clock(state["now"])
        ranked._pool = Pool.from_state(state["pool"])
        ranked._held = {id: Held(*held) for id, held in state["held"].items()}
        ranked._row_of = dict(state["row_of"])
        ranked._entries = {number: Entry(*entry) for number, entry in state["entries"].items()}
        ranked._sequence = state["sequence"]
        for id in ranked._held:
            ranked._find_place(id)
        return ranked


def ask_oracle(
    pool: Pool,
    held: Mapping[int, Held],
    rows: Integers,
    scores: Scores,
    asked: Integers,
    publication: Publication,
    at: float,
) -> None:
    """Fill in the scores that were not computed for sure."""
    for i in asked.tolist():
        row = rows[i]
        subscription, accepted_at, me = held[int(pool.rows["id"][row])]
        if at >= accepted_at:
            score = score_of(subscription, publication, at - accepted_at, me)
            scores.put(i, score, float(pool.rows["sign"][row]))
