"""A segment: rows that do not change any more, in a tree of blocks that is quick to search.

A row is one conjunction of a normal form. Its bounds become ranks (`rove.match.codes`), the
rows are put in an order in which neighbours are alike, and the tree of `rove.match.kernels` is
packed over them. What a box cannot say is checked afterwards: sets with several spans (IN, !=)
and patterns in the kernel, everything that must be computed (arithmetic over attributes, `t`,
`me.`) by the caller, for the few rows that are left.

Removing a row clears a bit; the row is gone from the next merge on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from rove.lang.normal import Conjunction
from rove.lang.oracle import NO_STATE, Publication, value_of
from rove.lang.patterns import Pattern
from rove.lang.tree import Attribute, Call, ValueNode
from rove.lang.values import look_up
from rove.match.codes import Ranks, SubjectCodes, bounds_of
from rove.match.kernels import (
    CODE_MAX,
    FITS,
    MEMBER,
    MISSES,
    WIDTH,
    find,
    pack,
    pack_ranks,
    put_in_order,
)

_PAIRS_AT_FIRST = 4096

Rows = npt.NDArray[np.int32]
_Kind = TypeVar("_Kind", bound=np.generic)


def is_shared(subject: ValueNode) -> bool:
    """True for subjects that are worth a column: attributes, and `lower` of them.

    Others, such as the distance to one subscriber's home, differ in every subscription and are
    computed for the rows that are left.
    """
    return isinstance(subject, Attribute) or (
        isinstance(subject, Call)
        and subject.name == "lower"
        and isinstance(subject.arguments[0], Attribute)
    )


class Encoded:
    """A batch of publications in the codes of one segment."""

    __slots__ = ("codes", "fitting", "ranks")

    def __init__(self, ranks: Ranks, shifts: npt.NDArray[np.uint32], words: int) -> None:
        self.ranks = np.ascontiguousarray(ranks)
        self.codes = (self.ranks >> shifts).astype(np.uint16)
        self.fitting = np.zeros((len(ranks), words), np.uint64)


class Segment:
    """An immutable index over rows; row numbers are positions in `conjunctions`."""

    def __init__(self, conjunctions: Sequence[Conjunction]) -> None:
        self.size = len(conjunctions)
        self._subjects = _subjects_of(conjunctions)
        self._places = {subject: i for i, subject in enumerate(self._subjects)}
        self._codes = _codes_of(self._subjects, conjunctions)
        self._patterns = _patterns_of(self._places, conjunctions)
        firsts, lasts = self._boxes(conjunctions)
        self._pack(firsts, lasts)
        self._check_starts, self._checks = self._checks_of(conjunctions)

    # -- building ----------------------------------------------------------------------

    def _boxes(self, conjunctions: Sequence[Conjunction]) -> tuple[Ranks, Ranks]:
        """First and last rank of every subject and row; without a set, all ranks."""
        shape = (len(self._subjects), self.size)
        firsts = np.zeros(shape, np.uint32)
        lasts = np.empty(shape, np.uint32)
        lasts[:] = self._last_ranks()
        for row, conjunction in enumerate(conjunctions):
            for subject, allowed in conjunction.sets.items():
                place = self._places.get(subject)
                if place is not None:
                    spans = self._codes[place].spans(allowed)
                    firsts[place, row], lasts[place, row] = spans[0][0], spans[-1][1]
        return firsts, lasts

    def _pack(self, firsts: Ranks, lasts: Ranks) -> None:
        self._shifts = np.array([codes.shift for codes in self._codes], np.uint32)
        lows, highs = self._cut(firsts, lasts)
        order = np.arange(self.size, dtype=np.int32)
        put_in_order(np.concatenate([lows, CODE_MAX - highs]), order)
        self._rows = _padded(order[np.newaxis], -1)[0]
        self._places_of_rows = np.argsort(order)
        self._alive = _blocks_of_ones(self.size)
        lows, highs = _padded(lows[:, order], CODE_MAX), _padded(highs[:, order], 0)
        self._levels, self._starts, self._keys, self._columns = _packed_levels(lows, highs)
        self._full = np.empty(0, np.uint32)
        if self._shifts.any():
            leaves = self._starts[: self._levels[1] + 1]
            self._full = np.empty(leaves[-1] * WIDTH, np.uint32)
            ranks = _padded(firsts[:, order], 0), _padded(lasts[:, order], 0)
            pack_ranks(*ranks, leaves, self._keys, self._full)

    def _cut(
        self, firsts: Ranks, lasts: Ranks
    ) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint16]]:
        """Ranks as codes of 16 bits; what reaches the last rank excludes nothing above."""
        lows = (firsts >> self._shifts[:, np.newaxis]).astype(np.uint16)
        highs = (lasts >> self._shifts[:, np.newaxis]).astype(np.uint16)
        highs[lasts == self._last_ranks()] = CODE_MAX
        return lows, highs

    def _last_ranks(self) -> Ranks:
        """The last rank of each subject, as a column."""
        return np.array([codes.total - 1 for codes in self._codes], np.uint32).reshape(-1, 1)

    def _checks_of(
        self, conjunctions: Sequence[Conjunction]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """What the kernel has to look at after the boxes, row by row."""
        starts = [0]
        checks: list[int] = []
        for conjunction in conjunctions:
            for subject, allowed in conjunction.sets.items():
                place = self._places.get(subject)
                if place is None:
                    continue
                spans = self._codes[place].spans(allowed)
                if len(spans) > 1:
                    checks += [MEMBER, place, len(spans), *(end for span in spans for end in span)]
                for kind, patterns in ((FITS, allowed.fitting), (MISSES, allowed.missing)):
                    for pattern in patterns:
                        checks += [kind, self._patterns[place, pattern], 0]
            starts.append(len(checks))
        if not checks:
            return np.empty(0, np.int64), np.empty(0, np.int32)
        return np.array(starts, np.int64), np.array(checks, np.int32)

    # -- changing ----------------------------------------------------------------------

    def remove(self, row: int) -> None:
        """Let `row` match no more."""
        place = int(self._places_of_rows[row])
        self._alive[place // WIDTH] &= ~np.uint64(1 << place % WIDTH)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(
            value.nbytes for value in self.__dict__.values() if isinstance(value, np.ndarray)
        )

    # -- matching ----------------------------------------------------------------------

    def match(self, publications: Sequence[Publication]) -> tuple[Rows, Rows]:
        """(publication, row) pairs; what must be computed is left to the caller."""
        return self.find(self.encode(publications))

    def encode(self, publications: Sequence[Publication]) -> Encoded:
        """Publications in this segment's codes."""
        ranks = np.zeros((len(publications), len(self._subjects)), np.uint32)
        words = (len(self._patterns) + 63) // 64
        encoded_texts: list[tuple[int, int]] = []
        for number, publication in enumerate(publications):
            for place, subject in enumerate(self._subjects):
                value = _value(subject, publication)
                ranks[number, place] = self._codes[place].rank(value)
                if words and isinstance(value, str):
                    encoded_texts += [
                        (number, bit)
                        for (where, pattern), bit in self._patterns.items()
                        if where == place and pattern.matches(value)
                    ]
        encoded = Encoded(ranks, self._shifts, words)
        for number, bit in encoded_texts:
            encoded.fitting[number, bit >> 6] |= np.uint64(1 << (bit & 63))
        return encoded

    def find(self, encoded: Encoded) -> tuple[Rows, Rows]:
        """The pairs of an encoded batch."""
        first = 0
        room = _PAIRS_AT_FIRST
        found: list[tuple[Rows, Rows]] = [(np.empty(0, np.int32), np.empty(0, np.int32))]
        while first < len(encoded.codes):
            publications, rows = np.empty(room, np.int32), np.empty(room, np.int32)
            count, following = find(
                self._starts,
                self._keys,
                self._columns,
                self._full,
                self._levels,
                self._alive,
                self._rows,
                self._check_starts,
                self._checks,
                encoded.codes,
                encoded.ranks,
                encoded.fitting,
                first,
                publications,
                rows,
            )
            found.append((publications[:count], rows[:count]))
            room *= 2
            first = following
        if len(found) == 2:
            return found[1]
        return (
            np.concatenate([publications for publications, _ in found]),
            np.concatenate([rows for _, rows in found]),
        )


def _value(subject: ValueNode, publication: Publication) -> object:
    if isinstance(subject, Attribute):
        return look_up(publication, subject.path)
    return value_of(subject, publication, 0.0, NO_STATE)


def _subjects_of(conjunctions: Sequence[Conjunction]) -> list[ValueNode]:
    found = {subject: None for c in conjunctions for subject in c.sets if is_shared(subject)}
    return list(found)


def _codes_of(subjects: list[ValueNode], conjunctions: Sequence[Conjunction]) -> list[SubjectCodes]:
    bounds: Mapping[ValueNode, tuple[set[int | float], set[str]]] = {
        subject: (set(), set()) for subject in subjects
    }
    for conjunction in conjunctions:
        for subject, allowed in conjunction.sets.items():
            if subject in bounds:
                numbers, strings = bounds_of(allowed)
                bounds[subject][0].update(numbers)
                bounds[subject][1].update(strings)
    return [SubjectCodes(*bounds[subject]) for subject in subjects]


def _patterns_of(
    places: Mapping[ValueNode, int], conjunctions: Sequence[Conjunction]
) -> dict[tuple[int, Pattern], int]:
    """A number for every pattern that is asked of a subject."""
    found = {
        (places[subject], pattern): None
        for conjunction in conjunctions
        for subject, allowed in conjunction.sets.items()
        if subject in places
        for pattern in (*allowed.fitting, *allowed.missing)
    }
    return {pattern: number for number, pattern in enumerate(found)}


def _packed_levels(
    lows: npt.NDArray[np.uint16], highs: npt.NDArray[np.uint16]
) -> tuple[npt.NDArray[np.int64], ...]:
    """Every level of the tree, leaves first, in one set of arrays."""
    levels, starts, keys, columns = [0], [np.zeros(1, np.int64)], [], []
    while True:
        level_starts, level_keys, level_columns = _packed(lows, highs)
        starts.append(level_starts[1:] + starts[-1][-1])
        keys.append(level_keys)
        columns.append(level_columns)
        levels.append(levels[-1] + lows.shape[1] // WIDTH)
        if lows.shape[1] == WIDTH:
            break
        groups = (lows.shape[0], lows.shape[1] // WIDTH, WIDTH)
        lows = _padded(lows.reshape(groups).min(axis=2), CODE_MAX)
        highs = _padded(highs.reshape(groups).max(axis=2), 0)
    return (
        np.array(levels, np.int64),
        np.concatenate(starts),
        np.concatenate(keys),
        np.concatenate(columns),
    )


def _packed(
    lows: npt.NDArray[np.uint16], highs: npt.NDArray[np.uint16]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint16], npt.NDArray[np.uint16]]:
    """One level: counted first, then written."""
    starts = np.empty(lows.shape[1] // WIDTH + 1, np.int64)
    nothing = np.empty(0, np.uint16)
    count = pack(lows, highs, starts, nothing, nothing)
    keys, columns = np.empty(count, np.uint16), np.empty(count * WIDTH, np.uint16)
    pack(lows, highs, starts, keys, columns)
    return starts, keys, columns


def _padded(table: npt.NDArray[_Kind], filling: int) -> npt.NDArray[_Kind]:
    """`table` with columns added until their number is a multiple of 64."""
    missing = -table.shape[1] % WIDTH
    padded = np.pad(table, ((0, 0), (0, missing)), constant_values=filling)
    return np.ascontiguousarray(padded)  # np.pad keeps the order of what it was given


def _blocks_of_ones(count: int) -> npt.NDArray[np.uint64]:
    bits = np.zeros(-(-max(count, 1) // WIDTH) * WIDTH, np.uint8)
    bits[:count] = 1
    return np.packbits(bits, bitorder="little").view(np.uint64)
