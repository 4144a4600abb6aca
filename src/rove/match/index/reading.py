"""Publications that are a line of numbers each, one at a time, with next to nothing around it.

A sensor or a vehicle that matches its own readings has no use for dictionaries. A reader is made
once for the names of the attributes; then a reading is written into an array that is there
already, the kernel is called, and the ids are what it wrote: some 2 µs around the search.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from rove.lang.errors import PublicationError
from rove.match.index import layout
from rove.match.index.index import Index
from rove.match.index.rows import Floats, Positions
from rove.match.index.segment import Workspace

_COUNT: Final = 2 * layout.ID_COUNT


class Reader:
    """Matches readings of fixed attributes. One reader is for one thread."""

    def __init__(self, index: Index, names: Sequence[str]) -> None:
        self._index = index
        self._names = names
        self._workspace = Workspace()
        numbers = np.array([index.subjects.attribute(name) for name in names], np.int32)
        self._values = np.full(len(names), np.nan)
        self._at = np.zeros(1)
        for place, array in (
            (layout.STARTS, np.array([0, len(names)])),
            (layout.SLOT_SUBJECTS, numbers),
            (layout.RAWS, self._values.view(np.uint64)),
            (layout.AT, self._at),
            (layout.IS_ROUNDED, np.zeros(1, np.uint8)),
        ):
            self._workspace.set(place, array)

    def match(self, values: Floats, at: float) -> Positions:
        """The ids that get a reading: a finite number for each attribute, NaN if it is missing.

        Only for subscriptions whose boxes say everything.
        """
        kernel = self._index.ready_kernel()
        fits = len(values) == len(self._names) and math.isfinite(at)
        if kernel is None or not fits or np.isinf(values).any():
            return self._match_carefully(values, at)
        self._index.now = max(self._index.now, at)
        self._values[:] = values
        self._values[np.isnan(values)] = np.nan  # one that has no bits of its own
        self._at[0] = at
        frame = self._workspace.frame
        frame[_COUNT] = 0
        for segment in self._index.segments:
            segment.search(kernel, self._workspace, 1)
            if frame[2 * layout.DOUBT_COUNT]:
                self._index.refuse_columns()
        ids: Positions = self._workspace.array(layout.OUT_IDS)[: frame[_COUNT]].copy()
        if not any(segment.has_several for segment in self._index.segments):
            return ids
        return np.unique(np.where(ids < 0, ~ids, ids))

    def _match_carefully(self, values: Floats, at: float) -> Positions:
        """As columns, with their checks: something is wrong, or not compiled yet."""
        if len(values) != len(self._names):
            raise PublicationError(
                f"{len(values)} values came for {len(self._names)} attributes", "give one for each"
            )
        found = self._index.match_columns(self._names, values[np.newaxis], np.array([at]))
        return found.subscriptions
