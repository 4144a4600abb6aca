"""A batch of publications as flat arrays, ready for any segment.

A *slot* is one subject of one publication: its number and the bits of its value. Numbers are stored
as they are; null, TRUE, FALSE and values that nothing can compare are bit patterns of NaNs, so one
rule in the kernel makes keys of all of them (`rove.match.index.keys`). The rank of a string differs
from segment to segment, so each segment writes the keys of the strings of a batch itself.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from rove.match.index.keys import FALSE, LAST, OPAQUE, TRUE, Keys
from rove.match.index.rows import Floats, Integers, Positions
from rove.match.patterns.automaton import PatternBudget

_SIGN: Final = 1 << 63


class Text(msgspec.Struct, frozen=True, gc=False):
    """A string in a slot."""

    slot: int
    subject: int
    text: str


class TextColumn(msgspec.Struct, frozen=True, eq=False):
    """Strings of one subject in many slots, each of the distinct ones once."""

    slots: Positions
    subject: int
    codes: Integers
    """By slot the number of its string."""
    texts: Sequence[str]


class Slots(msgspec.Struct, eq=False):
    """The subjects and values of publications, before they become arrays."""

    subjects: list[int] = []
    values: list[float] = []
    texts: list[Text] = []
    rounded: int = 0
    budget: PatternBudget | None = None
    """Of the current publication, once patterns are tried on it."""
    undecided: list[int] = []
    """Subjects that trying patterns on it did not decide."""

    def begin(self) -> None:
        """The slots of another publication follow."""
        self.rounded, self.budget, self.undecided = 0, None, []

    def add(self, subject: int, value: float) -> None:
        if subject >= 0:
            self.subjects.append(subject)
            self.values.append(value)


class SlotBatch(msgspec.Struct, frozen=True, eq=False):
    """Publications, when they appear, and their slots."""

    publications: Sequence[Mapping[str, object]]
    """As they came, for what must be computed; empty if they came as numbers alone."""
    at: Floats
    starts: Positions
    """The slots of publication p are those from starts[p] to starts[p + 1]."""
    subjects: Integers
    raws: Keys
    rounded: npt.NDArray[np.uint8]
    """By publication, 1 if it has an integer that no float can hold."""
    texts: Sequence[Text] = ()
    text_columns: Sequence[TextColumn] = ()
    undecided: Mapping[int, Sequence[int]] = {}
    """By publication the subjects that it took too many steps to decide, where there are any."""

    def __len__(self) -> int:
        return len(self.at)


def raw(key: int) -> int:
    """The bits of a slot that give this key."""
    return key ^ _SIGN if key & _SIGN else key ^ LAST


def _as_float(bits: int) -> float:
    (found,) = struct.unpack("<d", bits.to_bytes(8, "little"))
    return float(found)


RAW_FALSE, RAW_TRUE, RAW_OPAQUE = (_as_float(raw(key)) for key in (FALSE, TRUE, OPAQUE))
"""As floats, so that one list can contain them and numbers. (All are quiet NaNs, whose bits
survive copying.)"""
RAW_TEXT: Final = 0.0
"""The value in the slot of a string until a segment writes its key."""
