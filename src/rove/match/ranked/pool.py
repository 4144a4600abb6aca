"""All ranked subscriptions and their windows: publications enter one by one or in batches.

Take a window of ten thousand publications of which a subscriber wants the ten best: of a thousand
publications, one is wanted. So a subscription keeps a short *list*, the best two dozen or so, and a
*threshold*: no member outside of the list is better. A publication that does not beat the threshold
does not touch the subscription at all (`rove.match.ranked.zones` finds the others). Lists shrink as
members leave. Where fewer than k are left and others may exist, the list is rebuilt from one window
of recent publications that all lists share. That is rare: as long as scores are distributed as
before, a list gains as many members as it loses, since a list that grew too long was cut to a
length well above k. While scores get worse and worse, each refill doubles a list, in the end to the
length of a skyband.

Some subscriptions cannot be refilled, because it is not recorded which publications they matched,
or which state the subscriber had: those with a condition, with `me.` in the score, and windows of
the last n publications. Nor can those whose scores only the oracle computes. They keep a *skyband*
of their own: a member can still be delivered only while fewer than k newer members are better, and
all others are dropped. Every publication enters the skyband of every subscription that it matches,
whatever its score: some 100 ns.

A batch goes the same way. Scores of skybands are then computed pair by pair from columns, and all
steps of one window (publications that matched, an end, a new beginning) are sorted together and run
in one go. So adding, changing or ending a subscription in the middle of a batch costs its own step
only. A pair takes some 60 bytes while its batch is run. What remains is flat arrays and the
subscriptions.

Measured with `rove bench ranked` on two cores that others kept busy, 100,000 subscriptions and the
ten best of 10,000: some 3,000 publications a second, 70 times what skybands for all would do. Of
300 µs for one, a third is Python making some 130 deliveries.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence, Set
from itertools import count
from typing import Any, Final, NamedTuple, Self, TypeAlias, cast

import numpy as np

from rove.lang import parse
from rove.lang.oracle import Publication, score_of
from rove.lang.replay import Member
from rove.lang.tree import Me, Subscription, is_conditional, rank_of, walk
from rove.match.ranked.history import History, plain
from rove.match.ranked.inputs import Inputs, by_shape, score_pairs
from rove.match.ranked.members import Members, Records, WindowSteps
from rove.match.ranked.score_kernels import order_by_row
from rove.match.ranked.scores import (
    ConstantColumns,
    Floats,
    Integers,
    ScoreProgram,
    Scores,
    Unscored,
    compiled,
    empty_scores,
    read,
)
from rove.match.ranked.zones import Zones
from rove.match.saved import PoolState, RankedState

_LIST_ROOM_MAX: Final = 16
_SKYBAND_ROOM: Final = 8
_LOOSE_MIN: Final = 1_024
_TEXTS_MAX: Final = 20_000
_FEW: Final = 64
_DENSE_MAX: Final = 2**24
_NOWHERE: Final = -1
_NO_ROWS: Final = np.empty(0, np.int64)


@functools.lru_cache(_TEXTS_MAX)
def parsed(text: str) -> Subscription:
    """The tree of an expression; the latest are cached."""
    return parse(text, accepted=True)


class _Ranked(NamedTuple):
    """A subscription and what its score needs."""

    expression: Subscription | str
    """The text of an expression takes less room than its tree."""
    accepted_at: float
    me: Publication

    @property
    def tree(self) -> Subscription:
        return parsed(self.expression) if isinstance(self.expression, str) else self.expression


_Score: TypeAlias = "tuple[ScoreProgram | None, tuple[float, ...]]"


class _Spot(NamedTuple):
    """Where the constants of a subscription are: the columns, and the place in them."""

    shape: int
    place: int


class _Pairs(NamedTuple):
    """Publications and the subscriptions whose condition they satisfy."""

    numbers: Integers
    rows: Integers
    shapes: Integers
    places: Integers


class _ConstantsChange(NamedTuple):
    """From publication `number` of the batch on, the constants of a row are elsewhere."""

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


SPARE: Final = 8
"""How many members beyond 2k the list of a ranked subscription keeps when it is cut."""


class RankedPool:
    """Ranked subscriptions; ascending numbers identify the publications in their windows.

    Time must not run backwards. Deliveries collect until `take_deliveries` is called.
    """

    def __init__(self, *, shares: bool = True, spare: int | None = None) -> None:
        """`spare` is how many members beyond 2k a list keeps when it is cut.

        Without `shares`, every subscription has a skyband, and only what is said to meet it is
        let in; with it, those without a condition are shown every publication.
        """
        self._shares = shares
        self._spare = SPARE if spare is None else spare
        self._members = Members()
        self._ranked: dict[int, _Ranked] = {}
        self._row_of: dict[int, int] = {}
        self._table: Integers | None = None
        """Rows by id, where ids are small enough for that."""
        self._shapes: dict[int, ConstantColumns] = {}
        self._shape_of: dict[tuple[ScoreProgram | None, bool], int] = {}
        """By the program, and whether its rows are lists."""
        self._zones: list[Zones] = []
        """The shapes of lists."""
        self._history = History()
        self._everywhere: Integers = _NO_ROWS
        """Rows of skybands without a condition."""
        self._changes: list[_ConstantsChange] = []
        self._changed: set[int] = set()
        """Rows that have changes."""
        self._ends: list[_End] = []
        self._ended: set[int] = set()

    def __len__(self) -> int:
        return len(self._ranked) - len(self._ended)

    def __contains__(self, id: int) -> bool:
        return id in self._ranked and id not in self._ended

    # -- changing ----------------------------------------------------------------------------

    def add(
        self,
        id: int,
        subscription: Subscription | str,
        accepted_at: float = 0.0,
        me: Publication | None = None,
    ) -> None:
        """Add a ranked subscription; its window begins empty."""
        if id in self._ranked:
            raise ValueError(f"subscription {id} is there already; remove it first")
        one = _Ranked(subscription, accepted_at, dict(me or {}))
        rank, found = rank_of(one.tree), _score_of(one)
        is_list = self._shares and found is not None and _is_refillable(one.tree, found)
        room = min(rank.k, _LIST_ROOM_MAX) if is_list else _SKYBAND_ROOM
        row = self._members.add(id, rank, accepted_at, room)
        self._ranked[id], self._row_of[id], self._table = one, row, None
        if is_list:
            self._members.rows["least_target"][row] = 2 * rank.k + self._spare
            self._members.rows["first_sequence"][row] = self._history.end
            self._set_target(row, 2 * rank.k + self._spare)
            self._history.hold(rank.window.seconds)
        elif self._shares and not is_conditional(one.tree):
            self._set_everywhere({*self._everywhere.tolist(), row})
        self._put(row, self._find_spot(found, row, is_list))

    def adopt(self, id: int, past: Sequence[tuple[int, Member]]) -> None:
        """Put members, with the numbers they have here, into the empty window of a subscription.

        What was delivered elsewhere is not delivered again.
        """
        row = self._row_of[id]
        rows, scores = np.array([row]), empty_scores(1)
        if past and self._is_list(row):
            self._members.rows["first_sequence"][row] = past[0][0]
        for number, member in past:
            scores.put(0, member.score, float(self._members.rows["sign"][row]))
            self._enter_rows(rows, scores, member.at, number)
        self._members.take_deliveries()
        delivered = [number for number, member in past if member.delivered]
        self._members.mark_delivered(row, delivered)

    def remember(self, publication: Publication, at: float) -> int:
        """Take in a publication of the past, before any other and into no window; its number."""
        return self._history.append(publication, at)

    def remove(self, id: int) -> None:
        """Remove a subscription and its window; KeyError if there is none."""
        one = self._ranked.pop(id)
        row, self._table = self._row_of.pop(id), None
        if self._is_list(row):
            self._history.release(rank_of(one.tree).window.seconds)
        if row in self._everywhere:
            self._set_everywhere({*self._everywhere.tolist()} - {row})
        self._leave(self._spot(row))
        self._members.remove(row)

    def set_state(self, id: int, me: Publication, number: int | None = None) -> None:
        """The whole new state of the subscriber; KeyError if there is none.

        With a number, from that publication of the batch on that is run next.
        """
        row, before = self._row_of[id], self._ranked[id]
        self._ranked[id] = before._replace(me=dict(me))
        if self._is_list(row):
            return
        if number is None:
            self._leave(self._spot(row))
            self._put(row, self._find_spot(_score_of(self._ranked[id]), row, is_list=False))
            return
        if row not in self._changed:
            self._changed.add(row)
            self._changes.append(_ConstantsChange(row, 0, self._spot(row), before.me))
        spot = self._find_spot(_score_of(self._ranked[id]), row, is_list=False)
        self._put(row, spot)
        self._changes.append(_ConstantsChange(row, number, spot, self._ranked[id].me))

    def end(self, id: int, at: float, number: int = 0) -> None:
        """It ends at a moment, before publication `number` of the batch that is run next.

        Until then its window slides. KeyError if there is none.
        """
        if id in self._ended:
            raise KeyError(id)
        self._ends.append(_End(self._row_of[id], number, at, is_final=True))
        self._ended.add(id)

    def is_ending(self, id: int) -> bool:
        """Whether it ends in the batch that is run next."""
        return id in self._ended

    def empty(self, number: int = 0, at: float = -math.inf) -> None:
        """All windows become empty, after they slid until `at`; subscriptions stay."""
        assert not self._zones, "what lists are refilled from does not become empty"
        for id, row in self._row_of.items():
            if id not in self._ended:
                self._ends.append(_End(row, number, at, is_final=False))

    def _is_list(self, row: int) -> bool:
        return bool(self._members.rows["limit"][row])

    def _set_target(self, row: int, target: int) -> None:
        """How long a list is after it was cut, which happens at twice that length."""
        self._members.rows["target"][row] = target
        self._members.rows["limit"][row] = 2 * target

    def _spot(self, row: int) -> _Spot:
        record: Any = self._members.rows[row]
        return _Spot(int(record["shape"]), int(record["place"]))

    def _put(self, row: int, spot: _Spot) -> None:
        self._members.rows["shape"][row], self._members.rows["place"][row] = spot

    def _set_everywhere(self, rows: Set[int]) -> None:
        self._everywhere = np.array(sorted(rows), np.int64)

    def _find_spot(self, found: _Score | None, row: int, is_list: bool) -> _Spot:
        if found is None:
            return _Spot(_NOWHERE, _NOWHERE)
        program, constants = found
        shape = self._shape_of.get((program, is_list))
        if shape is None:
            shape = next(number for number in count() if number not in self._shapes)
            self._shape_of[program, is_list] = shape
            assert program is not None or not is_list, "the oracle alone cannot refill a list"
            self._shapes[shape] = (
                Zones(cast(ScoreProgram, program)) if is_list else ConstantColumns(program)
            )
            self._track()
        columns = self._shapes[shape]
        place = columns.add(row, constants)
        if isinstance(columns, Zones):
            columns.set_threshold(place, math.inf)
        return _Spot(shape, place)

    def _leave(self, spot: _Spot) -> None:
        if spot.shape == _NOWHERE:
            return
        columns = self._shapes[spot.shape]
        columns.remove(spot.place)
        if not len(columns):
            del self._shapes[spot.shape]
            del self._shape_of[columns.program, isinstance(columns, Zones)]
            self._track()

    def _track(self) -> None:
        self._zones = [one for one in self._shapes.values() if isinstance(one, Zones)]
        programs = [zones.program for zones in self._zones if zones.program is not None]
        self._history.track({path for program in programs for path in program.attributes})

    # -- one publication ---------------------------------------------------------------------

    @property
    def next_number(self) -> int:
        """The number of the publication that enters next."""
        return self._history.end

    def enter(self, publication: Publication, at: float, matched: Integers) -> int:
        """Let time pass until `at`, then a publication in; its number.

        `matched` are the subscriptions whose condition it meets; those that are not here are
        ignored.
        """
        self._slide(at)
        number = self._history.append(publication, at)
        for zones in self._zones:
            self._enter_lists(zones, publication, at, number)
        rows = self._rows_of(matched) if matched.size else matched
        if rows.size:
            rows = rows[rows >= 0]
        if self._everywhere.size:
            rows = np.concatenate([self._everywhere, rows])
        if rows.size:
            self._enter_skybands(rows, publication, at, number)
        self._history.forget(at)
        return number

    def _enter_lists(self, zones: Zones, publication: Publication, at: float, number: int) -> None:
        assert zones.program is not None, "zones are made of programs"
        reading = read(zones.program, publication, at)
        if reading is None:
            return
        if zones.loose > max(_LOOSE_MIN, len(zones) // 2):
            zones.put_in_order(self._members.rows)
        places, scores = zones.candidates(reading)
        if not places.size:
            return
        rows = zones.rows[places]
        if scores is None:
            scores, asked = zones.score(reading, places)
            for i in asked.tolist():
                self._score_by_oracle(scores, i, int(rows[i]), publication, at)
        self._members.enter_lists(rows, scores, at, number, zones.worst)

    def _enter_skybands(
        self, rows: Integers, publication: Publication, at: float, number: int
    ) -> None:
        shapes = self._members.rows["shape"][rows]
        places = self._members.rows["place"][rows].astype(np.int64)
        for shape, chosen in by_shape(shapes):
            columns = self._shapes[shape]
            if columns.program is None:
                scores, asked = empty_scores(chosen.size), np.arange(chosen.size)
            else:
                reading = read(columns.program, publication, at)
                if reading is None:
                    continue
                scores, asked = columns.score(reading, places[chosen])
            for i in asked.tolist():
                self._score_by_oracle(scores, i, int(rows[chosen[i]]), publication, at)
            self._enter_rows(rows[chosen], scores, at, number)

    def _enter_rows(self, rows: Integers, scores: Scores, at: float, number: int) -> None:
        """One publication enters some rows of one shape."""
        shape = int(self._members.rows["shape"][rows[0]])
        columns = self._shapes.get(shape)
        if isinstance(columns, Zones):
            self._members.enter_lists(rows, scores, at, number, columns.worst)
            return
        steps = WindowSteps(rows, np.zeros(rows.size, np.int64), *scores)
        self._members.enter_skybands(steps, np.array([at]), np.array([number]), ends=0)

    def _score_by_oracle(
        self,
        scores: Scores,
        i: int,
        row: int,
        publication: Publication,
        at: float,
        me: Publication | None = None,
    ) -> None:
        """Let the oracle compute a score of which the kernels are not sure."""
        record: Any = self._members.rows[row]
        one = self._ranked[int(record["id"])]
        if at >= one.accepted_at:
            me = one.me if me is None else me
            score = score_of(one.tree, publication, at - one.accepted_at, me)
            scores.put(i, score, float(record["sign"]))

    # -- a batch -----------------------------------------------------------------------------

    def run(self, inputs: Inputs, sequences: Integers, numbers: Integers, ids: Integers) -> Records:
        """Let a batch in: publication numbers[i] has met the condition of subscription ids[i].

        Changes before it belong to it: each says before which publication it happens, and they
        come in that order. `numbers` ascend, and so do `sequences`, by which windows know the
        publications. Returns the deliveries, by time and subscription; time passes no further
        than the publications. KeyError for a subscription that is none.
        """
        rows, numbers = self._with_everywhere(self._known_rows_of(ids), numbers, len(inputs))
        rows, numbers = self._with_ends(rows, numbers, len(inputs))
        order = order_by_row(rows, self._members.rows.size)
        pairs = self._placed(numbers[order], rows[order], len(inputs))
        scores = self._scored(inputs, pairs)
        scores.known[pairs.numbers >= len(inputs)] = 1
        at = np.concatenate([inputs.at, [one.at for one in self._ends]])
        final = np.array([-1 if one.is_final else 0 for one in self._ends], np.int64)
        every = np.concatenate([sequences, final])
        steps = WindowSteps(pairs.rows, pairs.numbers, *scores)
        self._members.enter_skybands(steps, at, every, ends=len(self._ends))
        if self._zones:
            self._run_lists(inputs, sequences)
        self._settle()
        return self._members.take_deliveries()

    def run_changes(self) -> Records:
        """Apply the changes that wait for a batch, by a batch without publications."""
        return self.run(Inputs([], np.empty(0)), _NO_ROWS, _NO_ROWS, _NO_ROWS)

    @property
    def everywhere_count(self) -> int:
        """How many pairs each publication of a batch makes beside those that are given."""
        return int(self._everywhere.size)

    def _run_lists(self, inputs: Inputs, sequences: Integers) -> None:
        """Lists have to see all publications, one after another."""
        assert not sequences.size or sequences[0] == self._history.end, "numbers go on"
        for row, at in zip(inputs.publications, inputs.at.tolist(), strict=True):
            publication = plain(row)
            self._slide(at)
            number = self._history.append(publication, at)
            for zones in self._zones:
                self._enter_lists(zones, publication, at, number)
            self._history.forget(at)

    def _rows_of(self, ids: Integers) -> Integers:
        """The rows of subscriptions, -1 for one that is none."""
        if ids.size <= _FEW or (self._table is None and ids.size < len(self._row_of)):
            return np.array([self._row_of.get(id, _NOWHERE) for id in ids.tolist()], np.int64)
        if self._table is None:
            highest = max(self._row_of, default=-1)
            is_dense = highest < min(_DENSE_MAX, 1_000 * len(self._row_of))
            self._table = np.full(highest + 2 if is_dense else 0, _NOWHERE, np.int64)
            if is_dense:
                self._table[list(self._row_of)] = list(self._row_of.values())
        if not self._table.size:
            return np.array([self._row_of.get(id, _NOWHERE) for id in ids.tolist()], np.int64)
        # An id out of range finds the last place, which is empty.
        found: Integers = self._table[ids.clip(-1, self._table.size - 1)]
        return found

    def _known_rows_of(self, ids: Integers) -> Integers:
        found = self._rows_of(ids)
        if (found < 0).any():
            raise KeyError(int(ids[found < 0][0]))
        return found

    def _with_everywhere(
        self, rows: Integers, numbers: Integers, publications: int
    ) -> tuple[Integers, Integers]:
        """Rows and numbers with those that every publication enters."""
        if not self._everywhere.size:
            return rows, numbers
        more = np.repeat(np.arange(publications), self._everywhere.size)
        rows = np.concatenate([rows, np.tile(self._everywhere, publications)])
        return rows, np.concatenate([numbers, more])

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

    def _placed(self, numbers: Integers, rows: Integers, publications: int) -> _Pairs:
        """By pair, where the constants stand that count at that publication; ends have none."""
        shapes = self._members.rows["shape"][rows]
        places = self._members.rows["place"][rows].astype(np.int64)
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
        states = {one.spot: one.me for one in self._changes}
        for shape, chosen in by_shape(pairs.shapes):
            columns = self._shapes[shape]
            asked = score_pairs(columns, inputs, pairs.numbers, pairs.places, chosen, scores)
            for i in asked.tolist():
                number, me = int(pairs.numbers[i]), states.get(_Spot(shape, int(pairs.places[i])))
                at = float(inputs.at[number])
                self._score_by_oracle(
                    scores, i, int(pairs.rows[i]), inputs.publications[number], at, me
                )
        return scores

    def _settle(self) -> None:
        """End the batch: drop the subscriptions that ended in it, and earlier constants."""
        current = {self._spot(one.row) for one in self._changes}
        for spot in {one.spot for one in self._changes} - current:
            self._leave(spot)
        for id in self._ended:
            self.remove(id)
        self._changes, self._changed, self._ends, self._ended = [], set(), [], set()

    # -- time --------------------------------------------------------------------------------

    def advance(self, now: float) -> Records:
        """Let time pass: members leave, others move up; returns the deliveries."""
        self._slide(now)
        self._history.forget(now)
        return self._members.take_deliveries()

    def take_deliveries(self) -> Records:
        """The deliveries since the last call, by time and subscription."""
        return self._members.take_deliveries()

    def next_change_at(self) -> float:
        """When to advance at the latest; infinity if nothing will leave by age."""
        return self._members.next_change_at()

    def _slide(self, now: float) -> None:
        while (underfull := self._members.expire(now)).size:
            for row in underfull.tolist():
                self._refill(row)

    def _refill(self, row: int) -> None:
        """Rebuild the list of a row from the shared window as it is at that moment."""
        record: Any = self._members.rows[row]
        zones = cast(Zones, self._shapes[int(record["shape"])])
        numbers, inputs = self._history.since(int(record["first_sequence"]))
        every, places = np.arange(numbers.size), np.full(numbers.size, int(record["place"]))
        scores = empty_scores(numbers.size)
        for i in score_pairs(zones, inputs, every, places, every, scores).tolist():
            self._score_by_oracle(scores, i, row, inputs.publications[i], float(inputs.at[i]))
        departures: Floats = inputs.at + record["span"]
        is_there = (departures > record["underfull_at"]) & (inputs.at >= record["accepted_at"])
        scores.known[:] &= is_there
        if record["underfull_at"] < record["refilled_at"] + record["span"]:
            # Scores are getting worse, and nothing that comes is any better than what leaves.
            self._set_target(row, 2 * int(record["target"]))
        record["refilled_at"] = record["underfull_at"]
        self._members.refill(row, numbers, scores, departures, zones.worst)

    # -- keeping -----------------------------------------------------------------------------

    def live_sequences(self) -> Integers:
        """The publications that some window may still deliver, ascending."""
        held = self._members.sequences()
        return np.union1d(held, self._history.numbers()) if len(self._history) else held

    def state(self) -> PoolState:
        """Everything, as plain values and bytes; between two batches."""
        assert not self._changes, "a change of state waits for its batch; run it first"
        assert not self._ends, "an end waits for its batch; run it first"
        return PoolState(
            self._shares,
            self._spare,
            self._members.state(),
            {
                id: RankedState(one.expression, one.accepted_at, dict(one.me))
                for id, one in self._ranked.items()
            },
            dict(self._row_of),
            [
                self._shapes[number].state(number, is_list=is_list)
                for (_, is_list), number in self._shape_of.items()
            ],
            self._everywhere.tolist(),
            self._history.state(),
        )

    @classmethod
    def from_state(cls, state: PoolState) -> Self:
        """What `state` was taken from."""
        pool = cls(shares=state.shares, spare=state.spare)
        pool._members = Members.from_state(state.members)
        pool._ranked = {
            id: _Ranked(one.subscription, one.accepted_at, one.me)
            for id, one in state.ranked.items()
        }
        pool._row_of = dict(state.row_of)
        rows = pool._members.rows
        for columns in state.shapes:
            restored = (
                Zones.restored(columns, rows)
                if columns.is_list
                else ConstantColumns.from_state(columns)
            )
            pool._shapes[columns.number] = restored
            pool._shape_of[restored.program, columns.is_list] = columns.number
        pool._everywhere = np.array(state.everywhere, np.int64)
        pool._history = History.from_state(state.history)
        pool._track()
        return pool


def _score_of(one: _Ranked) -> _Score | None:
    """Program and constants; the program is None for the oracle. None if there is no score."""
    rank = rank_of(one.tree)
    try:
        found = compiled(rank.score, rank.descending, one.accepted_at, one.me)
    except Unscored:
        return None
    return (None, ()) if found is None else (found.program, found.constants)


def _is_refillable(subscription: Subscription, found: _Score) -> bool:
    """Whether its scores and matches can be computed again later."""
    rank = rank_of(subscription)
    is_timed = rank.window.publications is None
    depends = is_conditional(subscription) or any(type(one) is Me for one in walk(rank.score))
    return found[0] is not None and is_timed and not depends
