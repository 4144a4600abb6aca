"""Patterns and strings as numbers: keys, programs and ragged arrays, as automata store them.

A *key* is a run of plain characters that every string of a pattern contains; a *program* is the
whole pattern, one number for each character. Nothing here needs Numba.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rove.lang.patterns import Pattern

ANY: Final = -1
GAP: Final = -2
"""In a program, among the characters to meet: any character; any number of them."""
_START: Final = 0x110000
_END: Final = 0x110001
"""The marks around a string; no character has these numbers."""

Ints: TypeAlias = npt.NDArray[np.int32]


# -- keys and programs --------------------------------------------------------------------


class PatternKey(NamedTuple):
    """Adjacent characters that every string of a pattern contains, perhaps at one of its ends."""

    text: str
    at_start: bool
    at_end: bool
    is_all: bool
    """The pattern consists of its key only."""

    @property
    def size(self) -> int:
        return len(self.text) + self.at_start + self.at_end

    def is_bound_in(self, text: str) -> bool:
        """Whether a string that contains the characters has them at the required ends."""
        if self.at_start:
            return text == self.text if self.at_end else text.startswith(self.text)
        return text.endswith(self.text) if self.at_end else True

    def encoded(self) -> bytes:
        return _START_BYTES * self.at_start + _encoded(self.text) + _END_BYTES * self.at_end


def runs_of(pattern: Pattern) -> Iterator[PatternKey]:
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
            yield PatternKey(text, at_start, at_end, end - first == total)
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


class Ragged(NamedTuple):
    """Rows of different lengths in one array; row i is values[starts[i]:starts[i + 1]]."""

    values: Ints
    starts: Ints

    def read_only(self) -> tuple[Ints, Ints]:
        return read_only(self.values), read_only(self.starts)

    def lists(self) -> Iterator[list[int]]:
        for first, end in zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True):
            yield self.values[first:end].tolist()


def rows_of(lists: Iterable[list[int]]) -> Ragged:
    values: list[int] = []
    starts = [0]
    for each in lists:
        values += each
        starts.append(len(values))
    return Ragged(np.array(values, np.int32), np.array(starts, np.int32))


def rows_of_bytes(encoded: list[bytes]) -> Ragged:
    starts = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(each) // 4 for each in encoded], out=starts[1:])
    return Ragged(np.frombuffer(b"".join(encoded), np.int32), starts)


def joined(parts: list[Ragged]) -> Ragged:
    starts = [np.zeros(1, np.int32)]
    for part in parts:
        starts.append(part.starts[1:] + starts[-1][-1])
    return Ragged(np.concatenate([part.values for part in parts]), np.concatenate(starts))


def read_only(array: Ints) -> Ints:
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
