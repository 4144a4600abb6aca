"""What the library answers on some Spark, and what is right: for sessions, servers and versions.

    python -m tests.interop.spark_answers local[2] FOLDER UNTIL_S [stream]

A process of its own for Spark Connect, since one process cannot have both kinds of session, and
for other versions of Spark. FOLDER has the lake of a `Recording`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

import rove.lang
from rove.lake.delta import DeltaTable
from rove.lang.parser import parse
from rove.pipeline.lake.data_source import whole
from rove.pipeline.lake.log import Lake
from rove.pipeline.lake.versions import Version

SCHEMA: Final = "id long, NO2 double, count long, `x.y` string, n struct<m: double, s: string>"
ROWS: Final[list[tuple[Any, ...]]] = [
    (0, 50.0, 2**53 + 1, "Abc", (1.0, "x")),
    (1, 12.0, 7, "b", None),
    (2, None, None, None, (None, "ÿ")),
    (3, float("nan"), -1, "", (2.0, None)),
    (4, 40.0, 2**53, "abd", (None, None)),
]
TEXTS: Final = [
    "NO2 > 40",
    "NO2 <= 40 OR x.y LIKE 'ab%'",
    "count > 9007199254740992",
    "n.m + NO2 > 42",
    "n IS NOT NULL AND n.m IS NULL",
    "lower(n.s) = 'ÿ' OR NO2 IS NULL",
]
CONDITIONS: Final = [number for number, text in enumerate(TEXTS) if "x.y" not in text]
"""Those that name columns without dots, which is what `matches` can."""
AFTER: Final = 200
"""A position in the lake."""
BEGIN_S: Final = 1_790_000_000
RANKED: Final = "NO2 > 1 ORDER BY NO2 DESC LIMIT 1 WITHIN 1 HOUR"
TIMED: Final = f"timestamp_seconds({BEGIN_S} + 2 * id) AS at"


def right(folder: Path, notified: list[list[Any]]) -> dict[str, Any]:
    """By the slow obvious evaluator, by the lake's own reader, and by what the broker did."""
    pairs = [
        [row[0], number]
        for row in ROWS
        for number, text in enumerate(TEXTS)
        if rove.lang.matches(parse(text), _publication(row))
    ]
    lake = whole(Lake(folder / "lake"))
    late = lake.filter(pc.greater(lake["position"], AFTER))
    return {
        "texts": pairs,
        "grouped": pairs,
        "packed": pairs,
        "condition": [[id, number] for id, number in pairs if number in CONDITIONS],
        "sql": [[id] for id, number in pairs if number == 0],
        "case": True,
        "evolving": [[id, 3] for id in range(1, len(ROWS))],
        "index": [[id, number] for id, number in pairs if number in (0, 2)],
        "files": [[id, number] for id, number in pairs if number == 0],
        "ranked": [[0, BEGIN_S, 50.0]],
        "source": [late["at"].cast(pa.int64()).to_pylist()],
        "replay": notified,
    }


def right_stream(notified: list[list[Any]]) -> list[list[Any]]:
    """Without what moves up in windows: a stream tells that with the next publication."""
    return sorted([number, id] for number, id, is_promoted in notified if not is_promoted)


def _publication(row: tuple[Any, ...]) -> dict[str, Any]:
    """A row as somebody would have published it."""
    id, no2, count, text, n = row
    given = {"id": id, "NO2": None if no2 != no2 else no2, "count": count}
    given["x"] = None if text is None else {"y": text}
    given["n"] = None if n is None else dict(zip(("m", "s"), n, strict=True))
    return {name: value for name, value in given.items() if value is not None}


def answers(spark: Any, folder: Path, until_s: float) -> dict[str, Any]:
    """What each way of asking gives."""
    from pyspark.sql import functions as f

    from rove.pipeline import match, rank, replay
    from rove.pipeline.matching.dataframes import unpacked

    df = spark.createDataFrame(ROWS, SCHEMA)
    timed = df.selectExpr("*", TIMED)
    moving = Version(number=3, text="id < t", accepted_at=BEGIN_S)
    found = {
        "texts": rows(match(df, TEXTS, keep=["id"])),
        "grouped": rows(_pairs(match(df, TEXTS, keep=["id"], form="grouped"), "subscriptions")),
        "packed": rows(_pairs(match(df, TEXTS, keep=["id"], form="packed"), unpacked())),
        "condition": _conditions(df),
        **_sql(spark, df),
        "evolving": rows(match(timed, [moving], at="at", keep=["id"])),
        **_files(spark, df, folder),
    }
    given = rank(timed, [RANKED], at="at", keep=["id"])
    found["ranked"] = rows(given.select("id", f.col("due").cast("long"), "score"))
    found["source"] = _source(spark, folder)
    frame = replay(spark, Lake(folder / "lake"), until=until_s, buckets=2)
    found["replay"] = rows(frame.select("subscription", "id", "promoted"))
    return found


def _pairs(df: Any, subscriptions: Any) -> Any:
    from pyspark.sql import functions as f

    return df.select("id", f.explode(subscriptions))


def _conditions(df: Any) -> list[list[int]]:
    from rove.pipeline import matches

    found = df.select("id", *(matches(TEXTS[number]) for number in CONDITIONS)).collect()
    return sorted(
        [row[0], number]
        for row in found
        for number, holds in zip(CONDITIONS, row[1:], strict=True)
        if holds
    )


def _sql(spark: Any, df: Any) -> dict[str, Any]:
    from pyspark.errors import PySparkException

    from rove.pipeline import matches, register

    register(spark)
    df.createOrReplaceTempView("readings")
    sql = "SELECT id FROM readings WHERE rove_matches('NO2 > 40', struct(*))"
    try:
        df.where(matches("no2 > 40")).collect()
        told = "nothing"
    except PySparkException as error:
        told = str(error)
    is_told = "did you mean NO2?" in told or "UNRESOLVED_COLUMN" in told
    return {"sql": rows(spark.sql(sql)), "case": is_told or told}


def _files(spark: Any, df: Any, folder: Path) -> dict[str, Any]:
    from rove.pipeline import Index, ParquetFiles, match
    from rove.pipeline.spark import executors

    small, vars(executors)["SMALL_BYTES"] = executors.SMALL_BYTES, 0  # so that it is sent
    try:
        with Index.build([(0, TEXTS[0])]) as index:
            index.add([(2, TEXTS[2])])
            found = {"index": rows(match(df, index, keep=["id"]))}
    finally:
        vars(executors)["SMALL_BYTES"] = small
    df.drop("n").write.mode("overwrite").parquet(str(folder / "table"))
    files = ParquetFiles(spark, folder / "table")
    return {**found, "files": rows(match(files, TEXTS[:1], keep=["id"]))}


def _source(spark: Any, folder: Path) -> list[list[Any]]:
    """The moments of later publications, in order."""
    from rove.pipeline.lake.data_source import register

    register(spark)
    late = spark.read.format("rove").load(str(folder / "lake")).where(f"position > {AFTER}")
    moments = late.orderBy("position").selectExpr("unix_micros(at) AS at").collect()
    return [[row["at"] for row in moments]]


def stream_answer(spark: Any, folder: Path) -> list[list[Any]] | str:
    """What the streaming match finds, or why there is none."""
    from rove.pipeline.jobs.job import JobSettings
    from rove.pipeline.jobs.stream import MatchStream
    from rove.pipeline.spark.dialect import OldSparkError

    out = folder / spark.version
    settings = JobSettings(lake=folder / "lake", out=folder, once=True, max_rows=50)
    stream = MatchStream(spark, settings, out)
    try:
        stream.start().awaitTermination()
    except OldSparkError as error:
        return str(error)
    ids = {row["position"]: row["id"] for row in whole(stream.lake).to_pylist()}
    found = [row for row in DeltaTable(out).rows().to_pylist() if not row["promoted"]]
    return sorted([row["subscription"], ids[row["position"]]] for row in found)


def rows(df: Any) -> list[list[Any]]:
    return sorted(list(row) for row in df.collect())


if __name__ == "__main__":
    from rove.pipeline import SparkSettings, open_session

    session = open_session(SparkSettings(master=sys.argv[1], memory="1g", brief=True))
    try:
        found = answers(session, Path(sys.argv[2]), float(sys.argv[3]))
        if sys.argv[4:] == ["stream"]:
            found["stream"] = stream_answer(session, Path(sys.argv[2]))
        print(json.dumps(found))
    finally:
        session.stop()
