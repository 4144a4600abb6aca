"""Ranked subscriptions over batches of the past: every window a k-skyband, run one by one.

What `rove.match.skyband` does for a publication that has just come, this does for a hundred
thousand at a time, with the same result. Scores are computed pair by pair from columns; then what
happens to one window (publications that matched, an end, a start anew) is brought together and
run in one go. So a subscription that is made, changed or ended in the middle of a batch costs
nothing but its own step; the batch is not cut there.

Time and memory: 60 ns for a pair beside its score, and some 60 bytes while its batch is run.
What stays between batches is flat arrays and texts: `state` and `from_state` cost a few
milliseconds for ten thousand subscriptions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Self, cast

import numpy as np

from rove.lang import parse
from rove.lang.oracle import score_of
from rove.lang.tree import Subscription
from rove.lang.values import Path, is_number, look_up
from rove.match import ranked_batch_kernels, score_kernels
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
    settle,
)
from rove.match.skyband import Pool, Records

MISSING, WHOLE, FLOAT, HUGE = range(4)
"""What an attribute of a publication is to a score; HUGE is an integer that no float holds."""
_ROOM: Final = 4
_TEXTS_MAX: Final = 20_000
_NOWHERE: Final = -1


@functools.lru_cache(_TEXTS_MAX)
def parsed(text: str) -> Subscription:
    """A text as a tree; those of the last subscriptions are remembered."""
    return parse(text)


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
        self._patterns: dict[tuple[Path, ...], Integers] = {}

    def __len__(self) -> int:
        return len(self.at)

    def column(self, path: Path) -> Column:
        """The numbers at a path; where there is none, it is MISSING."""
        found = self._columns.get(path)
        if found is None:
            found = self._columns[path] = column_of([look_up(p, path) for p in self.publications])
        return found

    def events(self, program: Program) -> Floats:
        """The inputs of a program that come with a publication, a line each."""
        lines = [self.column(path).values for path in program.attributes]
        lines += [self.at] if program.timed else []
        return np.array(lines).reshape(len(lines), len(self))

    def patterns(self, program: Program) -> Integers:
        """By publication, which kinds its attributes have, as the digits of a number."""
        found = self._patterns.get(program.attributes)
        if found is None:
            found = np.zeros(len(self), np.int64)
            for path in program.attributes:
                found = 4 * found + self.column(path).kinds
            self._patterns[program.attributes] = found
        return found


def column_of(found: Sequence[object]) -> Column:
    """Values of one attribute as a column."""
    kinds = np.array([_kind(value) for value in found], np.uint8)
    present = zip(found, kinds.tolist(), strict=True)
    numbers = [cast(float, value) if kind else 0.0 for value, kind in present]
    return Column(np.array(numbers, np.float64), kinds)


def _kind(value: object) -> int:
    if type(value) is float:
        return FLOAT
    if not is_number(value):
        return MISSING
    return HUGE if abs(cast(int, value)) >= score_kernels.EXACT_MAX else WHOLE


class _Steps(NamedTuple):
    """What happens to rows, in order of time; as the kernel takes it."""

    rows: Integers
    is_end: Marks
    at: Floats
    sequences: Integers
    scores: Floats
    tails: Integers
    whole: Marks


class _Pool(Pool):
    """Rows and members, with batches to run."""

    def run(self, steps: _Steps) -> None:
        """Take every row through what happens to it."""
        order = ranked_batch_kernels.order_by_row(steps.rows, self.rows.size)
        first = 0
        while first < order.size:
            self._told_count, first = ranked_batch_kernels.run_skybands(
                self.arrays, tuple(steps), order, first, self._told, self._told_count
            )
            if first < order.size:
                self._make_told_room()
                self.make_room(int(2 * self.rows["capacity"][steps.rows[order[first]]]))


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
        self._sorted: tuple[Integers, Integers] | None = None
        """All ids in order, and their rows."""

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
        missing = self._pool.rows.size - self._shapes.size
        if missing:
            self._shapes = np.concatenate([self._shapes, np.full(missing, _NOWHERE, np.int64)])
        self._kept[id] = _Kept(text, accepted_at, dict(me or {}))
        self._row_of[id] = row
        self._sorted = None
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
        pairs = self._placed(numbers, self._rows_of(ids))
        scores = self._scored(inputs, pairs)
        known = np.flatnonzero(scores.known)
        numbers = numbers[known]
        steps = _Steps(
            pairs.rows[known],
            np.zeros(known.size, np.uint8),
            inputs.at[numbers],
            sequences[numbers],
            scores.scores[known],
            scores.tails[known],
            scores.whole[known],
        )
        self._pool.run(self._with_ends(steps, numbers))
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
        if self._sorted is None:
            known = np.array(list(self._row_of), np.int64)
            order = np.argsort(known)
            self._sorted = known[order], np.array(list(self._row_of.values()), np.int64)[order]
        known, rows = self._sorted
        places = np.searchsorted(known, ids)
        strange = places == known.size
        strange[~strange] = known[places[~strange]] != ids[~strange]
        if strange.any():
            raise KeyError(int(ids[strange][0]))
        return rows[places]

    def _placed(self, numbers: Integers, rows: Integers) -> _Pairs:
        """By pair, where the constants stand that count at that publication."""
        shapes, places = self._shapes[rows], self._pool.rows["place"][rows].astype(np.int64)
        if self._changes:
            # The last change of the row before the publication; as numbers that sort by both.
            keys = np.array([(one.row << 32) + one.number for one in self._changes], np.int64)
            order = np.argsort(keys, kind="stable")
            keys, here = keys[order], np.flatnonzero(np.isin(rows, keys >> 32))
            found = np.searchsorted(keys, (rows[here] << 32) + numbers[here], "right") - 1
            spots = np.array([one.spot for one in self._changes], np.int64)[order[found]]
            shapes[here], places[here] = spots[:, 0], spots[:, 1]
        return _Pairs(numbers, rows, shapes, places)

    def _scored(self, inputs: Inputs, pairs: _Pairs) -> Scores:
        scores = empty_scores(pairs.rows.size)
        order = np.argsort(pairs.shapes, kind="stable")
        starts = np.searchsorted(pairs.shapes[order], np.arange(len(self._columns) + 1))
        for shape, columns in enumerate(self._columns):
            chosen = order[starts[shape] : starts[shape + 1]]
            if chosen.size:
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

    def _with_ends(self, steps: _Steps, numbers: Integers) -> _Steps:
        """The steps with the ends among them, each before the publication that it precedes."""
        if not self._ends:
            return steps
        ends = self._ends
        final = np.array([one.is_final for one in ends])
        zeros = np.zeros(len(ends))
        more = _Steps(
            np.array([one.row for one in ends], np.int64),
            np.ones(len(ends), np.uint8),
            np.array([one.at for one in ends]),
            np.where(final, -1, 0),
            zeros,
            zeros.astype(np.int64),
            zeros.astype(np.uint8),
        )
        moments = np.concatenate([[2 * one.number for one in ends], 2 * numbers + 1])
        order = np.argsort(moments, kind="stable")
        columns: Any = zip(more, steps, strict=True)
        return _Steps(*(np.concatenate(pair)[order] for pair in columns))

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
            self._sorted = None
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
    patterns = inputs.patterns(program)[numbers[chosen]]
    events = inputs.events(program)
    asked: list[Integers] = []
    groups: dict[bool, list[Integers]] = {False: [], True: []}
    for pattern in np.unique(patterns).tolist():
        kinds = [pattern >> 2 * i & 3 for i in reversed(range(len(program.attributes)))]
        if MISSING in kinds:
            continue
        pairs = chosen[patterns == pattern]
        whole = result_is_whole(program, tuple(kind != FLOAT for kind in kinds))
        if whole is None or HUGE in kinds:
            asked.append(pairs)
            continue
        scores.whole[pairs] = whole
        groups[any(program.whole) or any(kind != FLOAT for kind in kinds)].append(pairs)
    doubts = np.empty(numbers.size)
    for mixed, parts in groups.items():
        if parts:
            pairs = np.concatenate(parts)
            score_kernels.score_pairs(
                columns.code,
                program.depth,
                events,
                columns.constants,
                numbers,
                places,
                pairs,
                mixed,
                program.sign,
                scores.scores,
                doubts,
            )
            found = Scores(*(part[pairs] for part in scores))
            asked.append(pairs[settle(found, doubts[pairs], mixed)])
            scores.known[pairs] = found.known
    return np.concatenate(asked) if asked else np.empty(0, np.int64)
