"""Where the patterns of a set are kept: in dictionaries while they wait, then in automata.

See `rove.match.patterns.texts` for the whole. A holder gives the numbers of its patterns that fit a
text, forgets single ones, and tells what it holds when holders are merged. Nothing here is loaded
from Numba before the first automaton is built or read.

Cost: a waiting pattern takes some hundred bytes of Python objects, and 0.05 µs for each text; one
in an automaton about 23 bytes for each of its characters (`rove.bench.match.texts`).
"""

from __future__ import annotations

import sys
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rove.lang.limits import PATTERN_STEPS_MAX, PATTERN_STEPS_PER_CHARACTER_MAX
from rove.lang.patterns import Pattern, fits, steps_per_character

ANY: Final = -1
GAP: Final = -2
"""In a program, among the characters to meet: any character; any number of them."""
_START: Final = 0x110000
_END: Final = 0x110001
"""The marks around a text; no character has these numbers."""

WAITING_MAX: Final = 64
WAITING_CHARACTERS_MAX: Final = 4_096
"""How many patterns wait in a dictionary, and how many characters their keys may have."""

Ints: TypeAlias = npt.NDArray[np.int32]


class Budget:
    """Steps that trying patterns on one publication may still take; what they did not decide."""

    __slots__ = ("left", "undecided")

    def __init__(self) -> None:
        self.left = PATTERN_STEPS_MAX
        self.undecided: list[int] = []
        """Patterns by number; whoever asks takes them out."""

    def extend(self, text: str) -> None:
        """A longer string may take longer."""
        self.left += PATTERN_STEPS_PER_CHARACTER_MAX * len(text)


class Contents(NamedTuple):
    """What a holder holds, row by row; the number of a removed pattern is -1."""

    keys: Rows
    programs: Rows
    """Empty for a pattern that is nothing but its key."""
    numbers: Ints


class Automaton:
    """An automaton over sorted keys, which never changes but for marks of removed patterns."""

    SAVED: Final = ("table", "keys", "key_starts", "numbers")

    def __init__(self, table: Ints, keys: Ints, key_starts: Ints, numbers: Ints) -> None:
        from rove.match.patterns import text_kernels

        self._walk = text_kernels.walk
        self._table = _fixed(table)
        self._keys = Rows(_fixed(keys), _fixed(key_starts))
        self._programs = Rows(*text_kernels.programs_of(self._table))
        self._sizes_min = _fixed(text_kernels.sizes_min_of(*self._programs))
        self._seen = text_kernels.unseen(self._table)
        self.numbers = np.array(numbers, np.int32)
        """By row; -1 marks a removed pattern."""
        self.alive = int(np.count_nonzero(self.numbers >= 0))

    @classmethod
    def built(cls, contents: Contents) -> Automaton:
        """The automaton of all patterns that were not removed."""
        from rove.match.patterns.text_kernels import packed, sort_rows

        kept = np.flatnonzero(contents.numbers >= 0).astype(np.int32)
        keys = contents.keys.taken(kept)
        order = np.empty(len(kept), np.int32)
        sort_rows(*keys.fixed(), order)
        keys, programs = keys.taken(order), contents.programs.taken(kept[order])
        table = packed(*keys.fixed(), *programs)
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
        """See `rove.match.patterns.text_kernels.walk`."""
        following: tuple[int, int, int] = self._walk(
            self._table, self._sizes_min, self._seen, self.numbers, text, found, count, left
        )
        return following

    def snapshot(self) -> Callable[[], Contents]:
        contents = Contents(self._keys, self._programs, self.numbers.copy())
        return lambda: contents

    def state(self) -> dict[str, Ints]:
        return dict(zip(self.SAVED, (self._table, *self._keys, self.numbers), strict=True))


class Waiting:
    """A few patterns (or, without kernels, all) by key, in dictionaries."""

    def __init__(self) -> None:
        self._patterns: dict[int, tuple[Key, Pattern]] = {}
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

    def add(self, number: int, key: Key, pattern: Pattern) -> None:
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

    def fitting(self, text: str, budget: Budget) -> list[int]:
        """The numbers of the patterns that fit, each once."""
        return [
            number
            for held in self._held_in(text)
            for number in self._by_text[held]
            if self._fits(number, text, budget)
        ]

    def _fits(self, number: int, text: str, budget: Budget) -> bool:
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

    def snapshot(self) -> Callable[[], Contents]:
        held = dict(self._patterns)

        def contents() -> Contents:
            programs = rows_of(
                [] if key.is_all else program_of(pattern) for key, pattern in held.values()
            )
            keys = _rows_of_bytes([key.encoded() for key, _ in held.values()])
            return Contents(keys, programs, np.array(list(held), np.int32))

        return contents


class Lengths:
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


# -- keys and programs --------------------------------------------------------------------


class Key(NamedTuple):
    """Characters that every text of a pattern holds side by side, perhaps at its very ends."""

    text: str
    at_start: bool
    at_end: bool
    is_all: bool
    """The pattern asks for nothing else."""

    @property
    def size(self) -> int:
        return len(self.text) + self.at_start + self.at_end

    def is_bound_in(self, text: str) -> bool:
        """Whether a text that holds the characters has them at the ends that are asked for."""
        if self.at_start:
            return text == self.text if self.at_end else text.startswith(self.text)
        return text.endswith(self.text) if self.at_end else True

    def encoded(self) -> bytes:
        return _START_BYTES * self.at_start + _encoded(self.text) + _END_BYTES * self.at_end


def runs_of(pattern: Pattern) -> Iterator[Key]:
    """Every run of plain characters, as long as it can be."""
    items, gaps = pattern.items, pattern.gaps
    total = len(items)
    first = 0
    while first < total:
        end = first
        while end < total and items[end] is not None and (end == first or not gaps >> end & 1):
            end += 1
        if end > first:
            at_start, at_end = first == 0 and not gaps & 1, end == total and not gaps >> total & 1
            text = "".join(item or "" for item in items[first:end])
            yield Key(text, at_start, at_end, end - first == total)
        first = max(end, first + 1)


def program_of(pattern: Pattern) -> list[int]:
    """The pattern as numbers: characters to meet, ANY and GAP."""
    found: list[int] = []
    for i, item in enumerate(pattern.items):
        if pattern.gaps >> i & 1:
            found.append(GAP)
        found.append(ANY if item is None else ord(item))
    if pattern.gaps >> len(pattern.items) & 1:
        found.append(GAP)
    return found


def pattern_of(program: list[int]) -> Pattern:
    """The pattern of a program."""
    items: list[str | None] = []
    gaps = 0
    for step in program:
        if step == GAP:
            gaps |= 1 << len(items)
        else:
            items.append(None if step == ANY else chr(step))
    return Pattern(tuple(items), gaps)


# -- rows ---------------------------------------------------------------------------------


class Rows(NamedTuple):
    """Rows of different lengths in one array; row i is values[starts[i]:starts[i + 1]]."""

    values: Ints
    starts: Ints

    def taken(self, chosen: Ints) -> Rows:
        """Some of the rows, in the order in which they are named."""
        from rove.match.patterns.text_kernels import gather

        sizes = np.diff(self.starts)[chosen]
        values = np.empty(int(sizes.sum()), np.int32)
        starts = np.empty(len(chosen) + 1, np.int32)
        gather(*self.fixed(), _fixed(chosen), values, starts)
        return Rows(values, starts)

    def fixed(self) -> tuple[Ints, Ints]:
        return _fixed(self.values), _fixed(self.starts)

    def lists(self) -> Iterator[list[int]]:
        for first, end in zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True):
            yield self.values[first:end].tolist()


def rows_of(lists: Iterable[list[int]]) -> Rows:
    values: list[int] = []
    starts = [0]
    for each in lists:
        values += each
        starts.append(len(values))
    return Rows(np.array(values, np.int32), np.array(starts, np.int32))


def _rows_of_bytes(encoded: list[bytes]) -> Rows:
    starts = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(each) // 4 for each in encoded], out=starts[1:])
    return Rows(np.frombuffer(b"".join(encoded), np.int32), starts)


def joined(parts: list[Rows]) -> Rows:
    starts = [np.zeros(1, np.int32)]
    for part in parts:
        starts.append(part.starts[1:] + starts[-1][-1])
    return Rows(np.concatenate([part.values for part in parts]), np.concatenate(starts))


def _fixed(array: Ints) -> Ints:
    """A view of `array` through which nothing can be written: what the kernels promise."""
    view = np.ascontiguousarray(array, np.int32).view()
    view.flags.writeable = False
    return view


def marked(text: str) -> Ints:
    """The characters of a text between its marks."""
    return np.frombuffer(_START_BYTES + _encoded(text) + _END_BYTES, np.int32)


def _encoded(text: str) -> bytes:
    """Four bytes a character; half surrogate pairs, which no text should hold, are kept."""
    return text.encode(_ENCODING, "surrogatepass")


_ENCODING: Final = f"utf-32-{'le' if sys.byteorder == 'little' else 'be'}"
_START_BYTES: Final = _START.to_bytes(4, sys.byteorder)
_END_BYTES: Final = _END.to_bytes(4, sys.byteorder)
