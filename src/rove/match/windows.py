"""Ranked subscriptions from the first second on: plainly until the kernels are there.

The kernels of `rove.match.ranked` take longest to compile, and nobody may wait for them on the
way. So what is added before that gets the window of the language itself
(`rove.lang.ranking.RankedWindow`), exact and slow: every publication is evaluated and everything
sorted anew. When the kernels are there, such a subscription moves to them with what its window
holds: empty ones a few at a time between two turns (`merge_due`), and all that are left at once,
before the next publication, since the kernels want publications in the order of time. To move one
takes 0.1 ms, or 0.3 ms if it holds something.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Self, cast

import msgspec

from rove.lang.ranking import Delivery, Member, RankedWindow
from rove.lang.tree import Subscription
from rove.match.engine import kernel
from rove.match.ranks import (
    Clock,
    Integers,
    Past,
    Publication,
    RankedDelivery,
    Started,
    in_order,
)

if TYPE_CHECKING:
    from rove.match.ranked import RankedIndex

_MOVED_AT_ONCE_MAX: Final = 128
"""Empty windows that one piece of work moves: some ten milliseconds."""


class _Plain(msgspec.Struct):
    """A window of the language, and the subscriber's state."""

    window: RankedWindow
    """It calls a publication by a number, which orders those of all windows, and its key."""
    me: Publication


class Windows:
    """Every ranked subscription, wherever its window is kept. Is a `Ranked`."""

    def __init__(self) -> None:
        self._plain: dict[int, _Plain] = {}
        self._quick: RankedIndex | None = None
        self._clock = Clock()
        self._published = 0

    def __len__(self) -> int:
        return len(self._plain) + (0 if self._quick is None else len(self._quick))

    def add(
        self,
        id: int,
        subscription: Subscription,
        accepted_at: float = 0.0,
        me: Publication | None = None,
    ) -> None:
        """Take in a ranked subscription; its window begins empty."""
        quick = self._kernels()
        if quick is None:
            self._plain[id] = _Plain(RankedWindow(subscription, accepted_at), dict(me or {}))
        else:
            quick.add(id, subscription, accepted_at, me)

    def _kernels(self) -> RankedIndex | None:
        """The quick windows, as soon as there can be any."""
        if self._quick is None and kernel() is not None:
            from rove.match.ranked import RankedIndex

            self._quick = RankedIndex()
        return self._quick

    def remove(self, id: int) -> None:
        """Forget a subscription and its window; KeyError if there is none."""
        if id in self._plain or self._quick is None:
            del self._plain[id]
        else:
            self._quick.remove(id)

    def set_state(self, id: int, me: Publication) -> None:
        """The whole new state of the subscriber; KeyError if there is none."""
        if id in self._plain or self._quick is None:
            self._plain[id].me = me
        else:
            self._quick.set_state(id, me)

    def publish(
        self, key: object, publication: Publication, at: float, matched: Integers
    ) -> list[RankedDelivery]:
        """Let time pass until `at`, then let a publication in, wherever it matches."""
        self._clock.move(at)
        quick = self._kernels()
        if quick is None:
            return self._publish_plain(key, publication, at)
        due = self._move_all() if self._plain else []
        found = quick.publish(key, publication, at, matched)
        return in_order(due + found) if due else found

    def _publish_plain(
        self, key: object, publication: Publication, at: float
    ) -> list[RankedDelivery]:
        self._published += 1
        named = (self._published, key)
        return in_order(
            told
            for id, one in self._plain.items()
            for told in _told(id, one.window.publish(publication, at, one.me, named))
        )

    def advance(self, now: float) -> list[RankedDelivery]:
        """Let time pass: members leave, others move up."""
        self._clock.move(now)
        found = [] if self._quick is None else self._quick.advance(now)
        return in_order(found + self._advance_plain(now)) if self._plain else found

    def _advance_plain(self, now: float) -> list[RankedDelivery]:
        return [
            told for id, one in self._plain.items() for told in _told(id, one.window.advance(now))
        ]

    def next_change_at(self) -> float:
        """When to advance at the latest; infinity if nothing will leave by age."""
        due_at = math.inf if self._quick is None else self._quick.next_change_at()
        for one in self._plain.values():
            due_at = min(due_at, one.window.next_change_at())
        return due_at

    def live_keys(self) -> list[object]:
        """What the publications are called that some window may still deliver."""
        held = [] if self._quick is None else self._quick.live_keys()
        for one in self._plain.values():
            held += [key for _, key in map(_named, one.window.members())]
        return held

    # -- moving to the kernels -----------------------------------------------------------------

    def merge_due(self) -> _Move | None:
        """The next subscriptions to move to the kernels, if any."""
        return _Move(self) if self._plain and self._kernels() is not None else None

    def move_some(self) -> None:
        """Move some empty windows to the kernels, or all the others if there are none."""
        empty = (id for id, one in self._plain.items() if not one.window.members())
        ids = list(islice(empty, _MOVED_AT_ONCE_MAX))
        self._move(ids or list(self._plain))

    def _move_all(self) -> list[RankedDelivery]:
        """Move all that are left; what they had to deliver until now."""
        due = self._advance_plain(self._clock.now)
        self._move(list(self._plain))
        return due

    def _move(self, ids: Collection[int]) -> None:
        quick = self._kernels()
        assert quick is not None, "without kernels nothing moves"
        quick.adopt([_started(id, self._plain[id]) for id in ids], self._clock.now)
        for id in ids:
            del self._plain[id]

    # -- saving --------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything that `from_state` needs to go on."""
        return {
            "now": self._clock.now,
            "published": self._published,
            "plain": {id: (one.window, dict(one.me)) for id, one in self._plain.items()},
            "quick": None if self._quick is None else self._quick.state(),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """What `state` was taken from. Quick windows need their kernels, and wait for them."""
        windows = cls()
        windows._clock = Clock(state["now"])
        windows._published = state["published"]
        windows._plain = {id: _Plain(*plain) for id, plain in state["plain"].items()}
        if state["quick"] is not None:
            from rove.match.ranked import RankedIndex

            windows._quick = RankedIndex.from_state(state["quick"])
        return windows


class _Move:
    """A piece of the way to the kernels. Is a `rove.match.matcher.Work`."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows

    def run(self) -> _Move:
        """Nothing can be done beside: windows change with every publication."""
        return self

    def install(self) -> None:
        """Move some."""
        self._windows.move_some()

    def abandon(self) -> None:
        """Nothing was begun."""


def _named(member: Member | Delivery) -> tuple[int, object]:
    """The number and the key that a plain window calls a publication by."""
    return cast("tuple[int, object]", member.key)


def _started(id: int, one: _Plain) -> Started:
    """A plain window, as the kernels take it over."""
    past = [
        Past(*_named(member), member.publication, member.at, member.score, member.delivered)
        for member in one.window.members()
    ]
    return Started(id, one.window.subscription, one.window.accepted_at, one.me, past)


def _told(id: int, deliveries: list[Delivery]) -> list[RankedDelivery]:
    return [
        RankedDelivery(id, key, one.at, one.score, one.promoted, one.publication)
        for one in deliveries
        for _, key in (_named(one),)
    ]
