"""Names and types as Spark SQL writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

SPARK_TYPES: Final[Mapping[Any, str]] = {
    pa.int64(): "long",
    pa.int32(): "int",
    pa.int8(): "tinyint",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.string(): "string",
    pa.timestamp("us", tz="UTC"): "timestamp_ltz",
    pa.date32(): "date",
    pa.binary(): "binary",
    pa.list_(pa.int64()): "array<long>",
    pa.list_(pa.string()): "array<string>",
    pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())])): (
        "array<struct<name: string, value: string>>"
    ),
    pa.list_(pa.struct([("lat", pa.float64()), ("long", pa.float64())])): (
        "array<struct<lat: double, long: double>>"
    ),
}
"""Of the columns of tables."""


def ddl(schema: pa.Schema) -> str:
    """The columns of a table as Spark declares them."""
    return ", ".join(f"{quoted(field.name)} {SPARK_TYPES[field.type]}" for field in schema)


def quoted(name: str) -> str:
    """The name of a column, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"
