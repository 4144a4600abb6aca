"""Zone maps: which subscriptions may want a publication, found without looking at each.

Subscriptions with one shape of score are in blocks of 64 with similar constants. Each block, and
each group of 64 blocks, has the range of its constants and its worst threshold. The program of the
score is run over these ranges and so finds the blocks that could want a publication (see
`rove.match.ranked.scores`).
"""

from __future__ import annotations

import math
from typing import Final, Self

import numpy as np

from rove.match.ranked import kernels, score_kernels
from rove.match.ranked.members import Records
from rove.match.ranked.scores import (
    ConstantColumns,
    Floats,
    Integers,
    ProgramInputs,
    ScoreProgram,
    Scores,
)
from rove.match.saved import ColumnsState

_LANES: Final = score_kernels.LANES


class Zones(ConstantColumns):
    """Columns in blocks and groups of blocks, with what is best and worst in each."""

    def __init__(self, program: ScoreProgram) -> None:
        super().__init__(program)
        self.loose = 0
        """How many were added since the last ordering."""
        self._slow = program.uses_library
        self._make_room()

    def _make_room(self) -> None:
        """Empty zone maps for the present size."""
        size, wide = self.rows.size, self.constants.shape[0]
        blocks = size // _LANES
        groups = -(-blocks // _LANES)
        self.worst: tuple[Floats, Floats, Floats] = (
            np.full(size, -math.inf),
            np.full(blocks, -math.inf),
            np.full(groups, -math.inf),
        )
        """Thresholds of places, and the worst of each block and group; -inf where all are free."""
        self._low = [np.full((wide, count), math.inf) for count in (blocks, groups)]
        self._high = [np.full((wide, count), -math.inf) for count in (blocks, groups)]
        # A block more than there are places: the kernel writes first and counts then.
        self._found = np.empty(size + _LANES, np.int64)
        self._scores = np.empty(size + _LANES)
        self._zeros = np.zeros(size, np.int64)
        self._floats, self._known = np.zeros(size, np.uint8), np.ones(size, np.uint8)

    def change(self, place: int, constants: tuple[float, ...]) -> None:
        super().change(place, constants)
        for level, zone in enumerate((place // _LANES, place // _LANES**2)):
            low, high = self._low[level][:, zone], self._high[level][:, zone]
            np.minimum(low, constants, out=low)
            np.maximum(high, constants, out=high)
        self.loose += 1

    def remove(self, place: int) -> None:
        super().remove(place)
        kernels.set_threshold(self.worst, place, -math.inf)

    def grow(self) -> None:
        thresholds = self.worst[0]
        super().grow()
        self._map(np.concatenate([thresholds, np.full(thresholds.size, -math.inf)]))

    def _map(self, thresholds: Floats) -> None:
        """Zone maps of the current columns."""
        self._make_room()
        self.worst[0][:] = thresholds
        taken = self.rows >= 0
        lows: Floats = np.where(taken, self.constants, math.inf)
        highs: Floats = np.where(taken, self.constants, -math.inf)
        worst = thresholds
        for level in range(2):
            lows = self._low[level][:] = _zoned(lows, math.inf).min(axis=-1)
            highs = self._high[level][:] = _zoned(highs, -math.inf).max(axis=-1)
            worst = self.worst[level + 1][:] = _zoned(worst, -math.inf).max(axis=-1)

    def set_threshold(self, place: int, threshold: float) -> None:
        """Set the score that a publication must beat at a place."""
        kernels.set_threshold(self.worst, place, threshold)

    def put_in_order(self, pool_rows: Records) -> None:
        """Give similar subscriptions neighbouring places."""
        places = self.places()
        places = places[_order(self.constants[:, places])]
        size = self.rows.size
        thresholds = np.full(size, -math.inf)
        thresholds[: places.size] = self.worst[0][places]
        rows = np.full(size, -1, np.int64)
        rows[: places.size] = self.rows[places]
        constants = np.zeros_like(self.constants)
        constants[:, : places.size] = self.constants[:, places]
        self.rows, self.constants = rows, constants
        self._free, self._next = [], places.size
        pool_rows["place"][rows[: places.size]] = np.arange(places.size)
        self._map(thresholds)
        self.loose = 0

    @classmethod
    def restored(cls, state: ColumnsState, pool_rows: Records) -> Self:
        """What `state` was taken from, with the thresholds of the rows."""
        zones = cls.from_state(state)
        thresholds = np.full(zones.rows.size, -math.inf)
        places = zones.places()
        thresholds[places] = pool_rows["threshold"][zones.rows[places]]
        zones._map(thresholds)
        return zones

    def candidates(self, reading: ProgramInputs) -> tuple[Integers, Scores | None]:
        """The places whose threshold a publication may beat.

        Where numbers are floats and nothing is slow to compute, those whose threshold it does
        beat, with their scores.
        """
        assert self.program is not None, "zones are made of programs"
        exact = reading.sure and not (reading.mixed or self._slow)
        count = score_kernels.find_candidates(
            self.code,
            self.program.depth,
            reading.low,
            reading.high,
            reading.mixed,
            self.program.sign,
            exact,
            (self.constants, self.constants, self.worst[0]),
            (self._low[0], self._high[0], self.worst[1]),
            (self._low[1], self._high[1], self.worst[2]),
            self._found,
            self._scores,
        )
        places = self._found[:count]
        if not exact:
            return places, None
        zeros = self._zeros[:count]
        return places, Scores(
            self._scores[:count], zeros, self._floats[:count], self._known[:count]
        )


def _zoned(values: Floats, padding: float) -> Floats:
    """The last axis in pieces of 64, the last piece padded."""
    *others, size = values.shape
    pieces = -(-size // _LANES)
    short = pieces * _LANES - size
    padded = np.pad(values, [(0, 0)] * len(others) + [(0, short)], constant_values=padding)
    # Not -1 for the pieces: a score without constants has no lines, and 0 values fit any number.
    return padded.reshape(*others, pieces, _LANES)


def _order(constants: Floats) -> Integers:
    """An order with neighbours alike: halve along whatever varies most, down to blocks."""
    order = np.arange(constants.shape[1])
    ranks = np.array(
        [np.unique(column, return_inverse=True)[1] / max(1, column.size) for column in constants]
    )
    waiting = [(0, order.size)] if len(ranks) else []
    while waiting:
        first, end = waiting.pop()
        if end - first <= _LANES:
            continue
        part = ranks[:, order[first:end]]
        widest = int(np.ptp(part, axis=1).argmax())
        # A part ends where a block does, and a large one where a group of blocks does.
        unit = _LANES if end - first <= _LANES**2 else _LANES**2
        middle = -(-(end - first) // unit) // 2 * unit
        order[first:end] = order[first:end][np.argpartition(part[widest], middle)]
        waiting += [(first, first + middle), (first + middle, end)]
    return order
