"""Who is in which window: a row for each ranked subscription, and a piece of one pool for each.

What stands here are arrays that grow, and the calls of the kernels that move members in and out
(`rove.match.ranked.kernels`), again and again until there is room for all that they do. What
is to be told gathers in one array until somebody takes it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from rove.lang.tree import Rank
from rove.match.ranked import kernels
from rove.match.ranked.score_kernels import LANES
from rove.match.ranked.scores import Floats, Integers, Marks, Scores

Records = npt.NDArray[np.void]

_TOLD_ROOM: Final = 20_000
_SCRATCH_MIN: Final = 64
_SPARSE: Final = 64


class WindowSteps(NamedTuple):
    """What happens to skybands, each row's in order of time; as the kernel takes it."""

    rows: Integers
    numbers: Integers
    """Which of the moments and sequence numbers beside is that of a step."""
    scores: Floats
    tails: Integers
    whole: Marks
    known: Marks


class Members:
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
        self._scratch = _scratch(_SCRATCH_MIN)
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
        record["threshold"], record["place"], record["shape"] = math.inf, -1, -1
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

    def enter_skybands(
        self, steps: WindowSteps, at: Floats, sequences: Integers, ends: int
    ) -> None:
        """Take every skyband through what happens to it; behind the publications stand `ends`."""
        first, publications = 0, at.size - ends
        while first < steps.rows.size:
            self._told_count, first = kernels.run_skybands(
                self.arrays,
                tuple(steps),
                at,
                sequences,
                publications,
                first,
                self._told,
                self._told_count,
                self._scratch,
            )
            if first < steps.rows.size:
                record: Any = self.rows[steps.rows[first]]
                wanted = 2 * max(int(record["capacity"]), int(record["k"]))
                self._make_told_room()
                self.make_room(wanted)
                if self._scratch[0].size < wanted:
                    self._scratch = _scratch(wanted)

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

    def mark_delivered(self, row: int, sequences: Sequence[int]) -> None:
        """Of the members of a row, these were delivered elsewhere, and no others."""
        start, count = self.rows["start"][row], self.rows["count"][row]
        members = self.members[start : start + count]
        members["delivered"] = np.isin(members["sequence"], np.array(sequences, np.int64))

    def sequences(self) -> Integers:
        """Of all members, which publications they are, ascending."""
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
        members = cls()
        members.rows = np.frombuffer(state["rows"], kernels.ROW).copy()
        members.members = np.frombuffer(state["members"], kernels.MEMBER).copy()
        members.used[0] = members.members.size
        members.leaves_at = np.frombuffer(state["leaves_at"]).copy()
        members.block_leaves_at = members.leaves_at.reshape(-1, LANES).min(axis=1)
        members._free = list(state["free"])
        members._make_lists()
        return members


def _scratch(size: int) -> tuple[Integers, Marks, Floats, Integers]:
    """Room in which the kernel tidies up a row."""
    zeros = np.zeros(size, np.int64)
    return zeros, np.zeros(size, np.uint8), np.zeros(size), zeros.copy()
