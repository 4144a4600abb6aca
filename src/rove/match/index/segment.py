"""A segment: rows that never change, and the tree that searches them.

It consists of one buffer (`rove.match.index.layout`) and the strings that occur in bounds of its
rows. Removing a row clears a bit; the next merge drops the row. As long as the kernels are not
compiled, segments are scanned with NumPy: the same answers, at the cost of checking every row.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rove.lang.tree import Comparator
from rove.match.index import layout
from rove.match.index.batch import SlotBatch, Slots, Text, TextColumn, raw
from rove.match.index.keys import FIRST_STRING, LAST, NULL, OPAQUE, Keys
from rove.match.index.layout import COMPUTE, MOVING, MULTIPLE, WIDTH, Buffer, section
from rove.match.index.rows import Integers, Positions, Rows

Kernel = Callable[[Buffer, Buffer], None]
_NAN: Final = 0x7FF8_0000_0000_0000
_COMPARATORS: Final[tuple[Comparator, ...]] = (">=", ">", "<=", "<", "=")
"""In the order of `layout.AT_LEAST` to `layout.EQUAL`."""


class SegmentMatches(NamedTuple):
    """The results of a segment for a batch, by publication."""

    counts: Integers
    """By publication the number of its ids."""
    ids: Positions
    """Subscriptions; ~id where one may be found again through another of its rows."""
    doubtful: Integers
    """By publication the number of its doubts."""
    doubts: Integers
    """Rows that must be computed."""


class Workspace:
    """The arrays of a search, reused from search to search; one search at a time."""

    def __init__(self) -> None:
        self.arrays: dict[int, npt.NDArray[Any]] = {}
        """By place in the frame."""
        self._subjects = self._blocks = 0
        self.frame = np.zeros(2 * layout.FRAME, np.int64)
        for place, kind in _ROOM:
            self.set(place, np.zeros(_ROOM_AT_FIRST, kind))
        self._own: dict[int, npt.NDArray[Any]] = {
            layout.STARTS: np.zeros(2, np.int64),
            layout.SLOT_SUBJECTS: np.zeros(_ROOM_AT_FIRST, np.int32),
            layout.RAWS: np.zeros(_ROOM_AT_FIRST, np.uint64),
            layout.AT: np.zeros(1, np.float64),
            layout.IS_ROUNDED: np.zeros(1, np.uint8),
        }
        self._take_own()
        self._own_starts = int(self.frame[2 * layout.STARTS])

    def set(self, place: int, array: npt.NDArray[Any]) -> None:
        """Put an array into the frame."""
        self.arrays[place] = array
        self.frame[2 * place] = array.__array_interface__["data"][0]
        self.frame[2 * place + 1] = array.size

    def take(self, batch: SlotBatch) -> None:
        """Prepare for the publications of a batch."""
        self.set(layout.STARTS, batch.starts)
        self.set(layout.SLOT_SUBJECTS, batch.subjects)
        self.set(layout.RAWS, batch.raws)
        self.set(layout.AT, batch.at)
        self.set(layout.IS_ROUNDED, batch.rounded)
        for place in (layout.OUT_COUNTS, layout.OUT_DOUBTFUL):
            self.grow(place, len(batch))

    def take_one(self, slots: Slots, at: float) -> None:
        """Prepare for one publication, in existing arrays."""
        if self.frame[2 * layout.STARTS] != self._own_starts:
            self._take_own()
        arrays, count = self.arrays, len(slots.subjects)
        if arrays[layout.RAWS].size < count:
            self.grow(layout.SLOT_SUBJECTS, count)
            self.grow(layout.RAWS, count)
        arrays[layout.SLOT_SUBJECTS][:count] = slots.subjects
        arrays[layout.RAWS].view(np.float64)[:count] = slots.values
        arrays[layout.STARTS][1] = count
        arrays[layout.AT][0] = at
        arrays[layout.IS_ROUNDED][0] = slots.rounded

    def _take_own(self) -> None:
        """Put arrays of this workspace where those of a batch were."""
        for place, array in self._own.items():
            self.set(place, array)

    def taken_ids(self) -> Positions:
        """The ids that were found; many are returned without a copy, and a new array is made."""
        ids, count = self.arrays[layout.OUT_IDS], int(self.frame[2 * layout.ID_COUNT])
        if count < _HANDED_OVER_MIN:
            return ids[:count].copy()
        self.set(layout.OUT_IDS, np.empty(ids.size, np.int64))
        return ids[:count]

    def make_room(self, subjects: int, blocks: int) -> None:
        """Make ready for a segment of so many subjects and blocks."""
        if subjects <= self._subjects and blocks <= self._blocks:
            return
        for place, size in zip(
            _SIZED, (subjects, subjects, blocks, blocks, 2 * blocks), strict=True
        ):
            self.grow(place, size)
        self._subjects, self._blocks = max(subjects, self._subjects), max(blocks, self._blocks)

    def grow(self, place: int, size: int) -> None:
        """At least `size` elements; what was written is kept, the rest is 0."""
        before = self.arrays[place]
        if before.size < size:
            after = np.zeros(max(size, 2 * before.size), before.dtype)
            after[: before.size] = before
            self.set(place, after)


_ROOM_AT_FIRST: Final = 4096
_HANDED_OVER_MIN: Final = 1 << 16
_SIZED: Final = (layout.CODES, layout.KEYS, layout.NODES, layout.CHILDREN, layout.MASKS)
_ROOM: Final = (
    (layout.CODES, np.uint16),
    (layout.KEYS, np.uint64),
    (layout.NODES, np.int32),
    (layout.CHILDREN, np.int32),
    (layout.MASKS, np.uint64),
    (layout.OUT_COUNTS, np.int32),
    (layout.OUT_IDS, np.int64),
    (layout.OUT_DOUBTFUL, np.int32),
    (layout.OUT_DOUBTS, np.int32),
)


class Segment:
    """The rows of a buffer. Row numbers are positions in `rows()`."""

    def __init__(self, buffer: Buffer, strings: Mapping[int, list[str]]) -> None:
        self.buffer = buffer
        self.strings = strings
        """By subject of the matcher the sorted bounds among which strings are ranked."""
        is_short = buffer[2 * layout.SHORT_IDS + 1] > 0
        self.ids = section(buffer, layout.SHORT_IDS if is_short else layout.IDS)
        """By row; ~id where the subscription has several rows."""
        self.alive = section(buffer, layout.ALIVE)
        self.flags = section(buffer, layout.FLAGS)
        self.is_indexed = bool(buffer[2 * layout.TREE_STARTS + 1])
        self._sorted_ids = section(buffer, layout.SORTED_IDS)
        self._sorted_rows = section(buffer, layout.SORTED_ROWS)
        self._subjects = section(buffer, layout.SUBJECTS)
        self._entry_starts = section(buffer, layout.ENTRY_STARTS)
        self._entry_subjects = section(buffer, layout.ENTRY_SUBJECTS)
        self._scan_groups: tuple[Positions, Positions] | None = None
        self._matter = section(buffer, layout.STRINGS_MATTER)
        self._locals = section(buffer, layout.LOCALS)
        self.live = int(np.bitwise_count(self.alive).sum(dtype=np.int64))
        """Rows that were not removed."""
        self.built = len(self._sorted_ids)
        """Rows that it was made with, removed ones included, empty ones not."""
        times = section(buffer, layout.TIMES)
        self.begins_at, self.ends_at = float(times[0]), float(times[1])
        self.has_several = bool((self.flags & MULTIPLE).any())
        """True if some subscription may be found through several rows."""
        self.has_moving = bool(buffer[2 * layout.BOUND_TESTS + 1])

    def __len__(self) -> int:
        """Rows, empty ones and removed ones included."""
        return len(self.ids)

    # -- rows --------------------------------------------------------------------------------

    def live_rows_of(self, id: int) -> list[int]:
        """The rows of a subscription that were not removed."""
        first = int(np.searchsorted(self._sorted_ids, id))
        found = []
        for i in range(first, len(self._sorted_ids)):
            if self._sorted_ids[i] != id:
                break
            row = int(self._sorted_rows[i])
            if int(self.alive[row // WIDTH]) >> row % WIDTH & 1:
                found.append(row)
        return found

    def remove(self, id: int) -> list[int]:
        """Remove a subscription; returns the subjects that its rows used."""
        released: list[int] = []
        for row in self.live_rows_of(id):
            self.alive[row // WIDTH] &= ~np.uint64(1 << row % WIDTH)
            self.live -= 1
            first, end = self._entry_starts[row], self._entry_starts[row + 1]
            released += self._subjects[self._entry_subjects[first:end]].tolist()
        return released

    def subjects_in_use(self) -> dict[int, int]:
        """How often each subject is used."""
        rows = np.repeat(np.arange(len(self)), np.diff(self._entry_starts))
        live = self.live_rows()[rows]
        numbers, counts = np.unique(self._entry_subjects[live], return_counts=True)
        return dict(zip(self._subjects[numbers].tolist(), counts.tolist(), strict=True))

    def live_rows(self) -> npt.NDArray[np.bool_]:
        """By row, whether it is there and was not removed."""
        return np.unpackbits(self.alive.view(np.uint8), bitorder="little").view(np.bool_)

    def live_ids(self) -> Positions:
        """The subscriptions of the rows that were not removed."""
        ids = self.ids[self.live_rows()].astype(np.int64)
        return np.where(ids < 0, ~ids, ids)

    def rows(self) -> Rows:
        """The rows that were not removed, in the form in which they are merged."""
        buffer, count = self.buffer, len(self)
        subjects = section(buffer, layout.SUBJECTS)
        tests = section(buffer, layout.BOUND_TESTS)
        bound_starts = section(buffer, layout.BOUND_STARTS).astype(np.int64)
        limits = section(buffer, layout.BOUND_LIMITS).reshape(-1, 2)
        if not len(limits):
            limits = np.broadcast_to((-np.inf, np.inf), (len(tests), 2))
        values = section(buffer, layout.BOUND_VALUES).reshape(-1, 2)
        whole = Rows(
            np.where(self.ids < 0, ~self.ids, self.ids).astype(np.int64),
            np.broadcast_to(section(buffer, layout.ACCEPTED), count),
            self.flags,  # CHECK stays where a tree left something out: harmless, and rare
            section(buffer, layout.ENTRY_STARTS).astype(np.int64),
            subjects[section(buffer, layout.ENTRY_SUBJECTS)],
            section(buffer, layout.ENTRY_FIRSTS),
            section(buffer, layout.ENTRY_LASTS),
            bound_starts if len(bound_starts) else np.zeros(count + 1, np.int64),
            (8 * subjects[tests >> 3] + (tests & 7)).astype(np.int32),
            np.concatenate([values, limits], axis=1).ravel(),
            self.strings,
        )
        return whole.taken(np.flatnonzero(self.live_rows()))

    def bounds_at(self, row: int, at: float) -> list[tuple[int, Comparator, float | None]]:
        """A row's moving bounds where they are at a time: (subject, comparator, bound).

        None for a bound that has left the floats, as the evaluator has it.
        """
        buffer = self.buffer
        starts = section(buffer, layout.BOUND_STARTS)
        tests, values = section(buffer, layout.BOUND_TESTS), section(buffer, layout.BOUND_VALUES)
        limits, subjects = section(buffer, layout.BOUND_LIMITS), section(buffer, layout.SUBJECTS)
        accepted = section(buffer, layout.ACCEPTED)
        t = at - float(accepted[row if len(accepted) > 1 else 0])
        found: list[tuple[int, Comparator, float | None]] = []
        for i in range(starts[row], starts[row + 1]):
            moved = t
            if len(limits):
                moved = min(max(t, float(limits[2 * i])), float(limits[2 * i + 1]))
            bound = float(values[2 * i]) + float(values[2 * i + 1]) * moved
            subject, comparator = int(subjects[tests[i] >> 3]), _COMPARATORS[tests[i] & 7]
            found.append((subject, comparator, bound if math.isfinite(bound) else None))
        return found

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer."""
        return self.buffer.nbytes

    # -- matching ----------------------------------------------------------------------------

    def find(self, batch: SlotBatch, kernel: Kernel, workspace: Workspace) -> SegmentMatches:
        """Search the trees; what must be computed is left as a doubt.

        The workspace has taken the batch.
        """
        self._write_all_texts(batch)
        frame = workspace.frame
        frame[2 * layout.ID_COUNT] = 0
        self.search(kernel, workspace, len(batch))
        return SegmentMatches(
            workspace.arrays[layout.OUT_COUNTS][: len(batch)].copy(),
            workspace.taken_ids(),
            workspace.arrays[layout.OUT_DOUBTFUL][: len(batch)].copy(),
            workspace.arrays[layout.OUT_DOUBTS][: frame[2 * layout.DOUBT_COUNT]].copy(),
        )

    def search(self, kernel: Kernel, workspace: Workspace, publications: int) -> None:
        """Run the kernel until all is found; ids come after those that are there already."""
        workspace.make_room(len(self._matter), len(self.alive) + WIDTH)
        frame = workspace.frame
        frame[2 * layout.PUBLICATION] = frame[2 * layout.DOUBT_COUNT] = 0
        while True:
            kernel(self.buffer, frame)
            if frame[2 * layout.PUBLICATION] == publications:
                return
            for place in (layout.OUT_IDS, layout.OUT_DOUBTS):
                workspace.grow(place, 2 * workspace.arrays[place].size)

    def write_texts(self, raws: Keys, texts: Sequence[Text]) -> None:
        """The keys of strings among this segment's, each into its slot."""
        for text in texts:
            raws[text.slot] = raw(self._text_key(text.subject, text.text))

    def _write_all_texts(self, batch: SlotBatch) -> None:
        self.write_texts(batch.raws, batch.texts)
        for column in batch.text_columns:
            self._write_column(batch.raws, column)

    def _write_column(self, raws: Keys, column: TextColumn) -> None:
        subject = column.subject
        local = self._locals[subject] if subject < len(self._locals) else -1
        if local >= 0 and self._matter[local]:
            keys = [raw(self._text_key(subject, text)) for text in column.texts]
            raws[column.slots] = np.array(keys, np.uint64)[column.codes]
        else:  # here all strings are alike
            raws[column.slots] = raw(self._text_key(subject, ""))

    def _text_key(self, subject: int, text: str) -> int:
        local = self._locals[subject] if subject < len(self._locals) else -1
        if local < 0:
            return NULL
        if not self._matter[local]:
            return OPAQUE
        return FIRST_STRING + bisect_right(self.strings.get(subject, ()), text)

    # -- without kernels ---------------------------------------------------------------------

    def scan(self, batch: SlotBatch) -> SegmentMatches:
        """The same as `find`, by looking at every row with NumPy."""
        self._write_all_texts(batch)
        found = [self._scan_one(batch, publication) for publication in range(len(batch))]
        return SegmentMatches(
            np.array([len(ids) for ids, _ in found], np.int32),
            np.concatenate([np.empty(0, np.int64), *(ids for ids, _ in found)]),
            np.array([len(doubts) for _, doubts in found], np.int32),
            np.concatenate([np.empty(0, np.int32), *(doubts for _, doubts in found)]),
        )

    def _scan_one(self, batch: SlotBatch, publication: int) -> tuple[Positions, Integers]:
        alive = self._scanned(batch, publication)
        must_compute = (self.flags & COMPUTE) != 0
        if batch.rounded[publication]:
            must_compute |= (self.flags & MOVING) != 0
        return self.ids[alive & ~must_compute].astype(np.int64), np.flatnonzero(
            alive & must_compute
        ).astype(np.int32)

    def _scanned(
        self, batch: SlotBatch, publication: int, undecided: Sequence[int] = ()
    ) -> npt.NDArray[np.bool_]:
        """By row, whether entries and bounds let a publication through.

        Every entry on an `undecided` subject counts as satisfied.
        """
        keys = self._keys(batch, publication)
        at = float(batch.at[publication])
        alive = self.live_rows().copy()
        accepted = np.broadcast_to(section(self.buffer, layout.ACCEPTED), len(self))
        alive &= accepted <= at
        self._exclude_by_entries(alive, keys, undecided)
        if self.has_moving and not batch.rounded[publication]:
            t = at - accepted
            kept = alive & ((self.flags & COMPUTE) != 0) & (t > layout.T_MAX)
            self._exclude_by_bounds(alive, keys, t)
            alive |= kept
        return alive

    def undecided_ids(self, batch: SlotBatch, publication: int) -> set[int]:
        """The subscriptions for which a publication is undecided, by its undecided subjects."""
        undecided = batch.undecided[publication]
        self._write_all_texts(batch)
        asking = np.zeros(len(self), np.bool_)
        rows = np.repeat(np.arange(len(self)), np.diff(self._entry_starts))
        asking[rows[np.isin(self._subjects[self._entry_subjects], undecided)]] = True
        if not asking.any():
            return set()
        ids = self.ids[asking & self._scanned(batch, publication, undecided)].astype(np.int64)
        return set(np.where(ids < 0, ~ids, ids).tolist())

    def _keys(self, batch: SlotBatch, publication: int) -> Keys:
        """By subject of this segment, the key that a publication has."""
        keys = np.zeros(len(self._matter), np.uint64)
        slots = slice(batch.starts[publication], batch.starts[publication + 1])
        subjects, raws = batch.subjects[slots], batch.raws[slots]
        known = subjects < len(self._locals)
        here = self._locals[subjects[known]]
        sign = np.uint64(1 << 63)
        raws = np.where(raws == sign, np.uint64(0), raws)[known]
        made = np.where(raws & sign, ~raws, raws | sign)
        made[raws << np.uint64(1) == np.uint64(_NAN << 1 & LAST)] = NULL
        keys[here[here >= 0]] = made[here >= 0]
        return keys

    def _exclude_by_entries(
        self, alive: npt.NDArray[np.bool_], keys: Keys, undecided: Sequence[int]
    ) -> None:
        if not len(self._entry_subjects):
            return
        begins, rows = self._groups()
        seen = keys[self._entry_subjects]
        firsts = section(self.buffer, layout.ENTRY_FIRSTS)
        inside = (firsts <= seen) & (seen <= section(self.buffer, layout.ENTRY_LASTS))
        if undecided:
            inside |= np.isin(self._subjects[self._entry_subjects], undecided)
        if len(begins) < len(inside):
            inside = np.logical_or.reduceat(inside, begins)
        alive[rows[~inside]] = False

    def _groups(self) -> tuple[Positions, Positions]:
        """Where the alternatives for one subject of one row begin, and which row that is.

        Kept from scan to scan: it takes longer to find than to use.
        """
        if self._scan_groups is None:
            subjects = self._entry_subjects
            rows = np.repeat(np.arange(len(self)), np.diff(self._entry_starts))
            changes = (np.diff(rows, prepend=-1) != 0) | (np.diff(subjects, prepend=-1) != 0)
            begins = np.flatnonzero(changes)
            self._scan_groups = begins, rows[begins]
        return self._scan_groups

    def _exclude_by_bounds(
        self, alive: npt.NDArray[np.bool_], keys: Keys, t: npt.NDArray[np.float64]
    ) -> None:
        tests = section(self.buffer, layout.BOUND_TESTS)
        values = section(self.buffer, layout.BOUND_VALUES).reshape(-1, 2)
        limits = section(self.buffer, layout.BOUND_LIMITS).reshape(-1, 2)
        rows = np.repeat(np.arange(len(self)), np.diff(section(self.buffer, layout.BOUND_STARTS)))
        with np.errstate(over="ignore", invalid="ignore"):
            moved = np.clip(t[rows], limits[:, 0], limits[:, 1]) if len(limits) else t[rows]
            bounds = values[:, 0] + values[:, 1] * moved
        seen = _numbers(keys[tests >> 3])
        comparators = tests & 7
        holds = np.select(
            [comparators == comparator for comparator in range(5)],
            [seen >= bounds, seen > bounds, seen <= bounds, seen < bounds, seen == bounds],
            default=False,  # a number, as it is by itself, would make numbers of all
        ) & np.isfinite(bounds)
        alive[rows[~holds]] = False


def _numbers(keys: Keys) -> npt.NDArray[np.float64]:
    """The floats of keys; NaN for what is no number."""
    sign = np.uint64(1 << 63)
    found = np.where(keys & sign, keys ^ sign, ~keys).view(np.float64)
    is_number = (keys >= np.uint64(1 << 52)) & (keys < np.uint64(FIRST_STRING))
    return np.where(is_number, found, np.nan)
