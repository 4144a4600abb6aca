"""Spark jobs over the stream of publications and its history.

The pipeline does at scale, and for the past, what the broker does for the present: it stores the
stream in tables, evaluates the same expressions over it, and delivers notifications to the broker.
The broker's matcher (`rove.match`) runs inside Spark's workers; Spark transports the data.

The public API:

    from rove.pipeline import match, matches, rank, register, replay

    match(df, ["NO2 > 40"])               matches the rows of any DataFrame
    Index.build(["NO2 > 40"])             the same subscriptions for many tables
    ParquetFiles(spark, "s3://bucket/a")  files that workers read themselves
    df.where(matches("NO2 > 40"))         an expression as a column; `register` adds a SQL function
    rank(df, ["ORDER BY NO2 DESC LIMIT 3 WITHIN 1 HOURS"], at="at")
    replay(spark, Lake(Path("lake")))     the broker's notifications, computed from its lake
    ship(spark)                           makes Rove available on the executors of a session

Names are imported when they are first used: importing this module imports nothing else.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rove.pipeline.lake.replay import replay
    from rove.pipeline.matching.dataframes import match, matches, register
    from rove.pipeline.matching.index import Index
    from rove.pipeline.policies.replay import replay_policies, replay_policy
    from rove.pipeline.ranked.ranking import rank
    from rove.pipeline.spark.executors import ship
    from rove.pipeline.spark.parquet_files import ParquetFiles
    from rove.pipeline.spark.session import SparkSettings, open_session

__all__ = [
    "Index",
    "ParquetFiles",
    "SparkSettings",
    "match",
    "matches",
    "open_session",
    "rank",
    "register",
    "replay",
    "replay_policies",
    "replay_policy",
    "ship",
]
_PLACES = {
    "Index": "matching.index",
    "ParquetFiles": "spark.parquet_files",
    "SparkSettings": "spark.session",
    "match": "matching.dataframes",
    "matches": "matching.dataframes",
    "open_session": "spark.session",
    "rank": "ranked.ranking",
    "register": "matching.dataframes",
    "replay": "lake.replay",
    "replay_policies": "policies.replay",
    "replay_policy": "policies.replay",
    "ship": "spark.executors",
}

if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in _PLACES:
            raise AttributeError(f"module 'rove.pipeline' has no attribute {name!r}")
        from importlib import import_module

        found = getattr(import_module(f"rove.pipeline.{_PLACES[name]}"), name)
        globals()[name] = found  # the next access does not call this function
        return found
