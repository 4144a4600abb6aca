"""The regions of one topic filter as arrays: which contain another, and which two to merge.

Two rows for each attribute that must be a number: the negated low and the high, so that the larger
value is the wider bound in both; an attribute without bounds has infinity in both. For an attribute
that must be one of some strings, 64 bits: one for each string, by its hash; otherwise all of them.
What the arrays let through is only likely to contain a region, unless it is a box.

What a merge costs is estimated as the volume that the common box adds. Volumes are measured in
quantiles of the bounds themselves, since subscribers ask where something happens, so that a degree
of latitude and a microgram count alike. Each region keeps the cheapest partner that it was compared
with. Such an estimate may be too low when the partner has gone; then it is renewed before use.

A pass over 500 regions of six attributes takes some 10 µs to find containers, 50 µs for partners.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from rove.lang.values import Path
from rove.mesh.interest.regions import ALL_BITS, Region

_Floats: TypeAlias = npt.NDArray[np.float64]
_Row = TypeVar("_Row", bound=np.generic)
_CAPACITY = 32
_SAMPLE_MAX = 128
"""Bounds of one attribute that quantiles are estimated from."""
_LEAST_WIDTH = 1 / 256
"""A single value is not nothing: many publications may have it."""
_RIGID_SHARE = 1 / 8
"""How much of its box a region fills that is no box, as a guess: merging loses all the rest."""


class BoxTable:
    """Regions by slot."""

    def __init__(self) -> None:
        self._columns: dict[Path, int] = {}
        self._rows: _Floats = np.full((0, _CAPACITY), -math.inf)
        self._bit_columns: dict[Path, int] = {}
        self._bits = np.zeros((0, _CAPACITY), np.uint64)
        self._used = np.zeros(_CAPACITY, np.bool_)
        self._free: list[int] = []
        self._end = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, region: Region) -> int:
        """The slot of a new region."""
        slot = self._free.pop() if self._free else self._new_slot()
        for path in region.bounds:
            if path not in self._columns:
                self._new_column(path)
        for path in region.masks:
            if path not in self._bit_columns:
                self._new_bit_column(path)
        self._rows[:, slot] = self._query(region)
        self._bits[:, slot] = self._bit_query(region)
        self._used[slot] = True
        self._count += 1
        return slot

    def remove(self, slot: int) -> None:
        """Free a slot."""
        self._used[slot] = False
        self._free.append(slot)
        self._count -= 1

    def around(self, region: Region) -> list[int]:
        """The slots of what may contain a region; if it is a box, it does."""
        if not self._count:
            return []
        end = self._end
        found = self._used[:end] & (self._rows[:, :end] >= self._query(region)[:, None]).all(axis=0)
        if self._bit_columns:
            query = self._bit_query(region)[:, None]
            found &= ((self._bits[:, :end] & query) == query).all(axis=0)
        return found.nonzero()[0].tolist()

    def within(self, region: Region) -> list[int]:
        """The slots of what may lie in a region."""
        if not self._count or not region.bounds.keys() <= self._columns.keys():
            return []
        end = self._end
        found = self._used[:end] & (self._rows[:, :end] <= self._query(region)[:, None]).all(axis=0)
        if self._bit_columns:
            query = self._bit_query(region)[:, None]
            bits = self._bits[:, :end]
            found &= ((bits & query) == bits).all(axis=0)
        return found.nonzero()[0].tolist()

    def _query(self, region: Region) -> _Floats:
        values = [math.inf] * (2 * len(self._columns))
        for path, (low, high) in region.bounds.items():
            column = self._columns.get(path)
            if column is not None:
                values[2 * column] = -low
                values[2 * column + 1] = high
        return np.array(values)

    def _bit_query(self, region: Region) -> npt.NDArray[np.uint64]:
        values = [ALL_BITS] * len(self._bit_columns)
        for path, mask in region.masks.items():
            column = self._bit_columns.get(path)
            if column is not None:
                values[column] = mask
        return np.array(values, np.uint64)

    def _new_slot(self) -> int:
        if self._end == len(self._used):
            self._grow(2 * self._end)
        self._end += 1
        return self._end - 1

    def _grow(self, capacity: int) -> None:
        self._rows = _wider(self._rows, capacity)
        self._bits = _wider(self._bits, capacity)
        self._used = _wider(self._used, capacity)

    def _new_column(self, path: Path) -> None:
        self._columns[path] = len(self._columns)
        more = np.full((2, len(self._used)), math.inf)
        self._rows = np.concatenate((self._rows, more))

    def _new_bit_column(self, path: Path) -> None:
        self._bit_columns[path] = len(self._bit_columns)
        more = np.full((1, len(self._used)), ALL_BITS, np.uint64)
        self._bits = np.concatenate((self._bits, more))


def _wider(rows: npt.NDArray[_Row], capacity: int) -> npt.NDArray[_Row]:
    """The array with room for more slots; what is in the new ones does not matter."""
    found = np.zeros((*rows.shape[:-1], capacity), rows.dtype)
    found[..., : rows.shape[-1]] = rows
    return found


class MergeTable(BoxTable):
    """Regions by slot, with an estimate of which two are merged at the least cost."""

    def __init__(self) -> None:
        super().__init__()
        self._samples: list[list[float]] = []
        """For each column, bounds in order: a value's quantile is its place among them."""
        self._sampled = 0
        self._measured_again_at = 1.0
        """After so many samples all regions are measured again."""
        self._lows: _Floats = np.zeros((0, _CAPACITY))
        self._highs: _Floats = np.zeros((0, _CAPACITY))
        """The bounds as quantiles; 0 and 1 where there are none."""
        self._volumes: _Floats = np.zeros(_CAPACITY)
        self._costs: _Floats = np.full(_CAPACITY, math.inf)
        self._partners = np.zeros(_CAPACITY, np.int64)
        self._versions = np.zeros(_CAPACITY, np.int64)
        self._partner_versions = np.zeros(_CAPACITY, np.int64)
        self._regions: dict[int, Region] = {}
        self._unpaired: list[int] = []
        """Slots whose partners were not looked for yet."""

    def add(self, region: Region) -> int:
        """The slot of a new region."""
        slot = super().add(region)
        self._regions[slot] = region
        self._costs[slot] = math.inf
        self._unpaired.append(slot)
        self._sample(region)
        return slot

    def remove(self, slot: int) -> None:
        """Free a slot."""
        super().remove(slot)
        del self._regions[slot]
        self._costs[slot] = math.inf
        self._versions[slot] += 1

    def cheapest(self) -> tuple[float, int, int] | None:
        """The two regions whose merge adds least, with what it adds; None if there are no two."""
        if self._count < 2:
            return None
        self._measure()
        while True:
            slot = int(self._costs[: self._end].argmin())
            cost = float(self._costs[slot])
            if cost == math.inf:
                return None
            partner = int(self._partners[slot])
            if self._used[partner] and self._partner_versions[slot] == self._versions[partner]:
                return cost, slot, partner
            self._pair(slot)

    # -- estimates ---------------------------------------------------------------------

    def _sample(self, region: Region) -> None:
        """Take some of the bounds into the samples: all at first, later one in so many."""
        self._sampled += 1
        if self._sampled > _SAMPLE_MAX:
            return
        while len(self._samples) < len(self._columns):
            self._samples.append([])
        for path, bound in region.bounds.items():
            sample = self._samples[self._columns[path]]
            for value in bound:
                if abs(value) < 1e300:
                    insort(sample, value)

    def _measure(self) -> None:
        """Bring the estimates up to date."""
        if len(self._lows) < len(self._columns):
            more = len(self._columns) - len(self._lows)
            shape = (more, len(self._used))
            self._lows = np.concatenate((self._lows, np.zeros(shape)))
            self._highs = np.concatenate((self._highs, np.ones(shape)))
        if self._sampled >= self._measured_again_at:
            # The quantiles have changed; once the samples are full they do not any more.
            is_full = self._sampled >= _SAMPLE_MAX
            self._measured_again_at = math.inf if is_full else 2 * self._sampled
            self._unpaired = list(self._regions)
        unpaired = [slot for slot in dict.fromkeys(self._unpaired) if self._used[slot]]
        self._unpaired.clear()
        for slot in unpaired:
            self._locate(slot)
        for slot in unpaired:
            self._pair(slot)

    def _locate(self, slot: int) -> None:
        """Compute a region's bounds as quantiles, and its volume."""
        region = self._regions[slot]
        self._lows[:, slot], self._highs[:, slot] = 0.0, 1.0
        volume = 1.0 if region.is_box else _RIGID_SHARE
        for path, (low, high) in region.bounds.items():
            column = self._columns[path]
            sample = self._samples[column] if column < len(self._samples) else []
            begin = bisect_left(sample, low) / len(sample) if sample else 0.0
            end = bisect_right(sample, high) / len(sample) if sample else 1.0
            self._lows[column, slot], self._highs[column, slot] = begin, end
            volume *= min(1.0, end - begin + _LEAST_WIDTH)
        for mask in region.masks.values():
            volume *= mask.bit_count() / 64
        self._volumes[slot] = volume

    def _pair(self, slot: int) -> None:
        """Find the cheapest partner of a region, and tell the others of it."""
        end = self._end
        lows = np.minimum(self._lows[:, :end], self._lows[:, slot, None])
        highs = np.maximum(self._highs[:, :end], self._highs[:, slot, None])
        widths = highs - lows
        widths += _LEAST_WIDTH
        np.minimum(widths, 1.0, out=widths)
        costs = widths.prod(axis=0)
        if self._bit_columns:
            bits = self._bits[:, :end] | self._bits[:, slot, None]
            costs *= (np.bitwise_count(bits) / 64).prod(axis=0)
        costs -= self._volumes[:end]
        costs -= self._volumes[slot]
        costs[~self._used[:end]] = math.inf
        costs[slot] = math.inf
        partner = int(costs.argmin())
        self._costs[slot], self._partners[slot] = costs[partner], partner
        self._partner_versions[slot] = self._versions[partner]
        better = costs < self._costs[:end]
        better[slot] = False
        self._costs[:end][better] = costs[better]
        self._partners[:end][better] = slot
        self._partner_versions[:end][better] = self._versions[slot]

    def _grow(self, capacity: int) -> None:
        super()._grow(capacity)
        self._lows, self._highs = _wider(self._lows, capacity), _wider(self._highs, capacity)
        self._volumes = _wider(self._volumes, capacity)
        self._costs = _wider(self._costs, capacity)
        self._partners = _wider(self._partners, capacity)
        self._versions = _wider(self._versions, capacity)
        self._partner_versions = _wider(self._partner_versions, capacity)
