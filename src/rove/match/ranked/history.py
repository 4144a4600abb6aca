"""The publications of the longest window, each once: lists are rebuilt from them.

Attributes are columns, since a list that became too short is refilled from the whole window; the
publications themselves are kept for the oracle, which some scores need. A publication that has left
the longest window is dropped with the next one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from rove.lang.oracle import Publication
from rove.lang.values import OPAQUE, Path, look_up
from rove.match.ranked.inputs import MISSING, Inputs, NumberColumn, kind_of
from rove.match.ranked.scores import Floats, Integers
from rove.match.saved import HistoryState

_SIZE_MIN: Final = 1_024


class History:
    """Publications in the order in which they came, under numbers without gaps."""

    def __init__(self) -> None:
        self.ats: Floats = np.zeros(_SIZE_MIN)
        self._publications: list[Publication] = []
        self._first = 0
        """The number of the publication at index 0 of the columns."""
        self._begin = self._count = 0
        self._columns: dict[Path, NumberColumn] = {}
        self._spans: Counter[float] = Counter()

    def __len__(self) -> int:
        return self._count - self._begin

    @property
    def end(self) -> int:
        """The number of the next publication."""
        return self._first + self._count

    def hold(self, span: float) -> None:
        """A subscription has a window of so many seconds."""
        self._spans[span] += 1

    def release(self, span: float) -> None:
        self._spans[span] -= 1
        if not self._spans[span]:
            del self._spans[span]

    def track(self, paths: Iterable[Path]) -> None:
        """The attributes to keep in columns; new ones begin now."""
        self._columns = {path: self._columns.get(path) or self._column() for path in paths}

    def _column(self) -> NumberColumn:
        return NumberColumn(np.zeros(self.ats.size), np.zeros(self.ats.size, np.uint8))

    def append(self, publication: Publication, at: float) -> int:
        """Add a publication; returns its number."""
        if self._count == self.ats.size:
            self._tidy()
        index = self._count
        for path, (values, kinds) in self._columns.items():
            found: Any = look_up(publication, path)
            kind = kinds[index] = kind_of(found)
            if kind != MISSING:
                values[index] = found
        self.ats[index] = at
        self._publications.append(publication)
        self._count += 1
        return self._first + index

    def forget(self, now: float) -> None:
        """Drop the publications that have left the longest window."""
        longest = max(self._spans, default=0.0)
        while self._begin < self._count and self.ats[self._begin] + longest <= now:
            self._publications[self._begin] = {}
            self._begin += 1

    def _tidy(self) -> None:
        """Move what is left to the front, with room for as many again."""
        size = max(_SIZE_MIN, 2 * len(self))

        def moved(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
            fresh = np.zeros(size, column.dtype)
            fresh[: len(self)] = column[self._begin : self._count]
            return fresh

        self.ats = moved(self.ats)
        self._columns = {
            path: NumberColumn(moved(values), moved(kinds))
            for path, (values, kinds) in self._columns.items()
        }
        del self._publications[: self._begin]
        self._first += self._begin
        self._count -= self._begin
        self._begin = 0

    def since(self, number: int) -> tuple[Integers, Inputs]:
        """The publications from a number on: their numbers, and the inputs of scores."""
        first = min(max(self._begin, number - self._first), self._count)
        past = slice(first, self._count)
        columns = {
            path: NumberColumn(values[past], kinds[past])
            for path, (values, kinds) in self._columns.items()
        }
        numbers = self._first + np.arange(first, self._count)
        return numbers, Inputs(self._publications[past], self.ats[past], columns)

    def numbers(self) -> Integers:
        """The numbers of all publications."""
        return self._first + np.arange(self._begin, self._count)

    def state(self) -> HistoryState:
        """Everything, as plain values."""
        ats = self.ats[self._begin : self._count].tolist()
        publications = map(dict, self._publications[self._begin :])
        return HistoryState(
            self._first + self._begin,
            list(zip(publications, ats, strict=True)),
            list(self._columns),
            dict(self._spans),
        )

    @classmethod
    def from_state(cls, state: HistoryState) -> Self:
        """What `state` was taken from."""
        history = cls()
        history._first = state.first
        history._spans = Counter(state.spans)
        history.track(state.paths)
        for publication, at in state.publications:
            history.append(publication, at)
        return history


def plain(row: Publication) -> dict[str, object]:
    """A row of a table, reduced to the values that scores can be made of."""
    found: dict[str, object] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            found[name] = plain(value)
        elif value is not OPAQUE:
            found[name] = value
    return found
