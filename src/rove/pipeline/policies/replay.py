"""Replays subscribers' policies over the log, or tries another policy on it.

    replay_policies(spark, lake)      # every decision of the broker's policies, computed anew
    replay_policy(spark, lake, text)  # what this policy would have sent instead, to all clients
    counts(decisions)                 # messages, bytes, steps and stops, by policy

The log has everything that a policy's decisions depend on: its text, the subscriber's variables,
the messages that the policy got and when. So the same agents (`rove.policy.agents`) produce the
same outputs, message by message; the tests compare them with what clients received
(`tests/interop/test_policy_equality.py`).

**By subscriber.** An agent's memory depends on all earlier rows, so rows are collected by client in
a bucket, and a bucket is one partition in the order of positions. `applyInArrow` by client took
nine times as long with pictures and twice as long with numbers: it sends and decodes a payload once
for every subscriber that gets it. Here a payload is sent once for each bucket: a row has it if the
bucket's last use of it is more than `NEAR` positions back; otherwise the worker still holds it.
Memory is that of the agents, one batch of rows, and payloads that will soon be used again.

**Which publication.** The log has the position of the publication for each decision. For
notifications without a policy it does not; there it is the last publication with that id and topic.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final

import msgspec

from rove.base.processes import cores
from rove.pipeline.lake.log import NOTHING, Lake
from rove.pipeline.lake.replay import replay
from rove.pipeline.policies.decisions import DECISIONS, ROW, DecideTask, decide
from rove.pipeline.spark.dialect import ddl
from rove.policy.compiler import compiled
from rove.policy.limits import PolicyLimits

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NEAR: Final = 2_000
"""The most positions between two uses of a payload for which a worker holds it."""
_IN_ORDER: Final = ("position",)
_IN_TIME: Final = ("at", "is_alone", "position", "client_id")
"""The order of rows: by position; or by time, for notifications that are not in the log."""


class _LogRange(msgspec.Struct, frozen=True):
    """The range of the log to replay."""

    after: int
    up_to: int
    channels: Collection[str] | None
    days: tuple[str, str] | None
    client_ids: Collection[str] | None

    @property
    def where(self) -> dict[str, Any]:
        """The arguments of the lake's methods."""
        names = ("after", "up_to", "channels", "days")
        return {name: getattr(self, name) for name in names}


def replay_policies(
    spark: SparkSession,
    lake: Lake,
    *,
    client_ids: Collection[str] | None = None,
    after: int = NOTHING,
    up_to: int | None = None,
    channels: Collection[str] | None = None,
    days: tuple[str, str] | None = None,
    limits: PolicyLimits | None = None,
    buckets: int | None = None,
    payloads: bool = True,
) -> DataFrame:
    """All decisions of the broker's policies, computed anew (`decisions.DECISIONS`).

    A row for each message that was sent, `number` counting those of one decision from 0; or one row
    with neither number nor payload if nothing was sent. `logged` is the verdict in the log. The
    result is exact from the beginning of the log on; with `after` or `days`, agents start with an
    empty memory. Without `payloads`, only their sizes are given.
    """
    last = lake.position() if up_to is None else min(up_to, lake.position())
    log_range = _LogRange(after, last, channels, days, client_ids)
    notifications = _recorded(spark, lake, log_range).where("entry LIKE '%\"policy\":%'")
    work = DecideTask(None, limits, payloads)
    return _decided(spark, lake, log_range, notifications, work, buckets or cores())


def replay_policy(
    spark: SparkSession,
    lake: Lake,
    text: str,
    *,
    client_ids: Collection[str] | None = None,
    after: int = NOTHING,
    up_to: int | None = None,
    channels: Collection[str] | None = None,
    days: tuple[str, str] | None = None,
    limits: PolicyLimits | None = None,
    buckets: int | None = None,
    payloads: bool = True,
) -> DataFrame:
    """What a policy would have sent to some clients, or to all (`decisions.DECISIONS`).

    It gets all their notifications, with their variables at that time, including variables that it
    sets itself. If the lake has no notifications, those of `rove.pipeline.lake.replay.replay` are
    used. PolicyError if the text is no valid policy.
    """
    compiled(text, bytes_max=(limits or PolicyLimits()).text_bytes_max)
    last = lake.position() if up_to is None else min(up_to, lake.position())
    log_range = _LogRange(after, last, channels, days, client_ids)
    work = DecideTask(text, limits, payloads)
    buckets = buckets or cores()
    if lake.files("notifications", after, last, channels, days):
        notifications = _located(lake, _recorded(spark, lake, log_range), log_range)
        return _decided(spark, lake, log_range, notifications, work, buckets)
    notifications = _found(spark, lake, log_range)
    return _decided(spark, lake, log_range, notifications, work, buckets, _IN_TIME)


def counts(decisions: DataFrame, *by: str) -> DataFrame:
    """Numbers of messages and bytes in and out, by policy or other columns."""
    from pyspark.sql import functions as f

    is_first = f.coalesce(f.col("number"), f.lit(0)) == 0

    def messages(when: Column) -> Column:
        return f.count_if(is_first & when)

    kinds = f.array_compact(f.collect_list(f.when(is_first & (f.col("kind") != ""), f.col("kind"))))
    found = decisions.groupBy(*(by or ("client_id", "subscription"))).agg(
        messages(f.lit(True)).alias("messages"),
        f.count("number").alias("sent"),
        f.sum(f.when(is_first, f.col("bytes_in"))).alias("bytes_in"),
        f.coalesce(f.sum("bytes_out"), f.lit(0)).alias("bytes_out"),
        *(
            messages(f.col("verdict") == verdict).alias(name)
            for verdict, name in (
                ("passed", "passed"),
                ("sent", "changed"),
                ("dropped", "dropped"),
                ("stopped", "stopped"),
                ("suspended", "suspended"),
            )
        ),
        kinds.alias("kinds"),
        f.sum(f.when(is_first, f.col("steps"))).alias("steps"),
        messages((f.col("logged") != "") & (f.col("logged") != f.col("verdict"))).alias(
            "different"
        ),
    )
    return found.withColumn("kinds", _histogram(f.col("kinds")))


def _histogram(kinds: Column) -> Column:
    """The number of each string in an array, as a map."""
    from pyspark.sql import functions as f

    names = f.array_sort(f.array_distinct(kinds))

    def times(name: Column) -> Column:
        return f.size(f.filter(kinds, lambda one: one == name))

    return f.map_from_arrays(names, f.transform(names, times))


# -- the rows ------------------------------------------------------------------------------------


def _recorded(spark: SparkSession, lake: Lake, log_range: _LogRange) -> DataFrame:
    """The notifications in the lake."""
    from pyspark.sql import functions as f

    rows = lake.notifications(spark, **log_range.where)
    entry = f.decode(f.col("payload"), "utf-8")
    known = f.get_json_object(entry, "$.position").cast("long")
    return _of_clients(rows, log_range).select(
        *("position", "at", "client_id", "topic", "id", "user"),
        entry.alias("entry"),
        f.col("subscriptions").alias("numbers"),
        f.when(known > 0, known).alias("published"),
        f.lit(False).alias("is_alone"),
    )


def _found(spark: SparkSession, lake: Lake, log_range: _LogRange) -> DataFrame:
    """Notifications computed from publications and subscriptions, one for each session.

    A publication that moved up in a window comes at that moment, after the moment's publications.
    """
    from pyspark.sql import functions as f

    pairs = replay(spark, lake, **log_range.where)
    entry = f.decode(f.col("payload"), "utf-8")
    owners = (
        lake.event_rows(spark, log_range.up_to)
        .select(
            "client_id", f.get_json_object(entry, "$.number").cast("long").alias("subscription")
        )
        .where(entry.contains('"event":"made"'))
        .distinct()
    )
    publications = lake.publications(spark, **log_range.where)
    known = publications.select("position", "topic", "user")
    met = pairs.join(_of_clients(owners, log_range), "subscription").groupBy(
        "client_id", "position", "at", "promoted", "id"
    )
    rows = met.agg(f.array_sort(f.collect_list("subscription")).alias("numbers"))
    return rows.join(known, "position").select(
        *("position", "at", "client_id", "topic", "id", "user", "numbers"),
        f.lit("{}").alias("entry"),
        f.col("position").alias("published"),
        f.col("promoted").alias("is_alone"),
    )


def _of_clients(rows: DataFrame, log_range: _LogRange, *others: Column) -> DataFrame:
    """The rows of the wanted clients, and rows that meet other conditions."""
    from pyspark.sql import functions as f

    if log_range.client_ids is None:
        return rows
    is_wanted = f.col("client_id").isin(list(log_range.client_ids))
    return rows.where(reduce(or_, others, is_wanted))


def _events(spark: SparkSession, lake: Lake, log_range: _LogRange, buckets: int) -> DataFrame:
    """The events of subscribers; a start of the broker goes to all buckets."""
    from pyspark.sql import functions as f

    rows = lake.event_rows(spark, log_range.up_to)
    is_start = f.col("client_id") == ""
    rows = _of_clients(rows, log_range, is_start)
    everywhere = f.sequence(f.lit(0), f.lit(buckets - 1))
    own = f.array(_bucket(buckets))
    return rows.select(
        f.explode(f.when(is_start, everywhere).otherwise(own)).alias("bucket"),
        *("position", "at", "client_id"),
        f.decode(f.col("payload"), "utf-8").alias("entry"),
        f.lit(True).alias("is_event"),
        f.lit(False).alias("is_alone"),
    )


def _bucket(buckets: int) -> Column:
    from pyspark.sql import functions as f

    return f.pmod(f.hash("client_id"), f.lit(buckets)).cast("int")


def _with_payloads(
    lake: Lake, rows: DataFrame, log_range: _LogRange, order: Sequence[str]
) -> DataFrame:
    """Notifications with payloads; a payload is repeated only after more than `NEAR` positions.

    Rows with `is_alone` are not in the order of the others, and always have their payload.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    spark = rows.sparkSession
    after = NOTHING
    if log_range.days is not None or log_range.after > NOTHING:
        # Some publications lie long before the range, but usually there are few.
        (first,) = rows.agg(f.min("published")).collect()[0]
        after = NOTHING if first is None else first - 1
    use = Window.partitionBy("bucket", "published", "is_alone").orderBy(*order)
    before, behind = (move("position").over(use) for move in (f.lag, f.lead))
    is_alone = f.col("is_alone") | f.col("published").isNull()
    brings = is_alone | before.isNull() | (f.col("position") - before > NEAR)
    uses = rows.withColumns(
        {
            # No publication has a negative position: rows without a payload are spread by theirs.
            "key": f.when(brings, f.col("published")).otherwise(-f.col("position")),
            "is_last": is_alone | behind.isNull() | (behind - f.col("position") > NEAR),
        }
    )
    publications = lake.publications(spark, after=after, up_to=log_range.up_to)
    payloads = publications.select(f.col("position").alias("key"), "payload")
    return uses.join(payloads, "key", "left")


def _located(lake: Lake, notifications: DataFrame, log_range: _LogRange) -> DataFrame:
    """Add the position of the publication to notifications that lack it."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    publications = lake.publications(notifications.sparkSession, up_to=log_range.up_to)
    names = publications.select("position", "topic", "id", f.col("position").alias("found"))
    same = Window.partitionBy("topic", "id").orderBy("position")
    latest = f.last("found", ignorenulls=True).over(same)
    both = notifications.unionByName(names, allowMissingColumns=True)
    known = both.withColumn("published", f.coalesce("published", latest))
    return known.where("found IS NULL").drop("found")


def _decided(
    spark: SparkSession,
    lake: Lake,
    log_range: _LogRange,
    notifications: DataFrame,
    work: DecideTask,
    buckets: int,
    order: Sequence[str] = _IN_ORDER,
) -> DataFrame:
    from pyspark.sql import functions as f

    events = _events(spark, lake, log_range, buckets)
    rows = notifications.withColumns({"bucket": _bucket(buckets), "is_event": f.lit(False)})
    shown = _with_payloads(lake, rows, log_range, order)
    rows = shown.unionByName(events, allowMissingColumns=True).select(*ROW, "is_alone")
    together = rows.repartitionById(buckets, "bucket").sortWithinPartitions("bucket", *order)
    return together.drop("is_alone").mapInArrow(partial(decide, work), ddl(DECISIONS))
