"""Spark's own names and types, and what its older versions lack.

The code is written for the newest Spark. With 4.1 only streams of the lake are missing: its Python
data sources cannot limit a micro-batch, so the first one would be the whole lake. 4.0 is refused:
it has neither functions over Arrow (`arrow_udf`), nor partitions by number (`repartitionById`), nor
filters for Python data sources. `matches`, `rank`, replays and the source of the lake are built on
these; each would need a second implementation.

This module imports Spark only inside its functions, like its callers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from rove.errors import RoveError

OLDEST: Final = (4, 1)
OLDEST_WITH_STREAMS: Final = (4, 2)
"""The first version with streams of the lake."""
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
"""The types of columns in SQL, by their Arrow types."""


class OldSparkError(RoveError):
    """This Spark is too old for an operation."""


# -- names and types ----------------------------------------------------------------------------


def ddl(schema: pa.Schema) -> str:
    """The columns of a table as Spark declares them."""
    return ", ".join(f"{quoted(field.name)} {SPARK_TYPES[field.type]}" for field in schema)


def quoted(name: str) -> str:
    """The name of a column, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def to_arrow_type(of_spark: Any) -> pa.DataType:
    """The type of Arrow for one of Spark's; times in UTC."""
    from pyspark.sql.pandas import types

    # 4.1 calls the option `timestamp_utc`, which is on by default.
    options = {} if _version() < (4, 2) else {"timezone": "UTC"}
    return types.to_arrow_type(of_spark, **options)


# -- versions -----------------------------------------------------------------------------------


def check_spark() -> None:
    """OldSparkError if Rove cannot run on this Spark."""
    if (version := _version()) < OLDEST:
        raise OldSparkError(
            f"Rove needs Spark {_text(OLDEST)} or newer, and this is {_text(version)}; "
            f"pip install 'pyspark>={_text(OLDEST)}'"
        )


def check_streams() -> None:
    """OldSparkError if this Spark cannot follow a lake."""
    if (version := _version()) < OLDEST_WITH_STREAMS:
        raise OldSparkError(
            f"streams of a lake need Spark {_text(OLDEST_WITH_STREAMS)} or newer, and this is "
            f"{_text(version)}, whose Python sources cannot limit a micro-batch; replay(…) and "
            'spark.read.format("rove") do without'
        )


def _version() -> tuple[int, ...]:
    from pyspark import __version__ as version

    return tuple(map(int, version.split(".")[:2]))


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
