"""What all parts of ranking share: deliveries, questions about ranks, and the clock."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from rove.lang.tree import Literal, Rank, Subscription

Integers = npt.NDArray[np.int64]
Publication = Mapping[str, object]

SPARE: Final = 8
"""How many members beyond 2k the list of a ranked subscription keeps when it is cut."""


class RankedDelivery(msgspec.Struct, frozen=True, gc=False):
    """One publication delivered to a ranked subscription."""

    subscription: int
    key: object
    at: float
    score: int | float
    promoted: bool
    """False on arrival, True when it moved up because others left."""
    publication: Publication


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
    """The latest time. It must not run backwards, since windows are queues."""

    __slots__ = ("now",)

    def __init__(self, now: float = -math.inf) -> None:
        self.now = now

    def move(self, now: float) -> None:
        if not now >= self.now:
            raise ValueError(f"the time {now} lies before {self.now}; it must not run back")
        self.now = now
