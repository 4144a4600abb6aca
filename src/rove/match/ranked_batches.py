"""Ranked subscriptions over batches of the past: every window a k-skyband, run one by one.

What `rove.match.skyband` does for a publication that has just come, this does for a hundred
thousand at a time, with the same result. Scores are computed pair by pair from columns; then what
happens to one window (publications that matched, an end, a start anew) is brought together and
run in one go. So a subscription that is made, changed or ended in the middle of a batch costs
nothing but its own step; the batch is not cut there.

A pair takes some 60 bytes while its batch is run. What stays between batches is flat arrays and
texts.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self, cast

import numpy as np

from rove.lang import parse
from rove.lang.oracle import score_of
from rove.lang.tree import Subscription
from rove.lang.values import Path, comparable, is_number, look_up
from rove.match import ranked_batch_kernels as kernels
from rove.match import score_kernels
from rove.match.ranks import Publication, rank_of
from rove.match.scores import (
    Columns,
    Floats,
    Integers,
    Marks,
    Program,
    Scores,
    Unscored,
    compiled,
    empty_scores,
    result_is_whole,
)
from rove.match.skyband import Pool, Records

MISSING, WHOLE, FLOAT, HUGE = range(4)
"""What an attribute of a publication is to a score; HUGE is an integer that no float holds."""
_UNKNOWN, _ASK, _FLOATS, _MIXED = range(4)
"""A score is UNKNOWN, is the oracle's to tell, or is computed, without integers or with some."""
_ROOM: Final = 8
_SCRATCH_MIN: Final = 4_096
_TEXTS_MAX: Final = 20_000
_DENSE_MAX: Final = 2**24
_NOWHERE: Final = -1


@functools.lru_cache(_TEXTS_MAX)
def parsed(text: str) -> Subscription:
    """A text as a tree; those of the last subscriptions are remembered."""
    return parse(text, accepted=True)


class Column(NamedTuple):
    """One attribute of all publications of a batch."""

    values: Floats
    kinds: Marks


class Inputs:
    """What scores need of a batch of publications: columns, made when somebody asks for them."""

    def __init__(
        self,
        publications: Sequence[Publication],
        at: Floats,
        columns: Mapping[Path, Column] | None = None,
    ) -> None:
        self.publications = publications
        self.at = at
        self._columns = dict(columns or {})
        self._events: dict[Program, Floats] = {}
        self._ways: dict[Program, tuple[Marks, Marks]] = {}

    def __len__(self) -> int:
        return len(self.at)

    def column(self, path: Path) -> Column:
        """The numbers at a path; where there is none, it is MISSING."""
        found = self._columns.get(path)
        if found is None:
            if len(path) == 1:
                (name,) = path
                values = [comparable(one.get(name)) for one in self.publications]
            else:
                values = [look_up(one, path) for one in self.publications]
            found = self._columns[path] = column_of(values)
        return found

    def events(self, program: Program) -> Floats:
        """The inputs of a program that come with a publication, a line each."""
        found = self._events.get(program)
        if found is None:
            lines = [self.column(path).values for path in program.attributes]
            lines += [self.at] if program.timed else []
            found = self._events[program] = np.array(lines).reshape(len(lines), len(self))
        return found

    def ways(self, program: Program) -> tuple[Marks, Marks]:
        """By publication, how its score is computed, and whether that is an integer."""
        found = self._ways.get(program)
        if found is None:
            patterns = np.zeros(len(self), np.int64)
            for path in program.attributes:
                patterns = 4 * patterns + self.column(path).kinds
            distinct, which = np.unique(patterns, return_inverse=True)
            told = [_way(program, pattern) for pattern in distinct.tolist()]
            ways, whole = np.array(told, np.uint8).reshape(-1, 2).T
            found = self._ways[program] = ways[which], whole[which]
        return found


def _way(program: Program, pattern: int) -> tuple[int, bool]:
    """How a score is computed whose attributes have kinds, the digits of a number to base 4."""
    kinds = [pattern >> 2 * i & 3 for i in reversed(range(len(program.attributes)))]
    whole = result_is_whole(program, tuple(kind != FLOAT for kind in kinds))
    if MISSING in kinds:
        return _UNKNOWN, False
    if whole is None or HUGE in kinds:
        return _ASK, False
    is_mixed = any(program.whole) or any(kind != FLOAT for kind in kinds)
    return (_MIXED if is_mixed else _FLOATS), whole


def column_of(found: Sequence[object]) -> Column:
    """Values of one attribute as a column."""
    if set(map(type, found)) == {float}:
        return Column(np.array(found, np.float64), np.full(len(found), FLOAT, np.uint8))
    kinds = [_kind(value) for value in found]
    numbers = [value if kind else 0.0 for value, kind in zip(found, kinds, strict=True)]
    return Column(np.array(numbers, np.float64), np.array(kinds, np.uint8))


def _kind(value: object) -> int:
    if type(value) is float:
        return FLOAT
    if not is_number(value):
        return MISSING
    return HUGE if abs(cast(int, value)) >= score_kernels.EXACT_MAX else WHOLE


class _Steps(NamedTuple):
    """What happens to rows, in order of time; as the kernel takes it."""

    rows: Integers
    numbers: Integers
    scores: Floats
    tails: Integers
    whole: Marks
    known: Marks


class _Pool(Pool):
    """Rows and members, with batches to run."""

    def run(self, steps: _Steps, at: Floats, sequences: Integers, publications: int) -> None:
        """Take every row through what happens to it; behind the publications there are ends."""
        first = 0
        scratch = _scratch(_SCRATCH_MIN)
        while first < steps.rows.size:
            self._told_count, first = kernels.run_windows(
                self.arrays,
                tuple(steps),
                at,
                sequences,
                publications,
                first,
                self._told,
                self._told_count,
                scratch,
            )
            if first < steps.rows.size:
                record: Any = self.rows[steps.rows[first]]
                wanted = 2 * max(int(record["capacity"]), int(record["k"]))
                self._make_told_room()
                self.make_room(wanted)
                if scratch[0].size < wanted:
                    scratch = _scratch(wanted)


def _scratch(size: int) -> tuple[Integers, Marks, Floats, Integers]:
    """Room in which the kernel tidies up a row."""
    zeros = np.zeros(size, np.int64)
    return zeros, np.zeros(size, np.uint8), np.zeros(size), zeros.copy()


class _Kept(NamedTuple):
    """A subscription, and what its score needs."""

    text: str
    accepted_at: float
    me: Publication


class _Spot(NamedTuple):
    """Where the constants of a subscription stand: which columns, which place in them."""

    shape: int
    place: int


class _Pairs(NamedTuple):
    """Publications and the subscriptions whose condition they meet."""

    numbers: Integers
    rows: Integers
    shapes: Integers
    places: Integers


class _Change(NamedTuple):
    """From publication `number` of the batch on, the constants of a row stand elsewhere."""

    row: int
    number: int
    spot: _Spot
    me: Publication


class _End(NamedTuple):
    """Before publication `number` of the batch a window becomes empty."""

    row: int
    number: int
    at: float
    is_final: bool


class Skybands:
    """Ranked subscriptions, run over one batch after another.

    Changes belong to the batch that is run next: each says before which publication it happens,
    and they come in that order. `run` takes the batch itself, and time passes no further than its
    publications; `advance` lets it pass on.
    """

    def __init__(self) -> None:
        self._pool = _Pool()
        self._kept: dict[int, _Kept] = {}
        self._row_of: dict[int, int] = {}
        self._columns: list[Columns] = []
        self._shape_of: dict[Program | None, int] = {}
        self._shapes: Integers = np.full(self._pool.rows.size, _NOWHERE, np.int64)
        """By row the number of its columns; the place in them stands in the pool."""
        self._changes: list[_Change] = []
        self._changed: set[int] = set()
        """Rows that have changes."""
        self._ends: list[_End] = []
        self._ended: set[int] = set()
        self._table: Integers | None = None
        """Rows by id, where ids are small enough for that."""

    def __len__(self) -> int:
        return len(self._kept) - len(self._ended)

    def __contains__(self, id: int) -> bool:
        return id in self._kept and id not in self._ended

    def is_ending(self, id: int) -> bool:
        """Whether it ends in the batch that is run next."""
        return id in self._ended

    # -- changing ----------------------------------------------------------------------------

    def add(
        self, id: int, text: str, accepted_at: float = 0.0, me: Publication | None = None
    ) -> None:
        """Take in a ranked subscription; its window begins empty."""
        if id in self._kept:
            raise ValueError(f"subscription {id} is there already; end it and run the batch first")
        row = self._pool.add(id, rank_of(parsed(text)), accepted_at, _ROOM)
        self._pool.rows["limit"][row] = 1  # which tells that only its k best are in order
        missing = self._pool.rows.size - self._shapes.size
        if missing:
            self._shapes = np.concatenate([self._shapes, np.full(missing, _NOWHERE, np.int64)])
        self._kept[id] = _Kept(text, accepted_at, dict(me or {}))
        self._row_of[id] = row
        self._table = None
        self._put(row, self._find_spot(id))

    def set_state(self, id: int, me: Publication, number: int = 0) -> None:
        """The whole new state of the subscriber; KeyError if there is none."""
        row, before = self._row_of[id], self._kept[id]
        if row not in self._changed:
            self._changed.add(row)
            self._changes.append(_Change(row, 0, self._spot(row), before.me))
        self._kept[id] = before._replace(me=dict(me))
        spot = self._find_spot(id)
        self._put(row, spot)
        self._changes.append(_Change(row, number, spot, self._kept[id].me))

    def end(self, id: int, at: float, number: int = 0) -> None:
        """It ends at a moment; until then its window slides. KeyError if there is none."""
        if id in self._ended:
            raise KeyError(id)
        self._ends.append(_End(self._row_of[id], number, at, is_final=True))
        self._ended.add(id)

    def empty(self, number: int = 0, at: float = -math.inf) -> None:
        """All windows become empty, after they slid until `at`; subscriptions stay."""
        for id, row in self._row_of.items():
            if id not in self._ended:
                self._ends.append(_End(row, number, at, is_final=False))

    def _spot(self, row: int) -> _Spot:
        return _Spot(int(self._shapes[row]), int(self._pool.rows["place"][row]))

    def _put(self, row: int, spot: _Spot) -> None:
        self._shapes[row] = spot.shape
        self._pool.rows["place"][row] = spot.place

    def _find_spot(self, id: int) -> _Spot:
        text, accepted_at, me = self._kept[id]
        rank = rank_of(parsed(text))
        try:
            found = compiled(rank.score, rank.descending, accepted_at, me)
        except Unscored:
            return _Spot(_NOWHERE, _NOWHERE)
        program, constants = found if found is not None else (None, ())
        shape = self._shape_of.get(program)
        if shape is None:
            shape = self._shape_of[program] = len(self._columns)
            self._columns.append(Columns(program))
        return _Spot(shape, self._columns[shape].add(self._row_of[id], constants))

    # -- running -----------------------------------------------------------------------------

    def run(self, inputs: Inputs, sequences: Integers, numbers: Integers, ids: Integers) -> Records:
        """Let a batch in: publication numbers[i] has met the condition of subscription ids[i].

        `numbers` ascend, and so do `sequences`, which name the publications of the batch. Gives
        what is to be told, by time and subscription. KeyError for a subscription that is none.
        """
        rows, numbers = self._with_ends(self._rows_of(ids), numbers, len(inputs))
        order = kernels.order_by_row(rows, self._pool.rows.size)
        pairs = self._placed(numbers[order], rows[order], len(inputs))
        scores = self._scored(inputs, pairs)
        scores.known[pairs.numbers >= len(inputs)] = 1
        at = np.concatenate([inputs.at, [one.at for one in self._ends]])
        final = np.array([-1 if one.is_final else 0 for one in self._ends], np.int64)
        sequences = np.concatenate([sequences, final])
        steps = _Steps(pairs.rows, pairs.numbers, *scores)
        self._pool.run(steps, at, sequences, len(inputs))
        self._settle()
        return self._pool.told()

    def run_changes(self) -> Records:
        """Let happen what waits for a batch, as if one without publications came."""
        nothing = np.empty(0, np.int64)
        return self.run(Inputs([], np.empty(0)), nothing, nothing, nothing)

    def advance(self, now: float) -> Records:
        """Let time pass; gives what is to be told."""
        self._pool.expire(now)
        return self._pool.told()

    def _rows_of(self, ids: Integers) -> Integers:
        """The rows of subscriptions; KeyError for one that is none."""
        highest = max(self._row_of, default=-1)
        if highest < _DENSE_MAX:
            if self._table is None:
                self._table = np.full(highest + 2, _NOWHERE, np.int64)
                self._table[list(self._row_of)] = list(self._row_of.values())
            # What is out of range finds the last place, where nobody is.
            found: Integers = self._table[ids.clip(-1, highest + 1)]
        else:
            rows = [self._row_of.get(id, _NOWHERE) for id in ids.tolist()]
            found = np.array(rows, np.int64)
        if (found < 0).any():
            raise KeyError(int(ids[found < 0][0]))
        return found

    def _placed(self, numbers: Integers, rows: Integers, publications: int) -> _Pairs:
        """By pair, where the constants stand that count at that publication; ends have none."""
        shapes, places = self._shapes[rows], self._pool.rows["place"][rows].astype(np.int64)
        if self._changes:
            # The last change of the row before the publication; as numbers that sort by both.
            keys = np.array([(one.row << 32) + one.number for one in self._changes], np.int64)
            order = np.argsort(keys, kind="stable")
            keys, here = keys[order], np.flatnonzero(np.isin(rows, keys >> 32))
            found = np.searchsorted(keys, (rows[here] << 32) + numbers[here], "right") - 1
            spots = np.array([one.spot for one in self._changes], np.int64)[order[found]]
            shapes[here], places[here] = spots[:, 0], spots[:, 1]
        if self._ends:
            shapes[numbers >= publications] = _NOWHERE
        return _Pairs(numbers, rows, shapes, places)

    def _scored(self, inputs: Inputs, pairs: _Pairs) -> Scores:
        scores = empty_scores(pairs.rows.size)
        for shape, chosen in _grouped(pairs.shapes, len(self._columns)):
            columns = self._columns[shape]
            asked = score_pairs(columns, inputs, pairs.numbers, pairs.places, chosen, scores)
            if asked.size:
                self._ask_oracle(inputs, pairs, asked, scores)
        return scores

    def _ask_oracle(self, inputs: Inputs, pairs: _Pairs, asked: Integers, scores: Scores) -> None:
        """Fill in the scores that were not computed for sure."""
        states = {one.spot: one.me for one in self._changes}
        for i in asked.tolist():
            number, record = int(pairs.numbers[i]), self._pool.rows[pairs.rows[i]]
            text, accepted_at, me = self._kept[int(record["id"])]
            me = states.get(_Spot(int(pairs.shapes[i]), int(pairs.places[i])), me)
            t = float(inputs.at[number]) - accepted_at
            if t >= 0:
                score = score_of(parsed(text), inputs.publications[number], t, me)
                scores.put(i, score, float(record["sign"]))

    def _with_ends(
        self, rows: Integers, numbers: Integers, publications: int
    ) -> tuple[Integers, Integers]:
        """Rows and numbers with the ends among them, each before the publication it precedes."""
        if not self._ends:
            return rows, numbers
        ends = np.array([one.row for one in self._ends], np.int64)
        moments = np.concatenate([[2 * one.number for one in self._ends], 2 * numbers + 1])
        order = np.argsort(moments, kind="stable")
        rows = np.concatenate([ends, rows])[order]
        return rows, np.concatenate([publications + np.arange(ends.size), numbers])[order]

    def _settle(self) -> None:
        """The batch is over: what ended in it is forgotten, and what constants were before."""
        current = {self._spot(one.row) for one in self._changes}
        for spot in {one.spot for one in self._changes} - current:
            if spot.shape != _NOWHERE:
                self._columns[spot.shape].remove(spot.place)
        for id in self._ended:
            row = self._row_of.pop(id)
            del self._kept[id]
            spot = self._spot(row)
            if spot.shape != _NOWHERE:
                self._columns[spot.shape].remove(spot.place)
            self._pool.remove(row)
        if self._ended:
            self._table = None
        self._changes, self._changed, self._ends, self._ended = [], set(), [], set()

    # -- keeping -----------------------------------------------------------------------------

    def live_sequences(self) -> Integers:
        """The publications that some window still holds, ascending."""
        return self._pool.sequences()

    def state(self) -> dict[str, Any]:
        """Everything, as plain values and bytes; between two batches."""
        assert not self._changes, "a change of state waits for its batch; run it first"
        assert not self._ends, "an end waits for its batch; run it first"
        return {
            "pool": self._pool.state(),
            "kept": {id: tuple(kept) for id, kept in self._kept.items()},
            "row_of": dict(self._row_of),
            "shapes": self._shapes.tobytes(),
            "columns": [columns.state() for columns in self._columns],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """What `state` was taken from."""
        skybands = cls()
        skybands._pool = _Pool.from_state(state["pool"])
        skybands._kept = {id: _Kept(*kept) for id, kept in state["kept"].items()}
        skybands._row_of = dict(state["row_of"])
        skybands._shapes = np.frombuffer(state["shapes"], np.int64).copy()
        skybands._columns = [Columns.from_state(columns) for columns in state["columns"]]
        skybands._shape_of = {one.program: i for i, one in enumerate(skybands._columns)}
        return skybands


def score_pairs(
    columns: Columns,
    inputs: Inputs,
    numbers: Integers,
    places: Integers,
    chosen: Integers,
    scores: Scores,
) -> Integers:
    """Write the scores of `chosen` pairs, and tell which of them only the oracle can tell."""
    program = columns.program
    if program is None:
        return chosen
    ways, whole = inputs.ways(program)
    if whole.any():
        scores.whole[chosen] = whole[numbers[chosen]]
    asked = [np.empty(0, np.int64)]
    for way, pairs in _by_way(ways, numbers, chosen):
        if way == _ASK:
            asked.append(pairs)
        elif way != _UNKNOWN:
            unsure = np.empty(pairs.size + 1, np.int64)
            count = score_kernels.score_pairs(
                columns.code,
                program.depth,
                inputs.events(program),
                columns.constants,
                numbers,
                places,
                pairs,
                way == _MIXED,
                program.sign,
                scores.scores,
                scores.known,
                unsure,
            )
            asked.append(unsure[:count])
    return np.concatenate(asked)


def _grouped(shapes: Integers, count: int) -> Iterator[tuple[int, Integers]]:
    """The pairs of each shape; most often there is but one."""
    if shapes.size and (shapes == shapes[0]).all():
        if shapes[0] != _NOWHERE:
            yield int(shapes[0]), np.arange(shapes.size)
        return
    order = kernels.order_by_row(shapes + 1, count + 1)
    ends = np.cumsum(np.bincount(shapes + 1, minlength=count + 1))
    for shape in range(count):
        if ends[shape] < ends[shape + 1]:
            yield shape, order[ends[shape] : ends[shape + 1]]


def _by_way(ways: Marks, numbers: Integers, chosen: Integers) -> Iterator[tuple[int, Integers]]:
    """The pairs by how their scores are computed; most often that is one way, too."""
    distinct = np.flatnonzero(np.bincount(ways)).tolist()
    if len(distinct) == 1:
        yield distinct[0], chosen
        return
    of_pairs = ways[numbers[chosen]]
    for way in distinct:
        yield way, chosen[of_pairs == way]
