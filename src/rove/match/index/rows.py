"""Rows: conjunctions of subscriptions as flat arrays, the form in which they are kept and merged.

A row says which keys (`rove.match.index.keys`) each of its subjects may have, and which bounds on
it move with `t`. Nothing of it depends on other rows but the ranks of strings, which are renumbered
when rows are put together; so a million rows are merged by a few dozen array operations and never
touched one by one. A row costs 21 bytes, and 20 more for every predicate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from rove.lang.sets import ValueSet
from rove.match.index.keys import FIRST_STRING, LAST, Keys, float_keys, spans, string_bounds
from rove.match.index.layout import AT_LEAST, AT_MOST, CHECK, MOVING

Integers: TypeAlias = npt.NDArray[np.int32]
Positions: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]


class Bound(NamedTuple):
    """`subject comparator base + slope * t`, with t held between `t_from` and `t_to`."""

    subject: int
    comparator: int
    base: float
    slope: float
    t_from: float = float("-inf")
    t_to: float = float("inf")


class IndexRow(msgspec.Struct, frozen=True):
    """One row before it is put with others."""

    id: int
    accepted_at: float
    flags: int
    sets: tuple[tuple[int, ValueSet], ...]
    """Subjects by number, each once."""
    bounds: tuple[Bound, ...] = ()


class Rows(msgspec.Struct, frozen=True, eq=False):
    """Many rows."""

    ids: Positions
    accepted: Floats
    flags: npt.NDArray[np.uint8]
    entry_starts: Positions
    """The entries of row r are those from entry_starts[r] to entry_starts[r + 1]."""
    entry_subjects: Integers
    """Entries of one subject are adjacent, and are alternatives."""
    entry_firsts: Keys
    entry_lasts: Keys
    bound_starts: Positions
    bound_tests: Integers
    """8 * subject + comparator."""
    bound_values: Floats
    """base, slope, t_from, t_to; four of them for every bound."""
    strings: Mapping[int, list[str]]
    """By subject the sorted bounds among which strings are ranked."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def entry_rows(self) -> Positions:
        """The row of each entry."""
        return np.repeat(np.arange(len(self)), np.diff(self.entry_starts))

    @property
    def bound_rows(self) -> Positions:
        """The row of each moving bound."""
        return np.repeat(np.arange(len(self)), np.diff(self.bound_starts))

    def taken(self, order: Positions) -> Rows:
        """The rows of these numbers, in this order; an empty one for -1."""
        entries, entry_starts = _ragged(self.entry_starts, order)
        bounds, bound_starts = _ragged(self.bound_starts, order)
        return Rows(
            self.ids[order],
            self.accepted[order],
            self.flags[order],
            entry_starts,
            self.entry_subjects[entries],
            self.entry_firsts[entries],
            self.entry_lasts[entries],
            bound_starts,
            self.bound_tests[bounds],
            self.bound_values.reshape(-1, 4)[bounds].ravel(),
            self.strings,
        )


def _ragged(starts: Positions, order: Positions) -> tuple[Positions, Positions]:
    """Positions of all parts of the chosen rows one after another, and where each row begins."""
    counts = np.where(order >= 0, np.diff(starts)[order], 0)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    shifts = np.repeat(starts[:-1][order] - (ends - counts), counts)
    return shifts + np.arange(total), np.concatenate([[0], ends])


# -- from conjunctions -----------------------------------------------------------------------


def from_rows(rows: Iterable[IndexRow]) -> Rows:
    """Rows that come one by one, as flat arrays."""
    ordered = list(rows)
    strings = _strings_of(ordered)
    ranks = {s: {text: i for i, text in enumerate(texts, 1)} for s, texts in strings.items()}
    none: dict[str, int] = {}
    entries: list[tuple[int, int, int]] = []
    bounds: list[Bound] = []
    entry_starts, bound_starts, flags = [0], [0], []
    for row in ordered:
        flag = row.flags | (MOVING if row.bounds else 0)
        for subject, allowed in row.sets:
            found = spans(allowed, ranks.get(subject, none))
            entries += [(subject, first, last) for first, last in found]
            flag |= CHECK if len(found) > 1 else 0
        bounds += row.bounds
        flags.append(flag)
        entry_starts.append(len(entries))
        bound_starts.append(len(bounds))
    return Rows(
        np.array([row.id for row in ordered], np.int64),
        np.array([row.accepted_at for row in ordered], np.float64),
        np.array(flags, np.uint8),
        np.array(entry_starts, np.int64),
        np.array([subject for subject, _, _ in entries], np.int32),
        np.array([first for _, first, _ in entries], np.uint64),
        np.array([last for _, _, last in entries], np.uint64),
        np.array(bound_starts, np.int64),
        np.array([8 * bound.subject + bound.comparator for bound in bounds], np.int32),
        np.array([value for bound in bounds for value in bound[2:]], np.float64),
        strings,
    )


def _strings_of(rows: Iterable[IndexRow]) -> dict[int, list[str]]:
    found: dict[int, set[str]] = {}
    for row in rows:
        for subject, allowed in row.sets:
            if allowed.strings and (texts := string_bounds(allowed)):
                found.setdefault(subject, set()).update(texts)
    return {subject: sorted(texts) for subject, texts in found.items()}


def from_boxes(
    ids: Positions,
    subjects: Sequence[int],
    lows: Floats,
    highs: Floats,
    speeds: Floats | None = None,
    accepted_at: float = 0.0,
) -> Rows:
    """Many boxes at once: `low <= value <= high` for each subject (a line of `lows`).

    Where both bounds are infinite the subject is not asked for; where one is, it must be a
    number. With `speeds`, both bounds move by so much a second, in all subjects asked for.
    Finite bounds must lie within ±2^53, where floats and integers do not get into each other's way.
    """
    finite = np.concatenate([lows[np.isfinite(lows)], highs[np.isfinite(highs)]])
    if np.isnan(lows).any() or np.isnan(highs).any() or (np.abs(finite) >= 2**53).any():
        raise ValueError("bounds must be numbers within ±2^53; infinite where there is none")
    asked = np.isfinite(lows) | np.isfinite(highs)
    row, subject = np.nonzero(asked.T)
    chosen = np.asarray(subjects, np.int32)[subject]
    starts = np.concatenate([[0], np.cumsum(asked.sum(axis=0))])
    low, high = lows[subject, row], highs[subject, row]
    nothing = np.zeros(len(ids) + 1, np.int64)
    if speeds is None:
        limits = np.finfo(np.float64)
        firsts = float_keys(np.maximum(low, limits.min))
        entries = starts, chosen, firsts, float_keys(np.minimum(high, limits.max))
        bounds: tuple[Any, Any, Any] = nothing, np.empty(0, np.int32), np.empty(0)
        flags = 0
    else:
        entries = nothing, np.empty(0, np.int32), np.empty(0, np.uint64), np.empty(0, np.uint64)
        slope = speeds[subject, row]
        tests = np.stack([8 * chosen + AT_LEAST, 8 * chosen + AT_MOST], axis=1).ravel()
        free = np.full(len(low), -np.inf), np.full(len(low), np.inf)
        values = np.stack([low, slope, *free, high, slope, *free], axis=1).reshape(-1, 4)
        is_bound = np.isfinite(values[:, 0])
        ends = np.concatenate([[0], np.cumsum(is_bound)])
        bounds = ends[2 * starts], tests[is_bound].astype(np.int32), values[is_bound].ravel()
        flags = MOVING
    accepted = np.full(len(ids), accepted_at)
    return Rows(ids, accepted, np.full(len(ids), flags, np.uint8), *entries, *bounds, {})


# -- merging ---------------------------------------------------------------------------------


def merged(parts: Sequence[Rows]) -> Rows:
    """All rows of several."""
    strings = _strings_together(parts)
    parts = [_renumbered(part, strings) for part in parts]
    return Rows(
        ids=np.concatenate([part.ids for part in parts]),
        accepted=np.concatenate([part.accepted for part in parts]),
        flags=np.concatenate([part.flags for part in parts]),
        entry_starts=_starts_together([part.entry_starts for part in parts]),
        entry_subjects=np.concatenate([part.entry_subjects for part in parts]),
        entry_firsts=np.concatenate([part.entry_firsts for part in parts]),
        entry_lasts=np.concatenate([part.entry_lasts for part in parts]),
        bound_starts=_starts_together([part.bound_starts for part in parts]),
        bound_tests=np.concatenate([part.bound_tests for part in parts]),
        bound_values=np.concatenate([part.bound_values for part in parts]),
        strings=strings,
    )


def _starts_together(starts: Sequence[Positions]) -> Positions:
    shifts = np.cumsum([0, *(one[-1] for one in starts)])
    shifted = [one[:-1] + shift for one, shift in zip(starts, shifts, strict=False)]
    return np.concatenate([*shifted, shifts[-1:]])


def _strings_together(parts: Sequence[Rows]) -> dict[int, list[str]]:
    found: dict[int, set[str]] = {}
    for part in parts:
        for subject, texts in part.strings.items():
            used = [texts[rank - 1] for rank in _ranks_in_use(part, subject)]
            found.setdefault(subject, set()).update(used)
    return {subject: sorted(texts) for subject, texts in found.items() if texts}


def _ranks_in_use(part: Rows, subject: int) -> list[int]:
    """The strings that still bound something; those of removed rows do not."""
    here, base = part.entry_subjects == subject, np.uint64(FIRST_STRING)
    firsts, lasts = part.entry_firsts[here], part.entry_lasts[here]
    ends = lasts[(lasts >= base) & (lasts != np.uint64(LAST))] - base + np.uint64(1)
    ranks = np.unique(np.concatenate([firsts[firsts > base] - base, ends]))
    return [int(rank) for rank in ranks]


def _renumbered(part: Rows, strings: Mapping[int, list[str]]) -> Rows:
    """`part` with its strings ranked among those of all parts.

    Also where the part has no bounds: its spans of all strings have open ends and stay.
    """
    firsts, lasts = part.entry_firsts.copy(), part.entry_lasts.copy()
    for subject, texts in part.strings.items():
        if texts == strings.get(subject):
            continue
        ranks = {text: i for i, text in enumerate(strings.get(subject, ()), 1)}
        new_ranks = np.array([0, *(ranks.get(text, 0) for text in texts)], np.uint64)
        base = np.uint64(FIRST_STRING)
        here = part.entry_subjects == subject
        begins = here & (firsts >= base)
        firsts[begins] = new_ranks[(firsts[begins] - base).astype(np.int64)] + base
        # The last key is one before the rank of the bound at which the span ends.
        ends = here & (lasts >= base) & (lasts != np.uint64(LAST))
        following = (lasts[ends] - base).astype(np.int64) + 1
        lasts[ends] = new_ranks[following] + base - np.uint64(1)
    return msgspec.structs.replace(part, entry_firsts=firsts, entry_lasts=lasts, strings=strings)
