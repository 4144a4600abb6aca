"""Ranked subscriptions from the first second on: plainly until the kernels are there.

The kernels of `rove.match.ranked` take longest to compile, and nobody may wait for them on the
way. So what is added before that gets the window of the language itself
(`rove.lang.ranking.RankedWindow`), exact and slow: every publication is evaluated and everything
sorted anew. It stays there for as long as it lives, since its past is nowhere else; what is added
later goes to the quick ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import msgspec

from rove.lang.ranking import Delivery, RankedWindow
from rove.lang.tree import Subscription
from rove.match.engine import kernel
from rove.match.ranks import (
    Clock,
    Integers,
    Publication,
    Ranked,
    RankedDelivery,
    in_order,
)


class _Plain(msgspec.Struct):
    """A window of the language, and the subscriber's state."""

    window: RankedWindow
    me: Publication


class Windows:
    """Every ranked subscription, wherever its window is kept. Is a `Ranked`."""

    def __init__(self) -> None:
        self._plain: dict[int, _Plain] = {}
        self._quick: Ranked | None = None
        self._clock = Clock()

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
        if kernel() is None:
            self._plain[id] = _Plain(RankedWindow(subscription, accepted_at), dict(me or {}))
            return
        if self._quick is None:
            from rove.match.ranked import RankedIndex

            self._quick = RankedIndex()
        self._quick.add(id, subscription, accepted_at, me)

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
        found = [] if self._quick is None else self._quick.publish(key, publication, at, matched)
        if not self._plain:
            return found
        for id, one in self._plain.items():
            found += _told(id, one.window.publish(publication, at, one.me, key))
        return in_order(found)

    def advance(self, now: float) -> list[RankedDelivery]:
        """Let time pass: members leave, others move up."""
        self._clock.move(now)
        found = [] if self._quick is None else self._quick.advance(now)
        if not self._plain:
            return found
        for id, one in self._plain.items():
            found += _told(id, one.window.advance(now))
        return in_order(found)

    def next_change_at(self) -> float:
        """When to advance at the latest; infinity if nothing will leave by age."""
        changes = [one.window.next_change_at() for one in self._plain.values()]
        if self._quick is not None:
            changes.append(self._quick.next_change_at())
        return min(changes, default=math.inf)

    def live_keys(self) -> list[object]:
        """What the publications are called that some window may still deliver."""
        held = [] if self._quick is None else self._quick.live_keys()
        return held + [key for one in self._plain.values() for key in one.window.live_keys()]

    def state(self) -> dict[str, Any]:
        """Everything that `from_state` needs to go on."""
        return {
            "now": self._clock.now,
            "plain": {id: (one.window, dict(one.me)) for id, one in self._plain.items()},
            "quick": None if self._quick is None else self._quick.state(),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """What `state` was taken from. Quick windows need their kernels, and wait for them."""
        windows = cls()
        windows._clock = Clock(state["now"])
        windows._plain = {id: _Plain(*plain) for id, plain in state["plain"].items()}
        if state["quick"] is not None:
            from rove.match.ranked import RankedIndex

            windows._quick = RankedIndex.from_state(state["quick"])
        return windows


def _told(id: int, deliveries: list[Delivery]) -> list[RankedDelivery]:
    return [
        RankedDelivery(id, one.key, one.at, one.score, one.promoted, one.publication)
        for one in deliveries
    ]
