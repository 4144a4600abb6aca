"""Who gets what, as two arrays.

Of a million subscriptions a batch can match millions of pairs. Which publication a pair belongs
to is then told by how many each has; the array of it is made only for those who ask (it costs a
quarter of the search).
"""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt


class Pairs:
    """Publications and the subscriptions that they match: each pair once, by publication."""

    __slots__ = ("_counts", "_publications", "subscriptions")

    def __init__(
        self, publications: npt.NDArray[np.int32] | None, subscriptions: npt.NDArray[np.int64]
    ) -> None:
        self._publications = publications
        self._counts: npt.NDArray[np.int32] | None = None
        self.subscriptions = subscriptions
        """The ids that the subscriptions were added with, in no order within a publication."""

    @classmethod
    def counted(cls, counts: npt.NDArray[np.int32], subscriptions: npt.NDArray[np.int64]) -> Self:
        """The pairs of which publication p has the next counts[p]."""
        pairs = cls(None, subscriptions)
        pairs._counts = counts
        return pairs

    @property
    def publications(self) -> npt.NDArray[np.int32]:
        """Positions in the batch, ascending."""
        if self._publications is None:
            assert self._counts is not None
            positions = np.arange(len(self._counts), dtype=np.int32)
            self._publications = np.repeat(positions, self._counts)
        return self._publications

    def starts(self, publications: int) -> npt.NDArray[np.int64]:
        """Where each of so many publications has its first pair, and where the last one ends."""
        starts = np.zeros(publications + 1, np.int64)
        if self._counts is None:
            np.cumsum(np.bincount(self.publications, minlength=publications), out=starts[1:])
        else:
            np.cumsum(self._counts, out=starts[1:])
        return starts

    def __len__(self) -> int:
        return len(self.subscriptions)
