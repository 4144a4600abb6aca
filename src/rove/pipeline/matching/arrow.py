"""Converts Arrow columns to the matcher's columns: what a value of a table means in an expression.

Spark sends record batches, and NumPy reads most of their columns without a copy. Values that the
language can compare are used as they are: integers of every width (exactly; those beyond 64 bits
compare with nothing), floats, strings in all of Arrow's forms, booleans. Structs are objects, and
so are maps with string keys. All other values are *carried*: expressions can test them with IS
NULL, no more. These are lists, binaries, intervals, and dates and times, since the language has no
such types; to compare one, convert it to a number first.

The language has no decimals either. In a publication a decimal would be written as a JSON number
with the same digits, so it is converted in the same way: to an integer if its scale is 0, else to
the nearest float. A float of 32 bits keeps its exact value, which is rarely the one that was typed.

A column's name is an attribute in the syntax of expressions: dots reach into nested objects, a
segment in backticks may hold anything. Columns are converted on demand.

Rows of the lake have a payload and user properties, which are decoded row by row by the broker's
function (`rove.lang.attributes`): 1.3 µs of processor time for five members, and 0.5 µs to make
columns of them, where a table's own columns take 0.04 µs (`time.process_time`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rove.errors import RoveError
from rove.lang.attributes import attributes_of
from rove.lang.limits import INTEGER_MAX
from rove.lang.values import OPAQUE, Path
from rove.match.cell import FILTER_ATTRIBUTE
from rove.match.index.columns import (
    BooleanColumn,
    CarriedColumn,
    Column,
    FloatColumn,
    IntegerColumn,
    MappingTable,
    ObjectColumn,
    PublicationTable,
    StringColumn,
)

if TYPE_CHECKING:
    from rove.match.index.columns import Mask
    from rove.match.index.rows import Floats

Part = tuple[Path, Callable[[], Column]]

TOPIC: Final = "topic"
OBJECT: Final = "object"
OPEN: Final = "open"
OTHER: Final = "other"
_UNITS_PER_S: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_SEGMENT: Final = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)")
_WRITTEN: Final = re.compile(rf"(?:{_SEGMENT.pattern})(?:\.(?:{_SEGMENT.pattern}))*")


class TimesError(RoveError):
    """A column that does not give the times of rows."""


# -- tables ------------------------------------------------------------------------------------


def columns_of(
    batch: pa.RecordBatch,
    topic: str | None = None,
    leave_out: Collection[str] = (),
    filters: npt.NDArray[np.int64] | None = None,
) -> PublicationTable:
    """The rows of a batch as publications.

    The column `topic` is also the attribute `topic`, and replaces another one of that name.
    `filters` are numbers of topic filters (`rove.pipeline.matching.topic_filters`).
    """
    parts = _parts_of(batch, topic, leave_out)
    if filters is not None:
        parts = itertools.chain(parts, [((FILTER_ATTRIBUTE,), lambda: IntegerColumn(filters))])
    return PublicationTable(batch.num_rows, parts)


def _parts_of(
    batch: pa.RecordBatch, topic: str | None, leave_out: Collection[str]
) -> Iterator[Part]:
    for number, name in enumerate(batch.schema.names):
        path = path_of(name)
        hidden = name in leave_out or (topic is not None and path[0] == TOPIC)
        if not hidden:
            yield from _parts(path, batch.column(number))
    if topic is not None:
        yield from _parts((TOPIC,), batch.column(topic))


def path_of(name: str) -> Path:
    """The attribute of a column; a name that is no valid path is one segment."""
    if not _WRITTEN.fullmatch(name):
        return (name,)
    return tuple(quoted.replace("``", "`") or plain for quoted, plain in _SEGMENT.findall(name))


def _parts(path: Path, array: pa.Array) -> Iterator[Part]:
    kind = array.type
    if pa.types.is_null(kind):
        return
    if not pa.types.is_struct(kind):
        yield path, partial(column_of, array)
        return
    yield path, lambda: CarriedColumn(_valid(array), are_objects=True)
    # Flattened, a member is null where its object is.
    for member, inner in zip(kind, array.flatten(), strict=True):
        yield from _parts((*path, member.name), inner)


def kind_of(kind: pa.DataType) -> str:
    """The language's type for an Arrow type; OBJECT; or OTHER if it cannot be compared.

    OPEN if it depends on the rows: the members of a map, or a column of nulls.
    """
    if pa.types.is_dictionary(kind):
        return kind_of(kind.value_type)
    if pa.types.is_null(kind) or (pa.types.is_map(kind) and _is_string(kind.key_type)):
        return OPEN
    return next((name for fits, name, _ in _FORMS if fits(kind)), OTHER)


def column_of(array: pa.Array) -> Column:
    """The matcher's column for an array that is no struct."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _of_dictionary(array)
    return next((make for fits, _, make in _FORMS if fits(kind)), _carried)(array)


def _valid(array: pa.Array) -> Mask:
    found: Mask = array.is_valid().to_numpy(zero_copy_only=False)
    return found


def _valid_or_none(array: pa.Array) -> Mask | None:
    return _valid(array) if array.null_count else None


def _filled(array: pa.Array, filler: object) -> Any:
    """A NumPy array with a filler for nulls."""
    return (array.fill_null(filler) if array.null_count else array).to_numpy(zero_copy_only=False)


def _carried(array: pa.Array) -> Column:
    return CarriedColumn(_valid(array))


def _floats(array: pa.Array) -> Column:
    values = _filled(array.cast(pa.float64()), np.nan)
    return FloatColumn(np.ascontiguousarray(values, np.float64))


def _integers(array: pa.Array) -> Column:
    values = _filled(array, 0)
    valid = _valid_or_none(array)
    if values.dtype == np.uint64 and (values > INTEGER_MAX).any():
        return ObjectColumn(array.to_pylist())
    return IntegerColumn(np.ascontiguousarray(values, np.int64), valid)


def _booleans(array: pa.Array) -> Column:
    return BooleanColumn(_filled(array, False), _valid_or_none(array))


def _strings(array: pa.Array) -> Column:
    return _of_dictionary(array.dictionary_encode())


def _of_dictionary(array: pa.DictionaryArray) -> Column:
    texts = array.dictionary
    if not _is_string(texts.type):
        return column_of(array.dictionary_decode())
    valid = _valid(array)
    codes = np.ascontiguousarray(_filled(array.indices, 0), np.int32)
    if texts.null_count:  # a dictionary may hold a null
        valid &= _valid(texts)[codes]
        texts = texts.fill_null("")
    try:
        return StringColumn(codes, texts.to_pylist(), valid)
    except UnicodeDecodeError:
        return _broken_strings(codes, texts, valid)


def _broken_strings(codes: Any, texts: pa.Array, valid: Mask) -> Column:
    """A column of strings that are not all UTF-8; the invalid ones compare with nothing."""
    found = [_decoded(text) for text in texts.cast(pa.binary()).to_pylist()]
    return ObjectColumn(
        [found[code] if there else None for code, there in zip(codes, valid, strict=True)]
    )


def _decoded(text: bytes) -> object:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return OPAQUE


def _decimals(array: pa.Array) -> Column:
    return ObjectColumn([None if value is None else _plain(value) for value in array.to_pylist()])


def _maps(array: pa.Array) -> Column:
    if not _is_string(array.type.key_type):
        return _carried(array)
    # If a key occurs twice, the last value counts, as in JSON.
    return ObjectColumn([_plain(value) for value in array.to_pylist(maps_as_pydicts="lossy")])


def _plain(value: object) -> object:
    """A Python value as in a decoded publication."""
    kind = type(value)
    if kind is Decimal:
        assert isinstance(value, Decimal)
        exponent = value.as_tuple().exponent
        return int(value) if isinstance(exponent, int) and exponent >= 0 else float(value)
    if kind is float:
        return FloatColumn(np.array([value])).value(0)
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    return value if value is None or kind in (int, str, bool) else OPAQUE


def _is_string(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


_FORMS: Final[tuple[tuple[Callable[[Any], bool], str, Callable[[Any], Column]], ...]] = (
    (pa.types.is_floating, "number", _floats),
    (pa.types.is_integer, "number", _integers),
    (pa.types.is_boolean, "boolean", _booleans),
    (_is_string, "string", _strings),
    (pa.types.is_decimal, "number", _decimals),
    (pa.types.is_map, OTHER, _maps),
    (pa.types.is_struct, OBJECT, _carried),
)
"""A test for Arrow types, the language's type, and the conversion."""


# -- times -------------------------------------------------------------------------------------


def times_of(array: pa.Array, name: str) -> Floats:
    """The times of rows in seconds, from timestamps or numbers."""
    kind = array.type
    if array.null_count:
        raise TimesError(f"column {name} has no time in some rows; leave them out")
    if pa.types.is_timestamp(kind):
        units: Floats = array.cast(pa.int64()).to_numpy(zero_copy_only=False)
        return units / _UNITS_PER_S[kind.unit]
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        seconds: Floats = pc.cast(array, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return seconds
    if pa.types.is_decimal(kind):  # what 0.5 is in SQL
        return np.array([float(value) for value in array.to_pylist()], np.float64)
    raise TimesError(
        f"column {name} has the type {kind}; the time of a row is a timestamp, or seconds"
    )


# -- the lake ----------------------------------------------------------------------------------


def lake_columns(batch: pa.RecordBatch) -> MappingTable:
    """The columns of publications of the lake: topic, payload and user properties."""
    topics = batch.column("topic")
    known = {TOPIC: _strings(topics)} if not topics.null_count else {}
    return MappingTable(lake_attributes(batch), known)


def lake_attributes(batch: pa.RecordBatch) -> list[dict[str, object]]:
    """The attributes of each publication in a batch of the lake."""
    topics: Sequence[str] = batch.column("topic").to_pylist()
    payloads: Sequence[bytes | None] = batch.column("payload").to_pylist()
    users = batch.column("user")
    if not pc.any(pc.greater(pc.list_value_length(users), 0)).as_py():
        return [
            attributes_of(topic, payload or b"")
            for topic, payload in zip(topics, payloads, strict=True)
        ]
    return [
        attributes_of(topic, payload or b"", [(one["name"], one["value"]) for one in user or ()])
        for topic, payload, user in zip(topics, payloads, users.to_pylist(), strict=True)
    ]
