"""Names and types as Spark SQL writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

SPARK_TYPES: Final[Mapping[Any, str]] = {
    pa.int64(): "long",
    pa.int8(): "tinyint",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.string(): "string",
    pa.timestamp("us", tz="UTC"): "timestamp",
}
"""Of the columns of tables."""


def quoted(name: str) -> str:
    """The name of a column, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"
