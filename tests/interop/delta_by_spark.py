"""Spark's own reader of Delta, for a process of its own: tables as it finds them, as Parquet.

    python -m tests.interop.delta_by_spark JAR,JAR FOLDER TABLE TABLE

The first is `FOLDER/0.parquet`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.parquet as pq

from rove.pipeline import SparkSettings, open_session


def copy(jars: str, folder: Path, tables: list[str]) -> None:
    """Read each."""
    conf = {
        "spark.jars": jars,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    session = open_session(SparkSettings(master="local[2]", memory="1g", brief=True, conf=conf))
    try:
        for number, table in enumerate(tables):
            rows = session.read.format("delta").load(table)
            pq.write_table(rows.toArrow(), folder / f"{number}.parquet")
    finally:
        session.stop()


if __name__ == "__main__":
    copy(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
