"""PES, periodic evolving subscriptions: evaluated every so often, plain in between.

    add ──▶ version at t = 0 ──────────────▶ static index ◀── publications
      └───▶ evolution queue ──when due──▶ new version ─┘ (takes the place of the old one)

The queue is ordered by the time of the next evolution; every subscription has an interval of
its own. A publication costs what the static index costs, whatever the bounds are made of; in
exchange every subscription gets a new version once per interval, published or not. A version that
few publications meet is tried and not indexed (`rove.match.designs.version_index`). So an interval
of a millisecond costs 10 µs for each subscription and publication, and not 100.

**Declared staleness.** The version in use at a time T is that of the latest moment
`accepted_at + k * interval` that is not after T. Answers are exact for that moment, so they are
less than one interval old, and they depend on nothing but T: not on when `advance` was called,
nor how often. When several evolutions of one subscription have come due unseen, only the last
is made. A change of `me.` makes a new version for the moment of the old one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import msgspec
import numpy as np

from rove.lang.normal_form import Conjunction
from rove.lang.oracle import Publication, State
from rove.match.designs.design import (
    Answers,
    Counters,
    DesignState,
    Evolving,
    NewIndex,
    Versions,
    checked_seconds,
    in_order_of_time,
    refuse_second,
)
from rove.match.designs.version_index import VersionIndex
from rove.match.pairs import Pairs


class EvolutionQueue:
    """Ids ordered by the time that each is due: a binary heap that knows where everybody stands.

    Knowing the places costs a dictionary, and lets a removal leave nothing behind.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._places: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._heap)

    def __contains__(self, id: int) -> bool:
        return id in self._places

    def head_at(self) -> float:
        """When the first is due; infinity if there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def put(self, id: int, due_at: float) -> None:
        """Let an id be due at a time; one that waits already waits for the new time."""
        place = self._places.setdefault(id, len(self._heap))
        if place == len(self._heap):
            self._heap.append((due_at, id))
        self._settle((due_at, id), place)

    def take(self) -> int:
        """Remove and return the id that is due first."""
        _, id = self._heap[0]
        self.drop(id)
        return id

    def drop(self, id: int) -> None:
        """Remove an id."""
        place = self._places.pop(id)
        last = self._heap.pop()
        if place < len(self._heap):
            self._settle(last, place)

    def _settle(self, entry: tuple[float, int], place: int) -> None:
        """Put `entry` where it belongs, with a hole at `place` to begin from."""
        heap = self._heap
        while place > 0 and entry < heap[above := (place - 1) // 2]:
            self._set(heap[above], place)
            place = above
        while (below := 2 * place + 1) < len(heap):
            if below + 1 < len(heap) and heap[below + 1] < heap[below]:
                below += 1
            if entry < heap[below]:
                break
            self._set(heap[below], place)
            place = below
        self._set(entry, place)

    def _set(self, entry: tuple[float, int], place: int) -> None:
        self._heap[place] = entry
        self._places[entry[1]] = place


class _Periodic(msgspec.Struct):
    """One subscription and its version in the index."""

    evolving: Evolving
    interval_s: float
    turn: int = 0
    """How many intervals after its acceptance the version was made for."""
    moment: float = 0.0


class Pes:
    """Periodic evolving subscriptions over a static index."""

    def __init__(self, new_index: NewIndex) -> None:
        self.counters = Counters()
        self._index = VersionIndex(new_index)
        self._queue = EvolutionQueue()
        self._held: dict[int, _Periodic] = {}
        self._versions = Versions()
        self._accepted_at_max = -math.inf

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
        """Add a subscription that evolves every `option` seconds."""
        refuse_second(id, self._held)
        interval_s = checked_seconds("pes", option)
        one = _Periodic(Evolving.of(id, conjunctions, accepted_at, me, option), interval_s)
        self._held[id] = one
        self._accepted_at_max = max(self._accepted_at_max, accepted_at)
        self._make_version(one, accepted_at)
        if one.evolving.uses_time:
            self._versions.made(accepted_at)
            self._queue.put(id, accepted_at + interval_s)

    def remove(self, id: int) -> None:
        """Remove a subscription; KeyError if there is none of that id."""
        one = self._held.pop(id)
        self._index.drop(id)
        if one.evolving.uses_time:
            self._queue.drop(id)
            self._versions.dropped(one.moment)

    def set_state(self, id: int, me: State) -> None:
        """The subscriber's variables are now these: a new version, for the moment of the old."""
        one = self._held[id]
        one.evolving.me = dict(me)
        self._make_version(one, one.moment)

    def match(self, publications: Sequence[Publication], at: Sequence[float]) -> Pairs:
        """Who is interested in each of `publications`, after the evolutions due by its time."""
        answers = Answers(publications)
        run: list[int] = []  # publications between two evolutions, which the index meets together
        for position in in_order_of_time(at):
            if self.next_change_at() <= at[position]:
                answers.ask(self._index, run)
                self.advance(at[position])
            self.counters.stale_answers_possible += self._versions.made_before(at[position])
            run.append(position)
        answers.ask(self._index, run)
        return self._accepted(answers.pairs(), at)

    def advance(self, now: float) -> None:
        """Let everything evolve that is due by now, in the order that it was due in."""
        while self._queue.head_at() <= now:
            self._evolve(self._held[self._queue.take()], now)

    def next_change_at(self) -> float:
        """When the next subscription is due to evolve; infinity if none ever is."""
        return self._queue.head_at()

    def evaluated_at(self, id: int) -> float | None:
        """The moment of the version in use."""
        return self._held[id].moment

    def state(self) -> DesignState:
        """Everything that `from_state` needs to go on."""
        kept = tuple(one.evolving.kept(one.moment) for one in self._held.values())
        return DesignState(kept, msgspec.structs.replace(self.counters))

    @classmethod
    def from_state(cls, state: DesignState, new_index: NewIndex) -> Self:
        """The design that `state` was taken from; the queue follows from the moments."""
        found = cls(new_index)
        for kept in state.subscriptions:
            found.add(kept.id, kept.conjunctions, kept.accepted_at, kept.me, kept.option)
            one = found._held[kept.id]
            if one.evolving.uses_time and kept.evaluated_at is not None:
                found._evolve(one, kept.evaluated_at)
        found.counters = msgspec.structs.replace(state.counters)
        return found

    def _evolve(self, one: _Periodic, now: float) -> None:
        """Replace the version by the latest that is due, and queue for the one after it."""
        accepted_at = one.evolving.accepted_at
        turn = _turn(accepted_at, one.interval_s, now)
        self.counters.evolutions += 1
        self.counters.evolutions_skipped += max(turn - one.turn - 1, 0)
        # Counted from the acceptance, never from the last evolution: rounding must not add up.
        moment = min(accepted_at + turn * one.interval_s, now)
        next_at = max(accepted_at + (turn + 1) * one.interval_s, math.nextafter(now, math.inf))
        self._versions.dropped(one.moment)
        self._versions.made(moment)
        one.turn = turn
        self._make_version(one, moment)
        self._queue.put(one.evolving.id, next_at)

    def _make_version(self, one: _Periodic, moment: float) -> None:
        self._index.put(one.evolving, moment)
        one.moment = moment
        self.counters.evaluations += 1

    def _accepted(self, found: Pairs, at: Sequence[float]) -> Pairs:
        """Without the pairs whose publication appeared before the subscription was accepted."""
        if not len(at) or min(at) >= self._accepted_at_max:
            return found
        pairs = zip(found.publications.tolist(), found.subscriptions.tolist(), strict=True)
        accepted = [at[position] >= self._held[id].evolving.accepted_at for position, id in pairs]
        kept = np.array(accepted, np.bool_)
        return Pairs(found.publications[kept], found.subscriptions[kept])


def _turn(accepted_at: float, interval_s: float, now: float) -> int:
    """The last turn that is due by now, by the very sum that says when it is due."""
    turn = math.floor((now - accepted_at) / interval_s)
    if accepted_at + (turn + 1) * interval_s <= now:
        return turn + 1
    return turn - 1 if accepted_at + turn * interval_s > now else turn
