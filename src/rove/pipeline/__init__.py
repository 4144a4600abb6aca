"""Spark jobs over the stream and its history.

What the broker does for the present, the pipeline does for the past and for scale: it keeps the
stream in tables, answers the same texts over it, and hands notifications back to the broker. The
matching is the broker's own (`rove.match`), inside Spark's workers; Spark moves the data.

For programs of others:

    from rove.pipeline import match, matches, rank, register, replay

    match(df, ["NO2 > 40"])                 who gets which rows of any DataFrame
    Index.build(["NO2 > 40"])               the same subscriptions for many tables
    ParquetFiles(spark, "s3://bucket/air")  a table that workers read themselves
    df.where(matches("NO2 > 40"))           a text as a column; `register` makes it a SQL function
    rank(df, ["ORDER BY NO2 DESC LIMIT 3 WITHIN 1 HOURS"], at="at")
    replay(spark, Lake(Path("lake")))       what a broker notified of, computed from its lake
    ship(spark)                             brings Rove to the executors of a session of your own

They are looked up when they are first asked for: this module imports nothing.
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
        globals()[name] = found  # from now on it is found without asking
        return found
