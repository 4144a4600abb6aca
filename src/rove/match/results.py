"""The results of matching: pairs of publications and subscriptions, and ranked deliveries.

All parts of the room return these, whichever index or design computed them. They are arrays because
a batch can match millions of pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

import msgspec
import numpy as np

from rove.match.index.rows import Integers, Positions


class RankedDelivery(msgspec.Struct, frozen=True, gc=False):
    """A publication that a ranked subscription gets."""

    subscription: int
    key: object
    at: float
    score: int | float
    promoted: bool
    """False on arrival, True when it moved up because others left."""
    publication: Mapping[str, object]


class Pairs:
    """Publications and the subscriptions that they match: each pair once, by publication.

    A batch can match millions of pairs. The kernels count the pairs of each publication; the array
    of publications is only made when it is read, since it costs a quarter of the search.
    """

    __slots__ = ("_counts", "_publications", "subscriptions")

    def __init__(self, publications: Integers | None, subscriptions: Positions) -> None:
        self._publications = publications
        self._counts: Integers | None = None
        self.subscriptions = subscriptions
        """The ids that the subscriptions were added with, in no order within a publication."""

    @classmethod
    def counted(cls, counts: Integers, subscriptions: Positions) -> Self:
        """The pairs of which publication p has the next counts[p]."""
        pairs = cls(None, subscriptions)
        pairs._counts = counts
        return pairs

    @property
    def publications(self) -> Integers:
        """Positions in the batch, ascending."""
        if self._publications is None:
            assert self._counts is not None
            positions = np.arange(len(self._counts), dtype=np.int32)
            self._publications = np.repeat(positions, self._counts)
        return self._publications

    def starts(self, publications: int) -> Positions:
        """Where each of so many publications has its first pair, and where the last one ends."""
        starts = np.zeros(publications + 1, np.int64)
        if self._counts is None:
            np.cumsum(np.bincount(self.publications, minlength=publications), out=starts[1:])
        else:
            np.cumsum(self._counts, out=starts[1:])
        return starts

    def __len__(self) -> int:
        return len(self.subscriptions)


class Matches(Pairs):
    """The pairs of a batch, and what ranked subscriptions get, in order of time."""

    __slots__ = ("ranked",)

    def __init__(
        self,
        publications: Integers | None,
        subscriptions: Positions,
        ranked: Sequence[RankedDelivery] = (),
    ) -> None:
        super().__init__(publications, subscriptions)
        self.ranked = ranked

    @classmethod
    def of(cls, pairs: Pairs, ranked: Sequence[RankedDelivery] = ()) -> Matches:
        """These pairs, with the deliveries of ranked subscriptions."""
        matches = cls(pairs._publications, pairs.subscriptions, ranked)
        matches._counts = pairs._counts
        return matches
