"""Ranked subscriptions, each with no more than the best of its window: the default.

A window of ten thousand publications and a wish for the ten best: of a thousand publications,
one is wanted. So a subscription keeps a short *list*, the best two dozen or so, and a
*threshold*: no member outside of the list is better. A publication that does not beat the
threshold does not touch the subscription at all. Lists shrink as members leave; where fewer than
k are left and others may exist, the list is made anew from one window of recent publications
that all share. That is rare: while scores come as they came before, a list gains as many as it
loses, since a list that grew too long was cut to a length well above k. While they get worse
and worse, a list becomes twice as long with every refill, in the end as long as a skyband.

Who is touched is found without looking at everybody. Subscriptions of one shape of score stand
in blocks of 64 with similar constants; a block, and a group of 64 blocks, knows the range of its
constants and its worst threshold, and the program of the score, run over these ranges, says
which blocks could want a publication (see `rove.match.scores`). A block of 64 rows also knows
when the next of its members leaves.

Some cannot be refilled, since nobody remembers who matched, or which state the subscriber had:
subscriptions with a condition, with `me.` in the score, and windows of the last n members. Those
keep their own skyband, as do scores that only the oracle can compute: `rove.match.skyband`.

Measured with `rove.lab.ranked_bench` on two cores that others kept busy, 100,000 subscriptions
and the ten best of 10,000: 2,700 publications a second, 71 times the strict way. Of 300 µs for
one, a third is Python making some 130 deliveries.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rove.lang.oracle import score_of
from rove.lang.tree import Me, Subscription, walk
from rove.lang.values import Path, is_number, look_up
from rove.match import ranked_kernels, score_kernels
from rove.match.ranks import (
    Clock,
    Publication,
    RankedDelivery,
    Started,
    in_order,
    is_conditional,
    rank_of,
)
from rove.match.scores import (
    Columns,
    Compiled,
    Floats,
    Integers,
    Program,
    Reading,
    Scores,
    Unscored,
    compiled,
    empty_scores,
    read,
    result_is_whole,
    settle,
)
from rove.match.skyband import (
    Entry,
    Held,
    Pool,
    SkybandRanked,
    ask_oracle,
    delivered,
    entries_of,
)

_LANES: Final = score_kernels.LANES
_SPARE: Final = 8
_LIST_ROOM_MAX: Final = 16
_LOOSE_MIN: Final = 1_024
_MISSING, _WHOLE, _FLOAT, _HUGE = range(4)
"""What an attribute of a past publication was; HUGE is an integer that no float holds."""


class RankedIndex:
    """Ranked subscriptions, touched only by what they may want.

    `spare` is how many members beyond 2k a list keeps when it is cut.
    """

    def __init__(self, spare: int = _SPARE) -> None:
        self._spare = spare
        self._pool = Pool()
        self._clock = Clock()
        self._held: dict[int, Held] = {}
        self._row_of: dict[int, int] = {}
        self._zones: dict[Program, _Zones] = {}
        self._history = _History()
        self._rest = SkybandRanked()
        """Those that keep their own skyband."""

    def __len__(self) -> int:
        return len(self._held) + len(self._rest)

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
        found = _refillable(subscription, accepted_at)
        if found is None:
            self._rest.add(id, subscription, accepted_at, me)
            return
        rank = rank_of(subscription)
        row = self._pool.add(id, rank, accepted_at, min(rank.k, _LIST_ROOM_MAX))
        self._pool.rows["least_target"][row] = 2 * rank.k + self._spare
        self._set_target(row, 2 * rank.k + self._spare)
        self._pool.rows["first_sequence"][row] = self._history.end
        self._held[id] = Held(subscription, accepted_at, dict(me or {}))
        self._row_of[id] = row
        self._find_place(row, found)
        self._history.hold(rank.window.seconds)

    def adopt(self, started: Iterable[Started], now: float) -> None:
        """Take in subscriptions with what their windows hold; nothing was published here yet.

        What was delivered elsewhere is not delivered again.
        """
        assert not self._history.end, "the past must come before the present"
        mine: list[Started] = []
        others: list[Started] = []
        for one in started:
            is_mine = _refillable(one.subscription, one.accepted_at) is not None
            (mine if is_mine else others).append(one)
        self._rest.adopt(others)
        for one in mine:
            self.add(one.id, one.subscription, one.accepted_at, one.me)
        sequence_of = {
            number: self._history.append(entry) for number, entry in entries_of(mine).items()
        }
        for one in mine:
            if one.past:
                row = self._row_of[one.id]
                record: Any = self._pool.rows[row]
                record["first_sequence"] = sequence_of[one.past[0].number]
                record["hungry_at"] = now
                self._refill(row)
                self._pool.mark_delivered(row, one.past, sequence_of)
        self._pool.told()

    def _set_target(self, row: int, target: int) -> None:
        """How long a list is after it was cut, which happens at twice that length."""
        self._pool.rows["target"][row] = target
        self._pool.rows["limit"][row] = 2 * target

    def _find_place(self, row: int, found: Compiled) -> None:
        zones = self._zones.get(found.program)
        if zones is None:
            zones = self._zones[found.program] = _Zones(found.program)
            self._track()
        place = self._pool.rows["place"][row] = zones.add(row, found.constants)
        ranked_kernels.set_threshold(zones.worst, place, float(self._pool.rows["threshold"][row]))

    def _track(self) -> None:
        self._history.track({path for program in self._zones for path in program.attributes})

    def _zones_of(self, held: Held) -> _Zones:
        found = _refillable(held.subscription, held.accepted_at)
        assert found is not None, "what stands here can be refilled"
        return self._zones[found.program]

    def remove(self, id: int) -> None:
        """Forget a subscription and its window; KeyError if there is none."""
        if id not in self._held:
            self._rest.remove(id)
            return
        held = self._held.pop(id)
        row = self._row_of.pop(id)
        zones = self._zones_of(held)
        zones.remove(int(self._pool.rows["place"][row]))
        if not len(zones) and zones.program is not None:
            del self._zones[zones.program]
            self._track()
        self._pool.remove(row)
        self._history.release(rank_of(held.subscription).window.seconds)

    def set_state(self, id: int, me: Publication) -> None:
        """The whole new state of the subscriber; KeyError if there is none."""
        if id not in self._held:
            self._rest.set_state(id, me)

    def publish(
        self, key: object, publication: Publication, at: float, matched: Integers
    ) -> list[RankedDelivery]:
        """Let time pass until `at`, then let a publication in, wherever it matches."""
        self._clock.move(at)
        self._expire(at)
        sequence = self._history.append(Entry(key, publication, at))
        for zones in self._zones.values():
            self._enter(zones, publication, at, sequence)
        deliveries = delivered(self._pool.told(), self._history.entries)
        self._history.forget(at)
        if not len(self._rest):
            return deliveries
        others = self._rest.publish(key, publication, at, matched)
        return in_order(deliveries + others) if others else deliveries

    def _enter(
        self,
        zones: _Zones,
        publication: Publication,
        at: float,
        sequence: int,
    ) -> None:
        assert zones.program is not None, "zones are made of programs"
        reading = read(zones.program, publication, at)
        if reading is None:
            return
        if zones.loose > max(_LOOSE_MIN, len(zones) // 2):
            zones.put_in_order(self._pool)
        places, scores = zones.candidates(reading)
        if not places.size:
            return
        rows = zones.rows[places]
        if scores is None:
            scores, asked = zones.score(reading, places)
            if asked.size:
                ask_oracle(self._pool, self._held, rows, scores, asked, publication, at)
        self._pool.enter_lists(rows, scores, at, sequence, zones.worst)

    def advance(self, now: float) -> list[RankedDelivery]:
        """Let time pass: members leave, others move up."""
        self._clock.move(now)
        self._expire(now)
        deliveries = delivered(self._pool.told(), self._history.entries)
        self._history.forget(now)
        if not len(self._rest):
            return deliveries
        others = self._rest.advance(now)
        return in_order(deliveries + others) if others else deliveries

    def _expire(self, now: float) -> None:
        while (hungry := self._pool.expire(now)).size:
            for row in hungry.tolist():
                self._refill(row)

    def _refill(self, row: int) -> None:
        """Make the list of a row anew, out of the shared window as it is at that moment."""
        record: Any = self._pool.rows[row]
        held = self._held[int(record["id"])]
        zones = self._zones_of(held)
        constants = np.ascontiguousarray(zones.constants[:, int(record["place"])])
        past = self._history.since(int(record["first_sequence"]))
        scores = self._history.scores(zones, constants, past, held)
        ats = self._history.ats[past]
        departures = ats + record["span"]
        scores.known[:] &= (departures > record["hungry_at"]) & (ats >= record["accepted_at"])
        sequences = np.arange(past.start, past.stop) + self._history.first
        if record["hungry_at"] < record["refilled_at"] + record["span"]:
            # Scores are getting worse, and nothing that comes is any better than what leaves.
            self._set_target(row, 2 * int(record["target"]))
        record["refilled_at"] = record["hungry_at"]
        self._pool.refill(row, sequences, scores, departures, zones.worst)

    def next_change_at(self) -> float:
        """When to advance at the latest; infinity if nothing will leave by age."""
        return min(self._pool.next_change_at(), self._rest.next_change_at())

    def live_keys(self) -> list[object]:
        """What the publications are called that some window may still deliver."""
        held = chain(self._history.entries.values(), self._rest.live_entries())
        return [entry.key for entry in held]

    def state(self) -> dict[str, Any]:
        """Everything, as plain values and bytes."""
        return {
            "spare": self._spare,
            "now": self._clock.now,
            "pool": self._pool.state(),
            "held": {id: tuple(held) for id, held in self._held.items()},
            "row_of": dict(self._row_of),
            "history": self._history.state(),
            "rest": self._rest.state(),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> RankedIndex:
        """What `state` was taken from."""
        index = cls(state["spare"])
        index._clock = Clock(state["now"])
        index._pool = Pool.from_state(state["pool"])
        index._held = {id: Held(*held) for id, held in state["held"].items()}
        index._row_of = dict(state["row_of"])
        index._rest = SkybandRanked.from_state(state["rest"])
        for id, held in index._held.items():
            found = _refillable(held.subscription, held.accepted_at)
            assert found is not None, "what stands here can be refilled"
            index._find_place(index._row_of[id], found)
            index._history.hold(rank_of(held.subscription).window.seconds)
        index._history.restore(state["history"])
        return index


def _refillable(subscription: Subscription, accepted_at: float) -> Compiled | None:
    """The program of a subscription whose scores and matches can be told again later."""
    rank = rank_of(subscription)
    if rank.window.publications is not None or is_conditional(subscription):
        return None
    if any(type(node) is Me for node in walk(rank.score)):
        return None
    try:
        return compiled(rank.score, rank.descending, accepted_at, {})
    except Unscored:
        return None


class _Zones(Columns):
    """Columns in blocks and groups of blocks, with what is best and worst in each."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.loose = 0
        """How many were added since they were put in order."""
        self._slow = program.uses_library
        self._make_room()

    def _make_room(self) -> None:
        """Empty zone maps for the present size."""
        size, wide = self.rows.size, self.constants.shape[0]
        blocks = size // _LANES
        groups = -(-blocks // _LANES)
        self.worst: tuple[Floats, Floats, Floats] = (
            np.full(size, -math.inf),
            np.full(blocks, -math.inf),
            np.full(groups, -math.inf),
        )
        """Thresholds of places, and the worst of each block and group; -inf where nobody is."""
        self._low = [np.full((wide, count), math.inf) for count in (blocks, groups)]
        self._high = [np.full((wide, count), -math.inf) for count in (blocks, groups)]
        # A block more than there are places: the kernel writes first and counts then.
        self._found = np.empty(size + _LANES, np.int64)
        self._scores = np.empty(size + _LANES)
        self._zeros = np.zeros(size, np.int64)
        self._floats, self._known = np.zeros(size, np.uint8), np.ones(size, np.uint8)

    def change(self, place: int, constants: tuple[float, ...]) -> None:
        super().change(place, constants)
        for level, zone in enumerate((place // _LANES, place // _LANES**2)):
            low, high = self._low[level][:, zone], self._high[level][:, zone]
            np.minimum(low, constants, out=low)
            np.maximum(high, constants, out=high)
        self.loose += 1

    def remove(self, place: int) -> None:
        super().remove(place)
        ranked_kernels.set_threshold(self.worst, place, -math.inf)

    def grow(self) -> None:
        thresholds = self.worst[0]
        super().grow()
        self._map(np.concatenate([thresholds, np.full(thresholds.size, -math.inf)]))

    def _map(self, thresholds: Floats) -> None:
        """Zone maps of what stands in the columns now."""
        self._make_room()
        self.worst[0][:] = thresholds
        taken = self.rows >= 0
        lows: Floats = np.where(taken, self.constants, math.inf)
        highs: Floats = np.where(taken, self.constants, -math.inf)
        worst = thresholds
        for level in range(2):
            lows = self._low[level][:] = _zoned(lows, math.inf).min(axis=-1)
            highs = self._high[level][:] = _zoned(highs, -math.inf).max(axis=-1)
            worst = self.worst[level + 1][:] = _zoned(worst, -math.inf).max(axis=-1)

    def put_in_order(self, pool: Pool) -> None:
        """Give similar subscriptions neighbouring places."""
        places = self.places()
        places = places[_order(self.constants[:, places])]
        size = self.rows.size
        thresholds = np.full(size, -math.inf)
        thresholds[: places.size] = self.worst[0][places]
        rows = np.full(size, -1, np.int64)
        rows[: places.size] = self.rows[places]
        constants = np.zeros_like(self.constants)
        constants[:, : places.size] = self.constants[:, places]
        self.rows, self.constants = rows, constants
        self._free, self._next = [], places.size
        pool.rows["place"][rows[: places.size]] = np.arange(places.size)
        self._map(thresholds)
        self.loose = 0

    def candidates(self, reading: Reading) -> tuple[Integers, Scores | None]:
        """The places whose threshold a publication may beat.

        Where numbers are floats and nothing is slow to compute, those whose threshold it does
        beat, with their scores.
        """
        assert self.program is not None, "zones are made of programs"
        exact = reading.sure and not (reading.mixed or self._slow)
        count = score_kernels.find_candidates(
            self.code,
            self.program.depth,
            reading.low,
            reading.high,
            reading.mixed,
            self.program.sign,
            exact,
            (self.constants, self.constants, self.worst[0]),
            (self._low[0], self._high[0], self.worst[1]),
            (self._low[1], self._high[1], self.worst[2]),
            self._found,
            self._scores,
        )
        places = self._found[:count]
        if not exact:
            return places, None
        zeros = self._zeros[:count]
        return places, Scores(
            self._scores[:count], zeros, self._floats[:count], self._known[:count]
        )


def _zoned(values: Floats, padding: float) -> Floats:
    """The last axis in pieces of 64, the last piece padded."""
    *others, size = values.shape
    pieces = -(-size // _LANES)
    short = pieces * _LANES - size
    padded = np.pad(values, [(0, 0)] * len(others) + [(0, short)], constant_values=padding)
    # Not -1 for the pieces: a score without constants has no lines, and 0 values fit any number.
    return padded.reshape(*others, pieces, _LANES)


def _order(constants: Floats) -> Integers:
    """An order with neighbours alike: halve along whatever varies most, down to blocks."""
    order = np.arange(constants.shape[1])
    ranks = np.array(
        [np.unique(column, return_inverse=True)[1] / max(1, column.size) for column in constants]
    )
    waiting = [(0, order.size)] if len(ranks) else []
    while waiting:
        first, end = waiting.pop()
        if end - first <= _LANES:
            continue
        part = ranks[:, order[first:end]]
        widest = int(np.ptp(part, axis=1).argmax())
        # A part ends where a block does, and a large one where a group of blocks does.
        unit = _LANES if end - first <= _LANES**2 else _LANES**2
        middle = -(-(end - first) // unit) // 2 * unit
        order[first:end] = order[first:end][np.argpartition(part[widest], middle)]
        waiting += [(first, first + middle), (first + middle, end)]
    return order


def _distinct(kinds: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The columns that occur; nearly always there is one, and sorting them all is slow."""
    if kinds.size and (kinds == kinds[:, :1]).all():
        return kinds[:, :1].T
    return np.unique(kinds, axis=1).T


class _History:
    """The publications of the longest window, each once: attributes in columns, and the rest."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.first = 0
        """The sequence number at index 0 of the columns."""
        self.ats: Floats = np.zeros(_LOOSE_MIN)
        self._begin = self._count = 0
        self._columns: dict[Path, tuple[Floats, npt.NDArray[np.uint8]]] = {}
        self._spans: Counter[float] = Counter()

    @property
    def end(self) -> int:
        """The sequence number of the next publication."""
        return self.first + self._count

    def hold(self, span: float) -> None:
        """Somebody has a window of so many seconds."""
        self._spans[span] += 1

    def release(self, span: float) -> None:
        self._spans[span] -= 1
        if not self._spans[span]:
            del self._spans[span]

    def track(self, paths: Iterable[Path]) -> None:
        """The attributes to keep in columns; new ones begin now."""
        self._columns = {path: self._columns.get(path) or self._column() for path in paths}

    def _column(self) -> tuple[Floats, npt.NDArray[np.uint8]]:
        return np.zeros(self.ats.size), np.zeros(self.ats.size, np.uint8)

    def append(self, entry: Entry) -> int:
        """Take in a publication; its sequence number."""
        if self._count == self.ats.size:
            self._tidy()
        index = self._count
        for path, (values, kinds) in self._columns.items():
            found: Any = look_up(entry.publication, path)
            if not is_number(found):
                kinds[index] = _MISSING
                continue
            values[index] = found
            huge = type(found) is int and abs(found) >= score_kernels.EXACT_MAX
            kinds[index] = _HUGE if huge else _WHOLE if type(found) is int else _FLOAT
        self.ats[index] = entry.at
        self.entries[self.first + index] = entry
        self._count += 1
        return self.first + index

    def forget(self, now: float) -> None:
        """Drop what has left the longest window."""
        longest = max(self._spans, default=0.0)
        while self._begin < self._count and self.ats[self._begin] + longest <= now:
            del self.entries[self.first + self._begin]
            self._begin += 1

    def _tidy(self) -> None:
        """Move what is left to the front, with room for as many again."""
        kept = slice(self._begin, self._count)
        size = max(_LOOSE_MIN, 2 * (self._count - self._begin))

        def moved(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
            fresh = np.zeros(size, column.dtype)
            fresh[: self._count - self._begin] = column[kept]
            return fresh

        self.ats = moved(self.ats)
        self._columns = {
            path: (moved(values), moved(kinds)) for path, (values, kinds) in self._columns.items()
        }
        self.first += self._begin
        self._count -= self._begin
        self._begin = 0

    def since(self, first_sequence: int) -> slice:
        """The indices of what is there from a sequence number on."""
        return slice(min(max(self._begin, first_sequence - self.first), self._count), self._count)

    def scores(self, columns: Columns, constants: Floats, past: slice, held: Held) -> Scores:
        """The scores that past publications had for one subscription."""
        program = columns.program
        assert program is not None, "without a program nothing is refilled"
        count = past.stop - past.start
        scores = empty_scores(count)
        tracked = [self._columns[path] for path in program.attributes]
        inputs = [values[past] for values, _ in tracked]
        inputs += [self.ats[past]] if program.timed else []
        kinds = np.array([kinds[past] for _, kinds in tracked]).reshape(len(tracked), count)
        mixed = any(program.whole) or bool(((kinds == _WHOLE) | (kinds == _HUGE)).any())
        doubts = np.empty(count)
        score_kernels.score_window(
            columns.code,
            program.depth,
            np.array(inputs).reshape(len(inputs), count),
            constants,
            mixed,
            program.sign,
            scores.scores,
            doubts,
        )
        asked = np.zeros(count, bool)
        asked[settle(scores, doubts, mixed)] = True
        for kind in _distinct(kinds):
            of_this_kind = (kinds == kind[:, np.newaxis]).all(axis=0)
            whole = result_is_whole(program, tuple((kind != _FLOAT).tolist()))
            scores.whole[of_this_kind] = bool(whole)
            if (kind == _HUGE).any() or whole is None:
                asked |= of_this_kind
        missing = (kinds == _MISSING).any(axis=0)
        scores.known[missing] = 0
        for i in np.flatnonzero(asked & ~missing).tolist():
            entry = self.entries[self.first + past.start + i]
            t = entry.at - held.accepted_at
            score = score_of(held.subscription, entry.publication, t) if t >= 0 else None
            scores.put(i, score, program.sign)
        return scores

    def state(self) -> dict[str, Any]:
        first = self.first + self._begin
        return {"first": first, "entries": [tuple(entry) for entry in self.entries.values()]}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.first = state["first"]
        for entry in state["entries"]:
            self.append(Entry(*entry))
