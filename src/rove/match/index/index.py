"""The index: conjunctions come and go, batches of publications come in, matches come out.

Rows are stored in *segments*, which never change, except for bits that mark removed rows. New rows
wait in a short list and are evaluated one by one. When there are enough of them, they become a
segment; when there are several segments of similar size, they are merged, as in a log-structured
store. So a row is moved a few times, and a publication searches a few trees.

Small segments are merged at once, in a few milliseconds. Merging a million rows takes seconds, so
it is left to the caller: `merge_due` returns what is worth merging, `SegmentMerge.run` merges it
(in any thread), and `install` replaces the segments, without the rows that were removed meanwhile.
Segments with moving bounds are due again before their horizon ends.

A condition on `me.` is compiled for the current state, so a change of state replaces the rows of a
subscription. A plain subscription consists of its rows only: some 50 bytes, and 20 for each
predicate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import index as as_integer
from typing import Final, NoReturn

import numpy as np
import numpy.typing as npt

from rove.lang.errors import PublicationError
from rove.lang.limits import INTEGER_MAX
from rove.lang.normal_form import Conjunction
from rove.lang.oracle import compare
from rove.lang.tree import Attribute, Me, walk
from rove.match import engine
from rove.match.conditions.residual import (
    PREPARED_FROM,
    FittingPatterns,
    Publication,
    ResidualConditions,
    State,
)
from rove.match.conditions.row_compiler import rows_of
from rove.match.index import layout
from rove.match.index.batch import SlotBatch, Slots
from rove.match.index.columns import PublicationTable, batch_of
from rove.match.index.construction import built
from rove.match.index.layout import COMPUTE, Buffer
from rove.match.index.rows import (
    Floats,
    IndexRow,
    Integers,
    Positions,
    Rows,
    from_boxes,
    from_rows,
    merged,
)
from rove.match.index.segment import Kernel, Segment, Workspace
from rove.match.index.subjects import Subjects
from rove.match.results import Pairs
from rove.match.saved import IndexState

FRESH_MAX: Final = 512
"""Rows that wait before they become a segment of their own."""
MERGE_WIDTH: Final = 8
"""Segments of one level that are merged into one of the next."""
MERGED_AT_ONCE_MAX: Final = 2_000
"""Rows whose merging takes so little that it is done on the way."""
_FRESH_WORK_MAX: Final = 192
"""Predicates of waiting rows times publications that are computed rather than made a segment
first. Where they ask for patterns, these were decided for all rows at once."""
_REFRESH_AT: Final = 0.5
"""After which part of its horizon a segment with moving bounds is built again."""


class SegmentMerge:
    """Work that can be done elsewhere: several segments into one, for the coming horizon."""

    def __init__(
        self,
        index: ExactIndex,
        segments: list[Segment],
        begins_at: float | None = None,
        until: float = -math.inf,
    ) -> None:
        """The horizon begins now and has the length that suits the rows, unless times are given."""
        self.index = index
        self.segments = segments
        self.removed: list[int] = []
        """Subscriptions that were removed while the merge ran."""
        self._now = index.now if begins_at is None else begins_at
        self._until = until
        self.result: Segment | None = None
        """None also if nothing was left to merge."""
        self.is_done = False
        self.has_failed = False
        """Then its segments stay as they are, and may be merged again."""

    @property
    def size(self) -> int:
        return sum(segment.live for segment in self.segments)

    def run(self) -> SegmentMerge:
        """Build the new segment; touches nothing that the index changes."""
        try:
            rows = merged([segment.rows() for segment in self.segments])
            if len(rows):
                indexed = engine.search_kernel is not None
                buffer = built(rows, self._now, indexed=indexed, until=self._until)
                self.result = Segment(buffer, rows.strings)
        except BaseException:
            self.has_failed = True
            raise
        self.is_done = True
        return self

    def abandon(self) -> None:
        """It failed: the segments remain, and may be merged again."""
        self.has_failed = True

    def install(self) -> None:
        """Search the new segment instead of the old ones from now on."""
        self.index.install(self)


class ExactIndex:
    """Decides which subscriptions a publication matches, by their conjunctions."""

    def __init__(
        self,
        subjects: Subjects | None = None,
        *,
        compiled: bool = True,
        undecided: set[int] | None = None,
    ) -> None:
        """With `compiled`, wait for the kernels; without, use them once they are compiled.

        Indexes can share `undecided`, in which they collect ids until `clear` is called on it.
        """
        if compiled:
            engine.warm_up(ranked=False)
        self.subjects = Subjects() if subjects is None else subjects
        self.now = -math.inf
        """The latest time that was matched at."""
        self._segments: list[Segment] = []
        self._all_indexed = True
        self.has_several = False
        """Whether some subscription may be found through several rows."""
        self._fresh: dict[int, list[IndexRow]] = {}
        self._fresh_kept: dict[int, ResidualConditions] = {}
        self._fresh_rows = self._fresh_work = 0
        self.undecided: set[int] = set() if undecided is None else undecided
        """Subscriptions that were skipped because trying their patterns took too many steps."""
        self._kept: dict[int, ResidualConditions] = {}
        self._ids: set[int] | None = set()
        self._merge: SegmentMerge | None = None
        self._workspaces: list[Workspace] = []

    # -- what is there -----------------------------------------------------------------------

    def __contains__(self, id: int) -> bool:
        return id in self._known_ids()

    def __len__(self) -> int:
        return len(self._known_ids())

    def ids(self) -> set[int]:
        """The ids of all subscriptions, as a copy."""
        return set(self._known_ids())

    def _known_ids(self) -> set[int]:
        """After loading, the set is made when it is first read."""
        if self._ids is None:
            self._ids = set(self._fresh) | set(self._kept)
            for segment in self._segments:
                self._ids.update(segment.live_ids().tolist())
        return self._ids

    @property
    def segments(self) -> Sequence[Segment]:
        return self._segments

    def _set_segments(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._all_indexed = all(segment.is_indexed for segment in segments)
        self.has_several = any(segment.has_several for segment in segments)

    @property
    def nbytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.nbytes for segment in self._segments)

    # -- changing ----------------------------------------------------------------------------

    def add(
        self,
        id: int,
        conjunctions: Sequence[Conjunction],
        accepted_at: float = 0.0,
        me: State | None = None,
    ) -> None:
        """Add the conjunctions of a subscription; one of them holding is a match.

        The id must be 0 or more and not in use.
        """
        self._refuse_ids([id])
        follows = _follow(conjunctions)
        kept = ResidualConditions(tuple(conjunctions), accepted_at, me or {}, follows)
        rows = self._compiled(id, kept)
        if kept.work >= PREPARED_FROM:
            kept.prepare(self.subjects)
        if follows or not rows or any(row.flags & COMPUTE for row in rows):
            self._kept[id] = kept
        self._known_ids().add(id)
        self._wait(id, rows, kept)

    def _refuse_ids(self, ids: list[int]) -> None:
        """Refuse ids that are in use, come twice, or do not fit where ids are kept."""
        known = self._known_ids()
        seen: set[int] = set()
        for id in ids:
            if not 0 <= as_integer(id) <= INTEGER_MAX or id in known or id in seen:
                raise ValueError(f"{id} is no free id; ids are integers of 64 bits from 0 on")
            seen.add(id)

    def _compiled(self, id: int, kept: ResidualConditions) -> list[IndexRow]:
        conjunctions = kept.known() if kept.follows else kept.conjunctions
        rows = rows_of(id, conjunctions, kept.accepted_at, self.subjects)
        if kept.follows:
            kept.ask(rows, self.subjects)
        return rows

    def _wait(self, id: int, rows: list[IndexRow], kept: ResidualConditions) -> None:
        self._fresh[id] = rows
        self._fresh_kept[id] = kept
        self._fresh_rows += len(rows)
        self._fresh_work += kept.work
        if self._fresh_rows >= FRESH_MAX:
            self.settle_fresh()

    def add_boxes(
        self,
        ids: Positions,
        attributes: Sequence[str],
        lows: Floats,
        highs: Floats,
        speeds: Floats | None = None,
    ) -> None:
        """Add many subscriptions at once that are a box each (see `rows.from_boxes`)."""
        self._refuse_ids(ids.tolist())
        numbers = [self.subjects.attribute(name) for name in attributes]
        rows = from_boxes(ids, numbers, lows, highs, speeds)
        self._known_ids().update(ids.tolist())
        self._set_segments([*self._segments, self._segment(rows)])

    def remove(self, id: int) -> None:
        """Remove a subscription; KeyError if there is none of that id."""
        self._known_ids().remove(id)
        self._kept.pop(id, None)
        self._remove_rows(id)

    def _remove_rows(self, id: int) -> None:
        waiting = self._fresh.pop(id, None)
        if waiting is not None:
            self._fresh_work -= self._fresh_kept.pop(id).work
            self._fresh_rows -= len(waiting)
            for row in waiting:
                for subject, _ in row.sets:
                    self.subjects.release(subject)
            return
        for segment in self._segments:
            for subject in segment.remove(id):
                self.subjects.release(subject)
        if self._merge is not None:
            self._merge.removed.append(id)

    def set_state(self, id: int, me: State) -> None:
        """Give a subscription another state; only one that uses `me.` needs it."""
        kept = self._kept.get(id)
        if kept is None or not kept.follows:
            if id not in self._known_ids():
                raise KeyError(id)
            return
        kept = kept.moved(me)
        rows = self._compiled(id, kept)
        self._remove_rows(id)
        self._kept[id] = kept
        self._wait(id, rows, kept)

    # -- segments ----------------------------------------------------------------------------

    def _segment(self, rows: Rows) -> Segment:
        indexed = engine.search_kernel is not None
        return Segment(built(rows, self.now, indexed=indexed), rows.strings)

    def settle_fresh(self) -> None:
        """Make a segment of the rows that wait, and merge small ones."""
        rows = [row for rows in self._fresh.values() for row in rows]
        # Built first: whatever fails in that, the rows that wait still do.
        segment = self._segment(from_rows(rows)) if rows else None
        self._fresh, self._fresh_kept = {}, {}
        self._fresh_rows = self._fresh_work = 0
        if segment is None:
            return
        self._set_segments([*self._segments, segment])
        while (due := self._due(MERGED_AT_ONCE_MAX)) is not None:
            self._replace(due.run())

    def merge_due(self) -> SegmentMerge | None:
        """The next merge that is worth its while, if any; only one runs at a time."""
        if self._merge is not None and not self._merge.has_failed:
            return None
        self._merge = None
        self._merge = self._due()
        return self._merge

    def install(self, merge: SegmentMerge) -> None:
        """Take over a finished merge; what was removed while it ran stays removed."""
        if not merge.is_done:
            raise ValueError("the merge was not run; call run() first")
        try:
            self._replace(merge)
        finally:
            # If that failed, the segments are still there, and are due again.
            self._merge = None

    def merge_all(self) -> None:
        """Run every merge that is due, here and now."""
        self.settle_fresh()
        while (due := self.merge_due()) is not None:
            self.install(due.run())

    def compact(self) -> None:
        """Make one segment of all, here and now."""
        self.settle_fresh()
        if len(self._segments) > 1 and self._merge is None:
            self._replace(SegmentMerge(self, self._segments).run())

    def prepare(self, begins_at: float, ends_at: float) -> None:
        """Make bounds that move quick to find at these times, here and now.

        At times that a segment was not built for, each of its moving rows is tried.
        """
        self.settle_fresh()
        busy = self._merge.segments if self._merge is not None else []
        for segment in list(self._segments):
            is_ready = segment.begins_at <= begins_at and ends_at <= segment.ends_at
            if segment.has_moving and not is_ready and segment not in busy:
                self._replace(SegmentMerge(self, [segment], begins_at, ends_at).run())

    def _replace(self, merge: SegmentMerge) -> None:
        gone = set(map(id, merge.segments))
        segments = [segment for segment in self._segments if id(segment) not in gone]
        if merge.result is not None:
            for subscription in merge.removed:
                merge.result.remove(subscription)  # its subjects were released back then
            segments.append(merge.result)
        self._set_segments(segments)

    def _due(self, size_max: float = math.inf) -> SegmentMerge | None:
        """What should be merged, of the segments that no merge is running for."""
        busy = set(map(id, self._merge.segments)) if self._merge is not None else set()
        free = [s for s in self._segments if id(s) not in busy and s.live <= size_max]
        may_index = engine.search_kernel is not None
        for segment in free:
            if self._is_stale(segment) or (may_index and not segment.is_indexed):
                return SegmentMerge(self, [segment])
        by_level: dict[int, list[Segment]] = {}
        for segment in free:
            by_level.setdefault(_level(segment.live), []).append(segment)
        for _, segments in sorted(by_level.items()):
            merge = SegmentMerge(self, segments)
            if len(segments) >= MERGE_WIDTH and merge.size <= size_max:
                return merge
        return None

    def _is_stale(self, segment: Segment) -> bool:
        """True if most rows are gone, or most of the horizon is over."""
        if 2 * segment.live < segment.built - layout.WIDTH:
            return True
        length_s = segment.ends_at - segment.begins_at
        return length_s < math.inf and self.now > segment.begins_at + _REFRESH_AT * length_s

    # -- saving ------------------------------------------------------------------------------

    def state(self) -> tuple[IndexState, list[Buffer]]:
        """Everything but the subjects, and the segments' buffers."""
        self.settle_fresh()
        state = IndexState(
            self.now,
            [dict(segment.strings) for segment in self._segments],
            {id: kept.state() for id, kept in self._kept.items()},
        )
        return state, [segment.buffer for segment in self._segments]

    @classmethod
    def from_state(
        cls,
        state: IndexState,
        buffers: Sequence[Buffer],
        subjects: Subjects,
        *,
        compiled: bool,
        undecided: set[int] | None = None,
    ) -> ExactIndex:
        """What `state` was taken from; the buffers are used as they are, not copied."""
        index = cls(subjects, compiled=compiled, undecided=undecided)
        index.now = state.now
        index._set_segments(list(map(Segment, buffers, state.strings)))
        index._kept = {id: ResidualConditions.from_state(kept) for id, kept in state.kept.items()}
        index._ids = None
        for segment in index._segments:
            subjects.use_again(segment.subjects_in_use())
        return index

    # -- matching ----------------------------------------------------------------------------

    def match(
        self, publications: Sequence[Publication], at: Sequence[float] | None = None
    ) -> Pairs:
        """The subscriptions that match each of `publications`, which appear at the times `at`.

        Without times, all appear at 0. Publications hold what `rove.lang.values.admit` admits.
        """
        times = [0.0] * len(publications) if at is None else at
        return self.match_batch(self.subjects.batch(publications, times))

    def match_columns(self, names: Sequence[str], values: Floats, at: Floats) -> Pairs:
        """The same for publications that come as numbers, a line each; NaN is a missing value.

        Only for subscriptions whose boxes say everything.
        """
        return self.match_batch(self.subjects.columns(names, values, at))

    def match_table(self, columns: PublicationTable, at: Sequence[float] | Floats) -> Pairs:
        """The same for publications that come as columns of any types."""
        return self.match_batch(batch_of(self.subjects, columns, at))

    def match_batch(self, batch: SlotBatch) -> Pairs:
        """The subscriptions that match the publications of a batch."""
        if len(batch):
            self.now = max(self.now, float(batch.at.max()))
        is_much = self._fresh_work * len(batch) > _FRESH_WORK_MAX
        if is_much or batch.undecided or not len(batch.publications):
            self.settle_fresh()
        compiled = engine.search_kernel
        workspace = self._workspaces.pop() if self._workspaces else Workspace()
        workspace.take(batch)
        parts = [self._searched(segment, batch, compiled, workspace) for segment in self._segments]
        self._workspaces.append(workspace)
        if self._fresh_kept:
            parts.append(self._tried(batch))
        for publication in batch.undecided:
            for segment in self._segments:
                self.undecided |= segment.undecided_ids(batch, publication)
        return _together(parts)

    def ready_kernel(self) -> Kernel | None:
        """What searches the segments, if all can be searched and nothing waits to become one."""
        if self._fresh:
            self.settle_fresh()
        return engine.search_kernel if self._all_indexed else None

    def match_one(self, publication: Publication, at: float) -> Positions:
        """The subscriptions that match one publication, as `match` finds them, in microseconds."""
        compiled = engine.search_kernel
        if compiled is None or not self._all_indexed or not math.isfinite(at):
            return self.match([publication], [at]).subscriptions  # which refuses a bad time
        slots = Slots()
        self.subjects.fill(slots, publication)
        if slots.undecided:
            return self.match([publication], [at]).subscriptions
        if self._fresh_work > _FRESH_WORK_MAX:
            self.settle_fresh()
        self.now = max(self.now, at)
        workspace = self._workspaces.pop() if self._workspaces else Workspace()
        workspace.take_one(slots, at)
        frame = workspace.frame
        frame[2 * layout.ID_COUNT] = 0
        facts = FittingPatterns(slots.subjects)
        computed: list[int] = []
        for segment in self._segments:
            if slots.texts:
                segment.write_texts(workspace.arrays[layout.RAWS], slots.texts)
            segment.search(compiled, workspace, 1)
            if frame[2 * layout.DOUBT_COUNT]:
                rows = workspace.arrays[layout.OUT_DOUBTS][: frame[2 * layout.DOUBT_COUNT]]
                computed += self._computed(segment, rows, publication, at, facts)
        found: Positions = workspace.arrays[layout.OUT_IDS][: frame[2 * layout.ID_COUNT]].copy()
        self._workspaces.append(workspace)
        for id, kept in self._fresh_kept.items():
            if kept.holds(publication, at, facts, self.subjects):
                computed.append(id)
        if computed:
            found = np.concatenate([found, np.array(computed, np.int64)])
        return np.unique(np.where(found < 0, ~found, found)) if self.has_several else found

    def _searched(
        self,
        segment: Segment,
        batch: SlotBatch,
        compiled: Kernel | None,
        workspace: Workspace,
    ) -> Pairs:
        if compiled is None or not segment.is_indexed:
            found = segment.scan(batch)
        else:
            found = segment.find(batch, compiled, workspace)
        pairs = Pairs.counted(found.counts, found.ids)
        if not len(found.doubts):
            return pairs
        if not len(batch.publications):
            self.refuse_columns()
        ends = np.cumsum(found.doubtful).tolist()
        computed: list[tuple[int, int]] = []
        for number, (end, count) in enumerate(zip(ends, found.doubtful.tolist(), strict=True)):
            if count:
                publication, at = batch.publications[number], float(batch.at[number])
                rows = found.doubts[end - count : end]
                ids = self._computed(
                    segment, rows, publication, at, FittingPatterns.of(batch, number)
                )
                computed += [(number, id) for id in ids]
        return _together([pairs, _pairs(computed)])

    def _computed(
        self,
        segment: Segment,
        rows: Integers,
        publication: Publication,
        at: float,
        facts: FittingPatterns,
    ) -> list[int]:
        """The subscriptions of doubtful rows that hold, each computed once for all its rows.

        Of a row that only moves nothing is kept; it is doubtful for integers that no float holds.
        """
        holding: list[int] = []
        seen: set[int] = set()
        for row, id in zip(rows.tolist(), segment.ids[rows].tolist(), strict=True):
            kept = self._kept_of(~id if id < 0 else id)
            if kept is None:
                holds = self._is_within(segment, row, publication, at)
            elif id in seen:
                continue
            else:
                seen.add(id)
                holds = kept.holds(publication, at, facts, self.subjects)
            if holds:
                holding.append(id)
        return holding

    def _kept_of(self, id: int) -> ResidualConditions | None:
        """The conditions of a subscription that its rows do not decide, if any."""
        return self._kept.get(id)

    def refuse_columns(self) -> NoReturn:
        """Refuse publications that came as numbers only: a condition needs all attributes."""
        raise PublicationError(
            "columns are not enough for what must be computed", "match publications instead"
        )

    def _is_within(self, segment: Segment, row: int, publication: Publication, at: float) -> bool:
        """Whether a row's moving bounds hold."""
        return all(
            compare(comparator, self.subjects.value(subject, publication), bound)
            for subject, comparator, bound in segment.bounds_at(row, at)
        )

    def _tried(self, batch: SlotBatch) -> Pairs:
        """The subscriptions that wait, one by one."""
        found: list[tuple[int, int]] = []
        for number, publication in enumerate(batch.publications):
            at, facts = float(batch.at[number]), FittingPatterns.of(batch, number)
            found += [
                (number, id)
                for id, kept in self._fresh_kept.items()
                if kept.holds(publication, at, facts, self.subjects)
            ]
        return _pairs(found)


def _pairs(pairs: Sequence[tuple[int, int]]) -> Pairs:
    return Pairs(
        np.array([number for number, _ in pairs], np.int32),
        np.array([id for _, id in pairs], np.int64),
    )


def _follow(conjunctions: Iterable[Conjunction]) -> bool:
    """True if `me.` occurs; most subjects are plain attributes, and quickly seen through."""
    nodes = (node for one in conjunctions for node in (*one.sets, *one.atoms))
    # Conjunctions of one product share most of their nodes, which may be large.
    distinct = {id(node): node for node in nodes if type(node) is not Attribute}
    return any(type(part) is Me for node in distinct.values() for part in walk(node))


def _level(rows: int) -> int:
    """Segments of one level hold up to MERGE_WIDTH times as many rows as those below."""
    level = 0
    while rows > FRESH_MAX * MERGE_WIDTH**level * 2:
        level += 1
    return level


def _together(parts: Sequence[Pairs]) -> Pairs:
    """All parts, by publication; a subscription found through several rows is there once."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return Pairs(np.empty(0, np.int32), np.empty(0, np.int64))
    pairs = parts[0]
    if len(parts) > 1:
        publications = np.concatenate([part.publications for part in parts])
        ids = np.concatenate([part.subscriptions for part in parts])
        order = np.argsort(publications, kind="stable")
        pairs = Pairs(publications[order], ids[order])
    several = pairs.subscriptions < 0
    return _once(pairs, several) if several.any() else pairs


def _once(pairs: Pairs, several: npt.NDArray[np.bool_]) -> Pairs:
    """Subscriptions that were found through several rows (~id), each once."""
    publications, ids = pairs.publications, pairs.subscriptions
    found = np.unique(np.stack([publications[several], ~ids[several]]), axis=1)
    publications = np.concatenate([publications[~several], found[0].astype(np.int32)])
    ids = np.concatenate([ids[~several], found[1]])
    order = np.argsort(publications, kind="stable")
    return Pairs(publications[order], ids[order])


# -- publications that are numbers ---------------------------------------------------------------

_COUNT: Final = 2 * layout.ID_COUNT


class ReadingMatcher:
    """Matches readings: numbers of fixed attributes, one publication at a time, in one thread.

    A sensor or vehicle that matches its own readings does not need dictionaries. The names of the
    attributes are looked up once. After that, each reading is written into an existing array and
    the kernel writes the ids: some 2 µs around the search.
    """

    def __init__(self, index: ExactIndex, names: Sequence[str]) -> None:
        self._index = index
        self._names = names
        self._workspace = Workspace()
        numbers = np.array([index.subjects.attribute(name) for name in names], np.int32)
        self._values = np.full(len(names), np.nan)
        self._at = np.zeros(1)
        for place, array in (
            (layout.STARTS, np.array([0, len(names)])),
            (layout.SLOT_SUBJECTS, numbers),
            (layout.RAWS, self._values.view(np.uint64)),
            (layout.AT, self._at),
            (layout.IS_ROUNDED, np.zeros(1, np.uint8)),
        ):
            self._workspace.set(place, array)

    def match(self, values: Floats, at: float) -> Positions:
        """The ids that get a reading: a finite number for each attribute, NaN if it is missing.

        Only for subscriptions whose boxes say everything.
        """
        kernel = self._index.ready_kernel()
        fits = len(values) == len(self._names) and math.isfinite(at)
        if kernel is None or not fits or np.isinf(values).any():
            return self._match_carefully(values, at)
        self._index.now = max(self._index.now, at)
        self._values[:] = values
        self._values[np.isnan(values)] = np.nan  # one that has no bits of its own
        self._at[0] = at
        frame = self._workspace.frame
        frame[_COUNT] = 0
        for segment in self._index.segments:
            segment.search(kernel, self._workspace, 1)
            if frame[2 * layout.DOUBT_COUNT]:
                self._index.refuse_columns()
        ids: Positions = self._workspace.arrays[layout.OUT_IDS][: frame[_COUNT]].copy()
        return np.unique(np.where(ids < 0, ~ids, ids)) if self._index.has_several else ids

    def _match_carefully(self, values: Floats, at: float) -> Positions:
        """As columns, with their checks: something is wrong, or not compiled yet."""
        if len(values) != len(self._names):
            raise PublicationError(
                f"{len(values)} values came for {len(self._names)} attributes", "give one for each"
            )
        found = self._index.match_columns(self._names, values[np.newaxis], np.array([at]))
        return found.subscriptions
