"""Data files of a Delta table, which tasks write and a commit adds to the table.

A task of Spark may run twice, be killed half-way, or continue when nothing waits for it any more.
So each writes files with unique names, and returns the names to the driver. `DeltaTable.commit`
adds some of them to the table; the others are never part of it, and `DeltaTable.vacuum` deletes
them.

Readers skip files by their statistics: the least and the greatest value of each column, and its
number of nulls. They cost one pass over each column, and 0.1 ms.
"""

from __future__ import annotations

import json
import math
import re
import time
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rove.base.files import sync
from rove.lake.storage import child, filesystem, folder_of, lake_errors, open_parquet, shown

NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
ROW_GROUP_ROWS: Final = 131_072
_TEXT_MAX: Final = 32
"""Longer strings have no statistics: the greatest one could not just be cut."""
_ESCAPED: Final = re.compile(r"[^\w .@+-]", re.ASCII)
_MILLISECOND: Final = timedelta(milliseconds=1)


class NewFile(msgspec.Struct, frozen=True):
    """A file that a task has written, as a commit needs it."""

    path: str
    """Relative to the table."""
    size_bytes: int
    rows: int
    partition: dict[str, str | None] = {}
    stats: str = "{}"
    """Statistics in Delta's form: a JSON object."""


def write_file(uri: str, rows: pa.Table, partition: Mapping[str, str | None] = {}) -> NewFile:
    """Write a file of rows below a table; `partition` has the values of its partition columns.

    It is on disk when this returns. Columns of the table that `rows` lacks are null.
    """
    folders = [f"{name}={_folder_name(value)}" for name, value in partition.items()]
    path = "/".join([*folders, f"part-{uuid.uuid4().hex}.parquet"])
    with lake_errors(f"cannot write {shown(child(uri, path))}"):
        if (folder := folder_of(uri)) is not None:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
        with filesystem(uri).open_output_stream(path) as stream:
            pq.write_table(
                rows,
                stream,
                compression="zstd",
                row_group_size=ROW_GROUP_ROWS,
                use_dictionary=_texts(rows.schema),
            )
            size_bytes = stream.tell()
        if folder is not None:
            sync(folder / path)
            sync((folder / path).parent)
    return NewFile(path, size_bytes, rows.num_rows, dict(partition), json.dumps(_stats(rows)))


def read_columns(uri: str, path: str, wanted: pa.Schema) -> pa.Table:
    """Columns of a file with these types; columns that it lacks are null."""
    with open_parquet(uri, path) as file:
        there = set(file.schema_arrow.names)
        rows = file.read([name for name in wanted.names if name in there], use_threads=False)
        count = file.metadata.num_rows
    return pa.Table.from_arrays(
        [
            rows[field.name].cast(field.type)
            if field.name in there
            else pa.nulls(count, field.type)
            for field in wanted
        ],
        schema=wanted,
    )


def remove_files(uri: str, files: Iterable[NewFile]) -> None:
    """Delete files that no commit has named, or will name."""
    with lake_errors(f"cannot remove files of {shown(uri)}"):
        for file in files:
            filesystem(uri).delete_file(file.path)


def add_action(file: NewFile) -> Any:
    """A file as the library's action."""
    from deltalake.transaction import AddAction

    now_ms = int(time.time() * 1_000)
    return AddAction(file.path, file.size_bytes, file.partition, now_ms, True, file.stats)


def _texts(schema: pa.Schema) -> list[str]:
    """Columns to be written with a dictionary: numbers hardly repeat, and trying costs a third."""
    return [
        field.name
        for field in schema
        if pa.types.is_string(field.type) or pa.types.is_binary(field.type)
    ]


def _folder_name(value: str | None) -> str:
    """A value as part of a path: characters that may be special there are percent-encoded."""
    if not value:
        return NULL_PARTITION
    return _ESCAPED.sub(lambda found: "".join(f"%{b:02X}" for b in found[0].encode()), value)


def _stats(rows: pa.Table) -> dict[str, Any]:
    found: dict[str, Any] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if pa.types.is_nested(column.type):
            continue
        found["nullCount"][name] = column.null_count
        ends = _ends(column)
        if ends is not None:
            found["minValues"][name], found["maxValues"][name] = ends
    return {"numRecords": rows.num_rows, **found}


def _ends(column: pa.ChunkedArray) -> tuple[object, object] | None:
    """The least and the greatest value for JSON; None if a reader could not rely on them."""
    kind = column.type
    is_text = pa.types.is_string(kind)
    if not (is_text or pa.types.is_integer(kind) or pa.types.is_floating(kind)) and not (
        pa.types.is_timestamp(kind) or pa.types.is_date(kind)
    ):
        return None
    if is_text and (pc.max(pc.binary_length(column)).as_py() or 0) > _TEXT_MAX:
        return None
    if pa.types.is_floating(kind) and pc.any(pc.is_nan(column)).as_py():
        return None  # a NaN is greater than all, and JSON has none
    ends = pc.min_max(column)
    least, greatest = ends["min"].as_py(), ends["max"].as_py()
    if least is None or (isinstance(least, float) and not math.isfinite(greatest - least)):
        return None
    return _json_value(least, False), _json_value(greatest, True)


def _json_value(value: object, up: bool) -> object:
    """A value in statistics. Times are rounded to milliseconds, the greatest one `up`."""
    if isinstance(value, datetime):
        in_utc = value.astimezone(UTC) if value.tzinfo else value
        if up and in_utc.microsecond % 1_000:
            in_utc += _MILLISECOND
        return in_utc.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    return value.isoformat() if isinstance(value, date) else value
