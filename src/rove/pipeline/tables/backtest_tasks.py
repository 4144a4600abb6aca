"""The tasks of a backtest: workers match rows and count the matches.

Rows of a typed table (or of the lake) are matched by the broker's own matcher, and matches are
counted in the worker: by hour, by publisher, by topic. Only counts and a few examples are sent to
the driver, so ten million matches cost no more than ten. Examples are the rows with the smallest
number in a fixed shuffle of moments: spread over the period, and the same every time, however the
rows are divided among tasks.

There are one or two expressions; the *bits* of a row say which of them it matches. A ranked
expression takes two steps: rows that match its condition (`candidates`) are collected in order and
go through its window (`rank_candidates`), which also gives the time when each is due.

Costs 0.4 µs a row for expressions that compare numbers, 7 µs where values are computed for each
row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rove.lang.parser import parse
from rove.lang.tree import Attribute, Subscription, rank_of, walk
from rove.match.index.columns import (
    CarriedColumn,
    Column,
    FloatColumn,
    Mask,
    ObjectColumn,
    PublicationTable,
)
from rove.match.matcher import Matcher
from rove.mqtt.topics import fits
from rove.pipeline.lake.log import Event
from rove.pipeline.lake.version_index import AT_TYPE, RANKED_ROWS
from rove.pipeline.matching.arrow import column_of, lake_columns, times_of
from rove.pipeline.ranked.buckets import Bucket
from rove.pipeline.spark.workers import in_worker
from rove.pipeline.tables.table import REST, TableSchema

if TYPE_CHECKING:
    from rove.lang.values import Path

FIRST: Final = 1
SECOND: Final = 2
BOTH: Final = FIRST | SECOND
HOUR_US: Final = 3_600 * 1_000_000
EXAMPLE: Final = "example"

HITS: Final = pa.schema(
    [
        ("bits", pa.int32()),
        ("position", pa.int64()),
        ("at", AT_TYPE),
        ("due", AT_TYPE),
        ("id", pa.string()),
        ("client_id", pa.string()),
        ("topic", pa.string()),
        ("cell", pa.string()),
    ]
)
"""Rows that match, and when their notifications are due."""
CANDIDATES: Final = HITS.append(pa.field("payload", pa.binary()))
"""Hits with the attributes that a score is computed from."""
PARTIALS: Final = pa.schema(
    [("what", pa.string()), ("key", pa.string()), ("bits", pa.int32()), ("rows", pa.int64())]
)
"""Counts of rows by hour, publisher or topic that match only the first expression, only the second,
or both; and examples, each as JSON."""

_KEYS: Final = ("position", "id", "client_id", "topic", "cell")
_NAMED: Final = pa.schema([("at", pa.int64()), *(HITS.field(name) for name in _KEYS)])
"""The columns that identify a row in a window."""
_SHUFFLE: Final = np.uint64(0x9E3779B97F4A7C15)
_MATCHERS_MAX: Final = 8


class BacktestExpression(msgspec.Struct, frozen=True):
    """An expression, when it was accepted, and the state of its subscriber."""

    text: str
    accepted_at: float = 0.0
    me: dict[str, object] = {}


class CountTask(msgspec.Struct, frozen=True):
    """A counting task."""

    expressions: tuple[BacktestExpression, ...]
    """One or two."""
    schema: TableSchema | None = None
    """None for rows of the lake."""
    columns: dict[str, str] = {}
    """The attribute columns of a table, by their names in a batch."""
    topic_filter: str = ""
    examples: int = 5


class Example(msgspec.Struct, frozen=True, order=True):
    """A row that matched, with what is needed to look it up."""

    shuffled: int
    at_us: int
    position: int | None
    client_id: str
    topic: str
    cell: str
    due_us: int


# -- matching ------------------------------------------------------------------------------------


def match_bits(work: CountTask, batch: pa.RecordBatch) -> npt.NDArray[np.int32]:
    """The bits of each row; for a ranked expression, whether its condition matches."""
    at = times_of(batch.column("at"), "at")
    columns = columns_of(work, batch)
    found = _matcher(msgspec.json.encode(work.expressions)).match_table(columns, at)
    bits = np.zeros(batch.num_rows, np.int32)
    for number, expression in enumerate(work.expressions):
        rows = found.publications[found.subscriptions == number]
        bits[rows[at[rows] >= expression.accepted_at]] |= 1 << number
    if work.topic_filter:
        bits[~_on_topic(work.topic_filter, batch.column("topic"))] = 0
    return bits


@lru_cache(maxsize=_MATCHERS_MAX)
def _matcher(encoded: bytes) -> Matcher:
    matcher = Matcher()
    for number, expression in enumerate(
        msgspec.json.decode(encoded, type=tuple[BacktestExpression, ...])
    ):
        condition = Subscription(parse(expression.text).condition)
        matcher.add(number, condition, expression.accepted_at, expression.me)
    return matcher


def _on_topic(topic_filter: str, topics: pa.Array) -> Mask:
    coded = topics.dictionary_encode()
    names = coded.dictionary.to_pylist()
    lets = np.array([*(fits(topic_filter, name) for name in names), False], np.bool_)
    found: Mask = lets[coded.indices.fill_null(len(names)).to_numpy(zero_copy_only=False)]
    return found


# -- rows as publications ------------------------------------------------------------------------


def columns_of(work: CountTask, batch: pa.RecordBatch) -> PublicationTable:
    """The rows of a batch as columns for the matcher."""
    if work.schema is None:
        return lake_columns(batch)
    there = {named: batch.column(name) for name, named in work.columns.items()}
    return PublicationTable(batch.num_rows, _parts(work.schema, there, batch.column("topic")))


def _parts(
    schema: TableSchema, there: dict[str, pa.Array], topics: pa.Array
) -> Iterator[tuple[Path, Callable[[], Column]]]:
    values = list(_values(schema, there))
    yield from _objects_of_nulls(values)
    for attribute in schema.attributes:
        marks = there.get(attribute.columns.get("int", ""))
        for kind, name in attribute.columns.items():
            if name not in there or kind in ("int", "json"):
                continue
            if kind == "double" and marks is not None:
                yield attribute.path, partial(_marked, there[name], marks)
            else:
                yield attribute.path, partial(column_of, there[name])
    for path, decoded in values:
        yield path, partial(ObjectColumn, [None if one is NULL else one for one in decoded])
    yield ("topic",), partial(column_of, topics)


class _Null:
    """Stands for a published null; missing values are None."""


NULL: Final = _Null()


def _values(schema: TableSchema, there: dict[str, pa.Array]) -> Iterator[tuple[Path, list[object]]]:
    """Values that are stored as JSON, by attribute."""
    for attribute in schema.attributes:
        column = attribute.columns.get("json")
        if column in there:
            yield attribute.path, _decoded(there[column])
    if REST not in there:
        return
    found: dict[Path, list[object]] = {}
    for row, rest in enumerate(_decoded(there[REST])):
        # Value by value: other members of an object may have columns.
        for path, value in _leaves(rest) if isinstance(rest, dict) else ():
            of_path = found.setdefault(path, [None] * len(there[REST]))
            of_path[row] = NULL if value is None else value
    yield from found.items()


def _decoded(array: pa.Array) -> list[object]:
    texts = array.to_pylist()
    if not array.null_count < len(texts):
        return texts  # type: ignore[no-any-return]
    return [
        None if text is None else NULL if text == "null" else msgspec.json.decode(text)
        for text in texts
    ]


def _leaves(rest: dict[str, object]) -> Iterator[tuple[Path, object]]:
    waiting: list[tuple[Path, object]] = [((name,), value) for name, value in rest.items()]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict) and value:
            waiting += [((*path, name), inner) for name, inner in value.items()]
        else:
            yield path, value


def _objects_of_nulls(
    values: Sequence[tuple[Path, list[object]]],
) -> Iterator[tuple[Path, Callable[[], Column]]]:
    """Objects that exist although perhaps all of their members are null; outer ones first."""
    found: dict[Path, Mask] = {}
    for path, decoded in values:
        if len(path) > 1 and NULL in decoded:
            nulls = np.array([value is NULL for value in decoded], np.bool_)
            for length in range(1, len(path)):
                outer = path[:length]
                found[outer] = found[outer] | nulls if outer in found else nulls
    for path in sorted(found, key=len):
        yield path, partial(CarriedColumn, found[path], are_objects=True)


class _MarkedColumn(FloatColumn):
    """Floats of which some were published as integers, which matters only in arithmetic."""

    def __init__(self, values: npt.NDArray[Any], whole: Mask) -> None:
        super().__init__(values)
        self._whole = whole

    def value(self, row: int) -> object:
        found = super().value(row)
        return int(found) if type(found) is float and self._whole[row] else found


def _marked(array: pa.Array, marks: pa.Array) -> Column:
    values = array.fill_null(np.nan).to_numpy(zero_copy_only=False)
    whole = marks.is_valid().to_numpy(zero_copy_only=False)
    return _MarkedColumn(np.ascontiguousarray(values, np.float64), whole)


# -- hits ----------------------------------------------------------------------------------------


def hits_of(batch: pa.RecordBatch, bits: npt.NDArray[np.int32]) -> pa.RecordBatch:
    """The rows that match, due when they are published."""
    rows = np.flatnonzero(bits)
    chosen = pa.array(rows)
    at = batch.column("at").cast(AT_TYPE).take(chosen)
    names = batch.schema.names
    found = {
        "bits": pa.array(bits[rows]),
        "at": at,
        "due": at,
        **{
            name: batch.column(name).take(chosen)
            if name in names
            else pa.nulls(len(rows), HITS.field(name).type)
            for name in _KEYS
        },
    }
    return pa.RecordBatch.from_arrays([found[name] for name in HITS.names], schema=HITS)


@in_worker
def candidates(work: CountTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows that match a condition, with the attributes that scores use."""
    scored = {
        node.path[0]
        for expression in work.expressions
        if (tree := parse(expression.text)).rank is not None
        for node in walk(rank_of(tree).score)
        if isinstance(node, Attribute)
    }
    for batch in batches:
        bits = match_bits(work, batch)
        found = hits_of(batch, bits)
        publications = columns_of(work, batch).publications
        payloads = [
            msgspec.json.encode(
                {name: value for name, value in publications[row].items() if name in scored},
                enc_hook=_as_null,
            )
            for row in np.flatnonzero(bits).tolist()
        ]
        yield pa.RecordBatch.from_arrays(
            [*found.columns, pa.array(payloads, pa.binary())], schema=CANDIDATES
        )


def _as_null(value: object) -> None:
    """Encode as null: scores cannot use arrays or numbers that are too large."""


def rank_candidates(
    expression: BacktestExpression, number: int, until: float, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The hits of a ranked expression among candidates in the order of time."""
    bucket = Bucket(0, 1)
    made = Event(
        event="made",
        number=number,
        text=expression.text,
        accepted_at=expression.accepted_at,
        me=expression.me,
    )
    bucket.expect([made])
    seen = 0
    for batch in batches:
        for notifications in bucket.run(_numbered(batch, number, seen)):
            yield _due(notifications, 1 << number)
        seen += batch.num_rows
    for notifications in bucket.finish():
        yield _due(notifications, 1 << number)
    yield _due(bucket.advance(until), 1 << number)


def _numbered(batch: pa.RecordBatch, number: int, first: int) -> pa.Table:
    """Rows for windows. The id of a row encodes all columns that the hit will need."""
    rows = batch.num_rows
    names = batch.select(["at", *_KEYS]).set_column(0, "at", batch.column("at").cast(pa.int64()))
    ids = [msgspec.json.encode(list(row.values())).decode() for row in names.to_pylist()]
    columns = {
        "bucket": pa.array(np.zeros(rows, np.int32)),
        "position": pa.array(np.arange(first, first + rows)),
        "at": batch.column("at").cast(AT_TYPE),
        "id": pa.array(ids, pa.string()),
        "client_id": pa.array([""] * rows),
        "topic": batch.column("topic").fill_null(""),
        "payload": batch.column("payload"),
        "user": pa.array([[]] * rows, RANKED_ROWS.field("user").type),
        "matched": pa.array([[number]] * rows, RANKED_ROWS.field("matched").type),
    }
    return pa.table([columns[name] for name in RANKED_ROWS.names], schema=RANKED_ROWS)


def _due(notifications: pa.Table, bits: int) -> pa.RecordBatch:
    ids = map(msgspec.json.decode, notifications["id"].to_pylist())
    named = [dict(zip(_NAMED.names, one, strict=True)) for one in ids]
    rows = pa.RecordBatch.from_pylist(named, _NAMED)
    found = {name: rows.column(name) for name in _NAMED.names}
    found |= {"bits": pa.array([bits] * rows.num_rows), "due": notifications["at"].combine_chunks()}
    arrays = [found[field.name].cast(field.type) for field in HITS]
    return pa.RecordBatch.from_arrays(arrays, schema=HITS)


# -- counting ------------------------------------------------------------------------------------


class HitCounter:
    """Counts hits."""

    def __init__(self, examples: int) -> None:
        self._examples_max = examples
        self._counts: dict[tuple[str, str], npt.NDArray[np.int64]] = {}
        """Counts by bits, for each kind (hour, publisher, topic) and name."""
        self._examples: dict[int, list[Example]] = {FIRST: [], SECOND: [], BOTH: []}

    def take(self, hits: pa.RecordBatch) -> None:
        """Count a batch of `HITS`."""
        if not hits.num_rows:
            return
        bits = hits.column("bits").to_numpy(zero_copy_only=False)
        due_us = hits.column("due").cast(pa.int64()).to_numpy()
        for what, column in (
            ("hour", pa.array(due_us // HOUR_US)),
            ("publisher", hits.column("client_id").fill_null("")),
            ("topic", hits.column("topic").fill_null("")),
        ):
            coded = column.dictionary_encode()
            names = coded.dictionary.to_pylist()
            counts = np.bincount(coded.indices.to_numpy() * 4 + bits, minlength=4 * len(names))
            for name, count in zip(map(str, names), counts.reshape(-1, 4), strict=True):
                known = self._counts.get((what, name))
                self._counts[what, name] = count if known is None else known + count
        self._choose(hits, bits)

    def count(self, what: str, number: int) -> None:
        """Set another count."""
        self._counts[what, ""] = np.array([0, number, 0, 0])

    def _choose(self, hits: pa.RecordBatch, bits: npt.NDArray[Any]) -> None:
        at_us = hits.column("at").cast(pa.int64()).to_numpy()
        # The upper half of a product is well mixed; `_order` decides between equals.
        shuffled = (at_us.astype(np.uint64) * _SHUFFLE) >> np.uint64(32)
        for kind, known in self._examples.items():
            rows = np.flatnonzero(bits == kind)
            if len(rows) > self._examples_max:
                least = np.partition(shuffled[rows], self._examples_max)[self._examples_max]
                rows = rows[shuffled[rows] <= least]
            new = [_example(hits, row, int(shuffled[row])) for row in rows.tolist()]
            self._examples[kind] = sorted({*known, *new}, key=_order)[: self._examples_max]

    def partials(self) -> pa.RecordBatch:
        """All counts and examples as `PARTIALS`."""
        rows = [
            (what, name, bits, rows)
            for (what, name), count in self._counts.items()
            for bits, rows in enumerate(count.tolist())
            if rows
        ]
        rows += [
            (EXAMPLE, msgspec.json.encode(one).decode(), kind, 1)
            for kind, examples in self._examples.items()
            for one in examples
        ]
        columns = zip(*rows, strict=True) if rows else ([] for _ in PARTIALS)
        arrays = [pa.array(list(c), f.type) for c, f in zip(columns, PARTIALS, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=PARTIALS)


def _example(hits: pa.RecordBatch, row: int, shuffled: int) -> Example:
    one = hits.slice(row, 1)
    at_us, due_us = (one.column(name).cast(pa.int64())[0].as_py() for name in ("at", "due"))
    said = {name: one.column(name)[0].as_py() for name in _KEYS}
    texts = {name: said[name] or "" for name in ("client_id", "topic", "cell")}
    return Example(shuffled, at_us, said["position"], due_us=due_us, **texts)


def _order(one: Example) -> tuple[int, int, int, str, str]:
    position = -1 if one.position is None else one.position
    return one.shuffled, one.at_us, position, one.client_id, one.topic


@in_worker
def count_matches(work: CountTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Match and count the rows of a task."""

    def hits(batch: pa.RecordBatch) -> pa.RecordBatch:
        return hits_of(batch, match_bits(work, batch))

    return _counted(work.examples, batches, hits)


@in_worker
def count_hits(examples: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count the hits of a task."""
    return _counted(examples, batches, lambda hits: hits)


def _counted(
    examples: int, batches: Iterator[pa.RecordBatch], hits: Callable[[pa.RecordBatch], Any]
) -> Iterator[pa.RecordBatch]:
    began_ns = time.process_time_ns()
    tally = HitCounter(examples)
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        tally.take(hits(batch))
    tally.count("judged", rows)
    tally.count("cpu_ns", time.process_time_ns() - began_ns)
    yield tally.partials()


class HitCounts(msgspec.Struct):
    """The merged counts of all workers."""

    by: dict[str, dict[str, list[int]]]
    """Counts (only first, only second, both) by kind and name."""
    examples: dict[int, list[Example]]

    def of(self, what: str) -> dict[str, list[int]]:
        return self.by.get(what, {})

    def total(self, what: str) -> int:
        """The sum of a kind that has no names."""
        return sum(first for first, _, _ in self.of(what).values())


def merge_counts(partials: pa.Table, examples: int) -> HitCounts:
    """Merge partial counts."""
    found = HitCounts({}, {FIRST: [], SECOND: [], BOTH: []})
    for what, key, bits, rows in zip(*(each.to_pylist() for each in partials.columns), strict=True):
        if what == EXAMPLE:
            found.examples[bits].append(msgspec.json.decode(key, type=Example))
        else:
            found.by.setdefault(what, {}).setdefault(key, [0, 0, 0])[bits - 1] += rows
    for kind, chosen in found.examples.items():
        found.examples[kind] = sorted(chosen, key=_order)[:examples]
    return found
