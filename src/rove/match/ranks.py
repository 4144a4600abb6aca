"""What everything that ranks has in common: what is delivered, what can be asked, what time it is.

Three implementations stand behind `Ranked`: the strict skyband, the pruned lists, and the plain
windows of the language itself, which serve until the kernels of the others are compiled. This
module needs no kernels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from rove.lang.tree import Literal, Rank, Subscription

Integers = npt.NDArray[np.int64]
Publication = Mapping[str, object]


class RankedDelivery(msgspec.Struct, frozen=True, gc=False):
    """One publication delivered to a ranked subscription."""

    subscription: int
    key: object
    at: float
    score: int | float
    promoted: bool
    """False on arrival, True when it moved up because others left."""
    publication: Publication


class Past(NamedTuple):
    """A publication that a window holds already."""

    number: int
    """Larger than that of every publication that came before it, and the same in every window."""
    key: object
    publication: Publication
    at: float
    score: int | float
    delivered: bool


class Started(NamedTuple):
    """A ranked subscription whose window holds something already."""

    id: int
    subscription: Subscription
    accepted_at: float
    me: Publication
    past: Sequence[Past]
    """In the order of arrival."""


class Ranked(Protocol):
    """Many ranked subscriptions and their windows; time is an argument and never runs back."""

    def add(
        self,
        id: int,
        subscription: Subscription,
        accepted_at: float = 0.0,
        me: Publication | None = None,
    ) -> None: ...

    def remove(self, id: int) -> None: ...

    def set_state(self, id: int, me: Publication) -> None: ...

    def publish(
        self, key: object, publication: Publication, at: float, matched: Integers
    ) -> list[RankedDelivery]: ...

    def advance(self, now: float) -> list[RankedDelivery]: ...

    def next_change_at(self) -> float: ...

    def live_keys(self) -> list[object]: ...

    def state(self) -> dict[str, Any]: ...

    def __len__(self) -> int: ...


def rank_of(subscription: Subscription) -> Rank:
    """The rank of a ranked subscription; ValueError for another."""
    if subscription.rank is None:
        raise ValueError("the subscription has no ORDER BY; only ranked ones have a window")
    return subscription.rank


def is_conditional(subscription: Subscription) -> bool:
    """False if every publication matches, as the literal TRUE says."""
    condition = subscription.condition
    return type(condition) is not Literal or condition.value is not True


def in_order(deliveries: Iterable[RankedDelivery]) -> list[RankedDelivery]:
    """By time, then by subscription; of one subscription they are in order already."""
    return sorted(deliveries, key=lambda delivery: (delivery.at, delivery.subscription))


class Clock:
    """The last moment heard of, for time must not run back: windows are queues."""

    __slots__ = ("now",)

    def __init__(self, now: float = -math.inf) -> None:
        self.now = now

    def move(self, now: float) -> None:
        if not now >= self.now:
            raise ValueError(f"the time {now} lies before {self.now}; it must not run back")
        self.now = now
