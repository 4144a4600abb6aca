"""Ranked subscriptions before and after the kernels are compiled.

The kernels of ranking take long to compile, and no caller should wait for them. So a subscription
that is added before gets the window of the language itself (`rove.lang.replay.RankedWindow`),
exact and slow: every publication is evaluated and everything is sorted anew. Once the kernels are
ready, windows move to the pool (`rove.match.ranked.pool`) with their members: those that have
members at once, since publications have to come in the order of time; empty ones a few at a time
between two turns (`merge_due`), or all before the next publication. Moving one takes 0.1 ms, or 0.3
ms if it has members.

The pool knows publications by numbers; their keys and attributes are kept here for as long as a
window may still deliver them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Self, cast

import msgspec

from rove.lang.oracle import Publication
from rove.lang.replay import Member, RankedWindow, WindowDelivery
from rove.lang.tree import Subscription
from rove.match import engine
from rove.match.index.rows import Positions
from rove.match.results import RankedDelivery
from rove.match.saved import PlainWindowState, WindowsState, plain_key

if TYPE_CHECKING:
    from rove.match.ranked.members import Records
    from rove.match.ranked.pool import RankedPool

_MOVED_AT_ONCE_MAX: Final = 128
"""Empty windows that one piece of work moves: some ten milliseconds."""
_ENTRIES_MIN: Final = 1_024


class _Plain(msgspec.Struct):
    """A window of the language, and the subscriber's state."""

    window: RankedWindow
    """It calls a publication by a number, which orders those of all windows, and its key."""
    me: Publication

    def state(self) -> PlainWindowState:
        """What `from_state` needs to go on."""
        members = [
            msgspec.structs.replace(member, key=plain_key(member.key))
            for member in self.window.members()
        ]
        window = self.window
        return PlainWindowState(window.subscription, window.accepted_at, members, dict(self.me))

    @classmethod
    def from_state(cls, state: PlainWindowState) -> Self:
        """What `state` was taken from."""
        window = RankedWindow(state.subscription, state.accepted_at, state.members)
        return cls(window, state.me)


class _Entry(NamedTuple):
    """The publication of a number of the pool."""

    key: object
    publication: Publication


class Windows:
    """All ranked subscriptions and their windows; time must not run backwards."""

    def __init__(self, *, shares: bool = True, spare: int | None = None) -> None:
        """Both are options of the pool."""
        self._plain: dict[int, _Plain] = {}
        self._pool: RankedPool | None = None
        self._shares, self._spare = shares, spare
        self._entries: dict[int, _Entry] = {}
        self._entries_max = _ENTRIES_MIN
        self._now = -math.inf
        """The latest time; it must not run back, since windows are queues."""
        self._published = 0

    def __len__(self) -> int:
        return len(self._plain) + (0 if self._pool is None else len(self._pool))

    def add(
        self,
        id: int,
        subscription: Subscription,
        accepted_at: float = 0.0,
        me: Publication | None = None,
    ) -> None:
        """Add a ranked subscription; its window begins empty."""
        pool = self._ready_pool()
        if id in self._plain:
            raise ValueError(f"subscription {id} is there already; remove it first")
        if pool is None:
            self._plain[id] = _Plain(RankedWindow(subscription, accepted_at), dict(me or {}))
        else:
            pool.add(id, subscription, accepted_at, me)

    def _ready_pool(self) -> RankedPool | None:
        """The pool, as soon as there can be one."""
        if self._pool is None and engine.can_rank():
            from rove.match.ranked.pool import RankedPool

            self._pool = RankedPool(shares=self._shares, spare=self._spare)
            self._move_past(self._pool)
        return self._pool

    def remove(self, id: int) -> None:
        """Remove a subscription and its window; KeyError if there is none."""
        if id in self._plain or self._pool is None:
            del self._plain[id]
        else:
            self._pool.remove(id)

    def set_state(self, id: int, me: Publication) -> None:
        """The whole new state of the subscriber; KeyError if there is none."""
        if id in self._plain or self._pool is None:
            self._plain[id].me = me
        else:
            self._pool.set_state(id, me)

    def publish(
        self, key: object, publication: Publication, at: float, matched: Positions
    ) -> list[RankedDelivery]:
        """Let time pass until `at`, then let a publication in, wherever it matches.

        `matched` are the subscriptions with a condition that holds.
        """
        self._move_time(at)
        pool = self._ready_pool()
        if pool is None:
            return self._publish_plain(key, publication, at)
        if self._plain:
            self._move(pool, list(self._plain))
        # Before it enters, since it may be in a window even if entering fails half-way.
        self._entries[pool.next_number] = _Entry(key, publication)
        pool.enter(publication, at, matched)
        deliveries = self._delivered(pool.take_deliveries())
        if len(self._entries) > self._entries_max:
            self._forget(pool)
        return deliveries

    def _move_time(self, now: float) -> None:
        if not now >= self._now:
            raise ValueError(f"the time {now} is before {self._now}; it must not run back")
        self._now = now

    def _publish_plain(
        self, key: object, publication: Publication, at: float
    ) -> list[RankedDelivery]:
        self._published += 1
        named = (self._published, key)
        return _sorted(
            (id, one.window.publish(publication, at, one.me, named))
            for id, one in self._plain.items()
        )

    def advance(self, now: float) -> list[RankedDelivery]:
        """Let time pass: members leave, others move up."""
        self._move_time(now)
        if self._pool is not None:  # what is plain beside it is empty
            return self._delivered(self._pool.advance(now))
        return _sorted((id, one.window.advance(now)) for id, one in self._plain.items())

    def next_change_at(self) -> float:
        """When to advance at the latest; infinity if nothing will leave by age."""
        if self._pool is not None:
            return self._pool.next_change_at()
        return min((one.window.next_change_at() for one in self._plain.values()), default=math.inf)

    def live_keys(self) -> list[object]:
        """The keys of the publications that some window may still deliver."""
        if self._pool is not None:
            self._forget(self._pool)
            return [entry.key for entry in self._entries.values()]
        members = (one.window.members() for one in self._plain.values())
        return [_named(member)[1] for some in members for member in some]

    def _forget(self, pool: RankedPool) -> None:
        """Drop the publications that no window may deliver any more."""
        self._entries = {number: self._entries[number] for number in pool.live_sequences().tolist()}
        self._entries_max = 2 * len(self._entries) + _ENTRIES_MIN

    def _delivered(self, records: Records) -> list[RankedDelivery]:
        """Records of the pool as deliveries."""
        if not records.size:
            return []
        scores: list[int | float] = records["score"].tolist()
        if records["whole"].any():
            exact = zip(scores, records["tail"].tolist(), records["whole"].tolist(), strict=True)
            scores = [int(score) + tail if whole else score for score, tail, whole in exact]
        found = [self._entries[number] for number in records["sequence"].tolist()]
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

    # -- moving to the pool --------------------------------------------------------------------

    def merge_due(self) -> _Move | None:
        """The next subscriptions to move to the pool, if any."""
        if self._plain and self._ready_pool() is not None and self._plain:
            return _Move(self)
        return None

    def move_some(self) -> None:
        """Move some empty windows to the pool."""
        if self._pool is not None:
            self._move(self._pool, list(islice(self._plain, _MOVED_AT_ONCE_MAX)))

    def _move_past(self, pool: RankedPool) -> None:
        """Move all windows that hold something, and what they hold, each publication once."""
        filled = {id: one for id, one in self._plain.items() if one.window.members()}
        members = {
            _named(member)[0]: member for one in filled.values() for member in one.window.members()
        }
        self._move(pool, filled)
        number_of: dict[int, int] = {}
        for named, member in sorted(members.items()):
            number = number_of[named] = pool.remember(member.publication, member.at)
            self._entries[number] = _Entry(_named(member)[1], member.publication)
        for id, one in filled.items():
            past = [(number_of[_named(member)[0]], member) for member in one.window.members()]
            pool.adopt(id, past)

    def _move(self, pool: RankedPool, ids: Collection[int]) -> None:
        for id in ids:
            one = self._plain.pop(id)
            pool.add(id, one.window.subscription, one.window.accepted_at, one.me)

    # -- saving --------------------------------------------------------------------------------

    def state(self) -> WindowsState:
        """Everything that `from_state` needs to go on."""
        if self._pool is not None:
            self._forget(self._pool)
        return WindowsState(
            self._now,
            self._published,
            {id: one.state() for id, one in self._plain.items()},
            None if self._pool is None else self._pool.state(),
            {
                number: (plain_key(entry.key), dict(entry.publication))
                for number, entry in self._entries.items()
            },
        )

    @classmethod
    def from_state(cls, state: WindowsState) -> Self:
        """What `state` was taken from. A pool needs its kernels, and waits for them."""
        windows = cls()
        windows._now = state.now
        windows._published = state.published
        windows._plain = {id: _Plain.from_state(plain) for id, plain in state.plain.items()}
        if state.pool is not None:
            from rove.match.ranked.pool import RankedPool

            windows._pool = RankedPool.from_state(state.pool)
            windows._entries = {
                number: _Entry(key, publication)
                for number, (key, publication) in state.entries.items()
            }
        return windows


class _Move:
    """Moves some windows to the pool. Is a `rove.match.matcher.Work`."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows

    def run(self) -> _Move:
        """Nothing can be done in another thread: windows change with every publication."""
        return self

    def install(self) -> None:
        """Move some."""
        self._windows.move_some()

    def abandon(self) -> None:
        """Nothing was begun."""


def _named(member: Member | WindowDelivery) -> tuple[int, object]:
    """The number and the key that a plain window calls a publication by."""
    return cast("tuple[int, object]", member.key)


def _sorted(delivered: Iterable[tuple[int, list[WindowDelivery]]]) -> list[RankedDelivery]:
    """Deliveries by time, then by subscription; those of one subscription are sorted already."""
    found = [
        RankedDelivery(id, _named(one)[1], one.at, one.score, one.promoted, one.publication)
        for id, deliveries in delivered
        for one in deliveries
    ]
    return sorted(found, key=lambda delivery: (delivery.at, delivery.subscription))
