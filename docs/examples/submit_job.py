"""A job for `spark-submit`: who would get which rows of a table or of a broker's lake.

    rove pipeline package --out dist
    spark-submit --master spark://host:7077 --archives dist/rove.zip#rove \\
        docs/examples/submit_job.py --readings readings --texts interests.txt --out matched

`--lake rove-data/lake` takes the place of `--readings`. The session is the cluster's own, and Rove
is imported after it has begun: what `--archives` brings is there from then on, in the driver too.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def matched(spark: SparkSession, given: argparse.Namespace) -> Any:
    """A row for each match: the table's columns, and the number of the line as `subscription`."""
    from rove.pipeline import match
    from rove.pipeline.lake.data_source import register

    texts = Path(given.texts).read_text(encoding="utf-8").splitlines()
    if given.readings:
        return match(spark.read.parquet(given.readings), texts)
    register(spark)
    rows = spark.read.format("rove").load(given.lake)
    readings = rows.selectExpr("topic", "at", f"from_json(string(payload), '{given.schema}') AS r")
    return match(readings.select("topic", "at", "r.*"), texts, at="at", topic="topic")


def main() -> None:
    """Read, match, write."""
    parser = argparse.ArgumentParser()
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--readings", help="Parquet files")
    source.add_argument("--lake", help="of a broker")
    parser.add_argument("--schema", default="NO2 double", help="of the payloads in a lake")
    parser.add_argument("--texts", required=True, help="a file with a subscription in each line")
    parser.add_argument("--out", required=True, help="a folder for Parquet files")
    given = parser.parse_args()
    spark = SparkSession.builder.appName("who gets what").getOrCreate()
    try:
        matched(spark, given).write.mode("overwrite").parquet(given.out)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
