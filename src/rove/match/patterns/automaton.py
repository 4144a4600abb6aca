"""Containers for string patterns: dictionaries for new patterns, automata for the others.

See `rove.match.patterns.pattern_set` for the whole. A container finds the numbers of its patterns
that fit a string, removes single patterns, and gives its contents when containers are merged.
Nothing of Numba is imported before the first automaton is built or loaded.

Cost: a pattern in a dictionary takes some hundred bytes of Python objects, and 0.05 µs for each
string; one in an automaton about 23 bytes for each of its characters (`rove.bench.match.texts`).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rove.lang.limits import PATTERN_STEPS_MAX, PATTERN_STEPS_PER_CHARACTER_MAX
from rove.lang.patterns import Pattern, fits, steps_per_character
from rove.match.patterns.encoding import (
    Ints,
    PatternKey,
    Ragged,
    program_of,
    read_only,
    rows_of,
    rows_of_bytes,
)

WAITING_MAX: Final = 64
WAITING_CHARACTERS_MAX: Final = 4_096
"""How many patterns wait in a dictionary, and how many characters their keys may have."""


class PatternBudget:
    """Steps that trying patterns on one publication may still take; what they did not decide."""

    __slots__ = ("left", "undecided")

    def __init__(self) -> None:
        self.left = PATTERN_STEPS_MAX
        self.undecided: list[int] = []
        """Numbers of patterns; the caller clears the list."""

    def extend(self, text: str) -> None:
        """A longer string may take longer."""
        self.left += PATTERN_STEPS_PER_CHARACTER_MAX * len(text)


class PatternRows(NamedTuple):
    """What a holder holds, row by row; the number of a removed pattern is -1."""

    keys: Ragged
    programs: Ragged
    """Empty for a pattern that is nothing but its key."""
    numbers: Ints


class Automaton:
    """An automaton over sorted keys, which never changes but for marks of removed patterns."""

    SAVED: Final = ("table", "keys", "key_starts", "numbers")

    def __init__(self, table: Ints, keys: Ints, key_starts: Ints, numbers: Ints) -> None:
        from rove.match.patterns import automaton_kernels

        self._walk = automaton_kernels.walk
        self._table = read_only(table)
        self._keys = Ragged(read_only(keys), read_only(key_starts))
        self._programs = Ragged(*automaton_kernels.programs_of(self._table))
        self._sizes_min = read_only(automaton_kernels.sizes_min_of(*self._programs))
        self._seen = automaton_kernels.unseen(self._table)
        self.numbers = np.array(numbers, np.int32)
        """By row; -1 marks a removed pattern."""
        self.alive = int(np.count_nonzero(self.numbers >= 0))

    @classmethod
    def built(cls, contents: PatternRows) -> Automaton:
        """The automaton of all patterns that were not removed."""
        from rove.match.patterns.automaton_kernels import packed, sort_rows

        kept = np.flatnonzero(contents.numbers >= 0).astype(np.int32)
        keys = _taken(contents.keys, kept)
        order = np.empty(len(kept), np.int32)
        sort_rows(*keys.read_only(), order)
        keys, programs = _taken(keys, order), _taken(contents.programs, kept[order])
        table = packed(*keys.read_only(), *programs)
        return cls(table, *keys, contents.numbers[kept[order]])

    @property
    def total(self) -> int:
        """Patterns, the removed ones included."""
        return len(self.numbers)

    @property
    def characters(self) -> int:
        return len(self._keys.values)

    @property
    def nbytes(self) -> int:
        own = self._seen.nbytes + self._sizes_min.nbytes
        return int(own) + sum(array.nbytes for array in self.state().values())

    def remove(self, place: int) -> None:
        self.numbers[place] = -1
        self.alive -= 1

    def keep_only(self, kept: npt.NDArray[np.bool_]) -> None:
        """Remove all patterns but some."""
        self.numbers[~kept] = -1
        self.alive = int(np.count_nonzero(kept))

    def walk(self, text: Ints, found: Ints, count: int, left: int) -> tuple[int, int, int]:
        """See `rove.match.patterns.automaton_kernels.walk`."""
        following: tuple[int, int, int] = self._walk(
            self._table, self._sizes_min, self._seen, self.numbers, text, found, count, left
        )
        return following

    def snapshot(self) -> Callable[[], PatternRows]:
        contents = PatternRows(self._keys, self._programs, self.numbers.copy())
        return lambda: contents

    def state(self) -> dict[str, Ints]:
        return dict(zip(self.SAVED, (self._table, *self._keys, self.numbers), strict=True))


def _taken(rows: Ragged, chosen: Ints) -> Ragged:
    """Some of the rows, in this order."""
    from rove.match.patterns.automaton_kernels import gather

    sizes = np.diff(rows.starts)[chosen]
    values = np.empty(int(sizes.sum()), np.int32)
    starts = np.empty(len(chosen) + 1, np.int32)
    gather(*rows.read_only(), read_only(chosen), values, starts)
    return Ragged(values, starts)


class PendingPatterns:
    """A few patterns (or, without kernels, all) by key, in dictionaries."""

    def __init__(self) -> None:
        self._patterns: dict[int, tuple[PatternKey, Pattern]] = {}
        self._by_text: dict[str, list[int]] = {}
        self._by_size: Counter[int] = Counter()
        self.characters = 0

    @property
    def alive(self) -> int:
        return len(self._patterns)

    @property
    def is_full(self) -> bool:
        return self.alive >= WAITING_MAX or self.characters >= WAITING_CHARACTERS_MAX

    @property
    def nbytes(self) -> int:
        return 4 * self.characters

    def add(self, number: int, key: PatternKey, pattern: Pattern) -> None:
        self._patterns[number] = key, pattern
        self._by_text.setdefault(key.text, []).append(number)
        self._by_size[len(key.text)] += 1
        self.characters += key.size

    def remove(self, number: int) -> None:
        key, _ = self._patterns.pop(number)
        self._by_text[key.text].remove(number)
        if not self._by_text[key.text]:
            del self._by_text[key.text]
        self._by_size -= Counter([len(key.text)])
        self.characters -= key.size

    def fitting(self, text: str, budget: PatternBudget) -> list[int]:
        """The numbers of the patterns that fit, each once."""
        return [
            number
            for held in self._held_in(text)
            for number in self._by_text[held]
            if self._fits(number, text, budget)
        ]

    def _fits(self, number: int, text: str, budget: PatternBudget) -> bool:
        """Whether the whole of a text that holds the key fits the pattern."""
        key, pattern = self._patterns[number]
        if key.is_all:
            return key.is_bound_in(text)
        if len(text) < len(pattern.items):
            return False
        if budget.left <= 0:
            budget.undecided.append(number)
            return False
        budget.left -= len(text) * steps_per_character(pattern)
        return fits(pattern, text)

    def _held_in(self, text: str) -> Iterable[str]:
        """The keys that `text` holds: one by one, or every part of it that has a key's size."""
        if len(self._by_text) <= len(self._by_size) * len(text):
            return [key for key in self._by_text if key in text]
        parts = {text[i : i + size] for size in self._by_size for i in range(len(text) - size + 1)}
        return parts & self._by_text.keys()

    def snapshot(self) -> Callable[[], PatternRows]:
        held = dict(self._patterns)

        def contents() -> PatternRows:
            programs = rows_of(
                [] if key.is_all else program_of(pattern) for key, pattern in held.values()
            )
            keys = rows_of_bytes([key.encoded() for key, _ in held.values()])
            return PatternRows(keys, programs, np.array(list(held), np.int32))

        return contents


class LengthPatterns:
    """Patterns that ask for nothing but a length: exactly so long, or at least."""

    def __init__(self) -> None:
        self._exactly: dict[int, list[int]] = {}
        self._at_least: list[tuple[int, int]] = []
        """(length, number), sorted."""

    def add(self, pattern: Pattern, number: int) -> None:
        length = len(pattern.items)
        if pattern.gaps:
            insort(self._at_least, (length, number))
        else:
            self._exactly.setdefault(length, []).append(number)

    def remove(self, pattern: Pattern, number: int) -> None:
        length = len(pattern.items)
        if pattern.gaps:
            self._at_least.remove((length, number))
        else:
            self._exactly[length].remove(number)
            if not self._exactly[length]:
                del self._exactly[length]

    def fitting(self, length: int) -> list[int]:
        if not self._at_least and not self._exactly:
            return []
        end = bisect_right(self._at_least, length, key=lambda pair: pair[0])
        return [number for _, number in self._at_least[:end]] + self._exactly.get(length, [])
