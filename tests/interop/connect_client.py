"""What a program does that has Spark only through Spark Connect; a process of its own, since one
process cannot have both kinds of session.

    python -m tests.interop.connect_client sc://127.0.0.1:15002 FOLDER UNTIL_S
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException

from rove.pipeline import (
    Index,
    ParquetFiles,
    SparkSettings,
    match,
    matches,
    open_session,
    rank,
    register,
    replay,
    task_files,
)
from rove.pipeline.lake import Lake

RANKED = "NO2 > 1 ORDER BY NO2 DESC LIMIT 1 WITHIN 1 HOUR"


def answers(spark: Any, folder: Path, until_s: float) -> dict[str, Any]:
    """What each way of asking gives."""
    found: dict[str, Any] = {}
    df = spark.createDataFrame([(1, 50.0, "a"), (2, 3.0, "b")], "id long, NO2 double, `x.y` string")
    found["texts"] = rows(match(df, ["NO2 > 40", "x.y = 'b'"], keep=["id"]))
    found["condition"] = rows(df.where(matches("NO2 > 40")).select("id"))
    register(spark)
    df.createOrReplaceTempView("readings")
    sql = "SELECT id FROM readings WHERE rove_matches('NO2 < 10', struct(*))"
    found["sql"] = rows(spark.sql(sql))
    try:
        df.where(matches("no2 > 40")).collect()
    except PySparkException as error:
        found["case"] = "did you mean NO2?" in str(error)
    vars(task_files)["SMALL_BYTES"] = 0  # so that it is sent as a file
    with Index.build(["NO2 > 40"]) as index:
        index.add(["NO2 > 1"])
        found["index"] = rows(match(df, index, keep=["id"]))
    df.write.parquet(str(folder / "table"))
    files = ParquetFiles(spark, folder / "table")
    found["files"] = rows(match(files, ["NO2 > 40"], keep=["id"]))
    timed = df.selectExpr("*", "double(id) AS at")
    found["ranked"] = rows(rank(timed, [RANKED], at="at", keep=["id"]).select("id", "score"))
    frame = replay(spark, Lake(folder / "lake"), until=until_s, buckets=2)
    found["replay"] = rows(frame.select("subscription", "id", "promoted"))
    return found


def rows(df: Any) -> list[list[Any]]:
    return sorted(list(row) for row in df.collect())


if __name__ == "__main__":
    session = open_session(SparkSettings(master=sys.argv[1]))
    try:
        print(json.dumps(answers(session, Path(sys.argv[2]), float(sys.argv[3]))))
    finally:
        session.stop()
