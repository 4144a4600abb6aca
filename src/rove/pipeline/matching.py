"""Subscriptions over any DataFrame: who would get which row.

    match(df, ["NO2 > 40", "x BETWEEN 3 + t AND 5 + t"], at="at")  # a row for each match
    df.where(matches("NO2 > 40"))  # a condition like any other
    register(spark)  # and in SQL: rove_matches('NO2 > 40', struct(*))

The matching is the broker's own (`rove.match`), inside Spark's Python workers, on whole Arrow
batches; Spark moves the data. The index is built once, in the driver, and mapped by the workers
(`rove.pipeline.matcher_files`). What a column means to a subscription is told in
`rove.pipeline.arrow`.

Considered: a join with BETWEEN, which tries every pair; a join over a grid of cells, which has to
cut moving areas into cells anew for every batch and serves two attributes at best; UDFs over rows
or pandas, which cost more than the search. `rove bench pipeline` measures most of these.

Of many subscriptions a row may meet thousands, and then to bring the pairs back into the JVM costs
far more than to find them. So there are other forms: `grouped` gives a row once, with an array of
its subscriptions, `packed` the same as bytes, which the JVM need not touch one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rove.lang.printer import name_text
from rove.lang.tree import Attribute, Time, walk
from rove.match.matcher import Matcher
from rove.mqtt.topics import fits
from rove.pipeline.arrow import columns_of, path_of, times_of
from rove.pipeline.matcher_files import (
    Asked,
    OpenMatcher,
    Shipped,
    Subscriptions,
    asked_in,
    open_matcher,
    plain_subscription,
    ship,
)
from rove.pipeline.parquet_scan import map_batches
from rove.pipeline.sql import quoted
from rove.pipeline.table_check import MatchingError, uses_of
from rove.pipeline.workers import in_worker

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from rove.match.pairs import Pairs
    from rove.match.rows import Floats

__all__ = ["Form", "MatchingError", "match", "matches", "register", "unpacked"]

Form: TypeAlias = Literal["pairs", "grouped", "packed"]

SUBSCRIPTION: Final = "subscription"
SUBSCRIPTIONS: Final = "subscriptions"
SQL_NAME: Final = "rove_matches"
PIECE_PAIRS: Final = 1 << 20
"""About as many pairs are found at a time, so that memory does not depend on how many there are."""
_PIECE_ROWS_MIN: Final = 256
_PIECE_ROWS_FIRST: Final = 4_096
_PREPARED_ROWS_MIN: Final = 1_000
"""Rows from which on it is quicker to build moving bounds anew than to try each of them."""
_PACKED_BYTES: Final = 4
_PACKED_MAX: Final = 2**31 - 1
_TEXTS_MAX: Final = 1_024
"""Texts that a worker keeps compiled."""


# -- tables ----------------------------------------------------------------------------------------


def match(
    df: DataFrame,
    subscriptions: Subscriptions,
    *,
    at: str | None = None,
    topic: str | None = None,
    keep: Sequence[str] | None = None,
    attributes: Sequence[str] | None = None,
    form: Form = "pairs",
    strict: bool = True,
) -> DataFrame:
    """Who gets which row: the columns `keep` (all, if none are named) and `subscription`.

    A subscription is called by its id or, without one, by its number in the list or file. `at`
    names the column that says when a row appeared (a timestamp, or seconds); without it nothing
    may evolve, and when subscriptions were accepted is not looked at. `topic` names the column of
    the topic, for those that have topic filters. Subscriptions see the columns `attributes`, all
    if none are named.

    A text that asks for a column that is not there, or uses one as another type than it has, is
    refused. Unless it is `strict`: then such an attribute is missing, or compares with nothing, as
    in a publication.

    A row comes as often as it is wanted, in the form `pairs`. In the others it comes once, with all
    its `subscriptions`: an array (`grouped`), or their numbers as 4 bytes each (`packed`; see
    `unpacked`).
    """
    asked = asked_in(subscriptions, timed=at is not None)
    kept = list(df.columns if keep is None else keep)
    _check(asked, df, kept, at, topic, form)
    if strict and asked.uses is not None:
        asked.uses.check_table(df, attributes, topic)
    needed = _needed(asked, df.columns, {*kept, *_named(at, topic)}, attributes)
    hidden = [] if attributes is None else [name for name in needed if name not in attributes]
    job = Job(ship(df.sparkSession, asked.path), kept, at, topic, hidden, form)
    return map_batches(df, needed, partial(_matched, job), _schema(df, kept, asked, form))


def _named(*names: str | None) -> list[str]:
    return [name for name in names if name is not None]


def _check(
    asked: Asked,
    df: DataFrame,
    kept: Sequence[str],
    at: str | None,
    topic: str | None,
    form: Form,
) -> None:
    if form not in get_args(Form):
        raise MatchingError(f"there is no form {form!r}; choose from {', '.join(get_args(Form))}")
    if form == "packed" and asked.has_names:
        raise MatchingError("names cannot be packed; give the subscriptions numbers, or group them")
    for name in (*kept, *_named(at, topic)):
        if name not in df.columns:
            raise MatchingError(f"there is no column {name}; there are {', '.join(df.columns)}")
    added = _added_name(form)
    if added.lower() in {name.lower() for name in kept}:
        raise MatchingError(f"there is a column {added} already; rename it, or keep others")
    if asked.evolving and at is None:
        raise MatchingError(
            f"subscription {asked.evolving} changes with time; "
            "say which column tells when a row appeared: at='…'"
        )
    if asked.filtered and topic is None:
        raise MatchingError(
            f"subscription {asked.filtered} has a topic filter; "
            "say which column holds the topic: topic='…'"
        )


def _needed(
    asked: Asked, columns: Sequence[str], others: set[str], attributes: Sequence[str] | None
) -> list[str]:
    """The columns that have to go to Python."""
    seen = columns if attributes is None else attributes
    looked_at = None if asked.uses is None else asked.uses.heads
    return [
        name
        for name in columns
        if name in others or (name in seen and (looked_at is None or path_of(name)[0] in looked_at))
    ]


def _added_name(form: Form) -> str:
    return SUBSCRIPTION if form == "pairs" else SUBSCRIPTIONS


def _schema(df: DataFrame, kept: Sequence[str], asked: Asked, form: Form) -> Any:
    from pyspark.sql import types

    added = types.StringType() if asked.has_names else types.LongType()
    if form == "grouped":
        added = types.ArrayType(added, False)
    elif form == "packed":
        added = types.BinaryType()
    fields = [df.schema[name] for name in kept]
    return types.StructType([*fields, types.StructField(_added_name(form), added, False)])


# -- in a worker -----------------------------------------------------------------------------------


class Job(msgspec.Struct, frozen=True):
    """What a worker is told."""

    file: Shipped
    kept: list[str]
    at: str | None
    topic: str | None
    hidden: list[str]
    form: Form


@in_worker
def _matched(job: Job, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    opened = open_matcher(job.file.local_path())
    for piece, found in pieces(job, opened, batches):
        if len(found.subscriptions):
            yield _output(job, opened, piece, found)


def pieces(
    job: Job, opened: OpenMatcher, batches: Iterable[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, Found]]:
    """Parts of batches, small enough for the pairs that they have, and who wants their rows."""
    rows = _PIECE_ROWS_FIRST
    for batch in batches:
        times = _times(batch, job.at)
        if job.at is not None and batch.num_rows >= _PREPARED_ROWS_MIN:
            _prepare(opened.matcher, times)
        first = 0
        while first < batch.num_rows:
            piece = batch.slice(first, rows)
            found = _found(opened, job, piece, times[first : first + rows])
            yield piece, found
            first += piece.num_rows
            rows = _next_rows(piece.num_rows, len(found.subscriptions))


def _times(batch: pa.RecordBatch, at: str | None) -> Floats:
    return np.zeros(batch.num_rows) if at is None else times_of(batch.column(at), at)


def _prepare(matcher: Matcher, times: Floats) -> None:
    """Make the index ready for a batch, with as much room before and behind it: others come."""
    first, last = float(times.min()), float(times.max())
    room_s = last - first
    matcher.prepare(first - room_s, last + room_s)


def _next_rows(rows: int, pairs: int) -> int:
    """How many rows to take next, after so many had so many pairs."""
    return max(_PIECE_ROWS_MIN, min(4 * rows, PIECE_PAIRS * rows // max(pairs, 1)))


class Found(msgspec.Struct, frozen=True):
    """Pairs: which row, which subscription."""

    counts: npt.NDArray[np.int64]
    """By row."""
    subscriptions: npt.NDArray[np.int64]


def _found(opened: OpenMatcher, job: Job, piece: pa.RecordBatch, times: Floats) -> Found:
    columns = columns_of(piece, job.topic, job.hidden)
    pairs = opened.matcher.match_table(columns, times)
    counts = np.diff(pairs.starts(piece.num_rows))
    if not opened.filters:
        return Found(counts, pairs.subscriptions)
    assert job.topic is not None, "it was asked for"
    fitting = _fitting(opened.filters, pairs, piece.column(job.topic))
    rows = pairs.publications[fitting]
    return Found(np.bincount(rows, minlength=piece.num_rows), pairs.subscriptions[fitting])


def _fitting(filters: Sequence[str], pairs: Pairs, topics: pa.Array) -> npt.NDArray[np.bool_]:
    """Which pairs have a topic that the subscription's filter lets through."""
    encoded = topics.dictionary_encode()
    names = [*encoded.dictionary.to_pylist(), None]
    codes = encoded.indices.fill_null(len(names) - 1).to_numpy(zero_copy_only=False)
    numbers: dict[str, int] = {}
    of_subscription = np.array([numbers.setdefault(each, len(numbers)) for each in filters])
    wanted = of_subscription[pairs.subscriptions] * len(names) + codes[pairs.publications]
    distinct, which = np.unique(wanted, return_inverse=True)
    known = list(numbers)
    holds = [_lets(known[key // len(names)], names[key % len(names)]) for key in distinct.tolist()]
    found: npt.NDArray[np.bool_] = np.array(holds, np.bool_)[which]
    return found


def _lets(topic_filter: str, topic: str | None) -> bool:
    return not topic_filter or (topic is not None and fits(topic_filter, topic))


def _output(job: Job, opened: OpenMatcher, piece: pa.RecordBatch, found: Found) -> pa.RecordBatch:
    kept = piece.select(job.kept)
    if job.form == "pairs":
        rows = np.repeat(np.arange(piece.num_rows), found.counts)
        kept, added = kept.take(pa.array(rows)), _ids(opened, found)
    else:
        there = found.counts > 0
        kept = kept if there.all() else kept.filter(pa.array(there))
        ends = np.concatenate([[0], np.cumsum(found.counts[there])])
        added = (
            _packed(opened, found, ends)
            if job.form == "packed"
            else pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), _ids(opened, found))
        )
    return pa.RecordBatch.from_arrays([*kept.columns, added], [*job.kept, _added_name(job.form)])


def _ids(opened: OpenMatcher, found: Found) -> pa.Array:
    numbers = pa.array(found.subscriptions)
    return numbers if opened.ids is None else opened.ids.take(numbers)


def _packed(opened: OpenMatcher, found: Found, ends: npt.NDArray[np.int64]) -> pa.Array:
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
    """An array of the numbers in a column of the form `packed`."""
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
    """Whether a row matches a text: TRUE or FALSE, for any select or where.

    The attributes of the text are columns (or structs, where they have dots). `at` is when a row
    appeared, for a text that evolves since `accepted_at`; `me` are the subscriber's variables.
    """
    from pyspark.sql import functions

    subscription = plain_subscription(text)
    nodes = list(walk(subscription.condition))
    if at is None and any(type(node) is Time for node in nodes):
        raise MatchingError(f"{text!r} changes with time; say when a row appeared: at='…'")
    names = sorted({node.path[0] for node in nodes if type(node) is Attribute})
    # The first is there for texts without any attribute: a batch has as many rows as its columns.
    written = ["", *(name_text((name,)) for name in names)]
    state, is_timed = _frozen(me or {}), at is not None
    since = accepted_at if is_timed else 0.0

    def holds(*arrays: pa.Array) -> pa.Array:
        batch = pa.RecordBatch.from_arrays(list(arrays[: len(written)]), written)
        _check_text(text, batch.schema)
        when = times_of(arrays[-1], "at") if is_timed else np.zeros(batch.num_rows)
        return pa.array(_holding(_compiled(text, since, state), batch, when))

    given = [functions.lit(True), *(functions.col(quoted(name)) for name in names)]
    if at is not None:
        given.append(functions.col(at) if isinstance(at, str) else at)
    return functions.arrow_udf(holds, "boolean")(*given)


def register(spark: SparkSession) -> None:
    """Make `rove_matches(text, struct(*))` known to SQL.

    A third argument is when a row appeared, a fourth when the subscription was accepted (seconds).
    """
    from pyspark.sql import functions

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
    """The check of `match`, of one text; asked with every batch, made once in a worker."""
    uses_of(plain_subscription(text), f"the text {text!r}").check(
        dict(zip(schema.names, schema.types, strict=True))
    )


@lru_cache(maxsize=_TEXTS_MAX)
def _compiled(text: str, accepted_at: float, me: bytes) -> Matcher:
    """A matcher for one text, made once in a worker."""
    matcher = Matcher()
    state: dict[str, object] = msgspec.json.decode(me)
    matcher.add(0, plain_subscription(text), accepted_at, state)
    matcher.compact()
    return matcher


def _frozen(state: Mapping[str, object]) -> bytes:
    return msgspec.json.encode(state)
