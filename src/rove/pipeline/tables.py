"""Typed tables: what a channel published, as columns, so that reading costs what is asked for.

    <tables>/air/data/day=2026-11-16/cell=33TWL77/part-….parquet
    <tables>/air/_schema.json       which columns an attribute has
    <tables>/air/_manifest/…        which files count (`rove.pipeline.commits`)

Publications are objects of anything, tables have columns of one type. The bridge is a *schema*
that only grows: each attribute (a path of names) has one column for every *kind* of value that it
was ever seen with, so nothing that was written before has to be written again, and a row says by
which column is not null what the value was. Read back, attributes are exactly those published:

- A column has the attribute's plain name if it was the first, else `name::kind`.
- Numbers with a fraction are `double`, whole ones `long` as long as all are whole. Whole numbers
  that come between others are kept in the `double` column too, where people look for them, with
  `name::int` set, because arithmetic tells 1 from 1.0. Beyond 2**53 they go to `name::long`.
- Null, arrays, empty objects and integers of more than 64 bits are JSON texts in `name::json`.
- Spark takes `NO2` and `no2` for one name, and `at` is taken: who comes second gets `no2~2`.
- What gets no column (more attributes than ATTRIBUTES_MAX, names too long, nests too deep) is
  kept as JSON in `::rest`.

Considered: one column of JSON (nothing can be pruned), Spark's VARIANT (other tools cannot read
it), columns named by type always (nobody wants to write `sensor::string`).
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rove.errors import RoveError
from rove.pipeline.cells import KM_DEFAULT
from rove.pipeline.commits import FileEntry, FileKind, Log, State
from rove.pipeline.sql import SPARK_TYPES, quoted

NamePath: TypeAlias = tuple[str, ...]
"""The names that lead to an attribute, from outside in."""
Kind: TypeAlias = Literal["double", "long", "string", "boolean", "json", "int"]
"""What a column holds; `int` marks the whole numbers in a `double` column."""
Sort: TypeAlias = Literal["float", "small", "large", "text", "truth", "other"]
"""What a value is: `small` and `large` are integers up to 2**53 and up to 64 bits."""

ATTRIBUTES_MAX: Final = 1_000
"""Of one channel; a publisher that invents names must not make tables unreadable."""
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
"""The columns of every table. `position` is null in what came from outside."""
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
_ESCAPED: Final = re.compile(r"[%.`\x00-\x1f\x7f]")
_FOLDER_ESCAPED: Final = re.compile(r"[^\w.-]", re.ASCII)
_CHANNEL_BYTES_MAX: Final = 200
_EMPTY_CHANNEL: Final = "%"
_DIGEST_CHARACTERS: Final = 16


class TablesError(RoveError):
    """A table is missing, cannot be read, or was changed by somebody else."""


# --- the schema -------------------------------------------------------------------------------


class Attribute(msgspec.Struct, frozen=True):
    """An attribute and the columns that it has, by kind."""

    path: NamePath
    columns: dict[Kind, str]

    def column_of(self, sort: Sort) -> Kind | None:
        """The kind of column that takes such a value; None if there is none yet."""
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
    """What a table is made of. It grows, and what is there never changes."""

    channel: str
    cell_km: int = KM_DEFAULT
    lat: NamePath = ("lat",)
    """The attributes that say where a row is."""
    long: NamePath = ("long",)
    attributes: tuple[Attribute, ...] = ()
    has_rest: bool = False

    def by_path(self) -> dict[NamePath, Attribute]:
        return {attribute.path: attribute for attribute in self.attributes}

    def arrow(self) -> Any:
        """Every column, as Arrow has them; a file has those of them that it needs."""
        fields = [
            (column, TYPES[kind])
            for attribute in self.attributes
            for kind, column in attribute.columns.items()
        ]
        if self.has_rest:
            fields.append((REST, _TEXT))
        return pa.schema([*BASE, *(pa.field(name, type_) for name, type_ in fields)])

    def number_sql(self, path: NamePath) -> str:
        """An attribute as one number in Spark's SQL, whichever columns it is in."""
        attribute = self.by_path().get(path)
        parts = [
            f"cast({quoted(column)} as double)"
            for kind, column in (attribute.columns.items() if attribute else ())
            if kind in ("double", "long")
        ]
        return f"coalesce({', '.join([*parts, 'cast(null as double)'])})"

    def may_take(self, path: NamePath) -> bool:
        """Whether an attribute can have columns; what cannot is kept in `::rest`."""
        return len(path) <= DEPTH_MAX and len(_plain_name(path).encode()) <= NAME_BYTES_MAX

    def extended(
        self, seen: Mapping[tuple[NamePath, Sort], int], *, needs_rest: bool = False
    ) -> TableSchema:
        """With columns for what was seen so many times, as far as there may be columns."""
        by_path: dict[NamePath, dict[Sort, int]] = {}
        for (path, sort), rows in seen.items():
            by_path.setdefault(path, {})[sort] = rows
        attributes = self.by_path()
        names = _Names(self)
        has_rest = self.has_rest or needs_rest
        for path, sorts in sorted(by_path.items(), key=lambda each: -sum(each[1].values())):
            if not self.may_take(path) or (
                path not in attributes and len(attributes) >= ATTRIBUTES_MAX
            ):
                has_rest = True
                continue
            known = attributes.get(path, Attribute(path, {}))
            attributes[path] = Attribute(path, known.columns | names.of(known, sorts))
        return msgspec.structs.replace(
            self, attributes=tuple(attributes.values()), has_rest=has_rest
        )


class _Names:
    """Gives names to columns, each once even for those who do not tell `A` from `a`."""

    def __init__(self, schema: TableSchema) -> None:
        self._taken = set(map(_folded, _RESERVED))
        for attribute in schema.attributes:
            self._taken.update(map(_folded, attribute.columns.values()))

    def of(self, known: Attribute, sorts: Mapping[Sort, int]) -> dict[Kind, str]:
        """Names for the columns that an attribute lacks for values of these sorts."""
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
    """The kinds of columns to add, with how many values each is for."""
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
    """Names joined by dots; dots inside of them, and what is hard to write, as `%2E`."""
    return ".".join(_ESCAPED.sub(_percent, name) or "%" for name in path)


def _percent(found: re.Match[str]) -> str:
    return f"%{ord(found[0]):02X}"


def _folded(name: str) -> str:
    """Equal for all names that Java takes for equal when it ignores case (and a few more)."""
    return name.upper().casefold().replace("\u0307", "")


# --- attributes back from columns -------------------------------------------------------------


def attributes(schema: TableSchema, row: Mapping[str, Any]) -> dict[str, object]:
    """The attributes of a row as they were published; columns may be missing."""
    found: dict[str, object] = {}
    for attribute in schema.attributes:
        for kind, column in attribute.columns.items():
            value = row.get(column)
            if value is not None and kind != "int":
                is_whole = kind == "double" and row.get(attribute.columns.get("int", "")) is True
                _put(found, attribute.path, _value_of(kind, value, is_whole=is_whole))
    if schema.has_rest and row.get(REST) is not None:
        _merge(found, msgspec.json.decode(row[REST]))
    found["topic"] = row["topic"]
    return found


def attributes_of_rows(schema: TableSchema, rows: Any) -> list[dict[str, object]]:
    """The same for a whole Arrow table or batch, column by column."""
    found: list[dict[str, object]] = [{} for _ in range(rows.num_rows)]
    names = set(rows.schema.names)
    for attribute in schema.attributes:
        for kind, column in attribute.columns.items():
            if kind == "int" or column not in names:
                continue
            places, values = _there(rows.column(column))
            marks: Sequence[bool] = [False] * len(places)
            mark = attribute.columns.get("int")
            if kind == "double" and mark in names:
                marks = (
                    pc.is_valid(rows.column(mark)).take(pa.array(places, pa.int64())).to_pylist()
                )
            for place, value, is_whole in zip(places, values, marks, strict=True):
                _put(found[place], attribute.path, _value_of(kind, value, is_whole=is_whole))
    if schema.has_rest and REST in names:
        for place, rest in zip(*_there(rows.column(REST)), strict=True):
            _merge(found[place], msgspec.json.decode(rest))
    for each, topic in zip(found, rows.column("topic").to_pylist(), strict=True):
        each["topic"] = topic
    return found


def _there(column: Any) -> tuple[list[int], list[Any]]:
    """Where a column is not null, and what it is there."""
    places = pc.indices_nonzero(pc.is_valid(column))
    return places.to_pylist(), column.take(places).to_pylist()


def _value_of(kind: Kind, value: Any, *, is_whole: bool) -> object:
    if kind == "json":
        return msgspec.json.decode(value)
    return int(value) if is_whole else value


def _put(found: dict[str, object], path: NamePath, value: object) -> None:
    for name in path[:-1]:
        found = found.setdefault(name, {})  # type: ignore[assignment]
    found[path[-1]] = value


def _merge(found: dict[str, object], rest: Mapping[str, object]) -> None:
    """Put what had no columns beside what had; they share no values, only objects."""
    for name, value in rest.items():
        inner = found.get(name)
        if isinstance(inner, dict) and isinstance(value, dict):
            _merge(inner, value)
        else:
            found[name] = value


# --- a table on disk --------------------------------------------------------------------------


class Table:
    """The typed rows of one channel. It reads; `rove.pipeline.ingest` writes."""

    def __init__(self, tables: Path, channel: str) -> None:
        self.channel = channel
        self.folder = tables / folder_name(channel)
        self.log = Log(self.folder)

    def state(self) -> State:
        """What counts now; TablesError if nothing was ever written."""
        state = self.log.state()
        if state.version < 0:
            raise TablesError(
                f"there is no table of the channel {self.channel!r} in {self.folder.parent}; "
                "`rove pipeline ingest` makes one"
            )
        return state

    def schema(self, state: State | None = None) -> TableSchema:
        """Of a state, or of the newest."""
        return schema_of(state or self.state(), self.folder)

    def write_schema_copy(self, schema: TableSchema) -> None:
        """Put the schema where people and other programs look for it; the commits have it too."""
        content = msgspec.json.format(msgspec.json.encode(schema), indent=1)
        path = self.folder / "_schema.json"
        if not path.exists() or path.read_bytes() != content:
            unfinished = path.with_name(f".schema-{uuid.uuid4().hex}.tmp")
            unfinished.write_bytes(content)
            unfinished.rename(path)

    def files(
        self,
        kind: FileKind = "data",
        *,
        days: tuple[str, str] | None = None,
        cells: Iterable[str] | None = None,
        state: State | None = None,
    ) -> list[FileEntry]:
        """The files that count, of days from and to and of these cells, by day, cell and time."""
        wanted = None if cells is None else set(cells)
        found = [
            entry
            for entry in (state or self.state()).files.values()
            if entry.kind == kind
            and (days is None or days[0] <= entry.day <= days[1])
            and (wanted is None or entry.cell in wanted)
        ]
        return sorted(found, key=lambda entry: (entry.day, entry.cell, entry.at_min_us, entry.path))

    def read(
        self,
        kind: FileKind = "data",
        *,
        days: tuple[str, str] | None = None,
        cells: Iterable[str] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Any:
        """The rows as an Arrow table, with every column of the schema or with these."""
        state = self.state()
        entries = self.files(kind, days=days, cells=cells, state=state)
        found = [self._read_file(entry, columns) for entry in entries]
        if kind == "data":
            schema = self.schema(state).arrow()
            fields = [schema.field(name) for name in columns or schema.names]
            found.insert(0, pa.schema(fields).empty_table())
        if not found:
            raise TablesError(f"nothing in {self.folder} is {kind}")
        return pa.concat_tables(found, promote_options="default")

    def _read_file(self, entry: FileEntry, columns: Sequence[str] | None) -> Any:
        path = self.folder / entry.path
        try:
            # Not read_table: that would make columns of the folders' names.
            file = pq.ParquetFile(path)
            there = set(file.schema_arrow.names)
            return file.read(None if columns is None else [n for n in columns if n in there])
        except (OSError, pa.ArrowException) as error:
            raise TablesError(f"cannot read {path}: {error}") from error

    def dataframe(
        self,
        spark: Any,
        *,
        days: tuple[str, str] | None = None,
        cells: Iterable[str] | None = None,
    ) -> Any:
        """The rows as a Spark DataFrame, with the columns `day` and `cell` of the folders."""
        state = self.state()
        wanted = [*self.schema(state).arrow(), pa.field("day", _TEXT), pa.field("cell", _TEXT)]
        ddl = ", ".join(f"{quoted(field.name)} {SPARK_TYPES[field.type]}" for field in wanted)
        entries = self.files(days=days, cells=cells, state=state)
        if not entries:
            return spark.createDataFrame([], ddl)
        paths = [str(self.folder / entry.path) for entry in entries]
        return spark.read.schema(ddl).option("basePath", str(self.folder / "data")).parquet(*paths)


def schema_of(state: State, folder: Path) -> TableSchema:
    """The schema that a commit holds; TablesError if it cannot be read."""
    try:
        return msgspec.convert(state.schema, TableSchema)
    except msgspec.MsgspecError as error:
        raise TablesError(f"the schema of {folder} cannot be read: {error}") from error


def channels(tables: Path) -> list[str]:
    """The channels that have a table."""
    return sorted(_channels(tables))


def _channels(tables: Path) -> Iterator[str]:
    for folder in tables.glob("*/_manifest"):
        state = Log(folder.parent).state()
        if state.version >= 0:
            yield schema_of(state, folder.parent).channel


def folder_name(channel: str) -> str:
    """The folder of a channel: percent-encoded where it has to be, and never hidden."""
    if not channel:
        return _EMPTY_CHANNEL
    name = "".join(
        character if character >= "\x80" else _FOLDER_ESCAPED.sub(_percent, character)
        for character in channel
    )
    if name[0] in "._":
        name = f"%{ord(name[0]):02X}{name[1:]}"
    if len(name.encode()) <= _CHANNEL_BYTES_MAX:
        return name
    digest = hashlib.sha256(channel.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    shortened = name.encode()[:_CHANNEL_BYTES_MAX].decode(errors="ignore")
    return re.sub("%.?$", "", shortened) + f"~{digest}"  # no half of a %2F
