"""Matches the rows of any DataFrame with subscriptions.

    match(df, ["NO2 > 40", "x BETWEEN 3 + t AND 5 + t"], at="at")  # a row for each match
    df.where(matches("NO2 > 40"))  # an expression as a condition
    register(spark)  # and in SQL: rove_matches('NO2 > 40', struct(*))

The broker's own matcher (`rove.match`) runs inside Spark's Python workers, on whole Arrow batches;
Spark transports the data. The index is built in the driver and mapped by the workers; to match
several tables, build it once (`rove.pipeline.matching.index`). `rove.pipeline.matching.arrow`
describes what a column means in an expression.

Column names are case-sensitive, as in the language: `no2` is not `NO2`, although Spark does not
distinguish them. `match` and `matches` refuse an expression with the wrong case, and suggest the
right name.

Considered: a join with BETWEEN, which tries every pair; a join over a grid of cells, which has to
divide moving areas into cells anew for every batch and supports two attributes at most; UDFs over
rows or pandas, which cost more than the search. `rove bench pipeline` measures most of these.

A row may match thousands of subscriptions, and then sending the pairs back to the JVM costs far
more than finding them. So there are other forms: `grouped` gives a row once, with an array of its
subscriptions, `packed` the same as bytes, which the JVM does not have to process one by one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rove.lang.printer import name_text
from rove.lang.tree import Attribute, Time, walk
from rove.match.index.columns import PublicationTable
from rove.match.matcher import Matcher
from rove.pipeline.matching.arrow import columns_of, path_of, times_of
from rove.pipeline.matching.index import (
    Index,
    OpenIndex,
    Subscriptions,
    index_of,
    open_index,
    plain_subscription,
)
from rove.pipeline.matching.table_check import MatchingError, uses_of
from rove.pipeline.matching.topic_filters import Longs, matches_among
from rove.pipeline.spark.dialect import check_spark, quoted
from rove.pipeline.spark.executors import TaskFile
from rove.pipeline.spark.parquet_files import ParquetFiles
from rove.pipeline.spark.session import ARROW_BYTES
from rove.pipeline.spark.workers import in_worker

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from rove.match.index.rows import Floats

__all__ = ["Form", "MatchingError", "match", "matches", "register", "unpacked"]

Form: TypeAlias = Literal["pairs", "grouped", "packed"]

SUBSCRIPTION: Final = "subscription"
SUBSCRIPTIONS: Final = "subscriptions"
SQL_NAME: Final = "rove_matches"
PIECE_PAIRS: Final = 1 << 20
"""About the number of pairs in memory at a time, however many a batch has."""
_PIECE_ROWS_MIN: Final = 256
_PIECE_ROWS_FIRST: Final = 4_096
_PREPARED_ROWS_MIN: Final = 1_000
"""With fewer rows, testing each moving bound is faster than to rebuild their index."""
_PACKED_BYTES: Final = 4
_PACKED_MAX: Final = 2**31 - 1
_TEXTS_MAX: Final = 1_024
"""Expressions that a worker keeps compiled."""
_NESTED: Final = re.compile(r"<[^<>]*>|\([^()]*\)")


# -- tables ----------------------------------------------------------------------------------------


def match(
    df: DataFrame | ParquetFiles,
    subscriptions: Index | Subscriptions,
    *,
    at: str | None = None,
    topic: str | None = None,
    keep: Sequence[str] | None = None,
    attributes: Sequence[str] | None = None,
    form: Form = "pairs",
    strict: bool = True,
) -> DataFrame:
    """A row for each match: the columns `keep` (by default all) and `subscription`.

    To match the same subscriptions more than once, pass an `Index`. A subscription is identified by
    its id or, without one, by its number in the list or file. `at` names the column with the time
    of a row (a timestamp, or seconds); without it no subscription may evolve, and the times when
    subscriptions were accepted are ignored. `topic` names the column of the topic, for
    subscriptions with topic filters. Expressions can use the columns `attributes`, by default all.

    If `strict`, an expression that uses a missing column, or a column as another type, is refused.
    Otherwise such an attribute is missing, or compares with nothing, as in a publication.

    In the form `pairs` a row is repeated for each match. In the other forms it comes once, with all
    its `subscriptions`: an array (`grouped`), or their numbers as 4 bytes each (`packed`; see
    `unpacked`).
    """
    index = index_of(subscriptions)
    kept = list(df.columns if keep is None else keep)
    _check(index, df, kept, at, topic, form)
    if strict:
        index.check_table(df, attributes, topic)
    needed = _needed(index, df.columns, {*kept, *_named(at, topic)}, attributes)
    hidden = [] if attributes is None else [name for name in needed if name not in attributes]
    job = MatchJob(index.task_file(df.sparkSession), kept, at, topic, hidden, form)
    return map_batches(df, needed, partial(_matched, job), _schema(df, kept, index, form))


def map_batches(
    df: DataFrame | ParquetFiles,
    columns: Sequence[str],
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: Any,
) -> DataFrame:
    """`mapInArrow` over some columns of a table, whose names may be anything."""
    if isinstance(df, ParquetFiles):
        return df.map_batches(columns, function, schema)
    from pyspark.sql import functions

    # mapInArrow resolves columns by name, and takes a dot for a member.
    plain = [functions.col(quoted(name)).alias(f"c{n}") for n, name in enumerate(columns)]
    return df.select(*plain).mapInArrow(partial(_renamed, list(columns), function), schema)


def _renamed(
    columns: list[str],
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    return function(batch.rename_columns(columns) for batch in batches)


def _named(*names: str | None) -> list[str]:
    return [name for name in names if name is not None]


def _check(
    index: Index,
    df: DataFrame | ParquetFiles,
    kept: Sequence[str],
    at: str | None,
    topic: str | None,
    form: Form,
) -> None:
    if form not in get_args(Form):
        raise MatchingError(f"there is no form {form!r}; choose from {', '.join(get_args(Form))}")
    if form == "packed" and index.has_names:
        raise MatchingError("string ids cannot be packed; use numbers, or the form 'grouped'")
    for name in (*kept, *_named(at, topic)):
        if name not in df.columns:
            raise MatchingError(f"there is no column {name}; there are {', '.join(df.columns)}")
    added = _added_name(form)
    if added.lower() in {name.lower() for name in kept}:
        raise MatchingError(f"there is a column {added} already; rename it, or keep others")
    if index.evolving and at is None:
        raise MatchingError(
            f"subscription {index.evolving} changes with time; "
            "name the column with the time of a row: at='…'"
        )
    if index.filtered and topic is None:
        raise MatchingError(
            f"subscription {index.filtered} has a topic filter; "
            "say which column holds the topic: topic='…'"
        )


def _needed(
    index: Index, columns: Sequence[str], others: set[str], attributes: Sequence[str] | None
) -> list[str]:
    """The columns that Python needs."""
    seen = columns if attributes is None else attributes
    looked_at = index.attributes
    return [
        name
        for name in columns
        if name in others or (name in seen and (looked_at is None or path_of(name)[0] in looked_at))
    ]


def _added_name(form: Form) -> str:
    return SUBSCRIPTION if form == "pairs" else SUBSCRIPTIONS


def _schema(df: DataFrame | ParquetFiles, kept: Sequence[str], index: Index, form: Form) -> Any:
    from pyspark.sql import types

    added = types.StringType() if index.has_names else types.LongType()
    if form == "grouped":
        added = types.ArrayType(added, False)
    elif form == "packed":
        added = types.BinaryType()
    fields = [df.schema[name] for name in kept]
    return types.StructType([*fields, types.StructField(_added_name(form), added, False)])


# -- in a worker -----------------------------------------------------------------------------------


class MatchJob(msgspec.Struct, frozen=True):
    """A matching job, as it is sent to workers."""

    file: TaskFile
    kept: list[str]
    at: str | None
    topic: str | None
    hidden: list[str]
    form: Form


@in_worker
def _matched(job: MatchJob, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    opened = open_index(job.file)
    for piece, found in match_pieces(job, opened, batches):
        if len(found.subscriptions):
            yield from _outputs(job, opened, piece, found)


def match_pieces(
    job: MatchJob, opened: OpenIndex, batches: Iterable[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, MatchedRows]]:
    """Parts of batches, small enough for the number of their matches; with the matches."""
    rows = _PIECE_ROWS_FIRST
    for batch in batches:
        times = _times(batch, job.at, opened.latest_s)
        if job.at is not None and batch.num_rows >= _PREPARED_ROWS_MIN:
            _prepare(opened.matcher, times)
        first = 0
        while first < batch.num_rows:
            piece = batch.slice(first, rows)
            found = _found(opened, job, piece, times[first : first + rows])
            yield piece, found
            first += piece.num_rows
            rows = _next_rows(piece.num_rows, len(found.subscriptions))


def _times(batch: pa.RecordBatch, at: str | None, latest_s: float) -> Floats:
    """The times of rows; by default a time at which all subscriptions are accepted."""
    if at is None:
        return np.full(batch.num_rows, latest_s)
    return times_of(batch.column(at), at)


def _prepare(matcher: Matcher, times: Floats) -> None:
    """Prepare moving bounds for a batch, and for as much time before and after it."""
    first, last = float(times.min()), float(times.max())
    room_s = last - first
    matcher.prepare(first - room_s, last + room_s)


def _next_rows(rows: int, pairs: int) -> int:
    """The number of rows of the next part, given the rows and pairs of the last one."""
    return max(_PIECE_ROWS_MIN, min(4 * rows, PIECE_PAIRS * rows // max(pairs, 1)))


class MatchedRows(msgspec.Struct, frozen=True):
    """The matches of some rows."""

    counts: npt.NDArray[np.int64]
    """The number of matches of each row."""
    subscriptions: npt.NDArray[np.int64]


def _found(opened: OpenIndex, job: MatchJob, piece: pa.RecordBatch, times: Floats) -> MatchedRows:
    shown = _TableRows(piece, job)
    rows, ids = matches_among(shown, times, opened.matcher, opened.filters, opened.has_filter)
    return MatchedRows(np.bincount(rows, minlength=piece.num_rows), ids)


class _TableRows:
    """Rows of a table, for `matches_among`."""

    def __init__(self, piece: pa.RecordBatch, job: MatchJob) -> None:
        self._piece = piece
        self._job = job

    @property
    def topics(self) -> list[str | None]:
        return self._piece.column(self._job.topic).to_pylist()  # type: ignore[no-any-return]

    def columns(self, rows: Longs | None, numbers: Longs | None) -> PublicationTable:
        piece = self._piece if rows is None else self._piece.take(pa.array(rows))
        return columns_of(piece, self._job.topic, self._job.hidden, numbers)


def _outputs(
    job: MatchJob, opened: OpenIndex, piece: pa.RecordBatch, found: MatchedRows
) -> Iterator[pa.RecordBatch]:
    """The result for Spark, in batches of limited size: strings may have any length."""
    kept = piece.select(job.kept)
    if job.form == "pairs":
        rows, added = np.repeat(np.arange(piece.num_rows), found.counts), _ids(opened, found)
    else:
        rows = np.flatnonzero(found.counts)
        ends = np.concatenate([[0], np.cumsum(found.counts[rows])])
        added = (
            _packed(opened, found, ends)
            if job.form == "packed"
            else pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), _ids(opened, found))
        )
    for first, last in _cuts(_row_bytes(kept)[rows]):
        taken = kept.take(pa.array(rows[first:last]))
        columns = [*taken.columns, added.slice(first, last - first)]
        yield pa.RecordBatch.from_arrays(columns, [*job.kept, _added_name(job.form)])


def _row_bytes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """The approximate size of each row: exact for strings and binaries, else the mean."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        kind = column.type
        if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
            sizes += pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        else:
            sizes += column.nbytes // max(batch.num_rows, 1) + 1
    return sizes


def _cuts(sizes: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Ranges of rows whose total size is allowed, or of a single row."""
    ends = np.cumsum(sizes)
    first, before = 0, 0
    while first < len(sizes):
        last = max(int(np.searchsorted(ends, before + ARROW_BYTES, "right")), first + 1)
        yield first, last
        first, before = last, int(ends[last - 1])


def _ids(opened: OpenIndex, found: MatchedRows) -> pa.Array:
    numbers = pa.array(found.subscriptions)
    return numbers if opened.ids is None else opened.ids.take(numbers)


def _packed(opened: OpenIndex, found: MatchedRows, ends: npt.NDArray[np.int64]) -> pa.Array:
    ids = _ids(opened, found).to_numpy(zero_copy_only=False)
    if ids.max() > _PACKED_MAX:
        raise MatchingError(
            f"subscription {ids.max()} cannot be packed; numbers up to {_PACKED_MAX:,} can"
        )
    buffers = (ends * _PACKED_BYTES).astype(np.int32), ids.astype("<i4")
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(ends) - 1, [None, *(pa.py_buffer(buffer) for buffer in buffers)]
    )


# -- conditions ------------------------------------------------------------------------------------


def unpacked(subscriptions: str | Column = SUBSCRIPTIONS) -> Column:
    """The numbers in a column of the form `packed`, as an array."""
    from pyspark.sql import functions

    given = functions.col(subscriptions) if isinstance(subscriptions, str) else subscriptions
    return functions.arrow_udf(_unpacked, "array<int>")(given)


def _unpacked(packed: pa.Array) -> pa.Array:
    starts, content = np.zeros(len(packed) + 1, np.int64), packed.fill_null(b"")
    np.cumsum(pc.binary_length(content).to_numpy(zero_copy_only=False), out=starts[1:])
    numbers = np.frombuffer(b"".join(content.to_pylist()), "<i4")
    offsets = pa.array((starts // _PACKED_BYTES).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, pa.array(numbers), mask=packed.is_null())


def matches(
    text: str,
    *,
    at: str | Column | None = None,
    accepted_at: float = 0.0,
    me: Mapping[str, object] | None = None,
) -> Column:
    """Whether a row matches an expression: TRUE or FALSE, for any select or where.

    The attributes of the expression are columns (or structs, if they have dots). `at` is the time
    of a row, for an expression that evolves since `accepted_at`; `me` has the subscriber's
    variables.
    """
    from pyspark.sql import functions

    check_spark()
    subscription = plain_subscription(text)
    nodes = list(walk(subscription.condition))
    if at is None and any(type(node) is Time for node in nodes):
        raise MatchingError(f"{text!r} changes with time; give the time of a row: at='…'")
    names = sorted({node.path[0] for node in nodes if type(node) is Attribute})
    written = [name_text((name,)) for name in names]
    state, is_timed = _frozen(me or {}), at is not None
    since = accepted_at if is_timed else 0.0

    def holds(table: pa.Array, *arrays: pa.Array) -> pa.Array:
        batch = pa.RecordBatch.from_arrays([table, *arrays[: len(written)]], ["", *written])
        if len(table):
            _check_case(text, table[0].as_py())
        _check_text(text, batch.schema)
        when = times_of(arrays[-1], "at") if is_timed else np.zeros(batch.num_rows)
        return pa.array(_holding(_compiled(text, since, state), batch, when))

    # The table's type is a constant for Spark; only the columns in use are sent to Python.
    given = [functions.expr("typeof(struct(*))"), *(functions.col(quoted(name)) for name in names)]
    if at is not None:
        given.append(functions.col(at) if isinstance(at, str) else at)
    return functions.arrow_udf(holds, "boolean")(*given)


@lru_cache(maxsize=_TEXTS_MAX)
def _check_case(text: str, table: str) -> None:
    """Refuse a column that differs in case: Spark ignores the case of names.

    `table` is the type of all columns, as `struct<a:int,b:struct<c:int>>`.
    """
    inside = table.partition("<")[2].rpartition(">")[0]
    while (plain := _NESTED.sub("", inside)) != inside:
        inside = plain
    for node in walk(plain_subscription(text).condition):
        if type(node) is Attribute:
            name = node.path[0]
            same = re.findall(f"(?:^|,)({re.escape(name)}):", inside, re.IGNORECASE)
            if same and name not in same:
                raise MatchingError(
                    f"the expression {text!r} uses {name_text(node.path)}, and there is no such "
                    f"column; did you mean {same[0]}?"
                )


def register(spark: SparkSession) -> None:
    """Make `rove_matches(text, struct(*))` known to SQL.

    The third argument is the time of a row, the fourth when the subscription was accepted
    (seconds).
    """
    from pyspark.sql import functions

    check_spark()
    spark.udf.register(SQL_NAME, functions.arrow_udf(_rove_matches, "boolean"))


def _rove_matches(texts: pa.Array, row: pa.Array, *times: pa.Array) -> pa.Array:
    if not pa.types.is_struct(row.type):
        raise MatchingError(
            f"the second argument of {SQL_NAME} is a {row.type}; give the columns as struct(*)"
        )
    names = [member.name for member in row.type]
    batch = pa.RecordBatch.from_arrays(row.flatten(), names)
    at = times_of(times[0], "at") if times else np.zeros(len(texts))
    accepted = times_of(times[1], "accepted_at") if len(times) > 1 else np.zeros(len(texts))
    encoded = texts.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    holds = np.zeros(len(texts), np.bool_)
    for code, text in enumerate(encoded.dictionary.to_pylist()):
        for accepted_at in np.unique(accepted[codes == code]).tolist():
            _check_text(text, batch.schema)
            rows = np.flatnonzero((codes == code) & (accepted == accepted_at))
            part = batch if len(rows) == len(texts) else batch.take(pa.array(rows))
            holds[rows] = _holding(_compiled(text, accepted_at, _frozen({})), part, at[rows])
    return pa.array(holds, mask=codes < 0)


def _holding(matcher: Matcher, batch: pa.RecordBatch, at: Floats) -> npt.NDArray[np.bool_]:
    found = matcher.match_table(columns_of(batch), at)
    holds = np.zeros(batch.num_rows, np.bool_)
    holds[found.publications] = True
    return holds


@lru_cache(maxsize=_TEXTS_MAX)
def _check_text(text: str, schema: pa.Schema) -> None:
    """Check the columns for an expression, as `match` does; once per worker."""
    uses_of(plain_subscription(text), f"the expression {text!r}").check(
        dict(zip(schema.names, schema.types, strict=True))
    )


@lru_cache(maxsize=_TEXTS_MAX)
def _compiled(text: str, accepted_at: float, me: bytes) -> Matcher:
    """A matcher for one expression; made once per worker."""
    matcher = Matcher()
    state: dict[str, object] = msgspec.json.decode(me)
    matcher.add(0, plain_subscription(text), accepted_at, state)
    matcher.compact()
    return matcher


def _frozen(state: Mapping[str, object]) -> bytes:
    return msgspec.json.encode(state)
