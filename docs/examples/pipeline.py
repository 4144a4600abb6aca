"""Subscriptions over a table of readings, with Spark: who would have been told, and how often.

Run it with `python docs/examples/pipeline.py`; `docs/spark.md` explains it step by step.
"""

from __future__ import annotations

from typing import Any

from rove.pipeline import SparkSettings, match, matches, open_session, rank, register
from rove.pipeline.lake.versions import Version


def readings(spark: Any) -> Any:
    """A day of 20 stations, a reading every 10 minutes; two of them drive around."""
    return spark.range(20 * 144).selectExpr(
        "id",
        "concat('air/', id % 20) AS topic",
        "timestamp_seconds(1790000000 + 600 * (id DIV 20)) AS at",
        "round(25 + 20 * sin(id / 400.0) + (id % 20), 1) AS NO2",
        "45.80 + (id % 20) / 1000.0 AS lat",
        "15.95 + (id % 20) / 1000.0 + if(id % 20 < 2, (id DIV 20) / 10000.0, 0.0) AS long",
        "if(id % 20 < 2, 'tram', 'fixed') AS kind",
        "named_struct('level', 1 - (id DIV 20) / 160.0, 'ok', id % 17 > 0) AS battery",
    )


def main(spark: Any) -> None:
    """Everything that the page shows."""
    table = readings(spark)

    # Who would have been told of what: a row for each match.
    texts = {
        "alarm": "NO2 > 60",
        "centre": "NO2 > 40 AND lat BETWEEN 45.805 AND 45.81",
        "weak": "battery.level < 0.2 OR NOT battery.ok",
        "trams": "kind LIKE 'tr%' AND NO2 + battery.level > 40",
    }
    found = match(table, list(texts.items()), at="at", topic="topic")
    found.groupBy("subscription").count().orderBy("subscription").show()

    # An area that travels east, since the moment it was asked for, for the trams' topics only.
    east = "long BETWEEN 15.95 + 0.0000001 * t AND 15.96 + 0.0000001 * t"
    travelling = Version(number=7, text=east, filter="air/+", accepted_at=1790010000.0)
    print(match(table, [travelling], at="at", topic="topic", keep=["id"]).count(), "on the way")

    # A text as a condition, beside whatever Spark has.
    print(table.where(matches(texts["centre"])).where("hour(at) >= 18").count(), "in the evening")

    # The same in SQL.
    register(spark)
    table.createOrReplaceTempView("readings")
    spark.sql("""
        SELECT kind, count_if(rove_matches('battery.level < 0.2', struct(*))) AS weak, count(*) AS n
        FROM readings GROUP BY kind ORDER BY kind
    """).show()

    # Ranked: the two highest readings within two hours, each when it first is one of them.
    worst = rank(table, ["ORDER BY NO2 DESC LIMIT 2 WITHIN 2 HOURS"], at="at", order="id")
    print(worst.count(), "times among the worst")


if __name__ == "__main__":
    session = open_session(SparkSettings(name="readings"))
    try:
        main(session)
    finally:
        session.stop()
