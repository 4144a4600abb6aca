"""Ranked subscriptions over a table that is processed in batches.

`RankedTable` is one bucket of `rove.pipeline.ranked.ranking.rank`: rows are in order, and have
their matches. `RankedStream` needs neither Spark nor order: it matches rows itself, and has a rule
for late rows.

A window needs its rows in order. So a row is held back until there is one that is `lateness_s`
newer. A row that is older than the windows' current time is *late*: it is not added to windows, but
returned and counted. With a lateness of 0, each row that is out of order is late.

Between two batches the state is one value of bytes. Memory is that of the windows, their rows, and
the rows that are held back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple, Self

import msgspec
import numpy as np
import pyarrow as pa

from rove.errors import RoveError
from rove.lang.errors import LanguageError
from rove.lang.tree import Attribute, Node, Subscription, is_conditional, rank_of, walk
from rove.lang.values import Path as Name
from rove.match.matcher import Matcher
from rove.match.ranked.inputs import FLOAT, HUGE, MISSING, WHOLE, Inputs, NumberColumn
from rove.match.ranked.members import Records
from rove.match.ranked.pool import RankedPool, parsed
from rove.match.ranked.score_kernels import EXACT_MAX
from rove.match.ranked.scores import Integers
from rove.match.saved import PoolState, load, save
from rove.pipeline.lake.versions import ANY_TOPIC, Version
from rove.pipeline.matching.arrow import columns_of, path_of, times_of
from rove.pipeline.matching.index import Subscriptions, identified
from rove.pipeline.matching.table_check import ColumnUses
from rove.pipeline.ranked.row_store import RowStore

ADDED: Final = ("subscription", "due", "score", "promoted")
"""The columns of the result in addition to those of the rows."""
MATCHED: Final = "__matched"
"""The matches of a row: the numbers of subscriptions, of 32 bits each, as bytes. The JVM copies
bytes as a whole, but an array number by number."""
_SEQUENCE: Final = "__sequence"
_PAIRS_MAX: Final = 2_000_000


class RankedTextsError(RoveError):
    """Subscriptions or columns that cannot be ranked."""


# -- subscriptions ---------------------------------------------------------------------------------


class RankedTexts(msgspec.Struct, frozen=True):
    """Ranked subscriptions by their numbers, from 0 on."""

    texts: list[str]
    ids: list[int] | list[str]
    """The ids of the subscriptions."""
    accepted_at: list[float]
    me: list[dict[str, object]]
    conditional: list[int]
    """Subscriptions with a condition."""
    unconditional: list[int]
    """Subscriptions without one."""
    attributes: set[str]
    """The columns in use."""
    scored: set[str]
    """The columns that scores use."""

    @property
    def has_names(self) -> bool:
        """Whether the ids are strings, not numbers."""
        return isinstance(self.ids[0], str)

    def uses(self) -> ColumnUses:
        """The columns in use, with their types."""
        uses = ColumnUses()
        for id, text in zip(self.ids, self.texts, strict=True):
            uses.add(parsed(text), f"subscription {id} ({text})")
        return uses


def ranked_texts(subscriptions: Subscriptions) -> RankedTexts:
    """Ranked subscriptions from any source; RankedTextsError names one that is not ranked."""
    given = list(identified(subscriptions))
    if not given:
        raise RankedTextsError("there are no subscriptions; give at least one expression")
    ids: Any = [id for id, _ in given]
    if len(set(ids)) < len(ids):
        raise RankedTextsError("two subscriptions have the same id; ids must be unique")
    trees = [_tree(id, version) for id, version in given]
    conditional = [number for number, tree in enumerate(trees) if is_conditional(tree)]
    scored = _attributes(rank_of(tree).score for tree in trees)
    return RankedTexts(
        texts=[version.text for _, version in given],
        ids=ids,
        accepted_at=[version.accepted_at for _, version in given],
        me=[version.me for _, version in given],
        conditional=conditional,
        unconditional=sorted(set(range(len(trees))) - set(conditional)),
        attributes=scored | _attributes(tree.condition for tree in trees),
        scored=scored,
    )


def conditions(
    texts: RankedTexts,
) -> Iterator[tuple[Subscription, float, Mapping[str, object]]]:
    """The conditions, each with the time of acceptance and the subscriber's state."""
    for number in texts.conditional:
        condition = Subscription(parsed(texts.texts[number]).condition)
        yield condition, texts.accepted_at[number], texts.me[number]


def _attributes(roots: Iterable[Node]) -> set[str]:
    nodes = chain.from_iterable(walk(root) for root in roots)
    return {node.path[0] for node in nodes if type(node) is Attribute}


def _tree(id: int | str, version: Version) -> Subscription:
    try:
        tree = parsed(version.text)
    except LanguageError as error:
        raise RankedTextsError(f"subscription {id}: {error}") from error
    if tree.rank is None:
        raise RankedTextsError(
            f"subscription {id} has no ORDER BY; without a rank it is matched row by row, "
            "see rove.pipeline.matching.dataframes"
        )
    if version.filter != ANY_TOPIC:
        raise RankedTextsError(
            f"subscription {id} has the topic filter {version.filter}; of a table, select the "
            "rows with that topic, and rank them without a filter"
        )
    return tree


# -- matches of rows -------------------------------------------------------------------------------


def as_bytes(starts: Integers, numbers: Integers) -> pa.Array:
    """The numbers of row i stand from starts[i] to starts[i + 1]."""
    offsets = (4 * (starts - starts[0])).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(numbers.astype(np.int32))]
    return pa.Array.from_buffers(pa.binary(), len(starts) - 1, buffers)


def matched_in(batch: pa.RecordBatch) -> tuple[Integers, Integers]:
    """The inverse of `as_bytes`, for a batch."""
    array = batch[MATCHED].cast(pa.binary())  # a session may use large types
    _, offsets, values = array.buffers()
    ends = np.frombuffer(offsets, np.int32, len(array) + 1, 4 * array.offset).astype(np.int64)
    size = int(ends[-1] - ends[0]) // 4
    found = np.frombuffer(values, np.int32, size, int(ends[0])) if size else np.empty(0, np.int32)
    return (ends - ends[0]) // 4, found.astype(np.int64)


# -- windows ---------------------------------------------------------------------------------------


class _TableState(msgspec.Struct):
    """The windows of a table as they are saved."""

    windows: PoolState
    rows: bytes
    next: int


class RankedTable:
    """The windows of one bucket over rows in the order of time."""

    def __init__(
        self, texts: RankedTexts, at: str, schema: pa.Schema, bucket: int = 0, buckets: int = 1
    ) -> None:
        """`schema` has the columns of rows for the result."""
        self._ids = pa.array(texts.ids)
        self._at = at
        self._windows = RankedPool()
        for number in range(bucket, len(texts.texts), buckets):
            self._windows.add(
                number, texts.texts[number], texts.accepted_at[number], texts.me[number]
            )
        self._rows = RowStore(_SEQUENCE, schema.append(pa.field(_SEQUENCE, pa.int64())))
        self._next = 0

    def enter(self, rows: pa.Table) -> pa.Table:
        """Add rows with their matches; returns the rows that subscriptions get now."""
        return pa.concat_tables([self.advance(-math.inf), *map(self._enter, self._pieces(rows))])

    def advance(self, now: float) -> pa.Table:
        """Let windows slide to a moment; returns the rows that move up until then."""
        return self._told(self._windows.advance(now))

    def _pieces(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Rows in parts with a limited number of pairs."""
        for batch in rows.to_batches():
            pairs = matched_in(batch)[1].size + len(batch) * self._windows.everywhere_count
            size = max(1, len(batch) * _PAIRS_MAX // max(_PAIRS_MAX, pairs))
            yield from (batch.slice(first, size) for first in range(0, len(batch), size))

    def _enter(self, batch: pa.RecordBatch) -> pa.Table:
        count = batch.num_rows
        sequences = self._next + np.arange(count)
        self._next += count
        rows = pa.Table.from_batches([batch])
        self._rows.add(rows.append_column(_SEQUENCE, pa.array(sequences)))
        starts, ids = matched_in(batch)
        numbers = np.repeat(np.arange(count), np.diff(starts))
        inputs = inputs_of(batch.drop_columns([MATCHED]), self._at)
        found = self._told(self._windows.run(inputs, sequences, numbers, ids))
        self._rows.keep(self._windows.live_sequences)
        return found

    def _told(self, records: Records) -> pa.Table:
        found = self._rows.find(records["sequence"]).drop_columns([_SEQUENCE])
        columns = (
            self._ids.take(pa.array(records["id"])),
            pa.array(records["at"]),
            pa.array(records["score"]),
            pa.array(records["promoted"].astype(bool)),
        )
        for name, column in zip(ADDED, columns, strict=True):
            found = found.append_column(name, column)
        return found

    def save(self) -> bytes:
        """The state, without the names of subscriptions."""
        self._rows.keep(self._windows.live_sequences, at_once=True)
        state = _TableState(self._windows.state(), self._rows.save(), self._next)
        return b"".join(save("ranked table", state))

    def restore(self, saved: bytes) -> None:
        """Go on from what was saved of a table of the same subscriptions; SavedError if by an older
        version of Rove."""
        head, _ = load(saved, "ranked table", _TableState)
        self._windows = RankedPool.from_state(head.windows)
        self._rows = RowStore.load(_SEQUENCE, head.rows)
        self._next = head.next


def inputs_of(batch: pa.RecordBatch, at: str) -> Inputs:
    """The inputs of scores, from rows of a table."""
    heads = [path_of(name)[0] for name in batch.schema.names]
    found: dict[Name, NumberColumn] = {}
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        path = path_of(name)
        # Several columns of one object or attribute are merged by `columns_of`, as in the matcher.
        if heads.count(path[0]) == 1 and (column := _column(array)) is not None:
            found[path] = column
    return Inputs(columns_of(batch).publications, times_of(batch[at], at), found)


def _column(array: pa.Array) -> NumberColumn | None:
    """A numeric column; None for other types."""
    kind = array.type
    if pa.types.is_float64(kind) or pa.types.is_float32(kind):
        floats = array.fill_null(math.nan).to_numpy(zero_copy_only=False).astype(np.float64)
        there = np.isfinite(floats)
        kinds = np.where(there, FLOAT, MISSING).astype(np.uint8)
        return NumberColumn(floats if there.all() else np.where(there, floats, 0.0), kinds)
    if pa.types.is_signed_integer(kind):
        values = array.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
        kinds = np.where(np.abs(values) >= EXACT_MAX, HUGE, WHOLE).astype(np.uint8)
        kinds[array.is_null().to_numpy(zero_copy_only=False)] = MISSING
        return NumberColumn(values, kinds)
    return None


# -- late rows -------------------------------------------------------------------------------------


class EnteredRows(NamedTuple):
    """The result of adding rows."""

    given: pa.Table
    late: pa.Table
    """Late rows, which were not added to windows."""


class _StreamState(msgspec.Struct):
    """A stream as it is saved: its windows, and the rows that wait for late ones."""

    windows: bytes
    held: bytes
    now: float
    late_count: int


class RankedStream:
    """Ranked subscriptions over rows that are nearly in the order of time."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        schema: pa.Schema,
        *,
        at: str,
        order: str | None = None,
        lateness_s: float = 0.0,
    ) -> None:
        """For rows of a schema; `order` names the column that orders rows of one moment."""
        self._texts = ranked_texts(subscriptions)
        self._at = at
        self._order = order
        self._lateness_s = lateness_s
        self._windows = RankedTable(self._texts, at, schema)
        self._matcher = Matcher()
        for number, condition in zip(self._texts.conditional, conditions(self._texts), strict=True):
            self._matcher.add(number, *condition)
        self._held = schema.empty_table()
        self._now = -math.inf
        self.late_count = 0

    def take(self, rows: pa.Table) -> EnteredRows:
        """Add rows; some enter windows, some are held back, and some are late."""
        times = times_of(rows[self._at].combine_chunks(), self._at)
        is_late = times < self._now
        self.late_count += int(is_late.sum())
        self._held = pa.concat_tables([self._held, rows.filter(pa.array(~is_late))])
        until = max(self._now, float(times.max(initial=-math.inf)) - self._lateness_s)
        return EnteredRows(self._let_in(until), rows.filter(pa.array(is_late)))

    def finish(self, until: float) -> pa.Table:
        """Add all rows that are held back, and let windows slide to a moment."""
        times = times_of(self._held[self._at].combine_chunks(), self._at)
        return self._let_in(max(until, self._now, float(times.max(initial=-math.inf))))

    def _let_in(self, until: float) -> pa.Table:
        times = times_of(self._held[self._at].combine_chunks(), self._at)
        is_due = times <= until
        due = self._held.filter(pa.array(is_due))
        self._held = self._held.filter(pa.array(~is_due)).combine_chunks()
        self._now = until
        keys = [(self._at, "ascending")] + ([(self._order, "ascending")] if self._order else [])
        entered = self._windows.enter(self._with_matches(due.sort_by(keys)))
        return pa.concat_tables([entered, self._windows.advance(until)])

    def _with_matches(self, rows: pa.Table) -> pa.Table:
        pieces = []
        for batch in rows.combine_chunks().to_batches():
            pairs = self._matcher.match_table(
                columns_of(batch), times_of(batch[self._at], self._at)
            )
            matched = as_bytes(pairs.starts(len(batch)), pairs.subscriptions)
            pieces.append(batch.append_column(MATCHED, matched))
        schema = rows.schema.append(pa.field(MATCHED, pa.binary()))
        return pa.Table.from_batches(pieces, schema)

    def save(self) -> bytes:
        """The state, without the subscriptions."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._held.schema) as writer:
            writer.write_table(self._held)
        held = sink.getvalue().to_pybytes()
        state = _StreamState(self._windows.save(), held, self._now, self.late_count)
        return b"".join(save("ranked stream", state))

    def restore(self, saved: bytes) -> Self:
        """Go on from what was saved of a stream of the same subscriptions."""
        head, _ = load(saved, "ranked stream", _StreamState)
        self._windows.restore(head.windows)
        with pa.ipc.open_stream(head.held) as reader:
            self._held = reader.read_all()
        self._now, self.late_count = head.now, head.late_count
        return self
