"""Typed tables: the publications of a channel as columns, so that a query reads only what it needs.

    <tables>/air/data       the rows, a Delta table by day and cell
    <tables>/air/rejected   rejected rows (`rove.pipeline.tables.commits`)
    <tables>/air/quality    the log of ingestions

The attributes of a publication may have any type, a column has one. So the *schema* only grows:
each attribute (a path of names) has one column for every *kind* of value that it ever had. No file
has to be written again, and the column that is not null says what the value was. Attributes that
are read back are exactly those that were published:

- The first column of an attribute has its plain name, others are called `name::kind`.
- Numbers with a fraction are `double`; integers are `long` as long as all values are integers.
  Integers among other numbers are stored in the `double` column, where users look for them, with
  `name::int` set, because arithmetic distinguishes 1 and 1.0. Beyond 2**53 they go to `name::long`.
- Null, arrays, empty objects and integers of more than 64 bits are JSON in `name::json`.
- Spark does not distinguish `NO2` and `no2`, and `at` is reserved: the second name becomes `no2~2`.
- A column's metadata has its attribute and kind; so the schema is part of the table, and grows in
  the table's commits.
- Values without a column (more attributes than ATTRIBUTES_MAX, names too long, nested too deep) are
  stored as JSON in `::rest`.

Considered: one column of JSON (nothing can be pruned), Spark's VARIANT (other tools cannot read
it), always adding the type to names (users would have to write `sensor::string`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from rove.errors import RoveError
from rove.lake import delta
from rove.lake.files import read_columns
from rove.lake.storage import Location, child, folder_of, folders, resolved, shown
from rove.pipeline.spark.dialect import quoted
from rove.pipeline.spark.file_frames import frame_of_files
from rove.pipeline.tables.grid import KM_DEFAULT

NamePath: TypeAlias = tuple[str, ...]
"""The names on the path to an attribute, outermost first."""
Kind: TypeAlias = Literal["double", "long", "string", "boolean", "json", "int"]
"""The kind of a column; `int` marks the integers in a `double` column."""
Sort: TypeAlias = Literal["float", "small", "large", "text", "truth", "other"]
"""The sort of a value: `small` and `large` are integers up to 2**53 and up to 64 bits."""

ATTRIBUTES_MAX: Final = 1_000
"""Attributes of a channel: invented names must not make a table unreadable."""
NAME_BYTES_MAX: Final = 200
DEPTH_MAX: Final = 16
SMALL_MAX: Final = 2**53
REST: Final = "::rest"

_TEXT: Final = pa.string()
BASE: Final = pa.schema(
    [
        ("position", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("topic", _TEXT),
        ("id", _TEXT),
        ("client_id", _TEXT),
        ("qos", pa.int8()),
    ]
)
"""The columns of every table. `position` is null in imported rows."""
TYPES: Final[Mapping[str, Any]] = {
    "double": pa.float64(),
    "long": pa.int64(),
    "string": _TEXT,
    "boolean": pa.bool_(),
    "json": _TEXT,
    "int": pa.bool_(),
}
_KINDS: Final[tuple[Kind, ...]] = ("double", "long", "string", "boolean", "json", "int")
_PLAIN_KINDS: Final = _KINDS[:4]
_RESERVED: Final = (*BASE.names, "day", "cell", "reason", REST)
_ESCAPED: Final = re.compile(r"[%.` ,;{}()=\x00-\x1f\x7f]")
"""Characters that are hard to write in SQL, or not allowed in Delta's column names."""
_FOLDER_PLAIN: Final = re.compile(r"[\w.-]", re.ASCII)
_CHANNEL_BYTES_MAX: Final = 200
_DIGEST_CHARACTERS: Final = 16

WRITER: Final = "ingest"
"""The writer under whose name commits have the number of the ingestion."""
TablePart: TypeAlias = Literal["data", "rejected", "quality"]
"""The Delta tables of a channel."""
PARTITIONS: Final = pa.schema([("day", pa.date32()), ("cell", _TEXT)])
_ROOM, _PATH, _KIND = b"rove.table", b"rove.path", b"rove.kind"
"""Metadata of columns: of `cell`, the first schema of the table; of others, their attribute."""
_STATISTICS_US: Final = 1_000
"""Moments in statistics may be too early by this."""
_OLD: Final = "_manifest"


class TablesError(RoveError):
    """A table is missing, cannot be read, or was changed by another process."""


# --- the schema -------------------------------------------------------------------------------


class AttributeColumns(msgspec.Struct, frozen=True):
    """The columns of an attribute, by kind."""

    path: NamePath
    columns: dict[Kind, str]

    def column_of(self, sort: Sort) -> Kind | None:
        """The kind of column for a value; None if there is no such column yet."""
        has = self.columns.keys()
        if sort == "small" and "long" not in has:
            return "double" if {"double", "int"} <= has else None
        kind = _KIND_OF[sort]
        return kind if kind in has else None


_KIND_OF: Final[Mapping[Sort, Kind]] = {
    "float": "double",
    "small": "long",
    "large": "long",
    "text": "string",
    "truth": "boolean",
    "other": "json",
}


class TableSchema(msgspec.Struct, frozen=True):
    """The schema of a table. It only grows."""

    channel: str
    cell_km: int = KM_DEFAULT
    lat: NamePath = ("lat",)
    """The attributes with the position of a row."""
    long: NamePath = ("long",)
    attributes: tuple[AttributeColumns, ...] = ()
    has_rest: bool = False

    def by_path(self) -> dict[NamePath, AttributeColumns]:
        return {attribute.path: attribute for attribute in self.attributes}

    def arrow(self) -> Any:
        """All columns as an Arrow schema; a file has only those that it needs."""
        fields = [
            (column, TYPES[kind])
            for attribute in self.attributes
            for kind, column in attribute.columns.items()
        ]
        if self.has_rest:
            fields.append((REST, _TEXT))
        return pa.schema([*BASE, *(pa.field(name, type_) for name, type_ in fields)])

    def delta(self) -> Any:
        """The columns of the Delta table, with partitions and metadata."""
        begun = msgspec.structs.replace(self, attributes=(), has_rest=False)
        metadata = {
            column: {_PATH: msgspec.json.encode(attribute.path), _KIND: kind.encode()}
            for attribute in self.attributes
            for kind, column in attribute.columns.items()
        } | {"cell": {_ROOM: msgspec.json.encode(begun)}}
        return pa.schema(
            [
                field.with_metadata(metadata.get(field.name))
                for field in (*PARTITIONS, *self.arrow())
            ]
        )

    def number_columns(self, path: NamePath) -> list[str]:
        """The columns with the numbers of an attribute."""
        attribute = self.by_path().get(path)
        columns = attribute.columns.items() if attribute else ()
        return [column for kind, column in columns if kind in ("double", "long")]

    def number_sql(self, path: NamePath) -> str:
        """An attribute as a number in Spark SQL, whichever columns have it."""
        parts = [f"cast({quoted(column)} as double)" for column in self.number_columns(path)]
        return f"coalesce({', '.join([*parts, 'cast(null as double)'])})"

    def may_take(self, path: NamePath) -> bool:
        """Whether an attribute can have columns; others are stored in `::rest`."""
        return len(path) <= DEPTH_MAX and len(_plain_name(path).encode()) <= NAME_BYTES_MAX

    def extended(
        self, seen: Mapping[tuple[NamePath, Sort], int], *, needs_rest: bool = False
    ) -> TableSchema:
        """The schema with columns for values with these counts, if they can have columns."""
        by_path: dict[NamePath, dict[Sort, int]] = {}
        for (path, sort), rows in seen.items():
            by_path.setdefault(path, {})[sort] = rows
        attributes = self.by_path()
        names = _ColumnNames(self)
        has_rest = self.has_rest or needs_rest
        for path, sorts in sorted(by_path.items(), key=lambda each: -sum(each[1].values())):
            if not self.may_take(path) or (
                path not in attributes and len(attributes) >= ATTRIBUTES_MAX
            ):
                has_rest = True
                continue
            known = attributes.get(path, AttributeColumns(path, {}))
            attributes[path] = AttributeColumns(path, known.columns | names.of(known, sorts))
        return msgspec.structs.replace(
            self, attributes=tuple(attributes.values()), has_rest=has_rest
        )


class _ColumnNames:
    """Names for columns, unique even if case is ignored."""

    def __init__(self, schema: TableSchema) -> None:
        self._taken = set(map(_folded, _RESERVED))
        for attribute in schema.attributes:
            self._taken.update(map(_folded, attribute.columns.values()))

    def of(self, known: AttributeColumns, sorts: Mapping[Sort, int]) -> dict[Kind, str]:
        """Names for the columns that an attribute needs for values of these sorts."""
        rows = _kinds_lacking(known.columns.keys(), sorts)
        is_first = not any(kind in known.columns for kind in _PLAIN_KINDS)
        found: dict[Kind, str] = {}
        plain = _plain_name(known.path)
        for kind in sorted(rows, key=lambda kind: (-rows[kind], _KINDS.index(kind))):
            if is_first and kind in _PLAIN_KINDS:
                found[kind] = self._free(plain)
                is_first = False
            else:
                found[kind] = self._free(f"{plain}::{kind}")
        return found

    def _free(self, wanted: str) -> str:
        name, number = wanted, 1
        while _folded(name) in self._taken:
            number += 1
            name = f"{wanted}~{number}"
        self._taken.add(_folded(name))
        return name


def _kinds_lacking(has: Iterable[Kind], sorts: Mapping[Sort, int]) -> dict[Kind, int]:
    """The kinds of columns to add, each with its number of values."""
    rows: dict[Kind, int] = {}
    for sort, count in sorts.items():
        if sort != "small":
            rows[_KIND_OF[sort]] = rows.get(_KIND_OF[sort], 0) + count
    small = sorts.get("small", 0)
    known = {*has, *rows}
    if small and "long" in known:
        rows["long"] = rows.get("long", 0) + small
    elif small and "double" in known:
        rows["double"] = rows.get("double", 0) + small
        rows["int"] = 0
    elif small:
        rows["long"] = small
    return {kind: count for kind, count in rows.items() if kind not in set(has)}


def _plain_name(path: NamePath) -> str:
    """Names joined by dots; dots in names, and special characters, are escaped as `%2E`."""
    return ".".join(_ESCAPED.sub(_percent, name) or "%" for name in path)


def _percent(found: re.Match[str]) -> str:
    return f"%{ord(found[0]):02X}"


def _folded(name: str) -> str:
    """Equal for all names that Java considers equal if it ignores case (and a few more)."""
    return name.upper().casefold().replace("\u0307", "")


# --- attributes back from columns -------------------------------------------------------------


def attributes(schema: TableSchema, row: Mapping[str, Any]) -> dict[str, object]:
    """The attributes of a row as they were published; columns may be missing."""
    found: dict[str, object] = {}
    for attribute in schema.attributes:
        for kind, column in attribute.columns.items():
            value = row.get(column)
            if value is not None and kind != "int":
                if kind == "json":
                    value = msgspec.json.decode(value)
                elif kind == "double" and row.get(attribute.columns.get("int", "")) is True:
                    value = int(value)
                _put(found, attribute.path, value)
    if schema.has_rest and row.get(REST) is not None:
        _merge(found, msgspec.json.decode(row[REST]))
    found["topic"] = row["topic"]
    return found


def attributes_of_rows(schema: TableSchema, rows: Any) -> list[dict[str, object]]:
    """The attributes of all rows of an Arrow table or batch."""
    return [attributes(schema, row) for row in rows.to_pylist()]


def _put(found: dict[str, object], path: NamePath, value: object) -> None:
    for name in path[:-1]:
        found = found.setdefault(name, {})  # type: ignore[assignment]
    found[path[-1]] = value


def _merge(found: dict[str, object], rest: Mapping[str, object]) -> None:
    """Merge `::rest` into the attributes; they may share objects, but no values."""
    for name, value in rest.items():
        inner = found.get(name)
        if isinstance(inner, dict) and isinstance(value, dict):
            _merge(inner, value)
        else:
            found[name] = value


# --- stored tables ----------------------------------------------------------------------------


class TableFile(msgspec.Struct, frozen=True):
    """A file of a table, with the statistics of its rows."""

    path: str
    """Relative to the Delta table."""
    rows: int
    size_bytes: int
    day: str = ""
    cell: str = ""
    at_min_us: int = 0
    at_max_us: int = 0
    """Bounds, which may be off by a millisecond."""
    box: tuple[float, float, float, float] | None = None
    """Least and greatest latitude, least and greatest longitude of its rows; None if unknown."""


class TableSnapshot(NamedTuple):
    """The files of a table at one version."""

    uri: str
    schema: TableSchema
    number: int
    """The number of the last ingestion in it."""
    files: list[TableFile]
    """In the order of day, cell and time."""


class Table:
    """The typed table of a channel, for reading; `rove.pipeline.tables.commits` writes it."""

    def __init__(self, tables: Location, channel: str) -> None:
        self.channel = channel
        self.uri = child(resolved(tables), folder_name(channel))
        """The parent of its three Delta tables."""
        folder = folder_of(self.uri)
        if folder is not None and (folder / _OLD).is_dir():
            raise TablesError(
                f"{folder} is a table of an earlier Rove; move it away, and "
                "`rove pipeline ingest --lake … --tables …` makes it again from the lake"
            )

    def uri_of(self, part: TablePart) -> str:
        """The URI of one of its Delta tables."""
        return child(self.uri, part)

    def snapshot(self) -> TableSnapshot:
        """The current files; TablesError if there is no table."""
        opened = self._opened("data")
        schema = schema_of(opened)
        number = opened.number(WRITER)
        return TableSnapshot(
            opened.uri, schema, -1 if number is None else number, files_of(opened, schema)
        )

    def schema(self) -> TableSchema:
        """The current schema."""
        return schema_of(self._opened("data"))

    def files(
        self, *, days: tuple[str, str] | None = None, cells: Iterable[str] | None = None
    ) -> list[TableFile]:
        """Files by day, cell and time; only between two days or of some cells, if given."""
        return _chosen(self.snapshot().files, days, cells)

    def read(
        self,
        part: TablePart = "data",
        *,
        days: tuple[str, str] | None = None,
        cells: Iterable[str] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Any:
        """The rows as an Arrow table, with all columns or some."""
        if part == "data":
            now = self.snapshot()
            schema, files = now.schema.arrow(), _chosen(now.files, days, cells)
            paths = [file.path for file in files]
        else:
            opened = self._opened(part)
            schema = pa.schema(opened.fields).remove_metadata()
            paths = [unquote(path) for path in sorted(opened.files()["path"].to_pylist())]
        wanted = pa.schema([schema.field(name) for name in columns or schema.names])
        found = [read_columns(self.uri_of(part), path, wanted) for path in paths]
        return pa.concat_tables([wanted.empty_table(), *found])

    def counts(self) -> dict[str, int]:
        """The numbers of all rows: `in`, `out` and rejected by reason."""
        quality = self.read("quality", columns=["reason", "rows"])
        found: dict[str, int] = {"in": 0}
        for reason, rows in zip(*(column.to_pylist() for column in quality.columns), strict=True):
            found[reason or "out"] = found.get(reason or "out", 0) + rows
            found["in"] += rows
        return found

    def dataframe(
        self,
        spark: Any,
        *,
        days: tuple[str, str] | None = None,
        cells: Iterable[str] | None = None,
    ) -> Any:
        """The rows as a Spark DataFrame, with `day` and `cell`."""
        now = self.snapshot()
        paths = [file.path for file in _chosen(now.files, days, cells)]
        return frame_of_files(spark, now.uri, paths, now.schema.arrow(), PARTITIONS)

    def _opened(self, part: TablePart) -> delta.DeltaTable:
        try:
            return delta.DeltaTable(self.uri_of(part))
        except delta.MissingTableError as error:
            raise TablesError(
                f"there is no table of the channel {self.channel!r} in "
                f"{shown(self.uri.rpartition('/')[0])}; `rove pipeline ingest` makes one"
            ) from error


def schema_of(opened: delta.DeltaTable) -> TableSchema:
    """The schema in the metadata of a Delta table; TablesError if there is none."""
    fields = {field.name: field.metadata or {} for field in opened.fields}
    columns: dict[NamePath, dict[Kind, str]] = {}
    try:
        begun = msgspec.json.decode(fields["cell"][_ROOM], type=TableSchema)
        for name, metadata in fields.items():
            if _PATH in metadata:
                path = msgspec.json.decode(metadata[_PATH], type=NamePath)
                columns.setdefault(path, {})[msgspec.convert(metadata[_KIND].decode(), Kind)] = name
    except (KeyError, msgspec.MsgspecError) as error:
        raise TablesError(f"{shown(opened.uri)} is no table of `rove pipeline ingest`") from error
    return msgspec.structs.replace(
        begun,
        attributes=tuple(AttributeColumns(path, own) for path, own in columns.items()),
        has_rest=REST in fields,
    )


def files_of(opened: delta.DeltaTable, schema: TableSchema) -> list[TableFile]:
    """The files of a data table, by day, cell and time."""
    listed = opened.files()
    names = listed.column_names

    def of(name: str) -> list[Any]:
        return listed[name].to_pylist() if name in names else [None] * listed.num_rows

    def moments(name: str) -> list[int]:
        return [each or 0 for each in pc.cast(listed[name], pa.int64()).to_pylist()]

    if not listed.num_rows:
        return []
    rows_of = of("num_records")
    spans = (
        _spans(rows_of, [(of(f"null_count.{c}"), of(f"min.{c}"), of(f"max.{c}")) for c in own])
        for own in map(schema.number_columns, (schema.lat, schema.long))
    )
    found = [
        TableFile(
            unquote(path), rows, size, str(day), cell, first_us, last_us + _STATISTICS_US,
            None if lat is None or long is None else (*lat, *long),
        )
        for path, rows, size, day, cell, first_us, last_us, lat, long in zip(
            of("path"), rows_of, of("size_bytes"), of("partition.day"),
            of("partition.cell"), moments("min.at"), moments("max.at"), *spans, strict=True,
        )
    ]  # fmt: skip
    return sorted(found, key=lambda file: (file.day, file.cell, file.at_min_us, file.path))


def _spans(
    rows: Sequence[int], columns: Sequence[tuple[list[Any], list[Any], list[Any]]]
) -> list[tuple[float, float] | None]:
    """The least and the greatest value of some columns in each file; None if unknown."""
    found: list[tuple[float, float] | None] = []
    for number, count in enumerate(rows):
        # A file without statistics of a column does not have the column.
        own = [
            (low[number], high[number])
            for nulls, low, high in columns
            if nulls[number] is not None and nulls[number] < count
        ]
        is_known = bool(own) and all(None not in ends for ends in own)
        found.append(
            (min(low for low, _ in own), max(high for _, high in own)) if is_known else None
        )
    return found


def _chosen(
    files: Iterable[TableFile], days: tuple[str, str] | None, cells: Iterable[str] | None
) -> list[TableFile]:
    wanted = None if cells is None else set(cells)
    return [
        file
        for file in files
        if (days is None or days[0] <= file.day <= days[1])
        and (wanted is None or file.cell in wanted)
    ]


def channels(tables: Location) -> list[str]:
    """The channels that have a table."""
    return sorted(_channels(resolved(tables)))


def _channels(uri: str) -> Iterator[str]:
    for name in folders(uri):
        data = child(uri, name, "data")
        if delta.exists(data):
            yield schema_of(delta.DeltaTable(data)).channel


def folder_name(channel: str) -> str:
    """The folder of a channel: letters, digits and a few more, others escaped as `~2F`; not hidden.

    `%2F` or non-ASCII letters are not used: tools that read Delta tables treat paths as URIs, and
    not all of them decode them exactly once.
    """
    name = "".join(
        character if _FOLDER_PLAIN.fullmatch(character) else _tilde(character.encode())
        for character in channel
    )
    if name[:1] in ("", ".", "_"):
        name = _tilde(name[:1].encode()) + name[1:]
    if len(name) <= _CHANNEL_BYTES_MAX:
        return name
    digest = hashlib.sha256(channel.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{name[:_CHANNEL_BYTES_MAX]}~~{digest}"


def _tilde(encoded: bytes) -> str:
    return "".join(f"~{each:02X}" for each in encoded) or "~"
