"""A batch of publications as columns, and the scores of pairs computed from them.

Scores are made of numbers, so an attribute is a column of floats and a column of kinds: a float, an
integer, an integer that no float holds, or a value that a score cannot use. The kinds decide how a
score is computed, and whether only the oracle can compute it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np

from rove.lang.oracle import Publication
from rove.lang.values import Path, comparable, is_number, look_up
from rove.match.ranked import score_kernels
from rove.match.ranked.scores import (
    ConstantColumns,
    Floats,
    Integers,
    Marks,
    ScoreProgram,
    Scores,
    result_is_whole,
)

MISSING, WHOLE, FLOAT, HUGE = range(4)
"""Kinds of values of an attribute; HUGE is an integer that no float holds."""
_UNKNOWN, _ASK, _FLOATS, _MIXED = range(4)
"""A score is UNKNOWN, needs the oracle, or is computed, without integers or with some."""


class NumberColumn(NamedTuple):
    """One attribute of all publications of a batch."""

    values: Floats
    kinds: Marks


class Inputs:
    """The columns of a batch of publications that scores need, each made on first use."""

    def __init__(
        self,
        publications: Sequence[Publication],
        at: Floats,
        columns: Mapping[Path, NumberColumn] | None = None,
    ) -> None:
        self.publications = publications
        self.at = at
        self._columns = dict(columns or {})
        self._events: dict[ScoreProgram, Floats] = {}
        self._ways: dict[ScoreProgram, tuple[Marks, Marks]] = {}

    def __len__(self) -> int:
        return len(self.at)

    def column(self, path: Path) -> NumberColumn:
        """The numbers at a path; where there is none, it is MISSING."""
        found = self._columns.get(path)
        if found is None:
            if len(path) == 1:
                (name,) = path
                values = [comparable(one.get(name)) for one in self.publications]
            else:
                values = [look_up(one, path) for one in self.publications]
            found = self._columns[path] = column_of(values)
        return found

    def events(self, program: ScoreProgram) -> Floats:
        """The inputs of a program that come with a publication, a line each."""
        found = self._events.get(program)
        if found is None:
            lines = [self.column(path).values for path in program.attributes]
            lines += [self.at] if program.timed else []
            found = self._events[program] = np.array(lines).reshape(len(lines), len(self))
        return found

    def ways(self, program: ScoreProgram) -> tuple[Marks, Marks]:
        """By publication, how its score is computed, and whether that is an integer."""
        found = self._ways.get(program)
        if found is None:
            kinds = [self.column(path).kinds for path in program.attributes]
            firsts, which = _patterns(np.array(kinds, np.uint8).reshape(len(kinds), len(self)))
            by_pattern = [
                _way(program, [line[first] for line in kinds]) for first in firsts.tolist()
            ]
            ways, whole = np.array(by_pattern, np.uint8).reshape(-1, 2).T
            found = self._ways[program] = ways[which], whole[which]
        return found


def _patterns(kinds: Marks) -> tuple[Integers, Integers]:
    """Where each pattern of kinds (a column of them) occurs first, and which one each column is."""
    count = kinds.shape[1]
    if (kinds == kinds[:, :1]).all():
        # Nearly always; and to sort a long window takes longer than to score it.
        return np.zeros(min(count, 1), np.int64), np.zeros(count, np.int64)
    patterns = np.zeros(count, np.int64)
    for number, line in enumerate(kinds):
        patterns = 4 * patterns + line
        if number % 16 == 15:  # 64 bits have no room for many more
            patterns = np.unique(patterns, return_inverse=True)[1].astype(np.int64)
    _, firsts, which = np.unique(patterns, return_index=True, return_inverse=True)
    return firsts, which


def _way(program: ScoreProgram, kinds: Sequence[int]) -> tuple[int, bool]:
    """How a score is computed whose attributes have these kinds, and whether it is an integer."""
    whole = result_is_whole(program, tuple(bool(kind != FLOAT) for kind in kinds))
    if MISSING in kinds:
        return _UNKNOWN, False
    if whole is None or HUGE in kinds:
        return _ASK, False
    is_mixed = any(program.whole) or any(kind != FLOAT for kind in kinds)
    return (_MIXED if is_mixed else _FLOATS), whole


def column_of(found: Sequence[object]) -> NumberColumn:
    """Values of one attribute as a column."""
    if set(map(type, found)) == {float}:
        return NumberColumn(np.array(found, np.float64), np.full(len(found), FLOAT, np.uint8))
    kinds = [kind_of(value) for value in found]
    numbers = [value if kind else 0.0 for value, kind in zip(found, kinds, strict=True)]
    return NumberColumn(np.array(numbers, np.float64), np.array(kinds, np.uint8))


def kind_of(value: object) -> int:
    """The kind of a value."""
    if type(value) is float:
        return FLOAT
    if not is_number(value):
        return MISSING
    return HUGE if abs(cast(int, value)) >= score_kernels.EXACT_MAX else WHOLE


def score_pairs(
    columns: ConstantColumns,
    inputs: Inputs,
    numbers: Integers,
    places: Integers,
    chosen: Integers,
    scores: Scores,
) -> Integers:
    """Write the scores of `chosen` pairs; returns those that only the oracle can compute."""
    program = columns.program
    if program is None:
        return chosen
    ways, whole = inputs.ways(program)
    if whole.any():
        scores.whole[chosen] = whole[numbers[chosen]]
    asked = [np.empty(0, np.int64)]
    for way, pairs in _by_way(ways, numbers, chosen):
        if way == _ASK:
            asked.append(pairs)
        elif way != _UNKNOWN:
            unsure = np.empty(pairs.size + 1, np.int64)
            count = score_kernels.score_pairs(
                columns.code,
                program.depth,
                inputs.events(program),
                columns.constants,
                numbers,
                places,
                pairs,
                way == _MIXED,
                program.sign,
                scores.scores,
                scores.known,
                unsure,
            )
            asked.append(unsure[:count])
    return np.concatenate(asked)


def by_shape(shapes: Integers) -> Iterator[tuple[int, Integers]]:
    """The pairs of each shape, by its number from 0 on; most often there is but one."""
    if not shapes.size:
        return
    last = int(shapes.max())
    if last == shapes.min():
        if last >= 0:
            yield last, np.arange(shapes.size)
        return
    order = score_kernels.order_by_row(shapes + 1, last + 2)
    ends = np.cumsum(np.bincount(shapes + 1, minlength=last + 2))
    for shape in range(last + 1):
        if ends[shape] < ends[shape + 1]:
            yield shape, order[ends[shape] : ends[shape + 1]]


def _by_way(ways: Marks, numbers: Integers, chosen: Integers) -> Iterator[tuple[int, Integers]]:
    """The pairs by how their scores are computed; most often that is one way, too."""
    distinct = np.flatnonzero(np.bincount(ways)).tolist()
    if len(distinct) == 1:
        yield distinct[0], chosen
        return
    of_pairs = ways[numbers[chosen]]
    for way in distinct:
        yield way, chosen[of_pairs == way]
